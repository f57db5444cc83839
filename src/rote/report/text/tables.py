"""The report's tables: coverage, (n, p), rates by group, schemes side by side. Rows of text, ready to lay out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from rote.analysis.coverage import location
from rote.analysis.groups import binned_repetitions, sampled_rates, with_origin
from rote.analysis.rates import rates_by
from rote.report.keys import derived, key_of, keyed, mark, number_in, plain
from rote.report.text import numbers
from rote.report.text.spots import excerpt
from rote.report.text.stages import left_out
from rote.store.run import Finished, Passages, RunView
from rote.store.summary import Coverage, Passing, Rates, RepetitionRates
from rote.store.table import Row


def coverage_table(run: Finished) -> list[list[str]]:
    """Threshold, share of what was looked at and of the text, characters, runs, longest run and where it is."""
    table = []
    for p, covered in run.coverage.items():
        longest = ["none", ""]
        if stretch := covered.longest_run:
            places = f"{numbers.count(stretch[0])} to {numbers.count(stretch[1])}"
            longest = [numbers.count(longest_run(p, stretch)), places]
        shares = [numbers.covered(covered), numbers.percents(covered.share, covered.share_upper)]
        counts = [covered_characters(covered), numbers.count(covered.runs)]
        table.append([numbers.threshold(number_in(p)), *shares, *counts, *longest])
    return table


def covered_characters(covered: Coverage) -> str:
    """How many characters are covered; a range where a served model's list leaves windows open."""
    least, most = covered.characters, covered.characters_upper
    return numbers.count(least) if most in (None, least) else f"{numbers.count(least)} to {numbers.count(most)}"


def coverage_note(run: Finished) -> str:
    """What the shares are of."""
    looked_at = run.looked_at
    least = ""
    if left_out(run) is not None:
        least = " Only windows that were scored count, so with those left out more may be covered, and longer runs."
    if any(covered.undecided for covered in run.coverage.values()):
        least += (
            f" Ranges, and runs that may be longer: windows {numbers.bounded(run.manifest.model)} count as below a "
            "threshold and, at the most, as above it."
        )
    return (
        f"Looked at are the {numbers.counted(looked_at.characters, 'character')} that lie in any suffix, "
        f"{numbers.percent(looked_at.share)} of the text’s {numbers.count(run.length)}; a prompt’s own can never count."
        f"{least}"
    )


def longest_run(p: str, stretch: Sequence[int]) -> int:
    """How long the longest run of characters covered at a threshold is."""
    return derived(stretch[1] - stretch[0], f"coverage/{p}/longest_run", stretch[0])


def odds_table(run: Finished) -> dict[str, Any]:
    rates = run.numbers.rates
    chances = sorted({cell.p for cell in rates.np_table})
    cells = {(cell.n, cell.p): numbers.rate(cell) for cell in rates.np_table}
    overtakes = [
        f"{_passing(entry)} for p = {numbers.threshold(number_in(p))}" for p, entry in rates.n_passing_greedy.items()
    ]
    ever = any(not text.startswith("never") for text in overtakes)
    if left_out(run) is None:
        greedy = numbers.rate(rates.greedy_rate)
        note = f"The (n, p) rate is greater than the greedy rate of {greedy} from this many prompts on: "
        never = f"No number of prompts brings the (n, p) rate above the greedy rate of {greedy}."
    else:
        given = f"the {numbers.count(rates.greedy_rate.count)} that greedy decoding gives back"
        note = f"Of the windows that were scored, more come than {given} from this many prompts on: "
        never = f"Of the windows that were scored, no number of prompts brings more than {given}."
    return {
        "unit": run.unit,
        "columns": [f"p = {numbers.threshold(p)}" for p in chances],
        "rows": [[numbers.count(n), *(cells[n, p] for p in chances)] for n in sorted({n for n, _ in cells})],
        "note": f"{note}{', '.join(overtakes)}." if ever else never,
    }


