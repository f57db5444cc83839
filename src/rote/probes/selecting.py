"""Which words of a passage are asked for: the most surprising ones, names, numbers, any, or those of rare runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rote.corpus.index import CorpusIndex
from rote.corpus.readings import Reader
from rote.models.probed import ReferenceIdentity, WordReference, WordScore
from rote.probes.options import BERT_VOCABULARY, LOG_LIKELIHOOD, RANK, SHARE, Selector, Words
from rote.probes.words import Word, plain

RUN = 3
"""Words of a run that is counted in a corpus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredWord:
    """A word that might be asked for. `elsewhere`: other places of its passage where it stands, in any case.

    `score`: None without a reference. `count`: of the rarest run of three words that it is part of, in a corpus; None
    without one, and where the passage has no such run.
    """

    word: Word
    elsewhere: int
    score: WordScore | None = None
    count: int | None = None

    @property
    def log_likelihood(self) -> float | None:
        return None if self.score is None else self.score.log_likelihood

    @property
    def rank(self) -> int | None:
        return None if self.score is None else self.score.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """A word is surprising below `log_likelihood`, or beyond `rank`. None: no word was scored that could be.

    `share`: what they were chosen for; None where both are fixed.
    """

    log_likelihood: float | None
    rank: int | None
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenWord:
    """`selectors`: those that chose it, in the order in which they were asked for."""

    word: ScoredWord
    selectors: tuple[Selector, ...]


def candidates(
    text: str,
    words: Sequence[Word],
    reference: WordReference | None = None,
    counts: Sequence[int | None] | None = None,
) -> list[ScoredWord]:
    """The words of any class, scored. `words` and `counts`: of the whole passage, whatever their class."""
    names = [plain(word.text) for word in words]
    standing = Counter(names)
    chosen = [place for place, word in enumerate(words) if word.classes]
    scores: Sequence[WordScore | None] = [None] * len(chosen)
    if reference is not None:
        scores = reference.score_words(text, [(words[place].start, words[place].end) for place in chosen])
    return [
        ScoredWord(
            word=words[place],
            elsewhere=standing[names[place]] - 1,
            score=score,
            count=None if counts is None else counts[place],
        )
        for place, score in zip(chosen, scores, strict=True)
    ]


def rare_counts(index: CorpusIndex, reader: Reader, text: str, words: Sequence[Word]) -> list[int | None]:
    """For each word, how often the rarest run of three words that it is part of stands in the corpus.

    A run is what stands in the text from the first word's first to the third word's last character. It is looked for as
    the corpus' tokens may have it (`Reader.queries`). None: the text has fewer than three words.
    """
    known: dict[str, int] = {}
    runs = []
    for first, last in zip(words, words[RUN - 1 :], strict=False):
        run = text[first.start : last.end]
        if run not in known:
            known[run] = sum(index.count(ids) for ids in reader.queries(run).values() if ids)
        runs.append(known[run])
    return [min(runs[max(0, place - RUN + 1) : place + 1], default=None) for place in range(len(words))]


def thresholds(scored: Iterable[ScoredWord], reference: ReferenceIdentity | None, wanted: Words) -> Thresholds:
    """Of all passages together: what was asked for; for BERT's vocabulary -12 and 2,000; or by share.

    By share: the `share` of all scored content words that is most surprising, and what ties with the last of them, lies
    beyond the threshold; but a word that the reference holds for the likeliest (rank 0) never does.
    """
    bert = reference is not None and reference.kind == "masked" and reference.vocabulary == BERT_VOCABULARY
    fixed = bert and wanted.share is None
    log_likelihood = LOG_LIKELIHOOD if fixed and wanted.log_likelihood is None else wanted.log_likelihood
    rank = RANK if fixed and wanted.rank is None else wanted.rank
    if log_likelihood is not None and rank is not None:
        return Thresholds(log_likelihood=log_likelihood, rank=rank, share=None)
    share = SHARE if wanted.share is None else wanted.share
    content = [each for each in scored if "content" in each.word.classes]
    if log_likelihood is None:
        least = sorted(each.log_likelihood for each in content if each.log_likelihood is not None)
        log_likelihood = math.nextafter(least[_count(share, least) - 1], math.inf) if least else None
    if rank is None:
        most = sorted((each.rank for each in content if each.rank is not None), reverse=True)
        rank = max(most[_count(share, most) - 1] - 1, 0) if most else None
    return Thresholds(log_likelihood=log_likelihood, rank=rank, share=share)


def _count(share: float, values: Sequence[float]) -> int:
    """How many of these a share is, at least; 0.07 of 100 is 7, though the product is a little more."""
    return max(1, math.ceil(share * len(values) - 1e-9))


def select(words: Sequence[ScoredWord], wanted: Words, found: Thresholds) -> list[ChosenWord]:
    """The words of one passage that are asked for, in their order, with the selectors that chose them."""
    free = [place for place, each in enumerate(words) if not (wanted.once and each.elsewhere)]
    chosen: dict[int, list[Selector]] = {}
    for name in wanted.select:
        for place in _SELECTORS[name](words, free, found, wanted.most):
            chosen.setdefault(place, []).append(name)
    return [ChosenWord(word=words[place], selectors=tuple(chosen[place])) for place in sorted(chosen)]


def _of(words: Sequence[ScoredWord], places: Sequence[int], name: str) -> list[int]:
    return [place for place in places if name in words[place].word.classes]


def _prob(words: Sequence[ScoredWord], places: Sequence[int], found: Thresholds, most: int) -> list[int]:
    """Content words whose log-likelihood is below the threshold, the lowest first."""
    values = {
        place: value
        for place in _of(words, places, "content")
        if (value := words[place].log_likelihood) is not None
        and found.log_likelihood is not None
        and value < found.log_likelihood
    }
    return sorted(values, key=lambda place: (values[place], place))[:most]


def _rank(words: Sequence[ScoredWord], places: Sequence[int], found: Thresholds, most: int) -> list[int]:
    """Content words whose rank is beyond the threshold, the highest first."""
    values = {
        place: value
        for place in _of(words, places, "content")
        if (value := words[place].rank) is not None and found.rank is not None and value > found.rank
    }
    return sorted(values, key=lambda place: (-values[place], place))[:most]


def _rare(words: Sequence[ScoredWord], places: Sequence[int], found: Thresholds, most: int) -> list[int]:
    """Content words, those of the rarest runs first."""
    values = {place: value for place in _of(words, places, "content") if (value := words[place].count) is not None}
    return sorted(values, key=lambda place: (values[place], place))[:most]


def _spread(name: str) -> Callable[[Sequence[ScoredWord], Sequence[int], Thresholds, int], list[int]]:
    def spread(words: Sequence[ScoredWord], places: Sequence[int], found: Thresholds, most: int) -> list[int]:
        """Words of one class; where there are too many, evenly spread: the middle one of each of `most` equal parts."""
        own = _of(words, places, name)
        if len(own) <= most:
            return own
        return [own[(2 * part + 1) * len(own) // (2 * most)] for part in range(most)]

    return spread


_SELECTORS: dict[Selector, Callable[[Sequence[ScoredWord], Sequence[int], Thresholds, int], list[int]]] = {
    "prob": _prob,
    "rank": _rank,
    "person": _spread("person"),
    "content": _spread("content"),
    "number": _spread("number"),
    "rare": _rare,
}
