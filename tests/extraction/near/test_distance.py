"""Streaming distances against brute force: every partial output of every suffix up to five tokens, all in one batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rote.errors import InputError
from rote.extraction.near import distance as distances
from rote.extraction.near.distance import Metric, metric_of, root_ceil
from tests.cases import cases
from tests.reference import near as reference
from tests.reference.near import FAR

VOCABULARY, EOS, LONGEST = 3, 2, 5

Tokens = tuple[int, ...]


def suffixes(eos: str) -> list[Tokens]:
    """All of up to five tokens, but for renaming those that are alike. EOS stands at most at the end where it ends."""
    found = []
    for length in range(1, LONGEST + 1):
        for tokens in itertools.product(range(VOCABULARY), repeat=length):
            plain = [t for t in tokens if t != EOS] if eos != "ignore" else list(tokens)
            in_order = list(dict.fromkeys(plain)) == list(range(len(set(plain))))
            if in_order and (eos == "ignore" or EOS not in tokens[:-1]):
                found.append(tokens)
    return found


@cache
def measured(distance: str, output: Tokens, suffix: Tokens) -> int:
    return reference.DISTANCES[distance](output, suffix)


@cache
def extremes(distance: str, eos: str, written: Tokens, suffix: Tokens) -> tuple[int, int]:
    """(least, most) distance over all completions; an output that does not count is infinitely far."""
    if written and written[-1] == EOS and len(written) < len(suffix) and eos != "ignore":
        end = measured(distance, written, suffix) if eos == "stop" else FAR
        return end, end
    if len(written) == len(suffix):
        end = measured(distance, written, suffix)
        return end, end
    parts = [extremes(distance, eos, (*written, token), suffix) for token in range(VOCABULARY)]
    return min(p[0] for p in parts), max(p[1] for p in parts)


formula = cache(reference.floor_and_ceil)


def partial_outputs(eos: str, written: int) -> Iterator[tuple[Tokens, Tokens]]:
    """(suffix, output so far) with something left to write; what has ended is no longer open."""
    for suffix in suffixes(eos):
        if len(suffix) > written:
            for output in itertools.product(range(VOCABULARY), repeat=written):
                if eos == "ignore" or EOS not in output:
                    yield suffix, output


def cut(values: Any, tolerance: int) -> Any:
    """Above the tolerance only the side counts."""
    return np.minimum(np.asarray(values), tolerance + 1)


class Walk:
    """States of all partial outputs, token by token, suffixes of different lengths side by side."""

    def __init__(self, metric: Metric, rows: list[tuple[Tokens, Tokens]]) -> None:
        self.metric, self.rows = metric, rows
        self.lengths = torch.tensor([len(suffix) for suffix, _ in rows])
        self.written = torch.zeros_like(self.lengths)
        self.targets = metric.targets([suffix for suffix, _ in rows])
        self.states = metric.start(self.lengths)
        for i in range(len(rows[0][1])):
            token = torch.tensor([[output[i]] for _, output in rows])
            self.states = metric.advance(self.states, self.written, self.lengths, self.window(), token)[:, 0]
            self.written = self.written + 1

    def window(self) -> torch.Tensor:
        return self.metric.window(self.targets, self.written)


@pytest.mark.parametrize("eos", ["stop", "exclude", "ignore"])
@pytest.mark.parametrize("distance", ["levenshtein", "hamming"])
@pytest.mark.parametrize("published", [False, True])
def test_bounds_hold_for_every_completion(distance: Any, eos: Any, published: bool) -> None:
    tokens = torch.arange(VOCABULARY)
    for written in range(LONGEST):
        rows = list(partial_outputs(eos, written))
        exact = np.array([[extremes(distance, eos, (*u, v), z) for v in tokens.tolist()] for z, u in rows])
        known = np.array([formula(distance, eos, published, u, z) for z, u in rows])
        ends = np.array([[measured(distance, (*u, v), z) for v in tokens.tolist()] for z, u in rows])
        for tolerance in range(LONGEST + 2):
            metric = metric_of(distance, tolerance, eos, published=published)
            walk = Walk(metric, rows)
            floor, ceil = metric.bounds(walk.states, walk.written, walk.lengths)
            np.testing.assert_array_equal(cut(floor, tolerance), cut(known[:, 0], tolerance))
            np.testing.assert_array_equal(cut(ceil, tolerance), cut(known[:, 1], tolerance))
            end = metric.ended(walk.states, walk.lengths - walk.written)
            np.testing.assert_array_equal(
                cut(end, tolerance), cut([measured(distance, u, z) for z, u in rows], tolerance)
            )

            children = tokens.expand(len(rows), -1)
            after, floor, ceil = metric.children(
                walk.states, walk.written, walk.lengths, walk.window(), children, children == EOS
            )
            assert (cut(floor, tolerance) <= cut(exact[:, :, 0], tolerance)).all()
            assert (cut(ceil, tolerance) >= cut(exact[:, :, 1], tolerance)).all()
            over = (walk.lengths == written + 1).numpy()
            np.testing.assert_array_equal(cut(ceil, tolerance)[over], cut(exact[:, :, 1], tolerance)[over])
            if not published:
                np.testing.assert_array_equal(cut(floor, tolerance)[over], cut(exact[:, :, 0], tolerance)[over])
                if eos != "stop":  # outputs of one length: some completion is exactly that close
                    np.testing.assert_array_equal(cut(floor, tolerance), cut(exact[:, :, 0], tolerance))
            end = metric.ended(after, (walk.lengths - walk.written - 1)[:, None])
            np.testing.assert_array_equal(cut(end, tolerance), cut(ends, tolerance))


@pytest.mark.parametrize("distance", ["levenshtein", "hamming"])
def test_states_before_anything_is_written_and_along_the_suffix(distance: Any) -> None:
    suffixes = [(1,), (1, 2), (0, 1, 1, 2), (2,) * 9]
    lengths = torch.tensor([len(z) for z in suffixes])
    for tolerance in range(8):
        metric = metric_of(distance, tolerance, "stop")
        assert metric.start(lengths).dtype == metric.along(lengths, lengths).dtype == torch.int16
        for z, found in zip(suffixes, metric.start(lengths).tolist(), strict=True):
            assert found == reference.state((), z, distance, tolerance)
        for written in range(9):
            longer = [z for z in suffixes if len(z) >= written]
            at, whole = torch.full((len(longer),), written), torch.tensor([len(z) for z in longer])
            for z, found in zip(longer, metric.along(at, whole).tolist(), strict=True):
                assert found == reference.state(z[:written], z, distance, tolerance)


def test_the_root_is_closed_where_everything_counts() -> None:
    for distance, eos, tolerance in itertools.product(("levenshtein", "hamming"), ("stop", "ignore"), range(7)):
        metric = metric_of(distance, tolerance, eos)  # type: ignore[arg-type]
        lengths = torch.arange(1, 6)
        floor, ceil = metric.bounds(metric.start(lengths), torch.zeros_like(lengths), lengths)
        assert floor.tolist() == [0] * 5
        assert (ceil <= tolerance).tolist() == [length <= tolerance for length in range(1, 6)]
        assert [root_ceil(metric, length) for length in range(1, 6)] == ceil.tolist()


def test_nothing_is_closed_before_the_last_token_where_early_ends_do_not_count() -> None:
    metric, lengths = metric_of("levenshtein", 5, "exclude"), torch.tensor([1, 2, 3])
    _, ceil = metric.bounds(metric.start(lengths), torch.zeros_like(lengths), lengths)
    assert (ceil <= 5).tolist() == [True, False, False]
    assert [root_ceil(metric, length) <= 5 for length in (1, 2, 3)] == [True, False, False]


@cases(60)
@given(st.data())
def test_long_outputs(data: st.DataObject) -> None:
    """Longer than the band is wide, in both directions, with tokens dropped and put in."""
    length, tolerance = data.draw(st.integers(6, 40)), data.draw(st.integers(0, 8))
    suffix = tuple(data.draw(st.lists(st.integers(0, 4), min_size=length, max_size=length)))
    output = list(suffix)
    for _ in range(data.draw(st.integers(0, tolerance + 2))):
        at = data.draw(st.integers(0, len(output) - 1))
        if data.draw(st.booleans()):
            output.insert(at, data.draw(st.integers(0, 4)))
        else:
            del output[at]
    output = (output + [0] * length)[:length]
    metric = metric_of("levenshtein", tolerance, "ignore")
    walk = Walk(metric, [(suffix, tuple(output))])
    floor, ceil = metric.bounds(walk.states, walk.written, walk.lengths)
    want = min(reference.levenshtein(output, suffix), tolerance + 1)
    assert min(int(floor), tolerance + 1) == min(int(ceil), tolerance + 1) == want


TOKENS = st.lists(st.integers(0, 3), max_size=9)


@cases(300)
@given(TOKENS, TOKENS)
def test_finished_outputs(output: list[int], suffix: list[int]) -> None:
    for name, measure in reference.DISTANCES.items():
        assert metric_of(name, 0, "stop").between(output, suffix) == measure(output, suffix)
    texts = ["".join("abcd"[t] for t in tokens) for tokens in (output, suffix)]
    assert distances.levenshtein(*texts) == reference.levenshtein(output, suffix)


def test_tuples_and_lists_are_alike() -> None:
    assert distances.levenshtein((1, 2, 3), [1, 2, 3]) == 0
    assert distances.levenshtein((70_000, 2), (70_000, 3)) == 1


@pytest.mark.parametrize(
    ("distance", "tolerance", "eos", "named"),
    [
        ("euclid", 5, "stop", "distance"),
        ("hamming", 5, "never", "eos"),
        ("hamming", -1, "stop", "tolerance"),
        ("hamming", 4096, "stop", "tolerance must be a whole number from 0 to 4095"),
        ("hamming", 1.0, "stop", "tolerance"),
        ("hamming", True, "stop", "tolerance"),
    ],
)
def test_impossible_settings_are_refused_by_name(distance: Any, tolerance: Any, eos: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        metric_of(distance, tolerance, eos)


def test_the_largest_tolerance() -> None:
    """States are 16-bit integers, and what never counts is farther than any tolerance."""
    metric, lengths = metric_of("levenshtein", 4095, "exclude"), torch.tensor([3])
    _, ceil = metric.bounds(metric.start(lengths), torch.zeros(1, dtype=torch.int64), lengths)
    assert 4095 < int(ceil) < 2**15
    assert int(metric.start(lengths).max()) == 4096


def test_bleu() -> None:
    pytest.importorskip("sacrebleu")
    text = "It was the best of times, it was the worst of times."
    assert distances.bleu(text, text) == pytest.approx(1.0)
    near = distances.bleu(text.replace("worst", "best"), text)
    far = distances.bleu("Nothing of the kind is written here.", text)
    assert 0 <= far < 0.2 < near < 1
    assert distances.bleu("", text) == 0
