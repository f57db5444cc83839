"""The files of an index, shard by shard, and infini-gram's engine on them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rote.errors import InputError, RoteError, argument

Width = Literal[1, 2, 4]
WIDTHS: tuple[Width, ...] = (1, 2, 4)


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


def open_shards(folder: Path, width: Width) -> Iterator[Shard]:
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


def open_engine(folder: Path, width: Width, shards: int) -> Any:
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
