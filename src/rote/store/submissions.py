"""Scored submissions on disk: score.json, about guesses and answers that stand elsewhere; and what an attack found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from rote.corpus.bench import Guess, check_guess, read_guesses
from rote.errors import RunError, argument
from rote.store.files import make_folder, pretty, read_declared, write_whole
from rote.store.seal import SEAL, check_seal, write_seal

SCORE = "score.json"


@dataclass(frozen=True, kw_only=True)
class Recall:
    """The share of the examples that were solved, with its Wilson interval."""

    solved: int
    share: float
    interval: list[float]


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """How many examples are solved by the guesses that come after `errors` wrong ones and before the next."""

    errors: int
    solved: int
    recall: float
    precision: float


@dataclass(frozen=True, kw_only=True)
class CostPoint:
    """What the guesses that were found within a budget come to.

    `solved` is under the allowed errors too, `oracle` without them: as if the corpus could be asked about every guess.
    """

    budget: float
    solved: int
    recall: float
    oracle: int
    oracle_recall: float


@dataclass(frozen=True, kw_only=True)
class Costs:
    """When the guesses were found: the last of them, and what budgets of up to that come to."""

    last_seconds: float
    last_token_evals: int
    seconds: list[CostPoint]
    token_evals: list[CostPoint]


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What one file of guesses, or one attack, comes to.

    `recall` is the headline: at the last right guess that is made with fewer than the allowed errors. `counted`: how
    many guesses come before the last error that is allowed, which ends it. `recall_all` and `precision_all` are of all
    guesses. `precision`: of right guesses, without repeated ones, among these and the wrong ones, as far as they count.
    `repeated`: right guesses of examples that were solved already, which are free. `late`: guesses that were found
    after the time or the evaluations that are asked about, and left out.
    """

    key: str
    name: str
    guesses: int
    wrong: int
    repeated: int
    examples_guessed: int
    counted: int
    recall: Recall
    precision: float | None
    recall_all: Recall
    precision_all: float | None
    curve: list[CurvePoint]
    costs: Costs | None = None
    late: int | None = None


@dataclass(frozen=True, kw_only=True)
class Answers:
    """`compared`: of the tokens of an answer, how many at its end a guess must give; `sha256` is the file's."""

    name: str
    sha256: str
    examples: int
    tokens: int
    compared: int


@dataclass(frozen=True, kw_only=True)
class ScoreResult:
    """What score.json says. `errors` are allowed; `speed` is what the attacks' seconds were multiplied by."""

    format: int
    kind: Literal["bench score"]
    answers: Answers
    errors: int
    speed: float
    submissions: list[Submission]
    seconds: float | None = None
    token_evals: int | None = None


@dataclass(frozen=True)
class StoredScore:
    """One folder of scored submissions."""

    folder: Path

    @cached_property
    def result(self) -> ScoreResult:
        check_seal(self.folder)
        return read_declared(self.folder / SCORE, ScoreResult, "Score the guesses again: rote bench score.")


def write_score(folder: Path, result: ScoreResult) -> None:
    for name in ("manifest.json", "comparison.json", "sweep.json", "bench.json", "index.json", "tokenized.0"):
        if (folder / name).exists():
            raise RunError(f"{folder} holds other results ({name}); choose another {argument('out')} for the score.")
    make_folder(folder)
    write_whole(folder / SCORE, pretty(result))
    write_seal(folder, [SCORE])


# --- what is scored


@dataclass(frozen=True, kw_only=True)
class Found:
    """Of a line of an attack's guesses.jsonl: the guess, and what the attack had cost when it was found."""

    example: int
    suffix: list[int]
    seconds: float
    token_evals: int


@dataclass(frozen=True)
class Submitted:
    """Guesses in order. `found`: for each what the attack had cost by then, in seconds and token evaluations."""

    name: str
    guesses: list[Guess]
    found: list[tuple[float, int]] | None = None


def read_submission(path: Path, examples: int, length: int) -> Submitted:
    """A CSV file of guesses, or the folder of a finished attack."""
    if not path.is_dir():
        return Submitted(str(path), read_guesses(path, examples, length))
    if not (path / "guesses.csv").is_file():
        raise RunError(f"{path} has no guesses.csv, so it holds no attack. Give a CSV file, or an attack's folder.")
    if not (path / SEAL).is_file():
        raise RunError(f"{path} holds an attack that has not ended; run the same rote bench attack again.")
    check_seal(path)
    guesses = read_guesses(path / "guesses.csv", examples, length)
    known = _found(path / "guesses.jsonl")
    missing = next((number for number, guess in enumerate(guesses) if guess not in known), None)
    if missing is not None:
        raise RunError(f"{path / 'guesses.jsonl'} lacks guess {missing} of guesses.csv. Run the attack again.")
    return Submitted(str(path), guesses, [known[guess] for guess in guesses])


def _found(path: Path) -> dict[Guess, tuple[float, int]]:
    """What every guess had cost when it was found first."""
    known: dict[Guess, tuple[float, int]] = {}
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}. Run the attack again.") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            found = msgspec.json.decode(line, type=Found)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise RunError(f"{where} is damaged: {error}. Run the attack again.") from error
        guess = Guess(found.example, tuple(found.suffix))
        check_guess(guess, where, None, None)
        if not 0 <= found.seconds < float("inf") or found.token_evals < 0:
            raise RunError(f"{where}: seconds and token_evals must be at least 0. Run the attack again.")
        own = found.seconds, found.token_evals
        known[guess] = min(known.get(guess, own), own)
    return known
