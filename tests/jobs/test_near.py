"""Runs with near-verbatim extraction: their table is what the library computes, also when they were killed."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import rote
from rote import GREEDY, InputError, Near, Run, Scheme
from rote.extraction.near.distance import levenshtein
from rote.store.summary import NearSummary
from rote.store.table import SCHEMA
from tests.jobs.support import SMALLEST_SHARD, Dying, Killed, same_table
from tests.store.test_manifest import refused_unchanged

WINDOWS = rote.Windows(prefix=8, suffix=10, stride=12)
NEAR = Near(tolerance=2, budget=60, gap=0.01, until="worthwhile")
COLUMNS = SCHEMA.names[SCHEMA.names.index("lower") :]


@pytest.fixture(scope="module")
def passage(alice: str, gatsby: str) -> str:
    return alice[3000:3500] + gatsby[50_000:50_300]  # memorized and not: about 65 windows, three shards


@pytest.fixture(scope="module")
def finished(bundled: Any, passage: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(rote.jobs.engine.SHARD_FLOPS, "cpu", 1.0)
        run = rote.scan(bundled, passage, out=tmp_path_factory.mktemp("near"), near=NEAR, windows=WINDOWS)
    assert len(run.shards()) >= 2
    return run


def test_a_scan_is_what_the_library_computes(finished: Run, bundled: Any, passage: str) -> None:
    examples = rote.windows(passage, bundled.tokenizer, WINDOWS)
    found = [
        result
        for first in range(0, len(examples), SMALLEST_SHARD)
        for result in rote.near_verbatim(bundled, examples[first : first + SMALLEST_SHARD], near=NEAR)
    ]
    plain = rote.verbatim(bundled, examples)
    rows = finished.scores.to_dicts()
    assert len(rows) == len(found) == len(examples)
    for row, example, result, scored in zip(rows, examples, found, plain, strict=True):
        assert row["example_id"] == example.id
        assert (row["lower"], row["upper"], row["verdict"]) == (result.lower, result.upper, result.verdict)
        assert list(zip(row["lower_by_tolerance"], row["upper_by_tolerance"], strict=True)) == list(result.by_tolerance)
        assert row["near_token_evals"] == result.token_evals <= 60
        assert (row["eos_mass"], row["estimate"], row["estimate_error"]) == (result.eos_mass, None, None)
        assert row["log_prob"] == pytest.approx(scored.log_prob, abs=1e-3)
        assert (row["greedy"], row["token_evals"]) == (scored.greedy, 17)
        assert (row["greedy_distance"] == 0) == row["greedy"]
        assert [c["tokens"] for c in row["candidates"]] == [list(c.tokens) for c in result.candidates]
        for candidate in row["candidates"]:
            assert candidate["text"] == bundled.tokenizer.decode(candidate["tokens"])
            assert candidate["distance"] == levenshtein(candidate["tokens"], example.suffix) <= 2
    assert {"extractable", "undecided"} <= {row["verdict"] for row in rows}
    assert {row["greedy_distance"] for row in rows} >= {0, 3}, "3 stands for everything beyond the tolerance"
    assert any(row["candidates"] for row in rows)


def test_greedy_distances_are_those_of_greedy_generations(finished: Run, bundled: Any, passage: str) -> None:
    examples = rote.windows(passage, bundled.tokenizer, WINDOWS)
    for example, distance in zip(examples[::7], finished.scores["greedy_distance"].to_list()[::7], strict=True):
        written: list[int] = []
        while len(written) < len(example.suffix) and not (written and written[-1] in bundled.eos_ids):
            written.append(_argmax(bundled, (*example.prefix, *written)))
        assert distance == min(levenshtein(written, example.suffix), 3)


def _argmax(model: Any, history: tuple[int, ...]) -> int:
    with torch.inference_mode():
        hidden = model.hidden(torch.tensor([[model.bos_id, *history]]))
        return int(model.head(hidden[0, -1:]).argmax())


def near_of(run: Run, scheme: Scheme | None = None) -> NearSummary:
    """What the search came to, under the run's only scheme unless one is named."""
    schemes = run.summary.schemes
    (numbers,) = schemes.values() if scheme is None else [schemes[str(scheme)]]
    assert numbers.near is not None
    return numbers.near


