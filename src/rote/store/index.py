"""The folder of an index: what it was made of, its shards, and how they are written and opened."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rote.corpus.index import CorpusIndex, Unit
from rote.corpus.readings import Reader
from rote.corpus.shards import MISSING, Width, numbers_of, width_of
from rote.errors import InputError, ModelError, RoteError, RunError, argument
from rote.models.fingerprint import tokenizer_hash
from rote.models.tokenizer import load_tokenizer
from rote.store.files import FORMAT, pretty, read_declared, whole_file, write_whole
from rote.store.seal import hash_of

INDEX = "index.json"
MEMORY = {1: 20, 2: 12, 4: 12}
"""Bytes of memory that sorting takes for a byte of tokens, by their width: measured 18, 10.6 and 10.4."""

AGAIN = "Delete the folder, and run rote index build again."


@dataclass(frozen=True, kw_only=True)
class IndexedShard:
    """What is in a shard; `sha256` is that of its token file, `table` that of its table, once there is one."""

    documents: int
    tokens: int
    sha256: str
    table: str | None = None


@dataclass(frozen=True, kw_only=True)
class IndexManifest:
    """What an index was made of. `shards`: None while it is being built; `tokenizer` and `model`: None with bytes.

    `listing` is the SHA-256 of the documents' ids and of their files' hashes, `tokenizer` the hash of the tokenizer.
    """

    format: int
    kind: Literal["index"]
    created: str
    corpus: str
    documents: int
    listing: str
    unit: Unit
    model: str | None
    revision: str | None
    tokenizer: str | None
    vocabulary: int
    width: Width
    shard_bytes: int
    versions: dict[str, str]
    shards: list[IndexedShard] | None = None

    @property
    def id(self) -> str:
        """A number that stands for the tokens of all documents."""
        return hashlib.sha256(" ".join(shard.sha256 for shard in self.shards or ()).encode()).hexdigest()


@dataclass(frozen=True)
class StoredIndex:
    """An index that was opened. `manifest`: None where it is not one of Rote's."""

    folder: Path
    index: CorpusIndex
    manifest: IndexManifest | None
    named: str | None
    expected: str | None

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer that it was made with, from this machine's own files; None: it goes by bytes."""
        if self.named is None:
            return None
        revision = None if self.manifest is None else self.manifest.revision
        try:
            return load_tokenizer(self.named, revision=revision, expected=self.expected)
        except ModelError as error:
            raise InputError(
                f"the index {self.folder} needs the tokenizer it was made with: {str(error).rstrip('.')}. Say where "
                f"that is with {argument('tokenizer')}: the folder or the hub id of a model that has it."
            ) from error

    @cached_property
    def reader(self) -> Reader:
        return Reader(self.tokenizer)

    @property
    def id(self) -> str:
        """A number that tells it from others: of the tokens, or of another's index, of its files' sizes and ends."""
        return _foreign_id(self.folder) if self.manifest is None else self.manifest.id

    def require_tokenizer(self, of: str, hashed: str | None) -> None:
        """Refuse a model whose tokens are not those of the index."""
        if self.index.unit == "bytes":
            return
        own = self.expected or tokenizer_hash(self.tokenizer)
        if own != hashed:
            raise InputError(
                f"the index {self.folder} was made with another tokenizer ({self.named}) than that of {of}, so its "
                f"tokens mean nothing to it. Build one with rote index build --model {of}, or one for every model "
                "with --bytes."
            )


