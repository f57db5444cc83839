"""The figures of scans in stages: what was left out is drawn as no number, and captions say how much."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl
import pytest

from rote.analysis.coverage import merge_spans, spans
from rote.analysis.rates import audit, staged_rates
from rote.analysis.summary import left_out_of
from rote.report.figures.comparison import comparison_figures
from rote.report.figures.figure import Figure
from rote.report.figures.run import run_figures
from rote.store.comparison import ComparisonResult
from rote.store.run import RunView
from tests.reference.rates import reaches
from tests.report.figures.test_several import compared
from tests.report.page.truth import at_most
from tests.report.stages import by_chance, colours

GREY = "not looked at in full"


@pytest.fixture(scope="module", params=["audited", "begun"])
def run(request: pytest.FixtureRequest) -> RunView:
    return by_chance(2, audited=request.param == "audited")


@pytest.fixture(scope="module")
def figures(run: RunView) -> dict[str, Figure]:
    return {figure.name: figure for figure in run_figures(run, run.rows, run.left_out)}


def check_strip(table: pl.DataFrame, shown: list[float | None], tau: float) -> None:
    for part in table.rows(named=True):
        own = [value for value in shown[part["start"] : part["end"]] if value is not None]
        assert part["looked_at"] == bool(own)
        reached = [math.exp(value) for value in own if value >= math.log(tau)]
        assert part["highest_probability"] == (pytest.approx(max(reached)) if reached else None)


def test_the_strip_is_grey_where_windows_were_left_out(run: RunView, figures: dict[str, Figure]) -> None:
    figure, staged = figures["heatmap"], run.summary.staged
    assert staged is not None
    check_strip(figure.table, colours(run), run.summary.tau)
    assert figure.table["looked_at"].n_unique() == 2
    assert figure.layers[1].label == GREY
    assert f"grey was {GREY}. Of {staged.windows} windows {staged.scored} were scored" in figure.caption


def test_plots_of_windows_are_of_those_that_were_scored(run: RunView, figures: dict[str, Figure]) -> None:
    staged = run.summary.staged
    assert staged is not None
    drawn = run.rows.filter(pl.col("log_prob") >= math.log(0.0001))
    assert sorted(figures["location"].table["example_id"]) == sorted(drawn["example_id"])
    assert figures["histogram"].table["count"].sum() == drawn.height
    for name in ("location", "histogram"):
        caption = figures[name].caption
        assert f"{drawn.height} windows" in caption
        assert f"These are of the {staged.scored} of {staged.windows} windows that were scored" in caption
    assert "per window that was scored" in figures["cost"].caption


def test_curves_are_shares_of_all_windows(run: RunView, figures: dict[str, Figure]) -> None:
    figure, staged, refined = figures["prompts"], run.summary.staged, run.manifest.refined
    assert staged is not None
    assert refined is not None
    rows = run.rows.rows(named=True)
    left = staged.windows - staged.scored + staged.audited
    for cell in figure.table.rows(named=True)[::7]:
        hits = [reaches(row["log_prob"], cell["n"], cell["p"]) for row in rows]
        drawn = sum(hit for hit, row in zip(hits, rows, strict=True) if row["stage"] == refined.closer + 1)
        unknown = staged.windows - staged.scored
        most = sum(hits) - drawn + min(left * at_most(drawn, staged.audited), drawn + unknown)
        assert cell["share"] == pytest.approx(sum(hits) / staged.windows)
        assert cell["share_upper"] == pytest.approx(most / staged.windows)
    band, *lines = (layer for layer in figure.layers if layer.kind in ("band", "line"))
    even = figure.table.filter(pl.col("p") == 0.5)
    assert band.kind == "band"
    assert band.data.rows() == even.select(pl.col("n").cast(pl.Float64), "share", "share_upper").rows()
    assert [line.data["y"].to_list() for line in lines] == [
        figure.table.filter(pl.col("p") == p)["share"].to_list() for p in (0.1, 0.5, 0.9, 0.99, 0.999)
    ]
    assert figure.layers[-1].label.startswith("Greedy, at least ")
    assert f"Share of {staged.windows} windows" in figure.caption
    assert f"{staged.windows - staged.scored} windows were left out" in figure.caption
    allowed = "as many of them as the audit allows" if staged.audited else "all of them, for want of an audit"
    assert allowed in figure.caption


# --- beside another run


def side_by_side(one: RunView, two: RunView) -> tuple[ComparisonResult, dict[str, pl.DataFrame]]:
    """As `rote compare` does it: each run by itself, and the rows that both have."""
    whole = {"A": one.rows, "B": two.rows}
    made = compared(whole)
    common = {key: rows.join(other, on="start", how="semi") for key, rows, other in
              (("A", one.rows, two.rows), ("B", two.rows, one.rows))}  # fmt: skip
    runs = []
    for run, view in zip(made.runs, (one, two), strict=True):
        assert view.places is not None
        gone = view.places.join(common[run.key], on="start", how="anti")
        left_out = left_out_of(view.rows, view.manifest)
        assert left_out is not None
        stretches = [[*stretch] for stretch in merge_spans(*spans(gone))]
        rates, checked = staged_rates(view.rows, left_out), audit(view.rows, made.tau, left_out)
        runs.append(replace(run, rates=rates, audit=checked, unshared=stretches))
    return replace(made, runs=runs), common


def test_a_comparison_draws_what_both_have_scored() -> None:
    one = by_chance(3, audited=True)
    chosen = one.scores.filter(pl.col("start") % 3 != 0)
    two = replace(one, scores=chosen)
    result, common = side_by_side(one, two)
    figures = {figure.name: figure for figure in comparison_figures(result, common)}
    strips = figures["strips"]
    for name in ("A of-A", "B of-B"):  # both have the rows of the second
        check_strip(strips.table.filter(pl.col("run") == name), [*colours(two), *[None] * 100], result.tau)
    assert f"grey was {GREY}. Only windows that every run has scored are drawn" in strips.caption
    for run, (band, line) in zip(result.runs, zip(*[iter(figures["prompts"].layers)] * 2, strict=True), strict=True):
        even = [cell for cell in run.rates.np_table if cell.p == 0.5]
        assert band.data.rows() == [(float(cell.n), cell.rate, cell.rate_upper) for cell in even]
        assert line.data.rows() == [(float(cell.n), cell.rate) for cell in even]
    assert f"Only the {chosen.height} windows that both runs have scored" in figures["pair-a-b"].caption
    for name in ("rates", "prompts", "coverage"):
        assert "Of A, B, in stages: " in figures[name].caption
