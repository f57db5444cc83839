"""Drawn examples: where they stand, that they are fairly drawn, that seed and documents alone decide them."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rote.corpus.sampling as module
from rote.corpus.documents import Corpus, open_corpus
from rote.corpus.sampling import Cutter, draw, place
from rote.corpus.windows import plain_backend
from rote.errors import InputError
from rote.tokens import Example
from tests.corpus.corpora import write_dataset, write_jsonl, write_parquet, write_parquets, write_texts
from tests.corpus.test_windows import ALICE, bundled, crossing, single_bytes, trained
from tests.reference.sampling import arrangements, candidates
from tests.reference.windows import one_window

SIZES: dict[str, Any] = {"prefix": 6, "suffix": 5}
PARTS = [ALICE[i : i + 1500] for i in range(0, 30_000, 1500)]
ROWS = [{"id": f"{i:02d}.txt", "text": part} for i, part in enumerate(PARTS)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return open_corpus(write_jsonl(tmp_path_factory.mktemp("corpus") / "c.jsonl", ROWS))


def cutter(tokenizer: Any, prefix: int, suffix: int) -> Cutter:
    return Cutter(plain_backend(tokenizer), prefix, suffix)


def spans(examples: list[Example]) -> list[tuple[int, int]]:
    return [(e.start or 0, e.suffix_end or 0) for e in examples]


def test_examples_are_the_tokens_of_the_text_from_a_space_on(corpus: Corpus) -> None:
    texts = {row["id"]: row["text"] for row in ROWS}
    found, drawn = draw(corpus, bundled(), documents=12, examples=7, runs=3, seed=5, **SIZES)
    assert [(d.run, d.documents, d.examples, d.short_documents, d.skipped_documents) for d in drawn] == [
        (run, 12, 84, 0, 0) for run in range(3)
    ]
    by_document: dict[tuple[int, str], list[Example]] = {}
    for example in found:
        text = texts[example.metadata["document"]]
        start = example.start or 0
        assert text[start] == " "
        window = one_window(text, bundled(), start, **SIZES)
        assert window is not None
        assert (window.prefix, window.suffix) == (example.prefix, example.suffix)
        assert (window.suffix_start, window.suffix_end) == (example.suffix_start, example.suffix_end)
        run, document = example.metadata["run"], example.metadata["document"]
        assert example.id == f"r{run}-{document}-{start}"
        assert example.metadata == {"document": document, "run": run, "corpus": "main"}
        by_document.setdefault((run, document), []).append(example)
    assert len({example.id for example in found}) == len(found) == 252
    assert Counter(run for run, _ in by_document) == {0: 12, 1: 12, 2: 12}  # 12 different documents a run
    for examples in by_document.values():
        assert len(examples) == 7
        assert all(first[1] <= second[0] for first, second in pairwise(spans(examples)))
    chosen = [frozenset(document for run, document in by_document if run == number) for number in range(3)]
    assert len(set(chosen)) == 3  # each run draws for itself


def test_every_kind_and_order_of_corpus_gives_the_same_sample(corpus: Corpus, tmp_path: Path) -> None:
    shuffled = random.Random(0).sample(ROWS, len(ROWS))
    others = [
        write_texts(tmp_path / "texts", shuffled),
        write_jsonl(tmp_path / "c.jsonl", shuffled),
        write_parquet(tmp_path / "c.parquet", ROWS),
        write_parquets(tmp_path / "parts", shuffled),
        write_dataset(tmp_path / "dataset", shuffled),
    ]
    options: dict[str, Any] = {"documents": 6, "examples": 4, "runs": 2, "seed": 1, **SIZES}
    expected = draw(corpus, bundled(), **options)
    for other in others:
        assert draw(open_corpus(other), bundled(), **options) == expected
    assert draw(corpus, bundled(), **options | {"seed": 2})[0] != expected[0]


def test_split_and_repetitions_travel_along(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "text": PARTS[0], "split": "train", "repetitions": 4},
        {"id": "b", "text": PARTS[1]},
    ]
    found, _ = draw(
        open_corpus(write_jsonl(tmp_path / "c.jsonl", rows)), bundled(), examples=1, runs=1, role="held-out", **SIZES
    )
    metadata = {e.metadata["document"]: e.metadata for e in found}
    own = {"run": 0, "corpus": "held-out"}
    assert metadata == {
        "a": {"document": "a", **own, "repetitions": 4, "split": "train"},
        "b": {"document": "b", **own},
    }
    assert all(e.id.startswith("h0-") for e in found)


def test_what_is_too_short_is_counted_and_replaced(tmp_path: Path) -> None:
    texts = [*PARTS[:6], "", "no room", "nospaceatall" * 100, " ".join(["a", "b", "c"]), PARTS[7][:120], PARTS[8][:100]]
    rows = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
    corpus = open_corpus(write_jsonl(tmp_path / "c.jsonl", rows))
    found, drawn = draw(corpus, bundled(), documents=8, examples=4, runs=4, **SIZES)
    room = {row["id"]: arrangements(candidates(row["text"], bundled(), **SIZES)[:40], 4) for row in rows[6:]}
    most = {name: len(choices[0]) if choices else 0 for name, choices in room.items()}
    assert sorted(size > 0 for size in most.values()) == [False] * 4 + [True] * 2
    assert max(most.values()) < 4
    for run in drawn:
        assert (run.documents, run.short_documents) == (8, 2)
        assert run.skipped_documents <= 4
        assert run.examples == 6 * 4 + sum(most.values())
    counted = Counter((e.metadata["run"], e.metadata["document"]) for e in found)
    assert all(count == most.get(document, 4) for (_, document), count in counted.items())


def test_more_than_there_is_is_all_there_is(corpus: Corpus) -> None:
    found, drawn = draw(corpus, bundled(), documents=500, examples=1, runs=2, **SIZES)
    assert [d.documents for d in drawn] == [20, 20]
    assert [e.start for e in found[:20]] != [e.start for e in found[20:]]


@pytest.mark.parametrize("option", ["documents", "examples", "runs", "prefix", "suffix"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_sizes_out_of_range_are_refused(option: str, value: Any, corpus: Corpus) -> None:
    with pytest.raises(InputError, match=f"--{option}"):
        draw(corpus, bundled(), **{**SIZES, option: value})


# --- fairness


WORDS = st.lists(st.sampled_from(["cat", "at", "a", "é", "😀x", "", "\n", "catcat", "."]), min_size=0, max_size=30)


@given(
    words=WORDS,
    count=st.integers(1, 4),
    tries=st.sampled_from([0, 3, 100]),
    seed=st.integers(0, 99),
    sizes=st.sampled_from([(1, 1), (2, 1), (3, 4)]),
)
@settings(max_examples=60, deadline=None)
def test_placement_is_one_of_all_arrangements(
    words: list[str], count: int, tries: int, seed: int, sizes: tuple[int, int]
) -> None:
    text = " ".join(words)
    for tokenizer in (single_bytes(), crossing()):
        allowed = arrangements(candidates(text, tokenizer, *sizes), count)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "TRIES", tries)
            patch.setattr(module, "ROUGHLY", 0)  # as if there were much room: so many tries come first
            found = place(text, cutter(tokenizer, *sizes), count, random.Random(seed))
        assert tuple(spans(found)) in allowed if allowed else found == []


@pytest.mark.parametrize("tries", [0, 2, 100])
def test_every_arrangement_is_equally_likely(tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the two ways finds it. The chi-square statistic is compared with its mean and standard deviation."""
    monkeypatch.setattr(module, "TRIES", tries)
    monkeypatch.setattr(module, "ROUGHLY", 0)
    text = "one three  a to four and six or so on it"
    cut = cutter(single_bytes(), 3, 2)
    allowed = arrangements(candidates(text, single_bytes(), 3, 2), 3)
    draws = 40 * len(allowed)
    assert 20 < len(allowed) < 200
    rng = random.Random(7)
    seen = Counter(tuple(spans(place(text, cut, 3, rng))) for _ in range(draws))
    assert set(seen) <= set(allowed)
    expected = draws / len(allowed)
    statistic = sum((seen[choice] - expected) ** 2 / expected for choice in allowed)
    freedom = len(allowed) - 1
    assert abs(statistic - freedom) < 4 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("sizes", [(6, 5), (50, 50)])
