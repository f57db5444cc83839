"""rote spots: the hot-spots of a finished scan."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rote.cli.fit import print_lines, print_rows
from rote.cli.options import AsJson, Debug
from rote.cli.screen import app, messages, print_json, print_strip

if TYPE_CHECKING:
    from rote.analysis.coverage import HotSpot
    from rote.analysis.matter import Part
    from rote.store.run import RunView

Folder = Annotated[Path, typer.Argument(help="The folder of a finished scan.", metavar="RUN")]
At = Annotated[float, typer.Option(help="A hot-spot is covered by windows with at least this probability.")]


@app.command(epilog="Example: rote spots runs/alice-bundled --at 0.5 --rank probability")
def spots(
    folder: Folder,
    at: At = 0.5,
    rank: Annotated[str, typer.Option(help="length or probability: what comes first.")] = "length",
    top: Annotated[int, typer.Option(help="How many to show.")] = 10,
    span: Annotated[
        str, typer.Option(help="What of a window counts: its suffix, which is generated, or the whole example.")
    ] = "suffix",
    body: Annotated[
        str | None,
        typer.Option(
            help="START:END in characters: where the work begins and ends; the rest is front and back matter. "
            "Without it, Rote guesses.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Where does the model know this text best? The hot-spots of a finished scan, front and back matter told apart."""
    from rote.analysis.coverage import hot_spots
    from rote.analysis.matter import part, read_body
    from rote.jobs.longer import finished_scan

    with messages.status(f"reading {folder}"):
        scan = finished_scan(folder)
    marked = None if body is None else read_body(body, len(scan.text))
    listed = hot_spots(scan.rows, len(scan.text), at, span=span, rank=rank)  # type: ignore[arg-type]
    shown = hot_spots(scan.rows, len(scan.text), at, span=span, rank=rank, top=top)  # type: ignore[arg-type]
    parts = [part(scan.text, spot.start, spot.end, marked) for spot in shown]
    if as_json:
        print_json(_as_json(scan, at, rank, span, listed, shown, parts))
        return
    _print_spots(scan, at, rank, span, listed, shown, parts)


def _as_json(
    scan: RunView,
    at: float,
    rank: str,
    span: str,
    listed: list[HotSpot],
    shown: list[HotSpot],
    parts: list[Part],
) -> dict[str, Any]:
    spots = [
        {
            **asdict(spot),
            "characters": spot.characters,
            "part": part.place,
            "part_guessed": part.guessed,
            "text": scan.text[spot.start : spot.end],
        }
        for spot, part in zip(shown, parts, strict=True)
    ]
    return {
        "source": scan.manifest.source.name,
        "model": scan.manifest.model.name,
        "scheme": scan.scheme,
        "bos_token": scan.manifest.model.bos_token,
        "threshold": at,
        "rank": rank,
        "span": span,
        "hot_spots": len(listed),
        "characters": sum(spot.characters for spot in listed),
        "spots": spots,
    }


def _print_spots(
    scan: RunView,
    at: float,
    rank: str,
    span: str,
    listed: list[HotSpot],
    shown: list[HotSpot],
    parts: list[Part],
) -> None:
    from rote.report.text import numbers
    from rote.report.text.spots import spots_table

    out = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    model = scan.manifest.model
    print_lines(out, [f"{numbers.literal(scan.manifest.source.name)}, {numbers.literal(model.name)}"])
    sentence = (
        f"{numbers.counted(len(listed), 'hot-spot')} at p ≥ {numbers.threshold(at)} "
        f"({'suffixes' if span == 'suffix' else 'whole examples, prefixes included'}), together "
        f"{numbers.percent(sum(spot.characters for spot in listed) / len(scan.text))} of the text’s "
        f"{numbers.count(len(scan.text))} characters. Scheme {scan.scheme}; "
        f"BOS {numbers.bos(model.bos, model.bos_token)}"
    )
    print_lines(out, [sentence, ""])
    print_strip(out, scan)
    out.print()
    if not shown:
        print_lines(out, [f"No window reaches {numbers.threshold(at)}: {highest(scan)}."])
        return
    by = "longest first" if rank == "length" else "most likely window first"
    out.print(f"{'All' if len(shown) == len(listed) else f'The first {len(shown)}'} of them, {by}:\n")
    table = Table(box=None, pad_edge=False)
    for name in ("characters", "place", "length", "windows", "highest p", "mean p"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("part", no_wrap=True)
    table.add_column("first words")  # the one column that gives way in a narrow window
    rows = spots_table(shown, len(scan.text), lambda spot: scan.text[spot.start : spot.end])
    print_rows(out, table, [[*row[:-1], part.place, row[-1]] for row, part in zip(rows, parts, strict=True)])
    if any(part.guessed for part in parts):
        guess = (
            "The part is a guess, by Project Gutenberg’s markers or by words of notices near either end of the text; "
            "--body START:END tells it."
        )
        print_lines(out, ["", guess])


def highest(scan: RunView) -> str:
    from rote.analysis.rates import log_prob_bounds
    from rote.report.text import numbers

    best = float(log_prob_bounds(scan.rows)[0].max(initial=-math.inf))
    if best == -math.inf:
        stopped = int(scan.rows["stopped"].sum())
        rest = f", but for {numbers.count(stopped)} that were given up early, below τ" if stopped else ""
        return f"every window has probability 0 under this scheme{rest}"
    return f"the most likely window has {numbers.probability(best)}; try a smaller --at"
