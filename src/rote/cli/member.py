"""rote member."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines, print_table
from rote.cli.screen import print_places

if TYPE_CHECKING:
    from rote import Membership


@command("rote member passages.jsonl --model ./my-model --held-out unseen.jsonl")
def member(found: Membership, asked: Asked) -> None:
    """Did the model see these texts? All the standard scores, against what the texts alone tell."""
    print_member(found)


def print_member(found: Membership) -> None:
    """What membership scores came to: in words, table by table, and what they cost."""
    from rote.report.text.member import blind_check, check, difference, headline, lede, sides
    from rote.report.text.memberfacts import facts
    from rote.report.text.membertables import areas, spread_table, thresholds

    out, summary = Console(highlight=False), found.summary
    print_lines(out, [headline(summary)], style="bold")
    for sentence in lede(summary):
        print_lines(out, [sentence])
    evaluation, test = summary.evaluation, summary.test
    tables = (
        [spread_table(summary, whole=False)]
        if evaluation is None
        else [areas(evaluation), thresholds(evaluation, intervals=False)]
    )
    for table in tables:
        print_table(out, table.title, table.columns, table.rows)
        print_lines(out, [table.caption])
    if test is not None:
        print_lines(out, ["", "All texts together"], style="italic")
        for sentence in (sides(found.manifest, summary), difference(test), check(test), blind_check(test)):
            print_lines(out, [sentence])
    print_lines(out, ["", *(f"{name.lower():<12}{value}" for name, value in facts(found.manifest, summary))])
    print_lines(out, [f"warning: {warning}" for warning in summary.warnings])
    print_places(out, report=found.folder / "report.html", table=found.folder / "scores", seal=found.seal.id)