def _passing(entry: Passing) -> str:
    """The n at which an (n, p) rate passes the greedy rate; a range where stopped rows leave doubt."""
    low, high = _prompts(entry.n_lower, entry.log10_n_lower), _prompts(entry.n, entry.log10_n)
    return high if plain(low) == plain(high) else f"{low} to {high}"


def _prompts(n: int | None, log10_n: float | None) -> str:
    if log10_n is None:
        return "never"
    if n is None:
        return mark(log10_n, numbers.scientific(log10_n * math.log(10)), "power of ten")
    return mark(n, numbers.prompts(n), "prompts")


def schemes_table(run: Finished) -> dict[str, Any] | None:
    """Every scheme's numbers side by side, where there are several."""
    schemes = run.summary.schemes
    if len(schemes) < 2:
        return None
    return {
        "columns": [f"Rate at τ = {numbers.setting(run.summary.tau)}", "Rate at 0.0001", "Maximum rate"]
        + [f"Coverage at {numbers.threshold(number_in(p))}" for p in run.coverage],
        "rows": [
            [numbers.name(label)]
            + [numbers.rate(rate) for rate in (own.rates.rate_at_tau, own.rates.rate_at_1e_4, own.rates.maximum_rate)]
            + [numbers.covered(covered) for covered in (own.coverage or {}).values()]
            for label, own in ((label, schemes[label]) for label in run.manifest.schemes)
        ],
    }


def groups(run: RunView) -> list[dict[str, Any]]:
    """Rates by how often an example stands in the training data, and by split, where the rows say so."""
    listed: list[dict[str, Any]] = []
    if run.numbers.by_repetitions is not None:
        every, binned = _by_repetitions(run, run.numbers.by_repetitions)
        rows = [_group_row(group, _times(group.repetitions, binned)) for group in every]
        listed.append({"key": "repetitions", "plots": ("repetitions",), "rows": rows})
    if run.numbers.by_split is not None:
        rows = [_group_row(group, _named(group.split)) for group in run.numbers.by_split]
        listed.append({"key": "split", "plots": ("splits", "split-distribution"), "rows": rows})
    bar = "95% interval, with a document’s examples taken together" if run.drawn else "95% Wilson interval"
    return [{**group, "bar": bar, "unit": f"{run.unit.capitalize()}s"} for group in listed]


def _by_repetitions(run: RunView, stored: Sequence[RepetitionRates]) -> tuple[Sequence[RepetitionRates], bool]:
    """The groups as the summary has them or, where they are too many, put together; and whether they were."""
    table, binned = binned_repetitions(run.rows)
    if not binned:
        return stored, False
    tau = run.summary.tau
    if run.drawn:
        own = rates_by(with_origin(table), "repetitions", tau=tau, of=sampled_rates)
    else:
        own = rates_by(table, "repetitions", tau=tau)
    return derived(own, "groups/repetitions", tau), True


EXAMPLES = 300
"""Most examples that the table of examples lists."""


def examples_table(rows: pl.DataFrame, order: Sequence[int], texts: Passages, total: int) -> dict[str, Any] | None:
    """The likeliest of `total` examples, one by one: columns, rows of cells. `order`: their places in the table."""
    if not rows.height:
        return None
    names = ["example_id", "scheme", "log_prob", "greedy", "bounded"]
    known = [name for name in ("repetitions", "split") if rows[name].null_count() < rows.height]
    listed = rows[list(order[:EXAMPLES])].select(*names, *known).iter_rows(named=True)
    columns = [_head("Example"), _head("p_z", number=True, minimum=True), _head("Prompts for 90%", number=True)]
    columns += [_head("Greedy"), *(_head(name.capitalize(), number=name == "repetitions") for name in known)]
    columns += [_head("Border")] if texts.apart else []
    caption = "The likeliest first. Choose an example to see its tokens. Greedy: greedy decoding gives it back."
    if rows.height > EXAMPLES:
        most = numbers.count(derived(EXAMPLES, "examples/listed", total))
        caption = f"The {most} likeliest of {numbers.count(total)}. {caption.removeprefix('The likeliest first. ')}"
    return {
        "caption": caption,
        "columns": [*columns, _head("First words")],
        "rows": [_example(place, row, known, texts) for place, row in zip(order[:EXAMPLES], listed, strict=True)],
    }


