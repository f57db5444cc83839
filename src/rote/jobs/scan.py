"""`scan`: sliding windows over a text, scored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rote.corpus.windows import Regions, window_starts, windows
from rote.errors import InputError
from rote.extraction.near.search import Near
from rote.extraction.verbatim import BatchSize
from rote.jobs.engine import Job, check_job, complete, manifest_of
from rote.jobs.open import Run
from rote.jobs.progress import Progress, quiet
from rote.jobs.summary import THRESHOLDS
from rote.models.base import LogitModel
from rote.scheme import Scheme
from rote.store.files import digest
from rote.store.manifest import Source, Windows


def scan(
    text: str,
    model: LogitModel,
    *,
    out: str | Path,
    name: str = "text",
    prefix: int = 50,
    suffix: int = 50,
    stride: int = 10,
    within: Regions | None = None,
    schemes: Sequence[Scheme] = (Scheme(),),
    tau: float = 1e-3,
    stop_early: bool = False,
    near: Near | None = None,
    batch_size: BatchSize = "auto",
    progress: Progress | None = None,
) -> Run:
    """Score sliding windows over a text and write a run folder; a folder that holds part of this run is continued.

    `tau` is the smallest probability that counts as extraction. With `stop_early`, windows that are certain to end
    below it are given up after a few tokens: cheaper on text that is not memorized, at the price of exact numbers
    below tau. `near` asks for near-verbatim extraction as well: rote.Near() for its defaults. `within`: regions of the
    text, as [start, end) pairs, in which windows may start; rates are then those of a choice of windows.
    """
    tell = progress or quiet
    if stop_early and tau > THRESHOLDS[0]:
        raise InputError(
            f"with stop_early, tau must be at most {THRESHOLDS[0]}, the lowest coverage threshold, not {tau}."
        )
    examples = windows(
        text, model.tokenizer, prefix=prefix, suffix=suffix, stride=stride, within=within,
        progress=lambda d, t: tell("windows", d, t),
    )  # fmt: skip
    dropped = len(window_starts(len(text), stride, within)) - len(examples)
    if not examples and within is not None:
        raise InputError(
            f"not one window of {prefix} + {suffix} tokens starts in the given parts of {name} and fits before "
            "its end. Use shorter windows (--prefix, --suffix) or a smaller --stride."
        )
    if not examples:
        raise InputError(
            f"{name} is too short: not one window of {prefix} + {suffix} tokens fits into its {len(text)} characters. "
            "Use shorter windows (--prefix, --suffix) or a longer text."
        )
    job = Job(model, examples, schemes, tau, stop_early, near, batch_size)
    check_job(job)
    regions = None if within is None else [(start, end) for start, end in within]
    manifest = manifest_of(
        job,
        Source(name=name, sha256=digest(text), characters=len(text)),
        windows=Windows(prefix=prefix, suffix=suffix, stride=stride, within=regions),
        dropped=dropped,
    )
    return complete(Path(out), manifest, {"text.txt": text.encode("utf-8", "surrogatepass")}, job, tell)
