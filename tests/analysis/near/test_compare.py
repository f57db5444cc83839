"""Near-verbatim results beside one another, against row-by-row counting."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.near.compare import (
    compare_fixed,
    convergence,
    overlap,
    samples_needed,
    tolerance_matrix,
    verbatim_in_larger,
    width_table,
)
from rote.errors import InputError
from rote.odds import wilson
from tests.analysis.near.tables import TAU, row, rows, table
from tests.cases import cases
from tests.reference import nearverbatim as reference

Rows = list[dict[str, Any]]
checked = cases(50)


@st.composite
def runs(draw: st.DrawFn, names: int = 3, tolerance: int | None = None) -> list[Rows]:
    """Several tables of the same examples, each in its own order."""
    drawn = [draw(rows(tolerance=tolerance)) for _ in range(draw(st.integers(1, names)))]
    size = min(map(len, drawn))
    return [draw(st.permutations(each[:size])) for each in drawn]


@checked
@given(runs())
def test_tolerance_matrix(drawn: list[Rows]) -> None:
    named: dict[int | str, pl.DataFrame] = {f"run {i}": table(each) for i, each in enumerate(drawn)}
    own = len(drawn[0][0]["lower_by_tolerance"]) - 1
    named = {own: named.pop("run 0"), **named}
    found = tolerance_matrix(named, tau=TAU).rows(named=True)
    expected = [
        (name, e) for name, each in zip(named, drawn, strict=True) for e in range(len(each[0]["lower_by_tolerance"]))
    ]
    assert [(each["run"], each["filter_tolerance"]) for each in found] == [(str(name), e) for name, e in expected]
    for each, (name, e) in zip(found, expected, strict=True):
        mine = drawn[list(named).index(name)]
        count = reference.counts(mine, e, TAU)[0]
        assert (each["count"], each["rate"]) == (count, count / len(mine))
        assert each["run_tolerance"] == len(mine[0]["lower_by_tolerance"]) - 1
        assert each["mass"] == pytest.approx(math.fsum(own["lower_by_tolerance"][e] for own in mine), abs=1e-12)


def test_tolerance_matrix_refuses_a_wrong_tolerance() -> None:
    assert tolerance_matrix({}).height == tolerance_matrix({5: table([])}).height == 0
    with pytest.raises(InputError, match="under tolerance 3 has bounds up to tolerance 1"):
        tolerance_matrix({3: table([row("a", -1.0, [0.5, 0.5])])})


@checked
@given(runs())
def test_width_table(drawn: list[Rows]) -> None:
    given_runs = {10 * (i + 1): (table(each), None if i == 1 else 2.0 * i) for i, each in enumerate(drawn)}
    found = width_table(given_runs, tau=TAU)
    place = 0
    for i, mine in enumerate(drawn):
        for e in range(len(mine[0]["lower_by_tolerance"])):
            each = found.row(place, named=True)
            place += 1
            lower = [own["lower_by_tolerance"][e] for own in mine]
            chosen = [value for value in lower if value >= TAU]
            assert (each["width"], each["tolerance"], each["count"]) == (10 * (i + 1), e, len(chosen))
            assert (each["token_evals"], each["seconds"]) == (100 * len(mine), None if i == 1 else 2.0 * i)
            assert each["mean_lower"] == pytest.approx(reference.average(lower), abs=1e-14)
            assert each["mean_extractable"] == pytest.approx(reference.average(chosen), abs=1e-14)
            if len(chosen) > 1:
                middle = sum(chosen) / len(chosen)
                variance = sum((value - middle) ** 2 for value in chosen) / (len(chosen) - 1)
                assert each["sd_extractable"] == pytest.approx(math.sqrt(variance), abs=1e-9)
            else:
                assert each["sd_extractable"] is None
    assert found.height == place


@checked
@given(runs(tolerance=2), st.booleans())
def test_fixed_set_comparison(drawn: list[Rows], by_first: bool) -> None:
    models = {f"model {i}": table(each) for i, each in enumerate(drawn)}
    result = compare_fixed(models, reference="model 0" if by_first else None, tau=TAU)
    deciding = drawn[:1] if by_first else drawn
    fixed = {each["example_id"] for each in drawn[0]}
    for mine in deciding:
        fixed &= {each["example_id"] for each in mine if each["lower"] >= TAU}
    assert (result.examples, result.tolerance, result.fixed_examples) == (len(drawn[0]), 2, len(fixed))
    for each, mine in zip(result.models, drawn, strict=True):
        certain, undecided, _ = reference.counts(mine, 2, TAU)
        assert each.verbatim.count == sum(reference.verbatim(own, TAU) for own in mine)
        assert (each.near.count, each.undecided) == (certain, undecided)
        assert each.near.rate_upper == (certain + undecided) / len(mine)
        inside = [own for own in mine if own["example_id"] in fixed]
        lower = [own["lower"] for own in inside]
        assert each.fixed.verbatim == sum(reference.verbatim(own, TAU) for own in inside)
        assert each.fixed.near == sum(value >= TAU for value in lower)
        assert each.fixed.mean_lower == pytest.approx(reference.average(lower), abs=1e-14)
        mean_p_z = reference.average([reference.p_z(own) for own in inside])
        assert each.fixed.mean_p_z == pytest.approx(mean_p_z, abs=1e-14)
        median = reference.quantile(lower, 0.5) if lower else None
        assert each.fixed.median_lower == pytest.approx(median, abs=1e-14)


def test_what_differs_is_named() -> None:
    one = table([row("a", -1.0, [0.5]), row("b", -1.0, [0.5])])
    with pytest.raises(InputError, match="'small' lacks 1 example that 'large' has, such as 'b'"):
        compare_fixed({"large": one, "small": one.head(1)})
    with pytest.raises(InputError, match="'large' lacks 1 example that 'small' has, such as 'b'"):
        verbatim_in_larger(one, one.head(1))
    with pytest.raises(InputError, match="20 lacks 1 example that 10 has"):
        width_table({10: (one, None), 20: (one.head(1), 1.0)})
    with pytest.raises(InputError, match="'a' stands more than once in the table of 'm'"):
        compare_fixed({"m": pl.concat([one, one])})
    with pytest.raises(InputError, match="different schemes: 's' and 't'"):
        compare_fixed({"m": one, "n": one.with_columns(scheme=pl.lit("t"))})
    with pytest.raises(InputError, match="different tolerances: 'm' to 0, 'n' to 1"):
        compare_fixed({"m": one, "n": table([row(name, -1.0, [0.5, 0.5]) for name in "ab"])})
    with pytest.raises(InputError, match="reference model 'q' is not among the models: 'm'"):
        compare_fixed({"m": one}, reference="q")
    with pytest.raises(InputError, match="only an upper bound is known"):
        compare_fixed({"m": table([row("a", -9.0, [0.0], bounded=True)])})


def test_empty_comparisons() -> None:
    assert compare_fixed({}).models == []
    nothing = compare_fixed({"m": table([]), "n": table([])})
    assert (nothing.examples, nothing.tolerance, nothing.fixed_examples) == (0, None, 0)
    assert nothing.models[0].near.rate is None
    assert width_table({}).height == 0
    assert verbatim_in_larger(table([]), table([])).rate is None


@checked
@given(runs(names=2))
def test_verbatim_in_larger(drawn: list[Rows]) -> None:
    small, large = drawn[0], drawn[-1]
    columns = ["example_id", "scheme", "log_prob", "bounded"]
    result = verbatim_in_larger(table(small), table(large).select(columns), tau=TAU)
    new = {each["example_id"] for each in small if reference.unlocked(each, TAU)}
    both = sorted(each["example_id"] for each in large if each["example_id"] in new and reference.verbatim(each, TAU))
    assert (result.unlocked, result.example_ids, result.count) == (len(new), both, len(both))
    assert result.rate == (len(both) / len(new) if new else None)


def test_verbatim_in_larger_refuses_stopped_rows() -> None:
    one = table([row("a", -9.0, [0.0])])
    with pytest.raises(InputError, match="large model's table"):
        verbatim_in_larger(one, one.with_columns(bounded=pl.lit(True)))


outcomes = st.integers(1, 130).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, 1), min_size=size, max_size=size), min_size=1, max_size=4)
)


@checked
@given(outcomes)
def test_convergence(drawn: list[list[int]]) -> None:
    result = convergence(drawn, bound=0.25, band=(0.1, 0.9))
    total = len(drawn[0])
    grid = [step for step in (1, 2, 5, 10, 20, 50, 100) if step < total] + [total]
    assert result["curve"]["samples"].to_list() == grid
    for samples, middle, low, high, pooled_low, pooled_high in result["curve"].rows():
        estimates = reference.first_hits(drawn, samples)
        assert middle == pytest.approx(sum(estimates) / len(estimates))
        assert low == pytest.approx(reference.quantile(estimates, 0.1))
        assert high == pytest.approx(reference.quantile(estimates, 0.9))
        hits = sum(sum(each[:samples]) for each in drawn)
        assert (pooled_low, pooled_high) == wilson(hits, samples * len(drawn))
    assert result["captured"] == (pytest.approx(0.25 / result["mean"]) if result["mean"] else None)
    assert result["needed"] == samples_needed(0.25)
    counts = [[sum(each[:samples]) for samples in grid] for each in drawn]
    again = convergence(counts, sizes=grid, bound=0.25, band=(0.1, 0.9))
    assert again.pop("curve").equals(result.pop("curve"))
    assert again == result
    assert convergence(drawn)["needed"] == samples_needed(result["mean"])


def test_convergence_refuses_what_is_no_replicate() -> None:
    useless: list[list[list[int]]] = [[], [[]], [[1], [1, 0]]]
    for bad in useless:
        with pytest.raises(InputError, match="replicate"):
            convergence(bad)
    with pytest.raises(InputError, match="0 or 1"):
        convergence([[0, 2]])
    for sizes in ([1], [0, 2], [2, 2]):
        with pytest.raises(InputError, match="ascending"):
            convergence([[0, 1]], sizes=sizes)
    for hits in ([3, 3], [1, 0], [-1, 0]):
        with pytest.raises(InputError, match="may not fall"):
            convergence([hits], sizes=[2, 4])


@given(st.floats(1e-6, 1, exclude_max=True), st.floats(0.001, 0.5), st.floats(0.01, 1))
def test_samples_needed(p: float, delta: float, eta: float) -> None:
    needed = samples_needed(p, delta=delta, eta=eta)
    m = needed["detection"]
    assert m == int(m) >= 1
    assert m * math.log1p(-p) <= math.log(delta) * (1 - 1e-9)
    assert m == 1 or (m - 1) * math.log1p(-p) >= math.log(delta) * (1 + 1e-9)
    m = needed["relative_error"]
    assert math.sqrt(p * (1 - p) / m) <= eta * p * (1 + 1e-9)


def test_samples_needed_at_the_ends() -> None:
    assert samples_needed(1.0) == {"detection": 1, "relative_error": 1}
    assert samples_needed(0.0) == {"detection": math.inf, "relative_error": math.inf}
    assert samples_needed(5e-324)["relative_error"] == math.inf
    assert samples_needed(0.01, delta=0.05, eta=0.1) == {"detection": 299, "relative_error": 9900}
    for bad in ((-0.1, 0.05, 0.1), (0.1, 0.0, 0.1), (0.1, 0.05, 0.0), (math.nan, 0.05, 0.1)):
        with pytest.raises(InputError, match="p must lie"):
            samples_needed(bad[0], delta=bad[1], eta=bad[2])


def outputs(rows: Rows) -> pl.DataFrame:
    schema = {"example_id": pl.String, "log_prob": pl.Float64, "distance": pl.Int32, "bleu": pl.Float64}
    return pl.DataFrame(rows, schema=schema)


output = st.fixed_dictionaries(
    {
        "example_id": st.sampled_from("abcd"),
        "log_prob": st.floats(-12, -1),
        "distance": st.integers(0, 9),
        "bleu": st.one_of(st.floats(0, 1), st.just(0.75)),
    }
)


@checked
@given(st.lists(output, max_size=20))
def test_overlap(drawn: Rows) -> None:
    found = overlap(outputs(drawn), tolerance=4, tau=0.003)
    for name, (count, mass, examples) in reference.overlap(drawn, 4, 0.75, 0.003).items():
        assert (found[name]["outputs"], found[name]["examples"]) == (count, examples)
        assert found[name]["mass"] == pytest.approx(mass)


def test_overlap_needs_every_number() -> None:
    plain = {"example_id": "a", "log_prob": -1.0, "distance": 3, "bleu": 0.9}
    assert overlap(outputs([plain]))["both"] == {"outputs": 1, "mass": math.exp(-1), "examples": 1}
    with pytest.raises(InputError, match="no log_prob"):
        overlap(outputs([{**plain, "log_prob": None}]))
    with pytest.raises(InputError, match="no column 'bleu'"):
        overlap(outputs([plain]).drop("bleu"))
