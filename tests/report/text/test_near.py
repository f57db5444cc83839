"""The report's near-verbatim part: there where it was asked for, true to the table, and never markup."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.report.page.run import render_run
from rote.report.text import numbers
from rote.report.text.cards import run_card
from rote.report.text.near import _pieces
from rote.report.text.terminal import unlocked
from rote.report.text.words import summary_lines
from rote.store.manifest import NearSearch
from tests.cases import cases
from tests.report.page.test_run import Outline, run, table, windows, words
from tests.report.runs import Kind

SUFFIX = "It was the best of times, it was the worst of times"
NEAR = NearSearch(
    distance="levenshtein", tolerance=2, method="fork", budget=300, eos="stop", gap=0.01, until="worthwhile",
    variant="closing", width=20, samples=None, seed=0, memory_positions=1000,
)  # fmt: skip


def candidate(text: str | None, distance: int = 1, log_prob: float | None = -3.0, **more: Any) -> dict[str, Any]:
    return {"tokens": [7, 8], "text": text, "log_prob": log_prob, "set_log_prob": None, "distance": distance} | more


def scores_with(
    *candidates: dict[str, Any], spans: Any = None, estimate: float | None = None, second: Any = ()
) -> pl.DataFrame:
    """Three rows: extractable, unlocked, undecided. The first has the candidates, the `second` its own."""
    log_probs = [math.log(0.4), -math.inf, -40.0]
    lower = [[0.4, 0.45, 0.5234], [0.0, 0.0, 0.3], [0.0, 0.0, 0.0]]
    upper = [[0.4, 0.9, 0.9], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]
    guess = [None if estimate is None else estimate] * 3
    return table(log_probs, spans=spans).with_columns(
        pl.Series("lower", [row[-1] for row in lower]),
        pl.Series("upper", [row[-1] for row in upper]),
        pl.Series("lower_by_tolerance", lower),
        pl.Series("upper_by_tolerance", upper),
        pl.Series("verdict", ["extractable", "extractable", "undecided"]),
        pl.Series("near_token_evals", [300, 250, 99], dtype=pl.Int32),
        pl.Series("eos_mass", [0.0] * 3),
        pl.Series("estimate", guess, dtype=pl.Float64),
        pl.Series("estimate_error", [None if g is None else 0.01 for g in guess], dtype=pl.Float64),
        pl.Series("candidates", [list(candidates), list(second), []], dtype=CANDIDATES),
        pl.Series("greedy_distance", [0, 2, 3], dtype=pl.Int32),
    )


CANDIDATES = pl.List(
    pl.Struct(
        {
            "tokens": pl.List(pl.Int32),
            "text": pl.String,
            "log_prob": pl.Float64,
            "set_log_prob": pl.Float64,
            "distance": pl.Int16,
        }
    )
)


def page(scores: pl.DataFrame, suffix: str = SUFFIX, kind: Kind = "score", **options: Any) -> str:
    near = replace(NEAR, **options)
    return render_run(run(scores, kind=kind, near=near, example=("before ", suffix)))


def test_the_section_says_what_the_table_holds() -> None:
    html = page(scores_with(candidate(SUFFIX.replace("worst", "first"))))
    Outline(html)
    assert ">Near-verbatim</h2>" in html
    near = html[html.index('aria-labelledby="near"') : html.index('aria-labelledby="cost"')]
    section = words(near)
    assert "Within 2 edits, at τ = 0.001 66.7% 2 of 3, certified" in section
    assert "Unlocked 1 " in section
    assert "Undecided 1 " in section
    assert "Token evaluations 649 216.3 per example" in section
    assert "Mean lower bound 0.274" in section
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', near)[:3]
    cells = [[words(tolerance), *map(words, re.findall(r"<td[^>]*>(.*?)</td>", row))] for tolerance, row in rows]
    assert [[row[0], row[1], row[3], row[4]] for row in cells] == [
        ["0", "33.3%", "0", "33.3%"],
        ["1", "33.3%", "2", "33.3%"],
        ["2", "66.7%", "1", "66.7%"],
    ]


def test_a_passage_has_its_bounds_and_variants() -> None:
    html = page(
        scores_with(
            candidate(SUFFIX, 0, None, set_log_prob=-0.5),  # the suffix itself is no variant of it
            candidate(SUFFIX.replace("worst", "first")),
            candidate(SUFFIX.replace(",", ""), 1, None, set_log_prob=math.log(0.02)),
            candidate(None, 2, None),
            candidate("too many", 2, -9.0),
        )
    )
    seen = Outline(html)
    said = words(html)
    assert "Within 2 edits 0.523 to 0.900 Verdict extractable" in said
    assert len(seen.text["difference"]) == 3
    assert seen.text["del"][:2] == ["worst", ","]
    assert seen.text["ins"][0] == "first"
    assert "1 edit, probability 0.0498" in said
    assert "1 edit, an example of outputs that begin alike and all count, together probability 0.02" in said
    assert seen.text["ins"][1:] == ["7", "8"]  # without a tokenizer, the ids
    assert "too many" not in said


def test_foreign_text_in_candidates_never_becomes_markup() -> None:
    evil = "</ins></p><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;{{ 7 * 7 }}\0"
    seen = Outline(page(scores_with(candidate(f"{SUFFIX} {evil}"), candidate(evil)), suffix=f"<b>{SUFFIX}"))
    harmless = Outline(page(scores_with(candidate(f"{SUFFIX} more"), candidate("other")), suffix=SUFFIX))
    assert seen.tags["script"] == harmless.tags["script"]
    assert not seen.tags["img"]
    assert not seen.tags["b"]
    assert seen.text["difference"][0].endswith(numbers.literal(f" {evil}"))


Pieces = st.text(st.sampled_from("ab <>&\n\u0301é漢\0"), max_size=40)


@cases(25)
@given(suffix=Pieces, others=st.lists(Pieces, min_size=1, max_size=3))
def test_any_difference_can_be_shown(suffix: str, others: list[str]) -> None:
    seen = Outline(page(scores_with(*map(candidate, others)), suffix=f"{suffix}\ud800"))
    assert len(seen.text["difference"]) == len(others)


@given(before=Pieces, after=Pieces)
def test_a_difference_tells_both_texts(before: str, after: str) -> None:
    parts = list(_pieces(before, after))
    if all("…" not in part for _, part in parts):
        assert "".join(part for kind, part in parts if kind != "ins") == before
        assert "".join(part for kind, part in parts if kind != "del") == after
    assert all(part for _, part in parts)


def test_long_stretches_without_a_difference_are_cut_out() -> None:
    same = "word " * 100
    parts = list(_pieces(f"{same}old {same}stale {same}", f"{same}new {same}fresh {same}"))
    assert [kind for kind, _ in parts] == ["same", "del", "ins", "same", "del", "ins", "same"]
    assert all(len(part) < 80 for _, part in parts)
    assert parts[0][1].startswith("… word")
    assert parts[0][1].endswith("word ")
    assert parts[3][1].startswith(" word")
    assert parts[-1][1].endswith("…")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "fork search, at most 300 token evaluations per row, until nothing that was left promised a thousandth"),
        ({"until": "decision"}, "until it was certain whether τ is reached, or the bounds were 0.01 apart"),
        ({"budget": None}, "at most what a beam of width 20 costs per row"),
        ({"method": "beam", "variant": "pruned", "width": 7}, "beam search (pruned, width 7), at most 300"),
        ({"samples": 500, "seed": 3}, "500 samples of what was left open, seed 3"),
        ({"method": "sample"}, "1,000 samples per row, seed 0"),
        ({"distance": "hamming", "eos": "exclude"}, "within 2 edits, hamming distance; outputs that end early do not"),
        ({"method": "sample"}, "Rate at τ, lower end"),
    ],
)
def test_the_method_names_the_options(options: dict[str, Any], said: str) -> None:
    assert said in words(page(scores_with(), **options))


@pytest.mark.parametrize("kind", ["scan", "score"])
def test_estimates_and_scans(kind: Kind) -> None:
    scores = scores_with(spans=windows(3) if kind == "scan" else None, estimate=0.55)
    html = page(scores, kind=kind, samples=100)
    assert "Estimate 0.55 ± 0.01" in words(html)
    assert "Mean estimate 0.55 sampled, unbiased" in words(html)
    Outline(html)


def test_without_near_there_is_none_of_it() -> None:
    scores = table([math.log(0.4)] * 2)
    html = render_run(run(scores, kind="score", near=None, example=("before ", SUFFIX)))
    assert "Near-verbatim" not in words(html)
    assert "Verdict" not in words(html)
    assert "<ol class=" in html
    assert not Outline(html).tags["del"]


def test_the_terminal_sums_it_up() -> None:
    lines = summary_lines(run(scores_with(), kind="score", near=NEAR))
    (line,) = (line for line in lines if line.startswith("near "))
    assert "within 2 edits (levenshtein), 2 examples reach τ = 0.001 (certified), 1 undecided; 1 that" in line
    (cost,) = (line for line in lines if line.startswith("cost "))
    assert "297 token evaluations (99.0 per example), for near-verbatim search 649 (216.3)" in cost


@given(lower=st.floats(0, 1), more=st.floats(0, 1))
def test_printed_bounds_hold(lower: float, more: float) -> None:
    upper = min(1.0, lower + more)
    shown = numbers.interval(lower, upper)
    if " to " in shown:
        low, high = map(float, shown.split(" to "))
        assert low <= lower + 1e-15 * (lower >= 0.001)
        assert high >= upper - 1e-15 * (upper >= 0.001)
        assert low >= 0.9 * lower - 0.001 * (lower >= 0.001) - 1e-322
        assert high <= 1.1 * upper + 0.001 * (upper >= 0.001) + 1e-322
    else:
        assert float(shown) == pytest.approx(lower, rel=0.06)


# --- what only comes near


WRITTEN = candidate(SUFFIX.replace("worst", "first"), 1, math.log(0.25))
ALIKE = candidate(SUFFIX.replace("times,", "time,"), 1, math.log(0.2), set_log_prob=math.log(0.3))
EXAMPLE = candidate(SUFFIX.replace("best", "best best"), 1, None, set_log_prob=math.log(0.4))
UNLIKELY = candidate(SUFFIX.replace("worst", "first"), 1, math.log(0.01))


@pytest.mark.parametrize(
    ("outputs", "told", "output"),
    [
        (
            [EXAMPLE, WRITTEN],
            "1 edit, probability 0.25",
            "It was the best of times, it was the [-worst-]{+first+} of times",
        ),
        (
            [ALIKE],
            "1 edit, probability 0.2, with all that begin alike and count 0.3",
            "It was the best of [-times-]{+time+}, it was the worst of times",
        ),
        (
            [EXAMPLE, UNLIKELY],
            "1 edit, an example of outputs that begin alike and all count, together probability 0.4",
            "It was the{+ best+} best of times, it was the worst of times",
        ),
    ],
)
def test_what_only_comes_near_is_listed_with_its_output(outputs: list[Any], told: str, output: str) -> None:
    scores = scores_with(second=outputs, spans=windows(3, stride=300))
    text = "x" * 360 + SUFFIX[:40] + "y" * 900
    made = run(scores, near=NEAR, text=text)
    only = unlocked(made)
    assert only is not None
    assert only.title.startswith("Found only within 2 edits. Differences [-in the text-]")
    (passage,) = only.shown
    assert passage.facts == "within 2 edits 0.300 to 1, p_z 0, characters 360 to 400 (27.7%)"
    assert passage.words.startswith(f"{told}: ")
    assert bool(only.note) == ("example of" in told)
    assert summary_lines(made)[0].endswith(" Another window reaches τ = 0.001 only within 2 edits (certified).")
    example = page(scores_with(second=outputs))
    section = example[example.index('aria-labelledby="unlocked"') : example.index('aria-labelledby="prompts"')]
    assert "1 example reaches τ = 0.001 only within 2 edits, certified." in words(section).replace("\u00a0", " ")
    assert ("the model need not write that one" in words(section)) == ("example of" in told)
    seen = Outline(section.partition(">")[2].rpartition("</section>")[0])
    assert told in words(section)
    shown = unlocked(run(scores_with(second=outputs), kind="score", near=NEAR, example=("before ", SUFFIX)))
    assert shown is not None
    assert shown.shown[0].words == f"{told}: {output}"
    assert len(seen.text["difference"]) == 1
    card = words(run_card(made))
    assert "Found only within 2 edits" in card
    assert told in card


def test_where_nothing_more_comes_near_that_is_said() -> None:
    scores = scores_with()[[0, 2]]
    made = run(scores, kind="score", near=NEAR)
    assert unlocked(made) is None
    assert summary_lines(made)[0].endswith(" Within 2 edits, no other example was found to reach τ = 0.001.")
    assert 'aria-labelledby="unlocked"' not in page(scores)
    sampled = run(scores_with(), kind="score", near=replace(NEAR, method="sample"))
    assert "reaches τ = 0.001 only within 2 edits (by 95% intervals, not certified)." in summary_lines(sampled)[0]
    named = scores_with().with_columns(pl.Series("split", ["a", "b", "b"]))
    assert "Another example, of all groups together, reaches" in summary_lines(run(named, kind="score", near=NEAR))[0]
