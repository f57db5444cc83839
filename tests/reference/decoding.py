"""Decoding schemes by the definition, one row at a time in float64. Slow and obvious; shares no code with rote."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]


def support(
    logits: Row, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None = None
) -> list[int]:
    """Ids of the tokens the scheme may emit."""
    if temperature == 0:
        highest = max(logits)
        return [min(i for i in range(len(logits)) if logits[i] == highest)]
    # The scheme acts on float32 logits: the division is done there, so that ties are the ones it makes.
    scaled = [float(v) for v in np.asarray(logits, dtype=np.float32) / np.float32(temperature)]
    kept = list(range(len(scaled)))
    if top_k is not None:
        border = sorted(scaled, reverse=True)[top_k - 1]
        kept = [i for i in kept if scaled[i] >= border]
    if top_p is not None and top_p < 1:
        highest = max(scaled)
        weights = {i: math.exp(scaled[i] - highest) for i in kept}
        total = math.fsum(weights.values())
        nucleus: list[int] = []
        mass = 0.0
        for i in sorted(kept, key=lambda i: (-scaled[i], i)):
            if mass >= top_p:
                break
            nucleus.append(i)
            mass += weights[i] / total
        kept = nucleus
    if min_p is not None:
        border = max(scaled[i] for i in kept) + math.log(min_p)
        kept = [i for i in kept if scaled[i] >= border]
    return sorted(kept)


def log_prob(
    logits: Row, target: int, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None = None
) -> float:
    kept = support(logits, temperature, top_k, top_p, min_p)
    if target not in kept:
        return -math.inf
    if temperature == 0:
        return 0.0
    scaled = [float(logits[i]) / temperature for i in kept]
    highest = max(scaled)
    return float(logits[target]) / temperature - highest - math.log(math.fsum(math.exp(s - highest) for s in scaled))


def margin(
    logits: Row, target: int, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None = None
) -> float:
    """How firmly the target stands inside (+) or outside (-): by halving, the least change that is enough.

    Greedy, top-k and min-p: logits move towards each other by d each. Top-p: a change of d multiplies the odds of a set
    by at most exp(2 d), and may bring before the target, or put behind it, whatever stands within 2 d of it. (Both at
    once to the full is more than a change of d can do: with top-p the true margin may be larger.) To leave it has to
    cross the nearest border, to enter all those that it is beyond.
    """
    inside = target in support(logits, temperature, top_k, top_p)  # as far as top-k and top-p are concerned
    scaled = [float(v) for v in np.asarray(logits, dtype=np.float32) / np.float32(temperature or 1)]
    own, others = scaled[target], [v for i, v in enumerate(scaled) if i != target]
    if temperature == 0:
        return (own - max(others)) / 2
    ordered = sorted(scaled, reverse=True)
    in_top_k = top_k is None or own >= ordered[top_k - 1]
    to_leave, to_enter = [math.inf], list[float]()
    if top_k is not None and top_k < len(scaled):
        (to_leave if in_top_k else to_enter).append(abs(own - ordered[top_k if in_top_k else top_k - 1]) / 2)
    if min_p is not None:
        above = own - max(others) - math.log(min_p)
        (to_leave if own >= ordered[0] + math.log(min_p) else to_enter).append(abs(above) / 2)
    if top_p is not None and top_p < 1 and in_top_k:
        border = ordered[(top_k or len(scaled)) - 1]
        kept = [v for v in others if v > border]
        kept += [border] * ((top_k or len(scaled)) - len(kept) - 1) if inside else [v for v in others if v == border]

        def crosses(d: float) -> bool:
            if inside:  # the set before it is as likely as it can get, among no more than the k largest
                before = math.fsum(math.exp(v - own) for v in kept if v >= own - 2 * d)
                behind = 1 + math.fsum(math.exp(v - own) for v in kept if v < own - 2 * d)
                return before * math.exp(2 * d) * (1 - top_p) >= behind * top_p
            joined = [v for v in others if border - 2 * d <= v < border]
            before = math.fsum(math.exp(v - own) for v in kept if v > own + 2 * d)
            behind = 1 + math.fsum(math.exp(v - own) for v in [*kept, *joined] if v <= own + 2 * d)
            return before * (1 - top_p) <= behind * math.exp(2 * d) * top_p

        low, high = 0.0, 200.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (low, middle) if crosses(middle) else (middle, high)
        (to_leave if inside else to_enter).append(high)
    return (-max(to_enter) if to_enter else min(to_leave)) * temperature


def rank(logits: Row, target: int) -> int:
    return 1 + sum(1 for v in logits if v > logits[target])
