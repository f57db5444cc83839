"""Fork search: certified bounds on near-verbatim probability from teacher-forced passes.

A memorized suffix tells where the mass is: along itself. So the search does not go token by token. It reads a whole
spine at once (the suffix, or what is left of it after an edit), sees at every position all tokens that may come next,
and sorts each child into closed (every completion is near enough: its mass counts), dead (none is: it is dropped) and
open (it may fork off a spine of its own). At any moment the closed mass is a lower bound, and with the open mass an
upper bound.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.decoding import TargetScores
from rote.extraction.near.batches import Ints, Packed, Reader, Reading
from rote.extraction.near.distance import Metric, root_ceil
from rote.extraction.near.frontier import Frontier, Node, Nodes
from rote.extraction.near.results import Candidate, Goal, completed, heaviest
from rote.extraction.near.spines import Children, Expansion, Floats, Start, expand
from rote.tokens import Example

FIRST = 1  # tokens read at once after a fork, before it is known whether the model comes back to the text
GROWTH = 2  # how much further to read each time it has
ROUND = 8  # forks of one sequence that are read side by side
RETURN = 0.3  # guessed chance that the model comes back to the text after one more edit
UNLIKELY = 1e-3  # guessed chance of a suffix token outside the support
COST = 0.5  # how much a fork that takes long to close is put back


@dataclass(frozen=True, slots=True, eq=False)
class Spine:
    """What was read in one go: the output up to there, and what is known of each wanted position."""

    entries: Ints  # of every position fed, from the beginning on
    written: Ints  # output tokens that are fed
    first: int  # how many tokens are written at its first wanted position
    path: Floats  # log-probability of getting to each wanted position
    states: NDArray[np.int16]  # the distance state there
    listed: Ints | None  # the tokens that were listed there, where that was not all of the support
    stay: Floats  # log-probability of suffix tokens where they were expected, by suffix index


@dataclass(frozen=True, slots=True)
class _Set:
    """A closed child: all outputs that begin with `output`. Spine `spine` leads to its last token."""

    output: tuple[int, ...]
    log_mass: float
    spine: int


@dataclass(slots=True, eq=False)
class Search:
    """One sequence: what is certain, what is open, and what it cost. By tolerance, from 0 to the metric's."""

    index: int  # of the example
    example: Example
    lower: Floats
    parked: Floats  # open for this tolerance, but not searched on
    frontier: Frontier
    spines: list[Spine] = field(default_factory=list)
    evals: int = 0
    eos_mass: float = 0.0
    entries: list[Ints] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    sets: list[_Set] = field(default_factory=list)
    scores: TargetScores | None = None

    @property
    def upper(self) -> Floats:
        return np.minimum(self.lower + self.parked + self.frontier.open, 1.0)

    def bounds(self) -> tuple[tuple[float, float], ...]:
        """(lower, upper) for every tolerance."""
        upper = self.lower + self.parked + self.frontier.exactly_open()
        return tuple(
            (min(low, 1.0), min(high, 1.0)) for low, high in zip(self.lower.tolist(), upper.tolist(), strict=True)
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Begun:
    """First passes that are about to be read."""

    searches: list[Search]
    starts: list[Start]
    packed: Packed | None

    def read(self, reader: Reader) -> Tensor | None:
        return reader.states([s.reading for s in self.starts], self.packed) if self.starts else None


def first_cost(example: Example) -> int:
    """Token evaluations of the first pass: positions fed, BOS not counted."""
    return len(example.prefix) + len(example.suffix) - 1


class Forks:
    """Fork searches of many sequences, read side by side."""

    def __init__(
        self, reader: Reader, metric: Metric, *, budget: Callable[[Example], int], goal: Goal, shown: int, scores: bool
    ) -> None:
        """`budget`: token evaluations of a sequence, first pass included. A reader without entries: first passes only.

        `shown`: how many candidates to keep; `scores`: whether to keep what verbatim scoring says of the first pass.
        """
        self.reader, self.metric, self.budget, self.goal = reader, metric, budget, goal
        self.shown, self.scores = shown, scores
        self.bos = [] if reader.model.bos_id is None else [reader.model.bos_id]

    def run(self, examples: Sequence[Example], *, at_once: int) -> Iterator[list[Search]]:
        """Searches that finish together; waiting ones enter in their place.

        A search is finished when its goal is reached, when nothing is open, or when its budget allows no further
        token. What it holds in the reader's memory is given back when the next ones are asked for.
        """
        if not self.reader.keeps:
            yield from self._first_passes(examples, at_once)
            return
        waiting = deque(enumerate(examples))
        active: list[Search] = []
        while waiting or active:
            count = min(at_once - len(active), len(waiting))
            new = [self._root(i, e) for i, e in (waiting.popleft() for _ in range(count))]
            begun = self._begin(new)
            self._book(begun, self._sorted(begun, begun.read(self.reader)))
            going: list[Search] = []
            done: list[Search] = []
            for one in active + new:
                (going if self._goes_on(one) else done).append(one)
            self._complete(done)
            if done:
                yield done
            for one in done:
                self.reader.give(*one.entries)
            active = going
            self._fork(active)

    def _first_passes(self, examples: Sequence[Example], at_once: int) -> Iterator[list[Search]]:
        """First passes alone. While the device reads one batch, the host books the last and packs the next."""
        every = [self._root(i, e) for i, e in enumerate(examples)]
        batches = [every[start : start + at_once] for start in range(0, len(every), at_once)]
        begun = self._begin(batches[0])
        hidden = begun.read(self.reader)
        for i, batch in enumerate(batches):
            ahead = self._begin(batches[i + 1]) if i + 1 < len(batches) else _Begun([], [], None)
            expansions = self._sorted(begun, hidden)
            hidden = ahead.read(self.reader)
            self._book(begun, expansions)
            begun = ahead
            self._complete(batch)
            yield batch

    def _goes_on(self, one: Search) -> bool:
        if not one.frontier or one.evals >= self.budget(one.example):
            return False
        if self.goal.until == "worthwhile" and one.frontier.best < math.log(self.goal.tau / 1000):
            return False
        return not self.goal.reached(float(one.lower[-1]), float(one.upper[-1]))

    def _root(self, index: int, example: Example) -> Search:
        """A sequence before its first pass: closed already for tolerances that let everything pass, else open."""
        ceil = root_ceil(self.metric, len(example.suffix))
        closed = (np.arange(self.metric.tolerance + 1) >= ceil).astype(np.float64)
        return Search(index, example, closed, 1 - closed, Frontier(len(closed)))

    def _begin(self, searches: Sequence[Search]) -> _Begun:
        """Prepare the first pass: the suffix itself is the spine."""
        searches = [one for one in searches if first_cost(one.example) <= self.budget(one.example)]
        lengths = {len(one.example.suffix) for one in searches}
        empty = {n: self.metric.start(torch.tensor([n]))[0].numpy() for n in lengths}
        starts = []
        for one in searches:
            tokens = np.array([*self.bos, *one.example.prefix, *one.example.suffix[:-1]], dtype=np.int64)
            suffix = np.array(one.example.suffix, dtype=np.int64)
            place = self.reader.take(len(tokens))
            one.entries.append(place)
            one.evals += first_cost(one.example)
            one.parked[:] = 0
            reading = Reading(tokens, tokens[:0], place, len(suffix), one.example.id, one.index)
            starts.append(Start(reading, suffix, one.example.suffix, 0.0, 0, empty[len(suffix)], on_target=True))
        packed = None if self.reader.keeps else self.reader.pack([s.reading for s in starts])
        return _Begun(searches, starts, packed)

    def _sorted(self, begun: _Begun, hidden: Tensor | None) -> list[Expansion]:
        if hidden is None:
            return []
        keeps = self.reader.keeps
        return expand(self.reader, self.metric, begun.starts, hidden, children=keeps, scores=self.scores)

    def _book(self, begun: _Begun, expansions: Sequence[Expansion]) -> None:
        for one, start, expansion in zip(begun.searches, begun.starts, expansions, strict=True):
            one.scores = expansion.scores
            stay = np.zeros(len(start.spine))  # all of it is learned from this pass
            self._add(one, start, expansion, start.reading.place, start.spine[:-1], stay, 0, 1)

    def _fork(self, searches: Sequence[Search]) -> None:
        """Read on from the most promising open nodes of every sequence."""
        tasks: list[tuple[Search, Node]] = []
        whole: list[tuple[Search, Node]] = []
        for one in searches:
            for node in self._choose(one):
                (tasks if node.token >= 0 else whole).append((one, node))
        if tasks:
            self._read(tasks, self._starts(tasks), 0)
        if whole:  # nodes that stand for many tokens: list them all
            self._read(whole, [self._again(one, node) for one, node in whole], self.reader.model.vocabulary)

    def _choose(self, one: Search) -> list[Node]:
        """Take the most promising nodes off the frontier, each with a reading that the budget allows."""
        chosen: list[Node] = []
        length, left = len(one.example.suffix), self.budget(one.example) - one.evals
        while one.frontier and left > 0 and len(chosen) < ROUND:
            node = one.frontier.pop()
            to_read = min(length - 1 - node.at, 1 + max(length - node.column, 0), left)
            run = max(1, min(node.run, to_read)) if node.token >= 0 else 1
            left -= run
            chosen.append(replace(node, run=run))
        return chosen

    def _starts(self, tasks: Sequence[tuple[Search, Node]]) -> list[Start]:
        """Readings of nodes: the node's token, then the suffix from where it most likely stands."""
        at = torch.tensor([node.at for _, node in tasks])
        suffixes = [one.example.suffix for one, _ in tasks]
        lengths = torch.tensor([len(s) for s in suffixes])
        token = torch.tensor([[node.token] for _, node in tasks])
        before = torch.from_numpy(np.stack([_state(one, node) for one, node in tasks]))
        window = self.metric.window(self.metric.targets(suffixes), at)
        states = self.metric.advance(before, at, lengths, window, token)[:, 0].numpy()
        starts = []
        for (one, node), state in zip(tasks, states, strict=True):
            column, run = node.column, node.run
            known = one.example.suffix[column : column + run]
            if self.metric.eos != "ignore":  # no output goes on after EOS, which a suffix may end with
                run = next((i + 1 for i, t in enumerate(known[: run - 1]) if t in self.reader.model.eos_ids), run)
                known = known[:run]
            ahead = np.full(run, -1, dtype=np.int64)
            ahead[: len(known)] = known
            tokens = np.concatenate([[node.token], ahead[: run - 1]])
            spine, written = one.spines[node.spine], node.at
            past = spine.entries[: len(self.bos) + len(one.example.prefix) + written]
            reading = Reading(tokens, past, self.reader.take(run), run, one.example.id, one.index)
            starts.append(Start(reading, ahead, one.example.suffix, node.log_mass, written + 1, state))
        return starts

    def _again(self, one: Search, node: Node) -> Start:
        """Read a position once more, for the tokens that were not listed the first time."""
        spine, at = one.spines[node.spine], node.at
        history = np.array([*self.bos, *one.example.prefix, *spine.written[:at]], dtype=np.int64)
        reading = Reading(
            history[-1:], spine.entries[: len(history) - 1], self.reader.take(1), 1, one.example.id, one.index
        )
        step = at - spine.first
        assert spine.listed is not None
        nothing = np.full(1, -1, dtype=np.int64)
        mass = float(spine.path[step])
        return Start(reading, nothing, one.example.suffix, mass, at, spine.states[step], spine.listed[step])

    def _read(self, tasks: Sequence[tuple[Search, Node]], starts: Sequence[Start], width: int) -> None:
        hidden = self.reader.states([s.reading for s in starts])
        expansions = expand(self.reader, self.metric, starts, hidden, children=True, width=width)
        for (one, node), start, expansion in zip(tasks, starts, expansions, strict=True):
            one.entries.append(start.reading.place)
            one.evals += len(start.reading.tokens)
            parent = one.spines[node.spine]
            written = np.concatenate([parent.written[: start.written - 1], start.reading.tokens])
            if start.known is not None:
                written = parent.written[: start.written]
            entries = np.concatenate([start.reading.past, start.reading.place])
            self._add(one, start, expansion, entries, written, parent.stay, node.column, node.run)

    def _add(
        self,
        one: Search,
        start: Start,
        read: Expansion,
        entries: Ints,
        written: Ints,
        stay: Floats,
        column: int,
        run: int,
    ) -> None:
        """Book what a reading came to, and put its open children on the frontier."""
        one.lower += read.lower
        one.parked += read.parked
        one.eos_mass += read.eos_mass
        self._show(one, start, read, written, len(one.spines))
        if read.children is None:
            one.parked += read.open
            return
        asked = start.spine >= 0
        stay = stay.copy()
        stay[column : column + int(asked.sum())] = np.maximum(read.taken[asked], math.log(UNLIKELY))
        one.spines.append(Spine(entries, written, start.written, read.path, read.states, read.listed, stay))
        children = read.children
        goes_on = (children.step == len(start.spine) - 1) & (children.token == start.spine[-1])
        at = start.written + children.step
        one.frontier.push(
            Nodes(
                log_mass=children.log_mass, floor=children.floor, spine=np.full_like(at, len(one.spines) - 1), at=at,
                token=children.token, column=children.column, run=np.where(goes_on, run * GROWTH, FIRST),
                promise=self._promise(one, children, at, goes_on, stay),
            )
        )  # fmt: skip

    def _promise(self, one: Search, children: Children, at: Ints, goes_on: NDArray[np.bool_], stay: Floats) -> Floats:
        """Log of the mass that reading on from each child is guessed to close, per token that it takes."""
        length = len(one.example.suffix)
        through = np.concatenate([[0.0], np.cumsum(stay)])
        needed = np.maximum(length - self.metric.tolerance + children.edits - (at + 1), 0)
        column = np.minimum(children.column, length)
        along = through[np.minimum(column + needed, length)] - through[column]
        back = np.where(goes_on, 0.0, math.log(RETURN))
        guess: Floats = children.log_mass + along + back - COST * np.log(needed + 1)
        return guess

    def _show(self, one: Search, start: Start, read: Expansion, written: Ints, spine: int) -> None:
        """Keep the heaviest outputs that count, but for the suffix itself."""
        shown = read.shown
        for i in np.argsort(-shown.log_mass, kind="stable")[: self.shown + 1]:
            output = (*written[: start.written + int(shown.step[i])].tolist(), int(shown.token[i]))
            if shown.final[i] and output != one.example.suffix:
                one.candidates.append(Candidate(output, float(shown.log_mass[i]), int(shown.distance[i])))
            elif not shown.final[i]:
                one.sets.append(_Set(output, float(shown.log_mass[i]), spine))
        one.candidates = heaviest(one.candidates, self.shown)
        one.sets = sorted(one.sets, key=lambda s: -s.log_mass)[: self.shown]

    def _complete(self, searches: Sequence[Search]) -> None:
        """Finish the heaviest closed sets with one member each; score it where budget and memory allow."""
        tasks: list[tuple[Search, _Set, tuple[int, ...]]] = []
        readings, targets = [], []
        for one in searches if self.shown else ():
            left = self.budget(one.example) - one.evals
            full = len(one.candidates) >= self.shown
            weakest = one.candidates[-1].weight if full else -math.inf
            for closed_set in one.sets:
                if closed_set.log_mass < weakest:
                    continue
                output = completed(closed_set.output, one.example.suffix)
                rest = np.array(output[len(closed_set.output) :], dtype=np.int64)
                if not self.reader.keeps or len(rest) > left:
                    one.candidates.append(self._member(one, closed_set, output, None))
                    continue
                left -= len(rest)
                at = len(self.bos) + len(one.example.prefix) + len(closed_set.output) - 1
                tokens = np.concatenate([closed_set.output[-1:], rest[:-1]]).astype(np.int64)
                place = self.reader.take(len(tokens))
                one.entries.append(place)
                one.evals += len(tokens)
                past = one.spines[closed_set.spine].entries[:at]
                readings.append(Reading(tokens, past, place, len(tokens), one.example.id, one.index))
                targets.append(rest)
                tasks.append((one, closed_set, output))
        if readings:
            read, _ = self.reader.read(readings, np.concatenate(targets))
            parts = np.split(read.target.cpu().numpy(), np.cumsum([len(t) for t in targets])[:-1])
            for (one, closed_set, output), log_probs in zip(tasks, parts, strict=True):
                if np.isfinite(log_probs).all():  # else this member of the set never comes out
                    log_prob = closed_set.log_mass + float(log_probs.sum())
                    one.candidates.append(self._member(one, closed_set, output, log_prob))
        for one in searches:
            one.candidates = heaviest(one.candidates, self.shown)

    def _member(self, one: Search, closed_set: _Set, output: tuple[int, ...], log_prob: float | None) -> Candidate:
        return Candidate(output, log_prob, self.metric.between(output, one.example.suffix), closed_set.log_mass)


def _state(one: Search, node: Node) -> NDArray[np.int16]:
    spine = one.spines[node.spine]
    state: NDArray[np.int16] = spine.states[node.at - spine.first]
    return state
