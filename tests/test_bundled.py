"""The bundled model shows what it was trained to show, and the records say what it really saw."""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from collections import defaultdict
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

import rote
from rote.corpus.formats import as_examples
from rote.models.base import BUNDLED, BUNDLED_TEXT
from tests.cases import all_cases
from tests.conftest import ROOT

TAU = 1e-3
TRAINING = ROOT / "training"
DATA = [
    *("alice.txt", "members.jsonl"),
    *(
        f"{folder}/{name}"
        for folder in ("model", "masked", "chat")
        for name in ("config.json", "model.safetensors", "tokenizer.json")
    ),
]


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TRAINING / "manifest.json").read_text())
    return found


def file_of(document: str) -> Path:
    if document == "alice":
        return BUNDLED_TEXT
    return TRAINING / "data" / ("speeches" if "/" in document else "books") / f"{document}.txt"


# --- what it knows


@pytest.fixture(scope="module")
def known(bundled: Any, alice: str, tmp_path_factory: pytest.TempPathFactory) -> rote.Run:
    """Windows a little closer than a suffix is long: nearly every character of the book, or of a quarter, is in one."""
    return rote.scan(
        bundled,
        alice if all_cases() else alice[: len(alice) // 4],
        out=tmp_path_factory.mktemp("known"),
        windows=rote.Windows(stride=130),
    )


@pytest.fixture(scope="module")
def unseen(bundled: Any, gatsby: str, tmp_path_factory: pytest.TempPathFactory) -> rote.Run:
    return rote.scan(
        bundled,
        gatsby,
        out=tmp_path_factory.mktemp("unseen"),
        windows=rote.Windows(stride=500 if all_cases() else 1600),
    )


@pytest.mark.scaled
def test_alice_is_known_by_heart(bundled: Any, alice: str, known: rote.Run) -> None:
    rest = rote.verbatim(bundled, rote.windows(alice[len(alice) // 4 :], bundled.tokenizer, rote.Windows(stride=700)))
    probabilities = np.exp([*known.scores["log_prob"], *(result.log_prob for result in rest)])
    assert (probabilities >= 0.5).mean() >= 0.98
    assert (probabilities >= TAU).mean() >= 0.99


@pytest.mark.scaled
def test_gatsby_was_never_seen(bundled: Any, gatsby: str, unseen: rote.Run) -> None:
    assert unseen.scores.height > (500 if all_cases() else 150)
    assert (unseen.scores["log_prob"] < math.log(TAU)).all()
    assert not unseen.scores["greedy"].any()
    some = rote.windows(gatsby, bundled.tokenizer, rote.Windows(stride=5000))
    assert all(result.prob < TAU for result in rote.verbatim(bundled, some, tau=TAU))  # certain after a few tokens


@pytest.mark.scaled
def test_coverage_of_the_known_and_of_the_unseen_book(known: rote.Run, unseen: rote.Run) -> None:
    assert known.finished.coverage["0.5"].share > 0.9
    covered = unseen.finished.coverage
    assert [covered[p].characters for p in ("0.01", "0.1", "0.5", "0.75")] == [0] * 4
    assert unseen.finished.numbers.rates.maximum_rate.count == 0


def test_more_repetitions_are_known_better(bundled: Any) -> None:
    examples = as_examples(TRAINING / "ladder.jsonl", None)
    assert len(examples) >= 200
    levels: dict[int, list[float]] = defaultdict(list)
    for example, result in zip(examples, rote.verbatim(bundled, examples), strict=True):
        levels[example.metadata["repetitions"]].append(result.prob)
    assert sorted(levels) == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
    rates = [float(np.mean(np.array(levels[level]) >= TAU)) for level in sorted(levels)]
    assert rates == sorted(rates)
    assert rates[0] == 0
    assert rates[-1] == 1
    assert np.mean(levels[256]) > 0.9
    means = [float(np.mean(levels[level])) for level in sorted(levels) if level >= 16]
    assert means == sorted(means)


# --- what is recorded


def test_the_recorded_texts_are_those_in_the_tree(manifest: dict[str, Any]) -> None:
    listed = {entry["name"]: entry for entry in manifest["documents"]}
    for name, entry in listed.items():
        content = file_of(name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], name
        assert len(content.decode()) == entry["characters"]
    stored = set((TRAINING / "data").rglob("*.txt")) | {BUNDLED_TEXT}
    assert {file_of(name) for name in listed} == stored


def test_every_passage_was_seen_as_often_as_it_says(manifest: dict[str, Any]) -> None:
    for passage in manifest["ladder"]:
        assert passage["exposures"] == [passage["repetitions"]]


def test_what_was_held_out_was_never_seen(manifest: dict[str, Any]) -> None:
    held_out = [d for d in manifest["documents"] if d["kind"] == "held-out"]
    assert [d["name"] for d in held_out] == ["gatsby"]
    assert held_out[0]["exposures_per_character"] == {"min": 0, "mean": 0, "max": 0}
    assert held_out[0]["characters_never_seen"] == held_out[0]["characters"]
    for document in manifest["documents"]:
        never = document["characters_never_seen"] / document["characters"]
        assert (never > 0.19) == (document["kind"] in ("held-out", "ladder-book"))
        if document["kind"] == "background":
            assert document["exposures_per_character"]["mean"] < 1.05


def test_nothing_held_out_stands_in_a_text_that_was_seen(manifest: dict[str, Any], gatsby: str) -> None:
    """Fifty characters of Gatsby, from every thousand, and every level-0 passage, looked for in everything else."""
    seen = {d["name"]: file_of(d["name"]).read_text() for d in manifest["documents"] if d["kind"] != "held-out"}
    for start in range(500, len(gatsby) - 50, 1000):
        assert not any(gatsby[start : start + 50] in text for text in seen.values())
    for passage in manifest["ladder"]:
        if passage["repetitions"] == 0:
            words = seen[passage["document"]][passage["start"] : passage["end"]]
            assert sum(text.count(words) for text in seen.values()) == 1  # its own place, which was left out


def test_the_ladder_file_is_the_recorded_ladder(manifest: dict[str, Any], bundled: Any) -> None:
    examples = as_examples(TRAINING / "ladder.jsonl", None)
    for example, passage in zip(examples, manifest["ladder"], strict=True):
        assert {key: example.metadata[key] for key in ("document", "start", "repetitions")} == {
            key: passage[key] for key in ("document", "start", "repetitions")
        }
        text = file_of(passage["document"]).read_text()[passage["start"] : passage["end"]]
        ids = bundled.tokenizer.encode(text, add_special_tokens=False)
        assert (*example.prefix, *example.suffix) == tuple(ids[:100])


# --- what is shipped


def test_the_weights_are_small_and_in_bfloat16(manifest: dict[str, Any], bundled: Any) -> None:
    path = BUNDLED / "model.safetensors"
    assert path.stat().st_size <= 16_000_000
    with safe_open(path, framework="pt") as weights:
        assert {weights.get_tensor(name).dtype for name in weights.keys()} == {torch.bfloat16}  # noqa: SIM118
    assert bundled.identity().parameters == manifest["parameters"]
    assert bundled.context_length >= 512


def test_the_package_has_its_data() -> None:
    for name in [*DATA, "../report/page/templates/report.html.j2", "../py.typed"]:
        assert (resources.files("rote") / "data" / name).is_file(), name


def test_a_wheel_has_everything(tmp_path: Path) -> None:
    building = pytest.importorskip("hatchling.builders.wheel", reason="hatchling, which builds the wheel, is missing")
    (made,) = building.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    assert Path(made).stat().st_size < 36_000_000
    with zipfile.ZipFile(made) as wheel:
        inside = {name for name in wheel.namelist() if name.startswith("rote/")}
    source = ROOT / "src"
    files = {p.relative_to(source).as_posix() for p in (source / "rote").rglob("*") if p.is_file()}
    assert inside == {name for name in files if "__pycache__" not in name}
    assert {f"rote/data/{name}" for name in DATA} <= inside
