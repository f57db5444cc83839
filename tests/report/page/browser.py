"""A real Chromium for tests: without a network, and any error on a page fails the test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from rote.report.figures.figure import Figure
from rote.report.page.layout import SCRIPTS, _drawn, _plot, environment, script_hash

playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright found: install Rote with its dev extra")
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="no axe found: install Rote with its dev extra"
)

SERIOUS = ("serious", "critical")

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip


def chromium() -> str:
    """The browser's program; the test is skipped where there is none."""
    named = os.environ.get("ROTE_CHROMIUM")
    if named:
        found = shutil.which(named)
        if found is None:
            pytest.fail(f"ROTE_CHROMIUM names {named}, which is no program.")
        return found
    for name in NAMES:
        if found := shutil.which(name):
            return found
    pytest.skip(f"no Chromium found: none of {', '.join(NAMES)} is on the PATH and ROTE_CHROMIUM is not set")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests of a file."""
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        yield running
        running.close()


@contextmanager
def opened(browser: Any, path: Path, **context: Any) -> Iterator[Any]:
    """The file in a page of its own. At the end the page must have said no error and asked for nothing but itself.

    `context`: options of a browser context, such as `viewport` or `color_scheme`.
    """
    wrong: list[str] = []
    address = path.resolve().as_uri()
    own = browser.new_context(**context)
    try:
        own.set_offline(True)
        own.route(lambda url: not url.startswith("file:"), lambda route: route.abort())
        page = own.new_page()
        page.on("console", lambda said: wrong.append(f"console: {said.text}") if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "request", lambda one: wrong.append(f"request: {one.url}") if one.url.partition("#")[0] != address else None
        )
        page.goto(address)
        yield page
        page.wait_for_timeout(0)  # lets what happened last be said
        assert not wrong, wrong
    finally:
        own.close()


def serious_faults(page: Any, scheme: str) -> list[tuple[str, list[str]]]:
    """What axe finds seriously wrong: by every rule in the light; in the dark by contrast, which may differ there."""
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if scheme == "dark":
        options["runOnly"] = ["color-contrast"]
    found = axe.Axe().run(page, options=options)
    serious = [v for v in found.response["violations"] if v["impact"] in SERIOUS]
    return [(v["id"], [node["html"] for node in v["nodes"]][:3]) for v in serious]


PAGE = """{% extends "base.html.j2" %}{% import "macros.html.j2" as page %}
{% block title %}plots{% endblock %}
{% block content %}<h1>Plots</h1><section aria-labelledby="numbers"><h2 id="numbers">Plots</h2>
{% for plot in plots %}{{ page.plot(plot) }}{% endfor %}{{ body }}</section>{% endblock %}"""

START = """
const given = page.runs.map((run) => ({
  ...run,
  log_prob: Float64Array.from(run.log_prob, (value) => value ?? -Infinity),
  flags: Uint8Array.from(run.flags),
}));
drawFigures(JSON.parse(document.getElementById("rote-figures").textContent), given);
enhanceTables();
window.parts = { sharesAt, chanceAt, runs: given, GENERATIONS, ticksOf, scaled, wrapped };
"""


def plot_page(path: Path, figures: Sequence[Figure], runs: Sequence[Mapping[str, Any]] = (), body: str = "") -> Path:
    """A page of plots alone, under the base and the script of every page. `body`: HTML that goes below them.

    Of a run: `key`, `name`, `log_prob` (None: of 0) and `flags`.
    """
    folder = files("rote.report.page") / "templates" / "page"
    parts = [(folder / f"{name}.js").read_text("utf-8") for name in SCRIPTS if name != "start"]
    code = '(() => {\n"use strict";\n' + "\n".join([*parts, START]) + "})();\n"
    html = (
        environment()
        .from_string(PAGE)
        .render(
            script=Markup(code),
            script_hash=script_hash(code),
            data={"tau": 0.001, "length": None, "unit": "window", "runs": list(runs)},
            blobs={},
            figures={figure.name: _drawn(figure) for figure in figures},
            plots=[_plot(figure) for figure in figures],
            body=Markup(body),
        )
    )
    path.write_text(html, encoding="utf-8")
    return path
