"""The folder of `rote probe`: texts, their words, every question with its answer, and what these come to."""

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
from rote.store import run
from rote.store.files import declared, line, make_folder, pretty, read_declared, write_whole
from rote.store.probe import ProbeManifest, ProbeSummary
from rote.store.seal import SEAL, Seal, check_seal, shards_in, words_in, write_seal
from rote.store.table import ShardFacts, read_facts, read_shard, write_table

TEXTS = "texts.jsonl"
CHOSEN = "chosen.parquet"
VERDICTS = "verdicts.parquet"

WORDS_SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("word", pa.string()),
        ("classes", pa.list_(pa.string())),  # of content, person, number
        ("elsewhere", pa.int32()),  # other places of the passage where it stands
        ("log_likelihood", pa.float64()),
        ("rank", pa.int64()),
        ("pieces", pa.int32()),
        ("count", pa.int64()),  # of the rarest three-word run that it is part of, in a corpus
    ]
)
"""words/: one row for each word that might be asked for."""

CHOSEN_SCHEMA = pa.schema(
    [
        *WORDS_SCHEMA,
        ("selectors", pa.list_(pa.string())),  # that chose it; slot: a model picked it
        ("guessed", pa.list_(pa.int32())),  # the filters that guessed or listed it, by their places
        ("asked", pa.bool_()),  # whether targets were asked for it
    ]
)
"""chosen.parquet: the words that were chosen."""

QUESTIONS_SCHEMA = pa.schema(
    [
        ("role", pa.string()),
        ("model", pa.int32()),  # its place among the models of its role
        ("method", pa.string()),  # cloze, prefix, decop, slot; guess and list of filters; paraphrase; pick
        ("text", pa.string()),
        ("start", pa.int64()),  # of the word that is masked
        ("end", pa.int64()),
        ("word", pa.string()),
        ("order", pa.string()),  # of DE-COP: where the original (A) and the paraphrases (B, C, D) stand, such as BADC
        ("prompt", pa.string()),
        ("answer", pa.string()),
        ("said", pa.string()),  # what was read out of the answer
        ("outcome", pa.string()),
        ("why", pa.string()),  # which part of the rule decided, or what the error was
        ("common", pa.int32()),  # of prefix: words in the longest common subsequence
        ("words", pa.int32()),  # of prefix: words of the true continuation
        ("ended", pa.string()),
        ("refusal", pa.string()),
        ("served", pa.string()),  # what the server says the model is
        ("prompt_tokens", pa.int64()),
        ("answer_tokens", pa.int64()),
        ("attempts", pa.int32()),
    ]
)
"""scores/: one row for each question."""

VERDICTS_SCHEMA = pa.schema(
    [
        ("target", pa.int32()),
        ("name", pa.string()),  # of the method, as `Probed` has it
        ("text", pa.string()),
        ("questions", pa.int32()),
        ("hits", pa.int32()),
        ("value", pa.float64()),  # null: the text has no score
        ("without", pa.string()),  # why nothing was asked about it
        ("threshold", pa.float64()),  # at or above which it is flagged; null where there is none
        ("flagged", pa.bool_()),
    ]
)
"""verdicts.parquet: one row for each text, target and method."""

_AGAIN = "Run the command that made it again to restore it."


def empty(schema: pa.Schema) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(schema.empty_table()))


@dataclass(frozen=True, kw_only=True)
class ProbeView:
    """A finished folder, read once, as everything that shows it takes it. `texts` by id, in their order."""

    folder: Path
    manifest: ProbeManifest
    summary: ProbeSummary
    seal: str
    texts: Mapping[str, LabelledText]
    chosen: pl.DataFrame
    questions: pl.DataFrame
    verdicts: pl.DataFrame