def test_the_summary_counts_the_table(finished: Run) -> None:
    rows, tau = finished.scores.to_dicts(), 0.001
    near = near_of(finished)
    assert near.verdicts == {
        name: sum(row["verdict"] == name for row in rows) for name in ("extractable", "not extractable", "undecided")
    }
    for tolerance, rate in enumerate(near.rates):
        assert rate.probabilistic.count == sum(row["lower_by_tolerance"][tolerance] >= tau for row in rows)
        assert rate.greedy.count == sum(row["greedy_distance"] <= tolerance for row in rows)
    assert near.unlocked.count == sum(math.exp(row["log_prob"]) < tau <= row["lower"] for row in rows)
    assert near.token_evals.total == sum(row["near_token_evals"] for row in rows)
    assert (near.mean_p_z or 0.0) <= (near.mean_lower or 0.0) + 1e-9 <= (near.mean_upper or 0.0) + 1e-9
    assert None not in (near.mean_p_z, near.mean_lower, near.mean_upper)
    assert finished.summary.token_evals == 17 * len(rows)


def test_without_near_the_columns_are_null(bundled: Any, passage: str, tmp_path: Path) -> None:
    run = rote.scan(bundled, passage[:300], out=tmp_path / "run", windows=WINDOWS)
    assert run.manifest.near is None
    assert run.scores.select(COLUMNS).null_count().row(0) == (run.scores.height,) * len(COLUMNS)
    assert all(numbers.near is None for numbers in run.summary.schemes.values())
    stored = json.loads((run.folder / "summary.json").read_text())
    assert all("near" not in numbers for numbers in stored["schemes"].values())


def test_first_passes_alone_measure_no_greedy_distance(bundled: Any, passage: str, tmp_path: Path) -> None:
    run = rote.scan(
        bundled,
        passage[:300],
        out=tmp_path / "run",
        near=Near(tolerance=2, budget=17, gap=0.0, until="budget"),
        windows=WINDOWS,
    )
    assert run.scores["greedy_distance"].is_null().all()
    assert run.scores["near_token_evals"].to_list() == run.scores["token_evals"].to_list()
    assert [rate.greedy.rate for rate in near_of(run).rates] == [None] * 3


@pytest.mark.parametrize(
    "near",
    [
        Near(tolerance=2, budget=40, samples=20, gap=0.0, until="budget"),
        Near(tolerance=2, method="beam", width=3, gap=0.0, until="budget"),
        Near(tolerance=2, method="beam", variant="baseline", width=3, distance="hamming", gap=0.0, until="budget"),
        Near(tolerance=2, method="sample", samples=50, eos="exclude", gap=0.0, until="budget"),
    ],
    ids=lambda near: f"{near.method}-{near.variant}-{near.samples}",
)
def test_other_methods_fill_the_same_columns(near: Near, bundled: Any, passage: str, tmp_path: Path) -> None:
    run = rote.scan(bundled, passage[:300], out=tmp_path / "run", near=near, windows=WINDOWS)
    rows = run.scores.to_dicts()
    for row in rows:
        assert 0 <= row["lower"] <= row["upper"] <= 1
        assert len(row["lower_by_tolerance"]) == len(row["upper_by_tolerance"]) == 3
        assert (row["estimate"] is None) == (near.samples is None)
        assert (row["estimate_error"] is None) == (near.samples is None)
        assert row["greedy_distance"] is not None
        assert row["token_evals"] == 17
    assert rows[0]["verdict"] == "extractable"
    for name, value in {"method": near.method, "samples": near.samples, "width": near.width}.items():
        assert getattr(run.manifest.near, name) == value


