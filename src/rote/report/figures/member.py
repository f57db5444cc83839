"""The plots of a membership run: ROC curves, the AUROC of every score, how scores lie, repetitions, single splits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.membership.scores import BY_NAME
from rote.models.base import ModelIdentity
from rote.report.figures.figure import Axis, Figure, Layer
from rote.report.figures.layers import bos_first, rule, sentences
from rote.report.keys import plain
from rote.report.text import numbers
from rote.report.text.member import ALPHA, title_of
from rote.report.text.membertables import kind_of
from rote.store.member import DatasetTest, Evaluation, MemberManifest, MemberSummary, Roc

MEMBER_FIGURES = {
    "roc": "texts with labels",
    "auroc": "texts with labels",
    "repetitions": "members with known repetitions",
    "scores": "scores",
    "splits": "held-out texts, or texts with labels",
}
"""Every figure that a membership run can have, and what it needs."""

CHOSEN = ("loss", "min_k_20", "min_k_plus_plus_20")
"""Scores that are always drawn, beside the best."""

BINS = (6, 24)
"""Of a distribution: at the least and at the most, as there are texts."""

GRID = 300  # places along a logarithmic axis that corners of a curve are told apart by
_FEW = 2  # different values that a distribution needs

Floats = NDArray[np.float64]


def member_figures(manifest: MemberManifest, summary: MemberSummary, rows: pl.DataFrame) -> list[Figure]:
    evaluation, made = summary.evaluation, made_by(manifest.model)
    figures: list[Figure | None] = []
    if evaluation is not None:
        figures += [_roc(evaluation, made), _areas(evaluation, made), _repetitions(evaluation, made)]
    figures += _distributions(manifest, evaluation, rows, made)
    if summary.test is not None:
        figures.append(_splits(summary.test, made))
    return [figure for figure in figures if figure is not None]


def made_by(model: ModelIdentity) -> str:
    return f"Model {plain(numbers.title(model))}, {bos_first(model)}."


def chosen(evaluation: Evaluation | None, known: Sequence[str], *others: str) -> list[str]:
    """The best score, those that are always drawn, and `others`, as far as they are known, each once."""
    first = [] if evaluation is None else [str(evaluation.best)]
    return [name for name in dict.fromkeys([*first, *CHOSEN, *others]) if name in known]


RATES = (("x", "fpr"), ("y", "tpr"))


def _roc(evaluation: Evaluation, made: str) -> Figure:
    curves = {str(one.name): one for one in evaluation.roc}
    names = chosen(evaluation, list(curves), "combined", "blind")
    low = 0.5 / max(evaluation.members, evaluation.non_members, 5)
    layers, tables = [], []
    for colour, name in enumerate(names):
        data = _corners(curves[name], low)
        layers.append(Layer("step", data, title_of(name), colour))
        told = (pl.when(pl.col(own) > low).then(own).otherwise(0.0).alias(rate) for own, rate in RATES)  # no edge
        tables.append(data.select(pl.lit(title_of(name)).alias("score"), *told))
    return Figure(
        name="roc",
        title="Members found, by how many non-members are taken for members",
        caption=sentences(
            f"ROC curves of {numbers.counted(evaluation.members, 'member')} and "
            f"{numbers.counted(evaluation.non_members, 'non-member')}, both axes logarithmic. The further up on the "
            "left, the more members are found with few false alarms; what is found without any stands on the left "
            "edge. The straight line is chance.",
            made,
        ),
        x=Axis("Non-members taken for members (FPR)", "log", "percent", (low, 1.0)),
        y=Axis("Members found (TPR)", "log", "percent", (low, 1.0)),
        layers=(*layers, rule(low, low, 1.0, 1.0, "Chance")),
        table=pl.concat(tables),
    )


def _corners(curve: Roc, low: float) -> pl.DataFrame:
    """The highest TPR at each FPR, from the left edge on; of corners that fall on one place the last."""
    fpr, tpr = (np.maximum(np.asarray(values, dtype=np.float64), low) for values in (curve.fpr, curve.tpr))
    places = np.round(np.log(fpr / low) / -math.log(low) * GRID)
    last = np.append(places[1:] != places[:-1], True)
    data = pl.DataFrame({"x": fpr[last], "y": tpr[last]})
    first = pl.DataFrame({"x": [low], "y": [low]})
    return data if data["x"][0] <= low else pl.concat([first, data])


def _areas(evaluation: Evaluation, made: str) -> Figure:
    shown = [row for row in evaluation.rows if row.name not in ("random", "majority", "blind")][::-1]
    blind = next(row for row in evaluation.rows if row.name == "blind")
    whiskers: list[tuple[float | None, float | None]] = []
    for place, row in enumerate(shown):
        low, high = row.auroc.interval
        whiskers += [(low, float(place)), (high, float(place)), (None, None)]
    points = [(row.auroc.value, float(place)) for place, row in enumerate(shown)]
    pair = {"x": pl.Float64, "y": pl.Float64}
    top, low, high = len(shown) - 0.5, *blind.auroc.interval
    ends = [low, blind.auroc.value, *(value for value, _ in whiskers if value is not None)]
    least = math.floor(10 * min([0.5, *ends])) / 10
    return Figure(
        name="auroc",
        title="AUROC of every score, and without any model",
        caption=sentences(
            "How often a member is ranked above a non-member, with 95% bootstrap intervals. What does not lie to the "
            "right of the blind baseline, which knows the texts alone, says nothing about the model. A half is chance.",
            made,
        ),
        x=Axis("AUROC", limits=(least, 1.0)),
        y=Axis("", "category", limits=(-0.5, top), names=tuple(title_of(str(row.name)) for row in shown)),
        layers=(
            Layer("line", pl.DataFrame(whiskers, schema=pair, orient="row"), "", 0),
            Layer("points", pl.DataFrame(points, schema=pair, orient="row"), "A score", 0),
            rule(blind.auroc.value, -0.5, blind.auroc.value, top, title_of("blind")),
            rule(0.5, -0.5, 0.5, top, "Chance"),
        ),
        table=pl.DataFrame(
            [
                {
                    "score": title_of(str(row.name)), "auroc": row.auroc.value, "interval_low": row.auroc.interval[0],
                    "interval_high": row.auroc.interval[1],
                }
                for row in [*reversed(shown), blind]
            ]
        ),
    )  # fmt: skip


def _repetitions(evaluation: Evaluation, made: str) -> Figure | None:
    steps = evaluation.by_repetitions or []
    if not steps:
        return None
    known = [name for name in map(str, steps[0].auroc) if all(name in step.auroc for step in steps)]
    names = chosen(evaluation, known, "combined", "blind")
    layers, rows = [], []
    for colour, name in enumerate(names):
        beside = 0.08 * (colour - (len(names) - 1) / 2)
        own = [step.auroc[name] for step in steps]
        data = pl.DataFrame(
            {
                "x": [place + beside for place in range(len(steps))],
                "y": [one.value for one in own],
                "low": [one.interval[0] for one in own],
                "high": [one.interval[1] for one in own],
            },
            schema=dict.fromkeys(("x", "y", "low", "high"), pl.Float64),
        )
        layers.append(Layer("interval", data, title_of(name), colour))
        rows += [
            {
                "score": title_of(name), "repetitions": step.repetitions, "members": step.members, "auroc": one.value,
                "interval_low": one.interval[0], "interval_high": one.interval[1],
            }
            for step, one in zip(steps, own, strict=True)
        ]  # fmt: skip
    ends = [layer.data["low"].min() for layer in layers]
    least = math.floor(10 * min([0.5, *(float(end) for end in ends if isinstance(end, float))])) / 10
    right = len(steps) - 0.5
    return Figure(
        name="repetitions",
        title="AUROC by how often the members were seen",
        caption=sentences(
            "Members that were seen so often against all non-members, with 95% intervals. Chance is a half.", made
        ),
        x=Axis(
            "Repetitions", "category", "count", (-0.5, right),
            tuple(f"{step.repetitions:,} ({numbers.counted(step.members, 'text')})" for step in steps),
        ),
        y=Axis("AUROC", limits=(least, 1.0)),
        layers=(*layers, rule(-0.5, 0.5, right, 0.5, "Chance")),
        table=pl.DataFrame(rows),
    )  # fmt: skip


def _distributions(
    manifest: MemberManifest, evaluation: Evaluation | None, rows: pl.DataFrame, made: str
) -> Iterator[Figure]:
    for name in chosen(evaluation, manifest.scores):
        found = _distribution(name, rows, made)
        if found is not None:
            yield found


def _distribution(name: str, rows: pl.DataFrame, made: str) -> Figure | None:
    """The shares of each kind of texts in bins of the score; the outermost 1% on either side are in the last bins."""
    known = rows.select("part", "label", name).filter(pl.col(name).is_finite())
    if known[name].n_unique() < _FEW:
        return None
    low, high = np.quantile(known[name].to_numpy(), [0.01, 0.99])
    if low == high:
        low, high = known[name].to_numpy().min(), known[name].to_numpy().max()
    kinds = list(known.group_by("part", "label", maintain_order=True))
    bins = min(max(round(2 * math.sqrt(min(own.height for _, own in kinds))), BINS[0]), BINS[1])
    edges = np.linspace(low, high, bins + 1)
    layers, tables = [], []
    for colour, ((part, label), own) in enumerate(kinds):
        values = np.clip(own[name].to_numpy(), low, high)
        counts, _ = np.histogram(values, edges)
        what = kind_of(str(part), label).capitalize()
        data = pl.DataFrame({"x": edges, "y": np.append(counts, counts[-1]) / own.height})
        layers.append(Layer("step", data, f"{what} ({numbers.count(own.height)})", colour))
        cells = {"of": [what] * bins, "score_from": edges[:-1], "score_to": edges[1:], "texts": counts}
        tables.append(pl.DataFrame({**cells, "share": counts / own.height}))
    score = BY_NAME[name]
    left = rows.height - known.height
    without = f"{numbers.counted(left, 'text')} without a finite number left out." if left else ""
    return Figure(
        name=f"scores-{name.replace('_', '-')}",
        title=f"{score.title}, by kind of text",
        caption=sentences(
            f"Shares of the texts by their {score.title}: {score.words}. A {score.member} value means seen. The "
            "outermost values are counted in the last bins.",
            without,
            made,
        ),
        x=Axis(score.title, limits=(float(low), float(high))),
        y=Axis("Share of texts", format="percent"),
        layers=tuple(layers),
        table=pl.concat(tables),
    )


def _splits(test: DatasetTest, made: str) -> Figure:
    layers, tables = [], []
    least = 1 / (1 + test.permutations)
    low = 10.0 ** math.floor(math.log10(least) + 1e-9)
    for colour, (what, values) in enumerate((("Scores", test.p_values), (title_of("blind"), test.blind_p_values))):
        ordered = sorted(values)
        data = pl.DataFrame({"x": [float(i + 1) for i in range(len(ordered))], "y": ordered})
        layers.append(Layer("points", data, what, colour))
        tables.append(pl.DataFrame({"of": [what] * len(ordered), "split": range(1, len(ordered) + 1), "p": ordered}))
    right = test.splits + 0.5
    return Figure(
        name="splits",
        title="The p-values of single splits",
        caption=sentences(
            "Each split fits weights on one half of the texts and tests the other; here from the smallest p-value to "
            "the largest. The combined p-value is twice the median, as the splits share their texts.",
            made,
        ),
        x=Axis("Split, by its p-value", format="count", limits=(0.5, right)),
        y=Axis("p", "log", "probability", (low, 1.0)),
        layers=(*layers, rule(0.5, ALPHA, right, ALPHA, "5%")),
        table=pl.concat(tables),
    )
