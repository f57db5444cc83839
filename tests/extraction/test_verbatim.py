"""The scorer against an independent float64 computation, against enumeration, and against bad input."""

from __future__ import annotations

import itertools
import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rote
from rote import GREEDY, Example, Scheme, Verbatim, verbatim
from rote.errors import InputError, ModelError
from rote.extraction.passes import HEAD_BYTES
from tests.cases import all_cases, cases
from tests.extraction.near.test_search import CoarseModel
from tests.fakes import HashModel
from tests.reference import decoding
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
    seen = rote.windows(alice[20_000:24_000], model.tokenizer, rote.Windows(stride=200 if all_cases() else 400))
    unseen = rote.windows(gatsby[5_000:9_000], model.tokenizer, rote.Windows(stride=400 if all_cases() else 700))
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


@cases(30)
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
    assert sum(bool(r.greedy) for r in results[:: len(schemes)]) == 1


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


@cases(40)
@given(st.integers(0, 10_000), st.floats(1e-4, 0.9), st.integers(1, 6))
def test_stopping_early_is_safe_on_random_models(seed: int, tau: float, length: int) -> None:
    model = HashModel(4, seed=seed)
    rng = np.random.default_rng(seed)
    examples = [Example(str(i), (int(i % 4),), tuple(rng.integers(0, 4, length).tolist())) for i in range(60)]
    schemes = [Scheme(top_k=3), Scheme(temperature=2.0, top_k=None, top_p=0.9)]
    for a, b in zip(verbatim(model, examples, schemes, tau=tau), verbatim(model, examples, schemes), strict=True):
        assert a.greedy == b.greedy
        if a.bounded:
            assert b.log_prob <= a.log_prob < math.log(tau)
        else:
            assert a.log_prob == b.log_prob


class Unsteady(CoarseModel):
    """Every pass gives logits that differ a little, as other batch-mates or another device would make them."""

    logit_tolerance = 0.05
    passes = 0

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        noise = np.random.default_rng([self.seed, self.passes]).uniform(-0.5, 0.5, (*tokens.shape, self.vocabulary))
        return super().hidden(tokens) + torch.tensor(noise * self.logit_tolerance, dtype=torch.float32)


