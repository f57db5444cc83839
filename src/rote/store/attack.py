"""An attack on disk: a folder to which guesses are added round by round, and their order when it has ended."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from rote.corpus.bench import Guess, write_guesses
from rote.errors import RunError, argument
from rote.extraction.attack.options import Plan
from rote.extraction.attack.rounds import Found, Round
from rote.models.base import ModelIdentity
from rote.store.files import line, make_folder, pretty, read_declared, read_json, write_whole
from rote.store.manifest import refuse_if_different
from rote.store.seal import SEAL, check_seal, reopen, write_seal

MADE_AGAIN = ("guesses.csv", "calibration.json", "summary.json")
"""What follows from the rounds, and is written when they have ended."""

_AGAIN = "Run the command that made it again to restore it."
Line = TypeVar("Line")


@dataclass(frozen=True, kw_only=True)
class Prefixes:
    """What was attacked: so many `examples`, and the hash of their tokens."""

    name: str
    sha256: str
    examples: int


@dataclass(frozen=True, kw_only=True)
class AttackManifest(Plan):
    """Everything that decides what an attack finds. `train`: the examples with answers that chances are learnt from."""

    format: int
    kind: Literal["attack"]
    created: str
    source: Prefixes
    model: ModelIdentity
    train: Prefixes | None = None
    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class StoredGuess(Found):
    """One line of guesses.jsonl: a guess, and what had been spent when it was found.

    `confidence`: the chance that it is right; until the attack has ended, the model's own probability of it.
    """

    confidence: float
    seconds: float
    token_evals: int


@dataclass(frozen=True, kw_only=True)
class StoredRound:
    """One line of rounds.jsonl: with it a round over so many `examples` is stored. `guesses`: how many are by then."""

    stage: int
    examples: int
    token_evals: int
    seconds: float
    guesses: int
    warnings: list[str]


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Guesses whose chances lie in one tenth: how many, their mean chance, and the share of them that was right."""

    guesses: int
    mean_chance: float
    share_right: float


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """How chances turned out: of so many guesses, the Brier score and the expected calibration error."""

    guesses: int
    right: int
    brier: float
    calibration_error: float
    bins: list[ReliabilityBin | None]


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A logistic regression on standardised features."""

    features: list[str]
    means: list[float]
    scales: list[float]
    weights: list[float]
    intercept: float


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """calibration.json: what chances follow from, and how they turned out on examples that were not learnt from.

    `ceiling`: of the examples with answers, the share whose answer is among the candidates at all.
    """

    format: int
    examples: int
    token_evals: int
    seconds: float
    ceiling: float
    weights: Weights
    reliability: Reliability


@dataclass(frozen=True, kw_only=True)
class AttackSummary:
    """summary.json. `answered`: examples with a guess; `expected_right`: the sum of all chances, where calibrated."""

    format: int
    kind: Literal["attack"]
    examples: int
    answered: int
    guesses: int
    token_evals: int
    seconds: float
    rounds: int
    warnings: list[str]
    expected_right: float | None
    calibration: Calibration | None


@dataclass(frozen=True)
class StoredAttack:
    """One folder: the guesses of an attack."""

    folder: Path

    @cached_property
    def manifest(self) -> AttackManifest:
        if (self.folder / SEAL).is_file():
            check_seal(self.folder)
        return read_declared(self.folder / "manifest.json", AttackManifest, "Delete the folder and start anew.")

    @property
    def summary(self) -> AttackSummary:
        if not (self.folder / "summary.json").is_file():
            raise RunError(
                f"{self.folder} is unfinished ({self.progress()}); run the command that made it again to finish it."
            )
        check_seal(self.folder)
        return read_declared(self.folder / "summary.json", AttackSummary, _AGAIN)

    def rounds(self) -> list[Round]:
        """The rounds that are stored in full."""
        guesses, rounds, begin = self.guesses(), [], 0
        for entry in self.journal():
            found = [_found(guess) for guess in guesses[begin : entry.guesses]]
            rounds.append(
                Round(
                    stage=entry.stage, examples=entry.examples, token_evals=entry.token_evals, seconds=entry.seconds,
                    found=found,
                )
            )  # fmt: skip
            begin = entry.guesses
        return rounds

    def guesses(self) -> list[StoredGuess]:
        """Guesses in the order in which they were found, those of whole rounds."""
        journal = self.journal()
        guesses = _lines(self.folder / "guesses.jsonl", StoredGuess)[: journal[-1].guesses if journal else 0]
        if journal and len(guesses) < journal[-1].guesses:
            raise RunError(
                f"{self.folder / 'guesses.jsonl'} has {len(guesses):,} guesses, and rounds.jsonl tells of "
                f"{journal[-1].guesses:,}: lines are gone. Delete the folder and start anew."
            )
        return guesses

    def progress(self) -> str:
        journal = self.journal()
        if not journal:
            return "nothing stored yet"
        last = journal[-1]
        return f"{last.guesses:,} guesses, {last.token_evals:,} token evaluations and {last.seconds:.0f} seconds stored"

    def journal(self) -> list[StoredRound]:
        """What each stored round had spent by then."""
        return _lines(self.folder / "rounds.jsonl", StoredRound)


def begin(folder: Path, manifest: AttackManifest) -> None:
    """Start the folder, or make sure that what it holds is the beginning of this very attack."""
    make_folder(folder)
    if (folder / "manifest.json").is_file():
        refuse_if_different(read_json(folder / "manifest.json"), manifest, str(folder))
        reopen(folder, restored=MADE_AGAIN)
    else:
        for name in ("guesses.jsonl", "rounds.jsonl", SEAL, *MADE_AGAIN):
            if (folder / name).exists():
                raise RunError(
                    f"{folder / name} is there already and belongs to no attack of this folder; choose another "
                    f"{argument('out')}."
                )
        write_whole(folder / "manifest.json", pretty(manifest))
    stored = StoredAttack(folder)
    write_whole(folder / "guesses.jsonl", b"".join(map(line, stored.guesses())))  # without what was half written
    write_whole(folder / "rounds.jsonl", b"".join(map(line, stored.journal())))


def add_round(folder: Path, found: Round, before: int, warnings: list[str]) -> int:
    """Add a round to `before` guesses; how many there are then. A process that is killed meanwhile adds nothing."""
    guesses = [stored_guess(one, math.exp(one.log_prob), found.seconds, found.token_evals) for one in found.found]
    after = before + len(guesses)
    _append(folder / "guesses.jsonl", b"".join(map(line, guesses)))
    entry = StoredRound(
        stage=found.stage, examples=found.examples, token_evals=found.token_evals, seconds=found.seconds,
        guesses=after, warnings=warnings,
    )  # fmt: skip
    _append(folder / "rounds.jsonl", line(entry))
    return after


def finish(
    folder: Path,
    guesses: Sequence[StoredGuess],
    order: Sequence[int],
    summary: AttackSummary,
    also: Mapping[str, bytes],
) -> None:
    """Write guesses with their final confidence, their order, what `also` belongs to it and the summary; then seal."""
    write_whole(folder / "guesses.jsonl", b"".join(map(line, guesses)))
    part = folder / ".guesses.csv.part"
    write_guesses(part, (Guess(guesses[i].example, guesses[i].suffix) for i in order))
    os.replace(part, folder / "guesses.csv")
    for name, content in also.items():
        write_whole(folder / name, content)
    write_whole(folder / "summary.json", pretty(summary))
    names = ["manifest.json", "guesses.jsonl", "rounds.jsonl", "guesses.csv", "summary.json", *also]
    write_seal(folder, [*names, *(["train/seal.json"] if (folder / "train" / SEAL).is_file() else [])])


def stored_guess(found: Found, confidence: float, seconds: float, token_evals: int) -> StoredGuess:
    own = {field.name: getattr(found, field.name) for field in fields(Found)}
    return StoredGuess(**own, confidence=confidence, seconds=seconds, token_evals=token_evals)


def _found(guess: StoredGuess) -> Found:
    return Found(**{field.name: getattr(guess, field.name) for field in fields(Found)})


def _append(path: Path, content: bytes) -> None:
    try:
        with path.open("ab") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror}. Free some space or mend the permissions, then run the same "
            "command again: what is stored already is kept."
        ) from error


def _lines(path: Path, kind: type[Line]) -> list[Line]:
    """The lines of a file; from one on that a killed process left half written, nothing counts."""
    found: list[Line] = []
    for entry in (path.read_bytes().split(b"\n")[:-1]) if path.is_file() else ():
        try:
            found.append(msgspec.convert(json.loads(entry), kind))
        except (ValueError, msgspec.ValidationError):
            break
    return found
