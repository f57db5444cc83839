"""Bounds on near-verbatim probability against every output of tiny models, and beams against published beam search."""

from __future__ import annotations

import dataclasses
import inspect
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rote
from rote import GREEDY, Example, InputError, ModelError, Near, Scheme, near_verbatim, verbatim
from rote.corpus.windows import Windows
from rote.extraction.near.batches import Reader
from rote.extraction.near.distance import metric_of
from rote.extraction.near.fork import Forks, Search
from rote.extraction.near.frontier import Frontier, Nodes
from rote.extraction.near.options import EosPolicy
from rote.extraction.near.results import Goal, NearVerbatim, verdict
from rote.extraction.near.search import greedy_distances
from rote.models.memory import Replay
from tests.extraction.near.searching import OF_NEAR, find_near
from tests.fakes import HashModel
from tests.reference import near as reference

ROUNDING = 1e-6  # a float32 softmax here and there
UNLIMITED = 90_000  # token evaluations; no search in this file needs as many


class CoarseModel(HashModel):
    """Logits on a grid: the coarser, the more ties. Some models never emit their token `banned`.

    `order`: how many tokens back they look, 0 for all. Those that look back little come back to the text after an edit.
    """

    def __init__(
        self, *args: Any, grid: float = 0.1, order: int = 0, banned: int = -1,
        eos_ids: frozenset[int] = frozenset(), **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, **options)
        self.grid, self.order, self.banned, self.eos_ids = grid, order, banned, eos_ids
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    def logits_after(self, history: tuple[int, ...]) -> np.ndarray:
        seen = history[-self.order :]
        if seen not in self._known:
            logits = np.round(super().logits_after(seen) / self.grid) * self.grid
            if self.banned >= 0:
                logits[self.banned] = -math.inf
            self._known[seen] = logits
        return self._known[seen]


@dataclass
class Problem:
    """A tiny model, a scheme, and examples of several lengths; every history is looked at once."""

    model: CoarseModel
    scheme: Scheme
    eos: EosPolicy
    distance: str
    tolerance: int
    examples: list[Example]

    def __post_init__(self) -> None:
        bos = () if self.model.bos_id is None else (self.model.bos_id,)
        options = (self.scheme.temperature, self.scheme.top_k, self.scheme.top_p)
        self.trees = [
            reference.Tree(self.model.logits_after, bos + e.prefix, options, self.model.eos_ids) for e in self.examples
        ]

    def run(self, **options: Any) -> list[NearVerbatim]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # budgets too small to begin
            results = find_near(
                self.model, self.examples, self.scheme, eos=self.eos, distance=self.distance, tolerance=self.tolerance,
                **options,
            )  # fmt: skip
        assert [r.example_id for r in results] == [e.id for e in self.examples]
        return results

    def truths(self) -> list[list[float]]:
        found = []
        for example, tree in zip(self.examples, self.trees, strict=True):
            outputs = tree.outputs(len(example.suffix), self.eos)
            found.append(reference.near_probabilities(outputs, example.suffix, self.distance, self.tolerance))
        return found

    def verbatim(self) -> list[float]:
        return [r.prob for r in verbatim(self.model, self.examples, [self.scheme])]


def schemes(vocabulary: int) -> st.SearchStrategy[Scheme]:
    k = st.integers(1, vocabulary)
    # No round numbers: where a few equal tokens reach top-p exactly, rounding decides.
    p = st.sampled_from([0.137, 0.611, 0.871, 0.983])
    temperature = st.sampled_from([0.6, 1.0, 1.7])
    return st.one_of(
        st.just(GREEDY),
        st.builds(Scheme, temperature=temperature, top_k=k),
        st.builds(Scheme, temperature=temperature, top_k=st.none(), top_p=p),
        st.builds(Scheme, top_k=k, top_p=p),
        st.builds(Scheme, temperature=temperature, top_k=st.none()),
    )


