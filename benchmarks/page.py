"""How large a book's page is, how soon it shows, and whether it scrolls without a hitch, in headless Chromium.

    python -m benchmarks.page [--characters 1000000] [--near] [--keep FOLDER]

A run over real text (the training books, end to end, as often as it takes), cut into real windows every ten characters
by the bundled tokenizer; the probabilities are made up: they rise and fall along the text. Its page is written as any
run's is. Chromium opens it from disk, offline. First paint is what the browser itself reports. Then the page and the
text are scrolled from end to end while the browser's own trace is taken; the longest task on the main thread counts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rote.corpus.windows import Windows, windows
from rote.extraction.verbatim import Verbatim
from rote.jobs.open import Run
from rote.models.base import ModelIdentity
from rote.models.tokenizer import load_tokenizer
from rote.scheme import Scheme
from rote.store.files import FORMAT, digest, now
from rote.store.manifest import Manifest, NearSearch, ScannedWindows, Source, made_with
from rote.store.run import add_shard, begin, finish
from rote.store.table import CandidateColumns, NearColumns, ShardFacts
from rote.tokens import Example

BOOKS = Path(__file__).parent.parent / "training" / "data" / "books"
SHARD = 4096
NEAR = NearSearch(
    distance="levenshtein", tolerance=5, eos="stop", method="fork", budget=400, gap=0.001, until="worthwhile",
    variant="closing", width=20, samples=None, seed=0, memory_positions=0,
)  # fmt: skip
MODEL = ModelIdentity(
    name="made up", revision=None, fingerprint="0" * 32, parameters=1, dtype="float32", device="cpu", compiled=False,
    tokenizer="0" * 32, bos="auto", bos_token=0, bos_text="<bos>", trust_remote_code=False, hashed="sampled",
)  # fmt: skip


def text_of(characters: int) -> str:
    books = "".join(path.read_text(encoding="utf-8") for path in sorted(BOOKS.glob("*.txt")))
    return (books * math.ceil(characters / len(books)))[:characters]


def make_run(folder: Path, text: str, tokenizer: Any, *, near: bool, seed: int = 0) -> Run:
    """A finished run folder with made-up probabilities."""
    examples = windows(text, tokenizer, Windows(stride=10))
    manifest = Manifest(
        format=FORMAT, kind="scan", created=now(), model=MODEL,
        source=Source(name="books.txt", sha256=digest(text), characters=len(text)),
        windows=ScannedWindows(prefix=50, suffix=50, stride=10, unit="tokens"), dropped=0,
        schemes=[str(Scheme())], tau=0.001, stop_early=False, batch_size="auto", batch_tokens=None,
        near=NEAR if near else None, logit_tolerance=0.0005, shard_examples=SHARD,
        shards=math.ceil(len(examples) / SHARD), versions=made_with(),
    )  # fmt: skip
    begin(folder, manifest, content={"text.txt": text.encode()})
    random = np.random.default_rng(seed)
    for index in range(math.ceil(len(examples) / SHARD)):
        part = examples[index * SHARD : (index + 1) * SHARD]
        results = [_scored(example, len(text), random) for example in part]
        extra = [_near(example, found, text) for example, found in zip(part, results, strict=True)] if near else []
        add_shard(folder, index, part, results, ShardFacts(seconds=1.0, warnings=[]), extra)
    run = Run(folder)
    finish(folder, run.summed_up())
    return run


def _scored(example: Example, length: int, random: np.random.Generator) -> Verbatim:
    at = (example.start or 0) / length
    wave = math.sin(at * 211.0) + math.sin(at * 37.0)  # a few slow waves: known and unknown stretches take turns
    loss = math.exp(-2.0 - 2.5 * wave) * random.exponential(size=len(example.suffix))
    tokens = (-loss).astype(np.float32)
    ranks = 1 + random.geometric(np.exp(-loss).clip(0.02, 1.0)).astype(np.int32) - 1
    zeros = np.zeros(len(tokens), np.float32)
    log_prob = float(tokens.sum(dtype=np.float64))
    return Verbatim(example.id, Scheme(), log_prob, bool((ranks == 1).all()), False, tokens, tokens, ranks, zeros, 99)


def _near(example: Example, found: Verbatim, text: str) -> NearColumns:
    lower = [math.exp(found.log_prob) ** (1 / (1 + k / 5)) for k in range(6)]
    words = text[example.suffix_start : example.suffix_end].split(" ")
    outputs = [
        CandidateColumns(
            tokens=example.suffix, text=" ".join(words[:k] + words[k + 1 :]), log_prob=found.log_prob - k,
            set_log_prob=None, distance=1,
        )
        for k in range(min(5, len(words)))
    ]  # fmt: skip
    return NearColumns(
        lower=lower[-1], upper=1.0, lower_by_tolerance=lower, upper_by_tolerance=[1.0] * 6,
        verdict="extractable" if lower[-1] >= 0.001 else "undecided", near_token_evals=99, eos_mass=0.0, estimate=None,
        estimate_error=None, candidates=outputs, greedy_distance=None,
    )  # fmt: skip


def look(page_file: Path) -> dict[str, float]:
    """First paint, time until the script is done, and the longest tasks while opening and while scrolling."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.context.set_offline(True)
        with tracing(page) as opening:
            page.goto(page_file.as_uri(), wait_until="commit", timeout=60_000)
            began = time.perf_counter()
            page.wait_for_selector("html[data-ready=yes]", timeout=120_000)
            ready = time.perf_counter() - began
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
        with tracing(page) as scrolling:
            for step in range(60):
                page.mouse.move(640, 450)
                page.evaluate("k => scrollTo(0, k * document.documentElement.scrollHeight / 60)", step)
                page.wait_for_timeout(50)
            page.evaluate("document.getElementById('reader').scrollIntoView()")
            for step in range(120):
                page.evaluate(
                    "k => { const t = document.getElementById('page-text'); t.scrollTop = k * t.scrollHeight / 120; }",
                    step,
                )
                page.wait_for_timeout(50)
            box = page.locator("#page-text").bounding_box()
            assert box is not None
            page.mouse.move(box["x"] + 50, box["y"] + 50)
            for _ in range(100):
                page.mouse.wheel(0, 400)
                page.wait_for_timeout(20)
        began = time.perf_counter()
        page.fill("#reader-go", "500")
        page.press("#reader-go", "Enter")
        page.wait_for_selector("#passage-panel .facts")
        chosen = time.perf_counter() - began
        browser.close()
    return {
        "first paint, s": paint, "ready, s": ready, "longest task, opening, ms": max(opening),
        "longest task, scrolling, ms": max(scrolling), "tasks while scrolling": float(len(scrolling)),
        "a passage chosen, s": chosen,
    }  # fmt: skip


