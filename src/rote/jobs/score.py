"""`score`: given examples, scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

from rote.corpus.chat import template_of
from rote.corpus.formats import Examples, as_examples
from rote.errors import InputError
from rote.extraction.near.options import NearIf
from rote.jobs.corpus import IndexIf, IndexTokenizerIf, counting, told_apart
from rote.jobs.engine import Job, check_job, complete, manifest_of, resumable, run_folder
from rote.jobs.open import Run
from rote.models.base import RunModel
from rote.options import TAU, Batch, Option, Out, StopEarly, Tau
from rote.progress import Progress, quiet
from rote.scheme import Scheme, Schemes, as_schemes
from rote.store.files import digest, line
from rote.store.manifest import Sampling, Source, SweptLengths
from rote.store.run import StoredExample
from rote.tokens import Example


def score(
    model: RunModel,
    examples: Annotated[Examples, Option('JSONL: {"prompt": "...", "target": "..."}, {"text": "..."} or ids a line.')],
    *,
    chat: Annotated[bool, Option("Put each prompt into the model's chat template.")] = False,
    prefix: Annotated[int | None, Option("Tokens of a text that are the prompt.", default="50")] = None,
    suffix: Annotated[int | None, Option("Tokens of a text that must come back.", default="50")] = None,
    schemes: Schemes = Scheme(),
    tau: Tau = TAU,
    stop_early: StopEarly = False,
    near: NearIf = None,
    index: IndexIf = None,
    index_tokenizer: IndexTokenizerIf = None,
    batch_size: Batch = "auto",
    name: str | None = None,
    out: Out = None,
    progress: Progress | None = None,
) -> Run:
    """Score given examples and write a run folder, as `scan` does for windows.

    `examples` are rote.Example, or dicts like the lines of a JSON-lines file, or the Path of such a file. `prefix` and
    `suffix` say where a {"text": ...} is split, in tokens; a {"prompt": ..., "target": ...} is split where the target
    begins. `chat` makes every prompt a user's message in the model's chat template; {"messages": [...], "target": ...}
    gives messages of one's own. See `rote.corpus.formats.as_examples`. `index`: one over the corpus that the model was
    trained on, as `rote.index.build` makes it: says how often examples and suffixes stand there, and what of outputs.
    """
    name = name or (examples.name if isinstance(examples, Path) else "examples")
    folder = run_folder(out, name, model)
    with resumable(folder):
        bos = model.bos_id
        given = as_examples(examples, model.tokenizer, prefix=prefix, suffix=suffix, bos=bos, chat=chat)
        counts = counting(index, index_tokenizer, model, scanned=False)
        if counts is not None:
            given = counts.examples(given, progress or quiet)
        job = Job(model, given, as_schemes(schemes), tau, stop_early, near, batch_size, counts)
        return score_examples(job, folder=folder, name=name, tell=progress or quiet)


def score_examples(
    job: Job,
    *,
    folder: Path,
    name: str,
    tell: Progress,
    sampling: Sampling | None = None,
    sweep: SweptLengths | None = None,
) -> Run:
    """The same, with what else decided these examples: how they were drawn, or which part of a sweep they are."""
    examples, tokenizer = job.examples, job.model.tokenizer
    if not examples:
        raise InputError(f"{name} holds no examples.")
    if not all(example.id for example in examples):
        raise InputError(f"{name} has an example without an id; give every example its own id.")
    twice = next((key for key, times in Counter(e.id for e in examples).items() if times > 1), None)
    if twice is not None:
        raise InputError(f"{name} has more than one example with the id {twice!r}; give every example its own id.")
    check_job(job)  # first: ids may be past the tokenizer's
    stored = [_shown(example, tokenizer) for example in examples]
    lines = b"".join(map(line, stored))
    if tokenizer is not None:
        ends = decoded_ends(tokenizer, [(e.suffix, one.suffix_text) for e, one in zip(examples, stored, strict=True)])
        job = replace(job, examples=[replace(e, token_ends=end) for e, end in zip(examples, ends, strict=True)])
    ways = Counter(example.tokenised for example in examples)
    source = Source(
        name=name,
        sha256=told_apart(examples, job.counting is not None),
        text_sha256=digest(lines.decode("utf-8", "surrogatepass")),
        examples=len(examples),
        apart=ways["apart"] if ways["apart"] or ways["together"] else None,
    )
    template = template_of(tokenizer) if ways["chat"] else None
    manifest = replace(manifest_of(job, source, sampling=sampling, sweep=sweep), chat=template)
    return complete(folder, manifest, {"examples.jsonl": lines}, job, tell)


def decoded_ends(tokenizer: Any, suffixes: Iterable[tuple[Sequence[int], str]]) -> Iterator[tuple[int, ...]]:
    """For each (tokens, their text): where in the text each token ends; one with part of a character may be empty.

    Most tokenizers decode token by token; where the pieces do not add up to the text, the first tokens are decoded
    together, one more each time, and what they share with the text counts.
    """
    alone: dict[int, str] = {}
    for tokens, text in suffixes:
        for token in tokens:
            if token not in alone:
                alone[token] = str(tokenizer.decode([token]))
        if "".join(alone[token] for token in tokens) == text:
            yield tuple(accumulate(len(alone[token]) for token in tokens))
            continue
        ends = [_shared(str(tokenizer.decode(list(tokens[:count]))), text) for count in range(1, len(tokens))]
        yield tuple(accumulate([*ends, len(text)], max))


def _shared(beginning: str, text: str) -> int:
    """How many characters the two have in common from the start."""
    return next(
        (i for i, (one, other) in enumerate(zip(beginning, text, strict=False)) if one != other),
        min(len(beginning), len(text)),
    )


def shown(ids: Sequence[int], tokenizer: Any) -> str:
    """Tokens as a reader sees them: as text, or as ids where there is no tokenizer."""
    return str(tokenizer.decode(list(ids))) if tokenizer is not None and ids else " ".join(map(str, ids))


def _shown(example: Example, tokenizer: Any) -> StoredExample:
    """An example for the reader: its ids, and their text where a tokenizer is at hand (for display only)."""

    return StoredExample(
        id=example.id,
        prefix=list(example.prefix),
        suffix=list(example.suffix),
        prefix_text=shown(example.prefix, tokenizer),
        suffix_text=shown(example.suffix, tokenizer),
        metadata=dict(example.metadata),
        tokenised=example.tokenised,
    )
