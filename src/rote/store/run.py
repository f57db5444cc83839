"""A run on disk: manifest, append-only Parquet shards, summary, seal and report. Nothing is ever written in place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from rote.errors import RunError, argument, counted
from rote.store.files import declared, digest, make_folder, pretty, read_declared, read_json, write_whole
from rote.store.manifest import Manifest, NearSearch, ScannedWindows, refuse_if_different
from rote.store.outputs import Outputs
from rote.store.parts import ScoreTable, shard_path
from rote.store.probe import TextsManifest
from rote.store.seal import ASIDE, SEAL, Seal, check_seal, reopen, shards_in, stages_in, words_in, write_seal
from rote.store.stages import WINDOWS, Stage, read_places, read_stage, stage_path
from rote.store.summary import Coverage, LookedAt, SchemeNumbers, Summary
from rote.store.table import NearColumns, Row, ShardFacts, read_facts, shard_bytes
from rote.store.variants import Trial, Variants
from rote.tokens import Example, Tokenised

if TYPE_CHECKING:  # reading a run needs no torch
    from rote.extraction.verbatim import Verbatim

_AGAIN = "Run the command that made the run again to restore it."


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExample:
    """An example as it was scored: its tokens, and their texts for the reader; `tokenised`: see `rote.Example`."""

    id: str
    prefix: list[int]
    suffix: list[int]
    prefix_text: str
    suffix_text: str
    metadata: dict[str, Any]
    tokenised: Tokenised | None = None


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The manifest and the summary of a finished run, the number of its seal, and what follows from them."""

    manifest: Manifest
    summary: Summary
    seal: str | None = None

    @property
    def scanned(self) -> bool:
        """Whether the rows are windows of one text, and not examples on their own."""
        return self.manifest.kind == "scan"

    @property
    def drawn(self) -> bool:
        """Whether the examples were drawn from a corpus, document by document."""
        return self.manifest.sampling is not None

    @property
    def unit(self) -> str:
        """What one row is called."""
        return "window" if self.scanned else "example"

    @property
    def scheme(self) -> str:
        """The first scheme, which is shown in full."""
        return self.manifest.schemes[0]

    @property
    def numbers(self) -> SchemeNumbers:
        """What the run came to under its first scheme."""
        return self.summary.schemes[self.scheme]

    @property
    def search(self) -> NearSearch:
        """How what comes near was searched for, in a run that did."""
        assert self.manifest.near is not None
        return self.manifest.near

    @property
    def coverage(self) -> dict[str, Coverage]:
        """What a scan covers, by threshold; nothing for examples on their own."""
        return self.numbers.coverage or {}

    @property
    def windows(self) -> ScannedWindows:
        """How a scan's text was cut."""
        assert self.manifest.windows is not None
        return self.manifest.windows

    @property
    def length(self) -> int:
        """Characters of a scan's text."""
        assert self.manifest.source.characters is not None
        return self.manifest.source.characters

    @property
    def looked_at(self) -> LookedAt:
        """What of a scan's text was measured at all."""
        assert self.summary.looked_at is not None
        return self.summary.looked_at

    @property
    def complete(self) -> bool:
        """Whether nothing is to come: a scan in stages can be read before that."""
        staged = self.summary.staged
        return staged is None or staged.ended == staged.stages

    @property
    def within(self) -> bool:
        """Whether a scan's windows were chosen, so that what they come to is not the text's."""
        return self.manifest.windows is not None and self.manifest.windows.within is not None


@dataclass(frozen=True)
class Passages:
    """The texts behind score rows: cut from the scanned `text`, or by id as they were `decoded` when scored.

    `tokenised`: how the prompts with targets among them became tokens, by id; see `rote.Example`.
    """

    text: str | None
    decoded: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    tokenised: Mapping[str, Tokenised] = field(default_factory=dict)

    @cached_property
    def apart(self) -> frozenset[str]:
        """Prompts that were tokenised apart from their targets, as the border falls inside a token."""
        return frozenset(name for name, way in self.tokenised.items() if way == "apart")

    def __getitem__(self, row: Row) -> tuple[str, str]:
        """Prefix and suffix of a row of the score table."""
        if self.text is None:
            return self.decoded[row["example_id"]]
        return self.text[row["start"] : row["suffix_start"]], self.text[row["suffix_start"] : row["suffix_end"]]


