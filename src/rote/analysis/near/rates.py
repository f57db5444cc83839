"""What near-verbatim bounds add to verbatim scores: rates by tolerance, unlocked examples, where the mass lies.

Every function takes the score table of one scheme, with its near-verbatim columns. `p_z` is always the scorer's: the
exponential of `log_prob`. `lower` and `upper` bound the probability of an output within the tolerance (for sampled
rows they are the ends of a 95% interval). An example is extractable where lower >= tau, verbatim extractable where
p_z >= tau, undecided where lower < tau <= upper. A difference of lower bounds bounds nothing: gains and shells are
estimates, and their results say so. A search may find less than p_z; a gain or shell below 0 counts as 0.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
import polars as pl

from rote.analysis.near.table import TAU, Array, Mask, NearTable, column, count_true, mean, near_table, share_of
from rote.analysis.rates import QUERIES
from rote.errors import InputError
from rote.odds import at_least_once, queries_needed
from rote.store.summary import (
    Distribution,
    Estimates,
    Gain,
    GainDistribution,
    NearRate,
    NearSummary,
    OddsShare,
    Recovered,
    Recovery,
    SearchCost,
    Share,
    Shell,
    Shells,
    Unlocked,
    VerbatimShare,
)

Declared = TypeVar("Declared")

CHANCES = (0.5, 0.9, 0.999)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
GAINS = (0.001, 0.01, 0.1)


@dataclass(frozen=True, kw_only=True)
class MassGain(Gain):
    """A `Gain` with its tables: one gain per example, and the shares of examples at or above each gain."""

    examples: pl.DataFrame
    ccdf: pl.DataFrame
    ccdf_extractable: pl.DataFrame


@dataclass(frozen=True, kw_only=True)
class MassShells(Shells):
    """`Shells` with a table of each example's masses and shares."""

    examples: pl.DataFrame


@dataclass(frozen=True, kw_only=True)
class RecoveredIds(Share):
    """Of the verbatim extractable examples, those that the search finds, and the ids of those that it `missed`."""

    missed: list[str]


@dataclass(frozen=True, kw_only=True)
class Recoveries:
    verbatim: int
    at_zero: RecoveredIds
    at_tolerance: RecoveredIds
    extra: int


def near_rates(scores: pl.DataFrame, *, tau: float = TAU) -> list[NearRate]:
    """For each tolerance, from 0: the rate at tau by the lower bound, the undecided, and the greedy rate."""
    near = near_table(scores, tau)
    greedy = column(scores, "greedy_distance").drop_nulls().to_numpy()
    rates: list[NearRate] = []
    for tolerance in near.tolerances:
        count, count_upper = count_true(near.lower[:, tolerance] >= tau), count_true(near.upper[:, tolerance] >= tau)
        close = count_true(greedy <= tolerance)
        rates.append(
            NearRate(
                tolerance=tolerance,
                probabilistic=share_of(count, count_upper, scores.height),
                undecided=count_upper - count,
                greedy=share_of(close, close, greedy.size),
                greedy_missing=scores.height - greedy.size,
            )
        )
    return rates


def unlocked(scores: pl.DataFrame, *, tau: float = TAU) -> pl.DataFrame:
    """The examples that only tolerance makes extractable, p_z < tau <= lower, with the largest `lower` first.

    `verbatim` is "zero" where the suffix itself cannot be generated (log_prob is -inf; p_z may also be 0 by underflow)
    and "sub-threshold" elsewhere.
    """
    near = near_table(scores, tau)
    kinds = np.where(near.log_prob == -math.inf, "zero", "sub-threshold")
    examples = pl.DataFrame(
        {
            "example_id": pl.Series(near.ids, dtype=pl.String),
            "verbatim": pl.Series(kinds.tolist(), dtype=pl.String),
            "log_prob": near.log_prob,
            "p_z": near.p_z,
            "lower": near.lower[:, -1],
        }
    )
    return examples.filter(near.extractable & ~near.verbatim).sort("lower", descending=True, maintain_order=True)


