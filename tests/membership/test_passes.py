"""Whole texts as models read them, against float64 and one sequence at a time; and what no number can be had of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode
from transformers import AutoTokenizer

from rote.errors import InputError, ModelError
from rote.extraction.passes import HEAD_BYTES
from rote.membership.options import Reading
from rote.membership.passes import read_texts
from rote.membership.scores import TextRead, scores_of
from rote.models.base import BUNDLED
from rote.models.huggingface import HuggingFaceModel
from rote.tokens import BosPolicy
from tests import tiny
from tests.cases import cases
from tests.extraction.near.test_search import CoarseModel
from tests.fakes import HashModel
from tests.reference import membership as reference

CONTEXT = 24
ODD = [
    "a", " ", "A", "\n", "The Mock Turtle sighed DEEPLY, and drew the back of one flapper across his eyes.",
    "ἄνδρα μοι ἔννεπε, ΜΟΥ͂ΣΑ", "🦉", "👩🏽\u200d🚀🇬🇷", "e\u0301\u0323 Z̷̧̛", "İstanbul ẞ ß ŉ", "\u202eabc\u0000\ufeff",
    "<|begin|><s>", "𝔘𐍈", "عَرَبِيّ", "漢字かな交じり文", "a" * 60, "🦉" * 12,
]  # fmt: skip


def logits_of(model: HashModel) -> reference.Logits:
    """The logits of a model whose logits are known, as float32 holds them."""

    def logits(tokens: list[int]) -> Any:
        rows = [model.logits_after(tuple(tokens[: place + 1])) for place in range(len(tokens))]
        return np.array(rows, dtype=np.float32).astype(np.float64).reshape(len(tokens), -1)

    return logits


def windows_of(model: Any, reading: Reading, prefix: Sequence[int] = ()) -> tuple[int, int]:
    """What a reading means: `window` tokens of text, or what fits; less beside a prefix, and shorter strides."""
    room = model.context_length + 1 - (model.bos_id is not None)
    window = reading.window or room
    stride = reading.stride or max(1, window // 2)
    beside = min(window, room - len(prefix))
    return beside, stride if beside == window else max(1, stride * beside // window)


def agrees(
    got: TextRead, want: Sequence[reference.Token], *, close: float = 1e-5, least_sigma: float = 1e-4
) -> None:  # fmt: skip
    """Each log-prob, and each z-score as far as the deviation is not lost in the rounding of its logits."""
    assert got.log_probs.dtype == got.z_scores.dtype == np.float32
    assert got.log_probs.shape == got.z_scores.shape == (len(want),)
    assert np.isfinite(got.log_probs).all()
    assert np.isfinite(got.z_scores).all()
    assert (got.log_probs <= 0).all()
    np.testing.assert_allclose(got.log_probs, [each.log_prob for each in want], atol=close, rtol=close)
    for value, each in zip(got.z_scores.tolist(), want, strict=True):
        if each.sigma > least_sigma:
            assert value == pytest.approx(each.z, abs=2 * close / each.sigma, rel=2 * close * (1 + 1 / each.sigma))


# --- models of transformers


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(BUNDLED)


@pytest.fixture(scope="module", params=sorted(tiny.ARCHITECTURES))
def readers(request: Any, tokenizer: Any) -> dict[str, tuple[Any, reference.Reader]]:
    """A model by its BOS policy, and the same for the reference."""
    network = tiny.build(request.param, seed=5, max_position_embeddings=CONTEXT)
    logits = reference.float64(network)
    policies: list[BosPolicy] = ["always", "never"]
    models = {policy: HuggingFaceModel(network, tokenizer, bos=policy) for policy in policies}
    return {
        policy: (model, reference.Reader(logits, tokenizer, model.bos_id, 0, 0)) for policy, model in models.items()
    }


texts = st.one_of(
    st.sampled_from(ODD),
    st.lists(st.sampled_from(ODD[:10]), min_size=2, max_size=4).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=15),
)


@cases(20)
@given(st.data())
def test_every_score_of_every_text_is_that_of_float64(
    readers: dict[str, tuple[Any, reference.Reader]], data: st.DataObject
) -> None:
    """Texts of any lengths and letters side by side, in any batches, with BOS and without, in windows of all sizes."""
    policy = data.draw(st.sampled_from(["always", "never"]))
    model, reader = readers[policy]
    fewest = 1 if policy == "never" else 0
    some = st.lists(texts, min_size=1, max_size=4)
    chosen = [t for t in data.draw(some) if len(reference.tokens_of(t.lower(), reader.tokenizer)) > fewest]
    chosen = [t for t in chosen if len(reference.tokens_of(t, reader.tokenizer)) > fewest]
    window = data.draw(st.none() | st.integers(1 + fewest, CONTEXT))
    stride = data.draw(st.none() | st.integers(1, (window or CONTEXT) - fewest))
    reading = Reading(window=window, stride=stride)
    size: Any = data.draw(st.sampled_from(["auto", 1, 3]))
    prefix = data.draw(st.lists(st.integers(2, tiny.VOCABULARY - 1), min_size=1, max_size=CONTEXT // 2 - 1))

    def both(changed: Sequence[str], before: Sequence[int] = ()) -> Iterator[tuple[TextRead, list[reference.Token]]]:
        ids = [reference.tokens_of(text, reader.tokenizer) for text in changed]
        got = read_texts(model, ids, prefix=before, reading=reading, batch_size=size)
        width, step = windows_of(model, reading, before)
        with_windows = reader._replace(window=width, stride=step)
        want = [reference.read_text(text, with_windows, before) for text in changed]
        assert len(got) == len(want)
        return zip(got, want, strict=True)

    passes = [both(chosen), both([text.lower() for text in chosen]), both(chosen, prefix)]
    for text, own, lower, prefixed in zip(chosen, *passes, strict=True):
        for got, want in (own, lower, prefixed):
            agrees(got, want, close=1e-4)
        scores = scores_of(text, own[0], lowercase=lower[0], reference=lower[0], prefixed=prefixed[0])
        wanted = reference.scores(text, own[1], lowercase=lower[1], reference=lower[1], prefixed=prefixed[1])
        assert set(scores) == set(wanted) == set(reference.MEMBERS_ARE_HIGHER)
        for name, value in scores.items():
            assert value == pytest.approx(wanted[name], rel=2e-3, abs=2e-4), name


def test_batch_mates_and_padding_change_nothing(readers: dict[str, tuple[Any, reference.Reader]]) -> None:
    """Alone, together, beside long ones and in another order: within what the model itself varies by."""
    model, reader = readers["always"]
    ids = [reference.tokens_of(text, reader.tokenizer) for text in ODD]
    alone = [read_texts(model, [each], batch_size=1)[0] for each in ids]
    together = read_texts(model, ids, batch_size=len(ids))
    turned = read_texts(model, ids[::-1])[::-1]
    for one, *others in zip(alone, together, turned, strict=True):
        for other in others:
            assert one.token_evals == other.token_evals
            np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4, rtol=0)
            np.testing.assert_allclose(one.z_scores, other.z_scores, atol=1e-4, rtol=1e-4)


@pytest.mark.scaled
def test_a_book_is_read_in_many_windows(bundled: Any, alice: str, gatsby: str) -> None:
    """What the bundled model knows by heart, which it is all but certain of, and what it does not."""
    reader = reference.Reader(reference.float64(bundled._model), bundled.tokenizer, bundled.bos_id, 60, 45)
    books = [alice[20_000:20_800], gatsby[20_000:20_600], "Alice"]
    ids = [reference.tokens_of(text, reader.tokenizer) for text in books]
    got = read_texts(bundled, ids, reading=Reading(window=60, stride=45))
    assert [len(each.log_probs) for each in got] == [len(each) for each in ids]
    for text, read in zip(books, got, strict=True):
        want = reference.read_text(text, reader)
        agrees(read, want, close=5e-4, least_sigma=1e-2)
        scores, wanted = scores_of(text, read), reference.scores(text, want)
        for name, value in scores.items():
            assert value == pytest.approx(wanted[name], rel=1e-3, abs=1e-4), name


# --- models whose logits are known


@cases(100)
@given(st.data())
def test_every_position_of_every_window(data: st.DataObject) -> None:
    """Each history has logits of its own: what is read after other tokens, or in another window, shows at once."""
    vocabulary, bos = data.draw(st.integers(2, 6)), data.draw(st.sampled_from([None, 1]))
    room = data.draw(st.integers(4, 12))
    model = HashModel(vocabulary, seed=data.draw(st.integers(0, 10**6)), bos_id=bos, context_length=room)
    model.batch_tokens = data.draw(st.sampled_from([1, 7, 30, 4096]))
    largest, fewest = room + (bos is None), 1 if bos is None else 0
    window = data.draw(st.none() | st.integers(1 + fewest, largest))
    stride = data.draw(st.none() | st.integers(1, (window or largest) - fewest))
    reading = Reading(window=window, stride=stride)
    token = st.integers(0, vocabulary - 1)
    prefix = data.draw(st.just([]) | st.lists(token, min_size=1, max_size=largest // 2))
    given_texts = data.draw(st.lists(st.lists(token, min_size=1 + fewest, max_size=40), max_size=8))
    told: list[tuple[str, int, int]] = []
    size: Any = data.draw(st.sampled_from(["auto", 1, 3]))
    with mock.patch.dict(HEAD_BYTES, {"cpu": data.draw(st.integers(1, 8)) * vocabulary * 4}):
        got = read_texts(
            model, given_texts, prefix=prefix, reading=reading, batch_size=size,
            progress=lambda *what: told.append(what),
        )  # fmt: skip
    width, step = windows_of(model, reading, prefix)
    assert len(got) == len(given_texts)
    spent = passes = 0
    for read, ids in zip(got, given_texts, strict=True):
        agrees(read, reference.read(logits_of(model), ids, bos=bos, window=width, stride=step, prefix=prefix))
        fed = [len(prefix) + len(places) - 1 for places in reference.windows(len(ids), width, step)]
        assert read.token_evals == sum(fed)
        spent, passes = spent + sum(fed), passes + len(fed)
    assert told == sorted(told)
    assert {(what, total) for what, _, total in told} == ({("read", passes)} if passes else set())
    if passes:
        assert told[-1][1] == passes
    if size == 1:
        assert sum(rows * fed for rows, fed in model.calls) == spent + passes * (bos is not None)
    assert all(fed <= room for _, fed in model.calls)


def test_a_text_is_fed_once() -> None:
    model = HashModel(bos_id=0)
    read_texts(model, [[1, 2, 3, 4]])
    read_texts(model, [[5]])
    assert model.calls == [(1, 4), (1, 1)]


def test_one_token_after_bos() -> None:
    model = HashModel(9, bos_id=3)
    (read,) = read_texts(model, [[7]])
    agrees(read, [reference.token(logits_of(model)([3])[0], 7)])
    assert read.token_evals == 0  # BOS is not counted
    wanted = reference.scores("x", reference.read(logits_of(model), [7], bos=3, window=5, stride=5))
    assert scores_of("x", read) == pytest.approx(wanted, rel=1e-5, abs=1e-5)


def test_a_very_long_text() -> None:
    """Five thousand windows of three tokens, one token apart."""
    model = CoarseModel(5, bos_id=2, order=3, context_length=50)
    ids = np.random.default_rng(1).integers(0, 5, 5000).tolist()
    (read,) = read_texts(model, [ids], reading=Reading(window=3, stride=1))
    agrees(read, reference.read(logits_of(model), ids, bos=2, window=3, stride=1))
    assert read.token_evals == 2 * 4998


class Rows(HashModel):
    """The same logits after every history."""

    def __init__(self, row: Any, **options: Any) -> None:
        super().__init__(len(row), **{"bos_id": 0, **options})
        self.row = np.array(row)

    def logits_after(self, history: tuple[int, ...]) -> np.ndarray:
        return self.row


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 7, 50, 1000, 4096])
@pytest.mark.parametrize("value", [0.0, 0.1, -3.7, 1e4, -1e6, 1e30])
@pytest.mark.parametrize("impossible", [0, 5])
def test_where_all_tokens_are_equally_likely_there_is_no_deviation(
    vocabulary: int, value: float, impossible: int
) -> None:
    """No rounding of the mean may stand for one; whether or not there are tokens that cannot come at all."""
    model = Rows([value] * vocabulary + [-math.inf] * impossible)
    (read,) = read_texts(model, [[0, vocabulary - 1, 0]])
    assert read.z_scores.tolist() == [0, 0, 0]
    np.testing.assert_allclose(read.log_probs, -math.log(vocabulary), rtol=1e-6)
    scores = scores_of("x", read)
    assert [scores[f"min_k_plus_plus_{share}"] for share in reference.SHARES] == [0] * 5


@cases(100)
@given(st.data())
def test_what_cannot_come_counts_for_nothing(data: st.DataObject) -> None:
    """Logits of minus infinity, or all but: no NaN, and the same numbers as if those tokens did not exist."""
    possible = data.draw(st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=8))
    never = data.draw(st.lists(st.sampled_from([-math.inf, -1e9, -3e38]), min_size=1, max_size=8))
    ids = data.draw(st.lists(st.integers(0, len(possible) - 1), min_size=1, max_size=5))
    (read,) = read_texts(Rows([*possible, *never]), [ids])
    want = [reference.token(np.array(possible), token) for token in ids]
    assert want == [reference.token(np.array([*possible, *never]), token) for token in ids]
    agrees(read, want)


@pytest.mark.parametrize("others", [1, 100, 4095])
@pytest.mark.parametrize("gap", [5.0, 20.0, 40.0, 80.0, 86.0])
def test_near_certainty(gap: float, others: int) -> None:
    """One logit far above the rest: what the model is certain of is 0 deviations from what it expects, and all else is
    many, down to what has no probability in float32."""
    model = Rows([gap, *[0.0] * others])
    (read,) = read_texts(model, [[0, 1]])
    want = [reference.token(model.row, token) for token in (0, 1)]
    np.testing.assert_allclose(read.log_probs, [each.log_prob for each in want], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(read.z_scores, [each.z for each in want], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("gap", [90.0, 100.0, 103.0, 104.0, 105.0, 120.0, 700.0, 1e4, 1e20])
def test_beyond_certainty_there_are_still_numbers(gap: float) -> None:
    (read,) = read_texts(Rows([gap, 0.0, 0.0]), [[0, 0, 1]])
    assert np.isfinite(read.log_probs).all()
    assert np.isfinite(read.z_scores).all()
    np.testing.assert_allclose(read.log_probs, [0, 0, -gap], rtol=1e-6)
    assert read.z_scores.tolist()[:2] == pytest.approx([0, 0], abs=1e-15)
    assert read.z_scores[2] <= 0
    assert all(math.isfinite(value) for value in scores_of("x", read).values())


class Half(HashModel):
    """Its logits are bfloat16."""

    def logits_after(self, history: tuple[int, ...]) -> np.ndarray:
        return torch.tensor(super().logits_after(history)).bfloat16().double().numpy()

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden.bfloat16()


def test_logits_of_sixteen_bits_are_summed_in_more() -> None:
    model = Half(500, bos_id=0)
    (read,) = read_texts(model, [list(range(40))])
    agrees(read, reference.read(logits_of(model), list(range(40)), bos=0, window=50, stride=50))


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_wide_vocabularies_and_large_logits(scale: float) -> None:
    """As many tokens as the widest models have; logits that are so far from 0 that float32 holds few digits of them."""
    row = np.random.default_rng(0).normal(size=262_144).astype(np.float32) * np.float32(scale / 4) + np.float32(scale)
    model = Rows(row, bos_id=7)
    ids = [0, 5, int(row.argmax()), int(row.argmin())]
    want = [reference.token(row.astype(np.float64), token) for token in ids]
    (read,) = read_texts(model, [ids])
    agrees(read, want, close=1e-5 * max(1.0, scale / 30))


@pytest.mark.parametrize("gap", [1e-4, 0.01, 0.3, 3.0, 8.0])
def test_one_token_above_a_wide_vocabulary_of_equals(gap: float) -> None:
    """The hardest for a deviation from sums of squares: all of it comes from one token in a quarter of a million."""
    model = Rows([gap, *[0.0] * 262_143])
    (read,) = read_texts(model, [[0, 1]])
    assert read.z_scores.tolist() == pytest.approx([reference.token(model.row, token).z for token in (0, 1)], rel=1e-5)


# --- what leaves the device


class Moves(TorchFunctionMode):
    """How large the tensors are that are handed to the host, by any way that there is."""

    HANDS_OVER = frozenset({
        torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.item,
        torch.Tensor.__array__, torch.Tensor.__iter__, torch.Tensor.copy_,
    })  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.HANDS_OVER:
            self.sizes.append(args[0].numel())
        return func(*args, **(kwargs or {}))


def test_two_numbers_a_token_leave_the_device() -> None:
    """Nothing as large as one row of the vocabulary is handed to the host; nothing that is returned keeps one alive."""

    class Quiet(CoarseModel):
        def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
            with torch._C.DisableTorchFunction():  # the fake looks its tokens up on the host
                return super().hidden(tokens)

    model, ids = Quiet(3000, bos_id=0, order=1), [list(range(n)) for n in (30, 7, 20)]
    with Moves() as moves:
        got = read_texts(model, ids, batch_size=2)
    assert moves.sizes
    assert max(moves.sizes) <= 2 * 30  # a batch's tokens, its targets, and what came of them
    for read in got:
        for array in (read.log_probs, read.z_scores):
            assert (array if array.base is None else array.base).nbytes <= 57 * 8


def test_the_logits_that_are_held_at_once_do_not_grow_with_the_texts() -> None:
    class Counting(CoarseModel):
        most = 0

        def head(self, hidden: torch.Tensor) -> torch.Tensor:
            self.most = max(self.most, len(hidden))
            return super().head(hidden)

    model = Counting(100, bos_id=0, order=1)
    with mock.patch.dict(HEAD_BYTES, {"cpu": 100 * 4 * 6}):
        read_texts(model, [[1, 2, 3] * 20] * 4, batch_size=4)
    assert model.most == 6


# --- what no number can be had of


def test_no_texts() -> None:
    assert read_texts(HashModel(), []) == []


def test_a_text_without_a_token_to_score_is_refused_by_its_name() -> None:
    names = ["first", "second"]
    for options in ({"names": names}, {"names": names, "prefix": [1, 2]}):
        with pytest.raises(InputError, match=r"second is one token .*nothing to score\. .*bos='always'"):
            read_texts(HashModel(), [[1, 2], [3]], **options)
    for bos in (None, 0):
        with pytest.raises(InputError, match=r"first has no token, .*nothing to score\. Remove it"):
            read_texts(HashModel(bos_id=bos), [[], [1, 2]], names=names)
    with pytest.raises(InputError, match="text 1 is one token"):
        read_texts(HashModel(), [[1, 2], [3]])


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("everywhere", [True, False])
def test_logits_that_are_no_numbers_are_refused_by_text_and_token(value: float, everywhere: bool) -> None:
    class Broken(HashModel):
        def logits_after(self, history: tuple[int, ...]) -> np.ndarray:
            logits = super().logits_after(history)
            if history[-1] == 9:
                logits[slice(None) if everywhere else 17] = value
            return logits

    texts, names = [[1] * 30, [2, 3, 9, 4], [5] * 7], ["first", "second", "third"]
    for size in ("auto", 1, 2):
        with pytest.raises(ModelError, match="token 3 of second"):
            read_texts(Broken(), texts, names=names, batch_size=size)
    with pytest.raises(ModelError, match="token 33 of long"):  # counted in the text, not in its window
        read_texts(Broken(), [[*[1] * 32, 9, 4]], names=["long"], reading=Reading(window=5, stride=3))
    read_texts(Broken(), [[1, 2, 9]])  # what comes after its last token, nobody asks


def test_a_token_of_no_probability_is_refused_by_text_and_token() -> None:
    texts = [[0, 1, 0], [0, 0, 0, 2, 1]]
    with pytest.raises(ModelError, match=r"token 3 of second .*probability"):
        read_texts(Rows([1.0, 2.0, -math.inf]), texts, names=["first", "second"])


def test_tokens_of_another_tokenizer_are_refused() -> None:
    for wrong in (50, -1):
        with pytest.raises(InputError, match=rf"b has token id {wrong}, .*another tokenizer"):
            read_texts(HashModel(50), [[1, 2], [3, wrong]], names=["a", "b"])


@pytest.mark.parametrize(
    ("reading", "bos", "named"),
    [
        ({"window": 11}, 0, r"window=11 .*10 is the largest"),
        ({"window": 12}, None, r"window=12 .*11 is the largest"),
        ({"window": 1}, None, "window=1"),
        ({"window": 4, "stride": 5}, 0, "stride=5 .*at most 4"),
        ({"window": 4, "stride": 4}, None, "stride=4 .*at most 3"),
        ({"window": 0}, 0, "window"),
        ({"stride": 0}, 0, "stride"),
        ({"window": True}, 0, "window"),
        ({"window": 2.5}, 0, "window"),
    ],
)
def test_windows_that_leave_tokens_out_or_do_not_fit_are_refused(
    reading: dict[str, Any], bos: int | None, named: str
) -> None:
    with pytest.raises(InputError, match=named):
        read_texts(HashModel(bos_id=bos, context_length=10), [[1, 2]], reading=Reading(**reading))


def test_the_largest_window_and_stride_are_taken() -> None:
    for bos, window, stride in ((0, 10, 10), (None, 11, 10)):
        model = HashModel(bos_id=bos, context_length=10)
        ids = [n % 7 for n in range(45)]
        (read,) = read_texts(model, [ids], reading=Reading(window=window, stride=stride))
        agrees(read, reference.read(logits_of(model), ids, bos=bos, window=window, stride=stride))


def test_a_prefix_that_leaves_too_little_room_is_refused() -> None:
    with pytest.raises(InputError, match="9 tokens before every text"):
        read_texts(HashModel(bos_id=0, context_length=10), [[1, 2, 3]], prefix=[1] * 9)


def test_impossible_batch_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="batch_size"):
        read_texts(HashModel(), [[1, 2]], batch_size=0)


class Hungry(HashModel):
    """Runs out of memory above four rows."""

    rows = 4

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        if len(tokens) > self.rows:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().hidden(tokens)


def test_out_of_memory_shrinks_the_batch_and_changes_nothing() -> None:
    ids = [[1, 2, n % 5, 3][: 2 + n % 3] for n in range(30)]
    with pytest.warns(RuntimeWarning, match="out of memory: going on with batches of"):
        got = read_texts(Hungry(), ids)
    for one, other in zip(got, read_texts(HashModel(), ids), strict=True):
        assert one.log_probs.tolist() == other.log_probs.tolist()
        assert one.z_scores.tolist() == other.z_scores.tolist()


def test_out_of_memory_with_one_text_names_it() -> None:
    class Starving(Hungry):
        rows = 0

    with pytest.raises(ModelError, match=r"out of memory .*the long one"):
        read_texts(Starving(), [[1, 2]], names=["the long one"])