@dataclass(frozen=True, kw_only=True)
class RunView(Finished):
    """A finished run, read once, as everything that shows it takes it."""

    folder: Path
    scores: pl.DataFrame
    texts: Passages
    places: pl.DataFrame | None = None
    lacking: Callable[[Sequence[int]], pl.DataFrame] | None = None
    """Of a run that is too large to keep: rows of the first scheme by their numbers, with what `scores` lacks."""

    @property
    def text(self) -> str:
        """The text of a scan."""
        assert self.texts.text is not None
        return self.texts.text

    @cached_property
    def rows(self) -> pl.DataFrame:
        """The rows of the first scheme."""
        several = len(self.manifest.schemes) > 1
        return self.scores.filter(pl.col("scheme") == str(self.scheme)) if several else self.scores

    def completed(self, found: Sequence[Row]) -> list[Row]:
        """Rows that were found among `rows`, each with its number there as `row`, with all of their columns."""
        if self.lacking is None:
            return list(found)
        numbers = sorted({row["row"] for row in found})
        whole = dict(zip(numbers, self.lacking(numbers).iter_rows(named=True), strict=True))
        return [{"row": row["row"], **whole[row["row"]]} for row in found]

    @cached_property
    def left_out(self) -> pl.DataFrame | None:
        """The windows of a scan in stages that have no number, by their places; None where there are none such."""
        left = None if self.places is None else self.places.filter(~pl.col("start").is_in(self.rows["start"].implode()))
        return left if left is not None and left.height else None


@dataclass(frozen=True)
class StoredRun(ScoreTable):
    """One run folder. What was read of it is kept: a run that goes on is opened anew."""

    folder: Path

    @cached_property
    def seal(self) -> Seal:
        """Its seal, held against every sealed file; a run whose files do not fit it is refused."""
        self.refuse_unfinished()
        return self._fitting or check_seal(self.folder)

    @cached_property
    def _fitting(self) -> Seal | None:
        """Its seal, held against every sealed file, once; None where there is none yet."""
        return check_seal(self.folder) if (self.folder / SEAL).is_file() else None

    @cached_property
    def manifest(self) -> Manifest:
        _ = self._fitting
        again = "Make the run anew, in another folder."
        return read_declared(self.folder / "manifest.json", Manifest, again)

    def refuse_unfinished(self) -> None:
        """Raise a RunError where the run has not ended, or not one stage of a scan in stages."""
        shards = self.manifest.shards
        lacking = not self.stages if shards is None else len(self.shards()) < shards
        if lacking or not (self.folder / "summary.json").is_file():
            raise RunError(
                f"{self.folder} is unfinished ({self.progress()}); run the command that made it again to finish it."
            )

    @cached_property
    def text(self) -> str | None:
        """The text a scan was made of; None for a run over given examples, or where the file is gone."""
        path = self.folder / "text.txt"
        if not path.is_file():
            return None
        text = path.read_bytes().decode("utf-8", "surrogatepass")
        if digest(text) != self.manifest.source.sha256:
            raise RunError(
                f"{path} is not the text that was scored. Run the command that made {self.folder} again to restore it."
            )
        return text

    @cached_property
    def examples(self) -> list[StoredExample]:
        """The examples of a run that has no text, as they were scored: ids, tokens and what these say."""
        path = self.folder / "examples.jsonl"
        try:
            lines = path.read_bytes().decode("utf-8", "surrogatepass")
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}. {_AGAIN}") from error
        if digest(lines) != self.manifest.source.text_sha256:
            raise RunError(f"{path} does not hold the examples that were scored: it was changed or cut off. {_AGAIN}")
        records = [json.loads(line) for line in filter(None, lines.split("\n"))]
        return declared(records, list[StoredExample], path, _AGAIN)

    @property
    def variants(self) -> list[Trial] | None:
        """What came of trying some windows after other steps; None where nothing was tried."""
        path = self.folder / "variants.json"
        return read_declared(path, Variants, _AGAIN).trials if path.is_file() else None

    @property
    def outputs(self) -> Outputs | None:
        """What of the run's outputs stands in an indexed corpus; None where nothing was looked up."""
        path = self.folder / "outputs.json"
        return read_declared(path, Outputs, _AGAIN) if path.is_file() else None

    @cached_property
    def texts(self) -> Passages:
        """The texts behind the rows."""
        if self.text is None and self.manifest.kind == "scan":
            raise RunError(
                f"cannot read {self.folder / 'text.txt'}: it is gone. Run the command that made the run again to "
                "restore it."
            )
        if self.text is not None:
            return Passages(self.text)
        return Passages(
            None,
            {entry.id: (entry.prefix_text, entry.suffix_text) for entry in self.examples},
            {entry.id: entry.tokenised for entry in self.examples if entry.tokenised is not None},
        )

    @cached_property
    def stages(self) -> list[Stage]:
        """Of a scan in stages, those that have ended: that are sealed or, meanwhile, whose rows are all there."""
        sealed, refined, size = self._fitting, self.manifest.refined, self.manifest.shard_examples
        ended: list[Stage] = []
        shards = 0
        for number in range(0 if refined is None else refined.stages):
            path = stage_path(self.folder, number)
            if not path.is_file() or (sealed is not None and f"stages/{path.name}" not in sealed.files):
                break
            stage = read_stage(path)
            first, shards = shards, shards + stage.shards(size)
            if not all(has_shard(self.folder, shard) for shard in range(first, shards)):
                break
            ended.append(stage)
        return ended

    @property
    def complete(self) -> bool:
        """Whether nothing is to come: a scan in stages can be read before that."""
        refined = self.manifest.refined
        return refined is None or len(self.stages) == refined.stages

    @cached_property
    def places(self) -> pl.DataFrame | None:
        """Where all windows of a scan in stages stand, scored or not."""
        return None if self.manifest.refined is None else read_places(self.folder)

    def shards(self) -> list[Path]:
        """Of a scan in stages: those of the stages that have ended."""
        if not stages_in(self.folder):
            return shards_in(self.folder)
        count = sum(stage.shards(self.manifest.shard_examples) for stage in self.stages)
        return [shard_path(self.folder, shard) for shard in range(count)]

    def facts(self) -> list[ShardFacts]:
        return [read_facts(path) for path in self.shards()]

    def progress(self) -> str:
        if self.manifest.shards is None:
            assert self.manifest.refined is not None
            return f"{len(self.stages)} of {counted(self.manifest.refined.stages, 'stage')} stored"
        return f"{len(self.shards())} of {counted(self.manifest.shards, 'shard')} stored"


