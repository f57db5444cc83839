"""Which windows of a scan in stages are scored next.

First windows whose suffixes cover the text once. They have read every token, though not from where another window
would: so every window that is left has a promise, the sum of its tokens' log-probs as the scored windows on its two
sides read them, or what the better of these came to, once they overlap. A window may come out better than its promise,
most of all where a passage is known and its beginning lies in the prompt: by how much at most is learnt from those that
did. What may reach tau by that is looked at more closely, by halves. Nothing here certifies a number: an audit does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.store.stages import Refined, StageKind

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

CLOSER = 7
"""Stages between the first and the audit: the other tiles, and six looks. A gap between tiles is halved to its last
window in four or five."""

FIRST_LOOK = 2
"""The number of the stage that looks closer for the first time."""

FLOOR = -12.0
"""A token counts as no less likely: one that the model did not foresee says little about the others."""

FIRST = 8
"""One gap in so many between tiles is looked into in any case, the most promising ones: so that there is what to learn
from, whatever the model's numbers are like."""

LEAST = 32
"""The same, as a number of gaps."""

REACH = (0.8, 0.7)
"""By how much a window may come out above its promise before anything is known, for each of its tokens: between
neighbours apart, and close."""

MARGIN = 1.5
"""And afterwards: by so many times the most that was seen."""

NEARLY = 0.2
"""Windows tell how far their kind can reach if they come within so much of log tau, for each of their tokens."""

CLOSE = 0.25
"""Neighbours are close if their suffixes have this share in common."""


def choice(
    places: pl.DataFrame, scores: pl.DataFrame, refined: Refined, tau: float, number: int
) -> tuple[StageKind, list[int]]:
    """What stage `number` is, and the starts of its windows, given the rows of those before it."""
    kind: StageKind
    if number < FIRST_LOOK:  # every other tile first: the whole text is on the screen in half the time
        kind, chosen = "tiles", tiles(places)[number::FIRST_LOOK]
    elif number <= refined.closer:
        kind, chosen = "closer", closer(places, scores, tau, number)
    else:
        kind, chosen = "audit", drawn(places, scores, refined.audit, refined.audit_seed)
    return kind, places["start"].gather(chosen).to_list()


def tiles(places: pl.DataFrame) -> Integers:
    """Windows whose suffixes cover whatever any suffix covers, no more than that takes; and the first and the last.

    A later window's suffix may begin before an earlier one's: where it starts inside a word, that is more tokens.
    """
    starts, ends = places["suffix_start"].to_numpy(), places["suffix_end"].to_numpy()
    order = np.argsort(starts, kind="stable")
    begins, most = starts[order], np.maximum.accumulate(ends[order])
    farthest = order[np.maximum.accumulate(np.where(ends[order] == most, np.arange(order.size), 0))]
    chosen, covered = {0, order.size - 1}, int(begins[0])
    while True:
        before = int(np.searchsorted(begins, covered, side="right"))  # so many begin where all is covered
        if most[before - 1] > covered:
            chosen.add(int(farthest[before - 1]))
            covered = int(most[before - 1])
        elif before < order.size:
            covered = int(begins[before])  # nothing covers what lies between
        else:
            return np.array(sorted(chosen))


def closer(places: pl.DataFrame, scores: pl.DataFrame, tau: float, number: int) -> Integers:
    """The windows of stage `number`, given the rows of those before it, as rows of `places`, ascending.

    Before the last stage, of each gap between scored windows the middlemost of those that may reach tau; then all.
    """
    read = _Read(places, scores)
    tokens = read.tokens
    reach = [each * tokens for each in REACH]
    for stage in range(FIRST_LOOK, number):  # what was seen, as it was then
        before, then = (_Read(places, scores.filter(pl.col("stage").is_between(low, stage - own)))
                        for low, own in ((0, 1), (stage, 0)))  # fmt: skip
        if not then.windows.size:
            continue
        promised = _promises(places, before, then.windows)
        seen = then.best >= math.log(tau) - NEARLY * tokens
        for kind, of_kind in enumerate((~promised.close, promised.close)):
            gains = (then.total - promised.value)[seen & of_kind]
            reach[kind] = max([reach[kind], *(MARGIN * gains).tolist()])
    left = np.setdiff1d(np.arange(places.height), read.windows)
    if not left.size:
        return left
    promised = _promises(places, read, left)
    may = promised.value >= math.log(tau) - np.where(promised.close, reach[1], reach[0])
    if number == FIRST_LOOK:
        may |= _most_promising(promised)
    return left[may if number == CLOSER else _middlemost(promised, left, may)]


def drawn(places: pl.DataFrame, scores: pl.DataFrame, count: int, seed: int) -> Integers:
    """The audit: `count` of the windows that have no row, or all, drawn at random, as rows of `places`, ascending."""
    left = np.flatnonzero(~places["start"].is_in(scores["start"].implode()).to_numpy())
    if count >= left.size:
        return left
    return np.sort(left[np.random.default_rng(seed).choice(left.size, count, replace=False)])


