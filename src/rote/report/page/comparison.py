"""A comparison as one self-contained HTML page: all runs' strips, the text under each of them, tables and plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rote.analysis.coverage import along_text
from rote.analysis.rates import log_prob_bounds
from rote.report.figures.comparison import comparison_figures
from rote.report.keys import derived, key_of, keyed
from rote.report.page.blocks import EXAMPLES, example_blocks, taken, text_blocks
from rote.report.page.layout import render_page
from rote.report.page.pack import PackedRun, pack
from rote.report.text import numbers
from rote.report.text.bounds import or_open
from rote.report.text.comparison import (
    differing_table,
    fixed_table,
    headline,
    listings,
    near_alone,
    near_tables,
    notes,
    numbers_table,
    odds_note,
    odds_tables,
    pairs_note,
    pairs_table,
    runs_table,
)
from rote.report.text.conclusion import conclusion
from rote.report.text.method import P_Z, source_fact
from rote.report.text.near import near_method
from rote.report.text.strip import UNLOOKED, Strip, strip
from rote.scheme import Scheme
from rote.store.comparison import ComparedRun, ComparisonResult, MovedPassage
from rote.store.run import Passages

EVEN = 0.5
"""The p whose (n, p) table is open; those of the others wait to be opened."""


def render_comparison(result: ComparisonResult, sides: Sequence[PackedRun], texts: Passages) -> str:
    """The page of what `rote compare` found. `sides` are the runs in the result's order, with their rows.

    In a comparison of examples every side's rows are the same examples in the same order. `texts` are the first run's.
    """
    text, unit = texts.text, result.unit
    shown = keyed(_with_zeros(result), "comparison")
    figures = comparison_figures(result, {side.key: side.rows for side in sides})
    strips = _strips(shown, sides)
    near = any(side.near for side in sides)
    blocks = text_blocks(text) if text is not None else example_blocks(_likeliest(sides, texts))
    length = None if text is None else len(text)
    packed = pack(sides, tau=result.tau, length=length, unit=unit, beside=taken(blocks))
    odds = odds_tables(shown)
    return render_page(
        "comparison.html.j2",
        packed=packed,
        figures=[figure for figure in figures if figure.name != "strips"],
        source=numbers.name(shown.source.name),
        conclusion=conclusion(shown),
        headline=headline(shown),
        tau=numbers.setting(shown.tau),
        notes=notes(shown),
        warnings=[f"{run.key}: {numbers.name(warning)}" for run in shown.runs for warning in run.warnings],
        runs=runs_table(shown),
        differing=differing_table(shown) if result.differing else None,
        strips=strips,
        lanes=_lanes(shown, sides),
        strip_caption=_strip_caption(_telling(strips), near) if strips else "",
        unseen=_telling(strips).unseen if strips else "",
        blocks=blocks,
        reader_caption=_reader_caption(shown, len(blocks), any(side.unscored is not None for side in sides)),
        reader_note=f"Click on the text, or select some of it, to see the {unit} that it belongs to in every run.",
        sides=[{"name": numbers.literal(side.name)} for side in sides],
        near=near,
        numbers=numbers_table(shown),
        first=result.runs[0].key,
        pairs=pairs_table(shown),
        pairs_note=pairs_note(shown),
        odds=[(f"p = {numbers.threshold(p)}", rows) for p, rows in odds.items() if p == EVEN],
        other_odds=[(f"p = {numbers.threshold(p)}", rows) for p, rows in odds.items() if p != EVEN],
        odds_note=odds_note(result),
        fixed=fixed_table(shown),
        near_tables=near_tables(shown),
        near_alone=near_alone(shown),
        listings=_listings(shown, sides),
        table={"note": _table_note(packed.data["table"], unit)},
        meaning=_meaning(result),
        method=_method(shown),
    )


def _with_zeros(result: ComparisonResult) -> ComparisonResult:
    """With -inf for the null that stands in comparison.json for log p_z of 0: that zero is a number with a key too."""

    def known(passage: MovedPassage) -> MovedPassage:
        return replace(passage, log_prob=[-math.inf if value is None else value for value in passage.log_prob])

    pairs = [
        replace(
            pair,
            largest_gains=[known(passage) for passage in pair.largest_gains],
            largest_losses=[known(passage) for passage in pair.largest_losses],
        )
        for pair in result.pairs
    ]
    return replace(result, pairs=pairs)


def _strips(result: ComparisonResult, sides: Sequence[PackedRun]) -> list[Strip]:
    """What is said of each run's strip; nothing for examples, which have no common text."""
    if not result.scanned:
        return []
    length = result.length
    return [_strip(result, side, length) for side in sides]


def _strip(result: ComparisonResult, side: PackedRun, length: int) -> Strip:
    values, key = log_prob_bounds(side.rows)[0], f"runs/{side.key}/"
    best = along_text(side.rows, values, length)
    more = or_open(*result.runs)  # the words of one strip are those of all
    if side.unscored is None:
        return strip(best, tau=result.tau, key=key, more=more)
    shown = along_text(side.rows, values, length, left_out=side.unscored, tau=result.tau)
    return strip(shown, tau=result.tau, key=key, scored=best, more=more)


def _lanes(result: ComparisonResult, sides: Sequence[PackedRun]) -> list[dict[str, Any]]:
    """One lane a run, and below it one for what comes near, where the run searched for that."""
    lanes = []
    for place, (run, side) in enumerate(zip(result.runs, sides, strict=True)):
        label = derived(side.name, f"{key_of(run.name)}/label", run.name)
        lanes.append({"run": place, "column": "log_prob", "name": numbers.name(label)})
        if run.near is not None:
            edits = numbers.counted(run.near.tolerance, "edit")
            lanes.append({"run": place, "column": "lower", "name": f"{run.key} within {edits}"})
    return lanes


