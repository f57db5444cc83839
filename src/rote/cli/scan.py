"""rote scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rote.cli.command import Asked, command
from rote.cli.screen import print_summary

if TYPE_CHECKING:
    from rote import Run


@command("rote scan book.txt --model ./my-model --out runs/book")
def scan(run: Run, asked: Asked) -> None:
    """Where in this text has the model learned it by rote? Scores sliding windows; stop and continue at any time."""
    print_summary(run)
