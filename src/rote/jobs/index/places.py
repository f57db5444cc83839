"""What the commands on an index have in common: opening it, and a place with what stands around it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rote.corpus.index import Place
from rote.errors import InputError, argument
from rote.options import Option
from rote.store.index import StoredIndex, open_index

Indexed = Annotated[str | Path | StoredIndex, Option("Folder of an index.", metavar="INDEX")]
IndexTokenizer = Annotated[
    str | None, Option("Tokenizer of an index that is not Rote's: a model, or bytes.", default="the index's own")
]
AROUND = {"tokens": 20, "bytes": 80}
"""What is shown on either side of a place."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A place in the corpus: its document's name and number, its first token, and the character that begins at.

    Many tokenizers have a space in the token after it: then that is the character. `tokens`: how many of them are
    found. `before` and `after`: the few that stand around them.
    """

    document: str
    number: int
    token: int
    character: int
    tokens: int
    document_tokens: int
    before: str
    text: str
    after: str


def opened(index: str | Path | StoredIndex, tokenizer: str | None) -> StoredIndex:
    if isinstance(index, StoredIndex):
        if tokenizer is not None:
            raise InputError(f"the index is open, with its tokenizer; leave {argument('tokenizer')} out.")
        return index
    return open_index(index, tokenizer)


def shown(stored: StoredIndex, place: Place, length: int) -> Found:
    """What stands at a place, `length` tokens of it and a few around them."""
    ids, reader, around = stored.index.document(place.document), stored.reader, AROUND[stored.index.unit]
    end = place.token + length
    return Found(
        document=stored.index.name(place.document),
        number=place.document,
        token=place.token,
        character=len(reader.text(ids[: place.token].tolist())),
        tokens=length,
        document_tokens=len(ids),
        before=reader.text(ids[max(0, place.token - around) : place.token].tolist()),
        text=reader.text(ids[place.token : end].tolist()),
        after=reader.text(ids[end : end + around].tolist()),
    )
