"""What can be done with a folder of probes: opened, shown, drawn, exported; and what cannot."""

from __future__ import annotations

import csv
import html
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

import rote
from rote.cli.probe import print_estimate, print_probe
from rote.report.figures.probe import PROBE_FIGURES
from rote.report.keys import MARKS
from rote.store.files import plain
from tests.cli.command import rote_here
from tests.report.probes import RULE, probe

IDS = ("<b>one</b>", "nul \0", "=cmd()", "\u202eturned", "x" * 500)
ANSWERS = ("<b>seven</b>", "nul \0 \x1b[31m", "=cmd()", "\u202eturned")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return probe(tmp_path_factory.mktemp("probe") / "run", ids=IDS, answers=ANSWERS).folder


@pytest.fixture
def found(folder: Path) -> rote.Probe:
    opened = rote.open(folder)
    assert isinstance(opened, rote.Probe)
    return opened


def test_a_folder_is_opened_as_what_it_is(found: rote.Probe) -> None:
    assert len(found.texts) == found.summary.texts == 40
    assert found.words.height == found.summary.words.content  # type: ignore[union-attr]
    assert set(found.questions["role"]) == {"target", "filter", "paraphrase", "slot"}
    assert found.view.verdicts.height == 40 * 2 * 5


def test_a_notebook_shows_what_a_hit_is_worth_and_the_rule(found: rote.Probe) -> None:
    card = found._repr_html_()
    assert "only as far as the word cannot be guessed" in card
    assert "The base rate" in card
    assert RULE in html.unescape(card)
    assert not set(MARKS) & set(card)


def test_an_unfinished_folder_says_so(tmp_path: Path) -> None:
    begun = probe(tmp_path / "run", texts=4, finished=False)
    opened = rote.open(begun.folder)
    for act in (opened.report, opened.frame, lambda: opened.export("csv"), opened.figures):
        with pytest.raises(rote.RunError, match=r"is unfinished \(words of 1 of 1 shard of texts stored\)"):
            act()
    assert "is unfinished" in opened._repr_html_()


def test_the_questions_are_exported(found: rote.Probe, tmp_path: Path) -> None:
    frame = found.frame()
    assert frame.height == found.questions.height
    assert frame.columns[:3] == ["role", "name", "model"]
    assert set(frame["name"]) == {"org/chat-0", "org/chat-1", "models/small-0", "org/rewriter", "org/picker"}
    label = {text.id: text.label for text in found.texts.values()}
    assert frame["label"].to_list() == [label[text] for text in frame["text"]]
    paths = {to: tmp_path / f"table.{to}" for to in ("csv", "jsonl", "parquet")}
    for to, path in paths.items():
        written = found.export(to, out=path)  # type: ignore[arg-type]
        assert (written.files, written.rows) == ((path,), frame.height)
    assert pl.read_parquet(paths["parquet"]).equals(frame)
    lines = [json.loads(line) for line in paths["jsonl"].read_text("utf-8").splitlines()]
    assert [line["answer"] for line in lines] == frame["answer"].to_list()
    rows = list(csv.DictReader(io.StringIO(paths["csv"].read_text("utf-8-sig"), newline="")))
    assert "'=cmd()" in {row["answer"] for row in rows}
    assert [row["outcome"] for row in rows] == frame["outcome"].to_list()


@pytest.mark.parametrize("to", ["lm-eval", "evidence"])
def test_what_it_cannot_be_exported_to_is_said(found: rote.Probe, to: Any) -> None:
    with pytest.raises(rote.InputError, match=f"holds answers of chat models, which {to} has no place for"):
        found.export(to)


