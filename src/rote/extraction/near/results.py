"""What a search for near-verbatim outputs comes to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rote.extraction.near.distance import levenshtein
from rote.extraction.near.options import EosPolicy, Method, Until
from rote.extraction.verbatim import Verbatim
from rote.scheme import Scheme

Verdict = Literal["extractable", "not extractable", "undecided"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One output near the suffix.

    `log_prob` is the log-probability of exactly these tokens, None where it was not computed. Where the search stopped
    in a closed set, this output is one member of it: `set_log_prob` is the log-probability of the whole set, whose
    members all count.
    """

    tokens: tuple[int, ...]
    log_prob: float | None
    distance: int
    set_log_prob: float | None = None

    @property
    def weight(self) -> float:
        """What it stands for, as a log-probability: the set, or the output itself."""
        own = -math.inf if self.log_prob is None else self.log_prob
        return own if self.set_log_prob is None else self.set_log_prob


@dataclass(frozen=True, slots=True)
class Estimate:
    """A sampled estimate: unbiased `mean`, its standard error, and a 95% interval."""

    mean: float
    error: float
    interval: tuple[float, float]
    samples: int
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class NearVerbatim:
    """Bounds on the probability that one generation is within `tolerance` of the suffix.

    lower <= p <= upper, with certainty up to rounding where `certified`; where not (method "sample"), they are the ends
    of a 95% interval. `by_tolerance[e]` are the bounds for tolerance e, from 0 (verbatim) to `tolerance`. `eos_mass` is
    the probability of outputs left out because they end early (EOS policy "exclude").
    """

    example_id: str
    scheme: Scheme
    method: Method
    distance: str
    tolerance: int
    eos: EosPolicy
    tau: float
    by_tolerance: tuple[tuple[float, float], ...]
    certified: bool
    token_evals: int
    candidates: tuple[Candidate, ...] = ()
    eos_mass: float = 0.0
    estimate: Estimate | None = None
    verbatim: Verbatim | None = None

    @property
    def lower(self) -> float:
        return self.by_tolerance[-1][0]

    @property
    def upper(self) -> float:
        return self.by_tolerance[-1][1]

    @property
    def verdict(self) -> Verdict:
        return verdict(self.lower, self.upper, self.tau)

    def told(self) -> dict[str, Any]:
        """Its numbers by name."""
        exact = {} if self.verbatim is None else {"p_z": self.verbatim.prob}
        estimate = {} if self.estimate is None else {"estimate": self.estimate.mean, "error": self.estimate.error}
        bounds = {"lower": self.lower, "upper": self.upper, "verdict": self.verdict}
        return {"scheme": str(self.scheme), **exact, **bounds, **estimate}


@dataclass(frozen=True, slots=True)
class Goal:
    """When a search has found out enough: its bounds are `gap` apart, or what `until` says.

    "decision": it is certain whether tau is reached. "worthwhile": nothing left promises to close a thousandth of tau.
    """

    tau: float
    gap: float = 0.0
    until: Until = "budget"

    def reached(self, lower: float, upper: float) -> bool:
        return upper - lower <= self.gap or (
            self.until == "decision" and verdict(lower, upper, self.tau) != "undecided"
        )


def completed(output: Sequence[int], suffix: tuple[int, ...]) -> tuple[int, ...]:
    """An output that stopped early, gone on with the suffix from where it most likely stands in it."""
    left = len(suffix) - len(output)
    doubts = [
        (2 * levenshtein(output, suffix[:column]) + abs(column - len(output)), column)
        for column in range(max(0, len(output) - left), len(suffix) + 1)
    ]
    column = min(doubts)[1]
    rest = suffix[column : column + left]
    return (*output, *rest, *suffix[len(suffix) - left + len(rest) :])


def heaviest(candidates: Iterable[Candidate], count: int) -> list[Candidate]:
    """The `count` heaviest, each output once."""
    first: dict[tuple[int, ...], Candidate] = {}
    for candidate in sorted(candidates, key=lambda c: -c.weight):
        first.setdefault(candidate.tokens, candidate)
    return list(first.values())[:count]


def verdict(lower: float, upper: float, tau: float) -> Verdict:
    if lower >= tau:
        return "extractable"
    return "not extractable" if upper < tau else "undecided"
