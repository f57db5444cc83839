"""What tells members from non-members without any model: words, runs of characters, lengths and dates.

A logistic regression on TF-IDF of words and pairs of words, on TF-IDF of runs of 2 to 4 characters, and on numbers of
the text: lengths, what zlib makes of it, shares of kinds of characters, its date. Which terms there are, how they
weigh, means and deviations all follow from the texts it is fitted on alone; what is counted in each text before that
depends on no other.

Every feature is scaled by the square of its own t statistic before the regression. Otherwise a single word or a date
that tells everything would be lost among thousands of features that tell nothing.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rote.analysis.member.measures import Bools, Floats, Ints
from rote.corpus.texts import year_of

TERMS = 20_000
"""At most so many terms of a kind, those of the most texts, are looked at."""

NAMED = 8
"""So many features are named for members, and for non-members."""

STRENGTH = 3.0
"""Of the regression: how much the texts count against its penalty."""

FAR = 4.0
"""Numbers further from their mean than so many deviations are all the same."""

NUMBERS: tuple[tuple[str, Callable[[str], float]], ...] = (
    ("number of characters", lambda text: float(len(text))),
    ("number of characters", lambda text: math.log1p(len(text))),
    ("number of words", lambda text: float(len(text.split()))),
    ("number of words", lambda text: math.log1p(len(text.split()))),
    ("number of bytes", lambda text: float(len(_bytes(text)))),
    ("number of bytes", lambda text: math.log1p(len(_bytes(text)))),
    ("share of bytes left by zlib", lambda text: len(zlib.compress(_bytes(text))) / max(len(_bytes(text)), 1)),
    ("length of words", lambda text: sum(map(len, text.split())) / max(len(text.split()), 1)),
    ("share of digits", lambda text: _share(text, str.isdigit)),
    ("share of punctuation", lambda text: _share(text, lambda one: not (one.isalnum() or one.isspace()))),
    ("share of capitals", lambda text: _share(text, str.isupper)),
    ("share of line breaks", lambda text: _share(text, lambda one: one == "\n")),
)
"""What is computed of a text, and how it is called: lengths also as logarithms."""


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """How often each term, a column, stands in each text, a row."""

    kind: str
    counts: Any
    names: NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """What is counted in texts: terms of each kind, and numbers."""

    terms: list[Terms]
    numbers: Floats
    names: list[str]
    words: list[str]
    """What they are, for people."""


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A regression, fitted on some of the texts; `scores`: what it says of all, on the scale of log-odds.

    `weights`: how far each feature moves that by one of its deviations.
    """

    scores: Floats
    weights: Floats
    names: list[str]


def features(texts: Sequence[str], dates: Sequence[str | None]) -> Features:
    """Everything that is counted in texts, whatever it will be used for."""
    from sklearn.feature_extraction.text import CountVectorizer  # slow to import

    terms = []
    for kind, options in (
        ("word", {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}),
        ("characters", {"ngram_range": (2, 4), "analyzer": "char", "lowercase": False}),
    ):
        counter = CountVectorizer(dtype=np.float64, **options)
        try:
            counts = counter.fit_transform(texts)
        except ValueError:  # no text has any
            continue
        terms.append(Terms(kind, counts.tocsr(), counter.get_feature_names_out()))
    columns = [(name, [number(text) for text in texts]) for name, number in NUMBERS]
    years = [None if date is None else year_of(date) for date in dates]
    words = ["words and pairs of words", "runs of 2 to 4 characters", "lengths", "shares of kinds of characters"]
    if any(year is not None for year in years):
        columns.append(("year", [math.nan if year is None else year for year in years]))
        columns.append(("no date", [float(year is None) for year in years]))
        words.append("dates")
    names, numbers = zip(*columns, strict=True)
    return Features(terms, np.array(numbers, dtype=np.float64).T, list(names), words)


def fit(features: Features, on: Ints, member: Bools) -> Fitted:
    """A regression that has seen the texts `on`, of which these are members, and no other."""
    from scipy.sparse import csr_matrix, diags, hstack
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression

    parts, names = [], []
    for terms in features.terms:
        within = terms.counts[on]
        texts = np.bincount(within.indices, minlength=within.shape[1])
        kept = np.flatnonzero(texts >= (2 if len(on) > 8 else 1))
        kept = np.sort(kept[np.argsort(-texts[kept], kind="stable")[:TERMS]])
        if kept.size:
            weighed = TfidfTransformer(sublinear_tf=True).fit(within[:, kept])
            parts.append(weighed.transform(terms.counts[:, kept]))
            names += [f"{terms.kind} {name!r}" for name in terms.names[kept]]
    numbers, kept = _standardised(features.numbers, on)
    parts.append(csr_matrix(numbers / math.sqrt(max(len(kept), 1))))
    names += [features.names[column] for column in kept]
    every = hstack(parts, format="csr")
    scales, deviations = _scales(every[on], member[on])
    every = every @ diags(scales)
    model = LogisticRegression(C=STRENGTH, class_weight="balanced", max_iter=500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # as good as it gets: what it is worth is measured
        model.fit(every[on], member[on])
    return Fitted(model.decision_function(every), model.coef_[0] * scales * deviations, names)


def named(features: Features, member: Bools) -> tuple[list[str], list[str]]:
    """Which features count for most in all texts, for members and for non-members."""
    fitted = fit(features, np.arange(len(member)), member)
    weights: dict[str, float] = {}
    for name, weight in zip(fitted.names, fitted.weights.tolist(), strict=True):
        weights[name] = weights.get(name, 0.0) + weight
    order = sorted(weights, key=lambda name: weights[name])
    low = [name for name in order[:NAMED] if weights[name] < 0]
    high = [name for name in order[::-1][:NAMED] if weights[name] > 0]
    return high, low


def _standardised(numbers: Floats, on: Ints) -> tuple[Floats, Ints]:
    """Numbers by mean and deviation of the texts `on`, and which columns vary there; a missing one is the mean."""
    there = ~np.isnan(numbers[on])
    mean = np.where(there, numbers[on], 0.0).sum(0) / np.maximum(there.sum(0), 1)
    numbers = np.where(np.isnan(numbers), mean, numbers)
    deviation = numbers[on].std(0)
    kept = np.flatnonzero(deviation > 1e-9 * np.maximum(np.abs(mean), 1e-9))
    return np.clip((numbers[:, kept] - mean[kept]) / deviation[kept], -FAR, FAR), kept


def _scales(table: Any, member: Bools) -> tuple[Floats, Floats]:
    """How each column is scaled, so that rows are about as long as before; and its deviation."""
    one, other = (np.asarray(table[own].mean(0)).ravel() for own in (member, ~member))
    mean, square = (np.asarray(part.mean(0)).ravel() for part in (table, table.multiply(table)))
    variance = np.maximum(square - mean**2, 0.0)
    varies = variance > 1e-12
    scales = np.where(varies, (one - other) ** 2 / np.where(varies, variance, 1.0), 0.0)
    before, after = float(square.sum()), float((square * scales**2).sum())
    return scales * (math.sqrt(before / after) if after > 0 else 0.0), np.sqrt(variance)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _share(text: str, kind: Callable[[str], bool]) -> float:
    return sum(map(kind, text)) / max(len(text), 1)
