"""Decoding schemes by the definition, one row at a time in float64. Slow and obvious; shares no code with rote."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]


def support(logits: Row, temperature: float, top_k: int | None, top_p: float | None) -> list[int]:
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
    return sorted(kept)


def log_prob(logits: Row, target: int, temperature: float, top_k: int | None, top_p: float | None) -> float:
    kept = support(logits, temperature, top_k, top_p)
    if target not in kept:
        return -math.inf
    if temperature == 0:
        return 0.0
    scaled = [float(logits[i]) / temperature for i in kept]
    highest = max(scaled)
    return float(logits[target]) / temperature - highest - math.log(math.fsum(math.exp(s - highest) for s in scaled))


def rank(logits: Row, target: int) -> int:
    return 1 + sum(1 for v in logits if v > logits[target])
