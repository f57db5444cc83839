"""Plots and tables in a real browser: what is drawn, what is said of it, and what pointer and keys do."""

from __future__ import annotations

import base64
import math
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from rote.analysis.rates import LeftOut, np_rates
from rote.report.figures.figure import COLUMNS, Axis, Figure, Format, Kind, Layer, Scale, _axis, as_json
from rote.report.figures.run import run_figures
from rote.report.keys import keyed
from rote.report.page.layout import SCRIPTS
from rote.report.page.pack import PackedRun, pack
from rote.report.text import numbers
from tests.report.figures import figureruns
from tests.report.page.browser import browser, opened, plot_page, serious_faults

__all__ = ["browser"]

TEMPLATES = files("rote.report.page") / "templates"
HOSTILE = "<script>document.title='gone'</script> \"quoted\" & 🦊 שלום"


def figure(name: str, x: Axis, y: Axis, *layers: Layer, colour: Axis | None = None) -> Figure:
    return Figure(name, f"A plot of {name}", "A caption.", x, y, layers, pl.DataFrame({"value": [1.0]}), colour)


def layer(kind: Kind, data: Mapping[str, Iterable[float]], label: str = "", colour: int | None = 0) -> Layer:
    return Layer(kind, pl.DataFrame({name: [float(v) for v in values] for name, values in data.items()}), label, colour)


def page_run(rows: pl.DataFrame, key: str = "", name: str = "a model") -> dict[str, Any]:
    return {
        "key": key,
        "name": name,
        "log_prob": [None if value == -math.inf else value for value in rows["log_prob"]],
        "flags": [
            int(greedy) | int(stopped) << 1 for greedy, stopped in zip(rows["greedy"], rows["bounded"], strict=True)
        ],
    }


def run_page(path: Path, *, stopping: bool = False) -> tuple[Path, list[Figure], pl.DataFrame]:
    tolerance = None if stopping else 3  # a search stops nothing early
    rows = figureruns.rows(400, 3, tolerance=tolerance, stopping=stopping)
    made = figureruns.finished(rows, tolerance=tolerance)
    figures = run_figures(replace(made, summary=keyed(made.summary, "summary")), rows)
    return plot_page(path, figures, [page_run(rows)]), figures, rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plots")


@pytest.fixture(scope="module")
def run(browser: Any, folder: Path) -> Iterator[tuple[Any, list[Figure], pl.DataFrame]]:
    path, figures, rows = run_page(folder / "run.html")
    with opened(browser, path, viewport={"width": 1000, "height": 800}) as page:
        yield page, figures, rows


def picture(page: Any, name: str) -> Any:
    """The drawn plot, in view."""
    page.locator(f"[data-figure={name}]").scroll_into_view_if_needed()
    svg = page.locator(f"[data-figure={name}] .canvas > svg")
    svg.locator(".frame").wait_for(state="attached")
    svg.scroll_into_view_if_needed()
    return svg


def tip(page: Any, name: str) -> Any:
    return page.locator(f"[data-figure={name}] .tip")


NUMBERS = """(tip) => [...tip.querySelectorAll("p:not(.tip-name) [data-key]")].map(
(one) => ({ ...one.dataset, text: one.textContent }))"""


def said(page: Any, name: str) -> list[dict[str, str]]:
    """The numbers that the box beside the pointed value shows."""
    found: list[dict[str, str]] = tip(page, name).evaluate(NUMBERS)
    return found


# --- the script


