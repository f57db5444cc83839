"""Attacks against outputs that are written down one by one: log-probs, greedy, beams, costs, budgets, going on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rote import InputError, ModelError
from rote.extraction.attack import beam
from rote.extraction.attack.options import Budget, Plan, as_budget, typed_budget
from rote.extraction.attack.rounds import Found, Round
from rote.extraction.attack.search import affordable_width, search
from rote.models.memory import Replay
from tests.cases import cases
from tests.fakes import HashModel
from tests.reference import attack as slow

Prefixes = list[tuple[int, ...]]


class CountingModel(HashModel):
    """Counts the positions that it is fed, BOS apart."""

    fed = 0

    def memory(self, positions: int) -> Any:
        model = self

        class Counted(Replay):
            def feed(self, tokens: Tensor, past: Tensor, place: Tensor, seen: Tensor) -> Tensor:
                new = place >= 0
                first = new & (seen.sum(2) == 1) if model.bos_id is not None else torch.zeros_like(new)
                model.fed += int((new & ~first).sum())
                return super().feed(tokens, past, place, seen)

        return Counted(self, positions)


def plan(method: Any, suffix: int, evals: int, **more: Any) -> Plan:
    own: dict[str, Any] = {}
    if method == "sample":
        own = {"top_k": 3, "temperature": 1.0, "seed": 0}
    if method == "beam":
        own = {"width": 2}
    return Plan(
        method=method, suffix=suffix, budget=Budget(evals=evals), **{"rows": 4, "positions": 10_000, **own, **more}
    )


def timeless(rounds: Sequence[Round]) -> list[Round]:
    return [replace(r, seconds=0.0) for r in rounds]


def all_found(rounds: Sequence[Round]) -> list[Found]:
    return [f for r in rounds for f in r.found]


def prompt_of(model: HashModel, prefix: tuple[int, ...]) -> tuple[int, ...]:
    return prefix if model.bos_id is None else (model.bos_id, *prefix)


worlds = st.builds(
    lambda seed, vocabulary, bos, prefixes: (
        CountingModel(vocabulary, bos_id=0 if bos else None, seed=seed),
        [tuple(t % vocabulary for t in prefix) for prefix in prefixes],
    ),
    st.integers(0, 10**6),
    st.integers(2, 5),
    st.booleans(),
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=7),
)
methods = st.sampled_from(["greedy", "sample", "beam", "ranked"])


@given(worlds, methods, st.integers(1, 5), st.integers(1, 300))
@cases(60)
def test_every_log_prob_is_the_teacher_forced_one_and_the_budget_is_kept(
    world: tuple[CountingModel, Prefixes], method: str, suffix: int, more: int
) -> None:
    model, prefixes = world
    evals = (max(map(len, prefixes)) + suffix * 2) + more
    rounds = list(search(model, prefixes, plan(method, suffix, evals)))
    found = all_found(rounds)
    assert found
    assert len({(f.example, f.suffix) for f in found}) == len(found)
    for one in found:
        expected = slow.token_log_probs(model.logits_after, prompt_of(model, prefixes[one.example]), one.suffix)
        assert one.log_prob == pytest.approx(math.fsum(expected), abs=1e-5)
        assert one.least == pytest.approx(min(expected), abs=1e-5)
    assert rounds[-1].token_evals == model.fed <= evals
    assert [r.token_evals for r in rounds] == sorted(r.token_evals for r in rounds)


@given(worlds, methods, st.integers(2, 5), st.integers(1, 250), st.sampled_from([60, 10_000]), st.data())
@cases(60)
def test_a_search_that_goes_on_finds_what_an_undisturbed_one_does(
    world: tuple[CountingModel, Prefixes], method: str, suffix: int, more: int, positions: int, data: st.DataObject
) -> None:
    model, prefixes = world
    evals = (max(map(len, prefixes)) + suffix * 2) * 3 + more
    asked = plan(method, suffix, evals, rows=2, positions=positions)
    whole = list(search(model, prefixes, asked))
    cut = data.draw(st.integers(0, len(whole)))
    assert timeless(list(search(model, prefixes, asked, whole[:cut]))) == timeless(whole[cut:])


@given(worlds, st.integers(1, 4))
@cases(20)
def test_greedy_is_argmax_decoding(world: tuple[CountingModel, Prefixes], suffix: int) -> None:
    model, prefixes = world
    for method in ("greedy", "ranked"):
        least = sum(len(prefix) + suffix - 1 for prefix in prefixes)  # a shared beam that pays for no more is greedy
        found = all_found(list(search(model, prefixes, plan(method, suffix, least, rows=3))))
        firsts = {f.example: f for f in reversed(found)}
        for example, prefix in enumerate(prefixes):
            assert firsts[example].suffix == slow.greedy(model.logits_after, prompt_of(model, prefix), suffix)
        assert method == "ranked" or len(found) == len(prefixes)


@given(worlds, st.integers(1, 4), st.integers(1, 30))
@cases(30)
def test_beams_are_those_of_the_slow_search(world: tuple[CountingModel, Prefixes], suffix: int, width: int) -> None:
    model, prefixes = world
    rounds = list(search(model, prefixes, plan("beam", suffix, 10**6, width=width)))
    fed = 0
    for example, prefix in enumerate(prefixes):
        own = [f.suffix for f in all_found(rounds) if f.example == example]
        expected, cost = slow.beam(model.logits_after, prompt_of(model, prefix), suffix, width)
        assert own == expected
        fed += cost - (model.bos_id is not None)
    assert rounds[-1].token_evals == fed


@given(worlds, st.integers(1, 5), st.integers(0, 150))
@cases(40)
def test_shared_beams_are_those_of_the_slow_search(
    world: tuple[CountingModel, Prefixes], suffix: int, more: int
) -> None:
    model, prefixes = world
    evals = sum(len(p) + suffix - 1 for p in prefixes) + more
    rounds = list(search(model, prefixes, plan("ranked", suffix, evals, rows=10)))
    prompts = [prompt_of(model, prefix) for prefix in prefixes]
    expected, fed = slow.shared(model.logits_after, prompts, suffix, evals, bos=int(model.bos_id is not None))
    assert [(f.example, f.suffix) for f in all_found(rounds)] == expected
    assert rounds[-1].token_evals == fed <= evals


@given(worlds, st.integers(1, 4))
@cases(20)
def test_a_shared_beam_without_limits_finds_the_likeliest_outputs(
    world: tuple[CountingModel, Prefixes], suffix: int
) -> None:
    model, prefixes = world
    found = all_found(list(search(model, prefixes, plan("ranked", suffix, 10**6, rows=3, positions=10**6))))
    for example, prefix in enumerate(prefixes):
        every = slow.every_output(model.logits_after, prompt_of(model, prefix), suffix, model.vocabulary)
        own = [f.log_prob for f in found if f.example == example]
        assert own == pytest.approx(sorted(every.values(), reverse=True)[: beam.LAST], abs=1e-5)


def test_samples_are_drawn_under_top_k_and_temperature() -> None:
    model, prefixes = HashModel(6, seed=1), [(1, 2)] * 3000
    asked = plan("sample", 1, 6000, top_k=3, temperature=2.0, rows=512, positions=100_000)
    found = all_found(list(search(model, prefixes, asked)))
    log_probs = slow.log_softmax(model.logits_after((1, 2)))
    top = sorted(range(6), key=lambda t: -log_probs[t])[:3]
    weights = [math.exp(log_probs[t] / 2) for t in top]
    counts = [sum(f.suffix == (t,) for f in found) for t in top]
    assert sum(counts) == len(found) == 3000
    for count, weight in zip(counts, weights, strict=True):
        share = weight / sum(weights)
        assert abs(count - 3000 * share) < 4 * math.sqrt(3000 * share * (1 - share))


def test_samples_follow_from_the_seed() -> None:
    model, prefixes = HashModel(6, seed=1), [(1, 2), (2, 3)]
    one, same, other = (
        all_found(list(search(model, prefixes, plan("sample", 4, 80, seed=seed, rows=rows))))
        for seed, rows in ((0, 4), (0, 4), (1, 4))
    )
    assert one == same
    assert {f.suffix for f in one} != {f.suffix for f in other}


def test_a_logit_that_is_no_number_is_refused_by_example() -> None:
    class Broken(HashModel):
        def logits_after(self, history: tuple[int, ...]) -> np.ndarray:
            logits = super().logits_after(history)
            return logits * np.nan if history[:1] == (3,) else logits

    for method in ("greedy", "sample", "beam", "ranked"):
        with pytest.raises(ModelError, match="NaN or infinite at example '1'"):
            list(search(Broken(5), [(1, 2), (3, 2)], plan(method, 3, 1000)))


@pytest.mark.parametrize("method", ["greedy", "beam", "sample", "ranked"])
def test_a_budget_in_seconds_ends_a_search(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, clock = HashModel(5), [0.0]

    def perf_counter() -> float:
        clock[0] += 0.01
        return clock[0]

    monkeypatch.setattr("rote.extraction.attack.rounds.time.perf_counter", perf_counter)
    prefixes = [(i % 5, 2) for i in range(12)]
    for seconds in (0.3, 1.5):
        asked = replace(plan(method, 4, 1), budget=Budget(seconds=seconds))
        rounds = list(search(model, prefixes, asked))
        assert all_found(rounds)
        assert rounds[-1].seconds <= seconds + 0.1
        if seconds > 1:
            assert {f.example for f in all_found(rounds)} == set(range(12))
            assert {r.stage for r in rounds} == ({0, 1} if method in ("sample", "ranked") else {0})
        for cut in {
            1,
            len(rounds) // 2,
            len(rounds) - 1,
        }:  # going on deals with every example once a stage, and finds nothing twice
            whole = [*rounds[:cut], *search(model, prefixes, asked, rounds[:cut])]
            found = all_found(whole)
            assert len({(f.example, f.suffix) for f in found}) == len(found)
            assert sum(r.examples for r in whole if not r.stage) <= 12


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("500000", Budget(evals=500_000)), ("1,000", Budget(evals=1000)), ("300s", Budget(seconds=300)),
        ("5m", Budget(seconds=300)), ("1.5 h", Budget(seconds=5400)),
    ],
)  # fmt: skip
def test_budgets_as_typed(text: str, budget: Budget) -> None:
    assert typed_budget(text) == budget
    assert as_budget(text) == budget


@pytest.mark.parametrize("given", ["", "0", "-5", "5x", "0s", 0, -1, 2.5, None, True])
def test_what_is_no_budget_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match="budget"):
        as_budget(given)


def test_a_budget_that_pays_for_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="give at least 5"):
        list(search(HashModel(5), [(1, 2)], plan("greedy", 4, 4)))
    with pytest.raises(InputError, match="more than the model's context of 5"):
        list(search(HashModel(5, context_length=5), [(1, 2)], plan("greedy", 5, 1000)))
    with pytest.raises(ModelError, match="positions fit into this device's memory"):
        list(search(HashModel(5), [(1, 2)], plan("greedy", 4, 100, positions=3)))


def test_the_widest_beam_that_is_paid_for() -> None:
    prefixes, suffix = [[1, 2, 3]] * 4, 5
    width = affordable_width(prefixes, suffix, Budget(evals=4 * (3 + 4 * 6) + 3), 50)
    assert width == 6
