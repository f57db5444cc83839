"""rote report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from rote.cli.bench import print_score
from rote.cli.command import Asked, command
from rote.cli.compare import print_comparison
from rote.cli.fit import print_lines, print_table
from rote.cli.member import print_member
from rote.cli.probe import print_probe
from rote.cli.reconstruct import print_reconstruction
from rote.cli.screen import print_summary
from rote.cli.sweep import print_sweep

if TYPE_CHECKING:
    from rote.store.run import RunView


@command("rote report runs/alice-bundled")
def report(page: Path, asked: Asked) -> None:
    """Write report.html anew from a finished folder, and print its summary and its tables."""
    from rote import BenchScore, Membership, Probe, Reconstruction, Run, SavedComparison, Sweep

    match opened := asked["folder"]:
        case Sweep():
            print_sweep(opened)
        case SavedComparison():
            print_comparison(opened.result, opened.folder)
        case BenchScore():
            print_score(opened.result, opened.folder)
        case Membership():
            print_member(opened)
        case Probe():
            print_probe(opened)
        case Reconstruction():
            print_reconstruction(opened)
        case Run():
            print_summary(opened)
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
