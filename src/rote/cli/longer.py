"""rote longer: longer windows where a finished scan has hot-spots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines
from rote.cli.screen import messages, print_summary

if TYPE_CHECKING:
    from rote import Run
    from rote.store.summary import Longest


@command("rote longer runs/alice-bundled --prefix 25 --suffix 275")
def longer(run: Run | None, asked: Asked) -> None:
    """How long a passage comes out in one piece? Scores longer windows whose suffix starts in a scan's hot-spots."""
    from rote.jobs.spots import AT
    from rote.report.text.spots import highest_in_words

    scan: Run = asked["run"]
    if run is None:
        reason = f"{scan.folder} has no hot-spot at p ≥ {asked.get('at', AT):g}: {highest_in_words(scan.view)}."
        print_lines(messages, [f"{reason} Nothing was scored or written."])
        return
    print_summary(run)
    if scan.view.left_out is not None:
        told = f"The hot-spots are those of {scan.folder}, a scan in stages. What it left out may have others."
        print_lines(Console(highlight=False), ["", told])
    _print_longest(run.finished.numbers.longest or {}, scan.view.text)


def _print_longest(longest: Mapping[str, Longest | None], text: str) -> None:
    """The longest sequence at each threshold with its text; one that several thresholds share is shown once."""
    from rote.report.text import numbers
    from rote.report.text.spots import excerpt

    out = Console(highlight=False)
    shared: dict[tuple[int, int, int, float], list[str]] = {}
    for threshold, entry in longest.items():
        if entry is not None:
            shared.setdefault((entry.tokens, *entry.span, entry.log_prob), []).append(
                numbers.threshold(float(threshold))
            )
    for (tokens, start, end, log_prob), thresholds in shared.items():
        told = (
            f"longest at {', '.join(thresholds)}: {numbers.counted(tokens, 'token')}, characters "
            f"{numbers.count(start)} to {numbers.count(end)}, with probability {numbers.probability(log_prob)}"
        )
        print_lines(out, ["", told], style="bold")
        print_lines(out, [excerpt(text[start:end], 60)])
