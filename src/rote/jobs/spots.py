"""`spots`: where the model knows a scanned text best."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rote.analysis.coverage import Rank, Span, hot_spots, undecided_rows
from rote.analysis.matter import part, read_body
from rote.errors import InputError, RunError, argument
from rote.jobs.open import RunLike, as_run
from rote.options import Option, require_number
from rote.report.text.spots import Spot, Spots
from rote.store.run import RunView

AT = 0.5
At = Annotated[float, Option("A hot-spot is covered by windows with at least this probability.")]
ScanLike = Annotated[RunLike, Option("The folder of a finished scan.")]


def spots(
    run: ScanLike,
    *,
    at: At = AT,
    rank: Annotated[Rank, Option("What comes first.")] = "length",
    top: Annotated[int, Option("How many to show.")] = 10,
    span: Annotated[Span, Option("What of a window counts: what is generated, or the whole example.")] = "suffix",
    body: Annotated[
        str | None,
        Option("START:END in characters: where the work begins and ends; the rest is matter.", default="a guess"),
    ] = None,
) -> Spots:
    """The stretches of a scanned text that windows at or above a probability cover, the first `top` of them.

    By "length": longest first. By "probability": the one with the most likely window first. `body`: the characters
    that are the work; what lies outside is front and back matter. Without it, that is guessed.
    """
    check_at(at)
    scan = finished_scan(run)
    text = scan.text
    marked = None if body is None else read_body(body, len(text))
    served = scan.manifest.model.served is not None
    every = hot_spots(scan.rows, len(text), at, span=span, rank=rank, served=served)
    shown = hot_spots(scan.rows, len(text), at, span=span, rank=rank, top=top, served=served)
    listed = []
    for spot in shown:
        place = part(text, spot.start, spot.end, marked)
        listed.append(
            Spot(
                **asdict(spot),
                characters=spot.characters,
                part=place.place,
                part_guessed=place.guessed,
                text=text[spot.start : spot.end],
            )
        )
    return Spots(
        source=scan.manifest.source.name,
        model=scan.manifest.model.title,
        scheme=scan.scheme,
        bos_token=scan.manifest.model.bos_token,
        threshold=at,
        rank=rank,
        span=span,
        hot_spots=len(every),
        characters=sum(spot.characters for spot in every),
        left_out=None if scan.left_out is None else scan.left_out.height,
        undecided=undecided_rows(scan.rows, at),
        spots=listed,
    )


def check_at(at: float) -> None:
    require_number("at", at)
    if not 0 < at <= 1:
        raise InputError(f"{argument('at')} is a probability and must lie in (0, 1], not {at}.")


def finished_scan(given: RunLike) -> RunView:
    """A scan that is finished; anything else is an error that says what it is."""
    run = as_run(given)
    if run.manifest.kind != "scan":
        raise RunError(f"{run.folder} is a {run.manifest.kind} run and has no text; give the folder of a rote scan.")
    _ = run.summary  # refuses a run that is unfinished
    if run.text is None:
        raise RunError(f"{Path(run.folder) / 'text.txt'} is gone; run the scan again to restore it.")
    return run.view
