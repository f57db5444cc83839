"""What a scan in stages is for everything after it: verified, compared, exported and shown as what it is."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rote
from rote import InputError, Refine, Run, Windows
from rote.analysis.compare import whole_difference
from rote.analysis.rates import LeftOut, staged_rates
from rote.analysis.summary import _longest, left_out_of
from rote.jobs import variants
from rote.report.text.comparison import comparison_lines, notes
from rote.report.text.conclusion import conclusion
from rote.report.text.spots import highest_in_words, longest_sentence, told
from rote.store.comparison import StoredComparison
from rote.store.run import Finished, finish
from rote.store.stages import add_stage, read_stage, stage_path
from rote.store.summary import Longest
from tests.seals import reseal

CUT = Windows(prefix=20, suffix=30, stride=20)
ROWS = {"example_id": [*"abcd"], "scheme": ["s"] * 4, "log_prob": [0.0, -1, -99, -99], "bounded": [False] * 4,
        "greedy": [True, False, False, False], "margins": [[1.0]] * 4}  # fmt: skip
AUDIT = 8  # the last stage, from 0


@pytest.fixture(scope="module")
def mixed(alice: str, gatsby: str) -> str:
    """A passage that the bundled model knows between two that it does not."""
    return gatsby[20_000:21_200] + alice[3000:3300] + gatsby[30_000:31_200]


@pytest.fixture(scope="module")
def folder(bundled: Any, mixed: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`full`, `staged`, and `begun`: the same, of which two stages have ended."""
    made = tmp_path_factory.mktemp("staged")

    def keep(run: Run) -> None:
        if len(run.stages) == 2:
            shutil.copytree(run.folder, made / "begun")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variants._Trials, "every", lambda self: iter(()))
        rote.scan(bundled, mixed, windows=CUT, out=made / "full", name="mixed.txt")
        rote.scan(
            bundled, mixed, windows=CUT, out=made / "staged", name="mixed.txt", refine=Refine(audit=20), on_stage=keep
        )
    return made


@pytest.fixture(scope="module")
def full(folder: Path) -> Run:
    return Run.open(folder / "full")


@pytest.fixture(scope="module")
def staged(folder: Path) -> Run:
    return Run.open(folder / "staged")


@pytest.fixture(scope="module")
def begun(folder: Path) -> Run:
    return Run.open(folder / "begun")


@pytest.fixture
def copy(staged: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(staged.folder, tmp_path / "run"))


def left_out(run: Run) -> list[int]:
    assert run.view.left_out is not None
    return run.view.left_out["start"].to_list()


def rows_at(full: Run, starts: list[int]) -> pl.DataFrame:
    return full.scores.filter(pl.col("start").is_in(starts))


def forge(folder: Path) -> None:
    """Let summary and seal follow from what the folder now holds."""
    reseal(folder)
    finish(folder, Run(folder).summed_up())


def swap(folder: Path, number: int, away: int, instead: dict[str, Any]) -> None:
    """Let a stage have scored another window: its file, and the shard that has its row."""
    stage = read_stage(stage_path(folder, number))
    starts = sorted({*stage.starts, instead["start"]} - {away})
    add_stage(folder, number, stage.kind, starts)
    for path in sorted((folder / "scores").glob("*.parquet")):
        table = pq.read_table(path)
        rows = table.to_pylist()
        if any(row["stage"] == number and row["start"] == away for row in rows):
            kept = [row for row in rows if row["start"] != away] + [{**instead, "stage": number}]
            pq.write_table(pa.Table.from_pylist(kept, schema=table.schema), path, compression="zstd")


# --- verified


def test_a_scan_in_stages_is_verified_whole_or_begun(
    full: Run, staged: Run, begun: Run, bundled: Any, tmp_path: Path
) -> None:
    whole = rote.verify(staged, bundled, sample=5, seed=1, out=tmp_path / "whole.json")
    assert whole.verified, whole.findings
    assert whole.staged == staged.summary.staged
    assert f"{staged.scores.height} of {full.scores.height} windows, scored in 9 stages" in whole.verdict
    assert "of all scored windows are wrong" in whole.verdict
    part = rote.verify(begun, out=tmp_path / "part.json")
    assert part.verified, part.findings
    assert "2 of 9 stages have ended, and others are to come" in part.verdict


