"""rote figures."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from rote.cli.options import Debug
from rote.cli.screen import app, interrupted_by, messages, progress
from rote.errors import InputError


@app.command(epilog="Example: rote figures runs/alice-bundled --format pdf")
def figures(
    folders: Annotated[
        list[Path], typer.Argument(help="Finished runs, comparisons, sweeps or reconstructions.", metavar="DIR")
    ],
    format: Annotated[str, typer.Option(help="svg, png or pdf.")] = "svg",
    style: Annotated[str, typer.Option(help="paper: a column wide, small letters; slides: large, with titles.")] = (
        "paper"
    ),
    scheme: Annotated[
        str | None, typer.Option(help="One of a run's schemes, as it names it. Default: the first.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for the figures. Default: DIR/figures. Of several DIRs: one in it for each.",
            show_default=False,
        ),
    ] = None,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Draw the plots of a run for a paper or for slides, each with its data as CSV."""
    with messages.status("getting ready"):
        from rote.jobs.figures import figures as draw_figures

    targets = _targets(folders, out)
    console = Console(highlight=False)
    try:
        for number, (folder, target) in enumerate(zip(folders, targets, strict=True)):
            with interrupted_by(signal.default_int_handler), progress() as tell:
                drawn = draw_figures(
                    folder, out=target, format=format, style=style, scheme=scheme, progress=tell  # type: ignore[arg-type]
                )  # fmt: skip
            if number:
                console.print()
            for path in drawn.figures:
                console.print(f"{escape(str(path))}, data {escape(path.with_suffix('.csv').name)}", soft_wrap=True)
            console.print(f"{escape(str(drawn.captions))}: what each shows", soft_wrap=True)
            for needs in dict.fromkeys(drawn.absent.values()):
                names = ", ".join(name for name, own in drawn.absent.items() if own == needs)
                messages.print(f"left out: {names}, for want of {escape(needs)}", soft_wrap=True)
    except KeyboardInterrupt:
        messages.print("stopped: what is drawn already is kept. Run the same command again for the rest.")
        sys.exit(130)


def _targets(folders: list[Path], out: Path | None) -> list[Path | None]:
    """Where each folder's figures go; None: into itself."""
    places = [folder.resolve() for folder in folders]
    if again := next((folder for folder in folders if places.count(folder.resolve()) > 1), None):
        raise InputError(f"{again} was given twice; give each folder once.")
    if out is None or len(folders) == 1:
        return [out] * len(folders)
    names = [place.name for place in places]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(
            f"two of the folders are called {twice!r}, so their figures would mix in {out}; draw them one at a time."
        )
    return [out / name for name in names]
