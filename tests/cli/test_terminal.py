"""Commands in a window that is too narrow for their tables: nothing sticks out, nothing is lost, no number is cut."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from rich.cells import cell_len

import rote
from rote.cli.fit import print_texts
from rote.report.text.comparison import aligned
from tests.cli.command import Result, rote_in_terminal
from tests.cli.test_screen import ESCAPE, piped, plain, window

WIDE, NARROW = 1000, (60, 40)
CUT = ("--prefix", "20", "--suffix", "20", "--stride", "50")
COMMANDS: dict[str, list[str]] = {
    "compare": ["all", "hot", "near", "--out", "compared"],
    "show": ["all", "hot", "near", "--at", "1200"],
    "check": ["all", "--samples", "20", "--passages", "2", "--show", "1", "--device", "cpu"],
    "sweep": [
        "book.txt", "--scheme", "top_k=1,40,0", "--scheme", "top_p=0.5", "--prefix", "10,20", "--suffix", "10,20",
        "--stride", "200", "--out", "swept", "--device", "cpu",
    ],
    "reconstruct": [
        "--seed", "opening.txt", "--truth", "truth.txt", "--tokens", "170", "--beams", "1", "--out", "written",
        "--device", "cpu",
    ],
    "spots": ["near", "--at", "0.001"],
    "report": ["near"],
}  # fmt: skip
PLACE = re.compile(r"(report|table|text|seal) {2,}\S+(, and .csv)?")
"""Where something was written: in one piece, to be copied."""


@pytest.fixture(scope="module")
def screens(bundled: Any, alice: str, gatsby: str, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Result]:
    """Every command in windows of every width, all started by one process."""
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "book.txt").write_text(gatsby[50_000:51_000] + alice[3000:3500], encoding="utf-8")
    (folder / "opening.txt").write_text(alice[:300], encoding="utf-8")
    (folder / "truth.txt").write_text(alice[:600], encoding="utf-8")
    cut, book = rote.Windows(prefix=20, suffix=20, stride=50), folder / "book.txt"
    near = rote.Near(tolerance=2, budget=60)
    rote.scan(bundled, book, out=folder / "all", windows=cut)
    rote.scan(bundled, book, out=folder / "hot", windows=cut, schemes="temperature=3")
    rote.scan(bundled, book, out=folder / "near", windows=cut, near=near)
    commands = [[name, *arguments] for name, arguments in COMMANDS.items()]
    return rote_in_terminal(commands, widths=(WIDE, *NARROW), within=folder)


def lines_of(result: Result) -> list[str]:
    assert result.code == 0, result.err
    return [line for line in ESCAPE.sub("", result.out).split("\n") if not PLACE.fullmatch(line)]


def numbers_in(lines: list[str]) -> Counter[str]:
    """Every number as it stands in one line. How many characters a bar of the strip shows depends on the window."""
    text = re.sub(r"within\s+\S+\s+characters", "", "\n".join(lines))
    return Counter(re.findall(r"[+-]?\d(?:[\d.,]*\d)?(?:e[+-]\d+)?%?", text))


@pytest.mark.parametrize("width", NARROW)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_window(command: str, width: int, screens: dict[Any, Result]) -> None:
    shown = screens[command, width]
    assert "\x1b[" in shown.out or command in ("check", "compare", "reconstruct"), "it takes this for a terminal"
    lines = lines_of(shown)
    assert len(lines) > 10
    assert [line for line in lines if cell_len(line) > width] == []


@pytest.mark.parametrize("width", NARROW)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_number_is_cut_and_no_word_is_lost(command: str, width: int, screens: dict[Any, Result]) -> None:
    wide, narrow = lines_of(screens[command, WIDE]), lines_of(screens[command, width])
    every = numbers_in(wide)
    assert sum(every.values()) > 20
    assert every - numbers_in(narrow) == Counter()
    if command != "report":  # which shows as much of a passage as fits
        found = [set(re.findall(r"[^\W\d_]{2,}", " ".join(lines))) for lines in (wide, narrow)]
        assert found[0] - found[1] == set()


@pytest.mark.parametrize("width", NARROW)
def test_tables_are_told_row_by_row(width: int, screens: dict[Any, Result]) -> None:
    compared = " ".join(" ".join(lines_of(screens["compare", width])).split())
    assert "near.tolerance: A –, B –, C 2 near.method: A –" in compared
    assert re.search(
        r"A: p 10%, n = 1: [\d.]+%, n = 10: [\d.]+%, .*?n = 1,000,000: [\d.]+% B: p 10%, n = 1: ", compared
    )
    assert re.search(r"A: Sequences \d+; A [\d.]+%, [\d.]+; B ", compared)
    shown = " ".join(" ".join(lines_of(screens["show", width])).split())
    assert re.search(r"n: A: 1: [\d.]+, 10: [\d.]+, 100: > 0\.\d+", shown)
    assert "C: Run near, Model bundled, Scheme temperature=1 top_k=40, BOS auto: '<|bos|>' (id 0), p_z " in shown


def test_what_sticks_out_goes_on_under_its_first_word(screens: dict[Any, Result]) -> None:
    lines = lines_of(screens["compare", 40])
    at = next(i for i, line in enumerate(lines) if line.startswith("    “"))
    assert re.match(r"    \S", lines[at + 1])
    assert re.match(r"  \S", lines[at - 1])


def test_signs_stay_with_their_numbers(screens: dict[Any, Result]) -> None:
    for (_, width), result in screens.items():
        if width in NARROW:
            assert not [line for line in lines_of(result) if re.search(r"(?:^| )[>≥≤×±=]$", line)]


def test_rows_and_lines_with_styles_one_after_the_other() -> None:
    from rich.text import Text

    rows = aligned([["name", "value"], ["one", "a value that is rather long"]])
    marked = Text("  ").append("p = 50% here,", "bold").append(" and > 0.5 there")
    out = window(20)
    print_texts(out, ["", *rows, marked, "", *aligned([["", "a", "b 1"], ["x", "1,000", "2" * 20]])])
    assert plain(out) == [
        "", "name  value", "one   a value that", "      is rather long",
        "  p = 50% here, and", "  > 0.5 there",
        "", "  x: a 1,000, b 1:", "    2222222222222222", "    2222",
    ]  # fmt: skip
    assert "\x1b[1m" in out.file.getvalue()  # type: ignore[attr-defined]
    whole = piped()
    print_texts(whole, ["", *rows, marked])
    assert plain(whole) == ["", *rows, marked.plain]
