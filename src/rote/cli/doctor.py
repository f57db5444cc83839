"""rote doctor."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rote.cli.options import AsJson, Debug
from rote.cli.screen import app, messages, print_json


@app.command(epilog="Example: rote doctor")
def doctor(as_json: AsJson = False, debug: Debug = False) -> None:
    """What is installed, which devices there are, which extras are missing and how to get them."""
    from rote.jobs.doctor import examine

    with messages.status("looking around"):
        facts = examine()
    if as_json:
        print_json(facts)
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for key, value in facts.items():
        table.add_row(f"[bold]{escape(key)}[/]", escape(str(value)))
    Console(highlight=False).print(table)
