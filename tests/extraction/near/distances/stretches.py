"""Stretches of wrong tokens, however long. A state has more numbers than there are tokens to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, zip_longest

import torch
from torch import Tensor

from rote.extraction.near.distance import Metric


class Stretches(Metric):
    """A state is the number of stretches so far, and whether the last token was in one; what is missing is wrong."""

    edits = "stretches of tokens replaced"

    @property
    def width(self) -> int:
        return 1

    def start(self, lengths: Tensor) -> Tensor:
        return torch.zeros(len(lengths), 2, dtype=torch.int16, device=lengths.device)

    def along(self, written: Tensor, lengths: Tensor) -> Tensor:
        return self.start(lengths)

    def advance(self, states: Tensor, written: Tensor, lengths: Tensor, window: Tensor, tokens: Tensor) -> Tensor:
        wrong = (tokens != window).to(torch.int16)
        begins = wrong * (1 - states[:, 1:])
        return torch.stack([states[:, :1] + begins, wrong], 2)

    def reach(self, states: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        count, inside = states[..., 0], states[..., 1]
        return count, count + (left + 1 - inside) // 2  # at worst every other token begins one

    def ended(self, states: Tensor, left: Tensor) -> Tensor:
        return states[..., 0] + (left > 0) * (1 - states[..., 1])

    def alignment(self, states: Tensor, written: Tensor, window: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return written + 1, states[:, 0].long()

    def between(self, output: Sequence[int], suffix: Sequence[int]) -> int:
        return sum(wrong for wrong, _ in groupby(a != b for a, b in zip_longest(output, suffix)))
