"""The page of probes, made by hand, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rote
from rote.report.page.answers import marked_words
from tests.report.page.browser import browser, opened, serious_faults
from tests.report.page.pagetruth import ProbeTruth
from tests.report.page.truth import visible
from tests.report.probes import probe
from tests.report.test_keys import page_of, problems, problems_of_plots

__all__ = ["browser"]

NASTY = (
    "<script>window.hacked = 1</script>", "a\0b\x1b[31m \u202eturned 7", "x" * 3000, "שלום 7", "=cmd()",
    'p_z at τ = 5 "/\' &amp;',
)  # fmt: skip
CONTENTS = (
    '<img src=x onerror="window.hacked = 2"> & "quoted"\r\nlines Maren counted seventeen lanterns',
    "nul \0 esc \x1b[31m \u202e turned\u202c end\r alone Tobias watched 7 harbours", "שלום עולם 7 ספינות",
    "harbour " * 700,
)  # fmt: skip
ANSWERS = (
    "<script>window.hacked = 3</script>", '"><img src=x onerror="window.hacked = 4">',
    "\u202eturned 7\u202c nul \0 esc \x1b[31m",
    "x" * 1_000_000, "</code></td></table></details><b>7", "\ufdd0\ufdd1\ufdd2 marks 7", "Я не знаю этого слова, 7",
)  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "whole": {"warnings": ["2 words were not asked for."], "membership": True},
    "nasty": {"ids": NASTY, "contents": CONTENTS, "answers": ANSWERS, "texts": 12, "unfiltered": True},
    "few": {"contents": CONTENTS[:1], "answers": ANSWERS[:3], "texts": 2},
    "unlabelled": {"labels": False, "hits": None, "local": True, "targets": 3},
    "single": {"methods": ("cloze",), "targets": 1, "filters": 0, "reference": "causal", "texts": 70},
    "decop": {"methods": ("decop",), "targets": 1, "texts": 8},
    "prefix": {"methods": ("prefix",), "targets": 5, "labels": False, "texts": 8},
}


@pytest.fixture(scope="module")
def path_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root, made = tmp_path_factory.mktemp("probes"), {}

    def path(kind: str) -> Path:
        if kind not in made:
            made[kind] = rote.open(probe(root / kind, **KINDS[kind]).folder).report()
        return made[kind]

    return path


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "few"])
def test_every_number_has_a_key_and_is_what_the_folder_holds(
    browser: Any, path_of: Callable[[str], Path], kind: str
) -> None:
    path = path_of(kind)
    truth = ProbeTruth(path.parent)
    with page_of(browser, path) as page:
        assert problems(page, truth) == []
        assert page.locator("[data-key]").count() > 60
        if kind != "prefix":  # which has no hit rates
            assert problems_of_plots(page, truth) == set()
        assert page.evaluate("window.hacked === undefined")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_by_all(browser: Any, path_of: Callable[[str], Path], scheme: str) -> None:
    with opened(browser, path_of("few"), viewport={"width": 1280, "height": 900}, color_scheme=scheme) as page:
        page.wait_for_selector("html[data-ready=yes]")
        page.focus("a.asked:visible")
        page.evaluate("for (const one of document.querySelectorAll('.probed details')) one.open = true")
        assert serious_faults(page, scheme) == []


@pytest.mark.parametrize("kind", ["nasty", "whole"])
def test_nothing_hangs_over_on_a_telephone(browser: Any, path_of: Callable[[str], Path], kind: str) -> None:
    with opened(browser, path_of(kind), viewport={"width": 390, "height": 800}) as page:
        page.wait_for_selector("html[data-ready=yes]")
        page.focus("a.asked:visible")
        page.evaluate("for (const one of document.querySelectorAll('.probed details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


WORDS = """() => [...document.querySelectorAll("article.probed")].map((one) => [Number(one.id.slice(8)),
  [...one.querySelectorAll("[data-target]")].map((own) => [Number(own.dataset.target),
    [...own.querySelectorAll(".block > *")].map((e) => [e.firstChild.textContent, e.className, e.dataset.answer]),
    [...(own.querySelector(".block")?.childNodes ?? [])].map((e) => (e.firstChild ?? e).textContent).join("")])])"""


def test_every_word_stands_in_its_place_with_its_own_outcome(browser: Any, path_of: Callable[[str], Path]) -> None:
    for kind in ("whole", "nasty"):
        truth = ProbeTruth(path_of(kind).parent)
        with page_of(browser, path_of(kind)) as page:
            shown = page.evaluate(WORDS)
        assert sorted(place for place, _ in shown) == list(range(len(truth.texts)))
        states = set()
        for place, targets in shown:
            text = truth.texts[place]
            for target, words, whole in targets:
                expected = []
                for row in sorted(
                    (one for one in truth.tables["chosen"] if one["text"] == text.id), key=lambda one: one["start"]
                ):
                    answers = [
                        one["outcome"]
                        for one in truth.tables["questions"]
                        if (one["role"], one["model"], one["text"]) == ("target", target, text.id)
                        and one["start"] == row["start"]
                    ]
                    if row["end"] <= 4000 and (answers or row["guessed"]):
                        expected.append(
                            (visible(text.text)[row["start"] : row["end"]], answers[0] if answers else "dropped")
                        )
                assert [(word, state.removeprefix("asked ")) for word, state, _ in words] == expected
                states |= {state for _, state in expected}
                if expected:
                    assert whole.removesuffix("…") == visible(text.text)[:4000]
        assert states >= {"hit", "miss", "refusal", "empty", "malformed", "error"}
        assert ("dropped" in states) == (kind == "whole")


def test_a_word_tells_its_answer(browser: Any, path_of: Callable[[str], Path]) -> None:
    truth = ProbeTruth(path_of("nasty").parent)
    with page_of(browser, path_of("nasty")) as page:
        heard = set()
        for word in page.locator("#passage-0 a.asked:visible, #passage-1 a.asked:visible").all():
            word.focus()
            tip = page.locator(".answer-tip")
            assert tip.is_visible()
            heard.add(tip.inner_text())
            place, target, row = (word.get_attribute("data-answer") or "").split("-")
            own = truth.tables["chosen"][int(row)]
            assert truth.texts[int(place)].id == own["text"]
            (asked, *_) = (
                one["answer"]
                for one in truth.tables["questions"]
                if (one["role"], one["model"], one["text"]) == ("target", int(target), own["text"])
                and one["start"] == own["start"]
            )
            told = tip.locator("dd").all_text_contents()
            assert visible(own["word"]) == told[0].strip()
            if asked.strip():
                assert visible(asked[:300]) in told[2]
        assert any("1,000,000 characters in all" in one for one in heard)
        page.keyboard.press("Escape")
        assert not page.locator(".answer-tip").is_visible()
        assert problems(page, truth) == []


def test_passages_are_found_by_model_flag_label_and_outcome(browser: Any, path_of: Callable[[str], Path]) -> None:
    truth = ProbeTruth(path_of("whole").parent)
    flagged = [
        {row["text"] for row in truth.tables["verdicts"] if row["flagged"] and row["target"] == t} for t in (0, 1)
    ]
    with page_of(browser, path_of("whole")) as page:

        def left() -> set[str]:
            places = page.eval_on_selector_all(
                "article.probed:not([hidden])", "all => all.map((e) => Number(e.id.slice(8)))"
            )
            return {truth.texts[place].id for place in places}

        assert left() == {text.id for text in truth.texts}
        page.select_option("[data-probe=flagged]", "yes")
        assert left() == flagged[0]
        page.select_option("[data-probe=target]", "1")
        assert left() == flagged[1]
        assert page.locator("[data-target='0']:visible").count() == 0
        page.select_option("[data-probe=label]", "member")
        assert left() == {text.id for text in truth.texts if text.label} & flagged[1]
        page.select_option("[data-probe=flagged]", "")
        page.select_option("[data-probe=label]", "")
        page.select_option("[data-probe=outcome]", "refusal")
        refused = {
            row["text"]
            for row in truth.tables["questions"]
            if (row["role"], row["model"], row["outcome"]) == ("target", 1, "refusal")
        }
        assert left() <= refused
        assert left()
        assert page.locator("[data-probe-count]").inner_text() == f"{len(left())} of 40 shown"


def test_every_prompt_and_the_rule_stand_in_full(browser: Any, path_of: Callable[[str], Path]) -> None:
    manifest = ProbeTruth(path_of("whole").parent).files["manifest"]
    with page_of(browser, path_of("whole")) as page:
        said = page.eval_on_selector_all(".prompt", "all => all.map((e) => e.textContent)")
        assert said == list(manifest["prompts"].values())
        assert manifest["rule"] in page.inner_text(".rule")


def test_a_page_of_thousands_of_passages_stays_small(tmp_path: Path) -> None:
    made = probe(tmp_path / "run", texts=2000, methods=("cloze",), targets=1, filters=0, select=("prob",))
    html = rote.open(made.folder).report().read_text("utf-8")
    assert len(html) < 1_500_000
    assert html.count('<article class="probed"') == 60
    words = re.sub(r"<[^>]*>", "", html)
    assert "The first 300 of 2,000, those with the most by Probability first" in words
    assert "60 of 2,000 passages: a third each" in words


def test_words_in_common_are_marked_in_both() -> None:
    left, right = marked_words("The old clock struck, and nobody moved.", "the OLD man; nobody spoke")
    assert left == [(True, "The old "), (False, "clock struck, and "), (True, "nobody "), (False, "moved.")]
    assert right == [(True, "the OLD "), (False, "man; "), (True, "nobody "), (False, "spoke")]
    assert marked_words("", "some words") == ([], [(False, "some words")])
