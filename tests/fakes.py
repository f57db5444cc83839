"""A model whose logits are known: they depend on the whole sequence so far, by a seeded hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rote.models.memory import Replay


class HashModel:
    """Tiny `LogitModel`: every distinct history has its own random logits, so any misplaced position shows."""

    tokenizer = None
    eos_ids: frozenset[int] = frozenset()
    logit_tolerance = 1e-6
    warnings: tuple[str, ...] = ()
    compiled = False
    batch_tokens = 64
    device = torch.device("cpu")

    def __init__(
        self, vocabulary: int = 50, *, bos_id: int | None = None, context_length: int | None = None, seed: int = 0
    ) -> None:
        self.vocabulary, self.bos_id, self.context_length, self.seed = vocabulary, bos_id, context_length, seed
        self.fingerprint = str(seed)
        self.calls: list[tuple[int, ...]] = []

    def identity(self) -> Mapping[str, Any]:
        return {"name": "hash", "fingerprint": self.fingerprint, "device": "cpu", "bos_token": self.bos_id}

    def logits_after(self, history: tuple[int, ...]) -> np.ndarray:
        key = hashlib.sha256(repr((self.seed, history)).encode()).digest()
        rng = np.random.default_rng(list(key))
        return np.round(rng.normal(size=self.vocabulary) * 2, 1)

    def hidden(self, tokens: Tensor) -> Tensor:
        self.calls.append(tuple(tokens.shape))
        rows = [[self.logits_after(tuple(row[: i + 1])) for i in range(len(row))] for row in tokens.tolist()]
        return torch.tensor(np.array(rows), dtype=torch.float32)

    def head(self, hidden: Tensor) -> Tensor:
        return hidden

    memory_positions = 100_000

    def memory(self, positions: int) -> Replay:
        return Replay(self, positions)
