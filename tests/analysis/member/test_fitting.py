"""Texts dealt into parts, scores made comparable, and weights."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote import InputError
from rote.analysis.member.fitting import aligned, deal, oriented, scaled, weigh
from rote.analysis.member.measures import Ladder, Texts, auroc
from tests.cases import cases
from tests.reference import member as slow


@cases(200)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=1, max_size=40), st.booleans(), st.integers(0, 9))
def test_every_part_has_both_classes_and_whole_groups(rows: list[tuple[bool, int]], grouped: bool, seed: int) -> None:
    member = np.array([one for one, _ in rows])
    group = np.unique([number for _, number in rows], return_inverse=True)[1] if grouped else np.arange(len(rows))
    texts = Texts(member, group, grouped)
    part = deal(texts, seed)
    if part is None:
        assert grouped or min(member.sum(), (~member).sum()) < 2
        return
    parts = int(part.max()) + 1
    assert 2 <= parts <= 5
    for number in range(parts):
        assert {True, False} == set(member[part == number].tolist())
    for own in np.unique(group):
        assert len(set(part[group == own].tolist())) == 1
    if not grouped:
        assert parts == min(5, member.sum(), (~member).sum())
        for which in (member, ~member):
            counts = np.bincount(part[which], minlength=parts)
            assert counts.max() - counts.min() <= 1


def test_one_group_of_a_class_cannot_be_dealt() -> None:
    member = np.array([True, True, True, False, False])
    assert deal(Texts(member, np.array([0, 0, 0, 1, 2]), grouped=True), 0) is None


@cases(200)
@given(
    st.lists((st.integers(-1000, 1000) | st.sampled_from([0, 1])).map(lambda one: one / 8), min_size=4, max_size=60),
    st.integers(2, 60),
)
def test_scores_are_cut_and_standardised_by_the_fitting_half(values: list[float], count: int) -> None:
    on = list(range(min(count, len(values))))
    expected = slow.scaled(values, on)
    found = scaled(np.array(values)[:, None], np.array(on))[:, 0]
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_scores_beyond_all_measure_stay_finite() -> None:
    values = np.array([[1e308, 0.0], [-1e308, math.inf], [3.0, -math.inf], [1.0, 1.0]])
    assert np.isfinite(scaled(values, np.arange(4))).all()
    assert (scaled(np.full((4, 1), 7.0), np.arange(4)) == 0).all()


def test_weights_find_the_score_that_tells() -> None:
    rng = np.random.default_rng(0)
    member = np.arange(200) < 100
    scores = rng.normal(size=(200, 4))
    scores[:, 2] += member
    weights = weigh(scaled(scores, np.arange(200)), member)
    assert np.abs(weights).sum() == pytest.approx(1)
    assert weights[2] > 0.7


def test_the_difference_of_two_scores_may_tell() -> None:
    rng = np.random.default_rng(1)
    member = np.arange(400) < 200
    hard = rng.normal(size=400)
    scores = np.stack([hard + 0.2 * rng.normal(size=400) + 0.3 * member, hard + 0.2 * rng.normal(size=400)], axis=1)
    weights = weigh(scaled(scores, np.arange(400)), member)
    assert weights[0] > 0
    assert weights[1] < 0


def test_surprise_is_no_evidence() -> None:
    """Where members lie on the side that means unseen, scores keep their direction."""
    rng = np.random.default_rng(2)
    member = np.arange(200) < 100
    scores = rng.normal(size=(200, 1)) + 0.3 * rng.normal(size=(200, 5)) - member[:, None]
    assert weigh(scaled(scores, np.arange(200)), member).tolist() == [0.2] * 5
    assert weigh(np.zeros((4, 2)), np.arange(4) < 2).tolist() == [0.5, 0.5]


def test_ranks_keep_the_order_within_a_part_and_put_parts_side_by_side() -> None:
    member = np.array([True, True, True, False, True, False, False, False])
    part = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    scores = np.array([5.0, 6.0, 7.0, 4.0, -1.0, -2.0, -3.0, -3.0])
    ranks = aligned(scores, member, part)
    assert ranks.tolist() == pytest.approx([0.5 + 1 / 12, 0.75, 1 - 1 / 12, 0.25, 0.75, 5 / 12, 1 / 6, 1 / 6])
    assert float(auroc(*Ladder.of(ranks, member).counts())) == 1.0


def test_ranks_of_random_scores_come_to_a_half_though_parts_differ() -> None:
    """Parts with other shares of members, and with scores on other scales."""
    rng = np.random.default_rng(3)
    member = np.array([True] * 9 + [False] * 3 + [True] * 2 + [False] * 8)
    part = np.array([0] * 12 + [1] * 10)
    found = []
    for _ in range(2000):
        scores = rng.normal(size=22) * (1 + part) + 5 * part
        found.append(float(auroc(*Ladder.of(aligned(scores, member, part), member).counts())))
    assert abs(float(np.mean(found)) - 0.5) < 4 * float(np.std(found)) / 2000**0.5


def test_scores_are_turned_so_that_large_means_seen() -> None:
    rows = pl.DataFrame({"loss": [1.0, 2.0], "min_k_5": [-3.0, -4.0]})
    assert oriented(rows, ["loss", "min_k_5"]).tolist() == [[-1.0, -3.0], [-2.0, -4.0]]
    for missing in (None, math.nan):
        with pytest.raises(InputError, match="the score 'loss' has no value for some of the texts"):
            oriented(pl.DataFrame({"loss": [1.0, missing]}), ["loss"])
