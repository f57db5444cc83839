"""`index.trace`: which parts of a text stand in a corpus, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rote.corpus.formats import Text, as_text
from rote.corpus.index import Unit, maximal
from rote.jobs.index.places import Found, Indexed, IndexTokenizer, opened, shown
from rote.options import Option, require_whole
from rote.progress import Progress, quiet

LEAST = {"tokens": 10, "bytes": 40}
"""Of a span that is shown, where nothing is said."""


@dataclass(frozen=True, kw_only=True)
class TracedSpan:
    """A part of the text that stands in the corpus, and in no longer part that does: its place in the text, in tokens
    and in characters, how often it stands in the corpus, and where first.

    Where it begins or ends with part of a character, that one is left out of `start`, `end` and `text`.
    """

    first_token: int
    tokens: int
    start: int
    end: int
    text: str
    count: int
    place: Found


@dataclass(frozen=True, kw_only=True)
class Traced:
    """The maximal spans of a text that stand in a corpus.

    `covered`: how many of its tokens stand in a span of at least `least` of them. `longest`: the longest span, in
    tokens, also where it is shorter than that; 0: not one token stands in the corpus.
    """

    name: str
    unit: Unit
    tokens: int
    least: int
    covered: int
    longest: int
    spans: list[TracedSpan]


def trace(
    index: Indexed,
    text: Annotated[Text, Option("A UTF-8 text file.")],
    *,
    least: Annotated[int | None, Option("Tokens of the shortest span to show.", default="10; 40 bytes")] = None,
    tokenizer: IndexTokenizer = None,
    progress: Progress | None = None,
) -> Traced:
    """Find the longest parts of a text that stand in the corpus, each with its place: where the text may come from.

    `text` is a text, or the Path of a file. In an index of tokens, the text is read by the index's tokenizer, as a
    whole. Spans may overlap. `least` leaves out short ones, which stand in every corpus.
    """
    stored = opened(index, tokenizer)
    shortest = LEAST[stored.index.unit] if least is None else require_whole("least", least)
    content, name = as_text(text)
    ids, places = stored.reader.placed(content)
    lengths = stored.index.longest(ids, progress or quiet)
    spans = []
    covered = bytearray(len(ids))
    for start, end in maximal(lengths, shortest):
        covered[start:end] = b"\1" * (end - start)
        first = stored.index.places(ids[start:end], 1)[0]
        begin, stop = _whole_characters(places, start, end)
        spans.append(
            TracedSpan(
                first_token=start,
                tokens=end - start,
                start=begin,
                end=stop,
                text=content[begin:stop],
                count=stored.index.count(ids[start:end]),
                place=shown(stored, first, end - start),
            )
        )
    return Traced(
        name=name if isinstance(text, Path) else "the text",
        unit=stored.index.unit,
        tokens=len(ids),
        least=shortest,
        covered=sum(covered),
        longest=max(lengths, default=0),
        spans=sorted(spans, key=lambda span: (-span.tokens, span.first_token)),
    )


def _whole_characters(places: list[tuple[int, int]], start: int, end: int) -> tuple[int, int]:
    """The characters all of which are in these tokens: one may be several tokens, which have the same place."""
    begin, stop = places[start][0], places[end - 1][1]
    if start:
        begin = max(begin, places[start - 1][1])
    if end < len(places):
        stop = min(stop, places[end][0])
    return begin, max(begin, stop)
