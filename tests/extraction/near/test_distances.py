"""A distance is one class in one file: two that Rote does not have, against every output of tiny models."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rote
from rote import GREEDY, InputError, Near
from rote.extraction.near import distances, options
from rote.extraction.near.distance import metric_of, root_ceil
from rote.extraction.near.search import greedy_distances
from tests.extraction.near.test_search import (
    ROUNDING,
    SEARCHES,
    UNLIMITED,
    Problem,
    check_bounds,
    listing,
    many,
    problems,
)
from tests.reference import near as reference

FOLDER = Path(__file__).parent / "distances"
PACKAGE = Path(rote.__file__).parent

Measure = Callable[[Sequence[int], Sequence[int]], int]


def indel(output: Sequence[int], suffix: Sequence[int]) -> int:
    """Replacing is leaving out and inserting."""
    rows = [list(range(len(suffix) + 1))]
    for i, token in enumerate(output, 1):
        row = [i]
        for j, target in enumerate(suffix, 1):
            row.append(min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (0 if token == target else 2)))
        rows.append(row)
    return rows[-1][-1]


def stretches(output: Sequence[int], suffix: Sequence[int]) -> int:
    count, inside = 0, False
    for i, target in enumerate(suffix):
        wrong = i >= len(output) or output[i] != target
        count += wrong and not inside
        inside = wrong
    return count


MORE: dict[str, Measure] = {"indel": indel, "stretches": stretches}


@pytest.fixture(autouse=True, scope="module")
def more() -> Iterator[None]:
    """Their files in the package's path, their definitions in the reference; nothing else knows of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distances, "__path__", [*distances.__path__, str(FOLDER)])
        for name, measure in MORE.items():
            patch.setitem(reference.DISTANCES, name, measure)
        yield


def test_a_file_is_a_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(options.distances()) == {"levenshtein", "hamming", *MORE}
    assert [metric_of(name, 1, "stop").distance for name in options.distances()] == options.distances()
    assert metric_of("indel", 1, "stop").edits == "tokens inserted or left out"
    assert Near("indel").distance == "indel"
    monkeypatch.setattr(distances, "__path__", distances.__path__[:-1])
    for refused in (lambda: Near("indel"), lambda: metric_of("indel", 1, "stop")):
        with pytest.raises(InputError, match=r"distance must be levenshtein or hamming, not 'indel'\."):
            refused()


def test_nobody_else_asks_which_distance_it_is() -> None:
    names = {path.stem for path in (PACKAGE / "extraction/near/distances").glob("[!_]*.py")}
    told = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names
    }
    assert names == {"levenshtein", "hamming"}
    assert told == {"extraction/near/options.py"}  # which one it is by default


@pytest.mark.parametrize("distance", MORE)
def test_distances_of_finished_and_of_growing_outputs(distance: str) -> None:
    """The premises: what a state says is what the definition says, for every output of every short suffix."""
    every = [tokens for n in range(5) for tokens in itertools.product(range(2), repeat=n)]
    for tolerance in range(6):
        metric = metric_of(distance, tolerance, "stop")
        for suffix in every[1:]:
            length, targets = torch.tensor([len(suffix)]), metric.targets([suffix])
            within = {output for output in every if len(output) <= len(suffix)}
            assert root_ceil(metric, len(suffix)) >= min(max(MORE[distance](o, suffix) for o in within), tolerance + 1)
            for output in within:
                state, written = metric.start(length), torch.tensor([0])
                for token in output:
                    window = metric.window(targets, written)
                    state = metric.advance(state, written, length, window, torch.tensor([[token]]))[:, 0]
                    written = written + 1
                exact = metric.between(output, suffix)
                assert exact == MORE[distance](output, suffix)
                end = int(metric.ended(state, length - written))
                assert min(end, tolerance + 1) == min(exact, tolerance + 1)
                if output == suffix[: len(output)]:
                    assert state.tolist() == metric.along(written, length).tolist()


@many(120)
@given(problems(), st.sampled_from(sorted(MORE)), SEARCHES, st.sampled_from([None, None, 1, 2]))
def test_bounds_hold(problem: Problem, distance: str, search: dict[str, Any], listed: int | None) -> None:
    problem = dataclasses.replace(problem, distance=distance)
    with listing(listed):
        results = problem.run(**search, candidates=10**6)
    for example, result, truth in zip(problem.examples, results, problem.truths(), strict=True):
        check_bounds(result, truth, example)
        assert result.distance == distance
        for candidate in result.candidates:
            assert candidate.distance == MORE[distance](candidate.tokens, example.suffix) <= problem.tolerance


@many(80)
@given(problems(), st.sampled_from(sorted(MORE)), st.sampled_from(["fork", "closing", "pruned", "baseline"]))
def test_to_the_end_they_are_exact(problem: Problem, distance: str, how: str) -> None:
    problem = dataclasses.replace(problem, distance=distance)
    beam = {} if how == "fork" else {"method": "beam", "variant": how, "width": 800}
    for example, result, truth in zip(
        problem.examples, problem.run(budget=UNLIMITED, **beam), problem.truths(), strict=True
    ):
        check_bounds(result, truth, example)
        assert result.lower == pytest.approx(truth[-1], abs=ROUNDING)
        assert result.upper == pytest.approx(truth[-1], abs=ROUNDING)


@many(60)
@given(problems(), st.sampled_from(sorted(MORE)))
def test_samples_and_greedy_generations(problem: Problem, distance: str) -> None:
    problem = dataclasses.replace(problem, distance=distance)
    for result, truth in zip(problem.run(method="sample", samples=400, seed=2), problem.truths(), strict=True):
        assert result.estimate is not None
        error = math.sqrt(max(truth[-1] * (1 - truth[-1]), 0.0) * 400)
        assert abs(result.estimate.mean - truth[-1]) * 400 <= 5.5 * error + 5  # a few hits more where hardly any come
    problem = dataclasses.replace(problem, scheme=GREEDY)
    found = greedy_distances(problem.model, problem.examples, Near(distance, problem.tolerance, eos=problem.eos))
    assert found == [sum(p < 0.5 for p in truth) for truth in problem.truths()]
