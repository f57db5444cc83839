"""Bounds for outputs of up to twelve tokens, against every one of them, whatever a search reads at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.extraction.near.recitals import Recital, recitals
from tests.extraction.near.test_search import ROUNDING, Problem, check_bounds, many, problems
from tests.reference import near as reference

SEARCHES = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["fork", "fork", "fork", "beam"]),
        "variant": st.sampled_from(["closing", "closing", "pruned", "baseline"]),
        "width": st.integers(1, 9),
        "budget": st.one_of(st.none(), st.integers(0, 60), st.integers(60, 400)),
        "until": st.sampled_from(["budget", "budget", "budget", "decision", "worthwhile"]),
        "tau": st.sampled_from([1e-3, 0.05, 0.4]),
        "gap": st.sampled_from([0.0, 0.0, 0.0, 0.05]),
        "batch_size": st.sampled_from(["auto", "auto", 1, 2]),
        "candidates": st.sampled_from([0, 1, 8]),
    }
)


@many(300)
@given(recitals(), SEARCHES)
def test_bounds_hold(recital: Recital, search: dict[str, Any]) -> None:
    for example, result, truth in zip(recital.examples, recital.run(**search), recital.truths(), strict=True):
        check_bounds(result, truth, example)
        budget = search["budget"]
        if budget is None:
            budget = len(example.prefix) + (len(example.suffix) - 1) * search["width"]
        assert result.token_evals <= min(budget, recital.model.memory_positions)


@many(60)
@given(recitals(most=1))
def test_to_the_end_they_are_exact(recital: Recital) -> None:
    """As many evaluations as there are outputs of outputs; few of them are needed for what is known by heart."""
    recital.model.memory_positions = recital.model.batch_tokens = 100_000
    recital.settings |= {"ROUND": 64}
    (result,), (truth,) = recital.run(budget=90_000), recital.truths()
    check_bounds(result, truth, recital.examples)
    assert result.lower == pytest.approx(truth[-1], abs=ROUNDING)
    assert result.upper == pytest.approx(truth[-1], abs=ROUNDING)


@many(30)
@given(problems(most=1))
def test_the_truth_is_the_definition(problem: Problem) -> None:
    """Two ways to write out everything: rows of the matrix as outputs grow, and each whole output by itself."""
    for example, tree, truth in zip(problem.examples, problem.trees, problem.truths(), strict=True):
        quick = reference.near_probabilities_of_many(
            tree, example.suffix, problem.distance, problem.eos, problem.tolerance
        )
        assert quick == pytest.approx(truth, abs=1e-12)
