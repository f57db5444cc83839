"""Scored submissions as one self-contained HTML page."""

from __future__ import annotations

from typing import Any

from rote.models.base import title_of
from rote.report.figures.submissions import score_figures
from rote.report.keys import keyed, mark
from rote.report.page.layout import render_page
from rote.report.text import numbers
from rote.report.text.submissions import MEANS, ScoreTable, facts, headline, lede, score_tables
from rote.store.submissions import ScoreResult


def render_score(result: ScoreResult) -> str:
    """The page of scored submissions."""
    score = keyed(result, "score")
    numbers_of, by_errors, *costs = (_laid_out(table) for table in score_tables(score))
    return render_page(
        "submissions.html.j2",
        packed=None,
        figures=score_figures(result),
        source=mark(score.answers.name, numbers.literal(title_of(score.answers.name, None)), "title"),
        headline=headline(score),
        lede=lede(score),
        provenance=facts(score),
        submissions=numbers_of,
        by_errors=by_errors,
        costs=costs,
        means=MEANS,
    )


def _laid_out(table: ScoreTable) -> dict[str, Any]:
    """For the page: titles and columns begin with a capital letter."""

    def begun(text: str) -> str:
        return text[:1].upper() + text[1:]

    return {"title": begun(table.title), "rows": [[*map(begun, table.columns)], *table.rows], "caption": table.caption}
