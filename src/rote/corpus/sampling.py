"""Examples drawn at random from a corpus: documents without replacement, then places in each that do not overlap.

Every choice follows from the seed, the number of the run and a document's id. So a sample does not depend on the order
of files on disk or of rows in a file, nor on which kind of corpus holds the documents.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rote.corpus.documents import Corpus, Document
from rote.corpus.windows import plain_backend, windows_at
from rote.options import Option, Prefix, Seed, Suffix, require_whole, settle
from rote.progress import Progress, quiet
from rote.tokens import Example

DOCUMENTS = 1000
"""Documents drawn in a run unless asked otherwise, or all there are."""

TRIES = 100
"""Arrangements drawn without regard to overlap, before those without are counted."""

ROUGHLY = 4
"""Characters in a token, to tell whether there is much room. It decides how long drawing takes, not its odds."""

SLACK = 4
"""By how many tokens an example may be shorter than the tokens of the whole text let expect."""

MOST_PLACES = 1 << 14
"""Places in a document between which arrangements are counted; of more, so many are drawn at random."""

NOWHERE = np.iinfo(np.int64).max

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


@dataclass(frozen=True, slots=True)
class Draw:
    """What is drawn from a corpus: in each of `runs` runs, `examples` examples from each of `documents` documents."""

    documents: Annotated[int | None, Option("Documents drawn in each run.", default="1000, or all")] = None
    examples: Annotated[int, Option("Examples drawn from each document; they do not overlap.")] = 10
    runs: Annotated[int, Option("How often to draw.")] = 3
    prefix: Prefix = 50
    suffix: Suffix = 50
    seed: Seed = 0

    def __post_init__(self) -> None:
        for name in ("examples", "runs", "prefix", "suffix"):
            settle(self, name, require_whole(name, getattr(self, name)))
        settle(self, "seed", require_whole("seed", self.seed, 0))
        if self.documents is not None:
            settle(self, "documents", require_whole("documents", self.documents))


def draw(
    corpus: Corpus, tokenizer: Any, wanted: Draw, *, role: Role = "main", progress: Progress | None = None
) -> tuple[list[Example], list[Drawn]]:
    """For each run: `documents` documents without replacement, and from each `examples` examples that do not overlap.

    An example is `prefix` + `suffix` tokens and starts at a space character (U+0020) of its document; it is cut as
    `rote.windows` cuts a window. The places are drawn uniformly from all arrangements of as many examples as were asked
    for, or of the most that fit. Runs are drawn apart from each other: a document may be in several, and then gives
    other examples. Ids are rRUN-DOCUMENT-CHARACTER (hRUN-... with role "held-out"); metadata has the `document`, the
    `run`, the role as `corpus`, and `split` and `repetitions` where the corpus has them.
    """
    most = min(wanted.documents or DOCUMENTS, len(corpus.documents))
    cut = Cutter(plain_backend(tokenizer), wanted.prefix, wanted.suffix)
    tell = progress or quiet
    sampled: list[Example] = []
    drawn: list[Drawn] = []
    for run in range(wanted.runs):

        def on(done: int, before: int = run * most) -> None:
            tell("drawn", before + done, wanted.runs * most)

        taken, skipped = _draw_run(corpus, cut, most, wanted.examples, (wanted.seed, run), on)
        for document, places in taken:
            sampled += [_named(example, document, run, role) for example in places]
        short = sum(len(places) < wanted.examples for _, places in taken)
        drawn.append(Drawn(run, len(taken), sum(len(places) for _, places in taken), short, skipped))
    return sampled, drawn


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
        placed: dict[str, list[Example]] = {}
        for document, text in corpus.read(batch):
            places = place(text, cut, examples, random.Random(_hash("places", *key, document.id)))
            placed[document.id] = places
            tell(len(taken) + sum(map(bool, placed.values())))
        taken += [(document, placed[document.id]) for document in batch if placed[document.id]]
    return taken, position - len(taken)


class Cutter:
    """Cuts examples of one size at given characters of a text."""

    def __init__(self, backend: Any, prefix: int, suffix: int) -> None:
        self.backend, self.prefix, self.suffix = backend, prefix, suffix
        self.shared: dict[int, int] = {}

    def __call__(self, text: str, starts: Sequence[int]) -> list[Example]:
        return windows_at(text, self.backend, starts, prefix=self.prefix, suffix=self.suffix, shared=self.shared)

    def least_ends(self, text: str, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where examples at these characters end at the least; NOWHERE where the text is over before.

        By the tokens of the text as a whole. Those of an example may be a few more in the same characters: hence SLACK.
        Within white space they may be as many as the characters of it that are left.
        """
        begins = np.array([begin for begin, _ in self.backend.encode(text, add_special_tokens=False).offsets])
        blank = np.array([character.isspace() for character in text], dtype=np.bool_)
        words = np.append(np.flatnonzero(~blank), len(text))
        left = np.where(blank[starts - 1] & (starts > 0), words[np.searchsorted(words, starts)] - starts, 0)
        last = np.searchsorted(begins, starts) + self.prefix + self.suffix - SLACK - left
        ends = np.append(begins, len(text))[np.clip(last, 0, len(begins))]
        return np.where(last > len(begins), NOWHERE, np.maximum(ends, starts + 1))


