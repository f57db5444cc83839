"""What the command line shows while it works and when it is done. Numbers go to standard output, all else to error."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from rote.cli.fit import print_lines, wrap

if TYPE_CHECKING:
    from rote.analysis.coverage import Span
    from rote.jobs.open import Run
    from rote.report.text.terminal import Passage
    from rote.store.run import RunView

messages = Console(stderr=True, highlight=False)

WIDEST = 160  # of a strip: beyond that the eye loses its line
PIPED = 100  # where there is no window


class _Bars(Progress):
    """Progress bars, and above them what is known so far."""

    above: Text | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        return [*([] if self.above is None else [self.above]), *super().get_renderables()]


@dataclass(frozen=True)
class Shown:
    """What is shown while a command works: how far it is, and what a scan in stages comes to so far."""

    bars: _Bars
    tell: Callable[[str, int, int], None]

    def stage(self, run: Run) -> None:
        """The headline and the strip of a scan that goes on, in the place of those of the stage before."""
        from rote.report.text.words import headline

        if not messages.is_terminal:
            return
        lines = Console(
            file=StringIO(), force_terminal=True, width=messages.width, highlight=False,
            color_system=messages.color_system,  # type: ignore[arg-type]  # a name, as it gives it
        )  # fmt: skip
        print_lines(lines, [headline(run.finished)], style="bold")
        print_strip(lines, run.view)
        self.bars.above = Text.from_ansi(lines.file.getvalue())  # type: ignore[attr-defined]  # a StringIO


@contextmanager
def progress() -> Iterator[Shown]:
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
    )  # fmt: skip
    with _Bars(*columns, console=messages, transient=True, disable=not messages.is_terminal) as bar:
        tasks: dict[str, Any] = {}
        names = {"places": "looking for places", "windows": "cutting windows", "scored": "scoring"}
        names |= {"listed": "going through the corpus", "drawn": "drawing examples", "generated": "generating"}
        names |= {"compared": "comparing with the truth", "exported": "exporting", "figures": "drawing"}
        names |= {"tried": "trying other spaces, quotes and line breaks", "packed": "packing"}
        names |= {
            "tokenised": "tokenising",
            "sorted": "sorting shards",
            "traced": "looking up",
            "counted": "counting in the corpus",
            "looked up": "looking up outputs",
            "examples": "finding examples",
        }
        names |= {"page": "writing the page", "loaded": "loading the model"}
        names |= {"words": "choosing words", "asked": "asking"}
        names |= {"read": "reading", "folds": "evaluating", "splits": "testing", "trials": "testing on held-out texts"}
        names |= {"workers": "workers", "evaluated": "token evaluations"}
        names |= {"learning": "attacking examples with answers", "attacking": "attacking"}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(names[what], total=total, rate="", completed=done)
            task = bar.tasks[tasks[what]]
            bar.update(tasks[what], completed=done, total=total, rate=f"{task.speed:,.0f}/s" if task.speed else "")

        yield Shown(bar, tell)


def leave(number: int, frame: object) -> None:
    """End the process at once: libraries that are being imported catch KeyboardInterrupt and go on, or misreport it."""
    messages.show_cursor(True)
    messages.print("stopped: no run was under way. Run the same command again.", soft_wrap=True)
    os._exit(130)


@contextmanager
def interrupted_by(handler: Callable[[int, Any], object]) -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None):  # as in a background job: whoever started it wants it so
        yield
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def print_summary(run: Run, console: Console | None = None) -> None:
    """What a run came to: in words, as a strip over the text, and in its strongest passages."""
    from rote.report.text.terminal import passages, unlocked
    from rote.report.text.words import summary_lines

    out, view = console or Console(highlight=False), run.view
    first, *lines = summary_lines(view)
    print_lines(out, [first], style="bold")
    print_lines(out, lines)
    if view.scanned:
        out.print()
        print_strip(out, view)
    if strongest := passages(view):
        out.print()
        print_passages(out, strongest, apart=view.scanned)
    if near := unlocked(view):
        out.print()
        print_lines(out, [near.title])
        for number, passage in enumerate(near.shown, 1):
            _print_passage(out, number, passage, whole=True)
        print_lines(out, [near.note] if near.note else [])
    print_places(out, report=run.folder / "report.html", table=run.folder / "scores", seal=run.seal.id)


def print_places(out: Console, **places: Path | str) -> None:
    """Where what was written is. Paths are not folded: they are there to be copied."""
    out.print()
    for name, place in places.items():
        out.print(f"{name:<8} {place}", soft_wrap=True, markup=False)


def print_json(content: Any) -> None:
    """Declared content as a file of the run would have it."""
    from rote.store.files import plain

    print(json.dumps(plain(content), indent=1, ensure_ascii=False, allow_nan=False, default=str))


def print_strip(out: Console, run: RunView, *, at: float | None = None, span: Span = "suffix") -> None:
    """A scan's text from left to right, a line for each way it can come out: the higher and warmer, the more likely.

    What lies below `at` is left blank, or below tau.
    """
    from rote.report.text.strip import levels
    from rote.report.text.terminal import lanes, legend, legend_words

    shown, floor = lanes(run, span), run.summary.tau if at is None else at
    if not shown:
        return
    names = max(len(lane.name) for lane in shown) + 1 if len(shown) > 1 else 0
    bars = max((min(out.width, WIDEST) if out.is_terminal else PIPED) - names - 2, 1)
    for lane in shown:
        line = Text(f"{lane.name:<{names}}" if names else "").append("│")
        for level in levels(lane.best, tau=floor, count=bars):
            line.append_text(_bar(level))
        out.print(line.append("│"), soft_wrap=True)
    scale = Text("  ").join(Text.assemble(_bar(level), f" {label}") for level, label in legend(shown[0], floor))
    for part in scale.wrap(out, out.width) if out.is_terminal else [scale]:
        part.rstrip()
        out.print(part, soft_wrap=True)
    print_lines(out, [legend_words(run, bars, at=at)])


def _bar(level: int) -> Text:
    from rote.report.text.strip import LEVELS, UNSEEN

    if level < 0:
        return Text("·", "dim") if level == UNSEEN else Text(" ")
    share = level / (LEVELS - 1)
    return Text("▁▂▃▄▅▆▇█"[round(share * 7)], f"rgb(255,{round(200 * (1 - share))},{round(90 * (1 - share))})")


def print_passages(out: Console, strongest: Sequence[Passage], *, apart: bool) -> None:
    """Each passage's numbers, and below them how it begins, on one line."""
    overlap = "; none overlaps a stronger one" if apart else ""
    print_lines(out, [f"The strongest passages{overlap}:" if len(strongest) > 1 else "The strongest passage:"])
    for number, passage in enumerate(strongest, 1):
        _print_passage(out, number, passage)


def _print_passage(out: Console, number: int, passage: Passage, *, whole: bool = False) -> None:
    """Its words `whole`, or as many as a line has room for."""
    first = f"{number:>2}  "
    rest = " " * len(first)
    facts = wrap(out, passage.facts, first) if out.is_terminal else [first + passage.facts]
    for line in facts:
        out.print(Text(line), soft_wrap=True)
    if whole:
        print_lines(out, [rest + passage.words])
        return
    words = Text(passage.words)
    if out.is_terminal:
        words.truncate(max(out.width - len(first), 1), overflow="ellipsis")
    out.print(Text(rest).append_text(words), soft_wrap=True)
