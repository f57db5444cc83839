"""Prefixes, continuations and what they have in common; DE-COP's orders."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.models.probed import Answer
from rote.probes import decop
from rote.probes.completion import after, common, judge_completion, split, words
from rote.probes.prompts import choose
from tests.cases import cases
from tests.reference import probe as slow

english = st.lists(
    st.sampled_from(["the", "The", "rabbit", "rabbit's", "Rabbit,", "“", "--", "hole.", "I'll", "a"]), max_size=25
)


@cases(200)
@given(one=english, other=english)
def test_words_in_common_are_those_of_the_slow_table(one: list[str], other: list[str]) -> None:
    first, second = " ".join(one), "\n".join(other)
    assert words(first) == slow.words(first.replace("“", ""))
    assert common(first, second) == slow.common(words(first), words(second)) == common(second, first)
    assert common(first, first) == len(words(first))


def test_words_are_compared_without_case_and_punctuation() -> None:
    assert words("“Curiouser—and curiouser!” -- cried Alice’s Cat,") == [
        "curiouser—and",
        "curiouser",
        "cried",
        "alice",
        "cat",
    ]
    assert common("THE cat sat; on a mat", "the Cat... sat on mats") == 4
    assert common("", "the cat") == 0


def test_long_texts_are_compared_at_once() -> None:
    rng = random.Random(0)
    one, other = (" ".join(rng.choices(["the", "a", "cat", "sat", "mat", "on"], k=20_000)) for _ in range(2))
    start = time.perf_counter()
    assert 10_000 < common(one, other) < 20_000
    assert time.perf_counter() - start < 5


@cases(100)
@given(text=st.text(alphabet="ab .\n\t", max_size=40), count=st.integers(1, 8))
def test_a_prefix_is_the_first_words_as_they_stand(text: str, count: int) -> None:
    found = split(text, count)
    if found is None:
        assert len(text.split()) < count or not words(" ".join(text.split()[count:]))
        return
    prefix, rest = found
    assert prefix + rest == text
    assert prefix.split() == text.split()[:count]
    assert not prefix[-1].isspace()
    assert rest[0].isspace()


def test_a_prefix_that_was_given() -> None:
    assert after("Down the rabbit hole she went.", "Down the rabbit") == " hole she went."
    assert after("hole she went.", "Down the rabbit") == "hole she went."
    assert after("Down the rabbit...", "Down the rabbit") is None


@pytest.mark.parametrize(
    ("answer", "outcome", "shared"),
    [
        (Answer(text="hole she went, and never came up."), "hit", 3),
        (Answer(text="Down the rabbit hole she WENT"), "hit", 3),
        (Answer(text="hole he went"), "miss", 2),
        (Answer(text="<think>hole she went</think>no idea"), "miss", 0),
        (Answer(text="I'm sorry, but I can't continue this text, hole she went."), "refusal", 0),
        (Answer(text="I cannot reproduce copyrighted text."), "refusal", 0),
        (Answer(text="\"I'm sorry, but I can't help it,\" she said, and hole"), "miss", 1),
        (Answer(text="I can't say that I liked the hole."), "miss", 1),
        (Answer(text=" "), "empty", 0),
        (Answer(text="", refusal="no"), "refusal", 0),
        (Answer(text="", error="no"), "error", None),
    ],
)
def test_a_completion_is_judged(answer: Answer, outcome: str, shared: int | None) -> None:
    judged, found = judge_completion(answer, "Down the rabbit", " hole she went.")
    assert (judged.outcome, found) == (outcome, shared)


def test_a_prefix_that_is_said_again_counts_for_nothing() -> None:
    judged, found = judge_completion(Answer(text="The cat and the hat, sat."), "The cat and the", "the cat sat")
    assert (judged.outcome, found) == ("miss", 1)


# --- DE-COP


def test_all_orders_and_where_the_original_stands() -> None:
    orders = decop.orders()
    assert len(orders) == len(set(orders)) == 24
    for order in orders:
        texts = decop.options(order, "original", ["one", "two", "three"])
        assert texts["ABCD".index(decop.right(order))] == "original"
        assert sorted(texts) == ["one", "original", "three", "two"]
        assert f"{decop.right(order)}. original" in choose(texts)
    assert {letter: sum(decop.right(order) == letter for order in orders) for letter in "ABCD"} == dict.fromkeys(
        "ABCD", 6
    )
    assert decop.options("BADC", "a", "bcd") == ["b", "a", "d", "c"]
