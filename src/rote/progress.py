"""How everything that takes long says how far it is, and what is left where it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""Called with what is counted, how many are done, and of how many.

Counted are "windows" (cut), "places" (looked for), "listed", "drawn" and "tokenised" (documents), "scored",
"generated", "compared", "exported", "figures", "sorted" (shards of an index), "traced" (tokens), "counted" (examples in
a corpus), "looked up" (outputs in it), "examples" (found for a benchmark), "learning" and "attacking" (token
evaluations or seconds), "read" (texts), "folds" (parts of them that scores are evaluated on), "splits" and "trials" (of
a test), "words" (texts whose words are looked at), "asked" (questions), "page" and "loaded" (models). Of a cluster
"workers" (there, of those asked for) and "evaluated" (token evaluations, of about as many as there will be).
"""


def quiet(what: str, done: int, total: int) -> None:
    """Progress that nobody asked for."""


@contextmanager
def stopping(left: Callable[[], str]) -> Iterator[None]:
    """Where the work inside is stopped by hand, the KeyboardInterrupt gets a note that says what is `left`."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(left())
        raise