@st.composite
def problems(
    draw: st.DrawFn, eos: tuple[EosPolicy, ...] = ("stop", "exclude", "ignore"), most: int = 3, long: bool = False
) -> Problem:
    """`long`: more tokens to write, of which few come next."""
    vocabulary = draw(st.integers(3, 6))
    longest = draw(st.integers(6, 9) if long else st.integers(1, {3: 6, 4: 5, 5: 4, 6: 4}[vocabulary]))
    model = CoarseModel(
        vocabulary, seed=draw(st.integers(0, 10**6)), bos_id=draw(st.sampled_from([None, 0])),
        grid=draw(st.sampled_from([0.1] if long else [0.1, 1.0, 3.0])), order=draw(st.sampled_from([0, 0, 1, 2])),
        banned=draw(st.sampled_from([-1, -1, -1, 1])),
        eos_ids=draw(st.frozensets(st.integers(0, vocabulary - 1), max_size=2)),
    )  # fmt: skip
    scheme = draw(st.builds(Scheme, top_k=st.integers(1, 2)) if long else schemes(vocabulary))
    policy = draw(st.sampled_from(eos))
    ends = model.eos_ids if policy != "ignore" else frozenset()
    examples = []
    for i in range(draw(st.integers(1, most))):
        prefix = tuple(draw(st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=3)))
        problem = Problem(model, scheme, policy, "hamming", 0, [Example("", prefix, (0,))])
        suffix: tuple[int, ...] = ()
        for left in reversed(range(longest if i == 0 else draw(st.integers(1, longest)))):
            # What the model would write, or anything; EOS may be the last token.
            written = list(problem.trees[0].following(suffix)) if draw(st.integers(0, 3)) else []
            may = [t for t in written if t not in ends or not left]
            may = may or [t for t in range(vocabulary) if t not in ends or not left]
            suffix += (draw(st.sampled_from(may)),)
        examples.append(Example(f"e{i}", prefix, suffix))
    tolerance = draw(st.integers(0, 4 if long else longest + 1))
    distance = draw(st.sampled_from(["levenshtein", "hamming"]))
    return Problem(model, scheme, policy, distance, tolerance, examples)


SEARCHES = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["fork", "beam"]),
        "variant": st.sampled_from(["closing", "pruned", "baseline"]),
        "width": st.integers(1, 5),
        "budget": st.one_of(st.none(), st.integers(0, 40), st.just(UNLIMITED)),
        "until": st.sampled_from(["budget", "budget", "decision"]),
        "tau": st.sampled_from([1e-3, 0.05, 0.4]),
        "gap": st.sampled_from([0.0, 0.0, 0.01, 0.3]),
    }
)


