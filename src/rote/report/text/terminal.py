"""What a terminal shows of a run beside its sentences: the lanes of the heatmap strip, and the strongest passages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.coverage import character_maximum, spans
from rote.analysis.rates import log_prob_bounds
from rote.report.page.run import Passages, strongest_rows
from rote.report.text import numbers
from rote.report.text.near import near_facts
from rote.report.text.spots import excerpt
from rote.report.text.strip import LEVELS, strip

PASSAGES = 5

# What a terminal acts upon rather than shows: C1 controls, some of which begin an escape sequence, and marks that turn
# the direction of what follows, numbers included. The others are `numbers.literal`'s.
_ACTED_UPON = dict.fromkeys(
    [*range(0x80, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd"
)


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the strip: `best` is, for each character, the largest log-probability of what covers it."""

    name: str
    best: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage: `facts` are its numbers and its place, `words` how its suffix begins."""

    facts: str
    words: str


def safe(text: str) -> str:
    """Foreign text as a terminal can show it: nothing in it moves the cursor, changes colours or turns the writing."""
    return numbers.literal(text).translate(_ACTED_UPON)


def lanes(rows: pl.DataFrame, manifest: Mapping[str, Any]) -> list[Lane]:
    """The strip of a scan: verbatim and, where it was searched for, near-verbatim by the lower bound; else none."""
    if manifest["kind"] != "scan" or not rows.height:
        return []
    length = manifest["source"]["characters"]
    found = [Lane("verbatim", character_maximum(*spans(rows), log_prob_bounds(rows)[0], length))]
    if manifest["near"] is not None:
        with np.errstate(divide="ignore"):  # a lower bound of 0
            lower = np.log(rows["lower"].to_numpy())
        found.append(Lane("near", character_maximum(*spans(rows), lower, length)))
    return found


def legend(lane: Lane, tau: float) -> list[tuple[int, str]]:
    """Probabilities along the colours, as (level, label): equal steps in the logarithm from tau to 1."""
    ticks = strip(lane.best, tau=tau).legend  # `left` is rounded to hundredths of a percent
    return [(min(int(round(LEVELS * tick["left"] / 100, 2)), LEVELS - 1), tick["label"]) for tick in ticks]


def legend_words(manifest: Mapping[str, Any], tau: float, bars: int) -> str:
    """What a strip of so many bars shows, and what it leaves blank."""
    length = manifest["source"]["characters"]
    each = numbers.counted(-(-length // min(bars, length)), "character")
    blank = f"blank below τ = {tau:g} or not looked at"
    words = f"0 to {numbers.count(length)} characters; a bar shows the highest probability within {each}, log scale, {blank}"
    if near := manifest["near"]:
        bound = "lower end of the interval" if near["method"] == "sample" else "lower bound"
        words += f"; near: within {numbers.counted(near['tolerance'], 'edit')}, by the {bound}"
    return f"{words}."


def passages(rows: pl.DataFrame, manifest: Mapping[str, Any], tau: float, texts: Passages) -> list[Passage]:
    """The most likely rows at or above tau, as many as a screen has room for; in a scan, none overlaps a stronger."""
    found = strongest_rows(rows, math.log(tau), overlapping=manifest["kind"] == "score")[:PASSAGES]
    return [_passage(row, manifest, texts) for row in found]


def _passage(row: dict[str, Any], manifest: Mapping[str, Any], texts: Passages) -> Passage:
    facts = [f"p_z {numbers.probability(row['log_prob'])}", numbers.one_in(row["log_prob"])]
    facts += [f"{name.lower()} {value}" for name, value in near_facts(row, manifest)[:1]]
    if manifest["kind"] == "scan":
        share = 100 * row["suffix_start"] / manifest["source"]["characters"]
        facts.append(
            f"characters {numbers.count(row['suffix_start'])} to {numbers.count(row['suffix_end'])} ({share:.1f}%)"
        )
    else:  # last, because a name in a script from right to left turns what follows it
        facts.append(" ".join(safe(row["example_id"]).split()))
    return Passage(", ".join(facts), safe(excerpt(texts[row][1])))
