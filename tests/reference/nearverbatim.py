"""Near-verbatim analyses by going through the rows one at a time. Rows are plain dictionaries."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

Row = dict[str, Any]


def p_z(row: Row) -> float:
    return math.exp(row["log_prob"])


def final(row: Row) -> float:
    return float(row["lower_by_tolerance"][-1])


def verbatim(row: Row, tau: float) -> bool:
    return bool(row["log_prob"] >= math.log(tau))


def unlocked(row: Row, tau: float, tolerance: int = -1) -> bool:
    return not verbatim(row, tau) and bool(row["lower_by_tolerance"][tolerance] >= tau)


def counts(rows: list[Row], tolerance: int, tau: float) -> tuple[int, int, int]:
    """How many are extractable, how many undecided, and how many greedy generations are close."""
    certain = undecided = greedy = 0
    for row in rows:
        if row["lower_by_tolerance"][tolerance] >= tau:
            certain += 1
        elif row["upper_by_tolerance"][tolerance] >= tau:
            undecided += 1
        if row["greedy_distance"] is not None and row["greedy_distance"] <= tolerance:
            greedy += 1
    return certain, undecided, greedy


def gain(row: Row) -> float:
    return max(final(row) - p_z(row), 0.0)


def share_above(gains: list[float], at: float) -> float:
    return sum(gain >= at for gain in gains) / len(gains)


def quantile(values: list[float], q: float) -> float:
    """Between neighbours, in proportion."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def shells(row: Row) -> list[float]:
    """Mass that each tolerance adds to what is known at the smaller ones."""
    known = p_z(row)
    found = [known]
    for lower in row["lower_by_tolerance"][1:]:
        found.append(max(lower - known, 0.0))
        known = max(lower, known)
    return found


def average(values: list[float]) -> float | None:
    return float(sum(map(Fraction, values)) / len(values)) if values else None


def excess(probability: float, n: int, p: float) -> float:
    """1 - (1 - probability)**n - p. Within rounding of 0, either side of the border is right."""
    with localcontext(prec=50):
        return float(1 - (1 - Decimal(probability)) ** n - Decimal(p))


def prompts(probability: float, chance: float, limit: int) -> int | None:
    """The smallest n that reaches the chance, up to a limit."""
    return next((n for n in range(1, limit + 1) if excess(probability, n, chance) >= 0), None)


def candidates(rows: list[Row]) -> list[tuple[str, Row]]:
    """Every candidate with its example, heaviest first."""

    def weight(pair: tuple[str, Row]) -> float:
        candidate = pair[1]
        for name in ("set_log_prob", "log_prob"):
            if candidate[name] is not None:
                return -float(candidate[name])
        return math.inf

    return sorted(((row["example_id"], each) for row in rows for each in row["candidates"] or []), key=weight)


def cell(near: bool, similar: bool) -> str:
    if near and similar:
        return "both"
    if near:
        return "distance_only"
    return "bleu_only" if similar else "neither"


def overlap(outputs: list[Row], tolerance: int, bleu: float, tau: float) -> dict[str, list[float]]:
    """For each cell of the two by two table: outputs, their mass, examples."""
    table: dict[str, list[float]] = {name: [0, 0.0, 0] for name in ("both", "distance_only", "bleu_only", "neither")}
    for output in outputs:
        entry = table[cell(output["distance"] <= tolerance, output["bleu"] >= bleu)]
        entry[0] += 1
        entry[1] += math.exp(output["log_prob"])
    for example in {output["example_id"] for output in outputs}:
        own = [output for output in outputs if output["example_id"] == example]
        near = sum(math.exp(output["log_prob"]) for output in own if output["distance"] <= tolerance)
        similar = sum(math.exp(output["log_prob"]) for output in own if output["bleu"] >= bleu)
        table[cell(near >= tau, similar >= tau)][2] += 1
    return table


def first_hits(replicates: list[list[int]], samples: int) -> list[float]:
    """Each replicate's estimate from its first samples."""
    return [sum(replicate[:samples]) / samples for replicate in replicates]
