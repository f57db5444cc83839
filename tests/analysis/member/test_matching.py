"""Members and non-members made alike: as many in every cell."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest

from rote import InputError
from rote.analysis.member.matching import matched
from tests.analysis.member.tables import ALICE, table


def texts(seed: int, dates: bool = False) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    member = rng.random(400) < 0.5
    lengths = rng.integers(100, 300, size=400) + 60 * member
    years = [f"{2015 + int(rng.integers(6)) + 2 * int(one)}-0{rng.integers(1, 9)}" for one in member]
    own = [ALICE[:length] for length in lengths]
    return table(
        [0.0] * 400, seed=seed, label=member.tolist(), texts=own, date=years if dates else None, names=["loss"]
    )


def test_lengths_are_alike_afterwards() -> None:
    rows = texts(0)
    kept = matched(rows, ["length"], 0)
    members, others = (kept.filter(pl.col("label") == one)["characters"].to_numpy() for one in (True, False))
    assert len(members) == len(others) > 50
    assert abs(members.mean() - others.mean()) < 5
    before = [rows.filter(pl.col("label") == one)["characters"].mean() for one in (True, False)]
    assert abs(before[0] - before[1]) > 50  # type: ignore[operator]
    assert kept.equals(matched(rows, ["length"], 0))
    assert not kept.equals(matched(rows, ["length"], 1))
    assert kept["id"].cast(pl.Int64).is_sorted()


def test_years_have_as_many_of_both() -> None:
    kept = matched(texts(1, dates=True), ["date"], 0)
    counts = [Counter(date[:4] for date in kept.filter(pl.col("label") == one)["date"]) for one in (True, False)]
    assert counts[0] == counts[1]
    assert len(counts[0]) == 4


def test_both_at_once() -> None:
    rows = texts(2, dates=True)
    kept = matched(rows, ["length", "date"], 0)
    assert 0 < kept.height < matched(rows, ["date"], 0).height
    years = [Counter(date[:4] for date in kept.filter(pl.col("label") == one)["date"]) for one in (True, False)]
    assert years[0] == years[1]


def test_nothing_is_matched_unasked() -> None:
    rows = texts(3)
    assert matched(rows, [], 0) is rows
    assert matched(rows.clear(), ["length"], 0).height == 0


def test_a_missing_date_is_told() -> None:
    rows = texts(4, dates=True).with_columns(date=pl.when(pl.col("id") == "3").then(None).otherwise(pl.col("date")))
    with pytest.raises(InputError, match="match='date': 1 labelled text of 400 has no date"):
        matched(rows, ["date"], 0)
    with pytest.raises(InputError, match="400 labelled texts of 400 have no date"):
        matched(texts(4), ["length", "date"], 0)
