"""A sweep as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rote.report.figures.sweep import sweep_figures
from rote.report.keys import keyed
from rote.report.page.layout import render_page
from rote.report.text import numbers
from rote.report.text.method import method
from rote.report.text.sweep import SweepTable, facts, headline, lede, odds_table, points_table, sweep_tables
from rote.store.run import Finished
from rote.store.sweep import SweepResult


def render_sweep(result: SweepResult, runs: Mapping[str, Finished]) -> str:
    """The page of a sweep. `runs`: each of its runs, by folder name."""
    figures = sweep_figures(result)
    sweep = keyed(result, "sweep")
    parts = {
        name: replace(
            run,
            manifest=keyed(run.manifest, f"runs/{name}/manifest"),
            summary=keyed(run.summary, f"runs/{name}/summary"),
            seal=keyed(run.seal, f"runs/{name}/seal/id"),
        )
        for name, run in runs.items()
    }
    return render_page(
        "sweep.html.j2",
        packed=None,
        figures=figures,
        source=numbers.name(sweep.source.name),
        model=numbers.title(sweep.model),
        headline=headline(sweep),
        lede=lede(sweep),
        provenance=facts(sweep),
        warnings=[f"{name}: {numbers.name(text)}" for name, run in parts.items() for text in run.summary.warnings],
        tables=[_laid_out(table) for table in sweep_tables(sweep)],
        odds=_laid_out(odds_table(sweep)),
        points=_laid_out(points_table(sweep)),
        method=_method(sweep, parts),
    )


def _method(sweep: SweepResult, runs: Mapping[str, Finished]) -> list[tuple[str, str]]:
    """What decided the numbers: the manifest of the run with the longest prompts, and what each run took."""
    last = list(runs.values())[-1]
    same = [fact for fact in method(last) if fact[0] not in ("Cost", "Warnings", "Numerics")]
    lengths = sweep.lengths
    prompts, suffixes = (", ".join(map(numbers.count, each)) for each in (lengths.prefix, lengths.suffix))
    unit = "token" if lengths.prefix == [1] else "tokens"
    same.insert(
        1,
        (
            "Lengths",
            f"Prompts of {prompts} {unit}, suffixes of {suffixes}. A shorter prompt is the end of a longer one, a "
            "shorter suffix its beginning: all prompts ask for the same suffix.",
        ),
    )
    costs = [
        (
            f"Cost, {name}",
            f"{numbers.counted(run.summary.token_evals, 'token evaluation')} in "
            f"{numbers.duration(run.summary.seconds)}, for all schemes and suffix lengths",
        )
        for name, run in runs.items()
    ]
    return [*same, *costs]


def _laid_out(table: SweepTable) -> dict[str, Any]:
    """For the page: titles and columns begin with a capital letter, but for the symbols n and p."""

    def begun(text: str) -> str:
        return text if text[1:2] == " " else text[:1].upper() + text[1:]

    return {
        "title": begun(table.title),
        "rows": [list(map(begun, table.columns)), *table.rows],
        "caption": table.caption,
    }
