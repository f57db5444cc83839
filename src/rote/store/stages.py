"""A scan in stages: how it is asked for, all its windows, which of them each stage scored, and how far it has come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from rote.errors import RunError
from rote.options import Option, require_whole, settle
from rote.store.files import FORMAT, line, make_folder, read_declared, write_whole
from rote.tokens import Example

WINDOWS = "windows.parquet"
PLACES = pa.schema([("start", pa.int64()), ("suffix_start", pa.int64()), ("suffix_end", pa.int64())])

StageKind = Literal["tiles", "closer", "audit"]
"""`tiles`: windows whose suffixes cover the text once. `closer`: where others may reach tau. `audit`: of the rest."""


@dataclass(frozen=True)
class Refine:
    """A scan in stages: windows that cover the text once, then those that may reach tau, then a check on the rest.

    `audit`: how many of the windows that were left out are drawn and scored in the end, so that what was missed is
    bounded; 0 leaves that open. `audit_seed` decides which.
    """

    audit: Annotated[int, Option("Windows drawn from those left out and scored, to bound what was missed.")] = 1000
    audit_seed: Annotated[int, Option("Decides which windows are drawn.")] = 0

    def __post_init__(self) -> None:
        for name in ("audit", "audit_seed"):
            settle(self, name, require_whole(name, getattr(self, name), 0))


RefineIf = Annotated[
    Refine | None, Option("Score windows that tile the text, then only where others may reach tau; audit the rest.")
]
"""A scan in stages, where it is asked for."""


@dataclass(frozen=True, kw_only=True)
class Refined(Refine):
    """How a scan was made in stages; it has so many `windows` in all, and `closer` stages between first and audit."""

    audit: int
    audit_seed: int
    windows: int
    closer: int

    @property
    def stages(self) -> int:
        return self.closer + 2


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The windows of one stage, by their starts in the text."""

    format: int
    kind: StageKind
    starts: list[int]

    def shards(self, size: int) -> int:
        """Over how many shards its windows are spread, `size` to each."""
        return math.ceil(len(self.starts) / size)


@dataclass(frozen=True, kw_only=True)
class Staged:
    """How far a scan in stages has come: so many `ended` of all `stages`; of all `windows`, so many have a number.

    `audited` of these were drawn from what was left out; `token_evals` without and `audit_token_evals` for them.
    """

    ended: int
    stages: int
    windows: int
    scored: int
    audited: int
    token_evals: int
    audit_token_evals: int


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Of the `left_out` windows so many were `drawn`; `hits` of these reach tau, so of all at most a share `bound`.

    `bound` is the one-sided 95% Clopper-Pearson limit, or less where so few were not drawn; 1 where none was drawn.
    """

    left_out: int
    drawn: int
    hits: int
    bound: float


def place_bytes(windows: Sequence[Example]) -> bytes:
    """Where all windows of a scan stand: windows.parquet."""
    columns = {name: [getattr(window, name) for window in windows] for name in PLACES.names}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=PLACES), sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_places(folder: Path) -> pl.DataFrame:
    """Where all windows of a scan in stages stand, scored or not."""
    path = folder / WINDOWS
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
        if not table.schema.equals(PLACES):
            raise ValueError("its columns are not those of windows")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise RunError(
            f"cannot read {path} ({error}). Run the command that made the run again to restore it."
        ) from error
    return pl.DataFrame(pl.from_arrow(table))


def stage_path(folder: Path, number: int) -> Path:
    return folder / "stages" / f"{number:02d}.json"


def read_stage(path: Path) -> Stage:
    return read_declared(path, Stage, "Delete it and run the command that made the run again.")


def add_stage(folder: Path, number: int, kind: StageKind, starts: list[int]) -> Stage:
    """Note which windows a stage scores, before any of them is."""
    stage = Stage(format=FORMAT, kind=kind, starts=starts)
    make_folder(folder / "stages")
    write_whole(stage_path(folder, number), line(stage))
    return stage
