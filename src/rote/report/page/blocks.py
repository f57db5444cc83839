"""The text of a run in blocks that a page can show a few of at a time, and the examples of a run that has no text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup, escape

from rote.report.text import numbers

BLOCK = 1_200
"""Characters of a block, if its lines allow: what comes into view is shaded a block at a time."""

LONGEST = 20_000
"""Characters after which a line is cut into blocks all the same."""

EXAMPLES = 3_000
CHARACTERS = 2_000_000
"""Most examples, and most characters of them, that a page shows."""

_LINE = 80  # characters on a line of the page, roughly: for the height of what is not laid out yet
_AROUND = 130  # bytes of the element around a block
_HEIGHT = 1.65  # of a line, in rem


def text_blocks(text: str) -> list[dict[str, Any]]:
    """The whole text, cut at line ends. `joined`: the block begins within a line."""
    blocks: list[dict[str, Any]] = []
    at, joined = 0, False
    for part, ends in _parts(numbers.literal(text)):
        blocks.append({**_block(part), "at": at, "joined": joined, "row": None, "suffix": None})
        at, joined = at + len(part), not ends
    return blocks


def example_blocks(examples: Sequence[tuple[int, str, str]]) -> list[dict[str, Any]]:
    """A block for each (row, prefix, suffix), as many as a page can take."""
    blocks: list[dict[str, Any]] = []
    characters = 0
    for row, prefix, suffix in examples[:EXAMPLES]:
        characters += len(prefix) + len(suffix)
        if blocks and characters > CHARACTERS:
            break
        blocks.append(
            {**_block(numbers.literal(prefix + suffix)), "at": 0, "joined": False, "row": row, "suffix": len(prefix)}
        )
    return blocks


def taken(blocks: Sequence[dict[str, Any]]) -> int:
    """Bytes of the page that the blocks take."""
    return sum(len(block["text"].encode("utf-8")) + _AROUND for block in blocks)


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Pieces of the text, and whether each ends a line (or the text)."""
    start, size = 0, len(text)
    while start < size:
        end = text.rfind("\n", start, start + BLOCK) + 1
        if not end:  # one line longer than a block
            end = text.find("\n", start, start + LONGEST) + 1 or min(start + LONGEST, size)
        if size - start <= BLOCK:
            end = size
        yield text[start:end], text[end - 1] == "\n" or end == size
        start = end


def _block(text: str) -> dict[str, Any]:
    lines = sum(max(1, math.ceil(len(line) / _LINE)) for line in text.splitlines() or [""])
    return {"text": escaped(text), "height": round(lines * _HEIGHT, 1)}


def exact(text: str) -> Markup:
    """Foreign text that a browser reads back character for character, but for what is shown as a mark."""
    return escaped(numbers.literal(text))


def escaped(text: str) -> Markup:
    """Text that can be shown as it is, so that a browser reads it back character for character."""
    return Markup(str(escape(text)).replace("\r", "&#13;"))  # a browser would make a line feed of it
