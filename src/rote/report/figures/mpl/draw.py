"""A figure drawn with matplotlib, for papers and slides: vector, legible in grey, the same bytes every time."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from dataclasses import replace
from typing import Any, Literal

from rote.errors import InputError
from rote.report.figures.figure import Axis, Figure
from rote.report.figures.mpl.layers import Look, colour_map, draw_layers, words

Style = Literal["paper", "slides"]
FileFormat = Literal["svg", "png", "pdf"]

LOOKS: dict[Style, Look] = {
    "paper": Look(width=3.35, height=2.1, font=8.0, line=1.0, dot=3.0, titled=False),  # a column of two
    "slides": Look(width=9.0, height=4.4, font=16.0, line=2.0, dot=6.0, titled=True),
}


LANE = 22
"""Letters on a line of the name beside a strip."""


def require_matplotlib() -> None:
    """Refuse where what draws is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise InputError(
            "figures are drawn with matplotlib, which is not installed; pip install 'rote[report]'."
        ) from error


def draw(figure: Figure, *, style: Style = "paper", format: FileFormat = "svg") -> bytes:
    """The figure as a file's content. The same figure gives the same bytes; an SVG or PDF holds its fonts."""
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    look = LOOKS[style]
    most = _letters(look.width, look) - 8  # beside what a legend draws
    figure = replace(
        figure, layers=tuple(replace(layer, label=_shortened(layer.label, most)) for layer in figure.layers)
    )
    settings: dict[Any, Any] = _settings(look)
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a letter of a foreign name that no font has is a box
        matplotlib.rcdefaults()  # whatever the user's own matplotlibrc says
        matplotlib.rcParams.update(settings)
        canvas = Canvas(figsize=(look.width, _height(figure, look)), layout="constrained")
        axes = canvas.add_subplot()
        draw_layers(axes, figure.layers, look)
        _lay_out(canvas, axes, figure, look)
        out = io.BytesIO()
        nothing: dict[FileFormat, dict[str, Any]] = {
            "svg": {"Date": None, "Creator": None, "Title": figure.title, "Description": figure.caption},
            "pdf": {"CreationDate": None, "Creator": None, "Producer": None, "Title": figure.title},
            "png": {"Software": None, "Title": figure.title},
        }
        canvas.savefig(out, format=format, metadata=nothing[format])
    return out.getvalue()


def _settings(look: Look) -> dict[str, Any]:
    return {
        "font.family": ["STIXGeneral", "DejaVu Sans"],  # both come with matplotlib: alike on every machine
        "mathtext.fontset": "stix",
        "font.size": look.font,
        "axes.labelsize": look.font,
        "xtick.labelsize": 0.9 * look.font,
        "ytick.labelsize": 0.9 * look.font,
        "legend.fontsize": 0.9 * look.font,
        "axes.linewidth": 0.6 * look.line,
        "xtick.major.width": 0.6 * look.line,
        "ytick.major.width": 0.6 * look.line,
        "xtick.minor.size": 0,
        "ytick.minor.size": 0,
        "lines.markeredgewidth": 0,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "rote",
        "svg.fonttype": "path",
        "pdf.fonttype": 42,
        "savefig.dpi": 300,
    }


def _height(figure: Figure, look: Look) -> float:
    unit = look.font / 8.0
    if _is_strip(figure):
        lanes = sum(1.0 + 0.5 * _folded(name, LANE, breaking=True).count("\n") for name in figure.y.names)
        body = (0.24 * lanes + 0.95) * unit
    elif figure.x.scale == figure.y.scale == "log":
        body = 1.3 * look.height
    else:
        body = look.height
    return body + 0.15 * unit * _legend_rows(figure, look) + (0.25 * unit if look.titled else 0.0)


def _is_strip(figure: Figure) -> bool:
    return figure.y.scale == "category"


def _legend_labels(figure: Figure) -> list[str]:
    return [layer.label for layer in figure.layers if layer.label]


