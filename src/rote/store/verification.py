"""verification.json: what came of verifying a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rote.models.base import ModelIdentity
from rote.store.files import pretty, write_whole
from rote.store.stages import Staged


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at; `passed` is None where it could not be told."""

    name: str
    passed: bool | None
    told: str


@dataclass(frozen=True, kw_only=True)
class WrongRow:
    example_id: str
    scheme: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class RescoredNear:
    """Near-verbatim searches made again: whose intervals meet, listed outputs that re-score, estimates that agree."""

    searches: int
    candidates: int
    estimates: int


@dataclass(frozen=True, kw_only=True)
class Rescored:
    """Windows or examples (`unit`) scored again: `drawn` of `examples` at random with this seed, and the `strongest`.

    `mean_difference` per token is to be held against `limit`, which is three times what was `measured` between correct
    computations of such a pair. `drawn_wrong` of the drawn ones are wrong; `wrong_at_most` is the largest share of all
    that may be, with 95% confidence, where none is.
    """

    model: ModelIdentity
    unit: str
    examples: int
    drawn: int
    strongest: int
    seed: int
    tokens: int
    mean_difference: float
    measured: float
    limit: float
    wrong: list[WrongRow]
    drawn_wrong: int
    wrong_at_most: float | None
    near: RescoredNear | None = None


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Whether a run can be relied on, as far as was tried; `staged`: how far a scan in stages has come."""

    format: int
    kind: Literal["verification"]
    created: str
    run: str
    seal: str | None
    verified: bool
    verdict: str
    findings: list[Finding]
    rescored: Rescored | None
    staged: Staged | None = None
    versions: dict[str, str]


def write_verification(path: Path, result: Verification) -> None:
    write_whole(path, pretty(result))
