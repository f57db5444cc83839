"""Scoring under min-p: every number against the definition, and what is given up early is certain."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote import Example, Scheme, verbatim
from tests.cases import cases
from tests.extraction.near.test_search import CoarseModel
from tests.extraction.test_verbatim import Unsteady
from tests.reference import decoding

SCHEMES = [
    Scheme(top_k=None, min_p=0.1),
    Scheme(0.7, None, None, 0.4),
    Scheme(top_k=2, min_p=0.03),
    Scheme(1.7, None, 0.871, 0.1),
    Scheme(top_k=3, top_p=0.871, min_p=0.4),
]


def some_examples(seed: int, *, count: int, length: int) -> list[Example]:
    rng = np.random.default_rng(seed)
    return [Example(str(i), (i % 5,), tuple(rng.integers(0, 5, length).tolist())) for i in range(count)]


@cases(60)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 1.0]), st.integers(1, 4))
def test_every_token_is_what_the_definition_says(seed: int, grid: float, length: int) -> None:
    model = CoarseModel(5, seed=seed, grid=grid)
    examples = some_examples(seed, count=4, length=length)
    results = iter(verbatim(model, examples, SCHEMES))
    for example in examples:
        for scheme in SCHEMES:
            got, options = next(results), (scheme.temperature, scheme.top_k, scheme.top_p, scheme.min_p)
            assert (got.example_id, got.scheme) == (example.id, scheme)
            for t, token in enumerate(example.suffix):
                history = example.prefix + example.suffix[:t]
                row = np.asarray(model.logits_after(history), dtype=np.float32).astype(np.float64)
                assert got.token_log_probs[t] == pytest.approx(decoding.log_prob(row, token, *options), abs=1e-5)
                assert got.margins[t] == pytest.approx(decoding.margin(row, token, *options), abs=1e-4)


@cases(30)
@given(st.integers(0, 10_000), st.floats(1e-4, 0.9), st.integers(1, 6))
def test_stopping_early_changes_nothing_at_or_above_tau(seed: int, tau: float, length: int) -> None:
    model, examples = CoarseModel(5, seed=seed), some_examples(seed, count=60, length=length)
    for a, b in zip(verbatim(model, examples, SCHEMES, tau=tau), verbatim(model, examples, SCHEMES), strict=True):
        assert a.greedy == b.greedy
        if a.bounded:
            assert b.log_prob <= a.log_prob < math.log(tau)
        else:
            assert a.log_prob == b.log_prob


class Crowded(Unsteady):
    """Many tokens stand just above the floor of min_p = 0.2, and all of them fall below it with the least change."""

    def logits_after(self, history: tuple[int, ...]) -> np.ndarray:
        drawn = np.random.default_rng([self.seed, len(history), history[-1]])
        steps = drawn.choice([0.0, 0.02, 0.06, 0.3], size=self.vocabulary)
        return np.where(np.arange(self.vocabulary) == drawn.integers(2), 0.0, math.log(0.2) + steps)


@cases(120)
@given(st.data())
def test_what_is_given_up_is_certain_whatever_another_pass_says(data: st.DataObject) -> None:
    """A token that drops out of the support leaves more to the others, and with min-p all may drop out at once."""
    seed, grid = data.draw(st.integers(0, 10**6)), data.draw(st.sampled_from([0.5, 1.0, 3.0]))
    model = data.draw(st.sampled_from([Unsteady, Crowded]))(5, seed=seed, grid=grid, order=2)
    scheme = Scheme(
        temperature=1.0 if isinstance(model, Crowded) else data.draw(st.sampled_from([0.1, 0.3, 1.0, 2.0])),
        top_k=data.draw(st.sampled_from([None, None, 2, 4])),
        top_p=data.draw(st.sampled_from([None, None, 0.613, 0.9])),
        min_p=0.2 if isinstance(model, Crowded) else data.draw(st.sampled_from([1.0, 0.6, 0.2, 0.05])),
    )
    examples = some_examples(seed, count=30, length=data.draw(st.integers(2, 12)))
    tau = data.draw(st.sampled_from([0.01, 0.2, 0.9, 1.0]))
    early = verbatim(model, examples, [scheme], tau=tau)
    for _ in range(4):
        for a, b in zip(early, verbatim(model, examples, [scheme]), strict=True):
            if a.bounded:
                assert b.log_prob <= a.log_prob + 1e-6
                assert a.log_prob < math.log(tau)
                assert not a.greedy
                assert not b.greedy
