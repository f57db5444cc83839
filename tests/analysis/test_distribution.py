"""Counts, shares and densities, against the plainest way to find them."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.distribution import cell_counts, decades, density, share_at_least, shares_at_least, spread

LOG_PROBS = st.one_of(
    st.floats(-900, 0), st.floats(-9, 0), st.sampled_from([0.0, -math.inf, math.log(0.001), math.log(0.1)])
)


def table(values: list[tuple[float, bool]]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "example_id": [str(i) for i in range(len(values))],
            "scheme": ["s"] * len(values),
            "log_prob": [value for value, _ in values],
            "bounded": [stopped for _, stopped in values],
        },
        schema={"example_id": pl.String, "scheme": pl.String, "log_prob": pl.Float64, "bounded": pl.Boolean},
    )


def test_decades() -> None:
    assert decades(-2, 0, 2) == pytest.approx((0.01, 0.0316227766, 0.1, 0.316227766, 1.0))


@given(st.lists(st.tuples(LOG_PROBS, st.booleans())))
def test_every_row_stands_in_one_count(values: list[tuple[float, bool]]) -> None:
    edges = decades(-4, 0, 3)
    found = spread(table(values), edges)
    known = [value for value, stopped in values if not stopped]
    assert found.unknown == len(values) - len(known)
    assert found.zero == sum(value == -math.inf for value in known)
    assert found.below == sum(-math.inf < value < math.log(edges[0]) for value in known)
    for i, count in enumerate(found.counts):
        last = i == len(found.counts) - 1
        assert count == sum(math.log(edges[i]) <= v and (last or v < math.log(edges[i + 1])) for v in known)
    assert sum(found.counts) + found.below + found.zero + found.unknown == len(values)


@given(st.lists(st.tuples(LOG_PROBS, st.booleans()), min_size=1), st.lists(st.floats(1e-6, 1), min_size=1))
def test_shares(values: list[tuple[float, bool]], levels: list[float]) -> None:
    for level, (least, most) in zip(levels, shares_at_least(table(values), levels), strict=True):
        assert least == sum(v >= math.log(level) and not stopped for v, stopped in values) / len(values)
        assert most == sum(v >= math.log(level) for v, _ in values) / len(values)


def test_shares_of_nothing() -> None:
    assert share_at_least(np.array([]), [0.5]).tolist() == [0.0]


POINTS = st.lists(st.tuples(st.floats(0, 10), st.floats(1e-4, 1)), min_size=1, max_size=50)


@given(POINTS)
def test_cells_hold_all_points(points: list[tuple[float, float]]) -> None:
    x_edges, y_edges = np.linspace(0, 10, 8), np.geomspace(1e-4, 1, 6)
    x, y = (np.array(values) for values in zip(*points, strict=True))
    cells = cell_counts(x, np.clip(y, y_edges[0], y_edges[-1]), x_edges, y_edges)
    assert cells["count"].sum() == len(points)
    for cell in cells.to_dicts():
        inside = 0
        for a, b in points:
            across = cell["x0"] <= a < cell["x1"] or a == cell["x1"] == 10
            inside += across and (cell["y0"] <= max(b, y_edges[0]) < cell["y1"] or (cell["y1"] == y_edges[-1] <= b))
        assert inside == cell["count"] > 0


@given(st.lists(st.floats(-6, 0), min_size=2, max_size=30))
def test_density(values: list[float]) -> None:
    at = np.linspace(-6, 0, 7)
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
    ordered = sorted(values)
    low, high = (_quantile(ordered, q) for q in (0.25, 0.75))
    scales = [scale for scale in (deviation, (high - low) / 1.34) if scale > 0]
    width = 0.9 * min(scales, default=1.0) * len(values) ** -0.2
    if width < 1e-3:
        return  # then rounding decides
    for place, found in zip(at.tolist(), density(np.array(values), at).tolist(), strict=True):
        plain = sum(math.exp(-(((place - v) / width) ** 2) / 2) for v in values)
        assert found == pytest.approx(plain / (len(values) * width * math.sqrt(2 * math.pi)), rel=1e-6, abs=1e-12)


def _quantile(ordered: list[float], q: float) -> float:
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])
