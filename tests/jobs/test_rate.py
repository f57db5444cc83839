"""Rates over a corpus: a run is what the library draws and scores, can be continued, and says how sure it is."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict, fields, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import polars as pl
import pytest

import rote
from rote import Draw, InputError, Run
from rote.analysis.groups import sampled_rates, with_origin
from rote.analysis.rates import rates_by
from rote.corpus.documents import open_corpus
from rote.corpus.formats import as_examples
from rote.corpus.sampling import draw
from rote.report.text.words import summary_lines
from rote.store.files import plain
from rote.store.summary import RateName
from tests.cli.command import rote_here
from tests.conftest import ROOT
from tests.corpus.corpora import write_jsonl, write_splits, write_texts
from tests.jobs.support import SMALLEST_SHARD, Dying, Killed, same_table
from tests.store.test_manifest import refused_unchanged

DRAW = Draw(documents=5, examples=5, runs=3, prefix=8, suffix=6, seed=4)


@pytest.fixture(scope="module")
def corpora(alice: str, gatsby: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Half of it known by heart, the other half never seen; and more that was never seen."""
    folder = tmp_path_factory.mktemp("corpora")
    rows = [{"id": f"a{i}", "text": alice[3000 * i :][:900], "repetitions": 150} for i in range(1, 5)]
    rows += [{"id": f"g{i}", "text": gatsby[9000 * i :][:900], "repetitions": 0} for i in range(1, 5)]
    rows += [{"id": "tiny", "text": "too short", "repetitions": 0}]
    unseen = [{"id": f"a{i}.txt", "text": gatsby[9000 * i + 4000 :][:900]} for i in range(1, 8)]
    return write_jsonl(folder / "corpus.jsonl", rows), write_texts(folder / "unseen", unseen)


