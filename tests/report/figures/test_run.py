"""The figures of a run: every number that is plotted is counted again here, slowly and in the plainest way."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rote.odds import wilson
from rote.report.figures.figure import COLUMNS, Axis, Figure, Layer, as_json
from rote.report.figures.layers import MANY
from rote.report.figures.run import CHANCES, RUN_FIGURES, run_figures
from rote.store.manifest import Sampling
from tests.cases import cases
from tests.report.figures.figureruns import LENGTH, SCHEME, TAU, finished, rows
from tests.report.runs import Kind

SEEDS = st.integers(0, 10_000)
COUNTS = st.integers(1, 60)


def figures(table: pl.DataFrame, **options: Any) -> dict[str, Figure]:
    made = run_figures(finished(table, **options), table)
    assert [figure.name for figure in made] == [name for name in RUN_FIGURES if name in {f.name for f in made}]
    return {figure.name: figure for figure in made}


def only(figure: Figure, kind: str, label: str = "") -> pl.DataFrame:
    found = [layer.data for layer in figure.layers if layer.kind == kind and layer.label.startswith(label)]
    assert len(found) == 1
    return found[0]


def known(table: pl.DataFrame) -> list[dict[str, Any]]:
    return [row for row in table.to_dicts() if not row["bounded"]]


def close(one: Any, two: Any) -> bool:
    return list(one) == pytest.approx(list(two), rel=1e-9, abs=1e-12)


# --- one run, verbatim


@given(COUNTS, SEEDS, st.booleans())
@cases(25)
def test_heatmap(count: int, seed: int, stopping: bool) -> None:
    table = rows(count, seed, stopping=stopping)
    figure = figures(table)["heatmap"]
    listed = figure.table.to_dicts()
    assert [row["start"] for row in listed] == [i * LENGTH // 1000 for i in range(1000)]
    assert [row["end"] for row in listed][:-1] == [row["start"] for row in listed][1:]
    cells = {row["x0"]: row for row in figure.layers[0].data.to_dicts()}
    grey = {x for layer in figure.layers[1:] for x in layer.data["x0"]}
    assert all((layer.label, layer.colour) == ("not looked at", None) for layer in figure.layers[1:])
    for part in listed:
        best = -math.inf
        for row in known(table):
            if row["suffix_start"] < part["end"] and row["suffix_end"] > part["start"]:
                best = max(best, row["log_prob"])
        over = [
            row for row in table.to_dicts() if row["suffix_start"] < part["end"] and row["suffix_end"] > part["start"]
        ]
        assert part["looked_at"] == bool(over)
        assert (part["start"] in grey) == (not over)
        if best < math.log(TAU):
            assert part["highest_probability"] is None
            assert part["start"] not in cells
        else:
            assert part["highest_probability"] == pytest.approx(math.exp(best))
            assert cells[part["start"]]["value"] == pytest.approx(1 - best / math.log(TAU))
    assert figure.colour is not None
    assert figure.colour.limits == (TAU, 1.0)


@given(COUNTS, SEEDS)
@cases(10)
def test_heatmap_of_near_verbatim_windows_stands_below_the_verbatim_one(count: int, seed: int) -> None:
    table = rows(count, seed, tolerance=3)
    figure = figures(table, tolerance=3)["heatmap"]
    assert figure.y.names == ("Within 3 edits", "Verbatim")
    near = figure.table.filter(pl.col("lane") == "Within 3 edits").to_dicts()
    assert figure.table["lane"].to_list() == ["Verbatim"] * 1000 + ["Within 3 edits"] * 1000
    for part in near[::50]:
        over = [
            row["lower"]
            for row in table.to_dicts()
            if row["suffix_start"] < part["end"] and row["suffix_end"] > part["start"] and row["lower"] >= TAU
        ]
        assert part["highest_probability"] == (pytest.approx(max(over)) if over else None)
    assert set(figure.layers[0].data["y0"]) <= {-0.4, 0.6}


@given(COUNTS, SEEDS, st.booleans())
@cases(25)
def test_location_and_histogram(count: int, seed: int, stopping: bool) -> None:
    table = rows(count, seed, stopping=stopping)
    made = figures(table)
    drawn = [row for row in known(table) if row["log_prob"] >= math.log(1e-4)]
    stopped = table.height - len(known(table))
    if not drawn:
        assert {"location", "histogram"}.isdisjoint(made)
        return
    place = made["location"]
    points = only(place, "points")
    assert points["x"].to_list() == [row["suffix_start"] for row in drawn]
    assert close(points["y"], [math.exp(row["log_prob"]) for row in drawn])
    assert place.table["example_id"].to_list() == [row["example_id"] for row in drawn]
    histogram = made["histogram"]
    bars = only(histogram, "bars").to_dicts()
    assert len(bars) == 40
    for bar in bars[:-1]:
        inside = [row for row in drawn if math.log(bar["x0"]) <= row["log_prob"] < math.log(bar["x1"])]
        assert bar["y"] == len(inside)
    assert sum(bar["y"] for bar in bars) == len(drawn)
    zero = sum(row["log_prob"] == -math.inf for row in known(table))
    below = len(known(table)) - len(drawn) - zero
    assert (f"{zero} of exactly 0" in histogram.caption) == (zero > 0)
    assert (f"{below} below 0.0001" in histogram.caption) == (below > 0)
    for figure in (place, histogram):
        assert (f"{stopped} window{'s' * (stopped != 1)} given up early" in figure.caption) == (stopped > 0)


def test_many_windows_are_counted_in_cells() -> None:
    table = rows(12_000, 1)
    figure = figures(table)["location"]
    cells = figure.layers[0]
    assert cells.kind == "cells"
    drawn = [row for row in known(table) if row["log_prob"] >= math.log(1e-4)]
    assert len(drawn) > MANY
    assert cells.data["count"].sum() == len(drawn)
    for cell in cells.data.sort("count", descending=True).head(5).to_dicts():
        inside = 0
        for row in drawn:
            across = cell["x0"] <= row["suffix_start"] < cell["x1"]
            inside += across and cell["y0"] <= math.exp(row["log_prob"]) < cell["y1"] + (cell["y1"] == 1.0)
        assert inside == cell["count"]
        assert cell["value"] == pytest.approx(math.log(cell["count"]) / math.log(cells.data["count"].max()))  # type: ignore[arg-type]


@given(COUNTS, SEEDS, st.booleans())
@cases(15)
def test_prompts(count: int, seed: int, stopping: bool) -> None:
    table = rows(count, seed, stopping=stopping)
    figure = figures(table)["prompts"]
    listed = {(row["n"], row["p"]): row["share"] for row in figure.table.to_dicts()}
    for n in (1, 2, 10, 100, 10_000, 1_000_000):
        for p in CHANCES:
            reach = [_in(n, row["log_prob"]) >= p for row in table.to_dicts()]
            doubtful = [row["bounded"] and ok for row, ok in zip(table.to_dicts(), reach, strict=True)]
            if any(doubtful):
                assert (n, p) not in listed
            else:
                assert listed[n, p] == pytest.approx(sum(reach) / count)
    greedy = sum(table["greedy"]) / count
    assert only(figure, "rule", "Greedy").row(0) == (1.0, greedy, 1e6, greedy)


def _in(n: int, log_prob: float) -> float:
    """At least once in n generations."""
    p_z = math.exp(log_prob)
    return p_z if n == 1 or p_z in (0.0, 1.0) else -math.expm1(n * math.log1p(-p_z))


def test_prompts_of_examples_have_intervals() -> None:
    table = rows(40, 3)
    figure = figures(table, kind="score")["prompts"]
    whiskers = only(figure, "interval")
    for row in whiskers.to_dicts():
        hits = sum(_in(int(row["x"]), log_prob) >= 0.5 for log_prob in table["log_prob"])
        assert row["y"] == pytest.approx(hits / 40)
        assert (row["low"], row["high"]) == pytest.approx(wilson(hits, 40))
    assert not [layer for layer in figures(table)["prompts"].layers if layer.kind == "interval"]


# --- groups


@given(COUNTS, SEEDS, st.booleans())
@cases(20)
def test_groups(count: int, seed: int, stopping: bool) -> None:
    table = rows(count, seed, stopping=stopping)
    made = figures(table, kind="score")
    for name, key in (("repetitions", "repetitions"), ("splits", "split")):
        values = sorted({value for value in table[key] if value is not None})
        if len(values) < (1 if name == "repetitions" else 2):
            assert name not in made
            continue
        figure = made[name]
        assert figure.x.names == tuple(map(str, values))
        for number, value in enumerate(values):
            own = [row for row in table.to_dicts() if row[key] == value]
            for label, hits in (
                ("At", sum(not row["bounded"] and row["log_prob"] >= math.log(TAU) for row in own)),
                ("Greedy", sum(row["greedy"] for row in own)),
            ):
                drawn = only(figure, "interval", label).row(number, named=True)
                assert round(drawn["x"]) == number
                assert drawn["y"] == hits / len(own)
                assert (drawn["low"], drawn["high"]) == pytest.approx(wilson(hits, len(own)))


@given(COUNTS, SEEDS, st.booleans())
@cases(20)
def test_split_distribution(count: int, seed: int, stopping: bool) -> None:
    table = rows(count, seed, stopping=stopping)
    made = figures(table, kind="score")
    if table["split"].drop_nulls().n_unique() < 2:
        assert "split-distribution" not in made
        return
    listed = made["split-distribution"].table.to_dicts()
    for split in ("train", "held-out"):
        own = [row for row in table.to_dicts() if row["split"] == split]
        drawn = {row["p_z_at_least"]: row["share"] for row in listed if row["split"] == split}
        for number in range(-80, 1):
            level = 10 ** (number / 20)
            reach = [row for row in own if row["log_prob"] >= math.log(level)]
            if any(row["bounded"] for row in reach):
                assert level not in drawn
            else:
                assert drawn[level] == pytest.approx(len(reach) / len(own))


def test_many_numbers_of_repetitions_are_put_together() -> None:
    table = rows(200, 5).with_columns(repetitions=pl.Series([i % 40 for i in range(200)]))
    figure = figures(table, kind="score")["repetitions"]
    assert figure.x.names == ("0", "1", "2–3", "4–7", "8–15", "16–31", "32–63")
    assert figure.table.filter(pl.col("measure") == "Greedy")["examples"].to_list() == [5, 5, 10, 20, 40, 80, 40]


def test_drawn_examples_leave_the_held_out_corpus_beside_the_rates() -> None:
    table = rows(40, 2).with_columns(
        metadata=pl.Series(
            [
                json.dumps({"corpus": "held-out" if i % 2 else "main", "document": str(i // 4), "run": 0})
                for i in range(40)
            ]
        ),
        split=pl.Series(["held-out" if i % 2 else "train" for i in range(40)]),
    )
    drawn = Sampling(documents=None, examples=2, runs=1, prefix=50, suffix=50, seed=0, corpora={})
    made = figures(table, kind="score", sampling=drawn)
    assert "Share of 20 examples" in made["prompts"].caption
    assert made["splits"].x.names == ("held-out", "train")
    assert made["splits"].table["examples"].to_list() == [20, 20, 20, 20]
    assert "a document's examples taken together" in made["splits"].caption


# --- near-verbatim


@given(COUNTS, SEEDS)
@cases(20)
def test_tolerance(count: int, seed: int) -> None:
    table = rows(count, seed, tolerance=3)
    figure = figures(table, tolerance=3)["tolerance"]
    found = [row["lower_by_tolerance"] for row in table.to_dicts()]
    most = [row["upper_by_tolerance"] for row in table.to_dicts()]
    certified = only(figure, "interval", "At").to_dicts()
    bands = [layer for layer in figure.layers if layer.kind == "band"]
    for tolerance in range(4):
        low = sum(values[tolerance] >= TAU for values in found)
        high = sum(values[tolerance] >= TAU for values in most)
        assert certified[tolerance]["y"] == low / count
        assert certified[tolerance]["low"] == pytest.approx(wilson(low, count)[0])
        assert certified[tolerance]["high"] == pytest.approx(wilson(high, count)[1])
        if bands:
            assert bands[0].data.row(tolerance) == (tolerance, low / count, high / count)
        else:
            assert low == high
    measured = [distance for distance in table["greedy_distance"] if distance is not None]
    if measured:
        greedy = only(figure, "interval", "Greedy")["y"].to_list()
        assert greedy == [sum(d <= tolerance for d in measured) / len(measured) for tolerance in range(4)]


@given(COUNTS, SEEDS)
@cases(20)
def test_unlocked(count: int, seed: int) -> None:
    table = rows(count, seed, tolerance=2)
    made = figures(table, tolerance=2)
    drawn = [row for row in table.to_dicts() if row["lower"] >= TAU / 1000]
    if not drawn:
        assert "unlocked" not in made
        return
    figure = made["unlocked"]
    kinds: dict[str, Callable[[dict[str, Any]], bool]] = {
        "Extractable verbatim": lambda row: row["log_prob"] >= math.log(TAU),
        "Unlocked": lambda row: row["log_prob"] < math.log(TAU) <= math.log(row["lower"]),
        "Below": lambda row: row["lower"] < TAU and row["log_prob"] < math.log(TAU),
    }
    for label, belongs in kinds.items():
        own = [row for row in drawn if belongs(row)]
        layers = [layer.data for layer in figure.layers if layer.label.startswith(label) and layer.kind == "points"]
        assert sum(data.height for data in layers) == len(own)
        for data in layers:
            assert data["y"].to_list() == pytest.approx([row["lower"] for row in own])
            for x, row in zip(data["x"], own, strict=True):
                if math.exp(row["log_prob"]) < 1e-12:
                    assert x == figure.x.marks[0][0]
                else:
                    assert x == pytest.approx(math.exp(row["log_prob"]))
    edge = [row for row in drawn if math.exp(row["log_prob"]) < 1e-12]
    assert bool(figure.x.marks) == bool(edge)
    zero = sum(row["log_prob"] == -math.inf for row in edge)
    assert (f"{zero} window{'s' * (zero != 1)} with a p_z of exactly 0" in figure.caption) == (zero > 0)


@given(COUNTS, SEEDS)
@cases(20)
def test_mass_gain(count: int, seed: int) -> None:
    table = rows(count, seed, tolerance=2)
    gains = [row["lower"] - math.exp(row["log_prob"]) for row in table.to_dicts()]
    certain = [gain for gain, lower in zip(gains, table["lower"], strict=True) if lower >= TAU]
    made = figures(table, tolerance=2)
    if max(gains) < 1e-6:
        assert "mass-gain" not in made
        return
    listed = made["mass-gain"].table
    for group, values in (("All", gains), ("Extractable at τ = 0.001", certain)):
        own = listed.filter(pl.col("group") == group).to_dicts()
        assert len(own) == (241 if values else 0)
        for row in own[::24]:
            assert row["share"] == pytest.approx(sum(v >= row["gain_at_least"] for v in values) / len(values))


def masses(table: pl.DataFrame) -> list[list[float]]:
    found = []
    for row in table.to_dicts():
        if row["lower"] >= TAU:
            levels = [math.exp(row["log_prob"]), *row["lower_by_tolerance"][1:]]
            found.append([levels[0], *(max(b - a, 0.0) for a, b in pairwise(levels))])
    return found


@given(COUNTS, SEEDS)
@cases(20)
def test_shells(count: int, seed: int) -> None:
    table = rows(count, seed, tolerance=2)
    found, made = masses(table), figures(table, tolerance=2)
    assert ("shells" in made) == ("shell-mass" in made) == bool(found)
    if not found:
        return
    heatmap = made["shells"]
    by_place = sorted(found)  # the least verbatim mass at the bottom
    for row in heatmap.table.to_dicts():
        assert row["to_place"] == row["from_place"] + 1
        assert row["mean_mass_estimate"] == pytest.approx(by_place[row["from_place"]][row["distance"]])
    shown = sum(mass >= TAU for values in found for mass in values)
    assert heatmap.layers[0].data.height == shown
    violins = made["shell-mass"].table.to_dicts()
    for distance, row in enumerate(violins):
        own = sorted(values[distance] for values in found if values[distance] >= TAU / 1000)
        assert (row["windows"], row["with_mass"]) == (len(found), len(own))
        assert row["mean_of_all"] == pytest.approx(sum(values[distance] for values in found) / len(found))
        if own:
            middle = len(own) // 2
            median = own[middle] if len(own) % 2 else (own[middle - 1] + own[middle]) / 2
            assert row["median"] == pytest.approx(median)


def test_shells_of_many_windows_are_means_of_neighbours() -> None:
    table = rows(700, 4, tolerance=2)
    found = sorted(masses(table))
    listed = figures(table, tolerance=2)["shells"].table.to_dicts()
    assert len(listed) == 300
    for row in listed[::37]:
        own = [values[row["distance"]] for values in found[row["from_place"] : row["to_place"]]]
        assert row["mean_mass_estimate"] == pytest.approx(sum(own) / len(own))
    assert max(row["to_place"] for row in listed) == len(found)


def test_a_violin_is_the_density_of_its_masses() -> None:
    table = rows(300, 6, tolerance=1)
    violin = only(figures(table, tolerance=1)["shell-mass"], "violin")
    for distance in (0.0, 1.0):
        own = [math.log10(v[int(distance)]) for v in masses(table) if v[int(distance)] >= TAU / 1000]
        drawn = violin.filter(pl.col("x") == distance).to_dicts()
        assert max(row["width"] for row in drawn) == 1.0
        assert drawn[0]["y"] == pytest.approx(10 ** min(own))
        assert drawn[-1]["y"] == pytest.approx(10 ** max(own))
        mean = sum(own) / len(own)
        spread = math.sqrt(sum((v - mean) ** 2 for v in own) / len(own))
        ordered = sorted(own)
        quartiles = [_quantile(ordered, q) for q in (0.25, 0.75)]
        width = 0.9 * min(s for s in (spread, (quartiles[1] - quartiles[0]) / 1.34) if s > 0) * len(own) ** -0.2
        heights = [sum(math.exp(-(((math.log10(row["y"]) - v) / width) ** 2) / 2) for v in own) for row in drawn]
        assert close([row["width"] for row in drawn], [height / max(heights) for height in heights])


def _quantile(ordered: list[float], q: float) -> float:
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


@given(COUNTS, SEEDS, st.booleans())
@cases(10)
def test_cost(count: int, seed: int, near: bool) -> None:
    table = rows(count, seed, tolerance=2 if near else None)
    figure = figures(table, tolerance=2 if near else None)["cost"]
    totals = [sum(table["token_evals"]), *([sum(table["near_token_evals"])] if near else [])]
    assert figure.table["token_evaluations"].to_list() == totals
    assert only(figure, "bars")["y"].to_list() == pytest.approx([total / count for total in totals])
    assert "12.3 s" in figure.caption


# --- what holds for every figure


def inside(figure: Figure) -> None:
    """Every finite number of every layer stands within its axis's limits, and every cell's value in [0, 1]."""
    for layer in figure.layers:
        for name in COLUMNS[layer.kind]:
            values = [v for v in layer.data[name].to_list() if v is not None and math.isfinite(v)]
            assert len(values) == layer.data.height, f"{figure.name}: {name} is not finite"
            if name in ("value", "width"):
                low, high = 0.0, 1.0
            else:
                limits = _axis(figure, name).limits
                assert limits is not None, f"{figure.name}: {name} has no limits"
                low, high = limits
            slack = 1e-9 * max(abs(low), abs(high))
            assert all(low - slack <= value <= high + slack for value in values), f"{figure.name}: {layer.kind} {name}"


def _axis(figure: Figure, column: str) -> Axis:
    return figure.x if column.startswith("x") else figure.y


def sound(made: Mapping[str, Figure]) -> None:
    for name, figure in made.items():
        assert figure.name == name
        inside(figure)
        assert figure.table.height
        assert all(column == column.lower().replace(" ", "_") for column in figure.table.columns)
        assert json.loads(json.dumps(as_json(figure), allow_nan=False))
        assert figure.caption.endswith(".")
        assert "  " not in figure.caption
        assert ".." not in figure.caption


@given(COUNTS, SEEDS, st.booleans(), st.sampled_from(["scan", "score"]), st.sampled_from([1e-6, 0.001, 0.5, 1.0]))
@example(10, 6, False, "scan", 1.0)  # all rows were stopped, so that no share is certain
@cases(40)
def test_every_figure_is_sound(count: int, seed: int, near: bool, kind: Kind, tau: float) -> None:
    table = rows(count, seed, tolerance=2 if near else None, stopping=not near, tau=tau)
    made = run_figures(finished(table, kind=kind, tolerance=2 if near else None, tau=tau), table)
    sound({figure.name: figure for figure in made})
    for figure in made:
        assert f"Model a model, scheme {SCHEME}, BOS '<bos>' (id 0) first." in figure.caption


def test_a_run_without_rows_has_no_figures() -> None:
    table = rows(1, 0)
    assert run_figures(finished(table), table.clear()) == []


def test_a_text_that_does_not_come_out_has_a_blank_heatmap_and_no_histogram() -> None:
    table = rows(5, 0).with_columns(log_prob=pl.lit(-math.inf), greedy=pl.lit(False))
    made = figures(table)
    assert set(made) == {"heatmap", "prompts", "repetitions", "splits", "split-distribution", "cost"} & set(made)
    assert {"heatmap", "prompts", "cost"} <= set(made)
    assert made["heatmap"].layers[0].data.height == 0
    assert made["prompts"].table["share"].to_list() == [0.0] * made["prompts"].table.height


def test_a_layer_without_its_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the columns"):
        Layer("line", pl.DataFrame({"x": [1.0]}))
