"""rote verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines

if TYPE_CHECKING:
    from rote import Verification


@command("rote verify runs/alice-bundled --model bundled")
def verify(result: Verification, asked: Asked) -> None:
    """Can this run be relied on? Its seal, its summary and, with the model, a sample of its rows scored again."""
    from rote.report.text.verification import lines

    print_lines(Console(highlight=False), lines(result))
