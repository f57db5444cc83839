"""Rates over examples that were drawn document by document: intervals that know it, runs, and differences of groups.

Examples of one document are alike, so they tell less than as many examples of different documents. The interval of a
rate therefore rests on an effective number of examples: how many independent ones would leave the rate as uncertain as
these do. It is the number of examples over the design effect, which is estimated from how far the documents' own
rates scatter (the linearised variance of a ratio) and never taken below 1. It is smaller still where few documents
leave that estimate itself uncertain (Student's t in place of the normal distribution). A rate of exactly 0 or 1 shows
no scatter at all: then every document counts as one example, the least that it can be worth. The interval is Wilson's
on the effective number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist, mean, stdev
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import stdtrit

from rote.analysis.rates import log_prob_bounds, rates
from rote.errors import InputError
from rote.odds import wilson
from rote.store.summary import Difference, OddsDifference, Rate, Rates, SplitDifference, SplitRates

AnyRate = TypeVar("AnyRate", bound=Rate)
HELD_OUT = "held-out"

MOST_GROUPS = 12
"""More distinct counts of repetitions than this are put together."""

_ORIGIN = ("corpus", "document", "run")


def documents_of(scores: pl.DataFrame) -> NDArray[np.int64]:
    """For each row (see `with_origin`) the number of its document, 0, 1, ...: one for all runs it was drawn in."""
    return _codes(scores, "corpus", "document")


def with_origin(scores: pl.DataFrame) -> pl.DataFrame:
    """The table with where each example was drawn, from its metadata: `corpus`, `document` and `run`."""
    log_prob_bounds(scores, "metadata")
    table = scores.with_columns(pl.col("metadata").str.json_path_match(f"$.{name}").alias(name) for name in _ORIGIN)
    for name in _ORIGIN:
        if table[name].null_count():
            row = table.row(int(table[name].is_null().arg_max() or 0), named=True)
            raise InputError(f"example {row['example_id']!r} has no {name} in its metadata; rote rate did not draw it.")
    return table.with_columns(pl.col("run").cast(pl.Int64))


def binned_repetitions(scores: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Rows whose `repetitions` are put together by powers of two where they have many values, and whether they were.

    A group is then named by the power of two that it begins with: 4 stands for 4 to 7. 0 stays 0.
    """
    if scores["repetitions"].n_unique() <= MOST_GROUPS:
        return scores, False
    power = pl.col("repetitions").map_elements(lambda n: 1 << (n.bit_length() - 1) if n > 0 else 0, pl.Int64)
    return scores.with_columns(power), True


def sampled_rates(
    scores: pl.DataFrame,
    *,
    tau: float = 0.001,
    numeric_tolerance: float = 0.001,
    border_tolerance: float = 0.001,
) -> Rates:
    """What `rates` says of drawn rows (see `with_origin`), every rate with its runs and what its interval rests on.

    Also `documents`: how many different ones there are. A document drawn in several runs is one: its examples are alike
    whichever run they are of.
    """
    every = rates(scores, tau=tau, numeric_tolerance=numeric_tolerance, border_tolerance=border_tolerance)
    lower, upper = log_prob_bounds(scores)
    document = documents_of(scores)
    run = _codes(scores, "run")

    def drawn(rate: AnyRate, *, greedy: bool = False) -> AnyRate:
        if greedy:
            certain_hits, possible_hits = (scores["greedy"].fill_null(known).to_numpy() for known in (False, True))
        else:
            possible = round(rate.rate_upper * scores.height)
            certain_hits, possible_hits = _likeliest(lower, rate.count), _likeliest(upper, possible)
        low, _, effective = document_interval(certain_hits, document)
        _, high, _ = document_interval(possible_hits, document)
        by_run = [float(share) for share in np.bincount(run, weights=certain_hits) / np.bincount(run)]
        return replace(
            rate,
            interval=[low, high],
            effective=effective,
            by_run=by_run,
            mean=mean(by_run),
            deviation=stdev(by_run) if len(by_run) > 1 else None,
        )

    return replace(
        every,
        greedy_rate=drawn(every.greedy_rate, greedy=True),
        rate_at_tau=drawn(every.rate_at_tau),
        rate_at_1e_4=drawn(every.rate_at_1e_4),
        maximum_rate=drawn(every.maximum_rate),
        np_table=[drawn(cell) for cell in every.np_table],
        documents=int(document.max()) + 1,
    )