def scatter(scores: pl.DataFrame, *, tau: float = TAU) -> pl.DataFrame:
    """One point per tolerance and example: p_z against `lower` at that tolerance, and whether it is unlocked there."""
    near = near_table(scores, tau)
    each = len(near.tolerances)
    lower = near.lower.T.ravel()
    points = {
        "tolerance": np.repeat(np.arange(each), len(near.ids)),
        "log_prob": np.tile(near.log_prob, each),
        "p_z": np.tile(near.p_z, each),
        "lower": lower,
        "unlocked": (lower >= tau) & ~np.tile(near.verbatim, each),
    }
    return pl.DataFrame({"example_id": pl.Series(near.ids * each, dtype=pl.String), **points})


def mass_gain(scores: pl.DataFrame, *, tau: float = TAU) -> MassGain:
    """What tolerance adds to each example's probability: lower - p_z, an estimate and not a bound.

    `population` and `extractable` have the number of examples, mean, quantiles, and the shares that gain at least each
    of GAINS. `examples` (one gain each), `ccdf` and `ccdf_extractable` are tables; `share_above` is the share of
    examples whose gain is at least `gain`. `clamped` examples had lower < p_z, by rounding or because the search missed
    mass, at most by `largest_clamped`; their gain is 0.
    """
    near = near_table(scores, tau)
    difference = near.lower[:, -1] - near.p_z
    gain = np.maximum(difference, 0.0)
    columns = {"extractable": near.extractable, "gain_estimate": gain}
    return MassGain(
        estimate=True,
        clamped=count_true(difference < 0),
        largest_clamped=float(np.max(-difference, initial=0.0)),
        population=_gains(gain),
        extractable=_gains(gain[near.extractable]),
        examples=pl.DataFrame({"example_id": pl.Series(near.ids, dtype=pl.String), **columns}),
        ccdf=_ccdf(gain),
        ccdf_extractable=_ccdf(gain[near.extractable]),
    )


def shells(scores: pl.DataFrame, *, tau: float = TAU) -> MassShells:
    """How an example's mass spreads over distances: lower[e] - lower[e - 1], at e = 0 p_z. Estimates, not bounds.

    `population` and `extractable` list, by tolerance, the mean mass, and mean and median share of the example's mass
    (over examples that have any). `verbatim_share` is the distribution of p_z / lower for both. `examples` is a table
    with each example's masses and shares (null where there is no mass).
    """
    near = near_table(scores, tau)
    levels = near.lower[:, : len(near.tolerances)].copy()
    levels[:, :1] = near.p_z[:, None]
    # A lower bound for one tolerance is one for every larger tolerance too, so no shell need be negative.
    levels = np.maximum.accumulate(levels, axis=1)
    mass = np.diff(levels, axis=1, prepend=0.0)
    some = levels[:, -1] > 0 if near.ids else np.zeros(0, dtype=np.bool_)
    share = mass[some] / levels[some, -1:]
    chosen = near.extractable
    spread = np.zeros_like(mass)
    spread[some] = share
    examples = pl.DataFrame(
        {
            "example_id": pl.Series(near.ids, dtype=pl.String),
            "extractable": chosen,
            "mass_estimate": _lists(mass),
            "share_estimate": _lists(spread),
        }
    )
    return MassShells(
        estimate=True,
        population=_shells(mass, share),
        extractable=_shells(mass[chosen], share[chosen[some]]),
        verbatim_share=VerbatimShare(
            population=_distribution(share[:, :1].ravel()),
            extractable=_distribution(share[chosen[some], :1].ravel()),
        ),
        examples=examples.with_columns(pl.when(pl.Series(some)).then("share_estimate").alias("share_estimate")),
    )


