"""The heatmap strip: how likely each part of a text is to come out, as data for an inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rote.report import show

BINS = 1000
LEVELS = 12  # one colour each: the style sheet has as many
_PARTS = 20  # rows of the table that says the same in words
_APART = 3.0  # percent of the strip's width between two passage numbers, so that they can be read


@dataclass(frozen=True, slots=True)
class Strip:
    """Everything the template draws. Positions (`left`, `at`) are percent of the strip's width."""

    count: int
    levels: int
    bins: list[dict[str, Any]]  # only those at or above tau
    ticks: list[dict[str, Any]]
    legend: list[dict[str, Any]]
    marks: list[dict[str, Any]]
    table: list[dict[str, Any]]
    description: str
    caption: str


def strip(best: NDArray[np.float64], *, tau: float, positions: Sequence[int] = ()) -> Strip:
    """`best`: for each character the largest log p_z over the windows whose suffix covers it (-inf: below tau or none).

    `positions`: where the numbered passages start, marked above the strip.
    """
    length, floor = best.size, math.log(tau)
    count = min(BINS, length)
    shown = [i for i in _spread(best, count) if i["highest"] >= floor]
    for item in shown:
        item["level"] = _level(item["highest"], floor)
        item["title"] = (
            f"Characters {_range(item['start'], item['end'])} ({_part(item['start'], length)} of the text): "
            f"up to {show.probability(item['highest'])}, {show.one_in(item['highest'])}"
        )
    reached = float((best >= floor).mean())
    unit = show.counted(-(-length // count), "character")
    return Strip(
        count=count,
        levels=LEVELS,
        bins=shown,
        ticks=[_tick(share, length) for share in (0, 20, 40, 60, 80, 100)],
        legend=_legend(floor),
        marks=_marks(positions, length),
        table=[_table_row(item, best, floor, length) for item in _spread(best, min(_PARTS, length))],
        description=(
            f"Heatmap of the text from its first to its last of {show.count(length)} characters. "
            f"{show.percent(reached)} of them reach the threshold of {tau:g}. "
            "The table below says the same in numbers."
        ),
        caption=(
            f"The whole text from left to right, in {show.counted(count, 'bin')} of at most {unit}. Each bin shows "
            "the highest probability of any window whose suffix covers one of its characters; blank is below "
            f"τ = {tau:g}."
        ),
    )


def levels(best: NDArray[np.float64], *, tau: float, count: int) -> list[int | None]:
    """The strip in `count` parts at most: the colour of each, from 0 to LEVELS - 1, or None below tau."""
    floor = math.log(tau)
    parts = _spread(best, min(count, best.size))
    return [_level(part["highest"], floor) if part["highest"] >= floor else None for part in parts]


def _spread(best: NDArray[np.float64], count: int) -> list[dict[str, Any]]:
    """`count` neighbouring parts of the text, as equal as can be, and the highest value in each."""
    edges = [i * best.size // count for i in range(count + 1)]
    highest = np.maximum.reduceat(best, edges[:-1]).tolist()
    return [{"index": i, "start": edges[i], "end": edges[i + 1], "highest": highest[i]} for i in range(count)]


def _level(log_prob: float, floor: float) -> int:
    """Which colour: equal steps in the logarithm, from tau to 1."""
    return min(int(LEVELS * (1 - log_prob / floor)), LEVELS - 1) if floor < 0 else LEVELS - 1


def _legend(floor: float) -> list[dict[str, Any]]:
    decades = math.floor(-floor / math.log(10) + 1e-9)
    step = max(1, math.ceil(decades / 5))
    ticks = [{"left": 100.0, "label": "1"}]
    for decade in range(step, decades + 1, step):
        left = 100 * (1 - decade * math.log(10) / -floor)
        if left > 12:  # nearer to tau's own label the two would overlap
            ticks.append({"left": round(left, 2), "label": show.probability(-decade * math.log(10))})
    if floor < 0:
        ticks.append({"left": 0.0, "label": show.probability(floor)})
    return ticks[::-1]


def _tick(share: int, length: int) -> dict[str, Any]:
    edge = {0: "from", 100: "to"}.get(share, "")
    return {"left": share, "characters": show.count(round(share * length / 100)), "percent": f"{share}%", "edge": edge}


def _marks(positions: Sequence[int], length: int) -> list[dict[str, Any]]:
    """The passages' numbers, moved apart until all can be read; each is tied to its true place by a line."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    true = [100 * positions[i] / length for i in order]
    placed = [min(max(at, _APART / 2), 100 - _APART / 2) for at in true]
    for _ in range(200):
        for left, right in pairwise(range(len(placed))):
            push = max(0.0, _APART - (placed[right] - placed[left])) / 2
            placed[left], placed[right] = placed[left] - push, placed[right] + push
        placed = [min(max(at, _APART / 2), 100 - _APART / 2) for at in placed]
    return [
        {"number": i + 1, "at": round(at, 3), "left": round(left, 3), "percent": _part(positions[i], length)}
        for i, at, left in zip(order, true, placed, strict=True)
    ]


def _table_row(item: dict[str, Any], best: NDArray[np.float64], floor: float, length: int) -> dict[str, Any]:
    start, end, highest = item["start"], item["end"], item["highest"]
    return {
        "part": f"{_part(start, length)} to {_part(end, length)}",
        "characters": _range(start, end),
        "highest": show.probability(highest) if highest >= floor else "below τ",
        "share": show.percent(float((best[start:end] >= floor).mean())),
    }


def _range(start: int, end: int) -> str:
    return f"{show.count(start)} to {show.count(end)}"


def _part(position: int, length: int) -> str:
    return f"{100 * position / length:.1f}%".replace(".0%", "%")
