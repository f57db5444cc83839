"""AUROC, TPR, F-beta and thresholds against pairs and thresholds one by one; curves; the bootstrap."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.member.measures import (
    CORNERS,
    RESAMPLES,
    Ladder,
    Texts,
    auroc,
    codes,
    f_beta,
    measured,
    roc,
    threshold,
    tpr_at,
)
from rote.odds import wilson
from tests.cases import cases
from tests.reference import member as slow

VALUES = st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 0.5, 1.0, 3.0, math.inf])
"""Few, so that many are equal."""

ANY = st.one_of(VALUES, st.floats(allow_nan=False))
SCORES = st.lists(VALUES, min_size=1, max_size=12) | st.lists(ANY, min_size=1, max_size=12)


def both(members: list[float], others: list[float]) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    return np.array(members + others), np.arange(len(members) + len(others)) < len(members)


@cases(400)
@given(SCORES, SCORES, st.sampled_from([2, 3, 100]))
def test_pairs_and_thresholds_one_by_one_say_the_same(members: list[float], others: list[float], one_in: int) -> None:
    scores, member = both(members, others)
    counts = Ladder.of(scores, member).counts()
    assert float(auroc(*counts)) == float(slow.auroc(members, others))
    assert float(tpr_at(*counts, one_in)) == float(slow.tpr_at(members, others, one_in))
    assert threshold(scores, member) == slow.threshold(members, others)


@cases(200)
@given(st.data(), SCORES, SCORES)
def test_a_text_that_is_drawn_twice_counts_twice(
    data: st.DataObject, members: list[float], others: list[float]
) -> None:
    scores, member = both(members, others)
    size = len(scores)
    weights = np.array(
        data.draw(st.lists(st.lists(st.integers(0, 3), min_size=size, max_size=size), min_size=1, max_size=3))
    )
    weights[:, [0, len(members)]] += 1  # neither class is lacking
    counts = Ladder.of(scores, member).counts(weights.T)
    for row, own in enumerate(weights):
        one = [score for score, times in zip(members, own, strict=False) for _ in range(times)]
        other = [score for score, times in zip(others, own[len(members) :], strict=True) for _ in range(times)]
        assert float(auroc(*counts)[row]) == float(slow.auroc(one, other))
        assert float(tpr_at(*counts, 3)[row]) == float(slow.tpr_at(one, other, 3))


@given(st.integers(1, 50), st.integers(0, 50), st.integers(0, 50))
def test_f_beta_is_that_of_precision_and_recall(members: int, found: int, wrong: int) -> None:
    found = min(found, members)
    fast = float(f_beta(np.array(found), np.array(found + wrong), np.array(members)))
    assert fast == float(slow.f_beta(found, wrong, members))


def test_a_constant_score_tells_nothing() -> None:
    scores, member = both([1.0] * 3, [1.0] * 4)
    counts = Ladder.of(scores, member).counts()
    assert (float(auroc(*counts)), float(tpr_at(*counts, 100))) == (0.5, 0.0)
    assert roc("constant", scores, member).fpr == [0.0, 1.0]


# --- curves


@cases(200)
@given(SCORES, SCORES)
def test_a_curve_has_every_corner_and_its_area(members: list[float], others: list[float]) -> None:
    scores, member = both(members, others)
    curve = roc("one", scores, member)
    points = list(zip(curve.fpr, curve.tpr, strict=True))
    assert points[0] == (0, 0)
    assert points[-1] == (1, 1)
    assert all(a <= c and b <= d and (a, b) != (c, d) for (a, b), (c, d) in pairwise(points))
    area = sum((c - a) * (b + d) / 2 for (a, b), (c, d) in pairwise(points))
    assert area == pytest.approx(float(slow.auroc(members, others)))


def test_a_long_curve_is_thinned_where_its_false_positives_are_many() -> None:
    rng = np.random.default_rng(0)
    member = np.arange(20_000) < 8_000
    scores = rng.normal(size=20_000) + member
    curve = roc("long", scores, member)
    assert len(curve.fpr) <= CORNERS
    found, wrong = Ladder.of(scores, member).counts()
    reached = set(zip((wrong / 12_000).tolist(), (found / 8_000).tolist(), strict=True)) | {(0.0, 0.0)}
    points = list(zip(curve.fpr, curve.tpr, strict=True))
    assert set(points) <= reached
    for one_in in (1000, 100, 10):
        best = max(tpr for fpr, tpr in points if fpr <= 1 / one_in)
        assert best == float(tpr_at(found, wrong, one_in))
    first = [point for point in points if point[0] <= 20 / 12_000]
    assert max(tpr for _, tpr in first) == float(tpr_at(found, wrong, 600))
    area = sum((c - a) * (b + d) / 2 for (a, b), (c, d) in pairwise(points))
    assert area == pytest.approx(float(auroc(found, wrong)), abs=0.002)


# --- groups and resamples


def test_a_text_without_a_group_is_one_by_itself() -> None:
    coded, groups = codes(pl.Series(["a", None, "b", "a", None]))
    assert coded.tolist() == [0, 1, 2, 0, 3]
    assert groups == 4
    coded, groups = codes(pl.Series([None, None], dtype=pl.String))
    assert (coded.tolist(), groups) == ([0, 1], None)


def test_texts_are_drawn_by_class_where_there_are_no_groups() -> None:
    texts = Texts(np.array([True] * 3 + [False] * 5), np.arange(8), grouped=False)
    weights = np.concatenate(list(texts.resamples(0)), axis=1).T
    assert weights.shape == (RESAMPLES, 8)
    assert (weights[:, :3].sum(1) == 3).all()
    assert (weights[:, 3:].sum(1) == 5).all()
    assert weights.mean(0) == pytest.approx(np.ones(8), abs=0.1)


def test_groups_are_drawn_whole_and_both_classes_are_always_there() -> None:
    group = np.array([0, 0, 0, 1, 2, 2, 3])
    member = np.array([True, True, True, False, False, False, False])
    weights = np.concatenate(list(Texts(member, group, grouped=True).resamples(0)), axis=1).T
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 4] == weights[:, 5]).all()
    assert weights[:, member].any(1).all()
    assert weights[:, ~member].any(1).all()
    assert (weights[:, [0, 3, 4, 6]].sum(1) == 4).all()


def test_the_interval_is_that_of_resamples_drawn_one_by_one() -> None:
    rng = np.random.default_rng(3)
    members, others = (rng.normal(size=12) + 1).tolist(), rng.normal(size=15).tolist()
    scores, member = both(members, others)
    ladder = Ladder.of(scores, member)
    drawn = Texts(member, np.arange(27), grouped=False).bootstrap(lambda w: auroc(*ladder.counts(w))[:, None], 0)[:, 0]
    slowly = [float(slow.auroc(rng.choice(members, 12).tolist(), rng.choice(others, 15).tolist())) for _ in range(2000)]
    interval = measured(0.0, drawn, 12).interval
    assert interval == pytest.approx([slow.quantile(slowly, 0.025), slow.quantile(slowly, 0.975)], abs=0.03)
    assert interval == pytest.approx([slow.quantile(drawn.tolist(), 0.025), slow.quantile(drawn.tolist(), 0.975)])


def test_where_all_resamples_agree_the_interval_is_wilsons() -> None:
    sure = measured(1.0, np.ones(100), 7)
    assert sure.bound is True
    assert sure.interval == list(wilson(7, 7))
    assert measured(0.5, np.array([0.25, 0.75, math.nan]), 7).bound is None
