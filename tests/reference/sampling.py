"""Samples and their intervals by trying everything: all arrangements, every row, every place of an interval's end."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise

from tests.reference.windows import one_window

Span = tuple[int, int]


def candidates(text: str, tokenizer: object, prefix: int, suffix: int) -> list[Span]:
    """Where an example may stand: from each space character to the end of its last token."""
    found = []
    for start, character in enumerate(text):
        window = one_window(text, tokenizer, start, prefix, suffix) if character == " " else None
        if window is not None:
            found.append((start, window.suffix_end))
    return found


def arrangements(spans: Sequence[Span], count: int) -> list[tuple[Span, ...]]:
    """All choices of `count` spans that do not overlap; if there are none, of the most that do not."""
    for size in range(count, 0, -1):
        found = [
            chosen
            for chosen in combinations(sorted(spans), size)
            if all(first[1] <= second[0] for first, second in pairwise(chosen))
        ]
        if found:
            return found
    return []


def ratio_variance(documents: Sequence[Sequence[bool]]) -> Fraction:
    """The linearised variance of the share of hits over documents, exactly."""
    total = sum(len(document) for document in documents)
    share = Fraction(sum(map(sum, documents)), total)
    squares = Fraction(0)
    for document in documents:
        residual = Fraction(0)
        for hit in document:
            residual += hit - share
        squares += residual * residual
    return squares * len(documents) / ((len(documents) - 1) * total * total)


def score_interval(share: float, size: float, z: float) -> tuple[float, float]:
    """Every true share p that an observed one is within z standard deviations of, by halving towards both ends."""

    def holds(p: float) -> bool:
        return (share - p) ** 2 <= z * z * p * (1 - p) / size

    def end(inside: float, outside: float) -> float:
        if holds(outside):
            return outside
        for _ in range(200):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if holds(middle) else (inside, middle)
        return inside

    return end(share, 0.0), end(share, 1.0)
