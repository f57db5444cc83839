"""Monte Carlo and the residual estimate, against every output of tiny models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from rote import GREEDY, Example, Scheme
from rote.extraction.near import batches
from rote.extraction.near.montecarlo import divided, estimate
from rote.extraction.near.options import EosPolicy
from rote.odds import wilson
from tests.extraction.near.searching import find_near
from tests.extraction.near.test_search import ROUNDING, UNLIMITED, CoarseModel, Problem, many, problems

SAMPLES = 4000
SIGMAS = 4.5

SCHEMES = {
    "top-k": Scheme(temperature=1.4, top_k=3),
    "top-p": Scheme(temperature=1.7, top_k=None, top_p=0.871),
    "temperature": Scheme(temperature=1.1, top_k=None),
}


@pytest.fixture(params=["as usual", "one token listed"])
def listed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """One token listed: of a support without top-k all others are unlisted, with top-k those tied beyond rank k."""
    if request.param == "as usual":
        return True
    monkeypatch.setattr(batches, "LISTED", 1)
    monkeypatch.setattr(batches, "SPARE", 0)
    return False


def problem_of(scheme: Scheme, eos: EosPolicy, distance: str, *, seed: int = 0, grid: float = 0.1) -> Problem:
    """Suffixes of several lengths, some with a last token that ends them; all lie in the middle of what comes out."""
    model = CoarseModel(5, seed=seed, bos_id=3, order=3, grid=grid, eos_ids=frozenset({0, 4}))
    examples = [
        Example("long", (1, 2), (2, 3, 1, 1, 2)),
        Example("ends", (4,), (1, 2, 3, 0)),
        Example("short", (2, 2, 1), (3, 1)),
        Example("one", (), (2,)),
    ]
    return Problem(model, scheme, eos, distance, 3, examples)


def hits_of(by_tolerance: tuple[tuple[float, float], ...], samples: int) -> list[int]:
    """How many samples were within each tolerance: the intervals are Wilson's of these counts, to the last bit."""
    table = {wilson(h, samples): h for h in range(samples + 1)}
    return [table[interval] for interval in by_tolerance]


def tail(count: int, samples: int, p: float) -> float:
    """How likely so few hits are, or so many: the smaller of both. Exact, as one expected hit is no bell curve."""
    p = min(max(p, 0.0), 1.0)  # a sum of probabilities
    return float(min(binom.cdf(count, samples, p), binom.sf(count - 1, samples, p)))


# --- how samples are divided

chances_of = st.lists(st.one_of(st.just(0.0), st.sampled_from([1 / 3, 0.5, 1.0]), st.floats(1e-6, 1)), min_size=1)


@given(chances=chances_of.filter(sum), counts=st.lists(st.integers(0, 300), max_size=4), seed=st.integers(0, 99))
def test_samples_are_divided_by_chance_alone(chances: list[float], counts: list[int], seed: int) -> None:
    """All of them, none where there is no chance, each as its own number says; a last bit moves none but by chance."""
    rows = np.tile(chances, (len(counts), 1))
    drawn = divided(np.random.default_rng(seed), counts, rows)
    assert drawn.sum(1).tolist() == counts
    assert not drawn[:, np.array(chances) == 0].any()
    rng, borders = np.random.default_rng(seed), np.cumsum(chances) / sum(chances)
    slow = [[0] * len(chances) for _ in counts]
    for row, count in enumerate(counts):
        for number in rng.random(count):
            slow[row][next(i for i, end in enumerate(borders) if end > number or end == borders[-1])] += 1
    assert drawn.tolist() == slow
    nudged = rows * (1 + 4e-16 * np.random.default_rng(seed).uniform(-1, 1, rows.shape))
    assert np.array_equal(divided(np.random.default_rng(seed), counts, nudged), drawn)


# --- plain sampling


@pytest.mark.parametrize("kind", SCHEMES)
@pytest.mark.parametrize("eos", ["stop", "exclude", "ignore"])
@pytest.mark.parametrize("distance", ["levenshtein", "hamming"])
def test_samples_agree_with_enumeration(kind: str, eos: EosPolicy, distance: str, listed: bool) -> None:
    # Ties where top-k is to have unlisted tokens; few where rounding might decide what top-p keeps.
    ties = kind == "top-k" and not listed
    between = 0
    for model_seed in range(3):
        problem = problem_of(SCHEMES[kind], eos, distance, seed=model_seed, grid=2.0 if ties else 0.1)
        results = problem.run(method="sample", samples=SAMPLES, seed=5)
        for example, result, truth in zip(problem.examples, results, problem.truths(), strict=True):
            hits = hits_of(result.by_tolerance, SAMPLES)
            assert hits == sorted(hits)
            for count, p in zip(hits, truth, strict=True):
                between += 0.01 < p < 0.99
                assert tail(count, SAMPLES, p) > norm.sf(SIGMAS), (model_seed, example.id, hits, truth)
            share, a = hits[-1] / SAMPLES, len(example.prefix)
            assert a <= result.token_evals <= a + (len(example.suffix) - 1) * SAMPLES
            assert not result.certified
            assert result.method == "sample"
            assert result.estimate is not None
            assert result.estimate.mean == share
            likely = (hits[-1] + 1) / (SAMPLES + 2)  # so that none or all of the samples is not certainty
            assert result.estimate.error == pytest.approx(math.sqrt(likely * (1 - likely) / SAMPLES), abs=1e-15)
            assert result.estimate.interval == result.by_tolerance[-1]
            assert (result.eos_mass, result.candidates, result.verbatim) == (0.0, (), None)
            assert (result.estimate.samples, result.estimate.seed) == (SAMPLES, 5)
    assert between >= 8  # not a test of zeros and ones


