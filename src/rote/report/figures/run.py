"""The plots of one run: where a text comes out, how likely, in how many prompts, and how groups differ.

Each function makes one figure from the rows of one scheme, or None where the run has no data for it. A row that was
only bounded has no place in a plot of p_z: only an upper bound on it is known, and a bound is not drawn as a value.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from rote.analysis.coverage import along_text
from rote.analysis.distribution import decades, spread
from rote.analysis.groups import with_origin
from rote.analysis.rates import log_prob_bounds, np_rates
from rote.analysis.summary import left_out_of
from rote.report.figures.figure import Axis, Figure, Layer
from rote.report.figures.groups import GROUP_FIGURES, repetitions, split_distribution, splits
from rote.report.figures.layers import (
    FLOOR,
    allowed,
    bounded_sentence,
    cloud,
    colour_axis,
    intervals,
    odds_frame,
    rule,
    scored_sentence,
    sentences,
    setting,
    strip_lane,
    strip_layers,
)
from rote.report.figures.near import NEAR_FIGURES, near_figures
from rote.report.text import numbers
from rote.report.text.bounds import or_open
from rote.report.text.stages import left_out
from rote.report.text.strip import IN_PART, UNLOOKED
from rote.store.run import Finished
from rote.store.stages import Audit, Staged

CHANCES = (0.1, 0.5, 0.9, 0.99, 0.999)
QUERIES = tuple(sorted({round(10 ** (i / 10)) for i in range(61)}))
_WHISKERS = 0.5  # the curve that carries intervals

RUN_FIGURES = {
    "heatmap": "a scan",
    "location": "a scan in which some p_z is 0.0001 or more",
    "histogram": "some p_z of 0.0001 or more",
    "prompts": "at least one row",
    **NEAR_FIGURES,
    **GROUP_FIGURES,
    "cost": "at least one row",
}
"""Every figure that a scan, score or rate run can have, and what it needs for it."""


def run_figures(run: Finished, rows: pl.DataFrame, unscored: pl.DataFrame | None = None) -> list[Figure]:
    """The figures of a scan, score or rate run under one scheme, whose rows these are; those without data left out.

    `unscored`: the places of the windows that a scan in stages left out.
    Of drawn examples, the plots of single rows are of the corpus alone: a held-out corpus is a group beside it.
    """
    if not rows.height:
        return []
    every = with_origin(rows) if run.drawn else rows
    own = every.filter(pl.col("corpus") == "main") if run.drawn else rows
    made = [
        heatmap(run, own, unscored),
        location_plot(run, own),
        histogram(run, own),
        prompts(run, own),
        *near_figures(run, rows),
        repetitions(run, every),
        splits(run, every),
        split_distribution(run, every),
        cost(run, rows),
    ]
    return [figure for figure in made if figure is not None]


def heatmap(run: Finished, rows: pl.DataFrame, unscored: pl.DataFrame | None = None) -> Figure | None:
    """The whole text from left to right: how likely each part is to come out, verbatim and near-verbatim."""
    if not run.scanned:
        return None
    length, tau = run.length, run.summary.tau
    lanes = [("Verbatim", log_prob_bounds(rows)[0])]
    near = run.manifest.near
    if near is not None:
        with np.errstate(divide="ignore"):
            lanes.insert(0, (f"Within {numbers.counted(near.tolerance, 'edit')}", np.log(rows["lower"].to_numpy())))
    made = [
        strip_lane(
            along_text(rows, np.minimum(values, 0.0), length, left_out=unscored, tau=tau), tau=tau, lane=lane, at=at
        )
        for at, (lane, values) in enumerate(lanes)
    ]
    bound = " Near-verbatim, a probability is the lower bound that the search found." if near is not None else ""
    within = " Only windows in chosen parts of the text were scored." if run.within else ""
    grey, why = UNLOOKED, ""
    if some := left_out(run):
        grey = IN_PART
        why = (
            f"Of {numbers.counted(some[0].windows, 'window')} {numbers.count(some[0].scored)} were scored; the others "
            "have no number, and what they cover is grey unless a scored one there reaches τ."
        )
    return Figure(
        name="heatmap",
        title="Where the text comes out",
        caption=sentences(
            "The text from its first to its last character. Each part shows the highest probability of any window "
            f"whose suffix covers one of its characters; white is below τ = {tau:g}{or_open(run)}, "
            f"grey was {grey}.",
            why,
            f"{bound}{within}",
            setting(run, rows["scheme"][0]),
        ),
        x=Axis("Character of the text", format="count", limits=(0.0, float(length))),
        y=Axis("", "category", limits=(-0.5, len(lanes) - 0.5), names=tuple(lane for lane, _ in lanes)),
        layers=strip_layers(made, grey),
        table=pl.concat(lane.table for lane in reversed(made)),
        colour=colour_axis(tau),
    )


def location_plot(run: Finished, rows: pl.DataFrame) -> Figure | None:
    """p_z of every window against its place in the text."""
    if not run.scanned:
        return None
    tau, floor = run.summary.tau, min(FLOOR, run.summary.tau)
    known = rows.select("example_id", "suffix_start", "log_prob", "bounded").filter(~pl.col("bounded"))
    points = known.select("example_id", x=pl.col("suffix_start").cast(pl.Float64), log_prob="log_prob")
    drawn = points.filter(pl.col("log_prob") >= math.log(floor))
    if not drawn.height:
        return None
    length = float(run.length)
    x = Axis("Where the suffix starts (character)", format="count", limits=(0.0, length))
    y = Axis("p_z", "log", "probability", limits=(floor, 1.0))
    drawn = drawn.with_columns(y=pl.col("log_prob").exp().clip(floor, 1.0), series=pl.lit("windows"))
    plotted = cloud(
        drawn, x=x, y=y, bins=(120, 32), names=("suffix_start", "p_z"), series={"windows": ("", 0)}, unit="window"
    )
    below = points.height - drawn.height
    return Figure(
        name="location",
        title="Probability along the text",
        caption=sentences(
            f"p_z of {numbers.counted(drawn.height, 'window')} against the place of their suffixes.{plotted.said}",
            f"{numbers.counted(below, 'window')} below {floor:g}: not drawn." if below else "",
            scored_sentence(run),
            bounded_sentence(rows.height - known.height, "window", [run.manifest.model]),
            setting(run, rows["scheme"][0]),
        ),
        x=x,
        y=y,
        layers=(*plotted.layers, rule(0.0, tau, length, tau, f"τ = {tau:g}")),
        table=plotted.table
        if plotted.colour is not None
        else plotted.table.select("example_id", suffix_start=pl.col("x").cast(pl.Int64), p_z="y"),
        colour=plotted.colour,
    )


def histogram(run: Finished, rows: pl.DataFrame) -> Figure | None:
    """How many rows have which p_z."""
    unit, floor = run.unit, min(FLOOR, run.summary.tau)
    first = math.floor(math.log10(floor) + 1e-9)
    binned = spread(rows, decades(first, 0, 10))
    counted = sum(binned.counts)
    if not counted:
        return None
    bars = pl.DataFrame({"x0": binned.edges[:-1], "x1": binned.edges[1:], "y": [float(c) for c in binned.counts]})
    left_out = [
        f"{numbers.count(binned.below)} below {binned.edges[0]:g}" if binned.below else "",
        f"{numbers.count(binned.zero)} of exactly 0" if binned.zero else "",
    ]
    left = " and ".join(part for part in left_out if part)
    return Figure(
        name="histogram",
        title=f"How likely the {unit}s are",
        caption=sentences(
            f"{numbers.counted(counted, unit)} by p_z, in tenths of a power of ten.",
            f"Not drawn: {left}." if left else "",
            scored_sentence(run),
            bounded_sentence(binned.unknown, unit, [run.manifest.model]),
            setting(run, rows["scheme"][0]),
        ),
        x=Axis("p_z", "log", "probability", limits=(binned.edges[0], 1.0)),
        y=Axis(f"{unit.capitalize()}s", format="count", limits=(0.0, 1.05 * max(binned.counts))),
        layers=(
            Layer("bars", bars),
            rule(run.summary.tau, 0.0, run.summary.tau, 1.05 * max(binned.counts), f"τ = {run.summary.tau:g}"),
        ),
        table=bars.select(p_z_from="x0", p_z_to="x1", count=pl.col("y").cast(pl.Int64)),
    )


def prompts(run: Finished, rows: pl.DataFrame) -> Figure | None:
    """Share of rows that come at least once in n generations with probability p or more, against n."""
    if not rows.height:
        return None
    unit, rates, some = run.unit, run.summary.schemes[rows["scheme"][0]].rates, left_out(run)
    cells = odds_frame(np_rates(rows, queries=QUERIES, chances=CHANCES, left_out=left_out_of(rows, run.manifest)))
    # A range is no value; but what was found of a scan in stages is one, and the caption says of what.
    certain = cells.filter((pl.col("rate") == pl.col("rate_upper")) | (some is not None))
    layers = [
        Layer("line", own.select(x=pl.col("n").cast(pl.Float64), y="rate"), f"p = {numbers.threshold(p)}", i)
        for i, p in enumerate(CHANCES)
        if (own := certain.filter(pl.col("p") == p)).height
    ]
    sampled = not run.scanned
    if sampled:
        sure = [cell for cell in rates.np_table if cell.p == _WHISKERS and cell.rate == cell.rate_upper]
        layers += intervals([cell.n for cell in sure], sure, "", CHANCES.index(_WHISKERS))
    if some is not None:
        layers.insert(0, allowed(cells.filter(pl.col("p") == _WHISKERS), CHANCES.index(_WHISKERS)))
    greedy = rates.greedy_rate.rate
    last = float(QUERIES[-1])
    least = "at least " if rates.greedy_rate.rate_upper > greedy else ""
    layers.append(rule(1.0, greedy, last, greedy, f"Greedy, {least}{numbers.percent(greedy)}"))
    ends = certain.height < cells.height
    listed = certain if certain.height else cells  # where every share is left open, between what it lies
    return Figure(
        name="prompts",
        title="How many prompts it takes",
        caption=sentences(
            f"Share of {numbers.counted(rates.examples if some else rows.height, unit)} that come at least once in n "
            "generations with probability p or more.",
            _left_out_sentence(some) if some else "",
            f"Whiskers: 95% intervals at p = {numbers.threshold(_WHISKERS)}." if sampled else "",
            bounded_sentence(
                int(rows["bounded"].sum()), unit, [run.manifest.model], "curves end where they leave the share open"
            )
            if ends
            else "",
            setting(run, rows["scheme"][0]),
        ),
        x=Axis("Generations n", "log", "count", limits=(1.0, last)),
        y=Axis(f"Share of {unit}s", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=listed.select(
            "n", "p", share="rate", **({"share_upper": "rate_upper"} if some or listed is cells else {})
        ),
    )


def _left_out_sentence(some: tuple[Staged, Audit]) -> str:
    """How curves take windows without a number."""
    staged, audit = some
    count = numbers.counted(staged.windows - staged.scored, "window")
    allowed = (
        "as many of them as the audit allows (one-sided, 95%)" if audit.drawn else "all of them, for want of an audit"
    )
    return (
        f"{count} were left out: the lines take them as never extracted, and the band above one of these reaches up to "
        f"{allowed}."
    )


def cost(run: Finished, rows: pl.DataFrame) -> Figure:
    """Token evaluations per row: of the verbatim pass and of the near-verbatim search."""
    unit, near, model = run.unit, run.manifest.near, run.manifest.model
    parts = [("Verbatim", int(rows["token_evals"].sum()))]
    if near is not None:
        parts.append(("Near-verbatim", int(rows["near_token_evals"].sum())))
    each = [total / rows.height for _, total in parts]
    data = pl.DataFrame({"x0": [i - 0.3 for i in range(len(parts))], "x1": [i + 0.3 for i in range(len(parts))]})
    first = (
        " The search's first pass is the verbatim pass, so its bar holds it." if near and near.method == "fork" else ""
    )
    totals = ", ".join(f"{name.lower()} {numbers.count(total)}" for name, total in parts)
    schemes = len(run.manifest.schemes)
    of = f" of all {schemes} schemes" if schemes > 1 else ""
    return Figure(
        name="cost",
        title="What it cost",
        caption=sentences(
            f"Positions fed to the model per {unit}{' that was scored' if left_out(run) else ''}; in total "
            f"{totals}.{first}",
            f"The run{of} took {numbers.duration(run.summary.seconds)} on {model.device}, {model.dtype}.",
            setting(run, rows["scheme"][0]),
        ),
        x=Axis("", "category", names=tuple(name for name, _ in parts), limits=(-0.6, len(parts) - 0.4)),
        y=Axis(f"Token evaluations per {unit}", format="count", limits=(0.0, 1.1 * max(*each, 1.0))),
        layers=(Layer("bars", data.with_columns(pl.Series("y", each))),),
        table=pl.DataFrame(
            {
                "part": [name for name, _ in parts],
                "token_evaluations": [total for _, total in parts],
                f"token_evaluations_per_{unit}": each,
                "seconds_of_the_run": [float(run.summary.seconds)] * len(parts),
            }
        ),
    )
