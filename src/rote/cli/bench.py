"""rote bench: the extraction benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines
from rote.cli.screen import print_places

if TYPE_CHECKING:
    from rote.store.attack import StoredAttack


@command("rote bench attack ./my-bench --model ./my-model --budget 5m --train ./my-bench --out runs/attack", "bench")
def attack(attacked: StoredAttack, asked: Asked) -> None:
    """Guess what follows each prefix, most confident first, within a budget. Stop and continue at any time."""
    from rote.report.text.attack import lines

    out, folder = Console(highlight=False), attacked.folder
    print_lines(out, lines(attacked.manifest, attacked.summary))
    print_places(out, guesses=folder / "guesses.csv", found=folder / "guesses.jsonl")