@contextmanager
def tracing(page: Any) -> Iterator[list[float]]:
    """The lengths in milliseconds of all tasks of the page's main thread while the block runs."""
    found: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        categories = ["toplevel", "disabled-by-default-devtools.timeline", "devtools.timeline"]
        page.context.browser.start_tracing(page=page, path=path, categories=categories)
        yield found
        page.context.browser.stop_tracing()
        events = json.loads(path.read_text())["traceEvents"]
        mains = {(e["pid"], e["tid"]) for e in events
                 if e.get("name") == "thread_name" and e["args"]["name"] == "CrRendererMain"}  # fmt: skip
        found += [e["dur"] / 1000 for e in events
                  if e.get("name") == "RunTask" and (e["pid"], e["tid"]) in mains and "dur" in e]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--characters", type=int, default=1_000_000)
    parser.add_argument("--near", action="store_true")
    parser.add_argument("--keep", type=Path, help="keep the run folder here")
    arguments = parser.parse_args()
    os.environ.setdefault("TQDM_DISABLE", "1")
    tokenizer = load_tokenizer("bundled")
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch) / "run"
        if (folder / "summary.json").is_file():
            run = Run.open(folder)
        else:
            run = make_run(folder, text_of(arguments.characters), tokenizer, near=arguments.near)
        began = time.perf_counter()
        page = run.report()
        written = time.perf_counter() - began
        rows = {
            "characters": len(run.text or ""), "windows": run.summary.examples,
            "page, MB": page.stat().st_size / 1e6, "written in, s": written, **look(page),
        }  # fmt: skip
    print("| what | value |\n|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value:,.2f} |" if isinstance(value, float) else f"| {name} | {value:,} |")


if __name__ == "__main__":
    main()
