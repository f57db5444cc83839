"""rote spots and rote longer: the hot-spots of a finished scan, and longer windows cut from them."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rote.cli.fit import print_lines, print_rows
from rote.cli.options import AsJson, BatchSize, Debug, Device, DeviceMap, Prefix, Suffix, as_batch_size, load_model
from rote.cli.screen import app, messages, print_strip, print_summary, progress, resumable

if TYPE_CHECKING:
    from rote.analysis.coverage import HotSpot
    from rote.analysis.matter import Part
    from rote.jobs.longer import FinishedScan

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
        found = finished_scan(folder)
    marked = None if body is None else read_body(body, len(found.text))
    listed = hot_spots(found.scores, len(found.text), at, span=span, rank=rank)  # type: ignore[arg-type]
    shown = hot_spots(found.scores, len(found.text), at, span=span, rank=rank, top=top)  # type: ignore[arg-type]
    parts = [part(found.text, spot.start, spot.end, marked) for spot in shown]
    if as_json:
        print(json.dumps(_as_json(found, at, rank, span, listed, shown, parts), indent=1, ensure_ascii=False))
        return
    _print_spots(found, at, rank, span, listed, shown, parts)


def _as_json(
    found: FinishedScan,
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
            "text": found.text[spot.start : spot.end],
        }
        for spot, part in zip(shown, parts, strict=True)
    ]
    return {
        "source": found.name,
        "model": found.manifest["model"]["name"],
        "scheme": found.manifest["schemes"][0],
        "bos_token": found.manifest["model"]["bos_token"],
        "threshold": at,
        "rank": rank,
        "span": span,
        "hot_spots": len(listed),
        "characters": sum(spot.characters for spot in listed),
        "spots": spots,
    }


def _print_spots(
    found: FinishedScan,
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
    model = found.manifest["model"]
    print_lines(out, [f"{numbers.literal(found.name)}, {numbers.literal(model['name'])}"])
    sentence = (
        f"{numbers.counted(len(listed), 'hot-spot')} at p ≥ {numbers.threshold(at)} "
        f"({'suffixes' if span == 'suffix' else 'whole examples, prefixes included'}), together "
        f"{numbers.percent(sum(spot.characters for spot in listed) / len(found.text))} of the text’s "
        f"{numbers.count(len(found.text))} characters. Scheme {found.manifest['schemes'][0]}; "
        f"BOS {numbers.bos(model['bos'], model.get('bos_token'))}"
    )
    print_lines(out, [sentence, ""])
    print_strip(out, found.scores, found.manifest)
    out.print()
    if not shown:
        print_lines(out, [f"No window reaches {numbers.threshold(at)}: {_highest(found)}."])
        return
    by = "longest first" if rank == "length" else "most likely window first"
    out.print(f"{'All' if len(shown) == len(listed) else f'The first {len(shown)}'} of them, {by}:\n")
    table = Table(box=None, pad_edge=False)
    for name in ("characters", "place", "length", "windows", "highest p", "mean p"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("part", no_wrap=True)
    table.add_column("first words")  # the one column that gives way in a narrow window
    rows = spots_table(shown, len(found.text), lambda spot: found.text[spot.start : spot.end])
    print_rows(out, table, [[*row[:-1], part.place, row[-1]] for row, part in zip(rows, parts, strict=True)])
    if any(part.guessed for part in parts):
        guess = (
            "The part is a guess, by Project Gutenberg’s markers or by words of notices near either end of the text; "
            "--body START:END tells it."
        )
        print_lines(out, ["", guess])


def _highest(found: FinishedScan) -> str:
    from rote.analysis.rates import log_prob_bounds
    from rote.report.text import numbers

    best = float(log_prob_bounds(found.scores)[0].max(initial=-math.inf))
    if best == -math.inf:
        stopped = int(found.scores["stopped"].sum())
        rest = f", but for {numbers.count(stopped)} that were given up early, below τ" if stopped else ""
        return f"every window has probability 0 under this scheme{rest}"
    return f"the most likely window has {numbers.probability(best)}; try a smaller --at"


@app.command(epilog="Example: rote longer runs/alice-bundled --prefix 25 --suffix 275")
def longer(
    folder: Folder,
    prefix: Prefix = 25,
    suffix: Suffix = 275,
    at: At = 0.5,
    stride: Annotated[int, typer.Option(help="Characters from one window to the next.")] = 10,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Another model, on purpose. Default: the scan's.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run folder. Default: RUN-longer.", show_default=False)
    ] = None,
    batch_size: BatchSize = "auto",
    device: Device = "auto",
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16. Default: the scan's.", show_default=False)
    ] = None,
    device_map: DeviceMap = None,
    revision: Annotated[
        str | None, typer.Option(help="Revision of a hub model. Default: the scan's.", show_default=False)
    ] = None,
    bos: Annotated[
        str | None, typer.Option(help="auto, always or never. Default: the scan's.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """How long a passage comes out in one piece? Scores longer windows whose suffix starts in a scan's hot-spots."""
    from rote.analysis.coverage import hot_spots
    from rote.jobs.longer import finished_scan

    with messages.status(f"reading {folder}"):
        found = finished_scan(folder)
    spots = hot_spots(found.scores, len(found.text), at)
    if not spots:
        messages.print(
            f"{folder} has no hot-spot at p ≥ {at:g}: {_highest(found)}. Nothing was scored or written.",
            soft_wrap=True,
        )
        if as_json:
            print("null")
        return
    before = found.manifest["model"]
    target = out or folder.with_name(f"{folder.resolve().name}-longer")
    loaded = load_model(
        model or before["name"], device, dtype or before["dtype"], device_map,
        revision or (None if model else before["revision"]), bos or before["bos"],
    )  # fmt: skip
    from rote.jobs.longer import longer as run_longer
    from rote.store.manifest import refuse_other_model

    if model is None:
        fix = "Give --model with the path of the same weights, or of another model on purpose."
        refuse_other_model(found.manifest, loaded.identity(), str(folder), "fingerprint", "tokenizer", fix=fix)
    with progress() as tell, resumable(target):
        run = run_longer(
            found, spots, loaded, out=target, prefix=prefix, suffix=suffix, stride=stride,
            batch_size=as_batch_size(batch_size), progress=tell,
        )  # fmt: skip
    print_summary(run, as_json)
    if not as_json:
        _print_longest(run.summary["schemes"][found.manifest["schemes"][0]]["longest"], found.text)


def _print_longest(longest: dict[str, Any], text: str) -> None:
    """The longest sequence at each threshold with its text; one that several thresholds share is shown once."""
    from rote.report.text import numbers
    from rote.report.text.spots import excerpt

    out = Console(highlight=False)
    shared: dict[tuple[int, int, int, float], list[str]] = {}
    for threshold, entry in longest.items():
        if entry is not None:
            what = (entry["tokens"], entry["suffix_start"], entry["suffix_end"], entry["log_prob"])
            shared.setdefault(what, []).append(numbers.threshold(float(threshold)))
    for (tokens, start, end, log_prob), thresholds in shared.items():
        out.print(
            f"\n[bold]longest at {', '.join(thresholds)}[/]: {numbers.counted(tokens, 'token')}, "
            f"characters {numbers.count(start)} to {numbers.count(end)}, with probability {numbers.probability(log_prob)}",
            soft_wrap=True,
        )
        out.print(escape(excerpt(text[start:end], 60)))
