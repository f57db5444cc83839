"""Coverage: which characters of a text lie in windows that the model gives back with at least a given probability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.rates import log_prob_bounds
from rote.errors import InputError

Span = Literal["suffix", "example"]
"""Which part of a window counts: only the suffix, which is what the model generates, or the prefix too."""

Integers = NDArray[np.int64]


class Coverage(TypedDict):
    """`characters` covered, their `share` of the text, the number of merged `runs`, and the first of the longest."""

    characters: int
    share: float
    longest_run: list[int] | None
    runs: int


def coverage(
    scores: pl.DataFrame,
    length: int,
    thresholds: Sequence[float] = (0.01, 0.1, 0.5, 0.75),
    span: Span = "suffix",
) -> dict[str, Coverage]:
    """For each threshold (key "0.01", ...) the characters covered by windows whose p_z is at least that.

    `scores` are the rows of one scheme over one text of `length` code points. A stopped row does not count: its p_z is
    below its bound. A threshold that some stopped row's bound reaches cannot be decided and is an InputError.
    """
    if length < 1:
        raise InputError(f"length is the text's number of code points and must be at least 1, not {length}.")
    lower, upper = log_prob_bounds(scores)
    starts, ends = spans(scores, span)
    _check_spans(starts, ends, length, scores["example_id"])
    covered: dict[str, Coverage] = {}
    for threshold in thresholds:
        if not 0 < threshold <= 1:
            raise InputError(f"a coverage threshold is a probability and must lie in (0, 1], not {threshold}.")
        undecided = np.count_nonzero((upper >= math.log(threshold)) & (upper > lower))
        if undecided:
            raise InputError(
                f"coverage at {threshold:g} cannot be known: {undecided} windows were stopped early and may reach it. "
                "Choose a threshold above the run's tau, or score again with a smaller tau or without stopping early."
            )
        counts = lower >= math.log(threshold)
        runs = merge_spans(starts[counts], ends[counts])
        characters = sum(end - start for start, end in runs)
        longest = max(runs, key=lambda run: run[1] - run[0], default=None)
        covered[f"{threshold:g}"] = {
            "characters": characters,
            "share": characters / length,
            "longest_run": None if longest is None else list(longest),
            "runs": len(runs),
        }
    return covered


def spans(scores: pl.DataFrame, span: Span = "suffix") -> tuple[Integers, Integers]:
    """Where each row's suffix (or whole example) starts and ends in the text, in code points; the end is exclusive."""
    if span not in ("suffix", "example"):
        raise InputError(f"span is 'suffix' or 'example', not {span!r}.")
    columns = ("suffix_start" if span == "suffix" else "start", "suffix_end")
    found = []
    for name in columns:
        if name not in scores.columns:
            raise InputError(f"the score table has no column {name!r}; pass the table that a scan or score run writes.")
        column = scores[name]
        if column.null_count():
            row = scores.row(int(column.is_null().arg_max() or 0), named=True)
            raise InputError(
                f"example {row['example_id']!r} has no {name}: {column.null_count()} of {scores.height} rows do not "
                "say where they stand in the text. Coverage needs examples cut from a text, as rote.windows makes them."
            )
        found.append(column.cast(pl.Int64).to_numpy())
    return found[0], found[1]


def character_maximum(spans_start: Any, spans_end: Any, values: Any, length: int) -> NDArray[np.float64]:
    """For each of `length` characters the largest value over the spans that cover it; -inf where none does.

    Takes the arrays of `spans` and one value per span, such as log_prob. Time grows with length times the logarithm of
    the longest span, plus the number of spans.
    """
    starts, ends = np.asarray(spans_start, dtype=np.int64), np.asarray(spans_end, dtype=np.int64)
    value = np.asarray(values, dtype=np.float64)
    _check_spans(starts, ends, length)
    if value.shape != starts.shape:
        raise InputError(f"there are {value.size} values for {starts.size} spans; give one value per span.")
    if np.isnan(value).any():
        raise InputError(f"the value of span {int(np.isnan(value).argmax())} is not a number.")
    filled = ends > starts
    starts, ends, value = starts[filled], ends[filled], value[filled]
    best = np.full(length, -math.inf)
    if not starts.size:
        return best
    # Any span is the union of two blocks, at its two ends, whose length is the largest power of two that fits. Note
    # each value at the starts of its blocks, then hand blocks down to their two halves until they are characters.
    level = np.frexp((ends - starts).astype(np.float64))[1] - 1
    order = np.argsort(level, kind="stable")
    starts, ends, value = starts[order], ends[order], value[order]
    borders = np.searchsorted(level[order], np.arange(int(level.max()) + 2))
    for k in range(int(level.max()), -1, -1):
        at = slice(borders[k], borders[k + 1])
        np.maximum.at(best, starts[at], value[at])
        np.maximum.at(best, ends[at] - (1 << k), value[at])
        if k:
            half = 1 << (k - 1)
            best[half:] = np.maximum(best[half:], best[:-half])
    return best


def merge_spans(starts: Any, ends: Any) -> list[tuple[int, int]]:
    """The runs that spans cover together, in order. Spans that overlap or touch are one run; empty spans are none."""
    start, end = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
    _check_spans(start, end, None)
    filled = end > start
    order = np.argsort(start[filled], kind="stable")
    start, end = start[filled][order], np.maximum.accumulate(end[filled][order])
    if not start.size:
        return []
    gaps = np.flatnonzero(start[1:] > end[:-1]) + 1
    firsts = start[np.concatenate(([0], gaps))]
    lasts = end[np.concatenate((gaps - 1, [start.size - 1]))]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _check_spans(starts: Integers, ends: Integers, length: int | None, ids: pl.Series | None = None) -> None:
    if starts.ndim != 1 or starts.shape != ends.shape:
        raise InputError(f"there are {starts.size} span starts and {ends.size} ends; give one of each per span.")
    bad = (starts < 0) | (ends < starts)
    if length is not None:
        bad |= ends > length
    if bad.any():
        i = int(bad.argmax())
        which = f"span {i}" if ids is None else f"the span of example {ids[i]!r}"
        text = "any text" if length is None else f"a text of {length} code points; is it the text that was scored?"
        raise InputError(f"{which} is {starts[i]} to {ends[i]}, which does not lie in {text}")
