"""What there is to say about an option beside its name, type and default, which its dataclass or function has.

    tau: Annotated[float, Option("Smallest probability that counts as extraction.")] = 1e-3

An option is written down once, like this. The command line is made from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rote.errors import InputError, argument


@dataclass(frozen=True, slots=True)
class Option:
    """`help`: what it does, in a sentence. The others are for the command line, where it would not follow by itself.

    `flag`: what it is called there. `default`: what a default that is worked out comes to, in words. `none`: what
    stands for None. `unless`: what is taken where the option is left out, if the function has no default for it.
    """

    help: str
    flag: str = ""
    default: str = ""
    none: str = ""


BatchSize = int | Literal["auto"]

Out = Annotated[Path | str | None, Option("Folder for what comes out of it.", "--out/-o", default="runs/TEXT-MODEL")]
Prefix = Annotated[int, Option("Tokens in the prompt.")]
Suffix = Annotated[int, Option("Tokens that must come back.")]
Stride = Annotated[int, Option("Characters from one window to the next.")]
Seed = Annotated[int, Option("Decides what is drawn at random.")]
Tau = Annotated[float, Option("Smallest probability that counts as extraction.")]
StopEarly = Annotated[bool, Option("Give up what is certain to end below tau. Same numbers at or above it.")]
Batch = Annotated[BatchSize, Option("Examples per batch, or 'auto'.")]

TAU = 1e-3


def whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def require_whole(name: str, number: Any, least: int = 1) -> None:
    """Refuse a number that is not whole, or too small."""
    if not whole(number) or number < least:
        raise InputError(f"{argument(name)} must be a whole number of at least {least}, not {number!r}.")


def require_known(name: str, value: Any, known: Iterable[str]) -> None:
    """Refuse a value that is none of the known ones."""
    if value not in (choices := tuple(known)):
        raise InputError(f"there is no {argument(name)} {value!r}; choose {', '.join(choices)}.")
