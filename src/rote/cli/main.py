"""The command line as a whole: what starts it, what ends it, and its two smallest commands."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rote.cli import books, check, compare, export, figures, rate, reconstruct, score, show, sweep
from rote.cli.fit import print_lines, print_table
from rote.cli.options import AsJson, Debug
from rote.cli.screen import app, interrupted_by, leave, messages, print_summary
from rote.errors import RoteError

if TYPE_CHECKING:
    from rote.store.run import Run


@app.command(epilog="Example: rote report runs/alice-bundled")
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run, reconstruction, sweep or comparison.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write report.html anew from a finished folder, and print its summary and its tables."""
    from rote.jobs.compare import is_comparison, report_comparison
    from rote.jobs.reconstruct import Reconstruction, is_reconstruction
    from rote.jobs.sweep import is_sweep, report_sweep
    from rote.store.run import Run

    if is_sweep(folder):
        sweep.print_sweep(report_sweep(folder), folder, as_json)
        return
    if is_comparison(folder):
        with messages.status("comparing"):
            found = report_comparison(folder)
        compare.print_comparison(found, folder, as_json)
        return
    if is_reconstruction(folder):
        written = Reconstruction.open(folder)
        written.report()
        reconstruct.print_reconstruction(written, as_json)
        return
    run = Run.open(folder)
    run.report()
    print_summary(run, as_json)
    if not as_json:
        _print_tables(run)


def _print_tables(run: Run) -> None:
    """The (n, p) rates, the groups and how p_z is distributed, under a run's first scheme; and all schemes' rates."""
    import polars as pl

    from rote.report.text.tables import distribution, groups, odds_table, schemes_table

    manifest, summary = run.manifest, run.summary
    scheme = manifest["schemes"][0]
    rows = run.scores.filter(pl.col("scheme") == scheme)
    out = Console(highlight=False)
    if odds := odds_table(manifest, summary["schemes"].get(scheme, {})):
        title = f"{odds['unit'].capitalize()}s that come at least once in n generations with probability p"
        print_table(out, title, ("n", *odds["columns"]), odds["rows"])
        print_lines(out, [odds["note"]])
    if others := schemes_table(manifest, summary):
        print_table(out, "Across schemes", ("scheme", *others["columns"]), others["rows"])
    for group in groups(rows, summary["tau"], manifest):
        columns = (group["key"], group["unit"].lower(), "greedy", f"at {summary['tau']:g}", group["bar"])
        cells = [[row[name] for name in ("label", "examples", "greedy", "rate", "interval")] for row in group["rows"]]
        print_table(out, f"By {group['key']}", columns, cells)
    if manifest["kind"] == "scan":
        found = distribution(rows)
        print_table(out, found["title"], ("p_z", "windows", ""), found["rows"])


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


# As people come to need them, and not as the modules are named.
COMMANDS = (
    score.scan, score.score, rate.rate, reconstruct.reconstruct, sweep.sweep, books.spots, books.longer, show.show,
    compare.compare, check.check, report, figures.figures, export.export, doctor,
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
