"""Answers to scores of texts, against loops over every question."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.probe.costs import formula
from rote.analysis.probe.verdicts import ways
from rote.models.probed import Price
from rote.probes.decop import orders, right
from rote.probes.options import OUTCOMES
from rote.store.files import pretty
from rote.store.probing import VERDICTS_SCHEMA
from tests.analysis.probes import manifest, question, summed, texts, word
from tests.cases import cases
from tests.reference import probe as slow

METHODS = ["cloze", "prefix", "decop", "slot"]


def names(**more: Any) -> list[str]:
    return [way.name for way in ways(manifest(**more))]


def test_the_ways_of_a_run() -> None:
    assert names(select=["prob", "person"]) == ["prob", "person"]
    assert names(filters=1) == ["prob", "prob+filter"]
    assert names(filters=2, unfiltered=False, methods=["cloze", "slot"]) == ["prob+filter", "slot+filter"]
    every = ["prob", "prob+filter", "slot", "slot+filter", "slot+class", "prefix", "decop"]
    assert names(methods=METHODS, filters=1) == every
    assert names(methods=["slot"]) == ["slot", "slot+class"]


@st.composite
def runs(draw: st.DrawFn) -> tuple[Any, ...]:
    count, targets, filters = draw(st.integers(1, 4)), draw(st.integers(1, 2)), draw(st.integers(0, 1))
    ids = [str(place) for place in range(count)]
    outcome = st.sampled_from(OUTCOMES)
    chosen, questions = [], []
    for name in ids:
        for start in range(draw(st.integers(0, 3))):
            selectors = draw(st.lists(st.sampled_from(["prob", "person", "slot"]), min_size=1, unique=True))
            guessed = draw(st.sampled_from([[], [0]])) if filters else []
            classes = draw(st.sampled_from([["content"], ["number"], []]))
            chosen.append(word(name, start, selectors, guessed, classes=classes))
            for model in range(targets):
                for method in ("cloze", "slot"):
                    asked = method == "slot" if selectors == ["slot"] else method == "cloze" or "slot" in selectors
                    if asked and draw(st.integers(0, 9)):
                        spot = {"start": start, "end": start + 1, "model": model, "method": method}
                        questions.append(question(name, draw(outcome), **spot))
        for model in range(targets):
            if draw(st.booleans()):
                how = draw(outcome)
                common = None if how == "error" else draw(st.integers(0, 9))
                questions.append(question(name, how, method="prefix", model=model, common=common, words=10))
            questions += [
                question(name, draw(outcome), method="decop", model=model, order=order)
                for order in orders()[: draw(st.integers(0, 4))]
            ]
    own = manifest(methods=METHODS, select=["prob", "person"], targets=targets, filters=filters)
    return own, texts([None] * count), chosen, questions


@cases(60, deadline=None)
@given(run=runs())
def test_verdicts_are_those_of_loops(run: tuple[Any, ...]) -> None:
    own, named, chosen, questions = run
    summary, verdicts = summed(own, named, chosen, questions)
    assert verdicts.to_arrow().cast(VERDICTS_SCHEMA).schema == VERDICTS_SCHEMA
    assert verdicts.height == len(named) * len(own.targets) * len(ways(own))
    for row in verdicts.iter_rows(named=True):
        expected = slow.verdict(row["name"], row["target"], row["text"], questions, chosen)
        assert (row["questions"], row["hits"], row["value"]) == pytest.approx(expected)
        assert (row["without"] is None) == (row["questions"] > 0)
        fixed = 1 if row["name"].startswith("slot") else None if row["name"] in ("prefix", "decop") else 2
        assert row["threshold"] == fixed
        flagged = None if row["value"] is None or fixed is None else row["value"] >= fixed
        assert row["flagged"] == flagged
    for each in summary.probed:
        mine = [row for row in questions if row["model"] == each.target and slow.asked(each.name, row, chosen)]
        for outcome in OUTCOMES:
            assert each.outcomes[outcome] == sum(row["outcome"] == outcome for row in mine)
        assert each.questions == len(mine) - each.outcomes["error"]
        own_rows = verdicts.filter((pl.col("name") == each.name) & (pl.col("target") == each.target))
        assert each.texts == len(named) - own_rows["value"].null_count()
        assert sum(each.without.values()) == own_rows.filter(pl.col("questions") == 0).height
        if each.hit_rate is not None:
            low, high = each.hit_rate.interval
            assert 0 <= low <= each.hit_rate.value <= high <= 1
            assert each.hit_rate.value == pytest.approx(each.outcomes["hit"] / each.questions)
        else:
            assert each.name == "prefix" or not each.questions
    for apart in summary.differences:
        expected_pair = slow.difference(questions, chosen, apart.name, apart.target)
        assert expected_pair is not None
        count, first, other = expected_pair
        assert (apart.questions, apart.first, apart.other) == pytest.approx((count, float(first), float(other)))
        assert apart.difference.value == pytest.approx(float(other - first))
        assert apart.difference.interval[0] <= apart.difference.value <= apart.difference.interval[1]
    pretty(summary)  # it can be written


def test_why_a_text_has_no_score() -> None:
    chosen = [word("1", 0, guessed=[0]), word("2", 0), word("3", 0), word("4", 0, ["slot"], classes=["number"])]
    questions = [
        question("1", "hit", start=0, end=1),
        question("2", "error", start=0, end=1),
        question("3", "refusal", start=0, end=1),
        question("4", "hit", start=0, end=1, method="slot"),
    ]
    own = manifest(methods=METHODS, filters=1)
    summary, verdicts = summed(own, texts([None] * 5), chosen, questions)
    why = {(row["name"], row["text"]): row["without"] for row in verdicts.iter_rows(named=True)}
    assert why["prob", "0"] == "no word was chosen"
    assert why["prob", "1"] is None
    assert why["prob+filter", "1"] == "a filter guessed every word"
    assert why["prob", "2"] == "every answer was an error"
    assert why["prob", "3"] is None
    assert why["slot", "0"] == "no word was picked"
    assert why["slot+class", "4"] == "the picked word is no content word"
    assert why["prefix", "0"] == "too short for a prefix"
    assert why["decop", "0"] == "no paraphrases"
    by_name = {each.name: each for each in summary.probed}
    assert by_name["prob+filter"].without == {
        "a filter guessed every word": 1,
        "every answer was an error": 1,
        "no word was chosen": 2,
    }
    assert summary.not_evaluated == "No text has a label, so no method was held against labels."


def test_letters_and_where_they_stand() -> None:
    """A model that always says A, but once nothing."""
    questions = []
    for order in orders():
        said, outcome = ("A", "hit" if right(order) == "A" else "miss") if order != "DCBA" else (None, "refusal")
        questions.append(question("0", outcome, method="decop", order=order, said=said))
    questions.append(question("1", "error", method="decop", order="ABCD"))
    summary, verdicts = summed(manifest(methods=["decop"]), texts([None, None]), [], questions)
    (found,) = summary.positions
    assert found.letters == {"A": 23, "B": 0, "C": 0, "D": 0}
    assert found.right == {"A": 6, "B": 0, "C": 0, "D": 0}
    assert found.asked == dict.fromkeys("ABCD", 6)
    assert (found.none, found.bias) == (1, 1.0)
    assert verdicts["value"].to_list() == [0.25, None]


def test_what_filters_did() -> None:
    def asked(text: str, method: str, outcome: str, model: int = 0) -> dict[str, Any]:
        return question(text, outcome, role="filter", method=method, model=model, start=0, end=1)

    questions = [
        asked("0", "guess", "hit"),
        asked("0", "list", "hit"),
        asked("1", "guess", "miss"),
        asked("1", "list", "hit"),
        asked("2", "guess", "refusal"),
        asked("2", "list", "miss"),
        asked("0", "guess", "miss", 1),
    ]
    summary, _ = summed(manifest(filters=2), texts([None] * 3), [word("0", 0)], questions)
    first, second = summary.filters
    assert (first.asked, first.guessed, first.listed, first.dropped) == (3, 1, 2, 2)
    assert first.outcomes["refusal"] == 1
    assert (second.asked, second.dropped) == (1, 0)


def test_the_papers_formulas() -> None:
    price = Price(prompt=10.0, answer=30.0)  # 10 and 30 millionths of a dollar a token
    assert formula("cloze", 400, price, 10) == pytest.approx(10 * ((400 + 123) * 10 + 5 * 30) / 1e6)
    assert formula("prefix", 400, price, 10) == pytest.approx((63 * 10 + 350 * 30) / 1e6)
    assert formula("decop", 400, price, 10) == pytest.approx((400 * 4 * 24 * 10 + 24 * 30) / 1e6)
    assert formula("prefix", 20, price, 10) == pytest.approx(63 * 10 / 1e6)
    assert formula("slot", 400, price, 10) is None
