"""Average rates over a corpus: draw examples from it, score them, and say how sure the rates are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rote.analysis.groups import HELD_OUT
from rote.corpus.documents import Corpus, open_corpus
from rote.corpus.sampling import Role, draw
from rote.corpus.windows import require_positive
from rote.errors import InputError
from rote.extraction.verbatim import BatchSize, check
from rote.jobs.engine import Job
from rote.jobs.open import Run
from rote.jobs.progress import Progress, quiet
from rote.jobs.score import score_examples
from rote.models.base import LogitModel
from rote.scheme import Scheme
from rote.store.manifest import SampledCorpus, Sampling
from rote.tokens import Example


def rate(
    corpus: str | Path,
    model: LogitModel,
    *,
    out: str | Path,
    held_out: str | Path | None = None,
    documents: int | None = None,
    examples: int = 10,
    runs: int = 3,
    prefix: int = 50,
    suffix: int = 50,
    seed: int = 0,
    text_column: str | None = None,
    glob: str | None = None,
    schemes: Sequence[Scheme] = (Scheme(),),
    tau: float = 1e-3,
    stop_early: bool = False,
    batch_size: BatchSize = "auto",
    progress: Progress | None = None,
) -> Run:
    """Draw examples from a corpus, score them, write a run folder; a folder that holds part of this run is continued.

    For each of `runs` runs, `documents` documents (1000, or all there are) are drawn without replacement, and from each
    `examples` examples that do not overlap; see `rote.corpus.sampling.draw`. `held_out` is a corpus that the model has
    not seen: as much is drawn from it, as the split "held-out", and rates are compared with its rates. The documents of
    `corpus` are then the split "train", unless they have one. `text_column` and `glob`, for both: which column of a
    table, or which files of a folder, are the texts.
    """
    tell = progress or quiet
    for option, size in (("prefix", prefix), ("suffix", suffix)):
        require_positive(option, size)
    one = Example(f"{prefix} + {suffix} tokens", (0,) * prefix, (0,) * suffix)
    check(model, [one], schemes, tau, batch_size)  # before minutes of drawing
    sources: dict[Role, Path] = {"main": Path(corpus)}
    if held_out is not None:
        sources["held-out"] = Path(held_out)
        if Path(held_out).resolve() == Path(corpus).resolve():
            raise InputError(f"--held-out is the corpus itself, {corpus}. Give texts that the model has not seen.")
    corpora = {
        role: open_corpus(path, text_column=text_column, glob=glob, progress=partial(tell, "listed"))
        for role, path in sources.items()
    }
    shapes = {opened.shape for opened in corpora.values()}
    if text_column is not None and shapes == {"texts"}:
        raise InputError(f"{corpus} is a folder of texts, which has no columns; leave --text-column out.")
    if glob is not None and "texts" not in shapes:
        raise InputError(f"--glob chooses texts from a folder, and {corpus} is none; leave it out.")
    drawn: list[Example] = []
    sampled: dict[str, SampledCorpus] = {}
    for role, opened in corpora.items():
        given, by_run = draw(
            _with_split(opened, role, compared=held_out is not None), model.tokenizer, documents=documents,
            examples=examples, runs=runs, prefix=prefix, suffix=suffix, seed=seed, role=role,
            progress=partial(tell, "drawn"),
        )  # fmt: skip
        if not given:
            raise InputError(
                f"{opened.path}: no document has room for one example: {prefix} + {suffix} tokens after a space "
                "character. Use shorter examples (--prefix, --suffix) or longer documents."
            )
        drawn += given
        sampled[role] = SampledCorpus(kind=opened.shape, documents=len(opened.documents), runs=by_run)
    sampling = Sampling(
        documents=documents,
        examples=examples,
        runs=runs,
        prefix=prefix,
        suffix=suffix,
        seed=seed,
        corpora=sampled,
        held_out_name=None if held_out is None else Path(held_out).name,
    )
    job = Job(model, drawn, schemes, tau, stop_early, None, batch_size)
    return score_examples(job, out=out, name=Path(corpus).name, sampling=sampling, progress=progress)


def _with_split(corpus: Corpus, role: Role, *, compared: bool) -> Corpus:
    if not compared:
        return corpus
    changed = (
        replace(document, split=HELD_OUT if role == "held-out" else document.split or "train")
        for document in corpus.documents
    )
    return replace(corpus, documents=tuple(changed))
