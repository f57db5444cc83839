"""Rows as data frames, and as the tables that a notebook shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, Literal, get_args

from rote.errors import RoteError
from rote.options import require_known

FrameKind = Literal["polars", "pandas"]

_CELL = "text-align:left;vertical-align:top;padding:.15em 1.2em .15em 0"


def frame_of(rows: Any, kind: FrameKind, columns: Sequence[str] | Mapping[str, Any] | None = None) -> Any:
    """Rows, or a polars.DataFrame, as the kind of data frame that is asked for; `columns`: where there are no rows."""
    import polars as pl

    require_frame(kind)
    table = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(rows, schema=columns, infer_schema_length=None)
    return table if kind == "polars" else table.to_pandas()


def require_frame(kind: FrameKind) -> None:
    """Refuse a kind of data frame that is not known or not installed, before any work is done for it."""
    require_known("kind", kind, get_args(FrameKind))
    if kind == "pandas":
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise RoteError("a pandas frame needs pandas: pip install 'rote[pandas]'.") from error


def html_text(text: object) -> str:
    """Any text as HTML. Lone surrogates, which no notebook can store, are replaced."""
    return escape(str(text).encode("utf-8", "replace").decode("utf-8"))


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], html: Callable[[Any], str] = html_text) -> str:
    """A table in the colours of its surroundings, with a head where there are `columns`; `html`: of a cell's text."""
    head = "".join(f'<th style="{_CELL}">{html(name)}</th>' for name in columns)
    body = "".join("<tr>" + "".join(f'<td style="{_CELL}">{html(c)}</td>' for c in row) + "</tr>" for row in rows)
    named = f"<thead><tr>{head}</tr></thead>" if columns else ""
    return f'<table style="margin:.4em 0">{named}<tbody>{body}</tbody></table>'


def html_card(title: str, *parts: str) -> str:
    """What a notebook shows of a result: `title` and `parts` are HTML. What is too wide for it scrolls."""
    head = f'<div style="font-weight:bold;margin-bottom:.4em">{title}</div>'
    return f'<div style="max-width:60em;overflow-x:auto;line-height:1.4">{head}{"".join(parts)}</div>'