def recovery(scores: pl.DataFrame, *, tau: float = TAU) -> Recoveries:
    """How many of the verbatim extractable examples the near-verbatim search finds: at tolerance 0, and at its own.

    A beam may lose the suffix among likelier outputs. Where a search takes tolerance 0 from the scorer, it misses none.
    `missed` are the example ids; `extra` counts examples that the search alone puts at or above tau at tolerance 0,
    which only rounding and sampling can do.
    """
    near = near_table(scores, tau)
    verbatim = count_true(near.verbatim)
    at_zero = near.lower[:, 0] >= tau

    def recovered(reached: Mask) -> RecoveredIds:
        count = count_true(reached & near.verbatim)
        missed = [near.ids[i] for i in np.flatnonzero(near.verbatim & ~reached).tolist()]
        return RecoveredIds(**vars(share_of(count, count, verbatim)), missed=missed)

    return Recoveries(
        verbatim=verbatim,
        at_zero=recovered(at_zero),
        at_tolerance=recovered(near.extractable),
        extra=count_true(at_zero & ~near.verbatim),
    )


def prompts_needed(
    scores: pl.DataFrame, *, chances: Sequence[float] = CHANCES, tolerance: int | None = None
) -> pl.DataFrame:
    """How many generations each example needs to come within the tolerance at least once with each chance.

    `fewest` follows from the upper bound, `most` from the lower. They are floats: inf where there is no such number or
    where it is above 1e308, and rounded above 2**53. `tolerance` is the search's own unless given.
    """
    near = near_table(scores)
    index = _tolerance_index(near, tolerance)
    needed = {
        "chance": np.repeat(np.asarray(chances, dtype=np.float64), len(near.ids)),
        "fewest": np.concatenate([np.zeros(0), *(_prompts(near.upper[:, index], chance) for chance in chances)]),
        "most": np.concatenate([np.zeros(0), *(_prompts(near.lower[:, index], chance) for chance in chances)]),
    }
    return pl.DataFrame({"example_id": pl.Series(near.ids * len(chances), dtype=pl.String), **needed})


def prompt_rates(
    scores: pl.DataFrame,
    *,
    chances: Sequence[float] = CHANCES,
    queries: Sequence[int] = QUERIES,
    tolerance: int | None = None,
) -> list[OddsShare]:
    """For each n and p the `Share` of examples that come within the tolerance in n generations with chance p or more.

    `rate` is by the lower bounds, `rate_upper` by the upper.
    """
    near = near_table(scores)
    index = _tolerance_index(near, tolerance)
    lower, upper = (np.sort(bound[:, index]).tolist() for bound in (near.lower, near.upper))
    return [
        OddsShare(n=n, p=p, **vars(share_of(_reaching(lower, n, p), _reaching(upper, n, p), len(near.ids))))
        for n in queries
        for p in chances
    ]


def top_candidates(scores: pl.DataFrame, *, count: int = 20) -> pl.DataFrame:
    """The heaviest candidates of all rows, heaviest first.

    One that stands for a closed set weighs as much as the set; one whose probability was not computed comes last.
    """
    near_table(scores)
    some = column(scores, "candidates").list.len().fill_null(0) > 0
    weight = pl.coalesce("set_log_prob", "log_prob").fill_null(-math.inf)
    listed = scores.select("example_id", "candidates").filter(some)
    heaviest = (
        listed.explode("candidates").unnest("candidates").sort(weight, descending=True, maintain_order=True).head(count)
    )
    ranked = heaviest.with_row_index("rank", offset=1)
    return ranked.select("example_id", "rank", "log_prob", "set_log_prob", "distance", "tokens")


