"""Comparisons against a slow reference; the interval's coverage by complete enumeration."""

from __future__ import annotations

import math
from statistics import NormalDist, median
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rote.analysis.compare import (
    LEAST,
    OPEN,
    changes,
    common,
    difference_interval,
    differences,
    extractable,
    fixed_sets,
    near_comparison,
    paired,
)
from rote.errors import InputError
from tests.cases import cases
from tests.reference import compare as slow

Z = NormalDist().inv_cdf(0.975)
TAU = 0.001
LOG_TAU = math.log(TAU)


def table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    full = [
        {"scheme": "s", "start": 10 * i, "suffix_start": 10 * i + 5, "suffix_end": 10 * i + 15, "greedy": False, **row}
        for i, row in enumerate(rows)
    ]
    return pl.DataFrame(full, schema_overrides={"log_prob": pl.Float64})


log_probs = st.one_of(st.floats(-12, 0), st.sampled_from([-math.inf, LOG_TAU, 0.0, -800.0]))
stopped_bounds = st.floats(-60, LOG_TAU - 1e-9)


@st.composite
def score_rows(draw: st.DrawFn, count: int) -> list[dict[str, Any]]:
    rows = []
    for i in range(count):
        stopped = draw(st.booleans()) and draw(st.booleans())
        log_prob = draw(stopped_bounds if stopped else log_probs)
        rows.append({"example_id": f"e{i}", "log_prob": log_prob, "bounded": stopped})
    return rows


