"""The pages of comparisons, sweeps and reconstructions in a real browser."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest

import rote
from rote import Example, Run
from rote.corpus.bench import Guess, write_guesses
from rote.report.text import numbers
from tests.conftest import ROOT
from tests.jobs.bench.attacks import attack
from tests.report.page.browser import browser, opened, serious_faults
from tests.report.page.pagetruth import ComparisonTruth, ReconstructionTruth, ScoreTruth, SweepTruth
from tests.report.test_keys import page_of, problems, problems_of_plots, problems_of_strips

__all__ = ["browser"]

NASTY = '<script>window.hacked = 1</script> <img src=x onerror="window.hacked = 2"> “quotes” 🐇 שלום\r\n'
KINDS = ("runs", "examples", "sweep", "reconstruction", "written", "score", "attacks")
TRUTHS: dict[str, Callable[[Path], ComparisonTruth | SweepTruth | ScoreTruth | ReconstructionTruth]] = {
    "runs": ComparisonTruth,
    "examples": ComparisonTruth,
    "sweep": SweepTruth,
    "reconstruction": ReconstructionTruth,
    "written": ReconstructionTruth,
    "score": ScoreTruth,
    "attacks": ScoreTruth,
}
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def runs(bundled: Any, alice: str, gatsby: str, folder: Path) -> list[Run]:
    """One text, known in parts, read by three: with bounds, hot and given up early, and without a BOS token."""
    text = alice[3000:4300] + NASTY + gatsby[5000:5600] + alice[9000:10_000]
    hot, no_bos = (
        rote.Scheme(temperature=1.5, top_k=None),
        rote.load("bundled", rote.ModelOptions(device="cpu", bos="never")),
    )
    near = rote.Near(tolerance=2, budget=150, gap=0.0, until="budget")
    return [
        rote.scan(bundled, text, out=folder / "near", windows=rote.Windows(stride=150), near=near),
        rote.scan(bundled, text, out=folder / "hot", windows=rote.Windows(stride=150), schemes=[hot], stop_early=True),
        rote.scan(no_bos, text, out=folder / "no-bos", windows=rote.Windows(stride=150)),
    ]


@pytest.fixture(scope="module")
def compared(runs: list[Run], folder: Path) -> Path:
    return rote.compare([run.folder for run in runs], top=3).write(folder / "runs")


@pytest.fixture(scope="module")
def examples(bundled: Any, alice: str, folder: Path) -> Path:
    texts = [alice[3000:3500], NASTY * 6, alice[9000:9500], alice[12_000:12_500]]
    ids = ["plain", "<b>bold</b>", "quote\"'", "שלום"]
    made = []
    for name, text in zip(ids, texts, strict=True):
        tokens = bundled.tokenizer.encode(text, add_special_tokens=False)
        made.append(Example(name, tuple(tokens[:40]), tuple(tokens[40:60])))
    hot = rote.Scheme(temperature=2.0, top_k=None)
    for name, scheme in (("cold", rote.Scheme()), ("warm", hot)):
        rote.score(bundled, made, out=folder / name, name="texts.jsonl", schemes=[scheme])
    return rote.compare([folder / "cold", folder / "warm"], top=2).write(folder / "examples")


@pytest.fixture(scope="module")
def swept(bundled: Any, folder: Path) -> Path:
    lines = (ROOT / "training/ladder.jsonl").read_text("utf-8").splitlines()[::12]
    given = [Example(one["id"], tuple(one["prefix"]), tuple(one["suffix"][:20])) for one in map(json.loads, lines)]
    schemes = [rote.Scheme(), rote.Scheme(temperature=2.0, top_k=None), rote.Scheme(top_k=None, top_p=0.9)]
    rote.sweep(
        bundled, given, out=folder / "sweep", name="ladder.jsonl", schemes=schemes, prefixes=[25, 50], suffixes=[10, 20]
    )
    return folder / "sweep/report.html"


@pytest.fixture(scope="module")
def reconstructed(bundled: Any, alice: str, folder: Path) -> Path:
    start = alice.index("Alice was beginning")
    truth = folder / "truth 2.txt"
    truth.write_text(alice[start : start + 1300].replace("she", "they <b>5</b>"), "utf-8", newline="")
    writing = rote.Writing(beams=1, context="anchored")
    found = rote.reconstruct(
        bundled, alice[start : start + 57], out=folder / "reconstruction", truth=truth, writing=writing,
        name="seed 1.txt",
    )  # fmt: skip
    return found.folder / "report.html"


@pytest.fixture(scope="module")
def written(bundled: Any, alice: str, folder: Path) -> Path:
    start = alice.index("Alice was beginning")
    found = rote.reconstruct(
        bundled, alice[start : start + 57], out=folder / "written", writing=rote.Writing(tokens=60, beams=2)
    )
    return found.folder / "report.html"


@pytest.fixture(scope="module")
def scored(folder: Path) -> Path:
    """One submission in which nothing is right."""
    np.save(folder / "answers 7.npy", np.arange(60).reshape(1, 60))
    write_guesses(folder / "wrong 3.csv", [Guess(0, tuple(range(1, 61)))] * 3)
    rote.bench.score(folder / "wrong 3.csv", answers=folder / "answers 7.npy", errors=2, out=folder / "scored")
    return folder / "scored/report.html"


@pytest.fixture(scope="module")
def attacks(folder: Path) -> Path:
    """A file and attacks, cut short, on other hardware."""
    draw, answers = Random(1), np.arange(120).reshape(40, 3)
    np.save(folder / "answers.npy", answers)
    given = [Guess(row, tuple(answers[row] + (draw.random() < 0.4))) for row in range(40) for _ in range(2)]
    plain = [Guess(guess.example, tuple(map(int, guess.suffix))) for guess in given]
    every = []
    for name in ("<b>one</b> 5%", "two 2"):
        guesses = list(dict.fromkeys(draw.sample(plain, len(plain))))
        every.append(attack(folder / name, guesses, [(draw.random(), draw.randint(1, 5000)) for _ in guesses]))
    limits: dict[str, Any] = {"errors": 7, "seconds": 2.0, "token_evals": 4500, "speed": 2.5}
    rote.bench.score(every, answers=folder / "answers.npy", out=folder / "attacks", **limits)
    return folder / "attacks/report.html"


PAGES = {
    "score": "scored",
    "attacks": "attacks",
    "runs": "compared",
    "examples": "examples",
    "sweep": "swept",
    "reconstruction": "reconstructed",
    "written": "written",
}


@pytest.fixture
def path_of(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    def path(kind: str) -> Path:
        found: Path = request.getfixturevalue(PAGES[kind])
        return found

    return path


@pytest.fixture
def page(browser: Any, compared: Path) -> Iterator[Any]:
    with opened(browser, compared, viewport=WIDE) as found:
        found.wait_for_selector("html[data-ready=yes]")
        yield found


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_has_a_key_and_is_what_the_folder_holds(
    browser: Any, path_of: Callable[[str], Path], kind: str
) -> None:
    path = path_of(kind)
    truth = TRUTHS[kind](path.parent)
    with page_of(browser, path) as page:
        assert problems(page, truth) == []
        assert page.locator("[data-key]").count() > 15
        if kind != "written":
            assert problems_of_plots(page, truth) == set()
        if kind == "runs":
            assert problems_of_strips(page, truth) == set()
        if isinstance(truth, ComparisonTruth):
            for row in (0, len(truth.rows) // 2, len(truth.rows) - 1):
                page.fill("#reader-go", str(truth.rows[row]["suffix_start"] if kind == "runs" else row))
                page.press("#reader-go", "Enter")
                page.wait_for_selector("#passage-panel .tokens tbody tr", state="attached")
                assert problems(page, truth, "#passage-panel") == []


CELLS = """(section) => [...document.querySelectorAll(`section[aria-labelledby=${section}] table`)].map((table) =>
  [...table.rows].map((row) => [...row.cells].map((cell) =>
    [cell.textContent, ...[...cell.querySelectorAll("[data-key]")].map((element) => element.dataset.key)])))"""


def test_numbers_stand_beside_what_they_are_of(page: Any, compared: Path) -> None:
    truth = ComparisonTruth(compared.parent)
    (_, *rows), *_ = page.evaluate(CELLS, "numbers")
    for place, ((letter,), *cells) in enumerate(rows):
        assert letter == "ABC"[place]
        assert all(key.startswith(f"comparison/runs/{place}/") for _, *keys in cells for key in keys)
    tables = [table for table in page.evaluate(CELLS, "prompts") if table[0][1][0].startswith("n\u00a0=")]
    assert len(tables) == 4
    seen = set()
    for (_, *head), *rows in tables:
        for place, (_, *cells) in enumerate(rows):
            for (_, n), (_, key, *_) in zip(head, cells, strict=True):
                base = key.removesuffix("/rate")
                assert base.startswith(f"comparison/runs/{place}/rates/np_table/")
                assert truth.number(f"{base}/n") == truth.number(n)
                seen.add((place, base))
    assert len(seen) == 3 * len(truth.result["runs"][0]["rates"]["np_table"])
    (_, *rows), *_ = page.evaluate(CELLS, "pairs")
    for place, ((letter,), *cells) in enumerate(rows):
        assert letter == "BC"[place]
        assert all(key.startswith(f"comparison/pairs/{place}/") for _, *keys in cells for key in keys)
    (((_, *head), *rows),) = page.evaluate(CELLS, "fixed")
    for place, (_, examples, *cells) in enumerate(rows):
        assert examples[1] == f"comparison/fixed_sets/{place}/examples"
        for (letter,), (_, *keys) in zip(head[1:], cells, strict=True):
            assert all(key.startswith(f"comparison/fixed_sets/{place}/runs/{letter}/") for key in keys)


def test_a_sweep_s_numbers_stand_beside_what_they_are_of(browser: Any, swept: Path) -> None:
    points = json.loads((swept.parent / "sweep.json").read_text())["points"]
    with opened(browser, swept, viewport=WIDE) as page:
        page.wait_for_selector("html[data-ready=yes]")
        schemes, lengths = page.evaluate(CELLS, "numbers")[:2]
        for (scheme, *_), *cells in schemes[1:]:
            (place,) = {int(key.split("/")[2]) for _, *keys in cells for key in keys}
            assert points[place]["scheme"] == scheme
            assert (points[place]["prefix"], points[place]["suffix"]) == (50, 20)
        for (prefix, *_), *cells in lengths[1:]:
            for (suffix, *_), (_, *keys) in zip(lengths[0][1:], cells, strict=True):
                (place,) = {int(key.split("/")[2]) for key in keys}
                assert points[place]["scheme"] == points[0]["scheme"]
                assert [f"{points[place]['prefix']}", f"suffix of {points[place]['suffix']}"] == [
                    prefix,
                    suffix.lower(),
                ]
        (_, *every), *_ = page.evaluate(CELLS, "points")
        for place, row in enumerate(every):
            assert all(key.startswith(f"sweep/points/{place}/") for _, *keys in row for key in keys)


def test_every_run_has_a_lane_and_those_with_bounds_have_two(page: Any, runs: list[Run]) -> None:
    names = page.eval_on_selector_all(".lane-name", "all => all.map((e) => e.textContent)")
    assert names == ["A near", "A within 2 edits", "B hot", "C no-bos"]
    page.wait_for_selector("#lanes[data-drawn]")
    for lane, (run, column) in enumerate(zip([0, 0, 1, 2], ["log_prob", "lower", "log_prob", "log_prob"], strict=True)):
        coloured = page.evaluate(
            """(lane) => { const canvas = document.querySelectorAll("#lanes canvas")[lane];
              const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, 1).data;
              const unseen = (x) => data[4 * x] === 0xe2 && data[4 * x + 1] === 0xe5 && data[4 * x + 2] === 0xe9;
              return [...Array(canvas.width).keys()].map((x) => data[4 * x + 3] > 0 && !unseen(x)); }""",
            lane,
        )
        rows = runs[run].scores
        values = rows["lower"].log() if column == "lower" else rows["log_prob"]
        length = len(runs[0].text or "")
        shown = [False] * length
        for start, end, value, stopped in zip(
            rows["suffix_start"], rows["suffix_end"], values, rows["bounded"], strict=True
        ):
            if value >= math.log(0.001) and not (column == "log_prob" and stopped):
                shown[start:end] = [True] * (end - start)
        width = len(coloured)
        assert coloured == [any(shown[x * length // width : (x + 1) * length // width]) for x in range(width)]


def test_pointing_at_a_lane_says_its_run_and_a_click_opens_the_passage_in_all(page: Any, runs: list[Run]) -> None:
    known = runs[1].scores.filter(~pl.col("bounded")).sort("log_prob")  # the hot one has the fewest
    share = (known["suffix_start"][-1] + known["suffix_end"][-1]) / 2 / len(runs[0].text or "")
    for lane, (name, key) in enumerate((("A near", "A"), ("A within 2 edits", "A"), ("B hot", "B"), ("C no-bos", "C"))):
        page.locator("#strips").scroll_into_view_if_needed()
        box = page.locator("#lanes canvas").nth(lane).bounding_box()
        page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
        assert page.inner_text("#strip-now").startswith(f"{name}. Characters ")
        assert page.get_attribute("#strip-now data", "data-key").startswith(f"runs/{key}/scores/w")
        page.mouse.click(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
        page.wait_for_selector("#passage-panel table.data th")
        assert page.evaluate("document.getElementById('reader-run').selectedIndex") == "ABC".index(key)
        if lane != 1:  # what is near is listed by its bounds, not by p_z
            assert_in_all_runs(page, runs)
        page.evaluate("scrollTo(0, 0); document.getElementById('passage-panel').textContent = ''")


def assert_in_all_runs(page: Any, runs: list[Run]) -> None:
    """The panel lists every run's p_z of the passage that it shows."""
    start = page.eval_on_selector("#passage-panel h3 data", "(e) => Number(e.getAttribute('value'))")
    window = runs[0].scores.filter(pl.col("suffix_start") == start)["example_id"][0]
    shown = page.eval_on_selector_all(
        "#passage-panel table:not(.tokens) tr",
        "all => all.map((row) => [...row.cells].map((cell) => cell.textContent))",
    )
    expected = []
    for key, run in zip("ABC", runs, strict=True):
        row = run.scores.row(by_predicate=pl.col("example_id") == window, named=True)
        least = "at most " if row["bounded"] else ""
        expected.append([f"{key} {run.folder.name}", least + numbers.probability(row["log_prob"])])
    assert shown == expected


