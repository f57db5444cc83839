"""Runs: killed or interrupted and run again, they end in the table of an undisturbed one; and what they sum up."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import rote
from rote import Example, InputError, Run, RunError, Scheme
from rote.analysis.rates import CHANCES, QUERIES
from rote.models.huggingface import HuggingFaceModel
from rote.store.summary import Rate, RateName
from tests import tiny
from tests.cases import all_cases
from tests.cli.command import rote_here, rote_process
from tests.jobs.support import SIZES, SMALLEST_SHARD, Killed, same_table, wait_for_shards
from tests.reference import coverage as reference_coverage
from tests.reference import rates as reference_rates

SMALL_SHARDS = "import rote.jobs.engine; rote.jobs.engine.SHARD_FLOPS['cpu'] = 1.0"
"""For another process what the fixture `small_shards` is for this one."""


def test_a_run_is_what_the_library_computes(model: Any, text: str, tmp_path: Path) -> None:
    schemes = [Scheme(), Scheme(temperature=0.5, top_k=None), rote.GREEDY]
    run = rote.scan(model, text, out=tmp_path / "run", schemes=schemes, windows=SIZES)
    examples = rote.windows(text, model.tokenizer, SIZES)
    results = [
        result
        for first in range(0, len(examples), SMALLEST_SHARD)
        for result in rote.verbatim(model, examples[first : first + SMALLEST_SHARD], schemes)
    ]
    spans = {e.id: (e.start, e.suffix_start, e.suffix_end) for e in examples}
    assert run.scores.height == len(results) == len(examples) * len(schemes)
    for row, result in zip(run.scores.iter_rows(named=True), results, strict=True):
        assert (row["example_id"], row["scheme"]) == (result.example_id, str(result.scheme))
        assert (row["start"], row["suffix_start"], row["suffix_end"]) == spans[result.example_id]
        assert (row["log_prob"], row["greedy"], row["bounded"]) == (result.log_prob, result.greedy, False)
        assert row["token_evals"] == result.token_evals == 8 + 6 - 1
        for name in ("token_log_probs", "base_log_probs", "ranks", "margins"):
            assert row[name] == getattr(result, name).tolist()


def test_the_table_has_the_documented_columns(undisturbed: Run) -> None:
    assert dict(undisturbed.scores.schema) == {
        "example_id": pl.String, "scheme": pl.String, "start": pl.Int64, "suffix_start": pl.Int64,
        "suffix_end": pl.Int64, "log_prob": pl.Float64, "greedy": pl.Boolean, "bounded": pl.Boolean,
        "token_evals": pl.Int32, "token_log_probs": pl.List(pl.Float32), "base_log_probs": pl.List(pl.Float32),
        "ranks": pl.List(pl.Int32), "margins": pl.List(pl.Float32),
        "token_ends": pl.List(pl.Int32), "repetitions": pl.Int64, "split": pl.String,
        "metadata": pl.String, "stage": pl.Int16,
        "lower": pl.Float64, "upper": pl.Float64, "lower_by_tolerance": pl.List(pl.Float64),
        "upper_by_tolerance": pl.List(pl.Float64), "verdict": pl.String, "near_token_evals": pl.Int32,
        "eos_mass": pl.Float64, "estimate": pl.Float64, "estimate_error": pl.Float64,
        "candidates": pl.List(
            pl.Struct(
                {"tokens": pl.List(pl.Int32), "text": pl.String, "log_prob": pl.Float64, "set_log_prob": pl.Float64,
                 "distance": pl.Int16}
            )
        ),
        "greedy_distance": pl.Int32,
    }  # fmt: skip


def test_given_examples_keep_their_metadata(model: Any, tmp_path: Path) -> None:
    given = [
        Example("twice", (5, 6), (7,), metadata={"repetitions": 2, "split": "train", "source": "a book"}),
        Example("unknown", (5, 6), (8, 9)),
    ]
    run = rote.score(model, given, out=tmp_path / "run")
    rows = run.scores.to_dicts()
    assert [(r["example_id"], r["repetitions"], r["split"], r["start"]) for r in rows] == [
        ("twice", 2, "train", None),
        ("unknown", None, None, None),
    ]
    assert json.loads(rows[0]["metadata"]) == {"repetitions": 2, "split": "train", "source": "a book"}
    groups = run.summary.schemes[rows[0]["scheme"]].by_repetitions or []
    assert [group.repetitions for group in groups] == [2, None]


def test_examples_with_one_id_are_refused(model: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="more than one example with the id 'x'"):
        rote.score(model, [Example("x", (1,), (2,)), Example("x", (3,), (4,))], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_summary_is_the_table_counted(bundled: Any, alice: str, gatsby: str, tmp_path: Path) -> None:
    tau = 0.01
    text = alice[30_000:30_900] + gatsby[50_000:50_600]  # probabilities from 0 to nearly 1
    run = rote.scan(bundled, text, out=tmp_path / "run", windows=rote.Windows(prefix=6, suffix=12, stride=15), tau=tau)
    summary, rows = run.summary, run.scores.to_dicts()
    (scheme,) = summary.schemes
    found, covered = summary.schemes[scheme].rates, summary.schemes[scheme].coverage
    assert covered is not None
    assert sum(tau < math.exp(r["log_prob"]) < 0.9 for r in rows) > 5, "the text gives too little to tell rates apart"

    def check(rate: Rate, holds: Callable[[float], bool]) -> None:
        certain, possible = reference_rates.count(rows, holds)
        assert (rate.count, rate.rate, rate.rate_upper) == (certain, certain / len(rows), possible / len(rows))

    assert found.examples == summary.examples == len(rows)
    assert found.greedy_rate.count == sum(r["greedy"] for r in rows)
    check(found.rate_at_tau, lambda log_prob: math.exp(log_prob) >= tau)
    check(found.rate_at_1e_4, lambda log_prob: math.exp(log_prob) >= 0.0001)
    check(found.maximum_rate, lambda log_prob: log_prob > -math.inf)
    assert [(cell.n, cell.p) for cell in found.np_table] == [(n, p) for n in QUERIES for p in CHANCES]
    for cell in found.np_table:
        check(cell, lambda log_prob, n=cell.n, p=cell.p: reference_rates.reaches(log_prob, n, p))  # type: ignore[misc]

    assert list(covered) == ["0.01", "0.1", "0.5", "0.75"]
    for threshold, part in covered.items():
        spans = [(r["suffix_start"], r["suffix_end"]) for r in rows if math.exp(r["log_prob"]) >= float(threshold)]
        runs = reference_coverage.runs(spans, len(text))
        characters = sum(end - start for start, end in runs)
        assert (part.characters, part.share, part.runs) == (characters, characters / len(text), len(runs))
        longest = max(runs, key=lambda run: run[1] - run[0])
        assert part.longest_run == list(longest)
    assert covered["0.01"].characters > covered["0.75"].characters > 0

    assert summary.token_evals == sum(r["token_evals"] for r in rows) == len(rows) * (6 + 12 - 1)
    assert summary.dropped == len(range(0, len(text), 15)) - len(rows)
    assert summary.seconds > 0
    assert {"rote", "torch", "transformers", "python"} <= summary.versions.keys()
    assert summary.tau == tau
    assert summary.model == bundled.identity()


def test_what_the_model_warned_of_at_load_stands_in_the_summary(model: Any, text: str, tmp_path: Path) -> None:
    raw = tiny.build("llama")
    forward = raw.forward

    def doubled(*args: Any, **options: Any) -> Any:
        result = forward(*args, **options)
        result.logits = result.logits * 2
        return result

    raw.forward = doubled
    with pytest.warns(UserWarning, match="do not give the model's logits"):
        odd = HuggingFaceModel(raw, model.tokenizer, name="odd")
    run = rote.scan(odd, text, out=tmp_path / "run", windows=SIZES)
    (warning,) = run.summary.warnings
    assert warning.startswith("odd: base model and output embedding do not give the model's logits")
    assert warning in " ".join(rote_here("report", run.folder).out.split())


def test_the_summary_of_stopped_rows_leaves_room_for_them(
    bundled: Any, alice: str, gatsby: str, tmp_path: Path
) -> None:
    text = gatsby[50_000:51_500] + alice[30_000:30_500]
    sizes = rote.Windows(prefix=10, suffix=20, stride=15)
    early = rote.scan(bundled, text, out=tmp_path / "early", stop_early=True, windows=sizes)
    full = rote.scan(bundled, text, out=tmp_path / "full", windows=sizes)
    (scheme,) = full.summary.schemes
    before, after = early.summary.schemes[scheme], full.summary.schemes[scheme]
    assert before.rates.bounded > 0
    assert before.coverage == after.coverage
    assert before.rates.greedy_rate == after.rates.greedy_rate
    assert before.rates.rate_at_tau == after.rates.rate_at_tau
    names: tuple[RateName, ...] = ("rate_at_1e_4", "maximum_rate")
    for name in names:
        rate = before.rates.named[name]
        assert rate.rate <= after.rates.named[name].rate <= rate.rate_upper
    assert early.summary.token_evals == early.scores["token_evals"].sum() < full.summary.token_evals


@pytest.mark.scaled
def test_kill_minus_nine_again_and_again(bundled: Any, alice: str, tmp_path: Path) -> None:
    text = alice[: 4200 if all_cases() else 3200]  # twelve or nine shards of 32 windows
    (tmp_path / "book.txt").write_text(text)
    folder = tmp_path / "killed"
    command: list[str | Path] = [
        "scan",
        tmp_path / "book.txt",
        "--prefix",
        "30",
        "--suffix",
        "30",
        "--device",
        "cpu",
        "--out",
        folder,
    ]
    rng = random.Random(1)
    stored = 0
    for _ in range(3 if all_cases() else 2):
        with rote_process(*command, before=SMALL_SHARDS) as process:
            wait_for_shards(process, folder, stored + 1)
            time.sleep(0.2 * rng.random())
            process.kill()
            assert process.wait() == -signal.SIGKILL
        stored = len(Run.open(folder).shards())
        with pytest.raises(RunError, match="unfinished"):
            _ = Run.open(folder).summary
    shards = Run.open(folder).manifest.shards
    assert shards is not None
    assert stored < shards >= (10 if all_cases() else 7)
    finished = rote_here(*command)
    assert finished.code == 0, finished.err
    assert "come out with even odds" in finished.out
    undisturbed = rote.scan(
        bundled, text, out=tmp_path / "undisturbed", name="book.txt", windows=rote.Windows(prefix=30, suffix=30)
    )
    same_table(Run.open(folder), undisturbed)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_every_file_that_appears(
    when: str, undisturbed: Run, model: Any, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace
    writes = fatal = 0

    def dying(source: Any, target: Any) -> None:
        nonlocal writes
        writes += 1
        if when == "after" or writes != fatal:
            replace(source, target)
        if writes == fatal:
            raise Killed

    monkeypatch.setattr(os, "replace", dying)
    rote.scan(model, text, out=tmp_path / "counted", windows=SIZES)
    total = writes
    assert total == 10  # text, manifest, four shards, variants, summary, seal, report
    for number in range(1, total + 1):
        folder = tmp_path / str(number)
        writes, fatal = 0, number
        with pytest.raises(Killed):
            rote.scan(model, text, out=folder, windows=SIZES)
        assert bool(list(folder.rglob("*.part"))) == (when == "before")
        fatal = 0
        again = rote.scan(model, text, out=folder, windows=SIZES)
        same_table(again, undisturbed)
        assert again.seal.before == []
        assert not list(folder.rglob("*.part"))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("lacks", [None, "scores/000001.parquet"])
def test_killed_while_a_finished_run_is_gone_on_with(
    lacks: str | None, when: str, undisturbed: Run, model: Any, text: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Whatever is left is sealed as it was, or says that it is not; in the end the first seal is named or kept."""
    replace = os.replace
    writes = fatal = 0

    def dying(source: Any, target: Any) -> None:
        nonlocal writes
        writes += 1
        if when == "after" or writes != fatal:
            replace(source, target)
        if writes == fatal:
            raise Killed

    monkeypatch.setattr(os, "replace", dying)
    for number in range(1, 6 + (lacks is not None)):  # the seal put aside, text, shard, summary, seal, report
        folder = Path(shutil.copytree(undisturbed.folder, tmp_path / str(number)))
        if lacks:
            (folder / lacks).unlink()
        writes, fatal = 0, number
        with pytest.raises(Killed):
            rote.scan(model, text, out=folder, windows=SIZES)
        fatal = 0
        stored, whole = len(Run(folder).shards()), (folder / "seal.json").is_file()
        summed_up = (folder / "summary.json").is_file()
        if whole and stored == 4 and summed_up:
            assert Run(folder).summary.schemes == undisturbed.summary.schemes
        else:
            says = "has no seal.json" if stored == 4 and summed_up else f"is unfinished ({stored} of 4"
            if whole:
                says = "summary.json is gone" if stored == 4 else "000001.parquet is gone"
            with pytest.raises(RunError, match=re.escape(says) + ".* run the command that made (it|the run) again"):
                _ = Run(folder).summary
        again = rote.scan(model, text, out=folder, windows=SIZES)
        same_table(again, undisturbed)
        assert again.seal.before == ([undisturbed.seal.id] if lacks else [])
        assert (again.seal == undisturbed.seal) == (lacks is None)
        assert not (folder / "seal-before.json").exists()
    writes = 0
    rote.scan(model, text, out=folder, windows=SIZES)
    assert writes == 5


