"""Coverage one character at a time."""

from __future__ import annotations

import math
from typing import Any

Span = tuple[int, int]


def character_maximum(spans: list[Span], values: list[float], length: int) -> list[float]:
    best = []
    for character in range(length):
        covering = [value for (start, end), value in zip(spans, values, strict=True) if start <= character < end]
        best.append(max(covering, default=-math.inf))
    return best


def looked_at(spans: list[Span]) -> set[int]:
    """The characters that lie in any span."""
    return {character for start, end in spans for character in range(start, end)}


def runs(spans: list[Span], length: int) -> list[Span]:
    """Maximal runs of covered characters. Spans that touch leave no uncovered character between them: one run."""
    found: list[Span] = []
    for character in range(length):
        if any(start <= character < end for start, end in spans):
            if found and found[-1][1] == character:
                found[-1] = (found[-1][0], character + 1)
            else:
                found.append((character, character + 1))
    return found


def hot_spots(spans: list[Span], log_probs: list[float], length: int, log_threshold: float) -> list[dict[str, Any]]:
    """The runs of spans at or above the threshold, in order; rows are named by their number."""
    high = [row for row, log_prob in enumerate(log_probs) if log_prob >= log_threshold]
    found = []
    for first, last in runs([spans[row] for row in high], length):
        inside = [row for row in high if first <= spans[row][0] < spans[row][1] <= last]
        best = max(inside, key=lambda row: (log_probs[row], -row))
        each = [
            max(log_probs[row] for row in inside if spans[row][0] <= character < spans[row][1])
            for character in range(first, last)
        ]
        found.append(
            {
                "start": first,
                "end": last,
                "log_prob": log_probs[best],
                "mean_prob": sum(math.exp(value) for value in each) / len(each),
                "minimum_log_prob": min(each),
                "windows": len(inside),
                "row": best,
            }
        )
    return found


def longest(rows: list[list[float]], log_threshold: float) -> tuple[int, float, int] | None:
    """Tokens, log-probability and row of the longest beginning of any row that reaches the threshold."""
    found: tuple[int, float, int] | None = None
    for number, tokens in enumerate(rows):
        for count in range(1, len(tokens) + 1):
            total = 0.0
            for token in tokens[:count]:
                total += token
            if total >= log_threshold and (found is None or (count, total) > found[:2]):
                found = (count, total, number)
    return found