@many(40)
@given(problems(most=4), st.integers(1, 60), st.integers(1, 3), st.integers(0, 2**40))
def test_the_same_seed_draws_the_same_samples(problem: Problem, samples: int, batch_size: int, seed: int) -> None:
    options: dict[str, Any] = {"method": "sample", "samples": samples, "seed": seed}
    together, apart = problem.run(**options), problem.run(**options, batch_size=batch_size)
    for example, a, b in zip(problem.examples, together, apart, strict=True):
        assert a.by_tolerance == b.by_tolerance
        assert a.token_evals == b.token_evals
        assert a.estimate == b.estimate
        hits_of(a.by_tolerance, samples)
        assert len(example.prefix) <= a.token_evals
        assert a.token_evals <= len(example.prefix) + (len(example.suffix) - 1) * samples


def test_seeds_and_examples_draw_on_their_own() -> None:
    problem = problem_of(Scheme(top_k=3), "stop", "levenshtein")
    p = problem.truths()[0][-1]
    assert 0.05 < p < 0.95
    problem.examples = [Example(str(i), (1, 2), (2, 3, 1, 1, 2)) for i in range(30)]
    lists = []
    for seed in (0, 1):
        found = [hits_of(r.by_tolerance, 1000)[-1] for r in problem.run(method="sample", samples=1000, seed=seed)]
        assert np.var(found) == pytest.approx(1000 * p * (1 - p), rel=0.75)  # the same question, asked 30 times
        lists.append(found)
    assert sum(a != b for a, b in zip(*lists, strict=True)) > 20


def test_samples_by_default() -> None:
    problem = problem_of(Scheme(top_k=3), "stop", "levenshtein")
    assert all(r.estimate is not None and r.estimate.samples == 1000 for r in problem.run(method="sample"))


def test_greedy_samples_are_all_alike() -> None:
    problem = problem_of(GREEDY, "ignore", "levenshtein")
    for example, result, truth in zip(
        problem.examples, problem.run(method="sample", samples=50), problem.truths(), strict=True
    ):
        assert hits_of(result.by_tolerance, 50) == [50 * p for p in truth]
        assert result.token_evals <= len(example.prefix) + len(example.suffix) - 1


def test_samples_that_do_not_fit_into_memory_are_drawn_in_parts() -> None:
    problem = problem_of(Scheme(top_k=3), "stop", "levenshtein")
    problem.model.memory_positions = 600
    for result, truth in zip(problem.run(method="sample", samples=2500), problem.truths(), strict=True):
        for count, p in zip(hits_of(result.by_tolerance, 2500), truth, strict=True):
            assert tail(count, 2500, p) > norm.sf(SIGMAS)


@pytest.mark.parametrize("room", range(16, 28))
def test_parts_fit_beside_the_longest_prompt_and_bos(room: int) -> None:
    problem = problem_of(Scheme(top_k=3), "stop", "levenshtein")
    problem.model.memory_positions = room
    for result in problem.run(method="sample", samples=20):
        assert result.estimate is not None
        assert result.estimate.samples == 20


# --- what a search left open


@many(80)
@given(problems(), st.integers(0, 25), st.integers(1, 40), st.sampled_from([None, 1, 2]))
def test_an_estimate_lies_between_the_bounds(problem: Problem, more: int, samples: int, listed: int | None) -> None:
    budget = max(len(e.prefix) + len(e.suffix) - 1 for e in problem.examples) + more
    with pytest.MonkeyPatch.context() as patch:
        if listed is not None:
            patch.setattr(batches, "LISTED", listed)
            patch.setattr(batches, "SPARE", 0)
        plain = problem.run(budget=budget)
        sampled = problem.run(budget=budget, samples=samples, seed=3)
        again = problem.run(budget=budget, samples=samples, seed=3, batch_size=1)
    for example, a, b, c, truth in zip(problem.examples, plain, sampled, again, problem.truths(), strict=True):
        assert a.estimate is None
        assert b.estimate is not None
        assert b.certified
        np.testing.assert_allclose(b.by_tolerance, a.by_tolerance, atol=1e-12)
        assert b.estimate == c.estimate
        assert b.lower <= b.estimate.interval[0] <= b.estimate.mean <= b.estimate.interval[1] <= b.upper + 1e-12
        assert 0 <= b.estimate.error <= (b.upper - b.lower) / 2 + 1e-12
        assert a.token_evals <= b.token_evals <= a.token_evals + samples * len(example.suffix)
        if b.upper - b.lower <= ROUNDING / 10:
            assert b.estimate.mean == pytest.approx(truth[-1], abs=ROUNDING)


