"""Probabilities as they are printed, and outputs near a suffix with theirs: as they travel inside a page."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.report.text import numbers

VARIANTS = 5
"""Outputs near a suffix that a page shows, at most."""


def printed(log_probs: NDArray[np.float64]) -> tuple[NDArray[np.uint16], list[str]]:
    """For each log-probability its place in the list of all that are printed here, and that list.

    Millions of tokens share a few thousand printed probabilities. What prints alike is found by arithmetic, and one of
    each kind is printed.
    """
    if not log_probs.size:
        return np.zeros(0, np.uint16), []
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        exponent = np.floor(log_probs / math.log(10))
        mantissa = np.exp(log_probs - exponent * math.log(10))
        scaled = mantissa * np.where(exponent >= -3, 100, 10)
        rounded = np.round(scaled)
        miss = -np.expm1(log_probs)
        digits = np.minimum(np.ceil(-np.log10(miss)), 6)
        nines = np.exp(log_probs) * 10**digits
        near_one = digits * 1e6 + np.minimum(np.floor(nines), 10**digits - 1)
        kind = np.where(miss <= 5e-4, 1e12 + near_one, exponent * 1e4 + rounded)
        off = np.where(miss <= 5e-4, np.abs(nines % 1 - 0.5), np.abs(scaled - rounded))
    kind = np.where(log_probs >= 0, 2e12, np.where(np.isneginf(log_probs), -1e12, kind))
    # The one of each kind that lies farthest from where rounding could go either way speaks for all of it.
    order = np.argsort(np.nan_to_num(off), kind="stable")
    _, first, sorted_place = np.unique(kind[order], return_index=True, return_inverse=True)
    if first.size > 65_536:
        raise ValueError(f"{first.size} kinds of printed probabilities do not fit into 16 bits")
    place = np.empty(log_probs.size, np.uint16)
    place[order] = sorted_place
    return place, [numbers.probability(float(log_probs[order[i]])) for i in first]


def near_outputs(candidates: pl.Series) -> list[str]:
    """For each row, as JSON, its heaviest outputs near the suffix.

    An output is its place among the candidates, its edits, its own probability and that of the set it is an example of,
    both as printed where they are known, and its text.
    """
    each = candidates.to_frame("one").with_row_index("row").explode("one").unnest("one")
    every = each.with_columns(place=pl.int_range(pl.len()).over("row")).filter(pl.col("distance") > 0)
    listed = every.group_by("row", maintain_order=True).head(VARIANTS)
    own, together = (_probabilities(listed[name]) for name in ("log_prob", "set_log_prob"))
    spelled = pl.col("tokens").cast(pl.List(pl.String)).list.join(" ")
    texts = listed.select(pl.when(pl.col("text").is_null()).then(spelled).otherwise("text")).to_series()
    columns = (listed[name].to_list() for name in ("row", "place", "distance"))
    outputs: list[list[list[Any]]] = [[] for _ in range(len(candidates))]
    for row, *output, text in zip(*columns, own, together, texts.to_list(), strict=True):
        outputs[row].append([*output, numbers.literal(text)])
    return [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in outputs]


def _probabilities(log_probs: pl.Series) -> list[str | None]:
    codes, palette = printed(log_probs.fill_null(0.0).to_numpy())
    known = log_probs.is_not_null().to_list()
    return [palette[code] if sure else None for code, sure in zip(codes.tolist(), known, strict=True)]
