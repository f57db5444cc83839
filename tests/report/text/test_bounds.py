"""What is said of rows that a served model's list leaves open: nothing is certain of them, and more may be there."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from rote.analysis.groups import sampled_rates, with_origin
from rote.models.base import ServedModel
from rote.report.figures.run import run_figures
from rote.report.page.run import render_run
from rote.report.text.rate import sampled_headline, sampled_lede
from rote.report.text.spots import highest_in_words, longest_sentence, longest_table
from rote.report.text.stages import stages_sentence
from rote.report.text.tables import coverage_table
from rote.report.text.terminal import legend_words
from rote.report.text.words import headline, lede, summary_lines
from rote.store.run import RunView
from rote.store.summary import Longest
from tests.report.page.test_run import TEXT, Outline, run, table, windows, words
from tests.report.runs import Kind
from tests.report.stages import by_chance

SERVED = ServedModel(url="http://localhost/v1", protocol="test", listed=3)
OPEN = "left open by the server’s list of 3 log-probs."
LOOKED_AT = "of this text’s characters were looked at."
COUNTS = "cover {} of the {} characters looked at; the text has 2,120."

# What each row has as p_z, or as its upper bound; and which rows are open.
MAY = ((0.9, 0.6, 0.0005, 0.0), (0, 1, 2))
BELOW = ((0.0005, 0.0002, 0.0), (0, 1))
SOME = ((0.9, 0.02, 0.002, 0.0), (0, 1))
EVEN = ((0.9, 0.8, 0.02, 0.0), (0, 2))
ALONE = ((0.9,), (0,))


def log(p: float) -> float:
    return math.log(p) if p else -math.inf


def made(rows: tuple[tuple[float, ...], tuple[int, ...]], kind: Kind = "scan", **options: Any) -> RunView:
    chances, left_open = rows
    scores = table(
        list(map(log, chances)),
        spans=windows(len(chances)) if kind == "scan" else None,
        bounded=[place in left_open for place in range(len(chances))],
        greedy=[None if place in left_open else False for place in range(len(chances))],
        **{name: options.pop(name) for name in ("repetitions", "split", "metadata") if name in options},
    )
    return run(scores, kind=kind, **{"served": SERVED, **options})


def exact(rows: tuple[tuple[float, ...], tuple[int, ...]], kind: Kind = "scan") -> RunView:
    """The same rows of a model here, all of them known."""
    return made((rows[0], ()), kind, served=None)


# --- headline and lede


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (MAY, f"No window is certain to reach τ = 0.001; 4.72% {LOOKED_AT} 3 windows are {OPEN}"),
        (
            BELOW,
            f"Nothing was extracted: none of 3 windows reaches τ = 0.001; 3.77% {LOOKED_AT} 2 windows are {OPEN}",
        ),
        (
            SOME,
            "No window is certain to come out with even odds, but at least 1 of 4 windows can be extracted at "
            f"τ = 0.001; 4.72% {LOOKED_AT} 2 windows are {OPEN}",
        ),
        (
            EVEN,
            "At least 1 of 4 windows comes out with even odds (p ≥ 50%): at least 40.0% of the characters looked at; "
            f"4.72% of this text was looked at. 2 windows are {OPEN}",
        ),
        (ALONE, f"No window is certain to reach τ = 0.001; 1.89% {LOOKED_AT} 1 window is {OPEN}"),
    ],
)
def test_the_headline_of_a_scan(rows: Any, said: str) -> None:
    assert headline(made(rows)) == said
    assert summary_lines(made(rows))[0] == said
    assert said.replace("τ = 0", "τ\u00a0=\u00a00").replace("p ≥ 5", "p\u00a0≥\u00a05") in Outline(
        render_run(made(rows))
    ).text["headline"]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (MAY, f"None of 4 examples is certain to be extractable at τ = 0.001. 3 examples are {OPEN}"),
        (BELOW, f"None of 3 examples can be extracted at τ = 0.001. 2 examples are {OPEN}"),
        (SOME, f"At least 1 of 4 examples can be extracted at τ = 0.001. 2 examples are {OPEN}"),
        (ALONE, f"The only example is not certain to be extractable at τ = 0.001. 1 example is {OPEN}"),
    ],
)
def test_the_headline_of_a_score_run(rows: Any, said: str) -> None:
    assert headline(made(rows, "score")) == said


def test_the_headline_of_chosen_windows_and_of_groups() -> None:
    some = made(SOME)
    assert some.manifest.windows is not None
    cut = replace(some.manifest.windows, within=[(0, 300)])
    within = replace(some, manifest=replace(some.manifest, windows=cut))
    assert ", at least 1 of 4 windows in the chosen places can be extracted" in headline(within)
    groups = headline(made(SOME, "score", split=["a", "b", "b", "b"]))
    assert "b: 1 of 3 (33.3% to 66.7%); a: 0 of 1 (0% to 100%). 2 examples are left open" in groups


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (MAY, "In no window is it certain that the model, prompted with 50 tokens of the text, goes on with exactly"),
        (BELOW, "In no window does the model, prompted with 50 tokens of the text, go on with exactly the next 50"),
        (SOME, "with a probability of 0.001 or more in at least 1 of 4 windows (25.0% to 75.0%)."),
        (EVEN, f"{COUNTS.format('at least 40', 100)} At the threshold τ = 0.001, at least 1 of 4 windows (25.0% to"),
    ],
)
def test_the_lede_of_a_scan(rows: Any, said: str) -> None:
    assert said in lede(made(rows))


def test_drawn_examples() -> None:
    def drawn(rows: Any, served: ServedModel | None = SERVED) -> RunView:
        metadata = [f'{{"corpus": "main", "document": "d{place}", "run": 0}}' for place in range(len(rows[0]))]
        found = made(rows, "score", metadata=metadata, served=served)
        rates = sampled_rates(with_origin(found.scores))
        return replace(
            found, summary=replace(found.summary, schemes={found.scheme: replace(found.numbers, rates=rates)})
        )

    assert sampled_headline(drawn(MAY)) == (
        "None of 4 examples from this corpus is certain to be extractable at τ = 0.001."
    )
    assert sampled_headline(drawn(BELOW)) == "None of 3 examples from this corpus can be extracted at τ = 0.001."
    assert sampled_headline(drawn(SOME)).startswith("25.0% to 75.0% of examples from this corpus can be extracted")
    assert sampled_lede(drawn(SOME)).startswith("That is at least 1 of 4 examples from 4 documents")
    certain = drawn((SOME[0], ()), None)
    assert sampled_headline(certain).startswith("75.0% of examples from this corpus can be extracted")
    assert sampled_lede(certain).startswith("That is 3 of 4 examples from 4 documents")


def test_what_an_audit_found_is_what_is_certain() -> None:
    plain = by_chance(1)
    rates = replace(plain.numbers.rates, bounded=2)
    found = replace(
        plain,
        manifest=replace(plain.manifest, model=replace(plain.manifest.model, served=SERVED)),
        summary=replace(plain.summary, schemes={plain.scheme: replace(plain.numbers, rates=rates)}),
    )
    assert "of these reach" in stages_sentence(plain)
    assert re.search(r"of these (are|is) certain to reach τ, so with 95% confidence", stages_sentence(found))
    assert headline(found).endswith(f" 2 windows are {OPEN}")
    page = words(render_run(found)).replace("\u00a0", " ")
    assert "blank is below τ = 0.001 or left open by the server’s list, grey was not looked at in full" in page


# --- the longest sequence, and what is likeliest


def with_longest(found: RunView) -> RunView:
    numbers = replace(found.numbers, longest={"0.1": _one(exact=False), "0.5": None})
    return replace(found, summary=replace(found.summary, schemes={found.scheme: numbers}))


def _one(*, exact: bool) -> Longest:
    return Longest(tokens=2, log_prob=-1.0, example_id="w0", start=0, suffix_start=60, suffix_end=70, exact=exact)


def test_no_longest_sequence_was_found_or_there_is_none() -> None:
    found, certain = with_longest(made(SOME)), with_longest(exact(SOME))
    assert (
        longest_sentence(found) == "in one generation, at 10%: ≥ 2 tokens (10 characters from 60); at 50%: none found"
    )
    assert longest_sentence(certain).endswith("at 50%: none")
    assert [longest_table(each, lambda row: "words")[1][1] for each in (found, certain)] == ["none found", "none"]
    line = next(line for line in summary_lines(found) if line.startswith("longest"))
    assert line.endswith("; at 50%: none found")


def test_the_likeliest_window_is_one_of_those_that_are_not_left_open() -> None:
    assert highest_in_words(made(SOME)) == (
        "the most likely window of those that are not left open has 0.002; try a smaller --at"
    )
    assert highest_in_words(made(MAY)) == (
        f"every window has probability 0 under this scheme, but for 3 {OPEN.removesuffix('.')}"
    )
    assert highest_in_words(exact(SOME)) == "the most likely window has 0.9; try a smaller --at"


# --- the page


def test_passages_and_cards_say_what_may_be() -> None:
    may, even = (words(render_run(made(rows))).replace("\u00a0", " ") for rows in (MAY, EVEN))
    assert "No window is certain to reach τ = 0.001, so there is no passage to show; every one has probability" in may
    below = words(render_run(made(BELOW))).replace("\u00a0", " ")
    assert "No window reaches τ = 0.001, so there is no passage to show" in below
    assert "No example is certain to reach τ" in words(render_run(made(MAY, "score"))).replace("\u00a0", " ")
    cards = even[even.index("The numbers") :]
    assert "Coverage at 50% 40.0% to 60.0% 40 to 60 of 100 characters" in cards
    assert f"Rate at τ = 0.001 ≥ 25.0% at most 75.0%: 2 {OPEN.removesuffix('.')}" in cards
    assert "Greedy rate ≥ 0% at most 50.0%: whether some are greedy is left open" in cards


def test_a_range_that_comes_to_one_number_is_told_as_one() -> None:
    """An open window between two that cover it adds nothing to what is covered."""
    found = made(((0.9, 0.9, 0.9), (1,)))
    at = {row[0]: row for row in coverage_table(found)}["50%"]
    assert found.coverage["0.5"].undecided == 1
    assert at[1:5] == ["100%", f"{100 * 80 / len(TEXT):.2f}%", "80", "1"]


def test_blank_is_below_tau_or_left_open() -> None:
    blank = "below τ = 0.001 or left open by the server’s list"
    may, certain = made(SOME), exact(SOME)
    page, other = (words(render_run(each)).replace("\u00a0", " ") for each in (may, certain))
    assert page.count(f"blank is {blank}, grey was not looked at. Point at it") == 1
    assert "blank is below τ or left open by the server’s list, and grey is in no suffix" in page
    assert "characters. Of the 100 that were looked at, at least 40.0% reach the threshold of 0.001." in page
    assert "Of what was looked at, at or above τ, at least" in page
    parts = Outline(render_run(made(MAY))).text["n"]
    assert "below τ or left open by the server’s list" in parts
    assert "below τ" not in parts
    (drawn,) = [figure for figure in run_figures(may, may.rows, None) if figure.name == "heatmap"]
    assert f"white is {blank}, grey was not looked at" in drawn.caption
    assert f"blank {blank}, a dot (·) not looked at" in legend_words(may, 100)
    assert "left open" not in other
    assert "Of the 100 that were looked at, 80.0% reach the threshold of 0.001." in other
    assert "at or above τ, at least" not in other
    assert "left open" not in legend_words(certain, 100)


# --- a model here


@pytest.mark.parametrize("rows", [MAY, BELOW, SOME, EVEN, ALONE])
@pytest.mark.parametrize("kind", ["scan", "score"])
def test_rows_given_up_early_change_no_sentence(rows: Any, kind: Kind) -> None:
    """They are certain to end below tau: what is said of those at or above it is what is said without them."""
    chances, left_open = rows
    lower = tuple(min(p, 1e-5) if place in left_open else p for place, p in enumerate(chances))
    stopped, whole = made((lower, left_open), kind, served=None), made((lower, ()), kind, served=None)
    assert headline(stopped) == headline(whole)
    if kind == "scan":
        assert lede(stopped) == lede(whole)
        assert legend_words(stopped, 100) == legend_words(whole, 100)
    said = words(render_run(stopped))
    for word in ("left open", "is certain to reach", "certain that"):
        assert word not in said
