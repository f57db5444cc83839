"""`scan`: sliding windows over a text, scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from rote.analysis.summary import THRESHOLDS
from rote.corpus.formats import Text, as_text
from rote.corpus.normalise import KNOWN, typed_steps
from rote.corpus.windows import Regions, Windows, cut_windows, plain_backend, ready, window_starts
from rote.errors import InputError, argument, counted
from rote.extraction.near.options import NearIf
from rote.jobs.corpus import IndexIf, IndexTokenizerIf, counting
from rote.jobs.engine import Job, check_context, check_job, complete, manifest_of, resumable, run_folder
from rote.jobs.open import Run
from rote.jobs.refine import OnStage, complete_in_stages, plan
from rote.models.base import BUNDLED_TEXT, RunModel
from rote.options import TAU, Batch, Option, Out, StopEarly, Tau, require_kind, require_tau
from rote.progress import Progress, quiet
from rote.scheme import Scheme, Schemes, as_schemes
from rote.store.files import digest
from rote.store.manifest import ScannedWindows, Source, taken
from rote.store.stages import RefineIf


def scan(
    model: RunModel,
    text: Annotated[Text, Option("A UTF-8 text file.", default="Alice in Wonderland, bundled")] = BUNDLED_TEXT,
    *,
    windows: Windows = Windows(),
    normalise: Annotated[
        Sequence[str],
        Option(f"Steps to take before the text is cut: {KNOWN}.", default="none", parse=typed_steps),
    ] = (),
    within: Regions | None = None,
    schemes: Schemes = Scheme(),
    tau: Tau = TAU,
    stop_early: StopEarly = False,
    near: NearIf = None,
    refine: RefineIf = None,
    index: IndexIf = None,
    index_tokenizer: IndexTokenizerIf = None,
    batch_size: Batch = "auto",
    name: str | None = None,
    out: Out = None,
    on_stage: OnStage | None = None,
    progress: Progress | None = None,
) -> Run:
    """Score sliding windows over a text and write a run folder; a folder that holds part of this run is continued.

    `text` is a text, or the Path of a file; `name` is what reports call it. `within`: regions of the text, as [start,
    end) pairs, in which windows may start; rates are then those of a choice of windows. `normalise`: steps that make
    the text like those that models read, as in ["line-ends", "spaces"]; places are still those of the text as given.
    With `stop_early`, windows that are certain to end below `tau` are given up after a few tokens: cheaper on text that
    is not memorized, at the price of exact numbers below tau. `near` asks for near-verbatim extraction as well:
    rote.Near() for its defaults.

    `refine` scores windows in stages and leaves out what does not promise to reach `tau`: rote.Refine() for its
    defaults. The run can be read, and stopped, after every stage; `on_stage` is called with it then. `index`: see
    `score`; a window is counted from the first word that begins in it.
    """
    require_kind("windows", windows, Windows, "a rote.Windows")
    content, own_name = as_text(text)
    require_kind("name", name or own_name, str, "a text")
    name, asked, tell = name or own_name, as_schemes(schemes), progress or quiet
    if (stop_early or refine is not None) and require_tau(tau) > THRESHOLDS[0]:
        least, which = THRESHOLDS[0], argument("stop_early" if stop_early else "refine")
        raise InputError(
            f"with {which}, {argument('tau')} must be at most {least}, the lowest coverage threshold, not {tau}."
        )
    if index is not None and refine is not None:
        raise InputError(
            f"{argument('refine')} leaves windows out by what they come to, so rates by repetitions would be of a "
            f"biased choice. Leave {argument('index')} or {argument('refine')} out."
        )
    folder = run_folder(out, name, model)
    check_context(model, windows.prefix, windows.suffix)
    with resumable(folder):
        counts = counting(index, index_tokenizer, model, scanned=True)
        prepared = ready(content, normalise)
        starts = window_starts(prepared, windows, within)
        examples = cut_windows(prepared, plain_backend(model.tokenizer), windows, starts, tell)
        if not examples:
            _refuse_short(content, name, windows, within)
        if counts is not None:
            examples = counts.examples(examples, tell)
        job = Job(model, examples, asked, tau, stop_early, near, batch_size, counts)
        check_job(job)
        refined = None if refine is None else plan(refine, job)
        manifest = manifest_of(
            job,
            Source(
                name=name,
                sha256=digest(content),
                characters=len(content),
                normalised=taken(prepared.changed),
                apart=sum(e.tokenised == "apart" for e in examples) if windows.unit == "characters" else None,
            ),
            windows=ScannedWindows(
                prefix=windows.prefix,
                suffix=windows.suffix,
                stride=windows.stride,
                unit=windows.unit,
                within=None if within is None else [(start, end) for start, end in within],
            ),
            dropped=len(starts) - len(examples),
            refined=refined,
        )
        files = {"text.txt": content.encode("utf-8", "surrogatepass")}
        if refined is None:
            return complete(folder, manifest, files, job, tell)
        return complete_in_stages(folder, manifest, files, job, tell, on_stage)


def _refuse_short(text: str, name: str, cut: Windows, within: Regions | None) -> None:
    size = f"{cut.prefix} + {cut.suffix} {cut.unit}"
    shorter = f"Use shorter windows ({argument('prefix')}, {argument('suffix')})"
    if within is not None:
        raise InputError(
            f"not one window of {size} starts in the given parts of {name} and fits before its end. {shorter} or a "
            f"smaller {argument('stride')}."
        )
    raise InputError(
        f"{name} is too short: not one window of {size} fits into its {counted(len(text), 'character')}. {shorter} or "
        "a longer text."
    )