def test_nothing_open_nothing_drawn() -> None:
    problem = problem_of(Scheme(top_k=3), "stop", "levenshtein")
    for result, truth in zip(problem.run(budget=UNLIMITED, samples=50, seed=9), problem.truths(), strict=True):
        assert result.estimate is not None
        assert result.estimate.samples == 0
        assert result.estimate.mean == result.lower == pytest.approx(truth[-1], abs=ROUNDING)


REPLICATIONS, DRAWN = 1000, 400

LEFT_OPEN: dict[str, tuple[int, int, Scheme, EosPolicy, str, int, tuple[int, ...], int, bool]] = {
    "top-k": (6, 128, Scheme(top_k=3), "stop", "levenshtein", 2, (3, 4, 2, 3, 4), 6, False),
    "top-p": (4, 43, Scheme(top_k=None, top_p=0.9), "exclude", "hamming", 3, (1, 2, 1, 2, 2), 7, False),
    "unlisted": (4, 55, Scheme(temperature=0.9, top_k=None), "stop", "levenshtein", 1, (1, 1, 1), 4, True),
}


@pytest.mark.parametrize("name", LEFT_OPEN)
def test_residual_estimates_are_unbiased_and_their_intervals_cover(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary, model_seed, scheme, eos, distance, tolerance, suffix, budget, unlisted = LEFT_OPEN[name]
    if unlisted:
        monkeypatch.setattr(batches, "LISTED", 1)
        monkeypatch.setattr(batches, "SPARE", 0)
    model = CoarseModel(vocabulary, seed=model_seed, order=2, eos_ids=frozenset({0}))
    model.batch_tokens, model.memory_positions = 4096, 30_000
    # One example under as many names: each draws samples of its own.
    examples = [Example(str(i), (1, 2), suffix) for i in range(REPLICATIONS)]
    problem = Problem(model, scheme, eos, distance, tolerance, examples[:1])
    truth = problem.truths()[0][-1]
    results = find_near(
        model, examples, scheme, eos=eos, distance=distance, tolerance=tolerance, budget=budget, samples=DRAWN, seed=1
    )
    found = [r.estimate for r in results if r.estimate is not None]
    assert len(found) == REPLICATIONS
    ((lower, upper),) = {(r.lower, r.upper) for r in results}
    q = (truth - lower) / (upper - lower)
    assert lower > 0.2
    assert upper - lower > 0.3
    assert 0.15 < q < 0.85

    assert min(e.mean for e in found) >= lower
    assert min(e.interval[0] for e in found) >= lower
    coverage = np.mean([e.interval[0] <= truth <= e.interval[1] for e in found])
    error = (upper - lower) * math.sqrt(q * (1 - q) / DRAWN)
    means = np.array([e.mean for e in found])
    print(f"{name}: lower {lower:.3f}, open {upper - lower:.3f}, q {q:.3f}, coverage {coverage:.3f}, "
          f"bias {(means.mean() - truth) / error * math.sqrt(REPLICATIONS):+.2f} standard errors")  # fmt: skip
    assert coverage >= 0.93
    assert abs(means.mean() - truth) <= 4 * error / math.sqrt(REPLICATIONS)
    assert means.std() == pytest.approx(error, rel=0.1)
    assert np.mean([e.error for e in found]) == pytest.approx(error, rel=0.05)


def test_estimates_by_hand() -> None:
    found = estimate(0.3, 0.4, 25, 100, 8)
    assert found.mean == pytest.approx(0.4)
    assert found.error == pytest.approx(0.4 * math.sqrt(26 / 102 * (1 - 26 / 102) / 100))
    low, high = wilson(25, 100)
    assert found.interval == pytest.approx((0.3 + 0.4 * low, 0.3 + 0.4 * high))
    assert (found.samples, found.seed) == (100, 8)
    assert estimate(0.3, 0.4, 0, 100, 0).interval[0] == 0.3
    assert estimate(0.3, 0.7 + 1e-12, 100, 100, 0).mean == 1.0


def test_a_budget_buys_samples() -> None:
    model = CoarseModel(4, seed=3)
    example = Example("a", (1, 2), (0, 3, 1))
    (found,) = find_near(model, [example], Scheme(top_k=3), tolerance=1, method="sample", budget=42)
    assert found.estimate is not None
    assert found.estimate.samples == 20
    assert found.token_evals <= 42
