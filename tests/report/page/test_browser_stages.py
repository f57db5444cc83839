"""The page of a scan in stages in a real browser: what was left out is grey, and said to be left out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rote.analysis.coverage import along_text
from rote.report.page.run import render_run
from rote.report.text.strip import LEVELS
from rote.store.run import RunView
from tests.report.page.browser import browser, opened
from tests.report.stages import by_chance, colours

__all__ = ["browser"]

SHADES = """async () => {
    const found = [];
    for (const block of document.getElementById("page-text").children) {
        block.scrollIntoView();
        await new Promise((done) => setTimeout(done, 30));
        for (const node of block.childNodes) {
            for (const _ of node.textContent) found.push(node.nodeType === 3 ? "" : node.className);
        }
    }
    return found;
}"""
CELLS = """() => {
    const canvas = document.querySelector(".lane canvas");
    const paint = document.createElement("canvas").getContext("2d");
    const names = ["--unseen", ...Array.from({ length: 12 }, (_, level) => `--h${level}`)];
    const known = new Map(names.map((name) => {
        paint.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
        paint.fillRect(0, 0, 1, 1);
        return [String(paint.getImageData(0, 0, 1, 1).data), name];
    }));
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, 1).data;
    return Array.from({ length: canvas.width }, (_, x) => {
        const own = pixels.slice(4 * x, 4 * x + 4);
        return own[3] === 0 ? "" : known.get(String(own)) ?? "unknown";
    });
}"""


@pytest.fixture(scope="module", params=["audited", "begun"])
def run(request: pytest.FixtureRequest) -> RunView:
    return by_chance(1, audited=request.param == "audited")


@pytest.fixture(scope="module")
def path(run: RunView, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page") / "report.html"
    made.write_text(render_run(run), "utf-8")
    return made


@pytest.fixture
def page(browser: Any, path: Path) -> Iterator[Any]:
    with opened(browser, path, viewport={"width": 1280, "height": 900}) as found:
        found.wait_for_selector("html[data-ready=yes]")
        found.wait_for_selector("#lanes[data-drawn]")
        yield found


def shade(log_prob: float | None, run: RunView) -> str:
    floor = math.log(run.summary.tau)
    if log_prob is None:
        return "unseen"
    return f"t{min(int(LEVELS * (1 - log_prob / floor)), LEVELS - 1)}" if log_prob >= floor else ""


def test_characters_are_grey_where_python_does_not_look(page: Any, run: RunView) -> None:
    expected = colours(run)
    best = along_text(run.rows, run.rows["log_prob"], run.length, left_out=run.left_out, tau=run.summary.tau)
    assert [None if math.isnan(value) else value for value in best.tolist()] == expected
    shown = page.evaluate(SHADES)
    assert shown == [shade(value, run) for value in expected]
    assert {"unseen", ""} < set(shown)  # grey, blank and colours


def test_the_strip_is_grey_where_all_of_a_place_is(page: Any, run: RunView) -> None:
    cells = page.evaluate(CELLS)
    best = np.array([math.nan if value is None else value for value in colours(run)])
    edges = [i * run.length // len(cells) for i in range(len(cells) + 1)]
    with np.errstate(invalid="ignore"):
        highest = [np.fmax.reduce(best[start:end]) for start, end in pairwise(edges)]
    expected = [shade(None if math.isnan(value) else float(value), run) for value in highest]
    names = {"unseen": "--unseen", "": ""} | {f"t{level}": f"--h{level}" for level in range(LEVELS)}
    assert cells == [names[one] for one in expected]


def test_what_was_left_out_is_said_where_it_was(page: Any, run: RunView) -> None:
    assert run.left_out is not None
    gone = run.left_out.select("suffix_start", "suffix_end").rows()
    lanes = page.locator("#lanes")
    box = page.locator(".lane canvas").bounding_box()
    said = set()
    for x in range(5, int(box["width"]) - 5, 60):
        lanes.hover(position={"x": x + box["x"] - lanes.bounding_box()["x"], "y": 10})
        told = page.inner_text("#strip-now")
        start, end = span(told)
        partly = any(first < end and last > start for first, last in gone)
        assert told.endswith("some were left out") == partly, told
        said.add(partly)
    assert said == {True, False}
    legend, caption = page.inner_text(".legend"), page.inner_text("#strips figcaption")
    assert "not looked at in full" in legend
    assert "grey was not looked at in full" in caption


def span(told: str) -> tuple[int, int]:
    """Which characters the line above the strip is about."""
    words = told.split()
    return int(words[1].replace(",", "")), int(words[3].rstrip(",").replace(",", ""))


def test_clicking_on_grey_opens_the_window_that_was_scored_there(page: Any, run: RunView) -> None:
    grey = colours(run).index(None, 200)
    rows = [row for row in run.rows.rows(named=True) if row["suffix_start"] <= grey < row["suffix_end"]]
    page.fill("#reader-go", str(grey))
    page.press("#reader-go", "Enter")
    page.wait_for_selector("#passage-panel h3")
    best = max(rows, key=lambda row: row["log_prob"])
    title = f"Characters {best['suffix_start']:,} to {best['suffix_end']:,}"
    assert page.inner_text("#passage-panel h3") == title


def test_the_page_says_how_much_was_looked_at(page: Any, run: RunView) -> None:
    staged, audit = run.summary.staged, run.numbers.audit
    assert staged is not None
    assert audit is not None
    lede = page.inner_text(".lede")
    method = page.inner_text("section[aria-labelledby=method]")
    assert f"Of {staged.windows} windows" in lede
    assert f"{staged.scored} of {staged.windows} windows, in {staged.ended} of {staged.stages} stages" in method
    if audit.drawn:
        assert f"{audit.drawn} were drawn at random and scored as an audit" in lede
    else:
        assert f"{staged.ended} of {staged.stages} stages have ended" in lede
    cards = page.locator(".card").all_inner_texts()
    for card in (card for card in cards if card.startswith(("Rate at", "Coverage at"))):
        assert "≥" in card
