"""Near-verbatim probability by its definition, from every output of a tiny model; published beam search, with lists.

Slow and obvious; shares no code with rote.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.reference import decoding
from tests.reference.decoding import Row

Tokens = tuple[int, ...]


def levenshtein_rows(output: Sequence[int], suffix: Sequence[int]) -> list[list[int]]:
    """The whole matrix: row i, column j is the distance of the first i output tokens to the first j suffix tokens."""
    rows = [list(range(len(suffix) + 1))]
    for i in range(1, len(output) + 1):
        row = [i]
        for j in range(1, len(suffix) + 1):
            differs = 0 if output[i - 1] == suffix[j - 1] else 1
            row.append(min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + differs))
        rows.append(row)
    return rows


def levenshtein(output: Sequence[int], suffix: Sequence[int]) -> int:
    return levenshtein_rows(output, suffix)[-1][-1]


def hamming(output: Sequence[int], suffix: Sequence[int]) -> int:
    """Positions that only one of the two has are mismatches."""
    count = 0
    for i in range(max(len(output), len(suffix))):
        if i >= len(output) or i >= len(suffix) or output[i] != suffix[i]:
            count += 1
    return count


FAR = 99  # beyond every tolerance


def floor_and_ceil(distance: str, eos: str, published: bool, written: Tokens, suffix: Tokens) -> tuple[int, int]:
    """(floor, ceil) as defined on the whole matrix, for an output that goes on or is as long as the suffix."""
    t, length = len(written), len(suffix)
    if distance == "hamming":
        floor = sum(a != b for a, b in zip(written, suffix, strict=False))
        ceil = floor + length - t
    else:
        row = levenshtein_rows(written, suffix)[-1]
        paid = [0 if published else max(0, t - j) if eos == "stop" else abs(t - j) for j in range(length + 1)]
        floor = min(d + more for d, more in zip(row, paid, strict=True))
        ceil = length - t + min(row[t:])
    return floor, FAR if eos == "exclude" and length - t > 1 else ceil


def state(written: Tokens, suffix: Tokens, distance: str, tolerance: int) -> list[int]:
    """The part of the matrix's last row that a tolerance can see: what lies beyond it is tolerance + 1."""
    if distance == "hamming":
        return [sum(a != b for a, b in zip(written, suffix, strict=False))]
    row = levenshtein_rows(written, suffix)[-1]
    columns = range(len(written) - tolerance, len(written) + tolerance + 1)
    return [min(row[j], tolerance + 1) if 0 <= j < len(row) else tolerance + 1 for j in columns]


DISTANCES: dict[str, Callable[[Sequence[int], Sequence[int]], int]] = {"levenshtein": levenshtein, "hamming": hamming}


class Tree:
    """What a model may write under a scheme (temperature, top-k, top-p, min-p). Every history is asked for once."""

    def __init__(
        self,
        logits_after: Callable[[Tokens], Row],
        history: Tokens,
        scheme: tuple[float, int | None, float | None] | tuple[float, int | None, float | None, float | None],
        eos_ids: Iterable[int],
        alike: Callable[[Tokens], Hashable] = lambda history: history,
    ) -> None:
        """`alike`: histories with equal values of it are known to have equal logits."""
        self.logits_after, self.history, self.scheme, self.eos_ids = logits_after, history, scheme, frozenset(eos_ids)
        self._alike = alike
        self._known: dict[Hashable, dict[int, float]] = {}

    def following(self, written: Tokens) -> dict[int, float]:
        """The log-probability of every token that may come next, by rising id."""
        key = self._alike(self.history + written)
        if key not in self._known:
            logits = np.asarray(self.logits_after(self.history + written), dtype=np.float32).astype(np.float64)
            kept = decoding.support(logits, *self.scheme)
            found = {token: decoding.log_prob(logits, token, *self.scheme) for token in kept}
            self._known[key] = {token: log_prob for token, log_prob in found.items() if log_prob > -math.inf}
        return self._known[key]

    def log_prob(self, output: Tokens) -> float:
        return sum(self.following(output[:i]).get(token, -math.inf) for i, token in enumerate(output))

    def bounds(self, output: Tokens, suffix: Tokens, distance: str, eos: str) -> tuple[int, int]:
        """(floor, ceil) of an output whose last token may have ended it; FAR where it does not count."""
        if output and output[-1] in self.eos_ids and len(output) < len(suffix) and eos != "ignore":
            end = DISTANCES[distance](output, suffix) if eos == "stop" else FAR
            return end, end
        return floor_and_ceil(distance, eos, False, output, suffix)

    def outputs(self, length: int, eos: str) -> dict[Tokens, float]:
        """Every output that counts, and its log-probability."""
        found: dict[Tokens, float] = {}
        going: list[tuple[Tokens, float]] = [((), 0.0)]
        while going:
            written, log_prob = going.pop()
            for token, more in self.following(written).items():
                output, total = (*written, token), log_prob + more
                early = token in self.eos_ids and len(output) < length
                if len(output) == length or (early and eos == "stop"):
                    found[output] = total
                elif not (early and eos == "exclude"):
                    going.append((output, total))
        return found


