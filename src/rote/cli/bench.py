"""rote bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines, print_table
from rote.cli.screen import print_places
from rote.errors import counted

if TYPE_CHECKING:
    from rote.analysis.inspection import Inspection
    from rote.store.attack import StoredAttack
    from rote.store.bench import StoredBench
    from rote.store.submissions import ScoreResult


@command("rote bench build corpus.jsonl --model ./my-model --index my-index --out my-bench", group="bench")
def build(made: StoredBench, asked: Asked) -> None:
    """Choose examples from a corpus by the benchmark's criteria: repeated, unique, not trivial, and emitted."""
    found, out = made.result, Console(highlight=False)
    splits = ", ".join(f"{name} {size:,}" for name, size in (found.splits or {}).items())
    print_lines(out, [f"{counted(sum((found.splits or {}).values()), 'example')}: {splits}."], style="bold")
    lines = [
        f"{found.candidates:,} sequences of {found.criteria.length} tokens stand in the corpus at least "
        f"{found.criteria.repetitions} times; {found.looked_at:,} of them were looked at, in random order."
    ]
    print_lines(out, lines)
    rows = [
        [each.name, f"{each.given:,}", f"{each.passed:,}", f"{each.given - each.passed:,}", each.reason]
        for each in found.filters or ()
    ]
    print_table(out, "filters", ["filter", "in", "out", "rejected", "because"], rows)
    print_places(out, examples=made.folder / "examples.jsonl", rejected=made.folder / "rejected.parquet")


@command("rote bench inspect ./lm-extraction-benchmark", group="bench")
def inspect(found: Inspection, asked: Asked) -> None:
    """Which of the benchmark's criteria its examples satisfy, as far as files alone can tell."""
    from rote.report.text.inspection import headline, inspection_tables

    out = Console(highlight=False)
    print_lines(out, [headline(found)], style="bold")
    for table in inspection_tables(found):
        print_table(out, table.title, table.columns, table.rows)
        print_lines(out, [table.caption] if table.caption else [])


@command("rote bench attack my-bench --model ./my-model --budget 5m --train my-bench --out runs/attack", group="bench")
def attack(attacked: StoredAttack, asked: Asked) -> None:
    """Guess what follows each prefix, most confident first, within a budget. Stop and continue at any time."""
    from rote.report.text.attack import lines

    out, folder = Console(highlight=False), attacked.folder
    print_lines(out, lines(attacked.manifest, attacked.summary))
    print_places(out, guesses=folder / "guesses.csv", found=folder / "guesses.jsonl")


@command("rote bench score guesses.csv --answers test_suffix.npy --out runs/score", group="bench")
def score(found: ScoreResult, asked: Asked) -> None:
    """How many examples do ordered guesses solve before they make too many errors, and at what cost?"""
    print_score(found, asked.get("out"))


def print_score(found: ScoreResult, folder: Path | None) -> None:
    """`folder`: where it was written, if anywhere."""
    from rote.report.text.submissions import facts, headline, lede, score_tables

    out = Console(highlight=False)
    print_lines(out, [headline(found)], style="bold")
    print_lines(out, lede(found))
    for table in score_tables(found):
        print_table(out, table.title, table.columns, table.rows)
        print_lines(out, [table.caption] if table.caption else [])
    print_lines(out, ["", *(f"{name.lower():<12}{value}" for name, value in facts(found))])
    if folder is not None:
        print_places(out, report=folder / "report.html", table=folder / "score.json")
