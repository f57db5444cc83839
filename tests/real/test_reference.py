"""The numpy reference for wide vocabularies says what the slow, plain one says. Fast: part of the default tier."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.reference import decoding, wide


@cases(200)
@given(
    st.lists(st.integers(-40, 40), min_size=2, max_size=30),
    st.sampled_from([0.0, 0.5, 0.7, 1.0, 2.0]),
    st.one_of(st.none(), st.integers(1, 30)),
    st.sampled_from([None, 0.1, 0.5, 0.9, 1.0]),
    st.sampled_from([None, None, 0.001, 0.1, 0.5, 1.0]),
)
def test_both_references_agree(
    quarters: list[int], temperature: float, top_k: int | None, top_p: float | None, min_p: float | None
) -> None:
    # Quarters: many ties. Thresholds that a sum of equal shares meets exactly are left to neither's rounding.
    logits = np.array(quarters, dtype=np.float64) / 4
    top_k = None if top_k is None else min(top_k, len(logits))
    options = (temperature, top_k, top_p, min_p)
    kept = decoding.support(logits, *options)
    if top_p is not None and _touches(logits, temperature, top_k, top_p):
        return
    assert sorted(wide.support(logits, *options).tolist()) == kept
    for target in range(len(logits)):
        want = decoding.log_prob(logits, target, *options)
        assert wide.log_prob(logits, target, *options) == pytest.approx(want, abs=1e-12)


def _touches(logits: np.ndarray, temperature: float, top_k: int | None, top_p: float) -> bool:
    """Whether some running sum of probabilities is the threshold, but for rounding."""
    if temperature == 0:
        return False
    kept = decoding.support(logits, temperature, top_k, None)
    shares = np.array([np.exp(decoding.log_prob(logits, i, temperature, top_k, None)) for i in kept])
    return bool((np.abs(np.cumsum(np.sort(shares)[::-1]) - top_p) < 1e-12).any())