def test_figures_are_drawn(found: rote.Probe, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = found.figures(out=tmp_path / "figures")
    assert {path.stem for path in drawn.figures} == set(PROBE_FIGURES)
    assert drawn.absent == {}
    hits = pl.read_csv(tmp_path / "figures/hits.csv")
    base = hits.filter(pl.col("repetitions").is_null())
    assert base["method"].to_list() == [
        "Probability, filtered",
        "Names, filtered",
        "Slot, filtered",
        "Prefix",
        "DE-COP",
    ]
    own = next(one for one in found.summary.probed if one.name == "decop")
    assert own.by_label is not None
    assert base.filter(pl.col("method") == "DE-COP")["hit_rate"].to_list() == [own.by_label["non-member"].value]
    shares = pl.read_csv(tmp_path / "figures/outcomes.csv")
    for _, one in shares.group_by("method"):
        assert one["share"].sum() == pytest.approx(1)
    with pytest.raises(rote.InputError, match="holds a probe"):
        found.figures(out=tmp_path / "figures", scheme="greedy")


def test_what_figures_need_is_said(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    alone = rote.open(probe(tmp_path / "run", texts=6, methods=("cloze",), targets=1, labels=False).folder)
    drawn = alone.figures(out=tmp_path / "figures")
    assert {path.stem for path in drawn.figures} == {"outcomes"}
    assert drawn.absent == {name: needs for name, needs in PROBE_FIGURES.items() if name != "outcomes"}


def test_local_targets_are_drawn_by_their_size(tmp_path: Path) -> None:
    from rote.report.figures.probe import probe_figures

    made = probe(tmp_path / "run", texts=6, methods=("cloze",), targets=3, local=True)
    (figure,) = (one for one in probe_figures(made.view) if one.name == "targets")
    assert figure.x.scale == "log"
    assert sorted(set(figure.table["parameters"])) == [10**6, 8 * 10**6, 64 * 10**6]


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
    assert "holds probes of chat models, no run of windows or examples; `rote report` shows it." in said.err


def test_report_prints_it_for_people_and_programs(folder: Path, found: rote.Probe) -> None:
    said = rote_here("report", folder)
    assert said.code == 0
    first, second, *_ = said.out.splitlines()
    assert "passages flagged: at least 2 of their words came back from chat-0." in first
    assert second.startswith("A word that comes back shows")
    assert f"How answers were judged: {RULE}" in said.out
    assert "at most $0.0123 more for attempts without an answer" in said.out
    assert not set(MARKS) & set(said.out + said.err)
    assert "\0" not in said.out
    as_json = rote_here("report", folder, "--json")
    assert json.loads(as_json.out) == plain(found.summary)


@pytest.mark.parametrize("labels", [True, False])
def test_it_fits_a_window_of_80_columns(
    tmp_path: Path, labels: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = probe(tmp_path / "run", texts=12, labels=labels)
    monkeypatch.setattr("rote.cli.probe.Console", partial(Console, force_terminal=True, width=80, color_system=None))
    print_probe(rote.Probe(made.folder))
    *lines, _, report, table, seal = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert report.startswith("report ")
    assert table.startswith("table ")
    assert seal.startswith("seal ")
    print_estimate(made.summary.estimates, "Nothing was asked: give --yes.")
    told = capsys.readouterr().out.splitlines()
    assert max(map(len, told)) <= 80
    assert " questions to ask, for at most $" in told[0]
    assert told[-1] == "Nothing was asked: give --yes."


PASSAGE = '{"text": "Maren sat on the quay at dusk and counted seventeen crooked lanterns.", "label": true}\n'


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--hits", "auto"], "questions to ask; no price is known."),
        (["--price", "2.5,10", "--header", "X-Project: lanterns", "--body", '{"top_k": 1}'], "for at most $0.0"),
        (["--method", "decop", "--paraphraser", "http://localhost:9/v1/org/other"], " other "),
        (["--method", "slot", "--picker", "http://localhost:9/v1/org/other"], " other "),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else "",
)
def test_the_command_says_what_it_would_ask(tmp_path: Path, options: list[str], told: str) -> None:
    (tmp_path / "passages.jsonl").write_text(PASSAGE)
    served: list[str | Path] = ["--target", "http://localhost:9/v1/org/chat", "--dry-run", "--out", tmp_path / "run"]
    said = rote_here("probe", tmp_path / "passages.jsonl", *served, *options)
    assert said.code == 0, said.err
    assert told in said.out
    assert " chat " in said.out
    assert said.out.splitlines()[-1] == "Nothing was asked, as this is a dry run."


def test_hits_are_a_number_or_chosen(tmp_path: Path) -> None:
    (tmp_path / "passages.jsonl").write_text(PASSAGE)
    said = rote_here("probe", tmp_path / "passages.jsonl", "--target", "http://localhost:9/v1/chat", "--hits", "some")
    assert said.code == 1
    assert said.err.strip().endswith("--hits some: give a whole number, or auto.")
