"""rote export."""

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


@app.command(epilog="Example: rote export runs/alice-bundled --to csv --out alice.csv")
def export(
    folder: Annotated[Path, typer.Argument(help="A finished run, a sweep or a comparison.", metavar="DIR")],
    to: Annotated[str, typer.Option(help="csv, jsonl, parquet or lm-eval.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The file; for lm-eval a folder. Default: DIR/export.csv and so on, DIR/lm-eval.",
            show_default=False,
        ),
    ] = None,
    scheme: Annotated[str, typer.Option(help="One of the run's schemes, as it names it, or all.")] = "all",
    debug: Debug = False,
) -> None:
    """Write the results for other programs: a row per example, or the files of lm-evaluation-harness."""
    with messages.status("getting ready"):
        from rote.jobs.export import export as run_export

    try:
        with interrupted_by(signal.default_int_handler), progress() as tell:
            exported = run_export(folder, to, out=out, scheme=scheme, progress=tell)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        messages.print("stopped: nothing was written. Run the same command again.", soft_wrap=True)
        sys.exit(130)
    from rote.report.text import numbers

    console = Console(highlight=False)
    for path in exported.files:
        console.print(f"{escape(str(path))} ({_size(path.stat().st_size)})", soft_wrap=True)
    console.print(numbers.counted(exported.rows, "row"))
    if exported.nul_characters:
        nul = numbers.counted(exported.nul_characters, "NUL character")
        messages.print(f"note: {nul} written as ␀, because CSV has none; jsonl and parquet keep them.", soft_wrap=True)
    if exported.metadata_kept_whole:
        messages.print("note: the metadata has too many keys for columns of their own; it is one column of JSON.")


def _size(bytes_written: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if bytes_written < 999.5:
            return f"{bytes_written:.3g} {unit}"
        bytes_written /= 1000
    return f"{bytes_written:.3g} GB"
