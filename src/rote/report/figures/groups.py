"""The plots of groups of examples: by how often they were repeated in the training data, and by split."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from rote.analysis.distribution import decades, shares_at_least
from rote.analysis.groups import binned_repetitions, sampled_rates
from rote.analysis.rates import rates, rates_by
from rote.report.figures.figure import Axis, Figure, Layer
from rote.report.figures.layers import FLOOR, bounded_sentence, intervals, rate_table, rule, sentences, setting
from rote.report.text import numbers
from rote.store.run import Finished
from rote.store.summary import Rates, SplitRates

GROUP_FIGURES = {
    "repetitions": "examples with repetitions",
    "splits": "examples of two or more splits",
    "split-distribution": "examples of two or more splits",
}
"""Every figure of groups, and what it needs."""


def repetitions(run: Finished, rows: pl.DataFrame) -> Figure | None:
    """Rate at tau, and greedy, against how often an example stands in the training data."""
    if rows["repetitions"].null_count() == rows.height:
        return None
    rows, binned = binned_repetitions(rows)
    of = sampled_rates if run.drawn else rates  # of drawn examples the intervals know of documents
    every = rates_by(rows, "repetitions", tau=run.summary.tau, of=of)
    groups = [group for group in every if group.repetitions is not None]
    left = rows["repetitions"].null_count()
    names = [_times(group.repetitions or 0, binned) for group in groups]
    unsaid = f"{numbers.counted(left, 'example')} that do not say: left out." if left else ""
    said = ", by how often they stand in the training data"
    return _rates("repetitions", run, rows, groups, names, said=said, left_out=unsaid, joined=True)


def splits(run: Finished, rows: pl.DataFrame) -> Figure | None:
    """Rate at tau, and greedy, of each split: what the model was trained on against what it has not seen."""
    groups = _split_groups(run, rows)
    if not groups:
        return None
    names = [numbers.literal(split) for split in groups]
    return _rates("split", run, rows, list(groups.values()), names, said="", left_out=_without(rows), joined=False)


def _rates(
    key: str,
    run: Finished,
    rows: pl.DataFrame,
    groups: Sequence[Rates],
    names: Sequence[str],
    *,
    said: str,
    left_out: str,
    joined: bool,
) -> Figure:
    """The two rates of each group. `said`: of what they are, in the caption; `joined`: whether a line goes through."""
    tau = run.summary.tau
    drawn, table = _two_rates(groups, names, key, tau, joined=joined)
    return Figure(
        name={"split": "splits"}.get(key, key),
        title=f"Rate by {key}",
        caption=sentences(
            f"Share of examples extractable at τ = {tau:g}, and given back by greedy decoding{said}. {_sure(run)}",
            left_out,
            setting(run, rows["scheme"][0]),
        ),
        x=Axis(key.capitalize(), "category", names=tuple(names), limits=(-0.5, len(names) - 0.5)),
        y=Axis("Rate", format="percent", limits=(0.0, 1.0)),
        layers=drawn,
        table=table,
    )


def split_distribution(run: Finished, rows: pl.DataFrame) -> Figure | None:
    """For each split the share of examples whose p_z is at least so much."""
    groups = _split_groups(run, rows)
    if not groups:
        return None
    floor = min(FLOOR, run.summary.tau)
    levels = decades(math.floor(math.log10(floor) + 1e-9), 0, 20)
    layers, tables = [], []
    for colour, split in enumerate(groups):
        own = rows.filter(pl.col("split") == split)
        shares = shares_at_least(own, levels)
        kept = [(level, low) for level, (low, high) in zip(levels, shares, strict=True) if low == high]
        name = numbers.literal(split)
        data = pl.DataFrame(kept, schema={"x": pl.Float64, "y": pl.Float64}, orient="row")
        layers.append(Layer("line", data, f"{name} ({numbers.counted(own.height, 'example')})", colour))
        tables.append(data.select(pl.lit(name).alias("split"), p_z_at_least="x", share="y"))
    return Figure(
        name="split-distribution",
        title="Probability by split",
        caption=sentences(
            "Share of each split's examples whose p_z is at least the value on the axis. The higher curve comes out "
            "more easily; how sure the difference is, the plot of rates says.",
            _without(rows),
            bounded_sentence(
                int(rows["bounded"].sum()), "example", [run.manifest.model], "curves begin where they leave no doubt"
            ),
            setting(run, rows["scheme"][0]),
        ),
        x=Axis("p_z at least", "log", "probability", limits=(levels[0], 1.0)),
        y=Axis("Share of examples", format="percent", limits=(0.0, 1.0)),
        layers=(*layers, rule(run.summary.tau, 0.0, run.summary.tau, 1.0, f"τ = {run.summary.tau:g}")),
        table=pl.concat(tables),
    )


def _split_groups(run: Finished, rows: pl.DataFrame) -> dict[str, SplitRates]:
    """The rates of each split, where there are two or more."""
    if rows["split"].drop_nulls().n_unique() < 2:
        return {}
    every = rates_by(rows, "split", tau=run.summary.tau, of=sampled_rates if run.drawn else rates)
    return {group.split: group for group in every if group.split is not None}


def _two_rates(
    groups: Sequence[Rates], names: Sequence[str], key: str, tau: float, *, joined: bool
) -> tuple[tuple[Layer, ...], pl.DataFrame]:
    """The rate at tau and the greedy rate of each group, side by side."""
    layers: list[Layer] = []
    listed = []
    named = (
        (f"At τ = {tau:g}", [group.rate_at_tau for group in groups]),
        ("Greedy", [group.greedy_rate for group in groups]),
    )
    for colour, (label, own) in enumerate(named):
        places = [i + (-0.08, 0.08)[colour] for i in range(len(groups))]
        if joined:
            layers.append(Layer("line", pl.DataFrame({"x": places, "y": [rate.rate for rate in own]}), "", colour))
        layers += intervals(places, own, label, colour)
        listed += [
            ({key: name, "examples": group.examples, "measure": label}, rate)
            for name, group, rate in zip(names, groups, own, strict=True)
        ]
    return tuple(layers), rate_table(listed)


def _times(repetitions: int, binned: bool) -> str:
    if binned and repetitions > 1:
        return f"{numbers.count(repetitions)}–{numbers.count(2 * repetitions - 1)}"
    return numbers.count(repetitions)


def _sure(run: Finished) -> str:
    if run.drawn:
        return "Whiskers: 95% intervals, with a document's examples taken together."
    if run.scanned:
        return "Whiskers: 95% Wilson intervals, too narrow where windows overlap."
    return "Whiskers: 95% Wilson intervals, taking the examples as a random sample."


def _without(rows: pl.DataFrame) -> str:
    left = rows["split"].null_count()
    return f"{numbers.counted(left, 'example')} without a split: left out." if left else ""
