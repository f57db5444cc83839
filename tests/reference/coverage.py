"""Coverage one character at a time."""

from __future__ import annotations

import math

Span = tuple[int, int]


def character_maximum(spans: list[Span], values: list[float], length: int) -> list[float]:
    best = []
    for character in range(length):
        covering = [value for (start, end), value in zip(spans, values, strict=True) if start <= character < end]
        best.append(max(covering, default=-math.inf))
    return best


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
