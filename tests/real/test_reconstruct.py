"""The first chapters of a book from its first sentences: some two minutes on one core.

docs/guide/reconstruct.md has the whole book, under both contexts, with the command that writes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rote

pytestmark = [pytest.mark.real, pytest.mark.timeout(5400)]


def test_the_bundled_model_writes_its_book(bundled: Any, alice: str, tmp_path: Path) -> None:
    """With the cheaper of the two contexts, over many times the length of its context."""
    seed, truth = alice[: alice.index("So she was considering")], alice[: alice.index("CHAPTER IV")]
    writing = rote.Writing(context="anchored", tokens=len(bundled.tokenizer(truth).input_ids))
    found = rote.reconstruct(bundled, seed, out=tmp_path / "run", truth=truth, writing=writing)
    compared = found.summary.similarity
    assert compared is not None
    assert compared.word_ratio >= 0.95
    assert compared.matched_share >= 0.99
    assert compared.tf_idf_cosine is not None
    assert compared.tf_idf_cosine >= 0.99
