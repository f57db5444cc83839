"""The plots of scored submissions: recall against errors, precision and cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from rote.models.base import title_of
from rote.report.figures.figure import Axis, Figure, Layer
from rote.report.figures.layers import rule, sentences
from rote.report.text import numbers
from rote.report.text.submissions import ORACLE
from rote.store.submissions import CostPoint, Costs, ScoreResult, Submission

SCORE_FIGURES = {
    "errors": "answers",
    "precision": "a right guess",
    "seconds": "an attack's folder among the submissions",
    "evaluations": "an attack's folder among the submissions",
    "oracle": "an attack's folder among the submissions",
}
"""Every figure that scored submissions can have, and what it needs."""


def score_figures(score: ScoreResult) -> list[Figure]:
    made = [
        _errors(score),
        _precision(score),
        _cost(score, "seconds", "Recall against time", "Seconds", lambda costs: costs.seconds),
        _cost(score, "evaluations", "Recall against work", "Token evaluations", lambda costs: costs.token_evals),
        _oracle(score),
    ]
    return [figure for figure in made if figure is not None]


def _errors(score: ScoreResult) -> Figure:
    """Recall against the number of errors that are allowed: what comes after e wrong guesses counts from e + 1 on."""
    most = max(score.errors, *(one.wrong for one in score.submissions)) + 1
    layers: list[Layer] = []
    rows: list[dict[str, str | int | float]] = []
    for colour, one in enumerate(score.submissions):
        points = [(point.errors + 1, point.solved, point.recall) for point in one.curve]
        own = [(1, 0, 0.0)] if not points or points[0][0] > 1 else []
        steps = [*own, *points]
        rows += [{"submission": one.name, "errors": e, "solved": n, "recall": r} for e, n, r in steps]
        ends = [*((float(e), r) for e, _, r in steps), (float(most), steps[-1][2])]
        data = pl.DataFrame(ends, schema={"x": pl.Float64, "y": pl.Float64}, orient="row")
        layers.append(Layer("step", data, _label(score, one), colour))
    allowed = float(score.errors)
    return Figure(
        name="errors",
        title="Recall by the number of errors",
        caption=sentences(
            f"Share of {numbers.counted(score.answers.examples, 'example')} solved by the guesses that come before so "
            "many wrong ones.",
            f"The headline is at {numbers.counted(score.errors, 'error')}.",
        ),
        x=Axis("Errors", "log", "count", limits=(1.0, float(most))),
        y=Axis("Recall", format="percent", limits=(0.0, 1.0)),
        layers=(*layers, rule(allowed, 0.0, allowed, 1.0, f"{numbers.counted(score.errors, 'error')}")),
        table=pl.DataFrame(rows),
    )


def _precision(score: ScoreResult) -> Figure | None:
    known = [(colour, one) for colour, one in enumerate(score.submissions) if one.curve]
    if not known:
        return None
    layers = [
        Layer(
            "line",
            pl.DataFrame(
                {"x": [point.recall for point in one.curve], "y": [point.precision for point in one.curve]},
                schema={"x": pl.Float64, "y": pl.Float64},
            ),
            _label(score, one),
            colour,
        )
        for colour, one in known
    ]
    rows = [
        {"submission": one.name, "recall": point.recall, "precision": point.precision}
        for _, one in known
        for point in one.curve
    ]
    return Figure(
        name="precision",
        title="Precision and recall",
        caption=(
            "Right guesses, without repeated ones, among these and the wrong ones, against the share of "
            f"{numbers.counted(score.answers.examples, 'example')} solved."
        ),
        x=Axis("Recall", format="percent", limits=(0.0, 1.0)),
        y=Axis("Precision", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=pl.DataFrame(rows),
    )


def _cost(
    score: ScoreResult, name: str, title: str, axis: str, points: Callable[[Costs], Sequence[CostPoint]]
) -> Figure | None:
    return _against(
        score,
        name,
        title,
        axis,
        points,
        lambda point: (point.solved, point.recall),
        f"Share of {numbers.counted(score.answers.examples, 'example')} solved at "
        f"{numbers.counted(score.errors, 'error')} by the guesses that were found by then, in the order of all. More "
        "guesses can be worse: wrong ones may come before.",
    )


def _oracle(score: ScoreResult) -> Figure | None:
    return _against(
        score,
        "oracle",
        "Recall against time where errors are free",
        "Seconds",
        lambda costs: costs.seconds,
        lambda point: (point.oracle, point.oracle_recall),
        f"Share of {numbers.counted(score.answers.examples, 'example')} solved by the guesses that were found by then, "
        f"{ORACLE}.",
    )


def _against(
    score: ScoreResult,
    name: str,
    title: str,
    axis: str,
    points: Callable[[Costs], Sequence[CostPoint]],
    value: Callable[[CostPoint], tuple[int, float]],
    caption: str,
) -> Figure | None:
    timed = [(colour, one, one.costs) for colour, one in enumerate(score.submissions) if one.costs is not None]
    if not timed:
        return None
    layers: list[Layer] = []
    rows: list[dict[str, str | int | float]] = []
    last = 0.0
    for colour, one, costs in timed:
        own = [(0.0, 0, 0.0), *((point.budget, *value(point)) for point in points(costs))]
        data = pl.DataFrame([(x, y) for x, _, y in own], schema={"x": pl.Float64, "y": pl.Float64}, orient="row")
        layers.append(Layer("step", data, _label(score, one), colour))
        rows += [
            {"submission": one.name, axis.lower().replace(" ", "_"): x, "solved": n, "recall": y} for x, n, y in own
        ]
        last = max(last, own[-1][0])
    return Figure(
        name=name,
        title=title,
        caption=sentences(caption, _scaled(score) if axis == "Seconds" else ""),
        x=Axis(axis, format="count" if last >= TENS else "number", limits=(0.0, last or 1.0)),
        y=Axis("Recall", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=pl.DataFrame(rows),
    )


TENS = 10.0
"""An axis that goes further has whole numbers."""


def _scaled(score: ScoreResult) -> str:
    return "" if score.speed == 1 else f"Seconds are those of the attack times {numbers.setting(score.speed)}."


def _label(score: ScoreResult, one: Submission) -> str:
    """In a legend: of a path, the last part."""
    own = title_of(one.name, None)
    return numbers.literal(own if len(score.submissions) == 1 else f"{one.key} {own}")