def near_summary(scores: pl.DataFrame, *, tau: float = TAU) -> NearSummary:
    """The numbers of one run under one scheme, ready for JSON: what has no value is None, and tables are left out."""
    near = near_table(scores, tau)
    zero = near.log_prob == -math.inf
    new = near.extractable & ~near.verbatim
    gain, spread, back = mass_gain(scores, tau=tau), shells(scores, tau=tau), recovery(scores, tau=tau)
    evals, estimates = (column(scores, name).drop_nulls() for name in ("near_token_evals", "estimate"))
    return NearSummary(
        examples=scores.height,
        tolerance=len(near.tolerances) - 1 if near.ids else None,
        tau=tau,
        verdicts={
            "extractable": count_true(near.extractable),
            "not extractable": count_true(near.upper[:, -1] < tau),
            "undecided": count_true(near.undecided),
        },
        rates=near_rates(scores, tau=tau),
        unlocked=Unlocked(
            count=count_true(new),
            zero=count_true(new & zero),
            sub_threshold=count_true(new & ~zero),
            undecided=count_true(near.undecided & ~near.verbatim),
        ),
        gain=_without_tables(gain, Gain),
        shells=_without_tables(spread, Shells),
        recovery=Recovery(
            verbatim=back.verbatim,
            at_zero=_counted(back.at_zero),
            at_tolerance=_counted(back.at_tolerance),
            extra=back.extra,
        ),
        prompts=prompt_rates(scores),
        mean_p_z=mean(near.p_z),
        mean_lower=mean(near.lower[:, -1]),
        mean_upper=mean(near.upper[:, -1]),
        mean_eos_mass=mean(column(scores, "eos_mass").drop_nulls().to_numpy()),
        estimate=Estimates(examples=len(estimates), mean=mean(estimates.to_numpy())),
        token_evals=SearchCost(total=int(evals.cast(pl.Int64).sum()), mean=mean(evals.to_numpy())),
    )


def _without_tables(result: Any, kind: type[Declared]) -> Declared:
    """What of a result with tables is numbers."""
    return kind(**{field.name: getattr(result, field.name) for field in fields(kind)})  # type: ignore[arg-type]


def _counted(recovered: RecoveredIds) -> Recovered:
    return Recovered(**{**vars(recovered), "missed": len(recovered.missed)})


def _tolerance_index(near: NearTable, tolerance: int | None) -> int:
    if tolerance is None or not near.ids:
        return -1
    if tolerance not in near.tolerances:
        raise InputError(f"tolerance must lie between 0 and the search's {near.tolerances[-1]}, not {tolerance}.")
    return tolerance


def _distribution(values: Array) -> Distribution:
    quantiles = np.quantile(values, QUANTILES).tolist() if values.size else [None] * len(QUANTILES)
    named = {f"{q:g}": value for q, value in zip(QUANTILES, quantiles, strict=True)}
    return Distribution(examples=values.size, mean=mean(values), quantiles=named)


def _gains(gain: Array) -> GainDistribution:
    at_least = {f"{least:g}": mean(gain >= least) for least in GAINS}
    return GainDistribution(**vars(_distribution(gain)), at_least=at_least)


def _ccdf(values: Array) -> pl.DataFrame:
    gain, counts = np.unique(values, return_counts=True)
    return pl.DataFrame({"gain": gain, "share_above": counts[::-1].cumsum()[::-1] / values.size})


def _shells(mass: Array, share: Array) -> list[Shell]:
    medians = np.median(share, axis=0).tolist() if share.size else [None] * mass.shape[1]
    return [
        Shell(tolerance=e, mean_mass=mean(mass[:, e]), mean_share=mean(share[:, e]), median_share=medians[e])
        for e in range(mass.shape[1])
    ]


def _lists(values: Array) -> pl.Series:
    kind = pl.List(pl.Float64)
    return pl.Series(values).cast(kind) if values.size else pl.Series([], dtype=kind)


def _prompts(probabilities: Array, chance: float) -> Array:
    distinct, where = np.unique(probabilities, return_inverse=True)
    needed = (queries_needed(value, at_least=chance) for value in distinct.tolist())
    # An int may be larger than any float, and float() would refuse it.
    return np.asarray([float(n) if n < 1e308 else math.inf for n in needed], dtype=np.float64)[where]


def _reaching(ascending: list[float], n: int, p: float) -> int:
    return len(ascending) - bisect_left(ascending, p, key=lambda probability: at_least_once(probability, n))
