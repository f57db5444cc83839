"""rote figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines
from rote.cli.screen import messages

if TYPE_CHECKING:
    from rote import DrawnFigures


@command("rote figures runs/alice-bundled --format pdf")
def figures(drawn: list[DrawnFigures], asked: Asked) -> None:
    """Draw the plots of a run for a paper or for slides, each with its data as CSV."""
    out = Console(highlight=False)
    for number, own in enumerate(drawn):
        if number:
            out.print()
        print_lines(out, [f"{path}, data {path.with_suffix('.csv').name}" for path in own.figures])
        print_lines(out, [f"{own.captions}: what each shows"])
        for needs in dict.fromkeys(own.absent.values()):
            names = ", ".join(name for name, wanted in own.absent.items() if wanted == needs)
            print_lines(messages, [f"left out: {names}, for want of {needs}"])
