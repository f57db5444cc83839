"""(n, p) arithmetic against 1,200-digit decimals, over every float from 5e-324 to 1."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.stats import beta, binom

import rote.odds as module
from rote.errors import InputError
from rote.odds import at_least_once, at_most, expected_queries, queries_needed, wilson
from tests.cases import cases
from tests.reference import odds as reference
from tests.reference.sampling import score_interval

ULPS = Decimal(6) * Decimal(2) ** -53
SMALLEST = Decimal("5e-324")
LOOKS = 6

probabilities = st.one_of(
    st.floats(0, 1),
    st.floats(-300, 0).map(lambda exponent: 10.0**exponent),  # floats() alone rarely visits the middle of the range
    st.floats(-16, -1).map(lambda exponent: 1 - 10.0**exponent),
    st.sampled_from([0.0, 5e-324, 1e-310, 2.0**-53, 1e-18, 0.001, 0.1, 0.5, 0.9, 0.99, 1 - 2.0**-53, 1.0]),
)
wanted = st.one_of(probabilities, st.sampled_from([0.1, 0.5, 0.75, 0.9, 0.99, 0.999999]))
counts = st.one_of(st.integers(0, 10**6), st.integers(0, 2**70), st.integers(0, 10**330))
checked = cases(100)


@checked
@given(probabilities, counts)
@example(5e-324, 10**323)
@example(5e-324, 10**400)
@example(1.0, 10**400)
def test_at_least_once_is_the_truth_within_units_in_the_last_place(p_z: float, n: int) -> None:
    truth = reference.at_least_once(p_z, n)
    computed = at_least_once(p_z, n)
    assert 0 <= computed <= 1
    assert abs(Decimal(computed) - truth) <= ULPS * truth + SMALLEST


def test_does_not_underflow_where_the_naive_formula_does() -> None:
    assert 1 - (1 - 1e-18) ** 2**62 == 0.0  # what peers compute
    assert at_least_once(1e-18, 2**62) == pytest.approx(0.990064, abs=1e-6)
    assert queries_needed(1e-18, at_least=0.99) == pytest.approx(math.log(100) * 1e18, rel=1e-12)


@given(probabilities)
def test_none_and_one_generation_are_exact(p_z: float) -> None:
    assert at_least_once(p_z, 0) == 0.0
    assert at_least_once(p_z, 1) == p_z
    assert math.copysign(1, at_least_once(p_z, 0)) == 1


@cases(500)
@given(probabilities, counts, st.integers(1, 10**4))
@example(0.3, 1, 1)
@example(5e-324, int(1.7976931348623157e308), 2**971)  # across the largest float
def test_more_generations_never_lower_the_probability(p_z: float, n: int, more: int) -> None:
    steps = [at_least_once(p_z, n + i * more) for i in range(5)]
    assert steps == sorted(steps)


@cases(500)
@given(probabilities, counts)
def test_a_likelier_suffix_never_lowers_the_probability(p_z: float, n: int) -> None:
    steps = [p_z]
    for _ in range(4):
        steps.append(min(math.nextafter(steps[-1], 2), 1.0))
    values = [at_least_once(step, n) for step in steps]
    assert values == sorted(values)


@checked
@given(probabilities, wanted)
@example(5e-324, 0.99)
@example(5e-324, 1 - 2.0**-53)
@example(1e-17, 1 - 2.0**-53)
@example(3.5980884928757975e-18, 0.24751737469331872)  # the quotient of logarithms falls short, by one step or two
@example(1.8646423130968383e-20, 0.4053527334944416)
@example(2.6080737254732688e-241, 0.11769427266666634)
@example(5.868756271829064e-142, 0.22691216691702046)
def test_queries_needed_is_where_the_probability_crosses(p_z: float, at_least: float) -> None:
    n = queries_needed(p_z, at_least=at_least)
    if n == math.inf:
        assert reference.queries_needed(p_z, at_least) is None
        return
    assert isinstance(n, int)
    assert at_least_once(p_z, n) >= at_least
    assert n == 1 or at_least_once(p_z, n - 1) < at_least
    # In exact arithmetic, too, up to the rounding of at_least_once.
    slack = ULPS * Decimal(at_least) + SMALLEST
    assert reference.at_least_once(p_z, n) >= Decimal(at_least) - slack
    assert n == 1 or reference.at_least_once(p_z, n - 1) < Decimal(at_least) + slack


@checked
@given(st.floats(1e-4, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_queries_needed_equals_exact_arithmetic_off_the_border(p_z: float, at_least: float) -> None:
    truth = reference.queries_needed(p_z, at_least)
    assert truth is not None
    for neighbour in (truth - 1, truth):
        assume(abs(reference.at_least_once(p_z, neighbour) - Decimal(at_least)) > ULPS * Decimal(at_least))
    assert queries_needed(p_z, at_least=at_least) == truth


@cases(500)
@given(probabilities, st.integers(1, 10**6))
def test_queries_needed_inverts_at_least_once(p_z: float, n: int) -> None:
    reached = at_least_once(p_z, n)
    assume(reached < 1)
    needed = queries_needed(p_z, at_least=reached)
    assert needed <= n
    if needed < n:  # only where the floats between have run out
        assert at_least_once(p_z, int(needed)) == reached


def test_the_quotient_of_logarithms_alone_misses() -> None:
    missed = 0
    for n in range(2, 1000):
        at_least = at_least_once(0.01, n)
        quotient = math.ceil(math.log1p(-at_least) / math.log1p(-0.01))
        missed += quotient != n
        assert queries_needed(0.01, at_least=at_least) == n
    assert missed > 10


@given(probabilities)
def test_the_probability_itself_needs_one_query(p_z: float) -> None:
    assert queries_needed(p_z, at_least=p_z) == 1


def test_ends_of_the_range() -> None:
    assert queries_needed(0.0, at_least=0.5) == math.inf
    assert queries_needed(0.0, at_least=0.0) == 1
    assert queries_needed(0.5, at_least=0.0) == 1
    assert queries_needed(1 - 2.0**-53, at_least=1.0) == math.inf
    assert queries_needed(1.0, at_least=1.0) == 1
    assert queries_needed(1.0, at_least=0.5) == 1
    assert queries_needed(0.5, at_least=0.75) == 2
    assert queries_needed(0.5, at_least=0.875) == 3
    assert 10**323 < queries_needed(5e-324, at_least=0.9) < 10**324
    assert str(at_least_once(0.0, 10**400)) == "0.0"  # and not -0.0
    assert at_least_once(1.0, 10**400) == 1.0
    assert at_least_once(1.0, 0) == 0.0


def test_a_few_looks_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search begins next to its end. From further away it would find the same, for every row of a large table."""
    looks = 0
    look = module._at_least_once

    def counted(p_z: float, n: int) -> float:
        nonlocal looks
        looks += 1
        return look(p_z, n)

    monkeypatch.setattr(module, "_at_least_once", counted)
    for exponent in range(1, 13):
        for at_least in (0.1, 0.5, 0.9, 0.99, 0.999):
            looks = 0
            queries_needed(0.7 * 10.0**-exponent, at_least=at_least)
            assert looks <= LOOKS
    for p_z in (5e-324, 1e-200, 1e-30):  # where floats lie apart by more than one query: a few for each binary digit
        looks = 0
        queries_needed(p_z, at_least=0.5)
        assert looks <= 1100


