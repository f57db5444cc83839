"""How much of a text another text reproduces: matching ratios, TF-IDF cosine, an aligned difference in words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Literal

from rote.errors import InputError

NORMALISATION = (
    "Unicode NFKC; curly, low and angle quotation marks as straight ones; every run of white space as one space; case, "
    "dashes and all other punctuation as they are"
)
PARTS = 100

_QUOTES = str.maketrans(dict.fromkeys("‘’‚‛′‹›", "'") | dict.fromkeys("“”„‟″«»", '"'))
_SENTENCE = re.compile(r"""(?<=[.!?]) |(?<=[.!?]["')\]]) |(?<=[.!?]["')\]]["')\]]) """)
_TERM = re.compile(r"\b\w\w+\b")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the alignment: words truth[first:last] against generated[other_first:other_last]."""

    kind: Literal["equal", "replace", "delete", "insert"]
    first: int
    last: int
    other_first: int
    other_last: int


@dataclass(frozen=True, slots=True)
class Similarity:
    """A generated text against the true one, each from where it goes on after the seed. Word numbers count from there.

    `seed_words` of the generated text, which were given and not written, are left out, and so are `words_before` of the
    truth: all up to the end of the seed, or 0 where the truth does not hold it.

    `word_ratio` and `sentence_ratio` are matching ratios, 2 M / T: T words (sentences) in both texts together, M of
    them in matching blocks. The blocks are difflib's: the longest common stretch, then the same to its left and to its
    right. That is greedy, so M can be smaller than a longest common subsequence, and a text that has long stretches in
    another order gets credit for one order only. Unrelated English books come to about 0.02 (30,000 characters: 0.03).

    `tf_idf_cosine` compares the texts as bags of words and says nothing about their order; unrelated books of one
    language come to 0.8 or more. None where a text has no word of two letters.
    """

    truth: Sequence[str]
    generated: Sequence[str]
    seed_words: int
    words_before: int
    word_ratio: float
    sentence_ratio: float
    tf_idf_cosine: float | None
    pieces: Sequence[Piece]

    @property
    def matched(self) -> int:
        """Words of the truth that lie in matching blocks."""
        return sum(piece.last - piece.first for piece in self.pieces if piece.kind == "equal")

    @property
    def longest(self) -> Piece | None:
        """The longest verbatim stretch, the first of equally long ones."""
        equal = [piece for piece in self.pieces if piece.kind == "equal"]
        return max(equal, key=lambda piece: piece.last - piece.first) if equal else None

    @property
    def first_difference(self) -> int | None:
        """The first word at which the texts differ, or one of them ends; None: they are the same."""
        both = zip(self.truth, self.generated, strict=False)
        at = next((i for i, (true, other) in enumerate(both) if true != other), None)
        if at is not None:
            return at
        shorter = min(len(self.truth), len(self.generated))
        return None if len(self.truth) == len(self.generated) else shorter

    def by_position(self, parts: int = PARTS) -> list[tuple[int, int, float]]:
        """The truth in equal parts: first word, last word (exclusive), share of its words in matching blocks."""
        total = len(self.truth)
        edges = [total * i // parts for i in range(parts + 1)] if total >= parts else [*range(total + 1)]
        inside = [False] * total
        for piece in self.pieces:
            if piece.kind == "equal":
                inside[piece.first : piece.last] = [True] * (piece.last - piece.first)
        pairs = pairwise(edges)
        return [(first, last, sum(inside[first:last]) / (last - first)) for first, last in pairs]


def similarity(truth: str, generated: str, *, seed: str) -> Similarity:
    """Compare a generated text, which begins with its seed, with the true one.

    The seed was given, so it never counts as written. Where the truth holds it too, the truth counts from its end on.
    Nothing else is cut.
    """
    true, other, given = (normalise(text).split() for text in (truth, generated, seed))
    before, seeded = _after_seed(true, other, given)
    true, other = true[before:], other[seeded:]
    if not true:
        raise InputError("the truth has no words after the seed: there is nothing to compare with.")
    pieces = [Piece(*code) for code in SequenceMatcher(None, true, other, autojunk=False).get_opcodes()]
    matched = sum(piece.last - piece.first for piece in pieces if piece.kind == "equal")
    one, two = " ".join(true), " ".join(other)
    return Similarity(
        truth=true,
        generated=other,
        seed_words=seeded,
        words_before=before,
        word_ratio=2 * matched / (len(true) + len(other)),
        sentence_ratio=SequenceMatcher(None, sentences(one), sentences(two), autojunk=False).ratio(),
        tf_idf_cosine=tf_idf_cosine(one, two),
        pieces=pieces,
    )


def normalise(text: str) -> str:
    """As `NORMALISATION` says."""
    return " ".join(unicodedata.normalize("NFKC", text.translate(_QUOTES)).translate(_QUOTES).split())


def sentences(text: str) -> list[str]:
    """A normalised text cut after every . ! or ? (and up to two closing quotes or brackets) that a space follows."""
    return [sentence for sentence in _SENTENCE.split(text) if sentence]


def tf_idf_cosine(one: str, two: str) -> float | None:
    """Cosine of the texts' TF-IDF vectors over the two of them: scikit-learn's, with its defaults.

    Terms are lower-case words of two or more letters; a term in both texts weighs 1, in one alone 1 + ln(3/2).
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # slow to import

    if not all(_TERM.search(text) for text in (one, two)):
        return None
    vectors = TfidfVectorizer().fit_transform([one, two])
    return min(1.0, float((vectors[0] @ vectors[1].T).toarray()[0, 0]))


def _after_seed(true: Sequence[str], other: Sequence[str], seed: Sequence[str]) -> tuple[int, int]:
    """Where the truth and the generated text go on after the seed; 0 where one does not hold it.

    A last word that goes on behind the seed stays, in both.
    """
    if not seed:
        return 0, 0
    count, head = len(seed), list(seed[:-1])
    generated = len(other) >= count and list(other[: count - 1]) == head
    ends = generated and other[count - 1] == seed[-1]
    for i in range(len(true) - count + 1):
        if list(true[i : i + count - 1]) == head and true[i + count - 1].startswith(seed[-1]):
            whole = ends and true[i + count - 1] == seed[-1]
            return i + count - (not whole), (count - (not whole)) if generated else 0
    return 0, (count - (not ends)) if generated else 0
