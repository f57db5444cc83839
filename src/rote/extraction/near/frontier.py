"""What a fork search has left open, in the order in which it is worth reading on."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Open nodes, one row each: `token` at output index `at`, after what spine `spine` has written before.

    Token -1 stands for all tokens of the support that are not listed.
    """

    log_mass: Floats
    floor: Ints
    spine: Ints
    at: Ints
    token: Ints
    column: Ints
    run: Ints  # how many tokens to read at once
    promise: Floats  # log of what reading on may close

    def pick(self, which: Any) -> Nodes:
        return Nodes(*(getattr(self, name)[which] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.log_mass)


@dataclass(frozen=True, slots=True)
class Node:
    """One of them."""

    log_mass: float
    floor: int
    spine: int
    at: int
    token: int
    column: int
    run: int
    promise: float


class Frontier:
    """Open nodes in the order of their promise. Each reading adds a batch; batches stay as they are."""

    def __init__(self, tolerances: int) -> None:
        self._batches: list[Nodes] = []
        self._taken: list[int] = []
        self._heads: list[tuple[float, int]] = []
        self._open = np.zeros(tolerances)

    def push(self, nodes: Nodes) -> None:
        if len(nodes):
            self._batches.append(nodes.pick(np.argsort(-nodes.promise, kind="stable")))
            self._taken.append(0)
            self._open += self._mass(nodes)
            self._wait(len(self._batches) - 1)

    def pop(self) -> Node:
        """The most promising one."""
        _, batch = heapq.heappop(self._heads)
        at = self._taken[batch]
        self._taken[batch] += 1
        self._wait(batch)
        node = Node(*(getattr(self._batches[batch], name)[at].item() for name in Node.__slots__))
        self._open[node.floor :] -= np.exp(node.log_mass)
        return node

    def __bool__(self) -> bool:
        return bool(self._heads)

    @property
    def best(self) -> float:
        return -self._heads[0][0]

    @property
    def open(self) -> Floats:
        """The mass of all nodes by tolerance, up to the rounding of many additions and subtractions."""
        return self._open

    def left(self) -> list[Nodes]:
        return [b.pick(slice(t, None)) for b, t in zip(self._batches, self._taken, strict=True) if t < len(b)]

    def exactly_open(self) -> Floats:
        return sum((self._mass(nodes) for nodes in self.left()), np.zeros_like(self._open))

    def _wait(self, batch: int) -> None:
        if self._taken[batch] < len(self._batches[batch]):
            heapq.heappush(self._heads, (-float(self._batches[batch].promise[self._taken[batch]]), batch))

    def _mass(self, nodes: Nodes) -> Floats:
        """By tolerance: a node is open from its floor on."""
        by_floor = np.bincount(nodes.floor, weights=np.exp(nodes.log_mass), minlength=len(self._open))
        return np.cumsum(by_floor[: len(self._open)])