def test_leftover_parts_of_shards_are_not_read(undisturbed: Run, model: Any, text: str) -> None:
    table = undisturbed.scores
    (undisturbed.folder / "scores" / ".000000.parquet.part").write_bytes(b"PAR1 half a shard")
    (undisturbed.folder / "scores" / ".000009.parquet.part").write_bytes(b"")
    assert_frame_equal(Run(undisturbed.folder).scores, table, check_exact=True)
    again = rote.scan(model, text, out=undisturbed.folder, windows=SIZES)
    assert_frame_equal(again.scores, table, check_exact=True)


def test_a_finished_run_is_not_scored_again(undisturbed: Run, model: Any, text: str) -> None:
    before = {p: p.stat().st_mtime_ns for p in undisturbed.shards()}
    again = rote.scan(model, text, out=undisturbed.folder, windows=SIZES)
    assert {p: p.stat().st_mtime_ns for p in again.shards()} == before


def test_progress_starts_where_the_run_stood(undisturbed: Run, model: Any, text: str) -> None:
    undisturbed.shards()[-1].unlink()
    told: list[tuple[str, int, int]] = []
    rote.scan(model, text, out=undisturbed.folder, windows=SIZES, progress=lambda *what: told.append(what))
    scored = [(done, total) for what, done, total in told if what == "scored"]
    total = undisturbed.summary.examples
    assert scored[0] == (SMALLEST_SHARD, total)
    assert scored[-1] == (total, total)
    assert scored == sorted(scored)