def test_numpy_numbers_are_numbers() -> None:
    assert at_least_once(np.float64(0.5), np.int64(2)) == 0.75  # type: ignore[arg-type]
    assert type(at_least_once(np.float64(0.5), 1)) is float


def test_expected_queries() -> None:
    assert expected_queries(0.25) == 4
    assert expected_queries(1) == 1
    assert expected_queries(0.0) == math.inf
    assert expected_queries(5e-324) == math.inf  # 2e323 is no float


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, math.inf, None, "half"])
def test_not_a_probability(bad: Any) -> None:
    with pytest.raises(InputError, match="p_z"):
        at_least_once(bad, 1)
    with pytest.raises(InputError, match="p_z"):
        queries_needed(bad, at_least=0.5)
    with pytest.raises(InputError, match="at_least"):
        queries_needed(0.5, at_least=bad)
    with pytest.raises(InputError, match="p_z"):
        expected_queries(bad)


@pytest.mark.parametrize("bad", [-1, 2.5, math.inf, None])
def test_not_a_number_of_generations(bad: Any) -> None:
    with pytest.raises(InputError, match="n is a number of generations"):
        at_least_once(0.5, bad)


# --- Wilson's interval


@cases(200)
@given(st.floats(0, 1), st.one_of(st.integers(1, 10**6), st.floats(0.5, 1e4)), st.floats(0.01, 0.999))
@example(0.0, 10, 0.95)
@example(1.0, 10, 0.95)
@example(0.3, 10, 0.5)
def test_wilsons_interval_is_every_share_that_the_observed_one_is_no_surprise_for(
    share: float, total: float, level: float
) -> None:
    successes = share * total
    ends = score_interval(successes / total, total, NormalDist().inv_cdf(0.5 + level / 2))
    assert wilson(successes, total, level) == pytest.approx(ends, abs=1e-7)


