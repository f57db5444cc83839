"""Examples drawn at random from a corpus: documents without replacement, then places in each that do not overlap.

Every choice follows from the seed, the number of the run and a document's id. So a sample does not depend on the order
of files on disk or of rows in a file, nor on which kind of corpus holds the documents.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rote.corpus.documents import Corpus, Document
from rote.corpus.windows import plain_backend, require_positive, windows_at
from rote.tokens import Example

DOCUMENTS = 1000
"""Documents drawn in a run unless asked otherwise, or all there are."""

TRIES = 100
"""Arrangements drawn at once and thrown away where they overlap, before those that do not are counted."""

MOST_PLACES = 1 << 14
"""Places in a document at which all examples are cut to count arrangements; of more, so many are drawn at random."""

Role = Literal["main", "held-out"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What one run took from a corpus.

    `documents` gave `examples` examples. `short_documents` of them had no room for as many as were asked for and gave
    all that fit. `skipped_documents` had room for none; others took their place as long as there were any.
    """

    run: int
    documents: int
    examples: int
    short_documents: int
    skipped_documents: int


def draw(
    corpus: Corpus,
    tokenizer: Any,
    *,
    documents: int | None = None,
    examples: int = 10,
    runs: int = 3,
    prefix: int = 50,
    suffix: int = 50,
    seed: int = 0,
    role: Role = "main",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[Example], list[Drawn]]:
    """For each run: `documents` documents without replacement, and from each `examples` examples that do not overlap.

    An example is `prefix` + `suffix` tokens and starts at a space character (U+0020) of its document; it is cut as
    `rote.windows` cuts a window. The places are drawn uniformly from all arrangements of as many examples as were asked
    for, or of the most that fit. Runs are drawn apart from each other: a document may be in several, and then gives
    other examples. Ids are rRUN-DOCUMENT-CHARACTER (hRUN-... with role "held-out"); metadata has the `document`, the
    `run`, the role as `corpus`, and `split` and `repetitions` where the corpus has them.
    """
    for option, value in (("examples", examples), ("runs", runs), ("prefix", prefix), ("suffix", suffix)):
        require_positive(option, value)
    if documents is not None:
        require_positive("documents", documents)
    wanted = min(documents or DOCUMENTS, len(corpus.documents))
    cut = Cutter(plain_backend(tokenizer), prefix, suffix)
    found: list[Example] = []
    drawn: list[Drawn] = []
    for run in range(runs):
        tell = _shifted(progress, run * wanted, runs * wanted)
        taken, skipped = _draw_run(corpus, cut, wanted, examples, (seed, run), tell)
        for document, places in taken:
            found += [_named(example, document, run, role) for example in places]
        short = sum(len(places) < examples for _, places in taken)
        drawn.append(Drawn(run, len(taken), sum(len(places) for _, places in taken), short, skipped))
    return found, drawn


def recorded(drawn: Sequence[Drawn]) -> list[dict[str, int]]:
    return [asdict(run) for run in drawn]


def _draw_run(
    corpus: Corpus,
    cut: Cutter,
    wanted: int,
    examples: int,
    key: tuple[int, int],
    tell: Callable[[int], None],
) -> tuple[list[tuple[Document, list[Example]]], int]:
    """The documents of a run with their examples, in random order, and how many had room for none."""
    order = sorted(corpus.documents, key=lambda document: (_hash(*key, document.id), document.id))
    taken: list[tuple[Document, list[Example]]] = []
    position = 0
    while len(taken) < wanted and position < len(order):
        batch = order[position : position + wanted - len(taken)]  # read together: each file once
        position += len(batch)
        found: dict[str, list[Example]] = {}
        for document, text in corpus.read(batch):
            places = place(text, cut, examples, random.Random(_hash("places", *key, document.id)))
            found[document.id] = places
            tell(len(taken) + sum(map(bool, found.values())))
        taken += [(document, found[document.id]) for document in batch if found[document.id]]
    return taken, position - len(taken)