def test_examples_end_where_they_may_at_the_least_or_later(sizes: tuple[int, int]) -> None:
    """Otherwise arrangements would be left out. Runs of white space, too, in a text with many."""
    text = ALICE[:3000] + ALICE[40_000:42_000].replace(". ", ".   \n ")
    spaces = np.flatnonzero([character == " " for character in text])
    for tokenizer in (bundled(), trained()):
        cut = cutter(tokenizer, *sizes)
        least = dict(zip(spaces.tolist(), cut.least_ends(text, spaces).tolist(), strict=True))
        ends = dict(spans(cut(text, spaces.tolist())))
        assert len(ends) > 0.5 * len(spaces)
        assert all(least[start] <= end for start, end in ends.items())
        close = sum(end - least[start] < 60 for start, end in ends.items())
        assert close > 0.9 * len(ends)


def test_a_nearly_full_document_with_too_many_places_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIES", 0)
    monkeypatch.setattr(module, "MOST_PLACES", 50)
    text = "word " * 400
    found = place(text, cutter(single_bytes(), 6, 4), 20, random.Random(0))
    assert 10 < len(found) <= 20
    assert all(first[1] <= second[0] for first, second in pairwise(spans(found)))


def test_every_document_is_equally_likely(corpus: Corpus) -> None:
    found, _ = draw(corpus, bundled(), documents=5, examples=1, runs=200, seed=3, **SIZES)
    seen = Counter(e.metadata["document"] for e in found)
    assert len(seen) == 20
    # Drawn 50 times on average, with a standard deviation of 6.1.
    assert all(abs(count - 50) < 4 * 6.1 for count in seen.values())
