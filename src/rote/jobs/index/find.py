"""`index.find`: where a text stands in a corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rote.corpus.index import Unit
from rote.jobs.index.count import Looked
from rote.jobs.index.places import Found, Indexed, IndexTokenizer, opened, shown
from rote.options import Option, require_whole


@dataclass(frozen=True, kw_only=True)
class Finds:
    """How often a text stands in a corpus, and the first places of it, in the order of the corpus."""

    text: str
    unit: Unit
    count: int
    places: list[Found]


def find(
    index: Indexed,
    text: Looked,
    *,
    most: Annotated[int, Option("How many places to show.")] = 10,
    tokenizer: IndexTokenizer = None,
) -> Finds:
    """The documents and places in which a text stands, with what stands around it. See `count` for what is found."""
    require_whole("most", most)
    stored = opened(index, tokenizer)
    queries = list(stored.reader.queries(text).values())
    places = sorted((place, len(ids)) for ids in queries for place in stored.index.places(ids, most))
    return Finds(
        text=text,
        unit=stored.index.unit,
        count=sum(stored.index.count(ids) for ids in queries),
        places=[shown(stored, place, length) for place, length in places[:most]],
    )
