"""What attacks find, round by round, and what they spend on it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rote.extraction.attack.options import Budget
from rote.extraction.attack.writing import OutOfTime


@dataclass(frozen=True, kw_only=True)
class Found:
    """An output: what an attack takes for the suffix of an example.

    `log_prob` is that of exactly its tokens after the prefix under the model's own distribution, as teacher-forced
    scoring has it; `least` that of its least likely token; `entropy` the sum, in nats, of what the model was in doubt
    about at its positions; `prefix_log_prob` that of the prefix, a token. `fork`: the position at which it left an
    output that was found before it.
    """

    example: int
    suffix: tuple[int, ...]
    log_prob: float
    least: float
    entropy: float
    prefix_log_prob: float | None = None
    fork: int | None = None


@dataclass(frozen=True, kw_only=True)
class Round:
    """What was found together, and what had been spent by then: token evaluations, seconds of all sittings.

    `part`: examples are searched in parts where the memory does not hold all; 0 is what comes before that.
    """

    part: int
    token_evals: int
    seconds: float
    found: Sequence[Found]


class Meter:
    """What is spent and what is left."""

    def __init__(self, budget: Budget, *, evals: int = 0, seconds: float = 0.0) -> None:
        """`evals`, `seconds`: what sittings before this one spent."""
        self.evals, self._began = evals, time.perf_counter() - seconds
        self._most = budget
        self.most_evals, self.deadline = budget.evals, budget.seconds

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    @property
    def left(self) -> int | None:
        """Token evaluations that are."""
        return None if self.most_evals is None else self.most_evals - self.evals

    def share(self, part: float, since: Round | None = None) -> None:
        """From now on, allow only so much of what is left of the whole budget now, or was left after a round."""
        evals, seconds = (self.evals, self.seconds) if since is None else (since.token_evals, since.seconds)
        if self._most.evals is not None:
            self.most_evals = evals + int((self._most.evals - evals) * part)
        if self._most.seconds is not None:
            self.deadline = seconds + (self._most.seconds - seconds) * part

    def allows(self, evals: int) -> bool:
        return (self.left is None or evals <= self.left) and not self._late()

    def tick(self) -> None:
        if self._late():
            raise OutOfTime

    def _late(self) -> bool:
        return self.deadline is not None and self.seconds >= self.deadline
