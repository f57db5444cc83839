"""Score tables with near-verbatim columns, for the tests of their analyses."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
from hypothesis import strategies as st

TAU = 0.001
CANDIDATE = pl.Struct(
    {"tokens": pl.List(pl.Int32), "log_prob": pl.Float64, "set_log_prob": pl.Float64, "distance": pl.Int16}
)
SCHEMA: dict[str, Any] = {
    "example_id": pl.String,
    "scheme": pl.String,
    "log_prob": pl.Float64,
    "greedy": pl.Boolean,
    "bounded": pl.Boolean,
    "lower": pl.Float64,
    "upper": pl.Float64,
    "lower_by_tolerance": pl.List(pl.Float64),
    "upper_by_tolerance": pl.List(pl.Float64),
    "verdict": pl.String,
    "near_token_evals": pl.Int32,
    "eos_mass": pl.Float64,
    "estimate": pl.Float64,
    "estimate_error": pl.Float64,
    "candidates": pl.List(CANDIDATE),
    "greedy_distance": pl.Int32,
}


def row(name: str, log_prob: float, lower: list[float], upper: list[float] | None = None, **other: Any) -> Any:
    upper = lower if upper is None else upper
    plain: dict[str, Any] = {"scheme": "s", "greedy": False, "bounded": False, "verdict": "undecided"}
    plain |= {"near_token_evals": 100, "eos_mass": 0.0, "estimate": None, "estimate_error": None}
    plain |= {"candidates": [], "greedy_distance": None, "lower": lower[-1], "upper": upper[-1]}
    bounds = {"lower_by_tolerance": lower, "upper_by_tolerance": upper}
    return {**plain, "example_id": name, "log_prob": log_prob, **bounds, **other}


def table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA)


probabilities = st.one_of(
    st.floats(0, 1), st.floats(0, 0.003), st.sampled_from([0.0, 1.0, TAU, 5e-324, 1e-300]), st.floats(1e-5, 1e-2)
)
log_probs = st.one_of(
    st.floats(-900, 0), st.floats(-9, 0), st.sampled_from([0.0, -math.inf, math.log(TAU), math.log(0.5)])
)


@st.composite
def candidates(draw: st.DrawFn) -> list[dict[str, Any]] | None:
    optional = st.one_of(st.none(), st.floats(-40, 0))
    each = st.fixed_dictionaries(
        {
            "tokens": st.lists(st.integers(0, 99), max_size=3),
            "log_prob": optional,
            "set_log_prob": optional,
            "distance": st.integers(0, 5),
        }
    )
    return draw(st.one_of(st.none(), st.lists(each, max_size=3)))


@st.composite
def rows(draw: st.DrawFn, least: int = 1, tolerance: int | None = None) -> list[dict[str, Any]]:
    """Rows whose bounds rise with the tolerance. p_z may lie above `lower`, as where a beam lost the suffix."""
    width = 1 + (draw(st.integers(0, 5)) if tolerance is None else tolerance)
    drawn = []
    for i in range(draw(st.integers(least, 12))):
        lower = sorted(draw(st.lists(probabilities, min_size=width, max_size=width)))
        other = sorted(draw(st.lists(probabilities, min_size=width, max_size=width)))
        upper = [max(pair) for pair in zip(lower, other, strict=True)]
        log_prob = draw(log_probs)
        if draw(st.booleans()) and lower[0] > 0:
            log_prob = min(math.log(lower[0]), 0.0)
        distance = draw(st.one_of(st.none(), st.integers(0, 50)))
        own = row(f"{i}", log_prob, lower, upper, candidates=draw(candidates()), greedy_distance=distance)
        drawn.append(own)
    return drawn
