"""What the command line shows while it works and when it is done. Numbers go to standard output, all else to error."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from rote.runs.store import Run

app = typer.Typer(
    help="Measure what a language model knows by rote: how much of a text it can be made to repeat, and how likely.",
    epilog="Start with: rote scan   (bundled text, bundled model, no network)",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
messages = Console(stderr=True, highlight=False)


@contextmanager
def progress() -> Iterator[Any]:
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=messages, transient=True) as bar:
        tasks: dict[str, Any] = {}
        names = {"places": "looking for places", "windows": "cutting windows", "scored": "scoring"}
        names |= {"listed": "going through the corpus", "drawn": "drawing examples", "generated": "generating"}
        names |= {"compared": "comparing with the truth", "exported": "exporting", "figures": "drawing"}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(names[what], total=total, rate="", completed=done)
            task = bar.tasks[tasks[what]]
            bar.update(tasks[what], completed=done, total=total, rate=f"{task.speed:,.0f}/s" if task.speed else "")

        yield tell


def leave(number: int, frame: object) -> None:
    """End the process at once: libraries that are being imported catch KeyboardInterrupt and go on, or misreport it."""
    messages.show_cursor(True)
    messages.print("stopped: no run was under way. Run the same command again.", soft_wrap=True)
    os._exit(130)


@contextmanager
def interrupted_by(handler: Callable[[int, Any], object]) -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None):  # as in a background job: whoever started it wants it so
        yield
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def resumable(folder: Path, progress: Callable[[], str] | None = None) -> Iterator[None]:
    """`progress` says how far the folder's run has come; without it, a run of scores is asked."""
    try:
        with interrupted_by(signal.default_int_handler):
            yield
    except KeyboardInterrupt:
        from rote.runs.store import Run

        started = any(folder.glob("**/manifest.json"))
        stored = (progress or Run.open(folder).progress)() if started else "nothing stored yet"
        messages.print(f"stopped: {stored} in {folder}. Run the same command again to go on.", soft_wrap=True)
        sys.exit(130)


def print_summary(run: Run, as_json: bool) -> None:
    summary = run.summary
    if as_json:
        print(json.dumps(summary, indent=1, ensure_ascii=False))
        return
    from rote.report.words import summary_lines

    out = Console(highlight=False)
    for line in summary_lines(run.manifest, summary):
        out.print(escape(line), soft_wrap=True)
    out.print(f"\nreport   {run.folder / 'report.html'}\ntable    {run.folder / 'scores'}", soft_wrap=True)