# --- writing


def begin(folder: Path, manifest: Manifest | TextsManifest, *, content: Mapping[str, bytes]) -> None:
    """Start the folder, or make sure that what it holds is the beginning of this very run.

    `content` is what it is about, by file name: text.txt, examples.jsonl or texts.jsonl, for the report and the reader.
    """
    make_folder(folder / "scores")
    if (folder / "manifest.json").is_file():
        refuse_if_different(read_json(folder / "manifest.json"), manifest, str(folder))
        if (folder / "summary.json").is_file() and not any((folder / name).is_file() for name in (SEAL, ASIDE)):
            raise RunError(
                f"{folder} was finished, and its {SEAL} is gone: nothing says whether its files are as they were. It "
                f"is not gone on with: put the seal back, or choose another {argument('out')}."
            )
        reopen(folder, restored=[*content, "summary.json"])
    else:
        _refuse_foreign(folder, content)
    for name, data in content.items():
        write_whole(folder / name, data)
    if not (folder / "manifest.json").is_file():  # last: a folder with a manifest has all it needs
        write_whole(folder / "manifest.json", pretty(manifest))


def _refuse_foreign(folder: Path, content: Mapping[str, bytes]) -> None:
    """A folder without a manifest may hold a run's very beginning, but nothing that the run would take over."""
    names = ("summary.json", "report.html", "variants.json", "outputs.json", SEAL, ASIDE)
    others = ("chosen.parquet", "verdicts.parquet", "index.json", "tokenized.0", "bench.json")
    taken_over = [folder / name for name in (*names, *others)]
    taken_over += [*shards_in(folder), *words_in(folder), *stages_in(folder)]
    foreign = [path for path in taken_over if path.exists()]
    for name, data in content.items():
        path = folder / name
        if path.exists() and not (path.is_file() and path.read_bytes() == data):
            foreign.append(path)
    if foreign:
        raise RunError(
            f"{foreign[0]} is there already and belongs to no run of this folder; choose another {argument('out')}."
        )


def has_shard(folder: Path, index: int) -> bool:
    return shard_path(folder, index).is_file()


def add_shard(
    folder: Path,
    index: int,
    examples: Sequence[Example],
    results: Sequence[Verbatim],
    facts: ShardFacts,
    near: Sequence[NearColumns] = (),
    stage: int | None = None,
) -> None:
    """Store one shard. `near`: the near-verbatim columns, a row for each result."""
    keep_shard(folder, index, shard_bytes(examples, results, facts, near, stage))


def keep_shard(folder: Path, index: int, content: bytes) -> None:
    """The same of a shard that has been made already, here or on a worker: see `rote.store.table.shard_bytes`."""
    write_whole(shard_path(folder, index), content)


def add_found(folder: Path, name: str, found: Variants | Outputs) -> None:
    """What was found out about a run beside its rows: variants.json or outputs.json."""
    write_whole(folder / name, pretty(found))


def finish(folder: Path, summary: Summary) -> Seal:
    """Write the summary, and seal all that the run rests on: not its page, exports or lock, which can be made anew.

    Of a scan in stages, the stages that have ended are sealed; its seal says whether others are to come.
    """
    run, content, path = StoredRun(folder), pretty(summary), folder / "summary.json"
    content_files = ("text.txt", "examples.jsonl", WINDOWS, "variants.json", "outputs.json")
    present = [name for name in content_files if (folder / name).is_file()]
    stages = [f"stages/{stage_path(folder, number).name}" for number in range(len(run.stages))]
    shards = [f"scores/{path.name}" for path in run.shards()]
    named, unfinished = ["manifest.json", *present, *stages, *shards], None if run.complete else True
    if path.is_file() and path.read_bytes() != content:
        path.unlink()  # of before: it would not fit the seal
    seal = write_seal(folder, named, {"summary.json": content}, unfinished=unfinished)
    write_whole(path, content)
    return seal
