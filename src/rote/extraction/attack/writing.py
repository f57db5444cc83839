"""Writing suffixes after prefixes, token by token, many side by side over keys that they share.

Whatever an attack does with them, an output's log-probability is the sum of its tokens' under the model's own
distribution (temperature 1, the whole vocabulary): what teacher-forced scoring of the same tokens gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rote.extraction.near.batches import SPARE, Reader, Reading
from rote.models.base import LogitModel
from rote.scheme import Scheme

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Choose = Callable[[Ints, int, Floats], Ints]
"""Given rows, the position that is written next and the log-probs of what is listed there: which of it to take."""

OWN = Scheme(temperature=1.0, top_k=None)
"""The model's own distribution."""


@dataclass(slots=True, eq=False)
class Spine:
    """One output, or the beginning of one."""

    example: int
    tokens: Ints  # [written]
    log_probs: Floats  # [written], each given all before it
    entropies: Floats  # [written], of what could have stood there; all that was not listed counts as one token
    choices: Ints  # [width]: what may follow, by falling probability. Of a finished output nothing is kept
    choice_log_probs: Floats  # [width]
    entries: Ints  # of every position fed

    @property
    def log_prob(self) -> float:
        return float(self.log_probs.sum())


def finished(example: int, tokens: Ints, log_probs: Floats, entropies: Floats) -> Spine:
    """An output of which nothing is kept."""
    return Spine(example, tokens, log_probs, entropies, _NO_TOKENS, _NOTHING, _NO_TOKENS)


def greedy(rows: Ints, at: int, log_probs: Floats) -> Ints:
    """The likeliest token; of equal ones the lowest id, as they are listed."""
    return np.zeros(len(rows), dtype=np.int64)


class Writer:
    """Reads prefixes and writes outputs of `length` tokens after them; `width` tokens are listed at every position.

    `entries`: how many positions are kept at most. `tick` is called before anything is fed, and may raise `OutOfTime`.
    """

    def __init__(
        self, model: LogitModel, prefixes: Sequence[Sequence[int]], length: int, *, entries: int, width: int,
        tick: Callable[[], None] = lambda: None, scores_prefixes: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.prefixes, self.length, self.tick = model, prefixes, length, tick
        self.reader = Reader(model, OWN, entries)
        self.width = min(model.vocabulary, width)
        self.reader.width = min(model.vocabulary, width + SPARE)  # which of equal ones come last is not defined
        self.bos = [] if model.bos_id is None else [model.bos_id]
        self.free = entries
        self.scores_prefixes = scores_prefixes
        self.prefix_log_probs: dict[int, float] = {}  # by example: of its prefix, a token

    def give(self, *entries: Ints) -> None:
        self.reader.give(*entries)
        self.free += sum(map(len, entries))

    def take(self, count: int) -> Ints:
        self.free -= count
        return self.reader.take(count)

    # --- whole outputs

    def begin(self, examples: Sequence[int]) -> list[Spine]:
        """Read the prefixes: spines of which nothing is written, each with the choices at its first position.

        How likely the prefixes themselves are comes from the same reading, and is put down in `prefix_log_probs`.
        """
        readings = []
        targets = []
        for row, example in enumerate(examples):
            tokens = np.array([*self.bos, *self.prefixes[example]], dtype=np.int64)
            predict = len(tokens) if self.scores_prefixes else 1
            readings.append(Reading(tokens, tokens[:0], self.take(len(tokens)), predict, str(example), row))
            targets.append(np.append(tokens[1:], 0)[-predict:])
        choices, log_probs, entropies, own = self._read(readings, np.concatenate(targets))
        spines, end = [], 0
        for example, reading in zip(examples, readings, strict=True):
            start, end = end, end + reading.predict
            if self.scores_prefixes:
                self.prefix_log_probs[example] = float(own[start : end - 1].mean()) if reading.predict > 1 else 0.0
            next_ = choices[end - 1], log_probs[end - 1]
            spines.append(Spine(example, _NO_TOKENS, _NOTHING, entropies[end - 1 : end], *next_, reading.place))
        return spines

    def write(self, begun: Sequence[Spine], choose: Choose = greedy) -> list[Spine]:
        """Write spines that `begin` began to their end, side by side. Several may come after the same prefix."""
        rows, length = len(begun), self.length
        tokens, log_probs = np.zeros((rows, length), dtype=np.int64), np.zeros((rows, length))
        entropies = np.zeros((rows, length))
        count = np.array([len(s.entries) for s in begun])
        history = np.full((rows, int(count.max()) + length), -1, dtype=np.int64)
        own = self.take(rows * (length - 1)).reshape(rows, length - 1)
        for row, spine in enumerate(begun):
            history[row, : count[row]] = spine.entries
            history[row, count[row] : count[row] + length - 1] = own[row]
        choices, listed = np.stack([s.choices for s in begun]), np.stack([s.choice_log_probs for s in begun])
        entropies[:, 0] = [s.entropies[0] for s in begun]
        every, labels = np.arange(rows), [str(s.example) for s in begun]
        for at in range(length):
            taken = choose(every, at, listed)
            tokens[:, at], log_probs[:, at] = choices[every, taken], listed[every, taken]
            if at < length - 1:
                choices, listed, entropies[:, at + 1] = self.step(tokens[:, at], history, count, labels)
                count = count + 1
        self.give(own.ravel())
        return [finished(s.example, tokens[i], log_probs[i], entropies[i]) for i, s in enumerate(begun)]

    def step(self, tokens: Ints, history: Ints, count: Ints, labels: Sequence[str]) -> tuple[Ints, Floats, Floats]:
        """Feed a token a row, to be kept at the entry after the first `count` of its `history`; what may follow it."""
        self.tick()
        device, longest = self.reader.device, int(count.max())
        seen = np.ones((len(tokens), 1, longest + 1), dtype=np.bool_)
        seen[:, 0, :longest] = np.arange(longest) < count[:, None]
        past = np.where(seen[:, 0, :longest], history[:, :longest], -1)
        place = history[np.arange(len(tokens)), count][:, None]
        sent = (torch.from_numpy(a).to(device) for a in (tokens[:, None], past, place, seen))
        choices, listed, entropies, _ = self._listed(self.reader.feed(*sent)[:, 0], labels)
        return choices, listed, entropies

    def _read(self, readings: Sequence[Reading], targets: Ints | None = None) -> tuple[Ints, Floats, Floats, Floats]:
        self.tick()
        labels = [r.label for r in readings for _ in range(r.predict)]
        return self._listed(self.reader.states(readings), labels, targets)

    def _listed(
        self, states: torch.Tensor, labels: Sequence[str], targets: Ints | None = None
    ) -> tuple[Ints, Floats, Floats, Floats]:
        """(tokens, their log-probs, entropy, log-prob of the target) at every state."""
        wanted = np.zeros(len(states), dtype=np.int64) if targets is None else targets
        found, _ = self.reader.supports(states, torch.from_numpy(wanted).to(states.device), labels)
        listed = found.log_probs.cpu().numpy()
        rest = np.clip(found.rest.cpu().numpy(), 0, 1)
        weights = np.exp(listed)
        with np.errstate(divide="ignore", invalid="ignore"):
            entropies = -np.nansum(weights * listed, axis=1) - np.nan_to_num(rest * np.log(rest))
        tokens = found.tokens.cpu().numpy()[:, : self.width]
        return tokens, listed[:, : self.width], entropies, found.target.cpu().numpy()


_NO_TOKENS = np.empty(0, dtype=np.int64)
_NOTHING = np.empty(0)
