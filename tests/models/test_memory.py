"""Reading in parts, over keys and values that continuations share, against feeding every history anew."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rote.models.huggingface import HuggingFaceModel
from rote.models.memory import KeyMemory, Replay
from tests import tiny
from tests.fakes import HashModel

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


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


class Tree:
    """Continuations that grow at random and share what they have in common, read by several memories alike."""

    def __init__(self, memories: list[Any], vocabulary: int, entries: int, seed: int) -> None:
        self.memories, self.vocabulary = memories, vocabulary
        self.rng = np.random.default_rng(seed)
        self.free = self.rng.permutation(entries).tolist()
        self.paths: list[list[int]] = [[]]

    def feed(self, starts: list[list[int]], counts: list[int]) -> tuple[list[Tensor], Tensor]:
        """Random tokens after each start: (states of each memory, which positions are real)."""
        width, length = max(counts), max(map(len, starts))
        tokens = torch.from_numpy(self.rng.integers(0, self.vocabulary, (len(starts), width)))
        past, place = torch.full((len(starts), length), -1), torch.full((len(starts), width), -1)
        for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
            own = [self.free.pop() for _ in range(count)]
            past[row, length - len(start) :] = torch.tensor(start, dtype=torch.int64)
            place[row, :count] = torch.tensor(own)
            self.paths += [start + own[: i + 1] for i in range(count)]
        return [memory.feed(tokens, past, place) for memory in self.memories], place >= 0

    def some(self, count: int) -> list[list[int]]:
        return [self.paths[i] for i in self.rng.integers(1, len(self.paths), count)]


def agree(model: Any, memory: Any, seed: int = 0, batches: int = 5) -> None:
    tree = Tree([memory, Replay(model, 400)], model.vocabulary, 400, seed)
    lengths = []
    for batch in range(batches):
        starts: list[list[int]] = [[], [], []] if batch == 0 else [*tree.some(4), tree.paths[-1], tree.paths[-1]]
        counts = tree.rng.integers(1, 12, len(starts)).tolist()
        lengths += [len(s) + c for s, c in zip(starts, counts, strict=True)]
        (kept, anew), real = tree.feed(starts, counts)
        torch.testing.assert_close(model.head(kept[real]), model.head(anew[real]), **CLOSE)
    assert max(lengths) > 16  # twice the sliding windows of `tests.tiny`


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
        ("gemma3_text", tiny.SIZE | tiny.GROUPED | {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}),
        ("qwen2", tiny.SIZE | tiny.GROUPED | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
        ("phi3", tiny.SIZE | {"sliding_window": 8, "num_key_value_heads": 1}),
        ("gpt_oss", tiny.SIZE | tiny.GROUPED | {"sliding_window": 8, "num_local_experts": 2, "num_experts_per_tok": 1}),
        ("opt", {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "word_embed_proj_dim": 32}),
        ("falcon", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "alibi": True}),
        ("bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 2}),
        ("mamba", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
        ("llama4_text", tiny.SIZE | tiny.GROUPED | {"attention_chunk_size": 8, "num_local_experts": 1, "intermediate_size_mlp": 48}),
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
    tree.feed([[], []], [9, 4])
    (kept, anew), real = tree.feed(tree.some(3), [3, 1, 2])
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
    model = HashModel(7)
    memory = Replay(model, 10)
    memory.feed(torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.empty(2, 0, dtype=torch.int64), torch.tensor([[0, 1, 2], [3, 4, -1]]))
    states = memory.feed(
        torch.tensor([[6, 6], [5, 1], [0, 0]]),
        torch.tensor([[0, 1, 2], [-1, 3, 4], [-1, -1, -1]]),
        torch.tensor([[5, 6], [7, -1], [8, -1]]),
    )
    for got, history in (
        (states[0, 0], (1, 2, 3, 6)), (states[0, 1], (1, 2, 3, 6, 6)), (states[1, 0], (4, 5, 5)), (states[2, 0], (0,)),
    ):  # fmt: skip
        np.testing.assert_allclose(got, model.logits_after(history), atol=1e-6)
