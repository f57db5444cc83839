"""rote spots: the hot-spots of a finished scan."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines, print_rows
from rote.cli.screen import print_strip

if TYPE_CHECKING:
    from rote import Run, Spots


@command("rote spots runs/alice-bundled --at 0.5 --rank probability")
def spots(listed: Spots, asked: Asked) -> None:
    """Where does the model know this text best? The hot-spots of a finished scan, front and back matter told apart."""
    from rote.report.text import numbers
    from rote.report.text.spots import highest_in_words, spots_table, told

    run: Run = asked["run"]
    scan, shown = run.view, listed.spots
    out = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    print_lines(out, [*told(listed, scan), ""])
    print_strip(out, scan, at=listed.threshold, span=listed.span)
    out.print()
    if not shown:
        print_lines(out, [f"No window reaches {numbers.threshold(listed.threshold)}: {highest_in_words(scan)}."])
        return
    by = "longest first" if listed.rank == "length" else "most likely window first"
    which = "All" if len(shown) == listed.hot_spots else f"The first {len(shown)}"
    print_lines(out, [f"{which} of them, {by}:", ""])
    table = Table(box=None, pad_edge=False)
    for name in ("characters", "place", "length", "windows", "highest p", "mean p"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("part", no_wrap=True)
    table.add_column("first words")  # the one column that gives way in a narrow window
    rows = spots_table(shown, len(scan.text), lambda spot: scan.text[spot.start : spot.end])
    print_rows(out, table, [[*row[:-1], spot.part, row[-1]] for row, spot in zip(rows, shown, strict=True)])
    if any(spot.part_guessed for spot in shown):
        guess = (
            "The part is a guess, by Project Gutenberg’s markers or by words of notices near either end of the text; "
            "--body START:END tells it."
        )
        print_lines(out, ["", guess])
