"""Near-verbatim analyses of one run, against row-by-row counting."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.near.rates import (
    mass_gain,
    near_rates,
    near_summary,
    prompt_rates,
    prompts_needed,
    recovery,
    scatter,
    shells,
    top_candidates,
    unlocked,
)
from rote.errors import InputError
from rote.odds import wilson
from rote.store.files import plain
from rote.store.summary import NearSummary, Recovered, SearchCost, Share, Shell
from tests.analysis.near.tables import SCHEMA, TAU, row, rows, table
from tests.cases import cases
from tests.reference import nearverbatim as reference

Rows = list[dict[str, Any]]
checked = cases(60)
ROUNDING = 1e-12
QUERIES = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]
QUANTILES = ["0.05", "0.25", "0.5", "0.75", "0.95"]
EVERY = (near_rates, unlocked, scatter, mass_gain, shells, recovery, near_summary)


def check(share: Share, count: int, count_upper: int, total: int) -> None:
    assert share.count == count
    assert share.rate == (count / total if total else None)
    assert share.rate_upper == (count_upper / total if total else None)
    assert share.interval == [wilson(count, total)[0], wilson(count_upper, total)[1]]


@checked
@given(rows())
def test_rates_are_the_rows_counted(drawn: Rows) -> None:
    found = near_rates(table(drawn), tau=TAU)
    assert [each.tolerance for each in found] == list(range(len(drawn[0]["lower_by_tolerance"])))
    known = sum(each["greedy_distance"] is not None for each in drawn)
    for each in found:
        certain, undecided, greedy = reference.counts(drawn, each.tolerance, TAU)
        check(each.probabilistic, certain, certain + undecided, len(drawn))
        assert each.undecided == undecided
        check(each.greedy, greedy, greedy, known)
        assert each.greedy_missing == len(drawn) - known
    assert [each.probabilistic.count for each in found] == sorted(each.probabilistic.count for each in found)


@checked
@given(rows())
def test_unlocked_examples(drawn: Rows) -> None:
    found = unlocked(table(drawn), tau=TAU)
    expected = [each for each in drawn if reference.unlocked(each, TAU)]
    expected.sort(key=lambda each: -each["lower"])
    assert found["example_id"].to_list() == [each["example_id"] for each in expected]
    kinds = ["zero" if each["log_prob"] == -math.inf else "sub-threshold" for each in expected]
    assert found["verbatim"].to_list() == kinds
    assert found["lower"].to_list() == [each["lower"] for each in expected]
    assert found["p_z"].to_list() == pytest.approx([reference.p_z(each) for each in expected], rel=1e-14)


def test_underflow_is_not_zero_mass() -> None:
    found = unlocked(table([row("a", -800.0, [0.0, 0.5]), row("b", -math.inf, [0.0, 0.4])]))
    assert found.select("example_id", "verbatim", "p_z").rows() == [("a", "sub-threshold", 0.0), ("b", "zero", 0.0)]


@checked
@given(rows())
def test_scatter_has_every_example_at_every_tolerance(drawn: Rows) -> None:
    found = scatter(table(drawn), tau=TAU)
    expected = [
        (each["example_id"], tolerance, each["lower_by_tolerance"][tolerance], reference.unlocked(each, TAU, tolerance))
        for tolerance in range(len(drawn[0]["lower_by_tolerance"]))
        for each in drawn
    ]
    assert found.select("example_id", "tolerance", "lower", "unlocked").rows() == expected
    width = len(drawn[0]["lower_by_tolerance"])
    assert found["log_prob"].to_list() == [each["log_prob"] for each in drawn] * width
    assert found["p_z"].to_list() == pytest.approx([reference.p_z(each) for each in drawn] * width, rel=1e-14)


@checked
@given(rows())
def test_gain_and_its_ccdf(drawn: Rows) -> None:
    result = mass_gain(table(drawn), tau=TAU)
    assert result.estimate is True
    gains = [reference.gain(each) for each in drawn]
    extracted = [reference.gain(each) for each in drawn if each["lower"] >= TAU]
    assert result.examples["gain_estimate"].to_list() == pytest.approx(gains, abs=1e-15)
    assert result.clamped == pytest.approx(sum(reference.p_z(each) > each["lower"] for each in drawn), abs=1)
    largest = max(0.0, *(reference.p_z(each) - each["lower"] for each in drawn))
    assert result.largest_clamped == pytest.approx(largest, abs=1e-14)
    assert list(result.population.quantiles) == list(result.extractable.quantiles) == QUANTILES
    for numbers, values in ((result.population, gains), (result.extractable, extracted)):
        assert numbers.examples == len(values)
        if not values:
            assert {numbers.mean, *numbers.quantiles.values(), *numbers.at_least.values()} == {None}
            continue
        assert numbers.mean == pytest.approx(reference.average(values), abs=1e-14)
        for q, value in numbers.quantiles.items():
            assert value == pytest.approx(reference.quantile(values, float(q)), abs=1e-14)
    every = result.examples["gain_estimate"].to_list()
    measured = result.examples.filter("extractable")["gain_estimate"].to_list()
    for curve, values in ((result.ccdf, every), (result.ccdf_extractable, measured)):
        assert curve["gain"].to_list() == sorted(set(values))
        assert curve["share_above"].to_list() == [reference.share_above(values, at) for at in curve["gain"]]


def test_gain_by_hand() -> None:
    half = math.log(0.5)
    result = mass_gain(
        table([row("a", half, [0.5, 0.75]), row("b", half, [0.25, 0.25]), row("c", -math.inf, [0.0, 0.0005])])
    )
    assert result.examples.rows() == [("a", True, 0.25), ("b", True, 0.0), ("c", False, 0.0005)]
    assert (result.clamped, result.largest_clamped) == (1, 0.25)
    assert result.population.at_least == {"0.001": 1 / 3, "0.01": 1 / 3, "0.1": 1 / 3}
    assert result.extractable.at_least == {"0.001": 0.5, "0.01": 0.5, "0.1": 0.5}
    assert result.ccdf.rows() == [(0.0, 1.0), (0.0005, 2 / 3), (0.25, 1 / 3)]
    # A gain of just the size that is asked for counts, and one of nothing is not clamped.
    gains = [0.0005, 0.001, 0.0015, 0.007, 0.01, 0.015, 0.07, 0.1, 0.15, 0.25]
    result = mass_gain(table([row(str(gain), -math.inf, [0.0, gain]) for gain in gains] + [row("a", half, [0.5, 0.5])]))
    assert result.population.at_least == {"0.001": 9 / 11, "0.01": 6 / 11, "0.1": 3 / 11}
    assert (result.clamped, result.largest_clamped) == (0, 0.0)


@checked
@given(rows())
def test_shells(drawn: Rows) -> None:
    result = shells(table(drawn), tau=TAU)
    assert result.estimate is True
    expected = {each["example_id"]: reference.shells(each) for each in drawn}
    for name, extractable, mass, share in result.examples.rows():
        assert mass == pytest.approx(expected[name], abs=1e-15)
        assert min(mass) >= 0
        assert (share is None) == (sum(mass) == 0)
        assert share is None or sum(share) == pytest.approx(1)
        assert extractable == (drawn[int(name)]["lower"] >= TAU)
    extracted = [each for each in drawn if each["lower"] >= TAU]
    for group, spread, chosen in (
        (result.population, result.verbatim_share.population, drawn),
        (result.extractable, result.verbatim_share.extractable, extracted),
    ):
        masses = [reference.shells(each) for each in chosen]
        shares = [[part / sum(each) for part in each] for each in masses if sum(each) > 1e-290]
        if len(shares) < len([each for each in masses if sum(each) > 0]):
            continue  # quotients of the very smallest floats are not worth comparing
        for e, numbers in enumerate(group):
            assert numbers.tolerance == e
            assert numbers.mean_mass == pytest.approx(reference.average([each[e] for each in masses]), abs=1e-14)
            assert numbers.mean_share == pytest.approx(reference.average([each[e] for each in shares]), abs=1e-12)
            if shares:
                middle = reference.quantile([each[e] for each in shares], 0.5)
                assert numbers.median_share == pytest.approx(middle, abs=1e-12)
        assert spread.examples == len(shares)
        verbatim = reference.average([each[0] for each in shares])
        assert spread.mean == pytest.approx(verbatim, abs=1e-12)
        assert list(spread.quantiles) == QUANTILES
        for q, value in spread.quantiles.items():
            if shares:
                assert value == pytest.approx(reference.quantile([each[0] for each in shares], float(q)), abs=1e-12)


def test_shells_by_hand() -> None:
    result = shells(table([row("a", math.log(0.5), [0.5, 0.5, 0.75]), row("b", -math.inf, [0.0, 0.0, 0.0])]))
    assert result.examples.rows()[1] == ("b", False, [0.0, 0.0, 0.0], None)
    assert result.extractable[2] == Shell(tolerance=2, mean_mass=0.25, mean_share=1 / 3, median_share=1 / 3)
    assert result.population[0].mean_mass == 0.25
    assert result.verbatim_share.population.quantiles["0.5"] == pytest.approx(2 / 3)


@checked
@given(rows())
def test_recovery(drawn: Rows) -> None:
    result = recovery(table(drawn), tau=TAU)
    known = [each for each in drawn if reference.verbatim(each, TAU)]
    assert result.verbatim == len(known)
    for recovered, tolerance in ((result.at_zero, 0), (result.at_tolerance, -1)):
        missed = [each["example_id"] for each in known if each["lower_by_tolerance"][tolerance] < TAU]
        assert recovered.missed == missed
        check(recovered, len(known) - len(missed), len(known) - len(missed), len(known))
    assert result.extra == sum(reference.unlocked(each, TAU, 0) for each in drawn)


@cases(30)
@given(rows(), st.booleans())
def test_prompts_needed(drawn: Rows, verbatim: bool) -> None:
    limit = 60
    tolerance = 0 if verbatim else None
    found = prompts_needed(table(drawn), tolerance=tolerance)
    assert found["chance"].to_list() == [chance for chance in (0.5, 0.9, 0.999) for _ in drawn]
    for i, (name, chance, fewest, most) in enumerate(found.rows()):
        own = drawn[i % len(drawn)]
        assert name == own["example_id"]
        assert fewest <= most
        for bound, n in (("upper_by_tolerance", fewest), ("lower_by_tolerance", most)):
            probability = own[bound][0 if verbatim else -1]
            expected = reference.prompts(probability, chance, limit)
            if expected is None:
                assert n > limit - 1
            elif n != expected:  # then the chance is met to the last digit, as that of 0.999 by 3 draws at 0.9
                assert abs(reference.excess(probability, int(min(n, expected)), chance)) < ROUNDING
                assert abs(n - expected) == 1
            assert n == math.inf if probability == 0 else n < math.inf or probability < 1e-307


@cases(30)
@given(rows())
def test_prompt_rates(drawn: Rows) -> None:
    cells = prompt_rates(table(drawn))
    assert [(each.n, each.p) for each in cells] == [(n, p) for n in QUERIES for p in (0.5, 0.9, 0.999)]
    for each in cells:
        for bound, share in (("lower", each.rate), ("upper", each.rate_upper)):
            excess = [reference.excess(own[bound], each.n, each.p) for own in drawn]
            assert share is not None
            least, most = (sum(value >= border for value in excess) for border in (ROUNDING, -ROUNDING))
            assert least <= round(share * len(drawn)) <= most
        assert each.rate_upper is not None
        check(each, each.count, round(each.rate_upper * len(drawn)), len(drawn))


def test_prompts_at_a_tolerance_between() -> None:
    scores = table([row("a", math.log(0.1), [0.1, 0.5, 0.9], [0.1, 0.75, 1.0]), row("b", -math.inf, [0.0, 0.2, 0.5])])
    for tolerance, lower, upper in (
        (0, [0.1, 0.0], [0.1, 0.0]),
        (1, [0.5, 0.2], [0.75, 0.2]),
        (2, [0.9, 0.5], [1.0, 0.5]),
    ):
        needed = prompts_needed(scores, chances=[0.5], tolerance=tolerance)
        for name, bounds in (("most", lower), ("fewest", upper)):
            expected = [reference.prompts(bound, 0.5, 100) or math.inf for bound in bounds]
            assert needed[name].to_list() == expected
        (cell,) = prompt_rates(scores, chances=[0.6], queries=[2], tolerance=tolerance)
        counts = [sum(reference.excess(bound, 2, 0.6) >= 0 for bound in bounds) for bounds in (lower, upper)]
        check(cell, counts[0], counts[1], 2)
    assert prompts_needed(scores).rows() == prompts_needed(scores, tolerance=2).rows()
    assert prompt_rates(scores) == prompt_rates(scores, tolerance=2)
    assert prompts_needed(table([]), tolerance=3).height == 0
    assert [cell.rate for cell in prompt_rates(table([]), queries=[1], chances=[0.5], tolerance=3)] == [None]
    for bad in (-1, 3):
        with pytest.raises(InputError, match=f"between 0 and the search's 2, not {bad}"):
            prompt_rates(scores, tolerance=bad)


def test_numbers_of_prompts_up_to_the_largest_floats() -> None:
    assert prompts_needed(table([row("a", -math.inf, [1e-308])]), chances=[0.5])["most"].to_list() == [
        pytest.approx(math.log(2) * 1e308)
    ]
    assert prompts_needed(table([row("a", -math.inf, [1e-308])]), chances=[0.9])["most"].to_list() == [math.inf]


def test_equal_ones_stay_in_the_order_of_the_rows() -> None:
    """In a table that is large enough for a sort that need not keep it."""
    scores = table([row(f"{i}", -math.inf, [0.0, [0.25, 0.5][i % 2]]) for i in range(2000)])
    expected = [str(i) for i in range(1, 2000, 2)] + [str(i) for i in range(0, 2000, 2)]
    assert unlocked(scores)["example_id"].to_list() == expected
    one = {"tokens": [1], "log_prob": -1.0, "set_log_prob": None, "distance": 0}
    listed = scores.with_columns(candidates=pl.Series([[one]] * 2000, dtype=SCHEMA["candidates"]))
    assert top_candidates(listed, count=2000)["example_id"].to_list() == [str(i) for i in range(2000)]
    assert top_candidates(listed)["rank"].to_list() == list(range(1, 21))


def test_greedy_generations_at_the_tolerance_are_within_it() -> None:
    found = near_rates(table([row(str(d), -1.0, [0.5, 0.5, 0.5], greedy_distance=d) for d in (None, 0, 1, 2, 3, 4)]))
    assert [each.greedy.count for each in found] == [1, 2, 3]
    assert [(each.greedy.rate, each.greedy_missing) for each in found] == [(0.2, 1), (0.4, 1), (0.6, 1)]


@checked
@given(rows(), st.integers(0, 8))
def test_top_candidates(drawn: Rows, count: int) -> None:
    found = top_candidates(table(drawn), count=count)
    expected = [
        (name, rank, each["log_prob"], each["set_log_prob"], each["distance"], each["tokens"])
        for rank, (name, each) in enumerate(reference.candidates(drawn)[:count], 1)
    ]
    assert found.rows() == expected


@checked
@given(rows(least=0))
def test_summary_agrees_with_its_parts_and_is_json(drawn: Rows) -> None:
    scores = table(drawn)
    summary = near_summary(scores, tau=TAU)
    written = json.loads(json.dumps(plain(summary), allow_nan=False))
    assert written == plain(summary)
    assert msgspec.convert(written, NearSummary) == summary
    new = unlocked(scores, tau=TAU)
    assert summary.unlocked.count == new.height
    assert summary.unlocked.zero == new.filter(pl.col("verbatim") == "zero").height
    assert summary.unlocked.zero + summary.unlocked.sub_threshold == new.height
    open_ones = [each for each in drawn if each["lower"] < TAU <= each["upper"]]
    assert summary.unlocked.undecided == sum(not reference.verbatim(each, TAU) for each in open_ones)
    assert sum(summary.verdicts.values()) == summary.examples == len(drawn)
    assert summary.mean_lower == pytest.approx(reference.average([each["lower"] for each in drawn]), abs=1e-14)
    assert summary.mean_upper == pytest.approx(reference.average([each["upper"] for each in drawn]), abs=1e-14)
    assert summary.token_evals == SearchCost(total=100 * len(drawn), mean=100.0 if drawn else None)
    assert summary.tau == TAU
    assert summary.tolerance == (len(drawn[0]["lower_by_tolerance"]) - 1 if drawn else None)
    assert summary.verdicts["not extractable"] == sum(each["upper"] < TAU for each in drawn)
    assert summary.mean_p_z == pytest.approx(reference.average([reference.p_z(each) for each in drawn]), abs=1e-14)
    whole = recovery(scores, tau=TAU)
    for counted, listed in (
        (summary.recovery.at_zero, whole.at_zero),
        (summary.recovery.at_tolerance, whole.at_tolerance),
    ):
        assert counted == Recovered(**{**vars(listed), "missed": len(listed.missed)})
    assert (summary.recovery.verbatim, summary.recovery.extra) == (whole.verbatim, whole.extra)
    for own, parts in ((summary.gain, mass_gain(scores, tau=TAU)), (summary.shells, shells(scores, tau=TAU))):
        assert vars(own) == {key: part for key, part in vars(parts).items() if not isinstance(part, pl.DataFrame)}
        assert len(vars(own)) >= 4
    if drawn:
        last = summary.rates[-1]
        assert summary.verdicts["extractable"] == last.probabilistic.count
        assert summary.verdicts["undecided"] == last.undecided


def test_an_empty_table() -> None:
    empty = table([])
    assert near_rates(empty) == []
    for frame in (
        unlocked(empty),
        scatter(empty),
        prompts_needed(empty),
        top_candidates(empty),
        mass_gain(empty).ccdf,
    ):
        assert frame.height == 0
    assert unlocked(empty).schema == unlocked(table([row("a", -1.0, [0.5])])).schema
    assert shells(empty).population == []
    assert recovery(empty).at_zero.rate is None
    summary = near_summary(empty)
    assert (summary.examples, summary.tolerance, summary.mean_lower) == (0, None, None)


def test_certain_and_impossible_rows() -> None:
    summary = near_summary(table([row("a", 0.0, [1.0, 1.0], greedy_distance=0)]))
    assert summary.rates[1].probabilistic.rate == summary.rates[0].greedy.rate == 1
    assert summary.shells.verbatim_share.extractable.mean == 1
    assert all(each.rate == 1 for each in summary.prompts)
    assert prompts_needed(table([row("a", 0.0, [1.0])]))["most"].to_list() == [1, 1, 1]
    summary = near_summary(table([row(name, -math.inf, [0.0, 0.0]) for name in "ab"]))
    assert summary.verdicts == {"extractable": 0, "not extractable": 2, "undecided": 0}
    assert summary.shells.verbatim_share.population.mean is None
    assert prompts_needed(table([row("a", -math.inf, [0.0], [5e-324])]))["fewest"].to_list() == [math.inf] * 3


def test_rounding_beyond_one_and_between_bounds_is_forgiven() -> None:
    scores = table([row("a", 0.0, [1 + 1e-12], [1 - 1e-12])])
    assert near_summary(scores).mean_lower == near_summary(scores).mean_upper == 1


def test_bad_tables_are_named() -> None:
    good = row("a", -1.0, [0.5, 0.5])
    bad: list[tuple[dict[str, Any], str]] = [
        (row("b", -9.0, [0.1, 0.1], bounded=True), "of p_z of example 'b' only an upper bound"),
        ({**row("b", -1.0, [0.5, 0.5]), "lower_by_tolerance": None}, "'b' has no lower_by_tolerance"),
        ({**row("b", -1.0, [0.5, 0.5]), "upper_by_tolerance": []}, "'b' has no upper_by_tolerance"),
        (row("b", -1.0, [0.5]), "differ in length"),
        (row("b", -1.0, [0.5, math.nan]), "'b' has lower_by_tolerance"),
        ({**row("b", -1.0, [0.5, 0.5]), "upper_by_tolerance": [0.5, None]}, "'b' has upper_by_tolerance"),
        (row("b", -1.0, [0.5, 1.1]), "not probabilities"),
        (row("b", -1.0, [0.5, 0.5], [0.5, 0.4]), "'b' has a lower bound above"),
        (row("b", -1.0, [0.5, 0.5], scheme="t"), "several schemes"),
        (row("b", 0.1, [0.5, 0.5]), "'b' has log_prob"),
    ]
    for each, words in bad:
        for function in EVERY:
            with pytest.raises(InputError, match=words):
                function(table([good, each]))
        with pytest.raises(InputError, match=words):
            prompts_needed(table([good, each]))
        with pytest.raises(InputError, match=words):
            top_candidates(table([good, each]))
    with pytest.raises(InputError, match="upper for 2"):
        near_rates(table([{**row("b", -1.0, [0.5]), "upper_by_tolerance": [0.5, 0.5]}]))
    for function in EVERY:
        with pytest.raises(InputError, match="tau"):
            function(table([good]), tau=0)
    with pytest.raises(InputError, match="tolerance must lie between 0 and the search's 1, not 2"):
        prompts_needed(table([good]), tolerance=2)
    for name in ("lower_by_tolerance", "greedy_distance", "near_token_evals", "bounded"):
        with pytest.raises(InputError, match=f"no column '{name}'"):
            near_summary(table([good]).drop(name))


def test_a_hundred_thousand_rows_in_seconds() -> None:
    size = 100_000
    random = np.random.default_rng(0)
    lower = np.sort(10.0 ** -random.exponential(3, (size, 6)), axis=1)
    drawn: dict[str, Any] = {name: [None] * size for name in SCHEMA}
    drawn |= {"example_id": [str(i) for i in range(size)], "scheme": ["s"] * size, "bounded": [False] * size}
    drawn |= {"log_prob": np.log(lower[:, 0]), "lower_by_tolerance": lower.tolist()}
    drawn |= {"upper_by_tolerance": np.minimum(lower * 1.1, 1).tolist(), "near_token_evals": [1000] * size}
    scores = pl.DataFrame(drawn, schema=SCHEMA)
    start = time.perf_counter()
    near_summary(scores)
    assert time.perf_counter() - start < 5
