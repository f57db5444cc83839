"""Runs of `rote probe`, made up: what its summary is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from rote.analysis.probe.summary import summarise
from rote.corpus.texts import LabelledText
from rote.models.probed import ChatIdentity
from rote.probes.judging import rule
from rote.progress import quiet
from rote.store.files import FORMAT
from rote.store.member import TextsSource
from rote.store.membership import MemberView
from rote.store.probe import Chosen, ProbeManifest, ProbeSummary
from rote.store.probing import CHOSEN_SCHEMA, QUESTIONS_SCHEMA


def chat(name: str) -> ChatIdentity:
    return ChatIdentity(name=name, url="http://localhost/v1", body={}, headers=[])


def manifest(**more: Any) -> ProbeManifest:
    """`targets` and `filters`: how many; `select`: the selectors."""
    targets, filters = more.pop("targets", 1), more.pop("filters", 0)
    words = Chosen(
        select=list(more.pop("select", ["prob"])), most=10, log_likelihood=None, rank=None, share=0.2, once=False,
        tagger="rule",
    )  # fmt: skip
    own: dict[str, Any] = {
        "format": FORMAT, "kind": "probe", "created": "2026-01-01T00:00:00Z",
        "source": TextsSource(name="texts", sha256="0" * 64, texts=0),
        "targets": [chat(f"target-{place}") for place in range(targets)],
        "filters": [chat(f"filter-{place}") for place in range(filters)],
        "methods": ["cloze"], "words": words, "wording": "passage", "prompts": {}, "prefix_words": 50, "hits": 2,
        "unfiltered": True, "plurals": False, "rule": rule(plurals=False), "temperature": 0.0, "seed": 0,
        "calibrated": "parts", "shard_texts": 100, "shards": 1, "versions": {},
    }  # fmt: skip
    return ProbeManifest(**(own | more))


def texts(labels: Sequence[bool | None], **columns: Sequence[Any]) -> dict[str, LabelledText]:
    """One for each label, called 0, 1, ...; `columns`: what else is known of them."""
    return {
        str(place): LabelledText(
            id=str(place),
            text=f"text {place}",
            label=label,
            **{name: column[place] for name, column in columns.items()},
        )
        for place, label in enumerate(labels)
    }


def word(
    text: str, start: int, selectors: Sequence[str] = ("prob",), guessed: Sequence[int] = (), **more: Any
) -> dict[str, Any]:
    own = {"text": text, "start": start, "end": start + 1, "word": "w", "classes": ["content"], "asked": True}
    return {**own, "selectors": list(selectors), "guessed": list(guessed), **more}


def question(text: str, outcome: str, **more: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(["said", "order", "start", "end", "common", "words"])
    return {"role": "target", "model": 0, "method": "cloze", "text": text, "outcome": outcome, **nothing, **more}


def frame(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(pa.Table.from_pylist(list(rows), schema=schema)))


def summed(
    own: ProbeManifest,
    named: Mapping[str, LabelledText],
    chosen: Sequence[Mapping[str, Any]],
    questions: Sequence[Mapping[str, Any]],
    membership: MemberView | None = None,
) -> tuple[ProbeSummary, pl.DataFrame]:
    return summarise(
        manifest=own, texts=named, words=None, chosen=frame(chosen, CHOSEN_SCHEMA),
        questions=frame(questions, QUESTIONS_SCHEMA), spent=[], estimates=[], seconds=1.0, warnings=[],
        membership=membership, progress=quiet,
    )  # fmt: skip


def hits(
    counts: Sequence[int | None], asked: int = 5, model: int = 0
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Words and questions of cloze: of each text so many of those asked for came back; None: it has no word."""
    words, questions = [], []
    for place, count in enumerate(counts):
        for start in range(asked if count is not None else 0):
            words.append(word(str(place), start))
            outcome = "hit" if start < (count or 0) else "miss"
            questions.append(question(str(place), outcome, start=start, end=start + 1, model=model))
    return words, questions