@st.composite
def several_runs(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    count = draw(st.integers(1, 12))
    return {name: draw(score_rows(count)) for name in "ABC"[: draw(st.integers(2, 3))]}


@cases(150)
@given(several_runs())
def test_pairs_are_those_of_the_reference(runs: dict[str, list[dict[str, Any]]]) -> None:
    tables = {name: table(rows) for name, rows in runs.items()}
    for name in list(runs)[1:]:
        found = paired(tables["A"], tables[name], tau=TAU)
        expected = slow.cells(runs["A"], runs[name], TAU)
        assert {key: getattr(found, key) for key in expected} == expected
        assert found.examples == len(runs["A"])
        assert found.interval == pytest.approx(slow.newcombe(**expected, z=Z), abs=1e-9)
        assert found.interval[0] <= found.difference <= found.interval[1]
        moved = slow.moved(runs["A"], runs[name])
        log_prob = found.log_prob
        assert {key: getattr(log_prob, key) for key in moved} == {k: len(v) for k, v in moved.items()}
        if moved["known"]:
            assert log_prob.median_difference == pytest.approx(median(moved["known"]))
            assert log_prob.mean_difference == pytest.approx(sum(moved["known"]) / len(moved["known"]))
        else:
            assert log_prob.median_difference is None
            assert log_prob.mean_difference is None


@cases(100)
@given(several_runs())
def test_fixed_sets_are_those_of_the_reference(runs: dict[str, list[dict[str, Any]]]) -> None:
    sets = fixed_sets({name: table(rows) for name, rows in runs.items()}, tau=TAU)
    assert [entry.reference for entry in sets] == [*runs, None]
    for entry in sets:
        must = [entry.reference] if entry.reference else list(runs)
        chosen = [row for i, row in enumerate(runs["A"]) if all(slow.reaches(runs[name][i], TAU) for name in must)]
        assert entry.examples == len(chosen)
        for name, rows in runs.items():
            own = entry.runs[name]
            if not chosen:
                assert own.extractable.rate is own.mean_p_z is own.mean_p_z_upper is None
                continue
            count, low, high = slow.of_set(chosen, rows, TAU)
            assert own.extractable.count == count
            assert own.extractable.rate == pytest.approx(count / len(chosen))
            assert own.mean_p_z == pytest.approx(low)
            assert own.mean_p_z_upper == pytest.approx(high)


@cases(100)
@given(several_runs(), st.integers(0, 13), st.booleans(), st.sampled_from(["gain", "loss"]))
def test_changes_are_certain_and_ordered(
    runs: dict[str, list[dict[str, Any]]], count: int, apart: bool, kind: Any
) -> None:
    first, second = runs["A"], runs["B"]
    found = changes(table(first), table(second), tau=TAU, kind=kind, count=count, apart=apart)
    lesser, greater = (first, second) if kind == "gain" else (second, first)
    expected = {}
    for i, (low, high) in enumerate(zip(lesser, greater, strict=True)):
        if slow.reaches(high, TAU):
            change = math.inf if low["log_prob"] == -math.inf else high["log_prob"] - low["log_prob"]
            if change >= LEAST:
                expected[i] = (not slow.reaches(low, TAU), change)
    order = sorted(expected, key=lambda i: (not expected[i][0], -expected[i][1], -greater[i]["log_prob"], i))
    # With or without `apart`: the suffixes of `table` touch but do not overlap.
    assert [entry.row for entry in found] == order[:count]
    for entry in found:
        assert (entry.crossed, entry.least_change) == pytest.approx(expected[entry.row])
        assert entry.exact == (not lesser[entry.row]["bounded"])


def test_changes_apart_leave_out_what_overlaps() -> None:
    first = [{"example_id": f"e{i}", "log_prob": -9.0 - i, "bounded": False} for i in range(3)]
    second = [{"example_id": f"e{i}", "log_prob": -0.1, "bounded": False} for i in range(3)]
    places = pl.Series([0, 5, 10]), pl.Series([10, 15, 20])
    one, two = (
        table(rows).with_columns(places[0].alias("suffix_start"), places[1].alias("suffix_end"))
        for rows in (first, second)
    )
    found = changes(one, two, tau=TAU, kind="gain", count=9, apart=True)
    assert [entry.row for entry in found] == [2, 0]
    assert len(changes(one, two, tau=TAU, kind="gain", count=9, apart=False)) == 3


def test_differences_say_what_is_not_known() -> None:
    first = table(
        [
            {"example_id": "known", "log_prob": -8.0, "bounded": False},
            {"example_id": "zero", "log_prob": -math.inf, "bounded": False},
            {"example_id": "gone", "log_prob": -0.5, "bounded": False},
            {"example_id": "given up", "log_prob": -20.0, "bounded": True},
        ]
    )
    second = table(
        [
            {"example_id": "known", "log_prob": -2.0, "bounded": False},
            {"example_id": "zero", "log_prob": -math.inf, "bounded": False},
            {"example_id": "gone", "log_prob": -math.inf, "bounded": False},
            {"example_id": "given up", "log_prob": -1.0, "bounded": False},
        ]
    )
    found = differences({"A": first, "B": second}, tau=TAU)
    assert found["difference_B"].to_list() == [6.0, None, -math.inf, None]
    assert found["change_B"].to_list() == ["gained", "neither", "lost", "gained"]
    assert found["extractable_A"].to_list() == [False, False, True, False]
    assert "lower_A" not in found.columns


def test_differences_say_nothing_of_what_a_list_leaves_open() -> None:
    rows = [{"example_id": f"e{i}", "log_prob": -1.0, "bounded": i == 1} for i in range(3)]
    first = table([{**row, "bounded": False} for row in rows]).with_columns(pl.lit(False).alias(OPEN))
    found = differences({"A": first, "B": table(rows).with_columns(pl.col("bounded").alias(OPEN))}, tau=TAU)
    assert found["extractable_A"].to_list() == [True, True, True]
    assert found["extractable_B"].to_list() == [True, None, True]
    assert found["change_B"].to_list() == ["both", None, "both"]
    assert found["difference_B"].to_list() == [0.0, None, 0.0]


def test_differences_say_where_another_tokenizer_cuts() -> None:
    rows = [{"example_id": f"e{i}", "log_prob": -1.0, "bounded": False} for i in range(2)]
    first, same = table(rows), table(rows)
    other = first.with_columns(suffix_start=pl.Series([6, 16]), suffix_end=pl.Series([14, 25]))
    found = differences({"A": first, "B": same, "C": other}, tau=TAU)
    assert [name for name in found.columns if name.startswith("suffix_")] == [
        "suffix_start", "suffix_end", "suffix_start_C", "suffix_end_C",
    ]  # fmt: skip
    assert found["suffix_start_C"].to_list() == [6, 16]
    assert found["suffix_end_C"].to_list() == [14, 25]


def test_common_keeps_what_all_have_in_the_first_order() -> None:
    rows = [{"example_id": name, "log_prob": -1.0, "bounded": False} for name in "badc"]
    aligned, left_out = common({"A": table(rows), "B": table(rows[::-1]), "C": table(rows[:3])})
    assert [own["example_id"].to_list() for own in aligned.values()] == [["b", "a", "d"]] * 3
    assert left_out == {"A": 1, "B": 1, "C": 0}
    with pytest.raises(InputError, match="no example in common"):
        common({"A": table(rows[:1]), "B": table(rows[1:])})
    with pytest.raises(InputError, match="'b' stands more than once in the table of 'B'"):
        common({"A": table(rows), "B": table(rows + rows[:1])})


def test_a_tau_below_what_was_given_up_cannot_be_decided() -> None:
    rows = table([{"example_id": "a", "log_prob": LOG_TAU - 0.1, "bounded": True}])
    assert extractable(rows, TAU).tolist() == [False]
    with pytest.raises(InputError, match=r"whether 1 of 1 rows reach 0\.0001 is not known"):
        extractable(rows, 0.0001)
    with pytest.raises(InputError, match="tau is a probability"):
        extractable(rows, 0)


def test_unaligned_tables_are_refused() -> None:
    rows = [{"example_id": name, "log_prob": -1.0, "bounded": False} for name in "ab"]
    with pytest.raises(InputError, match="same examples in the same order"):
        paired(table(rows), table(rows[::-1]), tau=TAU)


# --- the interval


def exact_coverage(n: int, shares: tuple[float, float, float, float]) -> float:
    truth = shares[1] - shares[2]
    covered = 0.0
    for both, gained, lost, neither in slow.tables(n):
        low, high = difference_interval(both=both, gained=gained, lost=lost, neither=neither)
        if low <= truth <= high:
            covered += slow.chance((both, gained, lost, neither), shares)
    return covered


SHARES = [
    (0.45, 0.05, 0.05, 0.45),
    (0.4, 0.2, 0.1, 0.3),
    (0.1, 0.3, 0.1, 0.5),
    (0.8, 0.1, 0.05, 0.05),
    (0.02, 0.03, 0.05, 0.9),
    (0.25, 0.25, 0.25, 0.25),
    (0.3, 0.0, 0.0, 0.7),
    (0.6, 0.3, 0.0, 0.1),
]


@pytest.mark.parametrize("shares", SHARES)
def test_the_interval_covers_the_truth_as_often_as_it_says(shares: tuple[float, float, float, float]) -> None:
    """Not by simulation: over every possible table of 24 pairs, weighted with its exact probability."""
    assert exact_coverage(24, shares) > 0.93


def test_the_interval_is_not_far_too_wide() -> None:
    covered = [exact_coverage(16, shares) for shares in SHARES[:6]]
    assert 0.945 < sum(covered) / len(covered) < 0.985


@given(*[st.integers(0, 300)] * 4)
def test_the_interval_is_that_of_the_definition(both: int, gained: int, lost: int, neither: int) -> None:
    if not both + gained + lost + neither:
        with pytest.raises(InputError, match="not all 0"):
            difference_interval(both=0, gained=0, lost=0, neither=0)
        return
    low, high = difference_interval(both=both, gained=gained, lost=lost, neither=neither)
    assert (low, high) == pytest.approx(slow.newcombe(both, gained, lost, neither, Z), abs=1e-8)
    assert -1 <= low < high <= 1
    turned = difference_interval(both=both, gained=lost, lost=gained, neither=neither)
    assert turned == pytest.approx((-high, -low), abs=1e-12)


def test_the_interval_has_a_width_where_nothing_changed() -> None:
    low, high = difference_interval(both=100, gained=0, lost=0, neither=0)
    assert low < -0.01
    assert high > 0.01


# --- near-verbatim bounds


def drawn_pairs(
    rng: np.random.Generator, documents: int, gain: float, loss: float, alike: float
) -> tuple[dict[str, pl.DataFrame], NDArray[np.int64], float]:
    """Two runs over documents that each have their own chance of gains and losses around `gain` and `loss`."""
    document = np.repeat(np.arange(documents), rng.integers(3, 11, size=documents))
    kept = np.array([1 - gain - loss, gain, loss]) * (1 / alike - 1)
    own = rng.dirichlet(kept, size=documents)[document]
    change = (rng.random(document.size)[:, None] > np.cumsum(own, 1)[:, :2]).sum(1)  # 0 stays, 1 gained, 2 lost
    before = np.where(change == 0, rng.random(document.size) < 0.5, change == 2)
    after = np.where(change == 0, before, change == 1)
    runs = {
        name: table(
            [
                {"example_id": str(i), "log_prob": 0.0 if hit else -math.inf, "bounded": False}
                for i, hit in enumerate(hits)
            ]
        )
        for name, hits in (("one", before), ("two", after))
    }
    return runs, document, gain - loss


@pytest.mark.parametrize(("gain", "loss"), [(0.1, 0.1), (0.3, 0.05), (0.05, 0.0001)])
def test_the_interval_holds_for_documents_that_give_several_examples(gain: float, loss: float) -> None:
    """In 300 simulated samples: 95% of 300 is 285, and chance alone leaves fewer than 271 once in 4,000 times."""
    rng = np.random.default_rng(3)
    held = plain = 0
    for _ in range(300):
        runs, document, truth = drawn_pairs(rng, 40, gain, loss, 0.3)
        found = paired(runs["one"], runs["two"], tau=0.5, document=document)
        alone = paired(runs["one"], runs["two"], tau=0.5)
        assert found.effective <= alone.effective == len(document)
        held += found.interval[0] <= truth <= found.interval[1]
        plain += alone.interval[0] <= truth <= alone.interval[1]
    assert held >= 271
    assert plain < held


def test_documents_whose_rows_are_all_left_open_are_worth_nothing() -> None:
    """Nine rows of nine documents that a server's list leaves open, and two of a tenth that it does not."""
    rows = [{"example_id": f"e{i}", "log_prob": -0.1, "bounded": i < 9} for i in range(11)]
    first = table(rows).with_columns(pl.col("bounded").alias(OPEN))
    found = paired(first, first, tau=TAU, document=np.array([*range(9), 9, 9]))
    assert (found.examples, found.undecided, found.both) == (2, 9, 2)
    assert found.effective == 1
    alone = paired(first[9:], first[9:], tau=TAU, document=np.array([0, 0]))
    assert (found.effective, found.interval) == (alone.effective, alone.interval)


@cases(100)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from("ABn")), min_size=2, max_size=12))
def test_the_difference_may_be_whatever_the_rows_that_are_left_open_make_it(
    given_rows: list[tuple[bool, bool, str]],
) -> None:
    """Each of both runs' reached or not, and of which of them it is left open: every way to fill that in."""
    tables, ways = {}, {}
    for place, name in enumerate("AB"):
        rows = [
            {"example_id": f"e{i}", "log_prob": -0.1 if row[place] or row[2] == name else -20.0,
             "bounded": row[2] == name}
            for i, row in enumerate(given_rows)
        ]  # fmt: skip
        tables[name] = table(rows).with_columns(pl.col("bounded").alias(OPEN))
        left_open = sum(row[2] == name for row in given_rows)
        reached = sum(bool(row[place]) and row[2] != name for row in given_rows)
        ways[name] = [reached + more for more in range(left_open + 1)]
    if all(row[2] != "n" for row in given_rows):
        with pytest.raises(InputError, match="there is nothing to compare"):
            paired(tables["A"], tables["B"], tau=TAU)
        return
    found = paired(tables["A"], tables["B"], tau=TAU)
    differences = {(two - one) / len(given_rows) for one in ways["A"] for two in ways["B"]}
    if not found.undecided:
        assert found.possible_difference is None
        assert differences == {found.difference}
        return
    assert found.possible_difference == pytest.approx([min(differences), max(differences)])