class Cutter:
    """Cuts examples of one size at given characters of a text."""

    def __init__(self, backend: Any, prefix: int, suffix: int) -> None:
        self.backend, self.prefix, self.suffix = backend, prefix, suffix
        self.shared: dict[int, int] = {}

    def __call__(self, text: str, starts: Sequence[int]) -> list[Example]:
        return windows_at(text, self.backend, starts, prefix=self.prefix, suffix=self.suffix, shared=self.shared)


def place(text: str, cut: Cutter, count: int, rng: random.Random) -> list[Example]:
    """`count` examples of the text that do not overlap, or the most that fit, in the order of the text.

    Drawn uniformly from all such arrangements. Where there is much room, arrangements are drawn without regard to
    overlap until one has none. Where there is little, all of them are counted and one is drawn.
    """
    spaces = np.flatnonzero(np.frombuffer(text.encode("utf-32-le"), dtype="<u4") == ord(" "))
    if len(spaces) > count:
        known: dict[int, Example | None] = {}
        for _ in range(TRIES):
            starts = sorted(int(spaces[i]) for i in _some(len(spaces), count, rng))
            if all(_fits(text, cut, start, limit, known) for start, limit in _tightest_first(starts, len(text))):
                return [example for start in starts if (example := known[start]) is not None]
    if len(spaces) > MOST_PLACES:
        spaces = spaces[sorted(_some(len(spaces), MOST_PLACES, rng))]
    return _counted(cut(text, [int(start) for start in spaces]), count, rng)


def _tightest_first(starts: Sequence[int], length: int) -> list[tuple[int, int]]:
    """Each start with where its example must have ended, the least room first: most misfits show at once."""
    return sorted(pairwise([*starts, length]), key=lambda pair: pair[1] - pair[0])


def _fits(text: str, cut: Cutter, start: int, limit: int, known: dict[int, Example | None]) -> bool:
    if start not in known:
        known[start] = next(iter(cut(text, [start])), None)
    example = known[start]
    return example is not None and _end(example) <= limit


def _counted(candidates: Sequence[Example], count: int, rng: random.Random) -> list[Example]:
    """One of all arrangements of `count` candidates without overlap, or of the most that fit, each equally likely.

    ways[j][i] is the number of arrangements of j examples among the candidates from i on, up to a factor common to the
    row: the example placed first is any k >= i, and the others start where it has ended or later.
    """
    starts = [_start(example) for example in candidates]
    after = np.array([bisect_left(starts, _end(example)) for example in candidates], dtype=np.int64)
    ways: list[NDArray[np.float64]] = [np.ones(len(candidates) + 1)]
    while len(ways) <= count:
        row = np.append(np.cumsum(ways[-1][after][::-1])[::-1], 0.0)
        if not row[0] > 0:
            break
        ways.append(row / row[0])
    chosen: list[Example] = []
    at = 0
    for row in ways[:0:-1]:
        # Candidate k comes next in row[k] - row[k + 1] of the row[at] arrangements that are left.
        at = int(np.searchsorted(-row, -row[at] * (1 - rng.random()), side="right")) - 1
        chosen.append(candidates[at])
        at = int(after[at])
    return chosen


def _some(total: int, count: int, rng: random.Random) -> Iterator[int]:
    """`count` different numbers below `total`, every set of them equally likely."""
    # Floyd's way. With rng.random() alone, which gives the same numbers in every version of Python.
    chosen: set[int] = set()
    for top in range(total - count, total):
        number = int(rng.random() * (top + 1))
        chosen.add(top if number in chosen else number)
    return iter(chosen)


def _named(example: Example, document: Document, run: int, role: Role) -> Example:
    metadata: dict[str, Any] = {"document": document.id, "run": run, "corpus": role}
    if document.repetitions is not None:
        metadata["repetitions"] = document.repetitions
    if document.split is not None:
        metadata["split"] = document.split
    letter = "r" if role == "main" else "h"
    return replace(example, id=f"{letter}{run}-{document.id}-{example.start}", metadata=metadata)


def _start(example: Example) -> int:
    assert example.start is not None
    return example.start


def _end(example: Example) -> int:
    assert example.suffix_end is not None
    return example.suffix_end


def _hash(*parts: Any) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest())


def _shifted(progress: Callable[[int, int], None] | None, before: int, total: int) -> Callable[[int], None]:
    return lambda done: None if progress is None else progress(before + done, total)
