"""Finding quotations, against going through every window and every character."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.quotes import best_window, occurrences, similar


@given(st.text("ab", max_size=12), st.text("ab", max_size=3))
def test_occurrences_are_all_there_are(text: str, quote: str) -> None:
    places = [(i, i + len(quote)) for i in range(len(text)) if quote and text[i : i + len(quote)] == quote]
    assert list(occurrences(text, quote)) == places


@pytest.mark.parametrize(
    ("quote", "place"),
    [
        ("down the hole", (4, 19)),
        ('said "oh"', (21, 30)),
        ("SAID “oh”", (21, 30)),
        ("oh--dear", None),
        ("  the   hole ", (9, 19)),
        ("   ", None),
        ("a.c", None),
    ],
)
def test_similar_differs_only_in_white_space_marks_and_capitals(quote: str, place: tuple[int, int] | None) -> None:
    assert similar("Go, down\nthe \t hole; said “oh” abc İ", quote) == place


def test_similar_keeps_its_place_behind_characters_that_grow_in_lower_case() -> None:
    assert similar("İİİ The  End", "the end") == (4, 12)


spans = st.tuples(st.integers(0, 30), st.integers(1, 10)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(
    st.lists(st.tuples(spans, st.one_of(st.floats(-9, 0), st.just(-math.inf))), min_size=1, max_size=8),
    st.lists(spans, min_size=1, max_size=3, unique=True),
)
def test_best_window_is_that_of_a_plain_search(
    windows: list[tuple[tuple[int, int], float]], places: list[tuple[int, int]]
) -> None:
    rows = pl.DataFrame(
        {
            "example_id": [f"w{i}" for i in range(len(windows))],
            "scheme": "s",
            "suffix_start": [span[0] for span, _ in windows],
            "suffix_end": [span[1] for span, _ in windows],
            "log_prob": [log_prob for _, log_prob in windows],
            "bounded": False,
        }
    )
    held = {
        (i, place): len(set(range(*span)) & set(range(*place)))
        for i, (span, _) in enumerate(windows)
        for place in places
    }
    most = max(held.values())
    found = best_window(rows, places)
    if most == 0:
        assert found is None
        return
    assert found is not None
    row, (start, end), ties = found
    best = [key for key, count in held.items() if count == most]
    assert end - start == most
    assert windows[row][0][0] <= start < end <= windows[row][0][1]
    assert ties == len(best)
    assert windows[row][1] == max(windows[i][1] for i, _ in best)
