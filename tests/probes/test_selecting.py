"""Which words are chosen, against obvious loops."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.corpus.readings import Reader
from rote.models.masked import MaskedReference
from rote.models.probed import ReferenceIdentity, WordScore
from rote.probes.options import BERT_VOCABULARY, Selector, Words
from rote.probes.selecting import ScoredWord, Thresholds, candidates, rare_counts, select, thresholds
from rote.probes.words import Word, WordClass, tagger
from tests import masked
from tests.cases import cases
from tests.reference.words import by_share, masked_score, rarest, spread

SELECTORS: tuple[Selector, ...] = get_args(Selector)


def identity(kind: Literal["masked", "causal"] = "masked", vocabulary: int = 400) -> ReferenceIdentity:
    return ReferenceIdentity(
        kind=kind, name="it", fingerprint="f", parameters=1, vocabulary=vocabulary, window=40, dtype="float32",
        device="cpu", tokenizer=None,
    )  # fmt: skip


def scored(
    place: int, log_likelihood: float | None, rank: int | None, classes: str = "content", elsewhere: int = 0,
    count: int | None = None,
) -> ScoredWord:  # fmt: skip
    names: tuple[WordClass, ...] = get_args(WordClass)
    word = Word(f"w{place}", 4 * place, 4 * place + 2, frozenset(name for name in names if name in classes.split()))
    score = WordScore(log_likelihood=log_likelihood, rank=rank, pieces=1)
    return ScoredWord(word=word, elsewhere=elsewhere, score=score, count=count)


@st.composite
def passages(draw: st.DrawFn) -> list[ScoredWord]:
    """Few values, so that many tie."""
    words = []
    for place in range(draw(st.integers(0, 30))):
        known = draw(st.integers(0, 5)) > 0
        words.append(
            scored(
                place,
                draw(st.sampled_from([-20.0, -12.0, -11.5, -3.0, -0.0])) if known else None,
                draw(st.sampled_from([0, 1, 19, 20, 2000, 2001])) if known else None,
                draw(st.sampled_from(["content", "content", "content", "person", "number", "content person"])),
                draw(st.integers(0, 1)),
                draw(st.sampled_from([None, 0, 1, 7])),
            )
        )
    return words


def chosen_slowly(words: list[ScoredWord], name: str, wanted: Words, found: Thresholds) -> list[int]:
    own = "content" if name in ("prob", "rank", "rare") else name
    left = [i for i, word in enumerate(words) if own in word.word.classes and not (wanted.once and word.elsewhere > 0)]
    if name in ("person", "content", "number"):
        return [left[i] for i in spread(len(left), wanted.most)]
    taken: list[int] = []
    while len(taken) < wanted.most:
        best = None
        for i in left:
            if i in taken:
                continue
            score = words[i].score
            assert score is not None
            if name == "prob" and score.log_likelihood is not None and found.log_likelihood is not None:
                value, fits = score.log_likelihood, score.log_likelihood < found.log_likelihood
            elif name == "rank" and score.rank is not None and found.rank is not None:
                value, fits = -score.rank, score.rank > found.rank
            elif name == "rare" and words[i].count is not None:
                value, fits = words[i].count or 0, True
            else:
                continue
            if fits and (best is None or value < best[0]):
                best = (value, i)
        if best is None:
            break
        taken.append(best[1])
    return sorted(taken)


wishes = st.builds(
    Words,
    select=st.lists(st.sampled_from(SELECTORS), min_size=1, max_size=6, unique=True).map(tuple),
    most=st.integers(1, 8),
    once=st.booleans(),
    share=st.sampled_from([None, 0.05, 0.1, 0.5, 1.0]),
)


@cases(200)
@given(passages(), wishes, st.sampled_from([identity(), identity("causal"), identity(vocabulary=BERT_VOCABULARY)]))
def test_selected_as_by_obvious_loops(words: list[ScoredWord], wanted: Words, told: ReferenceIdentity) -> None:
    found = thresholds(words, told, wanted)
    chosen = select(words, wanted, found)
    places = [words.index(each.word) for each in chosen]
    assert places == sorted(set(places))
    for name in SELECTORS:
        expected = chosen_slowly(words, name, wanted, found) if name in wanted.select else []
        assert [words.index(each.word) for each in chosen if name in each.selectors] == expected
    for each in chosen:
        assert each.selectors == tuple(name for name in wanted.select if name in each.selectors)


@cases(200)
@given(st.lists(passages(), max_size=3), st.sampled_from([0.01, 0.1, 0.2, 1 / 3, 0.9, 1.0]))
def test_thresholds_by_share(texts: list[list[ScoredWord]], share: float) -> None:
    """What lies beyond them is that share of all texts' content words, and what ties with the last."""
    words = [word for text in texts for word in text]
    content = [word for word in words if "content" in word.word.classes and word.log_likelihood is not None]
    found = thresholds(words, identity(), Words(share=share))
    assert found.share == share
    if not content:
        assert (found.log_likelihood, found.rank) == (None, None)
        return
    assert found.log_likelihood is not None
    assert found.rank is not None
    values = [word.log_likelihood or 0.0 for word in content]
    assert sorted(v for v in values if v < found.log_likelihood) == by_share(values, share)
    ranks = [-(word.rank or 0) for word in content]
    beyond = [-r for r in by_share(ranks, share) if r < 0]  # rank 0 is never surprising
    assert sorted((-r for r in ranks if -r > found.rank), reverse=True) == beyond


