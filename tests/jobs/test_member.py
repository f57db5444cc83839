"""`rote member`: whole runs over labelled texts, held against the definitions; killed, gone on with, and refused."""

from __future__ import annotations

import datetime
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from polars.testing import assert_frame_equal

import rote
from rote import InputError, ModelError, RunError
from rote.analysis.member import dataset
from rote.corpus.texts import LabelledText
from rote.jobs import engine
from rote.jobs.member import member
from rote.jobs.open import Membership
from rote.membership import windows
from rote.membership.options import Reading
from rote.membership.scores import BY_NAME, SCORES
from tests import tiny
from tests.cli.command import rote_here
from tests.jobs.support import SMALLEST_SHARD, Killed, files
from tests.reference import membership as reference

ROUNDING: Any = {"rel": 2e-3, "abs": 2e-4}
TEXTS, HELD_OUT = 40, 30  # three small shards
ONE_PASS = [score.name for score in SCORES if score.needs == "text"]


@pytest.fixture(scope="module")
def texts(alice: str, gatsby: str) -> list[dict[str, Any]]:
    """Twenty members and twenty non-members, as they come: some with a group, a date, repetitions."""
    seen = [alice[3000 + 150 * n :][: 60 + 3 * n] for n in range(TEXTS // 2)]
    unseen = [gatsby[30_000 + 150 * n :][: 60 + 3 * n] for n in range(TEXTS // 2)]
    return [
        {"id": f"{'seen' if label else 'unseen'} {n}", "text": text, "label": label, "group": f"{label} {n // 2}",
         "date": f"{1900 + n}-0{1 + n % 9}", "repetitions": 2**n if label and n < 5 else None}
        for label, some in ((True, seen), (False, unseen)) for n, text in enumerate(some)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def held_out(gatsby: str) -> list[str]:
    return [gatsby[60_000 + 150 * n :][:90] for n in range(HELD_OUT)]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model of another kind that reads bytes: its tokenizer has no merges. Texts do not fit its context."""
    folder = tiny.save(tmp_path_factory.mktemp("models") / "bytes", "gpt2", seed=3, max_position_embeddings=50)
    path = folder / "tokenizer.json"
    settings = json.loads(path.read_text())
    settings["model"]["merges"] = []
    path.write_text(json.dumps(settings))
    return rote.load(folder, rote.ModelOptions(device="cpu"))


@pytest.fixture(scope="module", autouse=True)
def few_trials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "TRIALS", 4)
        yield


@pytest.fixture(scope="module")
def full(
    model: Any, other: Any, texts: list[dict[str, Any]], held_out: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Membership:
    """Everything but extraction, over three shards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engine.SHARD_FLOPS, "cpu", 1.0)
        return member(
            model, texts, reference=other, held_out=held_out, shots=2, out=tmp_path_factory.mktemp("full") / "run"
        )


def test_texts_that_count_twice_are_told(model: Any, tmp_path: Path) -> None:
    once = [{"id": f"t{n}", "text": f"the text of number {n}"} for n in range(4)]
    twice = [*once, {"id": "again", "text": once[1]["text"]}]
    (said,) = member(model, twice, quick=True, out=tmp_path / "twice").summary.warnings
    assert said.startswith("1 text stands there more than once ('t1' and 'again' for one)")
    together = [{**text, "group": text["text"]} for text in twice]
    for number, fine in enumerate((once, together)):
        assert member(model, fine, quick=True, out=tmp_path / str(number)).summary.warnings == []
    halves = [{**text, "group": text["id"]} for text in twice]
    assert len(member(model, halves, quick=True, out=tmp_path / "halves").summary.warnings) == 1


def same(run: Membership, other: Membership) -> None:
    """Every row, every float to the last bit, and all that was made of them."""
    assert_frame_equal(run.rows, other.rows, check_exact=True)
    timeless = [replace(each.summary, seconds=0.0) for each in (run, other)]
    assert timeless[0] == timeless[1]
    assert (run.folder / "report.html").is_file()


def reader_of(model: Any, window: int, stride: int) -> reference.Reader:
    return reference.Reader(reference.float64(model._model), model.tokenizer, model.bos_id, window, stride)


def check_row(row: dict[str, Any], reader: reference.Reader, **passes: Any) -> None:
    """A row's tokens and scores, against the same worked out in float64; `passes` as the reference takes them."""
    own = reference.read_text(row["text"], reader)
    want = reference.scores(row["text"], own, **passes)
    assert row["tokens"] == len(row["token_ends"]) == len(own)
    assert row["token_log_probs"] == pytest.approx([each.log_prob for each in own], abs=1e-4)
    assert row["token_z"] == pytest.approx([each.z for each in own], abs=1e-3, rel=1e-3)
    for name, read in passes.items():
        assert row[f"{name}_loss"] == pytest.approx(reference.loss(read), **ROUNDING)
    for score in SCORES:
        if score.name in want:
            assert row[score.name] == pytest.approx(want[score.name], **ROUNDING), score.name
        else:
            assert row[score.name] is None
    assert row["characters"] == len(row["text"]) == row["token_ends"][-1]
    assert row["token_ends"] == sorted(row["token_ends"])


# --- what stands in a run


def test_rows_are_what_the_definitions_say(full: Membership, model: Any, other: Any) -> None:
    """Five texts of all: lowercase, after two held-out texts, and under a model that has other tokens."""
    own, theirs = reader_of(model, 128, 64), reader_of(other, 50, 25)
    known = {text.id: text.text for text in full.texts if text.part == "held_out"}
    before = reference.tokens_of("".join(known[each] + "\n\n" for each in full.manifest.prefix), model.tokenizer)
    assert len(full.manifest.prefix) == 2
    assert (full.manifest.prefix_tokens, full.manifest.prefix_whole) == (min(len(before), 64), len(before))
    rows = full.rows.to_dicts()
    assert any(row["windows"] == 1 for row in rows)
    beside = own._replace(window=128 - len(before[:64]), stride=64 * (128 - len(before[:64])) // 128)
    for row in rows[3::16]:
        check_row(
            row, own, lowercase=reference.read_text(row["text"].lower(), own),
            reference=reference.read_text(row["text"], theirs),
            prefixed=reference.read_text(row["text"], beside, before[:64]),
        )  # fmt: skip


def test_the_texts_stand_in_their_order_with_all_that_was_said_of_them(
    full: Membership, texts: list[dict[str, Any]], held_out: list[str]
) -> None:
    rows = full.rows.to_dicts()
    assert [row["part"] for row in rows] == ["texts"] * TEXTS + ["held_out"] * HELD_OUT
    for row, given in zip(rows, texts, strict=False):
        assert {name: row[name] for name in given} == given
    assert [row["text"] for row in rows[TEXTS:]] == held_out
    assert full.rows["scored_start"].unique().to_list() == [0]
    lengths = [len(reference.tokens_of(row["text"], reader_tokenizer(full))) for row in rows]
    assert full.rows["tokens"].to_list() == lengths
    assert full.rows["token_evals"].to_list() == [length - 1 for length in lengths]


def reader_tokenizer(run: Membership) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(run.manifest.model.name)


def test_the_summary_counts(full: Membership) -> None:
    summary, rows = full.summary, full.rows
    assert (summary.texts, summary.held_out, summary.members, summary.non_members) == (TEXTS, HELD_OUT, 20, 20)
    assert summary.tokens == rows["tokens"].sum()
    assert summary.token_evals == {
        "text": rows["token_evals"].sum(),
        "lowercase": rows["lowercase_evals"].sum(),
        "prefix": rows["prefixed_evals"].sum(),
        "reference": rows["reference_evals"].sum(),
    }
    assert (summary.windowed, summary.short) == (0, None)
    assert summary.evaluation is not None
    assert (summary.evaluation.members, summary.evaluation.non_members, summary.evaluation.prefix) == (20, 20, 0)
    assert summary.test is not None
    assert (summary.test.suspects, summary.test.held_out) == (20, HELD_OUT - 2)
    assert full.manifest.scores == [score.name for score in SCORES if score.needs != "windows"]
    assert {spread.score for spread in summary.spreads} == set(full.manifest.scores)


def test_no_number_is_none(full: Membership) -> None:
    """Neither NaN nor infinite, in any file."""
    for name in full.manifest.scores:
        assert all(map(math.isfinite, full.rows[name].to_list())), name
    for name in ("summary.json", "manifest.json"):
        assert not re.search(r"\b(NaN|-?Infinity|-0\.0)\b", (full.folder / name).read_text())


@pytest.mark.parametrize("bos", ["always", "never"])
def test_long_and_odd_texts_in_windows(
    bos: Any, tiny_folder: Path, other: Any, alice: str, gatsby: str, tmp_path: Path
) -> None:  # fmt: skip
    """Five windows and more to a text, after a prefix that takes half of a window; letters of many bytes. The
    reference model, to which no window was given, reads as much at once as it can."""
    model: Any = rote.load(tiny_folder, rote.ModelOptions(device="cpu", bos=bos))
    given = [alice[5000:5300], "🦉 ἄνδρα é " * 6, "ΜΟΥΣΑΣ, Straße", "two words"]
    held = [gatsby[70_000:70_400], gatsby[80_000:80_100]]
    run = member(
        model, given, held_out=held, reference=other, reading=Reading(window=20, stride=12), out=tmp_path / "run"
    )
    reader, theirs = reader_of(model, 20, 12), reader_of(other, 50, 25)
    assert (run.manifest.reference_window, run.manifest.reference_stride) == (50, 25)
    (drawn,) = [text.text for text in run.texts if text.id in run.manifest.prefix and text.part == "held_out"]
    before = reference.tokens_of(drawn + "\n\n", model.tokenizer)[:10]
    assert (run.manifest.window, run.manifest.stride, run.manifest.prefix_tokens) == (20, 12, 10)
    for row in run.rows.head(4).iter_rows(named=True):
        ids = reference.tokens_of(row["text"], model.tokenizer)
        cut = reference.windows(len(ids), 20, 12)
        assert row["windows"] == len(cut)
        assert row["token_evals"] == sum(len(places) - 1 for places in cut)
        first = model.tokenizer.decode(ids[:1]) if bos == "never" else ""
        assert row["scored_start"] == (0 if "\ufffd" in first else len(first))  # else inside of the first letter
        check_row(
            row, reader, lowercase=reference.read_text(row["text"].lower(), reader),
            reference=reference.read_text(row["text"], theirs),
            prefixed=reference.read_text(row["text"], reader, before),
        )  # fmt: skip
    assert run.summary.windowed == (run.rows["windows"] > 1).sum() >= 3


def test_what_is_lowercase_is_read_once(model: Any, tmp_path: Path) -> None:
    run = member(model, ["all of it is lowercase", "Not All"], out=tmp_path / "run")
    first, second = run.rows.to_dicts()
    assert (first["lowercase"], first["lowercase_loss"], first["lowercase_evals"]) == (1.0, first["loss"], 0)
    assert second["lowercase"] != 1
    assert second["lowercase_evals"] > 0


def test_quick_is_one_pass(model: Any, texts: list[dict[str, Any]], held_out: list[str], tmp_path: Path) -> None:
    run = member(model, texts[15:25], held_out=held_out[:3], quick=True, out=tmp_path / "run")
    assert run.manifest.scores == ONE_PASS
    assert run.manifest.prefix == []
    assert list(run.summary.token_evals) == ["text"]
    assert run.rows.select("lowercase", "recall", "lowercase_loss", "prefixed_loss").null_count().row(0) == (13,) * 4
    assert run.summary.evaluation is not None
    assert {row.name for row in run.summary.evaluation.rows} >= {*ONE_PASS, "blind", "random", "majority"}


def test_the_prefix_of_non_members_is_left_out(model: Any, texts: list[dict[str, Any]], tmp_path: Path) -> None:
    """Without held-out texts non-members stand before every text; nothing is said about those, nor of their groups."""
    runs = [member(model, texts, shots=3, seed=seed, out=tmp_path / str(seed)) for seed in (0, 1)]
    drawn = [run.manifest.prefix for run in runs]
    assert drawn[0] != drawn[1]
    for run in runs:
        assert len(set(run.manifest.prefix)) == 3
        assert all(name.startswith("unseen") for name in run.manifest.prefix)
        assert run.summary.evaluation is not None
        found = run.summary.evaluation
        assert (found.members, found.non_members, found.prefix, found.unlabelled) == (20, 16, 4, 0)
        groups = {row["group"] for row in run.rows.to_dicts() if row["id"] in run.manifest.prefix}
        assert len(groups) == 2, "three texts of groups of two"
        assert run.summary.test is None or run.summary.test.held_out == 16


def test_a_text_that_stands_before_all_is_left_out_wherever_it_stands(model: Any, tmp_path: Path) -> None:
    """Under two ids it is one text: of itself the model would be asked what it has just read."""
    seen = [{"text": f"member number {n}", "label": True} for n in range(4)]
    unseen = [{"text": f"a non-member, {n // 2}", "label": False, "id": str(n)} for n in range(8)]
    found = member(model, seen + unseen, out=tmp_path / "run").summary.evaluation
    assert found is not None
    assert (found.members, found.non_members, found.prefix) == (4, 6, 2)


def test_the_prefix_is_taken_from_small_groups(model: Any, tmp_path: Path) -> None:
    """So that little is left out with it; and a text without a group takes nothing with it."""
    seen = [{"text": f"member number {n}", "label": True} for n in range(4)]
    unseen = [{"text": f"non-member {n}", "label": False, "group": f"{n % 7 // 3}"} for n in range(14)]
    for extra, left_out in (({"group": "alone"}, 1), ({}, 1), ({"group": "2"}, 3)):
        last = {"text": "the last", "label": False, **extra}
        found = member(model, [*seen, *unseen, last], out=tmp_path / f"{extra}").summary.evaluation
        assert found is not None
        assert (found.non_members, found.prefix) == (15 - left_out, left_out)


def test_extraction_where_the_text_is_long_enough(bundled: Any, alice: str, tmp_path: Path) -> None:
    """The likeliest of all windows of 50 + 50 tokens, 25 apart and one at the end; null below one window."""
    long, short = alice[20_000:20_480], "Alice was beginning to get very tired"
    run = member(bundled, [long, short], extract=True, quick=True, out=tmp_path / "run")
    ids = reference.tokens_of(long, bundled.tokenizer)
    last = len(ids) - 100
    starts = sorted({*range(0, last + 1, 25), last})
    examples = [rote.Example(str(at), tuple(ids[at : at + 50]), tuple(ids[at + 50 : at + 100])) for at in starts]
    scored = rote.verbatim(bundled, examples, [rote.Scheme(top_k=None)])
    best = max(scored, key=lambda one: one.log_prob)
    row, none = run.rows.to_dicts()
    assert row["windows_tried"] == len(starts) > 1
    assert row["best_window"] == pytest.approx(best.log_prob, abs=1e-3)
    assert best.log_prob - 1e-3 <= row["near_lower"] <= 0
    assert long[row["best_start"] :].startswith(bundled.tokenizer.decode(ids[int(best.example_id) :][:5]))
    assert (none["best_window"], none["near_lower"], none["windows_tried"]) == (None, None, 0)
    assert (run.summary.short, run.manifest.scores[-2:]) == (1, ["best_window", "near_lower"])
    assert row["windows_evals"] >= sum(one.token_evals for one in scored)


def test_the_likeliest_window_of_every_text(
    model: Any, texts: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small windows, so that a tiny model's texts have several; where one text has none, neither score is evaluated."""
    for name, size in (("PREFIX", 4), ("SUFFIX", 7), ("EVERY", 2)):
        monkeypatch.setattr(windows, name, size)
    given = [*texts[:3:2], *texts[20:23:2], {"id": "short", "text": "Too short", "label": False}]
    run = member(model, given, extract=True, quick=True, out=tmp_path / "run")
    assert run.manifest.extracted is not None
    assert [getattr(run.manifest.extracted, name) for name in ("prefix", "suffix", "every")] == [4, 7, 2]
    logits = reference.float64(model._model)
    for row in run.rows.head(4).iter_rows(named=True):
        ids = reference.tokens_of(row["text"], model.tokenizer)
        starts = sorted({*range(0, len(ids) - 10, 2), len(ids) - 11})
        found = {}
        for at in starts:
            read = reference.read(logits, ids[at : at + 11], bos=model.bos_id, window=11, stride=11)
            found[at] = sum(each.log_prob for each in read[4:])
        assert row["windows_tried"] == len(starts) >= 3
        assert row["best_window"] == pytest.approx(max(found.values()), abs=1e-3)
        assert row["best_window"] <= row["near_lower"] < 0
        best = max(found, key=lambda at: found[at])
        assert row["best_start"] == len(model.tokenizer.decode(ids[:best]))
        assert row["windows_evals"] >= 10 * len(starts)
    assert run.rows["best_window"].to_list()[4:] == [None]
    assert run.summary.short == 1
    assert run.summary.token_evals["windows"] == run.rows["windows_evals"].sum()
    assert run.summary.evaluation is not None
    assert not {row.name for row in run.summary.evaluation.rows} & {"best_window", "near_lower"}
    whole = member(model, given[:-1], extract=True, quick=True, out=tmp_path / "whole")
    assert whole.summary.evaluation is not None
    assert {row.name for row in whole.summary.evaluation.rows} >= {"best_window", "near_lower"}


def test_what_ran_out_of_memory_is_read_all_the_same_and_said(
    model: Any, held_out: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = member(model, held_out, quick=True, out=tmp_path / "undisturbed")
    hidden = type(model).hidden

    def hungry(self: Any, tokens: torch.Tensor) -> torch.Tensor:
        if len(tokens) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return hidden(self, tokens)  # type: ignore[no-any-return]

    monkeypatch.setattr(type(model), "hidden", hungry)
    run = member(model, held_out, quick=True, out=tmp_path / "run")
    assert any("out of memory" in warning for warning in run.summary.warnings)
    assert undisturbed.summary.warnings == []
    for name in run.manifest.scores:
        assert run.rows[name].to_list() == pytest.approx(undisturbed.rows[name].to_list(), **ROUNDING)


# --- labels that are there, and that are not


def test_without_labels_there_is_a_test_alone(model: Any, held_out: list[str], tmp_path: Path) -> None:
    run = member(model, held_out[:10], held_out=held_out[10:], out=tmp_path / "run")
    assert (run.summary.members, run.summary.non_members) == (0, 0)
    assert run.summary.evaluation is None
    assert run.summary.not_evaluated
    assert run.summary.test is not None
    assert (run.summary.test.suspects, run.summary.test.held_out) == (10, 19)


def test_without_labels_or_held_out_texts_there_are_scores_alone(model: Any, tmp_path: Path) -> None:
    run = member(model, ["one text", "another text"], out=tmp_path / "run")
    assert run.summary.evaluation is None
    assert run.summary.test is None
    assert run.summary.not_evaluated
    assert run.summary.not_tested
    assert run.manifest.scores == [*ONE_PASS[:3], "lowercase", *ONE_PASS[3:]]
    assert run.manifest.prefix == []
    assert [spread.label for spread in run.summary.spreads] == [None] * len(run.manifest.scores)


@pytest.mark.parametrize("label", [True, False])
def test_one_class_alone(label: bool, model: Any, texts: list[dict[str, Any]], tmp_path: Path) -> None:
    run = member(model, [text for text in texts if text["label"] == label], out=tmp_path / "run")
    assert run.summary.evaluation is None
    assert run.summary.test is None
    assert run.summary.not_evaluated
    assert run.summary.not_tested


def test_unlabelled_texts_are_scored_and_not_evaluated(
    model: Any, texts: list[dict[str, Any]], tmp_path: Path
) -> None:  # fmt: skip
    given = [text if number % 4 else {**text, "label": None} for number, text in enumerate(texts)]
    run = member(model, given, quick=True, out=tmp_path / "run")
    assert run.summary.evaluation is not None
    found = run.summary.evaluation
    assert (found.members, found.non_members, found.unlabelled) == (15, 15, 10)
    assert run.rows["loss"].null_count() == 0


def test_one_text(model: Any, tmp_path: Path) -> None:
    run = member(model, ["x"], out=tmp_path / "run")
    assert run.rows["tokens"].to_list() == [1]
    assert run.rows["min_k_5"].to_list() == run.rows["min_k_40"].to_list() == [-run.rows["loss"][0]]


# --- the same texts in any file


def test_files_and_lists_give_the_same_run(
    full: Membership, model: Any, texts: list[dict[str, Any]], held_out: list[str], tmp_path: Path
) -> None:
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(json.dumps(text) + "\n" for text in texts))
    table = tmp_path / "texts.parquet"
    pq.write_table(pa.Table.from_pylist(texts), table)
    made: list[Any] = [LabelledText(**text) for text in texts]
    every: list[Any] = [texts, lines, table, made, str(lines)]
    runs = [member(model, given, quick=True, out=tmp_path / str(number)) for number, given in enumerate(every)]
    for run in runs[1:]:
        same(run, runs[0])
        assert run.manifest.source.sha256 == full.manifest.source.sha256


def test_what_is_said_of_a_text_may_be_null_or_of_another_kind(model: Any, tmp_path: Path) -> None:
    given: list[dict[str, Any]] = [
        {"text": "a", "id": None, "label": None, "group": None, "date": None, "repetitions": None},
        {"text": "b", "id": None, "label": 1, "group": 7, "date": 1865},
        {"text": "c", "id": 9, "label": " Non-Member", "date": datetime.datetime(1865, 11, 26, 9, 30)},
        {"text": "d", "label": np.bool_(True), "repetitions": np.int64(3), "date": datetime.date(1865, 11, 26)},
    ]
    run = member(model, given, quick=True, out=tmp_path / "run")
    assert run.rows["id"].to_list() == ["text-0", "text-1", "9", "text-3"]
    assert run.rows["label"].to_list() == [None, True, False, True]
    assert run.rows["group"].to_list() == [None, "7", None, None]
    assert run.rows["date"].to_list() == [None, "1865", "1865-11-26", "1865-11-26"]


def test_a_folder_of_texts_is_labelled_by_its_folders(model: Any, texts: list[dict[str, Any]], tmp_path: Path) -> None:
    for number, text in enumerate(texts[15:25]):
        path = tmp_path / "texts" / ("member" if text["label"] else "non-member") / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text["text"], newline="")
    run = member(model, tmp_path / "texts", quick=True, out=tmp_path / "run")
    assert (run.summary.members, run.summary.non_members) == (5, 5)
    assert run.rows["id"].to_list()[:2] == ["member/0.txt", "member/1.txt"]


def test_the_command_line_says_what_the_library_does(
    tiny_folder: Path, model: Any, texts: list[dict[str, Any]], held_out: list[str], tmp_path: Path
) -> None:
    for name, some in (("texts", texts), ("held", [{"text": text} for text in held_out])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in some))
    command: list[str | Path] = ["member", tmp_path / "texts.jsonl", "--model", tiny_folder, "--device", "cpu"]
    command += ["--quick", "--window", "20", "--held-out", tmp_path / "held.jsonl", "--match", "length"]
    command += ["--out", tmp_path / "run"]
    done = rote_here(*command)
    assert done.code == 0, done.err
    assert "AUROC" in done.out
    run = member(
        model, tmp_path / "texts.jsonl", held_out=tmp_path / "held.jsonl", quick=True, reading=Reading(window=20),
        match=["length"], out=tmp_path / "same",
    )  # fmt: skip
    same(Membership(tmp_path / "run"), run)
    for more, problem in (
        (["--stride", "21"], "--stride 21 would leave tokens out between windows of 20; give at most 20"),
        (["--seed", "1"], "seed: the folder has 0, this command 1"),
        (["--match", "size"], "give length, date or length,date"),
    ):
        failed = rote_here(*command, *more)
        assert failed.code != 0
        assert problem in " ".join(failed.err.split())


# --- killed, gone on with


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_every_file_that_appears(
    when: str, model: Any, held_out: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = fatal = 0
    rename = os.replace

    def dying(source: Any, target: Any) -> None:
        nonlocal writes
        writes += 1
        if when == "after" or writes != fatal:
            rename(source, target)
        if writes == fatal:
            raise Killed

    def run(folder: str) -> Membership:
        return member(model, [text[: 20 + n] for n in range(2) for text in held_out], quick=True, out=tmp_path / folder)

    undisturbed = run("undisturbed")
    assert len(undisturbed.shards()) == 2
    monkeypatch.setattr(os, "replace", dying)
    run("counted")
    assert writes == 7  # texts, manifest, two shards, seal, summary, report
    for number in range(1, 8):
        writes, fatal = 0, number
        with pytest.raises(Killed):
            run(str(number))
        fatal = 0
        same(run(str(number)), undisturbed)
        assert not list((tmp_path / str(number)).rglob("*.part"))


def test_killed_within_a_shard_it_ends_in_the_same_numbers(
    full: Membership, model: Any, other: Any, texts: list[dict[str, Any]], held_out: list[str], tmp_path: Path
) -> None:
    """Evaluation, test and all: a text has the same batch-mates however often the run was stopped."""

    def run(progress: Any = None) -> Membership:
        return member(
            model, texts, reference=other, held_out=held_out, shots=2, out=tmp_path / "run", progress=progress
        )

    def stop_at(texts: int) -> Callable[[str, int, int], None]:
        def progress(what: str, done: int, total: int) -> None:
            if what == "read" and done >= texts:
                raise Killed

        return progress

    for done, stored in ((SMALLEST_SHARD // 2, 0), (SMALLEST_SHARD + 9, 1), (2 * SMALLEST_SHARD + 2, 2)):
        with pytest.raises(Killed):
            run(stop_at(done))
        assert len(Membership(tmp_path / "run").shards()) == stored
        with pytest.raises(RunError, match=f"is unfinished \\({stored} of 3 shards"):
            _ = Membership(tmp_path / "run").summary
    same(run(), full)


def test_progress_never_goes_back(model: Any, texts: list[dict[str, Any]], tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    member(model, texts, out=tmp_path / "run", progress=lambda *what: told.append(what))
    read = [done for what, done, total in told if what == "read"]
    assert read == sorted(read)
    assert read[-1] == TEXTS
    assert {total for what, _, total in told if what == "read"} == {TEXTS}


def test_a_finished_run_is_not_made_again(
    full: Membership, model: Any, other: Any, texts: list[dict[str, Any]], held_out: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = Path(shutil.copytree(full.folder, tmp_path / "run"))
    before = files(folder)
    monkeypatch.setattr(type(model), "hidden", lambda *_: pytest.fail("nothing is left to read"))
    again = member(model, texts, reference=other, held_out=held_out, shots=2, out=folder)
    assert again.seal == full.seal
    assert {name: content for name, content in files(folder).items() if name != "report.html"} == {
        name: content for name, content in before.items() if name != "report.html"
    }


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "seed"),
        ({"shots": 1}, "prefix"),
        ({"quick": True}, "scores"),
        ({"extract": True}, "extracted"),
        ({"reading": Reading(window=50)}, "window: the folder has 128, this command 50"),
        ({"reading": Reading(stride=5)}, "stride: the folder has 64, this command 5"),
        ({"reference": None}, "reference"),
        ({"held_out": None}, "held_out"),
        ({"match": ["length"]}, "match"),
        ({"batch_size": 3}, "batch_size"),
    ],
)
def test_another_run_is_not_mixed_in(
    changes: dict[str, Any], named: str, full: Membership, model: Any, other: Any, texts: list[dict[str, Any]],
    held_out: list[str],
) -> None:  # fmt: skip
    options = {"reference": other, "held_out": held_out, "shots": 2, **changes}
    refused_unchanged(full.folder, named, lambda: member(model, texts, out=full.folder, **options))


@pytest.mark.parametrize(
    "change", [{"label": False}, {"label": None}, {"group": "x"}, {"date": "1866"}, {"id": "x"}, {"text": "x"}]
)
def test_other_texts_are_not_mixed_in(
    change: dict[str, Any], full: Membership, model: Any, other: Any, texts: list[dict[str, Any]], held_out: list[str]
) -> None:
    changed = [{**texts[0], **change}, *texts[1:]]
    refused_unchanged(
        full.folder, r"source\.sha256",
        lambda: member(model, changed, reference=other, held_out=held_out, shots=2, out=full.folder),
    )  # fmt: skip


def test_another_model_is_not_mixed_in(
    full: Membership, other: Any, model: Any, texts: list[dict[str, Any]], held_out: list[str], tiny_folder: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    without = rote.load(tiny_folder, rote.ModelOptions(device="cpu", bos="never"))
    retrained = rote.load(tiny.save(tmp_path / "m", seed=9), rote.ModelOptions(device="cpu"))
    for own, theirs, named in (
        (retrained, other, r"model\.fingerprint"),
        (without, other, r"model\.bos"),
        (model, retrained, r"reference\.fingerprint"),
    ):
        refused_unchanged(
            full.folder, named,
            lambda own=own, theirs=theirs: member(  # type: ignore[misc]
                own, texts, reference=theirs, held_out=held_out, shots=2, out=full.folder
            ),
        )  # fmt: skip


def refused_unchanged(folder: Path, named: str, run: Callable[[], object]) -> None:
    before = files(folder)
    with pytest.raises(RunError, match=named):
        run()
    assert files(folder) == before


# --- what is refused, before anything is written


def line(**changes: Any) -> str:
    return json.dumps({"text": "some text", **changes})


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (line(text=""), "line 2.*the text is empty"),
        (line(text=None), "line 2.*the text is empty"),
        (line(text=5), "line 2.*'text' is 5"),
        (line(text="\ud800"), "line 2.*surrogate"),
        (json.dumps({"words": "x"}), "line 2.*no 'text'.*text_column"),
        (line(label="yes"), "line 2.*label is 'yes'.*leave it out"),
        (line(label=2), "line 2.*label is 2"),
        (line(label=0.5), "line 2.*label is 0.5"),
        (line(label=[1]), "line 2.*label is"),
        (line(date="yesterday"), "line 2.*'yesterday' is no date.*YYYY"),
        (line(date="2001-13"), "line 2.*'2001-13' is no date"),
        (line(date="2001-02-30"), "line 2.*'2001-02-30' is no date"),
        (line(date=""), "line 2.*'' is no date"),
        (line(date=True), "line 2.*'True' is no date"),
        (line(group="\ud800"), "line 2.*group.*surrogate"),
        (line(id="\ud800"), "line 2.*id is"),
        (line(group=""), "line 2.*group is ''"),
        (line(group=[1]), "line 2.*group is"),
        (line(repetitions=-1), "line 2.*repetitions is -1"),
        (line(repetitions=10**30), "line 2.*repetitions is 1000"),
        (line(repetitions="often"), "line 2.*repetitions is 'often'"),
        (line(id=""), "line 2.*id is ''"),
        (line(id="line-1"), "line 2.*'line-1' is already that of"),
        ("{", "line 2"),
        ("[]", "line 2"),
        ("\x00\x01", "line 2"),
    ],
)
def test_bad_lines_are_refused_by_their_number(second: str, problem: str, model: Any, tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(f"{line()}\n{second}\n")
    refused(problem, tmp_path / "run", lambda: member(model, path, out=tmp_path / "run"))


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ("", r"texts\[1\].*empty"),
        ({"text": ""}, r"texts\[1\].*empty"),
        ({"label": True}, r"texts\[1\] has no 'text'.*text_column"),
        (5, r"texts\[1\] is 5"),
        ({"text": "x", "label": "maybe"}, r"texts\[1\].*label is 'maybe'"),
        ({"text": "x", "id": "text-0"}, r"texts\[1\].*'text-0' is another text's"),
        ({"text": b"x"}, r"texts\[1\].*Give a string"),
        ("\udc00", r"texts\[1\].*surrogate"),
        ({"text": "x", "group": "\ud800"}, r"texts\[1\].*group.*surrogate"),
        ({"text": "x", "id": "\ud800"}, r"texts\[1\].*id"),
        ({"text": "x", "id": ""}, r"texts\[1\].*id"),
        ({"text": "x", "id": ["a"]}, r"texts\[1\].*id"),
    ],
)
def test_bad_texts_of_a_list_are_refused_by_their_place(second: Any, problem: str, model: Any, tmp_path: Path) -> None:
    refused(problem, tmp_path / "run", lambda: member(model, ["fine", second], out=tmp_path / "run"))
    refused(
        problem.replace("texts", "held_out"), tmp_path / "run",
        lambda: member(model, ["asked"], held_out=["fine", second], out=tmp_path / "run"),
    )  # fmt: skip


def test_files_that_hold_no_texts(model: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1" + bytes(40))
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin.jsonl").write_bytes(b'{"text": "caf\xe9"}')
    (tmp_path / "with-empty").mkdir()
    (tmp_path / "with-empty" / "a.txt").write_text("")
    pq.write_table(pa.table({"words": ["x"]}), tmp_path / "column.parquet")
    for name, problem in (
        ("empty.jsonl", "holds no documents"),
        ("binary", "binary, line 1"),
        ("broken.parquet", "broken.parquet"),
        ("folder", r"holds no \*\.txt file"),
        ("latin.jsonl", "line 1"),
        ("with-empty", r"a\.txt.*empty"),
        ("column.parquet", "no column 'text'|'text'"),
        ("nowhere", "there is no such file or folder"),
    ):
        refused(problem, tmp_path / "run", lambda name=name: member(model, tmp_path / name, out=tmp_path / "run"))  # type: ignore[misc]
    refused("holds no text", tmp_path / "run", lambda: member(model, [], out=tmp_path / "run"))
    refused("holds no text", tmp_path / "run", lambda: member(model, ["x"], held_out=[], out=tmp_path / "run"))


def test_texts_in_another_column(model: Any, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text(json.dumps({"words": "some text"}))
    run = member(model, tmp_path / "texts.jsonl", text_column="words", quick=True, out=tmp_path / "run")
    assert [text.text for text in run.texts] == ["some text"]


def test_a_text_cannot_be_on_both_sides(model: Any, tmp_path: Path) -> None:
    def both(texts: Any, problem: str, **options: Any) -> None:
        refused(problem, tmp_path / "run", lambda: member(model, texts, out=tmp_path / "run", **options))

    a, b = {"id": "a", "text": "the same", "label": True}, {"id": "b", "text": "the same", "label": False}
    both([a, b], "text 'a' .*'b': it cannot be both")
    both([b, a], "text 'a' .*'b': it cannot be both")
    both(["the same"], "text 'text-0' is held out too", held_out=["another", "the same"])
    both(["one"], "held-out text 'text-0' is labelled as a member", held_out=[{"text": "x", "label": True}])


def test_a_text_without_a_token_to_score_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    """One token without BOS; also where it is one in lowercase only, or for the reference model only."""
    model: Any = rote.load(tiny_folder, rote.ModelOptions(device="cpu", bos="never"))
    once, twice = one_token(model), "two words here"
    run = tmp_path / "run"
    refused("^text 'text-1' is one token", run, lambda: member(model, [twice, once], out=run))
    refused("^held-out text 'text-0' is one token", run, lambda: member(model, [twice], held_out=[once], out=run))
    assert len(reference.tokens_of(once.upper(), model.tokenizer)) > 1
    refused("^text 'text-0', in lowercase, is one", run, lambda: member(model, [once.upper()], out=run))
    assert member(model, [once.upper()], quick=True, out=tmp_path / "quick").rows["tokens"][0] >= 1
    with_bos: Any = rote.load(tiny.save(tmp_path / "other", seed=4), rote.ModelOptions(device="cpu"))
    refused(
        "^text 'text-0', for the reference model, is one", run,
        lambda: member(with_bos, [once], reference=model, out=run),
    )  # fmt: skip
    assert member(with_bos, [once], out=tmp_path / "one").rows["tokens"].to_list() == [1]


def one_token(model: Any) -> str:
    """A word that is one token, and several in capitals."""
    words = ("the", "and", "said", "that", "with", "have", "little", "would")
    counts = {word: [len(reference.tokens_of(w, model.tokenizer)) for w in (word, word.upper())] for word in words}
    return next(word for word, (small, large) in counts.items() if small == 1 < large)


def test_the_model_itself_is_no_reference(model: Any, tiny_folder: Path, tmp_path: Path) -> None:
    for given in (model, str(tiny_folder)):
        refused(
            "reference is the model itself", tmp_path / "run",
            lambda given=given: member(model, ["x y"], reference=given, out=tmp_path / "run"),  # type: ignore[misc]
        )  # fmt: skip


def test_a_reference_by_its_name_is_loaded(full: Membership, model: Any, other: Any, tmp_path: Path) -> None:
    some = [text.text for text in full.texts[:3]]
    runs = [member(model, some, reference=each, out=tmp_path / str(n)) for n, each in enumerate((other, other.name))]
    same(*runs)
    assert runs[0].rows["reference"].to_list() == pytest.approx(full.rows["reference"][:3].to_list(), abs=1e-4)


def test_the_bundled_texts_are_about_the_bundled_model(model: Any, tmp_path: Path) -> None:
    refused("labelled by what the bundled model saw", tmp_path / "run", lambda: member(model, out=tmp_path / "run"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"quick": "yes"}, "quick must be True or False"),
        ({"extract": 1}, "extract must be True or False"),
        ({"reading": None}, r"reading must be a rote\.Reading"),
        ({"match": "length"}, "match must be of 'length' and 'date'"),
        ({"match": ["size"]}, "match must be of 'length' and 'date'"),
        ({"shots": 0}, "shots"),
        ({"shots": 1.5}, "shots"),
        ({"seed": -1}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"seed": -1, "quick": True}, "seed"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": "many"}, "batch_size"),
        ({"reading": Reading(window=1000)}, "window=1000 .*128 is the largest"),
        ({"reading": Reading(window=10, stride=11)}, "stride=11 .*at most 10"),
        ({"reference": 5}, "reference must be"),
        ({"text_column": "words"}, r"texts\[0\] has no 'words'"),
        ({"out": 5}, "out must be a path"),
        ({"shots": 2, "held_out": ["one", "two"]}, "shots=2: there are 2 held-out texts, and one at least"),
        ({"shots": 2}, "shots=2: there are 0 non-members"),
        ({"texts": 5}, "texts must be"),
        ({"texts": {"text": "x"}}, "texts must be a path, or a list .*not a dict"),
        ({"texts": b"x"}, "texts must be a path, or a list .*not a bytes"),
        ({"texts": pd.DataFrame({"text": ["x y"]})}, "texts must be a path, or a list .*not a DataFrame"),
        ({"texts": pl.DataFrame({"text": ["x y"]})}, "texts must be a path, or a list .*not a DataFrame"),
        ({"held_out": 5}, "held_out must be"),
    ],
)
def test_what_is_no_option(options: dict[str, Any], problem: str, model: Any, tmp_path: Path) -> None:
    given = {"texts": [{"text": "some text"}], "out": tmp_path / "run", **options}
    refused(problem, tmp_path / "run", lambda: member(model, **given))


@pytest.mark.parametrize("given", ["bundled", None, 5])
def test_what_is_no_model(given: Any, tmp_path: Path) -> None:
    refused("model must be|model", tmp_path / "run", lambda: member(given, ["x"], out=tmp_path / "run"))


def test_windows_of_extraction_that_do_not_fit_the_model(alice: str, tmp_path: Path) -> None:
    """Said before anything is read, and about extraction: nobody knows its examples."""
    small: Any = rote.load(tiny.save(tmp_path / "small", max_position_embeddings=60), rote.ModelOptions(device="cpu"))
    refused("extract", tmp_path / "run", lambda: member(small, [alice[:800]], extract=True, out=tmp_path / "run"))


def test_a_model_that_gives_no_numbers_is_named_with_the_text(tiny_folder: Path, tmp_path: Path) -> None:
    broken: Any = rote.load(tiny_folder, rote.ModelOptions(device="cpu"))
    weight = broken._model.get_input_embeddings().weight
    (token,) = reference.tokens_of("z", broken.tokenizer)
    weight[token] = math.nan
    with pytest.raises(ModelError, match=r"of text 'text-1' no probability"):
        member(broken, ["fine text", "a zz z", "fine too"], quick=True, out=tmp_path / "run")


def refused(problem: str, folder: Path, run: Callable[[], object]) -> None:
    """By name, and nothing is written."""
    with pytest.raises(InputError, match=problem):
        run()
    assert not folder.exists()


def test_every_column_of_a_score_is_in_the_table() -> None:
    from rote.store.membership import SCHEMA

    assert set(BY_NAME) <= set(SCHEMA.names)
