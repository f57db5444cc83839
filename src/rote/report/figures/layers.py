"""What several figures have in common: cells along a text, clouds of points, rules, and what their captions say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.distribution import cell_counts
from rote.models.base import ModelIdentity
from rote.report.figures.figure import Axis, Layer
from rote.report.keys import plain
from rote.report.text import numbers
from rote.report.text.stages import left_out
from rote.report.text.strip import UNLOOKED
from rote.store.comparison import ComparedModel
from rote.store.run import Finished
from rote.store.summary import OddsRate, Rate, Share

MANY = 5000
"""Points above this number are drawn as cells that count them."""

BINS = 1000
"""Parts of a text in a heatmap strip, at most."""

FLOOR = 0.0001
"""The smallest p_z that plots of p_z begin with, unless tau is smaller."""

SMALLEST = 1e-12
"""The smallest p_z with a place of its own on an axis with an edge; smaller ones stand on the edge, with 0."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cloud:
    """Points, or cells that count them and the scale of their colours."""

    layers: tuple[Layer, ...]
    table: pl.DataFrame
    colour: Axis | None
    said: str


def setting(run: Finished, scheme: str) -> str:
    """Under what a plot's numbers were measured: the end of every caption."""
    return made_with(run.manifest.model, f"scheme {scheme}")


def made_with(model: ModelIdentity, how: str) -> str:
    """The model, how it wrote, and what stood before its prompts."""
    return f"Model {plain(numbers.title(model))}, {how}, {bos_first(model)}."


def bos_first(model: ModelIdentity | ComparedModel) -> str:
    """What stood before the prompts, as captions have it."""
    return "no BOS token" if model.bos_token is None else f"BOS {plain(numbers.bos_token(model))} first"


def short_scheme(scheme: str) -> str:
    """A scheme's label without a temperature of 1, which goes without saying where there is more."""
    return scheme.removeprefix("temperature=1 ")


def bounded_sentence(
    count: int, unit: str, models: Sequence[ModelIdentity | ComparedModel], what: str = "left out"
) -> str:
    """What became of rows of which only an upper bound is known; nothing where there are none."""
    if not count:
        return ""
    why = " or ".join(dict.fromkeys(map(numbers.bounded, models)))
    return f" {numbers.counted(count, unit)} {why}, of which only an upper bound on p_z is known: {what}."


def scored_sentence(run: Finished) -> str:
    """That a plot of windows is of those that were scored alone; nothing where that is all."""
    some = left_out(run)
    if some is None:
        return ""
    scored, windows = numbers.count(some[0].scored), numbers.counted(some[0].windows, "window")
    return f"These are of the {scored} of {windows} that were scored; those left out have no p_z."


def rule(x0: float, y0: float, x1: float, y1: float, label: str = "", colour: int | None = None) -> Layer:
    data = pl.DataFrame({"x0": [x0], "y0": [y0], "x1": [x1], "y1": [y1]}, schema=dict.fromkeys(_RULE, pl.Float64))
    return Layer("rule", data, label, colour)


_RULE = ("x0", "y0", "x1", "y1")


def colour_axis(tau: float, label: str = "Probability") -> Axis:
    """The scale of a heatmap strip: logarithmic from tau, white below it; grey is what was not looked at."""
    return Axis(label, "log", "probability", limits=(tau, 1.0))


@dataclass(frozen=True, slots=True)
class StripLane:
    """One lane of a heatmap strip: its cells, the parts of the text that were not looked at, and its table."""

    cells: pl.DataFrame
    unseen: pl.DataFrame
    table: pl.DataFrame


def strip_lane(best: Floats, *, tau: float, lane: str, at: int) -> StripLane:
    """A lane of a heatmap strip.

    `best`: for each character the largest logarithm of a probability (NaN: not looked at). Each part of the text shows
    the highest value in it; the cells are those that reach tau, the table has a row for every part.
    """
    count = min(BINS, best.size)
    edges = np.arange(count + 1) * best.size // count
    highest = np.fmax.reduceat(best, edges[:-1])
    floor = math.log(tau)
    value = 1 - highest / floor if floor < 0 else np.where(highest >= floor, 1.0, 0.0)
    parts = pl.DataFrame(
        {
            "lane": [lane] * count,
            "x0": edges[:-1],
            "x1": edges[1:],
            "y0": np.full(count, at - 0.4),
            "y1": np.full(count, at + 0.4),
            "highest": np.exp(highest),
            "value": np.clip(value, 0.0, 1.0),
            "shown": highest >= floor,
            "looked_at": ~np.isnan(highest),
        }
    )
    cells = parts.select("x0", "x1", "y0", "y1", pl.col("value").fill_nan(0.0))
    return StripLane(
        cells=cells.filter(parts["shown"]),
        unseen=cells.filter(~parts["looked_at"]),
        table=parts.select(
            "lane",
            pl.col("x0").alias("start"),
            pl.col("x1").alias("end"),
            "looked_at",
            highest_probability=pl.when("shown").then("highest"),
        ),
    )


def strip_layers(lanes: Sequence[StripLane], grey: str = UNLOOKED) -> tuple[Layer, ...]:
    """The cells of all lanes, and in grey, where there is any, what was not looked at."""
    unseen = pl.concat(lane.unseen for lane in lanes)
    cells = Layer("cells", pl.concat(lane.cells for lane in lanes))
    return (cells, Layer("cells", unseen, grey, None)) if unseen.height else (cells,)


