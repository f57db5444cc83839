"""A finished scan, looked at again: longer windows where it found hot-spots, scored as a run of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rote.analysis.coverage import HotSpot
from rote.corpus.windows import require_positive, windows
from rote.errors import InputError, RunError
from rote.extraction.verbatim import BatchSize
from rote.jobs.engine import Progress, scan
from rote.models.base import LogitModel
from rote.store.manifest import scheme_of
from rote.store.run import Run


@dataclass(frozen=True, slots=True)
class FinishedScan:
    """What other commands need of a finished scan: its text, and the rows of its first scheme."""

    run: Run
    manifest: dict[str, Any]
    text: str
    scores: pl.DataFrame

    @property
    def name(self) -> str:
        return str(self.manifest["source"]["name"])


def finished_scan(folder: str | Path) -> FinishedScan:
    """Open a scan that is finished; anything else is an error that says what it is."""
    run = Run.open(folder)
    manifest = run.manifest
    if manifest["kind"] != "scan":
        raise RunError(f"{folder} is a {manifest['kind']} run and has no text; give the folder of a rote scan.")
    _ = run.summary  # refuses a run that is unfinished
    text = run.text
    if text is None:
        raise RunError(f"{Path(folder) / 'text.txt'} is gone; run the scan again to restore it.")
    return FinishedScan(run, manifest, text, run.scores.filter(pl.col("scheme") == manifest["schemes"][0]))


def longer(
    found: FinishedScan,
    spots: Sequence[HotSpot],
    model: LogitModel,
    *,
    out: str | Path,
    prefix: int = 25,
    suffix: int = 275,
    stride: int = 10,
    batch_size: BatchSize = "auto",
    progress: Progress | None = None,
) -> Run:
    """Score longer windows whose suffix starts in a hot-spot of a finished scan, as a scan of their own.

    Schemes and tau are those of the scan that was `found`. The manifest says `within` which regions the windows start.
    """
    for option, value in (("prefix", prefix), ("suffix", suffix), ("stride", stride)):
        require_positive(option, value)
    check_context(model, prefix, suffix)
    regions = [(spot.start, spot.end) for spot in spots]
    tell = progress or (lambda what, done, total: None)
    within = starts_before(
        found.text, model.tokenizer, regions, prefix=prefix, stride=stride, progress=lambda d, t: tell("places", d, t)
    )
    if not within:
        raise InputError(f"no window at --stride {stride} has its suffix start in a hot-spot; use a smaller --stride.")
    return scan(
        found.text, model, out=out, name=found.name, prefix=prefix, suffix=suffix, stride=stride, within=within,
        schemes=[scheme_of(label) for label in found.manifest["schemes"]], tau=found.manifest["tau"],
        batch_size=batch_size, progress=progress,
    )  # fmt: skip


def starts_before(
    text: str,
    tokenizer: Any,
    regions: Sequence[tuple[int, int]],
    *,
    prefix: int,
    stride: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[tuple[int, int]]:
    """Where windows must start for their suffixes to start in `regions`: [start, end) pairs, as `within` takes them.

    How many characters a prefix takes depends on its tokens, so every prefix of the text is cut to see where it ends.
    """
    cut = windows(text, tokenizer, prefix=prefix, suffix=1, stride=stride, progress=progress)
    inside = np.zeros(len(text) + 1, dtype=np.bool_)
    for start, end in regions:
        inside[start:end] = True
    starts = [e.start for e in cut if e.start is not None and e.suffix_start is not None and inside[e.suffix_start]]
    found: list[tuple[int, int]] = []
    for start in starts:
        if found and start < found[-1][1] + stride:  # the window after the last one
            found[-1] = (found[-1][0], start + 1)
        else:
            found.append((start, start + 1))
    return found


def check_context(model: LogitModel, prefix: int, suffix: int) -> None:
    """Refuse windows longer than the model's context, naming the longest suffix that fits."""
    bos, context = int(model.bos_id is not None), model.context_length
    if context is None or prefix + suffix - 1 + bos <= context:
        return
    largest = context + 1 - bos - prefix  # the last suffix token need not be fed
    fits = f"the largest --suffix that fits is {largest}" if largest > 0 else "a smaller --prefix is needed"
    raise InputError(
        f"a window of {prefix} + {suffix} tokens takes {prefix + suffix - 1 + bos} positions, more than the model's "
        f"context of {context}; beside --prefix {prefix} {fits}."
    )