@contextmanager
def listing(width: int | None) -> Iterator[None]:
    """As if the vocabulary were much larger than what is listed of it: the remainder of a support is one open node."""
    begin = Reader.__init__

    def shortened(self: Reader, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self.width = self.width if width is None else min(self.width, width)

    with mock.patch.object(Reader, "__init__", shortened):
        yield


def check_bounds(result: NearVerbatim, truth: list[float], where: object) -> None:
    assert len(result.by_tolerance) == len(truth), where
    for e, ((lower, upper), exact) in enumerate(zip(result.by_tolerance, truth, strict=True)):
        assert 0 <= lower <= upper <= 1, (where, e)
        assert lower <= exact + ROUNDING, (where, e, lower, exact)
        assert upper >= exact - ROUNDING, (where, e, upper, exact)
    for low, high in zip(result.by_tolerance, result.by_tolerance[1:], strict=False):
        assert low[0] <= high[0] + 1e-12, where
        assert low[1] <= high[1] + 1e-12, where
    assert result.certified
    assert result.estimate is None


def many(count: int) -> settings:
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# --- bounds


@many(250)
@given(problems(), SEARCHES, st.sampled_from([None, None, 1, 2, 3]))
def test_bounds_hold_whatever_is_asked_for(problem: Problem, search: dict[str, Any], listed: int | None) -> None:
    with listing(listed):
        results = problem.run(**search)
    for example, result, truth, p_z in zip(
        problem.examples, results, problem.truths(), problem.verbatim(), strict=True
    ):
        check_bounds(result, truth, example)
        lower, upper = result.by_tolerance[0]
        assert lower <= p_z + ROUNDING
        first = len(example.prefix) + (len(example.suffix) - 1 if search["method"] == "fork" else 0)
        allowed = search["budget"]
        if allowed is None:
            allowed = len(example.prefix) + (len(example.suffix) - 1) * search["width"]
        assert result.token_evals <= allowed
        if allowed < first:
            assert result.token_evals == 0
            assert all(bounds in ((0.0, 1.0), (1.0, 1.0)) for bounds in result.by_tolerance)
        elif search["method"] == "fork":
            assert lower == pytest.approx(p_z, abs=ROUNDING)
            assert upper == pytest.approx(p_z, abs=ROUNDING)
            assert result.verbatim is not None
            assert result.verbatim.prob == pytest.approx(p_z, abs=ROUNDING)
        if search["budget"] == UNLIMITED and search["method"] == "fork" and search["until"] == "budget":
            assert result.upper - result.lower <= search["gap"] + ROUNDING


@many(150)
@given(problems(), st.sampled_from([None, None, 1, 2, 3]))
def test_a_fork_search_to_the_end_is_exact(problem: Problem, listed: int | None) -> None:
    with listing(listed):
        results = problem.run(budget=UNLIMITED)
    for example, result, truth in zip(problem.examples, results, problem.truths(), strict=True):
        check_bounds(result, truth, example)
        assert result.lower == pytest.approx(truth[-1], abs=ROUNDING)
        assert result.upper == pytest.approx(truth[-1], abs=ROUNDING)


@many(100)
@given(problems(long=True, most=2), SEARCHES, st.sampled_from([None, None, 1]))
def test_bounds_hold_for_longer_outputs(problem: Problem, search: dict[str, Any], listed: int | None) -> None:
    with listing(listed):
        results = problem.run(**search)
    for example, result, truth in zip(problem.examples, results, problem.truths(), strict=True):
        check_bounds(result, truth, example)
        if search["budget"] == UNLIMITED and search["method"] == "fork" and search["until"] == "budget":
            assert result.upper - result.lower <= search["gap"] + ROUNDING


@many(60)
@given(problems(), st.integers(0, 40))
def test_more_budget_is_never_worse(problem: Problem, budget: int) -> None:
    for less, more in zip(problem.run(budget=budget), problem.run(budget=2 * budget + 1), strict=True):
        assert more.lower >= less.lower - 1e-12
        assert more.upper <= less.upper + 1e-12


@many(80)
@given(problems(most=6), SEARCHES, st.integers(1, 3))
def test_results_do_not_depend_on_batch_mates(problem: Problem, search: dict[str, Any], batch_size: int) -> None:
    together, apart = problem.run(**search), problem.run(**search, batch_size=batch_size)
    for a, b in zip(together, apart, strict=True):
        np.testing.assert_allclose(a.by_tolerance, b.by_tolerance, atol=1e-9, rtol=0)
        assert a.token_evals == b.token_evals
        assert [c.tokens for c in a.candidates] == [c.tokens for c in b.candidates]
        assert a.eos_mass == pytest.approx(b.eos_mass, abs=1e-9)


@many(60)
@given(problems(eos=("ignore",)), st.sampled_from(["fork", "beam"]))
def test_the_edit_ball_holds_the_mismatch_ball(problem: Problem, method: str) -> None:
    """Outputs of equal length: they are the same sets up to one edit."""
    found = {}
    for distance in ("levenshtein", "hamming"):
        problem.distance = distance
        found[distance] = problem.run(budget=UNLIMITED, method=method, width=10**4)
    for a, b in zip(found["levenshtein"], found["hamming"], strict=True):
        assert a.lower >= b.lower - ROUNDING
        for e in range(min(2, problem.tolerance + 1) if method == "beam" else 1):
            assert a.by_tolerance[e][0] == pytest.approx(b.by_tolerance[e][0], abs=ROUNDING)
        if problem.tolerance <= 1:
            assert a.lower == pytest.approx(b.lower, abs=ROUNDING)


def test_a_support_wider_than_what_is_listed() -> None:
    """The real limits: 80 tokens, of which 72 are listed; and 40 tokens that tie at rank 3, of which 11 are."""
    for size, scheme, grid in ((80, Scheme(temperature=1.3, top_k=None), 0.1), (40, Scheme(top_k=3), 50.0)):
        model = CoarseModel(size, seed=5, grid=grid, eos_ids=frozenset({7}))
        tree = reference.Tree(model.logits_after, (1,), (scheme.temperature, scheme.top_k, scheme.top_p), {7})
        heaviest = sorted(range(size), key=lambda t: tree.following(()).get(t, -math.inf))
        for last in (0, size - 1):  # a suffix token that is not listed, and one that is
            first = heaviest[0] if heaviest[0] != 7 else heaviest[1]
            example = Example("x", (1,), (first, heaviest[last]))
            problem = Problem(model, scheme, "stop", "levenshtein", 1, [example])
            (truth,), (p_z,) = problem.truths(), problem.verbatim()
            for budget in (2, 3, 10, UNLIMITED):
                (result,) = problem.run(budget=budget)
                check_bounds(result, truth, (size, last, budget))
                assert result.by_tolerance[0] == pytest.approx((p_z, p_z), abs=ROUNDING)
            assert result.upper - result.lower <= ROUNDING
            (beam,) = problem.run(method="beam", variant="closing", width=size * 2)
            check_bounds(beam, truth, (size, last, "beam"))


def test_verdicts_at_tau() -> None:
    assert verdict(0.1, 0.2, 0.1) == "extractable"  # at least tau
    assert verdict(0.05, 0.1, 0.1) == "undecided"  # it may be tau exactly
    assert verdict(0.05, 0.0999, 0.1) == "not extractable"
    goal = Goal(tau=0.375, gap=0.25, until="decision")
    assert goal.reached(0.375, 0.9)
    assert goal.reached(0.0, 0.3)
    assert not goal.reached(0.0, 0.375)
    assert goal.reached(0.25, 0.5)  # no further apart than the gap
    assert not goal.reached(0.25, 0.75)
    assert not Goal(tau=0.1, gap=0.0).reached(0.1, 0.9)
    assert Goal(tau=0.1).reached(0.1, 0.1)


def test_what_is_worthwhile_promises_a_thousandth_of_tau() -> None:
    example = Example("x", (1,), (2, 3))
    for share, goes_on in ((1.0001, True), (0.9999, False)):
        promise, one = np.array([math.log(0.04 / 1000 * share)]), np.array([1])
        search = Search(0, example, np.zeros(1), np.zeros(1), Frontier(1), evals=5)
        search.frontier.push(Nodes(np.log([0.5]), one - 1, one, one, one, one, one, promise))
        for until, goes in (("worthwhile", goes_on), ("budget", True)):
            goal = Goal(tau=0.04, until=until)  # type: ignore[arg-type]
            metric = metric_of("levenshtein", 0, "stop")
            for budget, enough in ((6, True), (5, False)):
                paid = lambda _, budget=budget: budget  # noqa: E731
                forks = Forks(Reader(HashModel(), Scheme(), 9), metric, budget=paid, goal=goal, shown=1, scores=False)
                assert forks._goes_on(search) == (goes and enough)


# --- candidates


@many(120)
@given(problems(), SEARCHES)
def test_candidates_are_what_they_say(problem: Problem, search: dict[str, Any]) -> None:
    results = problem.run(**search, candidates=10**6)
    measure = reference.DISTANCES[problem.distance]
    for example, tree, truth, result in zip(problem.examples, problem.trees, problem.truths(), results, strict=True):
        length = len(example.suffix)
        shown = [c.tokens for c in result.candidates if c.set_log_prob is None]
        assert len(set(shown)) == len(shown)
        for c in result.candidates:
            assert c.tokens != example.suffix or c.set_log_prob is not None
            assert c.distance == measure(c.tokens, example.suffix)
            assert c.distance <= problem.tolerance
            early = any(t in problem.model.eos_ids for t in c.tokens[: length - 1])
            if problem.eos == "stop" and len(c.tokens) < length:
                assert c.tokens[-1] in problem.model.eos_ids
                assert not any(t in problem.model.eos_ids for t in c.tokens[:-1])
            else:
                assert len(c.tokens) == length
                assert problem.eos == "ignore" or not early
            if c.log_prob is not None:
                assert c.log_prob == pytest.approx(tree.log_prob(c.tokens), abs=1e-5)
            if c.set_log_prob is not None:  # everything that begins as it does, up to some token
                begins = [tree.log_prob(c.tokens[:i]) for i in range(len(c.tokens) + 1)]
                assert min(abs(b - c.set_log_prob) for b in begins) < 1e-5
        assert math.fsum(math.exp(c.weight) for c in result.candidates) <= truth[-1] + ROUNDING
        weights = [c.weight for c in result.candidates]
        assert weights == sorted(weights, reverse=True)
    for full, some in zip(results, problem.run(**search, candidates=2), strict=True):
        assert len(some.candidates) <= 2
        assert {c.tokens for c in some.candidates} <= {c.tokens for c in full.candidates}
        np.testing.assert_allclose(some.by_tolerance, full.by_tolerance, atol=1e-12)


# --- beams, as published


@many(200)
@given(problems(), st.sampled_from(["pruned", "baseline"]), st.integers(1, 5))
def test_published_beams(problem: Problem, variant: str, width: int) -> None:
    results = problem.run(method="beam", variant=variant, width=width, candidates=10**6)
    measure = reference.DISTANCES[problem.distance]
    for example, tree, result in zip(problem.examples, problem.trees, results, strict=True):
        want = reference.beam_search(
            tree, len(example.prefix), example.suffix, problem.distance, problem.tolerance, problem.eos, width,
            variant == "pruned",
        )  # fmt: skip
        if want.doubtful:
            continue
        assert result.lower == pytest.approx(want.lower, abs=ROUNDING)
        assert result.upper == pytest.approx(want.upper, abs=ROUNDING)
        assert result.token_evals == want.evals
        assert result.eos_mass == pytest.approx(want.eos_mass, abs=ROUNDING)
        near = {output: measure(output, example.suffix) for output in want.finals}
        for e, (lower, _) in enumerate(result.by_tolerance):
            mass = math.fsum(math.exp(want.finals[output]) for output, d in near.items() if d <= e)
            assert lower == pytest.approx(mass, abs=ROUNDING)
        expected = {o: d for o, d in near.items() if d <= problem.tolerance and o != example.suffix}
        assert {c.tokens: c.distance for c in result.candidates} == expected


@many(60)
@given(problems(), st.sampled_from(["pruned", "baseline"]), st.integers(1, 5))
def test_what_a_beam_reaches_is_scored_as_by_teacher_forcing(problem: Problem, variant: str, width: int) -> None:
    results = problem.run(method="beam", variant=variant, width=width, candidates=10**6)
    for example, result in zip(problem.examples, results, strict=True):
        # At most `width` outputs are extended by all of the support at the end, and at most that many end at any step.
        assert len(result.candidates) <= width * problem.model.vocabulary * len(example.suffix)
        outputs = [Example(str(i), example.prefix, c.tokens) for i, c in enumerate(result.candidates)]
        for c, forced in zip(result.candidates, verbatim(problem.model, outputs, [problem.scheme]), strict=True):
            assert c.log_prob == pytest.approx(forced.log_prob, abs=1e-5)


@many(60)
@given(problems(), st.sampled_from(["closing", "pruned", "baseline"]), st.integers(1, 5))
def test_likely_paths_survive(problem: Problem, variant: str, width: int) -> None:
    """No more than `width` paths of one length can each be likelier than 1 in width + 1."""
    results = problem.run(method="beam", variant=variant, width=width, candidates=10**6)
    measure = reference.DISTANCES[problem.distance]
    for example, tree, result in zip(problem.examples, problem.trees, results, strict=True):
        shown = {c.tokens for c in result.candidates}
        sure = 0.0
        for output, log_prob in tree.outputs(len(example.suffix), problem.eos).items():
            depths = [tree.log_prob(output[:i]) for i in range(1, len(output))]
            likely = all(depth > -math.log(width + 1) + 1e-6 for depth in depths)
            if likely and measure(output, example.suffix) <= problem.tolerance:
                sure += math.exp(log_prob)
                assert variant == "closing" or output in shown or output == example.suffix
        assert result.lower >= sure - ROUNDING


@many(40)
@given(problems())
def test_a_wide_beam_is_exact(problem: Problem) -> None:
    for variant in ("closing", "pruned", "baseline"):
        for example, result, truth in zip(
            problem.examples,
            problem.run(method="beam", variant=variant, width=800, budget=UNLIMITED),
            problem.truths(),
            strict=True,
        ):
            check_bounds(result, truth, (variant, example))
            assert result.lower == pytest.approx(truth[-1], abs=ROUNDING)
            assert result.upper == pytest.approx(truth[-1], abs=ROUNDING)


@many(80)
@given(problems())
def test_greedy_generations(problem: Problem) -> None:
    """Under greedy decoding one output is certain: its distance is where the probability becomes 1."""
    problem = dataclasses.replace(problem, scheme=GREEDY)
    near = Near(problem.distance, problem.tolerance, eos=problem.eos)
    found = greedy_distances(problem.model, problem.examples, near)
    assert found == [sum(p < 0.5 for p in truth) for truth in problem.truths()]


# --- input


@pytest.mark.parametrize("method", ["fork", "beam"])
def test_a_suffix_with_eos_inside_is_refused(method: Any) -> None:
    model = CoarseModel(5, eos_ids=frozenset({2, 3}))
    policies: tuple[EosPolicy, ...] = ("stop", "exclude")
    for suffix in ((2, 1, 1), (1, 3, 1)):
        for eos in policies:
            with pytest.raises(InputError, match=r"'x'.*EOS"):
                find_near(model, [Example("x", (1,), suffix)], Scheme(top_k=3), method=method, eos=eos)
        assert find_near(model, [Example("x", (1,), suffix)], Scheme(top_k=3), method=method, eos="ignore")
    for eos in policies:
        assert find_near(model, [Example("x", (1,), (1, 1, 2))], Scheme(top_k=3), method=method, eos=eos)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tolerance": -1}, "tolerance"),
        ({"distance": "euclid"}, "distance"),
        ({"eos": "never"}, "eos"),
        ({"method": "guess"}, "method"),
        ({"variant": "best"}, "variant"),
        ({"until": "dawn"}, "until"),
        ({"tau": 0.0}, "tau"),
        ({"gap": -0.1}, "gap"),
        ({"gap": math.nan}, "gap"),
        ({"width": 0}, "width"),
        ({"budget": -1}, "budget"),
        ({"samples": 0}, "samples"),
        ({"batch_size": 0}, "batch_size"),
        ({"variant": "pruned"}, "variant changes nothing"),
        ({"width": 3, "budget": 99}, "width changes nothing"),
        ({"seed": 1}, "seed changes nothing"),
    ],
)
def test_impossible_options_are_refused_by_name(options: dict[str, Any], named: str) -> None:
    def ask(**own: Any) -> None:
        near = Near(**{name: own.pop(name) for name in options if name in OF_NEAR})
        near_verbatim(HashModel(), [Example("x", (1,), (2,))], near=near, **own)

    with pytest.raises(InputError, match=named):
        ask(**options)


