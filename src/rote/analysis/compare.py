"""Runs over the same passages, beside one another: what one gives back and the other does not.

Every function takes score tables of one scheme each. A row that was stopped early has only an upper bound on log p_z:
whether it reaches tau is known as long as the bound is below tau, but how far it moved between two runs is not.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.groups import effective_examples
from rote.analysis.near.compare import compare_fixed, verbatim_in_larger
from rote.analysis.near.table import Array, Mask, count_true, mean, share_of
from rote.analysis.rates import log_prob_bounds
from rote.errors import InputError, argument
from rote.odds import wilson
from rote.store.comparison import FixedSet, Moved, NearComparison, Paired, RunOfSet, VerbatimElsewhere, Whole
from rote.store.summary import Rates

LEAST = 0.01
"""Changes of log p_z below this are not listed: they would print as no change at all."""


@dataclass(frozen=True, slots=True)
class Change:
    """An example whose log p_z grew or fell. `row` is its place in the tables, `crossed` whether it passed tau.

    `least_change`: by how much log p_z moved at the least (what is certain where a row is only bounded; inf where p_z
    is 0 in one of the runs); `exact`: whether that is the change itself.
    """

    row: int
    example_id: str
    crossed: bool
    least_change: float
    exact: bool


def common(tables: Mapping[str, pl.DataFrame]) -> tuple[dict[str, pl.DataFrame], dict[str, int]]:
    """The rows of the examples that every table has, in the first table's order; and how many more each table has."""
    names = list(tables)
    shared = tables[names[0]].select("example_id")
    for name, table in tables.items():
        log_prob_bounds(table)
        twice = table["example_id"].filter(table["example_id"].is_duplicated())
        if len(twice):
            raise InputError(f"example {twice[0]!r} stands more than once in the table of {name!r}.")
        shared = shared.join(table.select("example_id"), on="example_id", how="semi")
    if not shared.height:
        raise InputError("the runs have no example in common, so there is nothing to compare.")
    place = shared.with_row_index("place")
    aligned = {name: table.join(place, on="example_id").sort("place").drop("place") for name, table in tables.items()}
    return aligned, {name: table.height - shared.height for name, table in tables.items()}


OPEN = "left_open"
"""A column that says of which rows a served model's list leaves p_z open; where there is none, of no row."""


def extractable(scores: pl.DataFrame, tau: float) -> Mask:
    """Which rows certainly reach tau; an InputError where stopped rows leave that open (see `undecided`)."""
    if not 0 < tau <= 1:
        raise InputError(f"tau is a probability and must lie in (0, 1], not {tau}.")
    lower, upper = log_prob_bounds(scores)
    reached: Mask = lower >= math.log(tau)
    doubtful = count_true(~reached & (upper >= math.log(tau)) & ~_left_open(scores))
    if doubtful:
        raise InputError(
            f"whether {doubtful} of {scores.height} rows reach {tau:g} is not known: they were stopped early, at a "
            "larger tau. Compare at a tau that is at least the run's own, or score again without stopping early."
        )
    return reached


def undecided(scores: pl.DataFrame, tau: float) -> Mask:
    """Which rows may reach tau or not, as a served model's list leaves them open."""
    lower, upper = log_prob_bounds(scores)
    return _left_open(scores) & (lower < math.log(tau)) & (upper >= math.log(tau))


def _left_open(scores: pl.DataFrame) -> Mask:
    return scores[OPEN].to_numpy() if OPEN in scores.columns else np.zeros(scores.height, dtype=np.bool_)


