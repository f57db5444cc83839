"""The command line as a whole: its commands, what starts it and what ends it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from rote.cli import (
    check,
    compare,
    doctor,
    export,
    figures,
    longer,
    rate,
    reconstruct,
    report,
    scan,
    score,
    show,
    spots,
    sweep,
)  # fmt: skip
from rote.cli.screen import app, interrupted_by, leave, messages
from rote.errors import RoteError

if TYPE_CHECKING:
    pass


# As people come to need them, and not as the modules are named.
COMMANDS = (
    scan.scan, score.score, rate.rate, reconstruct.reconstruct, sweep.sweep, spots.spots, longer.longer, show.show,
    compare.compare, check.check, report.report, figures.figures, export.export, doctor.doctor,
)  # fmt: skip
app.registered_commands.sort(key=lambda command: COMMANDS.index(command.callback))


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and leave.", is_eager=True)] = False,
) -> None:
    if show:
        import rote

        print(f"rote {rote.__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; mistakes of the user end in one line that says what to do."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # tqdm reads it when imported: transformers would draw bars of its own
    try:
        with interrupted_by(leave):
            code = app(standalone_mode=False)
    except RoteError as error:
        if "--debug" in sys.argv:
            raise
        messages.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(1)
    except Exception as error:
        show = getattr(error, "show", None)  # click's own usage errors print themselves
        if show is None:
            raise
        show()
        sys.exit(getattr(error, "exit_code", 2))
    sys.exit(code if isinstance(code, int) else 0)