def test_an_audit_that_avoids_what_was_missed_is_named(copy: Path, full: Run) -> None:
    """Whoever can write the folder can score another window instead, and seal that."""
    run = Run(copy)
    other = rows_at(full, left_out(run)).row(0, named=True)
    swap(copy, AUDIT, run.stages[AUDIT].starts[0], other)
    forge(copy)
    result = rote.verify(copy)
    assert not result.verified
    assert "the windows of stage 8 (audit) are not those that are drawn" in result.verdict


def test_a_stage_that_was_chosen_otherwise_is_named(copy: Path, full: Run) -> None:
    run = Run(copy)
    swap(copy, 2, run.stages[2].starts[0], rows_at(full, left_out(run)).row(0, named=True))
    forge(copy)
    assert "the windows of stage 2 (closer) are not those that are chosen" in rote.verify(copy).verdict


def test_rows_and_stages_must_name_the_same_windows(copy: Path) -> None:
    stage = Run(copy).stages[AUDIT]
    add_stage(copy, AUDIT, stage.kind, [stage.starts[0] + 1, *stage.starts[1:]])
    forge(copy)
    assert "the rows of stage 8 are not those of the windows that it names" in rote.verify(copy).verdict


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda places: places[:-1], "windows.parquet are not the windows at every 20 characters"),
        (lambda places: places.with_columns(pl.col("suffix_end") + 5000), "lies outside the text"),
        (lambda places: places.with_columns(pl.col("suffix_start") + 1), "elsewhere than windows.parquet says"),
    ],
    ids=["fewer", "outside", "elsewhere"],
)
def test_places_are_held_against_the_text_and_the_rows(copy: Path, change: Any, named: str) -> None:
    path = copy / "windows.parquet"
    table = pq.read_table(path)
    changed = change(pl.DataFrame(pl.from_arrow(table))).to_arrow().cast(table.schema)
    pq.write_table(changed, path, compression="zstd")
    forge(copy)
    assert named in rote.verify(copy).verdict


def test_places_that_the_tokenizer_does_not_give_are_named(copy: Path, bundled: Any) -> None:
    """Those of a window that was left out: nothing but cutting the text again tells."""
    path, run = copy / "windows.parquet", Run(copy)
    table, away = pq.read_table(path), left_out(run)[0]
    places = pl.DataFrame(pl.from_arrow(table))
    moved = places.with_columns(suffix_end=pl.col("suffix_end") + (pl.col("start") == away).cast(pl.Int64))
    pq.write_table(moved.to_arrow().cast(table.schema), path, compression="zstd")
    forge(copy)
    assert rote.verify(copy).verified
    assert "not cut into the windows that the run has" in rote.verify(copy, bundled, sample=2).verdict


# --- compared


def test_a_scan_in_stages_is_compared_with_a_full_one(full: Run, staged: Run) -> None:
    result = rote.compare([full, staged]).result
    windows, scored = full.scores.height, staged.scores.height
    assert (result.common_examples, result.common_windows) == (scored, windows)
    assert result.runs[1].rates == staged.finished.numbers.rates
    assert result.runs[1].audit == staged.finished.numbers.audit
    assert result.runs[0].staged is None
    pair = result.pairs[0]
    assert (pair.examples, pair.gained, pair.lost) == (scored, 0, 0)
    one, two = (run.rates.rate_at_tau for run in result.runs)
    assert pair.whole is not None
    assert pair.whole.difference == [two.rate - one.rate_upper, two.rate_upper - one.rate]
    assert pair.whole.interval[0] < pair.whole.difference[0] <= 0 < pair.whole.difference[1] < pair.whole.interval[1]
    assert conclusion(result)[0].startswith("Whether A full or B staged extracts more is left open")
    lines = "\n".join(comparison_lines(result))
    assert f"over the same {windows} windows of mixed.txt, of which {scored} were scored in all." in lines
    assert f"B is a scan in stages: {scored} of {windows} windows have a number; of the" in lines
    assert f"{scored} of {windows}  " in lines  # by itself, too
    assert "≥ " in lines
    assert "not of the text" in lines


