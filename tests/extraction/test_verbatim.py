"""The scorer against an independent float64 computation, against enumeration, and against bad input."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rote
from rote import GREEDY, Example, Scheme, verbatim
from rote.errors import InputError, ModelError
from tests.fakes import HashModel
from tests.reference import verbatim as reference

SCHEMES = [
    Scheme(),
    Scheme(temperature=0.7, top_k=None),
    Scheme(top_k=None, top_p=0.9),
    Scheme(top_k=40, top_p=0.9),
    GREEDY,
]


def known_and_unknown(model: Any, alice: str, gatsby: str) -> list[Example]:
    """Windows of a memorized and of an unseen text: probabilities near 1, tiny, and zero."""
    seen = rote.windows(alice[20_000:24_000], model.tokenizer, stride=200)
    unseen = rote.windows(gatsby[5_000:9_000], model.tokenizer, stride=400)
    return [Example(f"{name}{e.id}", e.prefix, e.suffix) for name, part in (("a", seen), ("g", unseen)) for e in part]


def compare(got: list[rote.Verbatim], want: list[rote.Verbatim], tolerance: float, logit_tolerance: float) -> int:
    """Assert equality but for tokens at the border of the support; return how many were exempted."""
    exempt = 0
    for a, b in zip(got, want, strict=True):
        assert (a.example_id, a.scheme) == (b.example_id, b.scheme)
        at_border = (np.abs(a.margins) < logit_tolerance) | (np.abs(b.margins) < logit_tolerance)
        exempt += int(at_border.sum())
        np.testing.assert_allclose(
            a.token_log_probs[~at_border], b.token_log_probs[~at_border], atol=2 * logit_tolerance, rtol=0
        )
        if not at_border.any():
            assert math.isinf(a.log_prob) == math.isinf(b.log_prob)
            if math.isfinite(a.log_prob):
                assert abs(a.log_prob - b.log_prob) < tolerance
    return exempt


def test_agrees_with_float64_from_raw_logits(bundled: Any, alice: str, gatsby: str) -> None:
    examples = known_and_unknown(bundled, alice, gatsby)
    results = iter(verbatim(bundled, examples, SCHEMES))
    skipped = 0
    for example in examples:
        rows = reference.suffix_logits(bundled._model, list(example.prefix), list(example.suffix), bundled.bos_id)
        for scheme in SCHEMES:
            got = next(results)
            assert got.example_id == example.id
            assert got.scheme == scheme
            if (np.abs(got.margins) < bundled.logit_tolerance).any():
                skipped += 1
                continue
            want = reference.log_p_z(rows, list(example.suffix), scheme.temperature, scheme.top_k, scheme.top_p)
            assert math.isinf(got.log_prob) == math.isinf(want)
            if math.isfinite(want):
                assert got.log_prob == pytest.approx(want, abs=1e-4)
    assert skipped <= 1


def test_batch_mates_do_not_change_a_number(bundled: Any, alice: str, gatsby: str) -> None:
    examples = known_and_unknown(bundled, alice, gatsby)
    long = rote.windows(alice[30_000:34_000], bundled.tokenizer, prefix=300, suffix=200, stride=1000)
    alone = [r for e in examples for r in verbatim(bundled, [e], SCHEMES, batch_size=1)]
    together = verbatim(bundled, examples, SCHEMES, batch_size=64)
    beside_long = verbatim(bundled, [*examples, *long], SCHEMES, batch_size=64)[: len(together)]
    exempt = compare(together, alone, 1e-3, bundled.logit_tolerance)
    exempt += compare(beside_long, alone, 1e-3, bundled.logit_tolerance)
    assert exempt < 0.01 * sum(len(r.margins) for r in alone)


def test_one_pass_gives_each_scheme_what_it_gets_alone(bundled: Any, alice: str, gatsby: str) -> None:
    examples = known_and_unknown(bundled, alice, gatsby)[:6]
    together = verbatim(bundled, examples, SCHEMES)
    for index, scheme in enumerate(SCHEMES):
        for a, b in zip(together[index :: len(SCHEMES)], verbatim(bundled, examples, [scheme]), strict=True):
            assert a.log_prob == b.log_prob


def test_greedy_flag_is_what_generation_does(bundled: Any, alice: str, gatsby: str) -> None:
    examples = known_and_unknown(bundled, alice, gatsby)
    for example, result in zip(examples, verbatim(bundled, examples), strict=True):
        prompt = torch.tensor([[bundled.bos_id, *example.prefix]])
        mask, length = torch.ones_like(prompt), len(example.suffix)
        made = bundled._model.generate(
            prompt, attention_mask=mask, max_new_tokens=length, do_sample=False, pad_token_id=0
        )
        assert result.greedy == (made[0, prompt.shape[1] :].tolist() == list(example.suffix))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 3), st.sampled_from([None, 0]), st.integers(1, 3))
def test_probabilities_of_all_suffixes_sum_to_one(
    seed: int, vocabulary: int, length: int, bos: int | None, k: int
) -> None:
    model = HashModel(vocabulary, bos_id=bos, seed=seed)
    nucleus, warm = Scheme(top_k=None, top_p=0.8), Scheme(temperature=0.5, top_k=None)
    schemes = [Scheme(top_k=min(k, vocabulary)), nucleus, warm, GREEDY]
    suffixes = list(itertools.product(range(vocabulary), repeat=length))
    examples = [Example(str(i), (1, 0), s) for i, s in enumerate(suffixes)]
    results = verbatim(model, examples, schemes)
    for index in range(len(schemes)):
        assert math.fsum(r.prob for r in results[index :: len(schemes)]) == pytest.approx(1, abs=1e-5)
    assert sum(r.greedy for r in results[:: len(schemes)]) == 1


def test_each_position_is_predicted_from_all_before_it_and_nothing_else() -> None:
    model = HashModel(7, bos_id=3)
    example = Example("x", (1, 2), (4, 0, 6))
    got = verbatim(model, [example, Example("longer", (1,) * 9, (2,) * 8)], [Scheme(top_k=None)])[0]
    history: tuple[int, ...] = (3, 1, 2)
    for t, token in enumerate(example.suffix):
        logits = torch.tensor(model.logits_after(history))
        assert got.token_log_probs[t] == pytest.approx(float(torch.log_softmax(logits, 0)[token]), abs=1e-5)
        history += (token,)
    assert got.token_evals == 2 + 3 - 1


def test_a_token_outside_the_support_gives_zero_not_nan() -> None:
    model = HashModel(6)
    results = verbatim(model, [Example(str(i), (0,), (i, 1)) for i in range(6)], [Scheme(top_k=1)])
    assert sum(r.log_prob == -math.inf and r.prob == 0.0 for r in results) >= 5


def test_no_bos_means_none_is_fed() -> None:
    model = HashModel()
    verbatim(model, [Example("x", (1, 2), (3,))])
    assert model.calls == [(1, 2)]


def test_results_keep_the_order_given() -> None:
    model = HashModel(5)
    examples = [Example(f"e{i}", (1,) * (1 + i * 7 % 11), (2,) * (1 + i % 3)) for i in range(40)]
    results = verbatim(model, examples, [Scheme(top_k=2), GREEDY])
    assert [r.example_id for r in results[::2]] == [e.id for e in examples]
    assert [r.scheme for r in results[:2]] == [Scheme(top_k=2), GREEDY]


@pytest.mark.parametrize("tau", [1e-3, 0.05])
@pytest.mark.parametrize("book", ["alice", "gatsby"])
def test_stopping_early_changes_nothing_at_or_above_tau(bundled: Any, book: str, tau: float, request: Any) -> None:
    text = request.getfixturevalue(book)[40_000:44_000]
    examples = rote.windows(text, bundled.tokenizer, stride=20)
    schemes = [Scheme(), Scheme(temperature=0.7, top_k=None)]
    full = verbatim(bundled, examples, schemes)
    early = verbatim(bundled, examples, schemes, tau=tau)
    for a, b in zip(early, full, strict=True):
        assert a.greedy == b.greedy
        if b.prob >= tau:
            assert not a.stopped
        if a.stopped:
            assert b.log_prob <= a.log_prob < math.log(tau)
        else:
            assert a.log_prob == pytest.approx(b.log_prob, abs=1e-3) or a.log_prob == b.log_prob
    spent, plain = sum(r.token_evals for r in early[::2]), sum(r.token_evals for r in full[::2])
    assert spent <= (1.05 if book == "alice" else 0.65) * plain


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(1e-4, 0.9), st.integers(1, 6))
def test_stopping_early_is_safe_on_random_models(seed: int, tau: float, length: int) -> None:
    model = HashModel(4, seed=seed)
    rng = np.random.default_rng(seed)
    examples = [Example(str(i), (int(i % 4),), tuple(rng.integers(0, 4, length).tolist())) for i in range(60)]
    schemes = [Scheme(top_k=3), Scheme(temperature=2.0, top_k=None, top_p=0.9)]
    for a, b in zip(verbatim(model, examples, schemes, tau=tau), verbatim(model, examples, schemes), strict=True):
        assert a.greedy == b.greedy
        if a.stopped:
            assert b.log_prob <= a.log_prob < math.log(tau)
        else:
            assert a.log_prob == b.log_prob


class Hungry(HashModel):
    """Runs out of memory above four rows."""

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        if len(tokens) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().hidden(tokens)


def test_out_of_memory_shrinks_the_batch_and_says_so() -> None:
    examples = [Example(str(i), (1, 2), (i % 5, 3)) for i in range(50)]
    with pytest.warns(RuntimeWarning, match="out of memory: going on with batches of"):
        got = verbatim(Hungry(), examples)
    want = verbatim(HashModel(), examples)
    assert [r.log_prob for r in got] == [r.log_prob for r in want]


def test_out_of_memory_with_one_example_is_an_error() -> None:
    class Starving(HashModel):
        def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(ModelError, match="single example"):
        verbatim(Starving(), [Example("x", (1,), (2,))])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_logits_are_an_error_that_names_the_example(value: float) -> None:
    class Broken(HashModel):
        def head(self, hidden: torch.Tensor) -> torch.Tensor:
            logits = hidden.clone()
            logits[-1, 0] = value
            return logits

    with pytest.raises(ModelError, match=r"'third', suffix token 1"):
        verbatim(Broken(), [Example(i, (1, 2), (3, 4)) for i in ("first", "second", "third")], batch_size=3)


def test_too_long_examples_are_named() -> None:
    model = HashModel(context_length=10, bos_id=0)
    examples = [Example("fits", (1,) * 5, (1,) * 5), Example("too-long", (1,) * 6, (1,) * 5)]
    with pytest.raises(InputError, match=r"context of 10 .*'too-long' \(11 positions\)"):
        verbatim(model, examples)
    verbatim(model, examples[:1])


def test_ids_of_another_tokenizer_are_refused() -> None:
    with pytest.raises(InputError, match=r"'x' has token id 5, .*another tokenizer"):
        verbatim(HashModel(5), [Example("x", (1,), (5,))], [Scheme(top_k=None)])


def test_top_k_larger_than_the_vocabulary_is_refused() -> None:
    with pytest.raises(InputError, match="top_k=6 is larger than the model's vocabulary of 5"):
        verbatim(HashModel(5), [Example("x", (1,), (2,))], [Scheme(top_k=6)])


def test_an_empty_prefix_needs_bos() -> None:
    example = Example("x", (), (1, 2))
    with pytest.raises(InputError, match="empty prefix"):
        verbatim(HashModel(), [example])
    assert verbatim(HashModel(bos_id=0), [example])[0].token_evals == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [({"tau": 0.0}, "tau"), ({"tau": 2.0}, "tau"), ({"batch_size": 0}, "batch_size"), ({"schemes": []}, "scheme")],
)
def test_impossible_options_are_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        verbatim(HashModel(), [Example("x", (1,), (2,))], **options)


def test_no_examples_no_results() -> None:
    assert verbatim(HashModel(), []) == []