@pytest.fixture(scope="module")
def finished(bundled: Any, corpora: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(rote.jobs.engine.SHARD_FLOPS, "cpu", 1.0)
        run = rote.rate(bundled, corpora[0], out=tmp_path_factory.mktemp("rate"), held_out=corpora[1], draw=DRAW)
    assert len(run.shards()) >= 3
    return run


def test_a_run_is_what_the_library_draws_and_scores(finished: Run, bundled: Any, corpora: tuple[Path, Path]) -> None:
    examples, drawn = draw(open_corpus(corpora[0]), bundled.tokenizer, DRAW)
    others, _ = draw(open_corpus(corpora[1]), bundled.tokenizer, DRAW, role="held-out")
    both = [*examples, *others]
    results = [
        result
        for first in range(0, len(both), SMALLEST_SHARD)
        for result in rote.verbatim(bundled, both[first : first + SMALLEST_SHARD])
    ]
    rows = finished.scores.to_dicts()
    assert [(row["example_id"], row["log_prob"], row["greedy"]) for row in rows] == [
        (result.example_id, result.log_prob, result.greedy) for result in results
    ]
    for row, example in zip(rows, both, strict=True):
        assert (row["start"], row["suffix_start"], row["suffix_end"]) == (
            example.start, example.suffix_start, example.suffix_end,
        )  # fmt: skip
        main = example.metadata["corpus"] == "main"
        assert row["split"] == ("train" if main else "held-out")
        assert json.loads(row["metadata"]) == {**example.metadata, "split": row["split"]}
    sampling = finished.manifest.sampling
    assert sampling is not None
    assert {key: getattr(sampling, key) for key in asdict(DRAW)} == asdict(DRAW)
    assert sampling.held_out_name == "unseen"
    main_corpus = sampling.corpora["main"]
    assert main_corpus.kind == "jsonl"
    assert main_corpus.documents == 9
    assert [run.skipped_documents for run in main_corpus.runs] == [run.skipped_documents for run in drawn]
    assert finished.summary.sampling == sampling


def test_the_summary_keeps_the_held_out_corpus_out_of_the_rates(finished: Run) -> None:
    rows = with_origin(finished.scores)
    (found,) = finished.summary.schemes.values()
    own = rows.filter(pl.col("corpus") == "main")
    assert found.rates.examples == own.height < rows.height
    assert found.rates.rate_at_tau == sampled_rates(own).rate_at_tau
    tolerance = finished.summary.logit_tolerance
    limits = {"numeric_tolerance": 2 * tolerance * 6, "border_tolerance": tolerance}
    assert found.by_split == rates_by(rows, "split", **limits, of=sampled_rates)
    assert found.by_repetitions == rates_by(rows, "repetitions", **limits, of=sampled_rates)
    assert [group.repetitions for group in found.by_repetitions or []] == [0, 150, None]
    rate = found.rates.rate_at_tau
    per_run = [
        own.filter(pl.col("run") == run).select((pl.col("log_prob") >= pl.lit(0.001).log()).mean()).item()
        for run in range(3)
    ]
    assert rate.by_run == pytest.approx(per_run)
    assert (rate.mean, rate.deviation) == pytest.approx((mean(per_run), stdev(per_run)))
    assert rate.effective is not None
    assert rate.effective < own.height / 3  # documents are known by heart or not at all
    (entry,) = found.differences or []
    assert (entry.split, entry.control) == ("train", "held-out")
    assert entry.rate_at_tau.difference == rate.rate > 0.2


def test_terminal_and_report_say_it(finished: Run) -> None:
    (found,) = finished.summary.schemes.values()
    text = "\n".join(summary_lines(finished.finished))
    html = (finished.folder / "report.html").read_text(encoding="utf-8")
    page = re.sub(r"\s+", " ", re.sub(r"</?data[^>]*>", "", html))  # numbers stand in elements of their own
    rate = found.rates.rate_at_tau
    assert rate.mean is not None
    assert rate.deviation is not None
    for shown in (f"{100 * rate.mean:.1f}% ± {100 * rate.deviation:.1f}%", "held-out", "95% interval", "seed 4"):
        assert shown in text
        assert shown in page
    assert "train less held-out" in text
    assert "Over the corpus" in page
    assert ": Rote rate report</title>" in page
    assert '<p class="eyebrow">Rote rate report<' in page
    assert re.search(r"\d times? a document had no room for a single one", text)
    assert "with a document’s examples taken together" in page
    assert "95% Wilson interval" not in page


def test_a_killed_run_ends_in_the_same_table(
    finished: Run, bundled: Any, corpora: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = Dying()
    monkeypatch.setattr(os, "replace", dying)
    for left in (4, 2):  # examples, manifest, a shard; then the next shard is lost
        dying.left = left
        with pytest.raises(Killed):
            rote.rate(bundled, corpora[0], out=tmp_path / "run", held_out=corpora[1], draw=DRAW)
    assert 0 < len(Run.open(tmp_path / "run").shards()) < len(finished.shards())
    dying.left = 0
    again = rote.rate(bundled, corpora[0], out=tmp_path / "run", held_out=corpora[1], draw=DRAW)
    same_table(again, finished)


@pytest.mark.parametrize("change", [{"seed": 5}, {"documents": 6}, {"examples": 4}, {"runs": 2}])
def test_another_draw_is_refused_by_name(
    change: dict[str, Any], finished: Run, bundled: Any, corpora: tuple[Path, Path]
) -> None:
    refused_unchanged(
        finished,
        f"sampling.{next(iter(change))}",
        lambda: rote.rate(bundled, corpora[0], out=finished.folder, held_out=corpora[1], draw=replace(DRAW, **change)),
    )


def test_a_renamed_corpus_is_the_same_run(
    finished: Run, bundled: Any, corpora: tuple[Path, Path], tmp_path: Path
) -> None:
    corpus, held_out = tmp_path / "renamed.jsonl", tmp_path / "elsewhere"
    corpus.symlink_to(corpora[0])
    held_out.symlink_to(corpora[1])
    again = rote.rate(bundled, corpus, out=finished.folder, held_out=held_out, draw=DRAW)
    assert again.manifest.sampling is not None
    assert again.manifest.sampling.held_out_name == "unseen"


def test_splits_of_a_dataset_are_compared(model: Any, alice: str, tmp_path: Path) -> None:
    rows = [{"text": alice[3000 * i :][:900]} for i in range(6)]
    folder = write_splits(tmp_path / "d", {"train": rows[:4], "test": rows[4:]})
    run = rote.rate(model, folder, out=tmp_path / "run", draw=replace(DRAW, runs=1))
    (found,) = run.summary.schemes.values()
    assert [group.split for group in found.by_split or []] == ["test", "train"]
    assert [(entry.split, entry.control) for entry in found.differences or []] == [("train", "test")]
    assert found.rates.rate_at_tau.deviation is None
    assert found.rates.examples == run.scores.height
    assert "one run" in "\n".join(summary_lines(run.finished))


def test_rows_that_stopped_early_leave_a_range(bundled: Any, corpora: tuple[Path, Path], tmp_path: Path) -> None:
    run = rote.rate(bundled, corpora[0], out=tmp_path / "run", stop_early=True, draw=replace(DRAW, suffix=40))
    (found,) = run.summary.schemes.values()
    assert found.rates.bounded > 0
    assert found.rates.rate_at_tau.rate == found.rates.rate_at_tau.rate_upper
    lines = summary_lines(run.finished)
    assert any(line.startswith("maximum") and "at least" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix": 300}, "more than the model's context"),
        ({"prefix": 20, "suffix": 0}, "suffix must be a whole number of at least 1, not 0"),
        ({"schemes": []}, "scheme"),
        ({"prefix": 100, "text_column": "id"}, "no document has room for one example"),
        ({"documents": 0}, "documents must be a whole number of at least 1, not 0"),
        ({"glob": "*.md"}, "glob chooses texts from a folder"),
        ({"runs": 0}, "runs must be a whole number of at least 1, not 0"),
        ({"tau": 2.0}, "tau"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_written(
    options: dict[str, Any], message: str, model: Any, corpora: tuple[Path, Path], tmp_path: Path
) -> None:
    drawn = {field.name for field in fields(Draw)}
    with pytest.raises(InputError, match=message):
        rote.rate(
            model, corpora[0], out=tmp_path / "run",
            draw=replace(DRAW, **{name: value for name, value in options.items() if name in drawn}),
            **{name: value for name, value in options.items() if name not in drawn},
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_a_corpus_is_no_control_for_itself(model: Any, corpora: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="held_out is the corpus itself"):
        rote.rate(model, corpora[0], out=tmp_path / "run", held_out=corpora[0], draw=DRAW)


def test_options_of_one_kind_of_corpus_leave_the_other_alone(
    model: Any, corpora: tuple[Path, Path], tmp_path: Path
) -> None:
    rows = write_jsonl(tmp_path / "c.jsonl", [{"body": corpora[1].joinpath("a1.txt").read_text()}])
    run = rote.rate(
        model, rows, out=tmp_path / "run", held_out=corpora[1], text_column="body", glob="*1.txt", draw=DRAW
    )
    assert {json.loads(m)["document"] for m in run.scores["metadata"]} == {"line-1", "a1.txt"}
    with pytest.raises(InputError, match="leave text_column out"):
        rote.rate(model, corpora[1], out=tmp_path / "other", text_column="body", draw=DRAW)


def test_the_command_line(tiny_folder: Path, corpora: tuple[Path, Path], tmp_path: Path) -> None:
    command: list[str | Path] = [
        "rate",
        corpora[0],
        "--model",
        tiny_folder,
        "--out",
        tmp_path / "run",
        "--device",
        "cpu",
    ]
    command += ["--documents", "3", "--examples", "2", "--runs", "2", "--prefix", "8", "--suffix", "6"]
    done = rote_here(*command)
    assert done.code == 0, done.err
    assert "mean ± sd over 2 runs" in done.out
    printed = json.loads(rote_here(*command, "--json").out)
    assert printed == plain(Run.open(tmp_path / "run").summary)
    assert printed == json.loads((tmp_path / "run/summary.json").read_text())
    refused = rote_here(*command, "--seed", "1")
    assert refused.code == 1
    assert "sampling.seed: the folder has 0, this command 1" in refused.err
    assert rote_here("report", tmp_path / "run").out.startswith(done.out)
    missing = rote_here("rate", tmp_path / "nowhere", "--model", tiny_folder, "--device", "cpu")
    assert (missing.code, "no such file or folder" in missing.err) == (1, True)


def test_the_ladder_rises_with_repetitions(bundled: Any, tmp_path: Path) -> None:
    """The bundled model's ladder of known repetitions: no step is below an earlier one beyond their error bars."""
    examples = as_examples(ROOT / "training/ladder.jsonl", bundled.tokenizer)
    run = rote.score(bundled, examples, out=tmp_path / "run")
    (found,) = run.summary.schemes.values()
    steps = found.by_repetitions or []
    assert [step.repetitions for step in steps] == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
    names: tuple[RateName, ...] = ("greedy_rate", "rate_at_tau", "maximum_rate")
    for name in names:
        intervals = [step.named[name].interval for step in steps]
        for place, interval in enumerate(intervals):
            assert all(interval[1] >= before[0] for before in intervals[:place])
        assert intervals[0][1] < intervals[-1][0]


def test_compared_runs_leave_the_control_out_and_know_of_documents(finished: Run, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(finished.folder, again)
    result = rote.compare([finished.folder, again]).result
    main = finished.summary.schemes[finished.manifest.schemes[0]].rates
    assert result.held_out_examples == finished.scores.height - main.examples > 0
    assert result.common_examples == main.examples
    assert [run.rates.rate_at_tau for run in result.runs] == [main.rate_at_tau] * 2
    pair = result.pairs[0]
    assert (pair.gained, pair.lost, pair.effective) == (0, 0, main.documents)
