"""What outputs.json says: a run's outputs, looked for in an indexed corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rote.corpus.index import Unit
from rote.corpus.occurrences import CountedAs


@dataclass(frozen=True, kw_only=True)
class IndexUse:
    """The index that a run counted with. `id` stands for its tokens; `counted`: what of an example was looked for."""

    name: str
    id: str
    unit: Unit
    documents: int
    tokens: int
    counted: CountedAs


@dataclass(frozen=True, kw_only=True)
class LookedUp:
    """An output that is not the suffix, and what of it stands in the corpus.

    `kind`: an output near the suffix (`candidate` is its place among the row's, `distance` its edits), or the greedy
    one. `count`: how often all of it stands there. `longest`: the tokens (or bytes) of its longest part that does, of
    `length`; the part's first place is `token` of `document`, and `excerpt` what stands there.
    """

    example_id: str
    kind: Literal["near", "greedy"]
    candidate: int | None
    distance: int | None
    text: str
    length: int
    count: int
    longest: int
    document: str | None
    token: int | None
    excerpt: str | None


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """All outputs that were looked up, those that stand in the corpus first. `left`: how many near ones were not."""

    format: int
    near: int
    greedy: int
    left: int
    outputs: list[LookedUp]


@dataclass(frozen=True, kw_only=True)
class InCorpus:
    """What of a run stands in the corpus: examples and suffixes that do, of those looked for, and outputs that are not
    their suffix but stand there word for word, of those looked up; the strongest are listed."""

    counted: int
    standing: int
    most: int
    suffixes: int
    suffixes_standing: int
    near: int
    near_elsewhere: int
    greedy: int
    greedy_elsewhere: int
    left: int
    listed: list[LookedUp]
