"""Rates of drawn examples against slow ones, and whether their intervals hold as often as they say."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rote.analysis.groups import (
    _student,
    binned_repetitions,
    difference,
    differences,
    document_interval,
    documents_of,
    effective_examples,
    sampled_rates,
    with_origin,
)
from rote.analysis.rates import rates, rates_by
from rote.errors import InputError
from rote.store.summary import Rate, RepetitionRates, SplitRates
from tests.cases import cases
from tests.reference.rates import count, reaches
from tests.reference.sampling import ratio_variance, score_interval

Z = 1.959963984540054


def table(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """A score table with what these analyses need; each row's origin goes into its metadata."""
    frame = pl.DataFrame(
        [
            {
                "example_id": f"r{i}",
                "scheme": "temperature=1 top_k=40",
                "log_prob": row["log_prob"],
                "greedy": row.get("greedy", False),
                "bounded": row.get("bounded", False),
                "margins": [1.0],
                "repetitions": row.get("repetitions"),
                "split": row.get("split"),
                "metadata": json.dumps(
                    {"document": row["document"], "run": row["run"], "corpus": row.get("corpus", "main")}
                ),
            }
            for i, row in enumerate(rows)
        ],
        schema_overrides={"repetitions": pl.Int64, "split": pl.String, "log_prob": pl.Float64},
    )
    return with_origin(frame)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "log_prob": st.sampled_from([0.0, -0.1, -2.0, math.log(0.001), -8.0, -10.0, -50.0, -math.inf]),
            "greedy": st.booleans(),
            "bounded": st.booleans(),
            "document": st.sampled_from(["a", 'b "quoted" \\ é', "c/d.txt", "0"]),
            "run": st.sampled_from([0, 1, 2, 10]),
            "corpus": st.sampled_from(["main", "held-out"]),
        }
    ),
    min_size=1,
    max_size=40,
)


@given(ROWS)
@cases(80)
def test_rates_are_those_of_the_rows_counted_one_by_one(rows: list[dict[str, Any]]) -> None:
    frame = table(rows)
    found = sampled_rates(frame)
    plain = rates(frame)
    documents = sorted({(row["corpus"], row["document"]) for row in rows})
    assert found.documents == len(documents)
    tests = {
        "greedy_rate": None,
        "rate_at_tau": lambda log_prob: log_prob >= math.log(0.001),
        "rate_at_1e_4": lambda log_prob: log_prob >= math.log(0.0001),
        "maximum_rate": lambda log_prob: log_prob > -math.inf,
    }
    cells: list[tuple[Rate, Rate, Any]]
    cells = [(getattr(found, name), getattr(plain, name), holds) for name, holds in tests.items()]
    cells += [
        (cell, other, lambda log_prob, cell=cell: reaches(log_prob, cell.n, cell.p))
        for cell, other in zip(found.np_table, plain.np_table, strict=True)
    ][::5]
    for rate, other, holds in cells:
        assert (rate.count, rate.rate, rate.rate_upper) == (other.count, other.rate, other.rate_upper)
        by_run = []
        for run in sorted({row["run"] for row in rows}):
            own = [row for row in rows if row["run"] == run]
            hits = sum(row["greedy"] for row in own) if holds is None else count(own, holds)[0]
            by_run.append(hits / len(own))
        assert rate.by_run == pytest.approx(by_run)
        assert rate.mean == pytest.approx(mean(by_run))
        assert rate.deviation == (pytest.approx(stdev(by_run)) if len(by_run) > 1 else None)
        low, high = rate.interval
        assert 0 <= low <= rate.rate <= rate.rate_upper <= high <= 1
        by_document = [[row for row in rows if (row["corpus"], row["document"]) == name] for name in documents]
        certain = [
            [bool(row["greedy"] if holds is None else count([row], holds)[0]) for row in own] for own in by_document
        ]
        assert rate.effective == pytest.approx(effective(certain))
        assert low == pytest.approx(score_interval(rate.rate, effective(certain), Z)[0], abs=1e-9)