def paired(
    first: pl.DataFrame, second: pl.DataFrame, *, tau: float, document: NDArray[np.int64] | None = None
) -> Paired:
    """What the second run gains and loses against the first. The tables must be aligned, as `common` makes them.

    Rows that a served model's list leaves open at tau in either run are left out, and counted as `undecided`: nothing
    is known of whether they were gained or lost. How far they may change the difference is `possible_difference`.

    `document` says of each example which document (0, 1, ...) it was drawn from; None: each stands for itself.
    """
    _check_aligned(first, second)
    doubtful = undecided(first, tau) | undecided(second, tau)
    if doubtful.all():
        raise InputError(
            f"whether they reach {tau:g} is open for all rows, as the server's list leaves it: there is nothing to "
            f"compare. Ask the server for more log-probs with {argument('listed')}."
        )
    moves, possible = _moved(first, second), _possible(first, second, tau) if doubtful.any() else None
    first, second = first.filter(~doubtful), second.filter(~doubtful)
    document = None if document is None else np.unique(document[~doubtful], return_inverse=True)[1]
    one, two = extractable(first, tau), extractable(second, tau)
    both, gained, lost = count_true(one & two), count_true(~one & two), count_true(one & ~two)
    neither = one.size - both - gained - lost
    moved = two.astype(np.int64) - one.astype(np.int64)
    effective = float(one.size) if document is None else effective_examples(moved, document)
    worth = effective / one.size
    return Paired(
        examples=one.size,
        both=both,
        gained=gained,
        lost=lost,
        neither=neither,
        difference=(gained - lost) / one.size,
        interval=list(
            difference_interval(both=both * worth, gained=gained * worth, lost=lost * worth, neither=neither * worth)
        ),
        effective=effective,
        log_prob=moves,
        undecided=count_true(doubtful),
        possible_difference=possible,
    )


def _possible(first: pl.DataFrame, second: pl.DataFrame, tau: float) -> list[float]:
    """The least and the largest that the difference of the rates may be, with the rows that are left open."""
    (least, most), (low, high) = (
        (count_true(sure), count_true(sure | undecided(table, tau)))
        for table, sure in ((table, extractable(table, tau)) for table in (first, second))
    )
    return [(low - most) / first.height, (high - least) / first.height]


def whole_difference(first: Rates, second: Rates) -> Whole:
    """How the rates at tau of two runs differ over all windows, of which scans in stages left some out."""
    (low, most), (least, high) = ((own.rate_at_tau.rate, own.rate_at_tau.rate_upper) for own in (second, first))
    ends = [low - high, most - least]
    below = _combined(low - wilson(low * second.examples, second.examples)[0],
                      wilson(high * first.examples, first.examples)[1] - high, 0.0)  # fmt: skip
    above = _combined(wilson(most * second.examples, second.examples)[1] - most,
                      least - wilson(least * first.examples, first.examples)[0], 0.0)  # fmt: skip
    return Whole(difference=ends, interval=[max(ends[0] - below, -1.0), min(ends[1] + above, 1.0)])


def difference_interval(
    *, both: float, gained: float, lost: float, neither: float, level: float = 0.95
) -> tuple[float, float]:
    """An interval for the difference of two paired rates, (gained - lost) / total: Newcombe's tenth method.

    It squares and adds the Wilson interval of each rate, less what the two have in common (their correlation, shrunk
    where it is slight). Unlike Wald's it has no zero width where nothing changed, and stays within [-1, 1]. Counts need
    not be whole: those of examples that are worth less than one each are smaller.
    """
    counts = {"both": both, "gained": gained, "lost": lost, "neither": neither}
    total = sum(counts.values())
    if min(counts.values()) < 0 or not total:
        raise InputError(f"a difference needs counts of at least 0 that are not all 0, not {counts}.")
    before, after = (both + lost) / total, (both + gained) / total
    (before_low, before_high), (after_low, after_high) = (
        wilson(both + lost, total, level),
        wilson(both + gained, total, level),
    )
    alike = _correlation(both, gained, lost, neither)
    difference = (gained - lost) / total
    low = difference - _combined(after - after_low, before_high - before, alike)
    high = difference + _combined(after_high - after, before - before_low, alike)
    return max(low, -1.0), min(high, 1.0)


def _correlation(both: float, gained: float, lost: float, neither: float) -> float:
    """Of the two outcomes (phi), after Newcombe's correction for continuity; 0 where a rate is 0 or 1."""
    margins = (both + lost) * (gained + neither) * (both + gained) * (lost + neither)
    if not margins:
        return 0.0
    excess = both * neither - gained * lost
    total = both + gained + lost + neither
    return (max(excess - total / 2, 0.0) if excess > 0 else excess) / math.sqrt(margins)


def _combined(one: float, other: float, alike: float) -> float:
    return math.sqrt(max(one * one - 2 * alike * one * other + other * other, 0.0))


