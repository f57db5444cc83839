"""rote rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rote.cli.command import Asked, command
from rote.cli.screen import print_summary

if TYPE_CHECKING:
    from rote import Run


@command("rote rate corpus.jsonl --held-out unseen.jsonl --model ./my-model --documents 1000")
def rate(run: Run, asked: Asked) -> None:
    """How much of a corpus does the model give back on average? Scores examples drawn at random; with an error bar."""
    print_summary(run)
