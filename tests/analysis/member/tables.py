"""Texts with scores, made up: what the evaluation and the test are given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

import rote
from rote.membership.scores import BY_NAME, SCORES
from rote.progress import quiet

__all__ = ["NAMES", "passages", "quiet", "table"]

NAMES = [score.name for score in SCORES if score.needs != "windows"]
ALICE = (Path(rote.__file__).parent / "data" / "alice.txt").read_text(encoding="utf-8")


def passages(count: int, length: int = 300) -> list[str]:
    """Passages of Alice, spread over the book."""
    step = (len(ALICE) - length) // count
    return [ALICE[place * step : place * step + length] for place in range(count)]


def table(
    shifts: Sequence[float],
    *,
    seed: int,
    label: Sequence[bool | None] | None = None,
    texts: Sequence[str] | None = None,
    group: Sequence[str | None] | None = None,
    date: Sequence[str | None] | None = None,
    repetitions: Sequence[int | None] | None = None,
    names: Sequence[str] = NAMES,
) -> pl.DataFrame:
    """A row per shift: how far all its scores lie in the direction that means seen; what makes a text hard they share."""
    rng = np.random.default_rng(seed)
    count = len(shifts)
    hard = rng.normal(size=count)
    own = list(texts) if texts is not None else passages(count, 80)
    nothing = [None] * count
    values = {
        name: BY_NAME[name].sign * (np.array(shifts) + 0.8 * hard + 0.6 * rng.normal(size=count)) for name in names
    }
    return pl.DataFrame(
        {
            "part": ["texts"] * count,
            "id": [str(place) for place in range(count)],
            "text": own,
            "label": label if label is not None else nothing,
            "group": group if group is not None else nothing,
            "date": date if date is not None else nothing,
            "repetitions": repetitions if repetitions is not None else nothing,
            "characters": [len(text) for text in own],
            **values,
        },
        schema_overrides={"label": pl.Boolean, "group": pl.String, "date": pl.String, "repetitions": pl.Int64},
    )
