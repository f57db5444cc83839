"""Whether rows of a run agree with the same examples scored again, by what was measured between such computations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

MEASURED = {
    frozenset({"float32"}): 3e-6,
    frozenset({"float16"}): 1e-3,
    frozenset({"float32", "float16"}): 1e-3,
    frozenset({"bfloat16"}): 0.034,
    frozenset({"float32", "bfloat16"}): 0.034,
    frozenset({"float16", "bfloat16"}): 0.034,
}
"""The mean absolute difference of a token's log-prob between two correct computations, by what they compute in.

What `benchmarks/agreement.py` found at most, rounded up, on a CPU, on a GPU and between them, in batches of one and of
many, with other threads, plain and compiled layers: see docs/numerics.md.
"""

ROOM = 3.0
"""Another model or another kind of machine may differ so many times more than what was measured."""

OF_A_ROW = 4.0
"""One row's mean may be so many times that of many. Measured: up to 4.5 times, before ROOM."""

OF_A_SUM = 10.0
"""One row's sum of n tokens may be off by so many times that times the root of n. Measured: up to 10.4, before ROOM."""

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Limit:
    """How far two correct computations may differ: per token in the mean of many rows, and within one row."""

    expected: float

    @property
    def mean(self) -> float:
        return ROOM * self.expected

    @property
    def of_a_row(self) -> float:
        return OF_A_ROW * self.mean

    def of_a_sum(self, tokens: int) -> float:
        return OF_A_SUM * self.mean * math.sqrt(max(tokens, 1))


def limit(dtype: str, other: str) -> Limit | None:
    """For two computations in these types; None where no such pair was measured."""
    expected = MEASURED.get(frozenset({dtype, other}))
    return None if expected is None else Limit(expected)


@dataclass(frozen=True, slots=True)
class RowAgreement:
    """One row against itself scored again: the mean absolute difference of its tokens, how many, and what is wrong."""

    mean: float
    tokens: int
    problem: str | None


def row_agreement(
    stored: ArrayLike, now: ArrayLike, limits: Limit, *, margins: ArrayLike, border: float = 0.0, sharpness: float = 1.0
) -> RowAgreement:
    """Token log-probs as a run has them against the same computed again, `now` at least as many.

    A token may be impossible in one of the two alone only where its margin is below `border`; one that a list left open
    (null) in one of them is not compared. `sharpness`: by how much the scheme multiplies differences of logits
    (1 / temperature, where that is below 1).
    """
    was = np.asarray(stored, np.float64)
    own, margin = np.asarray(now, np.float64)[: was.size], np.asarray(margins, np.float64)[: was.size]
    told = ~np.isnan(was) & ~np.isnan(own)  # what a served model's list leaves open is no finding
    crossed = told & (np.isfinite(was) != np.isfinite(own))
    if (far := crossed & (np.abs(margin) >= border)).any():
        place = int(np.flatnonzero(far)[0])
        return RowAgreement(math.inf, int(was.size), f"token {place + 1} is possible in one of the two alone")
    both = np.isfinite(was) & np.isfinite(own)
    difference = own[both] - was[both]
    mean, total = (float(np.abs(difference).mean()), float(difference.sum())) if difference.size else (0.0, 0.0)
    problem = None
    if mean > sharpness * limits.of_a_row:
        problem = f"its tokens differ by {mean:.2g} in the mean"
    elif abs(total) > sharpness * limits.of_a_sum(difference.size):
        problem = f"its log-prob differs by {total:+.2g}"
    return RowAgreement(mean, int(difference.size), problem)


def wrong_at_most(clean: int) -> float:
    """After so many rows drawn at random without a wrong one: the largest share of wrong rows, with 95% confidence."""
    return 1.0 if clean < 1 else 1 - (1 - CONFIDENCE) ** (1 / clean)
