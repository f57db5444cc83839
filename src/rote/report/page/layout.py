"""How every page is put together: templates, the one script, plots with their tables. Nothing is read but templates."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from rote.report.figures.figure import Figure, as_json
from rote.report.keys import keyed, mark, marked, plain
from rote.report.page.pack import PackedPage
from rote.report.text import numbers

SCRIPTS = (
    "odds", "numbers", "elements", "data", "rows", "download",
    "svg", "axis", "ticks", "area", "layers", "legend", "targets", "tip", "pointer", "prompts", "slider", "plot",
    "figures",
    "strip", "cursor", "text", "shading", "tokens", "variants", "passage", "reader", "table", "probe", "start",
)  # fmt: skip
"""The parts of the page's script, in order: each is a file of plain functions that all parts see, and of constants that
the ones after it see."""

TABLE_ROWS = 200
"""Rows of a plot's table that the page prints."""

NO_ROWS: dict[str, Any] = {"tau": None, "length": None, "unit": "", "runs": [], "table": None}
"""What the script is told on a page without rows: its plots and tables need none."""


def render_page(template: str, *, packed: PackedPage | None, figures: Iterable[Figure], **content: Any) -> str:
    """A template filled in. `packed` (None: the page shows no rows) and `figures` travel inside it, for its script."""
    drawn = list(figures)
    code = script()
    return (
        environment()
        .get_template(template)
        .render(
            script=Markup(code),
            script_hash=script_hash(code),
            data=packed.data if packed is not None else NO_ROWS,
            blobs=packed.blobs if packed is not None else {},
            figures={figure.name: _drawn(figure) for figure in drawn},
            plots=defaultdict(lambda: None, {figure.name: _plot(figure) for figure in drawn}),
            **content,
        )
    )


@cache
def environment() -> jinja2.Environment:
    """What lays out every page: escapes by itself, and refuses a name that it was not given."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rote.report.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: marked(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    environment.filters["typeset"] = numbers.typeset
    environment.filters["plain"] = plain
    environment.filters["json_block"] = json_block
    return environment


@cache
def script() -> str:
    """The page's script: one closure, so that nothing of it can be reached from outside."""
    folder = files("rote.report.page") / "templates" / "page"
    parts = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


def script_hash(code: str) -> str:
    """What the page's security policy calls the script: no other one runs, wherever it may come from."""
    return "sha256-" + base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode("ascii")


def json_block(content: Any) -> Markup:
    """JSON inside a <script> element: nothing in it can end the element."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _drawn(figure: Figure) -> dict[str, Any]:
    """The figure for the script; what its legend says has a key where it has a number."""
    content = as_json(figure)
    del content["table"]  # the page has it in words
    labels = [layer["label"] for layer in content["layers"]]
    for layer in content["layers"]:
        label = layer["label"]
        if any(map(str.isdigit, label)) and plain(label) == label:
            key = f"figures/{figure.name}/layers/{labels.index(label)}/label"
            layer["label"] = mark(keyed(label, key), label, "text")
    return content


def _plot(figure: Figure) -> dict[str, Any]:
    shown = keyed(figure.table.head(TABLE_ROWS).to_dict(as_series=False), f"figures/{figure.name}/table")
    rows = [[_cell(shown[name][row]) for name in shown] for row in range(min(figure.table.height, TABLE_ROWS))]
    more = keyed(figure.table.height - TABLE_ROWS, f"figures/{figure.name}/left_out")
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "columns": [name.replace("_", " ") for name in figure.table.columns],
        "rows": rows,
        "more": f"{numbers.counted(more, 'more row')} left out; rote figures writes them all." if more > 0 else "",
    }


def _cell(value: Any) -> str:
    if value is None:
        return numbers.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return numbers.count(value)
    if isinstance(value, float):
        return mark(value, f"{value:.6g}", "number")
    return numbers.name(value if isinstance(value, str) else str(value))
