"""The (n, p) arithmetic with 1,200 decimal digits: 1 - p is exact for every float p, logarithms as good as exact."""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction

CONTEXT = Context(prec=1200, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def at_least_once(p_z: float, n: int) -> Decimal:
    with localcontext(CONTEXT):
        if p_z == 1:
            return Decimal(1 if n > 0 else 0)
        if n <= 20:
            return 1 - (1 - Decimal(p_z)) ** n
        return 1 - ((1 - Decimal(p_z)).ln() * n).exp()


def queries_needed(p_z: float, at_least: float) -> int | None:
    """The smallest n >= 1 with 1 - (1 - p_z)**n >= at_least in exact arithmetic; None where there is none."""
    if at_least <= p_z:
        return 1
    if p_z == 0 or at_least == 1:
        return None
    with localcontext(CONTEXT):
        hit, wanted = Decimal(p_z), Decimal(at_least)
        ratio = (1 - wanted).ln() / (1 - hit).ln()
        nearest = ratio.to_integral_value()
        if abs(ratio - nearest) < Decimal("1e-300"):
            # A whole number, as for 0.5 and 0.75, less the rounding of the 1,200th digit.
            return int(nearest)
        return int(ratio.to_integral_value(ROUND_CEILING))


def share_at_most(hits: int, draws: int, level: Fraction) -> Fraction:
    """The share at which `hits` in `draws` or fewer have the chance 1 - `level`, found by halving, within 1e-12."""
    low, high = Fraction(0), Fraction(1)
    if hits == draws:
        return high
    while high - low > Fraction(1, 10**12):
        middle = Fraction((low + high) / 2).limit_denominator(10**15)
        tail = sum(math.comb(draws, k) * middle**k * (1 - middle) ** (draws - k) for k in range(hits + 1))
        if tail > 1 - level:
            low = middle
        else:
            high = middle
    return low
