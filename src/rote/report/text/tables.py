"""The report's tables: coverage, (n, p), rates by group, schemes side by side. Rows of text, ready to lay out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import polars as pl

from rote.analysis.coverage import location
from rote.analysis.groups import binned_repetitions, sampled_rates, with_origin
from rote.analysis.rates import rates_by
from rote.report.keys import derived, key_of, keyed, mark, number_in, plain
from rote.report.text import numbers
from rote.report.text.spots import excerpt


def coverage_table(found: Mapping[str, Any]) -> list[list[str]]:
    """Threshold, share, characters, runs, longest run and where it is."""
    table = []
    for p, covered in found.get("coverage", {}).items():
        run = covered["longest_run"]
        longest = ["none", ""]
        if run:
            longest = [numbers.count(longest_run(p, run)), f"{numbers.count(run[0])} to {numbers.count(run[1])}"]
        counts = [
            numbers.percent(covered["share"]),
            numbers.count(covered["characters"]),
            numbers.count(covered["runs"]),
        ]
        table.append([numbers.threshold(number_in(p)), *counts, *longest])
    return table


def longest_run(p: str, run: Sequence[int]) -> int:
    """How long the longest run of characters covered at a threshold is."""
    found: int = derived(run[1] - run[0], f"coverage/{p}/longest_run", run[0])
    return found


def odds_table(manifest: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any] | None:
    if "rates" not in found:
        return None
    rates = found["rates"]
    chances = sorted({cell["p"] for cell in rates["np_table"]})
    cells = {(cell["n"], cell["p"]): numbers.rate(cell) for cell in rates["np_table"]}
    overtakes = [
        f"{_passing(entry)} for p = {numbers.threshold(number_in(p))}" for p, entry in rates["n_passing_greedy"].items()
    ]
    return {
        "unit": numbers.unit(manifest),
        "columns": [f"p = {numbers.threshold(p)}" for p in chances],
        "rows": [[numbers.count(n), *(cells[n, p] for p in chances)] for n in sorted({n for n, _ in cells})],
        "note": (
            f"The (n, p) rate is greater than the greedy rate of {numbers.rate(rates['greedy_rate'])} from this many "
            f"prompts on: {', '.join(overtakes)}."
            if any(not text.startswith("never") for text in overtakes)
            else "No number of prompts brings the (n, p) rate above the greedy rate of "
            f"{numbers.rate(rates['greedy_rate'])}."
        ),
    }


def _passing(entry: Mapping[str, Any]) -> str:
    """The n at which an (n, p) rate passes the greedy rate; a range where stopped rows leave doubt."""
    low, high = (_prompts(entry[f"n{end}"], entry[f"log10_n{end}"]) for end in ("_lower", ""))
    return high if plain(low) == plain(high) else f"{low} to {high}"


def _prompts(n: int | None, log10_n: float | None) -> str:
    if log10_n is None:
        return "never"
    if n is None:
        return mark(log10_n, numbers.scientific(log10_n * math.log(10)), "power of ten")
    return mark(n, numbers.prompts(n), "prompts")


def schemes_table(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Every scheme's numbers side by side, where there are several."""
    found = [(label, summary["schemes"][label]) for label in manifest["schemes"] if summary["schemes"].get(label)]
    if len(found) < 2:
        return None
    thresholds = list(found[0][1].get("coverage", {}))
    return {
        "columns": [f"Rate at τ = {numbers.setting(summary['tau'])}", "Rate at 0.0001", "Maximum rate"]
        + [f"Coverage at {numbers.threshold(number_in(p))}" for p in thresholds],
        "rows": [
            [numbers.name(label)]
            + [numbers.rate(each["rates"][key]) for key in ("rate_at_tau", "rate_at_0.0001", "maximum_rate")]
            + [
                numbers.percent(each["coverage"][p]["share"]) if p in each["coverage"] else numbers.MISSING
                for p in thresholds
            ]
            for label, each in found
        ],
    }