def cloud(
    points: pl.DataFrame,
    *,
    x: Axis,
    y: Axis,
    bins: tuple[int, int],
    names: tuple[str, str],
    series: Mapping[str, tuple[str, int | None]],
    unit: str,
) -> Cloud:
    """`points` (`x`, `y`, `series`, and what else the table should have) as they are, or counted where they are many.

    `series` says how each one is labelled and coloured, `names` what the table of counts calls the axes. Both axes need
    limits that hold all points.
    """
    if points.height <= MANY:
        layers = tuple(
            Layer("points", own.select("x", "y"), label, colour)
            for name, (label, colour) in series.items()
            if (own := points.filter(pl.col("series") == name)).height
        )
        return Cloud(layers, points, None, "")
    cells = cell_counts(points["x"].to_numpy(), points["y"].to_numpy(), _edges(x, bins[0]), _edges(y, bins[1]))
    most = max(int(cells["count"].max() or 0), 10)  # type: ignore[arg-type]
    value = np.log(cells["count"].to_numpy()) / math.log(most)
    layer = Layer("cells", cells.with_columns(pl.Series("value", value)), "", 0)
    said = f" As there are more than {numbers.count(MANY)}, they are counted in cells, the darker the more."
    colour = Axis(f"{unit.capitalize()}s", "log", "count", limits=(1.0, float(most)))
    across, up = names
    table = cells.rename({"x0": f"{across}_from", "x1": f"{across}_to", "y0": f"{up}_from", "y1": f"{up}_to"})
    return Cloud((layer,), table, colour, said)


def _edges(axis: Axis, bins: int) -> Floats:
    if axis.limits is None:
        raise ValueError("an axis of a cloud needs limits")
    low, high = axis.limits
    edges: Floats = np.geomspace(low, high, bins + 1) if axis.scale == "log" else np.linspace(low, high, bins + 1)
    return edges


def sentences(*parts: str) -> str:
    """Parts of a caption as one; empty ones are left out."""
    return " ".join(part.strip() for part in parts if part.strip())


def intervals(
    places: Sequence[float], rates: Sequence[Rate | Share], label: str, colour: int | None
) -> tuple[Layer, ...]:
    """Rates with their 95% intervals, and a line that joins them."""
    data = pl.DataFrame(
        {
            "x": [float(place) for place in places],
            "y": [rate.rate for rate in rates],
            "low": [rate.interval[0] for rate in rates],
            "high": [rate.interval[1] for rate in rates],
        },
        schema=dict.fromkeys(("x", "y", "low", "high"), pl.Float64),
    )
    return (Layer("interval", data, label, colour),)


def odds_frame(cells: Sequence[OddsRate]) -> pl.DataFrame:
    """(n, p) rates as columns."""
    names = ("n", "p", "rate", "rate_upper")
    return pl.DataFrame({name: [getattr(cell, name) for cell in cells] for name in names})


def allowed(cells: pl.DataFrame, colour: int) -> Layer:
    """From what was found to what may be among the windows left out."""
    return Layer("band", cells.select(x=pl.col("n").cast(pl.Float64), low="rate", high="rate_upper"), "", colour)


def rate_table(rates: Sequence[tuple[Mapping[str, Any], Rate | Share]]) -> pl.DataFrame:
    """One row per rate: what it is of, then its number and its interval."""
    return pl.DataFrame(
        [
            {
                **of,
                "count": rate.count,
                "rate": rate.rate,
                "rate_upper": rate.rate_upper,
                "interval_low": rate.interval[0],
                "interval_high": rate.interval[1],
            }
            for of, rate in rates
        ]
    )


def edged(label: str, p_z: Floats, *, least: float) -> tuple[Axis, Floats]:
    """A logarithmic axis for p_z that has a place for 0 too, on its edge, and where each value stands on it.

    The axis begins at `least` or lower; values below SMALLEST stand on the edge with the zeros.
    """
    small = p_z < SMALLEST
    low, _ = log_limits(min(least, float(p_z[~small].min(initial=1.0))))
    if not small.any():
        return Axis(label, "log", "probability", (low, 1.0)), np.clip(p_z, low, 1.0)
    edge = low / 10
    mark = "0" if not p_z[small].any() else f"< {SMALLEST:g}"
    axis = Axis(label, "log", "probability", (edge / 3, 1.0), marks=((edge, mark),))
    return axis, np.where(small, edge, np.clip(p_z, low, 1.0))


def edge_sentence(log_prob: Floats, unit: str) -> str:
    """How many stand on the edge, and why; nothing where none does."""
    zero = int(np.count_nonzero(log_prob == -math.inf))
    tiny = int(np.count_nonzero(np.exp(log_prob) < SMALLEST)) - zero
    parts = [f"{numbers.counted(zero, unit)} with a p_z of exactly 0" if zero else ""]
    parts.append(f"{numbers.counted(tiny, unit)} with one below {SMALLEST:g}" if tiny else "")
    return " and ".join(part for part in parts if part)


def log_limits(least: float, most: float = 1.0) -> tuple[float, float]:
    """Whole powers of ten around."""
    return 10.0 ** math.floor(math.log10(least) + 1e-9), 10.0 ** math.ceil(math.log10(most) - 1e-9)
