"""What a terminal shows of a run beside its sentences: the lanes of the heatmap strip, and the strongest passages."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rote.analysis.coverage import Span, along_text
from rote.analysis.rates import log_prob_bounds
from rote.analysis.strongest import strongest_rows, unlocked_rows
from rote.report.text import numbers
from rote.report.text.bounds import or_open
from rote.report.text.near import SET, SET_NOTE, likeliest, near_facts
from rote.report.text.spots import excerpt
from rote.report.text.strip import IN_PART, LEVELS, UNLOOKED, strip
from rote.store.run import RunView
from rote.store.table import Row

PASSAGES = 5


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the strip: `best` is, for each character, the largest log-probability of what covers it (or NaN)."""

    name: str
    best: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage: `facts` are its numbers and its place, `words` how its suffix begins."""

    facts: str
    words: str


def safe(text: str) -> str:
    """Foreign text as a terminal can show it: nothing in it moves the cursor, changes colours or turns the writing."""
    return numbers.literal(text.replace("\r\n", "\n"))


def lanes(run: RunView, span: Span = "suffix") -> list[Lane]:
    """The strip of a scan: verbatim and, where it was searched for, near-verbatim by the lower bound; else none."""
    rows, length = run.rows, run.length if run.scanned else 0
    if not length or not rows.height:
        return []
    best = along_text(rows, log_prob_bounds(rows)[0], length, span, left_out=run.left_out, tau=run.summary.tau)
    shown = [Lane("verbatim", best)]
    if run.manifest.near is not None:
        with np.errstate(divide="ignore"):  # a lower bound of 0
            lower = np.log(rows["lower"].to_numpy())
        shown.append(Lane("near", along_text(rows, lower, length, span)))
    return shown


def legend(lane: Lane, tau: float) -> list[tuple[int, str]]:
    """Probabilities along the colours, as (level, label): equal steps in the logarithm from tau to 1."""
    ticks = strip(lane.best, tau=tau).legend  # `left` is rounded to hundredths of a percent
    return [(min(int(round(LEVELS * tick["left"] / 100, 2)), LEVELS - 1), tick["label"]) for tick in ticks]


def legend_words(run: RunView, bars: int, unseen: str = "a dot (·)", at: float | None = None) -> str:
    """What a strip of so many bars shows, what it leaves blank, and what stands for what was not looked at.

    Blank is what is below tau, or below what else was asked for.
    """
    length = run.length
    each = numbers.counted(-(-length // min(bars, length)), "character")
    floor = f"τ = {run.summary.tau:g}" if at is None else f"p = {numbers.threshold(at)}"
    blank = f"blank below {floor}{or_open(run)}, {unseen} {UNLOOKED if run.left_out is None else IN_PART}"
    shown = f"a bar shows the highest probability within {each}, log scale, {blank}"
    words = f"0 to {numbers.count(length)} characters; {shown}"
    if near := run.manifest.near:
        bound = "lower end of the interval" if near.method == "sample" else "lower bound"
        words += f"; near: within {numbers.counted(near.tolerance, 'edit')}, by the {bound}"
    return f"{words}."


def passages(run: RunView) -> list[Passage]:
    """The most likely rows at or above tau, as many as a screen has room for; in a scan, none overlaps a stronger."""
    strongest = strongest_rows(run.rows, math.log(run.summary.tau), overlapping=not run.scanned)
    return [_passage(row, run) for row in run.completed(strongest[:PASSAGES])]


def _passage(row: Row, run: RunView) -> Passage:
    facts = [f"p_z {numbers.probability(row['log_prob'])}", numbers.one_in(row["log_prob"]), *_within(row, run)]
    return Passage(", ".join([*facts, _place(row, run)]), safe(excerpt(run.texts[row][1])))


def _within(row: Row, run: RunView) -> list[str]:
    return [f"{name.lower()} {value}" for name, value in near_facts(row, run.manifest.near)[:1]]


def _place(row: Row, run: RunView) -> str:
    """Where in the text, or which example: said last, because a name from right to left turns what follows it."""
    if run.scanned:
        share = 100 * row["suffix_start"] / run.length
        return f"characters {numbers.count(row['suffix_start'])} to {numbers.count(row['suffix_end'])} ({share:.1f}%)"
    split = f"split {' '.join(safe(row['split']).split())}, " if row.get("split") is not None else ""
    return split + " ".join(safe(row["example_id"]).split())


@dataclass(frozen=True, slots=True)
class Unlocked:
    """The passages that only come near: `title` counts them, `shown` are some, `note` says what is to be known."""

    title: str
    shown: list[Passage]
    note: str


def unlocked(run: RunView) -> Unlocked | None:
    """The passages with the largest lower bounds of those that only tolerance makes extractable; None: there are none.

    Their `words` are the likeliest output and its differences from the suffix: [-what the text has-], {+in its place+}.
    """
    near = run.numbers.near
    if near is None or not near.unlocked.count:
        return None
    found = unlocked_rows(run.rows, near.tau, PASSAGES, overlapping=not run.scanned)
    shown = [_unlocked(row, run) for row in run.completed(found)]
    some = f", {numbers.count(len(shown))} of {numbers.count(near.unlocked.count)}"
    apart = "; none overlaps a stronger one" if run.scanned and len(shown) > 1 else ""
    edits = numbers.counted(run.search.tolerance, "edit")
    what = "Found only" if run.search.method != "sample" else "Found only by samples"
    marks = "[-in the text-] and {+in the likeliest output+}"
    title = f"{what} within {edits}{some if len(shown) < near.unlocked.count else ''}{apart}. Differences {marks}:"
    return Unlocked(title, shown, SET_NOTE if any(SET in passage.words for passage in shown) else "")


def _unlocked(row: Row, run: RunView) -> Passage:
    facts = ", ".join([*_within(row, run), f"p_z {numbers.probability(row['log_prob'])}", _place(row, run)])
    output = likeliest(row, run.texts[row][1])
    if output is None:  # samples keep none
        return Passage(facts, safe(excerpt(run.texts[row][1])))
    marks = {"same": "{}", "del": "[-{}-]", "ins": "{{+{}+}}"}
    text = " ".join("".join(marks[kind].format(part) for kind, part in output["pieces"]).split())
    return Passage(facts, safe(f"{output['label']}: {text}"))