def fixed_sets(tables: Mapping[str, pl.DataFrame], *, tau: float) -> list[FixedSet]:
    """Sets of examples held fixed, and what each run makes of them: what each run extracts, then what all do.

    A rate may grow because more examples pass tau or because the same become likelier; a fixed set tells them apart.
    One entry per set: `reference` (the run whose extractable examples it holds; None: extractable in all), `examples`,
    and for each run the `Share` extractable and the `mean_p_z` (`mean_p_z_upper` is larger where bounded rows leave
    doubt; both are None for an empty set).
    """
    reached = {name: extractable(table, tau) for name, table in tables.items()}
    may = {name: reached[name] | undecided(table, tau) for name, table in tables.items()}
    bounds = {name: [np.exp(bound) for bound in log_prob_bounds(table)] for name, table in tables.items()}
    sets: list[tuple[str | None, Mask]] = [*reached.items(), (None, np.logical_and.reduce(list(reached.values())))]
    return [
        FixedSet(
            reference=reference,
            examples=count_true(chosen),
            runs={
                name: RunOfSet(
                    extractable=share_of(
                        count_true(reached[name] & chosen), count_true(may[name] & chosen), count_true(chosen)
                    ),
                    mean_p_z=mean(lower[chosen]),
                    mean_p_z_upper=mean(upper[chosen]),
                )
                for name, (lower, upper) in bounds.items()
            },
        )
        for reference, chosen in sets
    ]


def changes(
    first: pl.DataFrame, second: pl.DataFrame, *, tau: float, kind: Literal["gain", "loss"], count: int, apart: bool
) -> list[Change]:
    """Examples whose log p_z grew (or fell): those that pass tau first, then the others, each by how much it moved.

    Only those that reach tau in at least one of the runs: below it in both, a passage may move by a factor of 1e40 and
    mean nothing. `apart`: none whose suffix overlaps that of one listed before it.
    """
    extractable(first, tau)  # refuses what could not be decided
    extractable(second, tau)
    _check_aligned(first, second)
    lesser, greater = (first, second) if kind == "gain" else (second, first)
    below, above = log_prob_bounds(lesser)[1], log_prob_bounds(greater)[0]
    certain = _less(above, below)
    listed = np.flatnonzero((above >= math.log(tau)) & (certain >= LEAST))
    crossed = below < math.log(tau)
    order = listed[np.lexsort((listed, -above[listed], -certain[listed], ~crossed[listed]))].tolist()
    starts, ends = (first[name].to_list() for name in ("suffix_start", "suffix_end"))
    stopped = lesser["bounded"].to_list()
    chosen: list[int] = []
    for row in order:
        if len(chosen) == count:
            break
        if not apart or all(ends[row] <= starts[other] or starts[row] >= ends[other] for other in chosen):
            chosen.append(row)
    return [
        Change(
            row=row,
            example_id=first["example_id"][row],
            crossed=bool(crossed[row]),
            least_change=float(certain[row]),
            exact=not stopped[row],
        )
        for row in chosen
    ]


def differences(tables: Mapping[str, pl.DataFrame], *, tau: float) -> pl.DataFrame:
    """One row per example: each run's log_prob and verdict at tau, and how every run differs from the first.

    `difference_X` is log p_z in X less that in the first run: infinite where p_z is 0 in one of them, null where it is
    0 in both or where a row is only bounded in one. `change_X` is gained, lost, both or neither, at tau; null, like
    `extractable_X`, where a served model's list leaves it open. Where
    another tokenizer cuts X's suffixes elsewhere, `suffix_start_X` and `suffix_end_X` say where.
    """
    names = list(tables)
    first = tables[names[0]]
    columns: dict[str, Any] = {name: first[name] for name in ("example_id", "start", "suffix_start", "suffix_end")}
    for name, table in tables.items():
        columns[f"log_prob_{name}"] = table["log_prob"]
        columns[f"bounded_{name}"] = table["bounded"]
        reached = pl.Series(extractable(table, tau))
        columns[f"extractable_{name}"] = reached.set(pl.Series(undecided(table, tau)), None)
        if _has_near(table):
            columns |= {f"lower_{name}": table["lower"], f"upper_{name}": table["upper"]}
    for name in names[1:]:
        places = {place: tables[name][place] for place in ("suffix_start", "suffix_end")}
        if any(not own.equals(first[place], null_equal=True) for place, own in places.items()):
            columns |= {f"{place}_{name}": own for place, own in places.items()}
    before = extractable(first, tau)
    for name in names[1:]:
        known, moved = _difference(first, tables[name])
        after, doubtful = extractable(tables[name], tau), undecided(first, tau) | undecided(tables[name], tau)
        words = np.select([before & after, ~before & after, before & ~after], ["both", "gained", "lost"], "neither")
        columns[f"difference_{name}"] = pl.Series(
            [value if sure else None for value, sure in zip(moved.tolist(), known.tolist(), strict=True)],
            dtype=pl.Float64,
        )
        told = np.where(doubtful, None, words)  # type: ignore[call-overload]
        columns[f"change_{name}"] = pl.Series(told.tolist(), dtype=pl.String)
    return pl.DataFrame(columns)


