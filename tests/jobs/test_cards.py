"""Every public result shows itself in a notebook: its headline, its numbers, and nothing that acts."""

from __future__ import annotations

import copy
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import rote
from rote.report.text.terminal import passages
from tests.jobs.support import MARKUP
from tests.report.page.test_run import Outline, words
from tests.seals import reseal

TAGS = {"div", "span", "table", "thead", "tbody", "tr", "th", "td", "svg", "rect", "i", "sub", "details", "summary"}
NAME = re.escape(MARKUP)
TAU = "τ = 1e-60"
HEADLINES = {
    "model": rf"{NAME} model: 277,664 parameters, float32 on cpu, BOS auto",
    "scan": rf"No window comes out with even odds, but all \d+ windows can be extracted at {TAU}; [\d.]+% of this .*\.",
    "score": rf"(\d+) of \1 examples can be extracted at {TAU}\.",
    "rate": rf"100% of examples from this corpus can be extracted at {TAU} \(95% interval .* to 100%\)\.",
    "unfinished run": rf"\S*/{NAME}/unfinished scan is unfinished \(3 of 3 shards stored\); run the command .*",
    "sweep": rf"100% of \d+ examples of {NAME} can be extracted at {TAU}, with prompts of 8 tokens and .* 6 tokens\.",
    "comparison": r"A scan \(temperature=1\) and B scan \(.*\) extract the same \d+ of \d+ windows at τ = 1e-60\.",
    "saved comparison": r"A scan \(.*\) and B scan \(.*\) extract the same \d+ of \d+ windows at τ = 1e-60\.",
    "reconstruction": rf"From a seed of \d+ tokens, the model wrote [\d.]+% of the words of {NAME} truth\.txt that .*",
    "unfinished reconstruction": rf"\S*/{NAME}/unfinished written is unfinished \(60 of 60 tokens stored\); run the .*",
    "bench score": r"Recall at 1 error: 0\.5\.",
    "membership": r".* tells members from non-members with AUROC .*; without any model, AUROC is 0\.520 \(.*\)\.",
    "probe": r"\d of 6 passages flagged: at least 2 of their words came back from chat-0\.",
    "spots": rf"\d+ hot-spots at p ≥ 1e-28% in {NAME}, together \d+ characters",
    "no spots": rf"0 hot-spots at p ≥ 100% in {NAME}",
    "checked": r"\d of 2 computed probabilities lie outside the 95% interval of the generated share\.",
    "passage": rf"Example {NAME}0 of {NAME}\.",
    "passage in two runs": rf"Example w\d+ of {NAME}\.",
    "doctor": "This machine",
    "verbatim": r"14 results under temperature=1, greedy",
    "near-verbatim": r"7 results under temperature=1",
}
KINDS = sorted(HEADLINES)


def said(shown: Any) -> str:
    return words(shown._repr_html_()).replace("\u00a0", " ")


def test_no_kind_is_left_out(results: dict[str, Any]) -> None:
    assert sorted(results) == KINDS
    shown = {type(result).__name__ for result in results.values()}
    public = {name for name in rote.__all__ if hasattr(getattr(rote, name), "_repr_html_")}
    assert public <= shown
    assert public >= {"Run", "Sweep", "SavedComparison", "Reconstruction", "Comparison", "Spots", "Checked", "Doctor"}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_whole_and_harmless_html(results: dict[str, Any], kind: str) -> None:
    html = results[kind]._repr_html_()
    outline = Outline(html)  # which fails where a tag is not closed, or another one is
    assert set(outline.tags) <= TAGS
    assert not [name for _, name, _ in outline.attributes if name.startswith("on") or name in ("href", "src")]
    html.encode()


@pytest.mark.parametrize("kind", KINDS)
def test_it_begins_with_the_headline(results: dict[str, Any], kind: str) -> None:
    html = results[kind]._repr_html_()
    title = re.match(r'<div style="[^"]*"><div style="font-weight:bold[^"]*">(.*?)</div>', html)
    assert title is not None
    assert re.fullmatch(HEADLINES[kind], words(title[1]).replace("\u00a0", " "))


def test_a_scan_shows_its_strongest_passages_and_its_strip(results: dict[str, Any]) -> None:
    scan = results["scan"]
    html = scan._repr_html_()
    strongest = [(passage.facts, passage.words) for passage in passages(scan.view)]
    assert len(strongest) == 5
    assert "<" in "".join(begins for _, begins in strongest)
    cells = Outline(html).text["td"]
    assert cells == [cell.replace("p_z", "pz") for pair in strongest for cell in pair]
    assert html.count("<svg") == 1
    assert html.count("<rect") > 50