def test_options_of_a_run_are_those_of_the_function() -> None:
    defaults = {name: p.default for name, p in inspect.signature(near_verbatim).parameters.items()}
    assert defaults["near"] == Near()
    near = defaults["near"]
    assert (near.seed, defaults["tau"], near.tolerance, near.width) == (0, 0.001, 5, 20)


def test_no_examples_no_results() -> None:
    assert near_verbatim(HashModel(), []) == []


def test_an_empty_prefix_after_bos() -> None:
    problem = Problem(
        CoarseModel(4, bos_id=1), Scheme(top_k=3), "ignore", "levenshtein", 1, [Example("x", (), (2, 0, 3))]
    )
    (truth,) = problem.truths()
    for method in ("fork", "beam"):
        (result,) = problem.run(method=method, budget=UNLIMITED, width=1000)
        check_bounds(result, truth, method)
        assert result.lower == pytest.approx(truth[-1], abs=ROUNDING)


def test_progress_counts_every_example_once() -> None:
    examples = [Example(str(i), (1,) * (i % 3 + 1), (2,) * (i % 4 + 1)) for i in range(13)]
    for method in ("fork", "beam"):
        told: list[tuple[str, int, int]] = []

        def tell(what: str, done: int, total: int, told: list[tuple[str, int, int]] = told) -> None:
            told.append((what, done, total))

        find_near(HashModel(5), examples, Scheme(top_k=3), method=method, progress=tell, batch_size=2)
        assert told == [("scored", done, 13) for done in range(1, 14)]


