"""Searching a corpus by looking at every place of every document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Documents = Sequence[Sequence[int]]


def places(documents: Documents, query: Sequence[int]) -> list[tuple[int, int]]:
    return [
        (number, at)
        for number, document in enumerate(documents)
        for at in range(len(document) - len(query) + 1)
        if list(document[at : at + len(query)]) == list(query)
    ]


def following(documents: Documents, query: Sequence[int]) -> dict[int | None, int]:
    after: Counter[int | None] = Counter()
    for number, at in places(documents, query):
        rest = list(documents[number][at + len(query) :])
        after[rest[0] if rest else None] += 1
    return dict(after)


def longest(documents: Documents, text: Sequence[int]) -> list[int]:
    """For each token of a text, the length of the longest run from there that stands in a document."""
    return [
        max(length for length in range(len(text) - at + 1) if length == 0 or places(documents, text[at : at + length]))
        for at in range(len(text))
    ]


def spans(documents: Documents, text: Sequence[int], least: int) -> list[tuple[int, int]]:
    """The runs that stand in a document and are part of no other that does."""
    standing = {
        (at, end) for at in range(len(text)) for end in range(at + 1, len(text) + 1) if places(documents, text[at:end])
    }
    return sorted(
        (at, end)
        for at, end in standing
        if end - at >= least and not any(a <= at and end <= b and (a, b) != (at, end) for a, b in standing)
    )


def repeated(documents: Documents, length: int, least: int) -> dict[tuple[int, ...], int]:
    counts: Counter[tuple[int, ...]] = Counter()
    for document in documents:
        for at in range(len(document) - length + 1):
            counts[tuple(document[at : at + length])] += 1
    return {ids: count for ids, count in counts.items() if count >= least}
