"""What a model is called: its label wherever it is named, and its path in the method alone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import ModelOptions, Run
from rote.report.text.comparison import runs_table
from rote.report.text.conclusion import run_label
from tests.cli.command import rote_here
from tests.jobs.support import SIZES


@pytest.fixture
def made(tiny_folder: Path, alice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    folder = tmp_path
    (folder / "book.txt").write_text(alice[3000:4000])
    model = rote.load(tiny_folder, ModelOptions(label="Tiny (step 1/2)"))
    monkeypatch.chdir(folder)
    run = rote.scan(model, folder / "book.txt", windows=SIZES)
    assert run.folder == Path("runs/book-Tiny (step 1-2)")
    return rote.Run.open(run.folder.resolve())


def test_titles_have_the_label_and_the_method_the_path(made: Run, tiny_folder: Path) -> None:
    page = (made.folder / "report.html").read_text()
    assert re.search(r"<h1>What .*Tiny \(step 1/2\)", page)
    assert re.search("<title>book.txt, Tiny .step 1/2.: Rote", page)
    assert page.count(str(tiny_folder)) == 1
    assert str(tiny_folder) in page[page.index('id="method"') :]
    shown = rote_here("report", made.folder).out
    assert "Tiny (step 1/2), weights" in shown
    assert str(tiny_folder) not in shown


def test_it_decides_nothing_and_goes_with_the_run(made: Run, tiny_folder: Path, tmp_path: Path) -> None:
    assert made.model_options.label == "Tiny (step 1/2)"
    assert not made.model_options.trust_remote_code
    again = rote.load(tiny_folder, ModelOptions(label="another"))
    kept = rote.scan(again, made.folder.parent.parent / "book.txt", windows=SIZES, out=made.folder)
    assert kept.manifest.model.label == "Tiny (step 1/2)"


def test_comparisons_name_models_by_it(made: Run, tiny_folder: Path, tmp_path: Path) -> None:
    text = (made.folder.parent.parent / "book.txt").read_text()
    other = rote.scan(rote.load(tiny_folder), text, name="book.txt", windows=SIZES, out=tmp_path / "plain")
    result = rote.compare([made.folder, other.folder]).result
    table: Any = runs_table(result)
    assert [row[2] for row in table[1:]] == ["Tiny (step 1/2)", "tiny"]
    assert [run_label(run) for run in result.runs] == ["A Tiny (step 1/2)", "B plain"]
    assert replace(result.runs[1].model, label="x").title == "x"
    assert table[1][4] == "auto: '<|bos|>' (id 0)"
