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

from rote.extraction.near.batches import Reader, Reading
from rote.models.base import LogitModel
from rote.scheme import Scheme

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Choose = Callable[[Ints, Ints, Floats], Ints]
"""Given rows, the position that each writes next and the log-probs of what is listed there: which of it to take."""

OWN = Scheme(temperature=1.0, top_k=None)
"""The model's own distribution."""


class OutOfTime(Exception):
    """The time is up: what is being written is not finished."""


@dataclass(slots=True, eq=False)
class Spine:
    """One output, written out. From position `own` on it was read for itself; what is before that is another's."""

    example: int
    tokens: Ints  # [length]
    log_probs: Floats  # [length], each given all before it
    entropies: Floats  # [length], of what could have followed; all that was not listed counts as one token
    own: int
    choices: Ints  # [length - own, width], by falling probability
    choice_log_probs: Floats  # [length - own, width]
    entries: Ints  # of every position fed: BOS, prefix, all but the last token. Fewer where some were given up
    shared: int = 0  # how many of them, from the beginning, are another's

    @property
    def log_prob(self) -> float:
        return float(self.log_probs.sum())


@dataclass(frozen=True, slots=True)
class Node:
    """Leave `spine` at position `at` with another token."""

    spine: Spine
    at: int
    token: int
    log_prob: float  # of the token there


def finished(example: int, tokens: Ints, log_probs: Floats, entropies: Floats) -> Spine:
    """An output of which nothing is kept, and which is not left anywhere."""
    nothing = np.empty((0, 0))
    return Spine(example, tokens, log_probs, entropies, len(tokens), nothing.astype(np.int64), nothing, _NO_TOKENS)


def greedy(rows: Ints, at: Ints, log_probs: Floats) -> Ints:
    """The likeliest token; of equal ones the lowest id, as they are listed."""
    return np.zeros(len(rows), dtype=np.int64)


