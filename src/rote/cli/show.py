"""rote show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from rote.cli.command import Asked, command
from rote.cli.fit import print_texts

if TYPE_CHECKING:
    from rote import ShownPassage

STYLES = {
    "plain": "",
    "heading": "bold",
    "prefix": "dim",
    "suffix": "bold",
    "del": "red strike",
    "ins": "green underline",
}
WITHOUT_COLOUR = {"del": "[-{}-]", "ins": "{{+{}+}}"}


@command('rote show runs/alice-bundled --quote "said the Hatter"')
def show(shown: ShownPassage, asked: Asked) -> None:
    """How likely is this one passage? Token by token, and what that means for someone who keeps asking."""
    from rote.report.text.passage import passage_lines
    from rote.report.text.terminal import safe

    out = Console(highlight=False)
    lines: list[Text | str] = []
    for line in passage_lines(shown):
        if all(kind == "plain" for kind, _ in line):
            lines.append(line[0][1] if len(line) == 1 else "".join(part for _, part in line))
            continue
        text = Text()
        for kind, part in line:
            marked = part if out.color_system else WITHOUT_COLOUR.get(kind, "{}").format(part)
            text.append(safe(marked), STYLES[kind])
        lines.append(text)
    print_texts(out, lines)