# --- memory, and models that are broken


def test_little_memory() -> None:
    """Room for 25 positions: searches end where it does, and one example is read at a time."""
    examples = [Example(str(i), (1, 2, i), (2, 0, 3, 1)) for i in range(5)]
    problem = Problem(CoarseModel(5, bos_id=0), Scheme(top_k=4), "stop", "levenshtein", 2, examples)
    problem.model.memory_positions = 25
    for method in ("fork", "beam"):
        for result, truth in zip(problem.run(method=method, budget=UNLIMITED), problem.truths(), strict=True):
            check_bounds(result, truth, method)
            assert 0 < result.token_evals <= 25


@pytest.mark.parametrize("method", ["fork", "beam"])
def test_out_of_memory_makes_smaller_batches_and_says_so(method: str) -> None:
    class Narrow(Replay):
        def feed(
            self, tokens: torch.Tensor, past: torch.Tensor, place: torch.Tensor, seen: torch.Tensor
        ) -> torch.Tensor:
            if tokens.numel() > 24:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return super().feed(tokens, past, place, seen)

    class Hungry(CoarseModel):
        def memory(self, positions: int) -> Replay:
            return Narrow(self, positions)

    examples = [Example(str(i), (1, 2, i % 5), (2, i % 4, 3, 1)) for i in range(8)]
    options: dict[str, Any] = {"tolerance": 2, "width": 4, "method": method}
    with pytest.warns(RuntimeWarning, match="out of memory: going on with") as said:
        got = find_near(Hungry(5), examples, Scheme(top_k=4), **options)
    halved = [f"out of memory: going on with {positions} positions at once" for positions in (32, 16)]
    assert [str(one.message) for one in said] == halved[: len(said)]
    want = find_near(CoarseModel(5), examples, Scheme(top_k=4), **options)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.by_tolerance, b.by_tolerance, atol=1e-9, rtol=0)
        assert a.token_evals == b.token_evals


