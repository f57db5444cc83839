"""Reading in parts, over keys and values that continuations share, against feeding every history anew."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rote.models.huggingface import HuggingFaceModel
from rote.models.memory import KeyMemory, Replay
from tests import tiny
from tests.fakes import HashModel

CLOSE = 1e-4
SMALL = tiny.SIZE | tiny.GROUPED


def wrap(raw: Any) -> Any:
    return HuggingFaceModel(raw, name="tiny")


def gpt_neo(**changes: Any) -> Any:
    """Every other layer sees a window that its config describes in words of its own."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    options: dict[str, Any] = {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "hidden_size": 32}
    options |= {"num_heads": 2, "max_position_embeddings": 128, "vocab_size": 300, "initializer_range": 0.2}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt_neo", **options | changes)).eval()


def family(name: str, **options: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    common = {"vocab_size": 300, "initializer_range": 0.2, "pad_token_id": None, "eos_token_id": 1}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **common | options)).eval()


Branch = tuple[list[int], int]  # the entries of a history, and how many tokens to read after it


class Tree:
    """Continuations that grow at random and share what they have in common, read by several memories alike."""

    def __init__(self, memories: list[Any], vocabulary: int, entries: int, seed: int) -> None:
        self.memories, self.vocabulary = memories, vocabulary
        self.rng = np.random.default_rng(seed)
        self.free = self.rng.permutation(entries).tolist()
        self.paths: list[list[int]] = [[]]

    def feed(self, rows: list[list[Branch]]) -> tuple[list[Tensor], Tensor]:
        """Random tokens after each history, several to a row: (states of each memory, which positions are real)."""
        pasts = [self._past(row) for row in rows]
        width, length = max(sum(count for _, count in row) for row in rows), max(map(len, pasts))
        tokens = torch.from_numpy(self.rng.integers(0, self.vocabulary, (len(rows), width)))
        past, place = torch.full((len(rows), length), -1), torch.full((len(rows), width), -1)
        seen = torch.zeros(len(rows), width, length + width, dtype=torch.bool)
        seen[:, :, length:] = torch.eye(width, dtype=torch.bool)  # padding sees itself
        for i, row in enumerate(rows):
            past[i, : len(pasts[i])] = torch.tensor(pasts[i], dtype=torch.int64)
            at = 0
            for history, count in row:
                own = [self.free.pop() for _ in range(count)]
                place[i, at : at + count] = torch.tensor(own)
                for j in range(count):
                    seen[i, at + j, [pasts[i].index(entry) for entry in history]] = True
                    seen[i, at + j, length + at : length + at + j + 1] = True
                self.paths += [history + own[: j + 1] for j in range(count)]
                at += count
        return [memory.feed(tokens, past, place, seen) for memory in self.memories], place >= 0

    def some(self, count: int) -> list[Branch]:
        """Histories to go on from; the last path, the longest as a rule, is one of them."""
        chosen = [self.paths[i] for i in self.rng.integers(1, len(self.paths), count - 1)] + [self.paths[-1]]
        return [(history, int(self.rng.integers(1, 8))) for history in chosen]

    def _past(self, row: list[Branch]) -> list[int]:
        """What any of the histories holds, by position."""
        where = {entry: position for history, _ in row for position, entry in enumerate(history)}
        return sorted(where, key=lambda entry: (where[entry], entry))


def agree(model: Any, memory: Any, seed: int = 0) -> None:
    """One text or several to a row, of many lengths, their histories twice as long as the sliding windows here."""
    tree = Tree([memory, Replay(model, 400)], model.vocabulary, 400, seed)
    begin: list[list[Branch]] = [[([], 9)], [([], 3), ([], 5)], [([], 1)]]
    for sizes in ([], [3, 1], [1, 1, 2], [4], [2, 3]):
        (kept, anew), real = tree.feed([tree.some(size) for size in sizes] or begin)
        torch.testing.assert_close(model.head(kept[real]), model.head(anew[real]), rtol=CLOSE, atol=CLOSE)
    assert max(map(len, tree.paths)) > 16