def groups(
    rows: pl.DataFrame, tau: float, manifest: Mapping[str, Any], found: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Rates by how often an example stands in the training data, and by split, where the rows say so.

    `found`: what the summary says of these rows' scheme, where the groups are taken from it with their keys.
    """
    groups = []
    keys: tuple[Literal["repetitions", "split"], ...] = ("repetitions", "split")
    for key in keys:
        if key not in rows.columns or rows[key].null_count() == rows.height:
            continue
        table, binned = binned_repetitions(rows) if key == "repetitions" else (rows, False)
        sampled = "sampling" in manifest
        if found is not None and not binned:
            own = found[f"by_{key}"]
        else:
            own = (
                rates_by(with_origin(table), key, tau=tau, of=sampled_rates)
                if sampled
                else rates_by(table, key, tau=tau)
            )
            own = derived(own, f"groups/{key}", tau)
        groups.append(
            {
                "key": key,
                "plots": ("repetitions",) if key == "repetitions" else ("splits", "split-distribution"),
                "bar": "95% interval, with a document’s examples taken together" if sampled else "95% Wilson interval",
                "unit": f"{numbers.unit(manifest).capitalize()}s",
                "rows": [_group_row(g, g[key], binned) for g in own],
            }
        )
    return groups


EXAMPLES = 300
"""Most examples that the table of examples lists."""


def examples_table(
    rows: pl.DataFrame, order: Sequence[int], suffix: Callable[[Mapping[str, Any]], str], summary: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The likeliest examples, one by one: columns, and rows of cells. `order`: their places in the table."""
    if not rows.height:
        return None
    names = ["example_id", "scheme", "log_prob", "greedy", "stopped"]
    known = [name for name in ("repetitions", "split") if rows[name].null_count() < rows.height]
    listed = rows[list(order[:EXAMPLES])].select(*names, *known).iter_rows(named=True)
    columns = [_head("Example"), _head("p_z", number=True, minimum=True), _head("Prompts for 90%", number=True)]
    columns += [_head("Greedy"), *(_head(name.capitalize(), number=name == "repetitions") for name in known)]
    total = summary["examples"]
    caption = "The likeliest first. Choose an example to see its tokens. Greedy: greedy decoding gives it back."
    if rows.height > EXAMPLES:
        most = numbers.count(derived(EXAMPLES, "examples/listed", total))
        caption = f"The {most} likeliest of {numbers.count(total)}. {caption.removeprefix('The likeliest first. ')}"
    return {
        "caption": caption,
        "columns": [*columns, _head("First words")],
        "rows": [_example(place, row, known, suffix) for place, row in zip(order[:EXAMPLES], listed, strict=True)],
    }


def keyed_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the score table with its keys: `scores`, the example's id as a page shows it, the scheme, the column."""
    found: dict[str, Any] = keyed(row, f"scores/{numbers.literal(row['example_id'])}/{row['scheme']}")
    return found


def _example(
    place: int, row: dict[str, Any], known: Sequence[str], suffix: Callable[[Mapping[str, Any]], str]
) -> dict[str, Any]:
    words = excerpt(suffix(row))
    row = keyed_row(row)
    most, least = ("at most ", "at least ") if row["stopped"] else ("", "")
    log_prob = row["log_prob"]
    cells = [
        _cell(most + numbers.probability(log_prob), number=True),
        # Sorted by p_z: beyond the range of floats there are no numbers of prompts to sort by.
        _cell(least + numbers.prompts_for(log_prob, 0.9), number=True, sort=-log_prob),
        _cell("yes" if row["greedy"] else "no"),
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
    return {"row": place, "name": numbers.name(row["example_id"]), "cells": cells, "words": words}


def _head(name: str, *, number: bool = False, minimum: bool = False) -> dict[str, Any]:
    return {"name": name, "number": number, "minimum": minimum}


def _cell(shown: str, *, number: bool = False, sort: float | None = None) -> dict[str, Any]:
    return {"shown": shown, "number": number, "sort": sort}


def distribution(rows: pl.DataFrame) -> dict[str, Any]:
    """How many windows have which p_z, by powers of ten from 0.0001 on, each with a bar."""
    found = location(rows)
    edges, counts = found.log10.edges, found.log10.counts
    decades = [(edges[i], edges[i + 10], sum(counts[i : i + 10])) for i in range(0, len(counts), 10)]
    most = max(count for _, _, count in decades) or 1
    return {
        "title": f"{numbers.count(sum(counts))} of {numbers.counted(rows.height, 'window')} with p_z of 0.0001 or more"
        + (f"; {numbers.count(found.undecided)} stopped early may be among them" if found.undecided else ""),
        "rows": [
            [f"{low:g} to {high:g}", numbers.count(count), "█" * math.ceil(30 * count / most)]
            for low, high, count in decades
        ],
    }


def _group_row(group: Mapping[str, Any], value: Any, binned: bool) -> dict[str, Any]:
    label = "not given" if value is None else numbers.count(value) if isinstance(value, int) else numbers.name(value)
    if binned and value is not None and value > 1:
        label = f"{numbers.count(value)} to {numbers.count(derived(2 * value - 1, f'{key_of(value)}/last', value))}"
    rate = group["rate_at_tau"]
    low, high = rate["interval"]
    return {
        "label": label,
        "examples": numbers.count(group["examples"]),
        "greedy": numbers.rate(group["greedy_rate"]),
        "rate": numbers.rate(rate),
        "interval": f"{numbers.percent(low)} to {numbers.percent(high)}",
        "at": round(100 * rate["rate"], 2),
        "low": round(100 * low, 2),
        "high": round(100 * high, 2),
    }