def test_another_run_shades_the_text_anew(page: Any, runs: list[Run]) -> None:
    page.locator("#reader").scroll_into_view_if_needed()
    shades = {}
    for place, run in enumerate(runs):
        page.select_option("#reader-run", str(place))
        found = page.evaluate(
            """() => [...document.querySelector(".block").childNodes].flatMap((node) =>
              Array.from(node.textContent, () => [...(node.classList ?? [])].find((c) => /^t\\d+$/.test(c)) ?? ""))"""
        )
        rows = run.scores
        best = [-math.inf] * len(found)
        for start, end, value in zip(rows["suffix_start"], rows["suffix_end"], rows["log_prob"], strict=True):
            for character in range(start, min(end, len(found))):
                best[character] = max(best[character], value)
        assert [bool(shade) for shade in found] == [value >= math.log(0.001) for value in best]
        shades[place] = found
    assert shades[0] != shades[1]
    page.select_option("#reader-column", "lower")  # the run that is shown has no bounds
    assert page.input_value("#reader-column") == "log_prob"


def test_a_passage_that_moved_opens_where_it_is_likelier(page: Any, runs: list[Run], compared: Path) -> None:
    result = json.loads((compared.parent / "comparison.json").read_text())
    buttons = page.locator("[data-go-row]")
    moved = [
        (pair["second"] if name == "largest_gains" else pair["first"], passage)
        for pair in result["pairs"]
        for name in ("largest_gains", "largest_losses")
        for passage in pair[name]
    ]
    assert buttons.count() == len(moved) > 2
    for place, (key, passage) in enumerate(moved):
        buttons.nth(place).click()
        page.wait_for_function(
            "start => document.querySelector('#passage-panel h3 data')?.getAttribute('value') === start",
            arg=str(passage["suffix_start"]),
        )
        assert page.input_value("#reader-run") == str("ABC".index(key))
        assert_in_all_runs(page, runs)
        assert page.locator("#page-text .chosen").first.is_visible()


