"""A text that the bundled model knows in places: Gatsby, which it never saw, with passages of Alice between."""

from __future__ import annotations

import random
from pathlib import Path

from rote.models.base import BUNDLED_TEXT

GATSBY = Path(__file__).parents[1] / "training/data/books/gatsby.txt"
PASSAGES = 92
LENGTHS = (232, 632)
"""Characters of a passage, the least and the most: about 6.2% of all windows of 50 + 50 tokens then reach 0.001."""


def planted() -> str:
    """Gatsby with passages of Alice put between its paragraphs: the same text every time."""
    gatsby, alice = (path.read_text(encoding="utf-8") for path in (GATSBY, BUNDLED_TEXT))
    rng = random.Random(0)
    breaks = [place for place in range(len(gatsby)) if gatsby.startswith("\n\n", place)]
    parts, last = [], 0
    for place in sorted(rng.sample(breaks, PASSAGES)):
        length = rng.randint(*LENGTHS)
        begin = rng.randrange(len(alice) - length)
        parts += [gatsby[last:place], "\n\n", alice[begin : begin + length].strip()]
        last = place
    return "".join(parts) + gatsby[last:]
