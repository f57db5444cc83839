"""Texts dealt into parts by group, and scores put together with weights that are fitted on some of the texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from rote.analysis.member.measures import Bools, Floats, Ints, Texts
from rote.errors import InputError, counted
from rote.membership.scores import BY_NAME

FOLDS = 5
FEWEST = 2
"""Texts, or groups, of either class that an evaluation needs."""

EXTRACTED = ("best_window", "near_lower")
"""Scores that may be -inf; they are not put together with others."""

PENALTY = 1.0
"""Of the weights, where every score has a variance of 1."""

TAILS = (0.025, 0.975)
"""Scores beyond these quantiles are taken for them."""

LARGEST = 1e300


def oriented(rows: pl.DataFrame, names: Sequence[str]) -> Floats:
    """[texts, scores], all so that large means seen."""
    table = np.empty((rows.height, len(names)))
    for place, name in enumerate(names):
        column = rows[name]
        values = column.cast(pl.Float64).to_numpy()
        if column.null_count() or np.isnan(values).any():
            raise InputError(f"the score {name!r} has no value for some of the texts; leave it out, or these texts.")
        table[:, place] = values * BY_NAME[name].sign
    return table


def deal(texts: Texts, seed: int, most: int = FOLDS) -> Ints | None:
    """For each text its part, 0, 1, ...: every part has groups of both classes; None where not even two can.

    Groups are dealt out in the order of their sizes, each to the part that has least of its classes.
    """
    rng = np.random.default_rng(seed)
    sizes = np.zeros((int(texts.group.max(initial=-1)) + 1, 2))
    np.add.at(sizes, (texts.group, texts.member.astype(np.int64)), 1)
    shuffled = rng.permutation(len(sizes))
    order = shuffled[np.argsort(-sizes[shuffled].sum(1), kind="stable")]
    total = sizes.sum(0)
    for parts in range(min(most, texts.fewest), 1, -1):
        part, held = np.zeros(len(sizes), dtype=np.int64), np.zeros((parts, 2))
        for group in order:
            crowded = (held * sizes[group] / total**2).sum(1)
            part[group] = np.lexsort((held.sum(1), crowded))[0]
            held[part[group]] += sizes[group]
        if held.all():
            return part[texts.group]
    return None


def too_few(texts: Texts, after: str = "") -> str:
    """Why these texts cannot be evaluated; `after`: what was done to them before."""
    have = []
    for own, word in ((texts.member, "member"), (~texts.member, "non-member")):
        of = f" of {counted(texts.units(own), 'group')}" if texts.grouped else ""
        have.append(f"{counted(int(own.sum()), word)}{of}")
    if texts.grouped:
        needed = f"members of at least {FEWEST} groups and non-members of {FEWEST}, in parts that share no group"
    else:
        needed = f"at least {FEWEST} members and {FEWEST} non-members"
    return f"An evaluation needs {needed}; there are {' and '.join(have)}{after}."


def scaled(scores: Floats, on: Ints) -> Floats:
    """Scores with their tails cut, by mean and deviation, as those of the texts `on` say; 0 where these are all one."""
    low, high = np.quantile(np.clip(scores[on], -LARGEST, LARGEST), TAILS, axis=0)
    half = high / 2 - low / 2
    flat = ~(half > 0)
    within = (np.clip(scores, low, high) - (high / 2 + low / 2)) / np.where(flat, 1.0, half)  # in [-1, 1]
    mean, deviation = within[on].mean(0), within[on].std(0)
    flat |= ~(deviation > 1e-9)
    standard: Floats = np.where(flat, 0.0, (within - mean) / np.where(flat, 1.0, deviation))
    return standard


def weigh(scores: Floats, member: Bools) -> Floats:
    """The weights that tell members from others best, by ridge regression; without their signs they sum to 1.

    Both classes count the same, however many texts they have. A weight may be negative: of two scores that are alike in
    what makes a text hard, the difference tells more. But texts that the model finds more surprising than others are no
    evidence that it saw them, however well that tells them apart. So where more of the difference comes from scores
    that count against the direction that means seen than from those that count in it, all count alike, and in it.
    """
    one, other = scores[member], scores[~member]
    apart = one.mean(0) - other.mean(0)
    middle = (one.mean(0) + other.mean(0)) / 2
    spread = (one.T @ one / len(one) + other.T @ other / len(other)) / 2 - np.outer(middle, middle)
    weights: Floats = np.linalg.solve(spread + PENALTY * np.eye(len(apart)), apart)
    comes_from = weights * apart
    if not comes_from[weights > 0].sum() > comes_from[weights < 0].sum():
        weights = np.ones(len(apart))
    weights /= np.abs(weights).sum()
    return weights


def aligned(scores: Floats, member: Bools, part: Ints) -> Floats:
    """Scores that were fitted for each part by itself, as ranks in their part: in [0, 1], to be compared between parts.

    The rank is the mean of that among the part's members and that among its non-members, so that a part with more of
    one kind than others does not stand above or below them. The order within a part stays; and where labels tell
    nothing, the AUROC over all parts is 0.5 on the mean.
    """
    ranks = np.zeros(len(scores))
    for number in np.unique(part):
        own = part == number
        for which in (own & member, own & ~member):
            beside = np.sort(scores[which])
            below = np.searchsorted(beside, scores[own], "left") + np.searchsorted(beside, scores[own], "right")
            ranks[own] += below / (4 * len(beside))
    return ranks
