"""Which output to write next: every token that a written output did not take begins others, the heaviest first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from rote.extraction.attack.writing import Ints, Node, Spine, Writer

LEAST = float(np.log(1e-6))  # outputs that begin less likely than this are not looked at
LAST = float(np.log(1e-3))  # other last tokens cost nothing, but every guess is one more that may be wrong
COST = 0.25  # how much dear nodes are put back
GRAIN = 2  # decimals of a promise: what two computations of one logit differ by should not decide what comes first


class Forks:
    """The outputs written so far of some examples, and where they may be left.

    A node's mass, the exact chance that an output drawn from the model begins so, is what promises something; what
    writing it to its end costs is set against that.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.spines: dict[int, list[Spine]] = {}  # by example; the first is greedy
        self._heap: list[tuple[float, int, int, Node]] = []
        self._taken: set[tuple[int, int, int]] = set()  # nodes that were left at: spine, place, token
        self._count = 0

    def add(self, spines: Sequence[Spine]) -> None:
        """Outputs that were written: nodes of theirs are open now."""
        length = self.writer.length
        for spine in spines:
            self.spines.setdefault(spine.example, []).append(spine)
            if spine.own == length:
                continue
            before = np.concatenate([[0.0], spine.log_probs.cumsum()])
            at = np.arange(spine.own, length)
            mass = before[at][:, None] + spine.choice_log_probs
            cost = np.maximum(length - 1 - at, 1)
            promise = np.round(mass - COST * np.log(cost)[:, None], GRAIN)
            open_ = (spine.choices != spine.tokens[at][:, None]) & (
                mass > np.where(at == length - 1, LAST, LEAST)[:, None]
            )
            for step, column in zip(*open_.nonzero(), strict=True):
                token, log_prob = int(spine.choices[step, column]), float(spine.choice_log_probs[step, column])
                node = Node(spine, spine.own + int(step), token, log_prob)
                self._count += 1
                heapq.heappush(self._heap, (-float(promise[step, column]), spine.example, self._count, node))

    def choose(self, rows: int, evals: int | None) -> list[Node]:
        """Take the most promising nodes, as many as may be written side by side and as `evals` allow."""
        chosen: list[Node] = []
        put_back = []
        while self._heap and len(chosen) < rows:
            entry = heapq.heappop(self._heap)
            node = entry[3]
            if (id(node.spine), node.at, node.token) in self._taken:
                continue
            cost = self.writer.cost(node)
            if evals is not None and cost > evals:
                put_back.append(entry)
                if len(put_back) > rows:
                    break
                continue
            evals = None if evals is None else evals - cost
            chosen.append(node)
        for entry in put_back:
            heapq.heappush(self._heap, entry)
        return chosen

    def make_room(self, nodes: Sequence[Node]) -> None:
        """Where the memory has no room for these, give up what it keeps of all outputs but the greedy ones."""
        if sum(map(self.writer.cost, nodes)) <= self.writer.free:
            return
        for first, *others in self.spines.values():
            for spine in others:
                self.writer.give(spine.entries[spine.shared :])
            for spine in others:
                leaves = int((spine.tokens != first.tokens).argmax())
                known = len(first.entries) - (self.writer.length - 1) + leaves
                spine.entries, spine.shared = first.entries[:known], known

    def taken(self, example: int, tokens: Ints, at: int) -> Node:
        """The node at which a known output left one of those before it; it is not chosen again."""
        for spine in self.spines[example]:
            if spine.own <= at and np.array_equal(spine.tokens[:at], tokens[:at]) and spine.tokens[at] != tokens[at]:
                column = int((spine.choices[at - spine.own] == tokens[at]).argmax())
                self._taken.add((id(spine), at, int(tokens[at])))
                return Node(spine, at, int(tokens[at]), float(spine.choice_log_probs[at - spine.own, column]))
        raise AssertionError("an output that left none of those before it")