def effective(documents: list[list[bool]]) -> float:
    """What the docstring of rote.analysis.groups says, without a shortcut."""
    hits, total = sum(map(sum, documents)), sum(map(len, documents))
    if len(documents) == 1 or hits in (0, total):
        return len(documents)
    share = hits / total
    independent = share * (1 - share) / total
    size = total / max(float(ratio_variance(documents)) / independent, 1)
    telling = min(sum(any(d) for d in documents), sum(not all(d) for d in documents), len(documents) - 1)
    few, many = (size * (Z / _student(freedom)) ** 2 for freedom in (telling, len(documents) - 1))
    return max(few, min(many, len(documents)))


@pytest.mark.parametrize(
    ("freedom", "point"),
    [
        (1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (10, 2.2281), (31, 2.0395), (100, 1.98397),
        (101, 1.98373), (1000, 1.96234),
    ],
)  # fmt: skip
def test_points_of_students_distribution(freedom: int, point: float) -> None:
    assert _student(freedom) == pytest.approx(point, abs=6e-5)


def test_one_example_a_document_is_nearly_independent() -> None:
    hits = np.arange(1000) % 10 == 0
    low, high, size = document_interval(hits, np.arange(1000))
    assert 950 < size < 1000
    assert (low, high) == pytest.approx(score_interval(0.1, 1000, Z), abs=1e-3)


def test_documents_that_agree_within_count_once() -> None:
    document = np.repeat(np.arange(200), 10)
    assert 150 < document_interval(document % 2 == 0, document)[2] < 200


@given(
    st.lists(
        st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0, 3.0]), min_size=1, max_size=5), min_size=1, max_size=8
    )
)
@cases(200)
def test_values_that_are_no_hits_scatter_likewise(documents: list[list[float]]) -> None:
    """As those of differences between two runs: what is not 0 is a hit; where nothing is 0, only hits can be few."""
    values = [value for each in documents for value in each]
    document = np.repeat(np.arange(len(documents)), [len(each) for each in documents])
    found = effective_examples(np.array(values), document)
    count, total, average = len(documents), len(values), math.fsum(values) / len(values)
    scatter = math.fsum((value - average) ** 2 for value in values) / total
    if count == 1 or len(set(values)) == 1:
        assert found == count
        return
    squares = math.fsum(math.fsum(value - average for value in each) ** 2 for each in documents)
    variance = count / (count - 1) * squares / total**2
    size = total / max(variance / (scatter / total), 1)
    hit, missed = (sum(any((v == 0) is zero for v in each) for each in documents) for zero in (False, True))
    few = size * (Z / _student(min(hit, missed if missed else hit, count - 1))) ** 2
    many = size * (Z / _student(count - 1)) ** 2
    assert found == pytest.approx(max(few, min(many, count)), rel=1e-9)


def test_rates_of_nothing_and_everything_count_documents() -> None:
    document = np.repeat(np.arange(20), 50)
    nothing, everything = np.zeros(1000, dtype=bool), np.ones(1000, dtype=bool)
    assert document_interval(nothing, document) == pytest.approx((*score_interval(0, 20, Z), 20))
    assert document_interval(everything, document) == pytest.approx((*score_interval(1, 20, Z), 20))


def beta_binomial(
    rng: np.random.Generator, documents: int, share: float, alike: float
) -> tuple[Any, NDArray[np.int64]]:
    """Examples of documents whose own rates scatter around `share` with the intra-document correlation `alike`."""
    sizes = rng.integers(3, 11, size=documents)
    own = rng.beta(share * (1 / alike - 1), (1 - share) * (1 / alike - 1), size=documents) if alike else share
    document = np.repeat(np.arange(documents), sizes)
    return rng.random(document.size) < np.broadcast_to(own, (documents,))[document], document


@pytest.mark.parametrize("documents", [10, 60, 300])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("alike", [0.0, 0.1, 0.6])
def test_the_interval_holds_as_often_as_it_says(documents: int, share: float, alike: float) -> None:
    """In 500 simulated samples: 95% of 500 is 475, and chance alone leaves fewer than 457 once in 4,000 times.

    One that covers far too often would be no use either: it would be too wide.
    """
    rng = np.random.default_rng(20)
    held = 0
    for _ in range(500):
        low, high, _ = document_interval(*beta_binomial(rng, documents, share, alike))
        held += low <= share <= high
    assert held >= 457
    if documents * share >= 20:
        assert held <= 493


