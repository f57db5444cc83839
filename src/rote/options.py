"""What there is to say about an option beside its name, type and default, which its dataclass or function has.

    tau: Annotated[float, Option("Smallest probability that counts as extraction.")] = 1e-3

An option is written down once, like this. The command line is made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
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
    if text != "auto" and not text.isdecimal():
        raise ValueError("give 'auto' or a whole number of at least 1.")
    return "auto" if text == "auto" else int(text)


def typed_path(text: str) -> Path:
    """A path on a command line; an empty one would be the folder that one is in."""
    if not text.strip():
        raise ValueError("it is empty; give a path, or leave it out.")
    return Path(text)


Out = Annotated[
    Path | str | None,
    Option("Folder for what comes out of it.", "--out/-o", default="runs/NAME-MODEL", parse=typed_path),
]
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
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError("give whole numbers of at least 1 with commas between, as in 10,25,50.")
    return [int(part) for part in parts]


def whole(number: object) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool)


def require_whole(name: str, number: Any, least: int = 1, most: int | None = None) -> int:
    """The number, unless it is not whole, too small or too large; those of numpy and torch become Python's own."""
    if not whole(number) or number < least or (most is not None and number > most):
        span = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{argument(name)} must be a whole number {span}, not {number!r}.")
    return number if isinstance(number, int) else int(number)  # one that knows where it comes from stays as it is


def require_number(name: str, number: Any) -> float:
    """The same for a number that need not be whole."""
    if isinstance(number, bool) or not isinstance(number, int | float | Real):
        raise InputError(f"{argument(name)} must be a number, not {number!r}.")
    return number if isinstance(number, int | float) else float(number)


def require_kind(name: str, value: Any, kind: type[Any], example: str) -> None:
    """Refuse what is no `kind`; `example` says what to give."""
    if not isinstance(value, kind):
        raise InputError(f"{argument(name)} must be {example}, not {value!r:.60}.")


def require_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InputError(f"{argument(name)} must be True or False, not {value!r}.")


def require_tau(tau: Any) -> float:
    """tau is a probability."""
    if not 0 < require_number("tau", tau) <= 1:
        raise InputError(f"{argument('tau')} must lie in (0, 1], not {tau}.")
    return require_number("tau", tau)


def folder_of(out: Any) -> Path:
    """Where something is to be written."""
    if not isinstance(out, str | Path) or not str(out).strip():
        raise InputError(f"{argument('out')} must be a path, not {out!r}.")
    return Path(out)


def settle(options: Any, name: str, value: Any) -> None:
    """Set a field of a frozen dataclass, while it is being made."""
    object.__setattr__(options, name, value)


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
