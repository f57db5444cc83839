"""The report: what it says is what the table holds, and foreign text never becomes markup."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.coverage import along_text, coverage
from rote.analysis.near.rates import near_summary
from rote.analysis.rates import rates, rates_by
from rote.analysis.strongest import strongest_rows
from rote.models.base import ServedModel, title_of
from rote.report import keys
from rote.report.page.run import render_run
from rote.report.text import numbers
from rote.report.text.cards import run_card
from rote.report.text.strip import BELOW, LEVELS, UNSEEN, levels, strip
from rote.report.text.tables import distribution, groups
from rote.report.text.words import summary_lines
from rote.store.files import declared, pretty
from rote.store.manifest import Manifest, NearSearch
from rote.store.run import Passages, RunView
from rote.store.summary import SchemeNumbers, Summary
from tests.cases import cases
from tests.reference.coverage import looked_at
from tests.report.runs import MODEL, Kind, manifest, summary

TOP_K = "temperature=1 top_k=40"
SCHEMA: dict[str, Any] = {
    "example_id": pl.String,
    "scheme": pl.String,
    "start": pl.Int64,
    "suffix_start": pl.Int64,
    "suffix_end": pl.Int64,
    "log_prob": pl.Float64,
    "greedy": pl.Boolean,
    "bounded": pl.Boolean,
    "token_evals": pl.Int32,
    "token_log_probs": pl.List(pl.Float32),
    "base_log_probs": pl.List(pl.Float32),
    "ranks": pl.List(pl.Int32),
    "margins": pl.List(pl.Float32),
    "repetitions": pl.Int64,
    "split": pl.String,
    "metadata": pl.String,
}
TEXT = "It was the best of times, it was the worst of times.\n" * 40


def table(
    log_probs: Sequence[float],
    *,
    spans: Sequence[tuple[int, int]] | None = None,
    bounded: Sequence[bool] | None = None,
    scheme: str = TOP_K,
    **columns: Any,
) -> pl.DataFrame:
    count = len(log_probs)
    values: dict[str, Any] = {
        "example_id": [f"w{i}" for i in range(count)],
        "scheme": [scheme] * count,
        "start": [max(0, s - 20) for s, _ in spans] if spans else [None] * count,
        "suffix_start": [s for s, _ in spans] if spans else [None] * count,
        "suffix_end": [e for _, e in spans] if spans else [None] * count,
        "log_prob": list(log_probs),
        "greedy": [p > -0.1 for p in log_probs],
        "bounded": list(bounded) if bounded else [False] * count,
        "token_evals": [99] * count,
        **{name: [[0.5, 2.0]] * count for name in ("token_log_probs", "base_log_probs", "margins")},
        "ranks": [[1, 2]] * count,
        "repetitions": [None] * count,
        "split": [None] * count,
        "metadata": ["{}"] * count,
    } | columns
    return pl.DataFrame(values, schema=SCHEMA)


Pair = tuple[str, str]


def run(
    scores: pl.DataFrame,
    *,
    kind: Kind = "scan",
    text: str = TEXT,
    tau: float = 0.001,
    schemes: Sequence[str] = (TOP_K,),
    example: Pair | Mapping[str, Pair] = ("before ", "after"),
    name: str = "book.txt",
    warnings: Sequence[str] = (),
    dropped: int = 3,
    model: str = "tiny",
    near: NearSearch | None = None,
    served: ServedModel | None = None,
) -> RunView:
    """A run that came to these rows. `example`: prefix and suffix of all examples, or of each by its id."""
    found: dict[str, SchemeNumbers] = {}
    for scheme in schemes:
        own = scores.filter(pl.col("scheme") == scheme)
        found[scheme] = SchemeNumbers(
            rates=rates(own, tau=tau),
            coverage=coverage(own, len(text), served=served is not None) if kind == "scan" else None,
            by_repetitions=rates_by(own, "repetitions", tau=tau) or None,
            by_split=rates_by(own, "split", tau=tau) or None,
            near=None if near is None else near_summary(own, tau=tau),
        )
    made = manifest(
        scores,
        kind=kind,
        characters=len(text),
        schemes=schemes,
        tau=tau,
        model=replace(MODEL, name=model, served=served),
        near=near,
        name=name,
        dropped=dropped,
    )
    examples = dict.fromkeys(scores["example_id"], example) if isinstance(example, tuple) else example
    return RunView(
        manifest=made,
        summary=summary(made, scores, found, warnings=warnings),
        folder=Path("run"),
        scores=scores,
        texts=Passages(text) if kind == "scan" else Passages(None, examples),
    )


def page(scores: pl.DataFrame, **options: Any) -> str:
    """Of such a run."""
    return render_run(run(scores, **options))


def words(html: str) -> str:
    """The words of a page without its tags, on one line."""
    html = re.sub(r"<(script|style)\b.*?</\1>", " ", html, flags=re.S)
    return " ".join(
        unescape(re.sub(r"<[^>]*>", "", re.sub(r"(?<=>)(?=<(?!/?(?:data|bdi|i|sub)\b))", " ", html))).split()
    )


class Outline(HTMLParser):
    """What a browser would see: tags, ids, links, and the text inside each element of interest."""

    VOID = ("meta", "br", "hr", "img", "input", "link")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text: dict[str, list[str]] = {}
        self._open: list[tuple[str, str]] = []
        self.feed(html)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]
        key = dict(attrs).get("class") or tag
        if tag not in self.VOID:
            self._open.append((tag, key))
            self.text.setdefault(key, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1][0] == tag, f"</{tag}> closes {self._open[-1]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for key in {key for _, key in self._open}:
            self.text[key][-1] += data

    def all(self, name: str) -> list[str | None]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def windows(count: int, *, width: int = 40, stride: int = 20) -> list[tuple[int, int]]:
    return [(60 + i * stride, 60 + i * stride + width) for i in range(count)]


def test_a_scan_says_how_much_comes_out_with_even_odds() -> None:
    scores = table([math.log(0.9), math.log(0.6), math.log(0.02), -math.inf], spans=windows(4))
    seen = Outline(page(scores))
    # Two windows of 40 characters that overlap by 20, of four.
    assert seen.text["headline"][0] == (
        "2 of 4 windows come out with even odds (p\u00a0≥\u00a050%): 60.0% of the characters looked at; "
        f"{100 * 100 / len(TEXT):.2f}% of this text was looked at."
    )
    assert "cover 60 of the 100 characters looked at; the text has 2,120." in seen.text["lede"][0]
    assert "can never count" in seen.text["lede"][0]
    assert "3 of 4 windows (75.0%) count as extracted" in seen.text["lede"][0].replace("\u00a0", " ")
    assert TOP_K in seen.text["provenance"][0]
    assert "cdcdcdcdcdcdcdcd" in seen.text["provenance"][0]
    assert "BOS '<bos>' (id 0) before every prefix" in seen.text["provenance"][0]
    assert "not a sample" in seen.text["provenance"][0]


def test_a_score_run_gives_its_count_and_interval() -> None:
    scores = table([math.log(0.9)] * 5 + [-30.0] * 15, repetitions=[8] * 5 + [1] * 15)
    seen = Outline(page(scores, kind="score", example=("a ", "b"), dropped=0))
    assert seen.text["headline"][0].replace("\u00a0", " ") == (
        "Extracted at τ = 0.001: 1 repetition: 0 of 15 (0%); 8 repetitions: 5 of 5 (100%)."
    )
    assert "1 repetition 0% to 20.4%; 8 repetitions 56.6% to 100%." in seen.text["lede"][0]
    assert "all groups together: 11.2% to 46.9%" in seen.text["provenance"][0]
    assert "strip" not in seen.text
    assert len(seen.text["mark"]) == 5
    assert "1 w0" in seen.text["h3"]
    assert "By repetitions" in "".join(seen.text["h2"])


@pytest.mark.parametrize(
    ("log_probs", "bounded"),
    [
        ([-math.inf] * 3, [False] * 3),
        ([-20.0, -700.0, -800.0], [False] * 3),
        ([-20.0, -30.0, -40.0], [True] * 3),
        ([-20.0], [False]),
    ],
)
@pytest.mark.parametrize("kind", ["scan", "score"])
def test_nothing_extracted_is_said_plainly(log_probs: list[float], bounded: list[bool], kind: str) -> None:
    spans = windows(len(log_probs)) if kind == "scan" else None
    html = page(table(log_probs, spans=spans, bounded=bounded), kind=kind, example=("", ""))
    seen = Outline(html)
    headline = seen.text["headline"][0]
    assert re.search("Nothing was extracted: |None of|cannot be extracted", headline)
    assert "so there is no passage to show" in "".join(seen.text["caption"])
    assert "mark" not in seen.text
    told = [html.count(f'<td class="n">{what}</td>') for what in ("below τ", "not looked at")]
    seen_parts = {c * 20 // len(TEXT) for start, end in spans or () for c in range(start, end)}
    assert told == ([len(seen_parts), 20 - len(seen_parts)] if spans else [0, 0])


@pytest.mark.parametrize("kind", ["scan", "score"])
def test_one_row(kind: str) -> None:
    scores = table([math.log(0.25)], spans=windows(1) if kind == "scan" else None)
    html = page(scores, kind=kind, example=("once upon", " a time"))
    seen = Outline(html)
    assert seen.text["mark"] == [" a time" if kind == "score" else TEXT[60:100]]
    assert "Expected prompts 4 " in words(html)
    assert "Prompts for 90% 9 " in words(html)  # 1 - 0.75**9 = 0.925, 1 - 0.75**8 = 0.8999


def test_foreign_text_never_becomes_markup() -> None:
    def outline(text: str) -> Outline:
        scores = table(
            [math.log(0.5)] * 2, example_id=[f"{text}{i}" for i in range(2)], split=[text, "b"], repetitions=[1, 2]
        )
        return Outline(
            page(scores, kind="score", example=(text, text), name=text, warnings=[text], model=text, dropped=0)
        )

    evil = "</blockquote></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;{{ 7 * 7 }}\r<!--"
    seen = outline(evil)
    assert not seen.tags["img"]
    assert seen.tags == outline("harmless").tags
    evil = evil.replace("\r", "␍")
    assert seen.text["block"] == [f"{evil}{evil}"] * 2
    assert seen.text["mark"] == [evil, evil]
    assert seen.text["prefix"] == [evil, evil]
    assert evil in seen.text["warnings"][0]
    assert f"What {title_of(evil, None)} knows by rote of {evil}" in seen.text["h1"][0]
    assert evil in seen.text["method"][0]


@cases(40)
@given(st.lists(st.tuples(st.text(), st.text(min_size=1)), min_size=1, max_size=10))
def test_passages_are_shown_literally(pairs: list[tuple[str, str]]) -> None:
    examples = {f"w{i}": pair for i, pair in enumerate(pairs)}
    seen = Outline(page(table([-0.5] * len(pairs)), kind="score", example=examples))
    assert seen.text["prefix"] == [numbers.literal(prefix) for prefix, _ in pairs]
    assert seen.text["mark"] == [numbers.literal(suffix) for _, suffix in pairs]
    assert seen.text["block"] == [numbers.literal(prefix + suffix) for prefix, suffix in pairs]


TURNING = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")


@given(st.text(st.one_of(st.characters(codec=None), st.sampled_from("\r\n\t\u202e\u2066\u200f\x85"))))
def test_literal_changes_only_what_cannot_be_seen(text: str) -> None:
    shown = numbers.literal(text)
    shown.encode("utf-8")
    assert len(shown) == len(text)
    for before, after in zip(text, shown, strict=True):
        if before in "\t\n\r":
            assert after == before or before == "\r"
            continue
        invisible = unicodedata.category(before) in ("Cc", "Cs") or unicodedata.bidirectional(before) in TURNING
        assert (before != after) == (invisible or before in keys.MARKS or before in "\u061c\u200e\u200f")
    assert shown.count("\r") == text.count("\r\n")
    assert not re.search("\r(?!\n)", shown)
    assert numbers.literal("\0\a\x7f\ud800\ufdd0\ufdd1\ufdd2") == "␀␇␡\ufffd\ufffd\ufffd\ufffd"
    assert numbers.literal("a\r\nb\rc\r") == "a\r\nb␍c␍"
    assert numbers.literal("\u202eb\u202c \u2066c\u2069 \u200e\u200f \x9b") == "⇚b↨ ⇨c⇳ ↦↤ \ufffd"


def test_the_page_stands_alone_and_can_be_walked_by_keyboard_and_screen_reader() -> None:
    scores = pl.concat(
        [
            table(
                [math.log(0.3)] * 30, spans=windows(30), scheme=scheme, repetitions=[1, 2] * 15, split=["a", "b"] * 15
            )
            for scheme in (TOP_K, "temperature=1", "greedy")
        ]
    )
    html = page(scores, schemes=(TOP_K, "temperature=1", "greedy"), warnings=["careful"])
    seen = Outline(html)
    assert set(re.findall(r"http[^\s\"'<>]*", html)) == {
        "http-equiv=",
        "http://www.w3.org/2000/svg",
    }  # a name, no address
    assert set(re.findall(r"url\(.", html)) == {"url(#"}  # within the page
    assert "@import" not in html
    assert "src" not in {name for _, name, _ in seen.attributes}
    ids = seen.all("id")
    assert len(ids) == len(set(ids))
    assert set(seen.all("aria-labelledby")) <= set(ids)
    assert {value for value in seen.all("href") if value} <= {f"#{name}" for name in ids}
    levels = [int(level) for level in re.findall(r"<h([1-6])", html)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert seen.tags["svg"] == sum(
        1 for tag, name, _ in seen.attributes if tag == "svg" and name in ("aria-hidden", "role")
    )
    assert "Across schemes" in html
    schemes = html[html.index('aria-labelledby="schemes"') : html.index('aria-labelledby="cost"')]
    assert re.findall(r">([^<]+)</bdi></bdi></th>", schemes) == [TOP_K, "temperature=1", "greedy"]
    assert "color-scheme" in html
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_stopped_rows_make_ranges_of_what_they_leave_open() -> None:
    scores = table([math.log(0.5), -12.0, -12.0, -math.inf], spans=windows(4), bounded=[False, True, True, False])
    said = words(page(scores))
    assert "≥ 25.0%" in said
    assert "at most 75.0%: 2 given up early, as certain to end below τ" in said
    assert "on: 2 windows were given up" in said


def test_a_summary_read_back_from_json_gives_the_same_page() -> None:
    scores = table([math.log(0.5), -12.0, -math.inf], spans=windows(3))
    made = run(scores)
    again = replace(
        made,
        manifest=declared(json.loads(pretty(made.manifest)), Manifest, Path("manifest.json"), ""),
        summary=declared(json.loads(pretty(made.summary)), Summary, Path("summary.json"), ""),
    )
    assert render_run(again) == render_run(made)


@pytest.mark.parametrize("tau", [1.0, 0.9, 0.04, 1e-12, 1e-300])
def test_any_threshold(tau: float) -> None:
    seen = Outline(page(table([0.0, math.log(0.6), -20.0, -750.0], spans=windows(4)), tau=tau))
    extracted = sum(p >= math.log(tau) for p in (0.0, math.log(0.6), -20.0, -750.0))
    assert 0 < len(seen.text["mark"]) <= extracted
    assert len(seen.text["legend-ticks"]) == 1


def test_examples_from_different_texts_may_have_equal_positions() -> None:
    scores = table([math.log(0.9), math.log(0.8)], spans=[(60, 100), (60, 100)])
    seen = Outline(page(scores, kind="score"))
    assert len(seen.text["mark"]) == 2


Rows = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.integers(1, 60),
        st.one_of(st.just(-math.inf), st.floats(-9, 0), st.sampled_from([-1.0, -2.0])),
        st.booleans(),
    ),
    min_size=1,
    max_size=60,
)


@given(Rows)
def test_the_strongest_passages_do_not_overlap_a_stronger_one(rows: list[tuple[int, int, float, bool]]) -> None:
    tau = 0.001
    scores = table(
        [p for _, _, p, _ in rows],
        spans=[(s, s + w) for s, w, _, _ in rows],
        bounded=[x and p < math.log(tau) for _, _, p, x in rows],
    )
    wanted: list[int] = []
    for i in sorted(range(len(rows)), key=lambda i: (-rows[i][2], rows[i][0], i)):
        taken = {c for j in wanted for c in range(rows[j][0], rows[j][0] + rows[j][1])}
        if rows[i][2] >= math.log(tau) and not taken & set(range(rows[i][0], rows[i][0] + rows[i][1])):
            wanted.append(i)
    found = [row["example_id"] for row in strongest_rows(scores, math.log(tau), overlapping=False)]
    assert found == [f"w{i}" for i in wanted[:10]]


@given(rows=Rows, length=st.integers(400, 2500), tau=st.sampled_from([0.5, 0.001, 1e-4]))
def test_the_strip_shows_the_highest_probability_in_each_part(
    rows: list[tuple[int, int, float, bool]], length: int, tau: float
) -> None:
    scores = table([p for _, _, p, _ in rows], spans=[(s, s + w) for s, w, *_ in rows])
    best = along_text(scores, scores["log_prob"], length)
    said = strip(best, tau=tau)
    seen = looked_at([(s, s + w) for s, w, *_ in rows])
    both: tuple[tuple[int, Sequence[Any]], ...] = ((20, said.table), (97, levels(best, tau=tau, count=97)))
    for count, parts in both:
        assert len(parts) == count
        coloured: list[tuple[float, int]] = []
        for i, part in enumerate(parts):
            start, end = i * length // count, (i + 1) * length // count
            highest = max([p for s, w, p, _ in rows if s < end and s + w > start], default=-math.inf)
            if isinstance(part, dict):
                reached = sum(
                    any(s <= c < s + w and p >= math.log(tau) for s, w, p, _ in rows) for c in range(start, end)
                )
                assert part["characters"] == f"{start:,} to {end:,}"
                own = len(seen & {*range(start, end)})
                below = "below τ" if own else "not looked at"
                assert part["highest"] == (numbers.probability(highest) if highest >= math.log(tau) else below)
                assert part["share"] == (numbers.percent(reached / own) if own else numbers.MISSING)
                continue
            if highest >= math.log(tau):
                coloured.append((highest, part))
            else:
                assert part == (BELOW if seen & {*range(start, end)} else UNSEEN)
        assert all(0 <= level < LEVELS for _, level in coloured)
        assert [level for _, level in sorted(coloured)] == sorted(level for _, level in coloured)
    lefts = [tick["left"] for tick in said.legend]
    assert all(b - a > 2.5 for a, b in pairwise(lefts))
    assert all(0 <= left <= 100 for left in lefts)


def test_many_repetition_counts_are_put_together_by_powers_of_two() -> None:
    counts = [*range(40), None]
    scores = table([-0.5] * 41, repetitions=counts)
    (found,) = groups(run(scores, kind="score"))
    assert {row["label"]: row["examples"] for row in found["rows"]} == {
        "0": "1",
        "1": "1",
        "2 to 3": "2",
        "4 to 7": "4",
        "8 to 15": "8",
        "16 to 31": "16",
        "32 to 63": "8",
        "not given": "1",
    }


@given(st.floats(-2000, 0))
def test_probability_reads_as_what_it_is(log_prob: float) -> None:
    shown = numbers.probability(log_prob)
    mantissa, _, exponent = shown.partition("e")
    assert math.log(float(mantissa)) + int(exponent or 0) * math.log(10) == pytest.approx(log_prob, abs=0.052)
    assert (shown == "1") == (log_prob == 0)
    assert numbers.probability(-math.inf) == "0"


@given(st.floats(0, 1))
def test_percent_never_rounds_to_all_or_nothing(share: float) -> None:
    shown = numbers.percent(share)
    assert (shown == "0%") == (100 * share == 0)
    assert (float(shown[:-1]) >= 100) == (100 * share == 100)
    assert float(shown[:-1]) == pytest.approx(100 * share, rel=0.051)


def test_numbers_for_people() -> None:
    assert [numbers.probability(math.log(p)) for p in (0.0312, 3.1e-7, 0.5, 0.99996)] == [
        "0.0312",
        "3.1e-07",
        "0.5",
        "0.99996",
    ]
    assert numbers.one_in(math.log(1 / 32)) == "1 in 32 prompts"
    assert numbers.one_in(math.log(0.99)) == "nearly every prompt"
    assert numbers.one_in(math.log(0.7463)) == "75% of prompts"
    assert numbers.one_in(math.log(0.5)) == "1 in 2 prompts"
    assert numbers.expected_prompts(math.log(3.1e-7)) == "3.23 million"
    assert numbers.expected_prompts(-math.inf) == numbers.prompts_for(-math.inf, 0.9) == "never"
    assert numbers.expected_prompts(-1000 * math.log(10)) == "1.0e+1000"
    assert [numbers.duration(s) for s in (0.04, 59.99, 312.4, 7384)] == [
        "0.0 s",
        "1 min 00 s",
        "5 min 12 s",
        "2 h 03 min",
    ]
    assert numbers.threshold(0.01) == "1%"
    assert str(numbers.typeset("p_z at τ = 0.1 of p_z.txt & my/p_z")) == (
        "<i>p</i><sub>z</sub> at τ\u00a0=\u00a00.1 of p_z.txt &amp; my/p_z"
    )


def test_bos_in_words() -> None:
    none = replace(MODEL, bos_token=None, bos_text=None)
    assert "the tokenizer has none" in numbers.bos(none)
    assert "as asked" in numbers.bos(replace(none, bos="never"))
    assert numbers.bos(replace(MODEL, bos_token=2, bos_text="<s>")).startswith("auto: BOS '<s>' (id 2) before every")


def test_the_terminal_gets_the_headline_and_what_it_rests_on() -> None:
    lines = summary_lines(run(table([math.log(0.6)] * 3, spans=windows(3)), warnings=["careful"]))
    assert lines[0].startswith("All 3 windows come out with even odds (p ≥ 50%): 100% of the characters looked at; ")
    assert any(TOP_K in line for line in lines)
    assert any("BOS '<bos>' (id 0)" in line for line in lines)
    assert any("careful" in line for line in lines)


def test_a_page_of_a_hundred_thousand_windows_stays_small() -> None:
    rng = np.random.default_rng(0)
    count = 100_000
    log_probs = np.where(rng.random(count) < 0.5, -rng.exponential(3, count), -np.inf).tolist()
    scores = table(log_probs, spans=windows(count, width=200, stride=10))
    text = "x" * (10 * count + 500)
    html = page(scores, text=text)
    assert len(html) < 8_000_000
    assert "".join(Outline(html).text["block"]) == text


def test_long_lists_say_what_they_leave_out() -> None:
    text = "x" * 20_000
    scanned = page(table([math.log(0.9)] * 320, spans=windows(320, width=20, stride=40)), text=text)
    assert "The 300 longest. Runs of characters" in words(scanned)
    assert scanned.count(' data-go="') == 300
    assert 'value="300" data-key="spots/listed"' in scanned
    scored = page(table([math.log(0.9)] * 3100), kind="score")
    assert "The 300 likeliest of 3,100. Choose an example" in words(scored)
    assert "the likeliest come first. 100 examples of 3,100 left out here; the table for download has all." in words(
        scored
    )
    assert 'value="300" data-key="examples/listed"' in scored
    assert 'value="100" data-key="reader/left_out"' in scored
    assert scored.count(' data-go-row="') == 300 + 10
    assert scored.count('<p class="block"') == 3000


def test_the_table_of_examples_has_bounds_for_what_was_stopped() -> None:
    scores = table([-12.0, math.log(0.95), -math.inf], bounded=[True, False, False], repetitions=[None, 3, 0])
    html = page(scores, kind="score", example=("before ", "the first words of it"))
    listed = html[html.index('aria-labelledby="listed"') :]
    rows = [words(row) for row in re.findall(r"<tr><th.*?</tr>", listed[: listed.index("</tbody>")])][1:]
    assert rows == [
        "w1 0.95 1 yes 3 the first words of it",
        "w0 at most 6.1e-06 at least 374,756 no – the first words of it",
        "w2 0 never no 0 the first words of it",
    ]


def test_the_table_to_download_is_described() -> None:
    said = words(page(table([math.log(0.9)] * 3, spans=windows(3))))
    assert f"A row for each of 3 windows under {TOP_K}: example_id, scheme, start, suffix_start, suffix_end" in said
    assert "no room for it as Parquet" not in said


def test_the_distribution_counts_every_window_from_a_ten_thousandth_on() -> None:
    probabilities = [1.0, 0.1, 0.0999, 0.001, 0.0001, 0.00009, 0.0]
    rows = pl.DataFrame(
        {
            "example_id": [str(i) for i in range(len(probabilities))],
            "scheme": "s",
            "log_prob": [math.log(p) if p else -math.inf for p in probabilities],
            "bounded": False,
            "start": 0,
            "suffix_start": 1,
            "suffix_end": 2,
        }
    )
    found = distribution(rows)
    assert found["title"] == "5 of 7 windows with p_z of 0.0001 or more"
    assert [row[:2] for row in found["rows"]] == [
        ["0.0001 to 0.001", "1"],
        ["0.001 to 0.01", "1"],
        ["0.01 to 0.1", "1"],
        ["0.1 to 1", "2"],
    ]
    assert distribution(rows.with_columns(bounded=pl.lit(True)))["title"].endswith(
        "5 more may be among them, of which only a bound is known"
    )


def test_a_score_run_is_told_by_its_splits_and_not_with_its_control() -> None:
    scores = table(
        [math.log(0.9)] * 45 + [-30.0] * 55, split=["members"] * 50 + ["held-out"] * 50, repetitions=[8] * 50 + [0] * 50
    )
    made = run(scores, kind="score")
    told = "Extracted at τ = 0.001: members: 45 of 50 (90.0%); held-out: 0 of 50 (0%)."
    lines = summary_lines(made)
    assert lines[0] == told
    assert "members 78.6% to 95.7%; held-out 0% to 7.13%." in lines[1]
    assert any(re.match(r"rates +all groups together: greedy .*, at 0.001 45.0%", line) for line in lines)
    html = words(page(scores, kind="score")).replace("\u00a0", " ")
    assert told in html
    cards = html[html.index("The numbers") :]
    assert cards.startswith("The numbers Rate at τ = 0.001: members 90.0% 45 of 50; 95% interval 78.6% to 95.7%")
    assert "45.0% 45 of 100; 95% interval 35.6% to 54.8%, all groups together" in cards
    assert words(run_card(made)).replace("\u00a0", " ").startswith(told)
    (alone,) = {summary_lines(run(own, kind="score"))[0] for own in [scores.filter(pl.col("split") == "members")]}
    assert alone == "45 of 50 examples can be extracted at τ = 0.001."


def test_many_groups_are_told_by_the_fewest_and_the_most() -> None:
    scores = table([-30.0] * 5 + [math.log(0.9)] * 5, repetitions=[0, 1, 1, 2, 2, 4, 4, 8, 8, None])
    assert summary_lines(run(scores, kind="score"))[0] == (
        "Extracted at τ = 0.001, two of 6 groups: 0 repetitions: 0 of 1 (0%); 8 repetitions: 2 of 2 (100%)."
    )


@pytest.mark.parametrize(
    ("stride", "chosen", "told"),
    [
        (
            20,
            3,
            "All 3 windows come out with even odds (p ≥ 50%): 100% of the characters looked at; 3.77% of this",
        ),
        (
            400,
            4,
            "All 4 windows come out with even odds (p ≥ 50%): 100% of the characters looked at; 7.55% of this",
        ),
        (
            20,
            1,
            "The only window comes out with even odds (p ≥ 50%): 100% of the characters looked at; 1.89% of",
        ),
    ],
)
def test_coverage_is_of_what_was_looked_at_whatever_the_stride(stride: int, chosen: int, told: str) -> None:
    scores = table([math.log(0.9)] * chosen, spans=windows(chosen, stride=stride))
    lines = summary_lines(run(scores))
    assert lines[0].startswith(told)
    assert ("characters between suffixes were not looked at." in lines[1]) == (stride == 400)
    html = words(page(scores)).replace("\u00a0", " ")
    looked_at = 40 * chosen if stride == 400 else 40 + 20 * (chosen - 1)
    assert f"Coverage at 50% 100% {looked_at} of {looked_at} characters" in html
    assert f"50% 100% {100 * looked_at / len(TEXT):.2f}% {looked_at} " in html  # of what was looked at, of the text