def test_plain_intervals_would_not_hold() -> None:
    """What these intervals are for: taken as independent, examples that are alike give intervals much too narrow."""
    rng = np.random.default_rng(21)
    held = 0
    for _ in range(200):
        hits, _ = beta_binomial(rng, 60, 0.3, 0.6)
        low, high = score_interval(hits.mean(), hits.size, Z)
        held += low <= 0.3 <= high
    assert held < 160


# --- groups and differences


def test_groups_are_rates_of_their_rows() -> None:
    rows = [
        {"log_prob": -float(i % 9), "document": f"d{i % 5}", "run": i % 3, "repetitions": [None, 1, 2, 4][i % 4]}
        for i in range(60)
    ]
    frame = table(rows)
    found = rates_by(frame, "repetitions", of=sampled_rates)
    assert [group.repetitions for group in found] == [1, 2, 4, None]
    for group in found:
        own = frame.filter(pl.col("repetitions").eq_missing(group.repetitions))
        assert group == RepetitionRates(**vars(sampled_rates(own)), repetitions=group.repetitions)
    assert rates_by(frame, "split", of=sampled_rates) == []


def test_tau_and_tolerances_unless_given_and_as_given() -> None:
    tau = math.log(0.001)
    frame = table([{"log_prob": tau + 0.0015 * i, "document": f"d{i}", "run": i} for i in range(-2, 3)])
    frame = frame.with_columns(margins=pl.Series([[0.0007], [0.0015], [0.003], [1.0], [0.0002]]))
    usual = {"tau": 0.001, "numeric_tolerance": 0.001, "border_tolerance": 0.001}
    other = {"tau": 0.00101, "numeric_tolerance": 0.002, "border_tolerance": 0.0005}
    assert sampled_rates(frame) == sampled_rates(frame, **usual)
    for options in (usual, other):
        found, plain = sampled_rates(frame, **options), rates(frame, **options)
        for name in ("examples", "bounded", "tau", "near_tau", "border_tokens", "n_passing_greedy"):
            assert getattr(found, name) == getattr(plain, name)
        assert found.rate_at_tau.count == plain.rate_at_tau.count


def repeated(values: Sequence[int | None]) -> pl.DataFrame:
    return pl.DataFrame({"repetitions": pl.Series(values, dtype=pl.Int64), "row": range(len(values))})


def test_many_counts_of_repetitions_are_put_together_by_powers_of_two() -> None:
    few = repeated([*range(12), 3, 3])
    found, binned = binned_repetitions(few)
    assert (binned, found.rows()) == (False, few.rows())
    many = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 1023, 1024, None]
    found, binned = binned_repetitions(repeated(many))
    assert binned
    assert found["repetitions"].to_list() == [0, 1, 2, 2, 4, 4, 4, 4, 8, 8, 8, 16, 512, 1024, None]
    assert found["row"].to_list() == list(range(len(many)))
    assert binned_repetitions(repeated(range(13)))[1]


def test_documents_are_numbered_by_corpus_and_name() -> None:
    places = [("main", "b"), ("main", "a"), ("held-out", "b"), ("main", "b"), ("held-out", "b")]
    frame = table([{"log_prob": -1.0, "document": d, "run": i, "corpus": c} for i, (c, d) in enumerate(places)])
    numbers = documents_of(frame).tolist()
    assert sorted(set(numbers)) == [0, 1, 2]
    assert [numbers[i] == numbers[j] for i, j in ((0, 3), (2, 4), (0, 1), (0, 2), (1, 2))] == [True, True] + [False] * 3


def split_rates(names: Sequence[str]) -> list[SplitRates]:
    rows = [
        {"log_prob": -float(i % (3 * j + 4)), "document": f"{name}{i % 20}", "run": i % 3, "split": name}
        for j, name in enumerate(names)
        for i in range(100)
    ]
    return rates_by(table(rows), "split", of=sampled_rates)


