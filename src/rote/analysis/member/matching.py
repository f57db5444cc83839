"""Members and non-members made alike by length or date: as many of the one as of the other in every cell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from rote.analysis.member.measures import Ints
from rote.corpus.texts import year_of
from rote.errors import InputError, argument, counted

MOST_BINS = 20
BIN = 20
"""Lengths are cut at quantiles into bins of about so many texts or more."""


def matched(rows: pl.DataFrame, by: Sequence[str], seed: int) -> pl.DataFrame:
    """The labelled texts that are kept: of every cell as many members as non-members, drawn at random.

    A cell is a year, a bin of lengths in characters, or both.
    """
    if not by or not rows.height:
        return rows
    cells = np.zeros(rows.height, dtype=np.int64)
    for what in by:
        own = _years(rows) if what == "date" else _bins(rows)
        _, cells = np.unique(np.stack([cells, own]), axis=1, return_inverse=True)
    member = rows["label"].to_numpy().astype(np.bool_)
    rng = np.random.default_rng(seed)
    kept: list[int] = []
    for cell in np.unique(cells):
        both = [np.flatnonzero((cells == cell) & own) for own in (member, ~member)]
        fewest = min(map(len, both))
        for places in both:
            kept += rng.choice(places, fewest, replace=False).tolist()
    return rows[sorted(kept)]


def _years(rows: pl.DataFrame) -> Ints:
    dates = rows["date"].to_list()
    missing = sum(date is None for date in dates)
    if missing:
        raise InputError(
            f"{argument('match', 'date')}: {counted(missing, 'labelled text')} of {len(dates):,} "
            f"{'has' if missing == 1 else 'have'} no date. Give every text a date, or match by length alone."
        )
    return np.array([int(year_of(date)) for date in dates], dtype=np.int64)


def _bins(rows: pl.DataFrame) -> Ints:
    characters = rows["characters"].to_numpy()
    bins = max(1, min(MOST_BINS, len(characters) // BIN))
    edges = np.quantile(characters, np.arange(1, bins) / bins) if len(characters) else np.zeros(0)
    return np.searchsorted(edges, characters, side="left")
