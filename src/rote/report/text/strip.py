"""The heatmap strip: how likely each part of a text is to come out, in colours and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rote.report.keys import derived
from rote.report.text import numbers

LEVELS = 12  # one colour each: the style sheet has as many
BELOW, UNSEEN = -1, -2  # in place of a colour: below tau, and not looked at
_PARTS = 20  # rows of the table that says the same in words
UNLOOKED, IN_PART = "not looked at", "not looked at in full"


@dataclass(frozen=True, slots=True)
class Strip:
    """What the page says of a strip; its script draws it. Positions (`left`) are percent of the legend's width.

    `unseen`: what grey is; `share`: what the last column of the table has.
    """

    levels: int
    legend: list[dict[str, Any]]
    table: list[dict[str, Any]]
    description: str
    caption: str
    unseen: str
    share: str


def strip(
    best: NDArray[np.float64], *, tau: float, key: str = "", scored: NDArray[np.float64] | None = None, more: str = ""
) -> Strip:
    """`best`: for each character the largest log p_z over the windows whose suffix covers it; NaN: not looked at.

    `key` stands before the keys of its numbers, on a page that has several. `scored`: of a scan that left windows out,
    `best` without regard to these. Shares are of what the scored windows cover then, and the least that they can be.
    `more`: what else may be where nothing is shown, than what is below tau (`rote.report.text.bounds.or_open`); shares
    are the least that they can be then too.
    """
    length, floor = best.size, math.log(tau)
    looked = best if scored is None else scored
    reached = derived(_reaching(looked, floor), f"{key}strip/share", tau)
    counts = {"all": length, "seen": _seen(looked), "unseen": length - _seen(best)}
    characters = derived(counts, f"{key}strip/characters", tau)
    unseen = UNLOOKED if scored is None else IN_PART
    least = "" if scored is None and not more else "at least "
    told = f"{least}{numbers.percent(reached)} reach the threshold of {numbers.setting(tau)}"
    told += "." if scored is None else f"; {numbers.count(characters['unseen'])} were {unseen}."
    grey = "" if scored is None else ": some window that covers it has no number, and no scored one there reaches τ"
    return Strip(
        levels=LEVELS,
        legend=_legend(floor),
        table=[_table_row(item, best, looked, tau, key, unseen, more) for item in _spread(best, min(_PARTS, length))],
        description=(
            f"The text from its first to its last of {numbers.counted(characters['all'], 'character')}. Of the "
            f"{numbers.count(characters['seen'])} that were looked at, {told}"
        ),
        caption=(
            "The whole text from left to right. Each place shows the highest probability of any window whose suffix "
            f"covers one of its characters; blank is below τ = {numbers.setting(tau)}{more}, "
            f"grey was {unseen}{grey}. Point at it for the number; click to read there."
        ),
        unseen=unseen,
        share="Of what was looked at, at or above τ" + (", at least" if least else ""),
    )


def levels(best: NDArray[np.float64], *, tau: float, count: int) -> list[int]:
    """The strip in `count` parts at most: the colour of each, from 0 to LEVELS - 1, or BELOW or UNSEEN."""
    floor = math.log(tau)
    return [_level(part["highest"], floor) for part in _spread(best, min(count, best.size))]


def _seen(best: NDArray[np.float64]) -> int:
    return int(np.count_nonzero(~np.isnan(best)))


def _reaching(best: NDArray[np.float64], floor: float) -> float:
    """The share of the characters that were looked at; NaN where none was."""
    return float(np.count_nonzero(best >= floor) / seen) if (seen := _seen(best)) else math.nan


def _spread(best: NDArray[np.float64], count: int) -> list[dict[str, Any]]:
    """`count` neighbouring parts of the text, as equal as can be, and the highest value in each."""
    edges = [i * best.size // count for i in range(count + 1)]
    highest = np.fmax.reduceat(best, edges[:-1]).tolist()
    return [{"index": i, "start": edges[i], "end": edges[i + 1], "highest": highest[i]} for i in range(count)]


def _level(log_prob: float, floor: float) -> int:
    """Which colour: equal steps in the logarithm, from tau to 1."""
    if not log_prob >= floor:
        return UNSEEN if math.isnan(log_prob) else BELOW
    return min(int(LEVELS * (1 - log_prob / floor)), LEVELS - 1) if floor < 0 else LEVELS - 1


def _legend(floor: float) -> list[dict[str, Any]]:
    decades = math.floor(-floor / math.log(10) + 1e-9)
    step = max(1, math.ceil(decades / 5))
    ticks = [{"left": 100.0, "label": "1"}]
    for decade in range(step, decades + 1, step):
        left = 100 * (1 - decade * math.log(10) / -floor)
        if left > 12:  # nearer to tau's own label the two would overlap
            ticks.append({"left": round(left, 2), "label": numbers.probability(-decade * math.log(10))})
    if floor < 0:
        ticks.append({"left": 0.0, "label": numbers.probability(floor)})
    return ticks[::-1]


def _table_row(
    item: dict[str, Any], best: NDArray[np.float64], looked: NDArray[np.float64], tau: float, key: str, unseen: str,
    more: str,
) -> dict[str, Any]:  # fmt: skip
    start, end, floor = item["start"], item["end"], math.log(tau)
    where = {"from": start / best.size, "to": end / best.size, "share": _reaching(looked[start:end], floor)}
    part = derived({**item, **where}, f"{key}parts/{item['index']}", tau)
    return {
        "part": f"{numbers.place(part['from'])} to {numbers.place(part['to'])}",
        "characters": f"{numbers.count(part['start'])} to {numbers.count(part['end'])}",
        "highest": _told(part["highest"], floor, unseen, more),
        "share": numbers.percent(part["share"]),
    }


def _told(highest: float, floor: float, unseen: str, more: str) -> str:
    if math.isnan(highest):
        return unseen
    return numbers.probability(highest) if highest >= floor else f"below τ{more}"
