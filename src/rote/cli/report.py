"""rote report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rote.cli.compare import print_comparison
from rote.cli.fit import print_lines, print_table
from rote.cli.options import AsJson, Debug
from rote.cli.reconstruct import print_reconstruction
from rote.cli.screen import app, messages, print_summary, progress
from rote.cli.sweep import print_sweep

if TYPE_CHECKING:
    from rote.store.run import RunView


@app.command(epilog="Example: rote report runs/alice-bundled")
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run, reconstruction, sweep or comparison.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write report.html anew from a finished folder, and print its summary and its tables."""
    with messages.status("getting ready"):
        from rote.jobs.open import Reconstruction, Run, SavedComparison, Sweep
        from rote.jobs.open import open as open_folder

    opened = open_folder(folder)
    if isinstance(opened, SavedComparison):
        with messages.status("comparing"):
            opened.report()
    else:
        with progress() as tell:
            opened.report(progress=tell)
    match opened:
        case Sweep():
            print_sweep(opened, as_json)
        case SavedComparison():
            print_comparison(opened.result, folder, as_json)
        case Reconstruction():
            print_reconstruction(opened, as_json)
        case Run():
            print_summary(opened, as_json)
            if not as_json:
                _print_tables(opened.view)


def _print_tables(run: RunView) -> None:
    """The (n, p) rates, the groups and how p_z is distributed, under a run's first scheme; and all schemes' rates."""
    from rote.report.text.tables import distribution, groups, odds_table, schemes_table

    out = Console(highlight=False)
    odds = odds_table(run)
    title = f"{run.unit.capitalize()}s that come at least once in n generations with probability p"
    print_table(out, title, ("n", *odds["columns"]), odds["rows"])
    print_lines(out, [odds["note"]])
    if others := schemes_table(run):
        print_table(out, "Across schemes", ("scheme", *others["columns"]), others["rows"])
    for group in groups(run):
        columns = (group["key"], group["unit"].lower(), "greedy", f"at {run.summary.tau:g}", group["bar"])
        cells = [[row[name] for name in ("label", "examples", "greedy", "rate", "interval")] for row in group["rows"]]
        print_table(out, f"By {group['key']}", columns, cells)
    if run.scanned:
        shares = distribution(run.rows)
        print_table(out, shares["title"], ("p_z", "windows", ""), shares["rows"])
