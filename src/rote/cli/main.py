"""The command line as a whole: what starts it, what ends it, and its two smallest commands."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rote.cli import books as _books  # noqa: F401  (registers its commands)
from rote.cli import check as _check  # noqa: F401  (registers its commands)
from rote.cli import compare as _compare  # noqa: F401  (registers its commands)
from rote.cli import rate as _rate  # noqa: F401  (registers its commands)
from rote.cli import reconstruct as _reconstruct
from rote.cli import score as _score  # noqa: F401  (registers its commands)
from rote.cli import show as _show  # noqa: F401  (registers its commands)
from rote.cli import sweep as _sweep  # noqa: F401  (registers its commands)
from rote.cli.options import AsJson, Debug
from rote.cli.screen import app, interrupted_by, leave, messages, print_summary
from rote.errors import RoteError


@app.command(epilog="Example: rote report runs/alice-bundled")
def report(
    folder: Annotated[Path, typer.Argument(help="A finished run folder.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write report.html anew from a run folder and print its summary."""
    from rote.runs.reconstruct import Reconstruction, is_reconstruction
    from rote.runs.store import Run

    if is_reconstruction(folder):
        written = Reconstruction.open(folder)
        written.report()
        _reconstruct.print_reconstruction(written, as_json)
        return
    run = Run.open(folder)
    run.report()
    print_summary(run, as_json)


@app.command(epilog="Example: rote doctor")
def doctor(as_json: AsJson = False, debug: Debug = False) -> None:
    """What is installed, which devices there are, which extras are missing and how to get them."""
    from rote.doctor import examine

    with messages.status("looking around"):
        found = examine()
    if as_json:
        print(json.dumps(found, indent=1))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for key, value in found.items():
        table.add_row(f"[bold]{escape(key)}[/]", escape(str(value)))
    Console(highlight=False).print(table)


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
