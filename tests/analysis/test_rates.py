"""Rates against row-by-row counting."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.rates import LeftOut, audit, log_prob_bounds, np_rates, rates, rates_by, staged_rates
from rote.errors import InputError
from rote.odds import wilson
from rote.store.files import plain
from rote.store.stages import Audit
from rote.store.summary import BorderTokens, NearTau, Passing, Rate, Rates, RepetitionRates, SplitRates
from tests.cases import all_cases, cases
from tests.reference import rates as reference
from tests.reference.odds import share_at_most

QUERIES = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]
CHANCES = [0.1, 0.5, 0.9, 0.99]
SCHEMA: dict[str, Any] = {
    "example_id": pl.String,
    "scheme": pl.String,
    "log_prob": pl.Float64,
    "greedy": pl.Boolean,
    "bounded": pl.Boolean,
    "margins": pl.List(pl.Float32),
    "repetitions": pl.Int64,
    "split": pl.String,
}
checked = cases(60)


def row(log_prob: float, **other: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {"example_id": "a", "scheme": "s", "greedy": False, "bounded": False, "margins": [1.0]}
    return {**usual, "log_prob": log_prob, "repetitions": None, "split": None, **other}


def table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA)


MARGINS = st.one_of(st.floats(-1, 1, width=32), st.sampled_from([0.25, -0.25, 0.0]))


@st.composite
def rows(draw: st.DrawFn, lowest: float = -900, stopped_below: float = -7) -> list[dict[str, Any]]:
    scored = st.one_of(
        st.floats(lowest, 0),
        st.floats(-12, 0),
        st.sampled_from([0.0, -math.inf, math.log(0.001), math.log(0.0001), math.log(0.1), math.log(0.5)]),
    )
    drawn = []
    for i in range(draw(st.integers(1, 25))):
        if draw(st.integers(0, 4)) == 0:
            bound = draw(st.one_of(st.floats(lowest, stopped_below), st.just(-math.inf)))
            drawn.append(row(bound, example_id=f"{i}", bounded=True))
        else:
            drawn.append(row(draw(scored), example_id=f"{i}", greedy=draw(st.booleans())))
    for each in drawn:
        each["margins"] = draw(st.lists(MARGINS, max_size=4))
        each["repetitions"] = draw(st.sampled_from([None, 1, 2, 30]))
    return drawn


def check(rate: Rate, counted: tuple[int, int], total: int) -> None:
    assert (rate.count, rate.rate, rate.rate_upper) == (counted[0], counted[0] / total, counted[1] / total)
    assert rate.interval == [wilson(counted[0], total)[0], wilson(counted[1], total)[1]]
    assert rate.interval[0] <= rate.rate <= rate.rate_upper <= rate.interval[1]


@checked
@given(rows())
def test_every_rate_is_the_rows_counted(drawn: list[dict[str, Any]]) -> None:
    result = rates(table(drawn), tau=0.001)
    total = len(drawn)
    greedy = sum(each["greedy"] for each in drawn)
    assert result.examples == total
    assert result.bounded == sum(each["bounded"] for each in drawn)
    check(result.greedy_rate, (greedy, greedy), total)
    check(result.rate_at_tau, reference.count(drawn, lambda x: x >= math.log(0.001)), total)
    check(result.rate_at_1e_4, reference.count(drawn, lambda x: x >= math.log(0.0001)), total)
    check(result.maximum_rate, reference.count(drawn, lambda x: x > -math.inf), total)
    assert [(cell.n, cell.p) for cell in result.np_table] == [(n, p) for n in QUERIES for p in CHANCES]
    for cell in result.np_table:
        n, p = cell.n, cell.p
        check(cell, reference.count(drawn, lambda x, n=n, p=p: reference.reaches(x, n, p)), total)  # type: ignore[misc]
    assert msgspec.convert(json.loads(json.dumps(plain(result), allow_nan=False)), Rates) == result


@cases(40)
@given(rows(lowest=-6, stopped_below=-3))
def test_passing_greedy_is_the_first_n_that_does(drawn: list[dict[str, Any]]) -> None:
    limit = 300
    result = rates(table(drawn)).n_passing_greedy
    for p in CHANCES:
        certain, possible = reference.passing(drawn, p, limit)
        passing = vars(result[f"{p:g}"])
        for name, first in (("n", certain), ("n_lower", possible)):
            assert passing[name] == first if first is not None else (passing[name] is None or passing[name] > limit)
            assert passing[f"log10_{name}"] == (None if passing[name] is None else math.log10(passing[name]))


@checked
@given(rows(), rows())
def test_what_is_stopped_only_widens(drawn: list[dict[str, Any]], true: list[dict[str, Any]]) -> None:
    """Replace the stopped rows by any rows within their bounds: every rate stays between rate and rate_upper."""
    revealed = [dict(each) for each in drawn]
    for i, each in enumerate(revealed):
        if each["bounded"]:
            each.update(bounded=False, log_prob=min(each["log_prob"], true[i % len(true)]["log_prob"]))
    known, truth = rates(table(drawn)), rates(table(revealed))
    names = ("greedy_rate", "rate_at_tau", "rate_at_1e_4", "maximum_rate")
    pairs = [(getattr(known, name), getattr(truth, name)) for name in names]
    for before, after in pairs + list(zip(known.np_table, truth.np_table, strict=True)):
        assert before.rate <= after.rate <= before.rate_upper
    assert known.rate_at_tau == truth.rate_at_tau  # bounds lie below log tau
    for p, passing in known.n_passing_greedy.items():
        exact = truth.n_passing_greedy[p].log10_n
        exact = math.inf if exact is None else exact
        lower, upper = passing.log10_n_lower, passing.log10_n
        assert (math.inf if lower is None else lower) <= exact <= (math.inf if upper is None else upper)


def test_passing_greedy_beyond_the_floats() -> None:
    scores = table([row(0.0, greedy=True), row(-800.0)])
    passing = rates(scores).n_passing_greedy["0.5"]
    assert passing.n is None
    assert passing.log10_n == pytest.approx((800 + math.log(math.log(2))) / math.log(10))
    just = rates(table([row(0.0, greedy=True), row(-690.0)])).n_passing_greedy["0.5"]
    assert just.log10_n == pytest.approx((690 + math.log(math.log(2))) / math.log(10))
    assert just.n is not None
    assert float(just.n) > 1e299


def test_numbers_of_queries_are_given_down_to_1e_300() -> None:
    border = math.log(1e-300)
    for log_prob, counted in ((border, True), (math.nextafter(border, -math.inf), False)):
        passing = rates(table([row(0.0, greedy=True), row(log_prob)])).n_passing_greedy
        for p in CHANCES:
            found = passing[f"{p:g}"]
            assert (found.n is not None) is counted
            assert found.log10_n == pytest.approx(300 + math.log10(-math.log1p(-p)), rel=1e-12)


def test_passing_greedy_never() -> None:
    never = Passing(n=None, log10_n=None, n_lower=None, log10_n_lower=None)
    assert rates(table([row(-0.1, greedy=True)])).n_passing_greedy["0.1"] == never
    assert rates(table([row(-0.1, greedy=True), row(-math.inf)])).n_passing_greedy["0.1"] == never
    perhaps = rates(table([row(-0.1, greedy=True), row(-10.0, bounded=True)])).n_passing_greedy["0.1"]
    assert perhaps.n is None
    assert perhaps.n_lower == 2321  # ceil(ln 0.9 / ln(1 - e**-10))


def test_maximum_rate_does_not_underflow() -> None:
    assert rates(table([row(-5000.0), row(-math.inf)])).maximum_rate.count == 1


def test_numerically_uncertain_rows_are_counted() -> None:
    tau = math.log(0.001)
    near = [tau, tau + 0.04, tau - 0.04]
    scores = table(
        [row(x, margins=[0.5, -0.02]) for x in near]
        + [row(tau - 0.01, bounded=True, margins=[])]
        + [row(tau + 0.06, margins=[0.3, math.inf, math.nan]), row(-math.inf, margins=[0.05])]
    )
    result = rates(scores, tau=0.001, numeric_tolerance=0.05, border_tolerance=0.05)
    assert result.near_tau == NearTau(count=4, numeric_tolerance=0.05)
    assert result.border_tokens == BorderTokens(count=3, border_tolerance=0.05)


@given(rows())
@cases(40)
def test_border_rows(drawn: list[dict[str, Any]]) -> None:
    expected = sum(any(abs(np.float32(margin)) < 0.25 for margin in each["margins"]) for each in drawn)
    assert rates(table(drawn), border_tolerance=0.25).border_tokens.count == expected


def test_what_lies_just_at_a_tolerance() -> None:
    """A log_prob that is off by the tolerance is within it; numbers that are exact in binary leave no doubt."""
    scores = table([row(-0.25), row(-0.2500001), row(0.0)])
    assert rates(scores, tau=1, numeric_tolerance=0.25).near_tau.count == 2
    assert rates(scores, tau=1, numeric_tolerance=0).near_tau.count == 1
    assert rates(scores, tau=1).rate_at_tau.count == 1


def test_tolerances_and_tau_unless_given() -> None:
    tau = math.log(0.001)
    close = [row(tau + off, margins=[off]) for off in (0.0004, 0.0009, 0.0011, 0.0019)]
    scores = table([each | {"split": "train"} for each in [*close, row(tau), row(tau - 0.6)]])
    usual = {"tau": 0.001, "numeric_tolerance": 0.001, "border_tolerance": 0.001}
    found = rates(scores)
    assert found == rates(scores, **usual)
    assert found.tau == 0.001
    assert found.near_tau == NearTau(count=3, numeric_tolerance=0.001)
    assert found.border_tokens == BorderTokens(count=2, border_tolerance=0.001)
    assert rates_by(scores, "split") == [SplitRates(**vars(found), split="train")]
    other = {"tau": 0.01, "numeric_tolerance": 0.0005, "border_tolerance": 0.002}
    groups = rates_by(scores, "split", **other)  # type: ignore[call-overload]
    assert groups == [SplitRates(**vars(rates(scores, **other)), split="train")]


@cases(40)
@given(
    rows(), st.lists(st.integers(1, 3000), max_size=3), st.lists(st.sampled_from([0.05, 0.3, 0.75, 1.0]), max_size=2)
)
def test_any_n_and_p(drawn: list[dict[str, Any]], queries: list[int], chances: list[float]) -> None:
    found = np_rates(table(drawn).drop("greedy", "margins"), queries=queries, chances=chances)
    assert [(cell.n, cell.p) for cell in found] == [(n, p) for n in queries for p in chances]
    for cell in found:
        n, p = cell.n, cell.p
        if p < 1:  # else rounding decides: 1 - 1e-17 is 1
            check(cell, reference.count(drawn, lambda x, n=n, p=p: reference.reaches(x, n, p)), len(drawn))  # type: ignore[misc]
    assert np_rates(table([]), queries=queries, chances=chances) == []


@checked
@given(rows())
def test_bounds_of_every_row(drawn: list[dict[str, Any]]) -> None:
    lower, upper = log_prob_bounds(table(drawn))
    assert upper.tolist() == [each["log_prob"] for each in drawn]
    assert lower.tolist() == [-math.inf if each["bounded"] else each["log_prob"] for each in drawn]


@checked
@given(rows())
def test_groups(drawn: list[dict[str, Any]]) -> None:
    groups = rates_by(table(drawn), "repetitions", tau=0.01)
    values = {each["repetitions"] for each in drawn}
    if values == {None}:
        assert groups == []
        return
    ordered = sorted(values - {None}) + ([None] if None in values else [])
    assert [group.repetitions for group in groups] == ordered
    for group in groups:
        alone = rates(table([each for each in drawn if each["repetitions"] == group.repetitions]), tau=0.01)
        assert group == RepetitionRates(**vars(alone), repetitions=group.repetitions)


def test_groups_by_split() -> None:
    groups = rates_by(table([row(-1.0, split="train"), row(-2.0, split="held out")]), "split")
    assert [(group.split, group.examples) for group in groups] == [("held out", 1), ("train", 1)]


@given(st.integers(1, 10**6).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_wilson_ends_are_where_the_score_test_turns(pair: tuple[int, int]) -> None:
    successes, total = pair
    z = NormalDist().inv_cdf(0.975)
    low, high = wilson(successes, total)
    assert 0 <= low <= successes / total <= high <= 1
    assert (low == 0) == (successes == 0)
    assert (high == 1) == (successes == total)
    for end in (low, high):
        assert reference.wilson_holds(successes, total, end, z) == pytest.approx(0, abs=1e-9)


def test_wilson_known_values() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.27753), abs=1e-5)
    assert wilson(10, 10) == pytest.approx((0.72247, 1.0), abs=1e-5)
    assert wilson(3, 10) == pytest.approx((0.10779, 0.60322), abs=1e-5)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(5, 10, level=0.5)[0] > wilson(5, 10)[0]
    for bad in ((-1, 3), (4, 3)):
        with pytest.raises(InputError, match="successes"):
            wilson(*bad)
    with pytest.raises(InputError, match="level"):
        wilson(1, 2, level=1.0)


def test_bad_tables_are_named() -> None:
    with pytest.raises(InputError, match="no rows"):
        rates(table([]))
    with pytest.raises(InputError, match=r"several schemes \('s', 't'\)"):
        rates(table([row(-1.0), row(-1.0, scheme="t")]))
    with pytest.raises(InputError, match="no column 'margins'"):
        rates(table([row(-1.0)]).drop("margins"))
    with pytest.raises(InputError, match="'b' has log_prob nan"):
        rates(table([row(-1.0), row(math.nan, example_id="b")]))
    with pytest.raises(InputError, match=r"'b' has log_prob 0\.5"):
        rates(table([row(-1.0), row(0.5, example_id="b")]))
    for name in ("log_prob", "bounded"):  # greedy is null where a served model's list does not tell
        with pytest.raises(InputError, match=f"'b' has no {name}"):
            rates(table([row(-1.0), {**row(-1.0, example_id="b"), name: None}]))
    for tau in (0, -0.5, 1.001, 2, math.nan):
        with pytest.raises(InputError, match=r"tau is a probability and must lie in \(0, 1\]"):
            rates(table([row(-1.0)]), tau=tau)
    for name in ("border_tolerance", "numeric_tolerance"):
        rates(table([row(-1.0)]), **{name: 0})
        for tolerance in (-1, -1e-9, math.nan):
            with pytest.raises(InputError, match=f"{name} must be at least 0"):
                rates(table([row(-1.0)]), **{name: tolerance})
    with pytest.raises(InputError, match="grouped"):
        rates_by(table([row(-1.0)]), "scheme")  # type: ignore[call-overload]


def test_the_first_bad_row_is_named_wherever_it_stands() -> None:
    fine = row(0.0, example_id="fine")
    for name in ("log_prob", "bounded"):  # greedy is null where a served model's list does not tell
        bad = [{**row(-1.0, example_id=example), name: None} for example in "bc"]
        for before in range(3):
            with pytest.raises(InputError, match=f"'b' has no {name}; score it again"):
                rates(table([fine] * before + [bad[0], fine, bad[1], fine]))
    for value, said in ((math.nan, "nan"), (0.5, "0.5"), (math.inf, "inf")):
        for before in range(3):
            with pytest.raises(InputError, match=f"'b' has log_prob {said}, which is that of no probability"):
                rates(table([fine] * before + [row(value, example_id="b"), fine, row(value, example_id="c")]))


def test_only_what_is_needed_must_be_there() -> None:
    """A table without `greedy`, and rows without margins, as other sources of scores may leave them."""
    scores = table([row(-1.0, margins=None), row(-2.0, margins=[0.0], greedy=None)])
    assert log_prob_bounds(scores.drop("greedy"))[1].tolist() == [-1.0, -2.0]
    assert log_prob_bounds(scores, "margins")[1].tolist() == [-1.0, -2.0]
    assert rates(scores.with_columns(greedy=True)).border_tokens.count == 1
    for name in ("example_id", "scheme", "log_prob", "bounded"):
        with pytest.raises(InputError, match=f"no column '{name}'"):
            log_prob_bounds(scores.drop(name))


def test_a_hundred_thousand_rows_in_well_under_a_second() -> None:
    size = 100_000
    random = np.random.default_rng(0)
    log_prob = -random.exponential(30, size)
    scores = pl.DataFrame(
        {
            "example_id": [str(i) for i in range(size)],
            "scheme": ["s"] * size,
            "log_prob": log_prob,
            "greedy": log_prob > -0.5,
            "bounded": log_prob < -60,
            "margins": pl.Series(random.normal(size=(size, 50)).astype(np.float32)).cast(pl.List(pl.Float32)),
        }
    )
    start = time.perf_counter()
    rates(scores)
    assert time.perf_counter() - start < 1


# --- a scan in stages


def check_staged(rate: Rate, expected: tuple[int, float], windows: int) -> None:
    count, most = expected
    assert (rate.count, rate.rate) == (count, count / windows)
    assert rate.rate_upper == pytest.approx(most / windows, abs=1e-9)
    assert rate.interval == [rate.rate, rate.rate_upper]
    assert 0 <= rate.rate <= rate.rate_upper <= 1


@st.composite
def audited(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[bool], int]:
    """Rows, which of them an audit drew, and how many windows there are in all: at least one was left out."""
    scored = [{**each, "bounded": False} for each in draw(rows())]
    some = st.lists(st.booleans(), min_size=len(scored), max_size=len(scored))
    drawn = draw(st.one_of(some, st.just([False] * len(scored)), st.just([True] * len(scored))))
    return scored, drawn, len(scored) + draw(st.integers(0 if any(drawn) else 1, 60))


@cases(40)
@given(audited())
def test_rates_of_a_scan_in_stages_are_its_rows_counted(case: tuple[list[dict[str, Any]], list[bool], int]) -> None:
    scored, drawn, windows = case
    left_out = LeftOut(windows - drawn.count(False), np.array(drawn))
    result = staged_rates(table(scored), left_out, tau=0.001)
    assert (result.examples, result.bounded) == (windows, 0)

    def expected(holds: Callable[[float], bool]) -> tuple[int, float]:
        return reference.staged(scored, drawn, windows, holds)

    greedy = reference.staged(
        [{**each, "log_prob": 0.0 if each["greedy"] else -1.0} for each in scored], drawn, windows, lambda x: x == 0
    )
    check_staged(result.greedy_rate, greedy, windows)
    check_staged(result.rate_at_tau, expected(lambda x: x >= math.log(0.001)), windows)
    check_staged(result.rate_at_1e_4, expected(lambda x: x >= math.log(0.0001)), windows)
    check_staged(result.maximum_rate, expected(lambda x: x > -math.inf), windows)
    for cell in result.np_table[:: 1 if all_cases() else 5]:
        check_staged(cell, expected(lambda x, n=cell.n, p=cell.p: reference.reaches(x, n, p)), windows)  # type: ignore[misc]

    seen = audit(table(scored), 0.001, left_out)
    hits = sum(each["log_prob"] >= math.log(0.001) for each, own in zip(scored, drawn, strict=True) if own)
    assert (seen.left_out, seen.drawn, seen.hits) == (left_out.windows, drawn.count(True), hits)
    share = share_at_most(hits, seen.drawn, Fraction(95, 100))
    share = min(share, Fraction(hits + seen.left_out - seen.drawn, seen.left_out))
    assert seen.bound == pytest.approx(float(share), abs=1e-9)
    found = result.rate_at_tau.count - hits
    assert result.rate_at_tau.rate_upper == (found + seen.left_out * seen.bound) / windows


@checked
@given(rows(), st.randoms())
def test_where_all_that_was_left_out_is_drawn_the_rates_are_those_of_all(
    scored: list[dict[str, Any]], rng: random.Random
) -> None:
    scored = [{**each, "bounded": False} for each in scored]
    drawn = np.array([rng.random() < 0.5 for _ in scored])
    if not drawn.any():
        drawn[-1] = True
    whole = rates(table(scored))
    staged = staged_rates(table(scored), LeftOut(int(drawn.sum()), drawn))
    assert staged.examples == whole.examples
    names = ("greedy_rate", "rate_at_tau", "rate_at_1e_4", "maximum_rate")
    pairs = [(getattr(staged, name), getattr(whole, name)) for name in names]
    for own, other in pairs + list(zip(staged.np_table, whole.np_table, strict=True)):
        assert (own.count, own.rate, own.rate_upper) == (other.count, other.rate, pytest.approx(other.rate_upper))
    hits = sum(each["log_prob"] >= math.log(0.001) for each, own in zip(scored, drawn, strict=True) if own)
    assert audit(table(scored), 0.001, LeftOut(int(drawn.sum()), drawn)).bound == hits / drawn.sum()


def test_before_an_audit_all_that_was_left_out_may_reach_tau() -> None:
    scores = table([row(0.0), row(-50.0), row(-50.0)])
    left_out = LeftOut(7, np.zeros(3, dtype=np.bool_))
    rate = staged_rates(scores, left_out).rate_at_tau
    assert rate == Rate(count=1, rate=0.1, rate_upper=0.8, interval=[0.1, 0.8])
    assert audit(scores, 0.001, left_out) == Audit(left_out=7, drawn=0, hits=0, bound=1.0)


def test_an_audit_at_tau_itself() -> None:
    """A row at tau exactly is one that reaches it, in the audit as in the rate."""
    scores = table([row(math.log(0.001)), row(math.log(0.001)), row(math.nextafter(math.log(0.001), -math.inf))])
    left_out = LeftOut(50, np.array([False, True, True]))
    assert audit(scores, 0.001, left_out).hits == 1
    rate = staged_rates(scores, left_out).rate_at_tau
    assert rate.count == 2
    assert rate.rate_upper == pytest.approx((1 + 50 * math.sqrt(0.95)) / 51)


def test_greedy_that_is_not_told_leaves_a_range() -> None:
    told = rates(table([row(-1.0, greedy=True), row(-1.0, example_id="b", greedy=None)])).greedy_rate
    assert (told.count, told.rate, told.rate_upper) == (1, 0.5, 1.0)