@pytest.fixture
def new_memory_is_not_a_number() -> Iterator[None]:
    """What is allocated and not written to may hold anything; torch can fill it with NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(9).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("new_memory_is_not_a_number")
def test_what_was_never_written_is_never_read() -> None:
    """Padding is masked, but 0 times NaN is NaN. Here only histories are padded, so no padding was ever written."""
    model = wrap(tiny.build("llama"))
    tree = Tree([model.memory(50), Replay(model, 50)], model.vocabulary, 50, 0)
    tree.feed([[([], 4)], [([], 4)]])
    (kept, anew), real = tree.feed([[(tree.paths[2], 3)], [(tree.paths[8], 3)]])
    assert real.all()
    torch.testing.assert_close(model.head(kept[real]), model.head(anew[real]), rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_architectures(architecture: str) -> None:
    model = wrap(tiny.build(architecture))
    assert model.memory_positions > 1000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        memory = model.memory(400)
    assert isinstance(memory, KeyMemory)
    for seed in range(3):
        agree(model, memory, seed)  # the entries of the last tree are written over


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gemma3_text", SMALL | {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}),
        ("qwen2", SMALL | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
        ("phi3", SMALL | {"sliding_window": 8}),
        ("gpt_oss", SMALL | {"sliding_window": 8, "num_local_experts": 2, "num_experts_per_tok": 1}),
        ("opt", SMALL | {"ffn_dim": 48, "word_embed_proj_dim": 32}),
        ("falcon", tiny.SIZE | {"alibi": True}),
        ("bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 2}),
        ("mamba", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
        ("llama4_text", SMALL | {"attention_chunk_size": 8, "num_local_experts": 1, "intermediate_size_mlp": 48}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_other_architectures_give_the_same_one_way_or_the_other(name: str, options: dict[str, Any]) -> None:
    """Whether their keys can be kept is tried on the model; where not, every history is fed anew."""
    model = wrap(family(name, **options))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        memory = model.memory(400)
    assert isinstance(memory, Replay) == any("feed every history anew" in str(w.message) for w in told)
    assert model.memory_positions > 1000
    agree(model, memory)


@pytest.mark.parametrize("window", [4, 8, 12])
def test_windows_that_the_config_calls_by_another_name(window: int) -> None:
    model = wrap(gpt_neo(window_size=window))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        memory = model.memory(400)
    agree(model, memory)


def test_a_model_that_is_used_whole() -> None:
    raw = tiny.build("llama")
    forward = raw.forward

    def stretched(*args: Any, **options: Any) -> Any:
        result = forward(*args, **options)
        result.logits = result.logits * 1.5
        return result

    raw.forward = stretched
    with pytest.warns(UserWarning, match="whole forward passes"):
        model = wrap(raw)
    memory = model.memory(400)
    assert isinstance(memory, KeyMemory)
    agree(model, memory)


def test_sixteen_bits() -> None:
    model = wrap(tiny.build("llama").to(torch.bfloat16))
    memory = model.memory(100)
    assert isinstance(memory, KeyMemory)
    tree = Tree([memory, Replay(model, 100)], model.vocabulary, 100, 0)
    tree.feed([[([], 9)], [([], 4)]])
    (kept, anew), real = tree.feed([tree.some(2), tree.some(3)])
    assert torch.isfinite(kept).all()
    torch.testing.assert_close(model.head(kept[real]).float(), model.head(anew[real]).float(), rtol=0, atol=0.5)


def test_compiled_layers_are_left_alone() -> None:
    model: Any = HuggingFaceModel(tiny.build("llama"), name="tiny")
    model.compiled = True
    agree(model, model.memory(400))


# --- models whose keys are not all of their state


def without_positions() -> Any:
    raw = tiny.build("llama")
    forward = raw.model.forward
    raw.model.forward = lambda *args, position_ids=None, **options: forward(*args, **options)
    return raw


def without_cache() -> Any:
    raw = tiny.build("llama")
    forward = raw.model.forward
    raw.model.forward = lambda *args, past_key_values=None, **options: forward(*args, **options)
    return raw


def without_masks() -> Any:
    raw = tiny.build("llama")
    forward = raw.model.forward
    raw.model.forward = lambda *args, attention_mask=None, **options: forward(*args, **options)
    return raw


def another_layer_type() -> Any:
    raw = tiny.build("llama")
    raw.config.layer_types = ["full_attention", "chunked_attention"]
    return raw


@pytest.mark.parametrize("make", [without_positions, without_cache, without_masks, another_layer_type])
def test_where_keys_do_not_do_every_history_is_fed_anew(make: Any) -> None:
    model = wrap(make())
    with pytest.warns(UserWarning, match="tiny: reading in parts does not give what reading at once does"):
        memory = model.memory(400)
    assert isinstance(memory, Replay)
    agree(model, memory)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        assert isinstance(model.memory(10), Replay)


# --- feeding anew


def test_replay_feeds_exactly_the_history() -> None:
    """Two continuations of 1 2 in one row, and another text, shorter, in the other."""
    model = HashModel(7)
    memory = Replay(model, 10)
    nothing = torch.empty(2, 0, dtype=torch.int64)
    causal = torch.ones(2, 3, 3, dtype=torch.bool).tril()
    memory.feed(torch.tensor([[1, 2, 3], [4, 5, 0]]), nothing, torch.tensor([[0, 1, 2], [3, 4, -1]]), causal)
    seen = torch.tensor(
        [
            [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 1]],
            [[1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1]],
        ],
        dtype=torch.bool,
    )
    past, place = torch.tensor([[0, 1, 2], [3, -1, -1]]), torch.tensor([[5, 6, 7], [8, -1, -1]])
    states = memory.feed(torch.tensor([[6, 6, 4], [5, 0, 0]]), past, place, seen)
    for got, history in (
        (states[0, 0], (1, 2, 3, 6)),
        (states[0, 1], (1, 2, 3, 6, 6)),
        (states[0, 2], (1, 2, 4)),
        (states[1, 0], (4, 5)),
    ):
        np.testing.assert_allclose(got, model.logits_after(history), atol=1e-6)


def test_replay_feeds_a_text_once_not_once_per_token() -> None:
    """It may be slow, but a batch must stay about as large as its caller meant it to be."""
    model = HashModel(7)
    memory = Replay(model, 40)
    place = torch.arange(30)[None]
    memory.feed(place % 7, place[:, :0], place, torch.ones(1, 30, 30, dtype=torch.bool).tril())
    assert sum(rows * length for rows, length in model.calls) <= 2 * 30
