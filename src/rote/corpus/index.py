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
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rote.errors import InputError, RoteError, argument
from rote.progress import Progress, quiet

Unit = Literal["tokens", "bytes"]
Width = Literal[1, 2, 4]
WIDTHS: tuple[Width, ...] = (1, 2, 4)
BLOCK = 1 << 20
"""Suffixes that are looked at together."""

FEW = 64
"""Suffixes that are followed one by one."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A token of a document: documents are numbered over all shards, tokens within their document, both from 0."""

    document: int
    token: int


def width_of(vocabulary: int) -> Width:
    """Bytes a token takes, where ids are below `vocabulary`: the largest number of the width is the separator."""
    return next((width for width in WIDTHS if vocabulary <= 256**width - 1), 4)


def numbers_of(width: Width) -> Any:
    """The dtype of a token file."""
    return np.dtype({1: "u1", 2: "<u2", 4: "<u4"}[width])


@dataclass(frozen=True, slots=True)
class Shard:
    """The files of a shard, mapped: what is not looked at is not read."""

    tokens: NDArray[Any]
    offsets: NDArray[np.uint64]
    table: NDArray[np.uint8]
    width: int
    names: tuple[NDArray[np.uint8], NDArray[np.uint64]] | None

    def pointers(self, first: int, last: int) -> NDArray[np.int64]:
        """Where the suffixes of these ranks begin, in tokens of the file."""
        rows = np.asarray(self.table[first:last])
        found = np.zeros(len(rows), dtype=np.int64)
        for at in range(rows.shape[1]):
            found |= rows[:, at].astype(np.int64) << (8 * at)
        return found // self.width

    def bounds(self, document: int) -> tuple[int, int]:
        """The tokens of a document: where they begin in the file, after the separator, and where they end."""
        begin = int(self.offsets[document]) // self.width + 1
        last = document + 1 == len(self.offsets)
        return begin, len(self.tokens) if last else int(self.offsets[document + 1]) // self.width


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
        object.__setattr__(self, "parts", list(_shards(self.folder, self.width)))
        counts = [len(shard.offsets) for shard in self.parts]
        object.__setattr__(self, "first", [0, *np.cumsum(counts).tolist()])
        object.__setattr__(self, "engine", _engine(self.folder, self.width, len(self.parts)))

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


# --- the files


def _shards(folder: Path, width: Width) -> Iterator[Shard]:
    """The shards of an index, in their order; an InputError names what is missing or does not fit."""
    tokenized = sorted(folder.glob("tokenized.*"), key=lambda path: (len(path.name), path.name))
    if not tokenized:
        raise InputError(f"{folder} holds no index: there is no tokenized.0 in it. Give the folder of an index.")
    for number, path in enumerate(tokenized):
        if path.name != f"tokenized.{number}":
            raise InputError(f"{folder} has {path.name} but no tokenized.{number}. Copy the whole index.")
        tokens, offsets, table = (folder / f"{name}.{number}" for name in ("tokenized", "offset", "table"))
        for needed in (offsets, table):
            if not needed.is_file():
                raise InputError(f"{needed} is missing: the index is not whole. Copy all of it, or build it again.")
        size, entries, starts = (each.stat().st_size for each in (tokens, table, offsets))
        count = size // width
        if size % width or not count or entries % count or not 1 <= entries // count <= 8 or starts % 8 or not starts:
            raise InputError(
                f"{tokens} and {table.name} do not fit together as tokens of {width} bytes: they are cut short, or the "
                f"tokenizer is another. Copy the whole index again, or give its {argument('tokenizer')}."
            )
        shard = Shard(
            np.memmap(tokens, dtype=numbers_of(width), mode="r"),
            np.memmap(offsets, dtype="<u8", mode="r"),
            np.memmap(table, dtype=np.uint8, mode="r", shape=(count, entries // count)),
            width,
            _names(folder, number),
        )
        begins = np.asarray(shard.offsets[:1000])
        if begins[0] != 0 or (begins[1:] <= begins[:-1]).any() or (begins >= size).any():
            raise InputError(f"{offsets} does not fit {tokens.name}. Copy the whole index again, or build it again.")
        if (shard.tokens[begins.astype(np.int64) // width] != 256**width - 1).any():
            raise InputError(
                f"{tokens} has no separator of {width} bytes before its documents, so its tokens have another width. "
                f"Give the {argument('tokenizer')} that it was made with."
            )
        yield shard


def _names(folder: Path, number: int) -> tuple[NDArray[np.uint8], NDArray[np.uint64]] | None:
    text, offsets = (folder / f"{name}.{number}" for name in ("metadata", "metaoff"))
    sizes = [each.stat().st_size if each.is_file() else 0 for each in (text, offsets)]
    if not all(sizes) or sizes[1] % 8:
        return None
    return np.memmap(text, dtype=np.uint8, mode="r"), np.memmap(offsets, dtype="<u8", mode="r")


def _engine(folder: Path, width: Width, shards: int) -> Any:
    try:
        from infini_gram.engine import InfiniGramEngine
    except ImportError as error:
        raise RoteError(MISSING) from error
    separator = 256**width - 1
    # The engine takes every file with "table" or the like anywhere in its path for one of its own, and shards in the
    # order of the alphabet, table.10 before table.2. So it is given links to what it needs, in a folder whose name has
    # no words in it, with numbers of one length. It maps all files at once, and needs the links no longer.
    with tempfile.TemporaryDirectory() as links:
        for number in range(shards):
            for name in ("tokenized", "offset", "table"):
                (Path(links) / f"{name}.{number:08}").symlink_to((folder / f"{name}.{number}").resolve())
        held = os.open(links, os.O_RDONLY)
        try:
            place = f"/proc/self/fd/{held}"
            # The two ids matter to what is not used here; they must be below the separator.
            return InfiniGramEngine(place, eos_token_id=0, vocab_size=separator, version=4, token_dtype=f"u{8 * width}")
        finally:
            os.close(held)


MISSING = "searching a corpus needs the package infini-gram (Linux, x86): pip install 'rote[index]'."
