"""rote figures, as a user calls it."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rote
from rote import Near, Run, Scheme
from rote.report.figures.run import RUN_FIGURES
from rote.store.seal import write_seal
from tests.cli.command import Result, rote_here
from tests.seals import reseal, unfinish

pytest.importorskip("matplotlib")
CUT = rote.Windows(prefix=20, suffix=20, stride=50)
TOP_K = "temperature=1 top_k=40"


@pytest.fixture(scope="module")
def folders(bundled: Any, alice: str, gatsby: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    text = gatsby[50_000:51_000] + alice[3000:3500]
    schemes = [Scheme(), Scheme(temperature=3.0, top_k=None)]
    rote.scan(bundled, text, out=folder / "all", schemes=schemes, windows=CUT)
    rote.scan(bundled, text, out=folder / "early", stop_early=True, windows=CUT)
    rote.scan(
        bundled,
        alice[3000:3300],
        out=folder / "near",
        near=Near(tolerance=2, budget=60, gap=0.0, until="budget"),
        windows=CUT,
    )
    rote.compare([folder / "all", folder / "early"]).write(folder / "compared")
    examples = rote.windows(text, bundled.tokenizer, rote.Windows(prefix=20, suffix=20, stride=200))
    rote.sweep(bundled, examples, out=folder / "sweep", prefixes=[10, 20], suffixes=[10, 20])
    seed, truth = alice[:300], alice[:600]
    rote.reconstruct(bundled, seed, out=folder / "written", truth=truth, writing=rote.Writing(tokens=170, beams=1))
    return folder


def written(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def drawn(result: Result) -> list[str]:
    assert result.code == 0, result.err
    return [Path(line.split(", data ")[0]).stem for line in result.out.splitlines() if ", data " in line]


def test_a_scan(folders: Path, tmp_path: Path) -> None:
    found = rote_here("figures", folders / "near", "--out", tmp_path / "out")
    names = drawn(found)
    assert set(names) == set(RUN_FIGURES) - {"repetitions", "splits", "split-distribution"}
    expected = {f"{name}.{kind}" for name in names for kind in ("svg", "csv")} | {"captions.md"}
    assert written(tmp_path / "out") == expected
    assert "left out: repetitions, for want of examples with repetitions" in found.err
    assert "left out: splits, split-distribution, for want of" in found.err
    with (tmp_path / "out/location.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    scores = Run.open(folders / "near").scores
    assert [row["example_id"] for row in rows] == scores["example_id"].to_list()
    assert [float(row["p_z"]) for row in rows] == pytest.approx(scores["log_prob"].exp().to_list())
    captions = (tmp_path / "out/captions.md").read_text()
    assert captions.startswith("## heatmap: Where the text comes out\n\nThe text from its first")
    assert f"scheme {TOP_K}" in captions


def test_by_default_into_the_folder_itself_and_again_the_same_bytes(folders: Path) -> None:
    assert rote_here("figures", folders / "early", "--format", "pdf").code == 0
    first = {path.name: path.read_bytes() for path in (folders / "early/figures").iterdir()}
    assert {name.rsplit(".", 1)[1] for name in first} == {"pdf", "csv", "md"}
    assert rote_here("figures", folders / "early", "--format", "pdf").code == 0
    assert {path.name: path.read_bytes() for path in (folders / "early/figures").iterdir()} == first
    assert rote_here("report", folders / "early").code == 0  # the run is still a run
    shutil.rmtree(folders / "early/figures")


def test_rows_given_up_early_are_counted_and_not_drawn(folders: Path, tmp_path: Path) -> None:
    assert rote_here("figures", folders / "early", "--out", tmp_path).code == 0
    scores = Run.open(folders / "early").scores
    stopped = int(scores["bounded"].sum())
    assert stopped
    assert pl.read_csv(tmp_path / "location.csv").height <= scores.height - stopped
    assert (tmp_path / "captions.md").read_text().count(f"{stopped} windows given up early") >= 2


def test_another_scheme(folders: Path, tmp_path: Path) -> None:
    found = rote_here("figures", folders / "all", "--scheme", "temperature=3", "--out", tmp_path)
    assert "heatmap" in drawn(found)
    assert "scheme temperature=3," in (tmp_path / "captions.md").read_text()
    wrong = rote_here("figures", folders / "all", "--scheme", "hot", "--out", tmp_path)
    assert (wrong.code, wrong.out) == (1, "")
    assert f"has no scheme 'hot'; it has '{TOP_K}', 'temperature=3'. Give one of them." in wrong.err.replace("\n", " ")


def test_a_comparison_from_its_own_files(folders: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(folders / "compared", tmp_path / "compared")
    found = rote_here("figures", moved)
    assert drawn(found) == ["strips", "rates", "prompts", "coverage", "pair-a-b", "pair-a-c", "cost"]
    assert "left out: near-rates, for want of runs with a near-verbatim search" in found.err
    strips = pl.read_csv(moved / "figures/strips.csv", infer_schema_length=None)
    scores = Run.open(folders / "all").scores.filter(pl.col("scheme") == TOP_K)
    over = scores.filter((pl.col("suffix_start") <= 1300) & (pl.col("suffix_end") > 1300))
    part = strips.filter((pl.col("start") <= 1300) & (pl.col("end") > 1300) & pl.col("run").str.starts_with("A "))
    assert part["highest_probability"].item() >= over["log_prob"].exp().max()
    result = json.loads((moved / "comparison.json").read_text())
    rates = pl.read_csv(moved / "figures/rates.csv")
    assert rates["rate"].to_list()[:3] == [run["rates"]["rate_at_tau"]["rate"] for run in result["runs"]]


def test_a_sweep_and_a_reconstruction_at_once(folders: Path, tmp_path: Path) -> None:
    found = rote_here("figures", folders / "sweep", folders / "written", "--out", tmp_path / "out", "--format", "png")
    assert drawn(found) == ["prefix", "suffix", "prompts", "matches"]
    assert written(tmp_path / "out") == {"sweep", "written"}
    assert "left out: schemes, for want of several schemes" in found.err
    matches = pl.read_csv(tmp_path / "out/written/matches.csv")
    summary = json.loads((folders / "written/summary.json").read_text())
    assert [list(row) for row in matches.rows()] == summary["similarity"]["by_position"]


def test_from_python(folders: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    (found,) = rote.figures(folders / "sweep", out=tmp_path, format="png", progress=lambda *step: told.append(step))
    assert found.folder == tmp_path
    assert [path.name for path in found.figures] == ["prefix.png", "suffix.png", "prompts.png"]
    assert all(path.is_file() for path in (*found.figures, found.captions))
    assert told[0] == ("figures", 0, len(found.figures))
    assert told[-1] == ("figures", len(found.figures), len(found.figures))


# --- mistakes


def refused(*arguments: str | Path) -> str:
    found = rote_here("figures", *arguments)
    assert found.code == 1
    assert found.out == ""
    assert "Traceback" not in found.err
    return found.err.replace("\n", " ")


def test_what_is_no_result_folder_is_refused(folders: Path, tmp_path: Path) -> None:
    assert "there is no folder" in refused(tmp_path / "nowhere")
    assert "has no manifest.json, so it is not a run folder" in refused(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_run_is_refused(folders: Path, tmp_path: Path) -> None:
    run = shutil.copytree(folders / "near", tmp_path / "run")
    unfinish(run)
    assert "is unfinished" in refused(run)
    assert not (run / "figures").exists()
    text = shutil.copytree(folders / "written", tmp_path / "text")
    unfinish(text)
    assert "is unfinished" in refused(text)


def test_a_damaged_comparison_is_refused(folders: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(folders / "compared", tmp_path / "broken")
    (broken / "differences.parquet").write_bytes(b"nothing")
    assert "differences.parquet is not what was sealed" in refused(broken)
    reseal(broken)
    assert "Run rote compare again." in refused(broken)
    (broken / "differences.parquet").unlink()
    assert "differences.parquet is gone, and the seal of" in refused(broken)
    reseal(broken)
    assert "Run rote compare again." in refused(broken)
    old = shutil.copytree(folders / "compared", tmp_path / "old")
    (old / "comparison.json").write_text("{}")
    assert "comparison.json is not what was sealed" in refused(old)
    reseal(old)
    said = "comparison.json names no format, but this version of Rote reads format 7. Compare the runs again"
    assert said in refused(old)
    (old / "comparison.json").write_text('{"format": 7, "kind": "scan"}')
    reseal(old)
    said = "comparison.json is damaged: Object missing required field `source`. Compare the runs again: rote compare."
    assert said in refused(old)
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep/sweep.json").write_text('{"format": 7, "kind": "sweep"}')
    assert "sweep has no seal.json, so nothing says whether its files are as they were" in refused(tmp_path / "sweep")
    write_seal(tmp_path / "sweep", ["sweep.json"])
    said = "sweep.json is damaged: Object missing required field `model`. Run the command that made the sweep again."
    assert said in refused(tmp_path / "sweep")


@pytest.mark.parametrize(("option", "value"), [("--format", "gif"), ("--style", "poster")])
def test_unknown_formats_and_styles_are_refused(option: str, value: str, folders: Path, tmp_path: Path) -> None:
    found = rote_here("figures", folders / "near", option, value, "--out", tmp_path / "out")
    assert (found.code, found.out) == (2, "")
    assert f"Invalid value for '{option}'" in found.err
    assert f"'{value}' is not one of " in found.err
    name = option.removeprefix("--")
    with pytest.raises(rote.InputError, match=f"{name} must be .*, not '{value}'"):
        rote.figures(folders / "near", out=tmp_path / "out", **{name: value})  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_figures_never_mix_with_other_results(folders: Path, tmp_path: Path) -> None:
    assert "holds results of its own" in refused(folders / "near", "--out", folders / "all")
    (tmp_path / "one").mkdir()
    copy = shutil.copytree(folders / "near", tmp_path / "one/near")
    assert "two of the folders are called 'near'" in refused(folders / "near", copy, "--out", tmp_path / "out")
    assert "was given twice" in refused(folders / "near", folders / "all/../near")
    (tmp_path / "file").write_text("")
    assert "cannot make the folder" in refused(folders / "near", "--out", tmp_path / "file")


def test_a_scheme_of_what_has_none_is_refused(folders: Path, tmp_path: Path) -> None:
    assert "--scheme does not apply to it" in refused(folders / "sweep", "--scheme", TOP_K, "--out", tmp_path / "out")


def test_without_matplotlib_the_extra_is_named(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'rote[report]'" in refused(folders / "near", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
