"""A sweep on disk: sweep.json over runs at several prompt lengths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from rote.models.base import ModelIdentity
from rote.store.files import pretty, read_declared, write_whole
from rote.store.manifest import TakenStep
from rote.store.seal import SEAL, check_seal, write_seal
from rote.store.summary import Rates

SweptPart = Literal["prefix", "suffix"]
"""What a length is the length of."""


@dataclass(frozen=True, kw_only=True)
class SweepSource:
    """`normalised`: the steps that were taken before a text was cut."""

    name: str
    normalised: list[TakenStep] | None = None


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """The tokens of prompts and of suffixes that were tried, ascending."""

    prefix: list[int]
    suffix: list[int]

    def of(self, part: SweptPart) -> list[int]:
        return self.prefix if part == "prefix" else self.suffix


@dataclass(frozen=True, kw_only=True)
class Perplexity:
    """Of the suffixes: how many are finite, and the quartiles of these (none where there are none)."""

    finite: int
    quartiles: list[float]


@dataclass(frozen=True, kw_only=True)
class WithinTrials:
    """The mean probability of a suffix within so many generations."""

    trials: int
    mean: float


@dataclass(frozen=True, kw_only=True)
class Point:
    """What one scheme's rows come to at one length of prompts and one of suffixes."""

    scheme: str
    prefix: int
    suffix: int
    rates: Rates
    perplexity: Perplexity
    within_trials: WithinTrials

    def length(self, part: SweptPart) -> int:
        return self.prefix if part == "prefix" else self.suffix


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What sweep.json says."""

    format: int
    kind: Literal["sweep"]
    model: ModelIdentity
    examples: int
    tau: float
    logit_tolerance: float
    versions: dict[str, str]
    source: SweepSource
    lengths: Lengths
    points: list[Point]

    @property
    def longest(self) -> list[Point]:
        """Each scheme's point at the longest prompt and suffix, in the order in which the schemes were given."""
        most = max(self.lengths.prefix), max(self.lengths.suffix)
        return [point for point in self.points if (point.prefix, point.suffix) == most]


@dataclass(frozen=True)
class StoredSweep:
    """One sweep's folder."""

    folder: Path

    @cached_property
    def result(self) -> SweepResult:
        check_seal(self.folder)
        return read_declared(self.folder / "sweep.json", SweepResult, "Run the command that made the sweep again.")


def finish_sweep(folder: Path, result: SweepResult) -> None:
    write_whole(folder / "sweep.json", pretty(result))
    write_seal(folder, ["sweep.json", *(f"{part(length)}/{SEAL}" for length in result.lengths.prefix)])


def part(length: int) -> str:
    """The folder of the run with prompts of this length."""
    return f"prefix-{length}"
