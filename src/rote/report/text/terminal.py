"""What a terminal shows of a run beside its sentences: the lanes of the heatmap strip, and the strongest passages."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rote.analysis.coverage import Span, character_maximum, spans
from rote.analysis.rates import log_prob_bounds
from rote.analysis.strongest import strongest_rows
from rote.report.text import numbers
from rote.report.text.near import near_facts
from rote.report.text.spots import excerpt
from rote.report.text.strip import LEVELS, strip
from rote.store.run import RunView
from rote.store.table import Row

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


def lanes(run: RunView, span: Span = "suffix") -> list[Lane]:
    """The strip of a scan: verbatim and, where it was searched for, near-verbatim by the lower bound; else none."""
    rows, length = run.rows, run.length if run.scanned else 0
    if not length or not rows.height:
        return []
    shown = [Lane("verbatim", character_maximum(*spans(rows, span), log_prob_bounds(rows)[0], length))]
    if run.manifest.near is not None:
        with np.errstate(divide="ignore"):  # a lower bound of 0
            lower = np.log(rows["lower"].to_numpy())
        shown.append(Lane("near", character_maximum(*spans(rows, span), lower, length)))
    return shown


def legend(lane: Lane, tau: float) -> list[tuple[int, str]]:
    """Probabilities along the colours, as (level, label): equal steps in the logarithm from tau to 1."""
    ticks = strip(lane.best, tau=tau).legend  # `left` is rounded to hundredths of a percent
    return [(min(int(round(LEVELS * tick["left"] / 100, 2)), LEVELS - 1), tick["label"]) for tick in ticks]


def legend_words(run: RunView, bars: int, at: float | None = None) -> str:
    """What a strip of so many bars shows, and what it leaves blank: below tau, or what else was asked for."""
    length = run.length
    each = numbers.counted(-(-length // min(bars, length)), "character")
    floor = f"τ = {run.summary.tau:g}" if at is None else f"p = {numbers.threshold(at)}"
    blank = f"blank below {floor} or not looked at"
    shown = f"a bar shows the highest probability within {each}, log scale, {blank}"
    words = f"0 to {numbers.count(length)} characters; {shown}"
    if near := run.manifest.near:
        bound = "lower end of the interval" if near.method == "sample" else "lower bound"
        words += f"; near: within {numbers.counted(near.tolerance, 'edit')}, by the {bound}"
    return f"{words}."


def passages(run: RunView) -> list[Passage]:
    """The most likely rows at or above tau, as many as a screen has room for; in a scan, none overlaps a stronger."""
    strongest = strongest_rows(run.rows, math.log(run.summary.tau), overlapping=not run.scanned)
    return [_passage(row, run) for row in strongest[:PASSAGES]]


def _passage(row: Row, run: RunView) -> Passage:
    facts = [f"p_z {numbers.probability(row['log_prob'])}", numbers.one_in(row["log_prob"])]
    facts += [f"{name.lower()} {value}" for name, value in near_facts(row, run.manifest.near)[:1]]
    if run.scanned:
        share = 100 * row["suffix_start"] / run.length
        facts.append(
            f"characters {numbers.count(row['suffix_start'])} to {numbers.count(row['suffix_end'])} ({share:.1f}%)"
        )
    else:  # last, because a name in a script from right to left turns what follows it
        facts.append(" ".join(safe(row["example_id"]).split()))
    return Passage(", ".join(facts), safe(excerpt(run.texts[row][1])))
