"""Rates by going through the rows one at a time, with 50-digit decimals. Rows are plain dictionaries."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from tests.reference.odds import share_at_most

Row = dict[str, Any]


def reaches(log_prob: float, n: int, p: float) -> bool:
    """Whether 1 - (1 - p_z)**n >= p, for p_z the float nearest to exp(log_prob)."""
    with localcontext(prec=50):
        return 1 - (1 - Decimal(math.exp(log_prob))) ** n >= Decimal(p)


def count(rows: list[Row], holds: Callable[[float], bool]) -> tuple[int, int]:
    """How many rows certainly hold, and how many may: a stopped row is anywhere from -inf up to its log_prob."""
    certain = possible = 0
    for row in rows:
        if row["bounded"]:
            certain += holds(-math.inf)
            possible += holds(row["log_prob"])
        else:
            certain += holds(row["log_prob"])
            possible += holds(row["log_prob"])
    return certain, possible


def passing(rows: list[Row], p: float, limit: int) -> tuple[int | None, int | None]:
    """The first n up to `limit` at which more rows reach p than are greedy: certainly, and possibly."""
    greedy = sum(row["greedy"] for row in rows)
    certain = possible = None
    for n in range(1, limit + 1):
        some = count(rows, lambda log_prob, n=n: reaches(log_prob, n, p))  # type: ignore[misc]
        if certain is None and some[0] > greedy:
            certain = n
        if possible is None and some[1] > greedy:
            possible = n
    return certain, possible


def wilson_holds(successes: int, total: int, share: float, z: float) -> float:
    """How far the observed share lies from `share` less z standard deviations; 0 at an end of the Wilson interval."""
    return abs(successes / total - share) - z * math.sqrt(share * (1 - share) / total)


def staged(rows: list[Row], audited: list[bool], windows: int, holds: Callable[[float], bool]) -> tuple[int, float]:
    """(rows that hold, how many of all windows may): of those left out, as many as the ones drawn from them allow."""
    found = hits = drawn = 0
    for row, of_the_audit in zip(rows, audited, strict=True):
        if of_the_audit:
            drawn += 1
            hits += holds(row["log_prob"])
        else:
            found += holds(row["log_prob"])
    left_out = windows - (len(rows) - drawn)
    allowed = left_out * float(share_at_most(hits, drawn, Fraction(95, 100)))
    return found + hits, found + min(allowed, hits + left_out - drawn)  # what was not drawn can at most all hold
