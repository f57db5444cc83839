"""Sweeps: rates as the scheme, the prefix length or the suffix length varies.

Every prefix length is a run folder of its own, because the model must read again. All schemes and all suffix lengths
come from that one reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from rote.analysis.sweep import point, shortened
from rote.errors import InputError
from rote.extraction.verbatim import BatchSize
from rote.jobs.engine import Job
from rote.jobs.open import Run, Sweep
from rote.jobs.progress import Progress, quiet
from rote.jobs.score import score_examples
from rote.models.base import LogitModel
from rote.scheme import GREEDY, Scheme
from rote.store.files import FORMAT
from rote.store.manifest import SweptLengths
from rote.store.sweep import Lengths, Point, SweepResult, SweepSource, finish_sweep, part
from rote.tokens import Example


def sweep(
    examples: Sequence[Example],
    model: LogitModel,
    *,
    out: str | Path,
    name: str = "examples",
    schemes: Sequence[Scheme] = (Scheme(),),
    prefixes: Sequence[int] | None = None,
    suffixes: Sequence[int] | None = None,
    tau: float = 1e-3,
    batch_size: BatchSize = "auto",
    progress: Progress | None = None,
) -> Sweep:
    """Rates at every scheme, prefix length and suffix length; also written to `out`, as sweep.json and report.html.

    A shorter prefix is the end of an example's prefix, a shorter suffix the beginning of its suffix, so that all prefix
    lengths ask for the same suffix. Lengths are in tokens; left out, they are the examples' own, which must then agree.
    `out`/prefix-N is an ordinary run, which is continued if it is there already.
    """
    if not examples:
        raise InputError(f"{name} holds no examples.")
    lengths = Lengths(prefix=_lengths(examples, "prefix", prefixes), suffix=_lengths(examples, "suffix", suffixes))
    longest = lengths.suffix[-1]
    tell = progress or quiet
    total = len(lengths.prefix) * len(examples)
    points: list[Point] = []
    for number, prefix in enumerate(lengths.prefix):

        def on(what: str, done: int, of: int, before: int = number * len(examples)) -> None:
            tell(what, before + done, total)

        cut = [_cut(example, prefix, longest) for example in examples]
        every = [*schemes, *([] if GREEDY in schemes else [GREEDY])]
        run = score_examples(
            Job(model, cut, every, tau, stop_early=False, near=None, batch_size=batch_size),
            out=Path(out) / part(prefix),
            name=name,
            sweep=SweptLengths(prefix=prefix, suffix=longest),
            progress=on,
        )
        points += _points(run, [str(scheme) for scheme in schemes], prefix, lengths.suffix)
    last = run.summary
    result = SweepResult(
        format=FORMAT,
        kind="sweep",
        model=last.model,
        examples=last.examples,
        tau=last.tau,
        logit_tolerance=last.logit_tolerance,
        versions=last.versions,
        source=SweepSource(name=name),
        lengths=lengths,
        points=points,
    )
    finish_sweep(Path(out), result)
    made = Sweep(Path(out))
    made.report()
    return made


def _points(run: Run, schemes: Sequence[str], prefix: int, suffixes: Sequence[int]) -> list[Point]:
    scores, summary = run.scores, run.summary
    tolerance = summary.logit_tolerance
    points = []
    for suffix in suffixes:
        table = shortened(scores, suffix)
        for scheme in schemes:
            own = table.filter(pl.col("scheme") == scheme)
            doubt = Scheme.parse(scheme).doubt(tolerance) * suffix
            points.append(
                point(own, prefix, suffix, tau=summary.tau, numeric_tolerance=doubt, border_tolerance=tolerance)
            )
    return points


def _lengths(examples: Sequence[Example], of: str, asked: Sequence[int] | None) -> list[int]:
    """The lengths to sweep, ascending, once each; every example must be long enough for the longest."""
    own = [len(getattr(example, of)) for example in examples]
    if asked is None:
        if min(own) != max(own):
            raise InputError(
                f"the examples' {of}es have from {min(own)} to {max(own)} tokens; say which lengths to compare: "
                f"--{of} with up to {min(own)}."
            )
        return [own[0]]
    if not asked or min(asked) < 1:
        raise InputError(f"--{of}: lengths are whole numbers of at least 1.")
    if max(asked) > min(own):
        short = examples[own.index(min(own))]
        raise InputError(
            f"example {short.id!r} has a {of} of {min(own)} tokens, fewer than {max(asked)}; give --{of} up to that."
        )
    return sorted(set(asked))


def _cut(example: Example, prefix: int, suffix: int) -> Example:
    """The last tokens of the prefix and the first of the suffix. Where they stand in the text is not known any more."""
    return replace(
        example,
        prefix=example.prefix[len(example.prefix) - prefix :],
        suffix=example.suffix[:suffix],
        start=None,
        suffix_start=None,
        suffix_end=None,
        token_ends=None,
    )
