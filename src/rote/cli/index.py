"""rote index: exact search over a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines, print_table
from rote.cli.screen import print_places
from rote.errors import counted

if TYPE_CHECKING:
    from rote.corpus.index import Unit
    from rote.jobs.index.count import Counted
    from rote.jobs.index.find import Finds
    from rote.jobs.index.next import Continuations
    from rote.jobs.index.places import Found
    from rote.jobs.index.trace import Traced
    from rote.store.index import StoredIndex

SHOWN = 10
"""Spans that are printed; --json has all of them."""


@command("rote index build corpus.jsonl --model ./my-model --out my-index", group="index")
def build(stored: StoredIndex, asked: Asked) -> None:
    """Index a corpus, so that it can be searched exactly: once for a tokenizer, or in bytes for every model."""
    index, out = stored.index, Console(highlight=False)
    of = f"tokens of {stored.named}" if index.unit == "tokens" else "bytes of text"
    size = sum(path.stat().st_size for path in stored.folder.iterdir() if path.is_file())
    lines = [
        f"{counted(index.documents, 'document')}, {index.tokens:,} {of}, {counted(index.shards, 'shard')}, "
        f"{size / 1e6:,.1f} MB on disk."
    ]
    print_lines(out, lines)
    print_places(out, index=stored.folder)


@command('rote index count my-index "Alice was beginning to get very tired"', group="index")
def count(found: Counted, asked: Asked) -> None:
    """How often does a text stand in the corpus?"""
    out = Console(highlight=False)
    where = f", in {counted(found.documents, 'document')}" if found.count else ""
    print_lines(out, [f"It stands in the corpus {_often(found.count)}{where}."], style="bold")
    corpus = f"The corpus has {counted(found.corpus_documents, 'document')} and {found.corpus_tokens:,} {found.unit}."
    print_lines(out, [corpus])
    if len(found.readings) > 1 and found.count:
        ways = "; ".join(f"{reading.how}: {reading.count:,}" for reading in found.readings)
        print_lines(out, [f"As the tokens that it is {ways}."])
    _tell_whole_tokens(out, found.unit)


@command('rote index find my-index "down the rabbit-hole" --most 5', group="index")
def find(found: Finds, asked: Asked) -> None:
    """In which documents does a text stand, and where in them?"""
    out = Console(highlight=False)
    print_lines(out, [f"It stands in the corpus {_often(found.count)}."], style="bold")
    if len(found.places) < found.count:
        shown = "place" if len(found.places) == 1 else f"{len(found.places)} places"
        print_lines(out, [f"The first {shown}, in the order of the corpus:"])
    for place in found.places:
        print_lines(out, ["", *_lines(place, found.unit)])
    print_lines(out, [""] if found.places else [])
    _tell_whole_tokens(out, found.unit)


@command('rote index next my-index "said the" --most 20', group="index")
def next(found: Continuations, asked: Asked) -> None:
    """What follows a text in the corpus, and how often?"""
    from rote.report.text import numbers

    out, what = Console(highlight=False), found.unit.removesuffix("s")
    print_lines(out, [f"It stands in the corpus {_often(found.count)}."], style="bold")
    _tell_whole_tokens(out, found.unit)
    if not found.count:
        return
    of = counted(found.distinct, "continuation")
    shown = len(found.continuations)
    title = f"What follows: {of}" if found.distinct == shown else f"What follows: the {shown} most frequent of {of}"
    rows = [
        [
            "(the document ends)" if each.token is None else repr(each.text),
            "" if each.token is None else str(each.token),
            f"{each.count:,}",
            numbers.percent(each.share),
        ]
        for each in found.continuations
    ]
    print_table(out, title, ["next", what, "count", "share"], rows)


@command("rote index trace my-index output.txt --least 10", group="index")
def trace(found: Traced, asked: Asked) -> None:
    """Which parts of a text stand in the corpus, how often, and where?"""
    from rote.report.text import numbers

    out = Console(highlight=False)
    share = numbers.percent(found.covered / found.tokens) if found.tokens else "0%"
    headline = (
        f"{share} of the {found.tokens:,} {found.unit} of {found.name} stand in the corpus in spans of at least "
        f"{found.least}; the longest span has {found.longest:,}."
    )
    print_lines(out, [headline], style="bold")
    if len(found.spans) > SHOWN:
        print_lines(out, [f"The {SHOWN} longest of {len(found.spans):,} spans; --json has all of them:"])
    for span in found.spans[:SHOWN]:
        first = ", first here" if span.count > 1 else ""
        at = f"{span.tokens:,} {found.unit} at character {span.start:,} of the text"
        head = f"{at}, {_often(span.count)} in the corpus{first}:"
        print_lines(out, ["", head, *(f"  {line}" for line in _lines(span.place, found.unit))])


def _tell_whole_tokens(out: Console, unit: str) -> None:
    """A count of tokens is no count of characters, and a reader must not take it for one."""
    if unit == "tokens":
        line = (
            "Found as whole tokens: where it is cut into other tokens, as within a longer word, it is not counted. An "
            "index made with --bytes counts it everywhere."
        )
        print_lines(out, [line])


def _often(count: int) -> str:
    return {0: "nowhere", 1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _lines(place: Found, unit: Unit) -> list[str]:
    """Where it stands, and the words around it on one line."""
    from rote.jobs.index.places import AROUND

    what = unit.removesuffix("s")
    where = f"{place.document}, character {place.character:,} ({what} {place.token:,} of {place.document_tokens:,})"
    text = place.text if len(place.text) <= 300 else f"{place.text[:150]} … {place.text[-150:]}"
    before = "…" if place.token > AROUND[unit] else ""
    after = "…" if place.token + place.tokens + AROUND[unit] < place.document_tokens else ""
    around = f"{before}{place.before}[{text}]{place.after}{after}"
    return [" ".join(where.split()), " ".join(around.split())]