def test_a_scan_and_its_copy_show_the_same(results: dict[str, Any]) -> None:
    for kind in ("scan", "sweep", "reconstruction", "saved comparison"):
        again = rote.open(results[kind].folder)
        assert again._repr_html_() == results[kind]._repr_html_()
    assert results["comparison"]._repr_html_() == results["saved comparison"]._repr_html_()


def test_a_comparison_shows_who_is_who_and_what_changed(results: dict[str, Any]) -> None:
    comparison = results["comparison"]
    text, folders = said(comparison), [str(side.run.folder) for side in comparison.sides]
    assert f"A {folders[0]} (temperature=1) " in text
    assert f"C {folders[2]} " in text
    assert "Against A, at τ = 1e-60 Gained Lost Both Neither" in text
    pair = comparison.result.pairs[0]
    assert f"B {pair.gained} {pair.lost} {pair.both} {pair.neither} " in text
    assert "one every 10 characters, matched by where they start." in text
    assert "Time" not in text  # the same comparison shows the same


def test_spots_say_that_there_are_more(results: dict[str, Any]) -> None:
    spots = results["spots"]
    assert "The first 2, by length." in said(spots)
    for spot in spots.spots:
        assert f"{spot.start:,} to {spot.end:,} {spot.windows}" in said(spots)
    assert "<table" not in results["no spots"]._repr_html_()


def test_a_check_shows_every_passage(results: dict[str, Any]) -> None:
    for one in results["checked"].passages:
        assert f"{one.example_id} {one.p_z:.3g} {one.hits}/3" in said(results["checked"])


def test_passages_show_prefix_suffix_and_tokens(results: dict[str, Any]) -> None:
    for kind in ("passage", "passage in two runs"):
        shown = results[kind]
        text = said(shown)
        for run in shown.runs:
            assert f"{run.prefix}│{run.suffix}" in "".join(Outline(shown._repr_html_()).text["div"])
            assert f"{run.key}: {run.name}" in text
        assert text.count("Tokens of the suffix") == len(shown.runs)
        assert shown._repr_html_().count("<details>") == 0  # short ones


def test_results_show_the_first_of_them(results: dict[str, Any]) -> None:
    for kind in ("verbatim", "near-verbatim"):
        found = results[kind]
        rows = found.rows()
        cells = Outline(found._repr_html_()).text["td"]
        assert len(cells) == len(rows) * len(rows[0])
        assert cells[-1] == rows[-1]["suffix"]
        assert cells[-2] in (rows[-1]["prefix"], f"…{rows[-1]['prefix'][-80:]}")
    many = rote.verbatim(results["model"], [rote.Example(str(i), (5,), (6,)) for i in range(23)])
    outline = Outline(many._repr_html_())
    assert outline.tags["tr"] == 21
    assert said(many).endswith(" 3 more")
    assert words(rote.verbatim(results["model"], [])._repr_html_()) == "0 results"


def test_a_name_that_cannot_be_stored_is_refused(results: dict[str, Any]) -> None:
    with pytest.raises(rote.InputError, match="its id holds half of a surrogate pair"):
        rote.verbatim(results["model"], [rote.Example("\ud800<i>", (5,), (6,))])


def test_a_folder_that_is_damaged_says_so(results: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    shutil.copytree(results["scan"].folder, folder)
    (folder / "text.txt").unlink()
    assert said(rote.open(folder)).startswith(f"{folder}/text.txt is gone, and the seal of {folder} names it. Put the")
    reseal(folder)
    assert said(rote.open(folder)).startswith(f"cannot read {folder}/text.txt: it is gone. Run the command that made")


@pytest.mark.parametrize("kind", KINDS)
def test_a_terminal_gets_one_line(results: dict[str, Any], kind: str) -> None:
    """A notebook stores it beside the HTML, so it has no time and no date either."""
    line = repr(results[kind])
    assert "\n" not in line
    assert len(line) < 300
    assert "seconds" not in line


def test_results_are_copied_and_sorted_with_their_texts(results: dict[str, Any]) -> None:
    """A list can be sorted, cut and added to: every result keeps its own texts."""
    found, more = results["verbatim"], rote.verbatim(results["model"], [rote.Example("more", (5,), (6,))])
    rows = {(row["example_id"], row["scheme"]): row for row in found.rows()}
    for other in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        other.sort(key=lambda one: (one.log_prob, one.example_id))
        assert [(row["example_id"], row["scheme"]) for row in other.rows()] != list(rows)
        assert {(row["example_id"], row["scheme"]): row for row in other.rows()} == rows
        del other[1:]
        other += more
        assert [row["suffix"] for row in other.rows()] == [rows[other[0].example_id, "greedy"]["suffix"], None]
    assert {(row["example_id"], row["scheme"]): row for row in found.rows()} == rows
