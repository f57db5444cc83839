"""What the numbers of a run need of its rows, taken part by part: a large score table need not be held whole.

A row of the score table takes about a kilobyte, nearly all of it lists with a value for each token. The numbers of a
run need little of these: how small the smallest margin is, how many tokens there are, and how far the likeliest
beginning of a suffix goes. Everything else that is summed up, plotted or listed is a single value of each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from rote.analysis.furthest import Furthest
from rote.analysis.rates import told_margins
from rote.store.manifest import Manifest
from rote.store.summary import Longest
from rote.store.table import EMPTY, NearColumns

LISTS = ("token_log_probs", "base_log_probs", "ranks", "token_ends", "candidates")
"""What a narrow table lacks: nearly all of a table's size."""

_SELDOM = ("repetitions", "split", "stage")
_NEAR = tuple(name for name in NearColumns.__slots__ if name in EMPTY.columns)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """`rows`: the score table without LISTS, its `margins` the smallest of each row alone; see `narrow`.

    `most_tokens`: of the longest suffix. `longest`: by scheme, as far as a scan asks for it.
    """

    rows: pl.DataFrame
    most_tokens: int
    longest: dict[str, dict[str, Longest | None]]


def narrowed(parts: Iterable[pl.DataFrame], manifest: Manifest, thresholds: Sequence[float]) -> Narrowed:
    """The score table `parts` in the order of their rows, each let go of before the next one is asked for."""
    scanned = manifest.source.characters is not None
    furthest = {scheme: Furthest(thresholds) for scheme in manifest.schemes} if scanned else {}
    rows, most_tokens = [narrow(EMPTY, manifest)], 0
    for part in parts:
        most_tokens = max(most_tokens, int(part["ranks"].list.len().max() or 0))  # type: ignore[arg-type]
        for scheme, each in furthest.items():
            each.add(part.filter(part["scheme"] == scheme))
        rows.append(narrow(part, manifest))
    return Narrowed(
        pl.concat(rows, how="vertical_relaxed"),
        most_tokens,
        {scheme: each.found() for scheme, each in furthest.items()},
    )


def narrow(part: pl.DataFrame, manifest: Manifest) -> pl.DataFrame:
    """Some rows with a value of each kind at most, and without the kinds that this run has none of.

    Of the margins the one nearest the border of the support is kept, as a list of one: rates count the rows that have
    any within a tolerance. A column in which no row has a value has no type either, and takes no memory.
    """
    dropped = [*LISTS, *(() if manifest.near else _NEAR)]
    if manifest.sampling is None and manifest.index is None:
        dropped.append("metadata")
    nearest = told_margins(part).list.eval(pl.element().abs()).list.min()
    own = part.drop(dropped, strict=False).with_columns(
        margins=nearest.to_frame().select(pl.concat_list("margins")).to_series()
    )
    empty = [name for name in _SELDOM if own[name].null_count() == own.height]
    # Where all rows are of one scheme its name is there once, not in every row.
    same = [pl.lit(name).alias("scheme") for name in manifest.schemes if (part["scheme"] == name).all()]
    return own.with_columns(*(pl.lit(None).alias(name) for name in empty), *same[:1])