def test_wilsons_interval_by_hand() -> None:
    # z * z = 3.84146 for 95%: (3 + 1.92073) / 13.84146 -+ 1.95996 * sqrt(2.1 + 0.96036) / 13.84146
    assert wilson(3, 10) == pytest.approx((0.107791, 0.603222), abs=1e-6)
    assert wilson(3, 10) == wilson(3, 10, 0.95)
    assert wilson(7, 10) == pytest.approx((1 - 0.603222, 1 - 0.107791), abs=1e-6)
    assert wilson(0, 10) == pytest.approx((0.0, 3.841459 / 13.841459))
    assert wilson(10, 10) == pytest.approx((10 / 13.841459, 1.0))
    assert (wilson(0, 10)[0], wilson(10, 10)[1]) == (0.0, 1.0)  # exactly
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0.5, 0.5) == pytest.approx((0.5 / 4.341459, 1.0))


@given(st.floats(0, 1e-12), st.floats(0.5, 1e5))
@example(1e-16, 2.0)
def test_wilsons_interval_stays_within_0_and_1_however_it_is_rounded(few: float, total: float) -> None:
    for successes in (few, total - few):
        low, high = wilson(successes, total)
        assert 0 <= low <= high <= 1
        assert (low == 0) >= (successes == 0)
        assert (high == 1) >= (successes == total)


def test_no_share() -> None:
    for successes, total in ((-1, 3), (4, 3), (-1e-9, 0), (1e-9, 0), (math.nan, 3)):
        with pytest.raises(InputError, match="successes must lie between 0 and the total"):
            wilson(successes, total)
    for level in (0, 1, -0.5, 1.5, math.nan):
        with pytest.raises(InputError, match="level must lie between 0 and 1"):
            wilson(1, 2, level=level)


# --- the limit of Clopper and Pearson


@cases(60)
@given(st.data(), st.integers(0, 30), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_limit_is_the_share_at_which_so_few_hits_would_be_a_surprise(
    data: st.DataObject, draws: int, level: float
) -> None:
    hits = data.draw(st.integers(0, draws))
    limit = at_most(hits, draws, level)
    assert limit == pytest.approx(float(reference.share_at_most(hits, draws, Fraction(str(level)))), abs=1e-10)
    if hits < draws:
        assert limit == pytest.approx(beta.ppf(level, hits + 1, draws - hits), rel=1e-9)
        assert limit < at_most(hits + 1, draws, level)
        assert binom.cdf(hits, draws, limit) == pytest.approx(1 - level, rel=1e-9)


def test_the_limit_by_hand() -> None:
    assert at_most(0, 1000) == pytest.approx(1 - 0.05 ** (1 / 1000), rel=1e-12) == pytest.approx(0.0029912, abs=1e-7)
    assert at_most(0, 1000) == at_most(0, 1000, 0.95)
    assert at_most(1, 2) == pytest.approx(math.sqrt(0.95), rel=1e-12)  # both hit with the chance p * p
    assert (at_most(3, 3), at_most(0, 0)) == (1.0, 1.0)
    assert at_most(0, 10**9) == pytest.approx(-math.log(0.05) / 1e9, rel=1e-6)


def test_no_limit() -> None:
    for hits, draws in ((-1, 3), (4, 3), (1, 0), (0, -1)):
        with pytest.raises(InputError, match="hits must lie between 0 and the"):
            at_most(hits, draws)
    for level in (0, 1, -0.5, 1.5, math.nan):
        with pytest.raises(InputError, match="level must lie between 0 and 1"):
            at_most(1, 2, level=level)
