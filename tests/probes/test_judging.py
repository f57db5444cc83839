"""Answers to outcomes: a table of answers as models give them, and what holds for any answer."""

from __future__ import annotations

import json
import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rote.models.probed import Answer
from rote.probes.judging import judge, judge_letter, judge_list, judge_pick, read_paraphrases, rule
from rote.probes.options import OUTCOMES
from rote.probes.reading import key, plain, same
from tests.cases import cases

TABLE = [
    json.loads(line) for line in (Path(__file__).parent / "answers.jsonl").read_text(encoding="utf-8").splitlines()
]
TEXTS = [row["text"] for row in TABLE]

PIECES = [
    "<word>",
    "</word>",
    "<think>",
    "</think>",
    "Answer:",
    "the word is ",
    "[MASK]",
    "Alice",
    "Dinah",
    "“",
    "”",
    '"',
    "**",
    "*",
    "`",
    "\n",
    " ",
    ". ",
    ", ",
    " or ",
    "I can't help",
    "I'm sorry",
    "Passage: ",
    "1. ",
    "- ",
    "é",
    "’s",
    "兔",
    "🐇",
    "\u200b",
    "\ud800",
]


def said(text: str, **more: Any) -> Answer:
    return Answer(text=text, **more)


# --- the table


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row['word']}: {row['text']!r:.60}")
def test_an_answer_has_its_outcome(row: dict[str, Any]) -> None:
    row = dict(row)
    word, outcome, plurals = row.pop("word"), row.pop("outcome"), row.pop("plurals", False)
    found = judge(Answer(**row), word, plurals=plurals)
    assert found.outcome == outcome, found
    assert (found.said is not None) == (outcome in ("hit", "miss"))
    assert found.why


def test_the_table_is_large_and_has_every_outcome() -> None:
    assert len(TABLE) >= 60
    assert {row["outcome"] for row in TABLE} == set(OUTCOMES)


def test_plurals_are_an_option_and_the_rule_says_so() -> None:
    assert judge(said("rabbits"), "rabbit").outcome == "miss"
    assert judge(said("rabbits"), "rabbit", plurals=True).outcome == "hit"
    assert "a plural is another word" in rule(plurals=False)
    assert "plural counts as its singular" in rule(plurals=True)


# --- what holds for any answer

texts = st.one_of(
    st.text(max_size=60),
    st.text(alphabet=st.characters(), max_size=30),
    st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
    st.sampled_from(TEXTS),
)
one_word = st.from_regex(r"[A-Za-zÀ-ÖØ-öø-ÿ]{3,12}(?:-[A-Za-z]{2,8})?", fullmatch=True).filter(
    lambda word: judge(Answer(text=word), word).outcome == "hit"
)


