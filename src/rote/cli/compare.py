"""rote compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from rote.cli.options import Debug
from rote.cli.screen import app, messages, print_json

if TYPE_CHECKING:
    from rote.store.comparison import ComparisonResult


@app.command(epilog="Example: rote compare runs/book-small runs/book-large --out runs/small-and-large")
def compare(
    folders: Annotated[
        list[Path], typer.Argument(help="Finished runs over the same passages; the first is compared to.")
    ],
    tau: Annotated[
        float | None,
        typer.Option(
            help="Smallest probability that counts as extraction. Default: the largest tau of the runs.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="How many of the largest gains and losses to list.")] = 10,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for the page and the tables. Default: print only.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print comparison.json and nothing else.")] = False,
    debug: Debug = False,
) -> None:
    """What does one model give back that another does not? Compares runs over the same passages."""
    with messages.status("comparing"):
        from rote.jobs.compare import compare as compare_runs

        compared = compare_runs(folders, tau=tau, top=top)
        if out is not None:
            compared.write(out)
    print_comparison(compared.result, out, as_json)


def print_comparison(result: ComparisonResult, folder: Path | None, as_json: bool) -> None:
    """`folder`: where it was written, if anywhere."""
    if as_json:
        print_json(result)
        return
    from rote.report.text.comparison import comparison_lines

    console = Console(highlight=False)
    for line in comparison_lines(result):
        console.print(escape(line), soft_wrap=True)
    if folder is not None:
        tables = f"{folder / 'differences.parquet'}, and .csv"
        console.print(f"\nreport   {folder / 'report.html'}\ntable    {tables}", soft_wrap=True, markup=False)