def test_examples_are_compared_without_strips(browser: Any, examples: Path, folder: Path) -> None:
    with opened(browser, examples, viewport=WIDE) as page:
        page.wait_for_selector("html[data-ready=yes]")
        assert page.evaluate("window.hacked") is None
        assert page.locator("#lanes").count() == 0
        tables = [Run.open(folder / name).scores for name in ("cold", "warm")]
        best = [max(pair) for pair in zip(*(table["log_prob"] for table in tables), strict=True)]
        order = page.eval_on_selector_all("#page-text .block", "all => all.map((e) => Number(e.dataset.row))")
        assert order == sorted(range(len(best)), key=lambda row: -best[row])
        for row, name in enumerate(tables[0]["example_id"]):
            page.fill("#reader-go", str(row))
            page.press("#reader-go", "Enter")
            page.wait_for_function(
                "name => document.querySelector('#passage-panel h3')?.textContent === name", arg=name
            )
            shown = page.eval_on_selector_all(
                "#passage-panel table:not(.tokens) td", "all => all.map((cell) => cell.textContent)"
            )
            assert shown == [numbers.probability(table["log_prob"][row]) for table in tables]


def test_the_table_of_all_runs_can_be_saved(page: Any, runs: list[Run], tmp_path: Path) -> None:
    for kind, read in (("csv", pl.read_csv), ("parquet", pl.read_parquet)):
        with page.expect_download() as started:
            page.click(f"[data-download={kind}]")
        started.value.save_as(tmp_path / f"table.{kind}")
        found = read(tmp_path / f"table.{kind}")
        for key, run in zip("ABC", runs, strict=True):
            own = found.filter(pl.col("run") == key)
            for name in ("example_id", "suffix_start", "log_prob", "bounded"):
                assert own[name].to_list() == run.scores[name].to_list(), (kind, name)


