"""What can be done with a folder of membership scores: opened, shown, drawn, exported; and what cannot."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

import rote
from rote.cli.member import print_member
from rote.membership.scores import SCORES
from rote.report.figures.member import MEMBER_FIGURES
from rote.report.keys import MARKS
from rote.store.files import plain
from tests.cli.command import rote_here
from tests.report.members import membership

IDS = ("<b>one</b>", "nul \0", "=cmd()", "\u202eturned", "x" * 500)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return membership(tmp_path_factory.mktemp("member") / "run", ids=IDS, extract=True).folder


@pytest.fixture
def found(folder: Path) -> rote.Membership:
    opened = rote.open(folder)
    assert isinstance(opened, rote.Membership)
    return opened


def test_a_folder_is_opened_as_what_it_is(found: rote.Membership) -> None:
    assert found.scores.height == 32
    assert found.view.rows["text"].null_count() == 0
    assert found.summary.evaluation is not None


def test_a_notebook_shows_the_blind_baseline_too(found: rote.Membership) -> None:
    card = found._repr_html_()
    assert "without any model" in card
    assert "No model" in card
    assert not set(MARKS) & set(card)


def test_an_unfinished_folder_says_so(tmp_path: Path) -> None:
    begun = membership(tmp_path / "run", finished=False)
    opened = rote.open(begun.folder)
    for act in (opened.report, opened.frame, lambda: opened.export("csv"), opened.figures):
        with pytest.raises(rote.RunError, match=r"is unfinished \(4 of 4 shards stored\)"):
            act()
    assert "is unfinished" in opened._repr_html_()


def test_the_table_is_exported(found: rote.Membership, tmp_path: Path) -> None:
    frame = found.frame()
    names = [score.name for score in SCORES if score.name != "reference"]
    assert [name for name in frame.columns if name in names] == names
    assert frame.height == 32
    assert "reference_loss" not in frame.columns
    paths = {to: tmp_path / f"table.{to}" for to in ("csv", "jsonl", "parquet")}
    for to, path in paths.items():
        written = found.export(to, out=path)  # type: ignore[arg-type]
        assert (written.files, written.rows) == ((path,), 32)
    assert pl.read_parquet(paths["parquet"]).equals(frame)
    lines = [json.loads(line) for line in paths["jsonl"].read_text("utf-8").splitlines()]
    assert [line["id"] for line in lines] == frame["id"].to_list()
    assert [line["token_ends"] for line in lines] == frame["token_ends"].to_list()
    rows = list(csv.DictReader(io.StringIO(paths["csv"].read_text("utf-8-sig"), newline="")))
    assert [row["id"] for row in rows][:4] == ["<b>one</b>", "nul ␀", "'=cmd()", "\u202eturned"]
    assert [float(row["loss"]) for row in rows] == frame["loss"].to_list()


@pytest.mark.parametrize("to", ["lm-eval", "evidence"])
def test_what_it_cannot_be_exported_to_is_said(found: rote.Membership, to: Any) -> None:
    with pytest.raises(rote.InputError, match=f"which {to} has no place for"):
        found.export(to)


def test_figures_are_drawn(found: rote.Membership, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = found.figures(out=tmp_path / "figures")
    assert {path.stem.split("-")[0] for path in drawn.figures} == set(MEMBER_FIGURES)
    assert drawn.absent == {}
    roc = pl.read_csv(tmp_path / "figures/roc.csv")
    for _, curve in roc.group_by("score"):
        assert curve["fpr"].is_sorted()
        assert curve["tpr"].is_sorted()
        assert curve["tpr"][-1] == 1
        assert curve["fpr"][0] == 0  # the edge of the axis is no rate
    evaluation = found.summary.evaluation
    assert evaluation is not None
    for rate, texts in (("fpr", evaluation.non_members), ("tpr", evaluation.members)):
        assert (roc[rate] * texts).to_list() == pytest.approx((roc[rate] * texts).round().to_list(), abs=1e-3)
    assert "No model" in roc["score"]
    with pytest.raises(rote.InputError, match="holds a membership run"):
        found.figures(out=tmp_path / "figures", scheme="greedy")


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify",), ("check",), ("spots",), ("show", "--quote", "the"), ("compare", "FOLDER"),
        ("longer", "--prefix", "10", "--suffix", "60"),
    ],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_what_is_about_runs_refuses_it(folder: Path, arguments: tuple[str, ...]) -> None:
    command, *others = arguments
    said = rote_here(command, folder, *(folder if one == "FOLDER" else one for one in others))
    assert said.code == 1
    assert "holds membership scores of whole texts, no run of windows or examples" in said.err


def test_report_prints_it_for_people_and_programs(folder: Path, found: rote.Membership) -> None:
    said = rote_here("report", folder)
    assert said.code == 0
    first, second, *_ = said.out.splitlines()
    assert "without any model, AUROC is 0.520" in first
    assert second.startswith("The texts alone do not tell members from non-members beyond chance: words")
    assert "On held-out texts alone" in said.out
    assert not set(MARKS) & set(said.out + said.err)
    assert "\0" not in said.out
    as_json = rote_here("report", folder, "--json")
    assert json.loads(as_json.out) == plain(found.summary)


@pytest.mark.parametrize("labels", [True, False])
def test_it_fits_a_window_of_80_columns(
    tmp_path: Path, labels: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = membership(tmp_path / "run", texts=220, labels=labels, reference=True, blind="part")
    narrow = partial(Console, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr("rote.cli.member.Console", narrow)
    print_member(rote.Membership(made.folder))
    *lines, _, report, table, seal = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if line.startswith(" Min-K%++ 20 ")]
    assert len(rows) == 2  # in tables, not told row by row
    assert report.startswith("report ")
    assert table.startswith("table ")
    assert seal.startswith("seal ")