def test_scans_of_two_models_are_compared_by_what_their_rates_can_be(
    staged: Run, full: Run, mixed: str, tiny_folder: Path, tmp_path: Path
) -> None:
    """What one model scored was chosen by what it knows: the rows in common must decide nothing."""
    other = rote.load(tiny_folder, rote.ModelOptions(device="cpu"))
    known = rote.scan(other, mixed, windows=CUT, out=tmp_path / "tiny", name="mixed.txt", refine=Refine(audit=1000))
    result = rote.compare([known, staged], out=tmp_path / "compared").result
    assert not result.runs[0].left_out  # its audit drew all that was left out
    whole = result.pairs[0].whole
    assert whole is not None
    assert whole.difference[0] == pytest.approx(result.runs[1].rates.rate_at_tau.rate)
    assert conclusion(result)[0].startswith("B staged extracts more than A tiny: 5")
    assert StoredComparison(tmp_path / "compared").result == result
    three = rote.compare([known, full, staged]).result  # two full ones, over the rows that the third one has
    assert three.pairs[0].examples == staged.scores.height
    assert three.pairs[0].whole is not None
    assert three.pairs[0].whole.difference == [full.finished.numbers.rates.rate_at_tau.rate] * 2
    assert conclusion(three)[0].startswith("B full extracts more than A tiny")


def test_a_scan_that_has_only_begun_is_compared_as_such(staged: Run, begun: Run, tmp_path: Path) -> None:
    result = rote.compare([begun, staged], out=tmp_path / "compared").result
    assert result.common_examples == begun.scores.height
    assert "2 of 9 stages have ended; nothing bounds how many of the others reach" in " ".join(notes(result))
    assert conclusion(result)[0].startswith("Whether")


def test_rates_of_two_exact_runs_leave_nothing_open() -> None:
    same = staged_rates(pl.DataFrame(ROWS), left_out=None)
    assert whole_difference(same, same).difference == [0, 0]
    some = staged_rates(pl.DataFrame(ROWS), left_out=LeftOut(8, np.zeros(4, dtype=np.bool_)))
    assert whole_difference(same, some).difference == [2 / 12 - 0.5, 10 / 12 - 0.5]


# --- exported


def test_exported_rows_say_which_stage_scored_them(full: Run, staged: Run) -> None:
    table = staged.frame()
    assert table["start"].to_list() == sorted(table["start"])  # as in any scan, not stage by stage
    assert set(table["stage"]) == {n for n, stage in enumerate(staged.stages) if stage.starts}
    assert table.filter(pl.col("stage") == AUDIT)["start"].to_list() == staged.stages[AUDIT].starts
    assert "stage" not in full.frame().columns
    same = table.join(full.frame(), on="example_id", how="left")
    assert (same["log_prob"] == same["log_prob_right"]).all()


def test_the_harness_gets_rates_of_all_windows_not_means_of_those_scored(staged: Run, tmp_path: Path) -> None:
    written = rote.export(staged, "lm-eval", out=tmp_path / "lm-eval")
    content = json.loads(written.files[0].read_text())
    (name,) = content["results"]
    entry, rates = content["results"][name], staged.finished.numbers.rates
    assert (entry["extractable,none"], entry["exact_match,none"]) == (rates.rate_at_tau.rate, rates.greedy_rate.rate)
    assert entry["p_z,none"] == "N/A"
    told = content["configs"][name]["metadata"]
    assert told["intervals_95"]["extractable"] == rates.rate_at_tau.interval
    assert told["refined"]["audit"] == 20
    assert content["n-samples"][name]["effective"] == staged.scores.height
    assert content["n-samples"][name]["original"] == rates.examples + staged.summary.dropped


