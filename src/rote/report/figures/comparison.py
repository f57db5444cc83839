"""The plots of several runs over the same passages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from rote.analysis.coverage import along_text
from rote.analysis.rates import log_prob_bounds, np_rates
from rote.report.figures.figure import Axis, Figure, Layer
from rote.report.figures.layers import (
    SMALLEST,
    allowed,
    bos_first,
    bounded_sentence,
    cloud,
    colour_axis,
    edge_sentence,
    edged,
    intervals,
    odds_frame,
    rate_table,
    rule,
    sentences,
    strip_lane,
    strip_layers,
)
from rote.report.figures.run import QUERIES
from rote.report.keys import plain
from rote.report.text import numbers
from rote.report.text.bounds import or_open
from rote.report.text.conclusion import run_label
from rote.report.text.strip import IN_PART, UNLOOKED
from rote.store.comparison import ComparedRun, ComparisonResult
from rote.store.summary import Rate, Share

PAIRS = 5
"""Runs that are drawn against the first one, point by point."""

CHANCE = 0.5
"""The p of curves that have one line per run."""

_NAMED = 6  # so many runs have their names below an axis; more only their letters

COMPARISON_FIGURES = {
    "strips": "scans",
    "rates": "at least two runs",
    "prompts": "at least two runs",
    "near-rates": "runs with a near-verbatim search",
    "coverage": "scans",
    "pair": "passages scored in full in two runs",
    "cost": "at least two runs",
}
"""Every figure that a comparison can have, and what it needs; there is one `pair` for each run but the first."""


def comparison_figures(result: ComparisonResult, tables: Mapping[str, pl.DataFrame]) -> list[Figure]:
    """The figures of a comparison, as `rote compare` makes it, from each run's rows under its letter."""
    runs = result.runs
    made = [
        _strips(result, tables),
        _rates(result),
        _prompts(result, tables),
        _near_rates(result),
        _coverage(result),
        *(_pair(result, tables, runs[0], other) for other in runs[1 : 1 + PAIRS]),
        _cost(result),
    ]
    return [figure for figure in made if figure is not None]


def _strips(result: ComparisonResult, tables: Mapping[str, pl.DataFrame]) -> Figure | None:
    """A heatmap strip for each run, one above the other, the first at the top."""
    if not result.scanned:
        return None
    length, tau, runs = result.length, result.tau, result.runs
    some = any(run.unshared for run in runs)
    grey = IN_PART if some else UNLOOKED
    made = []
    for place, run in enumerate(runs):
        rows = tables[run.key]
        best = along_text(rows, log_prob_bounds(rows)[0], length, left_out=_stretches(run), tau=tau)
        made.append(strip_lane(best, tau=tau, lane=run_label(run), at=len(runs) - 1 - place))
    return Figure(
        name="strips",
        title="Where the text comes out of each",
        caption=sentences(
            "The text from its first to its last character. Each part shows the highest p_z of any window whose suffix "
            f"covers one of its characters; white is below τ = {tau:g}{or_open(*runs)}, "
            f"grey was {grey}.",
            "Only windows that every run has scored are drawn: what others cover is grey unless one of these reaches τ "
            "there."
            if some
            else "",
            _which(result.runs),
        ),
        x=Axis("Character of the text", format="count", limits=(0.0, float(length))),
        y=Axis("", "category", limits=(-0.5, len(runs) - 0.5), names=tuple(run_label(run) for run in reversed(runs))),
        layers=strip_layers(made, grey),
        table=pl.concat(lane.table for lane in made).rename({"lane": "run"}),
        colour=colour_axis(tau, "p_z"),
    )


