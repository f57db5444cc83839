"""`rote bench inspect`: what every criterion says of the public examples, and of random ones by brute force."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

import rote
from rote import InputError
from rote.corpus.bench import write_ids
from rote.store.files import plain
from tests.cli.command import rote_here
from tests.reference import bench as slow

PUBLIC = Path(__file__).parents[2] / "data/extraction-benchmark"


def test_the_public_examples() -> None:
    found = rote.bench.inspect(PUBLIC)
    train, val, test = found.splits
    assert [(split.name, split.examples, split.distinct) for split in found.splits] == [
        ("train", 40, 39), ("val", 20, 20), ("test", 20, 20),
    ]  # fmt: skip
    assert (train.prefix_tokens, train.suffix_tokens, train.preprefix_tokens) == (50, 50, None)
    assert (val.preprefix_tokens, test.suffix_tokens, test.least_entropy) == (100, None, None)
    failing = {(split.name, one.criterion): one.rows for split in found.splits for one in split.criteria if one.failing}
    assert failing == {("train", "repeated example"): [39]}
    assert [one.criterion for one in test.criteria] == ["repeated example"]
    assert "suffix in longer prefix" in [one.criterion for one in val.criteria]
    assert [(one.first, one.second) for one in found.overlaps] == [("train", "val"), ("train", "test"), ("val", "test")]


def test_what_is_printed_and_what_is_json() -> None:
    said = rote_here("bench", "inspect", PUBLIC)
    assert said.code == 0
    assert said.out.startswith(f"{PUBLIC} holds 80 examples: train 40, val 20, test 20.")
    assert "the suffix has less than 1 bit per token" in said.out
    assert "rote bench build" in said.out
    shown = rote_here("bench", "inspect", PUBLIC, "--json", "--vocabulary", "50257")
    assert json.loads(shown.out) == plain(rote.bench.inspect(PUBLIC))


@pytest.mark.parametrize("seed", range(20))
def test_random_examples_by_brute_force(seed: int, tmp_path: Path) -> None:
    draw = Random(seed)
    most = draw.choice([1, 2, 30])
    sizes = {"prefix": draw.randint(2, 4), "suffix": draw.randint(1, 4), "preprefix": 3}
    rows = {
        name: {part: [[draw.randint(0, most) for _ in range(size)] for _ in range(12)] for part, size in sizes.items()}
        for name in ("train", "val")
    }
    for name, parts in rows.items():
        for part, ids in parts.items():
            write_ids(tmp_path / f"{name}_{part}.npy", np.array(ids))
    found = rote.bench.inspect(tmp_path)
    wholes = {}
    for split in found.splits:
        own = rows[split.name]
        triples = list(zip(own["prefix"], own["suffix"], own["preprefix"], strict=True))
        whole = wholes[split.name] = [[*prefix, *suffix] for prefix, suffix, _ in triples]
        expected = {
            "repeated example": [whole[row] in whole[:row] for row in range(12)],
            "low entropy": [slow.entropy(suffix) < 1 - 1e-9 for _, suffix, _ in triples],
            "repetitive": [slow.repetitive(suffix) for _, suffix, _ in triples],
            "suffix in prefix": [slow.substring(prefix, suffix) for prefix, suffix, _ in triples],
            "several continuations": [
                any(prefix == other and suffix != own for other, own, _ in triples) for prefix, suffix, _ in triples
            ],
            "suffix in longer prefix": [slow.substring([*far, *prefix], suffix) for prefix, suffix, far in triples],
        }
        assert {one.criterion: (one.failing, one.rows) for one in split.criteria} == {
            name: (sum(fails), [row for row in range(12) if fails[row]][:5]) for name, fails in expected.items()
        }
        assert split.least_entropy == pytest.approx(min(slow.entropy(suffix) for _, suffix, _ in triples), abs=1e-12)
        assert split.largest_id == max(token for part in own.values() for ids in part for token in ids)
    (overlap,) = found.overlaps
    length = sizes["prefix"]
    before, after = rows["train"]["prefix"], rows["val"]["prefix"]
    same = [row for row in range(12) if after[row] in before]
    assert overlap.same_prefix == len(same)
    assert overlap.other_suffix == sum(wholes["val"][row] not in wholes["train"] for row in same)
    runs = [ids[at : at + length] for ids in wholes["train"] for at in range(len(ids) - length + 1)]
    shared = [
        row for row, ids in enumerate(wholes["val"])
        if any(ids[at : at + length] in runs for at in range(len(ids) - length + 1))
    ]  # fmt: skip
    assert (overlap.shared_run, overlap.rows, overlap.run_tokens) == (len(shared), shared[:5], length)


def test_what_holds_no_benchmark_is_refused(tmp_path: Path) -> None:
    said = rote_here("bench", "inspect", tmp_path)
    assert said.code == 1
    assert "has no files such as train_prefix.npy, so it holds no benchmark" in said.err
    said = rote_here("bench", "inspect", PUBLIC, "--vocabulary", "100")
    assert "train_prefix.npy, row 0: token " in said.err
    for wrong in (0, 1.5, "many"):
        with pytest.raises(InputError, match="vocabulary must be a whole number of at least 1"):
            rote.bench.inspect(PUBLIC, vocabulary=wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="folder must be a path, not 3"):
        rote.bench.inspect(3)  # type: ignore[arg-type]
