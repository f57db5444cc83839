"""Front and back matter: telling a book's notices, addresses and biographies apart from the work itself.

Such text stands in many books and on many pages, so a model that gives it back need not have learned this book.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rote.errors import InputError, argument

Place = Literal["front matter", "work", "back matter"]

EDGE = 0.05
"""The share of a text at either end in which words are taken as signs of front or back matter."""

NEAR = 200
"""Characters on both sides of a passage that are searched for such words too."""

_START = re.compile(r"^\*{3} ?START OF (?:THE|THIS) PROJECT GUTENBERG EBOOK.*$", re.MULTILINE | re.IGNORECASE)
_END = re.compile(r"^\*{3} ?END OF (?:THE|THIS) PROJECT GUTENBERG EBOOK.*$", re.MULTILINE | re.IGNORECASE)
_WORDS = re.compile(
    r"(?i:all rights reserved|\bISBN\b|\bcopyright|©|\(c\) ?\d{4}\b|\b(?:published|distributed|printed) (?:by|in)\b"
    r"|\bpublish(?:ers?|ing)\b|library of congress|\babout the (?:author|publisher)\b|\balso by\b|\bfirst edition\b"
    r"|\bwww\.|https?://|project gutenberg)"
    r"|\b[A-Z]{2} \d{5}\b|\b[A-Z]{1,2}\d[A-Z\d]? \d[A-Z]{2}\b"  # addresses: American and British postal codes
)


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a book a passage belongs to. `guessed`: by markers or words found in the text, not as told."""

    place: Place
    guessed: bool


def part(text: str, start: int, end: int, body: tuple[int, int] | None = None) -> Part:
    """Which part of the book the passage from `start` to `end` belongs to, by where its middle lies.

    With `body`, what lies outside it is front or back matter. Without, Project Gutenberg's START and END lines are
    taken for its borders; in a text without them, a passage near either end of the text (EDGE) is front or back matter
    if it, or what stands within NEAR characters of it, has words of copyright notices, publishers' addresses or
    biographies. So a preface without such words is taken for the work, and a last chapter with them is not.
    """
    middle = (start + end) / 2
    marked = body or gutenberg_body(text)
    if marked is not None:
        place: Place = "front matter" if middle < marked[0] else "back matter" if middle >= marked[1] else "work"
        return Part(place, guessed=body is None)
    edge = EDGE * len(text)
    if edge <= middle < len(text) - edge or not _WORDS.search(text, max(0, start - NEAR), end + NEAR):
        return Part("work", guessed=True)
    return Part("front matter" if middle < edge else "back matter", guessed=True)


def gutenberg_body(text: str) -> tuple[int, int] | None:
    """What stands between Project Gutenberg's START and END lines; None where the text has neither."""
    first = _START.search(text)
    last = _END.search(text, first.end() if first else 0)
    if first is None and last is None:
        return None
    return first.end() if first else 0, last.start() if last else len(text)


def read_body(given: str, length: int) -> tuple[int, int]:
    """START:END, in characters of a text of `length`; either may be left out."""
    match = re.fullmatch(r"(\d*):(\d*)", given.strip())
    if match is None or given.strip() == ":":
        raise InputError(f"{argument('body', given)}: give START:END in characters, such as 1200:310000.")
    start, end = int(match[1] or 0), int(match[2] or length)
    if not start < end <= length:
        raise InputError(
            f"{argument('body', given)}: START must be below END, and END at most {length}, the text's characters."
        )
    return start, end
