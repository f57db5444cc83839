"""Attacks on disk: killed and run again they end in the same guesses; their order; what is refused; the command."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rote
from rote import InputError, RunError
from rote.corpus.bench import read_guesses
from rote.extraction.attack import search
from rote.store.attack import StoredAttack, StoredGuess
from tests.cli.command import rote_here, rote_process
from tests.fakes import ReciteModel
from tests.reference import attack as slow

PREFIX, SUFFIX = 4, 6
SLOW = """
import time, rote.extraction.attack.search as search, rote.store.attack as store
search.ROWS["cpu"] = 4
append = store._append
store._append = lambda *arguments: (append(*arguments), time.sleep(0.05))
"""


@pytest.fixture(autouse=True, scope="module")
def few_at_a_time() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(search.ROWS, "cpu", 4)
        yield


def recital(examples: int, vocabulary: int = 40, seed: int = 0) -> tuple[Any, np.ndarray, np.ndarray]:
    """A model that knows most of its texts, more or less firmly; prefixes and suffixes."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, vocabulary, (examples, PREFIX + SUFFIX))
    pairs = [(tuple(r[:PREFIX].tolist()), tuple(r[PREFIX:].tolist())) for r in rows]
    return ReciteModel(pairs, vocabulary, firmness=4.5, seed=seed), rows[:, :PREFIX], rows[:, PREFIX:]


def bench(folder: Path, prefix: np.ndarray, suffix: np.ndarray, train: int) -> Path:
    folder.mkdir()
    for split, rows in (("train", slice(0, train)), ("test", slice(train, None))):
        np.save(folder / f"{split}_prefix.npy", prefix[rows].astype(np.uint16))
        np.save(folder / f"{split}_suffix.npy", suffix[rows].astype(np.uint16))
    return folder


def timeless(guesses: Sequence[StoredGuess]) -> list[StoredGuess]:
    return [replace(guess, seconds=0.0) for guess in guesses]


def same(one: StoredAttack, other: StoredAttack) -> None:
    assert timeless(one.guesses()) == timeless(other.guesses())
    assert (one.folder / "guesses.csv").read_bytes() == (other.folder / "guesses.csv").read_bytes()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    model, prefix, suffix = recital(60)
    return model, bench(tmp_path_factory.mktemp("bench") / "b", prefix, suffix, 40)


@pytest.fixture(scope="module")
def ranked(world: tuple[Any, Path], tmp_path_factory: pytest.TempPathFactory) -> StoredAttack:
    model, folder = world
    out = tmp_path_factory.mktemp("attack") / "a"
    return rote.bench.attack(model, folder, budget=600, train=folder, out=out)


def test_guesses_are_in_the_order_of_a_learnt_chance(world: tuple[Any, Path], ranked: StoredAttack) -> None:
    answers = [tuple(row) for row in np.load(world[1] / "test_suffix.npy").tolist()]
    summary, guesses = ranked.summary, ranked.guesses()
    ordered = read_guesses(ranked.folder / "guesses.csv", len(answers), SUFFIX)
    chance = {(g.example, g.suffix): g.confidence for g in guesses}
    assert len(chance) == len(guesses) == len(ordered) == summary.guesses
    confidences = [chance[g.example, g.suffix] for g in ordered]
    assert confidences == sorted(confidences, reverse=True)
    assert summary.answered == summary.examples == 20
    assert summary.token_evals <= 600
    assert summary.calibration is not None
    assert summary.expected_right == pytest.approx(sum(confidences))
    assert summary.calibration.examples == 40
    assert summary.calibration.token_evals <= 1200
    by_chance = slow.recall([(g.example, g.suffix) for g in ordered], answers, 2)
    by_found = slow.recall([(g.example, g.suffix) for g in guesses], answers, 2)
    assert by_chance >= by_found
    assert by_chance > 0.3


def test_every_log_prob_on_disk_is_the_teacher_forced_one(world: tuple[Any, Path], ranked: StoredAttack) -> None:
    model, folder = world
    prefixes = [tuple(row) for row in np.load(folder / "test_prefix.npy").tolist()]
    for guess in ranked.guesses():
        expected = sum(slow.token_log_probs(model.logits_after, prefixes[guess.example], guess.suffix))
        assert guess.log_prob == pytest.approx(expected, abs=1e-5)


def test_without_answers_nothing_is_calibrated(world: tuple[Any, Path], tmp_path: Path) -> None:
    model, folder = world
    np.save(tmp_path / "some.npy", np.load(folder / "test_prefix.npy"))
    found = rote.bench.attack(model, tmp_path / "some.npy", budget=600, suffix=SUFFIX, out=tmp_path / "a")
    assert found.summary.calibration is None
    assert found.summary.expected_right is None
    assert not (found.folder / "calibration.json").exists()
    assert [g.confidence for g in found.guesses()] == pytest.approx([math.exp(g.log_prob) for g in found.guesses()])


@pytest.mark.parametrize("method", ["greedy", "sample", "beam", "ranked"])
def test_the_likeliest_guess_of_every_example_comes_first(method: Any, world: tuple[Any, Path], tmp_path: Path) -> None:
    found = rote.bench.attack(world[0], world[1], budget=800, method=method, out=tmp_path / "a")
    guesses = {(g.example, g.suffix): g.log_prob for g in found.guesses()}
    ordered = [(g.example, g.suffix) for g in read_guesses(found.folder / "guesses.csv")]
    assert sorted(example for example, _ in ordered[:20]) == list(range(20))
    for example, output in ordered[:20]:
        assert guesses[example, output] == max(p for (e, _), p in guesses.items() if e == example)
    assert [guesses[o] for o in ordered[:20]] == sorted((guesses[o] for o in ordered[:20]), reverse=True)


