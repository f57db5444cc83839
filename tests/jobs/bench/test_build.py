"""Examples that are chosen from a corpus, each criterion looked at again by brute force.

The corpus is part of what the sibling of the bundled model was fed (training/sibling), and rows that every filter has
something to reject in.
"""

from __future__ import annotations

import importlib
import json
import random
import shutil
from collections import Counter
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

import rote
from rote.corpus import criteria
from rote.corpus.apart import Apart, shared_out
from rote.corpus.bench import read_split
from rote.corpus.formats import as_examples
from rote.corpus.index import Place
from rote.errors import InputError, RunError
from rote.store.bench import Criteria, StoredBench, open_bench
from tests.cases import cases
from tests.cli.command import rote_here
from tests.corpus.corpora import write_parquet
from tests.corpus.test_index import indexed
from tests.jobs.support import files
from tests.reference import bench as reference

pytest.importorskip("infini_gram")
module = importlib.import_module("rote.jobs.bench.build")

SIBLING = Path(__file__).parents[3] / "training/sibling"
PIECE = 165
ASKED: dict[str, Any] = {"longer": [75, 100], "train": 20, "val": 10, "test": 10, "seed": 3}


@pytest.fixture(scope="module")
def sibling() -> Any:
    return rote.load(str(SIBLING))


@pytest.fixture(scope="module")
def documents(sibling: Any, alice: str) -> list[list[int]]:
    ids = sibling.tokenizer(alice, add_special_tokens=False)["input_ids"]
    listed = [json.loads(line) for line in (SIBLING / "passages.jsonl").read_text().splitlines()]
    passages = [p for p in listed if p["document"] == "alice" and p["repetitions"] > 15][:14]
    readings = [ids[p["token"] : p["token"] + PIECE] for p in passages for _ in range(p["repetitions"])]
    random.Random(0).shuffle(readings)
    half = len(readings) // 2
    pairs = zip(readings[half::2], readings[half + 1 :: 2], strict=False)
    rows = [*readings[:half], *([*one, *other] for one, other in pairs)]
    first, second = readings[0], next(row for row in readings if row != readings[0])
    rows += [[*first[:90], *second[:60]]]  # goes on differently, once
    rows += [[*range(1000, 1110), *range(last, last + 40)] for last in (1200, 1300) for _ in range(5)]  # and often
    rows += [second[:120]]  # ends before it could
    rows += [[7, 8] * 60] * 5 + [[9] * 160] * 5  # repetitive, and with no entropy
    rows += [[*range(100, 150)] * 4] * 6  # the suffix stands in the prefix
    rows += [[*range(300, 430)]] * 5  # too little stands before it
    rows += [[*range(2000, 2200)]] * 5  # never emitted
    random.Random(1).shuffle(rows)
    return rows


@pytest.fixture(scope="module")
def corpus(documents: list[list[int]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"id": f"row-{number}", "ids": ids} for number, ids in enumerate(documents)]
    return write_parquet(tmp_path_factory.mktemp("corpus") / "rows.parquet", rows, group=1000)


