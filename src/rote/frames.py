"""Rows as data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from rote.errors import RoteError
from rote.options import require_known

FrameKind = Literal["polars", "pandas"]


def frame_of(rows: Any, kind: FrameKind, columns: Sequence[str] | Mapping[str, Any] | None = None) -> Any:
    """Rows, or a polars.DataFrame, as the kind of data frame that is asked for; `columns`: where there are no rows."""
    import polars as pl

    require_known("kind", kind, get_args(FrameKind))
    table = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(rows, schema=columns, infer_schema_length=None)
    if kind == "polars":
        return table
    try:
        return table.to_pandas()
    except ImportError as error:
        raise RoteError("a pandas frame needs pandas: pip install 'rote[pandas]'.") from error
