"""rote export."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines
from rote.cli.screen import messages

if TYPE_CHECKING:
    from rote import Exported


@command("rote export runs/alice-bundled --to csv --out alice.csv")
def export(exported: Exported, asked: Asked) -> None:
    """Write the results for other programs: a row per example, or the files of lm-evaluation-harness."""
    from rote.report.text import numbers

    out = Console(highlight=False)
    print_lines(out, [f"{path} ({_size(path.stat().st_size)})" for path in exported.files])
    print_lines(out, [numbers.counted(exported.rows, "row")])
    if exported.nul_characters:
        nul = numbers.counted(exported.nul_characters, "NUL character")
        print_lines(messages, [f"note: {nul} written as ␀, because CSV has none; jsonl and parquet keep them."])
    if exported.metadata_kept_whole:
        print_lines(
            messages, ["note: the metadata has too many keys for columns of their own; it is one column of JSON."]
        )


def _size(bytes_written: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if bytes_written < 999.5:
            return f"{bytes_written:.3g} {unit}"
        bytes_written /= 1000
    return f"{bytes_written:.3g} GB"
