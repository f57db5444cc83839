"""Examples that have nothing in common: neither a long run of tokens, nor a token's place in the corpus."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rote.corpus.index import Place


class Apart:
    """Examples of `length` tokens that were taken, and whether others share a run of `run` tokens with one of them."""

    def __init__(self, length: int, run: int) -> None:
        self._length, self._run = length, run
        self._runs: set[bytes] = set()
        self._starts: dict[int, list[int]] = {}

    def shares(self, ids: Sequence[int]) -> bool:
        """Whether an example has a run in common with one that was taken."""
        return not self._runs.isdisjoint(self._runs_of(ids))

    def overlaps(self, places: Iterable[Place]) -> bool:
        """Whether an example that stands at `places` overlaps one that was taken."""
        return any(map(self._overlaps, places))

    def take(self, ids: Sequence[int], places: Iterable[Place]) -> None:
        self._runs.update(self._runs_of(ids))
        for place in places:
            insort(self._starts.setdefault(place.document, []), place.token)

    def _runs_of(self, ids: Sequence[int]) -> Iterator[bytes]:
        content = np.asarray(ids, dtype=np.uint32).tobytes()
        for at in range(0, 4 * (len(ids) - self._run + 1), 4):
            yield content[at : at + 4 * self._run]

    def _overlaps(self, place: Place) -> bool:
        starts = self._starts.get(place.document, [])
        at = bisect_left(starts, place.token - self._length + 1)
        return at < len(starts) and starts[at] < place.token + self._length


def shared_out(available: int, sizes: dict[str, int]) -> dict[str, int]:
    """How many examples each split gets of those there are: as many as asked for, else in the same proportions.

    What rounding down leaves goes to the first that is to have any.
    """
    total = sum(sizes.values())
    if available >= total:
        return dict(sizes)
    given = {name: available * size // total for name, size in sizes.items()}
    first = next(name for name, size in sizes.items() if size)
    return given | {first: given[first] + available - sum(given.values())}