def open_index(folder: str | Path, tokenizer: str | None = None) -> StoredIndex:
    """An index of Rote's, or any of infini-gram's: that one needs its `tokenizer`, a model's name or "bytes"."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"there is no folder {folder}. Give the folder of an index, as rote index build makes it.")
    if (path / INDEX).is_file():
        manifest = read_index(path)
        if manifest.shards is None:
            raise RunError(f"the index {folder} is not finished. Run the same rote index build again to go on.")
        if tokenizer is not None and manifest.unit == "bytes":
            raise InputError(f"the index {folder} is one of bytes; leave {argument('tokenizer')} out.")
        if tokenizer == "bytes":
            raise InputError(f"the index {folder} is one of tokens; leave {argument('tokenizer', tokenizer)} out.")
        index = CorpusIndex(path, manifest.unit, manifest.width, manifest.vocabulary)
        found = [(len(shard.offsets), len(shard.tokens) - len(shard.offsets)) for shard in index.parts]
        if found != [(shard.documents, shard.tokens) for shard in manifest.shards]:
            raise RunError(f"the files in {folder} are not those that its {INDEX} lists. Copy the whole index again.")
        return StoredIndex(path, index, manifest, tokenizer or manifest.model, manifest.tokenizer)
    if not (path / "tokenized.0").is_file():
        raise InputError(f"{folder} holds no index: it has no {INDEX} and no tokenized.0. Give the folder of an index.")
    if tokenizer is None:
        raise InputError(
            f"{folder} has no {INDEX} of Rote's, so nothing says which tokenizer it was made with. Name it with "
            f"{argument('tokenizer')}: a model folder, a hub id, or bytes."
        )
    if tokenizer == "bytes":
        return StoredIndex(path, CorpusIndex(path, "bytes", 1, 256), None, None, None)
    loaded = load_tokenizer(tokenizer)
    # infini-gram's own builder knows tokens of two bytes for vocabularies that have room in them, and of four.
    width: Width = 4 if width_of(len(loaded)) == 4 else 2
    return StoredIndex(path, CorpusIndex(path, "tokens", width, len(loaded)), None, tokenizer, tokenizer_hash(loaded))


def read_index(folder: Path) -> IndexManifest:
    return read_declared(folder / INDEX, IndexManifest, AGAIN)


def write_index(folder: Path, manifest: IndexManifest) -> None:
    write_whole(folder / INDEX, pretty(manifest))


# --- shards


def finished_shards(folder: Path) -> list[IndexedShard]:
    """Those of a build that was stopped, one after the other from the first."""
    found: list[IndexedShard] = []
    while (path := _facts(folder, len(found))).is_file():
        found.append(read_declared(path, _Facts, AGAIN).shard)
    return found


@dataclass(frozen=True, kw_only=True)
class _Facts:
    format: int
    shard: IndexedShard


def _facts(folder: Path, number: int) -> Path:
    return folder / f"shard.{number}.json"


def write_tokens(
    folder: Path, number: int, documents: Iterator[tuple[dict[str, Any], Sequence[int]]], width: Width, room: int
) -> IndexedShard:
    """Write documents (what is said of each, its tokens) to a shard until it has `room` bytes, or there are no more."""
    separator, hashed = b"\xff" * width, hashlib.sha256()
    offsets, names, begins = [], [], []
    size = said = 0
    with ExitStack() as files:
        tokens = files.enter_context(whole_file(folder / f"tokenized.{number}"))
        for about, ids in documents:
            content = (
                separator
                + np.asarray(
                    np.frombuffer(ids, np.uint8) if isinstance(ids, bytes) else ids, dtype=numbers_of(width)
                ).tobytes()
            )
            tokens.write(content)
            hashed.update(content)
            line = (json.dumps(about, ensure_ascii=False) + "\n").encode()
            offsets.append(size)
            names.append(line)
            begins.append(said)
            size, said = size + len(content), said + len(line)
            if size >= room:
                break
    write_whole(folder / f"offset.{number}", np.array(offsets, dtype="<u8").tobytes())
    write_whole(folder / f"metadata.{number}", b"".join(names))
    write_whole(folder / f"metaoff.{number}", np.array(begins, dtype="<u8").tobytes())
    count = len(offsets)
    return IndexedShard(documents=count, tokens=size // width - count, sha256=hashed.hexdigest())


def sort_tokens(folder: Path, number: int, width: Width, shard: IndexedShard) -> IndexedShard:
    """The table of a shard, by infini-gram's builder; then the shard is finished.

    The builder sorts by the bytes of tokens. For tokens of four bytes it would keep a count of each of 2**32 ids, in 34
    GB; so it is told that they are twice as many of two bytes, and those suffixes that begin inside a token are left
    out afterwards. What it calls a part of a table is all of it here: parts are for files that are larger than memory,
    and are not exact for matches of more than 100,000 bytes.
    """
    tokens = folder / f"tokenized.{number}"
    size, unit = tokens.stat().st_size, min(width, 2)
    entry = max(1, -(-(size - 1).bit_length() // 8))  # bytes of a place in the file
    needed = (size // unit + (size // width if width > unit else 0)) * entry
    if (free := shutil.disk_usage(folder).free) < needed:
        raise RunError(
            f"the table of {tokens} needs {needed / 1e6:,.1f} MB, and {folder} has room for {free / 1e6:,.1f}. Free "
            "some space, then run the same command again: what is stored already is kept."
        )
    with tempfile.TemporaryDirectory(prefix="sort-", dir=folder) as parts:
        options = {
            "data-file": tokens, "parts-dir": parts, "start-byte": 0, "end-byte": size, "ratio": entry,
            "token-width": unit,
        }  # fmt: skip
        given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        done = subprocess.run([str(builder()), "make-part", *given], capture_output=True, text=True)
        made = Path(parts) / f"0-{size}"
        if done.returncode or not made.is_file():
            said = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("note: ")]
            last = said[-1].strip() if said else f"it ended with {done.returncode}"
            raise RunError(
                f"infini-gram's builder failed on {tokens}: {last}. If memory ran out ({MEMORY[width]} times the "
                f"{size:,} bytes), start anew with a smaller {argument('memory')}."
            )
        if width == unit:
            made.replace(folder / f"table.{number}")
        else:
            _keep_whole_tokens(made, folder / f"table.{number}", entry, width)
    sorted_shard = replace(shard, table=hash_of(folder / f"table.{number}"))
    write_whole(_facts(folder, number), pretty(_Facts(format=FORMAT, shard=sorted_shard)))
    return sorted_shard


def _keep_whole_tokens(made: Path, table: Path, entry: int, width: int) -> None:
    places = np.memmap(made, dtype=np.uint8, mode="r").reshape(-1, entry)
    with whole_file(table) as out:
        for first in range(0, len(places), 1 << 22):
            block = places[first : first + (1 << 22)]
            out.write(block[block[:, 0] % width == 0].tobytes())


def refuse_changed(folder: Path, shards: Sequence[IndexedShard]) -> None:
    """Raise a RunError where tokens or a table are not what they were when the index was built."""
    for number, shard in enumerate(shards):
        for name, expected in ((f"tokenized.{number}", shard.sha256), (f"table.{number}", shard.table)):
            path = folder / name
            if not path.is_file() or hash_of(path) != expected:
                raise RunError(f"{path} is gone, or was changed after the index was built. {AGAIN}")


def clear_away(folder: Path) -> None:
    """What a build that was killed left behind: it is made again."""
    for left in folder.glob("sort-*"):
        shutil.rmtree(left, ignore_errors=True)


def close(folder: Path, manifest: IndexManifest, shards: list[IndexedShard]) -> IndexManifest:
    """The index is whole."""
    finished = replace(manifest, shards=shards)
    write_index(folder, finished)
    for number in range(len(shards)):
        _facts(folder, number).unlink(missing_ok=True)
    return finished


def builder() -> Path:
    """The program of infini-gram that sorts."""
    try:
        import infini_gram
    except ImportError as error:
        raise RoteError(MISSING) from error
    return Path(str(infini_gram.__file__)).with_name("rust_indexing")


def _foreign_id(folder: Path) -> str:
    hashed = hashlib.sha256()
    for path in sorted(folder.glob("tokenized.*")):
        with path.open("rb") as file:
            size = path.stat().st_size
            hashed.update(f"{path.name} {size}\n".encode() + file.read(1 << 20))
            file.seek(max(0, size - (1 << 20)))
            hashed.update(file.read())
    return hashed.hexdigest()
