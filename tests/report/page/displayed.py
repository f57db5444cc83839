"""What a page's numbers say, read back from their text: shares no code with what printed them."""

from __future__ import annotations

import math
import re
from typing import Any

from tests.reference.odds import queries_needed

SLACK = 1 + 1e-9
SIZES = {"million": 1e6, "billion": 1e9, "trillion": 1e12}
MISSING = "–"


def agrees(shown: str, how: str, number: Any, *, digits: int = 3) -> bool:
    """Whether the text is this number, or what `how` says of it, within the rounding of the digits that are shown.

    `digits`: how many significant ones a "number" has at the least, unless it has fewer of its own.
    """
    if how == "title":  # the last part of a path or a hub id
        return bool(shown) and str(number).removesuffix(".gguf").endswith(shown)
    if how == "text":
        return shown == str(number) or (len(str(number)) > 16 and shown == f"{str(number)[:16]}…")
    if number is None:
        return shown == MISSING or (how == "probability" and shown == "not known")  # of a token that a list leaves open
    if how.startswith("prompts for "):
        return _is_prompts(shown, *_needed(number, float(how.removeprefix("prompts for "))))
    found: bool = _READ[how](shown, number, digits) if how == "number" else _READ[how](shown, number)
    return found


def decimal(text: str) -> tuple[float, float]:
    """`-1,234.50` as -1234.5, and what one step of its last digit is worth: 0.01. Anything else is a ValueError."""
    found = re.fullmatch(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d+))?(?:e([+-]\d+))?", text)
    if found is None:
        raise ValueError(f"{text!r} is no number")
    unit = 10.0 ** (int(found[2] or 0) - len(found[1] or ""))
    return float(text.replace(",", "")), unit


def _near(value: float, number: float, step: float) -> bool:
    return abs(value - number) <= step / 2 * SLACK + 1e-15


def _significant(number: float, digits: int) -> float:
    """One step of the last of so many significant digits."""
    return 10.0 ** (math.floor(math.log10(abs(number)) + 1e-12) - digits + 1) if number else math.inf


def _percent(shown: str, share: float) -> bool:
    value, unit = decimal(shown.removesuffix("%"))
    if not shown.endswith("%"):
        return False
    if shown in ("0%", "100%"):  # a claim of nothing or of everything
        return share == value / 100
    if share * 100 >= 99.95 and unit < 0.01:
        return -1e-12 <= 100 * share - value < unit * SLACK
    usual = 0.1 if 100 * share >= 9.995 else 0.01 if 100 * share >= 0.1 else 0.0001
    if unit > usual * SLACK and "e" not in shown:  # a threshold: as it was chosen
        return math.isclose(100 * share, value, rel_tol=1e-5)
    return _near(value, 100 * share, unit)


def _place(shown: str, share: float) -> bool:
    value, unit = decimal(shown.removesuffix("%"))
    return unit == 0.1 and _near(value, 100 * share, unit)


def _points(shown: str, difference: float) -> bool:
    sign = {"+": 1, "-": -1}.get(shown[0], 0)
    if difference == 0 or sign == 0:
        return shown == "0" and difference == 0
    return sign * difference > 0 and _percent(f"{shown[1:]}%", abs(difference))


def _count(shown: str, number: float) -> bool:
    if shown.startswith("> "):  # a rank beyond a served model's list
        return number == decimal(shown.removeprefix("> "))[0] + 1
    value, unit = decimal(shown)
    return unit == 1 and abs(value - number) <= 0.5


def _number(shown: str, number: float, digits: int) -> bool:
    value, unit = decimal(shown)
    if digits == 3 and "e" in shown:  # powers of ten have a digit less
        digits = 2
    return _near(value, number, min(unit, _significant(number, digits)))


def _error(shown: str, number: float) -> bool:
    return _near(decimal(shown)[0], number, _significant(number, 2))


def _probability(shown: str, log_prob: float) -> bool:
    if shown in ("0", "1"):
        return log_prob == (-math.inf if shown == "0" else 0)
    if log_prob in (-math.inf, 0):
        return False
    if "e" in shown:
        mantissa, exponent = shown.split("e")
        return _near(decimal(mantissa)[0], 10 ** (log_prob / math.log(10) - int(exponent)), 0.1)
    value, unit = decimal(shown)
    number = math.exp(log_prob)
    if number >= 0.9995:
        return value < 1 and -1e-12 <= number - value < unit * SLACK
    return unit <= 0.1 and _near(value, number, _significant(number, 3))


def _duration(shown: str, seconds: float) -> bool:
    if found := re.fullmatch(r"(\d+\.\d) s", shown):
        return _near(float(found[1]), seconds, 0.1)
    if found := re.fullmatch(r"(\d+) min (\d\d) s", shown):
        return _near(60 * int(found[1]) + int(found[2]), seconds, 1)
    hours, minutes = re.fullmatch(r"([\d,]+) h (\d\d) min", shown).groups()  # type: ignore[union-attr]
    return -0.5 <= seconds - 3600 * int(hours.replace(",", "")) - 60 * int(minutes) <= 60


def _is_prompts(shown: str, prompts: float, log10: float) -> bool:
    """Whether the text is this number of prompts, which `log10` gives too where it is beyond floats."""
    if shown == "never":
        return log10 == math.inf
    if "e" in shown:
        mantissa, exponent = shown.split("e")
        return _near(decimal(mantissa)[0], 10 ** (log10 - int(exponent)), 0.1)
    text, _, size = shown.partition(" ")
    value, unit = decimal(text)
    if size:
        return _near(value * SIZES[size], prompts, _significant(prompts, 3))
    if prompts < 9.95 and prompts != int(prompts):
        return unit == 0.01 and _near(value, prompts, 0.01)
    return unit == 1 and _near(value, prompts, 1)


def _is_factor(shown: str, log: float) -> bool:
    """exp(log) in three digits, or where that is beyond floats in two."""
    if abs(log) >= 600:
        return _is_prompts(shown, math.inf, log / math.log(10))
    return _near(decimal(shown)[0], math.exp(log), _significant(math.exp(log), 3))


def _needed(log_prob: float, at_least: float) -> tuple[float, float]:
    """The fewest generations that show the suffix with this probability, and its decimal logarithm."""
    if log_prob == -math.inf:
        return math.inf, math.inf
    if log_prob < -60:  # n p is all that matters: whole numbers no longer do
        log10 = (math.log(-math.log1p(-at_least)) - log_prob) / math.log(10)
        return 10**log10 if log10 < 300 else math.inf, log10
    found = queries_needed(math.exp(log_prob), at_least)
    assert found is not None
    return float(found), math.log10(found)


def _expected(log_prob: float) -> tuple[float, float]:
    return (math.exp(-log_prob) if log_prob > -700 else math.inf), -log_prob / math.log(10)


_READ: dict[str, Any] = {
    "percent": _percent,
    "place": _place,
    "points": _points,
    "count": _count,
    "number": _number,
    "error": _error,
    "probability": _probability,
    "duration": _duration,
    "prompts": lambda shown, number: _is_prompts(shown, number, math.log10(number)),
    "power of ten": lambda shown, log10: _is_prompts(shown, math.inf, log10),
    "times": lambda shown, log: _is_prompts(shown, math.exp(log) if log < 600 else math.inf, log / math.log(10)),
    "factor": lambda shown, log: _is_factor(shown, log),
    "expected prompts": lambda shown, log_prob: _is_prompts(shown, *_expected(log_prob)),
}
