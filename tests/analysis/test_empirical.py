"""Sampled shares against computed probabilities: exact tails, and every choice of n samples enumerated."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.empirical import agreement, smallest_of, spread_over, two_sided
from rote.errors import InputError


def binomial(p: Fraction, samples: int) -> list[Fraction]:
    return [math.comb(samples, k) * p**k * (1 - p) ** (samples - k) for k in range(samples + 1)]


@given(st.integers(0, 40), st.integers(1, 40), st.fractions(0, 1, max_denominator=50))
def test_tails_are_those_of_exact_arithmetic(hits: int, samples: int, p: Fraction) -> None:
    hits = min(hits, samples)
    mass = binomial(p, samples)
    expected = min(Fraction(1), 2 * min(sum(mass[: hits + 1]), sum(mass[hits:])))
    assert two_sided(float(p), hits, samples) == pytest.approx(float(expected), rel=1e-9, abs=1e-15)


@given(st.integers(1, 9).flatmap(lambda m: st.tuples(st.just(m), st.integers(0, m), st.integers(1, m))))
def test_the_sampled_chance_counts_every_choice_of_n_samples(case: tuple[int, int, int]) -> None:
    samples, hits, n = case
    outcomes = [i < hits for i in range(samples)]
    choices = list(combinations(outcomes, n))
    found = agreement(0.5, hits, samples, attempts=[n, samples + 1]).attempts
    assert [a.n for a in found] == [n]  # more than there are samples: nothing to say
    assert found[0].sampled == pytest.approx(sum(map(any, choices)) / len(choices))


def test_nothing_sampled_is_zero_and_not_less() -> None:
    assert [str(a.sampled) for a in agreement(0.001, 0, 300).attempts] == ["0.0"] * 3


def test_large_samples_do_not_overflow() -> None:
    assert two_sided(1e-6, 1, 1_000_000) == pytest.approx(1.0, abs=0.3)
    assert two_sided(0.5, 400_000, 1_000_000) < 1e-300


def test_p_values_of_right_probabilities_are_no_smaller_than_they_say() -> None:
    rng = np.random.default_rng(0)
    values = [two_sided(0.3, int(h), 60) for h in rng.binomial(60, 0.3, size=2000)]
    for level in (0.01, 0.05, 0.2):
        assert np.mean(np.array(values) <= level) <= level + 0.01
    assert smallest_of([1.0, 1.0]) == 1.0
    assert smallest_of([0.01] * 100) == pytest.approx(1 - 0.99**100)


def test_passages_are_spread_over_what_samples_can_tell() -> None:
    probabilities = [0.0, 1e-9, 0.001, 0.01, 0.1, 0.5, 0.5, 0.9, 0.99, 0.9999, 1.0]
    logs = [math.log(p) if p else -math.inf for p in probabilities]
    assert spread_over(logs, 20, 1000) == [2, 3, 4, 5, 6, 7, 8]
    assert spread_over([-math.inf, 0.0], 5, 10) == []
    chosen = spread_over(logs, 4, 1000)
    assert len(set(chosen)) == 4
    assert chosen[0] == 2
    assert chosen[-1] == 8


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(InputError):
        two_sided(0.5, 3, 2)
    assert two_sided(0.0, 0, 5) == 1.0
    assert two_sided(0.0, 1, 5) == 0.0
    assert two_sided(1.0, 5, 5) == 1.0
