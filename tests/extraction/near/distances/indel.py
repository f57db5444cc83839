"""Tokens inserted or left out. There is no replacing, so that two texts may be farther apart than they are long."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rote.extraction.near.distance import Metric


class Indel(Metric):
    """A state is D[j], the distance to the first j suffix tokens, for the columns that the tolerance can see."""

    edits = "tokens inserted or left out"

    @property
    def width(self) -> int:
        return 2 * self.tolerance + 1

    def start(self, lengths: Tensor) -> Tensor:
        return self.along(torch.zeros_like(lengths), lengths)

    def along(self, written: Tensor, lengths: Tensor) -> Tensor:
        outside = self._outside(written, lengths)
        return self._offset(written).abs().expand_as(outside).masked_fill(outside, self.tolerance + 1)

    def advance(self, states: Tensor, written: Tensor, lengths: Tensor, window: Tensor, tokens: Tensor) -> Tensor:
        most = self.tolerance + 1
        inserted = torch.nn.functional.pad(states[:, 1:] + 1, (0, 1), value=most)[:, None, :]
        matched = states[:, None, :] + most * (tokens[:, :, None] != window[:, None, :])
        after = torch.minimum(inserted, matched)
        for column in range(1, self.width):
            after[..., column] = torch.minimum(after[..., column], after[..., column - 1] + 1)
        return after.clamp(max=most).masked_fill(self._outside(written + 1, lengths)[:, None, :], most)

    def reach(self, states: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        offset = self._offset(states)
        floor = (states + (-offset).clamp(min=0)).amin(-1)
        # All that is left of the suffix is left out, and as much as may still be written is inserted.
        ceil = states + (left[..., None] - offset) + left[..., None]
        ceil = ceil.masked_fill(states > self.tolerance, 1 << 13)
        return torch.where(left == 0, self.ended(states, left), floor), ceil.amin(-1)

    def ended(self, states: Tensor, left: Tensor) -> Tensor:
        place = (left + self.tolerance).long().expand(states.shape[:-1])
        edits = states.gather(-1, place.clamp(max=self.width - 1)[..., None])[..., 0]
        return torch.where(place < self.width, edits, self.tolerance + 1)

    def alignment(self, states: Tensor, written: Tensor, window: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        edits, best = states.min(1)
        return written + 1 + best - self.tolerance, edits.long()

    def between(self, output: Sequence[int], suffix: Sequence[int]) -> int:
        common = [0] * (len(suffix) + 1)
        for token in output:
            before, common = common, [0]
            for j, target in enumerate(suffix):
                common.append(before[j] + 1 if token == target else max(before[j + 1], common[j]))
        return len(output) + len(suffix) - 2 * common[-1]

    def _offset(self, beside: Tensor) -> Tensor:
        return torch.arange(self.width, device=beside.device, dtype=torch.int16) - self.tolerance

    def _outside(self, written: Tensor, lengths: Tensor) -> Tensor:
        column = written[:, None] + self._offset(written)
        return (column < 0) | (column > lengths[:, None])
