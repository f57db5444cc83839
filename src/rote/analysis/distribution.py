"""How probabilities are distributed over the examples: counts in bins, shares at or above levels, densities.

p_z is known by its logarithm, and of a stopped row only an upper bound: such rows are left out and counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.rates import log_prob_bounds

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spread:
    """How many rows have their p_z in each bin: `counts[i]` of them in [edges[i], edges[i + 1]), the last with its end.

    The others have a p_z `below` the first edge, of exactly `zero`, or `unknown` because they were stopped early.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    below: int
    zero: int
    unknown: int


def decades(first: int, last: int, steps: int) -> tuple[float, ...]:
    """Edges from 10**first to 10**last, `steps` to each power of ten."""
    return tuple(10 ** (i / steps) for i in range(first * steps, last * steps + 1))


def spread(scores: pl.DataFrame, edges: Sequence[float]) -> Spread:
    """The rows' p_z counted in bins. Every row stands in exactly one of the counts; the last edge is 1."""
    _, log_prob = log_prob_bounds(scores)
    stopped = scores["bounded"].to_numpy()
    known = log_prob[~stopped]
    zero = int(np.count_nonzero(known == -math.inf))
    # By log_prob, as every threshold: p_z itself would be rounded.
    bins = np.searchsorted([math.log(edge) for edge in edges[:-1]], known, side="right")
    counts = np.bincount(bins, minlength=len(edges))
    return Spread(
        edges=tuple(edges),
        counts=tuple(counts[1:].tolist()),
        below=int(counts[0]) - zero,
        zero=zero,
        unknown=int(stopped.sum()),
    )


def shares_at_least(scores: pl.DataFrame, levels: Sequence[float]) -> list[tuple[float, float]]:
    """For each level the share of rows with p_z >= level, at the least and at the most: stopped rows leave a doubt."""
    least, most = (share_at_least(bound, [math.log(level) for level in levels]) for bound in log_prob_bounds(scores))
    return list(zip(least.tolist(), most.tolist(), strict=True))


def share_at_least(values: Floats, levels: Any) -> Floats:
    """For each level the share of values that are at least that; 0 of no values."""
    ascending = np.sort(values)
    shares: Floats = (ascending.size - np.searchsorted(ascending, levels, side="left")) / max(ascending.size, 1)
    return shares


def cell_counts(x: Floats, y: Floats, x_edges: Floats, y_edges: Floats) -> pl.DataFrame:
    """How many points lie in each cell that has any: `x0`, `x1`, `y0`, `y1`, `count`. All must lie within the edges."""
    columns, rows = (
        np.clip(np.searchsorted(edges, values, side="right") - 1, 0, edges.size - 2)
        for values, edges in ((x, x_edges), (y, y_edges))
    )
    cells, counts = np.unique(rows * (x_edges.size - 1) + columns, return_counts=True)
    row, column = np.divmod(cells, x_edges.size - 1)
    return pl.DataFrame(
        {
            "x0": x_edges[column],
            "x1": x_edges[column + 1],
            "y0": y_edges[row],
            "y1": y_edges[row + 1],
            "count": counts,
        }
    )


def density(values: Floats, at: Floats) -> Floats:
    """The density of values at some places, smoothed by a Gaussian kernel of Silverman's width.

    The width follows from the smaller of the standard deviation and the interquartile range over 1.34, so that a few
    far values do not blur the rest.
    """
    low, high = np.quantile(values, [0.25, 0.75])
    scales = [scale for scale in (float(np.std(values)), float(high - low) / 1.34) if scale > 0]
    width = 0.9 * min(scales, default=1.0) * values.size**-0.2
    sums = np.array([np.exp(-0.5 * ((place - values) / width) ** 2).sum() for place in at])  # all at once: gigabytes
    result: Floats = sums / (values.size * width * math.sqrt(2 * math.pi))
    return result
