"""Which windows to try after other steps, and what their trials come to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rote.store.variants import Trial

CLEARLY = 0.1
"""Which share of the windows that were tried must be gained for a step to be worth naming."""


def affected(changed: NDArray[np.bool_], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of the spans that have one of the changed characters in them."""
    before = np.concatenate(([0], np.cumsum(changed)))
    return np.flatnonzero(before[ends] > before[starts])


def spread(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """At most `count` of these rows, evenly spread over them."""
    return rows if rows.size <= count else rows[np.linspace(0, rows.size - 1, count).round().astype(np.int64)]


def most_helpful(trials: Sequence[Trial] | None) -> Trial | None:
    """The steps that would bring the most of a scan's windows to tau, of equal ones the fewest; None: none clearly."""
    clear = [each for each in trials or () if each.after - each.before >= max(1, math.ceil(CLEARLY * each.windows))]
    return max(clear, key=lambda each: (_gained(each), -len(each.steps)), default=None)


def _gained(trial: Trial) -> float:
    return (trial.after - trial.before) / trial.windows * trial.affected
