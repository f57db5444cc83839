"""Which rows a page carries: all of a run, or of one that is too large for a page some; and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rote.report.keys import derived
from rote.report.page.blocks import EXAMPLES
from rote.report.text import numbers
from rote.report.text.bounds import or_open
from rote.report.text.stages import left_out
from rote.store.run import Finished, Passages, RunView
from rote.store.table import Row

SOME = 10_000
"""Rows that a page carries of a run that is too large for one: so many of the likeliest, as many evenly spread."""


def examples_shown(rows: pl.DataFrame, order: Sequence[int], texts: Passages) -> list[tuple[int, str, str]]:
    """Row, prefix and suffix of each example, as far as a page shows them."""
    shown = rows[list(order[:EXAMPLES])].select("example_id", "start", "suffix_start", "suffix_end")
    return [(row, *texts[place]) for row, place in zip(order, shown.iter_rows(named=True), strict=False)]


def among(rows: pl.DataFrame, places: Sequence[int], found: Sequence[Row]) -> list[Row]:
    """Rows that were found among all, as they stand among those that the page carries: `rows`, from these places."""
    at = {place: number for number, place in enumerate(places)}
    return [{"row": at[row["row"]], **rows.row(at[row["row"]], named=True)} for row in found]


def carried_of(run: Finished, carried: int) -> str:
    """What a page carries of a run that is too large for one."""
    every, unit = run.summary.examples, run.unit
    listed = numbers.counted(derived(carried, "rows/carried", every), unit)
    return (
        f"This run is too large for a page: of its {numbers.counted(every, unit)} this one carries {listed}, the "
        f"{numbers.count(derived(SOME, 'rows/likeliest', every))} likeliest and as many evenly spread. Every number, "
        "table and plot is of all of them; what can be read, chosen and downloaded here is of those carried. All rows "
        "are in the Parquet files of the run folder’s scores/."
    )


def reader_caption(run: Finished, blocks: int, part: bool) -> str:
    if run.scanned and not part:
        grey = "grey is in no suffix: it was not looked at."
        if left_out(run) is not None:
            grey = (
                "grey was not looked at in full: it is in no suffix, or in one of a window that has no "
                "number, and no scored window there reaches τ."
            )
        return (
            "Each character is shaded by the highest probability of any window whose suffix covers it, in softer "
            f"tones of the strip’s colours; blank is below τ{or_open(run)}, and {grey}"
        )
    rows = run.summary.examples
    left = derived(rows - blocks, "reader/left_out", rows)
    told = "The prefix is grey, the suffix shaded by its probability; the likeliest come first."
    if not left:
        return told
    where = "" if part else "; the table for download has all"
    return f"{told} {numbers.counted(left, run.unit)} of {numbers.count(rows)} left out here{where}."


def marks(run: RunView, rows: pl.DataFrame, order: Sequence[int]) -> str:
    """What marks in the texts stand for."""
    if run.lacking is not None:
        texts = [prefix + suffix for _, prefix, suffix in examples_shown(rows, order, run.texts)]
    else:
        texts = [run.text] if run.scanned else ["".join(pair) for pair in run.texts.decoded.values()]
    told = numbers.marks_in(texts)
    return f" In the text, {told}." if told else ""
