"""Exact search over a tokenised corpus, on the engine and the files of infini-gram.

A folder of such an index has, for each shard N, `tokenized.N` (all documents' tokens, a separator before each),
`offset.N` (where in it each document begins), `table.N` (its suffix array) and perhaps `metadata.N` and `metaoff.N`.
Everything here goes by token ids; nothing is found across the border of two documents, since no query holds the
separator.

Of the engine's answers only `find` is used: the ranks of the suffixes that begin with a query. What follows a query and
the longest runs that stand in the corpus are worked out from it: the engine's own `ntd` and `creativity` err about
what stands at the end of a shard (tests/corpus/test_index.py keeps corpora that show it).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rote.corpus.shards import Shard, Width, open_engine, open_shards
from rote.errors import InputError
from rote.progress import Progress, quiet

Unit = Literal["tokens", "bytes"]
BLOCK = 1 << 20
"""Suffixes that are looked at together."""

FEW = 64
"""Suffixes that are followed one by one."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A token of a document: documents are numbered over all shards, tokens within their document, both from 0."""

    document: int
    token: int


@dataclass(frozen=True)
class CorpusIndex:
    """An index as it is asked. `vocabulary`: ids are below it. See the module for the files."""

    folder: Path
    unit: Unit
    width: Width
    vocabulary: int
    parts: list[Shard] = field(init=False, repr=False)
    engine: Any = field(init=False, repr=False)
    first: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", list(open_shards(self.folder, self.width)))
        counts = [len(shard.offsets) for shard in self.parts]
        object.__setattr__(self, "first", [0, *np.cumsum(counts).tolist()])
        object.__setattr__(self, "engine", open_engine(self.folder, self.width, len(self.parts)))

    @property
    def shards(self) -> int:
        return len(self.parts)

    @property
    def documents(self) -> int:
        return self.first[-1]

    @property
    def tokens(self) -> int:
        """Of all documents; separators are none."""
        return sum(len(shard.tokens) for shard in self.parts) - self.documents

    # --- how often, where, and what then

    def count(self, ids: Sequence[int]) -> int:
        """How often these tokens stand in the corpus, one after the other within one document."""
        return sum(last - first for first, last in self._ranks(ids))

    def places(self, ids: Sequence[int], most: int | None = None) -> list[Place]:
        """Where they stand, in the order of the corpus; the first `most` of them."""
        found: list[Place] = []
        for shard, (first, last) in enumerate(self._ranks(ids)):
            pointers = np.sort(self.parts[shard].pointers(first, last))
            room = None if most is None else most - len(found)
            found += [self._place(shard, int(pointer)) for pointer in pointers[:room]]
        return found

    def documents_with(self, *queries: Sequence[int]) -> int:
        """In how many documents they stand: one of these queries at least, where there are several."""
        found, ranks = 0, [self._ranks(ids) for ids in queries]
        for shard, part in enumerate(self.parts):
            pointers = np.concatenate([part.pointers(*own[shard]) for own in ranks]) * self.width
            found += len(np.unique(np.searchsorted(part.offsets, pointers.astype(np.uint64), "right")))
        return found

    def following(self, ids: Sequence[int]) -> dict[int | None, int]:
        """What comes next, and how often, the most frequent first; None: the document ends there."""
        counts: dict[int | None, int] = {}
        for shard, (first, last) in enumerate(self._ranks(ids)):
            part, at = self.parts[shard], first
            while at < last:
                # Suffixes are sorted, so those with the same next token stand together: first the one at which the
                # file ends, if it is here; last those before a separator, of which every byte is the largest.
                after = int(part.pointers(at, at + 1)[0]) + len(ids)
                token = None if after == len(part.tokens) else int(part.tokens[after])
                if token is None:
                    end = at + 1
                elif token == self._separator:
                    token, end = None, last
                else:
                    end = self._ranks([*ids, token])[shard][1]
                counts[token] = counts.get(token, 0) + end - at
                at = end
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0] is None, item[0] or 0)))

    def longest(self, ids: Sequence[int], tell: Progress = quiet) -> list[int]:
        """For each token, how many from it on stand in the corpus one after the other.

        Run by run: how far does one reach; and which is the first that goes beyond that. Those that begin in between
        end where the run before them does.
        """
        query = [token if 0 <= token < self._separator else -1 for token in map(int, ids)]
        found: list[int] = []
        end = 0
        while end < len(query):
            start = self._first_beyond(query, len(found), end + 1)
            found += [end - at for at in range(len(found), start)]
            end = self._reach(query, start, end + 1) if start <= end else end + 1
            tell("traced", end, len(query))
        return found + [end - at for at in range(len(found), len(query))]

    def _first_beyond(self, ids: list[int], least: int, end: int) -> int:
        """The first start, from `least` on, of a run to `end` that stands in the corpus; `end` if there is none.

        From the right, in steps that double: a run that is asked for is at most twice as long as one that stands.
        """
        stands, fails = end, least - 1
        step = 1
        while stands - fails > 1:
            at = max(end - step, fails + 1) if fails < least else (stands + fails) // 2
            if self._stands(ids[at:end]):
                stands, step = at, 2 * step
            else:
                fails = at
        return stands

    def _reach(self, ids: list[int], start: int, end: int) -> int:
        """How far the run that begins at `start`, and stands in the corpus up to `end`, goes on there."""
        step, fails = 1, len(ids) + 1
        while end < len(ids):
            ranks = self._ranks(ids[start:end])
            if sum(last - first for first, last in ranks) <= FEW:
                return end + max(self._goes_on(ids, end, end - start, *found) for found in enumerate(ranks))
            at = min(end + step, len(ids)) if fails > len(ids) else (end + fails) // 2
            if at == end or (fails <= len(ids) and fails - end == 1):
                return end
            if self._stands(ids[start:at]):
                end, step = at, 2 * step
            else:
                fails = at
        return end

    def _goes_on(self, ids: list[int], end: int, length: int, shard: int, ranks: tuple[int, int]) -> int:
        """How many tokens from `end` on follow one of these suffixes, of which `length` tokens are known, at most."""
        part, most = self.parts[shard], 0
        for pointer in part.pointers(*ranks).tolist():
            at, same, block = pointer + length, 0, 64
            while True:
                there = part.tokens[at + same : at + same + block]
                wanted = ids[end + same : end + same + len(there)]
                differs = np.flatnonzero(there[: len(wanted)] != np.array(wanted, dtype=np.int64))
                if len(differs) or len(wanted) < block:
                    same += int(differs[0]) if len(differs) else len(wanted)
                    break
                same, block = same + block, 2 * block
            most = max(most, same)
        return most

    def spans(self, ids: Sequence[int], least: int = 1) -> list[tuple[int, int]]:
        """The [start, end) of every run of at least `least` tokens that stands in the corpus and in no longer one."""
        return maximal(self.longest(ids), least)

    def repeated(self, length: int, least: int) -> Iterator[tuple[Place, int]]:
        """Every sequence of `length` tokens that stands at least `least` times: its first place, and how often.

        In the order of the tables, each once. A sequence may be rare in every shard and frequent in all; so with more
        shards than `least` every sequence is looked up, which is slow.
        """
        enough = -(-least // self.shards)
        for shard, part in enumerate(self.parts):
            for first, last in _runs(part, length, enough):
                pointers = part.pointers(first, last)
                ids = part.tokens[pointers[0] : pointers[0] + length].tolist()
                counts = [end - begin for begin, end in self._ranks(ids)] if self.shards > 1 else [last - first]
                if sum(counts) >= least and not any(count >= enough for count in counts[:shard]):
                    earlier = self.places(ids, 1)[0] if any(counts[:shard]) else None
                    yield earlier or self._place(shard, int(pointers.min())), sum(counts)

    # --- documents

    def document(self, number: int) -> NDArray[np.int64]:
        """The tokens of a document."""
        shard, own = self._find(number)
        begin, end = self.parts[shard].bounds(own)
        return np.asarray(self.parts[shard].tokens[begin:end]).astype(np.int64)

    def length(self, number: int) -> int:
        """Of a document, in tokens."""
        shard, own = self._find(number)
        begin, end = self.parts[shard].bounds(own)
        return end - begin

    def name(self, number: int) -> str:
        """What the corpus calls a document: its id, or where it was read; else its number."""
        shard, own = self._find(number)
        names = self.parts[shard].names
        if names is None:
            return f"document {number}"
        text, offsets = names
        end = int(offsets[own + 1]) if own + 1 < len(offsets) else len(text)
        try:
            said = json.loads(bytes(text[int(offsets[own]) : end]))
            return str(said["metadata"].get("id") or f"{said['path']}, line {said['linenum'] + 1}")
        except (ValueError, LookupError, TypeError, AttributeError):
            return f"document {number}"

    # --- what they share

    @property
    def _separator(self) -> int:
        return int(256**self.width - 1)

    def _stands(self, ids: Sequence[int]) -> bool:
        return any(last > first for first, last in self._ranks(ids))

    def _ranks(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """For each shard, the [first, last) ranks of the suffixes that begin with `ids`."""
        if len(ids) == 0:
            raise InputError("nothing to look for: the query has no token. Give at least one.")
        query = [int(token) for token in ids]
        if min(query) < 0 or max(query) >= self._separator:
            return [(0, 0)] * self.shards  # no document holds such a token
        ranks: list[tuple[int, int]] = self.engine.find(query)["segment_by_shard"]
        return ranks

    def _place(self, shard: int, pointer: int) -> Place:
        own = int(np.searchsorted(self.parts[shard].offsets, np.uint64(pointer * self.width), "right")) - 1
        return Place(self.first[shard] + own, pointer - self.parts[shard].bounds(own)[0])

    def _find(self, number: int) -> tuple[int, int]:
        if not 0 <= number < self.documents:
            raise InputError(f"there is no document {number}: the index has {self.documents:,}, numbered from 0.")
        shard = int(np.searchsorted(self.first, number, "right")) - 1
        return shard, number - self.first[shard]


def maximal(lengths: Sequence[int], least: int) -> list[tuple[int, int]]:
    """The [start, end) of the runs of at least `least` tokens that are part of no longer one.

    `lengths`: for each token the length of the longest run from there. A run from the token before that ends as late
    is one longer.
    """
    before = [0, *lengths]
    return [
        (start, start + length)
        for start, length in enumerate(lengths)
        if length >= max(least, 1) and before[start] <= length
    ]


def _runs(part: Shard, length: int, least: int) -> Iterator[tuple[int, int]]:
    """The [first, last) ranks of at least `least` suffixes that begin with the same `length` tokens of a document."""
    ranks = len(part.table)
    same = np.zeros(ranks, dtype=np.bool_)  # whether a suffix begins as the one before it does
    whole = np.zeros(ranks, dtype=np.bool_)  # whether it begins with so many tokens of one document
    begins = part.offsets.astype(np.int64) // part.width
    ends = np.append(begins[1:], len(part.tokens))
    for first in range(0, ranks, BLOCK):
        before, last = max(first - 1, 0), min(first + BLOCK, ranks)
        pointers = part.pointers(before, last)
        own = np.searchsorted(begins, pointers, "right") - 1
        fits = (pointers > begins[own]) & (pointers + length <= ends[own])
        pairs = np.flatnonzero(fits[1:] & fits[:-1]) + 1
        for at in range(length):  # most part soon, as most text is unlike any other
            pairs = pairs[part.tokens[pointers[pairs] + at] == part.tokens[pointers[pairs - 1] + at]]
        whole[before:last] = fits
        same[before + pairs] = True
    groups = np.flatnonzero(~same)
    sizes = np.diff(np.append(groups, ranks))
    for at in np.flatnonzero(whole[groups] & (sizes >= least)).tolist():
        yield int(groups[at]), int(groups[at] + sizes[at])