@pytest.mark.filterwarnings("ignore:out of memory")
@pytest.mark.parametrize("method", ["fork", "beam"])
@pytest.mark.parametrize("kind", [torch.OutOfMemoryError, RuntimeError])
def test_a_single_row_that_does_not_fit_is_an_error_and_so_is_anything_else(kind: type[Exception], method: Any) -> None:
    class Starving(CoarseModel):
        def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
            raise kind("no room")

    examples = [Example(name, (1, 2), (2, 3, 1)) for name in ("one", "two")]
    expected: Any = (ModelError, "single row") if kind is torch.OutOfMemoryError else (RuntimeError, "no room")
    with pytest.raises(expected[0], match=expected[1]):
        find_near(Starving(5), examples, Scheme(top_k=4), method=method, tolerance=1)


@pytest.mark.parametrize("method", ["fork", "beam"])
@pytest.mark.parametrize(
    "scheme", [Scheme(top_k=3), Scheme(top_k=None), Scheme(top_k=None, top_p=0.9), GREEDY], ids=str
)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_logits_are_an_error_that_names_the_example(value: float, scheme: Scheme, method: Any) -> None:
    class Broken(CoarseModel):
        def logits_after(self, history: tuple[int, ...]) -> np.ndarray:
            logits = super().logits_after(history).copy()
            if history[:2] == (4, 4) and len(history) >= 3:
                logits[2] = value
            return logits

    examples = [Example("sound", (1, 2), (3, 0, 1)), Example("broken", (4, 4), (3, 0, 1))]
    with pytest.raises(ModelError, match="'broken'"):
        find_near(Broken(5), examples, scheme, method=method, tolerance=1, width=30)


