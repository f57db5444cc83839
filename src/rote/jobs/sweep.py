"""Sweeps: rates as the scheme, the prefix length or the suffix length varies.

Every prefix length is a run folder of its own, because the model must read again. All schemes and all suffix lengths
come from that one reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import polars as pl

from rote.analysis.sweep import point, shortened
from rote.corpus.formats import Examples, Text, as_examples, as_text
from rote.corpus.normalise import KNOWN, typed_steps
from rote.corpus.windows import Windows, cut_windows, plain_backend, ready, window_starts
from rote.errors import InputError, argument, counted
from rote.jobs.engine import Job, check_context, run_folder
from rote.jobs.open import Run, Sweep
from rote.jobs.score import score_examples
from rote.models.base import BUNDLED_TEXT, RunModel, ScoringModel, TokenModel
from rote.options import TAU, Batch, BatchSize, Option, Tau, numbers, require_kind, require_whole, typed_path, whole
from rote.progress import Progress, quiet, stopping
from rote.scheme import FORM, GREEDY, Scheme, Schemes, as_schemes
from rote.store.files import FORMAT
from rote.store.manifest import SweptLengths, taken
from rote.store.sweep import Lengths, Point, SweepResult, SweepSource, finish_sweep, part
from rote.tokens import Example

STRIDE = 100


def sweep(
    model: RunModel,
    source: Annotated[
        Text | Examples, Option("A text, or examples as .jsonl.", default="the bundled text")
    ] = BUNDLED_TEXT,
    *,
    schemes: Annotated[
        Schemes | None, Option(f"Schemes to compare, {FORM}. Repeat it for more.", "--scheme", default="top_k=40")
    ] = None,
    prefixes: Annotated[
        Sequence[int] | None,
        Option(
            "Prompt lengths in tokens, as in 10,25,50.",
            "--prefix",
            default="the examples', 50 of a text",
            parse=numbers,
        ),
    ] = None,
    suffixes: Annotated[
        Sequence[int] | None,
        Option(
            "Suffix lengths in tokens, as in 10,25,50.",
            "--suffix",
            default="the examples', 50 of a text",
            parse=numbers,
        ),
    ] = None,
    stride: Annotated[
        int | None, Option("Of a text: characters from one window to the next.", default=str(STRIDE))
    ] = None,
    normalise: Annotated[
        Sequence[str],
        Option(f"Of a text: steps to take before it is cut: {KNOWN}.", default="none", parse=typed_steps),
    ] = (),
    tau: Tau = TAU,
    batch_size: Batch = "auto",
    name: str | None = None,
    out: Annotated[
        Path | str | None, Option("Folder.", "--out/-o", default="runs/SOURCE-MODEL-sweep", parse=typed_path)
    ] = None,
    progress: Progress | None = None,
) -> Sweep:
    """Rates at every scheme, prefix length and suffix length; also written to `out`, as sweep.json and report.html.

    `source` is a text or the Path of one, or examples (a Path that ends in .jsonl holds some). A shorter prefix is the
    end of an example's prefix, a shorter suffix the beginning of its suffix, so that all prefix lengths ask for the
    same suffix. Lengths are in tokens; left out, they are the examples' own, which must then agree. `out`/prefix-N is
    an ordinary run, which is continued if it is there already.
    """
    if schemes is None and prefixes is None and suffixes is None:
        raise InputError(
            f"there is nothing to vary; give {argument('schemes')}, {argument('prefixes')} or {argument('suffixes')}."
        )
    for option, lengths_asked in (("prefixes", prefixes), ("suffixes", suffixes)):
        if lengths_asked is not None:
            _refuse_lengths(option, lengths_asked)
    require_kind("model", model, TokenModel, "a model that rote.load gives")
    prefixes, suffixes = _listed("prefixes", prefixes), _listed("suffixes", suffixes)
    asked, tell = as_schemes(Scheme() if schemes is None else schemes), progress or quiet
    own, examples, changed = _examples(model, source, prefixes, suffixes, stride, normalise, tell)
    name = name or own
    folder = run_folder(out, name, model)
    folder = folder if out is not None else folder.with_name(f"{folder.name}-sweep")
    lengths = Lengths(prefix=_lengths(examples, "prefixes", prefixes), suffix=_lengths(examples, "suffixes", suffixes))
    with stopping(lambda: _left(folder)):
        points, last = _scored(model, examples, asked, lengths, tau, batch_size, folder, name, tell)
    numbers_of = last.summary
    result = SweepResult(
        format=FORMAT,
        kind="sweep",
        model=numbers_of.model,
        examples=numbers_of.examples,
        tau=numbers_of.tau,
        logit_tolerance=numbers_of.logit_tolerance,
        versions=numbers_of.versions,
        source=SweepSource(name=name, normalised=taken(changed)),
        lengths=lengths,
        points=points,
    )
    finish_sweep(folder, result)
    made = Sweep(folder)
    made.report(progress=progress)
    return made


def _listed(name: str, lengths: Any) -> list[int] | None:
    """Lengths as they were given: one, or several."""
    if lengths is None:
        return None
    every = lengths if isinstance(lengths, Iterable) and not isinstance(lengths, str) else [lengths]
    return [require_whole(name, length) for length in every]


def _examples(
    model: ScoringModel, source: Text | Examples, prefixes: Sequence[int] | None, suffixes: Sequence[int] | None,
    stride: int | None, normalise: Sequence[str], tell: Progress,
) -> tuple[str, list[Example], dict[str, int]]:  # fmt: skip
    """A name for the source, its examples (given ones, or a text's windows of the longest lengths), and its changes."""
    longest = [None if lengths is None else max(lengths, default=0) for lengths in (prefixes, suffixes)]
    if isinstance(source, str) or (isinstance(source, Path) and source.suffix != ".jsonl"):
        text, name = as_text(source, "source")
        usual = Windows()
        cut = Windows(longest[0] or usual.prefix, longest[1] or usual.suffix, STRIDE if stride is None else stride)
        check_context(model, cut.prefix, cut.suffix, ("prefixes", "suffixes"))
        prepared = ready(text, normalise)
        starts = window_starts(prepared, cut)
        examples = cut_windows(prepared, plain_backend(model.tokenizer), cut, starts, tell)
        if not examples:
            raise InputError(f"{name} is too short for windows of these lengths; use shorter ones.")
        return name, examples, prepared.changed
    for option, value in (("stride", stride), ("normalise", normalise or None)):
        if value is not None:
            raise InputError(f"{argument(option)} is for a text; examples are used as they are.")
    name = source.name if isinstance(source, Path) else "examples"
    examples = as_examples(source, model.tokenizer, prefix=longest[0], suffix=longest[1], longer=True)
    if not examples:
        raise InputError(f"{name} holds no examples.")
    return name, examples, {}


def _scored(
    model: ScoringModel, examples: Sequence[Example], schemes: Sequence[Scheme], lengths: Lengths, tau: float,
    batch_size: BatchSize, folder: Path, name: str, tell: Progress,
) -> tuple[list[Point], Run]:  # fmt: skip
    """A run for each prefix length: the points that all of them give, and the last run."""
    total, longest = len(lengths.prefix) * len(examples), lengths.suffix[-1]
    every = [*schemes, *([] if GREEDY in schemes else [GREEDY])]
    points: list[Point] = []
    for number, prefix in enumerate(lengths.prefix):

        def on(what: str, done: int, of: int, before: int = number * len(examples)) -> None:
            tell(what, before + done, total)

        cut = [_cut(example, prefix, longest) for example in examples]
        run = score_examples(
            Job(model, cut, every, tau, stop_early=False, near=None, batch_size=batch_size),
            folder=folder / part(prefix),
            name=name,
            sweep=SweptLengths(prefix=prefix, suffix=longest),
            tell=on,
        )
        points += _points(run, [str(scheme) for scheme in schemes], prefix, lengths.suffix)
    return points, run


def _left(folder: Path) -> str:
    """How far every part of a sweep has come."""
    parts = sorted(path.parent for path in folder.glob("prefix-*/manifest.json"))
    stored = "; ".join(f"{part.name}: {Run.open(part).progress()}" for part in parts) or "nothing stored yet"
    return f"{stored} in {folder}. Run the same command again to go on."


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


def _refuse_lengths(option: str, asked: Sequence[int]) -> None:
    if not asked or not all(whole(length) and length >= 1 for length in asked):
        raise InputError(f"{argument(option)}: lengths are whole numbers of at least 1, not {list(asked)}.")


def _lengths(examples: Sequence[Example], option: str, asked: Sequence[int] | None) -> list[int]:
    """The lengths to sweep, ascending, once each; every example must be long enough for the longest."""
    of = option.removesuffix("es")
    own = [len(getattr(example, of)) for example in examples]
    if asked is None:
        if min(own) != max(own):
            raise InputError(
                f"the examples' {option} have from {min(own)} to {max(own)} tokens; say which lengths to compare: "
                f"{argument(option)} with up to {min(own)}."
            )
        return [own[0]]
    if max(asked) > min(own):
        short = examples[own.index(min(own))]
        raise InputError(
            f"example {short.id!r} has a {of} of {counted(min(own), 'token')}, fewer than {max(asked)}; give "
            f"{argument(option)} up to that."
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
