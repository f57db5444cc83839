"""What went wrong, in words that name the file, argument or row and say what to do.

The command line prints these without a traceback, and with its options in the place of arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_MARK, _BETWEEN = "\ufdd4", "\ufdd5"  # noncharacters: no text has them
_ARGUMENT = re.compile(f"{_MARK}([^{_MARK}{_BETWEEN}]*)(?:{_BETWEEN}([^{_MARK}]*))?{_MARK}")
_NO_VALUE = object()


def argument(name: str, value: object = _NO_VALUE) -> str:
    """An argument, or an argument with its value, as a part of an error's message.

    Python users read `top_k=40`; the command line says `--top-k 40` instead, or whatever its option is called.
    """
    return f"{_MARK}{name}{_MARK}" if value is _NO_VALUE else f"{_MARK}{name}{_BETWEEN}{value!r}{_MARK}"


def counted(number: int, singular: str) -> str:
    """`1 token`, `2,000 tokens`."""
    return f"{number:,} {singular}{'' if number == 1 else 's'}"


class RoteError(Exception):
    """Base of every error a user can cause and mend."""

    def __init__(self, message: str = "") -> None:
        self._marked = message
        super().__init__(self.told(lambda name, value: name if value is None else f"{name}={value}"))

    def __reduce__(self) -> tuple[type[RoteError], tuple[str]]:
        """One that comes back from another process still says which words are arguments."""
        return type(self), (self._marked,)

    def told(self, spelled: Callable[[str, str | None], str]) -> str:
        """The message with every argument as `spelled(name, repr of its value or None)` has it."""
        return _ARGUMENT.sub(lambda match: spelled(match[1], match[2]), self._marked)


class InputError(RoteError):
    """A text, an example or an option that cannot be used as given."""


class ModelError(RoteError):
    """A model that cannot be loaded, or that returned something no probability can be computed from."""


class RunError(RoteError):
    """A run folder that cannot be written, read or continued."""
