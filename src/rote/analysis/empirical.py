"""Computed probabilities against sampled ones: does the model do what p_z says it does?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import bdtr, bdtrc

from rote.errors import InputError
from rote.odds import at_least_once, wilson


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """The chance of the suffix at least once in n generations: computed from p_z, and estimated from the samples."""

    n: int
    computed: float
    sampled: float


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """`hits` of `samples` generations were the suffix. `interval` is the 95% Wilson interval of their share.

    `p_value` is the probability, were `p_z` right, of a number of hits at least as far out (twice the smaller tail).
    """

    p_z: float
    hits: int
    samples: int
    share: float
    interval: list[float]
    p_value: float
    attempts: list[Attempts]


def agreement(p_z: float, hits: int, samples: int, attempts: Sequence[int] = (1, 10, 100)) -> Agreement:
    """How a computed probability and sampled generations agree.

    The sampled chance for n attempts is the share of all choices of n among the samples that hold a hit: unbiased for
    every n up to the number of samples; larger n are left out.
    """
    low, high = wilson(hits, samples)
    return Agreement(
        p_z=p_z,
        hits=hits,
        samples=samples,
        share=hits / samples,
        interval=[low, high],
        p_value=two_sided(p_z, hits, samples),
        attempts=[
            Attempts(n=n, computed=at_least_once(p_z, n), sampled=_chosen(hits, samples, n))
            for n in attempts
            if n <= samples
        ],
    )


def two_sided(p: float, hits: int, samples: int) -> float:
    """Twice the smaller tail of the binomial distribution, at most 1: exact up to rounding."""
    if not 0 <= p <= 1 or not 0 <= hits <= samples or samples < 1:
        raise InputError(f"{hits} hits in {samples} samples at probability {p} is not possible.")
    if p in (0.0, 1.0):
        return float(hits == p * samples)
    above = float(bdtrc(hits - 1, samples, p)) if hits else 1.0
    return min(1.0, 2 * min(float(bdtr(hits, samples, p)), above))


def smallest_of(p_values: Sequence[float]) -> float:
    """How surprising the most surprising of several independent comparisons is, given that there are so many."""
    return -math.expm1(len(p_values) * math.log1p(-min(p_values))) if min(p_values) < 1 else 1.0


def spread_over(log_probs: Sequence[float], count: int, samples: int) -> list[int]:
    """Which of many passages to check: at most `count`, evenly spread over the logarithm of the odds.

    Only those for which `samples` generations can tell something are chosen: at least one hit and one miss expected.
    """
    least = math.log(1 / samples)
    odds = {
        i: value - math.log(-math.expm1(value))
        for i, value in enumerate(log_probs)
        if least <= value <= math.log1p(-1 / samples)
    }
    left = sorted(odds, key=lambda i: (odds[i], i))
    if len(left) <= count:
        return left
    low, high = odds[left[0]], odds[left[-1]]
    chosen: list[int] = []
    for step in range(count):
        wanted = low + (high - low) * step / max(count - 1, 1)
        nearest = min(left, key=lambda i: (abs(odds[i] - wanted), i))
        left.remove(nearest)
        chosen.append(nearest)
    return sorted(chosen, key=lambda i: (odds[i], i))


def _chosen(hits: int, samples: int, n: int) -> float:
    if not hits:
        return 0.0
    if samples - hits < n:
        return 1.0
    missed = [math.lgamma(1 + k) for k in (samples - hits, samples - hits - n, samples, samples - n)]
    return -math.expm1(missed[0] - missed[1] - missed[2] + missed[3])