def differences(by_split: Sequence[SplitRates]) -> list[SplitDifference]:
    """Each split's rates less those of the control, as `Difference`s under the names of the rates.

    The control is the split "held-out" or, if there are but two splits and one is "train", the other. Empty where there
    is no control.
    """
    groups = {group.split: group for group in by_split if group.split is not None}
    others = sorted(groups.keys() - {"train"})
    if HELD_OUT in groups:
        control = HELD_OUT
    elif "train" in groups and len(others) == 1:
        control = others[0]
    else:
        return []
    base = groups[control]
    return [
        SplitDifference(
            split=split,
            control=control,
            greedy_rate=difference(group.greedy_rate, base.greedy_rate),
            rate_at_tau=difference(group.rate_at_tau, base.rate_at_tau),
            rate_at_1e_4=difference(group.rate_at_1e_4, base.rate_at_1e_4),
            maximum_rate=difference(group.maximum_rate, base.maximum_rate),
            np_table=[
                OddsDifference(n=cell.n, p=cell.p, **vars(difference(cell, other)))
                for cell, other in zip(group.np_table, base.np_table, strict=True)
            ],
        )
        for split, group in groups.items()
        if split != control
    ]


def difference(rate: Rate, control: Rate) -> Difference:
    """A rate less a control's; the two are of different documents."""
    least, most = rate.rate - control.rate_upper, rate.rate_upper - control.rate
    low = math.hypot(rate.rate - rate.interval[0], control.interval[1] - control.rate_upper)
    high = math.hypot(rate.interval[1] - rate.rate_upper, control.rate - control.interval[0])
    return Difference(
        difference=least,
        difference_upper=most,
        interval=[max(least - low, -1.0), min(most + high, 1.0)],
    )


def document_interval(hits: NDArray[Any], document: NDArray[np.int64]) -> tuple[float, float, float]:
    """The 95% interval of the share of hits, and the effective number of examples it rests on.

    `hits` says of each example whether it is one, `document` which document (0, 1, ...) it is of.
    """
    effective = effective_examples(hits, document)
    low, high = wilson(float(np.mean(hits)) * effective, effective)
    return low, high, effective


def effective_examples(values: NDArray[Any], document: NDArray[np.int64]) -> float:
    """How many independent examples would leave the mean of `values` as uncertain as these do: see the module."""
    value = values.astype(np.float64)
    sizes, sums = np.bincount(document).astype(np.float64), np.bincount(document, weights=value)
    documents, total = len(sizes), float(sizes.sum())
    mean_value, scatter = float(value.mean()), float(value.var())
    if documents == 1 or not scatter:
        return float(documents)
    residuals = sums - mean_value * sizes
    variance = documents / (documents - 1) * float(residuals @ residuals) / total**2
    uncorrected = total / max(variance / (scatter / total), 1.0)
    # The scatter shows in documents with hits, and with misses. Few of them say little of it, however many others
    # there are; but a document is hardly worth less than one example.
    hit, missed = (len(np.unique(document[which])) for which in (value != 0, value == 0))
    corrected = uncorrected * (_NORMAL / _student(min(hit, missed or hit, documents - 1))) ** 2
    return max(corrected, min(uncorrected * (_NORMAL / _student(documents - 1)) ** 2, float(documents)))


_NORMAL = NormalDist().inv_cdf(0.975)


def _student(freedom: int) -> float:
    """The 97.5% point of Student's t with so many degrees of freedom."""
    return float(stdtrit(freedom, 0.975))


def _likeliest(log_probs: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    """Which rows are the `count` most likely ones: those that a rate with this count takes as extracted."""
    if count == 0:
        return np.zeros(log_probs.size, dtype=np.bool_)
    hits: NDArray[np.bool_] = log_probs >= np.partition(log_probs, log_probs.size - count)[log_probs.size - count]
    return hits


def _codes(scores: pl.DataFrame, *names: str) -> NDArray[np.int64]:
    """For each row the number of its group, 0, 1, ..., by the values of these columns."""
    ranks = scores.select(pl.struct(names).rank("dense").cast(pl.Int64) - 1)
    return ranks.to_series().to_numpy()