def near_probabilities(outputs: Mapping[Tokens, float], suffix: Tokens, distance: str, largest: int) -> list[float]:
    """The probability of an output within 0, 1, ... `largest` of the suffix."""
    measure = DISTANCES[distance]
    found = [(measure(output, suffix), math.exp(log_prob)) for output, log_prob in outputs.items()]
    return [math.fsum(mass for d, mass in found if d <= tolerance) for tolerance in range(largest + 1)]


def near_probabilities_of_many(tree: Tree, suffix: Tokens, distance: str, eos: str, largest: int) -> list[float]:
    """The same for outputs by the thousand: each beginning's row of the matrix is worked out once."""
    masses = [0.0] * (largest + 2)
    going: list[tuple[Tokens, float, list[int]]] = [((), 1.0, list(range(len(suffix) + 1)))]
    while going:
        written, mass, row = going.pop()
        for token, more in tree.following(written).items():
            output, total = (*written, token), mass * math.exp(more)
            after = [row[0] + 1]
            for j, target in enumerate(suffix, start=1):
                after.append(min(row[j] + 1, after[-1] + 1, row[j - 1] + (token != target)))
            early = token in tree.eos_ids and len(output) < len(suffix)
            if len(output) == len(suffix) or (early and eos == "stop"):
                end = after[-1] if distance == "levenshtein" else hamming(output, suffix)
                masses[min(end, largest + 1)] += total
            elif not (early and eos == "exclude"):
                going.append((output, total, after))
    return [math.fsum(masses[: e + 1]) for e in range(largest + 1)]


@dataclass(frozen=True)
class BeamResult:
    finals: dict[Tokens, float]  # outputs that were reached, near or not, and their log-probability
    lower: float
    upper: float
    evals: int
    eos_mass: float
    doubtful: bool  # rounding may decide which of two paths is kept: another computation may keep the other


def beam_search(
    tree: Tree, prefix_length: int, suffix: Tokens, distance: str, tolerance: int, eos: str, width: int, pruned: bool
) -> BeamResult:
    """Published k-CBS, to the end: no early stop. `pruned`: paths that cannot come within the tolerance are dropped."""
    length = len(suffix)
    beam: list[tuple[Tokens, float]] = [((), 0.0)]
    finals: dict[Tokens, float] = {}
    bank = eos_mass = 0.0
    evals = 0
    doubtful = False
    for step in range(1, length + 1):
        evals += prefix_length if step == 1 else len(beam)
        children: list[tuple[float, int, int, Tokens]] = []
        for parent, (written, log_prob) in enumerate(beam):
            for token, more in tree.following(written).items():
                output, total = (*written, token), log_prob + more
                if token in tree.eos_ids and step < length and eos != "ignore":
                    if eos == "stop":
                        finals[output] = total
                    else:
                        eos_mass += math.exp(total)
                    continue
                if step < length and pruned and _least(output, suffix, distance) > tolerance:
                    continue
                children.append((total, parent, token, output))
        if step == length:
            finals.update({output: total for total, _, _, output in children})
            break
        children.sort(key=lambda child: (-child[0], child[1], child[2]))
        kept, cut = children[:width], children[width:]
        if kept and cut and kept[-1][0] - cut[0][0] < 1e-6:
            level = {parent for total, parent, _, _ in children if abs(total - kept[-1][0]) < 1e-6}
            doubtful = doubtful or len(level) > 1  # children of one parent tie exactly
        bank += math.fsum(math.exp(total) for total, _, _, _ in cut)
        beam = [(output, total) for total, _, _, output in kept]
        if not beam:
            break
    measure = DISTANCES[distance]
    lower = math.fsum(math.exp(p) for output, p in finals.items() if measure(output, suffix) <= tolerance)
    covered = math.fsum(math.exp(p) for p in finals.values()) + eos_mass
    upper = lower + (bank if pruned else max(0.0, 1 - covered))
    return BeamResult(finals, lower, min(upper, 1.0), evals, eos_mass, doubtful)


def _least(output: Tokens, suffix: Tokens, distance: str) -> int:
    """The published test: what the output so far costs at least, the cost of unequal lengths not counted."""
    if distance == "hamming":
        return sum(a != b for a, b in zip(output, suffix, strict=False))
    return min(levenshtein_rows(output, suffix)[-1])
