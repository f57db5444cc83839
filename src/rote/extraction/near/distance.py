"""How far an output is from the suffix: while it is being written, and when it is finished.

While it is being written, a state per partial output tells two numbers: `floor`, no completion can end closer than
this, and `ceil`, every completion ends at least this close. A partial output is dead for a tolerance below its floor,
closed for a tolerance from its ceil on (all its completions count, and none needs to be looked at), open in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from rote.errors import InputError, RoteError

Distance = Literal["levenshtein", "hamming"]
EosPolicy = Literal["stop", "exclude", "ignore"]
"""`stop`: an output ends with EOS, which is its last token. `exclude`: outputs with EOS before the suffix's length do
not count. `ignore`: EOS is a token like any other."""

NEVER = 1 << 14  # a floor that no tolerance reaches


@dataclass(frozen=True, slots=True)
class Metric:
    """Streaming distance to suffixes, for tolerances up to `tolerance`: tensors in, tensors out, any device.

    A state is a row of small integers. Levenshtein: D[j] for the `2 * tolerance + 1` columns j around the number of
    tokens written (the others are beyond the tolerance), cut off at tolerance + 1. Hamming: the mismatches so far.
    `published`: the looser floor of published beam searches, which does not count what unequal lengths still cost.
    """

    distance: Distance
    tolerance: int
    eos: EosPolicy
    published: bool = False

    def __post_init__(self) -> None:
        if self.distance not in ("levenshtein", "hamming"):
            raise InputError(f"unknown distance {self.distance!r}; use levenshtein or hamming.")
        if self.eos not in ("stop", "exclude", "ignore"):
            raise InputError(f"unknown EOS policy {self.eos!r}; use stop, exclude or ignore.")
        if not whole(self.tolerance) or not 0 <= self.tolerance < NEVER // 4:
            raise InputError(
                f"the tolerance must be a whole number from 0 to {NEVER // 4 - 1}, not {self.tolerance!r}."
            )

    @property
    def width(self) -> int:
        return 1 if self.distance == "hamming" else 2 * self.tolerance + 1

    def ceil(self, length: int) -> int:
        """The ceil of an empty output."""
        return NEVER if self.eos == "exclude" and length > 1 else length

    def targets(self, suffixes: Sequence[Sequence[int]], device: Any = "cpu") -> Tensor:
        """[suffixes, longest + width]: the suffixes, padded on both sides so that `window` needs no borders."""
        longest = max(map(len, suffixes))
        left = self.width // 2
        padded = torch.full((len(suffixes), longest + self.width), -1)
        for row, suffix in enumerate(suffixes):
            padded[row, left : left + len(suffix)] = torch.tensor(suffix)
        return padded.to(device)

    def window(self, targets: Tensor, written: Tensor) -> Tensor:
        """[rows, width]: of each row's target the tokens that the next one may be compared with."""
        columns = torch.arange(self.width, device=targets.device)
        return targets.gather(1, (written[:, None] + columns).clamp(max=targets.shape[1] - 1))

    def start(self, lengths: Tensor) -> Tensor:
        """[rows, width]: the states of outputs that are still empty; `lengths` are those of the suffixes."""
        if self.distance == "hamming":
            return torch.zeros(len(lengths), 1, dtype=torch.int16, device=lengths.device)
        columns = torch.arange(self.width, device=lengths.device) - self.tolerance
        row = torch.where(columns >= 0, columns, self.tolerance + 1).to(torch.int16)
        return torch.where(columns <= lengths[:, None], row, self.tolerance + 1).to(torch.int16)

    def along(self, written: Tensor, lengths: Tensor) -> Tensor:
        """[rows, width]: the states of outputs that are the suffix itself so far."""
        if self.distance == "hamming":
            return torch.zeros(len(written), 1, dtype=torch.int16, device=written.device)
        offset = torch.arange(self.width, device=written.device) - self.tolerance
        column = written[:, None] + offset
        outside = (column < 0) | (column > lengths[:, None])
        return offset.abs().expand_as(column).masked_fill(outside, self.tolerance + 1).to(torch.int16)

    def advance(self, states: Tensor, written: Tensor, lengths: Tensor, window: Tensor, tokens: Tensor) -> Tensor:
        """[rows, children, width]: the states after one more token, `tokens` [rows, children], each.

        `states` and `window` are [rows, width], `written` (tokens so far) and `lengths` [rows].
        """
        miss = tokens[:, :, None] != window[:, None, :]
        if self.distance == "hamming":
            return states[:, None, :] + miss
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

    def bounds(self, states: Tensor, written: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(floor, ceil) of states [..., width]; `written` and `lengths` broadcast to [...]. Exact up to `tolerance`."""
        left = (lengths - written).to(torch.int16)
        if self.distance == "hamming":
            floor = states[..., 0]
            ceil = floor + left
        else:
            offset = torch.arange(self.width, device=states.device, dtype=torch.int16) - self.tolerance
            if self.published:
                floor = states.amin(-1)
            elif self.eos == "stop":  # an output may end early and need not pay for what it leaves out twice
                floor = (states + (-offset).clamp(min=0)).amin(-1)
            else:
                floor = (states + offset.abs()).amin(-1)
            ceil = left + states[..., self.tolerance :].amin(-1)
        if self.eos == "exclude":  # what ends early does not count, so nothing is certain before the last token
            ceil = torch.where(left > 1, NEVER, ceil)
        return floor, ceil

    def ended(self, states: Tensor, written: Tensor, lengths: Tensor) -> Tensor:
        """The exact distance of outputs that end here (anything above `tolerance` means: more than that)."""
        left = (lengths - written).to(torch.int16)
        if self.distance == "hamming":
            return states[..., 0] + left
        place = (left + self.tolerance).long().expand(states.shape[:-1])
        edits = states.gather(-1, place.clamp(max=self.width - 1)[..., None])[..., 0]
        return torch.where(place < self.width, edits, self.tolerance + 1).to(torch.int16)

    def children(
        self, states: Tensor, written: Tensor, lengths: Tensor, window: Tensor, tokens: Tensor, is_eos: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(states, floor, ceil) of children as in `advance`, with the EOS policy applied to them.

        A child that ends early has floor = ceil, its distance; one that does not count has a floor beyond everything.
        """
        after = self.advance(states, written, lengths, window, tokens)
        now, whole = (written + 1)[:, None], lengths[:, None]
        floor, ceil = self.bounds(after, now, whole)
        if self.eos == "ignore":
            return after, floor, ceil
        early = is_eos & (now < whole)
        last = self.ended(after, now, whole) if self.eos == "stop" else torch.full_like(floor, NEVER)
        return after, torch.where(early, last, floor), torch.where(early, last, ceil)


def whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def hamming(output: Sequence[int], suffix: Sequence[int]) -> int:
    """Mismatches by position; positions that only one of the two has are mismatches."""
    same = sum(a == b for a, b in zip(output, suffix, strict=False))
    return max(len(output), len(suffix)) - same


def levenshtein(output: Sequence[Any], suffix: Sequence[Any]) -> int:
    """Edit distance of two token sequences, or of two strings by character."""
    from rapidfuzz.distance import Levenshtein

    return int(Levenshtein.distance(output, suffix))


def bleu(output: str, suffix: str) -> float:
    """Sentence BLEU-4 of decoded texts, 0 to 1 (sacrebleu's: 13a tokens, exponential smoothing)."""
    try:
        from sacrebleu import sentence_bleu
    except ImportError as error:
        raise RoteError("BLEU needs sacrebleu: pip install 'rote[bleu]'.") from error
    return float(sentence_bleu(output, [suffix]).score) / 100
