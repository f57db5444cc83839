"""A real Chromium for tests: without a network, and any error on a page fails the test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright found: install Rote with its dev extra")

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
