"""What the terminal shows of a run: lines that fit the window, nothing lost or acted upon, and no need of colour."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

import rote
from rote import Near, Run
from rote.analysis.coverage import character_maximum, spans
from rote.analysis.rates import log_prob_bounds
from rote.analysis.strongest import strongest_rows
from rote.cli.fit import print_lines, print_rows, print_table, wrap
from rote.cli.screen import print_strip, print_summary
from rote.report.text import numbers
from rote.report.text.strip import LEVELS, levels
from rote.report.text.terminal import PASSAGES, lanes, legend, passages, safe
from rote.store.files import digest
from rote.store.files import plain as as_json
from rote.store.table import SCHEMA
from tests.cli.command import rote_here
from tests.seals import reseal

WIDTHS = (20, 40, 80, 200)
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
BARS = " ▁▂▃▄▅▆▇█"


def window(width: int, **options: Any) -> Console:
    given_: dict[str, Any] = {"force_terminal": True, "color_system": "truecolor", "highlight": False, **options}
    return Console(width=width, file=io.StringIO(), legacy_windows=False, _environ={}, **given_)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def plain(console: Console) -> list[str]:
    return ESCAPE.sub("", printed(console)).splitlines()


def piped() -> Console:
    return window(80, force_terminal=False, color_system=None)


@pytest.fixture(scope="module")
def run(bundled: Any, alice: str, gatsby: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    text = gatsby[5000:6500] + alice[3000:5000] + gatsby[7000:7500]
    near = Near(tolerance=2, budget=60, gap=0.0, until="budget")
    out = tmp_path_factory.mktemp("run") / "near"
    return rote.scan(
        bundled, text, out=out, name="mixed.txt", windows=rote.Windows(prefix=12, suffix=10, stride=60), near=near
    )


@pytest.fixture(scope="module")
def scored(bundled: Any, alice: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    found = rote.windows(alice[3000:5000], bundled.tokenizer, rote.Windows(prefix=12, suffix=10, stride=150))
    examples = [rote.Example(f"id-{i}", e.prefix, e.suffix, metadata={"split": "train"}) for i, e in enumerate(found)]
    return rote.score(bundled, examples, out=tmp_path_factory.mktemp("run") / "scored")


def summary_of(run: Run, console: Console) -> list[str]:
    print_summary(run, console)
    return plain(console)


def paths(run: Run) -> list[str]:
    return [f"report   {run.folder / 'report.html'}", f"table    {run.folder / 'scores'}", f"seal     {run.seal.id}"]


# --- fitting the window


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["run", "scored"])
def test_every_line_fits(width: int, name: str, request: pytest.FixtureRequest) -> None:
    shown: Run = request.getfixturevalue(name)
    lines = summary_of(shown, window(width))
    assert lines[-3:] == paths(shown)  # in one piece, to be copied
    for line in lines[:-3]:
        assert cell_len(line) <= width, line
        assert line == line.rstrip()


@pytest.mark.parametrize("width", WIDTHS)
def test_wrapping_loses_no_word(width: int, run: Run) -> None:
    """Up to the strip, the words in the window are those in a pipe."""

    def words(lines: list[str]) -> list[str]:
        end = next(i for i, line in enumerate(lines) if "│" in line)
        return "".join("".join(lines[:end]).split()).split()

    assert words(summary_of(run, window(width))) == words(summary_of(run, piped()))


def test_values_go_on_under_their_values(run: Run) -> None:
    lines = summary_of(run, window(60))
    at = next(i for i, line in enumerate(lines) if line.startswith("uncertainty "))
    assert lines[at].startswith("uncertainty The windows are all")
    assert all(line.startswith(" " * 12) and line[12] != " " for line in lines[at + 1 : at + 4])
    (first,) = (line for line in lines if line.startswith("model "))
    assert first.startswith("model       bundled, weights")


def test_in_a_pipe_a_sentence_is_a_line(run: Run) -> None:
    lines = summary_of(run, piped())
    assert "\x1b" not in "".join(lines)
    assert max(map(len, lines)) > 150
    for name in ("near", "rates", "coverage", "longest", "model", "scheme", "bos", "uncertainty", "cost"):
        assert sum(line.startswith(f"{name:<12}") for line in lines) == 1


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


@given(text, st.integers(8, 60), st.sampled_from(["", "name        ", " 1  "]))
def test_wrapped_text_fits_and_is_whole(given_text: str, width: int, first: str) -> None:
    shown = safe(given_text)
    lines = wrap(window(width), shown, first)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join((first + shown).split())


def test_numbers_stay_with_their_signs() -> None:
    sentence = "the rate at τ = 0.001 and p ≥ 50% over the runs 22.6% ± 4.47% here"
    for width in range(14, 60):
        joined = "\n".join(wrap(window(width), sentence))
        for whole in ("τ = 0.001", "p ≥ 50%", "22.6% ± 4.47%"):
            assert whole in joined


def test_columns_that_do_not_fit_are_told_row_by_row() -> None:
    lines = ["rate     mean    worth", "greedy   12.5%   24", "at τ     13.5%   25"]
    out = window(22)
    print_lines(out, lines)
    assert plain(out) == lines  # they fit
    out = window(21)
    print_lines(out, lines)
    assert plain(out) == [
        "rate:", "  greedy: mean", "    12.5%, worth 24", "  at τ: mean 13.5%,", "    worth 25",
    ]  # fmt: skip
    out = piped()
    print_lines(out, [line + "   x" * 40 for line in lines])
    assert all(len(line) > 100 for line in plain(out))


def test_a_value_with_gaps_in_it_is_no_table() -> None:
    lines = ["model       m", "scheme      greedy", f"warning     {'it  said  so ' * 9}"]
    out = window(40)
    print_lines(out, lines)
    found = plain(out)
    assert found[:2] == lines[:2]
    assert found[2].startswith("warning     it  said")
    assert all(line.startswith(" " * 12) for line in found[3:])
    out = window(20)
    print_lines(out, ["one  two  three  four  five"])
    assert " ".join(plain(out)).split() == ["one", "two", "three", "four", "five"]


def test_a_table_never_cuts_a_number_off() -> None:
    rows = [["1,000,000", "32.6%", "99.979%"], ["10", "0%", "100%"]]
    for width in range(16, 60):
        out = window(width)
        print_table(out, "Windows that come out", ("n", "p = 10%", "p = 99%"), rows)
        shown = "\n".join(plain(out))
        for cell in ("1,000,000", "32.6%", "99.979%", "100%"):
            assert cell in shown, width
        assert "…" not in shown
        assert all(cell_len(line) <= width for line in plain(out))


def test_in_a_pipe_a_table_is_as_wide_as_it_is() -> None:
    out = piped()
    print_table(out, "Title", ["a", "b", "c"], [["x" * 90, "1,000,000", "y" * 50]])
    assert re.search("x{90} +1,000,000 +y{50}", "\n".join(plain(out)))


def test_rows_of_foreign_text_are_not_markup() -> None:
    table = Table("name", "value", box=None)
    out = window(80)
    print_rows(out, table, [["[red]x[/red]", "\x1b[31m"]])
    assert "[red]x[/red]" in "\n".join(plain(out))
    assert "␛[31m" in "\n".join(plain(out))


# --- the strip


def strips(lines: list[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        if match := re.fullmatch(r"(\w*) *│(.*)│", line):
            found[match[1]] = match[2]
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_the_strip_is_the_highest_probability_of_each_part(width: int, run: Run) -> None:
    found = strips(summary_of(run, window(width)))
    rows, length, tau = run.scores.to_dicts(), run.finished.length, run.manifest.tau
    assert list(found) == ["verbatim", "near"]
    for name, bars in found.items():
        count = len(bars)
        assert count == min(width, 160) - len("verbatim") - 3
        for i, bar in enumerate(bars):
            start, end = i * length // count, (i + 1) * length // count
            over = [row for row in rows if row["suffix_start"] < end and row["suffix_end"] > start]
            best = max((math.exp(row["log_prob"]) if name == "verbatim" else row["lower"] for row in over), default=0)
            if best < tau:
                assert bar == (" " if over else "·")
            else:  # equal steps in the logarithm, from tau to 1
                level = min(int(LEVELS * (1 - math.log(best) / math.log(tau))), LEVELS - 1)
                assert bar == BARS[1:][round(level / (LEVELS - 1) * 7)]
    assert {" ", "█"} <= set(found["verbatim"])


def test_without_a_search_there_is_one_line(run: Run) -> None:
    out = window(50)
    print_strip(out, replace(run.view, manifest=replace(run.manifest, near=None)))
    assert list(strips(plain(out))) == [""]
    assert len(strips(plain(out))[""]) == 48
    assert "near:" not in " ".join(plain(out))


def test_colours_rise_with_probability_and_are_not_needed(run: Run) -> None:
    coloured, bare = window(80), window(80, no_color=True)
    for out in (coloured, bare):
        print_summary(run, out)
    assert re.search(r"\x1b\[38;2;255;\d+;\d+m", printed(coloured))
    assert not re.search(r"\x1b\[[0-9;]*38;", printed(bare))
    assert plain(coloured) == plain(bare)


def test_the_legend_s_bars_are_those_of_the_strip(run: Run) -> None:
    (lane, _) = lanes(run.view)
    assert legend(lane, 0.001) == [(0, "0.001"), (4, "0.01"), (8, "0.1"), (11, "1")]
    assert legend(lane, 1.0) == [(11, "1")]
    assert "▁ 0.001  ▄ 0.01  ▆ 0.1  █ 1" in summary_of(run, piped())


def test_chosen_windows_leave_parts_unseen(run: Run) -> None:
    chosen = replace(run.manifest, windows=replace(run.view.windows, within=[(0, 10)]))
    out = piped()
    print_strip(out, replace(run.view, manifest=chosen, scores=run.scores[:1]))
    assert set(strips(plain(out))["verbatim"][-50:]) == {"·"}
    assert "blank below τ = 0.001, a dot (·) not looked at" in plain(out)[-1]


def test_a_lower_bound_of_zero_is_blank(run: Run) -> None:
    rows = run.scores.with_columns(pl.lit(0.0).alias("lower"))
    best = lanes(replace(run.view, scores=rows))[1].best
    assert np.isneginf(best[~np.isnan(best)]).all()


def test_spots_show_the_strip_of_what_is_asked_for(run: Run) -> None:
    same = strips(rote_here("spots", run.folder, "--at", "0.001").out.splitlines())
    assert same == strips(summary_of(run, piped()))
    found = {at: rote_here("spots", run.folder, "--at", str(at)).out for at in (0.001, 0.5, 1.0)}
    best = character_maximum(*spans(run.scores), run.scores["log_prob"].to_numpy(), run.view.length)
    for at, out in found.items():
        bars = strips(out.splitlines())["verbatim"]
        assert len(bars) == 100 - 11
        assert [bar not in " ·" for bar in bars] == [level >= 0 for level in levels(best, tau=at, count=len(bars))]
        assert f"blank below p = {100 * at:g}%, a dot (·) not looked at" in " ".join(out.split())
    shown = [sum(map(strips(out.splitlines())["verbatim"].count, " ·")) for out in found.values()]
    assert shown[0] < shown[1] < shown[2] == 100 - 11
    whole = strips(rote_here("spots", run.folder, "--at", "0.5", "--span", "example").out.splitlines())["verbatim"]
    assert whole.count(" ") < shown[1]  # prefixes as well


# --- passages


@pytest.mark.parametrize("name", ["run", "scored"])
def test_the_strongest_passages_are_the_page_s(name: str, request: pytest.FixtureRequest) -> None:
    shown: Run = request.getfixturevalue(name)
    strongest = strongest_rows(shown.scores, math.log(0.001), overlapping=name == "scored")[:PASSAGES]
    assert len(strongest) == PASSAGES
    lines = summary_of(shown, piped())
    at = next(i for i, line in enumerate(lines) if line.startswith("The strongest passages"))
    for number, row in enumerate(strongest):
        facts, words = lines[at + 1 + 2 * number : at + 3 + 2 * number]
        assert facts.startswith(
            f" {number + 1}  p_z {numbers.probability(row['log_prob'])}, {numbers.one_in(row['log_prob'])}, "
        )
        if name == "run":
            assert f", within 2 edits {numbers.interval(row['lower'], row['upper'])}, " in facts
            assert f"characters {row['suffix_start']:,} to {row['suffix_end']:,} (" in facts
        else:
            assert facts.endswith(f", {row['example_id']}")
        assert words.strip().removesuffix(" …") in " ".join(shown.texts[row][1].split())
    assert lines[at + 1 + 2 * PASSAGES] == ""
    found = passages(shown.view)
    assert [each.words for each in found] == [line.strip() for line in lines[at + 2 : at + 12 : 2]]


def test_where_nothing_reaches_tau_there_is_no_passage(run: Run, tmp_path: Path) -> None:
    assert passages(replace(run.view, scores=run.scores.filter(pl.lit(False)))) == []
    low = run.scores.filter(pl.Series(log_prob_bounds(run.scores)[0] < math.log(0.001)))
    assert low.height
    assert passages(replace(run.view, scores=low)) == []


NASTY = {
    "escape": "\x1b[2J\x1b]0;title\x07 red \x1b[31m",
    "c1": "\x9b2J \x9d0;x\x9c \x85next",
    "nul": "a\0b",
    "newlines": "one\ntwo\r\nthree\tfour\u2028five",
    "rtl": "שלום עולם, זה טקסט ארוך מאוד שאינו נכנס לשורה אחת בחלון צר",
    "override": "abc \u202egnp.exe\u202c \u2066x\u2069 \u200f",
    "emoji": "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 " * 10,
    "wide": "漢字かな交じり文" * 20,
    "markup": "[bold red]not bold[/] [link=x]y[/link]",
    "long": "x" * 500,
    "combining": "e\u0301\u0302\u0303" * 60,
}


@pytest.fixture(scope="module")
def nasty(scored: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The scored run with other texts, ids and names in its place."""
    folder = tmp_path_factory.mktemp("nasty") / "run"
    shutil.copytree(scored.folder, folder)
    lines = [json.loads(line) for line in (folder / "examples.jsonl").read_text().splitlines()]
    named = dict(zip([line["id"] for line in lines], NASTY.items(), strict=False))
    for line in lines:
        if line["id"] in named:
            kind, value = named[line["id"]]
            line |= {"id": f"{kind} {value}", "suffix_text": value}
    content = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "examples.jsonl").write_text(content)
    ids = {old: f"{kind} {value}" for old, (kind, value) in named.items()}
    for shard in Run(folder).shards():
        table = pl.read_parquet(shard)
        metadata = pq.read_schema(shard).metadata
        renamed = table.with_columns(pl.col("example_id").replace(ids)).to_arrow().cast(SCHEMA)
        pq.write_table(renamed.replace_schema_metadata(metadata), shard, write_page_checksum=True)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["source"]["text_sha256"] = digest(content)
    manifest["model"]["name"] = NASTY["escape"] + NASTY["override"] + NASTY["wide"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    reseal(folder)
    return Run(folder)


@pytest.mark.parametrize("width", WIDTHS)
def test_foreign_text_does_nothing_but_stand_there(width: int, nasty: Run) -> None:
    for first in range(0, len(NASTY), PASSAGES):  # some at a time: no more are shown
        kept = list(NASTY)[first : first + PASSAGES]
        rows = nasty.scores.filter(pl.col("example_id").str.split(" ").list.first().is_in(kept))
        rows = rows.with_columns(pl.lit(-0.5).alias("log_prob"))
        out = window(width)
        for passage in passages(replace(nasty.view, scores=rows)):
            print_lines(out, [passage.facts, passage.words])
        assert rows.height == len(kept)
        check_safe(out, width)
    out = window(width)
    print_summary(nasty, out)
    check_safe(out, width)


TURNING = ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI")
"""Characters that turn the writing around."""


def check_safe(out: Console, width: int) -> None:
    shown = ESCAPE.sub("", printed(out))
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c != "\n"]
    assert not [c for c in shown if unicodedata.bidirectional(c) in TURNING]
    copied = ("report ", "table ", "seal ")
    assert all(cell_len(line) <= width for line in shown.split("\n") if not line.startswith(copied))


