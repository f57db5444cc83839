"""The pictures of the README and the guides, taken of real reports in headless Chromium.

    rote scan --out runs/alice-bundled
    rote scan --stride 30 --temperature 1.8 --top-k 0 --out runs/alice-hot
    python docs/screenshots.py runs/alice-bundled runs/alice-hot

The second run draws from the whole vocabulary at a high temperature, so that even a text that the model knows by heart
comes out with all sorts of probabilities. Needs the dev extra, and a Chromium on the PATH.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parent / "images"
WIDTH = 1100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundled", type=Path, help="the run folder of a plain rote scan")
    parser.add_argument("hot", type=Path, help="the run folder of the scan at a high temperature")
    arguments = parser.parse_args()

    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("no Chromium found: install one, such as Debian's package chromium.")
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        top(opened(browser, arguments.bundled, height=860))
        reader(opened(browser, arguments.hot, height=1000))
        curve(opened(browser, arguments.hot, height=720, dark=True))
        browser.close()


def opened(browser: Any, run: Path, *, height: int, dark: bool = False) -> Any:
    scheme = "dark" if dark else "light"
    page = browser.new_page(viewport={"width": WIDTH, "height": height}, color_scheme=scheme)
    page.goto((run / "report.html").resolve().as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    page.wait_for_timeout(500)
    return page


def top(page: Any) -> None:
    """What a person sees first."""
    page.screenshot(path=IMAGES / "report.png")


def reader(page: Any) -> None:
    """The strip and the text, with a passage chosen."""
    page.fill("#reader-go", "28400")
    page.press("#reader-go", "Enter")
    page.wait_for_selector("#passage-panel .facts")
    page.evaluate("document.activeElement.blur(); document.getElementById('where').scrollIntoView()")
    page.wait_for_timeout(500)
    page.screenshot(path=IMAGES / "text.png")


def curve(page: Any) -> None:
    """The curve of how many prompts it takes, at night."""
    page.evaluate("document.getElementById('figure-prompts').scrollIntoView()")
    page.wait_for_timeout(800)
    page.screenshot(path=IMAGES / "prompts.png")


if __name__ == "__main__":
    main()
