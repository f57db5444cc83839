"""`index.next`: what follows a text in a corpus."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated

from rote.corpus.index import Unit
from rote.jobs.index.count import Looked
from rote.jobs.index.places import Indexed, IndexTokenizer, opened
from rote.options import Option, require_whole


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """A token that follows, as id and as text, and how often; None: the document ends there."""

    token: int | None
    text: str | None
    count: int
    share: float


@dataclass(frozen=True, kw_only=True)
class Continuations:
    """What follows a text: all of `distinct` continuations, of which the most frequent are listed."""

    text: str
    unit: Unit
    count: int
    distinct: int
    continuations: list[Continuation]


def next(
    index: Indexed,
    text: Looked,
    *,
    most: Annotated[int, Option("How many continuations to show.")] = 10,
    tokenizer: IndexTokenizer = None,
) -> Continuations:
    """The tokens that follow a text in the corpus, with how often they do. See `count` for what is found."""
    require_whole("most", most)
    stored = opened(index, tokenizer)
    counts: Counter[int | None] = Counter()
    queries = list(stored.reader.queries(text).values())
    for ids in queries:
        counts.update(stored.index.following(ids))
    total = counts.total()
    return Continuations(
        text=text,
        unit=stored.index.unit,
        count=total,
        distinct=len(counts),
        continuations=[
            Continuation(
                token=token,
                text=None if token is None else stored.reader.text_after(queries[0], token),
                count=count,
                share=count / total,
            )
            for token, count in counts.most_common(most)
        ],
    )