def _rates(result: ComparisonResult) -> Figure:
    named = (
        (f"At τ = {result.tau:g}", [run.rates.rate_at_tau for run in result.runs]),
        ("Greedy", [run.rates.greedy_rate for run in result.runs]),
    )
    layers: list[Layer] = []
    listed = []
    for colour, (label, rates) in enumerate(named):
        layers += intervals([i + (-0.1, 0.1)[colour] for i in range(len(rates))], rates, label, colour)
        listed += [(_row(run, measure=label), rate) for run, rate in zip(result.runs, rates, strict=True)]
    return Figure(
        name="rates",
        title="Rate of each run",
        caption=sentences(
            f"Share of {result.unit}s extractable at τ = {result.tau:g}, and given back by greedy decoding.",
            _sure(result),
            _staged(result.runs, "points are what was found, and whiskers reach up to what windows left out allow"),
            _which(result.runs),
        ),
        x=_run_axis(result.runs),
        y=Axis("Rate", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=rate_table(listed),
    )


def _near_rates(result: ComparisonResult) -> Figure | None:
    """Rate within the tolerance beside the verbatim rate, of the runs that have one."""
    searched = [(run, run.near) for run in result.runs if run.near is not None]
    if not searched:
        return None
    runs = [run for run, _ in searched]
    kinds: tuple[tuple[str, Sequence[Rate | Share]], ...] = (
        ("Verbatim", [run.rates.rate_at_tau for run in runs]),
        ("Near-verbatim", [near.rate.probabilistic for _, near in searched]),
    )
    layers: list[Layer] = []
    listed = []
    for colour, (label, rates) in enumerate(kinds):
        layers += intervals([i + (-0.1, 0.1)[colour] for i in range(len(runs))], rates, label, colour)
        listed += [(_row(run, measure=label), rate) for run, rate in zip(runs, rates, strict=True)]
    tolerances = ", ".join(f"{run.key} {near.tolerance}" for run, near in searched)
    return Figure(
        name="near-rates",
        title="Verbatim and near-verbatim rate of each run",
        caption=sentences(
            f"Share of {result.unit}s that reach τ = {result.tau:g}, verbatim and within the tolerance of their "
            f"searches (edits: {tolerances}), by the lower bound. Whiskers take in what is undecided.",
            _sure(result),
            _which(result.runs),
        ),
        x=_run_axis(runs),
        y=Axis("Rate", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=rate_table(listed),
    )


def _prompts(result: ComparisonResult, tables: Mapping[str, pl.DataFrame]) -> Figure:
    """For each run the share that comes at least once in n generations with even odds, against n."""
    layers: list[Layer] = []
    listed = []
    open_ended = 0
    for colour, run in enumerate(result.runs):
        if run.left_out:  # the rows are a choice of its windows: of all of them only some n are known
            certain = cells = odds_frame([cell for cell in run.rates.np_table if cell.p == CHANCE])
            layers.append(allowed(cells, colour))
        else:
            cells = odds_frame(np_rates(tables[run.key], queries=QUERIES, chances=(CHANCE,)))
            certain = cells.filter(pl.col("rate") == pl.col("rate_upper"))
        open_ended += certain.height < cells.height
        data = certain.select(x=pl.col("n").cast(pl.Float64), y="rate")
        layers.append(Layer("line", data, run_label(run), colour))
        if not result.scanned:
            known = [cell for cell in run.rates.np_table if cell.p == CHANCE]
            sure = [cell for cell in known if cell.rate == cell.rate_upper]
            layers += intervals([cell.n for cell in sure], sure, "", colour)
        listed.append(certain.select(pl.lit(run_label(run)).alias("run"), "n", "p", share="rate"))
    ends = " Curves end where rows of which only a bound is known leave the share open." if open_ended else ""
    return Figure(
        name="prompts",
        title="How many prompts it takes",
        caption=sentences(
            f"Share of {result.unit}s that come at least once in n generations with probability "
            f"{numbers.threshold(CHANCE)} or more.{ends}",
            _staged(result.runs, "the lines are what was found, and the bands reach up to what windows left out allow"),
            _sure(result) if not result.scanned else "",
            _which(result.runs),
        ),
        x=Axis("Generations n", "log", "count", limits=(1.0, float(QUERIES[-1]))),
        y=Axis(f"Share of {result.unit}s", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=pl.concat(listed),
    )


def _coverage(result: ComparisonResult) -> Figure | None:
    """Share of the characters looked at that each run covers, at several probabilities."""
    covered = [(run, run.coverage) for run in result.runs if run.coverage is not None]
    if not covered:
        return None
    layers, listed = [], []
    whiskers = any(own.undecided for _, each in covered for own in each.values())
    for colour, threshold in enumerate(covered[0][1]):
        shares = [own[threshold].share_of_looked_at for _, own in covered]
        data = pl.DataFrame({"x": [float(i) for i in range(len(covered))], "y": shares})
        layers += [Layer("line", data, "", colour), Layer("points", data, f"p_z ≥ {float(threshold):g}", colour)]
        if whiskers:
            most = [own[threshold].share_of_looked_at_upper for _, own in covered]
            ends = data.with_columns(low="y", high=pl.Series(most, dtype=pl.Float64).fill_null(data["y"]))
            layers.append(Layer("interval", ends, "", colour))
        listed += [
            {
                **_row(run, p_z_at_least=float(threshold)),
                "characters": own[threshold].characters,
                "share_of_looked_at": own[threshold].share_of_looked_at,
                "share_of_text": own[threshold].share,
                **({"share_of_looked_at_upper": own[threshold].share_of_looked_at_upper} if whiskers else {}),
            }
            for run, own in covered
        ]
    return Figure(
        name="coverage",
        title="How much of the text each run covers",
        caption=sentences(
            "Of the characters that lie in any suffix, the share in the suffix of a window with at least this p_z. The "
            "lines only guide the eye.",
            _staged(result.runs, "this is the least that is covered"),
            "Whiskers take in windows that a server’s list leaves open." if whiskers else "",
            _which(result.runs),
        ),
        x=_run_axis(result.runs),
        y=Axis("Share of characters looked at", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=pl.DataFrame(listed),
    )


_CHANGES = {
    "both": ("In both", 0),
    "gained": ("Gained", 1),
    "lost": ("Lost", 2),
    "neither": ("In neither", None),
}


def _pair(
    result: ComparisonResult, tables: Mapping[str, pl.DataFrame], first: ComparedRun, other: ComparedRun
) -> Figure | None:
    """p_z of every passage in two runs."""
    unit, tau = result.unit, result.tau
    columns = ("example_id", "log_prob", "bounded")
    both = tables[first.key].select(columns).join(tables[other.key].select(columns), on="example_id")
    known = both.filter(~pl.col("bounded") & ~pl.col("bounded_right"))
    if not known.height:
        return None
    one, two = known["log_prob"].to_numpy(), known["log_prob_right"].to_numpy()
    seen = np.exp(np.concatenate((one, two)))
    least = min(tau, float(seen[seen >= SMALLEST].min(initial=tau)))  # of both axes: then equal is a diagonal
    x, x_places = edged(f"p_z in {run_label(first)}", np.exp(one), least=least)
    y, y_places = edged(f"p_z in {run_label(other)}", np.exp(two), least=least)
    before, after = one >= math.log(tau), two >= math.log(tau)
    kinds = np.select([before & after, ~before & after, before & ~after], ["both", "gained", "lost"], "neither")
    points = known.select(
        "example_id",
        p_z_first=pl.col("log_prob").exp(),
        p_z_second=pl.col("log_prob_right").exp(),
        x=pl.Series(x_places),
        y=pl.Series(y_places),
        series=pl.Series(kinds.tolist(), dtype=pl.String),
    )
    plotted = cloud(points, x=x, y=y, bins=(60, 60), names=("p_z_first", "p_z_second"), series=_CHANGES, unit=unit)
    left, bottom = (axis.limits[0] if axis.limits else 0.0 for axis in (x, y))
    start = max(10 * axis.marks[0][0] if axis.marks else end for axis, end in ((x, left), (y, bottom)))
    others = len(result.runs) - 1
    return Figure(
        name=f"pair-{first.key.lower()}-{other.key.lower()}",
        title=f"{run_label(other)} against {run_label(first)}",
        caption=sentences(
            f"Each point is one {unit} at its p_z in the two runs, likelier in {other.key} above the diagonal.",
            f"In both: at least τ = {tau:g} in both.{plotted.said}",
            f"Only the {numbers.counted(both.height, unit)} that both runs have scored."
            if first.left_out or other.left_out
            else "",
            f"Only the first {PAIRS} of {others} runs are drawn against {first.key}." if others > PAIRS else "",
            *(
                f"On the {side} edge {said}."
                for side, values in (("left", one), ("lower", two))
                if (said := edge_sentence(values, unit))
            ),
            bounded_sentence(both.height - known.height, unit, [first.model, other.model]),
            _which([first, other]),
        ),
        x=x,
        y=y,
        layers=(
            rule(start, start, 1.0, 1.0, "Equal"),
            rule(tau, bottom, tau, 1.0, f"τ = {tau:g}"),
            rule(left, tau, 1.0, tau),
            *plotted.layers,
        ),
        table=points.select("example_id", "p_z_first", "p_z_second", change="series")
        if plotted.colour is None
        else plotted.table,
        colour=plotted.colour,
    )


def _cost(result: ComparisonResult) -> Figure:
    """Token evaluations of each run."""
    runs = result.runs
    totals = [float(run.token_evals) for run in runs]
    places = {"x0": [i - 0.3 for i in range(len(runs))], "x1": [i + 0.3 for i in range(len(runs))], "y": totals}
    times = ", ".join(f"{run.key} {numbers.duration(run.seconds)}" for run in runs)
    return Figure(
        name="cost",
        title="What each run cost",
        caption=sentences(
            f"Positions fed to the model, near-verbatim search included. The runs took: {times}.",
            _which(result.runs),
        ),
        x=_run_axis(result.runs),
        y=Axis("Token evaluations", format="count", limits=(0.0, 1.1 * max(*totals, 1.0))),
        layers=(Layer("bars", pl.DataFrame(places)),),
        table=pl.DataFrame(
            [
                {**_row(run), "token_evaluations": run.token_evals, "seconds_of_the_run": float(run.seconds)}
                for run in runs
            ]
        ),
    )


def _run_axis(runs: Sequence[ComparedRun]) -> Axis:
    names = tuple(run_label(run) if len(runs) <= _NAMED else run.key for run in runs)
    return Axis("", "category", limits=(-0.5, len(runs) - 0.5), names=names)


def _row(run: ComparedRun, **more: Any) -> dict[str, Any]:
    return {"run": run_label(run), "model": run.model.title, "scheme": run.scheme, **more}


def _which(runs: Sequence[ComparedRun]) -> str:
    """Which model and scheme each letter is."""
    schemes = {run.scheme for run in runs}
    each = "; ".join(
        f"{run.key} {plain(numbers.title(run.model))}" + (f", {run.scheme}" if len(schemes) > 1 else "") for run in runs
    )
    before = " or ".join(sorted({bos_first(run.model) for run in runs}))
    common = f"scheme {runs[0].scheme}, {before}" if len(schemes) == 1 else before
    return f"{each}; {common}."


def _stretches(run: ComparedRun) -> pl.DataFrame | None:
    """What windows cover that are not among the compared ones, as rows like theirs."""
    if not run.unshared:
        return None
    return pl.DataFrame(run.unshared, schema=["suffix_start", "suffix_end"], orient="row")


def _staged(runs: Sequence[ComparedRun], what: str) -> str:
    """What is to be known of the runs that left windows out; nothing where none did."""
    keys = [run.key for run in runs if run.left_out]
    return f"Of {', '.join(keys)}, in stages: {what}." if keys else ""


def _sure(result: ComparisonResult) -> str:
    narrow = ", too narrow where windows overlap" if result.scanned else ""
    return f"Whiskers: 95% intervals{narrow}."