def test_a_difference_leads_to_its_place_in_the_text(browser: Any, reconstructed: Path) -> None:
    with opened(browser, reconstructed, viewport=WIDE) as page:
        page.wait_for_selector("html[data-ready=yes]")
        link = page.locator("#differences ~ ol a").last
        link.click()
        target = page.locator(":target")
        target.wait_for()
        inner, outer = target.bounding_box(), page.locator(".page-text").bounding_box()
        assert outer["y"] <= inner["y"] + inner["height"]
        assert inner["y"] <= outer["y"] + outer["height"]
        assert page.locator(".page-text b").count() == 0  # the truth's markup is text


def test_a_sweep_s_points_can_be_sorted_and_found(browser: Any, swept: Path) -> None:
    points = json.loads((swept.parent / "sweep.json").read_text())["points"]
    with opened(browser, swept, viewport=WIDE) as page:
        page.wait_for_selector("html[data-ready=yes]")
        rows = page.locator("section[aria-labelledby=points] tbody tr")
        assert rows.count() == len(points)
        page.click("section[aria-labelledby=points] th:nth-child(4) button")
        shown = page.eval_on_selector_all(
            "section[aria-labelledby=points] tbody td:nth-child(4) data:first-child",
            "all => all.map((e) => Number(e.getAttribute('value')))",
        )
        assert shown == sorted((p["rates"]["rate_at_tau"]["rate"] for p in points), reverse=True)
        page.fill("section[aria-labelledby=points] input[type=search]", "top_p=0.9")
        assert rows.locator("visible=true").count() == sum("top_p" in p["scheme"] for p in points)


