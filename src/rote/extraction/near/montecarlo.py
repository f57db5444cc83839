"""Monte Carlo: how often sampled generations end near the suffix, and the residual estimate on top of a search.

Samples of one prefix share their beginnings. They are drawn as counts on a tree: n samples that stand at the same
output are read once and divided among its children at random, which is what n independent samples do. Samples whose
outcome is certain, because no completion or every completion is near enough, are counted without being written out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from rote.extraction.near.batches import Ints, Reader, Reading
from rote.extraction.near.distance import Metric
from rote.extraction.near.fork import Search
from rote.extraction.near.frontier import Nodes
from rote.extraction.near.results import Estimate
from rote.odds import wilson
from rote.tokens import Example


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """`count` samples that stand at the same output. Reading `tokens` after `past` tells what they may go on with.

    `known` tokens are not among it: the samples have been drawn from the others.
    """

    count: int
    tokens: Ints
    past: Ints
    written: int
    state: NDArray[np.int16]
    known: Ints | None = None


@dataclass(slots=True, eq=False)
class Draw:
    """Samples of one example on their way. `hits[e]` of those that have ended are within tolerance e."""

    index: int  # whose samples they are, for the caller
    example: Example
    samples: int
    rng: np.random.Generator
    groups: list[_Group]
    hits: Ints
    evals: int = 0
    entries: list[Ints] = field(default_factory=list)


class Sampler:
    """Draws for many examples, all a token further at each step."""

    def __init__(self, reader: Reader, metric: Metric, *, every: bool) -> None:
        """`every`: find out for every tolerance up to the metric's, not for that one alone."""
        self.reader, self.metric, self.every = reader, metric, every
        self.bos = [] if reader.model.bos_id is None else [reader.model.bos_id]
        self.eos = torch.tensor(sorted(reader.model.eos_ids), dtype=torch.int64)

    def plain(self, index: int, example: Example, samples: int, rng: np.random.Generator) -> Draw:
        """Samples that start from the prefix."""
        tokens = np.array([*self.bos, *example.prefix], dtype=np.int64)
        state = self.metric.start(torch.tensor([len(example.suffix)]))[0].numpy()
        groups = [_Group(samples, tokens, tokens[:0], 0, state)]
        draw = Draw(index, example, samples, rng, groups, np.zeros(self.metric.tolerance + 1, dtype=np.int64))
        draw.evals -= len(self.bos)  # BOS is not counted
        self._settle_root(draw, state)
        return draw

    def residual(self, search: Search, samples: int, rng: np.random.Generator) -> Draw:
        """Samples that start from the open nodes of a search, each as often as its mass says."""
        draw = Draw(search.index, search.example, samples, rng, [], np.zeros(self.metric.tolerance + 1, dtype=np.int64))
        for nodes in _shared(search.frontier.left(), samples, rng):
            draw.groups += self._stand(search, *nodes)
        return draw

    def run(self, draws: Iterable[Draw], *, at_once: int) -> Iterator[Draw]:
        """Finished draws as they finish; waiting ones enter in their place."""
        waiting, active = iter(draws), list[Draw]()
        while True:
            active += islice(waiting, at_once - len(active))
            if not active:
                return
            if going := [d for d in active if d.groups]:
                self._step(going)
            for draw in active:
                if not draw.groups:
                    self.reader.give(*draw.entries)
                    yield draw
            active = [d for d in active if d.groups]

    def _settle_root(self, draw: Draw, state: NDArray[np.int16]) -> None:
        """Where everything is near enough for every tolerance asked about, nothing needs to be drawn."""
        length = torch.tensor([len(draw.example.suffix)])
        floor, ceil = self.metric.bounds(torch.from_numpy(state)[None], torch.zeros_like(length), length)
        if not self._unsettled(floor, ceil)[0]:
            draw.groups = []
            draw.hits[int(ceil[0]) :] += draw.samples

    def _unsettled(self, floor: torch.Tensor, ceil: torch.Tensor) -> torch.Tensor:
        last = self.metric.tolerance
        return (floor <= last) & (ceil > (floor if self.every else last))

    def _step(self, draws: Sequence[Draw]) -> None:
        readings = []
        for draw in draws:
            for group in draw.groups:
                place = self.reader.take(len(group.tokens))
                draw.entries.append(place)
                draw.evals += len(group.tokens)
                readings.append(Reading(group.tokens, group.past, place, 1, draw.example.id, draw.index))
        labels = [r.label for r in readings]
        hidden = self.reader.states(readings)
        listed, _ = self.reader.supports(hidden, torch.zeros(len(hidden), dtype=torch.int64), labels)
        tokens, chances = listed.tokens.cpu().numpy(), listed.log_probs.exp().cpu().numpy()
        chances = np.concatenate([chances, listed.rest.cpu().numpy()[:, None]], 1)

        taken: list[tuple[int, int, int]] = []  # (row, token, count)
        unlisted: list[tuple[int, int, Ints]] = []  # (row, count, tokens to leave out)
        owner: list[Draw] = []
        row = 0
        for draw in draws:
            fresh = np.array([row + i for i, g in enumerate(draw.groups) if g.known is None], dtype=np.int64)
            counts = [g.count for g in draw.groups if g.known is None]
            unlisted += [(row + i, g.count, g.known) for i, g in enumerate(draw.groups) if g.known is not None]
            row += len(draw.groups)
            owner += [draw] * len(draw.groups)
            drawn = divided(draw.rng, counts, chances[fresh])
            for r, c in zip(*np.nonzero(drawn[:, :-1]), strict=True):
                taken.append((int(fresh[r]), int(tokens[fresh[r], c]), int(drawn[r, c])))
            unlisted += [(int(fresh[r]), int(drawn[r, -1]), tokens[fresh[r]]) for r in np.flatnonzero(drawn[:, -1])]
        for r, count, known in unlisted:
            taken += [(r, token, n) for token, n in self._beyond(hidden[r], labels[r], owner[r].rng, count, known)]
        self._advance(draws, owner, readings, taken)

    def _beyond(
        self, hidden: torch.Tensor, label: str, rng: np.random.Generator, count: int, known: Ints
    ) -> list[tuple[int, int]]:
        """Divide samples among the tokens of the support that are not `known`."""
        nothing = torch.zeros(1, dtype=torch.int64)
        every, _ = self.reader.supports(hidden[None], nothing, [label], width=self.reader.model.vocabulary)
        tokens, chances = every.tokens[0].cpu().numpy(), every.log_probs[0].exp().cpu().numpy()
        chances = np.where(np.isin(tokens, known), 0.0, chances)
        drawn = divided(rng, [count], chances[None])[0]
        return [(int(tokens[i]), int(drawn[i])) for i in np.flatnonzero(drawn)]

    def _advance(
        self, draws: Sequence[Draw], owner: list[Draw], readings: list[Reading], taken: list[tuple[int, int, int]]
    ) -> None:
        """Move samples to the children they drew: count those whose outcome is certain, keep the others."""
        before = [group for draw in draws for group in draw.groups]
        for draw in draws:
            draw.groups = []
        rows = [r for r, _, _ in taken]
        suffixes = [owner[r].example.suffix for r in rows]
        states = torch.from_numpy(np.stack([before[r].state for r in rows]))
        written = torch.tensor([before[r].written for r in rows])
        lengths = torch.tensor([len(s) for s in suffixes])
        token = torch.tensor([[t] for _, t, _ in taken])
        window = self.metric.window(self.metric.targets(suffixes), written)
        after, floor, ceil = self.metric.children(states, written, lengths, window, token, torch.isin(token, self.eos))
        unsettled = self._unsettled(floor, ceil)[:, 0].tolist()
        ends, reached = ceil[:, 0].tolist(), after[:, 0].numpy()
        for i, (r, name, count) in enumerate(taken):
            draw = owner[r]
            if not unsettled[i]:
                draw.hits[ends[i] :] += count
                continue
            past = np.concatenate([readings[r].past, readings[r].place])
            one = np.array([name], dtype=np.int64)
            draw.groups.append(_Group(count, one, past, before[r].written + 1, reached[i]))

    def _stand(self, search: Search, nodes: Nodes, counts: Ints) -> list[_Group]:
        """The samples that were drawn for open nodes, where they stand."""
        groups = []
        prefix = [*self.bos, *search.example.prefix]
        suffix = self.metric.targets([search.example.suffix])
        length = torch.tensor([len(search.example.suffix)])
        for i, count in enumerate(counts):
            spine, at, token = search.spines[nodes.spine[i]], int(nodes.at[i]), nodes.token[i : i + 1]
            state = spine.states[at - spine.first]
            if token[0] < 0:  # one of the tokens that were not listed: read the position again
                assert spine.listed is not None
                history = np.array([*prefix, *spine.written[:at]], dtype=np.int64)
                past = spine.entries[: len(history) - 1]
                groups.append(_Group(int(count), history[-1:], past, at, state, spine.listed[at - spine.first]))
                continue
            where = torch.tensor([at])
            after = self.metric.advance(
                torch.from_numpy(state)[None], where, length, self.metric.window(suffix, where),
                torch.from_numpy(token)[None],
            )  # fmt: skip
            past = spine.entries[: len(prefix) + at]
            groups.append(_Group(int(count), token, past, at + 1, after[0, 0].numpy()))
        return groups


