"""The folder of `rote member`: texts, a row of scores for each, and what these come to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from rote.corpus.texts import LabelledText
from rote.errors import RunError, counted
from rote.membership.scores import SCORES
from rote.store import run
from rote.store.files import declared, digest, line, pretty, read_declared, write_whole
from rote.store.member import MemberManifest, MemberSummary, Part, TextsSource
from rote.store.seal import SEAL, Seal, check_seal, shards_in, write_seal
from rote.store.table import ShardFacts, read_facts, read_shard, write_table

TEXTS = "texts.jsonl"

SCHEMA = pa.schema(
    [
        ("part", pa.string()),
        ("id", pa.string()),
        ("label", pa.bool_()),
        ("group", pa.string()),
        ("date", pa.string()),
        ("repetitions", pa.int64()),
        ("characters", pa.int64()),
        ("tokens", pa.int64()),
        ("windows", pa.int32()),
        ("token_evals", pa.int64()),
        ("scored_start", pa.int64()),
        ("token_ends", pa.list_(pa.int64())),
        ("token_log_probs", pa.list_(pa.float32())),
        ("token_z", pa.list_(pa.float32())),
        # of the other passes; null where there were none
        ("lowercase_loss", pa.float64()),
        ("reference_loss", pa.float64()),
        ("prefixed_loss", pa.float64()),
        ("lowercase_evals", pa.int64()),
        ("reference_evals", pa.int64()),
        ("prefixed_evals", pa.int64()),
        ("windows_evals", pa.int64()),
        ("windows_tried", pa.int32()),
        ("best_start", pa.int64()),
        *((score.name, pa.float64()) for score in SCORES),
    ]
)
EMPTY = pl.DataFrame(pl.from_arrow(SCHEMA.empty_table()))

_AGAIN = "Run the command that made it again to restore it."


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredText:
    """One line of texts.jsonl: a text as it was read, and what was said of it; see `rote.corpus.texts`."""

    part: Part
    id: str
    text: str
    label: bool | None
    group: str | None
    date: str | None
    repetitions: int | None


@dataclass(frozen=True, kw_only=True)
class MemberView:
    """A finished folder, read once, as everything that shows it takes it. `rows`: a row per text, and its `text`."""

    folder: Path
    manifest: MemberManifest
    summary: MemberSummary
    seal: str
    rows: pl.DataFrame


@dataclass(frozen=True)
class StoredMembership:
    """One folder: the scores of texts. What was read of it is kept: one that goes on is opened anew."""

    folder: Path

    @cached_property
    def seal(self) -> Seal:
        """Its seal, held against every sealed file; a folder that is unfinished, or does not fit it, is refused."""
        if len(self.shards()) < self.manifest.shards or not (self.folder / "summary.json").is_file():
            raise RunError(
                f"{self.folder} is unfinished ({self.progress()}); run the command that made it again to finish it."
            )
        return self._fitting or check_seal(self.folder)

    @cached_property
    def _fitting(self) -> Seal | None:
        """Its seal, held against every sealed file, once; None where there is none yet."""
        return check_seal(self.folder) if (self.folder / SEAL).is_file() else None

    @cached_property
    def manifest(self) -> MemberManifest:
        _ = self._fitting
        return read_declared(self.folder / "manifest.json", MemberManifest, "Make it anew, in another folder.")

    @cached_property
    def summary(self) -> MemberSummary:
        """What the scores came to. A folder that has not ended, or was changed since, is refused."""
        _ = self.seal
        return read_declared(self.folder / "summary.json", MemberSummary, _AGAIN)

    @cached_property
    def texts(self) -> list[StoredText]:
        """The texts in their order, those asked about first."""
        _ = self.manifest
        path = self.folder / TEXTS
        try:
            lines = path.read_bytes().decode("utf-8", "surrogatepass")
            records = [json.loads(entry) for entry in filter(None, lines.split("\n"))]
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}. {_AGAIN}") from error
        return declared(records, list[StoredText], path, _AGAIN)

    @cached_property
    def scores(self) -> pl.DataFrame:
        """One row per text, in the order of the texts, as far as they are stored."""
        _ = self.manifest
        return pl.concat([EMPTY, *(read_shard(path, SCHEMA) for path in self.shards())])

    @cached_property
    def rows(self) -> pl.DataFrame:
        """The scores, and each one's `text`."""
        texts = self.texts[: self.scores.height]
        if [(text.part, text.id) for text in texts] != self.scores.select("part", "id").rows():
            raise RunError(f"{self.folder / TEXTS} does not hold the texts that were scored. {_AGAIN}")
        return self.scores.with_columns(pl.Series("text", [text.text for text in texts], dtype=pl.String))

    @cached_property
    def view(self) -> MemberView:
        """All of a finished folder."""
        return MemberView(
            folder=self.folder, manifest=self.manifest, summary=self.summary, seal=self.seal.id, rows=self.rows
        )

    def shards(self) -> list[Path]:
        return shards_in(self.folder)

    def facts(self) -> list[ShardFacts]:
        return [read_facts(path) for path in self.shards()]

    def progress(self) -> str:
        return f"{len(self.shards())} of {counted(self.manifest.shards, 'shard')} stored"


# --- writing


def texts_source(name: str, texts: Sequence[LabelledText]) -> TextsSource:
    """What a manifest says of texts."""
    known = b"".join(map(line, texts)).decode("utf-8", "surrogatepass")
    return TextsSource(name=name, sha256=digest(known), texts=len(texts))


def text_lines(texts: Iterable[StoredText]) -> bytes:
    """What texts.jsonl holds."""
    return b"".join(map(line, texts))


def begin(folder: Path, manifest: MemberManifest, texts: bytes) -> None:
    """Start the folder, or make sure that what it holds is the beginning of this very run. `texts`: texts.jsonl."""
    run.begin(folder, manifest, content={TEXTS: texts})


def has_shard(folder: Path, index: int) -> bool:
    return _shard(folder, index).is_file()


def add_shard(
    folder: Path, index: int, rows: Sequence[Mapping[str, Any]], seconds: float, warnings: Sequence[str]
) -> None:
    """Store one shard: rows by the columns of `SCHEMA`; a column that a row has not is null."""
    if unknown := {name for row in rows for name in row} - set(SCHEMA.names):
        raise ValueError(f"{sorted(unknown)} are no columns of the scores of texts")
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    write_table(_shard(folder, index), table, ShardFacts(seconds, list(warnings)))


def finish(folder: Path, summary: MemberSummary) -> Seal:
    """Write the summary, and seal all that the run rests on: not its page, exports or lock, which can be made anew."""
    content, path = pretty(summary), folder / "summary.json"
    if path.is_file() and path.read_bytes() != content:
        path.unlink()  # of before: it would not fit the seal
    shards = [f"scores/{shard.name}" for shard in shards_in(folder)]
    seal = write_seal(folder, ["manifest.json", TEXTS, *shards], {"summary.json": content})
    write_whole(path, content)
    return seal


def _shard(folder: Path, index: int) -> Path:
    return folder / "scores" / f"{index:06d}.parquet"
