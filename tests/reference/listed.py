"""What a list of log-probs determines, by the rules as the method page states them, one position at a time.

Slow and obvious; shares no code with rote. `determined` says where a number must be exact, not where it may be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Options = tuple[float, int | None, float | None, float | None]
"""Temperature, top_k, top_p, min_p."""


def determined(
    values: Sequence[float], ids: Sequence[int], own: float, target: int, vocabulary: int, options: Options
) -> bool:
    """Whether the rules say that the target's log-prob follows from `values`, the likeliest log-probs, falling."""
    temperature, top_k, top_p, min_p = options
    if top_k == vocabulary:
        top_k = None
    if top_p == 1:
        top_p = None
    everything = len(values) == vocabulary
    if temperature == 0:
        return (
            own < values[0]
            or (everything and min(ids) >= 0)
            or (values[-1] < values[0] and _order_known(values, ids, own))
        )
    if temperature == 1 and (top_k, top_p, min_p) == (None, None, None):
        return True
    if top_k is None and min_p is not None and top_p is None:
        return everything or values[-1] < values[0] + temperature * math.log(min_p)
    kept = list(values)
    if top_k is not None:
        if top_k >= len(values) or not (everything or values[-1] < values[top_k - 1]):
            return False
        kept = [value for value in values if value >= values[top_k - 1]]
        if own < kept[-1]:
            return True
    elif temperature != 1 and not everything:
        return False
    if top_p is None:
        return True
    total = 1.0 if top_k is None and not everything else math.fsum(math.exp(value / temperature) for value in kept)
    closed = math.fsum(math.exp(value / temperature) for value in kept) >= top_p * total
    return closed and (own < values[-1] or ((everything or own > values[-1]) and _order_known(values, ids, own)))


def _order_known(values: Sequence[float], ids: Sequence[int], own: float) -> bool:
    """Whether it is known which of the tokens that are as likely as the own one has the lowest id."""
    tied = [i for value, i in zip(values, ids, strict=True) if value == own]
    return len(tied) == 1 or min(tied, default=0) >= 0
