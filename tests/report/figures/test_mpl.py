"""Figures drawn with matplotlib: every kind of layer, in every format, and the same bytes every time."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest

from rote.errors import InputError
from rote.report.figures.comparison import comparison_figures
from rote.report.figures.figure import COLUMNS, Axis, Figure, Kind, Layer
from rote.report.figures.layers import MANY
from rote.report.figures.mpl.draw import FileFormat, Style, draw
from rote.report.figures.run import run_figures
from rote.report.figures.sweep import sweep_figures
from tests.conftest import ROOT
from tests.report.figures.figureruns import finished, rows
from tests.report.figures.test_several import compared, sweep

matplotlib = pytest.importorskip("matplotlib")
FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
STYLES: tuple[Style, ...] = get_args(Style)


def figure(kind: Kind, count: int = 3, **changes: Any) -> Figure:
    values = {
        name: [(i + 0.5) / (count + 1) + (name.endswith("1") or name == "high") / (count + 1) for i in range(count)]
        for name in COLUMNS[kind]
    }
    if "low" in values:
        values["low"] = [value / 2 for value in values["high"]]
    label = "" if kind == "cells" else "layer"
    layers = tuple(Layer(kind, pl.DataFrame(values), label and f"{label} {i}", i or None) for i in range(9))
    plain: dict[str, Any] = {
        "name": "a-figure",
        "title": "A title",
        "caption": "A caption.",
        "x": Axis("p_z", limits=(0.0, 2.0)),
        "y": Axis("Share", format="percent", limits=(0.0, 2.0)),
        "layers": layers,
        "table": pl.DataFrame(values),
    }
    return Figure(**plain | changes)


def opens(content: bytes, format: FileFormat) -> None:
    if format == "svg":
        root = ET.fromstring(content)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.findall(".//{http://www.w3.org/2000/svg}path")
        assert not root.findall(".//{http://www.w3.org/2000/svg}text"), "letters that need a font of the reader's"
    elif format == "pdf":
        assert content.startswith(b"%PDF-1.")
        assert content.rstrip().endswith(b"%%EOF")
        assert b"/FontFile2" in content
        assert b"CreationDate" not in content
    else:
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        assert _chunks_are_whole(content)


def _chunks_are_whole(content: bytes) -> bool:
    at, names = 8, []
    while at < len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        name, data = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        if zlib.crc32(name + data) != int.from_bytes(content[at + 8 + length : at + 12 + length], "big"):
            return False
        names.append(name)
        at += 12 + length
    return names[0] == b"IHDR" and names[-1] == b"IEND"


@pytest.fixture(autouse=True)
def _no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_of_layer_in_every_format(kind: Kind, format: FileFormat) -> None:
    opens(draw(figure(kind), format=format), format)


@pytest.mark.parametrize("style", STYLES)
def test_every_figure_of_a_run(style: Style) -> None:
    table = rows(60, 1, tolerance=2)
    made = run_figures(finished(table, tolerance=2), table)
    assert len(made) == 13
    for each in made:
        opens(draw(each, style=style), "svg")


def test_every_figure_of_several() -> None:
    tables = {key: rows(20, number, tolerance=2) for number, key in enumerate("ABCDEFGH")}
    made = comparison_figures(compared(tables, near=True), tables)
    for each in [
        *(each for each in made if each.name not in ("pair-a-c", "pair-a-d", "pair-a-e")),
        *sweep_figures(sweep(3, 2, 2)),
    ]:
        opens(draw(each), "svg")


@pytest.mark.parametrize("tau", [1e-6, 1.0])
def test_any_tau_can_be_drawn(tau: float) -> None:
    table = rows(40, 2, tolerance=2, tau=tau)
    for each in run_figures(finished(table, tolerance=2, tau=tau), table):
        draw(each)


def test_nothing_at_all_can_be_drawn() -> None:
    table = rows(3, 0).with_columns(log_prob=pl.lit(float("-inf")), greedy=pl.lit(False))
    for each in run_figures(finished(table), table):
        draw(each)


def test_points_stay_vectors_up_to_a_number() -> None:
    few, many = (draw(figure("points", count, layers=_points(count))) for count in (MANY, MANY + 1))
    assert b"<image" not in few
    assert b"<image" in many
    assert len(many) < len(few)


def _points(count: int) -> tuple[Layer, ...]:
    return (Layer("points", pl.DataFrame({"x": [i / count for i in range(count)], "y": [0.5] * count})),)


def test_foreign_names_are_no_mathematics() -> None:
    names = ("$x_1^$", "100%", r"\frac{", "名前 😀", "a" * 200, "", "_hidden", "p_z")
    made = figure(
        "bars",
        len(names),
        x=Axis("$ and \\ and p_z", "category", limits=(-0.5, len(names) - 0.5), names=names),
        y=Axis("\n", limits=(0.0, 2.0)),
        title="$\\bad$",
        layers=(Layer("bars", figure("bars", len(names)).table, "_a name"),),
    )
    for style in STYLES:
        opens(draw(made, style=style), "svg")
    strips = figure("cells", y=Axis("", "category", limits=(-0.5, 7.5), names=names), colour=Axis("$", limits=(0, 1)))
    opens(draw(strips), "svg")


def test_the_zeros_on_an_edge_have_their_own_label() -> None:
    axis = Axis("p_z", "log", "probability", limits=(1e-8, 1.0), marks=((3e-8, "0"),))
    labels = _tick_labels(figure("points", x=axis))
    assert labels[0] == "0"
    assert labels[-1] == "1"
    assert "$10^{-7}$" not in labels  # it would touch the 0


def _tick_labels(made: Figure) -> list[str]:
    from matplotlib.figure import Figure as Canvas

    from rote.report.figures.mpl.draw import _ticks

    canvas: Any = Canvas()
    axes = canvas.add_subplot()
    axes.set_xscale("log")
    axes.set_xlim(made.x.limits)
    _ticks(axes.xaxis, made.x, most=5)
    canvas.draw_without_rendering()
    return [label.get_text() for label in axes.xaxis.get_ticklabels()]


def test_the_same_bytes_in_another_process_whatever_its_settings(tmp_path: Path) -> None:
    """And pyplot, with its figures that stay open, is never loaded."""
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 20\nfont.size: 40\nsvg.fonttype: none\n")
    code = """