def letters(text: str) -> str:
    """All letters and digits of a text, in one case: reading may drop what stands between, never add to it."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(character for character in folded if unicodedata.category(character)[0] in "LNM")


@cases(400)
@given(
    text=texts, word=st.one_of(st.sampled_from(["Alice", "word", "answer", "兔", "é", "", "..."]), st.text(max_size=6))
)
@example(text="The word is not Alice.", word="Alice")
@example(text="<word>" * 20, word="word")
def test_nothing_breaks_and_a_hit_has_the_word_in_its_text(text: str, word: str) -> None:
    found = judge(said(text), word)
    assert found.outcome in OUTCOMES
    if found.outcome == "hit":
        assert found.said is not None
        assert key(found.said) == key(word) != ""
        assert letters(plain(key(word))) in letters(plain(text))


@cases(200)
@given(text=texts, word=one_word, other=one_word)
def test_what_was_said_does_not_depend_on_the_word_asked_for(text: str, word: str, other: str) -> None:
    one, two = judge(said(text), word), judge(said(text), other)
    assert (one.said, one.why) == (two.said, two.why)
    assert (one.outcome in ("hit", "miss")) == (two.outcome in ("hit", "miss"))


WRAPS = [
    "{}",
    " {} ",
    "\n{}\n",
    "{}.",
    "{}!",
    '"{}"',
    "“{}”",
    "'{}'",
    "**{}**",
    "*{}*",
    "`{}`",
    "({})",
    "<{}>",
    "> {}",
    "- {}",
    "<word>{}</word>",
    "<WORD>{}</WORD>",
    "<word>{}",
    "{}</word>",
    "Answer: {}",
    "Output: {}.",
    "**Answer:** {}",
    "The word is {}.",
    'The missing word is "{}".',
    "<think>Hm, Dinah?</think>{}",
    "The hidden word is **{}**",
    "```\n{}\n```",
    "{}’s",
    "{}'s",
    "the {}",
    "1. {}",
    "[MASK] = {}",
    '{{"word": "{}"}}',
    "\ufeff{}\u200b",
    "{} 🐇",
    "It is {}.",
    "{}\n\nExplanation: it is the only one that fits here.",
]


@cases(300)
@given(word=one_word, wrap=st.sampled_from(WRAPS), inner=st.sampled_from(WRAPS[:12]), upper=st.booleans())
def test_what_stands_around_a_word_does_not_matter(word: str, wrap: str, inner: str, upper: bool) -> None:
    text = wrap.format(word.upper() if upper else word)
    assert judge(said(text), word).outcome == "hit", text
    assert judge(said(text), word + "ish").outcome == "miss", text
    if wrap.startswith(("<", "Answer")) and "think" not in wrap:
        both = wrap.format(inner.format(word).strip())
        assert judge(said(both), word).outcome == "hit", both


@cases(200)
@given(one=st.text(max_size=8), other=st.text(max_size=8))
def test_sameness_goes_both_ways(one: str, other: str) -> None:
    for plurals in (False, True):
        assert same(one, other, plurals=plurals) == same(other, one, plurals=plurals)
    assert same(one, one) == bool(key(one))
    assert key(key(one)) == key(one) or key(one).endswith("'s")


@pytest.mark.parametrize(
    "text",
    [
        "word " * 200_000,
        "<" * 1_000_000,
        "< " * 500_000,
        "<word>" * 150_000,
        "**" * 500_000,
        '"' * 1_000_000,
        "\n" * 1_000_000 + "x",
        "Answer: a\n" * 100_000,
        "the word is " * 80_000,
        "I can't " * 125_000,
        "<think>" * 140_000,
        "a" * 1_000_000,
        "a-" * 500_000,
        "é’" * 500_000,
        "1. a\n" * 200_000,
        "<word>" + "a " * 500_000 + "</word>",
        "Passage: " * 100_000,
        " " * 1_000_000,
        "<first>" * 140_000,
        "1. a\n2. b\n3. c\n" * 60_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_a_megabyte_is_judged_at_once(text: str) -> None:
    answer, start = said(text), time.perf_counter()
    assert judge(answer, "Alice").outcome != "hit"
    answer = said(text[:200_000])  # nobody asks for a letter or a list and takes a megabyte
    assert judge_letter(answer, "A").outcome in OUTCOMES
    judge_pick(answer, "Down the rabbit hole")
    read_paraphrases(answer, "Down the rabbit hole")
    assert judge_list(answer, "Alice").outcome != "hit"
    assert time.perf_counter() - start < 8


def test_a_word_at_the_end_of_a_megabyte_of_reasoning_is_read() -> None:
    text = "<think>" + "Is it Dinah? " * 80_000 + "</think>\n<word>Alice</word>"
    assert judge(said(text), "Alice").outcome == "hit"


# --- lists


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("rabbit\nhare\ncat", "hit"),
        ("1. cat\n2. Hare\n3. rabbit", "hit"),
        ("1) cat\n2) **hare**\n3) dog", "hit"),
        ("- cat\n- hare's\n- dog", "hit"),
        ("* cat\n* the hare\n* dog", "hit"),
        ("cat, dog, hare, mouse", "hit"),
        ("Here are 100 words:\n\n1. cat\n2. hare - it runs\n3. dog", "hit"),
        ("cat dog hare mouse", "hit"),
        ("hare", "hit"),
        ("<think>hare?</think>cat\ndog", "miss"),
        ("1. cat\n2. dog\n3. hares", "miss"),
        ("1. March hare\n2. dog", "miss"),
        ("I'm sorry, but I can't help with that.", "refusal"),
        ("", "empty"),
        ("... --- ...", "malformed"),
    ],
)
def test_a_list_is_read(text: str, outcome: str) -> None:
    assert judge_list(said(text), "hare").outcome == outcome


def test_a_list_may_be_cut_off_and_have_plurals() -> None:
    assert judge_list(said("cat\ndog\nhare", ended="length"), "hare").outcome == "miss"
    assert judge_list(said("cat\ndog\nhare\n", ended="length"), "hare").outcome == "hit"
    assert judge_list(said("cats\nhares"), "hare", plurals=True).outcome == "hit"
    assert judge_list(said("", error="no"), "hare").outcome == "error"
    found = judge_list(said("cat\ndog\nhare"), "hare")
    assert (found.said, found.why) == ("hare", "place 3 of 3")


# --- letters


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("B.", "B"),
        ("(B)", "B"),
        ("**B**", "B"),
        ("<B>", "B"),
        ("B)", "B"),
        ("[B]", "B"),
        ("Answer: B", "B"),
        ("The answer is B.", "B"),
        ("Option B", "B"),
        ("Passage B is the one.", "B"),
        ("It is B.", "B"),
        ("Letter: B", "B"),
        ("B. The old clock in the hall struck thirteen.", "B"),
        ("The correct option is (B), since it has the rarer words.", "B"),
        ("<think>A or C?</think>B", "B"),
        ("**B.** It reads like the original.", "B"),
        ("The answer is option B", "B"),
        ("B\n\nB", "B"),
        ("The passage is A.", "A"),
        ("The answer to the question is D.", "D"),
        ("The one that stands word for word in what I was trained on is passage C", "C"),
        ("The answer is not A.", None),
        ("A passage that I know is among them.", None),
        ("A or B", None),
        ("It could be A. or B.", None),
        ("Answer: A\nAnswer: B", None),
        ("E", None),
        ("none of them", None),
        ("AB", None),
    ],
)
def test_a_letter_is_read(text: str, letter: str | None) -> None:
    for right in "ABCD":
        found = judge_letter(said(text), right)
        assert found.said == letter
        assert found.outcome == ("malformed" if letter is None else "hit" if letter == right else "miss")


def test_no_letter_at_all() -> None:
    assert judge_letter(said(" "), "A").outcome == "empty"
    assert judge_letter(said("I'm sorry, but I cannot tell what I was trained on."), "A").outcome == "refusal"
    assert judge_letter(said("", ended="content_filter"), "A").outcome == "refusal"
    assert judge_letter(said("", error="no"), "A").outcome == "error"


# --- picked words, and paraphrases

TEXT = "The Queen’s gardeners painted the roses, and the queen saw the roses."


@pytest.mark.parametrize(
    ("text", "span", "outcome"),
    [
        ("roses", (34, 39), "hit"),
        ("<word>Roses</word>", (34, 39), "hit"),
        ('The word is "gardeners".', (12, 21), "hit"),
        ("queen", (4, 9), "hit"),
        ("rose", None, "miss"),
        ("oses", None, "miss"),
        ("painted the roses", None, "malformed"),
        ("I can't help with that.", None, "refusal"),
        ("", None, "empty"),
    ],
)
def test_a_picked_word_is_found_in_its_text(text: str, span: tuple[int, int] | None, outcome: str) -> None:
    found, judged = judge_pick(said(text), TEXT)
    assert (found, judged.outcome) == (span, outcome)


TAGGED = "<first>One way.</first>\n<second>Another way.</second>\n<third>A third way.</third>"


@pytest.mark.parametrize(
    "text",
    [
        TAGGED,
        f"Sure!\n{TAGGED}\nI hope that helps.",
        TAGGED.upper()
        .replace("ONE WAY", "One way")
        .replace("ANOTHER WAY", "Another way")
        .replace("A THIRD WAY", "A third way"),
        TAGGED.replace("</first>", "").replace("</third>", ""),
        "1. One way.\n2. Another way.\n3. A third way.",
        "Version 1: One way.\n\nVersion 2: Another way.\n\nVersion 3: A third way.",
        "**First:** One way.\n**Second:** Another way.\n**Third:** A third way.",
        f"<think>{TAGGED}</think>{TAGGED}",
    ],
)
def test_paraphrases_are_read(text: str) -> None:
    assert read_paraphrases(said(text), TEXT) == ("One way.", "Another way.", "A third way.")


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (said(""), "empty"),
        (said("<first>One.</first>"), "malformed"),
        (said("One way."), "malformed"),
        (said("I'm sorry, but I can't rewrite that."), "refusal"),
        (said("", error="no"), "error"),
        (said("<first>One.</first><second>one</second><third>Two.</third>"), "malformed"),
        (said(f"<first>One.</first><second>{TEXT}</second><third>Two.</third>"), "malformed"),
        (said("<first>One.</first><second> </second><third>Two.</third>"), "malformed"),
        (said("<first>One.</first><second>Two.</second><third>Thr", ended="length"), "malformed"),
    ],
)
def test_what_are_no_three_paraphrases(answer: Answer, outcome: str) -> None:
    found = read_paraphrases(answer, TEXT)
    assert not isinstance(found, tuple)
    assert found.outcome == outcome
