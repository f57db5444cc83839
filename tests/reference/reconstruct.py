"""Reconstruction, step by step: transformers' own beam search, all outputs one by one, and the loop around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch


def transformers_output(
    model: Any, context: Sequence[int], count: int, *, beams: int, length_penalty: float, eos: Sequence[int]
) -> list[int]:
    """What `generate` appends to the context, EOS included where one comes."""
    penalty = {"length_penalty": length_penalty, "early_stopping": False} if beams > 1 else {}
    tokens = torch.tensor([list(context)])
    output = model.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count, num_beams=beams, do_sample=False,
        eos_token_id=list(eos) or None, pad_token_id=0, **penalty,
    )  # fmt: skip
    return output[0, len(context) :].tolist()  # type: ignore[no-any-return]


def best_of_all(
    log_probs_after: Callable[[tuple[int, ...]], Sequence[float]],
    vocabulary: int,
    count: int,
    eos: Sequence[int],
    length_penalty: float,
) -> tuple[int, ...]:
    """Of all outputs that end with their first EOS or have `count` tokens, the one with the highest score."""
    best: tuple[float, tuple[int, ...]] | None = None
    for length in range(1, count + 1):
        for output in product(range(vocabulary), repeat=length):
            if any(token in eos for token in output[:-1]) or (length < count and output[-1] not in eos):
                continue
            total = sum(log_probs_after(output[:i])[token] for i, token in enumerate(output))
            score = total / length**length_penalty
            if best is None or score > best[0]:
                best = (score, output)
    assert best is not None
    return best[1]


def reconstruct(
    seed: Sequence[int],
    generate: Callable[[list[int], int], list[int]],
    *,
    tokens: int,
    context_tokens: int,
    step: int,
    eos: Sequence[int],
    break_tokens: Callable[[int], list[int]] | None,
    missed_after: int,
) -> list[int]:
    """The whole text under a sliding context; `generate(context, count)` gives tokens, with EOS where one comes."""
    text, section, since = list(seed), 1, 0
    while len(text) < tokens:
        new = generate(text[-(context_tokens - step) :], min(step, tokens - len(text)))
        since += len(new)
        if new[-1] not in eos:
            text += new
            continue
        text += new[:-1]
        if break_tokens is None:
            break
        section += 1
        if since >= missed_after:
            section += 1
        since = 0
        if len(text) < tokens:
            text += break_tokens(section)
    return text
