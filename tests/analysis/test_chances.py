"""Chances of guesses: what they are learnt from, how they turn out, and the order that follows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote import InputError
from rote.analysis.chances import (
    FEATURES,
    calibrate,
    chances_of,
    features_of,
    in_order,
    learn,
    reliability,
)
from rote.extraction.attack.rounds import Found


def found(example: int, log_prob: float, suffix: tuple[int, ...] = (1, 2), prefix: float | None = None) -> Found:
    return Found(
        example=example, suffix=suffix, log_prob=log_prob, least=log_prob / 2, entropy=1.0, prefix_log_prob=prefix
    )


def test_features_compare_the_candidates_of_an_example() -> None:
    guesses = [found(0, -1.0), found(0, -3.0, (1, 1), -0.5), found(1, -2.0, (5, 6))]
    table = dict(zip(FEATURES, features_of(guesses).T, strict=True))
    assert table["gap"].tolist() == [2.0, -2.0, 20.0]
    assert table["rank"].tolist() == pytest.approx([0.0, math.log(2), 0.0])
    total = math.exp(-1) + math.exp(-3)
    assert table["share"].tolist() == pytest.approx([-1 - math.log(total), -3 - math.log(total), 0.0])
    assert table["others"].tolist() == pytest.approx([1 - total, 1 - total, 1 - math.exp(-2)])
    assert table["prefix_log_prob"].tolist() == [-0.5, -0.5, 0.0]
    assert table["unigram_entropy"].tolist() == [1.0, 0.0, 1.0]
    texts = ["abc" * 20, "xyzw", "q"]
    assert not np.array_equal(features_of(guesses, texts), features_of(guesses))


def test_what_is_stored_gives_the_chances_that_were_learnt() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, len(FEATURES))) * 5 + 2
    features[:, 3] = 1.0  # tells nothing
    right = features[:, 0] + rng.normal(size=300) > 2
    weights = learn(features, right)
    scaled = (features - features.mean(0)) / np.where(features.std(0) > 0, features.std(0), 1)
    expected = LogisticRegression(C=1.0, max_iter=2000).fit(scaled, right).predict_proba(scaled)[:, 1]
    assert chances_of(weights, features) == pytest.approx(expected)


def test_chances_of_calibrated_guesses_are_reliable() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(4000, len(FEATURES)))
    true = 1 / (1 + np.exp(-2 * features[:, 0] + 1))
    right = rng.random(4000) < true
    weights, turned_out = calibrate(features, right, [i // 4 for i in range(4000)])
    assert chances_of(weights, features) == pytest.approx(true, abs=0.15)
    assert turned_out.calibration_error < 0.03
    assert turned_out.guesses == 4000
    assert turned_out.right == int(right.sum())


def test_too_little_to_learn_from_is_refused() -> None:
    features = np.zeros((40, len(FEATURES)))
    with pytest.raises(InputError, match="of 40 guesses on the examples with answers 3 are right"):
        calibrate(features, np.arange(40) < 3, [0] * 40)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60))
def test_reliability_is_what_its_words_say(pairs: list[tuple[float, bool]]) -> None:
    turned_out = reliability(np.array([c for c, _ in pairs]), np.array([r for _, r in pairs]))
    assert turned_out.brier == pytest.approx(sum((c - r) ** 2 for c, r in pairs) / len(pairs))
    off = 0.0
    for number, stored in enumerate(turned_out.bins):
        own = [(c, r) for c, r in pairs if min(int(c * 10), 9) == number]
        assert (stored is None) == (not own)
        if stored is not None:
            assert stored.guesses == len(own)
            off += abs(sum(c for c, _ in own) - sum(r for _, r in own))
    assert turned_out.calibration_error == pytest.approx(off / len(pairs))


def test_second_guesses_enter_where_they_are_likelier_right() -> None:
    guesses = [found(0, -1.0), found(0, -1.5, (2, 2)), found(1, -9.0)]
    chances = np.array([0.6, 0.3, 0.1])
    assert in_order(guesses, chances, firsts=False) == [0, 1, 2]
    assert in_order(guesses, chances, firsts=True) == [0, 2, 1]
    assert in_order(guesses, np.array([0.1, 0.3, 0.9]), firsts=False) == [2, 1, 0]