def _telling(strips: Sequence[Strip]) -> Strip:
    """The strip whose words are true of all: the first of a run that left windows out, or simply the first."""
    return next((own for own in strips if own.unseen != UNLOOKED), strips[0])


def _strip_caption(own: Strip, near: bool) -> str:
    within = " A lane within edits shows the lower bound on the probability of any output that near." if near else ""
    return own.caption + within


def _likeliest(sides: Sequence[PackedRun], texts: Passages) -> list[tuple[int, str, str]]:
    """Row, prefix and suffix of each example, those first that are likeliest in any run."""
    best = np.maximum.reduce([log_prob_bounds(side.rows)[0] for side in sides])
    names = sides[0].rows["example_id"].to_list()
    order = np.argsort(-np.exp(best), kind="stable")[:EXAMPLES].tolist()
    return [(row, *texts[{"example_id": names[row]}]) for row in order]


def _reader_caption(result: ComparisonResult, blocks: int, some: bool) -> str:
    """`some`: that a run left windows out."""
    if result.scanned:
        grey = "in no suffix: it was not looked at."
        if some:
            grey = (
                "in no suffix, and so not looked at, or in one of a window that has no number in that run, and in none "
                "that reaches τ."
            )
        return (
            "Each character is shaded by the highest probability, in the chosen run, of any window whose suffix covers "
            f"it; blank is below τ{or_open(*result.runs)}, and grey is {grey}"
        )
    first = result.runs[0].key
    cut = f" Texts are cut as in run {first}; tokens of another tokenizer have no text here."
    cut = cut if result.tokenizers_differ else ""
    examples = result.common_examples
    left = derived(examples - blocks, "reader/left_out", examples)
    missing = f" {numbers.counted(left, 'example')} of {numbers.count(examples)} left out here." if left else ""
    return (
        "The prefix is grey, the suffix shaded by its probability in the chosen run; those that are likeliest in any "
        f"run come first.{cut}{missing}"
    )


def _listings(result: ComparisonResult, sides: Sequence[PackedRun]) -> list[dict[str, Any]]:
    """The largest gains and losses, each with the run and the row that the reader opens: where it is likelier."""
    keys = [side.key for side in sides]
    rows = [dict(zip(side.rows["example_id"], range(side.rows.height), strict=True)) for side in sides]
    shown = []
    for number, listing in enumerate(listings(result)):
        pair = result.pairs[number // 2]
        run = keys.index(pair.first if number % 2 else pair.second)
        passages = [
            {
                "place": _place(passage, result.scanned),
                "run": run,
                "row": rows[run][passage.example_id],
                "facts": facts,
                "prefix": numbers.literal(passage.prefix),
                "suffix": numbers.literal(passage.suffix),
            }
            for passage, facts in listing.passages
        ]
        shown.append({"title": listing.title, "none": listing.none, "passages": passages})
    return shown


def _place(passage: MovedPassage, scanned: bool) -> str:
    name = "" if scanned else numbers.name(passage.example_id)
    if passage.suffix_start is None:
        return name
    where = f"{numbers.count(passage.suffix_start)} to {numbers.count(passage.suffix_end)}"
    return f"{name}, characters {where}" if name else f"Characters {where}"


def _table_note(table: Mapping[str, Any], unit: str) -> str:
    return (
        f"Every {unit} of every run, a row each: what the strips and the shades are made of. The table of differences "
        "lies beside this page, as differences.csv and differences.parquet."
        + ("" if table["blob"] else " As Parquet it is too large for this page; the runs’ own folders have it.")
    )


def _meaning(result: ComparisonResult) -> list[str]:
    paragraphs = [P_Z]
    if result.tokenizers_differ and not result.by_characters:
        paragraphs.append(
            "Models that cut a text into other tokens have other suffixes: p_z over as many longer tokens is one over "
            "more characters."
        )
    return paragraphs


def _method(result: ComparisonResult) -> list[tuple[str, str]]:
    """Everything that decides a number, as (name, value): what is the same for all runs, then run by run."""
    has = "has" if result.common_windows is None else "scored"
    facts = [
        ("Text" if result.scanned else "Examples", source_fact(result.source)),
        ("Threshold τ", f"{numbers.setting(result.tau)}: the smallest p_z that counts as extraction"),
        ("Compared", f"{numbers.counted(result.common_examples, result.unit)} that every run {has}"),
    ]
    return facts + [(f"Run {run.key}", _run(run)) for run in result.runs]


def _run(run: ComparedRun) -> str:
    model = run.model
    weights = (
        numbers.weights(model) if model.served else f"weights {numbers.name(model.fingerprint or numbers.MISSING)}"
    )
    parts = [
        f"{numbers.name(model.name)}, {weights}, {numbers.name(model.dtype)} on {numbers.name(model.device)}.",
        f"{numbers.name(run.scheme)}. {Scheme.parse(run.scheme).explain()}",
        f"BOS {numbers.bos(model)}",
        "Given up early where certain to end below its τ." if run.stop_early else "Scored to the last token.",
        *(f"{name}: {value}." for name, value in near_method(run.near)),
        f"Made with {', '.join(f'{name} {numbers.name(version)}' for name, version in run.versions.items())}.",
    ]
    return " ".join(parts)
