"""The report in a real browser: strips, the text and the panel show what the table holds; foreign text stays text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rote
from rote import Example, Run
from rote.report.text import numbers
from rote.report.text.strip import LEVELS
from tests.report.page.browser import browser, opened, serious_faults
from tests.report.page.truth import visible

__all__ = ["browser"]

NASTY = (
    '<script>window.hacked = 1</script> <img src=x onerror="window.hacked = 2"> </script></body> &amp; &lt;b&gt;\n'
    "“double” 'single' \"plain\" `back` \\ {{ jinja }} {% raw %}\n"
    "emoji 🐇🎩👩\u200d👩\u200d👧 and flags 🇮🇸, combining e\u0301\n"
    "שלום עולם, this line begins right to left\r\n"
    "tab\tand null \x00 and bell \x07 and marks \ufdd0 \ufdd1 \ufdd2\n"
    "an invoice \u202egnp.exe\u202c, a lone\rreturn, \u2067isolated\u2069 and next \x85 line\n"
)
TAU = math.log(0.001)


@pytest.fixture(scope="module")
def scanned(bundled: Any, alice: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A text that is known in parts, with everything in it that could break a page."""
    text = alice[3000:5200] + NASTY + "x<y " * 2500 + "\n" + alice[8000:9500]
    near = rote.Near(
        tolerance=2, budget=90, until="worthwhile", gap=0.0
    )  # of what is not known, a first pass is enough
    hot = rote.Scheme(temperature=1.5, top_k=None)  # what the model knows comes out with all sorts of probabilities
    out = tmp_path_factory.mktemp("runs") / "nasty"
    return rote.scan(
        bundled, text, out=out, windows=rote.Windows(prefix=25, suffix=30, stride=60), near=near, schemes=[hot]
    )


