"""Text and tables that fit the window: wrapped at words, no number cut off. In a pipe every line stays whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_NAME = re.compile(r"\S+(?: \S+)*?  +(?=\S)")
_TOGETHER = re.compile(  # p = 50%, > 0.999, × 2.5, 0.3% ± 0.1%, 1.5 s
    r"(?<=\b[pnτ]) (?=[=≥] )|(?<=[=≥≤<>×]) (?=\d)| (?=± )|(?<=±) (?=\d)|(?<=\d) (?=s\b)"
)
_JOINT = "\ufdd3"  # a noncharacter: set aside for use within a program


def print_lines(out: Console, lines: Sequence[str], style: str = "") -> None:
    """Lines of text as they are, or in a terminal wrapped at words to its width.

    Lines of the form `name    value`, one under the other, go on under their values, others under their first word.
    Tables that do not fit are told row by row.
    """
    from rote.report.text.comparison import TableLine
    from rote.report.text.terminal import safe

    def kind(line: str) -> int:
        return len(line.cells) if isinstance(line, TableLine) else -bool(line.strip())

    for columns, group in groupby(lines, key=kind):
        given = list(group)
        block = [safe(line) for line in given]
        if columns > 0 and out.is_terminal:
            block = _fitted_rows(out, block, [[safe(cell) for cell in getattr(line, "cells", ())] for line in given])
        elif columns < 0 and out.is_terminal:
            block = _fitted(out, block)
        for line in block:
            out.print(Text(line, style), soft_wrap=True)


def print_texts(out: Console, lines: Sequence[Text | str]) -> None:
    """The same for lines of which some have styles of their own."""
    for plain, group in groupby(lines, key=lambda line: isinstance(line, str)):
        if plain:
            print_lines(out, [line for line in group if isinstance(line, str)])
            continue
        for line in group:
            assert isinstance(line, Text)
            for part in _wrapped(out, line) if out.is_terminal and cell_len(line.plain) > out.width else [line]:
                out.print(part, soft_wrap=True)


def _wrapped(out: Console, line: Text) -> Iterator[Text]:
    indent = len(line.plain) - len(line.plain.lstrip(" "))
    joined = line[indent:]
    joined.plain = _TOGETHER.sub(_JOINT, joined.plain)
    for part in joined.wrap(out, max(out.width - indent, 1)):
        part.plain = part.plain.replace(_JOINT, " ")
        part.rstrip()
        yield Text(" " * indent).append_text(part)


def _fitted_rows(out: Console, lines: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows of a table: as they are, or where they do not fit, a few lines for each."""
    if all(cell_len(line) <= out.width for line in lines):
        return list(lines)
    if len(rows[0]) > 2:
        return _stacked(out, rows)
    names = max(cell_len(name) for name, *_ in rows) + 2
    return [part for name, *value in rows for part in wrap(out, "".join(value), f"{name:<{names}}")]


def _fitted(out: Console, block: Sequence[str]) -> list[str]:
    if all(cell_len(line) <= out.width for line in block):
        return list(block)
    columns = _columns(block)
    cells = [[line[start:end].strip() for start, end in columns] for line in block]
    if len(columns) > 2 and len(block) > 1 and all(map(all, cells)):
        return _stacked(out, cells)
    indent = _indent(block)
    starts = [indent or len(line) - len(line.lstrip(" ")) for line in block]
    return [part for line, at in zip(block, starts, strict=True) for part in wrap(out, line[at:], line[:at])]


def wrap(out: Console, text: str, first: str = "", hang: int | None = None) -> list[str]:
    """The text in lines that fit the window: the first after `first`, the others indented by `hang`, or like it."""
    width = cell_len(first) if hang is None else hang
    if width > out.width // 2:  # next to nothing would fit beside it
        return [*wrap(out, first.rstrip()), *wrap(out, text, "  ")]
    parts = Text(_TOGETHER.sub(_JOINT, text)).wrap(out, out.width - width)
    lines = [part.plain.rstrip().replace(_JOINT, " ") for part in parts]
    return [(" " * width if i else first) + line for i, line in enumerate(lines)]


def _indent(block: Sequence[str]) -> int:
    """Where the values of `name    value` lines begin; 0 where these are sentences."""
    columns = {match.end() for line in block if (match := _NAME.match(line))}
    at = columns.pop() if len(columns) == 1 else 0
    return at if at and all(len(line) > at and line[at - 1] == " " != line[at] for line in block) else 0


def _columns(block: Sequence[str]) -> list[tuple[int, int]]:
    """Where the columns of aligned lines begin and end: between them, two characters or more are blank in all lines."""
    length = max(map(len, block))
    padded = [line.ljust(length) for line in block]
    taken = "".join("x" if any(line[i] != " " for line in padded) else " " for i in range(length))
    starts = [0, *(match.end() for match in re.finditer("  +", taken)), length]
    return [(start, end) for start, end in pairwise(starts) if end > start]


def _stacked(out: Console, rows: Sequence[Sequence[str]]) -> list[str]:
    """Each row by itself, with the titles of its cells; the first row has the titles."""
    head, *others = rows
    lines = wrap(out, f"{head[0]}:") if head[0].strip() else []
    titles = [f"{title}:" if title[-1:].isdigit() or title.endswith("%") else title for title in head[1:]]
    for name, *cells in others:
        told = [f"{title} {cell}".lstrip() for title, cell in zip(titles, cells, strict=True) if cell]
        between = "; " if any(", " in cell for cell in cells) else ", "
        lines += wrap(out, f"{name}: {between.join(told)}", "  ", hang=4)
    return lines


def print_table(out: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table under its title."""
    out.print()
    print_lines(out, [title], style="italic")
    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    whole = sum(max(map(cell_len, column)) + 3 for column in zip(columns, *rows, strict=True))
    if out.is_terminal and whole > out.width:
        for column, (name, *cells) in zip(table.columns, zip(columns, *rows, strict=True), strict=True):
            column.width = max(map(cell_len, [*name.split(), *cells]), default=1)  # only the heading may be folded
    print_rows(out, table, rows)


def print_rows(out: Console, table: Table, rows: Sequence[Sequence[str]]) -> None:
    """Rows in a table that has its columns, or one after the other where the window is too narrow for it.

    A number that is cut off would be another number.
    """
    from rote.report.text.terminal import safe

    cells = [[safe(cell) for cell in row] for row in rows]
    for row in cells:
        table.add_row(*map(escape, row))
    needed = Measurement.get(out, out.options.update(max_width=10_000), table)
    if not out.is_terminal:
        table.width = needed.maximum
        out.print(table, soft_wrap=True)
    elif needed.minimum > out.width:
        names = [str(column.header) for column in table.columns]
        print_lines(out, ["", *_stacked(out, [names, *cells]), *([""] if table.box else [])])
    else:
        out.print(table)
