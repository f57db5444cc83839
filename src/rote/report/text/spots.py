"""Hot-spots and longest sequences in words: for the report and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from rote.analysis.coverage import HotSpot, Rank, Span
from rote.analysis.matter import Place
from rote.analysis.rates import log_prob_bounds
from rote.frames import FrameKind, frame_of
from rote.report.keys import derived, keyed, number_in
from rote.report.text import numbers
from rote.report.text.bounds import left_open
from rote.report.text.stages import left_out, stages_sentence
from rote.store.run import Finished, RunView
from rote.store.summary import Longest
from rote.store.table import Row

WORDS = 12
"""Words of a passage that an excerpt shows at most."""


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A hot-spot, as `rote.analysis.coverage.HotSpot` has it, with its text and the part of the book it stands in."""

    start: int
    end: int
    log_prob: float
    mean_prob: float
    minimum_log_prob: float
    windows: int
    example_id: str
    characters: int
    part: Place
    part_guessed: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class Spots:
    """The hot-spots of a scan: how many there are and how long they are together, and the first of them.

    `left_out`: of a scan in stages, the windows without a number; then there may be more, and they may be longer. So
    may they where a served model's list leaves open whether `undecided` windows reach the threshold.
    """

    source: str
    model: str
    scheme: str
    bos_token: int | None
    threshold: float
    rank: Rank
    span: Span
    hot_spots: int
    characters: int
    left_out: int | None = None
    undecided: int = 0
    spots: list[Spot]

    def frame(self, kind: FrameKind = "polars") -> Any:
        """A row per hot-spot."""
        return frame_of([asdict(spot) for spot in self.spots], kind, [field.name for field in fields(Spot)])

    def __repr__(self) -> str:
        return f"<{headline(self)}>"

    def _repr_html_(self) -> str:
        from rote.report.text.cards import spots_card

        return spots_card(self)


def headline(listed: Spots) -> str:
    """How much is hot, in one line."""
    least = "at least " if listed.left_out else ""
    together = f", together {least}{numbers.counted(listed.characters, 'character')}" if listed.hot_spots else ""
    together += f"; {numbers.counted(listed.left_out, 'window')} left out" if listed.left_out else ""
    return (
        f"{numbers.counted(listed.hot_spots, 'hot-spot')} at p ≥ {numbers.threshold(listed.threshold)} in "
        f"{numbers.literal(listed.source)}{together}"
    )


def told(listed: Spots, scan: RunView) -> list[str]:
    """What was looked at, and how much of it is hot."""
    model, length = scan.manifest.model, len(scan.text)
    what = "suffixes" if listed.span == "suffix" else "whole examples, prefixes included"
    far, least = ("As far as was looked at, ", "at least ") if listed.left_out else ("", "")
    if listed.undecided:
        far, least = ("For certain, ", "at least ")
    lines = [
        f"{numbers.literal(listed.source)}, {numbers.literal(listed.model)}",
        f"{far}{numbers.counted(listed.hot_spots, 'hot-spot')} at p ≥ {numbers.threshold(listed.threshold)} ({what}), "
        f"together {least}{numbers.percent(listed.characters / length)} of the text’s {numbers.count(length)} "
        f"characters. Scheme {listed.scheme}; BOS {numbers.bos(model)}",
    ]
    if listed.undecided:
        lines.append(
            f"{numbers.counted(listed.undecided, 'window')} may add to them: {numbers.bounded(scan.manifest.model)}."
        )
    return [*lines, stages_sentence(scan).strip()] if listed.left_out else lines


def highest_in_words(scan: RunView) -> str:
    """The most likely window of a scan, where none was likely enough."""
    best = float(log_prob_bounds(scan.rows)[0].max(initial=-math.inf))
    if best == -math.inf:
        stopped = int(scan.rows["bounded"].sum())
        rest = f", but for {numbers.count(stopped)} {numbers.bounded(scan.manifest.model)}" if stopped else ""
        return f"every window has probability 0 under this scheme{rest}{_but(scan)}"
    opened = left_open(scan)
    of = " of those that are not left open" if opened else ""
    return f"the most likely window{of} has {numbers.probability(best)}; try a smaller --at{_but(scan)}"