@pytest.mark.parametrize(
    ("splits", "pairs"),
    [
        (["train", "held-out"], [("train", "held-out")]),
        (["a", "b", "held-out"], [("a", "held-out"), ("b", "held-out")]),
        (["train", "test"], [("train", "test")]),
        (["train", "test", "validation"], []),
        (["a", "b"], []),
        (["train"], []),
        (["held-out"], []),
    ],
)
def test_the_control_is_the_held_out_split_or_the_only_other(splits: list[str], pairs: list[tuple[str, str]]) -> None:
    groups = split_rates(splits)
    found = differences(groups)
    assert [(entry.split, entry.control) for entry in found] == pairs
    by_name = {group.split: group for group in groups}
    for entry in found:
        own, control = by_name[entry.split], by_name[entry.control]
        names = ("greedy_rate", "rate_at_tau", "rate_at_1e_4", "maximum_rate")
        assert entry.named == {name: difference(getattr(own, name), getattr(control, name)) for name in names}
        assert [(c.n, c.p) for c in entry.np_table] == [(c.n, c.p) for c in own.np_table]
        assert entry.np_table[3].difference == own.np_table[3].rate - control.np_table[3].rate


def test_rows_without_a_split_are_compared_with_nothing() -> None:
    groups = split_rates(["train", "test"])
    unknown = [replace(groups[0], split=None)]
    assert differences([*groups, *unknown]) == differences(groups) != []
    assert differences([*groups[:1], *unknown]) == []


def whole(successes: int, total: int) -> Rate:
    share = successes / total
    return Rate(count=successes, rate=share, rate_upper=share, interval=list(score_interval(share, total, Z)))


@pytest.mark.parametrize(
    ("one", "other", "low", "high"),
    [  # method 10 of Newcombe's 1998 comparison of eleven methods, his table II
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((10, 10), (0, 10), 0.6075, 1.0000),
    ],
)
def test_differences_have_newcombes_interval(
    one: tuple[int, int], other: tuple[int, int], low: float, high: float
) -> None:
    found = difference(whole(*one), whole(*other))
    assert found.interval == pytest.approx([low, high], abs=6e-5)
    assert found.difference == found.difference_upper == one[0] / one[1] - other[0] / other[1]
    turned = difference(whole(*other), whole(*one))
    assert turned.interval == pytest.approx([-high, -low], abs=6e-5)
    assert turned.difference == -found.difference


def test_what_stopped_rows_leave_open_widens_a_difference() -> None:
    sure, control = whole(30, 100), whole(10, 100)
    doubt = replace(sure, rate_upper=0.5, interval=[sure.interval[0], 0.6])
    found = difference(doubt, control)
    assert (found.difference, found.difference_upper) == pytest.approx((0.2, 0.4))
    plain = difference(sure, control)
    assert found.interval[0] == plain.interval[0]
    assert found.interval[1] > plain.interval[1]
    turned = difference(control, doubt)
    assert (turned.difference, turned.difference_upper) == pytest.approx((-0.4, -0.2))


def test_the_interval_of_a_difference_holds_as_often_as_it_says() -> None:
    rng = np.random.default_rng(22)
    held = 0
    for _ in range(400):
        sides = []
        for truth, documents in ((0.3, 60), (0.1, 40)):
            hits, document = beta_binomial(rng, documents, truth, 0.3)
            low, high, _ = document_interval(hits, document)
            share = float(hits.mean())
            sides.append(Rate(count=int(hits.sum()), rate=share, rate_upper=share, interval=[low, high]))
        low, high = difference(*sides).interval
        held += low <= 0.2 <= high
    assert 365 <= held <= 396


def test_rows_that_were_not_drawn_are_refused() -> None:
    frame = table([{"log_prob": -1.0, "document": "a", "run": 0}])
    with pytest.raises(InputError, match="'r0' has no document in its metadata"):
        with_origin(frame.with_columns(metadata=pl.lit('{"run": 1, "corpus": "main"}')))
    said = ['{"run": 1, "corpus": "main", "document": "a"}', '{"corpus": "main", "document": "a"}']
    three = table([{"log_prob": -1.0, "document": "a", "run": 0}] * 3)
    for order, first in (([0, 1, 1], "r1"), ([1, 0, 1], "r0"), ([0, 0, 1], "r2")):
        with pytest.raises(InputError, match=f"'{first}' has no (run|corpus|document) in its metadata"):
            with_origin(three.with_columns(metadata=pl.Series([said[i] for i in order])))
    with pytest.raises(InputError, match="no column 'metadata'"):
        with_origin(frame.drop("metadata"))
