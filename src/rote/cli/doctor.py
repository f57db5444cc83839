"""rote doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from rote.cli.command import Asked, command
from rote.cli.fit import print_rows

if TYPE_CHECKING:
    from rote import Doctor


@command("rote doctor")
def doctor(found: Doctor, asked: Asked) -> None:
    """What is installed, which devices there are, which extras are missing and how to get them."""
    table = Table("", "", show_header=False, box=None, pad_edge=False)
    print_rows(Console(highlight=False), table, [[name, fact] for name, fact in found.facts.items()])
