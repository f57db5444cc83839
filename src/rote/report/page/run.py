"""A run as one self-contained HTML page: the headline in words, then the numbers, the places and the method behind it.

Everything here turns numbers that `rote.analysis` computed into sentences and table cells; the template only lays them
out. Nothing is read from or written to disk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.coverage import character_maximum, hot_spots, spans
from rote.analysis.groups import with_origin
from rote.analysis.rates import log_prob_bounds
from rote.report.figures.run import run_figures
from rote.report.keys import derived, key_of, keyed, number_in
from rote.report.page.blocks import EXAMPLES, exact, example_blocks, taken, text_blocks
from rote.report.page.layout import render_page
from rote.report.page.pack import Side, pack
from rote.report.text import numbers
from rote.report.text.drawn import sampled_section
from rote.report.text.method import meaning, method
from rote.report.text.near import near_facts, near_section, variants
from rote.report.text.spots import longest_table, spots_table
from rote.report.text.strip import strip
from rote.report.text.tables import (
    coverage_table,
    examples_table,
    groups,
    keyed_row,
    longest_run,
    odds_table,
    schemes_table,
)
from rote.report.text.words import headline, lede, provenance

PASSAGES = 10
SPOTS = 300
SPOTS_AT = 0.5


class Passages(Protocol):
    """The texts of a run: the scanned one, or None, and (prefix, suffix) of a row."""

    @property
    def text(self) -> str | None: ...

    def __getitem__(self, row: Mapping[str, Any]) -> tuple[str, str]: ...


def render(*, manifest: Mapping[str, Any], summary: Mapping[str, Any], scores: pl.DataFrame, texts: Passages) -> str:
    """The report of a scan or score run as HTML, ready to be written as UTF-8.

    `scores` is the whole score table, every scheme; the first scheme of the manifest is shown in full.
    """
    text, scheme, unit = texts.text, manifest["schemes"][0], numbers.unit(manifest)
    rows = scores.filter(pl.col("scheme") == scheme)
    figures = run_figures(manifest, summary, rows)
    drawn = with_origin(rows) if "sampling" in manifest else rows
    side = Side("", manifest["model"]["name"], scheme, drawn, manifest.get("near"))
    manifest, summary = keyed(manifest, "manifest"), keyed(summary, "summary")
    found = summary["schemes"].get(scheme, {})
    # Examples that were given may come from different texts, where equal positions mean nothing.
    strongest = strongest_rows(rows, math.log(summary["tau"]), overlapping=manifest["kind"] == "score")
    best = _best_by_character(rows, manifest)
    near = near_section(manifest, found)
    order = by_likelihood(rows)
    blocks = text_blocks(text) if text is not None else example_blocks(_examples(rows, order, texts))
    length = None if text is None else len(text)
    packed = pack([side], tau=summary["tau"], length=length, unit=unit, beside=taken(blocks))
    spots = _spots(rows, manifest, texts)
    return render_page(
        "report.html.j2",
        packed=packed,
        figures=[figure for figure in figures if figure.name != "heatmap"],
        kind=manifest["kind"],
        created=manifest.get("created"),
        created_words=_date(manifest.get("created")),
        source=numbers.name(manifest["source"]["name"]),
        model=numbers.name(manifest["model"]["name"]),
        warnings=[numbers.name(warning) for warning in summary.get("warnings", [])],
        headline=headline(manifest, summary, found),
        lede=lede(manifest, summary, found),
        provenance=provenance(manifest, found, best),
        cards=_cards(manifest, summary, found),
        strip=None if best is None else strip(best, tau=summary["tau"]),
        lanes=_lanes(near is not None),
        blocks=blocks,
        reader_caption=_reader_caption(manifest, summary, len(blocks)),
        reader_note=f"Click on the text, or select some of it, to see the {unit} that it belongs to.",
        coverage=coverage_table(found),
        longest=longest_table(found, lambda entry: texts[dict(entry)][1]),
        spots=spots,
        spots_at=numbers.threshold(SPOTS_AT),
        spots_listed=_listed(spots, summary),
        examples=None if text is not None else examples_table(rows, order, lambda row: texts[row][1], summary),
        sampled=sampled_section(manifest, summary, found),
        odds=odds_table(manifest, found),
        near=near,
        passages=[_passage(i, row, manifest, texts) for i, row in enumerate(strongest, 1)],
        passages_title=_passages_title(len(strongest)),
        passages_caption=_passages_caption(manifest, summary, rows, len(strongest)),
        groups=groups(rows, summary["tau"], manifest, found),
        schemes=schemes_table(manifest, summary),
        meaning=meaning(manifest, rows),
        method=method(manifest, summary, found),
        table={"note": _download_note(manifest, summary, packed.data["table"])},
    )


def _lanes(near: bool) -> list[dict[str, Any]]:
    """What is drawn over one another: a lane for each column that a character can be shaded by."""
    lanes = [{"run": 0, "column": "log_prob", "name": "verbatim"}]
    return [*lanes, {"run": 0, "column": "lower", "name": "near-verbatim"}] if near else lanes


def by_likelihood(rows: pl.DataFrame) -> list[int]:
    """The rows' places in the table, the likeliest first; what was stopped early comes last."""
    lower = log_prob_bounds(rows)[0]
    order: list[int] = np.lexsort((np.arange(rows.height), -lower)).tolist()
    return order


