"""Average rates over a corpus: draw examples from it, score them, and say how sure the rates are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from rote.analysis.groups import HELD_OUT
from rote.corpus.documents import Corpus, open_corpus
from rote.corpus.sampling import Draw, Drawn, Role
from rote.corpus.sampling import draw as draw_examples
from rote.errors import InputError, argument
from rote.jobs.corpus import IndexIf, IndexTokenizerIf, counting
from rote.jobs.engine import Job, check_context, resumable, run_folder
from rote.jobs.open import Run
from rote.jobs.score import score_examples
from rote.models.base import RunModel, ScoringModel
from rote.options import TAU, Batch, BatchSize, Option, Out, StopEarly, Tau, require_kind
from rote.progress import Progress, quiet
from rote.scheme import Scheme, Schemes, as_schemes
from rote.store.manifest import SampledCorpus, Sampling
from rote.tokens import Example


def rate(
    model: RunModel,
    corpus: Annotated[str | Path, Option("A folder of texts, a JSONL or Parquet file, or a dataset saved to disk.")],
    *,
    held_out: Annotated[str | Path | None, Option("A corpus the model has not seen, to compare with.")] = None,
    draw: Draw = Draw(),
    text_column: Annotated[str | None, Option("Key or column that holds the text.", default="text")] = None,
    glob: Annotated[str | None, Option("Which files of a folder are texts.", default="*.txt")] = None,
    schemes: Schemes = Scheme(),
    tau: Tau = TAU,
    stop_early: StopEarly = False,
    index: IndexIf = None,
    index_tokenizer: IndexTokenizerIf = None,
    batch_size: Batch = "auto",
    out: Out = None,
    progress: Progress | None = None,
) -> Run:
    """Draw examples from a corpus, score them, write a run folder; a folder that holds part of this run is continued.

    For each of its runs, `draw` takes documents without replacement, and from each some examples that do not overlap;
    see `rote.corpus.sampling.draw`. `held_out` is a corpus that the model has not seen: as much is drawn from it, as
    the split "held-out", and rates are compared with its rates. The documents of `corpus` are then the split "train",
    unless they have one. `text_column` and `glob`, for both: which column of a table, or which files of a folder, are
    the texts. `index`: see `score`.
    """
    require_kind("draw", draw, Draw, "a rote.Draw")
    require_kind("corpus", corpus, str | Path, "the path of a corpus")  # type: ignore[arg-type]
    tell, asked, name = progress or quiet, as_schemes(schemes), Path(corpus).name
    folder = run_folder(out, name, model)
    _refuse_impossible(model, draw, asked, tau, batch_size)
    sources: dict[Role, Path] = {"main": Path(corpus)}
    if held_out is not None:
        sources["held-out"] = Path(held_out)
        if Path(held_out).resolve() == Path(corpus).resolve():
            raise InputError(
                f"{argument('held_out')} is the corpus itself, {corpus}. Give texts that the model has not seen."
            )
    with resumable(folder):
        opened = {
            role: open_corpus(path, text_column=text_column, glob=glob, progress=tell) for role, path in sources.items()
        }
        _refuse_idle(opened, corpus, text_column, glob)
        drawn: list[Example] = []
        sampled: dict[str, SampledCorpus] = {}
        for role, own in opened.items():
            given, by_run = _drawn(_with_split(own, role, compared=held_out is not None), model, draw, role, tell)
            drawn += given
            sampled[role] = SampledCorpus(kind=own.shape, documents=len(own.documents), runs=by_run)
        held_out_name = None if held_out is None else Path(held_out).name
        sampling = Sampling(**asdict(draw), corpora=sampled, held_out_name=held_out_name)
        counts = counting(index, index_tokenizer, model, scanned=False)
        if counts is not None:
            drawn = counts.examples(drawn, tell)
        job = Job(model, drawn, asked, tau, stop_early, None, batch_size, counts)
        return score_examples(job, folder=folder, name=name, sampling=sampling, tell=tell)


def _refuse_impossible(
    model: ScoringModel, draw: Draw, schemes: Sequence[Scheme], tau: float, batch_size: BatchSize
) -> None:
    """Before minutes of drawing."""
    from rote.extraction.verbatim import check

    check_context(model, draw.prefix, draw.suffix)
    one = Example(f"{draw.prefix} + {draw.suffix} tokens", (0,) * draw.prefix, (0,) * draw.suffix)
    check(model, [one], schemes, tau, batch_size)


def _refuse_idle(corpora: Mapping[Role, Corpus], corpus: str | Path, text_column: str | None, glob: str | None) -> None:
    shapes = {opened.shape for opened in corpora.values()}
    if text_column is not None and shapes == {"texts"}:
        raise InputError(f"{corpus} is a folder of texts, which has no columns; leave {argument('text_column')} out.")
    if glob is not None and "texts" not in shapes:
        raise InputError(f"{argument('glob')} chooses texts from a folder, and {corpus} is none; leave it out.")


def _drawn(
    corpus: Corpus, model: ScoringModel, draw: Draw, role: Role, tell: Progress
) -> tuple[list[Example], list[Drawn]]:
    given, by_run = draw_examples(corpus, model.tokenizer, draw, role=role, progress=tell)
    if not given:
        raise InputError(
            f"{corpus.path}: no document has room for one example: {draw.prefix} + {draw.suffix} tokens after a space "
            f"character. Use shorter examples ({argument('prefix')}, {argument('suffix')}) or longer documents."
        )
    return given, by_run


def _with_split(corpus: Corpus, role: Role, *, compared: bool) -> Corpus:
    if not compared:
        return corpus
    changed = (
        replace(document, split=HELD_OUT if role == "held-out" else document.split or "train")
        for document in corpus.documents
    )
    return replace(corpus, documents=tuple(changed))