def test_no_two_parts_of_the_script_declare_the_same_name() -> None:
    declared: Counter[str] = Counter()
    for name in SCRIPTS:
        text = (TEMPLATES / "page" / f"{name}.js").read_text("utf-8")
        declared.update(re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", text, re.MULTILINE))
    assert not [name for name, times in declared.items() if times > 1]


def test_the_script_has_nothing_that_the_security_policy_forbids() -> None:
    for name in SCRIPTS:
        text = (TEMPLATES / "page" / f"{name}.js").read_text("utf-8")
        assert not re.search(
            r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\bfetch\(", text
        )


# --- drawing


def test_every_figure_of_a_run_is_drawn(run: tuple[Any, list[Figure], pl.DataFrame]) -> None:
    page, figures, _ = run
    assert len(figures) > 10
    for one in figures:
        svg = picture(page, one.name)
        assert svg.locator("path:not(.gridline, .frame, .ring)").count() >= len(one.layers) - 1
        assert "NaN" not in svg.inner_html()
        assert "undefined" not in svg.inner_html()


OVERLAPS = """(svg) => {
  const inside = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll("text")].map((text) => ({
    text: text.textContent, size: parseFloat(getComputedStyle(text).fontSize), box: text.getBoundingClientRect() }));
  const wrong = boxes.filter(({ size }) => size < 12).map(({ text }) => `${text} is small`);
  for (const { text, box } of boxes) {
    if (box.left < inside.left - 1 || box.right > inside.right + 1) wrong.push(`${text} is outside`);
  }
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
    const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
    if (across > 0.5 && down > 3.5) wrong.push(`${a.text} on ${b.text}`);  // a line's box is higher than its letters
  }));
  return wrong;
}"""


@pytest.mark.parametrize("width", [360, 1000])
def test_no_text_of_a_plot_is_small_or_overlaps_another(browser: Any, folder: Path, width: int) -> None:
    names = tuple(f"{chr(65 + i)} a model with a long name {i}" for i in range(20))
    wide = [
        figure(
            f"names-{count}",
            Axis("", "category", names=names[:count], limits=(-0.5, count - 0.5)),
            Axis("A share of many things, said at some length", format="percent", limits=(0.0, 1.0)),
            layer("points", {"x": range(count), "y": [0.5] * count}),
        )
        for count in (2, 6, 20)
    ]
    cases: list[tuple[Scale, Format, tuple[float, float]]] = [
        ("linear", "count", (0.0, 1e6)),
        ("linear", "number", (0.123456, 0.123466)),
        ("linear", "number", (-3e9, 1e9)),
        ("linear", "percent", (0.0, 0.0001)),
        ("linear", "count", (0.0, 1.0)),
        ("log", "count", (1.0, 1e7)),
        ("log", "probability", (1e-12, 1.0)),
        ("log", "probability", (2e-4, 7e-4)),
        ("log", "number", (1e-30, 1e30)),
    ]
    scales = [
        figure(
            f"scale-{i}",
            Axis("A label of an axis that is much longer than the axis itself, which happens", scale, form, limits),
            Axis("p_z", "log", "probability", (1e-9, 1.0)),
            layer("line", {"x": limits, "y": [1e-8, 1.0]}),
        )
        for i, (scale, form, limits) in enumerate(cases)
    ]
    edge = Axis("p_z", "log", "probability", (1e-6 / 3, 1.0), marks=((1e-6, "< 1e-12"),))
    edged = figure("edge", edge, edge, layer("points", {"x": [1e-6, 0.1], "y": [1e-6, 1.0]}))
    rows = figureruns.rows(60, 1, tolerance=2)
    figures = [*wide, *scales, edged, *run_figures(figureruns.finished(rows, tolerance=2), rows)]
    path = plot_page(folder / f"text-{width}.html", figures, [page_run(rows)])
    with opened(browser, path, viewport={"width": width, "height": 900}) as page:
        for one in figures:
            svg = picture(page, one.name)
            assert not svg.evaluate(OVERLAPS), one.name
            assert svg.locator("text.tick").count() >= 3, one.name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


TICKS: list[tuple[Axis, str]] = [
    (Axis("", format="count", limits=(0.0, 2.5e6)), "0 | 500,000 | 1 million | 1.5 million | 2 million | 2.5 million"),
    (Axis("", format="count", limits=(-0.3, 2.3)), "0 | 1 | 2"),
    (Axis("", format="percent", limits=(0.0, 1.0)), "0% | 20% | 40% | 60% | 80% | 100%"),
    (Axis("", format="percent", limits=(0.0, 0.003)), "0% | 0.05% | 0.1% | 0.15% | 0.2% | 0.25% | 0.3%"),
    (Axis("", limits=(-1.0, 1.0)), "-1 | -0.5 | 0 | 0.5 | 1"),
    (Axis("", "log", "count", (1.0, 1e7)), "1 | 10 | 100 | 1,000 | 10,000 | 100,000 | 1 million | 10 million"),
    (Axis("", "log", "probability", (1e-6, 1.0)), "10⁻⁶ | 10⁻⁵ | 0.0001 | 0.001 | 0.01 | 0.1 | 1"),
    (Axis("", "log", "probability", (1.5e-5, 8e-5)), "2×10⁻⁵ | 5×10⁻⁵"),
    (Axis("", "log", "probability", (1e-4 / 3, 1.0), marks=((1e-4, "0"),)), "0 | 0.001 | 0.01 | 0.1 | 1"),
    (Axis("", "category", names=("a", "b"), limits=(-0.5, 1.5)), "a | b"),
]


def test_ticks_stand_at_round_numbers(browser: Any, folder: Path) -> None:
    code = """(axes) => axes.map((axis) => parts.ticksOf(parts.scaled(axis, []), 600, ([text]) => 7 * text.length)
      .map(({ lines }) => lines.join(" ")).join(" | "))"""
    with opened(browser, plot_page(folder / "ticks.html", [])) as page:
        assert page.evaluate(code, [_axis(axis) for axis, _ in TICKS]) == [labels for _, labels in TICKS]


def test_a_layer_of_each_kind_is_where_its_numbers_are(browser: Any, folder: Path) -> None:
    axis = Axis("place", limits=(0.0, 10.0))
    data: dict[str, list[float]] = {"x": [2, 8], "y": [5, 10], "low": [1, 2], "high": [6, 9], "width": [0.5, 1]}
    data |= {"x0": [2, 8], "x1": [3, 9], "y0": [1, 2], "y1": [4, 5], "value": [0, 1]}
    figures = [
        figure(kind, axis, axis, layer(kind, {name: data[name] for name in columns}), colour=Axis("c", limits=(0, 1)))
        for kind, columns in COLUMNS.items()
    ]
    path = plot_page(folder / "kinds.html", figures)
    with opened(browser, path, viewport={"width": 800, "height": 800}) as page:
        for one in figures:
            svg = picture(page, one.name)
            box = svg.evaluate(
                """(svg) => {
                  const frame = svg.querySelector(".frame").getBBox();
                  const all = [...svg.querySelectorAll("g path")].map((path) => path.getBBox());
                  const left = Math.min(...all.map((b) => b.x)), right = Math.max(...all.map((b) => b.x + b.width));
                  const top = Math.min(...all.map((b) => b.y)), bottom = Math.max(...all.map((b) => b.y + b.height));
                  const x = (v) => (10 * (v - frame.x)) / frame.width;
                  const y = (v) => 10 - (10 * (v - frame.y)) / frame.height;
                  return [x(left), x(right), y(bottom), y(top)];
                }"""
            )
            expected = {
                "line": [2, 8, 5, 10],
                "step": [2, 10, 5, 10],
                "points": [2, 8, 5, 10],
                "bars": [2, 9, 0, 10],
                "band": [2, 8, 1, 9],
                "interval": [2, 8, 1, 10],
                "cells": [2, 9, 1, 5],
                "violin": [2 - 0.42 * 0.5, 8 + 0.42, 5, 10],
                "rule": [2, 9, 1, 5],
            }[one.name]
            assert box == pytest.approx(expected, abs=0.12), one.name


def test_many_values_are_few_elements(browser: Any, folder: Path) -> None:
    draw = random.Random(1)
    side = range(100)
    cells: dict[str, list[float]] = {
        "x0": [x for x in side for _ in side],
        "x1": [x + 1 for x in side for _ in side],
        "y0": [y for _ in side for y in side],
        "y1": [y + 1 for _ in side for y in side],
        "value": [draw.random() for _ in range(10_000)],
    }
    points = {"x": [100 * draw.random() for _ in range(5000)], "y": [100 * draw.random() for _ in range(5000)]}
    axis = Axis("place", limits=(0.0, 100.0))
    figures = [
        figure("cells", axis, axis, layer("cells", cells), colour=Axis("Mass", "log", "probability", (0.001, 1.0))),
        figure("points", axis, axis, layer("points", points)),
    ]
    with opened(browser, plot_page(folder / "many.html", figures)) as page:
        for one in figures:
            assert picture(page, one.name).locator("path").count() < 20
        box = picture(page, "cells").locator(".frame").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.425, box["y"] + box["height"] * 0.755)
        tip(page, "cells").wait_for()
        place = 42 * 100 + 24
        assert [one["key"] for one in said(page, "cells")] == [
            f"figures/cells/layers/0/{column}/{place}" for column in ("x0", "x1", "y0", "y1", "value")
        ]
        assert said(page, "cells")[-1]["text"] == numbers.probability(math.log(0.001) * (1 - cells["value"][place]))


def test_a_plot_is_drawn_when_it_comes_near_and_before_printing(browser: Any, folder: Path) -> None:
    path, figures, _ = run_page(folder / "lazy.html")
    drawn = "document.querySelectorAll('.canvas > svg .frame').length"
    with opened(browser, path, viewport={"width": 1000, "height": 600}) as page:
        page.locator(".canvas > svg .frame").first.wait_for(state="attached")
        page.wait_for_timeout(100)
        assert 0 < page.evaluate(drawn) < len(figures)
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(drawn) == len(figures)


def test_a_plot_follows_the_width_of_the_window(browser: Any, folder: Path) -> None:
    path, _, _ = run_page(folder / "width.html")
    with opened(browser, path, viewport={"width": 1000, "height": 800}) as page:
        svg = picture(page, "location")
        before = svg.get_attribute("viewBox").split()[2]
        page.set_viewport_size({"width": 420, "height": 800})
        page.wait_for_function(
            "(before) => document.querySelector('[data-figure=location] svg').viewBox.baseVal.width < before / 2",
            arg=float(before),
        )
        assert not svg.evaluate(OVERLAPS)


# --- colours


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_series_stand_out_from_the_page_in_both_modes(browser: Any, folder: Path, scheme: str) -> None:
    path, _, _ = run_page(folder / f"{scheme}.html")
    with opened(browser, path, color_scheme=scheme) as page:
        colours = page.evaluate(
            """() => { const style = getComputedStyle(document.documentElement);
            const names = ["page", ...Array.from({length: 8}, (_, i) => `c${i}`), "muted", "ink"];
            return names.map((name) => style.getPropertyValue(`--${name}`).trim()) }"""
        )
    assert len(set(colours)) == 11
    assert all(contrast(colours[0], colour) >= 3 for colour in colours[1:])


def test_dark_mode_changes_colours_without_drawing_anew(run: tuple[Any, list[Figure], pl.DataFrame]) -> None:
    page, _, _ = run
    bar = picture(page, "histogram").locator(".bar")
    bar.evaluate("(path) => { path.dataset.seen = 'yes' }")
    look = "(path) => [getComputedStyle(path).fill, path.dataset.seen]"
    page.emulate_media(color_scheme="light")
    light = bar.evaluate(look)
    page.emulate_media(color_scheme="dark")
    dark = bar.evaluate(look)
    page.emulate_media(color_scheme="light")
    assert light[0] != dark[0]
    assert light[1] == dark[1] == "yes"


# --- what is said of a value


def stored(figures: dict[str, Any], key: str) -> Any:
    found: Any = {"figures": figures}
    for part in key.split("/"):
        found = found[int(part)] if isinstance(found, list | tuple) else found[part]
        if isinstance(found, dict) and "data" in found:
            found = found["data"]  # a layer's columns
    return found


def reprinted(one: dict[str, str], value: Any) -> str:
    how = one["as"]
    if how == "percent":
        return numbers.percent(value)
    if how == "count":
        return numbers.count(value)
    if how == "text":
        return str(value)
    if how == "colour":  # from tau = 0.001 to 1
        return numbers.probability(math.log(0.001) * (1 - value))
    assert how == "number"
    return numbers.probability(math.log(value)) if 0 < value <= 1 else numbers.setting(value)


WALK = (
    f"const numbers = {NUMBERS};"
    """
  const tip = svg.parentElement.querySelector(".tip"), seen = [];
  const press = (key) => svg.dispatchEvent(new KeyboardEvent("keydown", { key }));
  press("Home");
  for (let last = null; tip.innerHTML !== last && seen.length < 500; press("ArrowRight")) {
    last = tip.innerHTML;
    seen.push(numbers(tip));
  }
  return seen;"""
)


def test_arrow_keys_lead_through_all_values_and_each_number_is_the_figures(
    run: tuple[Any, list[Figure], pl.DataFrame],
) -> None:
    page, figures, _ = run
    known = {one.name: as_json(one) for one in figures}
    for one in figures:
        if one.name == "prompts":
            continue
        seen = picture(page, one.name).evaluate(f"(svg) => {{ {WALK} }}")
        assert len(seen) > 1, one.name
        for printed in seen:
            assert printed
            for number in printed:
                assert number["text"] == reprinted(number, stored(known, number["key"])), number
        page.keyboard.press("Escape")
        assert tip(page, one.name).is_hidden()


def test_up_and_down_lead_to_the_other_series(run: tuple[Any, list[Figure], pl.DataFrame]) -> None:
    page, _, _ = run
    picture(page, "repetitions").focus()
    page.keyboard.press("Home")
    first = tip(page, "repetitions").locator(".tip-name").inner_text()
    page.keyboard.press("ArrowDown")
    second = tip(page, "repetitions").locator(".tip-name").inner_text()
    page.keyboard.press("ArrowUp")
    assert {first, second} == {"At τ\u00a0=\u00a00.001", "Greedy"}
    assert tip(page, "repetitions").locator(".tip-name").inner_text() == first
    page.keyboard.press("End")
    assert "4" in tip(page, "repetitions").locator("p").nth(1).inner_text()


def test_the_box_says_what_is_under_the_pointer_and_goes_with_it(run: tuple[Any, list[Figure], pl.DataFrame]) -> None:
    page, figures, _ = run
    bars = next(one for one in figures if one.name == "histogram").layers[0].data
    highest = int(bars["y"].arg_max() or 0)
    box = picture(page, "histogram").locator(".frame").bounding_box()
    along = 1 + math.log10(bars["x0"][highest] * bars["x1"][highest]) / 2 / 4  # four powers of ten below 1
    page.mouse.move(box["x"] + along * box["width"], box["y"] + box["height"] / 2)
    tip(page, "histogram").wait_for()
    assert [one["key"] for one in said(page, "histogram")] == [
        f"figures/histogram/layers/0/{column}/{highest}" for column in ("x0", "x1", "y")
    ]
    page.keyboard.press("Escape")
    assert tip(page, "histogram").is_hidden()
    page.mouse.move(box["x"] + along * box["width"] + 1, box["y"] + box["height"] / 2)
    tip(page, "histogram").wait_for()
    page.mouse.move(5, 5)
    tip(page, "histogram").wait_for(state="hidden")


def test_a_point_on_an_edge_is_called_what_the_edge_is_called(browser: Any, folder: Path) -> None:
    edge = Axis("p_z", "log", "probability", (1e-6 / 3, 1.0), marks=((1e-6, "< 1e-12"),))
    made = figure("edge", edge, Axis("y", limits=(0, 1)), layer("points", {"x": [1e-6, 0.1], "y": [0.5, 0.5]}))
    with opened(browser, plot_page(folder / "edge.html", [made])) as page:
        picture(page, "edge").focus()
        page.keyboard.press("Home")
        assert said(page, "edge")[0] == {"key": "figures/edge/x/marks/0/1", "as": "text", "text": "< 1e-12"}


def test_a_legend_keeps_the_keys_of_its_numbers(run: tuple[Any, list[Figure], pl.DataFrame]) -> None:
    page, _, rows = run
    picture(page, "prompts")
    number = page.locator("[data-figure=prompts] .plot-legend data")
    assert number.get_attribute("data-key").endswith("greedy_rate/rate")
    assert number.inner_text() == numbers.percent(int(rows["greedy"].sum()) / rows.height)


def test_foreign_text_is_shown_and_runs_nothing(browser: Any, folder: Path) -> None:
    made = figure(
        "hostile",
        Axis(HOSTILE, "category", names=(HOSTILE, "b"), limits=(-0.5, 1.5)),
        Axis(HOSTILE),
        layer("points", {"x": [0, 1], "y": [1, 2]}, HOSTILE),
    )
    with opened(browser, plot_page(folder / "hostile.html", [made]), viewport={"width": 1400, "height": 800}) as page:
        picture(page, "hostile").focus()
        page.keyboard.press("Home")
        assert HOSTILE in tip(page, "hostile").inner_text()
        assert page.locator("[data-figure=hostile] .plot-legend").inner_text() == HOSTILE
        assert page.title() == "plots"


# --- (n, p)


@pytest.mark.parametrize("stopping", [False, True])
def test_shares_are_those_of_the_rates(browser: Any, folder: Path, stopping: bool) -> None:
    draw = random.Random(5)
    tables = [figureruns.rows(draw.randrange(1, 200), seed, stopping=stopping) for seed in range(5)]
    halves = figureruns.rows(3, stopping=stopping)  # exactly p in one generation is enough
    tables.append(halves.with_columns(log_prob=pl.Series([math.log(p) for p in (0.5, 0.25, 0.125)])))
    path = plot_page(folder / f"shares-{stopping}.html", [], [page_run(rows, str(i)) for i, rows in enumerate(tables)])
    chances = [0.01, 0.1, 0.25, 0.5, 0.9, 0.999, 0.999999, *(draw.random() for _ in range(5))]
    with opened(browser, path) as page:
        queries = page.evaluate("parts.GENERATIONS")
        found = page.evaluate(
            """(chances) => parts.runs.map((run) => parts.GENERATIONS.flatMap((n) => chances.map((p) => {
            const { low, high } = parts.sharesAt(run, n, p); return [low, high] })))""",
            chances,
        )
    assert queries[0] == 1
    assert queries[-1] == 10**7
    for rows, shares in zip(tables, found, strict=True):
        expected = np_rates(rows, queries=queries, chances=chances)
        assert shares == [[cell.rate, cell.rate_upper] for cell in expected]
    assert stopping == any(low < high for shares in found for low, high in shares)


@pytest.mark.parametrize("audited", [True, False])
def test_shares_are_of_all_windows_where_some_were_left_out(browser: Any, folder: Path, audited: bool) -> None:
    rows = figureruns.rows(80, 11)
    drawn = np.array([audited and i % 4 == 0 for i in range(80)])
    left_out = LeftOut(300, drawn)
    packed = pack(
        [PackedRun("", "a model", figureruns.SCHEME, rows.with_columns(token_ends=pl.lit(None, pl.List(pl.Int32))),
                   left_out=left_out)],
        tau=0.001, length=None, unit="window",
    )  # fmt: skip
    (told,) = packed.data["runs"]
    flags, bounds = (
        zlib.decompress(base64.b64decode(packed.blobs[name]))
        for name in (told["columns"]["flags"]["blob"], told["left_out"]["bounds"]["blob"])
    )
    planes = np.frombuffer(bounds, np.uint8).reshape(8, -1).T
    given = {
        "windows": told["left_out"]["windows"],
        "bounds": np.ascontiguousarray(planes).view("<f8").ravel().tolist(),
    }
    run = page_run(rows) | {"flags": list(flags), "left_out": given}
    with opened(browser, plot_page(folder / f"left-out-{audited}.html", [], [run])) as page:
        found = page.evaluate("parts.GENERATIONS.map((n) => Object.values(parts.sharesAt(parts.runs[0], n, 0.5)))")
        queries = page.evaluate("parts.GENERATIONS")
    expected = np_rates(rows, queries=queries, chances=[0.5], left_out=left_out)
    assert found == [[cell.rate, cell.rate_upper] for cell in expected]


def test_rows_of_a_held_out_corpus_do_not_count(browser: Any, folder: Path) -> None:
    rows = figureruns.rows(60, 9, stopping=True).with_columns(
        corpus=pl.Series(["main" if i % 3 else "held_out" for i in range(60)]),
        token_ends=pl.lit(None, pl.List(pl.Int32)),
    )
    packed = pack([PackedRun("", "a model", figureruns.SCHEME, rows)], tau=0.001, length=None, unit="example")
    flags = zlib.decompress(base64.b64decode(packed.blobs[packed.data["runs"][0]["columns"]["flags"]["blob"]]))
    assert [flag >> 4 for flag in flags] == [int(i % 3 == 0) for i in range(60)]
    run = page_run(rows) | {"flags": list(flags)}
    with opened(browser, plot_page(folder / "held-out.html", [], [run])) as page:
        found = page.evaluate("parts.GENERATIONS.map((n) => Object.values(parts.sharesAt(parts.runs[0], n, 0.5)))")
        queries = page.evaluate("parts.GENERATIONS")
    expected = np_rates(rows.filter(pl.col("corpus") == "main"), queries=queries, chances=[0.5])
    assert found == [[cell.rate, cell.rate_upper] for cell in expected]


def test_the_slider_chooses_p_and_the_curve_is_counted_anew(browser: Any, folder: Path) -> None:
    path, _, rows = run_page(folder / "slider.html", stopping=True)
    with opened(browser, path, viewport={"width": 1000, "height": 900}) as page:
        svg = picture(page, "prompts")
        output, range_, exact = (
            page.locator(f".plot-tools {what}") for what in ("output", "[type=range]", "[type=number]")
        )
        assert output.inner_text() == "p = 50%"
        before = svg.locator(".live .line").get_attribute("d")
        range_.focus()
        page.keyboard.press("ArrowRight")
        assert range_.get_attribute("aria-valuetext") == output.inner_text().removeprefix("p = ")
        assert 0.5 < float(exact.input_value()) < 0.6
        page.wait_for_function("(d) => document.querySelector('.live .line').getAttribute('d') !== d", arg=before)
        page.keyboard.press("End")
        assert output.inner_text() == "p = 99.9999%"
        page.keyboard.press("Home")
        assert output.inner_text() == "p = 1%"
        for p in (0.25, 0.999):
            exact.fill(str(p))
            exact.press("Enter")
            assert output.inner_text() == f"p = {numbers.threshold(p)}"
            page.wait_for_function(
                """(text) => [...document.querySelectorAll('.plot-legend li')].some(
                (li) => li.textContent === text && li.querySelector('.live'))""",
                arg=f"p\u00a0=\u00a0{numbers.threshold(p)}",
            )
            check_curve(page, svg, rows, p)
        exact.fill("7")
        exact.press("Enter")
        assert output.inner_text() == "p = 99.9999%"


def check_curve(page: Any, svg: Any, rows: pl.DataFrame, p: float) -> None:
    svg.focus()
    page.keyboard.press("Home")
    seen = set()
    for key in ["ArrowRight"] * 20 + ["ArrowUp", "ArrowDown", "ArrowLeft"]:
        for number in said(page, "prompts"):
            if not number["key"].startswith("np/"):
                continue
            _, run, n, chance, *which = number["key"].split("/")
            assert (run, float(chance)) == ("", p)
            (cell,) = np_rates(rows, queries=[int(n)], chances=[p])
            assert number["text"] == numbers.percent(cell.rate_upper if which else cell.rate), number
            seen.add(number["key"])
        page.keyboard.press(key)
    page.keyboard.press("Escape")
    assert len(seen) > 15


def test_each_of_several_runs_has_its_curve(browser: Any, folder: Path) -> None:
    tables = [figureruns.rows(100, seed) for seed in range(20)]
    names = [f"{chr(65 + i)} run {i}" for i in range(20)]
    made = figure(
        "prompts",
        Axis("Generations n", "log", "count", (1.0, 1e6)),
        Axis("Share", format="percent", limits=(0.0, 1.0)),
        *(layer("line", {"x": [1, 10], "y": [0, 1]}, name, i) for i, name in enumerate(names)),
    )
    runs = [page_run(rows, chr(65 + i), f"model {i}") for i, rows in enumerate(tables)]
    with opened(browser, plot_page(folder / "several.html", [made], runs)) as page:
        svg = picture(page, "prompts")
        assert svg.locator(".live .line").count() == 20
        assert page.locator(".plot-legend li").all_inner_texts() == names
        looks = svg.evaluate(
            """(svg) => [...svg.querySelectorAll('g.live')].map((g) => {
            const line = g.querySelector('.line');
            const marker = (g.querySelector('.marker')?.getAttribute('d') ?? '').replace(/[\\d.-]+ [\\d.-]+/, '');
            return getComputedStyle(line).stroke + line.getAttribute('stroke-dasharray') + marker.slice(0, 12) })"""
        )
        assert len(set(looks)) == 20
        note = page.locator("[data-figure=prompts] .canvas + .caption")
        assert note.is_hidden()
        page.locator(".plot-tools [type=number]").fill("0.9")
        page.locator(".plot-tools [type=number]").press("Enter")
        assert note.inner_text() == "Drawn for p = 90%, as chosen; what follows is said of 50%."
        svg.focus()
        page.keyboard.press("Home")
        runs_seen = {said(page, "prompts")[0]["key"].split("/")[1]}
        for key in ["ArrowUp"] * 20 + ["ArrowDown"] * 20:
            page.keyboard.press(key)
            runs_seen.add(said(page, "prompts")[0]["key"].split("/")[1])
        assert len(runs_seen) > 3


# --- tables

CELLS = [
    ("delta 10", "1,200", "0.5", ""),
    ("alpha 9", "–", "3.1e-07", "a.b"),
    ("charlie", "90", "0.9995", "A(B)"),
    ("Bravo", "1.5 million", "0", "é"),
    ("alpha 10", "7", "0.25", "<b>"),
]


def sortable(attributes: str, cells: Sequence[Sequence[str]]) -> str:
    escaped = [[cell.replace("<", "&lt;") for cell in row] for row in cells]
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{c}</td>" for c in row[1:])}</tr>' for row in escaped
    )
    heads = '<th scope="col">Name</th><th scope="col">Prompts</th><th scope="col" data-minimum>Highest</th>'
    return (
        f'<div class="scroll"><table class="data sortable" {attributes}>'
        f'<thead><tr>{heads}<th scope="col">Words</th></tr></thead><tbody>{body}</tbody></table></div>'
    )


