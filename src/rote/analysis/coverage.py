"""Where a text comes out: covered characters, hot-spots, p_z along the text, and the longest sequence.

Every function takes the rows of one scheme over one text, as a scan writes them. Positions are code points from 0, ends
are exclusive. A bounded row's log_prob is only an upper bound: it counts nowhere, and where it could have, that is
said, or refused where scoring longer would have told.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.rates import log_prob_bounds
from rote.errors import InputError, argument, counted
from rote.store.summary import Coverage, Longest

Span = Literal["suffix", "example"]
"""Which part of a window counts: only the suffix, which is what the model generates, or the prefix too."""

Rank = Literal["length", "probability"]
"""Which hot-spots come first."""

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

FLOOR = 0.0001
"""The smallest p_z that a histogram counts."""

_ROWS = 4096  # rows of token log-probs laid out at once: a few megabytes, however long the suffixes are


def coverage(
    scores: pl.DataFrame,
    length: int,
    thresholds: Sequence[float] = (0.01, 0.1, 0.5, 0.75),
    span: Span = "suffix",
    *,
    served: bool = False,
) -> dict[str, Coverage]:
    """For each threshold (key "0.01", ...) the characters covered by windows whose p_z is at least that.

    `scores` are the rows of one scheme over one text of `length` code points. What lies in any of them was looked at. A
    bounded row does not count: its p_z is below its bound. A threshold that the bound of some row reaches that was
    stopped early cannot be decided and is an InputError. A `served` model's rows are bounded where its list leaves
    tokens open: what they would cover is in the upper values.
    """
    _check_length(length)
    lower, upper = log_prob_bounds(scores)
    starts, ends = spans(scores, span)
    _check_spans(starts, ends, length, scores["example_id"])
    looked_at = sum(end - start for start, end in merge_spans(starts, ends))
    covered: dict[str, Coverage] = {}
    for threshold in thresholds:
        counts = _reaching(lower, upper, threshold, served)
        runs = merge_spans(starts[counts], ends[counts])
        characters = sum(end - start for start, end in runs)
        may = upper >= math.log(threshold)
        undecided = int(np.count_nonzero(may & ~counts))
        most = sum(end - start for start, end in merge_spans(starts[may], ends[may])) if undecided else None
        longest = max(runs, key=lambda run: run[1] - run[0], default=None)
        covered[f"{threshold:g}"] = Coverage(
            characters=characters,
            share=characters / length,
            share_of_looked_at=characters / looked_at if looked_at else None,
            longest_run=None if longest is None else list(longest),
            runs=len(runs),
            undecided=undecided,
            characters_upper=most,
            share_upper=None if most is None else most / length,
            share_of_looked_at_upper=None if most is None or not looked_at else most / looked_at,
        )
    return covered


@dataclass(frozen=True, slots=True)
class HotSpot:
    """A run of characters that windows at or above a threshold cover together.

    No single generation need give all of it: `log_prob` is that of its most likely window, `example_id`, alone. Each of
    its characters has a most likely window too; over the characters, `mean_prob` is the mean of those windows' p_z and
    `minimum_log_prob` the smallest of their log p_z.
    """

    start: int
    end: int
    log_prob: float
    mean_prob: float
    minimum_log_prob: float
    windows: int
    example_id: str

    @property
    def characters(self) -> int:
        return self.end - self.start


def hot_spots(
    scores: pl.DataFrame,
    length: int,
    threshold: float,
    span: Span = "suffix",
    rank: Rank = "length",
    top: int | None = None,
    *,
    served: bool = False,
) -> list[HotSpot]:
    """The merged runs of windows whose p_z is at least `threshold`, the first `top` of them.

    By "length": longest first, of equal ones the earlier. By "probability": the one with the most likely window first,
    of equal ones the longer, then the earlier. Bounded rows are treated as in `coverage`: those of a `served` model may
    make more and longer spots than the certain ones that are given (`undecided_rows` counts them).
    """
    if rank not in ("length", "probability"):
        raise InputError(f"hot-spots are ranked by 'length' or 'probability', not by {rank!r}.")
    if top is not None and top < 1:
        raise InputError(f"{argument('top')} is how many hot-spots to give and must be at least 1, not {top}.")
    _check_length(length)
    lower, upper = log_prob_bounds(scores)
    starts, ends = spans(scores, span)
    _check_spans(starts, ends, length, scores["example_id"])
    rows = np.flatnonzero(_reaching(lower, upper, threshold, served) & (ends > starts))
    runs = merge_spans(starts[rows], ends[rows])
    if not runs:
        return []
    best = character_maximum(starts[rows], ends[rows], lower[rows], length)
    # Borders of runs and of the gaps between them in turn; one character more, as the last run may end the text.
    borders = np.array(runs).ravel()
    mean = np.add.reduceat(np.append(np.exp(best), 0.0), borders)[::2] / (borders[1::2] - borders[::2])
    minimum = np.minimum.reduceat(np.append(best, 0.0), borders)[::2]
    belongs = np.searchsorted(borders[::2], starts[rows], side="right") - 1
    windows = np.bincount(belongs, minlength=len(runs))
    order = np.lexsort((np.arange(rows.size), -lower[rows], belongs))  # each run's most likely window first
    chosen = rows[order[np.concatenate(([0], np.cumsum(windows)[:-1]))]]
    columns = (lower[chosen], mean, minimum, windows, scores["example_id"].gather(chosen))
    spots = [
        HotSpot(start, end, float(log_prob), float(average), float(least), int(count), str(example_id))
        for (start, end), log_prob, average, least, count, example_id in zip(runs, *columns, strict=True)
    ]
    if rank == "length":
        spots.sort(key=lambda spot: (-spot.characters, spot.start))
    else:
        spots.sort(key=lambda spot: (-spot.log_prob, -spot.characters, spot.start))
    return spots[:top]


def undecided_rows(scores: pl.DataFrame, threshold: float) -> int:
    """How many rows may reach a threshold and are not known to."""
    lower, upper = log_prob_bounds(scores)
    return int(np.count_nonzero((upper >= math.log(threshold)) & (lower < math.log(threshold))))


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many windows have their p_z in each bin: `counts[i]` of them in [edges[i], edges[i + 1]), the last with 1."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Location:
    """p_z along the text.

    `points` has a row per window: `start`, `suffix_start`, `log_prob`, `prob`, `bounded`; a bounded row's log_prob is
    an upper bound and its prob null. The histograms count windows with p_z >= FLOOR: `log10` in bins of a tenth of a
    decade from 0.0001 to 1, `linear` in 50 bins from 0 to 1, of which the first begins at 0 but counts from FLOOR on.
    They leave out `undecided` bounded rows whose bound reaches FLOOR.
    """

    points: pl.DataFrame
    log10: Histogram
    linear: Histogram
    undecided: int


def location(scores: pl.DataFrame) -> Location:
    """p_z of every window against its start, and how the windows with p_z >= FLOOR are distributed."""
    lower, upper = log_prob_bounds(scores)
    starts, _ = spans(scores, "example")
    suffixes, _ = spans(scores, "suffix")
    bounded = scores["bounded"].to_numpy()
    points = pl.DataFrame(
        {"start": starts, "suffix_start": suffixes, "log_prob": upper, "prob": np.exp(upper), "bounded": bounded}
    ).with_columns(prob=pl.when("bounded").then(None).otherwise("prob"))
    counted = lower[lower >= math.log(FLOOR)]
    return Location(
        points=points,
        log10=_histogram(counted, tuple(10 ** (i / 10) for i in range(-40, 1))),
        linear=_histogram(counted, tuple(i / 50 for i in range(51))),
        undecided=int(np.count_nonzero((upper >= math.log(FLOOR)) & (upper > lower))),
    )


def _histogram(log_probs: Floats, edges: tuple[float, ...]) -> Histogram:
    inner = [math.log(edge) for edge in edges[1:-1]]  # by log_prob, as every threshold: p_z itself would be rounded
    counts = np.bincount(np.searchsorted(inner, log_probs, side="right"), minlength=len(edges) - 1)
    return Histogram(edges, tuple(counts.tolist()))


def longest(scores: pl.DataFrame, thresholds: Sequence[float] = (0.01, 0.1, 0.5, 0.75)) -> dict[str, Longest | None]:
    """For each threshold the longest beginning of any suffix with at least that probability; None: not one token.

    The first m tokens of a suffix come out with the exponential of the sum of their token_log_probs, so every shorter
    suffix of every window is looked at too. Of equally long ones the most likely, then the first. No result is longer
    than the suffixes that were scored: one as long as they are says that longer windows may show more. Tokens that a
    served model's list leaves open are never part of it: what they cut short is not exact.
    """
    furthest = Furthest(thresholds)
    furthest.add(scores)
    return furthest.found()


class Furthest:
    """The `longest` of a table that comes in parts, in the order of its rows."""

    def __init__(self, thresholds: Sequence[float]) -> None:
        for threshold in thresholds:
            _check_threshold(threshold)
        self._best: dict[float, Longest | None] = dict.fromkeys(thresholds)
        self._inexact: set[float] = set()

    def add(self, scores: pl.DataFrame) -> None:
        log_prob_bounds(scores, "token_log_probs")
        stopped = scores["bounded"].to_numpy()
        for first, sums, lengths in _prefix_sums(scores["token_log_probs"]):
            opens = np.where(np.isnan(sums).any(1), np.isnan(sums).argmax(1), -1)  # a row's first open token
            for threshold, best in self._best.items():
                tokens = np.count_nonzero(sums >= math.log(threshold), axis=1)
                ended = stopped[first : first + tokens.size] & (tokens == lengths)
                if (ended | (tokens == opens)).any():
                    self._inexact.add(threshold)
                most = int(tokens.max())
                if most < (1 if best is None else best.tokens):
                    continue
                rows = np.flatnonzero(tokens == most)
                row = int(rows[sums[rows, most - 1].argmax()])
                log_prob = float(sums[row, most - 1])
                if best is None or (most, log_prob) > (best.tokens, best.log_prob):
                    self._best[threshold] = _longest(scores, most, log_prob, first + row)

    def found(self) -> dict[str, Longest | None]:
        return {
            f"{threshold:g}": best and replace(best, exact=threshold not in self._inexact)
            for threshold, best in self._best.items()
        }


def _longest(scores: pl.DataFrame, tokens: int, log_prob: float, row: int) -> Longest:
    start, suffix_start, ends = (
        scores[name][row] if name in scores.columns else None for name in ("start", "suffix_start", "token_ends")
    )
    return Longest(
        tokens=tokens,
        log_prob=log_prob,
        example_id=scores["example_id"][row],
        start=start,
        suffix_start=suffix_start,
        exact=True,
        suffix_end=None if suffix_start is None or ends is None else suffix_start + ends[tokens - 1],
    )


def _prefix_sums(token_log_probs: pl.Series) -> Iterator[tuple[int, Floats, Integers]]:
    """Sums of each row's first 1, 2, ... token log-probs in float64, -inf past its end; some rows at a time.

    NaN from the first token on that has none, as a served model's list leaves it open.

    Gives the first row's number, the sums, and the rows' lengths.
    """
    for first in range(0, token_log_probs.len(), _ROWS):
        part = token_log_probs.slice(first, _ROWS)
        lengths = part.list.len().fill_null(0).cast(pl.Int64).to_numpy()
        sums = np.full((lengths.size, max(1, int(lengths.max()))), -math.inf)
        tokens = part.filter(pl.Series(lengths > 0)).explode().cast(pl.Float64).to_numpy()
        sums[np.arange(sums.shape[1]) < lengths[:, None]] = tokens
        yield first, np.cumsum(sums, axis=1), lengths


def spans(scores: pl.DataFrame, span: Span = "suffix") -> tuple[Integers, Integers]:
    """Where each row's suffix (or whole example) starts and ends in the text, in code points; the end is exclusive."""
    if span not in ("suffix", "example"):
        raise InputError(f"span is 'suffix' or 'example', not {span!r}.")
    columns = ("suffix_start" if span == "suffix" else "start", "suffix_end")
    places = []
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
        places.append(column.cast(pl.Int64).to_numpy())
    return places[0], places[1]


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


