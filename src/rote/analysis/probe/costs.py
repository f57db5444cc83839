"""What probes cost by the paper's formulas, to stand beside what the prompts that are really sent come to."""

from __future__ import annotations

from rote.models.probed import Price

INSTRUCTION, ANSWER = 123, 5
"""Tokens of the paper's cloze prompt, and of an answer to it."""

PREFIX, PREFIX_INSTRUCTION = 50, 13
OPTIONS, ORDERS = 4, 24


def formula(method: str, tokens: int, price: Price, most: int) -> float | None:
    """In US dollars, for a passage of so many tokens of which `most` words are asked for; None: it has no formula.

    Paraphrases, filters and picked words are in none.
    """
    if method == "cloze":
        return most * price.of(tokens + INSTRUCTION, ANSWER)
    if method == "prefix":
        return price.of(PREFIX + PREFIX_INSTRUCTION, max(tokens - PREFIX, 0))
    if method == "decop":
        return price.of(tokens * OPTIONS * ORDERS, ORDERS)
    return None
