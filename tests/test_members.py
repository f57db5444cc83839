"""The bundled set of members and non-members is what its script makes, and says what the model really saw."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tokenizers import Tokenizer
from training import members, train

import rote
from rote.analysis.member.dataset import dataset_test
from rote.progress import quiet
from rote.store.member import DatasetTest
from tests.conftest import ROOT

BUNDLED_SET = ROOT / "src/rote/data/members.jsonl"


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in BUNDLED_SET.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(members.TOKENIZER))


@pytest.fixture(scope="module")
def fed(tokenizer: Tokenizer) -> dict[str, train.Document]:
    """The documents, counted as they were fed by the plan of the training; without Alice, which takes no text away."""
    documents = train.read_documents()
    passages = [train.Passage(p["document"], p["start"], p["end"], p["repetitions"]) for p in members.ladder()]
    kept = {name: d for name, d in documents.items() if d.kind != "background"}
    train.plan(kept, passages, 0, tokenizer, random.Random(0))
    return documents


def place(entry: dict[str, Any]) -> tuple[str, int, int]:
    name, _, start = entry["id"].rpartition("-")
    return name, int(start), int(start) + len(entry["text"])


def apart(entries: list[dict[str, Any]]) -> bool:
    return all(a[0] != b[0] or a[2] <= b[1] for a, b in pairwise(sorted(map(place, entries))))


def test_the_script_makes_the_bundled_file(tmp_path: Path) -> None:
    members.write(tmp_path / "members.jsonl", members.members())
    assert (tmp_path / "members.jsonl").read_bytes() == BUNDLED_SET.read_bytes()
    assert BUNDLED_SET.stat().st_size < 250_000


def test_a_part_of_it_is_asked_about(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    members.write(tmp_path / "passages.jsonl", members.few())
    assert (tmp_path / "passages.jsonl").read_bytes() == (ROOT / "src/rote/data/passages.jsonl").read_bytes()
    part = members.few()
    assert all(entry in lines for entry in part)
    counts = Counter(entry["repetitions"] for entry in part)
    assert counts == {0: 54} | dict.fromkeys((1, 2, 4, 8, 16, 32, 64, 128, 256), 6)
    assert len({entry["id"] for entry in part}) == len(part)


def test_there_are_as_many_non_members_as_members_in_every_book(lines: list[dict[str, Any]]) -> None:
    counts = Counter((place(entry)[0], entry["label"]) for entry in lines)
    assert len(lines) == 432
    assert len({entry["id"] for entry in lines}) == 432
    for name in train.LADDER_BOOKS:
        assert counts[name, True] == counts[name, False] >= 70
    levels = Counter(entry["repetitions"] for entry in lines)
    assert levels == {0: 216, **dict.fromkeys(train.REPETITIONS[1:], train.PASSAGES_PER_LEVEL)}


def test_every_passage_was_fed_as_often_as_it_says(lines: list[dict[str, Any]], fed: dict[str, train.Document]) -> None:
    recorded = json.loads((train.HERE / "manifest.json").read_text())
    never = {d["name"]: d["characters_never_seen"] for d in recorded["documents"]}
    for name in (*train.LADDER_BOOKS, train.HELD_OUT_BOOK):
        assert int((fed[name].exposures == 0).sum()) == never[name], "the plan is that of the training"
    for entry in lines:
        name, start, end = place(entry)
        assert fed[name].text[start:end] == entry["text"]
        assert np.unique(fed[name].exposures[start:end]).tolist() == [entry["repetitions"]]
        assert entry["label"] == (entry["repetitions"] > 0)
    assert {(p["document"], p["start"], p["repetitions"]) for p in recorded["ladder"]} <= {
        (*place(entry)[:2], entry["repetitions"]) for entry in lines
    }


def test_passages_are_cut_alike_and_apart(lines: list[dict[str, Any]], tokenizer: Tokenizer) -> None:
    assert apart(lines)
    documents = train.read_documents()
    lengths = []
    for entry in lines:
        name, start, end = place(entry)
        text = documents[name].text
        first, last = train.passage_from(text, text.rfind("\n", 0, start), tokenizer)
        assert (start, end) == (first, first + len(text[first:last].rstrip()))
        fed = tokenizer.encode(text[start : start + 1500], add_special_tokens=False).ids[: train.PASSAGE_TOKENS]
        own = tokenizer.encode(entry["text"], add_special_tokens=False).ids
        assert own == fed[: len(own)], "as it was fed, or would have been"
        lengths.append(len(own))
        unseen = "" if entry["label"] else "-unseen"
        assert entry["group"] == f"{name}-{start // members.BLOCK:02d}{unseen}", "wholly of members, or of others"
        assert entry["date"] == str(members.YEARS[name])
    assert Counter(lengths).most_common(1)[0][0] == max(lengths) == train.PASSAGE_TOKENS
    assert min(lengths) >= train.PASSAGE_TOKENS - 6, "blank lines at an end are left off"
    by_label = {label: [len(e["text"]) for e in lines if e["label"] == label] for label in (True, False)}
    assert abs(np.mean(by_label[True]) - np.mean(by_label[False])) < 6


def test_other_passages_that_were_never_seen(lines: list[dict[str, Any]], fed: dict[str, train.Document]) -> None:
    others = members.held_out()
    assert len(others) > 350
    assert apart([*lines, *others])
    for entry in others:
        name, start, end = place(entry)
        assert not fed[name].exposures[start:end].any()
        assert (entry["label"], entry["repetitions"]) == (False, 0)


def test_the_confounded_set_is_two_styles_that_were_never_seen(fed: dict[str, train.Document]) -> None:
    found = members.confounded()
    assert Counter((place(entry)[0], entry["label"]) for entry in found) == {
        ("gatsby", False): 80,
        ("pride-and-prejudice", True): 79,
    }
    for entry in found:
        name, start, end = place(entry)
        assert not fed[name].exposures[start:end].any()
        assert set(entry) == {"id", "text", "group", "label"}


# --- what the bundled model's scores say of them


def test_the_bundled_model_tells_what_it_saw(bundled: Any, tmp_path: Path) -> None:
    """More repetitions are told better, a test of the texts seen 16 times or more rejects, one of unseen texts not."""
    run = rote.member(bundled, quick=True, out=tmp_path / "run")
    evaluation, levels = run.summary.evaluation, {}
    assert evaluation is not None
    assert evaluation.by_repetitions is not None
    for level in evaluation.by_repetitions:
        levels[level.repetitions] = level.auroc["loss"].value
    assert list(levels) == [1 << power for power in range(9)]
    assert 0.65 < levels[1] < levels[2] < levels[4] < levels[8]
    assert min(levels[seen] for seen in levels if seen >= 8) > 0.99
    blind = next(row for row in evaluation.rows if row.name == "blind")
    assert blind.auroc.interval[0] < 0.5
    names, unseen = run.manifest.scores, run.rows.filter(~pl.col("label"))
    tested = dataset_test(run.rows.filter(pl.col("repetitions") >= 16), unseen, names, seed=0, progress=quiet)
    assert isinstance(tested, DatasetTest)
    assert tested.p < 0.01
    assert tested.blind > 0.05
    assert 4 <= tested.false_positives.single <= 16
    assert tested.false_positives.combined <= 16
    assert tested.false_positives.trials == 200
    halves = pl.col("group").rank("dense") % 2 == 0
    untouched = dataset_test(unseen.filter(halves), unseen.filter(~halves), names, seed=0, progress=quiet)
    assert isinstance(untouched, DatasetTest)
    assert untouched.p > 0.05


def test_two_styles_that_were_never_seen_are_not_taken_for_memory(bundled: Any, tmp_path: Path) -> None:
    """The scores tell the styles apart; so does the baseline without a model, and the words discount the scores."""
    found = rote.member(bundled, members.confounded(), quick=True, out=tmp_path / "run")
    evaluation = found.summary.evaluation
    assert evaluation is not None
    areas = {row.name: row.auroc.value for row in evaluation.rows}
    assert areas["loss"] > 0.9
    assert areas["blind"] > 0.95
    assert evaluation.blind.explained is not None
    assert evaluation.blind.explained > 0.95
    page = re.sub(r"<[^>]*>", "", (found.folder / "report.html").read_text(encoding="utf-8"))
    assert "No score here is evidence" in " ".join(page.split())