class Writer:
    """Reads prefixes and writes outputs of `length` tokens after them; `width` tokens are listed at every position.

    `entries`: how many positions are kept at most. `tick` is called before anything is fed, and raises `OutOfTime`.
    """

    def __init__(
        self, model: LogitModel, prefixes: Sequence[Sequence[int]], length: int, *, entries: int, width: int,
        tick: Callable[[], None] = lambda: None, scores_prefixes: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.prefixes, self.length, self.tick = model, prefixes, length, tick
        self.reader = Reader(model, OWN, entries)
        self.reader.width = self.width = min(model.vocabulary, width)
        self.bos = [] if model.bos_id is None else [model.bos_id]
        self.free = entries
        self.scores_prefixes = scores_prefixes
        self.prefix_log_probs: dict[int, float] = {}  # by example: of its prefix, a token

    def positions(self, example: int) -> int:
        """Entries of an output of this example from its beginning."""
        return len(self.bos) + len(self.prefixes[example]) + self.length - 1

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
            last = slice(end - 1, end)
            if self.scores_prefixes:
                self.prefix_log_probs[example] = float(own[start : end - 1].mean()) if reading.predict > 1 else 0.0
            spines.append(
                Spine(example, _NO_TOKENS, _NOTHING, entropies[last], 0, choices[last], log_probs[last], reading.place)
            )
        return spines

    def write(self, begun: Sequence[Spine], choose: Choose = greedy) -> list[Spine]:
        """Write spines that `begin` began to their end. Several may come after the same prefix."""
        return self._grow(list(begun), choose)

    def fork(self, nodes: Sequence[Node]) -> list[Spine]:
        """Leave spines at nodes, and go on greedily."""
        done: dict[int, Spine] = {}
        readings, which = [], []
        for i, node in enumerate(nodes):
            parent, at = node.spine, node.at
            if at == self.length - 1:
                done[i] = self._ended(node)
                continue
            before = len(self.bos) + len(self.prefixes[parent.example])
            known = min(len(parent.entries), before + at)  # fewer, where some were given up
            tokens = np.append(parent.tokens[known - before : at], node.token)
            place = self.take(len(tokens))
            readings.append(Reading(tokens, parent.entries[:known], place, 1, str(parent.example), parent.example))
            which.append(i)
        if readings:
            choices, log_probs, entropies, _ = self._read(readings)
            begun = []
            for row, (i, reading) in enumerate(zip(which, readings, strict=True)):
                node, here = nodes[i], slice(row, row + 1)
                parent, at = node.spine, node.at
                begun.append(
                    Spine(
                        parent.example,
                        np.append(parent.tokens[:at], node.token),
                        np.append(parent.log_probs[:at], node.log_prob),
                        np.append(parent.entropies[: at + 1], entropies[here]),
                        at + 1,
                        choices[here],
                        log_probs[here],
                        np.concatenate([reading.past, reading.place]),
                        len(reading.past),
                    )
                )
            done |= dict(zip(which, self._grow(begun, greedy), strict=True))
        return [done[i] for i in range(len(nodes))]

    def cost(self, node: Node) -> int:
        """Token evaluations of leaving a spine there and going on to the end."""
        if node.at == self.length - 1:
            return 0
        before = len(self.bos) + len(self.prefixes[node.spine.example])
        return self.length - 1 - (min(len(node.spine.entries), before + node.at) - before)

    def _ended(self, node: Node) -> Spine:
        """Another last token: what it takes is known."""
        was, nothing = node.spine, np.empty((0, self.width))
        tokens, log_probs = was.tokens.copy(), was.log_probs.copy()
        tokens[-1], log_probs[-1] = node.token, node.log_prob
        return Spine(
            was.example,
            tokens,
            log_probs,
            was.entropies,
            self.length,
            nothing.astype(np.int64),
            nothing,
            was.entries[:0],
        )

    def again(self, outputs: Sequence[tuple[int, Ints]], parents: Sequence[Node | None]) -> list[Spine]:
        """Read known outputs (example, tokens) at once: what `write` or, where there is a parent, `fork` made."""
        done: dict[int, Spine] = {}
        readings, which, targets = [], [], []
        for i, ((example, tokens), node) in enumerate(zip(outputs, parents, strict=True)):
            if node is not None and node.at == self.length - 1:
                done[i] = self._ended(node)
                continue
            prompt = np.array([*self.bos, *self.prefixes[example]], dtype=np.int64)
            whole = np.concatenate([prompt, tokens[:-1]])
            known = 0 if node is None else min(len(node.spine.entries), len(prompt) + node.at)
            past = whole[:0] if node is None else node.spine.entries[:known]
            own = 0 if node is None else node.at + 1
            readings.append(
                Reading(whole[known:], past, self.take(len(whole) - known), self.length - own, str(example), example)
            )
            which.append(i)
            targets.append(tokens[own:])
        if readings:
            choices, listed, entropies, log_probs = self._read(readings, np.concatenate(targets))
            end = 0
            for i, reading in zip(which, readings, strict=True):
                (example, tokens), node = outputs[i], parents[i]
                here, end = slice(end, end + reading.predict), end + reading.predict
                before, entropy = log_probs[here], entropies[here]
                if node is not None:
                    before = np.concatenate([node.spine.log_probs[: node.at], [node.log_prob], before])
                    entropy = np.concatenate([node.spine.entropies[: node.at + 1], entropy])
                entries = np.concatenate([reading.past, reading.place])
                own = self.length - reading.predict
                done[i] = Spine(
                    example, tokens, before, entropy, own, choices[here], listed[here], entries, len(reading.past)
                )
        return [done[i] for i in range(len(outputs))]

    # --- token by token

    def _grow(self, spines: Sequence[Spine], choose: Choose) -> list[Spine]:
        """Write begun spines to their end: rows side by side, each over its own past."""
        rows, length = len(spines), self.length
        at = np.array([len(s.tokens) for s in spines])  # the position that is written next
        own = np.array([s.own for s in spines])
        tokens, log_probs = np.zeros((rows, length), dtype=np.int64), np.zeros((rows, length))
        entropies = np.zeros((rows, length))
        choices = np.zeros((rows, length, self.width), dtype=np.int64)
        listed = np.zeros((rows, length, self.width))
        count = np.array([len(s.entries) for s in spines])
        more = [self.take(length - 1 - int(a)) for a in at]
        history = np.full((rows, int((count + length - 1 - at).max())), -1, dtype=np.int64)
        for row, spine in enumerate(spines):
            done = slice(0, len(spine.tokens))
            tokens[row, done], log_probs[row, done] = spine.tokens, spine.log_probs
            entropies[row, : done.stop + 1] = spine.entropies
            choices[row, done.stop], listed[row, done.stop] = spine.choices[-1], spine.choice_log_probs[-1]
            history[row, : count[row]] = spine.entries
            history[row, count[row] : count[row] + len(more[row])] = more[row]
        going = np.arange(rows)
        while len(going):
            here = at[going]
            taken = choose(going, here, listed[going, here])
            tokens[going, here] = choices[going, here, taken]
            log_probs[going, here] = listed[going, here, taken]
            at[going] += 1
            going = going[at[going] < length]
            if not len(going):
                break
            last = at[going]
            found = self.step(
                tokens[going, last - 1], history[going], count[going], [str(spines[i].example) for i in going.tolist()]
            )
            choices[going, last], listed[going, last], entropies[going, last] = found
            count[going] += 1
        return [
            Spine(
                spine.example, tokens[i], log_probs[i], entropies[i], int(own[i]), choices[i, own[i] :],
                listed[i, own[i] :], history[i, : count[i]].copy(), spine.shared,
            )
            for i, spine in enumerate(spines)
        ]  # fmt: skip

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
        return found.tokens.cpu().numpy(), listed, entropies, found.target.cpu().numpy()


_NO_TOKENS = np.empty(0, dtype=np.int64)
_NOTHING = np.empty(0)
