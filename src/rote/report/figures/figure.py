"""What a plot is, apart from how it is drawn: the page draws it in the browser, `rote figures` with matplotlib."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

Scale = Literal["linear", "log", "category"]
Format = Literal["number", "count", "percent", "probability"]
Kind = Literal["line", "step", "points", "bars", "band", "interval", "cells", "violin", "rule"]

COLUMNS: dict[Kind, tuple[str, ...]] = {
    "line": ("x", "y"),
    "step": ("x", "y"),  # holds its value up to the next x
    "points": ("x", "y"),
    "bars": ("x0", "x1", "y"),  # from 0 up to y
    "band": ("x", "low", "high"),
    "interval": ("x", "y", "low", "high"),  # a dot and its whisker
    "cells": (
        "x0",
        "x1",
        "y0",
        "y1",
        "value",
    ),  # value in [0, 1]: from the lightest to the darkest colour
    "violin": ("x", "y", "width"),  # one violin per distinct x: width in [0, 1] along y
    "rule": ("x0", "y0", "x1", "y1"),  # a muted straight line, such as a threshold or the diagonal
}
"""Which columns a layer of each kind has. A drawing needs no others; a table may have more, for the reader."""


@dataclass(frozen=True, slots=True)
class Axis:
    """`format` says how its numbers are printed; `limits` are set where the data alone would mislead.

    With the scale `category`, positions are 0, 1, ... from the left or from the bottom, and `names` labels them.
    `marks` are places with a label of their own beside the numbers: such as an edge where zeros are drawn, which a
    logarithmic scale has no place for.
    """

    label: str
    scale: Scale = "linear"
    format: Format = "number"
    limits: tuple[float, float] | None = None
    names: tuple[str, ...] = ()
    marks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """One series. `label` goes into the legend (empty: none); `colour` counts along the palette, None is muted.

    Cells have the colours of their values; those of a muted layer are all grey.
    """

    kind: Kind
    data: pl.DataFrame
    label: str = ""
    colour: int | None = 0

    def __post_init__(self) -> None:
        missing = set(COLUMNS[self.kind]) - set(self.data.columns)
        if missing:
            raise ValueError(f"a layer of kind {self.kind} needs the columns {sorted(missing)}")


@dataclass(frozen=True, slots=True)
class Figure:
    """`name` is the stem of its files and its id on the page; `table` holds what was plotted, for people and for CSV.

    `colour` is the scale of the cells' values, for the legend: 0 stands for its lower limit and 1 for its upper. What
    has no cell is blank.
    """

    name: str
    title: str
    caption: str
    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    table: pl.DataFrame
    colour: Axis | None = None


def as_json(figure: Figure) -> dict[str, Any]:
    """The figure for the page: plain lists, with null where a number is not finite."""
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "x": _axis(figure.x),
        "y": _axis(figure.y),
        "colour": None if figure.colour is None else _axis(figure.colour),
        "layers": [
            {
                "kind": layer.kind,
                "label": layer.label,
                "colour": layer.colour,
                "data": {name: [_finite(v) for v in layer.data[name].to_list()] for name in COLUMNS[layer.kind]},
            }
            for layer in figure.layers
        ],
        "table": {name: [_finite(v) for v in figure.table[name].to_list()] for name in figure.table.columns},
    }


def _axis(axis: Axis) -> dict[str, Any]:
    return {
        "label": axis.label,
        "scale": axis.scale,
        "format": axis.format,
        "limits": axis.limits,
        "names": axis.names,
        "marks": axis.marks,
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