def test_twenty_runs_are_one_page(browser: Any, runs: list[Run], tmp_path: Path) -> None:
    for place in range(20):
        shutil.copytree(runs[place % 3].folder, tmp_path / f"a-run-with-a-rather-long-name-{place}")
    path = rote.compare(sorted(tmp_path.iterdir()), top=1).write(tmp_path / "out")
    with opened(browser, path, viewport=WIDE) as page:
        page.wait_for_selector("html[data-ready=yes]")
        page.wait_for_selector("#lanes[data-drawn]")
        assert page.locator("#reader-run option").count() == 20
        lanes = page.eval_on_selector_all(
            ".lane", "all => all.map((e) => [e.textContent, e.getBoundingClientRect().height])"
        )
        assert len(lanes) == 20 + 7  # seven are copies of the one that has bounds
        assert all(height < 30 for _, height in lanes)
        page.locator("#lanes canvas").last.click()
        page.wait_for_selector("#passage-panel table:not(.tokens)")
        assert page.locator("#passage-panel table:not(.tokens) tr").count() == 20
        assert page.evaluate("document.documentElement.scrollWidth") == WIDE["width"]


@pytest.mark.parametrize("kind", KINDS)
def test_pages_fit_narrow_windows_and_change_in_the_dark(
    browser: Any, path_of: Callable[[str], Path], kind: str
) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        with opened(browser, path_of(kind), viewport=NARROW, color_scheme=scheme) as page:
            page.wait_for_selector("html[data-ready=yes]")
            assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
            colours.add(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
            assert page.evaluate("window.hacked") is None
    assert len(colours) == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_seriously_wrong_for_people_who_cannot_see_or_point(
    browser: Any, path_of: Callable[[str], Path], kind: str, scheme: str
) -> None:
    viewport = WIDE if scheme == "light" else NARROW
    with opened(browser, path_of(kind), viewport=viewport, color_scheme=scheme) as page:
        page.wait_for_selector("html[data-ready=yes]")
        if kind in ("runs", "examples"):
            page.click("[data-step='1']")
            page.wait_for_selector("#passage-panel .facts")
        page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")  # draws every plot
        assert serious_faults(page, scheme) == []
