"""Writing on: the beam search against transformers and against all outputs, the loop against a plain one, resuming."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rote.errors import InputError, ModelError
from rote.extraction.text.beams import BeamSearch, candidates
from rote.extraction.text.reconstruct import longest_context, write_on
from rote.extraction.text.writing import Chunk, Plan, Writing, in_words, section_break
from rote.models.huggingface import HuggingFaceModel
from tests import tiny
from tests.cases import cases
from tests.fakes import HashModel
from tests.reference import reconstruct as reference


def no_break(text: str) -> Sequence[int]:
    raise AssertionError("no section break was asked for")


def first_chunk(model: Any, seed: Sequence[int], count: int, **options: Any) -> Chunk:
    """One step from a context that holds the whole seed."""
    writing = Plan(
        tokens=len(seed) + count, context_tokens=len(seed) + count, step=count, section_break=None, **options
    )
    return next(write_on(model, seed, writing, no_break))


def written(model: Any, seed: Sequence[int], writing: Plan, encode: Any = no_break) -> list[int]:
    return [*seed, *(token for chunk in write_on(model, seed, writing, encode) for token in chunk.tokens)]


# --- the beam search


@pytest.mark.parametrize(
    ("beams", "book", "at"), [(1, "gatsby", 60_000), (8, "alice", 90_123), (8, "gatsby", 30_000), (8, "gatsby", 99_999)]
)
def test_bundled_model_generates_what_transformers_does(
    bundled: Any, alice: str, gatsby: str, beams: int, book: str, at: int
) -> None:
    """On Gatsby, which it does not know, the model is unsure, and the beams matter."""
    text = {"alice": alice, "gatsby": gatsby}[book]
    seed = bundled.tokenizer(text[at : at + 300], add_special_tokens=False)["input_ids"]
    expected = reference.transformers_output(
        bundled._model, [bundled.bos_id, *seed], 50, beams=beams, length_penalty=1.2, eos=sorted(bundled.eos_ids)
    )
    chunk = first_chunk(bundled, seed, 50, beams=beams)
    assert not chunk.ended
    assert list(chunk.tokens) == expected


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma2", "mistral"])
@pytest.mark.parametrize(
    ("eos", "length_penalty"), [([1], 1.2), ([*range(1, 21)], 1.2), ([*range(1, 21)], 0.0), ([1, 2, 3, 4], -0.5)]
)
def test_models_that_end_often_generate_what_transformers_does(
    architecture: str, eos: list[int], length_penalty: float
) -> None:
    ends = 0
    for number in range(3):
        # Logits that are not too far apart: EOS comes, at different places in different beams.
        own = tiny.build(architecture, seed=number, vocab_size=60, eos_token_id=eos, initializer_range=0.1)
        model = HuggingFaceModel(own, bos="never")
        assert model.eos_ids == set(eos)
        seed = torch.randint(21, 60, (9,), generator=torch.Generator().manual_seed(number)).tolist()
        for beams in (1, 2, 5):
            expected = reference.transformers_output(own, seed, 12, beams=beams, length_penalty=length_penalty, eos=eos)
            penalty = {} if beams == 1 else {"length_penalty": length_penalty}
            chunk = first_chunk(model, seed, 12, beams=beams, **penalty)
            assert [*chunk.tokens, *expected[len(chunk.tokens) :]] == expected
            assert chunk.ended == (expected[-1] in eos) == (len(chunk.tokens) < len(expected))
            ends += chunk.ended
    if len(eos) > 4:
        assert ends, "no output ended early: this tests too little"


@pytest.mark.parametrize("length_penalty", [1.2, 1.0, 0.0, -1.0])
@pytest.mark.parametrize("number", range(6))
def test_with_enough_beams_the_best_of_all_outputs_is_found(number: int, length_penalty: float) -> None:
    model = HashModel(4, bos_id=0, seed=number)
    model.eos_ids = frozenset({3})
    seed = (1, 2, number % 3)

    def log_probs_after(output: tuple[int, ...]) -> Sequence[float]:
        logits = model.logits_after((0, *seed, *output))
        return list(logits - np.log(np.exp(logits).sum()))

    best = reference.best_of_all(log_probs_after, 4, 4, [3], length_penalty)
    chunk = first_chunk(model, seed, 4, beams=4**4, length_penalty=length_penalty)
    assert chunk.tokens == tuple(token for token in best if token != 3)
    assert chunk.ended == (best[-1] == 3)


def test_greedy_ends_with_the_first_eos() -> None:
    search = BeamSearch(1, 1.2, 10, frozenset({7}))
    search.extend([-0.1], [0], [4])
    search.extend([-0.2], [0], [7])
    assert search.done
    assert search.best() == ((4,), True)


@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=6, max_size=6), min_size=1, max_size=4),
    st.integers(1, 9),
    st.data(),
)
@cases(60)
def test_ties_go_to_the_lower_beam_and_then_the_lower_token(
    logits: list[list[int]], width: int, data: st.DataObject
) -> None:
    before = data.draw(st.lists(st.sampled_from([0.0, -1.0]), min_size=len(logits), max_size=len(logits)))
    rows = np.array(logits, dtype=np.float64)
    log_probs = rows - np.log(np.exp(rows).sum(1, keepdims=True))
    every = [
        (round(before[beam] + log_probs[beam, token], 9), beam, token)
        for beam in range(len(rows))
        for token in range(6)
    ]
    expected = sorted(every, key=lambda one: (-one[0], one[1], one[2]))[:width]
    values, parents, tokens = candidates(torch.tensor(logits, dtype=torch.float32), before, width)
    assert [round(value, 9) for value in values] == [value for value, _, _ in expected]
    # Sums of logarithms in another order may differ in the last bit where they are equal in truth.
    for value in set(values):
        own = [(parents[i], tokens[i]) for i in range(len(values)) if values[i] == value]
        assert own == sorted(own)


def test_tokens_that_cannot_come_are_no_candidates() -> None:
    search = BeamSearch(3, 1.0, 2, frozenset())
    logits = torch.tensor([[0.0, -torch.inf, 0.0, -torch.inf]])
    search.extend(*candidates(logits, [0.0], search.width))
    assert search.outputs == [[0], [2]]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_are_refused(value: float) -> None:
    with pytest.raises(ModelError, match="NaN or infinite at chunk 7"):
        candidates(torch.tensor([[0.0, 1.0], [0.0, value]]), [0.0, -1.0], 2, 7)


def test_a_model_of_nan_weights_is_refused(tiny_folder: Any) -> None:
    own = tiny.build()
    own.get_output_embeddings().weight.data[5] = float("nan")
    with pytest.raises(ModelError, match="NaN or infinite at chunk 1"):
        first_chunk(HuggingFaceModel(own), [4, 5], 3)


# --- the loop around it


def encode(text: str) -> list[int]:
    """A break in the words of a model of 60 tokens."""
    return [8 + ord(letter) % 50 for letter in text]


@pytest.fixture(scope="module")
def ending() -> Any:
    """A random model that ends every few tokens, and knows a BOS."""
    eos = [1, 2, 3, 4, 5]
    own = tiny.build("llama", seed=3, vocab_size=60, eos_token_id=eos, initializer_range=0.1)
    model = HuggingFaceModel(own)
    model.bos_id = 0
    return model


@pytest.mark.parametrize("breaks", ["|{WORDS}|", None])
@pytest.mark.parametrize("beams", [1, 3])
def test_the_text_is_that_of_a_plain_loop(ending: Any, breaks: str | None, beams: int) -> None:
    ended = False
    for first in range(10, 13):
        seed = [first, 20, 30]
        missed: dict[str, Any] = {} if breaks is None else {"missed_after": 12}
        writing = Plan(tokens=150, context_tokens=40, step=7, beams=beams, section_break=breaks, **missed)

        def generate(context: list[int], count: int) -> list[int]:
            return reference.transformers_output(
                ending._model, [0, *context], count, beams=beams, length_penalty=1.2, eos=sorted(ending.eos_ids)
            )

        expected = reference.reconstruct(
            seed, generate, tokens=150, context_tokens=40, step=7, eos=sorted(ending.eos_ids), missed_after=12,
            break_tokens=None if breaks is None else lambda n: encode(section_break("|{WORDS}|", n)),
        )  # fmt: skip
        chunks = list(write_on(ending, seed, writing, encode))
        assert [*seed, *(token for chunk in chunks for token in chunk.tokens)] == expected
        ended = ended or any(chunk.ended for chunk in chunks)
    assert ended


def test_sections_are_counted_and_a_missed_break_counts_too(ending: Any) -> None:
    writing = Plan(tokens=200, context_tokens=40, step=7, beams=3, section_break="{number};", missed_after=12)
    chunks = list(write_on(ending, [10, 20, 30], writing, encode))
    section, since = 1, 0
    jumps = set()
    for chunk in chunks:
        own = len(chunk.tokens) - chunk.break_tokens + chunk.ended
        since += own
        jump = (2 if since >= 12 else 1) if chunk.ended else 0
        section, since = section + jump, 0 if chunk.ended else since
        jumps.add(jump)
        assert (chunk.section, chunk.since_end) == (section, since)
        if chunk.break_tokens:
            assert list(chunk.tokens[-chunk.break_tokens :]) == encode(f"{section};")
    assert jumps >= {0, 2}


def test_the_anchored_context_grows_and_starts_again_at_half_of_it(ending: Any) -> None:
    writing = Plan(tokens=200, context_tokens=40, step=7, beams=2, context="anchored", section_break="{number};")
    seed = [10, 20, 30]
    length, before, jumps = len(seed), 0, 0
    for chunk in write_on(ending, seed, writing, encode):
        if length - before + 7 > 40:
            before, jumps = length - 20, jumps + 1
        assert chunk.start == before
        assert chunk.sliding_evals - chunk.token_evals >= -7  # the token that a search ends with is read afterwards
        length += len(chunk.tokens)
        assert length - before <= 40 + chunk.break_tokens
    assert jumps > 3


def test_an_anchored_chunk_is_what_its_context_gives_in_one_piece(ending: Any) -> None:
    """Read in parts or at once, the context is the same."""
    writing = Plan(tokens=120, context_tokens=60, step=6, beams=3, context="anchored", section_break="{number};")
    text = [10, 20, 30]
    for chunk in write_on(ending, text, writing, encode):
        own = chunk.tokens[: len(chunk.tokens) - chunk.break_tokens]
        again = first_chunk(ending, text[chunk.start :], min(6, 120 - len(text)), beams=3)
        assert (own, chunk.ended) == (again.tokens, again.ended)
        text = [*text, *chunk.tokens]


@pytest.mark.parametrize("context", ["sliding", "anchored"])
def test_token_evaluations_are_the_positions_fed(ending: Any, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = []
    make = ending.memory

    def counting(positions: int) -> Any:
        memory = make(positions)
        feed = memory.feed

        def count(tokens: Any, *rest: Any) -> Any:
            fed.append(int((tokens != 0).sum()))  # all but BOS, which is never generated here
            return feed(tokens, *rest)

        memory.feed = count
        return memory

    monkeypatch.setattr(ending, "memory", counting)
    writing = Plan(tokens=90, context_tokens=30, step=6, beams=3, context=context, section_break="{number};")
    seed = [10, 20, 30]
    chunks = list(write_on(ending, seed, writing, encode))
    assert all(token != 0 for chunk in chunks for token in chunk.tokens)
    assert sum(chunk.token_evals for chunk in chunks) == sum(fed)
    sliding = sum(chunk.sliding_evals for chunk in chunks)
    assert sliding == sum(fed) if context == "sliding" else sliding > sum(fed)


@pytest.mark.parametrize("context", ["sliding", "anchored"])
def test_it_goes_on_from_any_chunk_as_if_never_interrupted(ending: Any, context: Any) -> None:
    writing = Plan(tokens=100, context_tokens=30, step=5, beams=3, context=context, section_break="{number};")
    seed = [10, 20, 30]
    whole = list(write_on(ending, seed, writing, encode))
    assert len(whole) > 12
    for done in (*range(0, len(whole), 3), len(whole)):
        assert list(write_on(ending, seed, writing, encode, done=whole[:done])) == whole[done:]


@pytest.mark.parametrize("context", ["sliding", "anchored"])
def test_logits_after_a_resume_are_the_same_to_the_last_bit(
    ending: Any, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = Plan(tokens=60, context_tokens=30, step=5, beams=3, context=context, section_break="{number};")
    seen: list[torch.Tensor] = []
    head = ending.head

    def watching(hidden: torch.Tensor) -> torch.Tensor:
        logits = head(hidden)
        seen.append(logits.clone())
        return logits  # type: ignore[no-any-return]

    monkeypatch.setattr(ending, "head", watching)
    whole = list(write_on(ending, [10, 20, 30], writing, encode))
    first, seen = seen, []
    list(write_on(ending, [10, 20, 30], writing, encode, done=whole[:6]))
    assert len(seen) > 10
    assert all(torch.equal(a, b) for a, b in zip(first[-len(seen) :], seen, strict=True))


def test_a_model_without_keys_writes_the_same_under_either_context() -> None:
    model = HashModel(12, bos_id=0, seed=4)
    model.eos_ids = frozenset({1})
    texts = [
        written(model, [5, 6], Plan(tokens=24, context_tokens=40, step=4, beams=3, context=context), encode_small)
        for context in ("sliding", "anchored")
    ]  # fmt: skip
    assert texts[0] == texts[1]
    assert len(texts[0]) >= 24


def encode_small(text: str) -> list[int]:
    return [2 + ord(letter) % 10 for letter in text][:3]


def test_the_bundled_model_goes_on_with_its_book(bundled: Any, alice: str) -> None:
    ids = bundled.tokenizer(alice[:2000], add_special_tokens=False)["input_ids"]
    writing = Plan(tokens=250, context_tokens=longest_context(bundled), section_break=None)
    assert written(bundled, ids[:80], writing) == ids[:250]


# --- words and refusals


def test_numbers_in_words() -> None:
    expected = {
        1: "one", 12: "twelve", 20: "twenty", 21: "twenty-one", 99: "ninety-nine", 100: "one hundred",
        105: "one hundred and five", 342: "three hundred and forty-two", 1000: "one thousand",
        1066: "one thousand and sixty-six", 12_345: "twelve thousand three hundred and forty-five",
    }  # fmt: skip
    assert {number: in_words(number) for number in expected} == expected
    assert len({in_words(number) for number in range(20_000)}) == 20_000


def test_section_breaks() -> None:
    assert section_break("\n\nCHAPTER {WORDS}\n", 21) == "\n\nCHAPTER TWENTY-ONE\n"
    assert section_break("{Words} {number} {words}", 5) == "Five 5 five"
    assert section_break("* * *", 5) == "* * *"
    for template in ("", "{chapter}", "{", "{}", "{number.real}"):
        with pytest.raises(InputError, match=r"section_break=.* is no section break: give text with"):
            section_break(template, 5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"beams": 0}, "beams must be a whole number of at least 1, not 0"),
        ({"step": 0}, "step must be a whole number of at least 1, not 0"),
        ({"tokens": -3}, "tokens must be a whole number of at least 1, not -3"),
        ({"context_tokens": 50}, "leaves no room"),
        ({"length_penalty": float("nan")}, "finite"),
        ({"context": "frozen"}, "context must be sliding or anchored, not 'frozen'"),
        ({"section_break": "{x}"}, "section_break='{x}' is no section break"),
        ({"beams": 1, "length_penalty": 1.0}, "length_penalty changes nothing here; it goes with beams above 1"),
        ({"section_break": None, "missed_after": 5}, "missed_after changes nothing here; it goes with section_break"),
    ],
)
def test_writings_that_make_no_sense_are_refused(options: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Writing(**{"tokens": 500, "context_tokens": 100, **options})


def test_what_the_model_cannot_do_is_refused(ending: Any) -> None:
    assert longest_context(ending) == 127
    assert longest_context(HashModel()) == 3000
    for seed, writing, says in (
        ([], Plan(tokens=100, context_tokens=100), "no tokens"),
        ([5] * 100, Plan(tokens=100, context_tokens=100), "nothing to generate"),
        ([5], Plan(tokens=500, context_tokens=128), "use at most 127"),
    ):
        with pytest.raises(InputError, match=says):
            next(write_on(ending, seed, writing, encode))
    with pytest.raises(InputError, match="has no tokens"):
        next(write_on(ending, [5], Plan(tokens=100, context_tokens=100), lambda text: []))
