"""The layers of a figure, drawn with matplotlib: colours, markers and dashes that are told apart in grey too."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rote.report.figures.figure import Kind, Layer
from rote.report.figures.layers import MANY

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which colour-blind readers can tell apart, without the yellow that white paper swallows."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 2)))
MUTED = "#6b6b6b"
UNSEEN = "#d9d9d9"
LIGHTEST, DARKEST = "#cfe1f2", "#08306b"
"""Ends of the colour scale of cells: darker is more, in grey too, and the lightest is told from white."""

_RULES = ((0, (4, 2)), (0, (1, 1.5)), (0, (6, 1.5, 1, 1.5)))


@dataclass(frozen=True, slots=True)
class Look:
    """Sizes of a style: inches and points."""

    width: float
    height: float
    font: float
    line: float
    dot: float
    titled: bool


def _line(axes: Any, layer: Layer, look: Look, _: Any, drawstyle: str = "default") -> None:
    dash = "-" if layer.colour is None else _turn(DASHES, layer.colour)
    axes.plot(
        layer.data["x"].to_numpy(),
        layer.data["y"].to_numpy(),
        color=_colour(layer),
        linestyle=dash,
        linewidth=look.line,
        drawstyle=drawstyle,
        label=_label(layer),
    )


def _step(axes: Any, layer: Layer, look: Look, _: Any) -> None:
    _line(axes, layer, look, _, drawstyle="steps-post")


def _points(axes: Any, layer: Layer, look: Look, _: Any) -> None:
    many = layer.data.height > 200
    axes.plot(
        layer.data["x"].to_numpy(),
        layer.data["y"].to_numpy(),
        color=_colour(layer),
        linestyle="none",
        marker=_marker(layer),
        markersize=(0.5 if many else 1.0) * look.dot,
        alpha=0.6 if many else 1.0,
        rasterized=layer.data.height > MANY,
        zorder=3 if layer.colour is not None else 2,
        label=_label(layer),
    )


def _bars(axes: Any, layer: Layer, look: Look, _: Any) -> None:
    left = layer.data["x0"].to_numpy()
    axes.bar(
        left,
        layer.data["y"].to_numpy(),
        width=layer.data["x1"].to_numpy() - left,
        align="edge",
        color=_colour(layer),
        edgecolor="white",
        linewidth=0.2 * look.line if layer.data.height <= 60 else 0.0,
        label=_label(layer),
    )


def _band(axes: Any, layer: Layer, look: Look, _: Any) -> None:
    x, low, high = (layer.data[name].to_numpy() for name in ("x", "low", "high"))
    axes.fill_between(x, low, high, color=_colour(layer), alpha=0.2, linewidth=0, label=_label(layer))


def _interval(axes: Any, layer: Layer, look: Look, _: Any) -> None:
    x, y, low, high = (layer.data[name].to_numpy() for name in ("x", "y", "low", "high"))
    axes.errorbar(
        x,
        y,
        yerr=[(y - low).clip(0), (high - y).clip(0)],
        fmt=_marker(layer),
        color=_colour(layer),
        markersize=look.dot,
        elinewidth=0.7 * look.line,
        capsize=0.6 * look.dot,
        capthick=0.7 * look.line,
        zorder=3,
        label=_label(layer),
    )


def _cells(axes: Any, layer: Layer, look: Look, _: Any) -> None:
    from matplotlib.collections import PolyCollection

    cells = layer.data.sort("y0", "x0")
    polygons = PolyCollection(
        _touching(cells.select("x0", "x1", "y0", "y1").rows()),
        facecolors=UNSEEN if layer.colour is None else colour_map()(cells["value"].to_numpy()),
        linewidths=0,
        rasterized=cells.height > MANY,
        label=_label(layer),
    )
    axes.add_collection(polygons)
    axes.autoscale_view()


def _touching(cells: Sequence[tuple[float, float, float, float]]) -> list[list[tuple[float, float]]]:
    """The cells as polygons that reach below the next cell to the right and the one above, which are drawn after them.

    Cells that merely touch show the paper between them in many viewers.
    """
    ends = {(x0, y0): (x1, y1) for x0, x1, y0, y1 in cells}
    polygons = []
    for x0, x1, y0, y1 in cells:
        right, _ = ends.get((x1, y0), (x1, y1))
        _, above = ends.get((x0, y1), (x1, y1))
        far, high = (x1 + right) / 2, (y1 + above) / 2
        polygons.append([(x0, y0), (far, y0), (far, y1), (x1, y1), (x1, high), (x0, high)])
    return polygons


def _violin(axes: Any, layer: Layer, look: Look, _: Any) -> None:
    for number, own in enumerate(layer.data.partition_by("x", maintain_order=True)):
        half = 0.4 * own["width"].to_numpy()
        centre = own["x"].to_numpy()
        label = _label(layer) if not number else "_"
        axes.fill_betweenx(
            own["y"].to_numpy(),
            centre - half,
            centre + half,
            color=_colour(layer),
            alpha=0.45,
            linewidth=0,
            label=label,
        )


def _rule(axes: Any, layer: Layer, look: Look, dash: Any) -> None:
    for x0, y0, x1, y1 in layer.data.select("x0", "y0", "x1", "y1").iter_rows():
        axes.plot(
            [x0, x1], [y0, y1], color=_colour(layer), linestyle=dash, linewidth=0.8 * look.line, label=_label(layer)
        )


_DRAW: dict[Kind, Callable[[Any, Layer, Look, Any], None]] = {
    "line": _line,
    "step": _step,
    "points": _points,
    "bars": _bars,
    "band": _band,
    "interval": _interval,
    "cells": _cells,
    "violin": _violin,
    "rule": _rule,
}


def draw_layers(axes: Any, layers: Sequence[Layer], look: Look) -> None:
    """Each layer on top of those before it. A rule without a label is dashed like the labelled one before it."""
    rules = -1
    for layer in layers:
        rules += layer.kind == "rule" and bool(layer.label)
        _DRAW[layer.kind](axes, layer, look, _RULES[rules % len(_RULES)])


def _colour(layer: Layer) -> str:
    return MUTED if layer.colour is None else PALETTE[layer.colour % len(PALETTE)]


def _marker(layer: Layer) -> str:
    return "." if layer.colour is None else _turn(MARKERS, layer.colour)


def _turn(kinds: Sequence[Any], colour: int) -> Any:
    """One of these for a colour: when colours come round again, they come with the next ones."""
    return kinds[(colour + colour // len(PALETTE)) % len(kinds)]


def _label(layer: Layer) -> str:
    """For the legend. Matplotlib's word for none is an underscore, with which a foreign name may begin too."""
    return words(f" {layer.label}" if layer.label.startswith("_") else layer.label) if layer.label else "_"


def colour_map() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("rote", [LIGHTEST, "#4292c6", DARKEST])


def words(text: str) -> str:
    """Foreign text as it is, without mathematics of its own; p_z with its subscript."""
    return re.sub(r"(?<![\w/.\\-])p_z(?![\w/-]|\.\w)", r"$p_z$", text.replace("$", r"\$"))