def near_comparison(
    tables: Mapping[str, pl.DataFrame],
    *,
    searches: Mapping[str, Hashable],
    weights: Mapping[str, Hashable],
    tau: float,
) -> NearComparison:
    """Near-verbatim bounds across runs. `searches` says what each run counts as near (only runs with bounds are in it).

    `fixed`: for every group of two or more runs that count the same as near, under the same scheme, `compare_fixed`.
    `alone`: the runs that share this with no other. `verbatim_elsewhere`: of the examples that only tolerance unlocks
    for one run, the share that another model (by `weights`), under the same scheme, has verbatim.
    """
    groups: dict[Hashable, list[str]] = {}
    schemes = {name: table["scheme"][0] for name, table in tables.items()}
    for name, search in searches.items():
        groups.setdefault((search, schemes[name]), []).append(name)
    elsewhere = []
    for small in searches:
        for large, table in tables.items():
            comparable = weights[small] != weights[large] and schemes[small] == schemes[large]
            if comparable and not table["bounded"].any():
                share = verbatim_in_larger(tables[small], table, tau=tau)
                elsewhere.append(VerbatimElsewhere(run=small, other=large, **vars(share)))
    return NearComparison(
        fixed=[
            compare_fixed({name: tables[name] for name in members}, tau=tau)
            for members in groups.values()
            if len(members) > 1
        ],
        alone=[members[0] for members in groups.values() if len(members) == 1],
        verbatim_elsewhere=elsewhere,
    )


def _moved(first: pl.DataFrame, second: pl.DataFrame) -> Moved:
    unknown = (first["bounded"] | second["bounded"]).to_numpy()
    one, two = log_prob_bounds(first)[1], log_prob_bounds(second)[1]
    zero_before, zero_after = one == -math.inf, two == -math.inf
    finite = ~unknown & ~zero_before & ~zero_after
    moved = (two[finite] - one[finite]).tolist()
    return Moved(
        known=len(moved),
        appeared=count_true(~unknown & zero_before & ~zero_after),
        vanished=count_true(~unknown & ~zero_before & zero_after),
        zero=count_true(~unknown & zero_before & zero_after),
        unknown=count_true(unknown),
        mean_difference=mean(moved),
        median_difference=float(np.median(moved)) if moved else None,
    )


def _difference(first: pl.DataFrame, second: pl.DataFrame) -> tuple[Mask, Array]:
    one, two = log_prob_bounds(first)[1], log_prob_bounds(second)[1]
    unknown = (first["bounded"] | second["bounded"]).to_numpy()
    nothing = (one == -math.inf) & (two == -math.inf)
    return ~unknown & ~nothing, _less(two, one)


def _less(one: Array, other: Array) -> Array:
    """one - other, of logarithms; 0 for two that are -inf, which numpy would call not a number."""
    nothing = (one == -math.inf) & (other == -math.inf)
    return np.where(nothing, 0.0, np.where(nothing, 0.0, one) - np.where(nothing, 0.0, other))


def _has_near(table: pl.DataFrame) -> bool:
    return "lower" in table.columns and table["lower"].null_count() < table.height


def _check_aligned(first: pl.DataFrame, second: pl.DataFrame) -> None:
    if first["example_id"].to_list() != second["example_id"].to_list():
        raise InputError("the two tables do not hold the same examples in the same order; align them first.")
