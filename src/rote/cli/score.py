"""rote score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rote.cli.command import Asked, command
from rote.cli.screen import print_summary

if TYPE_CHECKING:
    from rote import Run


@command("rote score examples.jsonl --model ./my-model --out runs/examples")
def score(run: Run, asked: Asked) -> None:
    """Score given examples. --prefix and --suffix say where a {"text": ...} line is split, in tokens."""
    print_summary(run)
