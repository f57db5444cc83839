"""rote longer: longer windows where a finished scan has hot-spots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from rote.cli.options import AsJson, BatchSize, Debug, Device, DeviceMap, Prefix, Suffix, as_batch_size, load_model
from rote.cli.screen import app, messages, print_summary, progress, resumable
from rote.cli.spots import At, Folder, highest

if TYPE_CHECKING:
    from rote.store.summary import Longest


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
        scan = finished_scan(folder)
    spots = hot_spots(scan.rows, scan.length, at)
    if not spots:
        messages.print(
            f"{folder} has no hot-spot at p ≥ {at:g}: {highest(scan)}. Nothing was scored or written.",
            soft_wrap=True,
        )
        if as_json:
            print("null")
        return
    before = scan.manifest.model
    target = out or folder.with_name(f"{folder.resolve().name}-longer")
    loaded = load_model(
        model or before.name, device, dtype or before.dtype, device_map,
        revision or (None if model else before.revision), bos or before.bos,
    )  # fmt: skip
    from rote.jobs.longer import longer as run_longer
    from rote.store.manifest import refuse_other_model

    if model is None:
        fix = "Give --model with the path of the same weights, or of another model on purpose."
        refuse_other_model(before, loaded.identity(), str(folder), "fingerprint", "tokenizer", fix=fix)
    with progress() as tell, resumable(target):
        run = run_longer(
            scan, spots, loaded, out=target, prefix=prefix, suffix=suffix, stride=stride,
            batch_size=as_batch_size(batch_size), progress=tell,
        )  # fmt: skip
    print_summary(run, as_json)
    if not as_json:
        _print_longest(run.finished.numbers.longest or {}, scan.text)


def _print_longest(longest: Mapping[str, Longest | None], text: str) -> None:
    """The longest sequence at each threshold with its text; one that several thresholds share is shown once."""
    from rote.report.text import numbers
    from rote.report.text.spots import excerpt

    out = Console(highlight=False)
    shared: dict[tuple[int, int, int, float], list[str]] = {}
    for threshold, entry in longest.items():
        if entry is not None:
            shared.setdefault((entry.tokens, *entry.span, entry.log_prob), []).append(
                numbers.threshold(float(threshold))
            )
    for (tokens, start, end, log_prob), thresholds in shared.items():
        out.print(
            f"\n[bold]longest at {', '.join(thresholds)}[/]: {numbers.counted(tokens, 'token')}, "
            f"characters {numbers.count(start)} to {numbers.count(end)}, with probability "
            f"{numbers.probability(log_prob)}",
            soft_wrap=True,
        )
        out.print(escape(excerpt(text[start:end], 60)))
