"""log p_z straight from a transformers model: one example at a time, whole logits, float64. Shares no code."""

from __future__ import annotations

from typing import Any

import torch

from tests.reference.decoding import log_prob


def suffix_logits(model: Any, prefix: list[int], suffix: list[int], bos: int | None) -> Any:
    """[suffix tokens, vocabulary] float64: the raw logits that predict each suffix token."""
    tokens = ([] if bos is None else [bos]) + prefix + suffix
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
    return logits[len(tokens) - len(suffix) - 1 : len(tokens) - 1].double().numpy()


def log_p_z(rows: Any, suffix: list[int], temperature: float, top_k: int | None, top_p: float | None) -> float:
    return sum(log_prob(row, token, temperature, top_k, top_p) for row, token in zip(rows, suffix, strict=True))
