"""A membership run as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from markupsafe import Markup

from rote.membership.scores import BY_NAME
from rote.models.base import title_of as file_of
from rote.report.figures.member import member_figures
from rote.report.keys import keyed, mark
from rote.report.page.blocks import escaped
from rote.report.page.layout import render_page
from rote.report.text import numbers
from rote.report.text.member import (
    blind_check,
    blind_words,
    check,
    difference,
    headline,
    lede,
    scored,
    sides,
    title_of,
    verdict,
)
from rote.report.text.memberfacts import facts, warnings
from rote.report.text.membertables import MemberTable, areas, kind_of, meanings, spread_table, thresholds, weights
from rote.store.member import DatasetTest, Evaluation, MemberSummary
from rote.store.membership import MemberView

LISTED = 300
"""Texts of the table."""

SHADED = 60
"""Texts that are shown, a third each of those most and least likely seen, and of those between."""

TOKENS = 500
"""Tokens of a text that are shaded."""

LEVELS = 10
"""Of surprise: one a nat, the last without end."""

LONG = 60
"""Characters of an id or a group that is shown whole."""

NAMES = {"group": ("Group", False), "date": ("Date", False), "repetitions": ("Times seen", True)}
"""Columns of the table of texts that are there where they are known, and whether they are numbers."""

ALWAYS = ("loss", "min_k_20", "min_k_plus_plus_20")
FURTHER = ("reference", "recall", "best_window", "near_lower")
"""Scores that the table of texts has, beside the best, where they are there."""


def render_member(view: MemberView) -> str:
    """The page of a membership run."""
    manifest, summary = keyed(view.manifest, "manifest"), keyed(view.summary, "summary")
    by = _sorted_by(view.summary)
    order = _order(view.rows, by)
    shaded = _chosen(order)
    evaluation, test = summary.evaluation, summary.test
    return render_page(
        "member.html.j2",
        packed=None,
        figures=member_figures(view.manifest, view.summary, view.rows),
        source=mark(manifest.source.name, numbers.literal(file_of(manifest.source.name, None)), "title"),
        model=numbers.title(manifest.model),
        headline=headline(summary),
        lede=lede(summary),
        warnings=list(warnings(summary)),
        provenance=facts(manifest, summary, keyed(view.seal, "seal/id")),
        evaluated=None if evaluation is None else _evaluated(evaluation),
        test=None if test is None else _tested(test, summary, sides(manifest, summary)),
        spreads=laid_out(spread_table(summary, whole=True)),
        meanings=laid_out(meanings(manifest)),
        texts=_texts(view, order, by, set(shaded)),
        shaded=[_shaded(view.rows, row, by) for row in shaded],
        shaded_caption=_shaded_caption(view.rows, order, shaded, by),
        levels=LEVELS,
    )


def _evaluated(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "areas": laid_out(areas(evaluation)),
        "thresholds": laid_out(thresholds(evaluation, intervals=True)),
        "blind": blind_words(evaluation),
    }


def _tested(test: DatasetTest, summary: MemberSummary, sides: str) -> dict[str, Any]:
    return {
        "words": [verdict(test, summary), f"{sides} {difference(test)}", check(test), blind_check(test)],
        "weights": laid_out(weights(test)),
    }


def laid_out(table: MemberTable) -> dict[str, Any]:
    """For the page: titles and columns begin with a capital letter."""

    def begun(text: str) -> str:
        return text[:1].upper() + text[1:]

    head = [begun(column) for column in table.columns]
    rows = [head, *([numbers.typeset(cell) for cell in row] for row in table.rows)]
    return {"title": begun(table.title), "rows": rows, "caption": table.caption, "words": table.words}


# --- text by text


def _sorted_by(summary: MemberSummary) -> str:
    best = None if summary.evaluation is None else summary.evaluation.best
    return best if best in BY_NAME else "loss"


def _order(rows: pl.DataFrame, by: str) -> list[int]:
    """The places of all rows, the likeliest members first; texts without a number last."""
    oriented = rows[by].cast(pl.Float64) * BY_NAME[by].sign
    return oriented.arg_sort(descending=True, nulls_last=True).to_list()


def _chosen(order: Sequence[int]) -> list[int]:
    """Of the ordered texts: all, or a third each from the beginning, from the end and evenly from between."""
    if len(order) <= SHADED:
        return list(order)
    third = SHADED // 3
    middle = np.linspace(third, len(order) - third - 1, third + 2).round().astype(int)[1:-1]
    return [*order[:third], *(order[place] for place in middle), *order[-third:]]


def _texts(view: MemberView, order: Sequence[int], by: str, shaded: set[int]) -> dict[str, Any]:
    rows = view.rows
    scores = [
        name
        for name in dict.fromkeys([by, *ALWAYS, *FURTHER])
        if name in view.manifest.scores and rows[name].count() > 0
    ]
    more = [name for name in ("group", "date", "repetitions") if rows[name].count() > 0]
    columns = [
        ("Text", False), ("Is", False), *(NAMES[name] for name in more),
        ("Tokens", True), *((title_of(name), True) for name in scores),
    ]  # fmt: skip
    shown = rows.select("part", "id", "label", *more, "tokens", *scores)
    part = "texts" if view.manifest.held_out is None else "held_out"
    prefix = {(part, name) for name in view.manifest.prefix}
    listed = [_listed(shown, row, more, scores, prefix, row in shaded) for row in order[:LISTED]]
    return {"columns": columns, "rows": listed, "caption": _texts_caption(len(order), by)}


def _listed(
    rows: pl.DataFrame,
    row: int,
    more: Sequence[str],
    scores: Sequence[str],
    prefix: set[tuple[str, str]],
    shaded: bool,
) -> dict[str, Any]:
    own = keyed(rows.row(row, named=True), f"rows/{row}")
    words = [_shortened(own[name]) for name in more if name != "repetitions"]
    counts = [numbers.count(own[name]) for name in ("repetitions", "tokens") if name in own]
    return {
        "row": row,
        "shaded": shaded,
        "name": _shortened(own["id"]),
        "words": [_is(own, prefix), *words],
        "numbers": [*counts, *(_score(name, own[name]) for name in scores)],
    }


def _is(row: dict[str, Any], prefix: set[tuple[str, str]]) -> str:
    kind = kind_of(row["part"], row["label"]).removesuffix("s").removesuffix(" text")
    return f"{kind}, prefix" if (row["part"], row["id"]) in prefix else kind


def _score(name: str, value: float | None) -> str:
    """Of extraction a probability, which is stored as its logarithm."""
    return numbers.probability(value) if BY_NAME[name].needs == "windows" else scored(value)


def _shortened(text: str | None) -> str:
    if text is None:
        return numbers.MISSING
    return numbers.name(text) if len(text) <= LONG else numbers.short(text)


def _texts_caption(texts: int, by: str) -> str:
    total = keyed(texts, "rows/count")
    shown = (
        f"All {numbers.count(total)}"
        if texts <= LISTED
        else f"The first {numbers.count(keyed(LISTED, 'rows/listed'))} of {numbers.count(total)}"
    )
    rest = "" if texts <= LISTED else "The others are in scores beside this page, too, and rote export writes all. "
    return (
        f"{shown}, the likeliest members by {title_of(by)} first. {rest}A row by itself proves nothing: with so many "
        "texts, some lie far out by chance."
    )


# --- the text itself


def _shaded(rows: pl.DataFrame, row: int, by: str) -> dict[str, Any]:
    own = rows.row(row, named=True)
    known = keyed({name: own[name] for name in ("id", "part", "label", "tokens", "loss", by)}, f"rows/{row}")
    said = [
        kind_of(own["part"], own["label"]).removesuffix("s"),
        numbers.counted(known["tokens"], "token"),
        f"loss {scored(known['loss'])}",
        *([] if by == "loss" else [f"{title_of(by)} {_score(by, known[by])}"]),
    ]
    cut = len(own["token_ends"]) > TOKENS
    return {
        "row": row,
        "name": _shortened(known["id"]),
        "facts": ", ".join(said),
        "pieces": list(_pieces(own["text"], own["scored_start"], own["token_ends"], own["token_log_probs"])),
        "cut": f"The first {numbers.count(keyed(TOKENS, 'shaded/tokens'))} tokens." if cut else "",
    }


def _pieces(
    text: str, start: int, ends: Sequence[int], log_probs: Sequence[float]
) -> Iterator[tuple[int | None, str, Markup]]:
    """(level, what the pointer is told, text): what has no score first, then a piece for each token.

    Several tokens may make up one character: they share a piece, with the largest of their surprises.
    """
    shown = numbers.literal(text)  # one for one, so that places stay what they are
    if start:
        yield None, "", escaped(shown[:start])
    pieces = _merged(start, ends[:TOKENS], log_probs)
    for begin, end, first, last, surprise in pieces:
        which = f"token {first}" if first == last else f"tokens {first} to {last}"
        level = min(LEVELS - 1, int(surprise))
        yield level, f"{which}: {surprise:.2f}", escaped(shown[begin:end])
    if len(ends) > TOKENS:
        yield None, "", Markup("…")
    elif ends and ends[-1] < len(shown):
        yield None, "", escaped(shown[ends[-1] :])


def _merged(start: int, ends: Sequence[int], log_probs: Sequence[float]) -> Iterator[tuple[int, int, int, int, float]]:
    """(begin, end, first token, last token, surprise) of each piece that has a character."""
    begin, first, most = start, 1, 0.0
    waiting: tuple[int, int, int, int, float] | None = None
    for number, (end, log_prob) in enumerate(zip(ends, log_probs, strict=False), 1):
        most = max(most, -log_prob)
        if end <= begin:
            continue
        if waiting is not None:
            yield waiting
        waiting = (begin, end, first, number, most)
        begin, first, most = end, number + 1, 0.0
    if waiting is not None:
        left = len(ends) >= first  # tokens after the last character
        yield (*waiting[:3], len(ends), max(waiting[4], most)) if left else waiting


def _shaded_caption(rows: pl.DataFrame, order: Sequence[int], shaded: Sequence[int], by: str) -> str:
    which = "All texts"
    if len(shaded) < len(order):
        count = numbers.count(keyed(len(shaded), "shaded/count"))
        which = (
            f"{count} of {numbers.count(keyed(len(order), 'rows/count'))} texts: a third each of those that "
            f"{title_of(by)} finds most and least like members, and evenly from between"
        )
    marks = numbers.marks_in(rows["text"][row] for row in shaded)
    return (
        f"{which}, in the order of {title_of(by)}. The stronger its colour, the more a token surprised the "
        "model: -log p, in nats. Point at one to read its number and its surprise. What has no score is plain."
        + (f" {marks}." if marks else "")
    )