def _but(scan: RunView) -> str:
    """What the windows that have a number do not tell."""
    return (
        "" if scan.left_out is None else f". {numbers.counted(scan.left_out.height, 'window')} left out are not known"
    )


def excerpt(text: str, words: int = WORDS) -> str:
    """The first words of a passage on one line; an ellipsis where there are more."""
    every = numbers.literal(text).split()
    return " ".join(every[:words]) + (" …" if len(every) > words else "")


def longest_table(run: Finished, passage: Callable[[Row], str]) -> list[list[str]]:
    """Threshold, tokens, characters, where, probability, first words; a scan's longest sequence at each threshold."""
    table = []
    for p, entry in (run.numbers.longest or {}).items():
        if entry is None:
            table.append([numbers.threshold(number_in(p)), _none(run), "", "", "", ""])
            continue
        start, end = entry.span
        table.append(
            [
                numbers.threshold(number_in(p)),
                _tokens(entry),
                numbers.count(derived(end - start, f"longest/{p}/characters", start)),
                f"{numbers.count(start)} to {numbers.count(end)}",
                numbers.probability(entry.log_prob),
                excerpt(passage(vars(entry))),
            ]
        )
    return table


def longest_sentence(run: Finished) -> str:
    """The longest sequence at each threshold, in one line; one that several thresholds share is told once."""
    shared: dict[str, list[str]] = {}
    longest = run.numbers.longest or {}
    for p, entry in longest.items():
        what = _none(run)
        if entry is not None:
            start, end = entry.span
            tokens = f"{_tokens(entry)} {'token' if entry.tokens == 1 else 'tokens'}"
            what = f"{tokens} ({numbers.counted(end - start, 'character')} from {numbers.count(start)})"
        shared.setdefault(what, []).append(numbers.threshold(number_in(p)))
    parts = [f"at {', '.join(thresholds)}: {what}" for what, thresholds in shared.items()]
    line = f"in one generation, {'; '.join(parts)}"
    windows = run.windows
    if windows.unit == "tokens" and any(entry and entry.tokens == windows.suffix for entry in longest.values()):
        further = "it may go on beyond" if run.within else "rote longer looks further"
        line += f". {numbers.count(windows.suffix)} is a whole suffix: {further}"
    return line


def _none(run: Finished) -> str:
    return "none found" if left_out(run) is not None or left_open(run) else "none"


def _tokens(entry: Longest) -> str:
    return f"{'' if entry.exact else '≥ '}{numbers.count(entry.tokens)}"


def spots_table(
    spots: Sequence[HotSpot | Spot], text_length: int, words: Callable[[HotSpot | Spot], str], *,
    key: str | None = None,
) -> list[list[str]]:  # fmt: skip
    """Where, at which percent of the text, characters, windows, highest and mean probability, first words.

    `key`: where a page's numbers come from; None for a terminal.
    """
    table = []
    for rank, spot in enumerate(spots):
        own: dict[str, Any] = {"place": spot.start / text_length, "characters": spot.characters}
        own |= {name: getattr(spot, name) for name in ("start", "end", "windows", "log_prob")}
        own["mean_log_prob"] = math.log(spot.mean_prob)
        if key is not None:
            own = keyed(own, f"{key}/{rank}")
        table.append(
            [
                f"{numbers.count(own['start'])} to {numbers.count(own['end'])}",
                numbers.place(own["place"]),
                numbers.count(own["characters"]),
                numbers.count(own["windows"]),
                numbers.probability(own["log_prob"]),
                numbers.probability(own["mean_log_prob"]),
                excerpt(words(spot)),
            ]
        )
    return table
