"""A run as one self-contained HTML page: the headline in words, then the numbers, the places and the method behind it.

Everything here turns numbers that `rote.analysis` computed into sentences and table cells; the template only lays them
out. Nothing is read from or written to disk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rote.analysis.coverage import along_text, hot_spots
from rote.analysis.groups import with_origin
from rote.analysis.rates import log_prob_bounds
from rote.analysis.strongest import by_likelihood, chosen_rows, strongest_rows, unlocked_rows
from rote.analysis.summary import left_out_of
from rote.progress import Progress, quiet
from rote.report.figures.run import run_figures
from rote.report.keys import derived, key_of, keyed, number_in
from rote.report.page import carried
from rote.report.page.blocks import exact, example_blocks, taken, text_blocks
from rote.report.page.layout import render_page
from rote.report.page.pack import PackedRun, pack
from rote.report.text import numbers
from rote.report.text.bounds import is_open, or_open, why_open
from rote.report.text.corpus import corpus_section
from rote.report.text.method import APART, meaning, method
from rote.report.text.near import LISTED, SET, SET_NOTE, SETS, likeliest, near_facts, near_section, variants
from rote.report.text.rate import sampled_section
from rote.report.text.spots import longest_table, spots_table
from rote.report.text.stages import left_out
from rote.report.text.strip import Strip, strip
from rote.report.text.tables import (
    coverage_note,
    coverage_table,
    covered_characters,
    examples_table,
    groups,
    keyed_row,
    longest_run,
    odds_table,
    schemes_table,
)
from rote.report.text.variants import variant_warnings
from rote.report.text.words import headline, leading_groups, lede, provenance
from rote.store.run import Finished, RunView
from rote.store.summary import Rate, Rates
from rote.store.table import Row

SPOTS = 300
SPOTS_AT = 0.5
CARDS = 8  # groups with a card of their own


def render_run(run: RunView, progress: Progress = quiet) -> str:
    """The report of a scan or score run as HTML, ready to be written as UTF-8. The first scheme is shown in full.

    `progress` counts rows that are packed, as "page".
    """
    figures = run_figures(run, run.rows, run.left_out)
    shown = replace(
        run,
        manifest=keyed(run.manifest, "manifest"),
        summary=keyed(run.summary, "summary"),
        seal=keyed(run.seal, "seal/id"),
    )
    tau, part = shown.summary.tau, run.lacking is not None
    text = None if part else run.texts.text
    # Examples that were given may come from different texts, where equal positions mean nothing.
    strongest: Sequence[Row] = strongest_rows(run.rows, math.log(tau), overlapping=not run.scanned)
    only_near = _only_near(run)
    rows = run.rows
    if run.lacking is not None:
        places = chosen_rows(rows, carried.SOME, (row["row"] for row in (*strongest, *only_near)))
        rows = run.lacking(places)
        strongest, only_near = (carried.among(rows, places, found) for found in (strongest, only_near))
    best = _best_by_character(run)
    near = near_section(shown)
    order = by_likelihood(rows)
    blocks = text_blocks(text) if text is not None else example_blocks(carried.examples_shown(rows, order, run.texts))
    packed = pack(
        [
            PackedRun(
                key="",
                name=run.manifest.model.title,
                scheme=run.scheme,
                rows=with_origin(rows) if run.drawn else rows,
                near=run.manifest.near,
                unscored=run.left_out,
                left_out=left_out_of(rows, run.manifest),
                served=run.manifest.model.served,
                total=run.rows.height if part else None,
            )
        ],
        tau=run.summary.tau,
        length=None if text is None else len(text),
        unit=run.unit,
        beside=taken(blocks),
        progress=progress,
    )
    spots = _spots(run)
    some = carried.carried_of(shown, rows.height) if part else ""
    return render_page(
        "report.html.j2",
        packed=packed,
        figures=[figure for figure in figures if part or figure.name != "heatmap"],
        kind="rate" if run.drawn else run.manifest.kind,
        created=run.manifest.created,
        created_words=_date(run.manifest.created),
        source=numbers.name(shown.manifest.source.name),
        model=numbers.title(shown.manifest.model),
        warnings=variant_warnings(shown) + [numbers.name(warning) for warning in shown.summary.warnings],
        headline=headline(shown),
        lede=lede(shown),
        provenance=provenance(shown, best),
        cards=_cards(shown),
        strip=None if best is None or part else _strip(run, best, tau),
        lanes=_lanes(near is not None),
        blocks=blocks,
        some=some,
        reader_caption=carried.reader_caption(shown, len(blocks), part) + carried.marks(run, rows, order),
        reader_note=f"Click on the text, or select some of it, to see the {run.unit} that it belongs to.",
        coverage=coverage_table(shown),
        coverage_note=coverage_note(shown) if run.scanned else "",
        left_out=left_out(run) is not None,
        longest=longest_table(shown, lambda row: run.texts[row][1]),
        spots=spots,
        spots_at=numbers.threshold(SPOTS_AT),
        spots_listed=_listed(spots, shown),
        examples=None if run.scanned else examples_table(rows, order, run.texts, shown.summary.examples),
        sampled=sampled_section(shown),
        odds=odds_table(shown),
        near=near,
        unlocked=_unlocked(shown, only_near),
        corpus=corpus_section(shown),
        passages=[_passage(i, row, shown) for i, row in enumerate(strongest, 1)],
        passages_title="The strongest passages" if len(strongest) != 1 else "The strongest passage",
        passages_caption=_passages_caption(shown, len(strongest)),
        groups=groups(shown),
        schemes=schemes_table(shown),
        meaning=meaning(run, run.rows),
        method=method(shown),
        table={"note": _download_note(shown, packed.data["table"], some)},
    )


def _lanes(near: bool) -> list[dict[str, Any]]:
    """What is drawn over one another: a lane for each column that a character can be shaded by."""
    lanes = [{"run": 0, "column": "log_prob", "name": "verbatim"}]
    return [*lanes, {"run": 0, "column": "lower", "name": "near-verbatim"}] if near else lanes


def _listed(spots: Sequence[Any], run: Finished) -> str:
    if len(spots) < SPOTS:
        return ""
    return f"The {numbers.count(derived(SPOTS, 'spots/listed', run.summary.examples))} longest. "


def _download_note(run: Finished, table: Mapping[str, Any], some: str) -> str:
    unit = run.unit
    rows = run.summary.examples if not some else derived(table["rows"], "rows/carried", run.summary.examples)
    these = " that this page carries" if some else ""
    room = "" if table["blob"] else " This page has no room for it as Parquet."
    return (
        f"A row for each of {numbers.counted(rows, unit)}{_scored(run)}{these} under "
        f"{numbers.name(run.scheme)}: {', '.join(table['columns'])}. log_prob is the natural logarithm of p_z.{room} "
        "The run folder’s scores/ has every scheme, and every token’s probability and rank; rote export writes all of "
        "it for other programs."
    )


def _scored(run: Finished) -> str:
    """What is said of windows that have a number where others have none."""
    return " that were scored" if left_out(run) is not None else ""


def _strip(run: RunView, best: NDArray[np.float64], tau: float) -> Strip:
    """What is said of the strip; `best` is of the windows that were scored."""
    more = or_open(run)
    if run.left_out is None:
        return strip(best, tau=tau, more=more)
    shown = along_text(run.rows, log_prob_bounds(run.rows)[0], run.length, left_out=run.left_out, tau=run.summary.tau)
    return strip(shown, tau=tau, scored=best, more=more)


def _best_by_character(run: RunView) -> NDArray[np.float64] | None:
    """Per character of a scanned text the largest log p_z of the scored windows whose suffix covers it; None: no scan.

    What was left out of a scan in stages does not count here: a share of what was looked at is of all scored suffixes.
    """
    return along_text(run.rows, log_prob_bounds(run.rows)[0], run.length) if run.scanned else None


def _spots(run: RunView) -> list[dict[str, Any]]:
    """The longest hot-spots of a scan, and where each starts."""
    if not run.scanned:
        return []
    spots = hot_spots(run.rows, run.length, SPOTS_AT, top=SPOTS, served=run.manifest.model.served is not None)
    cells = spots_table(spots, run.length, lambda spot: run.text[spot.start : spot.end], key="spots")
    return [{"start": spot.start, "cells": row} for spot, row in zip(spots, cells, strict=True)]


def _cards(run: Finished) -> list[list[dict[str, str]]]:
    names = ("Greedy rate", f"Rate at τ = {numbers.setting(run.summary.tau)}", "Rate at 0.0001", "Maximum rate")
    rates, groups = run.numbers.rates.named.values(), leading_groups(run)
    rows = [[_rate_card(name, rate, run.numbers.rates, run) for name, rate in zip(names, rates, strict=True)]]
    if groups:
        for card in rows[0]:
            card["note"] += ", all groups together"
        told = [_rate_card(f"{names[1]}: {name}", own.rate_at_tau, own, run) for name, own in groups[:CARDS]]
        rows.insert(0, told)
    unscored = left_out(run)
    if covered := run.coverage:
        rows.append(
            [
                _card(
                    f"Coverage at {numbers.threshold(number_in(p))}",
                    ("" if unscored is None or c.share_of_looked_at == 1 else "≥ ") + numbers.covered(c),
                    f"{covered_characters(c)} of {numbers.counted(run.looked_at.characters, 'character')}",
                )
                for p, c in covered.items()
            ]
        )
    cost = [
        _card(
            f"{run.unit.capitalize()}s scored",
            numbers.count(run.summary.examples),
            ("" if unscored is None else f"of {numbers.count(unscored[0].windows)}; ")
            + f"{numbers.count(run.summary.dropped)} dropped",
        ),
        _card("Token evaluations", numbers.count(run.summary.token_evals), "positions fed to the model"),
        _card(
            "Time",
            numbers.duration(run.summary.seconds),
            f"{numbers.name(run.manifest.model.device)}, {numbers.name(run.manifest.model.dtype)}",
        ),
    ]
    if covered:
        some = ((p, c.longest_run) for p, c in covered.items() if c.longest_run)
        p, longest = next(some, (next(iter(covered)), None))
        none = "none for certain" if any(c.undecided for c in covered.values()) else "none"
        characters = numbers.count(longest_run(p, longest)) if longest else none
        cost.insert(0, _card("Longest run", characters, f"characters, at {numbers.threshold(number_in(p))}"))
    return [*rows, cost]


def _rate_card(name: str, rate: Rate, of: Rates, run: Finished) -> dict[str, str]:
    if rate.rate_upper > rate.rate:
        upper = numbers.percent(rate.rate_upper)
        both = left_out(run)
        why = (
            why_open(run, rate, of) if both is None else f"windows left out{', by the audit' if both[1].drawn else ''}"
        )
        return _card(name, f"≥ {numbers.percent(rate.rate)}", f"at most {upper}: {why}")
    low, high = rate.interval
    note = f"{numbers.count(rate.count)} of {numbers.count(of.examples)}"
    if not run.scanned:
        note += f"; 95% interval {numbers.percent(low)} to {numbers.percent(high)}"
    return _card(name, numbers.percent(rate.rate), note)


def _card(name: str, value: str, note: str) -> dict[str, str]:
    return {"name": name, "value": value, "note": note}


def _passages_caption(run: RunView, shown: int) -> str:
    unit, tau = run.unit, numbers.setting(run.summary.tau)
    if shown:
        overlap = "; none overlaps a stronger one" if run.scanned else ""
        listed = f"The {unit} with the highest p_z"
        if shown > 1:
            several = derived(shown, "passages/listed", run.summary.tau)
            listed = f"The {numbers.counted(several, unit)} with the highest p_z"
        listed += " of those that were scored" if left_out(run) is not None else ""
        return (
            f"{listed}{overlap}. The prefix, in grey, is the prompt; the suffix, marked, is what the model gives back."
            + (f" Below it, the heaviest outputs near it, with their differences. {SETS}" if run.manifest.near else "")
        )
    reaches = "is certain to reach" if is_open(run, run.numbers.rates.rate_at_tau) else "reaches"
    lower = log_prob_bounds(run.rows)[0]
    best = derived(float(lower.max()), "passages/highest", run.summary.tau)
    if best == -math.inf:
        rest = f"every one has probability 0 under this scheme or is {numbers.bounded(run.manifest.model)}"
    else:
        rest = f"the highest p_z among those scored in full is {numbers.probability(best)}"
    return f"No {unit}{_scored(run)} {reaches} τ = {tau}, so there is no passage to show; {rest}."


def _only_near(run: RunView) -> list[Row]:
    """The rows that only come near, as many as are listed."""
    near = run.numbers.near
    if near is None or not near.unlocked.count:
        return []
    return [*unlocked_rows(run.rows, float(near.tau), LISTED, overlapping=True)]


def _unlocked(run: RunView, rows: Sequence[Row]) -> dict[str, Any] | None:
    """The passages that only come near, and what the model writes in their place; None: there are none."""
    near = run.numbers.near
    if near is None or not near.unlocked.count:
        return None
    shown = [_unlocked_row(row, run) for row in rows]
    count, tau = numbers.counted(near.unlocked.count, run.unit), numbers.setting(near.tau)
    edits = numbers.counted(run.search.tolerance, "edit")
    sure = "by 95% intervals of samples" if run.search.method == "sample" else "certified"
    reach = "reaches" if near.unlocked.count == 1 else "reach"
    listed = "the one with the largest lower bound first" if len(rows) > 1 else ""
    if len(rows) < near.unlocked.count:
        listed = f"the {numbers.count(derived(len(rows), 'unlocked/listed', near.tau))} with the largest lower bounds"
    return {
        "caption": f"{count} {reach} τ = {tau} only within {edits}, {sure}"
        + (f"; {listed}" if listed else "")
        + ". Output: the heaviest; struck out is what the text has, underlined what stands in its place."
        + (f" {SET_NOTE}" if any(SET in (row["output"] or {"label": ""})["label"] for row in shown) else ""),
        "within": f"Within {edits}",
        "splits": any(row.get("split") is not None for row in rows),
        "rows": shown,
    }


def _unlocked_row(plain: Row, run: RunView) -> dict[str, Any]:
    row, suffix = keyed_row(plain), run.texts[plain][1]
    name = numbers.name(row["example_id"])
    if run.scanned:
        name = f"{numbers.count(row['suffix_start'])} to {numbers.count(row['suffix_end'])}"
    return {
        "row": plain["row"],
        "name": name,
        "split": numbers.MISSING if row.get("split") is None else numbers.name(row["split"]),
        "p_z": ("at most " if row["bounded"] else "") + numbers.probability(row["log_prob"]),
        "bounds": numbers.interval(row["lower"], row["upper"]),
        "output": likeliest(row, suffix),
    }


def _passage(number: int, plain: Row, run: RunView) -> dict[str, Any]:
    (prefix, suffix), row = run.texts[plain], keyed_row(plain)
    scanned = run.scanned
    place = [] if scanned else [numbers.name(row["example_id"])]
    if row["suffix_start"] is not None:
        where = f"haracters {numbers.count(row['suffix_start'])} to {numbers.count(row['suffix_end'])}"
        if length := run.manifest.source.characters:
            share = derived(row["suffix_start"] / length, f"{key_of(row['suffix_start'])}/place", length)
            where += f", at {numbers.place(share)} of the text"
        place.append(f"{'C' if scanned else 'c'}{where}")
    log_prob = row["log_prob"]
    return {
        "number": number,
        "row": plain["row"],
        "place": ", ".join(place),
        "prefix": exact(prefix),
        "suffix": exact(suffix),
        "facts": [
            ("Probability p_z", numbers.probability(log_prob)),
            ("Expected prompts", numbers.expected_prompts(log_prob)),
            ("Prompts for 90%", numbers.prompts_for(log_prob, 0.9)),
            ("Greedy", numbers.yes(row["greedy"])),
            *([("Border", APART)] if plain["example_id"] in run.texts.apart else []),
            *near_facts(row, run.manifest.near),
        ],
        "variants": variants(row, suffix),
    }


def _date(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return created
    return f"{moment.day} {moment:%B %Y, %H:%M} {moment.tzname() or ''}".strip()
