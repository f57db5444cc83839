"""Scores against labels: all rows, intervals, what is left out, and sentences where there is too little."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

from rote.analysis.member.chance import by_chance, by_majority
from rote.analysis.member.evaluate import evaluate, explained, spreads
from rote.store.files import plain
from rote.store.member import Evaluation
from tests.analysis.member.tables import NAMES, passages, quiet, table
from tests.reference import member as slow


def run(rows: pl.DataFrame, names: list[str] | None = None, **more: Any) -> Evaluation | str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = {"match": (), "seed": 0, "unlabelled": 0, "prefix": 0, "progress": quiet, **more}
        return evaluate(rows, NAMES if names is None else names, **options)


def good(result: Evaluation | str) -> Evaluation:
    assert isinstance(result, Evaluation), result
    return result


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [one for own in value.values() for one in numbers(own)]
    if isinstance(value, list):
        return [one for own in value for one in numbers(own)]
    return [value] if isinstance(value, float) else []


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    """Members lie 1 higher, of which half were seen once and half 16 times, and these lie 2 higher."""
    member = [True] * 60 + [False] * 110
    repetitions = [1, 16] * 30 + [0] * 110
    shifts = [1.0, 2.0] * 30 + [0.0] * 110
    order = np.random.default_rng(0).permutation(170)
    texts = [passages(170, 60)[place] for place in order]
    return table(shifts, seed=1, label=member, repetitions=repetitions, texts=texts, names=[*NAMES, "best_window"])


@pytest.fixture(scope="module")
def result(rows: pl.DataFrame) -> Evaluation:
    return good(run(rows, [*NAMES, "best_window"], unlabelled=3, prefix=2))


def test_all_ways_are_there(result: Evaluation) -> None:
    ways = [*NAMES, "best_window", "combined", "blind", "random", "majority"]
    assert [row.name for row in result.rows] == ways
    assert [curve.name for curve in result.roc] == ways
    assert (result.members, result.non_members, result.groups, result.folds) == (60, 110, None, 5)
    assert (result.unlabelled, result.prefix, result.unmatched) == (3, 2, 0)
    assert (result.resamples, result.beta) == (2000, 0.1)
    assert all(map(math.isfinite, numbers(plain(result))))


def test_the_numbers_are_those_of_pairs_and_thresholds(rows: pl.DataFrame, result: Evaluation) -> None:
    for name, sign in (("loss", -1), ("min_k_20", 1)):
        members, others = ((sign * rows.filter(pl.col("label") == one)[name]).to_list() for one in (True, False))
        row = next(row for row in result.rows if row.name == name)
        assert row.auroc.value == float(slow.auroc(members, others))
        assert row.tpr_1 is not None
        assert row.tpr_1.value == float(slow.tpr_at(members, others, 100))
        assert row.tpr_01 is None  # it needs 1,000 non-members
        assert row.precision is not None
        found, called = row.recall.value * 60, row.recall.value * 60 / row.precision.value
        assert row.f_beta.value == pytest.approx(float(slow.f_beta(round(found), round(called - found), 60)))
        for one in (row.auroc, row.tpr_1, row.precision, row.recall, row.f_beta):
            assert one.interval[0] <= one.value <= one.interval[1]
    assert result.best == max(result.rows[: len(NAMES)], key=lambda row: row.auroc.value).name


def test_what_is_shared_helps_and_texts_alone_do_not(result: Evaluation) -> None:
    by_name = {row.name: row for row in result.rows}
    assert by_name["combined"].auroc.value > by_name["loss"].auroc.value - 0.02
    assert by_name["combined"].auroc.interval[0] > 0.75
    low, high = by_name["blind"].auroc.interval
    assert low < 0.6
    assert high > 0.4
    over = by_name["loss"].over_blind
    assert over is not None
    assert over.value == pytest.approx(by_name["loss"].auroc.value - by_name["blind"].auroc.value)
    assert over.interval[0] > 0
    assert by_name["blind"].over_blind is None
    assert by_name["random"].over_blind is None


def test_members_seen_more_often_are_told_better(rows: pl.DataFrame, result: Evaluation) -> None:
    assert result.by_repetitions is not None
    assert [(level.repetitions, level.members) for level in result.by_repetitions] == [(1, 30), (16, 30)]
    once, often = result.by_repetitions
    others = (-rows.filter(~pl.col("label"))["loss"]).to_list()
    for level in (once, often):
        members = (-rows.filter(pl.col("label"), pl.col("repetitions") == level.repetitions)["loss"]).to_list()
        assert level.auroc["loss"].value == float(slow.auroc(members, others))
        assert set(level.auroc) == {*NAMES, "best_window", "combined", "blind"}
    assert once.auroc["loss"].value < often.auroc["loss"].value
    assert good(run(rows.with_columns(repetitions=1), ["loss"])).by_repetitions is None
    assert good(run(rows.with_columns(repetitions=None), ["loss"])).by_repetitions is None


def test_it_is_the_same_each_time(rows: pl.DataFrame) -> None:
    one, other, seeded = (good(run(rows, ["loss", "zlib"], seed=seed)) for seed in (1, 1, 2))
    assert one == other
    assert one != seeded


def test_nothing_tells_where_nothing_differs() -> None:
    """The mean of `combined` and `blind` over sets that differ in nothing: no part pulls it below a half."""
    found = []
    for seed in range(6):
        member = (np.random.default_rng(seed).permutation(40) < 20).tolist()
        result = good(run(table([0.0] * 40, seed=seed, label=member), ["loss", "zlib", "min_k_5"]))
        found.append([row.auroc.value for row in result.rows if row.name in ("combined", "blind")])
    assert np.abs(np.mean(found, axis=0) - 0.5).max() < 0.12


def test_a_confounded_set_is_explained_without_a_model() -> None:
    """Members are of another style; the scores follow it, and so does the blind baseline."""
    member = [place % 2 == 0 for place in range(100)]
    texts = [t.replace("\n", " ").lower() if m else t for t, m in zip(passages(100, 150), member, strict=True)]
    result = good(run(table([0.8 * m for m in member], seed=3, label=member, texts=texts), ["loss", "zlib"]))
    by_name = {row.name: row for row in result.rows}
    assert by_name["blind"].auroc.value > 0.98
    assert result.blind.explained == 1.0
    over = by_name["loss"].over_blind
    assert over is not None
    assert over.interval[1] < 0


def test_groups_are_counted_and_widen_intervals() -> None:
    rng = np.random.default_rng(5)
    member = [True] * 60 + [False] * 60
    group = [f"g{place // 6}" for place in range(120)]
    shifts = (np.array(member) + np.repeat(rng.normal(size=20), 6)).tolist()
    rows = table(shifts, seed=4, label=member, group=group)
    by_group, alone = good(run(rows, ["loss"])), good(run(rows.with_columns(group=pl.lit(None, pl.String)), ["loss"]))
    assert (by_group.groups, alone.groups) == (20, None)
    width = [row.auroc.interval[1] - row.auroc.interval[0] for row in (by_group.rows[0], alone.rows[0])]
    assert width[0] > 1.3 * width[1]
    assert by_group.rows[0].auroc.value == alone.rows[0].auroc.value


def test_separated_classes_have_wilsons_interval() -> None:
    member = [True] * 10 + [False] * 12
    rows = table([0.0] * 22, seed=6, label=member).with_columns(loss=pl.when("label").then(1.0).otherwise(2.0))
    row = good(run(rows, ["loss"])).rows[0]
    assert row.auroc.value == row.recall.value == row.f_beta.value == 1.0
    assert row.auroc.bound
    assert 0.6 < row.auroc.interval[0] < 0.8
    assert row.over_blind is not None
    assert row.over_blind.interval[1] <= 1.0


def test_constant_and_infinite_scores() -> None:
    member = [True] * 8 + [False] * 9
    rows = table([0.0] * 17, seed=7, label=member).with_columns(
        loss=pl.lit(2.0), zlib=pl.lit(0.1), best_window=pl.Series([-math.inf] * 12 + [-3.0] * 5)
    )
    result = good(run(rows, ["loss", "zlib", "best_window"]))
    by_name = {row.name: row for row in result.rows}
    assert by_name["loss"].auroc.value == by_name["combined"].auroc.value == 0.5
    assert by_name["best_window"].auroc.value == pytest.approx(0.5 - 5 / 9 / 2)
    assert result.blind.explained is None
    assert all(map(math.isfinite, numbers(plain(result))))


def test_one_score_is_not_combined() -> None:
    member = [True] * 8 + [False] * 9
    result = good(run(table([0.0] * 17, seed=8, label=member), ["loss"]))
    assert [row.name for row in result.rows] == ["loss", "blind", "random", "majority"]


@pytest.mark.parametrize(("members", "others"), [(0, 5), (5, 0), (1, 5), (5, 1), (0, 0)])
def test_too_few_texts_are_a_sentence(members: int, others: int) -> None:
    count = members + others
    said = run(table([0.0] * count, seed=0, label=[True] * members + [False] * others, texts=["some text"] * count))
    ones = [
        f"{number} {word}{'' if number == 1 else 's'}" for number, word in ((members, "member"), (others, "non-member"))
    ]
    assert said == f"An evaluation needs at least 2 members and 2 non-members; there are {ones[0]} and {ones[1]}."


def test_two_texts_a_class_are_enough() -> None:
    result = good(run(table([0.0] * 4, seed=0, label=[True, True, False, False]), ["loss", "zlib"]))
    assert result.folds == 2
    assert all(map(math.isfinite, numbers(plain(result))))


def test_too_few_groups_are_a_sentence() -> None:
    group = ["a"] * 5 + [None] * 5
    said = run(table([0.0] * 10, seed=0, label=[True] * 5 + [False] * 5, group=group))
    assert said == (
        "An evaluation needs members of at least 2 groups and non-members of 2, in parts that share no group; there "
        "are 5 members of 1 group and 5 non-members of 5 groups."
    )


def test_matching_counts_what_it_drops_and_may_leave_too_few() -> None:
    member = [True] * 30 + [False] * 30
    date = ["2015"] * 20 + ["2020"] * 10 + ["2020"] * 15 + ["2024"] * 15
    rows = table([0.0] * 60, seed=9, label=member, date=date)
    result = good(run(rows, ["loss"], match=("date",)))
    assert (result.members, result.non_members, result.unmatched) == (10, 10, 40)
    apart = rows.with_columns(date=pl.Series(["2015"] * 30 + ["2020"] * 30))
    said = run(apart, ["loss"], match=("length", "date"))
    assert isinstance(said, str)
    assert said.endswith("there are 0 members and 0 non-members after matching by length and date, which dropped 60.")


def test_no_complete_score_is_a_sentence() -> None:
    said = run(table([0.0] * 10, seed=0, label=[True] * 5 + [False] * 5), [])
    assert said == "No score has a value for every text with a label, so none was evaluated."


# --- what needs no text


@pytest.mark.parametrize(("members", "others"), [(1, 1), (3, 2), (2, 6)])
def test_random_calls_are_expected_values(members: int, others: int) -> None:
    row = by_chance(np.arange(members + others) < members)
    assert row.f_beta.value == pytest.approx(float(slow.random_f_beta(members, others)))
    assert row.precision is not None
    assert row.precision.value == members / (members + others)
    assert row.recall.value == row.auroc.value == 0.5
    assert row.tpr_1 is None


@pytest.mark.parametrize("others", [100, 199, 1000])
def test_random_order_finds_some_members_at_few_errors(others: int) -> None:
    row = by_chance(np.arange(others + 5) < 5)
    assert row.tpr_1 is not None
    assert row.tpr_1.value == float(slow.random_tpr(others, 100))
    assert (row.tpr_01 is None) == (others < 1000)


def test_the_majority_is_called() -> None:
    row = by_majority(np.array([True, True, False]))
    assert (row.recall.value, row.precision and row.precision.value) == (1.0, 2 / 3)
    assert row.f_beta.value == pytest.approx(float(slow.f_beta(2, 1, 2)))
    row = by_majority(np.array([True, False, False]))
    assert (row.recall.value, row.precision, row.f_beta.value) == (0.0, None, 0.0)
    assert by_majority(np.array([True, False])).recall.value == 1.0


def test_explained_shares() -> None:
    assert explained(0.6, 0.7) == pytest.approx(0.5)
    assert explained(0.4, 0.7) == 0.0
    assert explained(0.9, 0.7) == 1.0
    assert explained(0.9, 0.5) is None


def test_spreads_are_by_part_and_label() -> None:
    rows = table([0.0] * 6, seed=0, label=[True, True, False, False, None, None], names=["loss", "best_window"])
    rows = rows.with_columns(
        part=pl.Series(["texts"] * 5 + ["held_out"]),
        loss=pl.Series([1.0, 3.0, 2.0, 2.0, 5.0, 7.0]),
        best_window=pl.Series([-math.inf, -4.0, None, None, -1.0, -math.inf]),
    )
    found = {(one.score, one.part, one.label): one for one in spreads(rows, ["loss", "best_window"])}
    assert found["loss", "texts", True].mean == 2.0
    assert found["loss", "texts", True].quantiles == pytest.approx([1.1, 1.5, 2.0, 2.5, 2.9])
    assert found["loss", "held_out", None].texts == 1
    assert found["best_window", "texts", True].texts == 1
    assert ("best_window", "texts", False) not in found
    assert ("best_window", "held_out", None) not in found