def _legend_columns(figure: Figure, look: Look) -> int:
    longest = max(map(len, _legend_labels(figure)), default=0)
    return max(1, min(_letters(look.width, look) // (longest + 6), len(_legend_labels(figure))))


def _legend_rows(figure: Figure, look: Look) -> int:
    return math.ceil(len(_legend_labels(figure)) / _legend_columns(figure, look))


def _lay_out(canvas: Any, axes: Any, figure: Figure, look: Look) -> None:
    filled = {layer.kind for layer in figure.layers} & {"cells", "bars"}
    _scale(axes, figure.x, "x", look, padded=not filled)
    _scale(axes, figure.y, "y", look, padded=not filled)
    if not filled:
        axes.grid(color="#dddddd", linewidth=0.4 * look.line)
        axes.set_axisbelow(True)
    if _legend_labels(figure):
        legend = canvas.legend(
            loc="outside upper left",
            ncols=_legend_columns(figure, look),
            frameon=False,
            borderpad=0,
            columnspacing=1.2,
            handlelength=2.4,
            title=words(figure.title) if look.titled else None,
            title_fontsize=1.1 * look.font,
            alignment="left",
        )
        for handle in legend.legend_handles:  # points that are small and pale because they are many
            if hasattr(handle, "set_markersize"):
                handle.set(markersize=look.dot, alpha=1.0)
    elif look.titled:
        canvas.suptitle(words(figure.title), x=0.01, ha="left", fontsize=1.1 * look.font)
    if figure.colour is not None:
        _colour_bar(canvas, axes, figure, look)


def _colour_bar(canvas: Any, axes: Any, figure: Figure, look: Look) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm, Normalize

    axis = figure.colour
    if axis is None or axis.limits is None or axis.limits[0] == axis.limits[1]:
        return
    scale = LogNorm if axis.scale == "log" else Normalize
    strip = _is_strip(figure)
    shape: dict[str, Any] = {"orientation": "vertical", "fraction": 0.08, "aspect": 25, "shrink": 0.7}
    if strip:  # as thick for one lane as for many
        lanes = 0.24 * len(figure.y.names) + 0.1
        shape = {"orientation": "horizontal", "fraction": 0.07 / (lanes + 0.07)}
        shape |= {"aspect": 26, "shrink": 0.7, "pad": 0.03 / lanes}
    bar = canvas.colorbar(ScalarMappable(scale(*axis.limits), colour_map()), ax=axes, **shape)
    below = f", white below {axis.limits[0]:g}" if axis.format == "probability" else ""
    bar.set_label(words(axis.label + below))
    bar.outline.set_linewidth(0.4 * look.line)
    bar.minorticks_off()
    _ticks(bar.ax.xaxis if strip else bar.ax.yaxis, axis, most=5)


def _scale(axes: Any, axis: Axis, which: Literal["x", "y"], look: Look, *, padded: bool) -> None:
    own = axes.xaxis if which == "x" else axes.yaxis
    length = look.width if which == "x" else look.height
    (axes.set_xlabel if which == "x" else axes.set_ylabel)(words(_folded(axis.label, _letters(0.85 * length, look))))
    if axis.scale == "log":
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    if axis.limits is not None:
        low, high = axis.limits
        if axis.scale == "log":
            room = (high / low) ** 0.03 if padded else 1.0
            low, high = low / room, high * room
        elif padded and axis.scale == "linear":
            low, high = low - 0.03 * (high - low), high + 0.03 * (high - low)
        (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    if axis.scale == "category":
        _names(own, axis, which, look)
    else:
        _ticks(own, axis, most=5 if which == "x" else 6)


def _names(own: Any, axis: Axis, which: str, look: Look) -> None:
    if which == "y":
        own.set_ticks(range(len(axis.names)), [words(_folded(name, LANE, breaking=True)) for name in axis.names])
        own.set_tick_params(length=0)
        return
    room = 0.8 * look.width / max(len(axis.names), 1)
    names = [_folded(name, max(_letters(room, look), 1)) for name in axis.names]
    if all(len(line) <= _letters(room, look) for name in names for line in name.split("\n")):
        own.set_ticks(range(len(names)), [words(name) for name in names])
        return
    line = 1.2 * look.font / 72
    shown = range(0, len(names), math.ceil(line / room))  # of very many every so many
    labels = [words(_shortened(axis.names[i])) for i in shown]
    turned = 90 if line > 0.8 * room else 40
    own.set_ticks(shown, labels, rotation=turned, rotation_mode="anchor", ha="right", va="center")


def _letters(inches: float, look: Look) -> int:
    """About how many letters stand side by side in so much room."""
    return int(72 * inches / (0.5 * look.font))


def _folded(name: str, letters: int, *, breaking: bool = False) -> str:
    """A name on up to three lines; one long word is broken up only if it must be."""
    lines = textwrap.wrap(name, letters, break_long_words=breaking, max_lines=3, placeholder=" …")
    return "\n".join(lines) or name


def _shortened(name: str, letters: int = 28) -> str:
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def _ticks(own: Any, axis: Axis, *, most: int) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    named = dict(axis.marks)
    if axis.scale == "log":
        low, high = axis.limits or (1.0, 1.0)
        apart = max(0.5, 0.12 * math.log10(high / low))  # nearer to a mark, the two labels would touch
        places = [tick for tick in _decades(axis, most) if all(abs(math.log10(tick / at)) > apart for at in named)]
        own.set_major_locator(FixedLocator(sorted([*places, *named])))
        own.set_minor_locator(NullLocator())
    else:
        whole = axis.format == "count"
        few = whole and axis.limits is not None and axis.limits[1] - axis.limits[0] < 10
        own.set_major_locator(MaxNLocator(10 if few else most, integer=whole, steps=[1, 2, 2.5, 5, 10]))
    own.set_major_formatter(
        FuncFormatter(lambda value, _: words(named[value]) if value in named else _number(value, axis))
    )


def _decades(axis: Axis, most: int) -> list[float]:
    """Powers of ten within the limits, at most so many; where there are none, the limits themselves."""
    if axis.limits is None:
        return [10.0**power for power in range(-12, 7)]
    low, high = axis.limits
    least = min((at for at, _ in axis.marks), default=0.0)
    powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    kept = [power for power in powers if 10.0**power > 3 * least]
    step = max(1, math.ceil(len(kept) / (most + 1)))
    chosen = [10.0**power for power in reversed(kept[::-1][::step])]
    return chosen if len(chosen) > 1 else [low, high]


def _number(value: float, axis: Axis) -> str:
    if axis.format == "percent":
        return f"{100 * value:.6g}%"
    if axis.format == "count" and value < (10_000 if axis.scale == "log" else math.inf):
        return f"{value:,.0f}"
    if axis.scale == "log" and not 0.001 * (1 - 1e-9) <= value < 10_000:
        power = math.log10(value)
        if abs(power - round(power)) < 1e-6:
            return rf"$10^{{{round(power)}}}$"
    return f"{value:.3g}"