def near(rows: list[tuple[float, float, float]], scheme: str = "s") -> pl.DataFrame:
    return table(
        [
            {
                "example_id": f"e{i}", "log_prob": math.log(p) if p else -math.inf, "bounded": False, "lower": low,
                "upper": high, "lower_by_tolerance": [p, low], "upper_by_tolerance": [p, high],
            }
            for i, (p, low, high) in enumerate(rows)
        ]
    ).with_columns(scheme=pl.lit(scheme))  # fmt: skip


def test_near_runs_are_compared_with_those_that_count_the_same() -> None:
    tables = {
        "A": near([(0.0, 0.2, 0.3), (0.5, 0.6, 0.7), (0.0, 0.0, 1.0)]),
        "B": near([(0.4, 0.5, 0.6), (0.6, 0.7, 0.8), (0.0, 0.0, 1.0)]),
        "C": near([(0.0, 0.2, 0.3), (0.5, 0.6, 0.7), (0.0, 0.0, 1.0)]),
        "D": near([(0.0, 0.2, 0.3), (0.5, 0.6, 0.7), (0.0, 0.0, 1.0)], scheme="other"),
    }
    searches = {"A": ("levenshtein", 1), "B": ("levenshtein", 1), "C": ("hamming", 1), "D": ("levenshtein", 1)}
    weights = {"A": "small", "B": "large", "C": "small", "D": "large"}
    found = near_comparison(tables, searches=searches, weights=weights, tau=TAU)
    assert found.alone == ["C", "D"]
    (group,) = found.fixed
    assert [model.model for model in group.models] == ["A", "B"]
    assert group.fixed_examples == 2
    elsewhere = {(entry.run, entry.other): entry for entry in found.verbatim_elsewhere}
    assert set(elsewhere) == {("A", "B"), ("B", "A"), ("B", "C"), ("C", "B")}
    assert elsewhere["A", "B"].unlocked == elsewhere["A", "B"].count == 1
    assert elsewhere["A", "B"].example_ids == ["e0"]
    assert elsewhere["B", "A"].unlocked == 0
