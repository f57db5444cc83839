"""The folder of a benchmark that was built: what it was built from, what each filter let through, and its examples."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from rote.corpus.bench import write_ids
from rote.corpus.formats import write_examples
from rote.errors import InputError, RunError, argument
from rote.models.base import ModelIdentity
from rote.options import require_number, require_whole
from rote.store.files import FORMAT, make_folder, pretty, read_declared, write_whole
from rote.store.seal import check_seal, write_seal
from rote.tokens import Example

BENCH = "bench.json"
CHECKED = "checked"
REJECTED = "rejected.parquet"
AGAIN = "Delete the folder, and run rote bench build again."


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """What an example must satisfy; lengths in tokens. See `rote.bench.build`."""

    prefix: int
    suffix: int
    repetitions: int
    entropy: float
    longer: list[int]
    tries: int
    apart: int

    def __post_init__(self) -> None:
        for name in ("prefix", "suffix", "tries"):
            require_whole(name, getattr(self, name))
        require_whole("repetitions", self.repetitions, 2)
        if not 0 <= require_number("entropy", self.entropy) < float("inf"):
            raise InputError(f"{argument('entropy')} must be at least 0 bits and finite, not {self.entropy}.")
        if not self.longer or min(require_whole("longer", length) for length in self.longer) <= self.prefix:
            raise InputError(
                f"{argument('longer')} must be lengths above {self.prefix}, the tokens of {argument('prefix')}, not "
                f"{list(self.longer)}."
            )
        require_whole("apart", self.apart, 1, self.prefix + self.suffix)

    @property
    def length(self) -> int:
        """Of an example."""
        return self.prefix + self.suffix

    @property
    def before(self) -> int:
        """How many tokens must stand before an example, so that every longer prefix can be tried."""
        return max(self.longer) - self.prefix


@dataclass(frozen=True, kw_only=True)
class BenchCorpus:
    """The index that was searched; `id` stands for its tokens."""

    name: str
    id: str
    documents: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Filtered:
    """A filter: how many it was `given`, and how many of them `passed`. `reason`: why the others did not."""

    name: str
    reason: str
    given: int
    passed: int


@dataclass(frozen=True, kw_only=True)
class BenchManifest:
    """What a benchmark was built from. The last five fields are there when it is finished.

    `sizes`: how many examples each split was to have; `splits`: has. `places`: in the corpus, that have room for an
    example; `candidates`: the different sequences among them that stand there often enough; `looked_at`: how many of
    these, in random order, until there were enough examples.
    """

    format: int
    kind: Literal["bench"]
    created: str
    corpus: BenchCorpus
    model: ModelIdentity
    criteria: Criteria
    sizes: dict[str, int]
    seed: int
    versions: dict[str, str]
    places: int | None = None
    candidates: int | None = None
    looked_at: int | None = None
    filters: list[Filtered] | None = None
    splits: dict[str, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Emitted:
    """The longer prefix that made the model emit a suffix: its length, and the example's place behind it."""

    tokens: int
    document: int
    token: int


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What the model said of a chunk of candidates, in their order; None: no longer prefix made it emit the suffix."""

    format: int
    found: list[Emitted | None]


@dataclass(frozen=True)
class StoredBench:
    """A benchmark that was built."""

    folder: Path
    result: BenchManifest


def open_bench(folder: Path) -> StoredBench:
    """One that is finished, its files as they were then."""
    result = read_declared(folder / BENCH, BenchManifest, AGAIN)
    if result.splits is None:
        raise RunError(f"the benchmark {folder} is not finished. Run the same rote bench build again to go on.")
    check_seal(folder)
    return StoredBench(folder, result)


def begin(folder: Path, asked: BenchManifest) -> BenchManifest:
    """What the folder is a benchmark of; one that was built otherwise is refused."""
    if not (folder / BENCH).is_file():
        other = next((path.name for path in folder.iterdir() if path.name not in (".lock", "index")), None)
        if other is not None:
            raise RunError(
                f"{folder} is not empty (it has {other}) and holds no benchmark. Choose another {argument('out')}."
            )
        write_whole(folder / BENCH, pretty(asked))
        return asked
    stored = read_declared(folder / BENCH, BenchManifest, AGAIN)
    for name, before, now in _deciding(stored, asked):
        if before != now:
            raise RunError(
                f"{folder} holds a benchmark that was built differently: its {name} is {before}, this command's {now}. "
                f"Choose another {argument('out')}, or delete the folder to start anew."
            )
    return stored


def _deciding(stored: BenchManifest, asked: BenchManifest) -> list[tuple[str, Any, Any]]:
    names = ("fingerprint", "dtype", "bos_token")
    return [
        ("corpus", stored.corpus.id, asked.corpus.id),
        *((f"model's {name}", getattr(stored.model, name), getattr(asked.model, name)) for name in names),
        *((name, getattr(stored.criteria, name), now) for name, now in vars(asked.criteria).items()),
        ("sizes", stored.sizes, asked.sizes),
        ("seed", stored.seed, asked.seed),
    ]


def read_checked(folder: Path, number: int) -> list[Emitted | None] | None:
    """What the model said of a chunk; None: it was not asked yet."""
    path = _chunk(folder, number)
    return read_declared(path, Checked, AGAIN).found if path.is_file() else None


def write_checked(folder: Path, number: int, found: Sequence[Emitted | None]) -> None:
    make_folder(folder / CHECKED)
    write_whole(_chunk(folder, number), pretty(Checked(format=FORMAT, found=list(found))))


def _chunk(folder: Path, number: int) -> Path:
    return folder / CHECKED / f"{number:05d}.json"


def write_rejected(folder: Path, rejected: Mapping[str, Sequence[Any]]) -> None:
    out = io.BytesIO()
    pl.DataFrame(rejected).write_parquet(out, compression="zstd")
    write_whole(folder / REJECTED, out.getvalue())


def close(
    folder: Path,
    finished: BenchManifest,
    examples: Sequence[Example],
    before: Sequence[Sequence[int]],
    vocabulary: int,
) -> StoredBench:
    """Write the examples, each with what stood `before` it, in the public format and in ours, and seal the folder."""
    names, at = [REJECTED, "examples.jsonl"], 0
    for split, size in (finished.splits or {}).items():
        own, own_before = examples[at : at + size], before[at : at + size]
        parts = {"preprefix": own_before, "prefix": [e.prefix for e in own], "suffix": [e.suffix for e in own]}
        for part, rows in parts.items():
            if size:
                names.append(f"{split}_{part}.npy")
                write_ids(folder / names[-1], np.array(rows, dtype=np.int64), vocabulary)
        at += size
    write_examples(folder / "examples.jsonl", examples)
    content = pretty(finished)
    write_seal(folder, names, {BENCH: content})
    write_whole(folder / BENCH, content)
    shutil.rmtree(folder / CHECKED, ignore_errors=True)
    return open_bench(folder)
