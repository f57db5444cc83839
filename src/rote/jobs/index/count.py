"""`index.count`: how often a text stands in a corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rote.corpus.index import Unit
from rote.jobs.index.places import Indexed, IndexTokenizer, opened
from rote.options import Option

Looked = Annotated[str, Option("The text to look for.", metavar="TEXT")]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One way in which a text may stand in a corpus, and how often it does.

    `how`: as the tokens that it is "alone", "after a space" or "after a line break".
    """

    how: str
    ids: list[int]
    count: int
    documents: int


@dataclass(frozen=True, kw_only=True)
class Counted:
    """How often a text stands in a corpus, in how many documents, and under which tokens.

    A document that has it under two readings is one of `documents`, and one of each reading's.
    """

    text: str
    unit: Unit
    count: int
    documents: int
    readings: list[Reading]
    corpus_tokens: int
    corpus_documents: int


def count(index: Indexed, text: Looked, *, tokenizer: IndexTokenizer = None) -> Counted:
    """How often a text stands in the corpus, exactly.

    In an index of tokens, a text is found where the corpus has its tokens: those that it is alone, after a space, or
    after a line break. One that begins or ends within a word is not found there; an index of bytes finds it.
    """
    stored = opened(index, tokenizer)
    readings = [
        Reading(how=how, ids=ids, count=stored.index.count(ids), documents=stored.index.documents_with(ids))
        for how, ids in stored.reader.queries(text).items()
    ]
    return Counted(
        text=text,
        unit=stored.index.unit,
        count=sum(reading.count for reading in readings),
        documents=stored.index.documents_with(*(reading.ids for reading in readings)),
        readings=readings,
        corpus_tokens=stored.index.tokens,
        corpus_documents=stored.index.documents,
    )
