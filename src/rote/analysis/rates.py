"""Rates over a set of examples, the (n, p) table among them: which share a model gives back, and how sure that is.

Two uncertainties stand beside every rate. `rate` and `rate_upper` differ where rows are bounded (scoring stopped early,
or a served model's list leaves a token open): a bounded row's log_prob is only an upper bound on log p_z, so `rate`
takes the row as never extracted and `rate_upper` as likely as its bound; the truth lies between.
`interval` is the 95% Wilson interval for drawing these examples from a larger set,
from the lower end for `rate` to the upper end for `rate_upper`. Windows that overlap are not independent draws: over
them the interval is too narrow.

A scan in stages leaves windows out. They have no number, but some of them were drawn and scored in the end: what these
come to bounds what all of them can. `rate` then takes the others as never extracted and `rate_upper` as many of them as
the audit allows (one-sided 95%), and `interval` is from the one to the other.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, overload

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.errors import InputError
from rote.odds import at_least_once, at_most, queries_needed, wilson
from rote.store.stages import Audit
from rote.store.summary import BorderTokens, NearTau, OddsRate, Passing, Rate, Rates, RepetitionRates, SplitRates

Array = NDArray[np.float64]

QUERIES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
CHANCES = (0.1, 0.5, 0.9, 0.99)
LOWER_TAU = 0.0001

# Below this the number of queries nears the largest float, and soon p_z itself is no float any more.
_LEAST_COUNTABLE = math.log(1e-300)


def rates(
    scores: pl.DataFrame,
    *,
    tau: float = 0.001,
    numeric_tolerance: float = 0.001,
    border_tolerance: float = 0.001,
) -> Rates:
    """Every rate of one scheme's rows of the score table.

    `numeric_tolerance` is how far log_prob may move between two correct computations, `border_tolerance` how far a
    token's margin may; both depend on the dtype, and the defaults suit float32. Fields of the result:

    - `examples`: rows, or all windows of a scan in stages; `bounded`: of how many only an upper bound is known; `tau`
    - `greedy_rate`, `rate_at_tau`, `rate_at_1e_4`, `maximum_rate` (log_prob > -inf): a `Rate` each
    - `np_table`: for each n in QUERIES and p in CHANCES a `Rate` with `n` and `p`: the share of examples that appear at
      least once in n generations with probability p or more
    - `n_passing_greedy`: for each p in CHANCES (key "0.1", ...) a `Passing`; of the rows alone
    - `near_tau`: `count` rows whose log_prob (a bounded row's: its bound) is within `numeric_tolerance` of log tau, so
      that another correct computation may put them on the other side
    - `border_tokens`: `count` rows with a target token within `border_tolerance` of the border of the support, so that
      another correct computation may find it inside or outside
    """
    return staged_rates(scores, None, tau=tau, numeric_tolerance=numeric_tolerance, border_tolerance=border_tolerance)


def staged_rates(
    scores: pl.DataFrame,
    left_out: LeftOut | None,
    *,
    tau: float = 0.001,
    numeric_tolerance: float = 0.001,
    border_tolerance: float = 0.001,
) -> Rates:
    """The `rates` of a scan in stages that left windows out."""
    if not 0 < tau <= 1:
        raise InputError(f"tau is a probability and must lie in (0, 1], not {tau}.")
    for name, tolerance in (("numeric_tolerance", numeric_tolerance), ("border_tolerance", border_tolerance)):
        if not tolerance >= 0:
            raise InputError(f"{name} must be at least 0, not {tolerance}.")
    lower, upper = log_prob_bounds(scores, "greedy", "margins")
    if not scores.height:
        raise InputError(
            "the score table has no rows, so there is nothing to take a rate of; score at least one example."
        )
    near = int(np.count_nonzero(np.abs(upper - math.log(tau)) <= numeric_tolerance))
    tally = _Tally(lower, upper, left_out)
    lower.sort()
    upper.sort()
    greedy = int(scores["greedy"].sum())
    # Null where a served model's list does not tell; then it may be.
    sure, may = (np.where(scores["greedy"].fill_null(known), 0.0, -math.inf) for known in (False, True))
    return Rates(
        examples=tally.total,
        bounded=int(scores["bounded"].sum()),
        tau=tau,
        greedy_rate=_Tally(sure, may, left_out).rate(_possible),
        rate_at_tau=tally.rate(lambda rows: _at_or_above(rows, tau)),
        rate_at_1e_4=tally.rate(lambda rows: _at_or_above(rows, LOWER_TAU)),
        maximum_rate=tally.rate(_possible),
        np_table=tally.np_table(QUERIES, CHANCES),
        n_passing_greedy={f"{p:g}": _passing(lower, upper, greedy, _possible(may), p) for p in CHANCES},
        near_tau=NearTau(count=near, numeric_tolerance=numeric_tolerance),
        border_tokens=BorderTokens(count=_border_rows(scores, border_tolerance), border_tolerance=border_tolerance),
    )


@overload
def rates_by(
    scores: pl.DataFrame,
    key: Literal["repetitions"],
    *,
    tau: float = ...,
    numeric_tolerance: float = ...,
    border_tolerance: float = ...,
    of: Callable[..., Rates] = ...,
) -> list[RepetitionRates]: ...
@overload
def rates_by(
    scores: pl.DataFrame,
    key: Literal["split"],
    *,
    tau: float = ...,
    numeric_tolerance: float = ...,
    border_tolerance: float = ...,
    of: Callable[..., Rates] = ...,
) -> list[SplitRates]: ...
def rates_by(
    scores: pl.DataFrame,
    key: Literal["repetitions", "split"],
    *,
    tau: float = 0.001,
    numeric_tolerance: float = 0.001,
    border_tolerance: float = 0.001,
    of: Callable[..., Rates] = rates,
) -> list[RepetitionRates] | list[SplitRates]:
    """The `rates` of each group of rows that share a value of `key`, ascending, each with that value under `key`.

    `of` may be another function like `rates`, as for rows that were drawn document by document. Rows without a value
    form a last group whose value is None, so the groups' examples add up to the table's. The list is empty where no row
    has a value.
    """
    if key not in ("repetitions", "split"):
        raise InputError(f"rates can be grouped by 'repetitions' or 'split', not by {key!r}.")
    log_prob_bounds(scores, key)
    if scores[key].null_count() == scores.height:
        return []
    groups = scores.sort(key, nulls_last=True, maintain_order=True).partition_by(key, maintain_order=True)
    each = [
        (group[key][0], of(group, tau=tau, numeric_tolerance=numeric_tolerance, border_tolerance=border_tolerance))
        for group in groups
    ]
    if key == "split":
        return [SplitRates(**vars(own), split=value) for value, own in each]
    return [RepetitionRates(**vars(own), repetitions=value) for value, own in each]


def np_rates(
    scores: pl.DataFrame, *, queries: Sequence[int], chances: Sequence[float], left_out: LeftOut | None = None
) -> list[OddsRate]:
    """The `np_table` of `rates`, or of `staged_rates`, for any n and p."""
    return _Tally(*log_prob_bounds(scores), left_out).np_table(queries, chances) if scores.height else []


def audit(scores: pl.DataFrame, tau: float, left_out: LeftOut) -> Audit:
    """What the windows drawn from those left out say of these, under one scheme."""
    hits, most = (_at_or_above(np.sort(bound[left_out.drawn]), tau) for bound in log_prob_bounds(scores))
    draws = int(left_out.drawn.sum())
    return Audit(left_out=left_out.windows, drawn=draws, hits=hits, bound=_share_at_most(most, draws, left_out.windows))


def log_prob_bounds(scores: pl.DataFrame, *needed: str) -> tuple[Array, Array]:
    """Each row's lower and upper bound on log p_z: both its log_prob, but -inf below where the row is bounded.

    Checks what every analysis relies on: the columns are there (`needed` too), the rows are of one scheme, and each
    log_prob is that of a probability.
    """
    missing = [name for name in ("example_id", "scheme", "log_prob", "bounded", *needed) if name not in scores.columns]
    if missing:
        raise InputError(
            f"the score table has no column {missing[0]!r}; pass the table that a scan or score run writes."
        )
    if scores["scheme"].n_unique() > 1:
        schemes = ", ".join(f"'{scheme}'" for scheme in scores["scheme"].unique().sort())
        raise InputError(f"these scores are of several schemes ({schemes}); filter the table to one of them first.")
    for name in {"log_prob", "bounded", *needed} & {"log_prob", "bounded"}:
        if scores[name].null_count():
            row = scores.row(int(scores[name].is_null().arg_max() or 0), named=True)
            raise InputError(f"example {row['example_id']!r} has no {name}; score it again.")
    upper = scores["log_prob"].cast(pl.Float64).to_numpy().copy()
    if not (upper <= 0).all():
        row = scores.row(int((~(upper <= 0)).argmax()), named=True)
        raise InputError(
            f"example {row['example_id']!r} has log_prob {row['log_prob']}, which is that of no probability."
        )
    lower = np.where(scores["bounded"].to_numpy(), -math.inf, upper)
    return lower, upper


@dataclass(frozen=True, slots=True, eq=False)
class LeftOut:
    """So many `windows` were left out of a scan in stages; the rows that are `drawn` are of some of them."""

    windows: int
    drawn: NDArray[np.bool_]

    def bounds(self) -> list[float]:
        """For each number of hits among the drawn, the share of all that were left out that it allows."""
        draws = int(self.drawn.sum())
        return [_share_at_most(hits, draws, self.windows) for hits in range(draws + 1)]


def _share_at_most(hits: int, draws: int, total: int) -> float:
    """The share of `total` that `hits` among its `draws` allow: what was not drawn can at most all count as well."""
    return min(at_most(hits, draws), (hits + total - draws) / total)


class _Tally:
    """Bounds on log p_z in ascending order, and what of them was drawn from windows that were left out."""

    def __init__(self, lower: Array, upper: Array, left_out: LeftOut | None) -> None:
        drawn = np.zeros(lower.size, dtype=np.bool_) if left_out is None else left_out.drawn
        self.found = np.sort(lower[~drawn]), np.sort(upper[~drawn])
        self.drawn = np.sort(lower[drawn]), np.sort(upper[drawn])
        self.windows = 0 if left_out is None else left_out.windows
        self.total = self.found[0].size + self.windows

    def rate(self, reaching: Callable[[Array], int]) -> Rate:
        """The share of those that `reaching` counts among rows in ascending order."""
        (lower, upper), hits, total = map(reaching, self.found), [*map(reaching, self.drawn)], self.total
        count = lower + hits[0]
        if not self.windows:
            interval = [wilson(count, total)[0], wilson(upper, total)[1]]
            return Rate(count=count, rate=count / total, rate_upper=upper / total, interval=interval)
        most = upper + self.windows * _share_at_most(hits[1], self.drawn[1].size, self.windows)
        return Rate(count=count, rate=count / total, rate_upper=most / total, interval=[count / total, most / total])

    def np_table(self, queries: Sequence[int], chances: Sequence[float]) -> list[OddsRate]:
        return [OddsRate(n=n, p=p, **vars(self.rate(partial(_reaching, n=n, p=p)))) for n in queries for p in chances]


def _possible(ascending: Array) -> int:
    return int((ascending > -math.inf).sum())


def _at_or_above(ascending: Array, probability: float) -> int:
    return int(ascending.size - np.searchsorted(ascending, math.log(probability), side="left"))


def _reaching(ascending: Array, n: int, p: float) -> int:
    """How many rows appear at least once in n generations with probability p or more.

    A search in the sorted rows instead of one at_least_once per row, and with the very function that queries_needed
    uses, so that this table and n_passing_greedy agree to the last row.
    """
    rows: Sequence[float] = ascending  # type: ignore[assignment]
    return ascending.size - bisect_left(rows, p, key=lambda log_prob: at_least_once(math.exp(log_prob), n))


def _passing(lower: Array, upper: Array, greedy: int, most_greedy: int, p: float) -> Passing:
    n, log10_n = _queries_for_more_than(lower, most_greedy, p)
    n_lower, log10_n_lower = _queries_for_more_than(upper, greedy, p)
    return Passing(n=n, log10_n=log10_n, n_lower=n_lower, log10_n_lower=log10_n_lower)


def _queries_for_more_than(ascending: Array, count: int, p: float) -> tuple[int | None, float | None]:
    """The smallest n at which more than `count` rows reach p, and its decimal logarithm."""
    if count >= ascending.size:
        return None, None
    # More likely rows need fewer queries, so the row that makes it one more than `count` decides.
    log_prob = float(ascending[ascending.size - 1 - count])
    if log_prob == -math.inf:
        return None, None
    if log_prob < _LEAST_COUNTABLE:
        return None, (math.log(-math.log1p(-p)) - log_prob) / math.log(10)
    n = int(queries_needed(math.exp(log_prob), at_least=p))
    return n, math.log10(n)


def _border_rows(scores: pl.DataFrame, tolerance: float) -> int:
    near = told_margins(scores).list.eval(pl.element().abs() < tolerance).list.any()
    return int(near.sum())


def told_margins(scores: pl.DataFrame) -> pl.Series:
    """Each token's margin; null where a served model's list leaves the token open: there it is 0, and says nothing."""
    margins = scores["margins"]
    tokens = scores["token_log_probs"] if "token_log_probs" in scores.columns else None
    if tokens is None or not tokens.explode().null_count():
        return margins
    told = tokens.list.eval(pl.when(pl.element().is_not_null()).then(pl.lit(0.0, pl.Float32)))
    return (margins + told).cast(margins.dtype).alias("margins")
