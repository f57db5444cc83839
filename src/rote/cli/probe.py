"""rote probe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines, print_table
from rote.cli.screen import print_places

if TYPE_CHECKING:
    from rote import Probe
    from rote.jobs.probe import DryRun
    from rote.store.probe import Estimate


@command("rote probe passages.jsonl --target http://localhost:8000/v1/my-model --filter ./small-chat-model")
def probe(found: Probe | DryRun, asked: Asked) -> None:
    """What does a chat model know of these passages? Words of them are asked for; no logits are needed."""
    from rote import Probe

    if isinstance(found, Probe):
        print_probe(found)
    else:
        print_estimate(found.estimates, found.reason)


def print_probe(found: Probe) -> None:
    """What a probe came to: in words, table by table, the rule, and what it cost."""
    from rote.report.text.probe import bias, headline, lede, rule
    from rote.report.text.probefacts import facts
    from rote.report.text.probetables import screen_tables

    out, manifest, summary = Console(highlight=False), found.manifest, found.summary
    print_lines(out, [headline(manifest, summary)], style="bold")
    for sentence in [*lede(manifest, summary), f"How answers were judged: {rule(manifest)}"]:
        print_lines(out, [sentence])
    for table in screen_tables(manifest, summary):
        print_table(out, table.title, table.columns, table.rows)
        print_lines(out, [table.caption] if table.caption else [])
    if summary.positions:
        print_lines(out, ["", "Which letters DE-COP's answers named"], style="italic")
        print_lines(out, bias(summary, manifest))
    print_lines(out, ["", *(f"{name.lower():<13}{value}" for name, value in facts(manifest, summary))])
    print_lines(out, [f"warning: {warning}" for warning in summary.warnings])
    print_places(out, report=found.folder / "report.html", table=found.folder / "scores", seal=found.seal.id)


def print_estimate(estimates: Sequence[Estimate], reason: str = "") -> None:
    """What would be asked, and what it may cost; `reason`: why nothing was asked."""
    from rote.report.text.probecosts import estimates as table_of
    from rote.report.text.probecosts import total

    out, table = Console(highlight=False), table_of(estimates)
    print_lines(out, [total(estimates)], style="bold")
    print_table(out, table.title, table.columns, table.rows)
    print_lines(out, [table.caption])
    print_lines(out, [reason] if reason else [])
