"""A finished scan, looked at again: longer windows where it found hot-spots, scored as a run of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rote.analysis.coverage import HotSpot
from rote.corpus.windows import require_positive, windows
from rote.errors import InputError, RunError
from rote.extraction.verbatim import BatchSize
from rote.jobs.open import Run
from rote.jobs.progress import Progress, quiet
from rote.jobs.scan import scan
from rote.models.base import LogitModel
from rote.scheme import Scheme
from rote.store.open import open_run
from rote.store.run import RunView


def finished_scan(folder: str | Path) -> RunView:
    """A scan that is finished; anything else is an error that says what it is."""
    run = open_run(folder)
    if run.manifest.kind != "scan":
        raise RunError(f"{folder} is a {run.manifest.kind} run and has no text; give the folder of a rote scan.")
    _ = run.summary  # refuses a run that is unfinished
    if run.text is None:
        raise RunError(f"{Path(folder) / 'text.txt'} is gone; run the scan again to restore it.")
    return run.view


def longer(
    scanned: RunView,
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

    Schemes and tau are those of the scan. The manifest says `within` which regions the windows start.
    """
    for option, value in (("prefix", prefix), ("suffix", suffix), ("stride", stride)):
        require_positive(option, value)
    check_context(model, prefix, suffix)
    regions = [(spot.start, spot.end) for spot in spots]
    tell, text, manifest = progress or quiet, scanned.texts.text or "", scanned.manifest
    within = starts_before(
        text, model.tokenizer, regions, prefix=prefix, stride=stride, progress=lambda d, t: tell("places", d, t)
    )
    if not within:
        raise InputError(f"no window at --stride {stride} has its suffix start in a hot-spot; use a smaller --stride.")
    return scan(
        text, model, out=out, name=manifest.source.name, prefix=prefix, suffix=suffix, stride=stride, within=within,
        schemes=[Scheme.parse(label) for label in manifest.schemes], tau=manifest.tau, batch_size=batch_size,
        progress=progress,
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
    within: list[tuple[int, int]] = []
    for start in starts:
        if within and start < within[-1][1] + stride:  # the window after the last one
            within[-1] = (within[-1][0], start + 1)
        else:
            within.append((start, start + 1))
    return within


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
