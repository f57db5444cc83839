"""Decoding schemes by the definition, in float64 numpy: for vocabularies too wide for `tests.reference.decoding`.

Whole rows are sorted and summed, nothing is skipped. Shares no code with rote; compared with the slower one in
tests/real/test_reference.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]


def support(
    logits: Row, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None = None
) -> NDArray[np.int64]:
    """Ids of the tokens the scheme may emit, most likely first, equal ones by id."""
    if temperature == 0:
        return np.array([np.argmax(logits)])  # the first of equals: the lowest id
    # The scheme acts on float32 logits: the division is done there, so that ties are the ones it makes.
    scaled = (logits.astype(np.float32) / np.float32(temperature)).astype(np.float64)
    ids = np.argsort(-scaled, kind="stable")
    if top_k is not None:
        border = scaled[ids[top_k - 1]]
        ids = ids[scaled[ids] >= border]
    if top_p is not None and top_p < 1:
        weights = np.exp(scaled[ids] - scaled[ids[0]])
        mass = np.cumsum(weights / weights.sum())
        mass_before = np.concatenate([[0.0], mass[:-1]])
        ids = ids[mass_before < top_p]
    if min_p is not None:
        ids = ids[scaled[ids] - scaled[ids[0]] >= math.log(min_p)]
    return ids


def log_prob(
    logits: Row, target: int, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None = None
) -> float:
    kept = support(logits, temperature, top_k, top_p, min_p)
    if target not in kept:
        return -math.inf
    if temperature == 0:
        return 0.0
    scaled = logits[kept] / temperature
    return float(logits[target] / temperature - scaled.max() - np.log(np.exp(scaled - scaled.max()).sum()))


def log_p_z(
    rows: Any, suffix: list[int], temperature: float, top_k: int | None, top_p: float | None, min_p: float | None = None
) -> float:
    options = (temperature, top_k, top_p, min_p)
    return math.fsum(log_prob(row, token, *options) for row, token in zip(rows, suffix, strict=True))