def keyed_row(row: Row) -> Row:
    """A row of the score table with its keys: `scores`, the example's id as a page shows it, the scheme, the column."""
    return keyed(row, f"scores/{numbers.literal(row['example_id'])}/{row['scheme']}")


def _example(place: int, row: Row, known: Sequence[str], texts: Passages) -> dict[str, Any]:
    words = excerpt(texts[row][1])
    border = [_cell("inside a token" if row["example_id"] in texts.apart else "")] if texts.apart else []
    row = keyed_row(row)
    most, least = ("at most ", "at least ") if row["bounded"] else ("", "")
    log_prob = row["log_prob"]
    cells = [
        _cell(most + numbers.probability(log_prob), number=True),
        # Sorted by p_z: beyond the range of floats there are no numbers of prompts to sort by.
        _cell(least + numbers.prompts_for(log_prob, 0.9), number=True, sort=-log_prob),
        _cell(numbers.yes(row["greedy"])),
    ]
    for name in known:
        value = row[name]
        shown = (
            numbers.MISSING
            if value is None
            else numbers.count(value)
            if isinstance(value, int)
            else numbers.name(value)
        )
        cells.append(_cell(shown, number=name == "repetitions"))
    return {"row": place, "name": numbers.name(row["example_id"]), "cells": [*cells, *border], "words": words}


def _head(name: str, *, number: bool = False, minimum: bool = False) -> dict[str, Any]:
    return {"name": name, "number": number, "minimum": minimum}


def _cell(shown: str, *, number: bool = False, sort: float | None = None) -> dict[str, Any]:
    return {"shown": shown, "number": number, "sort": sort}


def distribution(rows: pl.DataFrame) -> dict[str, Any]:
    """How many windows have which p_z, by powers of ten from 0.0001 on, each with a bar."""
    along = location(rows)
    edges, counts = along.log10.edges, along.log10.counts
    decades = [(edges[i], edges[i + 10], sum(counts[i : i + 10])) for i in range(0, len(counts), 10)]
    most = max(count for _, _, count in decades) or 1
    unit = "window" if "stage" not in rows.columns or _empty(rows, "stage") else "scored window"
    return {
        "title": f"{numbers.count(sum(counts))} of {numbers.counted(rows.height, unit)} with p_z of 0.0001 or more"
        + (
            f"; {numbers.count(along.undecided)} more may be among them, of which only a bound is known"
            if along.undecided
            else ""
        ),
        "rows": [
            [f"{low:g} to {high:g}", numbers.count(count), "█" * math.ceil(30 * count / most)]
            for low, high, count in decades
        ],
    }


def _empty(rows: pl.DataFrame, name: str) -> bool:
    return rows[name].null_count() == rows.height


def _times(repetitions: int | None, binned: bool) -> str:
    if repetitions is None:
        return "not given"
    if not binned or repetitions < 2:
        return numbers.count(repetitions)
    last = derived(2 * repetitions - 1, f"{key_of(repetitions)}/last", repetitions)
    return f"{numbers.count(repetitions)} to {numbers.count(last)}"


def _named(split: str | None) -> str:
    return "not given" if split is None else numbers.name(split)


def _group_row(group: Rates, label: str) -> dict[str, Any]:
    rate = group.rate_at_tau
    low, high = rate.interval
    return {
        "label": label,
        "examples": numbers.count(group.examples),
        "greedy": numbers.rate(group.greedy_rate),
        "rate": numbers.rate(rate),
        "interval": f"{numbers.percent(low)} to {numbers.percent(high)}",
        "at": round(100 * rate.rate, 2),
        "low": round(100 * low, 2),
        "high": round(100 * high, 2),
    }
