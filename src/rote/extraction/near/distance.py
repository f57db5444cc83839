"""How far an output is from the suffix: while it is being written, and when it is finished.

While it is being written, a state per partial output tells two numbers: `floor`, no completion can end closer than
this, and `ceil`, every completion ends at least this close. A partial output is dead for a tolerance below its floor,
closed for a tolerance from its ceil on (all its completions count, and none needs to be looked at), open in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor

from rote.errors import RoteError
from rote.extraction.near.options import MOST_EDITS, EosPolicy, distances
from rote.options import require_known, require_whole

NEVER = 4 * (MOST_EDITS + 1)  # a floor that no tolerance reaches; states are 16-bit integers


@dataclass(frozen=True, slots=True)
class Metric(ABC):
    """Streaming distance to suffixes, for tolerances up to `tolerance`: tensors in, tensors out, any device.

    A distance is a subclass, alone in a file of `rote.extraction.near.distances` that has its name. Outputs have as
    many tokens as the suffix or, where EOS ends them, fewer. A state is a row of 16-bit integers, as many as it takes;
    of a token, a distance may ask only whether it equals those of the `window`. Distances up to `tolerance` are exact;
    for those beyond, any number beyond will do. `published`: the looser floor of published beam searches, which does
    not count what unequal lengths still cost.
    """

    tolerance: int
    eos: EosPolicy
    published: bool = False

    edits: ClassVar[str]
    """What is counted, in words: "Edits are ..."."""

    def __post_init__(self) -> None:
        require_known("eos", self.eos, get_args(EosPolicy))
        require_whole("tolerance", self.tolerance, 0, MOST_EDITS)

    @property
    def distance(self) -> str:
        """Its name."""
        return type(self).__module__.rpartition(".")[2]

    # --- what a distance is

    @property
    @abstractmethod
    def width(self) -> int:
        """Suffix tokens that the next token may be compared with: an odd number, as many on either side of its own."""

    @abstractmethod
    def start(self, lengths: Tensor) -> Tensor:
        """[rows, state]: the states of outputs that are still empty; `lengths` are those of the suffixes."""

    @abstractmethod
    def along(self, written: Tensor, lengths: Tensor) -> Tensor:
        """[rows, state]: the states of outputs that are the suffix itself so far."""

    @abstractmethod
    def advance(self, states: Tensor, written: Tensor, lengths: Tensor, window: Tensor, tokens: Tensor) -> Tensor:
        """[rows, children, state]: the states after one more token, `tokens` [rows, children], each.

        `states` are [rows, state], `window` [rows, width], `written` (tokens so far) and `lengths` [rows].
        """

    @abstractmethod
    def reach(self, states: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        """(floor, ceil) of states [..., state] of outputs that are `left` tokens shorter than the suffix.

        They are equal where nothing is left. Loose ones cost time; a floor too high or a ceil too low is a false bound.
        """

    @abstractmethod
    def ended(self, states: Tensor, left: Tensor) -> Tensor:
        """The distance of outputs that end here, `left` tokens before the suffix's length."""

    @abstractmethod
    def alignment(self, states: Tensor, written: Tensor, window: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(column, edits): how many suffix tokens an output most likely has behind it, and at what distance.

        `states` are those after `tokens` [rows]; `written` and `window` are from before. No bound rests on it.
        """

    @abstractmethod
    def between(self, output: Sequence[int], suffix: Sequence[int]) -> int:
        """The distance of a finished output, whatever the tolerance."""

    # --- what all have in common

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

    def bounds(self, states: Tensor, written: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(floor, ceil) of states [..., state]; `written` and `lengths` broadcast to [...]. Exact up to `tolerance`."""
        left = _left(written, lengths)
        floor, ceil = self.reach(states, left)
        if self.eos == "exclude":  # what ends early does not count, so nothing is certain before the last token
            ceil = torch.where(left > 1, NEVER, ceil)
        return floor, ceil

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
        last = self.ended(after, _left(now, whole)) if self.eos == "stop" else torch.full_like(floor, NEVER)
        return after, torch.where(early, last, floor), torch.where(early, last, ceil)


def metric_of(name: str, tolerance: int, eos: EosPolicy, *, published: bool = False) -> Metric:
    """The distance of that name, as the one class of its module says; an unknown name is refused."""
    require_known("distance", name, distances())
    module = import_module(f"rote.extraction.near.distances.{name}")
    (own,) = (
        thing
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, Metric) and thing.__module__ == module.__name__
    )
    return own(tolerance, eos, published)


@lru_cache(maxsize=1024)
def root_ceil(metric: Metric, length: int) -> int:
    """The ceil of an empty output, before a suffix of `length` tokens."""
    lengths = torch.tensor([length])
    _, ceil = metric.bounds(metric.start(lengths), torch.zeros_like(lengths), lengths)
    return int(ceil)


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


def _left(written: Tensor, lengths: Tensor) -> Tensor:
    return (lengths - written).to(torch.int16)
