"""Coverage against a look at every character."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rote.analysis.coverage import character_maximum, coverage, merge_spans, spans
from rote.errors import InputError
from tests.reference import coverage as reference

SCHEMA = {
    "example_id": pl.String,
    "scheme": pl.String,
    "start": pl.Int64,
    "suffix_start": pl.Int64,
    "suffix_end": pl.Int64,
    "log_prob": pl.Float64,
    "stopped": pl.Boolean,
}
checked = settings(deadline=None, max_examples=200)


def table(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    """Rows of start, suffix_start, suffix_end, log_prob, stopped."""
    return pl.DataFrame([(str(i), "s", *row) for i, row in enumerate(rows)], schema=SCHEMA, orient="row")


@st.composite
def texts(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]]]:
    length = draw(st.integers(1, 60))
    borders = st.tuples(*[st.integers(0, length)] * 3).map(lambda three: tuple(sorted(three)))
    return length, draw(st.lists(borders, max_size=12))


@checked
@given(texts(), st.data())
def test_character_maximum(text: tuple[int, list[tuple[int, int, int]]], data: st.DataObject) -> None:
    length, windows = text
    between = [(start, end) for start, _, end in windows]
    levels = st.one_of(st.floats(-50, 0), st.just(-math.inf))
    values = data.draw(st.lists(levels, min_size=len(between), max_size=len(between)))
    fast = character_maximum([s for s, _ in between], [e for _, e in between], values, length)
    assert fast.tolist() == reference.character_maximum(between, values, length)


@checked
@given(texts())
def test_merge_spans(text: tuple[int, list[tuple[int, int, int]]]) -> None:
    length, windows = text
    between = [(start, end) for start, _, end in windows]
    assert merge_spans([s for s, _ in between], [e for _, e in between]) == reference.runs(between, length)


def test_touching_spans_merge() -> None:
    assert merge_spans([5, 0, 10], [8, 5, 12]) == [(0, 8), (10, 12)]
    assert merge_spans([0, 2], [9, 3]) == [(0, 9)]
    assert merge_spans([3], [3]) == []
    assert merge_spans([], []) == []


@checked
@given(texts(), st.data())
def test_coverage(text: tuple[int, list[tuple[int, int, int]]], data: st.DataObject) -> None:
    length, windows = text
    levels = st.one_of(
        st.tuples(st.floats(-8, 0), st.just(False)),
        st.tuples(st.sampled_from([math.log(0.01), math.log(0.5), 0.0, -math.inf]), st.just(False)),
        st.tuples(st.floats(-30, -7), st.just(True)),
    )
    rows: list[tuple[Any, ...]] = [(*window, *data.draw(levels)) for window in windows]
    scores = table(rows)
    for span, first in (("suffix", 1), ("example", 0)):
        result = coverage(scores, length, span=span)  # type: ignore[arg-type]
        assert list(result) == ["0.01", "0.1", "0.5", "0.75"]
        for key, found in result.items():
            counting = [(row[first], row[2]) for row in rows if not row[4] and row[3] >= math.log(float(key))]
            runs = reference.runs(counting, length)
            assert found["runs"] == len(runs)
            assert found["characters"] == sum(end - start for start, end in runs)
            assert found["share"] == found["characters"] / length
            longest = None
            for start, end in runs:
                if longest is None or end - start > longest[1] - longest[0]:
                    longest = [start, end]
            assert found["longest_run"] == longest
        json.dumps(result)


@checked
@given(texts(), st.data())
def test_coverage_is_where_the_maximum_is_high_enough(
    text: tuple[int, list[tuple[int, int, int]]], data: st.DataObject
) -> None:
    length, windows = text
    scores = table([(*window, data.draw(st.floats(-8, 0)), False) for window in windows])
    best = character_maximum(*spans(scores), scores["log_prob"], length)
    assert coverage(scores, length, (0.2,))["0.2"]["characters"] == int((best >= math.log(0.2)).sum())


def test_stopped_rows_never_count_and_undecidable_thresholds_are_refused() -> None:
    scores = table([(0, 5, 10, -1.0, False), (10, 15, 20, math.log(0.0005), True), (20, 25, 30, -math.inf, True)])
    assert coverage(scores, 30, (0.001,))["0.001"]["characters"] == 5
    with pytest.raises(InputError, match=r"coverage at 0\.0005 cannot be known: 1 windows"):
        coverage(scores, 30, (0.1, 0.0005))


def test_an_empty_table_covers_nothing() -> None:
    nothing = {"characters": 0, "share": 0.0, "longest_run": None, "runs": 0}
    assert coverage(table([]), 10, (0.1,)) == {"0.1": nothing}
    assert character_maximum([], [], [], 3).tolist() == [-math.inf] * 3


def test_bad_input_is_named() -> None:
    good = (0, 5, 10, -1.0, False)
    with pytest.raises(InputError, match="example '1' has no suffix_start: 1 of 2"):
        coverage(table([good, (0, None, 10, -1.0, False)]), 10)
    with pytest.raises(InputError, match="example '1' has no start: 1 of 2"):
        coverage(table([good, (None, 5, 10, -1.0, False)]), 10, span="example")
    assert coverage(table([(None, 5, 10, -1.0, False)]), 10)["0.1"]["characters"] == 5
    with pytest.raises(InputError, match="example '0' is 5 to 10, which does not lie in a text of 9"):
        coverage(table([good]), 9)
    with pytest.raises(InputError, match="several schemes"):
        coverage(table([good, good]).with_columns(scheme=pl.Series(["s", "t"])), 10)
    with pytest.raises(InputError, match="threshold"):
        coverage(table([good]), 10, (0.0,))
    with pytest.raises(InputError, match="length"):
        coverage(table([]), 0)
    with pytest.raises(InputError, match="'suffix' or 'example'"):
        coverage(table([good]), 10, span="prefix")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no column 'suffix_end'"):
        coverage(table([good]).drop("suffix_end"), 10)
    with pytest.raises(InputError, match="span 0 is 4 to 3"):
        merge_spans([4], [3])
    with pytest.raises(InputError, match="1 span starts and 2 ends"):
        merge_spans([1], [3, 4])
    with pytest.raises(InputError, match="2 values for 1 spans"):
        character_maximum([0], [1], [0.0, 0.0], 3)
    with pytest.raises(InputError, match="value of span 1"):
        character_maximum([0, 0], [1, 1], [0.0, math.nan], 3)


def test_a_million_characters_in_under_two_seconds() -> None:
    length, windows = 1_000_000, 100_000
    random = np.random.default_rng(0)
    starts = random.integers(0, length, windows)
    ends = np.minimum(starts + (10 ** random.uniform(0, 6, windows)).astype(np.int64), length)
    begin = time.perf_counter()
    best = character_maximum(starts, ends, -random.exponential(size=windows), length)
    merge_spans(starts, ends)
    assert time.perf_counter() - begin < 2
    assert best.shape == (length,)
