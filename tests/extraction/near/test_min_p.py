"""Near-verbatim searches under min-p: how many tokens may follow depends on how sure the model is, with no number or
share that is fixed. Bounds and samples against every output of tiny models, alone and after top-k and top-p."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote import Example, Near, Scheme, near_verbatim, verbatim
from rote.extraction.near import batches
from rote.extraction.near.options import EosPolicy
from rote.extraction.near.results import NearVerbatim
from tests.extraction.near.test_search import ROUNDING, UNLIMITED, CoarseModel, check_bounds, listing, many
from tests.reference import near as reference

SAMPLES = 4000
SIGMAS = 4.5
DISTANCES = ["levenshtein", "hamming"]
POLICIES: list[EosPolicy] = ["stop", "exclude", "ignore"]


@dataclass
class Problem:
    """A tiny model, a scheme, and examples whose every output is written out."""

    model: CoarseModel
    scheme: Scheme
    examples: list[Example]

    def tree(self, example: Example) -> reference.Tree:
        bos = () if self.model.bos_id is None else (self.model.bos_id,)
        scheme = (self.scheme.temperature, self.scheme.top_k, self.scheme.top_p, self.scheme.min_p)
        return reference.Tree(self.model.logits_after, bos + example.prefix, scheme, self.model.eos_ids)

    def run(self, near: Near, **options: Any) -> list[NearVerbatim]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # budgets too small to begin
            return near_verbatim(self.model, self.examples, self.scheme, near=near, **options)

    def truths(self, near: Near) -> list[list[float]]:
        found = []
        for example in self.examples:
            outputs = self.tree(example).outputs(len(example.suffix), near.eos)
            found.append(reference.near_probabilities(outputs, example.suffix, near.distance, near.tolerance))
        return found


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, Near]:
    """And what counts as near."""
    vocabulary = draw(st.integers(3, 6))
    longest = draw(st.integers(1, {3: 6, 4: 5, 5: 4, 6: 4}[vocabulary]))
    model = CoarseModel(
        vocabulary, seed=draw(st.integers(0, 10**6)), bos_id=draw(st.sampled_from([None, 0])),
        grid=draw(st.sampled_from([0.1, 1.0, 3.0])), order=draw(st.sampled_from([0, 0, 1, 2])),
        banned=draw(st.sampled_from([-1, -1, -1, 1])),
        eos_ids=draw(st.frozensets(st.integers(0, vocabulary - 1), max_size=2)),
    )  # fmt: skip
    # No border of these lies on the grid, but where equals of the likeliest alone are kept; nor does a sum reach top-p.
    scheme = Scheme(
        temperature=draw(st.sampled_from([0.6, 1.0, 1.7])),
        top_k=draw(st.one_of(st.none(), st.none(), st.integers(1, vocabulary))),
        top_p=draw(st.sampled_from([None, None, 0.611, 0.871])),
        min_p=draw(st.sampled_from([1.0, 0.9, 0.4, 0.1, 0.03])),
    )
    near = Near(distance=draw(st.sampled_from(DISTANCES)), tolerance=draw(st.integers(0, longest + 1)),
                eos=draw(st.sampled_from(POLICIES)), gap=0.0, until="budget")  # fmt: skip
    ends = model.eos_ids if near.eos != "ignore" else frozenset()
    problem = Problem(model, scheme, [])
    for i in range(draw(st.integers(1, 3))):
        prefix = tuple(draw(st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=3)))
        tree = problem.tree(Example("", prefix, (0,)))
        suffix: tuple[int, ...] = ()
        for left in reversed(range(longest if i == 0 else draw(st.integers(1, longest)))):
            # What the model would write, or anything; EOS may be the last token.
            written = list(tree.following(suffix)) if draw(st.integers(0, 3)) else []
            may = [t for t in written if t not in ends or not left]
            suffix += (draw(st.sampled_from(may or [t for t in range(vocabulary) if t not in ends or not left])),)
        problem.examples.append(Example(f"e{i}", prefix, suffix))
    return problem, near


FORKS = st.fixed_dictionaries({"budget": st.one_of(st.none(), st.integers(0, 40), st.just(UNLIMITED))})
BEAMS = st.fixed_dictionaries(
    {
        "method": st.just("beam"),
        "variant": st.sampled_from(["closing", "pruned", "baseline"]),
        "width": st.integers(1, 5),
        "budget": st.one_of(st.none(), st.integers(0, 40)),
    }
)
LISTED = st.sampled_from([None, None, 1, 2, 3])


@many(200)
@given(problems(), st.one_of(FORKS, BEAMS), LISTED)
def test_bounds_hold(asked: tuple[Problem, Near], search: dict[str, Any], listed: int | None) -> None:
    problem, near = asked
    with listing(listed):
        results = problem.run(replace(near, **search))
    scored = verbatim(problem.model, problem.examples, [problem.scheme])
    for example, result, truth, exact in zip(problem.examples, results, problem.truths(near), scored, strict=True):
        check_bounds(result, truth, example)
        assert result.by_tolerance[0][0] <= exact.prob + ROUNDING
        if result.method == "fork" and result.token_evals:
            assert result.by_tolerance[0] == pytest.approx((exact.prob, exact.prob), abs=ROUNDING)


@many(100)
@given(problems(), LISTED)
def test_searches_to_the_end_are_exact(asked: tuple[Problem, Near], listed: int | None) -> None:
    problem, near = asked
    with listing(listed):
        forks = problem.run(replace(near, budget=UNLIMITED))
    beams = problem.run(replace(near, method="beam", width=10**4))
    for truth, fork, beam in zip(problem.truths(near), forks, beams, strict=True):
        for lower, upper in (fork.by_tolerance[-1], beam.by_tolerance[-1]):
            assert lower == pytest.approx(truth[-1], abs=ROUNDING)
            assert upper == pytest.approx(truth[-1], abs=ROUNDING)


@pytest.mark.parametrize("eos", POLICIES)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("listed", [None, 1])
def test_samples_agree_with_enumeration(
    eos: EosPolicy, distance: str, listed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain samples, and samples of what a search left open. With one token listed, the others are read again."""
    if listed is not None:
        monkeypatch.setattr(batches, "LISTED", listed)
        monkeypatch.setattr(batches, "SPARE", 0)
    near = Near(distance, 3, "sample", eos=eos, samples=SAMPLES, seed=5)
    texts = [((1, 2), (2, 3, 1, 1, 2)), ((4,), (1, 2, 3, 0)), ((2, 2, 1), (3, 1)), ((), (2,))]
    between = 0
    for seed in range(2):
        for scheme in (Scheme(1.7, None, None, 0.1), Scheme(1.7, 4, 0.95, 0.2)):
            model = CoarseModel(5, seed=seed, bos_id=3, order=3, eos_ids=frozenset({0, 4}))
            problem = Problem(model, scheme, [Example(str(i), *text) for i, text in enumerate(texts)])
            residual = Near(distance, 3, eos=eos, gap=0.0, until="budget", budget=6, samples=SAMPLES, seed=5)
            results = zip(problem.run(near), problem.run(residual), problem.truths(near), strict=True)
            for sampled, searched, truth in results:
                p = truth[-1]
                between += 0.01 < p < 0.99
                assert sampled.estimate is not None
                assert searched.estimate is not None
                error = math.sqrt(max(p * (1 - p), 0.0) / SAMPLES)
                assert abs(sampled.estimate.mean - p) <= SIGMAS * error + ROUNDING
                lower, upper = searched.by_tolerance[-1]
                share = (p - lower) / (upper - lower) if upper > lower else 0.0
                error = (upper - lower) * math.sqrt(max(share * (1 - share), 0.0) / SAMPLES)
                assert abs(searched.estimate.mean - p) <= SIGMAS * error + ROUNDING
    assert between >= 6  # not a test of zeros and ones


def test_a_support_wider_than_what_is_listed() -> None:
    """The real limits: 72 tokens are listed, and min-p keeps more."""
    model = CoarseModel(90, seed=5, eos_ids=frozenset({7}))
    problem = Problem(model, Scheme(1.5, None, None, 0.003), [])
    tree = problem.tree(Example("", (1,), (0,)))
    kept = tree.following(())
    lightest, *_, heaviest = sorted(kept, key=lambda token: kept[token])
    out = next(token for token in range(90) if token not in kept)
    assert 72 < len(kept) < 90
    problem.examples = [Example(str(i), (1,), (lightest, last)) for i, last in enumerate((heaviest, lightest, out))]
    near = Near(tolerance=1, gap=0.0, until="budget")
    truths = problem.truths(near)
    for budget in (2, 3, 10, UNLIMITED):
        results = problem.run(replace(near, budget=budget))
        for example, result, truth in zip(problem.examples, results, truths, strict=True):
            check_bounds(result, truth, (example, budget))
            if budget == UNLIMITED:
                assert result.upper - result.lower <= ROUNDING
