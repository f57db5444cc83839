"""Hamming distance: mismatches by position."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rote.extraction.near.distance import Metric


class Hamming(Metric):
    """A state is the number of mismatches so far; positions that only one of the two has are mismatches."""

    edits = "tokens replaced"

    @property
    def width(self) -> int:
        return 1

    def start(self, lengths: Tensor) -> Tensor:
        return torch.zeros(len(lengths), 1, dtype=torch.int16, device=lengths.device)

    def along(self, written: Tensor, lengths: Tensor) -> Tensor:
        return torch.zeros(len(written), 1, dtype=torch.int16, device=written.device)

    def advance(self, states: Tensor, written: Tensor, lengths: Tensor, window: Tensor, tokens: Tensor) -> Tensor:
        return states[:, None, :] + (tokens[:, :, None] != window[:, None, :])

    def reach(self, states: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        return states[..., 0], states[..., 0] + left

    def ended(self, states: Tensor, left: Tensor) -> Tensor:
        return states[..., 0] + left

    def alignment(self, states: Tensor, written: Tensor, window: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return written + 1, states[:, 0].long()

    def between(self, output: Sequence[int], suffix: Sequence[int]) -> int:
        same = sum(a == b for a, b in zip(output, suffix, strict=False))
        return max(len(output), len(suffix)) - same