@cases(150)
@given(st.data())
def test_what_is_given_up_is_certain_whatever_another_pass_says(data: st.DataObject) -> None:
    """In the cold logits count for more, and a token that drops out of the support leaves more to the others."""
    model = Unsteady(
        5, seed=data.draw(st.integers(0, 10**6)), grid=data.draw(st.sampled_from([0.5, 1.0, 3.0])), order=2
    )
    temperature, top_k = data.draw(st.sampled_from([0.1, 0.3, 1.0, 2.0])), data.draw(st.sampled_from([None, 1, 2, 4]))
    scheme = Scheme(temperature, top_k, data.draw(st.sampled_from([None, None, 0.3, 0.613, 0.9])))
    length = data.draw(st.integers(2, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    examples = [Example(str(i), (i % 5,), tuple(rng.integers(0, 5, length).tolist())) for i in range(30)]
    tau = data.draw(st.sampled_from([0.01, 0.2, 0.9, 1.0]))
    early = verbatim(model, examples, [scheme], tau=tau)
    for _ in range(4):
        for a, b in zip(early, verbatim(model, examples, [scheme]), strict=True):
            if a.bounded:
                assert b.log_prob <= a.log_prob + 1e-6
                assert a.log_prob < math.log(tau)
                assert not a.greedy
                assert not b.greedy


@cases(80)
@given(st.data())
def test_every_number_of_every_example(data: st.DataObject) -> None:
    """Lengths, batches and chunks of all sizes; what a pass costs, and what giving up early saves."""
    vocabulary, bos = data.draw(st.integers(2, 5)), data.draw(st.sampled_from([None, 1]))
    model = CoarseModel(vocabulary, seed=data.draw(st.integers(0, 10**6)), bos_id=bos)
    model.batch_tokens = data.draw(st.sampled_from([1, 7, 30, 4096]))
    token = st.integers(0, vocabulary - 1)
    texts = st.tuples(st.lists(token, min_size=1, max_size=4), st.lists(token, min_size=1, max_size=5))
    examples = [
        Example(str(i), tuple(prefix), tuple(suffix))
        for i, (prefix, suffix) in enumerate(data.draw(st.lists(texts, min_size=1, max_size=40)))
    ]
    schemes = [Scheme(top_k=2), Scheme(0.7, None, 0.871), GREEDY][: data.draw(st.integers(1, 3))]
    tau = data.draw(st.sampled_from([None, None, 0.001, 0.1, 0.5]))
    size: Any = data.draw(st.sampled_from(["auto", 1, 3]))
    told: list[tuple[str, int, int]] = []
    with mock.patch.dict(HEAD_BYTES, {"cpu": data.draw(st.integers(1, 8)) * vocabulary * 4}):
        results = iter(
            verbatim(model, examples, schemes, tau=tau, batch_size=size, progress=lambda *what: told.append(what))
        )
    assert told == sorted(told)
    assert {(what, total) for what, _, total in told} == {("scored", len(examples))}
    assert told[-1][1] == len(examples)
    for number, example in enumerate(examples):
        histories = [((bos,) if bos is not None else ()) + example.prefix + example.suffix[:t] for t in range(9)]
        rows = [
            np.asarray(model.logits_after(history), dtype=np.float32).astype(np.float64)
            for history in histories[: len(example.suffix)]
        ]
        greedy = all(decoding.support(r, 0, None, None) == [z] for r, z in zip(rows, example.suffix, strict=True))
        for scheme in schemes:
            got, options = next(results), (scheme.temperature, scheme.top_k, scheme.top_p)
            assert (got.example_id, got.scheme, got.greedy) == (example.id, scheme, greedy)
            check_tokens(got, example, rows, options)
            whole, looked = len(example.prefix) + len(example.suffix) - 1, len(got.ranks)
            total = sum(decoding.log_prob(r, z, *options) for r, z in zip(rows, example.suffix, strict=True))
            if got.bounded:
                assert tau is not None
                assert not greedy
                assert total <= got.log_prob < math.log(tau)
                assert got.token_evals == len(example.prefix) + looked - 1
                continue
            assert looked == len(example.suffix)
            assert got.log_prob == pytest.approx(total, abs=1e-5)
            assert got.prob == pytest.approx(math.exp(total), abs=1e-5)
            pilot = number % max(1, min(32, len(examples) // 8)) == 0
            assert got.token_evals == whole or (tau is not None and not pilot and whole < got.token_evals <= 2 * whole)


def check_tokens(got: Verbatim, example: Example, rows: list[np.ndarray], options: Any) -> None:
    looked = len(got.ranks)
    assert [len(a) for a in (got.token_log_probs, got.base_log_probs, got.margins)] == [looked] * 3
    for t, (row, token) in enumerate(zip(rows[:looked], example.suffix[:looked], strict=True)):
        assert got.ranks[t] == decoding.rank(row, token)
        assert got.base_log_probs[t] == pytest.approx(decoding.log_prob(row, token, 1, None, None), abs=1e-5)
        assert got.token_log_probs[t] == pytest.approx(decoding.log_prob(row, token, *options), abs=1e-5)
        assert got.margins[t] == pytest.approx(decoding.margin(row, token, *options), abs=1e-4)


class Known(HashModel):
    """Writes token 2 for certain; after a prefix of zeros, token 3 as the third."""

    def logits_after(self, history: tuple[int, ...]) -> np.ndarray:
        logits = np.full(self.vocabulary, -20.0)
        logits[3 if history[0] == 0 and len(history) == 12 else 2] = 20.0
        return logits


def test_what_is_exactly_at_tau_is_not_given_up() -> None:
    class Second(HashModel):
        """After a zero token 2 never comes; else it is the second of two for three tokens, then the only one."""

        logit_tolerance = 0.0

        def logits_after(self, history: tuple[int, ...]) -> np.ndarray:
            return np.array([-200.0, 0.5 if len(history) < 13 else -200.0, -200.0 if history[0] == 0 else 0.0])

    examples = [Example(str(i), (int(i == 5),) * 10, (2,) * 20) for i in range(64)]
    (plain,) = verbatim(Second(3), [examples[5]], [Scheme(top_k=None)])
    near = (plain.prob * (1 + n * 2**-53) for n in range(-8, 9))
    tau = next(t for t in near if math.log(t) == plain.log_prob)
    for asked, kept in ((tau, ["5"]), (tau * (1 + 2**-50), [])):
        results = verbatim(Second(3), examples, [Scheme(top_k=None)], tau=asked)
        assert [r.example_id for i, r in enumerate(results) if i % 8 and not r.bounded] == kept


@pytest.mark.parametrize("lost", range(9))
def test_giving_up_early_is_judged_on_one_example_in_eight(lost: int) -> None:
    """The first eight of 64 examples of 10 + 20 tokens are a pilot: `lost` of them could be given up after 3 tokens.

    That costs 8 * 12 + (8 - lost) * 29 evaluations instead of 8 * 29: it pays if it is less than 95% of them, for 4 or
    more. Then the others are given up after two tokens more.
    """
    examples = [Example(str(i), (0 if i % 8 or i < 8 * lost else 1,) * 10, (2,) * 20) for i in range(64)]
    results = verbatim(Known(5), examples, [Scheme(top_k=None)], tau=0.001)
    pilot, rest = results[::8], [r for i, r in enumerate(results) if i % 8]
    assert not any(r.bounded for r in pilot)
    assert {r.token_evals for r in pilot} == {29}
    assert {r.bounded for r in rest} == {lost >= 4}
    assert {(len(r.ranks), r.token_evals) for r in rest} == {(5, 14) if lost >= 4 else (20, 29)}


def test_a_pilot_is_one_in_thirty_two_of_many() -> None:
    examples = [Example(str(i), (0,) * 10, (2,) * 20) for i in range(320)]
    results = verbatim(Known(5), examples, [Scheme(top_k=None)], tau=0.001)
    assert [i for i, r in enumerate(results) if not r.bounded] == list(range(0, 320, 32))


@pytest.mark.parametrize(
    ("batch_tokens", "rows"), [(1, [1] * 6), (9, [1, 1, 1, 1, 1, 1]), (14, [2, 1, 1, 1, 1]), (100, [6])]
)
def test_batches_are_padded_to_their_longest_and_hold_no_more_positions_than_fit(
    batch_tokens: int, rows: list[int]
) -> None:
    model = HashModel(5, bos_id=0)
    model.batch_tokens = batch_tokens
    verbatim(model, [Example(str(i), (1,) * (4 + i), (2, 3)) for i in (3, 0, 5, 1, 4, 2)], [Scheme(top_k=2)])
    assert [count for count, _ in model.calls] == rows
    assert [width for _, width in model.calls] == list(np.cumsum(rows) + 5)


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


# --- the bundled model


@pytest.mark.scaled
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


@pytest.mark.scaled
def test_batch_mates_do_not_change_a_number(bundled: Any, alice: str, gatsby: str) -> None:
    examples = known_and_unknown(bundled, alice, gatsby)
    long = rote.windows(alice[30_000:34_000], bundled.tokenizer, rote.Windows(prefix=300, suffix=200, stride=1000))
    alone = [r for e in examples for r in verbatim(bundled, [e], SCHEMES, batch_size=1)]
    together = verbatim(bundled, examples, SCHEMES, batch_size=64)
    beside_long = verbatim(bundled, [*examples, *long], SCHEMES, batch_size=64)[: len(together)]
    exempt = compare(together, alone, 1e-3, bundled.logit_tolerance)
    exempt += compare(beside_long, alone, 1e-3, bundled.logit_tolerance)
    assert exempt < 0.01 * sum(len(r.margins) for r in alone)


@pytest.mark.scaled
def test_one_pass_gives_each_scheme_what_it_gets_alone(bundled: Any, alice: str, gatsby: str) -> None:
    examples = known_and_unknown(bundled, alice, gatsby)[:6]
    together = verbatim(bundled, examples, SCHEMES)
    for index, scheme in enumerate(SCHEMES):
        for a, b in zip(together[index :: len(SCHEMES)], verbatim(bundled, examples, [scheme]), strict=True):
            assert a.log_prob == b.log_prob


@pytest.mark.scaled
def test_greedy_flag_is_what_generation_does(bundled: Any, alice: str, gatsby: str) -> None:
    examples = known_and_unknown(bundled, alice, gatsby)
    for example, result in zip(examples, verbatim(bundled, examples), strict=True):
        prompt = torch.tensor([[bundled.bos_id, *example.prefix]])
        mask, length = torch.ones_like(prompt), len(example.suffix)
        made = bundled._model.generate(
            prompt, attention_mask=mask, max_new_tokens=length, do_sample=False, pad_token_id=0
        )
        assert result.greedy == (made[0, prompt.shape[1] :].tolist() == list(example.suffix))


TWO_SCHEMES = [Scheme(), Scheme(temperature=0.7, top_k=None)]


@pytest.fixture(scope="module", params=["alice", "gatsby"])
def in_full(request: Any, bundled: Any) -> tuple[str, list[Example], list[Verbatim]]:
    """A part of a book, scored to the last token."""
    text = request.getfixturevalue(request.param)[40_000:44_000]
    examples = rote.windows(text, bundled.tokenizer, rote.Windows(stride=20))
    return request.param, examples, verbatim(bundled, examples, TWO_SCHEMES)


@pytest.mark.parametrize("tau", [1e-3, 0.05])
def test_stopping_early_changes_nothing_at_or_above_tau(
    bundled: Any, in_full: tuple[str, list[Example], list[Verbatim]], tau: float
) -> None:
    book, examples, full = in_full
    early = verbatim(bundled, examples, TWO_SCHEMES, tau=tau)
    for a, b in zip(early, full, strict=True):
        assert a.greedy == b.greedy
        if b.prob >= tau:
            assert not a.bounded
        if a.bounded:
            assert b.log_prob <= a.log_prob < math.log(tau)
        else:
            assert a.log_prob == pytest.approx(b.log_prob, abs=1e-3) or a.log_prob == b.log_prob
    spent, plain = sum(r.token_evals for r in early[::2]), sum(r.token_evals for r in full[::2])
    assert spent <= (1.05 if book == "alice" else 0.65) * plain