# --- a real model


@pytest.mark.parametrize("method", ["fork", "beam"])
def test_kept_keys_change_nothing(bundled: Any, alice: str, method: Any) -> None:
    """Searches over keys and values that continuations share, and over whole histories fed anew."""
    examples = rote.windows(alice[20_000:21_500], bundled.tokenizer, Windows(20, 10, 150))
    examples += rote.windows(alice[50_000:50_500], bundled.tokenizer, Windows(14, 7, 200))
    examples = [Example(str(i), e.prefix, e.suffix) for i, e in enumerate(examples)]
    options: dict[str, Any] = {"tolerance": 2, "width": 4, "method": method}
    kept = find_near(bundled, examples, **options)
    with mock.patch.object(type(bundled), "memory", lambda self, positions: Replay(self, positions)):
        anew = find_near(bundled, examples, **options)
    exempt = 0
    for a, b, own in zip(kept, anew, verbatim(bundled, examples), strict=True):
        # A token at the border of the top 40 may fall on either side, and the search goes another way from there.
        if a.token_evals != b.token_evals or not np.allclose(a.by_tolerance, b.by_tolerance, atol=1e-4, rtol=0):
            exempt += 1
        if method == "fork" and not (np.abs(own.margins) < bundled.logit_tolerance).any():
            assert a.by_tolerance[0] == pytest.approx((own.prob, own.prob), abs=1e-4)
    assert exempt <= 0.1 * len(examples)
