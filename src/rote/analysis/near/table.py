"""The score table's near-verbatim columns, checked, as arrays; and shares that may be of nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.rates import log_prob_bounds
from rote.errors import InputError
from rote.odds import wilson
from rote.store.summary import Share

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

TAU = 0.001

# Sums of many masses may pass 1, or one bound the other, by this much rounding; more is a fault of the table.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class NearTable:
    """A checked table. `lower` and `upper` have a row per example and a column per tolerance."""

    ids: list[str]
    log_prob: Array
    lower: Array
    upper: Array
    tau: float

    @property
    def tolerances(self) -> range:
        return range(self.lower.shape[1] if self.ids else 0)  # without rows there is no telling

    @property
    def p_z(self) -> Array:
        return np.exp(self.log_prob)

    @property
    def verbatim(self) -> Mask:
        return self.log_prob >= math.log(self.tau)

    @property
    def extractable(self) -> Mask:
        return self.lower[:, -1] >= self.tau

    @property
    def undecided(self) -> Mask:
        return ~self.extractable & (self.upper[:, -1] >= self.tau)


def near_table(scores: pl.DataFrame, tau: float = TAU) -> NearTable:
    if not 0 < tau <= 1:
        raise InputError(f"tau is a probability and must lie in (0, 1], not {tau}.")
    _, log_prob = log_prob_bounds(scores, "lower_by_tolerance", "upper_by_tolerance")
    ids = scores["example_id"].to_list()
    if scores["bounded"].any():
        stopped = ids[int(scores["bounded"].arg_max() or 0)]
        raise InputError(
            f"of p_z of example {stopped!r} only an upper bound is known; score it again without stopping early, or "
            "from longer lists of a served model."
        )
    lower, upper = _bounds(scores, "lower_by_tolerance"), _bounds(scores, "upper_by_tolerance")
    if lower.shape != upper.shape:
        raise InputError(f"there are lower bounds for {lower.shape[1]} tolerances and upper for {upper.shape[1]}.")
    crossed = (lower > upper + _ROUNDING).any(axis=1)
    if crossed.any():
        raise InputError(f"example {ids[int(crossed.argmax())]!r} has a lower bound above its upper bound.")
    return NearTable(ids, log_prob, np.minimum(lower, 1.0), np.minimum(np.maximum(lower, upper), 1.0), tau)


def _bounds(scores: pl.DataFrame, name: str) -> Array:
    """A column of lists as rows and columns, once every list is of one length and holds probabilities."""
    if not scores.height:
        return np.zeros((0, 1))
    lengths = scores[name].list.len().fill_null(0)
    if not lengths.min():
        row = scores.row(int((lengths == 0).arg_max() or 0), named=True)
        raise InputError(f"example {row['example_id']!r} has no {name}; run the near-verbatim search on it.")
    if lengths.n_unique() > 1:
        raise InputError(f"the lists in {name} differ in length; take the rows of one run.")
    values = scores[name].explode().cast(pl.Float64).to_numpy().reshape(scores.height, -1)
    bad = ~((values >= 0) & (values <= 1 + _ROUNDING)).all(axis=1)  # NaN, which a null becomes, is in no range
    if bad.any():
        row = scores.row(int(bad.argmax()), named=True)
        raise InputError(f"example {row['example_id']!r} has {name} {row[name]}, which are not probabilities.")
    return values


def column(scores: pl.DataFrame, name: str) -> pl.Series:
    if name not in scores.columns:
        raise InputError(f"the score table has no column {name!r}; pass the table that a scan or score run writes.")
    return scores[name]


def count_true(mask: Any) -> int:
    return int(np.count_nonzero(mask))


def mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None


def share_of(count: int, count_upper: int, total: int) -> Share:
    return Share(
        count=count,
        rate=count / total if total else None,
        rate_upper=count_upper / total if total else None,
        interval=[wilson(count, total)[0], wilson(count_upper, total)[1]],
    )
