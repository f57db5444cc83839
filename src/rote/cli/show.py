"""rote show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from rote.cli.options import Debug
from rote.cli.screen import app, messages, print_json

STYLES = {
    "plain": "",
    "heading": "bold",
    "prefix": "dim",
    "suffix": "bold",
    "del": "red strike",
    "ins": "green underline",
}
WITHOUT_COLOUR = {"del": "[-{}-]", "ins": "{{+{}+}}"}


@app.command(epilog='Example: rote show runs/alice-bundled --quote "said the Hatter"')
def show(
    folders: Annotated[
        list[Path], typer.Argument(help="Finished runs; several over the same passages go side by side.")
    ],
    example: Annotated[
        str | None, typer.Option(help="The passage's id: wSTART in a scan, else as given.", show_default=False)
    ] = None,
    quote: Annotated[
        str | None,
        typer.Option(help="Words of the text: the window whose suffix holds most of them.", show_default=False),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(
            help="A character of the text, from 0: the likeliest window whose suffix covers it.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON and nothing else.")] = False,
    debug: Debug = False,
) -> None:
    """How likely is this one passage? Token by token, and what that means for someone who keeps asking."""
    with messages.status("looking it up"):
        from rote.jobs.show import passage
        from rote.report.text.passage import passage_lines

        shown = passage(folders, example=example, quote=quote, at=at)
    if as_json:
        print_json(shown)
        return
    console = Console(highlight=False)
    for line in passage_lines(shown):
        text = Text()
        for kind, part in line:
            marked = part if console.color_system else WITHOUT_COLOUR.get(kind, "{}").format(part)
            text.append(marked, STYLES[kind])
        console.print(text, soft_wrap=True)
