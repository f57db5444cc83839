"""Coverage against a look at every character."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote import Windows
from rote.analysis.coverage import (
    FLOOR,
    Span,
    along_text,
    character_maximum,
    coverage,
    hot_spots,
    location,
    merge_spans,
    spans,
)
from rote.analysis.furthest import longest
from rote.corpus.windows import windows as cut_windows
from rote.errors import InputError
from rote.store.files import plain
from rote.store.summary import Coverage
from tests.cases import cases
from tests.corpus.test_windows import PIECES, single_bytes, trained
from tests.reference import coverage as reference

SCHEMA = {
    "example_id": pl.String,
    "scheme": pl.String,
    "start": pl.Int64,
    "suffix_start": pl.Int64,
    "suffix_end": pl.Int64,
    "log_prob": pl.Float64,
    "bounded": pl.Boolean,
}
checked = cases(200)


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
            assert found.runs == len(runs)
            assert found.characters == sum(end - start for start, end in runs)
            assert found.share == found.characters / length
            seen = len(reference.looked_at([(row[first], row[2]) for row in rows]))
            assert found.share_of_looked_at == (found.characters / seen if seen else None)
            longest = None
            for start, end in runs:
                if longest is None or end - start > longest[1] - longest[0]:
                    longest = [start, end]
            assert found.longest_run == longest
        assert msgspec.convert(json.loads(json.dumps(plain(result))), dict[str, Coverage]) == result


@checked
@given(texts(), st.data())
def test_coverage_is_where_the_maximum_is_high_enough(
    text: tuple[int, list[tuple[int, int, int]]], data: st.DataObject
) -> None:
    length, windows = text
    scores = table([(*window, data.draw(st.floats(-8, 0)), False) for window in windows])
    best = character_maximum(*spans(scores), scores["log_prob"], length)
    assert coverage(scores, length, (0.2,))["0.2"].characters == int((best >= math.log(0.2)).sum())
    seen = reference.looked_at([(start, end) for _, start, end in windows])
    told = [value if character in seen else None for character, value in enumerate(best.tolist())]
    assert [None if math.isnan(v) else v for v in along_text(scores, scores["log_prob"], length).tolist()] == told


PROBABILITIES = st.one_of(
    st.floats(-8, 0), st.sampled_from([math.log(0.01), math.log(0.1), math.log(0.5), 0.0, -math.inf])
)
BOTH: tuple[tuple[Span, int], ...] = (("suffix", 1), ("example", 0))


def check_hot_spots(length: int, rows: list[tuple[Any, ...]], threshold: float) -> None:
    """Every number of every hot-spot, ranked both ways, under both spans."""
    scores = table(rows)
    for span, first in BOTH:
        between = [(row[first], row[2]) for row in rows]
        expected = reference.hot_spots(between, [row[3] for row in rows], length, math.log(threshold))
        by_length = sorted(expected, key=lambda spot: (spot["start"] - spot["end"], spot["start"]))
        by_probability = sorted(by_length, key=lambda spot: -spot["log_prob"])
        assert_same_spots(hot_spots(scores, length, threshold, span), by_length)
        assert_same_spots(hot_spots(scores, length, threshold, span, rank="probability"), by_probability)
        for top in (1, 2, 100):
            first_ones = hot_spots(scores, length, threshold, span, top=top)
            assert first_ones == hot_spots(scores, length, threshold, span)[:top]
        assert sum(spot["end"] - spot["start"] for spot in expected) == (
            coverage(scores, length, (threshold,), span)[f"{threshold:g}"].characters
        )


def assert_same_spots(found: list[Any], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected)
    for spot, wanted in zip(found, expected, strict=True):
        assert spot.mean_prob == pytest.approx(wanted["mean_prob"], rel=1e-12)
        assert spot.example_id == str(wanted["row"])
        assert spot.characters == wanted["end"] - wanted["start"]
        for name in ("start", "end", "log_prob", "minimum_log_prob", "windows"):
            assert getattr(spot, name) == wanted[name]


@checked
@given(texts(), st.data())
def test_hot_spots(text: tuple[int, list[tuple[int, int, int]]], data: st.DataObject) -> None:
    length, windows = text
    rows: list[tuple[Any, ...]] = [(*window, data.draw(PROBABILITIES), False) for window in windows]
    check_hot_spots(length, rows, data.draw(st.sampled_from([0.001, 0.01, 0.5, 1.0])))


@cases(60)
@given(
    text=st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join).map(lambda text: text[:70]),
    tokens=st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 6)),
    whole=st.booleans(),
    data=st.data(),
)
def test_windows_over_text_of_many_bytes_a_character(
    text: str, tokens: tuple[int, int, int], whole: bool, data: st.DataObject
) -> None:
    """Accents, emoji and other scripts, with tokens that are parts of a character or join several."""
    prefix, suffix, stride = tokens
    tokenizer = trained() if whole else single_bytes()
    cut = cut_windows(text, tokenizer, Windows(prefix=prefix, suffix=suffix, stride=stride))
    rows: list[tuple[Any, ...]] = [
        (example.start, example.suffix_start, example.suffix_end, data.draw(PROBABILITIES), False) for example in cut
    ]
    scores = table(rows)
    for span, first in BOTH:
        between = [(row[first], row[2]) for row in rows]
        values = [row[3] for row in rows]
        best = character_maximum(*spans(scores, span), scores["log_prob"], len(text))
        assert best.tolist() == reference.character_maximum(between, values, len(text))
        for key, found in coverage(scores, len(text), (0.01, 0.5), span).items():
            high = [place for place, value in zip(between, values, strict=True) if value >= math.log(float(key))]
            assert merge_spans([s for s, _ in high], [e for _, e in high]) == reference.runs(high, len(text))
            assert found.characters == sum(end - start for start, end in reference.runs(high, len(text)))
    check_hot_spots(len(text), rows, 0.1)


def test_hot_spots_leave_out_stopped_rows_and_refuse_what_they_cannot_know() -> None:
    scores = table([(0, 5, 10, -1.0, False), (10, 10, 20, math.log(0.0005), True)])
    assert [(spot.start, spot.end, spot.windows) for spot in hot_spots(scores, 20, 0.001)] == [(5, 10, 1)]
    with pytest.raises(InputError, match="cannot be known: 1 window "):
        hot_spots(scores, 20, 0.0001)
    with pytest.raises(InputError, match="'length' or 'probability'"):
        hot_spots(scores, 20, 0.1, rank="size")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 1, not 0"):
        hot_spots(scores, 20, 0.1, top=0)
    with pytest.raises(InputError, match=r"in \(0, 1\], not 1\.5"):
        hot_spots(scores, 20, 1.5)
    assert hot_spots(table([]), 20, 0.5) == []


@checked
@given(st.lists(st.tuples(st.one_of(PROBABILITIES, st.floats(-11, 0)), st.booleans()), max_size=30))
def test_location(rows: list[tuple[float, bool]]) -> None:
    found = location(table([(i, i + 5, i + 9, *row) for i, row in enumerate(rows)]))
    assert found.points["start"].to_list() == list(range(len(rows)))
    assert found.points["suffix_start"].to_list() == list(range(5, len(rows) + 5))
    assert found.points["log_prob"].to_list() == [log_prob for log_prob, _ in rows]
    assert found.points["prob"].to_list() == [
        None if stopped else pytest.approx(math.exp(log_prob), rel=1e-14) for log_prob, stopped in rows
    ]
    counted = [log_prob for log_prob, stopped in rows if not stopped and log_prob >= math.log(FLOOR)]
    assert found.undecided == sum(stopped and log_prob >= math.log(FLOOR) for log_prob, stopped in rows)
    for histogram in (found.log10, found.linear):
        edges = list(histogram.edges)
        assert edges[-1] == 1
        expected = [0] * (len(edges) - 1)
        for log_prob in counted:
            expected[max(i for i in range(len(expected)) if i == 0 or math.log(edges[i]) <= log_prob)] += 1
        assert list(histogram.counts) == expected
    assert found.log10.edges[0] == pytest.approx(FLOOR)
    assert len(found.log10.counts) == 40
    assert (len(found.linear.counts), found.linear.edges[0]) == (50, 0)


def test_histograms_begin_at_one_in_ten_thousand() -> None:
    floor = math.log(0.0001)
    below = math.nextafter(floor, -math.inf)
    found = location(table([(i, i, i + 1, *row) for i, row in enumerate([(floor, False), (below, False)] * 3)]))
    assert FLOOR == 0.0001
    assert (found.log10.counts[0], sum(found.log10.counts)) == (3, 3)
    assert (found.linear.counts[0], sum(found.linear.counts)) == (3, 3)
    assert [found.log10.edges[i] for i in (10, 20, 30, 39)] == pytest.approx([0.001, 0.01, 0.1, 10**-0.1])
    assert [found.linear.edges[i] for i in (1, 25, 49)] == [0.02, 0.5, 0.98]
    assert location(table([(0, 0, 1, floor, True), (1, 1, 2, below, True)])).undecided == 1


TOKENS = st.one_of(st.floats(-3, 0, width=32), st.sampled_from([0.0, -math.inf]))


def with_tokens(rows: list[tuple[list[float], bool]]) -> pl.DataFrame:
    """Rows of token log-probs, and whether scoring stopped after them."""
    scores = table([(10 * i, 10 * i + 3, 10 * i + 9, sum(tokens), stopped) for i, (tokens, stopped) in enumerate(rows)])
    return scores.with_columns(token_log_probs=pl.Series([t for t, _ in rows], dtype=pl.List(pl.Float32)))


@pytest.mark.parametrize("rows_at_once", [1, 3, 4096])
@cases(100)
@given(rows=st.lists(st.tuples(st.lists(TOKENS, max_size=6), st.booleans()), max_size=8))
def test_longest(rows_at_once: int, rows: list[tuple[list[float], bool]]) -> None:
    thresholds = (0.01, 0.1, 0.5, 0.75, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rote.analysis.furthest._ROWS", rows_at_once)
        found = longest(with_tokens(rows), thresholds)
    assert list(found) == ["0.01", "0.1", "0.5", "0.75", "1"]
    for key, entry in found.items():
        floor = math.log(float(key))
        expected = reference.longest([tokens for tokens, _ in rows], floor)
        if expected is None:
            assert entry is None
            continue
        assert entry is not None
        tokens, log_prob, row = expected
        assert (entry.tokens, entry.log_prob, entry.example_id) == (tokens, log_prob, str(row))
        assert (entry.start, entry.suffix_start) == (10 * row, 10 * row + 3)
        assert entry.exact is not any(stopped and sum(tokens) >= floor for tokens, stopped in rows)


def test_nothing_is_longer_than_a_whole_suffix_whatever_is_left_open() -> None:
    half = math.log(0.5)
    whole = with_tokens([([half, half, half], False), ([half, 0.0, half], True)])
    left_open = pl.col("token_log_probs").list.eval(pl.when(pl.element() < 0).then(pl.element()))
    rows = whole.with_columns(token_log_probs=left_open)
    found = longest(rows, (0.1, 0.45))
    assert found["0.1"] is not None
    assert (found["0.1"].tokens, found["0.1"].exact) == (3, True)
    assert found["0.45"] is not None
    assert (found["0.45"].tokens, found["0.45"].exact) == (1, False)


def test_longest_of_a_stopped_row_is_what_was_seen_of_it() -> None:
    half = math.log(0.5)
    scores = with_tokens([([half, half, half], False), ([0.0, half, half, half, -9.0], True)])
    found = longest(scores, (0.1, 0.4))  # not 0.5: its logarithm in float32 is a little less
    assert found["0.1"] is not None
    assert found["0.1"].log_prob == pytest.approx(3 * half)
    assert {key: value for key, value in vars(found["0.1"]).items() if key != "log_prob"} == {
        "tokens": 4, "example_id": "1", "start": 10, "suffix_start": 13, "exact": True, "suffix_end": None,
    }  # fmt: skip
    assert found["0.4"] is not None
    assert (found["0.4"].tokens, found["0.4"].example_id) == (2, "1")
    below = longest(scores, (1e-5,))["1e-05"]
    assert below is not None
    assert (below.tokens, below.exact) == (5, False)
    nowhere = longest(scores.drop("start", "suffix_start"), (0.1,))["0.1"]
    assert nowhere is not None
    assert (nowhere.tokens, nowhere.start, nowhere.suffix_start) == (4, None, None)
    assert longest(with_tokens([]), (0.1,)) == {"0.1": None}
    assert list(longest(scores)) == ["0.01", "0.1", "0.5", "0.75"]
    unknown = scores.with_columns(token_log_probs=pl.Series([[half], None], dtype=pl.List(pl.Float32)))
    for turned in (unknown, unknown[::-1]):
        found = longest(turned, (0.1, 0.9))
        assert found["0.1"] is not None
        assert (found["0.1"].tokens, found["0.1"].example_id, found["0.9"]) == (1, "0", None)
    with pytest.raises(InputError, match="no column 'token_log_probs'"):
        longest(scores.drop("token_log_probs"))
    with pytest.raises(InputError, match="threshold"):
        longest(scores, (0.0,))


def test_stopped_rows_never_count_and_undecidable_thresholds_are_refused() -> None:
    scores = table([(0, 5, 10, -1.0, False), (10, 15, 20, math.log(0.0005), True), (20, 25, 30, -math.inf, True)])
    assert coverage(scores, 30, (0.001,))["0.001"].characters == 5
    with pytest.raises(InputError, match=r"coverage at 0\.0005 cannot be known: 1 window "):
        coverage(scores, 30, (0.1, 0.0005))


def test_an_empty_table_covers_nothing() -> None:
    nothing = Coverage(characters=0, share=0.0, share_of_looked_at=None, longest_run=None, runs=0)
    assert coverage(table([]), 10, (0.1,)) == {"0.1": nothing}
    assert character_maximum([], [], [], 3).tolist() == [-math.inf] * 3


def test_bad_input_is_named() -> None:
    good = (0, 5, 10, -1.0, False)
    with pytest.raises(InputError, match="example '1' has no suffix_start: 1 of 2"):
        coverage(table([good, (0, None, 10, -1.0, False)]), 10)
    with pytest.raises(InputError, match="example '1' has no start: 1 of 2"):
        coverage(table([good, (None, 5, 10, -1.0, False)]), 10, span="example")
    assert coverage(table([(None, 5, 10, -1.0, False)]), 10)["0.1"].characters == 5
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


def test_the_first_bad_row_is_named_wherever_it_stands() -> None:
    good, bad = (0, 5, 10, -1.0, False), (0, None, 10, -1.0, False)
    for rows, first in (([bad, good, bad], 0), ([good, bad, bad, good], 1)):
        with pytest.raises(InputError, match=f"example '{first}' has no suffix_start: 2 of {len(rows)}"):
            coverage(table(rows), 10)
    outside, turned, early = (0, 5, 11, -1.0, False), (0, 8, 6, -1.0, False), (0, -2, 3, -1.0, False)
    for row, said in ((outside, "5 to 11"), (turned, "8 to 6"), (early, "-2 to 3")):
        for before in range(3):
            scores = table([good] * before + [row, good, row])
            for act in (lambda s: coverage(s, 10), lambda s: hot_spots(s, 10, 0.5), lambda s: hot_spots(s, 10, 0.1)):
                with pytest.raises(
                    InputError, match=f"the span of example '{before}' is {said}, which does not lie in a"
                ):
                    act(scores)


def test_spans_that_lie_in_no_text() -> None:
    for start, end in ((-1, 2), (3, 2), (-3, -2)):
        for before in range(2):
            starts, ends = [0] * before + [start, 1], [4] * before + [end, 1]
            with pytest.raises(InputError, match=f"span {before} is {start} to {end}, which does not lie in any text"):
                merge_spans(starts, ends)
            with pytest.raises(
                InputError, match=f"span {before} is {start} to {end}, which does not lie in a text of 5"
            ):
                character_maximum(starts, ends, [0.0] * len(starts), 5)
    with pytest.raises(InputError, match="span 1 is 3 to 6"):
        character_maximum([0, 3, 3], [5, 6, 7], [0.0] * 3, 5)
    with pytest.raises(InputError, match="one of each per span"):
        merge_spans([[0, 1]], [[2, 3]])
    with pytest.raises(InputError, match="value of span 0"):
        character_maximum([0, 0, 0], [1, 1, 1], [math.nan, 0.0, math.nan], 3)


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