def column(page: Any, number: int) -> list[str]:
    found: list[str] = page.evaluate(
        """(i) => [...document.querySelectorAll('table.sortable tbody tr:not([hidden])')]
        .map((row) => row.cells[i].textContent)""",
        number,
    )
    return found


def test_a_table_is_sorted_by_its_heads(browser: Any, folder: Path) -> None:
    path = plot_page(folder / "sort.html", [], body=sortable("", CELLS))
    with opened(browser, path) as page:
        assert page.locator(".table-tools").count() == 0
        head = page.locator("th[scope=col]")
        page.get_by_role("button", name="Prompts").click()
        assert column(page, 1) == ["1.5 million", "1,200", "90", "7", "–"]
        assert head.nth(1).get_attribute("aria-sort") == "descending"
        page.get_by_role("button", name="Prompts").press("Enter")
        assert column(page, 1) == ["7", "90", "1,200", "1.5 million", "–"]
        assert head.nth(1).get_attribute("aria-sort") == "ascending"
        page.get_by_role("button", name="Highest").press("Space")
        assert column(page, 2) == ["0.9995", "0.5", "0.25", "3.1e-07", "0"]
        assert head.nth(1).get_attribute("aria-sort") is None
        page.get_by_role("button", name="Name").click()
        assert column(page, 0) == ["alpha 9", "alpha 10", "Bravo", "charlie", "delta 10"]
        page.get_by_role("button", name="Name").click()
        assert column(page, 0) == ["delta 10", "charlie", "Bravo", "alpha 10", "alpha 9"]