@pytest.fixture(scope="module")
def scored(bundled: Any, alice: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    tokenize = bundled.tokenizer.encode
    parts = [alice[3000:3500], "<script>window.hacked = 1</script> “quotes” 🐇 " * 20, alice[9000:9500], NASTY * 2]
    ids = ["plain", "<b>bold</b>", "quote\"'", "שלום"]
    examples = []
    for name, part in zip(ids, parts, strict=True):
        tokens = tokenize(part, add_special_tokens=False)
        examples.append(Example(name, tuple(tokens[:50]), tuple(tokens[50:80]), metadata={"split": "train"}))
    return rote.score(bundled, examples, out=tmp_path_factory.mktemp("runs") / "examples")


@pytest.fixture
def page(browser: Any, scanned: Run) -> Iterator[Any]:
    with opened(browser, scanned.folder / "report.html", viewport={"width": 1280, "height": 900}) as found:
        found.wait_for_selector("html[data-ready=yes]")
        yield found


def best_by_character(rows: pl.DataFrame, length: int, column: str) -> list[float]:
    """The slow way: for each character the largest of all rows whose suffix covers it."""
    best = [-math.inf] * length
    for row in rows.iter_rows(named=True):
        value = row["log_prob"] if column == "log_prob" else math.log(row["lower"]) if row["lower"] else -math.inf
        for character in range(row["suffix_start"], row["suffix_end"]):
            best[character] = max(best[character], value)
    return best


def looked_at(rows: pl.DataFrame, length: int) -> list[bool]:
    """For each character whether any suffix covers it."""
    spans = rows.select("suffix_start", "suffix_end").rows()
    return [any(start <= character < end for start, end in spans) for character in range(length)]


def floored(log_prob: float) -> str:
    """A certified lower bound in three decimals, or two digits where it is small: never more than it is."""
    value = math.exp(log_prob) * (1 + 1e-15)  # the logarithm was taken only to compare
    if value >= 0.001 or value == 0:
        return "1" if value >= 1 else f"{math.floor(value * 1000) / 1000:.3f}" if value else "0"
    exponent = math.floor(math.log10(value))
    return f"{math.floor(value / 10.0 ** (exponent - 1)) / 10:.1f}e{exponent:+03d}"


def level(log_prob: float) -> str:
    return f"t{min(int(LEVELS * (1 - log_prob / TAU)), LEVELS - 1)}" if log_prob >= TAU else ""


def test_foreign_text_is_shown_letter_by_letter_and_runs_nothing(page: Any, scanned: Run) -> None:
    text = scanned.text or ""
    shown = page.evaluate("[...document.querySelectorAll('.block')].map((b) => b.textContent).join('')")
    assert shown == visible(text)
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.querySelectorAll('.block script, .block img, .block b').length") == 0
    assert max(len(line) for line in text.split("\n")) >= 10_000
    hebrew = page.locator(".block", has_text="שלום").first
    assert hebrew.evaluate("e => getComputedStyle(e).unicodeBidi") == "plaintext"
    assert "an invoice ⇚gnp.exe↨, a lone␍return, ⇦isolated⇳ and next \ufffd line" in shown
    assert not re.search("[\u202e\u2067\x85]|\r(?!\n)", page.evaluate("document.body.innerText"))
    caption = page.inner_text("section[aria-labelledby=text] > .caption")
    assert "⇚ stands for U+202E, right-to-left override" in caption
    assert caption.endswith("␍ stands for a carriage return without a line feed.")


@pytest.mark.parametrize("column", ["log_prob", "lower"])
def test_every_character_has_the_colour_of_its_likeliest_window(page: Any, scanned: Run, column: str) -> None:
    page.select_option("#reader-column", column)
    text = visible(scanned.text or "")
    seen = looked_at(scanned.scores, len(text))
    best = best_by_character(scanned.scores, len(text), column)
    expected = [level(value) if found else "unseen" for value, found in zip(best, seen, strict=True)]
    classes = page.evaluate("""async () => {
        const host = document.getElementById("page-text"), found = [];
        for (const block of host.children) {
            block.scrollIntoView();
            await new Promise((done) => setTimeout(done, 30));
            for (const node of block.childNodes) {
                const name = node.nodeType === 3 ? "" : node.className;
                for (const letter of node.textContent) found.push([letter, name]);
            }
        }
        return found;
    }""")
    assert [letter for letter, _ in classes] == list(text)
    assert [name for _, name in classes] == expected
    assert len(set(expected)) > 2  # blank and several colours


def test_pointing_at_a_strip_tells_the_place_and_the_highest_probability_there(page: Any, scanned: Run) -> None:
    length = len(scanned.text or "")
    seen = looked_at(scanned.scores, length)
    for lane, column in enumerate(("log_prob", "lower")):
        best = best_by_character(scanned.scores, length, column)
        canvas = page.locator("#lanes canvas").nth(lane)
        canvas.scroll_into_view_if_needed()
        box, bins = canvas.bounding_box(), int(canvas.evaluate("c => c.width"))
        for share in (0.02, 0.2, 0.5, 0.97):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
            said = page.inner_text("#strip-now")
            start, end = (
                int(part.replace(",", ""))
                for part in said.split("Characters ")[1].split(",  ")[0].split(", ")[0].split(" to ")
            )
            assert start <= share * length <= end + 1
            assert end - start in (length // bins, length // bins + 1)
            highest = max(best[start:end])
            shown = numbers.probability(highest) if column == "log_prob" else floored(highest)
            words = f"up to {shown}" if any(seen[start:end]) else "not looked at"
            assert words in said


def test_zoomed_in_a_strip_is_exact_to_the_character(page: Any, scanned: Run) -> None:
    best = best_by_character(scanned.scores, len(scanned.text or ""), "log_prob")
    seen = looked_at(scanned.scores, len(best))
    page.focus("#lanes")
    for key in ("Home", "ArrowRight", "ArrowRight", *["+"] * 10):
        page.keyboard.press(key)
    page.wait_for_timeout(100)
    for _ in range(30):
        page.keyboard.press("ArrowRight")
        at = int(page.get_attribute("#lanes", "aria-valuenow"))
        said = page.get_attribute("#lanes", "aria-valuetext")
        assert f"Characters {at:,} to {at + 1:,}" in said
        assert ("not looked at" in said) == (not seen[at])
        if seen[at]:
            assert said.endswith(f"up to {numbers.probability(best[at])}")


def test_where_windows_were_given_up_a_strip_claims_no_more_than_is_known(
    browser: Any, bundled: Any, alice: str, gatsby: str, tmp_path: Path
) -> None:
    """Of a window given up early only a bound is known, so that no highest probability below tau can be told."""
    text = alice[3000:4500] + gatsby[5000:7500]
    run = rote.scan(bundled, text, out=tmp_path / "run", windows=rote.Windows(stride=30), tau=0.01, stop_early=True)
    rows = run.scores
    assert rows["bounded"].any()
    known = best_by_character(rows.filter(~rows["bounded"]), len(text), "log_prob")
    seen = looked_at(rows, len(text))
    told = set()
    with opened(browser, run.folder / "report.html") as page:
        page.wait_for_selector("html[data-ready=yes]")
        page.focus("#lanes")
        for _ in range(40):
            said = page.get_attribute("#lanes", "aria-valuetext")
            start, end = (int(n.replace(",", "")) for n in re.findall(r"Characters ([\d,]+) to ([\d,]+),", said)[0])
            highest = max(known[start:end])
            words = "not looked at" if not any(seen[start:end]) else "below τ"
            if highest >= math.log(0.01):
                words = f"up to {numbers.probability(highest)}"
            assert said.partition("of the text: ")[2].startswith(words)
            told.add(words.split()[0])
            page.keyboard.press("Shift+ArrowRight")
    assert told == {"not", "below", "up"}


def test_clicking_a_strip_opens_the_passage_and_brings_it_into_view(page: Any, scanned: Run) -> None:
    best = best_by_character(scanned.scores, len(scanned.text or ""), "log_prob")
    late = range(int(0.9 * len(best)), len(best) - 20)
    alike = (at for at in late if best[at] >= TAU and len(set(best[at - 20 : at + 20])) == 1)
    at = next(alike)  # a pixel is some fifteen characters
    canvas = page.locator("#lanes canvas").first
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + at / len(best) * box["width"], box["y"] + 5)
    page.wait_for_selector("#passage-panel .facts")
    chosen = page.locator("#page-text .chosen").first
    assert chosen.is_visible()
    host, place = page.locator("#page-text").bounding_box(), chosen.bounding_box()
    assert host["y"] <= place["y"] <= host["y"] + host["height"]
    key = page.get_attribute("#passage-panel .facts .first data", "data-key")
    row = scanned.scores.filter(pl.col("example_id") == key.split("/")[1]).row(0, named=True)
    assert row["log_prob"] == best[at] >= TAU


def panel(page: Any) -> dict[str, str]:
    terms, values = (
        page.locator("#passage-panel dt").all_inner_texts(),
        page.locator("#passage-panel dd").all_inner_texts(),
    )
    return dict(zip(terms, values, strict=True))


def test_a_passage_shows_its_numbers_tokens_and_outputs(page: Any, scanned: Run) -> None:
    text = scanned.text or ""
    for character in (400, 1200, len(text) - 600):
        page.fill("#reader-go", str(character))
        page.press("#reader-go", "Enter")
        page.wait_for_function("c => document.querySelector('#passage-panel h3 data')", arg=character)
        key = page.get_attribute("#passage-panel .facts .first data", "data-key")
        row = scanned.scores.filter(pl.col("example_id") == key.split("/")[1]).row(0, named=True)
        covering = scanned.scores.filter((pl.col("suffix_start") <= character) & (pl.col("suffix_end") > character))
        assert row["log_prob"] == covering["log_prob"].max()
        facts = panel(page)
        assert facts["Probability pz"] == numbers.probability(row["log_prob"])
        for chance, words in ((0.5, "50%"), (0.9, "90%"), (0.999, "99.9%")):
            assert facts[f"Prompts for {words}"] == numbers.prompts_for(row["log_prob"], chance)
        assert facts["Within 2 edits"] == numbers.interval(row["lower"], row["upper"])
        assert facts["Verdict"] == row["verdict"]
        assert facts["Greedy decoding gives it"] == ("yes" if row["greedy"] else "no")
        page.evaluate("document.querySelectorAll('#passage-panel details').forEach((d) => (d.open = true))")
        cells = page.locator("#passage-panel .tokens tbody tr").evaluate_all(
            "rows => rows.map((r) => [...r.cells].map((c) => c.textContent))"
        )
        assert [cell[2] for cell in cells] == [numbers.probability(float(p)) for p in row["token_log_probs"]]
        assert [cell[3] for cell in cells] == [numbers.count(rank) for rank in row["ranks"]]
        pieces = [cell[1].replace("␣", " ").replace("⏎", "\n").replace("⇥", "\t") for cell in cells]
        assert "".join(pieces) == text[row["suffix_start"] : row["suffix_end"]]
        quote = page.evaluate("document.querySelector('#passage-panel blockquote').textContent")
        prefix, suffix = text[row["start"] : row["suffix_start"]], text[row["suffix_start"] : row["suffix_end"]]
        assert quote == f"Prefix: {prefix} Suffix: {suffix}"
        outputs = [one for one in row["candidates"] if one["distance"]][:5]
        shown = page.locator("#passage-panel .variants .difference")
        assert shown.count() == len(outputs)
        for place, one in enumerate(outputs):
            kept, gone = (
                shown.nth(place).evaluate(
                    f"p => [...p.childNodes].filter((n) => n.nodeName !== '{tag}').map((n) => n.textContent).join('')"
                )
                for tag in ("DEL", "INS")
            )
            assert kept == one["text"]
            assert gone == text[row["suffix_start"] : row["suffix_end"]]


def test_selecting_some_text_opens_the_window_that_holds_most_of_it(page: Any, scanned: Run) -> None:
    page.locator(".block").nth(1).scroll_into_view_if_needed()
    place = page.evaluate("""() => {
        const block = document.querySelectorAll(".block")[1], walker = document.createTreeWalker(block, 4);
        const node = walker.nextNode(), range = document.createRange();
        range.setStart(node, 3);
        range.setEnd(node, Math.min(60, node.length));
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        document.getElementById("page-text").dispatchEvent(new MouseEvent("mouseup", { bubbles: true }));
        return [Number(block.dataset.at) + 3, Number(block.dataset.at) + Math.min(60, node.length)];
    }""")
    page.wait_for_selector("#passage-panel .facts")
    key = page.get_attribute("#passage-panel .facts .first data", "data-key")
    start, end = place
    held = {
        row["example_id"]: (min(end, row["suffix_end"]) - max(start, row["suffix_start"]), row["log_prob"])
        for row in scanned.scores.iter_rows(named=True)
    }
    assert held[key.split("/")[1]] == max(held.values())


def test_the_keyboard_alone_is_enough(page: Any) -> None:
    page.focus("#lanes")
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#passage-panel .facts")
    before = page.inner_text("#passage-panel h3")
    page.focus("[data-step='1']")
    page.keyboard.press("Enter")
    page.wait_for_function("before => document.querySelector('#passage-panel h3').textContent !== before", arg=before)


def test_a_place_that_no_suffix_covers_says_so(page: Any) -> None:
    page.fill("#reader-go", "0")
    page.press("#reader-go", "Enter")
    page.wait_for_selector("#passage-panel p:has-text('This character lies in no window’s suffix')")


def test_the_table_can_be_saved(page: Any, scanned: Run, tmp_path: Path) -> None:
    for kind, read in (("csv", pl.read_csv), ("parquet", pl.read_parquet)):
        with page.expect_download() as started:
            page.click(f"[data-download={kind}]")
        started.value.save_as(tmp_path / f"table.{kind}")
        found = read(tmp_path / f"table.{kind}")
        assert "lower" in found.columns
        for name in found.columns:
            assert found[name].to_list() == scanned.scores[name].to_list(), name


def test_examples_are_read_like_a_text(browser: Any, scored: Run) -> None:
    with opened(browser, scored.folder / "report.html") as page:
        page.wait_for_selector("html[data-ready=yes]")
        assert page.evaluate("window.hacked") is None
        for row, entry in enumerate(scored.scores.iter_rows(named=True)):
            page.fill("#reader-go", str(row))
            page.press("#reader-go", "Enter")
            page.wait_for_function(
                "name => document.querySelector('#passage-panel h3')?.textContent === name", arg=entry["example_id"]
            )
            assert panel(page)["Probability pz"] == numbers.probability(entry["log_prob"])
            assert page.locator("#passage-panel .token").count() > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["scanned", "scored"])