@pytest.fixture(scope="module")
def index(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    stored = rote.index.build(corpus, out=tmp_path_factory.mktemp("index"), tokenizer=str(SIBLING), ids="ids")
    return stored.folder


@pytest.fixture(scope="module")
def made(sibling: Any, index: Path, tmp_path_factory: pytest.TempPathFactory) -> StoredBench:
    return rote.bench.build(sibling, index=index, out=tmp_path_factory.mktemp("bench") / "made", **ASKED)


def test_every_example_satisfies_every_criterion(made: StoredBench, documents: list[list[int]]) -> None:
    examples = as_examples(made.folder / "examples.jsonl", None)
    assert len(examples) == sum((made.result.splits or {}).values()) > 5
    wholes, prefixes = (reference.occurrences(documents, length) for length in (100, 50))
    network = AutoModelForCausalLM.from_pretrained(SIBLING, dtype=torch.float32)
    for example in examples:
        whole, about = (*example.prefix, *example.suffix), example.metadata
        split = read_split(made.folder, about["split"])
        assert split.suffix is not None
        assert split.preprefix is not None
        row = about["row"]
        assert (tuple(split.prefix[row]), tuple(split.suffix[row])) == (example.prefix, example.suffix)
        assert about["repetitions"] == len(wholes[whole]) >= 5
        assert reference.unique(documents, prefixes[example.prefix], whole)
        assert reference.entropy(example.suffix) >= 1
        assert not reference.repetitive(example.suffix)
        document, at = int(about["document"].removeprefix("row-")), about["token"]
        before = split.preprefix[row].tolist()
        assert documents[document][at - 50 : at + 100] == [*before, *whole]
        prompt = [0, *[*before, *example.prefix][-about["emitted_after"] :]]
        assert len(prompt) > 51
        assert not reference.substring(prompt, example.suffix)
        with torch.inference_mode():
            logits = network(torch.tensor([[*prompt, *example.suffix]])).logits[0]
        assert tuple(logits[len(prompt) - 1 : -1].argmax(-1).tolist()) == example.suffix
    of = [(*example.prefix, *example.suffix) for example in examples]
    runs = [{ids[at : at + 20] for at in range(81)} for ids in of]
    places = [{(document, at + i) for document, at in wholes[ids] for i in range(100)} for ids in of]
    assert all(one.isdisjoint(other) for one, other in combinations(runs, 2))
    assert all(one.isdisjoint(other) for one, other in combinations(places, 2))


def test_every_candidate_has_a_reason(made: StoredBench, documents: list[list[int]]) -> None:
    """All were looked at; what is rejected is rejected by the first filter that the slow criteria name."""
    wholes, prefixes = (reference.occurrences(documents, length) for length in (100, 50))
    repeated = {whole: places for whole, places in wholes.items() if len(places) >= 5}
    rejected = pl.read_parquet(made.folder / "rejected.parquet")
    reasons = {
        tuple(documents[number][token : token + 100]): (name, count)
        for number, token, count, name in rejected.select("number", "token", "repetitions", "filter").iter_rows()
    }
    examples = {(*e.prefix, *e.suffix) for e in as_examples(made.folder / "examples.jsonl", None)}
    passed = examples | {whole for whole, (name, _) in reasons.items() if name == "emitted"}

    def common(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        runs = [{ids[at : at + 20] for at in range(81)} for ids in (one, other)]
        return bool(runs[0] & runs[1]) or any(
            d == e and abs(at - start) < 100 for d, at in wholes[one] for e, start in wholes[other]
        )

    assert repeated.keys() == reasons.keys() | examples
    assert len(reasons) + len(examples) == made.result.candidates == made.result.looked_at
    for whole, places in repeated.items():
        prefix, suffix = whole[:50], whole[50:]
        expected = (
            "entropy" if reference.entropy(suffix) < 1
            else "repetitive" if reference.repetitive(suffix)
            else "in the prefix" if reference.substring(prefix, suffix)
            else "unique" if not reference.unique(documents, prefixes[prefix], whole)
            else "preceded" if all(at < 50 for _, at in places)
            else None
        )  # fmt: skip
        if whole not in examples:
            name, count = reasons[whole]
            assert count == len(places)
            assert name == expected or (name == "emitted" and expected is None) or name == "apart"
            if name == "apart":
                assert expected in ("unique", "preceded", None)
                assert any(common(whole, other) for other in passed)
    counts = Counter(name for name, _ in reasons.values())
    filters = made.result.filters or []
    assert {each.name for each in filters} == counts.keys() | {"repeated"}, "every filter has something to do here"
    assert filters[0].given == made.result.places == sum(map(len, wholes.values()))
    assert filters[0].passed == filters[1].given
    for each, after in zip(filters[1:], [*filters[2:], None], strict=True):
        assert each.given - each.passed == counts[each.name]
        assert after is None or after.given == each.passed


def test_splits_have_the_public_format(made: StoredBench) -> None:
    splits = made.result.splits or {}
    assert list(splits) == ["train", "val", "test"]
    assert splits["val"] == splits["test"] == sum(splits.values()) // 4
    for name, size in splits.items():
        for part, width in (("prefix", 50), ("suffix", 50), ("preprefix", 50)):
            array = np.load(made.folder / f"{name}_{part}.npy")
            assert (array.shape, array.dtype) == ((size, width), np.uint16)
    checks = [each for split in rote.bench.inspect(made.folder).splits for each in split.criteria]
    assert checks
    assert not any(each.rows for each in checks)


def test_the_command_prints_what_each_filter_let_through(made: StoredBench, index: Path) -> None:
    """Of a benchmark that is finished, so it is only opened."""
    typed = ["--longer", "75,100", "--train", "20", "--val", "10", "--test", "10", "--seed", "3"]
    call: list[str | Path] = ["bench", "build", "--index", index, "--model", SIBLING, "--out", made.folder, *typed]
    done = rote_here(*call)
    assert done.code == 0, done.err
    splits = made.result.splits or {}
    assert f"{sum(splits.values())} examples: train {splits['train']}, val" in done.out
    words = " ".join(done.out.split())
    for each in made.result.filters or ():
        assert f"{each.name} {each.given:,} {each.passed:,} {each.given - each.passed:,} " in words
    assert json.loads(rote_here(*call, "--json").out)["splits"] == splits


def test_a_build_that_is_stopped_goes_on(
    sibling: Any, index: Path, made: StoredBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the model was asked is not asked again, and what comes out is the same."""
    monkeypatch.setattr(module, "CHUNK", 4)
    scorer, stop = importlib.import_module("rote.extraction.verbatim"), [3]
    own = scorer.verbatim
    asked: list[list[tuple[int, ...]]] = []

    def counting(model: Any, examples: Any, *given: Any, **more: Any) -> Any:
        if len(asked) == stop[0]:
            raise KeyboardInterrupt
        asked.append([example.prefix for example in examples])
        return own(model, examples, *given, **more)

    monkeypatch.setattr(scorer, "verbatim", counting)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt) as stop_note:
        rote.bench.build(sibling, index=index, out=stopped, **ASKED)
    assert "Run the same command again" in stop_note.value.__notes__[-1]
    with pytest.raises(RunError, match="not finished"):
        open_bench(stopped)
    chunks = len(list((stopped / "checked").iterdir()))
    assert chunks >= 1
    stop[0] = -1
    before = len(asked)
    rote.bench.build(sibling, index=index, out=stopped, **ASKED)
    after = asked[before:]
    asked.clear()
    rote.bench.build(sibling, index=index, out=whole, **ASKED)
    assert asked[-len(after) :] == after
    assert len(asked) > len(after), "the first chunks were not asked again"
    dated = {"bench.json", "seal.json"}
    contents = [{name: content for name, content in files(f).items() if name not in dated} for f in (whole, stopped)]
    assert contents[0] == contents[1]
    assert not (whole / "checked").exists()
    assert {name for name, size in (made.result.splits or {}).items() if size} == set(made.result.splits or {})
    asked.clear()
    assert rote.bench.build(sibling, index=index, out=whole, **ASKED).result == open_bench(whole).result
    assert not asked
    with pytest.raises(RunError, match=r"seed is 3, this command's 4"):
        rote.bench.build(sibling, index=index, out=whole, **{**ASKED, "seed": 4})
    (whole / "val_suffix.npy").write_bytes(b"")
    with pytest.raises(RunError, match=r"val_suffix.npy is not what was sealed"):
        open_bench(whole)


def test_a_corpus_is_indexed_first_and_enough_is_enough(sibling: Any, corpus: Path, tmp_path: Path) -> None:
    small = {**ASKED, "train": 0, "val": 2, "test": 1}
    made = rote.bench.build(sibling, corpus, ids="ids", out=tmp_path / "bench", **small)
    assert (tmp_path / "bench/index/index.json").is_file()
    assert made.result.splits == {"train": 0, "val": 2, "test": 1}
    assert not (tmp_path / "bench/train_prefix.npy").exists()
    assert len(as_examples(tmp_path / "bench/examples.jsonl", None)) == 3


def test_what_cannot_be_built_is_refused(sibling: Any, index: Path, tmp_path: Path) -> None:
    def refused(by: Any = sibling, **given: Any) -> str:
        with pytest.raises((InputError, RunError)) as error:
            rote.bench.build(by, **{"out": tmp_path / "bench", **given})
        return str(error.value)

    assert "give a corpus" in refused()
    assert "give corpus as well" in refused(index=index, ids="ids")
    shutil.copytree(index, tmp_path / "other")
    (tmp_path / "other/index.json").write_text(
        (index / "index.json").read_text().replace(sibling.identity().tokenizer, "0" * 64)
    )
    assert "another tokenizer" in refused(index=tmp_path / "other")
    assert "apart must be a whole number from 1 to 100" in refused(index=index, apart=101)
    assert "longer must be lengths above 50" in refused(index=index, longer=[50, 100])
    assert "context of 512" in refused(index=index, longer=[500])
    assert "nothing is asked for" in refused(index=index, train=0, val=0, test=0)
    assert "repetitions must be" in refused(index=index, repetitions=1)
    assert "no example satisfies every criterion" in refused(index=index, entropy=6)
    assert (tmp_path / "bench/rejected.parquet").is_file()
    rote.index.build(write_parquet(tmp_path / "t.parquet", [{"id": "a", "text": "b"}]), out=tmp_path / "b", bytes=True)
    assert "one of bytes" in refused(index=tmp_path / "b")


def test_a_prefix_that_tells_the_suffix_is_not_tried_and_none_is_tried_twice(tmp_path: Path) -> None:
    corpus = [[3, 4, 1, 2, 3, 4], [9, 8, 1, 2, 3, 4], [7, 8, 1, 2, 3, 4], [7, 8, 1, 2, 3, 4], [6, 5, 1, 2, 3, 4]]
    searched, places = indexed(tmp_path / "index", corpus, 2), [Place(number, 2) for number in range(5)]
    asked = Criteria(prefix=2, suffix=2, repetitions=2, entropy=1, longer=[3, 4], tries=4, apart=2)
    search = module._Search(None, searched, SimpleNamespace(criteria=asked), tmp_path, "auto", None, None)
    prompts = list(search._prompts(module._Candidate(places[0], 5, (1, 2, 3, 4), tuple(places))))
    assert [prompt for prompt, _ in prompts] == [(9, 8, 1, 2), (8, 1, 2), (7, 8, 1, 2)]
    assert [(each.document, each.token, each.tokens) for _, each in prompts] == [(1, 2, 4), (1, 2, 3), (2, 2, 4)]


@cases(60)
@given(st.lists(st.lists(st.integers(0, 2), max_size=12), min_size=1, max_size=5), st.integers(0, 1 << 20))
def test_unique_is_what_looking_everywhere_says(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], seed: int
) -> None:
    index = indexed(tmp_path_factory.getbasetemp() / "unique", documents, 2, 1 << 30 if seed % 2 else 8)
    for prefix, suffix in ((1, 1), (2, 3)):
        prefixes = reference.occurrences(documents, prefix)
        for whole in reference.occurrences(documents, prefix + suffix):
            expected = reference.unique(documents, prefixes[whole[:prefix]], whole)
            assert criteria.unique(index, whole[:prefix], whole[prefix:]) == expected


@given(st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=6, max_size=6), st.integers(0, 30)), max_size=8))
def test_what_is_taken_has_nothing_in_common(given_: list[tuple[list[int], int]]) -> None:
    apart, taken = Apart(6, 4), list[tuple[list[int], int]]()
    for ids, at in given_:
        runs = {tuple(ids[i : i + 4]) for i in range(3)}
        common = any(
            abs(at - start) < 6 or runs & {tuple(other[i : i + 4]) for i in range(3)} for other, start in taken
        )
        assert (apart.shares(ids) or apart.overlaps([Place(0, at)])) == common
        if not common:
            apart.take(ids, [Place(0, at)])
            taken.append((ids, at))


def test_fewer_examples_are_shared_out_in_proportion() -> None:
    sizes = {"train": 15000, "val": 1000, "test": 1000}
    assert shared_out(20_000, sizes) == sizes
    assert shared_out(1700, sizes) == {"train": 1500, "val": 100, "test": 100}
    assert shared_out(20, sizes) == {"train": 18, "val": 1, "test": 1}
    assert shared_out(1, {"train": 0, "val": 2, "test": 2}) == {"train": 0, "val": 1, "test": 0}
