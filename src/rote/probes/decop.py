"""DE-COP: the original among three paraphrases, in every order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from rote.probes.prompts import LETTERS

ORIGINAL = "A"


def orders() -> tuple[str, ...]:
    """All 24, as what stands in each of the four places: the original is A, the paraphrases are B, C and D."""
    return tuple("".join(order) for order in permutations(LETTERS))


def options(order: str, text: str, paraphrases: Sequence[str]) -> list[str]:
    """The four passages in this order."""
    of = dict(zip(LETTERS, (text, *paraphrases), strict=True))
    return [of[name] for name in order]


def right(order: str) -> str:
    """The letter that the original has in this order."""
    return LETTERS[order.index(ORIGINAL)]
