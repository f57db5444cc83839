"""rote sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines, print_table
from rote.cli.screen import print_places

if TYPE_CHECKING:
    from rote import Sweep


@command("rote sweep book.txt --model ./my-model --scheme top_k=1,5,40,0 --scheme top_p=0.1,0.5,0.9 --prefix 10,25,50")
def sweep(swept: Sweep, asked: Asked) -> None:
    """How the rate varies with the scheme (one pass for all), the prompt's length and the suffix's."""
    print_sweep(swept)


def print_sweep(swept: Sweep) -> None:
    from rote.report.text.sweep import facts, headline, lede, sweep_tables

    result, out = swept.result, Console(highlight=False)
    print_lines(out, [headline(result), *lede(result)])
    for each in sweep_tables(result):
        print_table(out, each.title, each.columns, each.rows)
        print_lines(out, [each.caption] if each.caption else [])
    print_lines(out, ["", *(f"{name.lower():<12}{value}" for name, value in facts(result))])
    print_places(out, report=swept.folder / "report.html", table=swept.folder / "sweep.json")