def along_text(
    scores: pl.DataFrame,
    values: Any,
    length: int,
    span: Span = "suffix",
    *,
    left_out: pl.DataFrame | None = None,
    tau: float = 1.0,
) -> NDArray[np.float64]:
    """For each character of a scan's text the largest value of a row whose `span` covers it; NaN: not looked at.

    `left_out`: the windows of a scan in stages that have no number. What they cover was not looked at either, in full,
    unless some row there reaches `tau`.
    """
    starts, ends = spans(scores, span)
    best = character_maximum(starts, ends, values, length)
    best[~_covered(starts, ends, length)] = math.nan
    if left_out is not None:
        best[_covered(*spans(left_out, span), length) & ~(best >= math.log(tau))] = math.nan
    return best


def _covered(starts: Integers, ends: Integers, length: int) -> NDArray[np.bool_]:
    """Which characters lie in any of the spans."""
    covered = np.zeros(length, dtype=np.bool_)
    for start, end in merge_spans(starts, ends):
        covered[start:end] = True
    return covered


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


def _reaching(lower: Floats, upper: Floats, threshold: float, served: bool) -> NDArray[np.bool_]:
    """Which rows certainly have p_z >= threshold. One that the bound of a row reaches that was stopped is refused."""
    _check_threshold(threshold)
    undecided = np.count_nonzero((upper >= math.log(threshold)) & (upper > lower))
    if undecided and not served:
        raise InputError(
            f"coverage at {threshold:g} cannot be known: {counted(int(undecided), 'window')} "
            f"{'was' if undecided == 1 else 'were'} stopped early and may reach it. "
            "Choose a threshold above the run's tau, or score again with a smaller tau or without stopping early."
        )
    return lower >= math.log(threshold)


def _check_threshold(threshold: float) -> None:
    if not 0 < threshold <= 1:
        raise InputError(f"a threshold is a probability and must lie in (0, 1], not {threshold}.")


def _check_length(length: int) -> None:
    if length < 1:
        raise InputError(f"length is the text's number of code points and must be at least 1, not {length}.")


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
