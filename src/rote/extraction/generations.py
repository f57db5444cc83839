"""Generations as people make them: an outside check of computed probabilities.

They come from transformers' own `generate`, which shares no code with Rote's schemes, scorer or searches.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from rote.errors import InputError
from rote.models.base import GeneratingModel
from rote.scheme import Scheme
from rote.tokens import Example

ROWS = 1024
"""The most generations at once."""


def generations(
    model: GeneratingModel, example: Example, scheme: Scheme, *, samples: int, seed: int
) -> Iterator[tuple[int, ...]]:
    """`samples` independent outputs from the example's prefix, each as long as its suffix or ended by EOS.

    They come in batches, as they are made. The same seed gives the same outputs on the same kind of machine.
    """
    if samples < 1:
        raise InputError(f"samples must be at least 1, not {samples}.")
    if any(token in model.eos_ids for token in example.suffix[:-1]):
        raise InputError(
            f"the suffix of example {example.id!r} holds the end-of-text token before its end, where every generation "
            "stops: it cannot be generated. Choose another example."
        )
    bos = [] if model.bos_id is None else [model.bos_id]
    prompt = torch.tensor([[*bos, *example.prefix]], dtype=torch.int64, device=model.device)
    if not prompt.shape[1]:
        raise InputError(f"example {example.id!r} has neither a prefix nor a BOS token to generate from.")
    length = len(example.suffix)
    rows = max(1, min(samples, ROWS, model.memory_positions // (prompt.shape[1] + length)))
    for batch, first in enumerate(range(0, samples, rows)):
        with torch.random.fork_rng([] if prompt.device.type == "cpu" else [prompt.device]):
            torch.manual_seed(seed * 2**20 + batch)
            written = model.generate(prompt.expand(min(rows, samples - first), -1), length=length, scheme=scheme)
        for row in written[:, prompt.shape[1] :].tolist():
            yield tuple(_until_eos(row, model.eos_ids))


def _until_eos(tokens: list[int], eos: frozenset[int]) -> list[int]:
    """Behind EOS there is only padding."""
    end = next((i for i, token in enumerate(tokens) if token in eos), len(tokens) - 1)
    return tokens[: end + 1]
