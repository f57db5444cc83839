"""What attacks find, round by round, and what they spend on it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rote.extraction.attack.options import Budget

CAREFUL = 0.9  # a round that time runs out on is lost


class OutOfTime(Exception):
    """The time is up: what is being written is not finished."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """An output: what an attack takes for the suffix of an example.

    `log_prob` is that of exactly its tokens after the prefix under the model's own distribution, as teacher-forced
    scoring has it; `least` that of its least likely token; `entropy` the sum, in nats, of how much was in doubt at its
    positions; `prefix_log_prob` that of the prefix, a token.
    """

    example: int
    suffix: tuple[int, ...]
    log_prob: float
    least: float
    entropy: float
    prefix_log_prob: float | None = None


@dataclass(frozen=True, kw_only=True)
class Round:
    """What was found for some examples together, and what had been spent by then, in all sittings.

    `examples`: how many of them. `stage`: under a budget in seconds all examples are looked at twice, briefly (0) and
    then for as long as there is time (1).
    """

    stage: int
    examples: int
    token_evals: int
    seconds: float
    found: Sequence[Found]


class Meter:
    """What is spent and what is left."""

    def __init__(self, budget: Budget, *, evals: int = 0, seconds: float = 0.0) -> None:
        """`evals`, `seconds`: what sittings before this one spent."""
        self.budget, self.evals, self._began = budget, evals, time.perf_counter() - seconds

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    @property
    def left(self) -> int:
        """Token evaluations that are: of a budget in seconds, as many as fit at the pace so far, less a little."""
        if self.budget.evals is not None:
            return self.budget.evals - self.evals
        assert self.budget.seconds is not None
        return int(CAREFUL * (self.budget.seconds - self.seconds) * self.evals / self.seconds)

    def tick(self) -> None:
        """Called before anything is read."""
        if self.budget.seconds is not None and self.seconds >= self.budget.seconds:
            raise OutOfTime