def test_a_share_is_not_rounded_up_by_floats() -> None:
    assert math.ceil(0.07 * 100) == 8
    words = [scored(i, -float(i + 1), i) for i in range(100)]
    found = thresholds(words, identity(), Words(share=0.07))
    assert len(select(words, Words(select=("prob",)), found)) == 7


def test_bert_has_thresholds_of_its_own() -> None:
    words = [scored(0, -12.0, 2000), scored(1, math.nextafter(-12, -13), 2001)]
    told = identity(vocabulary=BERT_VOCABULARY)
    found = thresholds(words, told, Words())
    assert found == Thresholds(log_likelihood=-12.0, rank=2000, share=None)
    assert [each.word for each in select(words, Words(), found)] == words[1:]
    assert thresholds(words, told, Words(rank=5)) == Thresholds(log_likelihood=-12.0, rank=5, share=None)
    assert thresholds(words, told, Words(share=0.5)).share == 0.5
    assert thresholds(words, identity("causal", BERT_VOCABULARY), Words()).share == 0.2
    assert thresholds([], identity(), Words(log_likelihood=-3.0, rank=7)).share is None


def test_one_threshold_may_be_given() -> None:
    words = [scored(i, -float(i + 1), 10 * i) for i in range(10)]
    found = thresholds(words, identity(), Words(log_likelihood=-9.5))
    assert found == Thresholds(log_likelihood=-9.5, rank=79, share=0.2)


def test_without_a_reference() -> None:
    words = candidates("Then Tom saw two dogs.", tagger(None).words("Then Tom saw two dogs."))
    found = thresholds(words, None, Words())
    assert found == Thresholds(log_likelihood=None, rank=None, share=0.2)
    chosen = select(words, Words(select=SELECTORS), found)
    assert [(each.word.word.text, each.selectors) for each in chosen] == [
        ("Tom", ("person", "content")),
        ("saw", ("content",)),
        ("two", ("number",)),
        ("dogs", ("content",)),
    ]


def test_unknown_words_are_not_surprising_but_may_be_chosen_otherwise() -> None:
    words = [scored(0, None, None, count=0), scored(1, -50.0, 5, count=9)]
    found = Thresholds(log_likelihood=-1.0, rank=1, share=None)
    chosen = select(words, Words(select=("prob", "rank", "content", "rare")), found)
    assert [each.selectors for each in chosen] == [("content", "rare"), ("prob", "rank", "content", "rare")]