@pytest.mark.parametrize(
    ("name", "part"), [("guesses.jsonl", "train"), ("rounds.jsonl", "train"), ("guesses.jsonl", ".")]
)
def test_an_attack_that_stops_anywhere_goes_on(
    name: str, part: str, world: tuple[Any, Path], ranked: StoredAttack, tmp_path: Path
) -> None:
    """Stopped in the middle of a line of either file, or between them, and run again."""
    model, folder = world
    out = tmp_path / "a"
    shutil.copytree(ranked.folder, out)
    for stale in ("seal.json", "summary.json", "guesses.csv", "calibration.json"):
        (out / stale).unlink()
        if part == "train":
            (out / part / stale).unlink(missing_ok=True)
    rounds = (out / part / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    lines = (out / part / "guesses.jsonl").read_bytes().splitlines(keepends=True)
    kept = json.loads(rounds[0])["guesses"]
    assert len(rounds) > 1
    half = rounds[1][:20] if name == "rounds.jsonl" else b""
    (out / part / "rounds.jsonl").write_bytes(rounds[0] + half)
    (out / part / "guesses.jsonl").write_bytes(b"".join(lines[: kept + 2]) + lines[kept + 2][:40])
    same(rote.bench.attack(model, folder, budget=600, train=folder, out=out), ranked)


def test_a_finished_attack_is_not_made_again(world: tuple[Any, Path], ranked: StoredAttack) -> None:
    seal = (ranked.folder / "seal.json").read_bytes()
    again = rote.bench.attack(world[0], world[1], budget=600, train=world[1], out=ranked.folder)
    assert (again.folder / "seal.json").read_bytes() == seal


def test_attacks_that_differ_are_not_mixed(world: tuple[Any, Path], ranked: StoredAttack) -> None:
    model, folder = world
    for differs, more in (
        ("budget", {"budget": 700, "train": folder}),
        ("train", {"budget": 600}),
        ("method", {"budget": 600, "method": "greedy"}),
        ("source.sha256", {"budget": 600, "train": folder, "split": "train"}),
    ):
        with pytest.raises(RunError, match=f"made differently(.|\n)*{differs}"):
            rote.bench.attack(model, folder, out=ranked.folder, **more)
    with pytest.raises(RunError, match="holds an attack's guesses"):
        rote.open(ranked.folder)


def test_a_changed_file_is_noticed(world: tuple[Any, Path], tmp_path: Path) -> None:
    found = rote.bench.attack(world[0], world[1], budget=300, method="greedy", out=tmp_path / "a")
    csv = tmp_path / "a/guesses.csv"
    csv.write_text(csv.read_text().replace("[", "[1,", 1))
    with pytest.raises(RunError, match=r"guesses\.csv is not what was sealed"):
        _ = StoredAttack(found.folder).summary


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("empty", np.zeros((0, 4), dtype=np.uint16), "holds an array of shape 0×4: nothing"),
        ("flat", np.zeros(4, dtype=np.uint16), "Give a row of token ids"),
        ("other", np.full((2, 4), 40, dtype=np.uint16), "the vocabulary has no others"),
    ],
)
def test_bad_prefixes_are_refused(
    name: str, array: np.ndarray, message: str, world: tuple[Any, Path], tmp_path: Path
) -> None:
    np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(InputError, match=message):
        rote.bench.attack(world[0], tmp_path / f"{name}.npy", budget=300, out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_bad_answers_and_options_are_refused(world: tuple[Any, Path], tmp_path: Path) -> None:
    model, folder = world
    bare = tmp_path / "bare"
    bare.mkdir()
    np.save(bare / "train_prefix.npy", np.load(folder / "train_prefix.npy"))
    for message, more in (
        ("has no train_suffix.npy", {"train": bare}),
        ("has no split 'val'", {"split": "val"}),
        ("answers of train have 6 tokens", {"train": folder, "suffix": 5}),
        ("at least 10 right and 10 wrong", {"train": folder, "train_examples": 4}),
        ("width changes nothing here", {"width": 3}),
        ("train changes nothing here", {"train": folder, "method": "beam"}),
        ("temperature must be above 0", {"method": "sample", "temperature": 0.0}),
        ("method must be", {"method": "best"}),
    ):
        with pytest.raises(InputError, match=message):
            rote.bench.attack(model, folder, budget=600, out=tmp_path / "a", **more)


def test_a_killed_attack_goes_on_to_the_same_guesses(tiny_folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "p.npy", rng.integers(2, 4096, (24, 8)).astype(np.uint16))
    options = ["--model", str(tiny_folder), "--device", "cpu", "--suffix", "8", "--budget", "2500"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert rote_here("bench", "attack", tmp_path / "p.npy", *options, "--out", whole).code == 0
    with rote_process("bench", "attack", tmp_path / "p.npy", *options, "--out", killed, before=SLOW) as process:
        stored = killed / "rounds.jsonl"
        while process.poll() is None and (not stored.is_file() or stored.read_bytes().count(b"\n") < 3):
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (killed / "seal.json").exists()
    done = rote_here("bench", "attack", tmp_path / "p.npy", *options, "--out", killed)
    assert done.code == 0
    assert "model's own probability" in " ".join(done.out.split())
    assert len(StoredAttack(whole).journal()) == 6
    same(StoredAttack(whole), StoredAttack(killed))
