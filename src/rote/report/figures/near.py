"""The plots of a near-verbatim search: rates by tolerance, what only tolerance unlocks, and where the mass lies.

Differences between lower bounds, which gains and shells are, are estimates; captions say so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.distribution import decades, density, share_at_least
from rote.analysis.near.rates import mass_gain, near_rates, scatter, shells
from rote.report.figures.figure import Axis, Figure, Layer
from rote.report.figures.layers import (
    cloud,
    colour_axis,
    edge_sentence,
    edged,
    intervals,
    rate_table,
    rule,
    sentences,
    setting,
)
from rote.report.text import numbers
from rote.store.manifest import NearSearch
from rote.store.run import Finished
from rote.store.summary import Share

Floats = NDArray[np.float64]

DEPTH = 1000
"""Masses down to tau over this have a place in the plots."""

SHELL_ROWS = 100
_FEW = 8  # distinct values that a violin needs; fewer are drawn as points
_VIOLIN = 60  # places at which a violin's width is known

NEAR_FIGURES = {
    "tolerance": "a near-verbatim search",
    **dict.fromkeys(("unlocked", "mass-gain", "shells", "shell-mass"), "a near-verbatim search that finds something"),
}
"""Every figure of a near-verbatim search, and what it needs."""


def near_figures(run: Finished, rows: pl.DataFrame) -> list[Figure | None]:
    if not run.manifest.near:
        return []
    return [make(run, run.summary.tau, rows) for make in (tolerance, unlocked, gain, shell_heatmap, shell_violins)]


def tolerance(run: Finished, tau: float, rows: pl.DataFrame) -> Figure:
    """Rate at tau against the tolerance, with what is undecided, and greedy."""
    unit, rates = run.unit, near_rates(rows, tau=tau)
    sampled = run.search.method == "sample"
    shares = [rate.probabilistic for rate in rates]
    places = [float(rate.tolerance) for rate in rates]
    label = "At τ, lower end of the interval" if sampled else "At τ, certified"
    band = {"x": places, "low": [s.rate for s in shares], "high": [s.rate_upper for s in shares]}
    layers = [
        *([Layer("band", pl.DataFrame(band), "Undecided", 0)] if any(rate.undecided for rate in rates) else []),
        Layer("line", pl.DataFrame({"x": places, "y": band["low"]}), "", 0),
        *intervals(places, shares, label, 0),
    ]
    listed: list[tuple[dict[str, Any], Share]] = [
        ({"tolerance": rate.tolerance, "measure": label}, rate.probabilistic) for rate in rates
    ]
    measured = rows.height - rates[0].greedy_missing
    if measured:
        greedy = [rate.greedy for rate in rates]
        shifted = [place + 0.06 for place in places]
        layers.append(Layer("line", pl.DataFrame({"x": shifted, "y": [s.rate for s in greedy]}), "", 1))
        layers += intervals(shifted, greedy, "Greedy", 1)
        listed += [({"tolerance": rate.tolerance, "measure": "Greedy"}, rate.greedy) for rate in rates]
    missing = rates[0].greedy_missing
    return Figure(
        name="tolerance",
        title="Rate by tolerance",
        caption=sentences(
            f"Share of {numbers.counted(rows.height, unit)} with an output within so many edits at τ = {tau:g} or "
            "more. "
            + ("The band reaches up to what could not be excluded. " if layers[0].kind == "band" else "")
            + "Whiskers: 95% intervals, undecided included"
            + (", too narrow where windows overlap." if run.scanned else "."),
            f"Greedy is over the {numbers.count(measured)} whose greedy output was compared."
            if missing and measured
            else "",
            _searched(run.search),
            setting(run, rows["scheme"][0]),
        ),
        x=Axis("Tolerance (edits)", format="count", limits=(-0.3, places[-1] + 0.3)),
        y=Axis(f"Share of {unit}s", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=rate_table(listed),
    )


_KINDS = {
    "verbatim": ("Extractable verbatim", 0),
    "unlocked": ("Unlocked by tolerance", 1),
    "below": ("Below τ", None),
}


def unlocked(run: Finished, tau: float, rows: pl.DataFrame) -> Figure | None:
    """p_z against the lower bound on the probability within the tolerance."""
    unit = run.unit
    each = scatter(rows, tau=tau)
    each = each.filter(pl.col("tolerance") == each["tolerance"].max())
    floor = tau / DEPTH
    drawn = each.filter(pl.col("lower") >= floor)
    if not drawn.height:
        return None
    x, places = edged("p_z (verbatim)", drawn["p_z"].to_numpy(), least=floor)
    verbatim = pl.when(pl.col("log_prob") >= math.log(tau)).then(pl.lit("verbatim"))
    kind = verbatim.when(pl.col("lower") >= tau).then(pl.lit("unlocked")).otherwise(pl.lit("below"))
    points = drawn.select(
        "example_id",
        x=pl.Series(places),
        y=pl.col("lower").clip(floor, 1.0),
        series=kind,
        p_z="p_z",
    )
    bound = "Lower end of the interval" if run.search.method == "sample" else "Lower bound"
    edits = numbers.counted(run.search.tolerance, "edit")
    y = Axis(f"{bound}, within {edits}", "log", "probability", (floor, 1.0))
    left = (x.limits or (floor, 1.0))[0]
    plotted = cloud(points, x=x, y=y, bins=(60, 60), names=("p_z", "lower"), series=_KINDS, unit=unit)
    on_edge = edge_sentence(drawn["log_prob"].to_numpy(), unit)
    gained = int((points["series"] == "unlocked").sum())
    return Figure(
        name="unlocked",
        title="What only tolerance unlocks",
        caption=sentences(
            f"Each point is one {unit}. Tolerance unlocks {numbers.count(gained)} of them: p_z is below τ = {tau:g}, "
            f"the {bound.lower()} is not.{plotted.said}",
            f"On the left edge {on_edge}." if on_edge else "",
            f"{numbers.counted(each.height - drawn.height, unit)} with a bound below {floor:g}: not drawn."
            if drawn.height < each.height
            else "",
            _searched(run.search),
            setting(run, rows["scheme"][0]),
        ),
        x=x,
        y=y,
        layers=(
            rule(floor, floor, 1.0, 1.0, "Nothing gained"),
            rule(tau, floor, tau, 1.0, f"τ = {tau:g}"),
            rule(left, tau, 1.0, tau),
            *plotted.layers,
        ),
        table=points.select("example_id", "p_z", lower="y", kind="series") if plotted.colour is None else plotted.table,
        colour=plotted.colour,
    )


def gain(run: Finished, tau: float, rows: pl.DataFrame) -> Figure | None:
    """Share of rows that gain at least so much probability from the tolerance."""
    unit, gains = run.unit, mass_gain(rows, tau=tau)
    levels = decades(math.floor(math.log10(tau / DEPTH) + 1e-9), 0, 40)
    table = gains.examples
    groups = [("All", table), (f"Extractable at τ = {tau:g}", table.filter("extractable"))]
    if not (table["gain_estimate"] >= levels[0]).any():
        return None
    layers, listed = [], []
    for colour, (name, own) in enumerate(groups):
        if not own.height:
            continue
        shares = share_at_least(own["gain_estimate"].to_numpy(), levels)
        data = pl.DataFrame({"x": levels, "y": shares})
        layers.append(Layer("line", data, f"{name} ({numbers.counted(own.height, unit)})", colour))
        listed.append(data.select(pl.lit(name).alias("group"), gain_at_least="x", share="y"))
    less = f" In {numbers.count(gains.clamped)} the search found less than p_z: no gain." if gains.clamped else ""
    return Figure(
        name="mass-gain",
        title="What tolerance adds",
        caption=sentences(
            f"Share of {unit}s whose probability grows by at least the value on the axis when outputs within "
            f"{numbers.counted(run.search.tolerance, 'edit')} count: the lower bound less p_z, an estimate." + less,
            _searched(run.search),
            setting(run, rows["scheme"][0]),
        ),
        x=Axis("Gain in probability", "log", "probability", limits=(levels[0], 1.0)),
        y=Axis(f"Share of {unit}s", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=pl.concat(listed),
    )


def shell_heatmap(run: Finished, tau: float, rows: pl.DataFrame) -> Figure | None:
    """The mass at each distance: a row per extractable sequence, or per group of neighbours where they are many."""
    unit, mass = run.unit, _masses(rows, tau)
    if not mass.shape[0]:
        return None
    # Most verbatim mass at the top; of equal ones, most at the next distance.
    order = np.lexsort([mass[:, i] for i in range(mass.shape[1] - 1, -1, -1)])
    mass = mass[order]
    count = min(SHELL_ROWS, mass.shape[0])
    edges = np.arange(count + 1) * mass.shape[0] // count
    means = np.add.reduceat(mass, edges[:-1], axis=0) / np.diff(edges)[:, None]
    each = means.size // count
    cells = pl.DataFrame(
        {
            "x0": np.tile(np.arange(each) - 0.5, count),
            "x1": np.tile(np.arange(each) + 0.5, count),
            "y0": np.repeat(edges[:-1], each).astype(np.float64),
            "y1": np.repeat(edges[1:], each).astype(np.float64),
            "mass": means.reshape(-1),
        }
    )
    shown = cells.filter(pl.col("mass") >= tau)
    value = 1 - np.log(shown["mass"].to_numpy().clip(tau, 1.0)) / math.log(tau) if tau < 1 else np.ones(shown.height)
    several = f" Each row is the mean of about {mass.shape[0] / count:.0f} neighbours." if mass.shape[0] > count else ""
    return Figure(
        name="shells",
        title="Where the mass lies",
        caption=sentences(
            f"Probability of outputs at each distance from the suffix, for the {numbers.counted(mass.shape[0], unit)} "
            f"extractable at τ = {tau:g}; those with the most verbatim mass are at the top.{several} Blank is below τ. "
            "Estimates: what one more edit adds to the lower bound.",
            _searched(run.search),
            setting(run, rows["scheme"][0]),
        ),
        x=Axis("Distance from the suffix (edits)", "category", "count", (-0.5, each - 0.5), _distances(each)),
        y=Axis(f"Extractable {unit}s, by p_z", format="count", limits=(0.0, float(mass.shape[0]))),
        layers=(Layer("cells", shown.with_columns(pl.Series("value", value))),),
        table=cells.select(
            (pl.col("x0") + 0.5).cast(pl.Int64).alias("distance"),
            pl.col("y0").cast(pl.Int64).alias("from_place"),
            pl.col("y1").cast(pl.Int64).alias("to_place"),
            pl.col("mass").alias("mean_mass_estimate"),
        ),
        colour=colour_axis(tau, "Mass"),
    )


def shell_violins(run: Finished, tau: float, rows: pl.DataFrame) -> Figure | None:
    """How the mass at each distance is distributed over the extractable sequences."""
    unit, mass, floor = run.unit, _masses(rows, tau), tau / DEPTH
    if not mass.shape[0]:
        return None
    violins, singles, medians, listed = [], [], [], []
    for distance in range(mass.shape[1]):
        own = np.sort(mass[mass[:, distance] >= floor, distance])
        quartiles = np.quantile(own, [0.25, 0.5, 0.75]).tolist() if own.size else [None] * 3
        listed.append((distance, mass.shape[0], own.size, *quartiles, float(mass[:, distance].mean())))
        if not own.size:
            continue
        medians.append((float(distance), quartiles[1]))
        if np.unique(own).size < _FEW:
            singles += [(float(distance), value) for value in own.tolist()]
            continue
        at = np.linspace(math.log10(own[0]), math.log10(own[-1]), _VIOLIN)
        width = density(np.log10(own), at)
        width /= width.max()
        violins += [(float(distance), min(10**y, 1.0), w) for y, w in zip(at.tolist(), width.tolist(), strict=True)]
    if not medians:
        return None
    pair = {"x": pl.Float64, "y": pl.Float64}
    layers = [
        Layer("violin", pl.DataFrame(violins, schema={**pair, "width": pl.Float64}, orient="row"), "", 0),
        Layer("points", pl.DataFrame(singles, schema=pair, orient="row"), f"Single {unit}s", 0),
        Layer("points", pl.DataFrame(medians, schema=pair, orient="row"), "Median", 1),
    ]
    columns = ("distance", f"{unit}s", "with_mass", "lower_quartile", "median", "upper_quartile", "mean_of_all")
    return Figure(
        name="shell-mass",
        title="How much mass at which distance",
        caption=sentences(
            f"Probability of outputs at each distance from the suffix, over the {numbers.counted(mass.shape[0], unit)} "
            f"extractable at τ = {tau:g}. At each distance those with less than {floor:g} there are left out: "
            + ", ".join(f"{row[1] - row[2]:,} at {row[0]}" for row in listed)
            + ". Estimates: what one more edit adds to the lower bound.",
            _searched(run.search),
            setting(run, rows["scheme"][0]),
        ),
        x=Axis(
            "Distance from the suffix (edits)", "category", "count", (-0.6, len(listed) - 0.4), _distances(len(listed))
        ),
        y=Axis("Mass", "log", "probability", limits=(floor, 1.0)),
        layers=tuple(layer for layer in layers if layer.data.height),
        table=pl.DataFrame(listed, schema=columns, orient="row"),
    )


def _masses(rows: pl.DataFrame, tau: float) -> Floats:
    """The mass at each distance, a row per extractable sequence."""
    own = shells(rows, tau=tau).examples.filter("extractable")["mass_estimate"].to_list()
    result: Floats = np.array(own, dtype=np.float64)
    return result


def _distances(count: int) -> tuple[str, ...]:
    return tuple(str(i) for i in range(count))


def _searched(near: NearSearch) -> str:
    sure = "95% intervals from samples, not certified" if near.method == "sample" else "bounds are certified"
    return f"Near-verbatim by {near.method} search, {near.distance} distance; {sure}."
