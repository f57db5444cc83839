"""An index beside a run: how often its examples stand in the corpus, and what of its outputs does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import polars as pl

from rote.analysis.corpus import strongest
from rote.corpus.occurrences import Occurrences
from rote.errors import InputError, argument
from rote.extraction.generations import generations
from rote.jobs.index.places import shown
from rote.jobs.open import Run
from rote.models.base import GeneratingModel, ScoringModel, ServedGenerator, TokenModel
from rote.options import Option
from rote.progress import Progress
from rote.scheme import GREEDY
from rote.store.files import FORMAT, digest
from rote.store.index import StoredIndex, open_index
from rote.store.outputs import IndexUse, LookedUp, Outputs
from rote.store.run import StoredExample, add_found
from rote.tokens import Example

IndexIf = Annotated[
    str | Path | StoredIndex | None, Option("Index of the training corpus: counts how often examples stand in it.")
]
IndexTokenizerIf = Annotated[
    str | None, Option("Tokenizer of an index that is not Rote's: a model, or bytes.", default="the index's own")
]

NEAR = 2000
"""Outputs near a suffix that are looked up, the likeliest of them."""

GENERATED = 20
"""Examples whose greedy output is looked up, spread over those where it is not the suffix."""


class Counting:
    """An index that a run counts with."""

    def __init__(self, stored: StoredIndex, model: TokenModel, scanned: bool) -> None:
        tokenizer = model.tokenizer
        if stored.index.unit == "bytes" and tokenizer is None:
            raise InputError(
                f"{argument('index')} is one of bytes, and the model has no tokenizer that says what its tokens are. "
                "Give an index of the model's tokens."
            )
        identity = model.identity()
        stored.require_tokenizer(identity.name, identity.tokenizer)
        self.stored, self.occurrences = stored, Occurrences(stored.index, tokenizer, scanned)

    @property
    def use(self) -> IndexUse:
        stored = self.stored
        return IndexUse(
            name=stored.folder.resolve().name if stored.manifest is None else stored.manifest.corpus,
            id=stored.id,
            unit=stored.index.unit,
            documents=stored.index.documents,
            tokens=stored.index.tokens,
            counted=self.occurrences.counted_as,
        )

    def examples(self, given: Sequence[Example], tell: Progress) -> list[Example]:
        """Examples that say how often they and their suffixes stand in the corpus.

        What they said of their repetitions before is kept as `stated_repetitions`.
        """
        counted = []
        for done, example in enumerate(given, 1):
            metadata = dict(example.metadata)
            if (stated := metadata.pop("repetitions", None)) is not None:
                metadata["stated_repetitions"] = stated
            whole, suffix = self.occurrences.of(example)
            found = {"repetitions": whole, "suffix_repetitions": suffix}
            metadata |= {name: count for name, count in found.items() if count is not None}
            counted.append(replace(example, metadata=metadata))
            tell("counted", done, len(given))
        return counted


def stated(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What an example said before it was counted: examples are the same ones, whatever they were counted in."""
    own = {name: value for name, value in metadata.items() if name not in ("repetitions", "suffix_repetitions")}
    before = own.pop("stated_repetitions", None)
    return own if before is None else {**own, "repetitions": before}


def told_apart(examples: Sequence[Example | StoredExample], counted: bool) -> str:
    """The SHA-256 that score runs know their examples by: ids, tokens, and what they said, `counted` or not."""
    said = [stated(e.metadata) if counted else dict(e.metadata) for e in examples]
    ids = [[e.id, list(e.prefix), list(e.suffix), own] for e, own in zip(examples, said, strict=True)]
    return digest(json.dumps(ids, sort_keys=True))


def counting(
    index: str | Path | StoredIndex | None, tokenizer: str | None, model: TokenModel, *, scanned: bool
) -> Counting | None:
    """The index that was asked for, opened and held against the model's tokenizer."""
    if index is None:
        if tokenizer is not None:
            raise InputError(f"{argument('index_tokenizer')} is that of an index; give {argument('index')} as well.")
        return None
    stored = index if isinstance(index, StoredIndex) else open_index(index, tokenizer)
    return Counting(stored, model, scanned)


def look_up_outputs(run: Run, model: ScoringModel, counting: Counting | None, tell: Progress) -> None:
    """Look for a scored run's outputs in the corpus, and write outputs.json: what is not the suffix may stand there."""
    if counting is None or run.outputs is not None:
        return
    every = list(_near(run.parts()))
    tokens = [*every[:NEAR], *_greedy(run, model, tell)]
    found = []
    for done, (about, ids) in enumerate(tokens, 1):
        found.append(_looked_up(about, ids, counting))
        tell("looked up", done, len(tokens))
    near = min(len(every), NEAR)
    listed = strongest(found)
    outputs = Outputs(format=FORMAT, near=near, greedy=len(tokens) - near, left=len(every) - near, outputs=listed)
    add_found(run.folder, "outputs.json", outputs)


def _near(parts: Iterable[pl.DataFrame]) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Outputs near a suffix, other than it, the likeliest first; of several schemes each once."""
    listed = []
    seen: set[tuple[str, tuple[int, ...]]] = set()
    rows = (row for part in parts for row in part.select("example_id", "candidates").iter_rows())
    for name, candidates in rows:
        for place, each in enumerate(candidates or ()):
            if each["distance"] and (key := (name, tuple(each["tokens"]))) not in seen:
                seen.add(key)
                known = [value for value in (each["log_prob"], each["set_log_prob"]) if value is not None]
                about = {"example_id": name, "kind": "near", "candidate": place, "distance": each["distance"]}
                listed.append((-max(known, default=float("-inf")), name, place, about, each["tokens"]))
    yield from ((about, ids) for *_, about, ids in sorted(listed, key=lambda each: each[:3]))


def _greedy(run: Run, model: ScoringModel, tell: Progress) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """What the model writes after some prefixes whose suffix it does not write, by its own library."""
    if not isinstance(model, GeneratingModel):
        return
    missed = (pl.col("scheme") == run.manifest.schemes[0]) & ~pl.col("greedy")
    rows = pl.concat([part.filter(missed).select("example_id", "start") for part in run.parts()])
    if not rows.height:
        return
    chosen = rows[[i * rows.height // GENERATED for i in range(GENERATED)]].unique("example_id", maintain_order=True)
    examples = run.cut(chosen, model.tokenizer)
    odd: list[str] = model.unwritable(examples) if isinstance(model, ServedGenerator) else []
    for done, example in enumerate(examples, 1):
        if example.id in odd:  # a server that takes texts alone would go on from another prompt
            continue
        begins = bool(example.prefix) or model.bos_id is not None
        if begins and not any(token in model.eos_ids for token in example.suffix[:-1]):
            (output,) = generations(model, example, GREEDY, samples=1, seed=0)
            if output != example.suffix:
                yield {"example_id": example.id, "kind": "greedy", "candidate": None, "distance": None}, list(output)
        tell("generated", done, chosen.height)


def _looked_up(about: dict[str, Any], ids: list[int], counting: Counting) -> LookedUp:
    asked, stored = counting.occurrences, counting.stored
    match = asked.match(ids)
    place = None if match.place is None else shown(stored, match.place, match.tokens)
    return LookedUp(
        **about,
        text=" ".join(map(str, ids)) if asked.tokenizer is None else str(asked.tokenizer.decode(ids)),
        length=match.length,
        count=match.whole,
        longest=match.tokens,
        document=None if place is None else place.document,
        token=None if place is None else place.token,
        excerpt=None if place is None else f"{place.before}{place.text}{place.after}",
    )
