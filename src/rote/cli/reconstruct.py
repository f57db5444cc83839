"""rote reconstruct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines
from rote.cli.screen import print_places

if TYPE_CHECKING:
    from rote import Reconstruction


@command("rote reconstruct --seed opening.txt --truth book.txt --model ./my-model --out runs/again")
def reconstruct(written: Reconstruction, asked: Asked) -> None:
    """Can the model write the whole book from its first sentences? Stop and continue at any time."""
    print_reconstruction(written)


def print_reconstruction(written: Reconstruction) -> None:
    from rote.report.text.reconstruction import lines

    out = Console(highlight=False)
    print_lines(out, lines(written.manifest, written.summary))
    print_places(out, report=written.folder / "report.html", text=written.folder / "generated.txt")