def place(text: str, cut: Cutter, count: int, rng: random.Random) -> list[Example]:
    """`count` examples of the text that do not overlap, or the most that fit, in the order of the text.

    Drawn uniformly from all such arrangements. Where there is much room, arrangements are drawn without regard to
    overlap until one has none. Where there is little, they are drawn from those that may have none.
    """
    spaces = np.flatnonzero(np.frombuffer(text.encode("utf-32-le"), dtype="<u4") == ord(" "))
    known: dict[int, Example | None] = {}
    crowded = count**2 * ROUGHLY * (cut.prefix + cut.suffix) / (len(text) + 1)
    if len(spaces) > count and crowded < 3:  # about one in exp(crowded) has no overlap
        for _ in range(TRIES):
            starts = sorted(int(spaces[i]) for i in _some(len(spaces), count, rng))
            if _misfit(text, cut, starts, known) is None:
                return _found(starts, known)
    if len(spaces) > MOST_PLACES:
        spaces = spaces[sorted(_some(len(spaces), MOST_PLACES, rng))]
    return _place_tightly(text, cut, spaces, count, rng, known)


def _misfit(text: str, cut: Cutter, starts: Sequence[int], known: dict[int, Example | None]) -> int | None:
    """A start whose example is not there or ends after the next start; `known` remembers what was cut to find out."""
    # The least room first: most misfits show at once.
    for start, limit in sorted(pairwise([*starts, len(text)]), key=lambda pair: pair[1] - pair[0]):
        if start not in known:
            known[start] = next(iter(cut(text, [start])), None)
        example = known[start]
        if example is None or _end(example) > limit:
            return start
    return None


def _found(starts: Sequence[int], known: dict[int, Example | None]) -> list[Example]:
    return [example for start in starts if (example := known[start]) is not None]


def _place_tightly(
    text: str, cut: Cutter, spaces: NDArray[np.int64], count: int, rng: random.Random, known: dict[int, Example | None]
) -> list[Example]:
    """Draws from the arrangements that would not overlap if examples ended where they end at the least.

    Every arrangement without overlap is among them, each equally likely. One that turns out to overlap shows where all
    its examples end in truth; so this comes to an end, and seldom has to cut an example at every space.
    """
    ends = cut.least_ends(text, spaces)
    while True:
        for start, example in known.items():
            at = int(np.searchsorted(spaces, start))
            if at < len(spaces) and spaces[at] == start:
                ends[at] = NOWHERE if example is None else _end(example)
        starts = [int(spaces[i]) for i in _arrangement(spaces, ends, count, rng)]
        # All at once, although one may be enough: counting arrangements again takes longer than cutting examples.
        new = [start for start in starts if start not in known]
        known.update(dict.fromkeys(new))
        known.update({_start(example): example for example in cut(text, new)})
        if _misfit(text, cut, starts, known) is None:
            return _found(starts, known)


def _arrangement(starts: NDArray[np.int64], ends: NDArray[np.int64], count: int, rng: random.Random) -> list[int]:
    """One of all ways to choose `count` spans without overlap, or the most that can be, each equally likely.

    ways[j][i] is the logarithm of the number of ways to choose j spans among those from i on: the first is any k >= i,
    and the others start where it has ended or later. The numbers themselves, and even their ratios within a row, leave
    the range of floats where hundreds of spans nearly fill a text.
    """
    after = np.searchsorted(starts, ends)
    after[ends == NOWHERE] = len(starts) + 1  # past the end: where there is no way, not even to choose nothing
    ways: list[NDArray[np.float64]] = [np.append(np.zeros(len(starts) + 1), -math.inf)]
    while len(ways) <= count:
        row = np.append(np.logaddexp.accumulate(ways[-1][after][::-1])[::-1], (-math.inf, -math.inf))
        if row[0] == -math.inf:
            break
        ways.append(row)
    chosen: list[int] = []
    at = 0
    for row in ways[:0:-1]:
        # Span k comes next in exp(row[k]) - exp(row[k + 1]) of the exp(row[at]) ways that are left.
        at = int(np.searchsorted(-row, -row[at] - math.log1p(-rng.random()), side="right")) - 1
        chosen.append(at)
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