import sys
from hashlib import sha256
from rote.report.figures.mpl.draw import draw
from tests.report.figures.test_mpl import figure
for format in ("svg", "png", "pdf"):
    print(sha256(draw(figure("interval"), format=format)).hexdigest())
assert "matplotlib.pyplot" not in sys.modules
"""
    environment = {"MATPLOTLIBRC": str(tmp_path), "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    before = dict(matplotlib.rcParams)
    here = [sha256(draw(figure("interval"), format=format)).hexdigest() for format in FORMATS]
    assert done.stdout.split() == here
    assert dict(matplotlib.rcParams) == before


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'rote\[report\]'"):
        draw(figure("line"))


def test_colours_of_cells_are_told_apart_in_grey() -> None:
    from rote.report.figures.mpl.layers import colour_map

    shades = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b, _ in colour_map()([i / 10 for i in range(11)])]
    assert shades == sorted(shades, reverse=True)
    assert shades[0] < 0.9
    assert shades[-1] < 0.3


def test_series_of_one_colour_have_other_dashes_and_markers() -> None:
    from rote.report.figures.mpl.layers import _colour, _marker

    layers = [Layer("line", pl.DataFrame({"x": [0.0], "y": [0.0]}), "a", i) for i in range(20)]
    assert len({(_colour(layer), _marker(layer)) for layer in layers}) == 20


def test_a_png_is_as_wide_as_a_column() -> None:
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(draw(figure("line"), format="png")))
    assert image.size[0] == pytest.approx(3.35 * 300, abs=2)