def test_evidence_of_a_scan_in_stages_is_made_again_from_it(staged: Run, begun: Run, tmp_path: Path) -> None:
    for run in (staged, begun):
        packed = rote.export(run, "evidence", out=tmp_path / f"{run.folder.name}.zip").files[0]
        result = rote.verify(packed)
        assert result.verified, result.findings
        with zipfile.ZipFile(packed) as file:
            names, readme = file.namelist(), file.read("README.md").decode()
            program = file.read("reproduce.py").decode()
        assert {"run/windows.parquet", "run/stages/00.json"} <= set(names)
        assert ("run/stages/08.json" in names) == run.complete
        assert ("It was not finished" in readme) != run.complete
        assert "    refine=rote.Refine(audit=20, audit_seed=0),\n" in program
    assert "2 of 9 have ended" in readme


# --- shown


def test_a_window_that_was_left_out_is_said_to_be(full: Run, staged: Run, bundled: Any) -> None:
    away = left_out(staged)[0]
    nearest = min(staged.scores["start"], key=lambda start: abs(start - away))
    said = f"left 'w{away}' out, so it has no number; the nearest window that has one is 'w{nearest}'"
    for ask in (
        lambda: rote.show(staged, example=f"w{away}"),
        lambda: rote.show([full, staged], example=f"w{away}"),
        lambda: rote.check(staged, bundled, examples=[f"w{away}"]),
    ):
        with pytest.raises(InputError, match=said):
            ask()
    with pytest.raises(InputError, match="has no example 'w1';"):
        rote.show(staged, example="w1")


def test_a_place_is_shown_with_what_was_left_out_there(full: Run, staged: Run, mixed: str) -> None:
    missed = staged.view.left_out
    assert missed is not None
    start, end = missed.select("suffix_start", "suffix_end").row(missed.height // 2)
    covering = missed.filter((pl.col("suffix_start") <= start) & (pl.col("suffix_end") > start)).height
    for runs in (staged, [full, staged]):
        shown = rote.show(runs, at=start)
        assert "scored window" in shown.chosen
        assert f"without a number: {covering} more such window" in shown.chosen
    quoted = rote.show(staged, quote=mixed[start:end])
    assert "without a number: 1 more such window." in quoted.chosen
    assert "without" not in rote.show(full, at=start).chosen


def test_hot_spots_and_the_longest_are_as_far_as_was_looked_at(staged: Run, full: Run) -> None:
    listed = rote.spots(staged, at=0.1)
    assert listed.left_out == len(left_out(staged))
    assert "together at least" in repr(listed)
    first, *_, last = told(listed, staged.view)[1:]
    assert first.startswith("As far as was looked at, ")
    assert "drawn at random" in last
    assert "left out are not known" in highest_in_words(staged.view)
    whole = rote.spots(full, at=0.1)
    assert whole.left_out is None
    assert "at least" not in " ".join([repr(whole), *told(whole, full.view)])
    found = [own for own in (staged.finished.numbers.longest or {}).values() if own is not None]
    assert found
    assert all(own.exact for own in found if own.tokens == CUT.suffix), "no window goes further than its suffix"
    shorter: dict[str, Longest | None] = {"0.1": replace(found[0], tokens=CUT.suffix - 1)}
    open_ones = left_out_of(staged.scores, staged.manifest)
    (seen,) = _longest(shorter, open_ones, staged.manifest).values()
    assert seen is not None
    assert not seen.exact
    assert "≥ 29 tokens" in longest_sentence(_with_longest(staged.finished, seen))
    assert "≥ " not in longest_sentence(full.finished)


def _with_longest(run: Finished, longest: Longest) -> Finished:
    """As if this were the longest at every threshold."""
    scheme, numbers = next(iter(run.summary.schemes.items()))
    told = replace(numbers, longest=dict.fromkeys(numbers.longest or {}, longest))
    return replace(run, summary=replace(run.summary, schemes={scheme: told}))
