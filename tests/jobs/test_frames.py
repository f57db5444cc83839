"""Results as data frames: the rows that export writes, with polars and with pandas."""

from __future__ import annotations

import csv
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import rote
from rote import InputError, RoteError, RunError
from rote.frames import frame_of
from tests.jobs.support import HOSTILE, MARKUP

RUNS = ("scan", "score", "rate")
FOLDERS = (*RUNS, "sweep", "saved comparison")
FRAMES = (*FOLDERS, "comparison", "spots", "checked", "passage", "passage in two runs", "verbatim", "near-verbatim")


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_has_its_probabilities_and_texts(results: dict[str, Any], kind: str) -> None:
    run = results[kind]
    frame, scores = run.frame(), run.scores
    assert frame.height == scores.height == 2 * run.summary.examples
    assert frame["scheme"].unique(maintain_order=True).to_list() == ["temperature=1", "temperature=0.7"]
    assert frame["example_id"].to_list() == scores["example_id"].to_list()
    for row, score in zip(frame.iter_rows(named=True), scores.iter_rows(named=True), strict=True):
        assert 0 < row["p_z"] == pytest.approx(math.exp(score["log_prob"]), rel=1e-15, abs=0)
        assert (row["prefix"], row["suffix"]) == run.texts[score]
    if kind == "scan":
        starts = frame.select("start", "suffix_start", "suffix_end", "prefix", "suffix").iter_rows()
        assert all(HOSTILE[a:b] == prefix and HOSTILE[b:c] == suffix for a, b, c, prefix, suffix in starts)
        assert len(run.shards()) > 1


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_gives_what_export_writes(results: dict[str, Any], kind: str, tmp_path: Path) -> None:
    frame = results[kind].frame()
    exported = results[kind].export("parquet", out=tmp_path / "table.parquet")
    assert exported.rows == frame.height > 0
    assert_frame_equal(frame, pl.read_parquet(exported.files[0]), check_exact=True)
    assert results[kind].export("csv", out=tmp_path / "table.csv").rows == frame.height
    with (tmp_path / "table.csv").open(encoding="utf-8-sig", newline="") as file:
        assert next(csv.reader(file)) == frame.columns


def test_metadata_and_bounds_have_columns(results: dict[str, Any]) -> None:
    frame = results["score"].frame()
    assert frame[f"metadata.{MARKUP}"].unique().to_list() == [MARKUP]
    assert frame["near_lower"].to_list() == results["score"].scores["lower"].to_list()


def test_a_comparison_has_the_rows_of_its_folder(results: dict[str, Any]) -> None:
    frame = results["comparison"].frame()
    assert_frame_equal(frame, results["comparison"].table, check_exact=True)
    assert_frame_equal(frame, results["saved comparison"].frame(), check_exact=True)


def test_spots_checks_and_passages_have_a_row_for_each(results: dict[str, Any]) -> None:
    spots = results["spots"]
    assert spots.frame().to_dicts() == [asdict(spot) for spot in spots.spots]
    checked = results["checked"].frame()
    assert checked["example_id"].to_list() == [f"{MARKUP}0", f"{MARKUP}1"]
    assert checked["p_z"].to_list() == [passage.p_z for passage in results["checked"].passages]
    shown = results["passage in two runs"]
    tokens = shown.frame()
    assert tokens.height == sum(len(run.tokens) for run in shown.runs)
    assert tokens.filter(pl.col("run") == shown.runs[1].name)["probability"].to_list() == [
        token.probability for token in shown.runs[1].tokens
    ]


def test_results_have_a_row_for_each_scheme(results: dict[str, Any]) -> None:
    found = results["verbatim"]
    frame = found.frame()
    assert frame["p_z"].to_list() == [one.prob for one in found]
    assert frame["scheme"].to_list() == ["temperature=1", "greedy"] * 7
    stored = results["score"].frame().filter(pl.col("scheme") == "temperature=1")
    assert (
        frame.filter(pl.col("scheme") == "temperature=1")
        .select("example_id", "prefix", "suffix")
        .equals(stored.select("example_id", "prefix", "suffix"))
    )
    near = results["near-verbatim"].frame()
    assert near["lower"].to_list() == [one.lower for one in results["near-verbatim"]]
    assert near["verdict"].to_list() == [one.verdict for one in results["near-verbatim"]]


def test_no_spots_are_no_rows_with_the_same_columns(results: dict[str, Any]) -> None:
    for kind in ("polars", "pandas"):
        none, some = results["no spots"].frame(kind), results["spots"].frame(kind)
        assert (list(none.columns), len(none)) == (list(some.columns), 0)


# --- pandas


def plain(value: Any) -> Any:
    """What a cell holds, whatever holds it: pandas has NaN for what is missing, and arrays for lists."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)) else value


@pytest.mark.parametrize("kind", FRAMES)
def test_pandas_has_the_same_values(results: dict[str, Any], kind: str) -> None:
    ours, theirs = results[kind].frame(), results[kind].frame("pandas")
    assert isinstance(ours, pl.DataFrame)
    assert isinstance(theirs, pd.DataFrame)
    assert list(theirs.columns) == ours.columns
    assert len(theirs) == ours.height > 0
    for name in ours.columns:
        assert [plain(value) for value in theirs[name]] == [plain(value) for value in ours[name].to_list()], name


@pytest.mark.parametrize("kind", FRAMES)
def test_missing_pandas_says_what_to_install(
    results: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # as where it is not installed
    with pytest.raises(RoteError, match=r"^a pandas frame needs pandas: pip install 'rote\[pandas\]'\.$"):
        results[kind].frame("pandas")
    assert isinstance(results[kind].frame(), pl.DataFrame)


# --- what has no frame


@pytest.mark.parametrize("kind", FRAMES)
def test_an_unknown_kind_is_refused(results: dict[str, Any], kind: str) -> None:
    with pytest.raises(InputError, match=r"^kind must be polars or pandas, not 'arrow'\.$"):
        results[kind].frame("arrow")


def test_a_kind_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="kind must be polars or pandas, not 'arrow'"):
        rote.Run(tmp_path / "nowhere").frame("arrow")  # type: ignore[arg-type]


def test_a_reconstruction_says_what_to_load_instead(results: dict[str, Any]) -> None:
    with pytest.raises(RunError, match=r"holds a reconstruction.*generated\.txt.*chunks\.jsonl.*diff\.jsonl"):
        results["reconstruction"].frame()


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_an_unfinished_run_has_no_frame(results: dict[str, Any], kind: Any) -> None:
    with pytest.raises(RunError, match="is unfinished"):
        results["unfinished run"].frame(kind)


def test_rows_of_several_types_are_read_whole() -> None:
    """polars guesses a column's type from its first rows, unless it is told to read them all."""
    rows: list[dict[str, Any]] = [{"x": None}] * 300 + [{"x": "late"}]
    assert frame_of(rows, "polars")["x"][-1] == "late"
    assert frame_of(rows, "pandas")["x"].iloc[-1] == "late"
