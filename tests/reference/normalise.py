"""The steps that make a text like those that models read, slowly: a list of characters that know where they come from.

Each piece is [character, start, end]: what stands now for text[start:end]. A step goes through the pieces one by one,
changes a piece's character, or removes a piece and gives its place to the piece before. No regular expressions.
"""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from typing import Any

Piece = list[Any]  # [character, start, end]


def reference_normalised(text: str, steps: list[str]) -> tuple[str, list[int]]:
    """The text after these steps, in the order given, and where each of its borders stands in the original."""
    pieces: list[Piece] = [[character, at, at + 1] for at, character in enumerate(text)]
    for step in steps:
        name, _, number = step.partition("-N-")
        pieces = STEPS[name](pieces, int(number)) if number else STEPS[name](pieces)
    borders = [piece[1] for piece in pieces] + [len(text)]
    if pieces:
        borders[0] = 0
    return "".join(piece[0] for piece in pieces), borders


def without(pieces: list[Piece], removed: list[bool]) -> list[Piece]:
    kept: list[Piece] = []
    for piece, gone in zip(pieces, removed, strict=True):
        if not gone:
            kept.append(list(piece))
        elif kept:
            kept[-1][2] = piece[2]
    return kept


def character(pieces: list[Piece], at: int) -> str:
    return pieces[at][0] if 0 <= at < len(pieces) else ""


def bom(pieces: list[Piece]) -> list[Piece]:
    return without(pieces, [piece[0] == "\ufeff" for piece in pieces])


def soft_hyphens(pieces: list[Piece]) -> list[Piece]:
    return without(pieces, [piece[0] == "\u00ad" for piece in pieces])


def line_ends(pieces: list[Piece]) -> list[Piece]:
    second = [piece[0] == "\n" and character(pieces, at - 1) == "\r" for at, piece in enumerate(pieces)]
    kept = without(pieces, second)
    return [["\n" if piece[0] == "\r" else piece[0], *piece[1:]] for piece in kept]


def spaces(pieces: list[Piece]) -> list[Piece]:
    return [[" " if unicodedata.category(piece[0]) == "Zs" else piece[0], *piece[1:]] for piece in pieces]


def double_spaces(pieces: list[Piece]) -> list[Piece]:
    """Of spaces in a row only the first stays, unless the row begins a line."""
    removed = []
    for at, piece in enumerate(pieces):
        first = at
        while first > 0 and pieces[first - 1][0] == " ":
            first -= 1
        before = character(pieces, first - 1)
        removed.append(piece[0] == " " and first < at and before != "" and not before.isspace())
    return without(pieces, removed)


def straight_quotes(pieces: list[Piece]) -> list[Piece]:
    table = {"“": '"', "”": '"', "„": '"', "‟": '"', "‘": "'", "’": "'", "‚": "'", "‛": "'"}
    return [[table.get(piece[0], piece[0]), *piece[1:]] for piece in pieces]


def curly_quotes(pieces: list[Piece]) -> list[Piece]:
    now = [list(piece) for piece in pieces]
    for at, piece in enumerate(now):
        if piece[0] not in ('"', "'"):
            continue
        before, after = character(now, at - 1), character(now, at + 1)
        opening = False
        if after and not after.isspace():
            opening = not before or before.isspace() or before in "([{<“‘„‚«"
            opening = opening or (before in "-–—―_*" and (after.isalnum() or after in "\"'"))
        if piece[0] == '"':
            piece[0] = "“" if opening else "”"
            continue
        word, next_ = "", at + 1
        while character(now, next_) and (character(now, next_).isalnum() or character(now, next_) == "_"):
            word, next_ = word + character(now, next_), next_ + 1
        left_out = ["tis", "twas", "twere", "twill", "twould", "em", "til", "till", "cause", "bout", "round",
                    "gainst", "neath"]  # fmt: skip
        if word.lower() in left_out or (word and word[0].isdigit()):
            opening = False
        piece[0] = "‘" if opening else "’"
    return now


def lines_of(pieces: list[Piece]) -> list[tuple[int, int, int]]:
    """(first piece, end of what is on the line, where the next line begins) of each line."""
    lines, first, at = [], 0, 0
    while at < len(pieces):
        if pieces[at][0] == "\r" and character(pieces, at + 1) == "\n":
            lines.append((first, at, at + 2))
            at = first = at + 2
        elif pieces[at][0] in "\r\n":
            lines.append((first, at, at + 1))
            at = first = at + 1
        else:
            at += 1
    lines.append((first, len(pieces), len(pieces)))
    return lines


def paragraphs(pieces: list[Piece]) -> list[list[tuple[int, int]]]:
    """Of each paragraph the words, as (first piece, end). One that is indented, or empty, ends a paragraph."""
    found: list[list[tuple[int, int]]] = [[]]
    for first, end, _ in lines_of(pieces):
        if first == end or pieces[first][0] in " \t":
            found.append([])
            continue
        at = first
        while at < end:
            word = at
            while at < end and pieces[at][0] not in " \t":
                at += 1
            found[-1].append((word, at))
            while at < end and pieces[at][0] in " \t":
                at += 1
    return [words for words in found if words]


def joined(pieces: list[Piece], gaps: dict[tuple[int, int], str]) -> list[Piece]:
    """Each gap between two words becomes one character."""
    removed = [False] * len(pieces)
    now = [list(piece) for piece in pieces]
    for (first, end), new in gaps.items():
        now[first][0] = new
        for at in range(first + 1, end):
            removed[at] = True
    return without(now, removed)


def unwrap(pieces: list[Piece]) -> list[Piece]:
    gaps = {}
    for words in paragraphs(pieces):
        for (_, end), (start, _) in pairwise(words):
            if any(piece[0] in "\r\n" for piece in pieces[end:start]):
                gaps[end, start] = " "
    return joined(pieces, gaps)


def wrap(pieces: list[Piece], width: int) -> list[Piece]:
    gaps = {}
    for words in paragraphs(pieces):
        column = words[0][1] - words[0][0]
        for (_, end), (start, last) in pairwise(words):
            broken = any(piece[0] in "\r\n" for piece in pieces[end:start])
            room = 1 if broken else start - end
            if column + room + (last - start) > width:
                gaps[end, start] = "\n"
                column = last - start
            else:
                if broken:
                    gaps[end, start] = " "
                column += room + (last - start)
    return joined(pieces, gaps)


STEPS: dict[str, Any] = {
    "bom": bom,
    "line-ends": line_ends,
    "soft-hyphens": soft_hyphens,
    "spaces": spaces,
    "double-spaces": double_spaces,
    "straight-quotes": straight_quotes,
    "curly-quotes": curly_quotes,
    "unwrap": unwrap,
    "wrap": wrap,
}
