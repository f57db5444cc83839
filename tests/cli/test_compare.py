"""rote compare and rote show, as a user calls them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import rote
from rote import Near, Run, Scheme
from rote.report.keys import plain
from rote.report.text import numbers
from rote.report.text.comparison import moved_facts
from rote.report.text.conclusion import conclusion as conclusion_of
from rote.store.comparison import MovedPassage
from tests.cli.command import rote_here
from tests.seals import reseal

CUT = rote.Windows(prefix=20, suffix=20, stride=50)


@pytest.fixture(scope="module")
def folders(bundled: Any, alice: str, gatsby: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model over a text that it does not know and, after it, one that it does."""
    folder = tmp_path_factory.mktemp("runs")
    text = gatsby[50_000:51_000] + alice[3000:3500]
    rote.scan(bundled, text, out=folder / "all", windows=CUT)
    rote.scan(bundled, text, out=folder / "hot", schemes=[Scheme(temperature=3.0, top_k=None)], windows=CUT)
    rote.scan(bundled, text, out=folder / "early", stop_early=True, windows=CUT)
    rote.scan(
        bundled,
        alice[3000:3300],
        out=folder / "near",
        near=Near(tolerance=2, budget=60, gap=0.0, until="budget"),
        windows=CUT,
    )
    return folder


def test_compare_prints_and_writes_nothing(folders: Path) -> None:
    before = sorted(folders.rglob("*"))
    found = rote_here("compare", folders / "all", folders / "hot", "--top", "2")
    assert found.code == 0
    conclusion, subject = found.out.splitlines()[:2]
    pair = rote.compare([folders / "all", folders / "hot"]).result.pairs[0]
    assert 0 == pair.gained < pair.lost
    low, high = pair.interval
    shares = [(pair.both + more) / pair.examples for more in (pair.lost, pair.gained)]
    assert conclusion == (
        f"A all extracts more than B hot: {100 * shares[0]:.1f}% against "
        f"{plain(numbers.percent(shares[1]))} of {pair.examples} windows at τ = 0.001 (from A to B "
        f"{plain(numbers.points(pair.difference))} percentage points, 95% interval {plain(numbers.points(low))} to "
        f"{plain(numbers.points(high))} as if windows were independent; 0 gained, {pair.lost} lost)."
    )
    assert subject.startswith("2 runs over the same")
    assert "scheme   temperature=1 top_k=40  temperature=3" in found.out
    assert "Largest losses, A to B; first" in found.out
    assert found.out.count("falls below τ") == 2
    assert sorted(folders.rglob("*")) == before


def test_a_comparison_opens_with_its_conclusion(folders: Path, tmp_path: Path) -> None:
    same = rote_here("compare", folders / "all", folders / "early", "--out", tmp_path / "out").out.splitlines()[0]
    assert re.fullmatch(r"A all and B early extract the same \d+ of \d+ windows at τ = 0\.001\.", same)
    page = (tmp_path / "out/report.html").read_text()
    first = re.sub("<[^>]*>", "", page[page.index('<p class="headline">') :].split("</p>")[0]).replace("\u00a0", " ")
    assert first == same
    three = rote_here("compare", folders / "all", folders / "early", folders / "hot").out.splitlines()[:2]
    assert [" and B" in three[0], "than C" in three[1]] == [True, True]


def outcome(gained: int, lost: int, both: int, neither: int) -> str:
    """What is concluded of two score runs that move so."""
    total = gained + lost + both + neither
    runs = [
        SimpleNamespace(
            key=key, name=f"runs/{key}1", folder=f"runs/{key}1", scheme="greedy", model=SimpleNamespace(label=None)
        )
        for key in "AB"
    ]
    difference = (gained - lost) / total if total else 0.0
    spread = 1.96 * math.sqrt(gained + lost) / total if total else 0.0
    pair = SimpleNamespace(
        first="A", second="B", gained=gained, lost=lost, both=both, neither=neither, examples=total,
        difference=difference, interval=[difference - spread, difference + spread], whole=None, undecided=0,
    )  # fmt: skip
    result: Any = SimpleNamespace(runs=runs, pairs=[pair], tau=0.001, unit="example", scanned=False)
    (said,) = conclusion_of(result)
    return plain(said)


def test_what_is_concluded_of_two_runs() -> None:
    assert outcome(0, 0, 0, 1) == "A A1 and B B1 extract none of 1 example at τ = 0.001."
    assert outcome(0, 0, 2, 3) == "A A1 and B B1 extract the same 2 of 5 examples at τ = 0.001."
    assert outcome(0, 0, 0, 0) == "A A1 and B B1 have no example in common: there is nothing to compare."
    assert outcome(40, 4, 10, 46) == (
        "B B1 extracts more than A A1: 50.0% against 14.0% of 100 examples at τ = 0.001 (from A to B +36.0 "
        "percentage points, 95% interval +23.0 to +49.0; 40 gained, 4 lost)."
    )
    assert outcome(5, 4, 10, 81) == (
        "A A1 and B B1 do not differ by more than chance: they extract 14.0% and 15.0% of 100 examples at τ = 0.001 "
        "(difference +1.00 percentage points, 95% interval -4.88 to +6.88; 5 gained, 4 lost)."
    )


