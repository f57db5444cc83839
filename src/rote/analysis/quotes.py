"""Finding a quotation in a text, and the window that shows it best."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from rote.analysis.coverage import spans
from rote.analysis.rates import log_prob_bounds

_ALIKE = str.maketrans({"‘": "'", "’": "'", "‚": "'", "`": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"',
                        "–": "-", "—": "-", "‐": "-", "‑": "-"})  # fmt: skip


def occurrences(text: str, quote: str) -> Iterator[tuple[int, int]]:
    """Where the quotation stands in the text, as [start, end); overlapping ones too."""
    start = text.find(quote)
    while quote and start >= 0:
        yield start, start + len(quote)
        start = text.find(quote, start + 1)


def similar(text: str, quote: str) -> tuple[int, int] | None:
    """The first place that differs from the quotation only in white space, quotation marks, dashes or capitals."""
    words = [re.escape(word) for word in _plain(quote).split()]
    if not words:
        return None
    # One character for one character, so that places in the plain text are places in the text.
    match = re.search(r"\s+".join(words), _plain(text))
    return match.span() if match else None


def best_window(rows: pl.DataFrame, places: list[tuple[int, int]]) -> tuple[int, tuple[int, int], int] | None:
    """The row whose suffix holds the most of one of the places; what it holds, as [start, end); and how many rows tie.

    Of several that hold as much, the one with the largest p_z (of a stopped row: its bound); None where no suffix
    holds any of it. Places and suffixes are in code points of the same text.
    """
    starts, ends = spans(rows)
    log_prob = log_prob_bounds(rows)[1]
    best: tuple[int, float, int, tuple[int, int]] | None = None
    ties = 0
    for first, last in places:
        held = np.minimum(ends, last) - np.maximum(starts, first)
        most = int(held.max(initial=0))
        if most <= 0 or (best is not None and most < best[0]):
            continue
        as_much = np.flatnonzero(held == most)
        row = int(as_much[np.argmax(log_prob[as_much])])
        ties = len(as_much) + (ties if best is not None and best[0] == most else 0)
        if best is None or most > best[0] or log_prob[row] > best[1]:
            span = max(int(starts[row]), first), min(int(ends[row]), last)
            best = most, float(log_prob[row]), row, span
    return None if best is None else (best[2], best[3], ties)


def _plain(text: str) -> str:
    folded = [character.lower() if len(character.lower()) == 1 else character for character in text.translate(_ALIKE)]
    return "".join(folded)
