"""Matching blocks by looking everywhere, and what follows from them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence


def longest_block(a: Sequence[str], b: Sequence[str]) -> tuple[int, int, int]:
    """(start in a, start in b, length) of the longest common stretch; the earliest in a, then in b."""
    best = (0, 0, 0)
    for i in range(len(a)):
        for j in range(len(b)):
            length = 0
            while i + length < len(a) and j + length < len(b) and a[i + length] == b[j + length]:
                length += 1
            if length > best[2]:
                best = (i, j, length)
    return best


def matched(a: Sequence[str], b: Sequence[str]) -> list[bool]:
    """For each of a whether it lies in a matching block: the longest one, then left and right of it."""
    i, j, length = longest_block(a, b)
    if not length:
        return [False] * len(a)
    return matched(a[:i], b[:j]) + [True] * length + matched(a[i + length :], b[j + length :])


def ratio(a: Sequence[str], b: Sequence[str]) -> float:
    return 2 * sum(matched(a, b)) / (len(a) + len(b))


def tf_idf_cosine(one: str, two: str) -> float:
    """Word counts, those of one text alone weighed by 1 + ln(3/2), as vectors; the cosine of their angle."""
    words = [re.findall(r"\b\w\w+\b", text.lower()) for text in (one, two)]
    vectors = []
    for own, other in (words, words[::-1]):
        vectors.append({w: own.count(w) * (1 if w in other else 1 + math.log(1.5)) for w in set(own)})
    a, b = vectors
    norms = [math.sqrt(sum(weight**2 for weight in vector.values())) for vector in vectors]
    return sum(weight * b.get(word, 0) for word, weight in a.items()) / (norms[0] * norms[1])
