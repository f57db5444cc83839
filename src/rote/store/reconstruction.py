"""A reconstruction on disk: a folder to which chunks of text are added until it is whole."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from rote.errors import RunError, argument
from rote.extraction.text.writing import Chunk
from rote.models.base import ModelIdentity
from rote.store.files import declared, line, make_folder, pretty, read_declared, read_json, write_whole
from rote.store.manifest import ReconstructionManifest, Source, refuse_if_different
from rote.store.seal import SEAL, Seal, check_seal, reopen, write_seal

MADE_AGAIN = ("generated.txt", "truth.txt", "diff.jsonl", "summary.json")
"""What follows from the chunks and from what the command is given: written anew each time."""

_AGAIN = "Run the command that made it again to restore it."


@dataclass(frozen=True, kw_only=True)
class Seed:
    """What a text is written on from."""

    text: str
    tokens: list[int]


@dataclass(frozen=True, kw_only=True)
class StoredChunk(Chunk):
    """One line of chunks.jsonl: a chunk, its number, and what it took."""

    chunk: int
    seconds: float
    warnings: list[str]
    text: str


@dataclass(frozen=True, kw_only=True)
class Break:
    """An EOS, by the token that it came at, and the number of the section that begins there."""

    token: int
    section: int
    skipped: int


@dataclass(frozen=True, kw_only=True)
class Truth:
    name: str
    sha256: str
    characters: int


@dataclass(frozen=True, kw_only=True)
class LongestMatch:
    """The longest verbatim stretch, and the word of the truth at which it starts."""

    words: int
    characters: int
    truth_word: int


@dataclass(frozen=True, kw_only=True)
class FirstDifference:
    """The first word at which the texts differ, quoted from both."""

    word: int
    before: str
    truth: str
    generated: str


@dataclass(frozen=True, kw_only=True)
class SimilarityNumbers:
    """A generated text against the true one; see `rote.analysis.similarity.Similarity`."""

    normalisation: str
    seed_words: int
    words_before: int
    truth_words: int
    generated_words: int
    word_ratio: float
    sentence_ratio: float
    tf_idf_cosine: float | None
    matched_words: int
    matched_share: float
    differences: int
    longest: LongestMatch | None
    first_difference: FirstDifference | None
    by_position: list[tuple[int, int, float]]


@dataclass(frozen=True, kw_only=True)
class ReconstructionSummary:
    """What summary.json says of a reconstruction."""

    format: int
    kind: Literal["reconstruct"]
    source: Source
    model: ModelIdentity
    tokens: int
    seed_tokens: int
    characters: int
    chunks: int
    ended_by: Literal["eos", "tokens"]
    breaks: list[Break]
    token_evals: int
    sliding_evals: int
    seconds: float
    warnings: list[str]
    truth: Truth | None
    similarity: SimilarityNumbers | None
    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class DiffLine:
    """One line of diff.jsonl: a stretch of the alignment, by word numbers, and its words where the texts differ."""

    kind: str
    truth: tuple[int, int]
    generated: tuple[int, int]
    truth_text: str | None = None
    generated_text: str | None = None


@dataclass(frozen=True)
class StoredReconstruction:
    """One folder: the chunks of a text that a model wrote on from its seed."""

    folder: Path

    def refuse_changed(self) -> None:
        """Raise a RunError where a file is not as it was sealed; one that is still written has no seal."""
        if (self.folder / SEAL).is_file():
            check_seal(self.folder)

    @cached_property
    def manifest(self) -> ReconstructionManifest:
        self.refuse_changed()
        again = "Delete the folder and start anew."
        return read_declared(self.folder / "manifest.json", ReconstructionManifest, again)

    @property
    def summary(self) -> ReconstructionSummary:
        if not (self.folder / "summary.json").is_file():
            raise RunError(
                f"{self.folder} is unfinished ({self.progress()}); run the command that made it again to finish it."
            )
        check_seal(self.folder)
        return read_declared(self.folder / "summary.json", ReconstructionSummary, _AGAIN)

    @property
    def seed(self) -> str:
        """What the text was written on from."""
        return self._seed.text

    @property
    def text(self) -> str:
        """The finished text, seed included."""
        return self._text("generated.txt")

    @property
    def truth(self) -> str | None:
        return self._text("truth.txt") if (self.folder / "truth.txt").is_file() else None

    def tokens(self) -> list[int]:
        """The text's tokens as far as they are stored, seed included."""
        return [*self._seed.tokens, *(token for chunk in self.chunks() for token in chunk.tokens)]

    def chunks(self) -> list[StoredChunk]:
        """What chunks.jsonl holds. A last line that a killed process left half written does not count."""
        self.refuse_changed()
        path = self.folder / "chunks.jsonl"
        if not path.is_file():
            return []
        chunks: list[StoredChunk] = []
        whole = path.read_bytes().split(b"\n")[:-1]
        for number, entry in enumerate(whole):
            try:
                chunk = msgspec.convert(json.loads(entry), StoredChunk)
                if chunk.chunk != number:
                    raise ValueError("it is not the chunk that should stand there")
            except (ValueError, msgspec.ValidationError) as error:
                if number == len(whole) - 1:
                    break
                raise RunError(
                    f"line {number + 1} of {path} is damaged ({error}). Delete it and all lines after it, then run the "
                    "same command again."
                ) from error
            chunks.append(chunk)
        return chunks

    def progress(self) -> str:
        return f"{len(self.tokens()):,} of {self.manifest.tokens:,} tokens stored"

    @property
    def _seed(self) -> Seed:
        self.refuse_changed()
        path = self.folder / "seed.json"
        return declared(read_json(path), Seed, path, _AGAIN)

    def _text(self, name: str) -> str:
        self.refuse_changed()
        try:
            return (self.folder / name).read_bytes().decode("utf-8", "surrogatepass")
        except OSError as error:
            raise RunError(f"cannot read {self.folder / name}: {error.strerror}. {_AGAIN}") from error