def test_nothing_seriously_wrong_for_people_who_cannot_see_or_point(
    browser: Any, request: pytest.FixtureRequest, kind: str, scheme: str
) -> None:
    run = request.getfixturevalue(kind)
    with opened(browser, run.folder / "report.html", color_scheme=scheme) as page:
        page.wait_for_selector("html[data-ready=yes]")
        page.click("[data-step='1']")
        page.wait_for_selector("#passage-panel .facts")
        page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        assert serious_faults(page, scheme) == []


def test_dark_mode_changes_page_and_strip(browser: Any, scanned: Run) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        with opened(browser, scanned.folder / "report.html", color_scheme=scheme) as page:
            page.wait_for_selector("#lanes[data-drawn]")
            seen[scheme] = page.evaluate("""() => {
                const canvas = document.querySelector("#lanes canvas");
                const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, 1).data;
                const red = [...data].filter((_, i) => i % 4 === 0 && data[i + 3] > 0);
                const mean = red.reduce((a, b) => a + b, 0) / red.length;
                return [getComputedStyle(document.documentElement).backgroundColor, mean];
            }""")
    assert seen["light"][0] != seen["dark"][0]
    assert seen["light"][1] < seen["dark"][1]  # likely is dark on light, and light on dark


def test_it_prints_and_reads_without_scripts(browser: Any, scanned: Run) -> None:
    with opened(browser, scanned.folder / "report.html", java_script_enabled=False) as page:
        assert page.locator("noscript p").is_visible()
        assert "come out with even odds" in page.inner_text(".headline")
        assert page.locator(".block").count() > 3
    with opened(browser, scanned.folder / "report.html") as page:
        page.wait_for_selector("html[data-ready=yes]")
        page.emulate_media(media="print")
        assert not page.locator(".reader-tools").is_visible()
        assert not page.locator("#page-text").is_visible()
        page.emulate_media(media="screen")
        page.check("#print-text")
        page.emulate_media(media="print")
        assert page.locator("#page-text").is_visible()
        assert page.pdf().startswith(b"%PDF")