def test_numbers_are_sorted_by_what_they_are_not_by_how_they_look(browser: Any, folder: Path) -> None:
    body = """<table class="data sortable" data-filter="Find">
    <thead><tr><th scope="col" data-minimum>p_z</th><th scope="col">Place</th></tr></thead><tbody>
    <tr><td><data value="-1" data-as="probability">0.37</data></td><td data-sort="3">third</td></tr>
    <tr><td><data value="-900" data-as="probability">1.4e-391</data></td><td data-sort="1">first</td></tr>
    <tr><td><data value="-Infinity" data-as="probability">0</data></td><td data-sort="2">second</td></tr>
    </tbody></table>"""
    with opened(browser, plot_page(folder / "values.html", [], body=body)) as page:
        page.get_by_role("button", name="p_z").click()
        assert column(page, 1) == ["third", "first", "second"]
        page.get_by_role("button", name="Place").click()
        assert column(page, 1) == ["third", "second", "first"]
        page.get_by_label("p_z at least").fill("0.3")
        assert column(page, 1) == ["third"]


def test_a_table_is_searched_literally(browser: Any, folder: Path) -> None:
    many = [*CELLS, *((f"row {i}", str(i), f"{i / 2000}", "words") for i in range(2000))]
    path = plot_page(folder / "filter.html", [], body=sortable('data-filter="Find in the list"', many))
    with opened(browser, path) as page:
        find, least, output = (
            page.get_by_label("Find in the list"),
            page.get_by_label("Highest at least"),
            page.locator(".table-tools output"),
        )
        assert output.inner_text() == "2,005 of 2,005 rows"
        for wanted, names in [
            ("ALPHA", ["alpha 9", "alpha 10"]),
            ("a.b", ["alpha 9"]),
            ("a(b", ["charlie"]),
            ("<B>", ["alpha 10"]),
            ("É", ["Bravo"]),
            (".*", []),
        ]:
            find.fill(wanted)
            assert column(page, 0) == names
            assert output.inner_text() == f"{len(names)} of 2,005 rows"
        find.fill("")
        least.fill("0.99")
        assert column(page, 0) == ["charlie", *(f"row {i}" for i in range(1980, 2000))]
        page.get_by_role("button", name="Highest").click()
        assert column(page, 0) == ["charlie", *(f"row {i}" for i in range(1999, 1979, -1))]
        least.fill("")
        assert output.inner_text() == "2,005 of 2,005 rows"


# --- for everyone


def test_axe_finds_nothing_serious(browser: Any, folder: Path) -> None:
    rows = figureruns.rows(60, 1, tolerance=2)
    figures = run_figures(figureruns.finished(rows, tolerance=2), rows)
    chosen = [one for one in figures if one.name in ("prompts", "unlocked", "shells", "cost")]
    path = plot_page(folder / "axe.html", chosen, [page_run(rows)], sortable('data-filter="Find in the list"', CELLS))
    with opened(browser, path) as page:
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
            picture(page, "prompts").focus()
            page.keyboard.press("Home")
            assert serious_faults(page, scheme) == []
