"""What the files of a benchmark say about its criteria, without its corpus and its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations

import numpy as np

from rote.corpus.bench import Ids, Split
from rote.corpus.criteria import LEAST_ENTROPY, entropy, period, repetitive, substring

NAMED = 5
"""Rows that are named of those that fail."""


@dataclass(frozen=True, kw_only=True)
class Failing:
    """How many of the examples that were looked at do not satisfy a criterion, and the first of their rows."""

    criterion: str
    examples: int
    failing: int
    rows: list[int]


@dataclass(frozen=True, kw_only=True)
class InspectedSplit:
    """One split: how many tokens its examples have, their largest id, and what each criterion says.

    `least_entropy` is the lowest of all suffixes, in bits per token, and `shortest_period` the shortest run that gives
    a suffix when it is written over and over. `distinct`: how many examples differ from all before them.
    """

    name: str
    examples: int
    distinct: int
    prefix_tokens: int
    suffix_tokens: int | None
    preprefix_tokens: int | None
    largest_id: int
    least_entropy: float | None
    shortest_period: int | None
    criteria: list[Failing]


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """What the examples of `second` have in common with those of `first`.

    `same_prefix`: their prefix is one of `first`. `other_suffix`: and is followed by another suffix there.
    `shared_run`: as many tokens as a prefix has, one after the other, stand in an example of `first`, wherever.
    """

    first: str
    second: str
    examples: int
    same_prefix: int
    other_suffix: int | None
    shared_run: int
    run_tokens: int
    rows: list[int]


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What can be said of a benchmark from its files alone."""

    folder: str
    splits: list[InspectedSplit]
    overlaps: list[Overlap]


def inspected(folder: str, splits: Mapping[str, Split]) -> Inspection:
    overlaps = [_overlap(first, second, splits[first], splits[second]) for first, second in combinations(splits, 2)]
    return Inspection(
        folder=folder, splits=[_inspected(name, split) for name, split in splits.items()], overlaps=overlaps
    )


def _inspected(name: str, split: Split) -> InspectedSplit:
    prefix, suffix, before = split.prefix, split.suffix, split.preprefix
    parts = [part for part in (before, prefix, suffix) if part is not None]
    prefixes, whole = _keys(prefix), _keys(prefix if suffix is None else np.hstack([prefix, suffix]))
    first = {key: row for row, key in reversed(list(enumerate(whole)))}
    criteria = [_failing("repeated example", len(split), lambda row: first[whole[row]] < row)]
    entropies: list[float] = []
    periods: list[int] = []
    if suffix is not None:
        ids, contexts = suffix.tolist(), prefix.tolist()
        entropies, periods = [*map(entropy, ids)], [*map(period, ids)]
        several = _several_suffixes(prefixes, whole)
        criteria += [
            _failing("low entropy", len(split), lambda row: entropies[row] < LEAST_ENTROPY),
            _failing("repetitive", len(split), lambda row: repetitive(ids[row])),
            _failing("suffix in prefix", len(split), lambda row: substring(contexts[row], ids[row])),
            _failing("several continuations", len(split), lambda row: prefixes[row] in several),
        ]
        if before is not None:
            longer = np.hstack([before, prefix]).tolist()
            criteria.append(
                _failing("suffix in longer prefix", len(split), lambda row: substring(longer[row], ids[row]))
            )
    return InspectedSplit(
        name=name,
        examples=len(split),
        distinct=len(first),
        prefix_tokens=prefix.shape[1],
        suffix_tokens=None if suffix is None else suffix.shape[1],
        preprefix_tokens=None if before is None else before.shape[1],
        largest_id=max(int(part.max()) for part in parts),
        least_entropy=min(entropies, default=None),
        shortest_period=min(periods, default=None),
        criteria=criteria,
    )


def _failing(criterion: str, examples: int, fails: Callable[[int], bool]) -> Failing:
    rows = [row for row in range(examples) if fails(row)]
    return Failing(criterion=criterion, examples=examples, failing=len(rows), rows=rows[:NAMED])


def _several_suffixes(prefixes: Sequence[bytes], whole: Sequence[bytes]) -> set[bytes]:
    """The prefixes that are followed by one suffix here and by another there."""
    known: dict[bytes, bytes] = {}
    return {prefix for prefix, own in zip(prefixes, whole, strict=True) if known.setdefault(prefix, own) != own}


def _overlap(first: str, second: str, one: Split, two: Split) -> Overlap:
    length = min(one.prefix.shape[1], two.prefix.shape[1])
    runs = {key for row in _whole(one) for key in _runs(row, length)}
    shared = [row for row, ids in enumerate(_whole(two)) if any(key in runs for key in _runs(ids, length))]
    prefixes = set(_keys(one.prefix))
    again = [row for row, key in enumerate(_keys(two.prefix)) if key in prefixes]
    other = None
    if one.suffix is not None and two.suffix is not None:
        pairs = set(_keys(_whole(one)))
        own = _keys(_whole(two))
        other = sum(own[row] not in pairs for row in again)
    return Overlap(
        first=first,
        second=second,
        examples=len(two),
        same_prefix=len(again),
        other_suffix=other,
        shared_run=len(shared),
        run_tokens=length,
        rows=shared[:NAMED],
    )


def _whole(split: Split) -> Ids:
    return split.prefix if split.suffix is None else np.hstack([split.prefix, split.suffix])


def _keys(rows: Ids) -> list[bytes]:
    """What stands for a row's tokens."""
    return [blake2b(row.tobytes(), digest_size=16).digest() for row in np.ascontiguousarray(rows)]


def _runs(row: Ids, length: int) -> list[bytes]:
    """What stands for each run of so many tokens."""
    ids, width = row.tobytes(), row.itemsize
    return [
        blake2b(ids[start * width : (start + length) * width], digest_size=16).digest()
        for start in range(row.size - length + 1)
    ]
