"""The dataset test: exact where the sides are alike, powerful where they are not, and a sentence where it cannot be."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.member import dataset
from rote.analysis.member.dataset import (
    HELD_OUT,
    PERMUTATIONS,
    SPLITS,
    SUSPECTS,
    TRIALS,
    Sides,
    dataset_test,
    false_positives,
    halved,
    permutations,
    split,
    together,
)
from rote.analysis.member.measures import Bools, Floats, Ints
from rote.store.member import DatasetTest
from tests.analysis.member.tables import NAMES, passages, quiet, table
from tests.cases import cases
from tests.reference import member as slow


def sides(suspect: float, count: int, others: int, *, seed: int, **more: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
    order = np.random.default_rng(seed).permutation(count + others)
    texts = [passages(count + others, 60)[place] for place in order]
    rows = table([suspect] * count + [0.0] * others, seed=seed, texts=texts, **more)
    return rows[:count], rows[count:]


def run(ours: pl.DataFrame, others: pl.DataFrame, names: list[str], seed: int = 0) -> DatasetTest | str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return dataset_test(ours, others, names, seed=seed, progress=quiet)


def good(result: DatasetTest | str) -> DatasetTest:
    assert isinstance(result, DatasetTest), result
    return result


def given_scores(scores: Floats) -> dataset.Fit:
    return lambda on, ours: (scores, np.ones(1))


# --- one split


@cases(100)
@given(
    st.lists(st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=4), min_size=4, max_size=10),
    st.data(),
)
def test_the_p_value_is_that_of_permutations_one_by_one(groups: list[list[float]], data: st.DataObject) -> None:
    suspects = data.draw(st.integers(1, len(groups) - 1))
    group = np.repeat(np.arange(len(groups)), [len(own) for own in groups])
    both = Sides(group, np.arange(len(groups)) < suspects)
    chances = permutations(np.random.default_rng(data.draw(st.integers(0, 5))), suspects, len(groups) - suspects)
    scores = np.array([score for own in groups for score in own]) * 0.1
    found = split(both, np.arange(len(groups)), chances, given_scores(scores))
    drawn = chances.astype(bool).tolist()
    assert (chances.sum(1) == suspects).all()
    tenths = [[score * 0.1 for score in own] for own in groups]
    assert found.p == pytest.approx(slow.permutation_p(tenths, suspects, drawn))
    assert found.p == pytest.approx(slow.exact_p(tenths, suspects), abs=0.08)
    if np.std(scores[group >= suspects]):
        expected = slow.difference(tenths[:suspects], tenths[suspects:]) / np.std(scores[group >= suspects])
        assert found.difference == pytest.approx(expected)


def test_scores_that_are_all_one_say_nothing() -> None:
    both = Sides(np.arange(20), np.arange(20) < 10)
    chances = permutations(np.random.default_rng(0), 10, 10)
    found = split(both, np.arange(20), chances, given_scores(np.full(20, 0.3)))
    assert (found.p, found.difference) == (1.0, 0.0)


def test_halves_are_of_groups_and_share_none() -> None:
    both = Sides(np.repeat(np.arange(9), 3), np.arange(9) < 5)
    seen: list[Ints] = []

    def fit(on: Ints, ours: Bools) -> tuple[Floats, Floats]:
        seen.append(np.unique(both.group[on]))
        return np.zeros(27), np.ones(1)

    tested = halved(np.random.default_rng(0), both)
    split(both, tested, permutations(np.random.default_rng(0), 2, 2), fit)
    assert both.suspect[tested].tolist() == [True, True, False, False]
    assert sorted([*tested.tolist(), *seen[0].tolist()]) == list(range(9))


def test_twice_the_median() -> None:
    assert together([0.01, 0.5, 0.02]) == 0.04
    assert together([0.6, 0.7, 0.8]) == 1.0


# --- level: where both sides are alike


@pytest.mark.parametrize("grouped", [False, True])
def test_relabelled_held_out_texts_are_accused_one_time_in_twenty(grouped: bool) -> None:
    """Between 4 and 16 of 200, which is 97% of what a rate of exactly 5% gives."""
    rng = np.random.default_rng(11)
    if grouped:
        group = np.repeat(np.arange(40), [20, 15, 10, 10, 5, 5, *[2] * 14, *[1] * 20])
        scores = rng.normal(size=40)[group][:, None] + rng.normal(size=(len(group), 5))
    else:
        group = np.arange(120)
        scores = rng.normal(size=(120, 1)) + 0.5 * rng.standard_t(2, size=(120, 5))
    found = false_positives(np.random.default_rng(0), scores, group, quiet)
    assert (found.trials, found.splits) == (TRIALS, SPLITS) == (200, 21)
    assert 4 <= found.single <= 16
    assert found.combined <= 16


@pytest.mark.parametrize("grouped", [False, True])
def test_fresh_texts_are_accused_one_time_in_twenty(grouped: bool) -> None:
    """400 sets of their own, not one that is relabelled: 5% is 20 of them, and 8 to 34 hold it but once in 500 times."""
    from rote.analysis.member.fitting import scaled, weigh

    rng = np.random.default_rng(12)
    chances = permutations(rng, 8, 8)
    below = 0
    for _ in range(400):
        sizes = rng.integers(1, 6, size=32) if grouped else np.ones(32, dtype=np.int64)
        group = np.repeat(np.arange(32), sizes)
        scores = rng.normal(size=32)[group][:, None] + rng.normal(size=(len(group), 4))

        def fit(on: Ints, ours: Bools, scores: Floats = scores) -> tuple[Floats, Floats]:
            standard = scaled(scores, on)
            weights = weigh(standard[on], ours[on])
            return standard @ weights, weights

        both = Sides(group, np.arange(32) < 16)
        below += split(both, halved(rng, both), chances, fit).p < 0.05
    assert 8 <= below <= 34


def test_texts_that_were_not_seen_are_not_accused() -> None:
    result = good(run(*sides(0.0, 60, 60, seed=3), NAMES))
    assert result.p > 0.05
    assert result.blind > 0.05
    assert len(result.p_values) == len(result.blind_p_values) == SPLITS
    assert result.p == min(1.0, 2 * float(np.median(result.p_values)))
    assert result.permutations == PERMUTATIONS


def test_more_surprising_texts_are_not_accused() -> None:
    result = good(run(*sides(-1.0, 60, 60, seed=4), NAMES))
    assert result.p == 1.0
    assert result.difference < -0.5


# --- power


def test_texts_that_were_seen_are_found() -> None:
    ours, others = sides(1.0, 60, 60, seed=5, names=[*NAMES, "best_window"])
    result = good(run(ours, others.with_columns(best_window=pl.lit(-np.inf)), [*NAMES, "best_window"]))
    assert result.p == 2 / (PERMUTATIONS + 1)
    assert 0.6 < result.difference < 1.8
    assert list(result.weights) == NAMES
    assert sum(map(abs, result.weights.values())) <= 1 + 1e-9
    assert (result.suspects, result.held_out, result.groups) == (60, 60, None)
    assert result.blind > 0.05
    assert 0 <= result.false_positives.single <= 25
    assert result.false_positives.combined <= 16


def test_groups_that_were_seen_are_found() -> None:
    group = [f"s{place // 5}" for place in range(80)] + [None if place % 4 else f"h{place}" for place in range(60)]
    ours, others = sides(1.0, 80, 60, seed=6, group=group)
    result = good(run(ours, others, ["loss", "zlib"]))
    assert result.groups == 16 + 60
    assert result.p < 0.01


def test_texts_of_another_kind_are_noticed_without_a_model() -> None:
    ours, others = sides(0.0, 60, 60, seed=7)
    ours = ours.with_columns(pl.col("text").str.replace_all("\n", " ").str.to_lowercase())
    assert good(run(ours, others, ["loss"])).blind < 0.01


def test_it_is_the_same_each_time() -> None:
    ours, others = sides(0.3, 20, 20, seed=8)
    one, other, seeded = (good(run(ours, others, ["loss", "zlib"], seed)) for seed in (1, 1, 2))
    assert one == other
    assert one != seeded


# --- where there is no test


@pytest.mark.parametrize(("ours", "others"), [(0, 40), (7, 40), (8, 15), (1, 0)])
def test_too_few_texts_are_a_sentence(ours: int, others: int) -> None:
    said = run(*sides(0.0, ours, others, seed=0), ["loss"])
    assert said == (
        f"The test needs at least {SUSPECTS} suspect and {HELD_OUT} held-out texts; there are "
        f"{ours} suspect text{'' if ours == 1 else 's'} and {others} held-out text{'' if others == 1 else 's'}."
    )


def test_as_few_as_needed_are_enough() -> None:
    result = good(run(*sides(5.0, SUSPECTS, HELD_OUT, seed=1), ["loss"]))
    assert result.p < 0.05


def test_too_few_groups_are_a_sentence() -> None:
    ours, others = sides(0.0, 40, 40, seed=0, group=["a", "b"] * 20 + [None] * 40)
    assert run(ours, others, ["loss"]) == (
        "The test needs at least 8 suspect and 16 held-out groups; there are 2 suspect groups and 40 held-out groups."
    )


def test_a_group_on_both_sides_is_a_sentence() -> None:
    ours, others = sides(0.0, 40, 40, seed=0, group=[f"book {place % 30}" for place in range(80)])
    said = run(ours, others, ["loss"])
    assert said == (
        "30 groups ('book 0' for one) have suspect and held-out texts both; a group must stand on one side, so nothing "
        "was tested."
    )


def test_no_score_is_a_sentence() -> None:
    said = run(*sides(0.0, 40, 40, seed=0, names=["best_window"]), ["best_window"])
    assert said == "No score has a value for every suspect and held-out text, so nothing was tested."


def test_constant_scores_say_nothing() -> None:
    ours, others = (rows.with_columns(loss=pl.lit(1.0)) for rows in sides(0.0, 20, 20, seed=0))
    result = good(run(ours, others, ["loss"]))
    assert (result.p, result.difference, result.weights) == (1.0, 0.0, {"loss": 1.0})
