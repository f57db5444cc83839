"""A whole book from its first sentences, with the defaults of `rote reconstruct`: some minutes on two cores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rote

pytestmark = [pytest.mark.real, pytest.mark.timeout(5400)]


@pytest.mark.parametrize("context", ["sliding", "anchored"])
def test_the_bundled_model_writes_its_book(bundled: Any, alice: str, tmp_path: Path, context: Any) -> None:
    seed = alice[: alice.index("So she was considering")]
    found = rote.reconstruct(seed, bundled, out=tmp_path / "run", truth=alice, context=context)
    compared = found.summary["similarity"]
    assert compared["word_ratio"] >= 0.95
    assert compared["matched_share"] >= 0.99
    assert compared["tf_idf_cosine"] >= 0.99
