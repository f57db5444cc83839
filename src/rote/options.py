"""What there is to say about an option beside its name, type and default, which its dataclass or function has.

    tau: Annotated[float, Option("Smallest probability that counts as extraction.")] = 1e-3

An option is written down once, like this. The command line is made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from rote.errors import InputError, argument


@dataclass(frozen=True, slots=True)
class Option:
    """`help`: what it does, in a sentence. The others are for the command line, where it would not follow by itself.

    `flag`: what it is called there. `default`: what a default that is worked out comes to, in words. `none`: what
    stands for None. `choices`: what it may be, where the type does not tell. `parse`: what makes the value of what was
    typed, or a ValueError that says how to type it. `metavar`: what stands for an argument in the help.
    """

    help: str
    flag: str = ""
    default: str = ""
    none: str = ""
    choices: Callable[[], Sequence[str]] | None = None
    parse: Callable[[str], Any] | None = None
    metavar: str = ""


BatchSize = int | Literal["auto"]


def _batch(text: str) -> BatchSize:
    if text != "auto" and not text.isdigit():
        raise ValueError("give 'auto' or a whole number of at least 1.")
    return "auto" if text == "auto" else int(text)


Out = Annotated[Path | str | None, Option("Folder for what comes out of it.", "--out/-o", default="runs/NAME-MODEL")]
Prefix = Annotated[int, Option("Tokens in the prompt.")]
Suffix = Annotated[int, Option("Tokens that must come back.")]
Stride = Annotated[int, Option("Characters from one window to the next.")]
Seed = Annotated[int, Option("Decides what is drawn at random.")]
Tau = Annotated[float, Option("Smallest probability that counts as extraction.")]
StopEarly = Annotated[bool, Option("Give up what is certain to end below tau. Same numbers at or above it.")]
Batch = Annotated[BatchSize, Option("Examples per batch, or 'auto'.", parse=_batch)]

TAU = 1e-3


def numbers(text: str) -> list[int]:
    """What 10,25,50 stands for on a command line."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError("give whole numbers of at least 1 with commas between, as in 10,25,50.")
    return [int(part) for part in parts]


def whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def require_whole(name: str, number: Any, least: int = 1, most: int | None = None) -> None:
    """Refuse a number that is not whole, too small or too large."""
    if not whole(number) or number < least or (most is not None and number > most):
        span = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{argument(name)} must be a whole number {span}, not {number!r}.")


def require_known(name: str, value: Any, known: Iterable[str]) -> None:
    """Refuse a value that is none of the known ones."""
    if value not in (choices := tuple(known)):
        *others, last = choices
        raise InputError(f"{argument(name)} must be {', '.join(others)} or {last}, not {value!r}.")


def refuse_idle(options: Any, name: str, used: bool, wanted: str) -> None:
    """Refuse what was asked for, as it differs from its default, but would change nothing."""
    default = next(field.default for field in fields(options) if field.name == name)
    if not used and getattr(options, name) != default:
        raise InputError(f"{argument(name)} changes nothing here; it goes with {wanted}.")
