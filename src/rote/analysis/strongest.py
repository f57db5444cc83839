"""Which rows of a score table stand first: the likeliest ones, and the strongest passages among them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from rote.analysis.near.table import near_table
from rote.analysis.rates import log_prob_bounds

PASSAGES = 10
"""Strongest passages that are told apart, at most."""


def by_likelihood(rows: pl.DataFrame) -> list[int]:
    """The rows' places in the table, the likeliest first; what was stopped early comes last."""
    lower = log_prob_bounds(rows)[0]
    order: list[int] = np.lexsort((np.arange(rows.height), -lower)).tolist()
    return order


def strongest_rows(rows: pl.DataFrame, floor: float, *, overlapping: bool) -> list[dict[str, Any]]:
    """The most likely rows whose log p_z is at least `floor`, each with its place in the table as `row`.

    Unless `overlapping`, none whose suffix overlaps a more likely one's.
    """
    if not rows.height:
        return []
    places = rows.select("log_prob", "suffix_start", "suffix_end").with_row_index("row")
    extracted = places.filter(pl.Series(log_prob_bounds(rows)[0] >= floor))
    order = extracted.sort("log_prob", "suffix_start", "row", descending=[True, False, False], nulls_last=True)
    return _first(rows, order, PASSAGES, overlapping)


def chosen_rows(rows: pl.DataFrame, most: int, beside: Iterable[int]) -> list[int]:
    """Some rows of many, by their places in the table, ascending: for who cannot be shown all of them.

    These are the `most` likeliest, as many more evenly spread over the table, and those `beside` them.
    """
    likeliest = np.argsort(-log_prob_bounds(rows)[0], kind="stable")[:most]
    spread = np.linspace(0, rows.height - 1, min(most, rows.height)).astype(np.int64)
    chosen: list[int] = np.unique(np.concatenate((likeliest, spread, np.array([*beside], dtype=np.int64)))).tolist()
    return chosen


def unlocked_rows(rows: pl.DataFrame, tau: float, most: int, *, overlapping: bool) -> list[dict[str, Any]]:
    """The `most` rows with the largest lower bounds of those that only tolerance makes extractable, likewise."""
    near = near_table(rows, tau)
    places = rows.select("suffix_start", "suffix_end").with_row_index("row")
    lower = pl.Series("lower", near.lower[:, -1]) if rows.height else pl.Series("lower", [], dtype=pl.Float64)
    unlocked = places.with_columns(lower).filter(pl.Series(near.extractable & ~near.verbatim, dtype=pl.Boolean))
    order = unlocked.sort("lower", "suffix_start", "row", descending=[True, False, False], nulls_last=True)
    return _first(rows, order, most, overlapping)


def _first(rows: pl.DataFrame, order: pl.DataFrame, most: int, overlapping: bool) -> list[dict[str, Any]]:
    chosen: list[tuple[int, int, int]] = []
    for row, start, end in order.select("row", "suffix_start", "suffix_end").iter_rows():
        if overlapping or all(end <= other_start or start >= other_end for _, other_start, other_end in chosen):
            chosen.append((row, start, end))
        if len(chosen) == most:
            break
    return [{"row": row, **rows.row(row, named=True)} for row, _, _ in chosen]