def test_ties_go_by_place() -> None:
    words = [scored(i, -20.0, 3000, count=1) for i in range(5)]
    found = Thresholds(log_likelihood=-12.0, rank=2000, share=None)
    chosen = select(words, Words(select=("prob", "rank", "rare"), most=2), found)
    assert [each.word for each in chosen] == words[:2]


def test_spread_over_the_passage() -> None:
    words = [scored(i, -1.0, 1, "person") for i in range(10)]
    chosen = select(words, Words(select=("person",), most=2), thresholds(words, identity(), Words()))
    assert [words.index(each.word) for each in chosen] == [2, 7]


# --- candidates


@cases(20)
@given(start=st.integers(2000, 9000), kind=st.sampled_from(["wordpiece", "bytes", "unigram"]))
def test_candidates_are_scored_as_one_at_a_time(start: int, kind: str, alice: str) -> None:
    text = alice[start : start + 150]
    model, tokenizer = _built(kind)
    own = MaskedReference(model, tokenizer)
    words = tagger(None).words(text)
    found = candidates(text, words, own)
    assert [each.word for each in found] == [word for word in words if word.classes]
    folded = [word.text.casefold().replace("’", "'") for word in words]
    for each in found[::5]:
        assert each.elsewhere == folded.count(each.word.text.casefold().replace("’", "'")) - 1
        total, ranks, pieces = masked_score(model, tokenizer, text, (each.word.start, each.word.end), 40, 0.005)
        assert each.score is not None
        assert each.score.pieces == pieces
        assert each.log_likelihood == (None if total is None else pytest.approx(total, abs=0.01))
        assert (each.rank is None) == (ranks is None)
        assert each.rank is None or ranks is None or ranks[0] <= each.rank <= ranks[1]


_MODELS: dict[str, tuple[Any, Any]] = {}


def _built(kind: str) -> tuple[Any, Any]:
    if kind not in _MODELS:
        _MODELS[kind] = masked.build("bert", kind, room=40)
    return _MODELS[kind]


def test_elsewhere_is_of_all_words_in_any_case() -> None:
    text = "The DOG saw a dog’s bone, and the bone’s dog didn’t."
    found = {(each.word.text, each.word.start): each.elsewhere for each in candidates(text, tagger(None).words(text))}
    assert found == {("DOG", 4): 2, ("saw", 8): 0, ("dog", 14): 2, ("bone", 20): 1, ("bone", 34): 1, ("dog", 41): 2}
    words = candidates(text, tagger(None).words(text))
    once = select(words, Words(select=("content",), once=True), thresholds([], None, Words()))
    assert [each.word.word.text for each in once] == ["saw"]


# --- rare runs

CORPUS = "the old man and the sea\nthe old man and the boat. The old man sat; a dog barked at the old man"


@pytest.mark.parametrize("unit", ["bytes", "tokens"])
def test_rare_runs(unit: str, tmp_path: Path, bundled: Any) -> None:
    """Every run of three words, looked for by the slowest way that there is."""
    pytest.importorskip("infini_gram")
    from tests.corpus.test_index import indexed

    reader = Reader(None if unit == "bytes" else bundled.tokenizer)
    index = indexed(tmp_path / "index", [reader.ids(CORPUS)], 1 if unit == "bytes" else 2)
    for text in ("a dog and the old man and the boat", "the old man", "old man", "", "barked at the sea\nthe old tree"):
        words = tagger(None).words(text)
        expected = rarest(text, [(word.start, word.end) for word in words], CORPUS)
        assert rare_counts(index, reader, text, words) == expected
    text = "the old man and the boat"
    words = tagger(None).words(text)
    found = candidates(text, words, counts=rare_counts(index, reader, text, words))
    assert [(each.word.text, each.count) for each in found] == [("old", 2), ("man", 2), ("boat", 1)]
    chosen = select(found, Words(select=("rare",), most=2), thresholds(found, None, Words()))
    assert [each.word.word.text for each in chosen] == ["old", "boat"]
