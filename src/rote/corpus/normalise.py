"""Texts as people have them, made like the texts that models read: named steps, and the way back to the original.

A step replaces characters or removes some, and never adds one. So every character of the result stands for one or more
neighbours in the original, and one array of borders maps all spans back, exactly and without gaps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rote.errors import InputError, argument
from rote.options import require_kind

Edit = tuple[int, int, str]
"""From which character to which (exclusive) something is replaced, and by what; never by more characters."""

SPACES = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
OPENING = "([{<“‘„‚«"
DASHES = "-–—―_*"  # and what stands around words that were printed in italics
ELIDED = ("tis", "twas", "twere", "twill", "twould", "em", "til", "till", "cause", "bout", "round", "gainst", "neath")
STRAIGHT = {**dict.fromkeys("“”„‟", '"'), **dict.fromkeys("‘’‚‛", "'")}
EXACT_ALL = "exact"
BLANK = " \t"
WORD = re.compile(r"[^ \t\r\n]+")


@dataclass(frozen=True, slots=True, eq=False)
class Normalised:
    """A text as it is cut. Border i of `text` stands at borders[i] of the original, which has borders[-1] characters.

    What was removed belongs to the character before it, at the very start to the first. `changed`: for each step, in
    the order they were taken, in how many places it changed something.
    """

    text: str
    borders: NDArray[np.int64]
    changed: dict[str, int]

    def became(self) -> NDArray[np.int64]:
        """For each character of the original the one that it became, as its code point; -1 where it was removed."""
        codes = np.full(int(self.borders[-1]), -1, dtype=np.int64)
        codes[self.borders[:-1]] = np.frombuffer(self.text.encode("utf-32-le"), "<u4")
        return codes


def normalised(text: str, steps: Sequence[str] = ()) -> Normalised:
    """The text after these steps; they are taken in one fixed order, whatever the order they are given in."""
    now, borders = text, np.arange(len(text) + 1)
    changed: dict[str, int] = {}
    for step in ordered(steps):
        now, moved, changed[step] = _applied(now, _edits(step)(now))
        borders = borders[moved]
    return Normalised(now, borders, changed)


def ordered(steps: Any) -> list[str]:
    """Steps in the order they are taken, once each; `exact` stands for all that undo one thing and guess nothing."""
    given = [steps] if isinstance(steps, str) else steps
    require_kind("normalise", given, Sequence, "a list of steps")
    for step in given:
        if step != EXACT_ALL and not _known(step):
            raise InputError(f"{argument('normalise')}: there is no step {step!r}. The steps are {KNOWN}.")
    asked = {step for one in given for step in (EXACT if one == EXACT_ALL else (one,))}
    for group in (QUOTES, LINES):
        if len(both := sorted(step for step in asked if step.startswith(group))) > 1:
            raise InputError(f"{argument('normalise')}: {both[0]} and {both[1]} undo each other; give one of them.")
    order = list(STEPS)
    return sorted(asked, key=lambda step: order.index("wrap-N" if step.startswith("wrap-") else step))


def typed_steps(text: str) -> list[str]:
    """What line-ends,spaces stands for on a command line."""
    steps = [part.strip() for part in text.split(",")]
    for step in steps:
        if step != EXACT_ALL and not _known(step):
            raise ValueError(f"there is no step {step!r}; give some of {KNOWN} with commas between.")
    return steps


def _known(step: Any) -> bool:
    if not isinstance(step, str):
        return False
    return step in STEPS and step != "wrap-N" if not step.startswith("wrap-") else _width(step) is not None


def _width(step: str) -> int | None:
    number = step.removeprefix("wrap-")
    return int(number) if number.isdecimal() and number.isascii() and not number.startswith("0") else None


def _applied(text: str, edits: Iterable[Edit]) -> tuple[str, NDArray[np.int64], int]:
    """The text with its edits, the borders of the result in the text, and how many edits there were."""
    parts: list[str] = []
    kept = np.ones(len(text), dtype=np.bool_)
    at = count = 0
    for start, end, new in edits:
        if text[start:end] == new:
            continue
        parts += (text[at:start], new)
        kept[start + len(new) : end] = False
        at, count = end, count + 1
    now = "".join([*parts, text[at:]])
    borders = np.append(np.flatnonzero(kept), len(text))
    if now:
        borders[0] = 0
    return now, borders, count


# --- the steps


def _edits(step: str) -> Callable[[str], Iterator[Edit]]:
    if step.startswith("wrap-"):
        width = _width(step)
        assert width is not None
        return lambda text: _wrapped(text, width)
    return STEPS[step]


def _replacing(pattern: str, new: str) -> Callable[[str], Iterator[Edit]]:
    found = re.compile(pattern)
    return lambda text: ((match.start(), match.end(), new) for match in found.finditer(text))


def _straight(text: str) -> Iterator[Edit]:
    return ((m.start(), m.end(), STRAIGHT[m[0]]) for m in re.finditer("[“”„‟‘’‚‛]", text))


def _curly(text: str) -> Iterator[Edit]:
    """Straight quotation marks by what stands around them: one that begins a word opens, any other closes."""
    before = ""  # the character before, as it is now
    last = -1
    for match in re.finditer("[\"']", text):
        at = match.start()
        before = before if last == at - 1 else text[at - 1 : at]
        opens = _opens(before, text[at + 1 : at + 2])
        if match[0] == '"':
            before = "“" if opens else "”"
        else:
            word = re.compile(r"\w*").match(text, at + 1)
            elided = word is not None and (word[0].lower() in ELIDED or word[0][:1].isdigit())
            before = "‘" if opens and not elided else "’"
        last = at
        yield at, at + 1, before


def _opens(before: str, after: str) -> bool:
    if not after or after.isspace():
        return False
    if not before or before.isspace() or before in OPENING:
        return True
    return before in DASHES and (after.isalnum() or after in "\"'")


def _unwrapped(text: str) -> Iterator[Edit]:
    """Line breaks inside paragraphs become spaces."""
    return (
        (end, next_, " ")
        for words in _paragraphs(text)
        for (_, end), (next_, _) in pairwise(words)
        if text[end:next_].strip(BLANK)
    )


def _wrapped(text: str, width: int) -> Iterator[Edit]:
    """Paragraphs with as many words on a line as fit into `width` characters."""
    for words in _paragraphs(text):
        line = words[0][1] - words[0][0]  # characters on the line so far
        for (_, end), (start, last) in pairwise(words):
            broken = bool(text[end:start].strip(BLANK))
            line += (1 if broken else start - end) + last - start
            if line > width:
                line = last - start
                yield end, start, "\n"
            elif broken:
                yield end, start, " "


def _paragraphs(text: str) -> Iterator[list[tuple[int, int]]]:
    """Where the words of each paragraph start and end; it goes on to the next line that is empty or indented."""
    for found in re.finditer(r"(?<![^\r\n])[^ \t\r\n][^\r\n]*(?:(?:\r\n?|\n)[^ \t\r\n][^\r\n]*)*", text):
        yield [word.span() for word in WORD.finditer(text, *found.span())]


STEPS: dict[str, Callable[[str], Iterator[Edit]]] = {
    "bom": _replacing("\ufeff+", ""),
    "line-ends": _replacing("\r\n?", "\n"),
    "soft-hyphens": _replacing("\u00ad+", ""),
    "spaces": _replacing(f"[{SPACES}]", " "),
    "double-spaces": _replacing(r"(?<=\S) {2,}", " "),
    "straight-quotes": _straight,
    "curly-quotes": _curly,
    "unwrap": _unwrapped,
    "wrap-N": lambda text: iter(()),
}
"""Every step, in the order they are taken; N is the longest line's number of characters."""

EXACT = ("bom", "line-ends", "soft-hyphens", "spaces", "double-spaces")
"""Steps that undo what copying and saving do to a text. The others are guesses at how it was printed."""

QUOTES = ("straight-quotes", "curly-quotes")
LINES = ("unwrap", "wrap-")
KNOWN = ", ".join([*STEPS, f"{EXACT_ALL} (the first {len(EXACT)})"])
