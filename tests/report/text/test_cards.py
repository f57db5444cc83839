"""What a notebook shows of a run: the numbers of its table, as HTML that any text leaves whole."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rote.frames import html_card, html_table, html_text
from rote.report.text.cards import BARS, LONG, card, facts_card, passage_card, run_card, sentence, table
from rote.report.text.passage import PassageOfRun, ShownPassage, TokenOfPassage
from rote.report.text.strip import LEVELS
from rote.store.manifest import Source
from tests.cases import cases
from tests.report.page.test_run import TEXT, Outline, run, windows, words
from tests.report.page.test_run import table as rows
from tests.report.runs import MODEL, Kind
from tests.report.text.test_near import NEAR, scores_with

EVIL = "</td></div><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;<!--"
texts = st.text(st.characters())  # lone surrogates too


# --- any text leaves the HTML whole


def pieces(text: str) -> list[str]:
    return [
        card(text, sentence(text), table([text, text], [[text, text]])),
        html_card(html_text(text), html_table([text], [[text]])),
    ]


@given(texts)
@example(EVIL)
@example("\ud800")
@cases(100)
def test_no_text_becomes_markup(text: str) -> None:
    for html, plain in zip(pieces(text), pieces("x"), strict=True):
        assert Outline(html).tags - Outline(plain).tags in ({}, {"i": 4, "sub": 4})  # p_z is set with a subscript
        html.encode()  # a notebook is stored as UTF-8


def test_the_text_itself_is_shown() -> None:
    for html, plain in zip(pieces(EVIL), pieces("@"), strict=True):
        assert words(html).count(EVIL) == plain.count("@") >= 3


# --- runs


def bars(html: str) -> list[list[tuple[int, float]]]:
    """For each lane of the strip, the place and the height of every bar."""
    lanes = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    bar = r'<rect x="(\d+)" y="([\d.]+)" width="[\d.]+" height="([\d.]+)" fill="rgb\(\d+,\d+,\d+\)"/>'
    found = [[(int(x), float(y), float(high)) for x, y, high in re.findall(bar, lane)] for lane in lanes]
    assert [len(own) + len(_unseen(lane)) for own, lane in zip(found, lanes, strict=True)] == [
        lane.count("<rect") for lane in lanes
    ]
    assert all(y + high == 24 for lane in found for _, y, high in lane)  # they stand on the ground
    return [[(x, high) for x, _, high in lane] for lane in found]


def _unseen(html: str) -> set[int]:
    """The places in grey: not looked at."""
    grey = r'<rect x="(\d+)" y="0" width="1.05" height="24" fill="rgba\(128,128,128,.3\)"/>'
    return {int(x) for x in re.findall(grey, html)}


def test_a_scan_has_its_headline_strip_and_passages() -> None:
    places = windows(4, stride=400)
    made = run(rows([math.log(0.9), math.log(0.02), -math.inf, math.log(0.002)], spans=places))
    html = run_card(made)
    Outline(html)
    said = words(html).replace("\u00a0", " ")
    share = f"{100 * 160 / len(TEXT):.2f}% of this text was looked at."
    assert said.startswith(
        f"1 of 4 windows comes out with even odds (p ≥ 50%): 25.0% of the characters looked at; {share}"
    )
    assert "3 of 4 windows (75.0%) count as extracted." in said
    assert "0.001 ■ 0.01 ■ 0.1 ■ 1 0 to 2,120 characters; a bar shows the highest probability within 14" in said
    assert "tiny; scheme temperature=1 top_k=40; BOS auto: BOS '<bos>' (id 0) before every prefix" in said
    strongest = re.findall(r"pz ([\d.]+), [^,]+, characters ([\d,]+) to", said)
    assert strongest == [("0.9", "60"), ("0.02", "460"), ("0.002", "1,260")]
    (lane,) = bars(html)
    inside = {x: span for span in places for x in range(BARS) if _overlap(x, span)}
    high = {span: {height for x, height in lane if inside[x] == span} for span in places}
    assert set(dict(lane)) == {x for x, span in inside.items() if span != places[2]}  # nothing where p is 0
    assert _unseen(html) == {*range(BARS)} - {*inside}
    (first,), (second,), (third,) = (high[span] for span in places if span != places[2])
    assert 24 == first > second > third >= 3


def _overlap(bar: int, span: tuple[int, int]) -> bool:
    start, end = bar * len(TEXT) // BARS, (bar + 1) * len(TEXT) // BARS
    return start < span[1] and span[0] < end


@pytest.mark.parametrize("kind", ["scan", "score"])
def test_nothing_extracted_is_said_plainly(kind: Kind) -> None:
    html = run_card(run(rows([-math.inf, -40.0], spans=windows(2) if kind == "scan" else None), kind=kind))
    outline = Outline(html)
    assert re.search("^(Nothing was extracted: none of 2 windows reaches|None of 2 examples can be)", words(html))
    assert (outline.tags["rect"], outline.tags["table"]) == (len(_unseen(html)), 0)
    assert outline.tags["svg"] == (1 if kind == "scan" else 0)


def test_near_verbatim_has_its_sentence_and_its_lane() -> None:
    html = run_card(run(scores_with(spans=windows(3, stride=300)), near=NEAR))
    said = words(html).replace("\u00a0", " ")
    assert "Near-verbatim: within 2 edits (levenshtein), 2 windows reach τ = 0.001 (certified), 1 undecided;" in said
    assert "within 2 edits 0.523 to 0.900" in said
    assert "near: within 2 edits, by the lower bound." in said
    verbatim, near = bars(html)
    assert {x for x, _ in verbatim} < {x for x, _ in near}  # the second window comes out only nearly
    assert "Near-verbatim" not in run_card(run(scores_with(spans=windows(3)).drop("lower")))


def test_warnings_are_shown() -> None:
    made = run(rows([-1.0]), kind="score", warnings=["half of it is missing", EVIL])
    said = words(run_card(made))
    assert "Warning: half of it is missing" in said
    assert f"Warning: {EVIL}" in said


def test_colours_grow_with_the_probability() -> None:
    from rote.report.text.cards import _colour

    colours = [tuple(map(int, re.findall(r"\d+", _colour(level)))) for level in range(LEVELS)]
    assert len(set(colours)) == LEVELS
    for against in ((255, 255, 255), (17, 17, 17)):  # of light and of dark notebooks
        assert _contrast(colours[-1], against) > 3
    assert all(_light(one) > _light(other) for one, other in pairwise(colours))


def _light(colour: tuple[int, ...]) -> float:
    """Relative luminance, as WCAG defines it."""
    parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def _contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    low, high = sorted((_light(one), _light(other)))
    return (high + 0.05) / (low + 0.05)


# --- passages, facts


def passage(tokens: int, **changes: Any) -> ShownPassage:
    token = {"text": "<b>", "rank": 1, "probability": 0.5, "base_probability": 0.5, "cumulative_log_prob": -1.0}
    known: dict[str, Any] = {
        "key": "A", "name": "run", "folder": "run", "model": MODEL, "scheme": "greedy", "tau": 0.001,
        "place": [None] * 3, "prefix": "before", "suffix": EVIL, "log_prob": -1.0, "p_z": math.exp(-1),
        "bounded": False, "greedy": True, "queries_needed": {"0.5": 2}, "at_least_once": {"1": 0.4, "10": 0.99},
        "tokens": [TokenOfPassage(position=i + 1, id=i, **token) for i in range(tokens)],  # type: ignore[arg-type]
        "tokens_unknown": None, "tokenised": None, "near": None,
    }  # fmt: skip
    source = Source(name=EVIL, sha256="ab")
    runs = [PassageOfRun(**known | changes)]
    return ShownPassage(example_id=EVIL, chosen="Because.", kind="score", source=source, runs=runs)


def test_a_passage_has_tables_and_its_text() -> None:
    html = passage_card(passage(3))
    outline = Outline(html)
    assert outline.tags["script"] == outline.tags["img"] == outline.tags["b"] == 0
    said = words(html)
    assert said.startswith(f"Example {EVIL} of {EVIL}. Because. Model a model Scheme greedy BOS auto")
    assert f"Prefix │ suffix before │ {EVIL} Tokens of the suffix # Token Rank" in said
    assert outline.text["th"] == [
        *("#", "Token", "Rank", "Probability", "Without scheme", "So far"), *("n", "1", "10"),
    ]  # fmt: skip
    assert outline.tags["details"] == 0
    assert "pz 0.368" in said


def test_long_tables_are_folded() -> None:
    for tokens, folded in ((LONG, 0), (LONG + 1, 1)):
        outline = Outline(passage_card(passage(tokens)))
        assert outline.tags["details"] == outline.tags["summary"] == folded
        assert outline.text["td"].count("<b>") == tokens
    assert outline.text["summary"] == [f"{LONG + 1} rows"]


def test_facts() -> None:
    html = facts_card("A <machine>", {"x": "1", "<y>": "p_z"})
    assert Outline(html).text["td"] == ["x", "1", "<y>", "pz"]
    assert words(html).startswith("A <machine>")
    assert "<thead>" not in html
