"""How far one generation goes: the longest beginnings of suffixes that come out with a given probability."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from rote.analysis.coverage import Floats, Integers, check_threshold
from rote.analysis.rates import log_prob_bounds
from rote.store.summary import Longest

_ROWS = 4096  # rows of token log-probs laid out at once: a few megabytes, however long the suffixes are


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
            check_threshold(threshold)
        self._best: dict[float, Longest | None] = dict.fromkeys(thresholds)
        self._given_up: set[float] = set()  # thresholds that a row still reached when it was given up
        self._open: set[float] = set()  # and at a token that a served model's list leaves open
        self._most = 0  # tokens of the longest suffix: nothing goes further

    def add(self, scores: pl.DataFrame) -> None:
        log_prob_bounds(scores, "token_log_probs")
        stopped = scores["bounded"].to_numpy()
        for first, sums, lengths in _prefix_sums(scores["token_log_probs"]):
            self._most = max(self._most, int(lengths.max()))
            opens = np.where(np.isnan(sums).any(1), np.isnan(sums).argmax(1), -1)  # a row's first open token
            for threshold, best in self._best.items():
                tokens = np.count_nonzero(sums >= math.log(threshold), axis=1)
                ended = stopped[first : first + tokens.size] & (tokens == lengths)
                if ended.any():
                    self._given_up.add(threshold)
                if (tokens == opens).any():
                    self._open.add(threshold)
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
            f"{threshold:g}": best and replace(best, exact=self._exact(threshold, best))
            for threshold, best in self._best.items()
        }

    def _exact(self, threshold: float, best: Longest) -> bool:
        return threshold not in self._given_up and (threshold not in self._open or best.tokens == self._most)


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