def test_in_a_pipe_foreign_text_is_safe_as_well(nasty: Run) -> None:
    out = piped()
    print_summary(nasty, out)
    assert "\x1b" not in printed(out)
    assert "\x9b" not in printed(out)
    assert "\u202e" not in printed(out)
    assert "abc ⇚gnp.exe↨ ⇨x⇳ ↤" in printed(out)


@pytest.mark.parametrize("kind", NASTY)
def test_a_passage_of_foreign_text_is_safe_to_show(kind: str, nasty: Run) -> None:
    result = rote_here("show", nasty.folder, "--example", f"{kind} {NASTY[kind]}")
    assert result.code == 0, result.err
    assert not [c for c in result.out if unicodedata.category(c) == "Cc" and c != "\n"]
    assert not [c for c in result.out if unicodedata.bidirectional(c) in TURNING]


# --- the command


@pytest.mark.parametrize("name", ["run", "scored"])
def test_report_prints_it(name: str, request: pytest.FixtureRequest) -> None:
    shown: Run = request.getfixturevalue(name)
    result = rote_here("report", shown.folder)
    assert result.code == 0
    assert "The strongest passages" in result.out
    assert ("│" in result.out) == (name == "run")
    whole = json.loads(rote_here("report", shown.folder, "--json").out)
    assert whole == as_json(shown.summary)
    assert whole == json.loads((shown.folder / "summary.json").read_text())
