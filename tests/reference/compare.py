"""Comparisons by going through the rows one at a time, and intervals from their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

Row = dict[str, Any]


def reaches(row: Row, tau: float) -> bool:
    return not row["bounded"] and row["log_prob"] >= math.log(tau)


def cells(first: list[Row], second: list[Row], tau: float) -> dict[str, int]:
    found = {"both": 0, "gained": 0, "lost": 0, "neither": 0}
    for one in first:
        (two,) = (row for row in second if row["example_id"] == one["example_id"])
        before, after = reaches(one, tau), reaches(two, tau)
        found["both" if before and after else "gained" if after else "lost" if before else "neither"] += 1
    return found


def moved(first: list[Row], second: list[Row]) -> dict[str, list[float]]:
    """Each example's difference of log p_z, under what is known of it."""
    found: dict[str, list[float]] = {name: [] for name in ("known", "appeared", "vanished", "zero", "unknown")}
    for one in first:
        (two,) = (row for row in second if row["example_id"] == one["example_id"])
        if one["bounded"] or two["bounded"]:
            found["unknown"].append(math.nan)
        elif one["log_prob"] == -math.inf and two["log_prob"] == -math.inf:
            found["zero"].append(math.nan)
        elif one["log_prob"] == -math.inf:
            found["appeared"].append(math.inf)
        elif two["log_prob"] == -math.inf:
            found["vanished"].append(-math.inf)
        else:
            found["known"].append(two["log_prob"] - one["log_prob"])
    return found


def of_set(chosen: list[Row], rows: list[Row], tau: float) -> tuple[int, float, float]:
    """Of the examples in `chosen`: how many `rows` extracts, and the least and largest their mean p_z may be."""
    count, low, high = 0, 0.0, 0.0
    for one in chosen:
        (row,) = (row for row in rows if row["example_id"] == one["example_id"])
        count += reaches(row, tau)
        low += 0.0 if row["bounded"] else math.exp(row["log_prob"])
        high += math.exp(row["log_prob"])
    return count, low / len(chosen), high / len(chosen)


def newcombe(both: int, gained: int, lost: int, neither: int, z: float) -> tuple[float, float]:
    """Newcombe (1998), method 10, as printed there: cells a, b, c, d, difference of (a + b) / n and (a + c) / n."""
    a, b, c, d = both, gained, lost, neither
    n = a + b + c + d
    p1, p2 = (a + b) / n, (a + c) / n
    l1, u1 = _wilson(p1, n, z)
    l2, u2 = _wilson(p2, n, z)
    product = (a + b) * (c + d) * (a + c) * (b + d)
    if product == 0:
        phi = 0.0
    elif a * d - b * c > n / 2:
        phi = (a * d - b * c - n / 2) / math.sqrt(product)
    elif a * d >= b * c:
        phi = 0.0
    else:
        phi = (a * d - b * c) / math.sqrt(product)
    below = (p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2
    above = (p2 - l2) ** 2 - 2 * phi * (p2 - l2) * (u1 - p1) + (u1 - p1) ** 2
    return p1 - p2 - math.sqrt(max(below, 0)), p1 - p2 + math.sqrt(max(above, 0))


def _wilson(share: float, n: int, z: float) -> tuple[float, float]:
    """Both shares that lie exactly z of their own standard deviations from the one observed, by bisection."""

    def edge(inside: float, outside: float) -> float:
        far: Callable[[float], bool] = lambda p: abs(share - p) > z * math.sqrt(p * (1 - p) / n)  # noqa: E731
        for _ in range(200):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if far(middle) else (middle, outside)
        return inside

    return (0.0 if share == 0 else edge(share, 0.0)), (1.0 if share == 1 else edge(share, 1.0))


def tables(n: int) -> Iterator[tuple[int, int, int, int]]:
    """Every way to put n pairs into four cells."""
    for a in range(n + 1):
        for b in range(n + 1 - a):
            for c in range(n + 1 - a - b):
                yield a, b, c, n - a - b - c


def chance(cells: tuple[int, int, int, int], shares: tuple[float, float, float, float]) -> float:
    """The multinomial probability of these cells."""
    log = math.lgamma(sum(cells) + 1)
    for count, share in zip(cells, shares, strict=True):
        if count and not share:
            return 0.0
        log += (count * math.log(share) if count else 0.0) - math.lgamma(count + 1)
    return math.exp(log)
