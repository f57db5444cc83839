"""The page of membership scores, made by hand, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rote
from tests.report.members import membership
from tests.report.page.browser import browser, opened, serious_faults
from tests.report.page.pagetruth import MemberTruth
from tests.report.test_keys import page_of, problems, problems_of_plots

__all__ = ["browser"]

NASTY = (
    "<script>window.hacked = 1</script>", "a\0b\x1b[31m \u202eturned 7", "x" * 3000, "שלום 7", "=cmd()",
    'p_z at τ = 5 "/\' &amp;',
)  # fmt: skip
CONTENTS = (
    '<img src=x onerror="window.hacked = 2"> & "quoted"\r\nlines',
    "nul \0 esc \x1b[31m \u202e turned\u202c end\r alone", "שלום עולם", "word " * 700 + "end",
)  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "whole": {"texts": 240, "held_out": 150, "extract": True, "reference": True},
    "confounded": {"blind": "all", "blind_p": 0.004},
    "nasty": {"ids": NASTY, "contents": CONTENTS, "blind": "part", "combined": 31},
    "unlabelled": {"labels": False, "p": 0.4},
    "alone": {"labels": False, "held_out": 0, "quick": True},
}


@pytest.fixture(scope="module")
def path_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root, made = tmp_path_factory.mktemp("members"), {}

    def path(kind: str) -> Path:
        if kind not in made:
            made[kind] = rote.open(membership(root / kind, **KINDS[kind]).folder).report()
        return made[kind]

    return path


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_has_a_key_and_is_what_the_folder_holds(
    browser: Any, path_of: Callable[[str], Path], kind: str
) -> None:
    path = path_of(kind)
    truth = MemberTruth(path.parent)
    with page_of(browser, path) as page:
        assert problems(page, truth) == []
        assert page.locator("[data-key]").count() > 100
        assert problems_of_plots(page, truth) == set()
        assert page.evaluate("window.hacked === undefined")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_by_all(browser: Any, path_of: Callable[[str], Path], scheme: str) -> None:
    with opened(browser, path_of("nasty"), viewport={"width": 1280, "height": 900}, color_scheme=scheme) as page:
        page.wait_for_selector("html[data-ready=yes]")
        assert serious_faults(page, scheme) == []


def test_nothing_hangs_over_on_a_telephone(browser: Any, path_of: Callable[[str], Path]) -> None:
    with opened(browser, path_of("nasty"), viewport={"width": 390, "height": 800}) as page:
        page.wait_for_selector("html[data-ready=yes]")
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_texts_can_be_sorted_and_found(browser: Any, path_of: Callable[[str], Path]) -> None:
    with page_of(browser, path_of("whole")) as page:
        cells = "section.texts tbody tr:not([hidden]) > :nth-child({})"
        losses = page.eval_on_selector_all(cells.format(7), "all => all.map((e) => Number(e.textContent))")
        assert losses == sorted(losses)
        assert len(losses) == 300
        page.click("section.texts th:nth-child(6) button")
        tokens = page.eval_on_selector_all(cells.format(6), "all => all.map((e) => Number(e.textContent))")
        assert tokens == sorted(tokens, reverse=True)
        page.fill("section.texts input[type=search]", "t182")
        assert page.eval_on_selector_all(cells.format(1), "all => all.map((e) => e.textContent)") == ["t182"]


def test_a_text_is_shown_whole_and_shaded_by_its_own_numbers(browser: Any, path_of: Callable[[str], Path]) -> None:
    truth = MemberTruth(path_of("nasty").parent)
    texts = {place: text.text for place, text in enumerate(truth.stored.texts)}
    with page_of(browser, path_of("nasty")) as page:
        shown = page.evaluate(
            """() => [...document.querySelectorAll("article.shaded")].map((one) => [Number(one.id.slice(5)),
              [...one.querySelector(".block").childNodes].map((e) => [e.textContent, e.className ?? "", e.title])])"""
        )
    assert sorted(place for place, _ in shown) == sorted(texts)
    for place, pieces in shown:
        row = truth.rows[place]
        whole = "".join(text for text, _, _ in pieces)
        if row["tokens"] > 500:
            assert whole == texts[place][: row["token_ends"][499]] + "…"
        else:
            assert len(whole) == len(texts[place])
        spans = [piece for piece in pieces if piece[1]]
        assert len(spans) == min(row["tokens"], 500)
        for number, (_, level, title) in enumerate(spans):
            surprise = -row["token_log_probs"][number]
            assert level == f"u{min(9, int(surprise))}"
            assert title == f"token {number + 1}: {surprise:.2f}"


def test_a_page_of_thousands_of_texts_stays_small(tmp_path: Path) -> None:
    page = rote.open(membership(tmp_path / "run", texts=1500, held_out=500, shard=1000).folder).report()
    html = page.read_text("utf-8")
    assert len(html) < 1_500_000
    assert html.count('<article class="shaded"') == 60
    words = re.sub(r"<[^>]*>", "", html)
    assert "The first 300 of 2,000, the likeliest members by " in words
    assert "`rote export` writes all" in words
    assert "60 of 2,000 texts: a third each" in words
