"""The page of a served model's run in a real browser: what a list leaves open is called neither certain nor nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from rote.models.base import ServedModel
from rote.report.page.run import render_run
from rote.store.run import RunView
from tests.report.page.browser import browser, opened
from tests.report.page.test_run import run, table

__all__ = ["browser"]

SERVED = ServedModel(url="http://localhost/v1", protocol="test", listed=3)
SPANS = [(0, 500), (500, 1000), (1000, 1500), (1500, 2000)]
# One window that may come out, one that does, and two that do not.
LOG_PROBS = [math.log(0.9), math.log(0.5), -12.0, -math.inf]
BOUNDED, GREEDY = [True, False, False, False], [None, True, False, False]


def made(bounded: list[bool], greedy: list[bool | None], log_probs: list[float], served: ServedModel | None) -> RunView:
    return run(table(log_probs, spans=SPANS, bounded=bounded, greedy=greedy), served=served)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    runs = {
        "served": made(BOUNDED, GREEDY, LOG_PROBS, SERVED),
        "told": made([False] * 4, [True, True, False, False], LOG_PROBS, SERVED),
        "stopped": made(BOUNDED, [False, *GREEDY[1:]], [-9.0, *LOG_PROBS[1:]], None),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, each in runs.items():
        (folder / f"{name}.html").write_text(render_run(each), "utf-8")
    return {name: folder / f"{name}.html" for name in runs}


@pytest.fixture
def page(browser: Any, pages: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Any]:
    with opened(browser, pages[request.param], viewport={"width": 1280, "height": 900}) as found:
        found.wait_for_selector("html[data-ready=yes]")
        found.wait_for_selector("#lanes[data-drawn]")
        yield found


SAID = {
    "served": ["not certain to reach τ", "up to 0.5 for certain", "not certain to reach τ", "not certain to reach τ"],
    "told": ["up to 0.9", "up to 0.5", "up to 6.1e-06", "up to 0"],
    "stopped": ["below τ", "up to 0.5", "below τ", "below τ"],
}


@pytest.mark.parametrize("page", SAID, indirect=True)
def test_what_the_strip_says_of_a_place(page: Any, request: pytest.FixtureRequest) -> None:
    box, said = page.locator(".lane canvas").bounding_box(), []
    outer = page.locator("#lanes").bounding_box()
    for start, end in SPANS:
        x = box["x"] - outer["x"] + box["width"] * (start + end) / 2 / 2120
        page.locator("#lanes").hover(position={"x": x, "y": 10})
        said.append(page.inner_text("#strip-now").rpartition(" of the text: ")[2])
    assert said == SAID[request.node.callspec.params["page"]]


@pytest.mark.parametrize("page", ["served"], indirect=True)
def test_a_greedy_that_is_not_told_is_empty_in_the_tables(page: Any, tmp_path: Path) -> None:
    for kind, read in (("csv", pl.read_csv), ("parquet", pl.read_parquet)):
        with page.expect_download() as started:
            page.click(f"[data-download={kind}]")
        started.value.save_as(tmp_path / f"table.{kind}")
        assert read(tmp_path / f"table.{kind}")["greedy"].to_list() == GREEDY, kind