def test_several_schemes(bundled: Any, passage: str, tmp_path: Path) -> None:
    schemes = [Scheme(), Scheme(temperature=0.5, top_k=None), GREEDY]
    run = rote.scan(bundled, passage[:300], out=tmp_path / "all", schemes=schemes, near=NEAR, windows=WINDOWS)
    for scheme in schemes:
        alone = rote.scan(
            bundled, passage[:300], out=tmp_path / str(scheme), schemes=[scheme], near=NEAR, windows=WINDOWS
        )
        own = run.scores.filter(pl.col("scheme") == str(scheme))
        assert own.drop("greedy_distance").equals(alone.scores.drop("greedy_distance"))
        measured = {(a, b) for a, b in zip(own["greedy_distance"], alone.scores["greedy_distance"], strict=True)}
        assert all(a == b or b is None for a, b in measured)
        assert near_of(run, scheme).examples == own.height
    greedy = run.scores.filter(pl.col("scheme") == "greedy").to_dicts()
    for row in greedy:  # all mass is on one output, so the bounds say where it is
        assert (row["lower"] > 0.5) <= (row["greedy_distance"] <= 2)
        assert (row["upper"] < 0.5) <= (row["greedy_distance"] > 2)


def test_a_killed_run_ends_in_the_same_table(
    finished: Run, bundled: Any, passage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = Dying()
    monkeypatch.setattr(os, "replace", dying)
    for left in (4, 2):  # text, manifest, a shard; then the next shard is lost
        dying.left = left
        with pytest.raises(Killed):
            rote.scan(bundled, passage, out=tmp_path / "run", near=NEAR, windows=WINDOWS)
    assert 0 < len(Run.open(tmp_path / "run").shards()) < len(finished.shards())
    dying.left = 0
    again = rote.scan(bundled, passage, out=tmp_path / "run", near=NEAR, windows=WINDOWS)
    same_table(again, finished)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"tolerance": 1}, "near.tolerance"),
        ({"distance": "hamming"}, "near.distance"),
        ({"budget": 61}, "near.budget"),
        ({"method": "beam", "width": 1}, "near.method"),
        ({"eos": "ignore"}, "near.eos"),
        ({"gap": 0.02}, "near.gap"),
        ({"until": "decision"}, "near.until"),
        ({"samples": 5}, "near.samples"),
        ({"samples": 5, "seed": 1}, "near.seed"),
    ],
)
def test_a_changed_option_is_refused_by_name(
    change: dict[str, Any], field: str, finished: Run, bundled: Any, passage: str
) -> None:
    other = replace(NEAR, **change)
    refused_unchanged(
        finished, field, lambda: rote.scan(bundled, passage, out=finished.folder, near=other, windows=WINDOWS)
    )


def test_near_cannot_be_added_to_a_run(bundled: Any, passage: str, tmp_path: Path) -> None:
    run = rote.scan(bundled, passage[:300], out=tmp_path / "run", windows=WINDOWS)
    refused_unchanged(
        run, "near", lambda: rote.scan(bundled, passage[:300], out=run.folder, near=NEAR, windows=WINDOWS)
    )


def test_another_memory_is_refused(finished: Run, bundled: Any, passage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU of another size: how many sequences are searched side by side decides the last digits."""
    monkeypatch.setattr(type(bundled), "memory_positions", bundled.memory_positions - 1)
    refused_unchanged(
        finished,
        "near.memory_positions",
        lambda: rote.scan(bundled, passage, out=finished.folder, near=NEAR, windows=WINDOWS),
    )


def test_what_cannot_be_searched_is_refused_before_anything_is_written(
    bundled: Any, passage: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="it cannot stop early"):
        rote.scan(bundled, passage, out=tmp_path / "run", near=NEAR, stop_early=True, windows=WINDOWS)
    with pytest.raises(InputError, match=r"budget=16: so many .* do not cover the first pass; give at least 17"):
        rote.scan(
            bundled, passage, out=tmp_path / "run", near=Near(budget=16, gap=0.0, until="budget"), windows=WINDOWS
        )
    assert not (tmp_path / "run").exists()
