"""rote compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines
from rote.cli.screen import print_places

if TYPE_CHECKING:
    from rote import Comparison
    from rote.store.comparison import ComparisonResult


@command("rote compare runs/book-small runs/book-large --out runs/small-and-large")
def compare(compared: Comparison, asked: Asked) -> None:
    """What does one model give back that another does not? Compares runs over the same passages."""
    print_comparison(compared.result, asked.get("out"))


def print_comparison(result: ComparisonResult, folder: Path | None) -> None:
    """`folder`: where it was written, if anywhere."""
    from rote.report.text.comparison import comparison_lines
    from rote.report.text.conclusion import conclusion

    out = Console(highlight=False)
    print_lines(out, conclusion(result), style="bold")
    print_lines(out, comparison_lines(result))
    if folder is not None:
        print_places(out, report=folder / "report.html", table=f"{folder / 'differences.parquet'}, and .csv")
