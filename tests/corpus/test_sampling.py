"""Drawn examples: where they stand, that they are fairly drawn, that seed and documents alone decide them."""

from __future__ import annotations

import inspect
import random
from collections import Counter
from dataclasses import asdict, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rote.corpus.sampling as module
from rote import Draw
from rote.corpus.documents import Corpus, open_corpus
from rote.corpus.sampling import Cutter, draw, place
from rote.corpus.windows import plain_backend
from rote.errors import InputError
from rote.tokens import Example
from tests.cases import cases
from tests.corpus.corpora import write_dataset, write_jsonl, write_parquet, write_parquets, write_texts
from tests.corpus.test_windows import ALICE, bundled, crossing, single_bytes, trained
from tests.reference.sampling import arrangements, candidates
from tests.reference.windows import one_window

SIZES: dict[str, Any] = {"prefix": 6, "suffix": 5}
PARTS = [ALICE[i : i + 1500] for i in range(0, 30_000, 1500)]
ROWS = [{"id": f"{i:02d}.txt", "text": part} for i, part in enumerate(PARTS)]

DRAWN = [
    "r0-12.txt-241",
    "r0-12.txt-385",
    "r0-12.txt-627",
    "r0-02.txt-4",
    "r0-02.txt-300",
    "r0-02.txt-1467",
    "r0-03.txt-723",
    "r0-03.txt-1124",
    "r0-03.txt-1440",
    "r1-09.txt-106",
    "r1-09.txt-810",
    "r1-09.txt-1313",
    "r1-02.txt-538",
    "r1-02.txt-1084",
    "r1-02.txt-1175",
    "r1-12.txt-570",
    "r1-12.txt-620",
    "r1-12.txt-924",
]
PLACED = {
    2: [233, 1272],
    5: [233, 427, 775, 1143, 1267],
    10: [79, 183, 230, 395, 696, 765, 975, 1120, 1179, 1228],
    11: [103, 268, 380, 472, 572, 605, 652, 850, 1272, 1344, 1400],
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return open_corpus(write_jsonl(tmp_path_factory.mktemp("corpus") / "c.jsonl", ROWS))


def cutter(tokenizer: Any, prefix: int, suffix: int) -> Cutter:
    return Cutter(plain_backend(tokenizer), prefix, suffix)


def spans(examples: list[Example]) -> list[tuple[int, int]]:
    return [(e.start or 0, e.suffix_end or 0) for e in examples]


def test_examples_are_the_tokens_of_the_text_from_a_space_on(corpus: Corpus) -> None:
    texts = {row["id"]: row["text"] for row in ROWS}
    found, drawn = draw(corpus, bundled(), Draw(documents=12, examples=7, runs=3, seed=5, **SIZES))
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
    wanted = Draw(documents=6, examples=4, runs=2, seed=1, **SIZES)
    expected = draw(corpus, bundled(), wanted)
    for other in others:
        assert draw(open_corpus(other), bundled(), wanted) == expected
    assert draw(corpus, bundled(), replace(wanted, seed=2))[0] != expected[0]


def test_split_and_repetitions_travel_along(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "text": PARTS[0], "split": "train", "repetitions": 4},
        {"id": "b", "text": PARTS[1]},
    ]
    found, _ = draw(
        open_corpus(write_jsonl(tmp_path / "c.jsonl", rows)),
        bundled(),
        Draw(examples=1, runs=1, **SIZES),
        role="held-out",
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
    found, drawn = draw(corpus, bundled(), Draw(documents=8, examples=4, runs=4, **SIZES))
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
    found, drawn = draw(corpus, bundled(), Draw(documents=500, examples=1, runs=2, **SIZES))
    assert [d.documents for d in drawn] == [20, 20]
    assert [e.start for e in found[:20]] != [e.start for e in found[20:]]


def test_what_is_drawn_unless_asked_otherwise(corpus: Corpus, tmp_path: Path) -> None:
    said = Draw(documents=1000, examples=10, runs=3, prefix=50, suffix=50, seed=0)
    assert draw(corpus, bundled(), Draw()) == draw(corpus, bundled(), said, role="main")
    many = [{"id": str(i), "text": "a bc"} for i in range(1002)]
    short = open_corpus(write_jsonl(tmp_path / "c.jsonl", many))
    _, drawn = draw(short, single_bytes(), Draw(examples=1, runs=1, prefix=1, suffix=1))
    assert [run.documents for run in drawn] == [1000]


def test_progress_counts_the_documents_of_all_runs(tmp_path: Path) -> None:
    rows = [{"id": str(i), "text": text} for i, text in enumerate([*PARTS[:4], "", "no room"])]
    corpus = open_corpus(write_jsonl(tmp_path / "c.jsonl", rows))
    told: list[tuple[str, int, int]] = []
    wanted = Draw(documents=5, examples=2, runs=3, **SIZES)
    _, drawn = draw(corpus, bundled(), wanted, progress=lambda *call: told.append(call))
    assert {what for what, _, _ in told} == {"drawn"}
    calls = [(done, total) for _, done, total in told]
    assert [(run.documents, run.skipped_documents) for run in drawn] == [(4, 2)] * 3
    assert {total for _, total in calls} == {15}
    for run in range(3):
        # Every document once, and only those with room are another one done.
        done = [done - 5 * run for done, _ in calls[6 * run : 6 * (run + 1)]]
        assert done == sorted(done)
        assert Counter(done) >= Counter({1: 1, 2: 1, 3: 1, 4: 1})
        assert set(done) <= {0, 1, 2, 3, 4}
    assert len(calls) == 18


def test_a_seed_gives_the_same_sample_on_every_machine_and_in_every_version(corpus: Corpus) -> None:
    """Else a sample could not be drawn again. Whoever changes how places are drawn, changes these on purpose."""
    found, _ = draw(corpus, bundled(), Draw(documents=3, examples=3, runs=2, seed=11, **SIZES))
    assert [example.id for example in found] == DRAWN
    for count, starts in PLACED.items():
        places = place(PARTS[0], cutter(bundled(), **SIZES), count, random.Random(1))
        assert [example.start for example in places] == starts


@pytest.mark.parametrize("option", ["documents", "examples", "runs", "prefix", "suffix"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_sizes_out_of_range_are_refused(option: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^{option} must be a whole number of at least 1, not {value}"):
        Draw(**{**SIZES, option: value})


# --- fairness


WORDS = st.lists(st.sampled_from(["cat", "at", "a", "é", "😀x", "", "\n", "catcat", "."]), min_size=0, max_size=30)


@given(
    words=WORDS,
    count=st.integers(1, 4),
    tries=st.sampled_from([0, 3, 100]),
    seed=st.integers(0, 99),
    sizes=st.sampled_from([(1, 1), (2, 1), (3, 4)]),
)
@cases(60)
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


def test_places_that_were_tried_and_then_left_out_are_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was cut in vain stays known, before, between and after the places that are kept."""
    monkeypatch.setattr(module, "TRIES", 2)
    monkeypatch.setattr(module, "ROUGHLY", 0)
    monkeypatch.setattr(module, "MOST_PLACES", 6)
    text = "word " * 40
    for seed in range(40):
        found = place(text, cutter(single_bytes(), 20, 10), 5, random.Random(seed))
        assert 1 <= len(found) <= 5
        assert all(first[1] <= second[0] for first, second in pairwise(spans(found)))


def test_how_often_and_among_how_many_places_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred arrangements where there is much room, then those of 16,384 places, or of all if there are no more."""
    drawn = 0
    some = module._some

    def counted(total: int, count: int, rng: random.Random) -> Any:
        nonlocal drawn
        drawn += 1
        return some(total, count, rng)

    monkeypatch.setattr(module, "_some", counted)
    seen: list[list[int]] = []

    def tightly(_text: str, _cut: Cutter, spaces: Any, *_rest: Any) -> list[Example]:
        seen.append(spaces.tolist())
        return []

    monkeypatch.setattr(module, "_place_tightly", tightly)
    cut = cutter(single_bytes(), 3, 2)
    assert place("x" * 500 + "    ", cut, 1, random.Random(0)) == []
    assert (drawn, seen) == (100, [[500, 501, 502, 503]])
    monkeypatch.setattr(module, "TRIES", 0)
    for spaces in (16383, 16384, 16385, 20000):
        drawn = 0
        seen.clear()
        place(" a" * spaces, cut, 2, random.Random(0))
        assert len(seen[0]) == min(spaces, 16384)
        assert seen[0] == sorted(set(seen[0]))
        assert drawn == (spaces > 16384)


def test_texts_of_no_or_one_character() -> None:
    for text in ("", " ", "a"):
        assert place(text, cutter(single_bytes(), 1, 1), 3, random.Random(0)) == []


def by_hand(text: str, start: int, prefix: int, suffix: int) -> int:
    """The least end where every character is a token: four tokens early, and by all of the white space at the start."""
    left = 0
    if start > 0 and text[start - 1].isspace():
        while start + left < len(text) and text[start + left].isspace():
            left += 1
    end = start + prefix + suffix - 4 - left
    return int(module.NOWHERE) if end > len(text) else max(end, start + 1)


@pytest.mark.parametrize("sizes", [(1, 1), (2, 2), (3, 4), (6, 5), (12, 9)])
def test_least_ends_where_every_character_is_a_token(sizes: tuple[int, int]) -> None:
    for text in (" a  bcd   efg\n hi     jklmno pq r", "   abc  ", "abc def  ", "     ", " \n \n  x \t yz "):
        starts = np.array([place for place, character in enumerate(text) if character == " "], dtype=np.int64)
        found = cutter(single_bytes(), *sizes).least_ends(text, starts)
        assert found.tolist() == [by_hand(text, start, *sizes) for start in starts.tolist()]


def test_examples_of_a_few_tokens_may_end_at_once() -> None:
    """Four tokens early is before they start, and one character is the least they have, however long tokens are."""
    least = cutter(crossing(), 1, 1).least_ends(" cat cat", np.array([0, 4]))
    assert least.tolist() == [1, 5]


def test_some_of_many_are_each_set_equally_often() -> None:
    rng = random.Random(5)
    for total, count in ((5, 2), (4, 4), (5, 1), (4, 0)):
        sets = [frozenset(each) for each in combinations(range(total), count)]
        draws = 200 * len(sets)
        seen = Counter(frozenset(module._some(total, count, rng)) for _ in range(draws))
        assert set(seen) == set(sets)
        assert all(abs(times - 200) < 5 * 200**0.5 for times in seen.values())


def test_hundreds_of_examples_side_by_side() -> None:
    """The numbers of arrangements of so many are no floats any more; their shares are."""
    starts = np.arange(4000)
    chosen = module._arrangement(starts, starts + 3, 800, random.Random(0))
    assert len(chosen) == 800
    assert all(first + 3 <= second for first, second in pairwise(chosen))
    # On average there are 1,600 places of 4,000 left free, so any half of the examples takes half the room.
    assert abs(chosen[400] - 2000) < 400
    most = module._arrangement(starts, starts + 3, 2000, random.Random(0))
    assert most == list(range(most[0], 4000, 3))
    assert len(most) == 1334


def test_every_document_is_equally_likely(corpus: Corpus) -> None:
    found, _ = draw(corpus, bundled(), Draw(documents=5, examples=1, runs=200, seed=3, **SIZES))
    seen = Counter(e.metadata["document"] for e in found)
    assert len(seen) == 20
    # Drawn 50 times on average, with a standard deviation of 6.1.
    assert all(abs(count - 50) < 4 * 6.1 for count in seen.values())


def test_how_much_is_drawn_unless_said_otherwise() -> None:
    assert asdict(Draw()) == {
        "documents": None, "examples": 10, "runs": 3, "prefix": 50, "suffix": 50, "seed": 0
    }  # fmt: skip
    assert inspect.signature(draw).parameters["role"].default == "main"