class _Read:
    """What scored windows read: their tokens one after the other, and where in the text these stand."""

    def __init__(self, places: pl.DataFrame, scores: pl.DataFrame) -> None:
        schemes = [rows.sort("start") for rows in scores.partition_by("scheme", maintain_order=True)]
        rows = schemes[0] if schemes else scores
        self.windows = np.searchsorted(places["start"].to_numpy(), rows["start"].to_numpy())
        self.best = np.max([own["log_prob"].to_numpy() for own in schemes], axis=0) if schemes else np.zeros(0)
        lengths = rows["token_ends"].list.len().cast(pl.Int64).to_numpy()
        self.first = np.concatenate(([0], np.cumsum(lengths)))  # of each window's tokens
        self.ends = rows["token_ends"].explode().cast(pl.Int64).to_numpy() + np.repeat(
            rows["suffix_start"].to_numpy(), lengths
        )
        self.begins = np.concatenate(([0], self.ends[:-1]))
        self.begins[self.first[:-1]] = rows["suffix_start"].to_numpy()
        tokens = np.max([_tokens(own) for own in schemes], axis=0) if schemes else np.zeros(0)
        self.sums = np.concatenate(([0.0], np.cumsum(np.maximum(tokens, FLOOR))))
        self.total = self.sums[self.first[1:]] - self.sums[self.first[:-1]]
        self.span = int(self.ends.max()) + 1 if self.ends.size else 1
        self.order = np.repeat(np.arange(len(lengths)), lengths) * self.span  # keeps windows apart when searched

    @property
    def tokens(self) -> float:
        """Tokens of a suffix, on average."""
        return float(self.first[-1] / self.windows.size)

    def at(self, row: Integers, character: Integers, *, by_end: bool = False) -> Integers:
        """The first token of a window's that begins at a character or after it, or ends after it."""
        ordered = self.order + (self.ends if by_end else self.begins)
        asked = row * self.span + np.clip(character, 0, self.span - 1)
        found = np.searchsorted(ordered, asked, side="right" if by_end else "left")
        return np.clip(found, self.first[row], self.first[row + 1])


def _tokens(rows: pl.DataFrame) -> Floats:
    """Each token's log-prob under the scheme, or where that rules it out, the model's own."""
    own, base = (rows[name].explode().cast(pl.Float64).to_numpy() for name in ("token_log_probs", "base_log_probs"))
    return np.where(np.isfinite(own), own, base)


@dataclass(frozen=True, slots=True, eq=False)
class _Promises:
    """For each window that was asked about: what it promises, whether its neighbours are close, and who they are."""

    value: Floats
    close: NDArray[np.bool_]
    left: Integers
    right: Integers


def _promises(places: pl.DataFrame, read: _Read, windows: Integers) -> _Promises:
    """Of windows that were not read: the tokens of the one before, as far as it goes, then those of the one after.

    The first and the last window are tiles, so every other has a neighbour on both sides.
    """
    starts, ends = (places[name].to_numpy() for name in ("suffix_start", "suffix_end"))
    after = np.searchsorted(read.windows, windows)
    left, right = after - 1, after
    begin, end = starts[windows], ends[windows]
    reached = np.maximum(ends[read.windows[left]], begin)
    value = read.sums[read.first[after]] - read.sums[read.at(left, begin)]
    from_right = read.at(right, reached)
    value += read.sums[np.maximum(read.at(right, end, by_end=True), from_right)] - read.sums[from_right]
    lefts, rights = read.windows[left], read.windows[right]
    close = ends[lefts] - starts[rights] >= CLOSE * (ends[lefts] - starts[lefts])
    best = np.maximum(read.total[left], read.total[right])
    return _Promises(np.where(close, np.maximum(value, best), value), close, lefts, rights)


def _most_promising(promised: _Promises) -> NDArray[np.bool_]:
    """The windows of the most promising gaps, each as promising as its best window."""
    gaps, gap = np.unique(promised.left, return_inverse=True)
    best = np.full(gaps.size, -math.inf)
    np.maximum.at(best, gap, promised.value)
    rank = np.empty(gaps.size, dtype=np.int64)
    rank[np.argsort(-best, kind="stable")] = np.arange(gaps.size)
    return rank[gap] < max(LEAST, gaps.size // FIRST)


def _middlemost(promised: _Promises, windows: Integers, may: NDArray[np.bool_]) -> Integers:
    """Of each gap the position of the window nearest to its middle, of those that may; of two, the first."""
    candidates = np.flatnonzero(may)
    off = np.abs(2 * windows - promised.left - promised.right)[candidates]
    order = np.lexsort((candidates, off, promised.left[candidates]))
    _, first = np.unique(promised.left[candidates][order], return_index=True)
    return np.sort(candidates[order[first]])