def _shared(batches: Sequence[Nodes], samples: int, rng: np.random.Generator) -> Iterator[tuple[Nodes, Ints]]:
    """Divide samples among open nodes in proportion to their mass; nodes that get none are left out."""
    if not batches:
        return
    mass = np.concatenate([np.exp(b.log_mass) for b in batches])
    drawn = divided(rng, [samples], mass[None])[0]
    for batch, counts in zip(batches, np.split(drawn, np.cumsum([len(b) for b in batches])[:-1]), strict=True):
        which = np.flatnonzero(counts)
        if len(which):
            yield batch.pick(which), counts[which]


def divided(rng: np.random.Generator, counts: Sequence[int], chances: NDArray[np.float64]) -> Ints:
    """[rows, columns]: `counts` samples of each row, divided among its columns in proportion to their chances.

    One uniform number decides each sample, whatever the chances are. numpy's `multinomial` turns its numbers round
    where a chance passes 1/2 and takes more of them for some chances than for others: the last bit of a chance, which
    is not the same on every processor, would decide all that is drawn after it.
    """
    rows, columns = chances.shape
    borders = chances.cumsum(1)
    borders /= borders[:, -1:]
    row = np.repeat(np.arange(rows), counts)
    drawn = rng.random(len(row))
    low, high = np.zeros_like(row), np.full_like(row, columns - 1)
    for _ in range((columns - 1).bit_length()):  # the first column whose border lies above: it has a chance
        middle = (low + high) // 2
        above = borders[row, middle] > drawn
        low, high = np.where(above, low, middle + 1), np.where(above, middle, high)
    return np.bincount(row * columns + low, minlength=rows * columns).reshape(rows, columns)


def estimate(lower: float, open_mass: float, hits: int, samples: int, seed: int) -> Estimate:
    """lower + open mass * share of hits: unbiased, never below the certified bound. Wilson interval for the share.

    The standard error is that of a share of (hits + 1) / (samples + 2): none or all of a few samples is not certainty.
    """
    share = hits / samples if samples else 0.0
    likely = (hits + 1) / (samples + 2)
    low, high = wilson(hits, samples)
    error = open_mass * math.sqrt(likely * (1 - likely) / samples) if samples else open_mass
    ends = (min(lower + open_mass * low, 1.0), min(lower + open_mass * high, 1.0))
    return Estimate(min(lower + open_mass * share, 1.0), error, ends, samples, seed)
