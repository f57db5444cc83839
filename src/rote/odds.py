"""The (n, p) arithmetic: from the probability of one generation to that of n, and back.

`p_z` is the probability that one generation is the suffix. Generations are independent, so the suffix appears at least
once in n of them with probability P(n) = 1 - (1 - p_z)**n. That expression is 0.0 in floats for every p_z below 1e-16;
the one used here, -expm1(n * log1p(-p_z)), keeps its relative accuracy for every p_z and n.
"""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from statistics import NormalDist

from rote.errors import InputError


def at_least_once(p_z: float, n: int) -> float:
    """The probability that at least one of `n` generations is the suffix, within a few units in the last place.

    Exact for n = 0 (0) and n = 1 (`p_z`). Rounded to a float, so 1.0 also means "closer to 1 than a float can say".
    """
    try:
        count = operator.index(n)
    except TypeError:
        count = -1
    if count < 0:
        raise InputError(f"n is a number of generations and must be a whole number of at least 0, not {n!r}.")
    return _at_least_once(_probability("p_z", p_z), count)


def queries_needed(p_z: float, *, at_least: float) -> int | float:
    """The smallest number of generations n >= 1 with `at_least_once(p_z, n) >= at_least`; math.inf where there is none.

    An int of any size: 5e-324 needs about 10**323. `at_least=1` is never reached (math.inf) unless `p_z` is 1, although
    at_least_once rounds to 1.0 for large n; `at_least=0` needs 1.

    "Smallest" refers to at_least_once as computed. It does not fall as n grows unless the platform's expm1 falls
    between neighbouring floats (none was found to); even then the result n is a crossing:
    at_least_once(p_z, n) >= at_least > at_least_once(p_z, n - 1). Where neighbouring n share one float P(n) (n above
    about 2**50, or `at_least` within rounding of 1) it may differ from the n of exact arithmetic: it is the n at which
    P(n) is `at_least` up to a few units in the last place.
    """
    p_z = _probability("p_z", p_z)
    at_least = _probability("at_least", at_least)
    if at_least <= p_z:
        return 1
    if p_z == 0 or at_least == 1:
        return math.inf
    # As a fraction, because the quotient of two floats may be too large for a float.
    start = math.ceil(Fraction(math.log1p(-at_least)) / Fraction(math.log1p(-p_z)))
    # Rounding may put the start on either side of the crossing. Walk until low misses and high reaches, in growing
    # steps (as a float, P may be flat over 2**1000 neighbours: single steps would never end), then bisect.
    step = 1 + (start >> 53)
    low = high = start
    while _at_least_once(p_z, low) >= at_least:  # ends at 1 at the latest: p_z itself is below
        low, high = max(low - step, 1), low
        step *= 2
    while _at_least_once(p_z, high) < at_least:
        low, high = high, high + step
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if _at_least_once(p_z, middle) >= at_least:
            high = middle
        else:
            low = middle
    return high


def expected_queries(p_z: float) -> float:
    """The mean number of generations until the first that is the suffix: 1 / p_z.

    math.inf for 0, and for p_z below 6e-309, where the mean is larger than any float.
    """
    p_z = _probability("p_z", p_z)
    return 1 / p_z if p_z > 0 else math.inf


def wilson(successes: float, total: float, level: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval for a share: exactly 0 at its lower end for no success, exactly 1 at its upper for all.

    A total of 0 says nothing: (0, 1). An effective total, as of examples that are alike, need not be whole.
    """
    if not 0 <= successes <= total:
        raise InputError(f"successes must lie between 0 and the total of {total}, not {successes}.")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, not {level}.")
    if total == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = (successes + z * z / 2) / (total + z * z)
    half = z * math.sqrt(successes * (total - successes) / total + z * z / 4) / (total + z * z)
    low = 0.0 if successes == 0 else max(centre - half, 0.0)
    high = 1.0 if successes == total else min(centre + half, 1.0)
    return low, high


def at_most(hits: int, draws: int, level: float = 0.95) -> float:
    """The one-sided Clopper-Pearson limit: a share of which `hits` in `draws` are seen is at most this large.

    1 where every draw is a hit, and where there is none.
    """
    if not 0 <= hits <= draws:
        raise InputError(f"hits must lie between 0 and the {draws} draws, not {hits}.")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, not {level}.")
    if hits == draws:
        return 1.0
    from scipy.special import betaincinv

    return float(betaincinv(hits + 1, draws - hits, level))


def _at_least_once(p_z: float, n: int) -> float:
    if n == 0 or p_z == 0:
        return 0.0
    if n == 1 or p_z == 1:
        # log1p(-1) has no value, and expm1 after log1p misses p_z itself by one unit for one p_z in a hundred.
        return p_z
    log_miss = math.log1p(-p_z)
    try:
        exponent = n * log_miss
    except OverflowError:  # n is larger than any float, the product need not be
        exponent = float(max(n * Fraction(log_miss), Fraction(-1000)))
    return -math.expm1(exponent)


def _probability(name: str, value: float) -> float:
    try:
        valid = 0 <= value <= 1  # false for NaN
    except TypeError:
        valid = False
    if not valid:
        raise InputError(f"{name} is a probability and must be a number in [0, 1], not {value!r}.")
    return float(value)
