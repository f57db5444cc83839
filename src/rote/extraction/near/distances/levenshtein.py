"""Levenshtein distance: the fewest tokens to insert, leave out or replace."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rote.extraction.near.distance import Metric, levenshtein

MATCHED = 3  # how much likelier an alignment is in which the last token is a suffix token, in half edits


class Levenshtein(Metric):
    """A state is a band of the last row of the matrix: D[j], the distance of the output to the first j suffix tokens.

    It has the `2 * tolerance + 1` columns j around the number of tokens written; the others are beyond the tolerance.
    Its numbers are cut off at tolerance + 1.
    """

    edits = "tokens inserted, left out or replaced"

    @property
    def width(self) -> int:
        return 2 * self.tolerance + 1

    def start(self, lengths: Tensor) -> Tensor:
        columns = torch.arange(self.width, device=lengths.device) - self.tolerance
        row = torch.where(columns >= 0, columns, self.tolerance + 1).to(torch.int16)
        return torch.where(columns <= lengths[:, None], row, self.tolerance + 1).to(torch.int16)

    def along(self, written: Tensor, lengths: Tensor) -> Tensor:
        offset = torch.arange(self.width, device=written.device) - self.tolerance
        column = written[:, None] + offset
        outside = (column < 0) | (column > lengths[:, None])
        return offset.abs().expand_as(column).masked_fill(outside, self.tolerance + 1).to(torch.int16)

    def advance(self, states: Tensor, written: Tensor, lengths: Tensor, window: Tensor, tokens: Tensor) -> Tensor:
        miss = tokens[:, :, None] != window[:, None, :]
        most = self.tolerance + 1
        kept = torch.nn.functional.pad(states[:, 1:] + 1, (0, 1), value=most)  # D[j] + 1: the token is one too many
        moved = torch.minimum(kept[:, None, :], states[:, None, :] + miss)  # D[j - 1] + (token != z[j])
        step = 1
        while step < self.width:  # the running minimum of D[i] + (j - i): target tokens left out
            moved[..., step:] = torch.minimum(moved[..., step:], moved[..., :-step] + step)
            step *= 2
        columns = torch.arange(self.width, device=states.device) - self.tolerance + 1 + written[:, None]
        outside = (columns < 0) | (columns > lengths[:, None])
        return moved.clamp(max=most).masked_fill(outside[:, None, :], most)

    def reach(self, states: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        offset = torch.arange(self.width, device=states.device, dtype=torch.int16) - self.tolerance
        if self.published:
            floor = states.amin(-1)
        elif self.eos == "stop":  # an output may end early and need not pay for what it leaves out twice
            floor = (states + (-offset).clamp(min=0)).amin(-1)
        else:
            floor = (states + offset.abs()).amin(-1)
        return floor, left + states[..., self.tolerance :].amin(-1)

    def ended(self, states: Tensor, left: Tensor) -> Tensor:
        place = (left + self.tolerance).long().expand(states.shape[:-1])
        edits = states.gather(-1, place.clamp(max=self.width - 1)[..., None])[..., 0]
        return torch.where(place < self.width, edits, self.tolerance + 1).to(torch.int16)

    def alignment(self, states: Tensor, written: Tensor, window: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        offset = torch.arange(self.width, device=states.device) - self.tolerance
        doubt = 4 * states.long() + 2 * offset.abs() - MATCHED * (tokens[:, None] == window)
        doubt = torch.where(states > self.tolerance, 1 << 20, doubt)
        best = doubt.argmin(1, keepdim=True)
        return written + 1 + offset[best[:, 0]], states.gather(1, best)[:, 0].long()

    def between(self, output: Sequence[int], suffix: Sequence[int]) -> int:
        return levenshtein(output, suffix)