def test_compare_json_is_what_is_written(folders: Path, tmp_path: Path) -> None:
    found = rote_here("compare", folders / "all", folders / "early", "--json", "--out", tmp_path / "out")
    assert found.code == 0
    assert json.loads(found.out) == json.loads((tmp_path / "out/comparison.json").read_text())
    stopped = json.loads(found.out)["pairs"][0]
    assert stopped["log_prob"]["unknown"] > 0
    assert (stopped["gained"], stopped["lost"]) == (0, 0)
    assert stopped["both"] > 0 < stopped["neither"]


def test_report_writes_a_comparison_anew(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folders)
    first = rote_here("compare", "all", "hot", "--tau", "0.01", "--top", "1", "--out", tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "report.html").unlink()
    again = rote_here("report", tmp_path)
    assert (again.code, again.out, again.err) == (0, first.out, "")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert json.loads(rote_here("report", tmp_path, "--json").out) == json.loads(before["comparison.json"])
    monkeypatch.chdir(tmp_path)
    gone = rote_here("report", tmp_path)
    assert (gone.code, gone.out) == (1, "")
    assert "compares all, which is not there." in gone.err
    monkeypatch.chdir(folders)
    stored = json.loads(before["comparison.json"])
    stored["runs"][0]["examples"] += 1
    (tmp_path / "comparison.json").write_text(json.dumps(stored))
    changed = rote_here("report", tmp_path)
    assert changed.code == 1
    assert f"{tmp_path}/comparison.json is not what was sealed" in " ".join(changed.err.split())
    reseal(tmp_path)
    changed = rote_here("report", tmp_path)
    assert changed.code == 1
    assert "no longer those that were compared" in " ".join(changed.err.split())
    assert (tmp_path / "report.html").read_bytes() == before["report.html"]
    (tmp_path / "comparison.json").write_text("{}")
    reseal(tmp_path)
    assert "Compare the runs again: rote compare." in rote_here("report", tmp_path).err


def test_nothing_is_said_of_passages_that_were_not_asked_for(folders: Path, tmp_path: Path) -> None:
    found = rote_here("compare", folders / "all", folders / "hot", "--top", "0", "--out", tmp_path)
    assert found.code == 0
    assert "likel" not in found.out.split("Fixed sets")[1]
    assert "What moved" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_changes_of_rows_that_were_given_up_are_said_to_be_bounds() -> None:
    passage = MovedPassage(
        example_id="w0", suffix_start=None, suffix_end=None, log_prob=[-20.0, -0.1], bounded=[True, False],
        greedy=[False, True], crossed=True, least_change=19.9, exact=False, prefix="", suffix="",
    )  # fmt: skip
    words = [value for _, value in moved_facts(passage, gain=True)]
    assert ", ".join(words) == "at most 2.1e-09 to 0.905, at least 439 million times as likely, passes τ"
    gone = replace(passage, log_prob=[-0.1, None], bounded=[False, False], least_change=None, exact=True)
    assert moved_facts(gone, gain=False) == [("p_z", "0.905 to 0"), ("Threshold", "falls below τ")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "all"], "at least two runs"),
        (["compare", "all", "all"], "given twice"),
        (["compare", "all", "nowhere"], "there is no folder nowhere; give the one that a finished run was written to."),
        (["compare", "all", "."], "no manifest.json"),
        (["compare", "all", "hot", "--tau", "1.5"], "(0, 1]"),
        (["compare", "all", "hot", "--out", "all"], "holds a run"),
        (["show", "all"], "exactly one of --example, --quote and --at"),
        (["show", "all", "--at", "1", "--quote", "x"], "exactly one of --example, --quote and --at"),
        (["show", "all", "--at", "-1"], "characters 0 to"),
        (["show", "all", "--quote", " "], "--quote is empty"),
        (["show", "all", "--example", "w1"], "has no example 'w1'"),
    ],
)
def test_mistakes_end_in_one_line(
    folders: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(folders)
    found = rote_here(*arguments)
    assert (found.code, found.out) == (1, "")
    assert found.err.startswith("error: ")
    assert words in found.err
    assert len(found.err.strip().splitlines()) == 1


def test_show_one_passage(folders: Path) -> None:
    found = rote_here("show", folders / "near", "--at", "120")
    assert found.code == 0
    for words in ("p_z", "Prompts for 99.9%", "Rank", "Without scheme", "at least once in n generations", "Verdict"):
        assert words in found.out
    shown = json.loads(rote_here("show", folders / "near", "--at", "120", "--json").out)
    (run,) = shown["runs"]
    assert "".join(token["text"] for token in run["tokens"]) == run["suffix"]
    assert run["near"]["lower"] >= run["p_z"] - 1e-6
    if any(candidate["distance"] for candidate in run["near"]["candidates"]):
        assert "{+" in found.out or "[-" in found.out


def test_show_side_by_side(folders: Path) -> None:
    runs = [folders / name for name in ("all", "hot", "early")]
    given_up = Run.open(folders / "early").scores.filter(pl.col("bounded"))["suffix_start"][0]
    quote = (Run.open(folders / "all").text or "")[given_up : given_up + 30]
    found = rote_here("show", *runs, "--quote", quote)
    assert found.code == 0
    assert "all of the quotation's 30 characters" in found.out
    lines = found.out.splitlines()
    assert any(line.startswith("C  ") and "at most" in line for line in lines)
    assert found.out.count("Tokens of the suffix") == 3
    assert "Given up after" in found.out
