"""How often examples stand in an indexed corpus, and what of an output does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rote.corpus.index import CorpusIndex, Place
from rote.corpus.readings import Reader
from rote.tokens import Example

CountedAs = Literal["tokens", "tokens from the first word on", "text"]
"""What of an example is looked for: all its tokens; those from the first that begins with a space, as a window that
begins inside a word has other tokens there than the corpus; or its text, in an index of bytes."""


@dataclass(frozen=True, slots=True)
class Match:
    """The longest part of an output that stands in the corpus: its first token, how many, and its first place there.

    `length`: of the output, as the index has it. `whole`: how often all of it stands there.
    """

    length: int
    whole: int
    start: int
    tokens: int
    place: Place | None


@dataclass(frozen=True)
class Occurrences:
    """An index, asked about a model's tokens. `tokenizer`: the model's; None: it has none, and the index has tokens."""

    index: CorpusIndex
    tokenizer: Any | None
    scanned: bool

    @property
    def counted_as(self) -> CountedAs:
        if self.index.unit == "bytes":
            return "text"
        return "tokens from the first word on" if self.scanned else "tokens"

    def of(self, example: Example) -> tuple[int | None, int | None]:
        """How often an example stands in the corpus, and how often its suffix; None: there is nothing to look for.

        That is so where no word begins in a window's prefix, and where a text is white space.
        """
        prefix = self._from_word(example.prefix) if self.counted_as == "tokens from the first word on" else 0
        whole = None if prefix is None else self._count((*example.prefix[prefix:], *example.suffix))
        return whole, self._count(example.suffix)

    def match(self, output: Sequence[int]) -> Match:
        """The longest part of an output that stands in the corpus; in an index of bytes, in bytes of its text."""
        ids = self._query(output)
        lengths = self.index.longest(ids)
        longest = max(lengths, default=0)
        if not longest:
            return Match(len(ids), 0, 0, 0, None)
        start = lengths.index(longest)
        whole = self.index.count(ids) if longest == len(ids) else 0
        return Match(len(ids), whole, start, longest, self.index.places(ids[start : start + longest], 1)[0])

    def _count(self, ids: Sequence[int]) -> int | None:
        query = self._query(ids)
        return self.index.count(query) if query else None

    def _query(self, ids: Sequence[int]) -> list[int]:
        if self.index.unit == "tokens":
            return list(ids)
        return list(Reader(self.tokenizer).text(ids).strip("\ufffd").strip().encode("utf-8", "replace"))

    def _from_word(self, prefix: Sequence[int]) -> int | None:
        """The first token that begins with a space and a letter after it: there the corpus has a token's border too."""
        reader = Reader(self.tokenizer)
        for at in range(len(prefix)):
            before = reader.text(prefix[:at]) if at else ""
            own = reader.text(prefix[: at + 1])[len(before) :]
            if own[:1].isspace() and own[1:2].strip():
                return at
        return None
