"""From which score on a text is flagged: said beforehand, or chosen on other texts than those that it judges."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np

from rote.analysis.member.measures import Bools, Floats, threshold
from rote.analysis.probe.verdicts import Way

NOTHING = math.inf
"""The threshold where nothing is flagged."""


def fixed(way: Way, hits: int | None) -> float | None:
    """The threshold that was said beforehand; None: it is to be chosen. One picked word can come back once at most."""
    if way.value != "hits" or hits is None:
        return None
    return 1.0 if way.method == "slot" else float(hits)


def chosen(way: Way | None, values: Floats, member: Bools) -> float:
    """The threshold by these texts: of a completion by logistic regression, otherwise where F-beta is largest.

    Of words that come back at least one must. `way` None: a score of another kind.
    """
    if way is not None and way.value == "words":
        return logistic(values, member)
    return threshold(values, member, least=1.0 if way is not None and way.value == "hits" else -np.inf)


def logistic(values: Floats, member: Bools) -> float:
    """From which number on a logistic regression says that a text is likelier a member than not.

    Nothing is flagged where it says so of fewer words rather than of more: that is no sign of a memory.
    """
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = LogisticRegression(max_iter=1000).fit(values[:, None], member)
    weight, start = float(fit.coef_[0, 0]), float(fit.intercept_[0])
    return -start / weight if weight > 1e-9 else NOTHING


def worded(way: Way, thresholds: Sequence[float]) -> str:
    """Thresholds in words; several: of the parts."""
    real = sorted({value for value in thresholds if value != NOTHING})
    if not real:
        return "nothing is flagged: texts that are not members had more in common"
    shown = list(dict.fromkeys(f"{value:.4g}" for value in real))
    number = shown[0] if len(shown) == 1 else f"{shown[0]} to {shown[-1]}, by part,"
    what = {
        "hits": "words",
        "words": "words in common, where a logistic regression says one half",
        "share": "of the orders",
    }[way.value]
    return f"{number} or more {what}"


def worded_score(sign: int, thresholds: Sequence[float]) -> str:
    """Those of an oriented score, in its own direction."""
    shown = list(dict.fromkeys(f"{sign * value:.4g}" for value in sorted(set(thresholds))))
    number = shown[0] if len(shown) == 1 else f"{shown[0]} to {shown[-1]}, by part,"
    return f"{number} or {'more' if sign > 0 else 'less'}"