@pytest.mark.scaled
def test_sigint_says_how_to_go_on(bundled: Any, alice: str, tmp_path: Path) -> None:
    text = alice[5000 : 7500 if all_cases() else 6600]
    (tmp_path / "book.txt").write_text(text)
    folder = tmp_path / "run"
    command: list[str | Path] = [
        "scan",
        tmp_path / "book.txt",
        "--prefix",
        "30",
        "--suffix",
        "30",
        "--device",
        "cpu",
        "--out",
        folder,
    ]
    with rote_process(*command, before=SMALL_SHARDS) as process:
        wait_for_shards(process, folder, 1)
        second = rote_here(*command)  # meanwhile, nobody else may write there
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert second.code == 1
    assert "another rote process is writing" in second.err
    assert process.returncode == 130
    stored = len(Run.open(folder).shards())
    assert f"stopped: {stored} of {Run.open(folder).manifest.shards} shards stored in {folder}" in err
    assert "Run the same command again to go on." in err
    assert "Traceback" not in err

    unfinished = rote_here("report", folder)
    assert unfinished.code == 1
    assert "unfinished" in unfinished.err
    assert "run the command that made it again" in unfinished.err

    assert rote_here(*command).code == 0
    undisturbed = rote.scan(
        bundled, text, out=tmp_path / "undisturbed", name="book.txt", windows=rote.Windows(prefix=30, suffix=30)
    )
    same_table(Run.open(folder), undisturbed)


def test_sigint_while_a_library_swallows_it(tmp_path: Path) -> None:
    """transformers, while it is being imported, turns KeyboardInterrupt into "could not import", or goes on."""
    before = """
import functools, os, rote.models.base
@functools.wraps(rote.models.base.load)
def load(*args, **options):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        pass
    raise SystemExit("went on")
rote.models.base.load = load
"""
    with rote_process("scan", "--out", tmp_path / "run", before=before) as process:
        _, err = process.communicate()
    assert process.returncode == 130
    assert err.strip() == "stopped: no run was under way. Run the same command again."
    assert not (tmp_path / "run").exists()
