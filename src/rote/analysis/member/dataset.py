"""Whether a model saw a set of texts: suspect texts against held-out ones of the same distribution.

A split deals the groups (texts, where there are none) of either side into halves. On one half scores are standardised,
their tails cut, and weights fitted. On the other the statistic is the suspects' mean of the weighed scores less that of
the held-out texts, and its p-value comes from dealing the sides of the groups out again at random. If the sides are
alike, and the model saw neither or both, that p-value is exact, whichever weights were fitted: they are from other
texts.

P-values of several splits depend on each other in ways that nobody knows. Twice their median is a p-value whatever
these are. The same permutations serve all splits; each split deals the groups anew, so they fall on other groups.

Of 2,000 relabelings of held-out texts 4.9% had a single p-value below 5%, and 0.2% a combined one (200 texts with 17
scores); 4.7% and 0.3% where they were of 40 groups with 1 to 20 texts; 3.5% and none with 16 texts, of which few
permutations are possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.member import blind
from rote.analysis.member.fitting import EXTRACTED, oriented, scaled, weigh
from rote.analysis.member.measures import Bools, Floats, Ints, codes
from rote.errors import counted
from rote.progress import Progress
from rote.store.member import DatasetTest, FalsePositives

SPLITS = 21
PERMUTATIONS = 999
TRIALS = 200
LEVEL = 0.05
SUSPECTS = 8
"""Suspect texts, or groups of them: with fewer, no combined p-value could fall below 5%."""

HELD_OUT = 2 * SUSPECTS
"""Held-out ones, which are halved once more for the check."""

Fit = Callable[[Ints, Bools], tuple[Floats, Floats]]
"""From the places of the fitting half and who is suspect: the scores of all texts, and the weights behind them."""


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """Groups, each wholly of one side: `group` of each text, and which groups are `suspect`."""

    group: Ints
    suspect: Bools

    @property
    def halves(self) -> tuple[int, int]:
        """How many suspect and held-out groups the tested half has."""
        ours = int(self.suspect.sum())
        return ours // 2, (len(self.suspect) - ours) // 2


@dataclass(frozen=True, slots=True)
class Split:
    """What one split comes to: `difference` in deviations of the held-out texts."""

    p: float
    difference: float
    weights: Floats


def dataset_test(
    suspects: pl.DataFrame,
    held_out: pl.DataFrame,
    names: Sequence[str],
    *,
    seed: int,
    progress: Progress,
) -> DatasetTest | str:
    """The test, its check on held-out texts alone, and the same without a model; a sentence where it cannot be made."""
    used = [name for name in names if name not in EXTRACTED]
    columns = [*used, "group", "text", "date"]
    rows = pl.concat([suspects.select(columns), held_out.select(columns)], how="vertical_relaxed")
    suspect = np.arange(rows.height) < suspects.height
    group, groups = codes(rows["group"])
    if refused := _refused(suspect, group, groups, rows["group"], used):
        return refused
    sides = Sides(group, _by_group(suspect, group))
    rng = np.random.default_rng(seed)
    scores = oriented(rows, used)
    chances = permutations(rng, *sides.halves)
    features = blind.features(rows["text"].to_list(), rows["date"].to_list())

    def without(on: Ints, ours: Bools) -> tuple[Floats, Floats]:
        fitted = blind.fit(features, on, ours)
        return fitted.scores, fitted.weights

    found, unseen = [], []
    for number in range(SPLITS):
        tested = halved(rng, sides)
        found.append(split(sides, tested, chances, fitting(scores)))
        unseen.append(split(sides, tested, chances, without).p)
        progress("splits", number + 1, SPLITS)
    p_values = [one.p for one in found]
    weights = np.mean([one.weights for one in found], axis=0)
    return DatasetTest(
        suspects=suspects.height,
        held_out=held_out.height,
        groups=groups,
        splits=SPLITS,
        permutations=PERMUTATIONS,
        p=together(p_values),
        p_values=p_values,
        difference=float(np.median([one.difference for one in found])),
        weights=dict(zip(used, weights.tolist(), strict=True)),
        features=features.words,
        blind=together(unseen),
        blind_p_values=unseen,
        false_positives=false_positives(rng, scores[~suspect], group[~suspect], progress, trials=TRIALS),
    )


def false_positives(
    rng: np.random.Generator, scores: Floats, group: Ints, progress: Progress, *, trials: int
) -> FalsePositives:
    """The test on held-out texts alone, of which a random half plays the suspects."""
    _, group = np.unique(group, return_inverse=True)
    total = int(group.max()) + 1
    suspect = np.arange(total) < total // 2
    chances = permutations(rng, *Sides(group, suspect).halves)
    fit = fitting(scores)
    single = combined = 0
    for trial in range(trials):
        sides = Sides(group, rng.permutation(suspect))
        p_values = [split(sides, halved(rng, sides), chances, fit).p for _ in range(SPLITS)]
        single += p_values[0] < LEVEL
        combined += together(p_values) < LEVEL
        progress("trials", trial + 1, trials)
    return FalsePositives(trials=trials, splits=SPLITS, single=single, combined=combined)


def fitting(scores: Floats) -> Fit:
    """Weights of scores that tell suspects from others in the fitting half, and what they make of all texts."""

    def fit(on: Ints, ours: Bools) -> tuple[Floats, Floats]:
        standard = scaled(scores, on)
        weights = weigh(standard[on], ours[on])
        return standard @ weights, weights

    return fit


def together(p_values: Sequence[float]) -> float:
    """Twice the median, at most 1: valid however the p-values depend on each other."""
    return min(1.0, 2 * float(np.median(p_values)))


def permutations(rng: np.random.Generator, ours: int, others: int) -> NDArray[np.float64]:
    """[permutations, groups]: 1 for the groups that play the suspects, so many as there are."""
    drawn = rng.random((PERMUTATIONS, ours + others)).argsort(axis=1) < ours
    return drawn.astype(np.float64)


def halved(rng: np.random.Generator, sides: Sides) -> Ints:
    """The groups of the half that is tested: the suspect ones, then the held-out ones, in random order."""
    return np.concatenate(
        [
            rng.permutation(np.flatnonzero(own))[:count]
            for own, count in zip((sides.suspect, ~sides.suspect), sides.halves, strict=True)
        ]
    )


def split(sides: Sides, tested: Ints, chances: Floats, fit: Fit) -> Split:
    """The p-value of one split; `tested` are the groups of the tested half, the others are fitted on."""
    inside = np.zeros(len(sides.suspect), dtype=np.bool_)
    inside[tested] = True
    suspect = sides.suspect[sides.group]
    scores, weights = fit(np.flatnonzero(~inside[sides.group]), suspect)
    own = inside[sides.group]
    groups = len(sides.suspect)
    sizes = np.bincount(sides.group[own], minlength=groups)[tested].astype(np.float64)
    middle = scores[own].mean()
    sums = np.bincount(sides.group[own], weights=scores[own] - middle, minlength=groups)[tested].astype(np.float64)
    ours, others = scores[own & suspect], scores[own & ~suspect]
    observed = difference_of_means(sides.suspect[tested].astype(np.float64), sums, sizes)
    permuted = difference_of_means(chances, sums, sizes)
    slack = 1e-9 * float(np.abs(scores[own] - middle).max(initial=0.0))  # what rounding may make of equal ones
    p = (1 + int((permuted >= observed - slack).sum())) / (1 + PERMUTATIONS)
    scale = float(others.std()) or float(scores[own].std()) or 1.0
    return Split(p, float(ours.mean() - others.mean()) / scale, weights)


def difference_of_means(ours: Floats, sums: Floats, sizes: Floats) -> Floats:
    """Of texts: those of the groups that are 1 in `ours`, less those of the others."""
    texts = ours @ sizes
    apart: Floats = ours @ sums / texts - (sums.sum() - ours @ sums) / (sizes.sum() - texts)
    return apart


def _by_group(suspect: Bools, group: Ints) -> Bools:
    sides = np.zeros(int(group.max()) + 1, dtype=np.bool_)
    sides[group[suspect]] = True
    return sides


def _refused(suspect: Bools, group: Ints, groups: int | None, named: pl.Series, used: Sequence[str]) -> str | None:
    """Why there is no test."""
    if not used:
        return "No score has a value for every suspect and held-out text, so nothing was tested."
    both = np.intersect1d(group[suspect], group[~suspect])
    if both.size:
        name = named[int(np.flatnonzero(group == both[0])[0])]
        return (
            f"{counted(both.size, 'group')} ({name!r} for one) {'has' if both.size == 1 else 'have'} suspect and "
            "held-out texts both; a group must stand on one side, so nothing was tested."
        )
    ours, others = (len(np.unique(group[own])) for own in (suspect, ~suspect))
    if ours >= SUSPECTS and others >= HELD_OUT:
        return None
    unit = "text" if groups is None else "group"
    return (
        f"The test needs at least {SUSPECTS} suspect and {HELD_OUT} held-out {unit}s; there are "
        f"{counted(ours, f'suspect {unit}')} and {counted(others, f'held-out {unit}')}."
    )