def _examples(rows: pl.DataFrame, order: Sequence[int], texts: Passages) -> list[tuple[int, str, str]]:
    """Row, prefix and suffix of each example, as far as a page shows them."""
    names = rows["example_id"].to_list()
    return [(row, *texts[{"example_id": names[row]}]) for row in order[:EXAMPLES]]


def _reader_caption(manifest: Mapping[str, Any], summary: Mapping[str, Any], blocks: int) -> str:
    if manifest["kind"] == "scan":
        return (
            "Each character is shaded by the highest probability of any window whose suffix covers it, in softer "
            "tones of the strip’s colours; unshaded is below τ, and grey letters are in no suffix: they were not "
            "looked at."
        )
    rows = summary["examples"]
    left = derived(rows - blocks, "reader/left_out", rows)
    return "The prefix is grey, the suffix shaded by its probability; the likeliest come first." + (
        f" {numbers.counted(left, 'example')} of {numbers.count(rows)} left out here; the table for download has all."
        if left
        else ""
    )


def _listed(spots: Sequence[Any], summary: Mapping[str, Any]) -> str:
    if len(spots) < SPOTS:
        return ""
    return f"The {numbers.count(derived(SPOTS, 'spots/listed', summary['examples']))} longest. "


def _download_note(manifest: Mapping[str, Any], summary: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    unit = numbers.unit(manifest)
    room = "" if table["blob"] else " This page has no room for it as Parquet."
    return (
        f"A row for each of {numbers.counted(summary['examples'], unit)} under {numbers.name(manifest['schemes'][0])}: "
        f"{', '.join(table['columns'])}. log_prob is the natural logarithm of p_z.{room} The run folder’s scores/ has "
        "every scheme, and every token’s probability and rank; rote export writes all of it for other programs."
    )


def strongest_rows(rows: pl.DataFrame, floor: float, *, overlapping: bool) -> list[dict[str, Any]]:
    """The most likely rows at or above tau; unless `overlapping`, none whose suffix overlaps a more likely one's."""
    if not rows.height:
        return []
    places = rows.select("log_prob", "suffix_start", "suffix_end").with_row_index("row")
    extracted = places.filter(pl.Series(log_prob_bounds(rows)[0] >= floor))
    order = extracted.sort("log_prob", "suffix_start", "row", descending=[True, False, False], nulls_last=True)
    chosen: list[tuple[int, int, int]] = []
    for row, start, end in order.select("row", "suffix_start", "suffix_end").iter_rows():
        if overlapping or all(end <= other_start or start >= other_end for _, other_start, other_end in chosen):
            chosen.append((row, start, end))
        if len(chosen) == PASSAGES:
            break
    return [{"row": row, **rows.row(row, named=True)} for row, _, _ in chosen]


def _best_by_character(rows: pl.DataFrame, manifest: Mapping[str, Any]) -> NDArray[np.float64] | None:
    """Per character of a scanned text the largest log p_z of the windows whose suffix covers it; None: no scan."""
    if manifest["kind"] != "scan" or not rows.height:
        return None
    return character_maximum(*spans(rows), log_prob_bounds(rows)[0], manifest["source"]["characters"])


def _spots(rows: pl.DataFrame, manifest: Mapping[str, Any], texts: Passages) -> list[dict[str, Any]]:
    """The longest hot-spots of a scan, and where each starts."""
    if manifest["kind"] != "scan":
        return []
    length = manifest["source"]["characters"]
    found = hot_spots(rows, length, SPOTS_AT, top=SPOTS)

    def words(spot: Any) -> str:
        return texts[{"start": spot.start, "suffix_start": spot.start, "suffix_end": spot.end}][1]

    cells = spots_table(found, length, words, key="spots")
    return [{"start": spot.start, "cells": row} for spot, row in zip(found, cells, strict=True)]


def _cards(
    manifest: Mapping[str, Any], summary: Mapping[str, Any], found: Mapping[str, Any]
) -> list[list[dict[str, str]]]:
    rows: list[list[dict[str, str]]] = []
    if rates := found.get("rates"):
        named = [("Greedy rate", "greedy_rate"), (f"Rate at τ = {numbers.setting(summary['tau'])}", "rate_at_tau")]
        named += [("Rate at 0.0001", "rate_at_0.0001"), ("Maximum rate", "maximum_rate")]
        rows.append([_rate_card(name, rates[key], rates, manifest) for name, key in named])
    if covered := found.get("coverage"):
        rows.append(
            [
                _card(
                    f"Coverage at {numbers.threshold(number_in(p))}",
                    numbers.percent(c["share"]),
                    f"{numbers.count(c['characters'])} characters",
                )
                for p, c in covered.items()
            ]
        )
    cost = [
        _card(
            f"{numbers.unit(manifest).capitalize()}s scored",
            numbers.count(summary["examples"]),
            f"{numbers.count(summary['dropped'])} dropped",
        ),
        _card("Token evaluations", numbers.count(summary["token_evals"]), "positions fed to the model"),
        _card(
            "Time",
            numbers.duration(summary["seconds"]),
            f"{numbers.name(manifest['model']['device'])}, {numbers.name(manifest['model']['dtype'])}",
        ),
    ]
    if covered:
        p, run = next(
            ((p, c["longest_run"]) for p, c in covered.items() if c["longest_run"]), (next(iter(covered)), None)
        )
        characters = numbers.count(longest_run(p, run)) if run else "none"
        cost.insert(0, _card("Longest run", characters, f"characters, at {numbers.threshold(number_in(p))}"))
    return [*rows, cost]


def _rate_card(
    name: str, rate: Mapping[str, Any], rates: Mapping[str, Any], manifest: Mapping[str, Any]
) -> dict[str, str]:
    low, high = rate["interval"]
    note = f"{numbers.count(rate['count'])} of {numbers.count(rates['examples'])}"
    if rate["rate_upper"] > rate["rate"]:
        return _card(
            name,
            f"≥ {numbers.percent(rate['rate'])}",
            f"at most {numbers.percent(rate['rate_upper'])}: rows stopped early",
        )
    if manifest["kind"] == "score":
        note += f"; 95% interval {numbers.percent(low)} to {numbers.percent(high)}"
    return _card(name, numbers.percent(rate["rate"]), note)


def _card(name: str, value: str, note: str) -> dict[str, str]:
    return {"name": name, "value": value, "note": note}


def _passages_title(shown: int) -> str:
    return "The strongest passages" if shown != 1 else "The strongest passage"


def _passages_caption(manifest: Mapping[str, Any], summary: Mapping[str, Any], rows: pl.DataFrame, shown: int) -> str:
    unit, tau = numbers.unit(manifest), numbers.setting(summary["tau"])
    if shown:
        overlap = "; none overlaps a stronger one" if manifest["kind"] == "scan" else ""
        listed = f"The {unit} with the highest p_z"
        if shown > 1:
            several = derived(shown, "passages/listed", summary["tau"])
            listed = f"The {numbers.counted(several, unit)} with the highest p_z"
        return (
            f"{listed}{overlap}. The prefix, in grey, is the prompt; the suffix, marked, is what the model gives back."
            + (" Below it, the heaviest outputs near it, with their differences." if manifest.get("near") else "")
        )
    if not rows.height:
        return f"There are no {unit}s to show."
    lower = log_prob_bounds(rows)[0]
    best = derived(float(lower.max()), "passages/highest", summary["tau"])
    if best == -math.inf:
        rest = "every one has probability 0 under this scheme or was given up early, as certain to end below τ"
    else:
        rest = f"the highest p_z among those scored in full is {numbers.probability(best)}"
    return f"No {unit} reaches τ = {tau}, so there is no passage to show; {rest}."


def _passage(number: int, row: dict[str, Any], manifest: Mapping[str, Any], texts: Passages) -> dict[str, Any]:
    prefix, suffix = texts[row]
    index, row = row["row"], keyed_row(row)
    scanned = manifest["kind"] == "scan"
    place = [] if scanned else [numbers.name(row["example_id"])]
    if row["suffix_start"] is not None:
        where = f"haracters {numbers.count(row['suffix_start'])} to {numbers.count(row['suffix_end'])}"
        if length := manifest["source"].get("characters"):
            share = derived(row["suffix_start"] / length, f"{key_of(row['suffix_start'])}/place", length)
            where += f", at {numbers.place(share)} of the text"
        place.append(f"{'C' if scanned else 'c'}{where}")
    log_prob = row["log_prob"]
    return {
        "number": number,
        "row": index,
        "place": ", ".join(place),
        "prefix": exact(prefix),
        "suffix": exact(suffix),
        "facts": [
            ("Probability p_z", numbers.probability(log_prob)),
            ("Expected prompts", numbers.expected_prompts(log_prob)),
            ("Prompts for 90%", numbers.prompts_for(log_prob, 0.9)),
            ("Greedy", "yes" if row["greedy"] else "no"),
            *near_facts(row, manifest),
        ],
        "variants": variants(row, suffix),
    }


def _date(created: str | None) -> str:
    try:
        moment = datetime.fromisoformat(created or "")
    except ValueError:
        return created or ""
    return f"{moment.day} {moment:%B %Y, %H:%M} {moment.tzname() or ''}".strip()