@dataclass(frozen=True)
class StoredProbe:
    """One folder: probes of chat models. What was read of it is kept: one that goes on is opened anew."""

    folder: Path

    @cached_property
    def seal(self) -> Seal:
        """Its seal, held against every sealed file; a folder that is unfinished, or does not fit it, is refused."""
        if not (self.folder / "summary.json").is_file() or not self.shards():
            raise RunError(
                f"{self.folder} is unfinished ({self.progress()}); run the command that made it again to finish it."
            )
        return self._fitting or check_seal(self.folder)

    @cached_property
    def _fitting(self) -> Seal | None:
        """Its seal, held against every sealed file, once; None where there is none yet."""
        return check_seal(self.folder) if (self.folder / SEAL).is_file() else None

    @cached_property
    def manifest(self) -> ProbeManifest:
        _ = self._fitting
        return read_declared(self.folder / "manifest.json", ProbeManifest, "Make it anew, in another folder.")

    @cached_property
    def summary(self) -> ProbeSummary:
        """What the answers came to. A folder that has not ended, or was changed since, is refused."""
        _ = self.seal
        return read_declared(self.folder / "summary.json", ProbeSummary, _AGAIN)

    @cached_property
    def texts(self) -> dict[str, LabelledText]:
        """The texts by id, in their order."""
        _ = self.manifest
        path = self.folder / TEXTS
        try:
            lines = path.read_bytes().decode("utf-8", "surrogatepass")
            records = [json.loads(entry) for entry in filter(None, lines.split("\n"))]
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}. {_AGAIN}") from error
        return {text.id: text for text in declared(records, list[LabelledText], path, _AGAIN)}

    @cached_property
    def words(self) -> pl.DataFrame:
        """The words that might be asked for, as far as they are stored."""
        _ = self.manifest
        shards = words_in(self.folder)
        return pl.concat([empty(WORDS_SCHEMA), *(read_shard(path, WORDS_SCHEMA) for path in shards)])

    @cached_property
    def chosen(self) -> pl.DataFrame:
        """The words that were chosen."""
        _ = self.seal
        return read_shard(self.folder / CHOSEN, CHOSEN_SCHEMA)

    @cached_property
    def questions(self) -> pl.DataFrame:
        """Every question and its answer."""
        _ = self.seal
        return pl.concat([empty(QUESTIONS_SCHEMA), *(read_shard(path, QUESTIONS_SCHEMA) for path in self.shards())])

    @cached_property
    def verdicts(self) -> pl.DataFrame:
        """What each method says of each text."""
        _ = self.seal
        return read_shard(self.folder / VERDICTS, VERDICTS_SCHEMA)

    @cached_property
    def view(self) -> ProbeView:
        """All of a finished folder."""
        return ProbeView(
            folder=self.folder, manifest=self.manifest, summary=self.summary, seal=self.seal.id, texts=self.texts,
            chosen=self.chosen, questions=self.questions, verdicts=self.verdicts,
        )  # fmt: skip

    def shards(self) -> list[Path]:
        return shards_in(self.folder)

    def facts(self) -> list[ShardFacts]:
        return [read_facts(path) for path in words_in(self.folder)]

    def progress(self) -> str:
        stored = len(words_in(self.folder))
        return f"words of {stored} of {counted(self.manifest.shards, 'shard')} of texts stored"


# --- writing


def text_lines(texts: Iterable[LabelledText]) -> bytes:
    """What texts.jsonl holds."""
    return b"".join(map(line, texts))


def begin(folder: Path, manifest: ProbeManifest, texts: bytes) -> None:
    """Start the folder, or make sure that what it holds is the beginning of this very run. `texts`: texts.jsonl."""
    run.begin(folder, manifest, content={TEXTS: texts})
    make_folder(folder / "words")


def has_words(folder: Path, index: int) -> bool:
    return _words(folder, index).is_file()


def add_words(folder: Path, index: int, rows: Sequence[Mapping[str, Any]], facts: ShardFacts) -> None:
    """Store the words of one shard of texts."""
    write_table(_words(folder, index), _table(rows, WORDS_SCHEMA), facts)


def finish(
    folder: Path,
    summary: ProbeSummary,
    *,
    chosen: Sequence[Mapping[str, Any]],
    questions: Sequence[Mapping[str, Any]],
    verdicts: pl.DataFrame,
) -> Seal:
    """Write the answers and what they come to, and seal all: not the page or the store of answers."""
    path, none = folder / "summary.json", ShardFacts(0.0, [])
    path.unlink(missing_ok=True)  # of before: it would not fit the seal
    write_table(folder / CHOSEN, _table(chosen, CHOSEN_SCHEMA), none)
    write_table(folder / "scores" / "000000.parquet", _table(questions, QUESTIONS_SCHEMA), none)
    write_table(folder / VERDICTS, verdicts.to_arrow().cast(VERDICTS_SCHEMA), none)
    words = [f"words/{shard.name}" for shard in words_in(folder)]
    scores = [f"scores/{shard.name}" for shard in shards_in(folder)]
    content = pretty(summary)
    seal = write_seal(folder, ["manifest.json", TEXTS, *words, CHOSEN, *scores, VERDICTS], {"summary.json": content})
    write_whole(path, content)
    return seal


def as_frame(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pl.DataFrame:
    """Rows as they will be read again."""
    return pl.DataFrame(pl.from_arrow(_table(list(rows), schema)))


def _table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    if unknown := {name for row in rows for name in row} - set(schema.names):
        raise ValueError(f"{sorted(unknown)} are no columns of this table")
    return pa.Table.from_pylist(list(rows), schema=schema)


def _words(folder: Path, index: int) -> Path:
    return folder / "words" / f"{index:06d}.parquet"
