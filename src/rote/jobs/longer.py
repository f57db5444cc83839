"""A finished scan, looked at again: longer windows where it found hot-spots, scored as a run of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from rote.analysis.coverage import hot_spots
from rote.corpus.windows import Windows, windows
from rote.errors import InputError, argument
from rote.jobs.engine import check_context, resumable
from rote.jobs.open import Run, as_run
from rote.jobs.scan import scan
from rote.jobs.spots import AT, At, ScanLike, check_at, finished_scan
from rote.models.base import RunModel
from rote.options import Batch, Option, Prefix, Stride, Suffix, folder_of, typed_path
from rote.progress import Progress, quiet


def longer(
    run: ScanLike,
    model: RunModel | None = None,
    *,
    prefix: Prefix = 25,
    suffix: Suffix = 275,
    stride: Stride = 10,
    at: At = AT,
    batch_size: Batch = "auto",
    out: Annotated[Path | str | None, Option("Run folder.", "--out/-o", default="RUN-longer", parse=typed_path)] = None,
    progress: Progress | None = None,
) -> Run | None:
    """Score longer windows whose suffix starts in a hot-spot of a finished scan, as a scan of their own.

    Schemes and tau are those of the scan, and so is the model, unless another is given on purpose. The manifest says
    `within` which regions the windows start. Of a scan in stages the hot-spots are those of the windows that it scored:
    what it left out is not looked at here either. None: the scan has no hot-spot at `at`, and nothing was written.
    """
    check_at(at)
    given, wanted = as_run(run), Windows(prefix, suffix, stride)  # of tokens, whatever the scan's were
    scanned, tell = finished_scan(given), progress or quiet
    spots = hot_spots(scanned.rows, scanned.length, at, served=scanned.manifest.model.served is not None)
    if not spots:
        return None
    own = model
    if own is None:
        tell("loaded", 0, 1)
        own = given.load_model()
        tell("loaded", 1, 1)
    check_context(own, prefix, suffix)
    folder = given.folder.with_name(f"{given.folder.resolve().name}-longer") if out is None else folder_of(out)
    with resumable(folder):
        regions = [(spot.start, spot.end) for spot in spots]
        within = starts_before(scanned.text, own.tokenizer, regions, wanted, tell, scanned.manifest.source.steps)
    if not within:
        raise InputError(
            f"no window at {argument('stride', stride)} has its suffix start in a hot-spot; use a smaller one."
        )
    manifest = scanned.manifest
    return scan(
        own, scanned.text, out=folder, name=manifest.source.name, windows=wanted, within=within,
        normalise=manifest.source.steps, schemes=manifest.schemes, tau=manifest.tau, batch_size=batch_size,
        progress=progress,
    )  # fmt: skip


def starts_before(
    text: str, tokenizer: Any, regions: Sequence[tuple[int, int]], wanted: Windows, tell: Progress,
    steps: Sequence[str] = (),
) -> list[tuple[int, int]]:  # fmt: skip
    """Where windows must start for their suffixes to start in `regions`: [start, end) pairs, as `within` takes them.

    How many characters a prefix takes depends on its tokens, so every prefix of the text is cut to see where it ends.
    """
    prefixes = Windows(wanted.prefix, 1, wanted.stride)
    cut = windows(
        text, tokenizer, prefixes, normalise=steps, progress=lambda what, done, total: tell("places", done, total)
    )
    inside = np.zeros(len(text) + 1, dtype=np.bool_)
    for start, end in regions:
        inside[start:end] = True
    within: list[tuple[int, int]] = []
    last = -1
    for number, example in enumerate(cut):
        assert example.start is not None
        assert example.suffix_start is not None
        if inside[example.suffix_start]:
            first = within.pop()[0] if within and last == number - 1 else example.start
            within.append((first, example.start + 1))
            last = number
    return within