def begin(folder: Path, manifest: ReconstructionManifest, seed: Seed, *, truth: bool) -> None:
    """Start the folder, or make sure that what it holds is the beginning of this very text.

    `truth`: whether one is given now; one that was given earlier must still be what it was.
    """
    make_folder(folder)
    stored = StoredReconstruction(folder)
    if (folder / "manifest.json").is_file():
        refuse_if_different(read_json(folder / "manifest.json"), manifest, str(folder))
        reopen(folder, restored=[name for name in MADE_AGAIN if truth or name != "truth.txt"])
    else:
        for name in ("chunks.jsonl", "report.html", SEAL, *MADE_AGAIN):
            if (folder / name).exists():
                raise RunError(
                    f"{folder / name} is there already and belongs to no reconstruction of this folder; "
                    f"choose another {argument('out')}."
                )
        write_whole(folder / "seed.json", line(seed))
        write_whole(folder / "manifest.json", pretty(manifest))  # last: then the folder has all it needs
    whole = b"".join(line(chunk) for chunk in stored.chunks())
    path = folder / "chunks.jsonl"
    if not path.is_file() or path.read_bytes() != whole:
        write_whole(path, whole)  # without what a killed process left half written


def finish(folder: Path, summary: ReconstructionSummary) -> Seal:
    """Write the summary, and seal all that the text rests on."""
    write_whole(folder / "summary.json", pretty(summary))
    made = [name for name in MADE_AGAIN if (folder / name).is_file()]
    return write_seal(folder, ["manifest.json", "seed.json", "chunks.jsonl", *made])


def add_chunk(folder: Path, chunk: StoredChunk) -> None:
    """Add a chunk. A process that is killed meanwhile leaves a line without its end, which counts as absent."""
    try:
        with (folder / "chunks.jsonl").open("ab") as out:
            out.write(line(chunk))
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise RunError(
            f"cannot write {folder / 'chunks.jsonl'}: {error.strerror}. Free some space or mend the "
            "permissions, then run the same command again: what is stored already is kept."
        ) from error


def stored_chunk(number: int, chunk: Chunk, *, seconds: float, warnings: list[str], text: str) -> StoredChunk:
    own = {field.name: getattr(chunk, field.name) for field in fields(Chunk)}
    return StoredChunk(**own, chunk=number, seconds=seconds, warnings=warnings, text=text)
