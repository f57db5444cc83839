"""Members against non-members one pair, one threshold, one permutation at a time."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, product


def auroc(members: Sequence[float], others: Sequence[float]) -> Fraction:
    won = Fraction(0)
    for one in members:
        for other in others:
            if one > other:
                won += 1
            elif one == other:
                won += Fraction(1, 2)
    return won / (len(members) * len(others))


def tpr_at(members: Sequence[float], others: Sequence[float], one_in: int) -> Fraction:
    """Every threshold is tried, and one above all scores."""
    best = Fraction(0)
    for threshold in {*members, *others}:
        wrong = sum(score >= threshold for score in others)
        if Fraction(wrong, len(others)) <= Fraction(1, one_in):
            best = max(best, Fraction(sum(score >= threshold for score in members), len(members)))
    return best


def f_beta(found: int, wrong: int, members: int) -> Fraction:
    """From precision and recall, with a beta of 0.1."""
    if not found:
        return Fraction(0)
    precision, recall, square = Fraction(found, found + wrong), Fraction(found, members), Fraction(1, 100)
    return (1 + square) * precision * recall / (square * precision + recall)


def threshold(members: Sequence[float], others: Sequence[float]) -> float:
    """That with the best F-beta; the highest of those."""
    best, chosen = Fraction(-1), 0.0
    for score in sorted({*members, *others}, reverse=True):
        value = f_beta(sum(one >= score for one in members), sum(one >= score for one in others), len(members))
        if value > best:
            best, chosen = value, score
    return chosen


def random_f_beta(members: int, others: int) -> Fraction:
    """The mean over all ways to call each text a member or not."""
    total = Fraction(0)
    for calls in product((False, True), repeat=members + others):
        total += f_beta(sum(calls[:members]), sum(calls[members:]), members)
    return total / 2 ** (members + others)


def random_tpr(others: int, one_in: int) -> Fraction:
    """A member may stand in any place among the non-members; it is found if at most the allowed ones stand above."""
    return Fraction(sum(above <= others // one_in for above in range(others + 1)), others + 1)


def difference(ours: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> float:
    """Of the means over texts of groups."""
    one, two = [score for group in ours for score in group], [score for group in others for score in group]
    return sum(one) / len(one) - sum(two) / len(two)


def exact_p(groups: Sequence[Sequence[float]], suspects: int) -> float:
    """The share of all ways to choose so many groups that differ at least as much as the first ones."""
    observed = difference(groups[:suspects], groups[suspects:])
    ways = hits = 0
    for chosen in combinations(range(len(groups)), suspects):
        rest = [group for place, group in enumerate(groups) if place not in chosen]
        ways += 1
        hits += difference([groups[place] for place in chosen], rest) >= observed - 1e-9
    return hits / ways


def permutation_p(groups: Sequence[Sequence[float]], suspects: int, drawn: Sequence[Sequence[bool]]) -> float:
    """By permutations that were drawn: which groups play the suspects in each."""
    observed = difference(groups[:suspects], groups[suspects:])
    hits = 0
    for playing in drawn:
        ours = [group for group, plays in zip(groups, playing, strict=True) if plays]
        others = [group for group, plays in zip(groups, playing, strict=True) if not plays]
        hits += difference(ours, others) >= observed - 1e-9
    return (1 + hits) / (1 + len(drawn))


def quantile(values: Sequence[float], share: float) -> float:
    """Between the two values beside it."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def scaled(values: Sequence[float], on: Sequence[int]) -> list[float]:
    """Cut at the quantiles of those `on`, then by their mean and deviation."""
    fitting = [values[place] for place in on]
    low, high = quantile(fitting, 0.025), quantile(fitting, 0.975)
    cut = [min(max(value, low), high) for value in values]
    mean = sum(cut[place] for place in on) / len(on)
    deviation = (sum((cut[place] - mean) ** 2 for place in on) / len(on)) ** 0.5
    return [(value - mean) / deviation if deviation else 0.0 for value in cut]
