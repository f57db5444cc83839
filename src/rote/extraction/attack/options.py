"""What an attack is told: which one, how long the suffixes are, and what it may cost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rote.errors import InputError, argument
from rote.options import require_whole, whole

Method = Literal["ranked", "greedy", "sample", "beam"]

_BUDGET = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])")
_UNITS = {"s": 1, "m": 60, "h": 3600}
FORM = "give seconds, minutes or hours as in 300s, 5m or 2h; or a whole number of token evaluations, as in 500000."


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What an attack may cost: `seconds`, those of all sittings together, or token evaluations (`evals`)."""

    seconds: float | None = None
    evals: int | None = None

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.evals is None):
            raise InputError(f"{argument('budget')} is in seconds or in token evaluations: give one of them.")
        if self.evals is not None:
            require_whole("budget", self.evals)
        elif not self.seconds > 0:  # type: ignore[operator]
            raise InputError(f"{argument('budget')} must be more than 0 seconds, not {self.seconds}.")

    @property
    def told(self) -> str:
        return f"{self.evals:,} token evaluations" if self.evals is not None else f"{self.seconds:g} seconds"


def typed_budget(text: str) -> Budget:
    """A budget on a command line."""
    said = text.strip().replace(",", "").replace("_", "")
    if said.isdecimal() and int(said) > 0:
        return Budget(evals=int(said))
    if (found := _BUDGET.fullmatch(said)) and float(found[1]) > 0:
        return Budget(seconds=float(found[1]) * _UNITS[found[2]])
    raise ValueError(FORM)


def as_budget(given: object) -> Budget:
    """A budget as Python callers give it: 500000, "300s", or a `Budget`."""
    if isinstance(given, Budget):
        return given
    if whole(given):
        return Budget(evals=require_whole("budget", given))
    try:
        return typed_budget(given)  # type: ignore[arg-type]
    except (ValueError, AttributeError):
        raise InputError(f"{argument('budget')} is {given!r}; {FORM}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that decides what an attack finds, beside model and prefixes.

    `suffix`: tokens of a guess. `width`: beams. `top_k`, `temperature` and `seed` are those of samples. `rows`: how
    many examples are looked at together. `positions`: of the model's memory.
    """

    method: Method
    suffix: int
    budget: Budget
    width: int | None = None
    top_k: int | None = None
    temperature: float | None = None
    seed: int | None = None
    rows: int
    positions: int
