"""Beam search under a decoding scheme, with bounds on the mass of outputs near the suffix.

Published variants: "baseline" keeps the likeliest outputs whatever they say and measures their distance at the end;
"pruned" drops an output as soon as it can no longer end near the suffix. "closing" (ours) also banks an output as soon
as it can no longer end far from it, which frees its place in the beam, and counts what unequal lengths still cost.
Top-k schemes give the k-CBS of the literature, top-p schemes its nucleus variant.

All sequences in flight take each step together: their beams are rows of one batch, over keys that every beam shares
with its ancestors. Sequences that are done leave, and waiting ones enter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.extraction.distance import NEVER, Metric, hamming, levenshtein
from rote.extraction.outcome import Candidate, Goal, completed, heaviest
from rote.extraction.reader import Ints, Reader, Reading
from rote.tokens import Example

Floats = NDArray[np.float64]
Variant = Literal["closing", "pruned", "baseline"]


@dataclass(slots=True, eq=False)
class Beam:
    """One sequence: what is certain, what was let go, and what it cost. By tolerance, from 0 to the metric's."""

    example: Example
    lower: Floats
    bank: Floats  # mass of outputs that may be near enough but are not searched on
    live: Floats  # mass of the outputs still in the beam
    evals: int = 0
    eos_mass: float = 0.0
    entries: list[Ints] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)

    def bounds(self) -> tuple[tuple[float, float], ...]:
        upper = self.lower + self.bank + self.live
        pairs = np.minimum(np.stack([self.lower, upper], 1), 1.0).tolist()
        return tuple((low, high) for low, high in pairs)


@dataclass(slots=True, eq=False)
class _Rows:
    """The beams in flight, as tensors: first axis sequences, second beams. A beam that is not there has mass -inf."""

    log_mass: Tensor  # [sequences, width] float64
    states: Tensor  # [sequences, width, state]
    tokens: Tensor  # [sequences, width, longest suffix]: the output so far
    past: Tensor  # [sequences, length]: the entries that any of its beams comes after; -1: none
    seen: Tensor  # [sequences, width, length]: which of them each beam comes after
    written: Tensor  # [sequences]
    lengths: Tensor  # [sequences]
    targets: Tensor  # [sequences, padded suffix]

    def keep(self, which: Tensor) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name)[which])
        if self.past.numel():
            self._forget()

    def _forget(self) -> None:
        """Entries that no beam comes after go; the others keep their order."""
        alive = (self.seen & (self.log_mass > -torch.inf)[:, :, None]).any(1)
        order = alive.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(alive.sum(1).max())]
        self.past = torch.where(alive.gather(1, order), self.past.gather(1, order), -1)
        columns = order[:, None, :].expand(-1, self.seen.shape[1], -1)
        self.seen = self.seen.gather(2, columns) & (self.past >= 0)[:, None, :]

    def add(self, other: _Rows) -> None:
        for name in ("past", "seen", "tokens", "targets", "log_mass", "states"):
            ours, theirs = getattr(self, name), getattr(other, name)
            empty = {"seen": False, "log_mass": -torch.inf, "states": 0}.get(name, -1)
            shape = [max(a, b) for a, b in zip(ours.shape[1:], theirs.shape[1:], strict=True)]
            for rows, tensor in ((self, ours), (other, theirs)):
                missing = [wanted - has for wanted, has in zip(shape, tensor.shape[1:], strict=True)]
                sides = [n for m in reversed(missing) for n in (0, m)]
                setattr(rows, name, torch.nn.functional.pad(tensor, sides, value=empty))
        for name in self.__slots__:
            setattr(self, name, torch.cat([getattr(self, name), getattr(other, name)]))


class Beams:
    """Beam searches of many sequences, step by step side by side."""

    def __init__(
        self, reader: Reader, metric: Metric, *, variant: Variant, width: int,
        budget: Callable[[Example], int], goal: Goal, shown: int,
    ) -> None:  # fmt: skip
        self.reader, self.metric, self.variant, self.width = reader, metric, variant, width
        self.budget, self.goal, self.shown = budget, goal, shown
        self.bos = [] if reader.model.bos_id is None else [reader.model.bos_id]
        self.eos = torch.tensor(sorted(reader.model.eos_ids), dtype=torch.int64, device=reader.device)

    @torch.inference_mode()
    def run(self, examples: Sequence[Example], *, at_once: int) -> Iterator[tuple[int, Beam]]:
        """Finished searches and the index of their example, as they finish."""
        waiting = deque(enumerate(examples))
        active: list[tuple[int, Beam]] = []
        rows: _Rows | None = None
        while waiting or active:
            count = min(at_once - len(active), len(waiting))
            new = [(i, self._root(e)) for i, e in (waiting.popleft() for _ in range(count))]
            if active:
                assert rows is not None
                hidden, counts = self._feed(rows, [b for _, b in active])
                self._step(rows, [b for _, b in active], hidden, counts)
            begin = [(i, b) for i, b in new if b.live[-1] and len(b.example.prefix) <= self.budget(b.example)]
            yield from (pair for pair in new if pair not in begin)
            if begin:
                more, hidden = self._begin([b for _, b in begin])
                self._step(more, [b for _, b in begin], hidden, [1] * len(begin))
                if rows is None:
                    rows = more
                else:
                    rows.add(more)
            active += begin
            if not active:
                continue
            assert rows is not None
            going = self._going(rows, [b for _, b in active])
            for pair, goes in zip(active, going, strict=True):
                if not goes:
                    yield pair
                    for entries in pair[1].entries:
                        self.reader.give(entries)
            active = [pair for pair, goes in zip(active, going, strict=True) if goes]
            rows.keep(torch.tensor(going, device=self.reader.device))

    def _root(self, example: Example) -> Beam:
        """A sequence before anything is read; only the closing beam asks whether everything is near enough."""
        ceil = self.metric.ceil(len(example.suffix)) if self.variant == "closing" else NEVER
        closed = np.arange(self.metric.tolerance + 1) >= ceil
        still = 1.0 - closed
        return Beam(example, closed.astype(np.float64), still * closed[-1], still * (1 - closed[-1]))

    def _begin(self, beams: Sequence[Beam]) -> tuple[_Rows, Tensor]:
        """Read the prefixes. The beam of each sequence is its empty output."""
        device = self.reader.device
        readings: list[Reading] = []
        for one in beams:
            tokens = np.array([*self.bos, *one.example.prefix], dtype=np.int64)
            place = self.reader.take(len(tokens))
            one.entries.append(place)
            one.evals += len(one.example.prefix)
            readings.append(Reading(tokens, tokens[:0], place, 1, one.example.id, len(readings)))
        suffixes = [one.example.suffix for one in beams]
        lengths = torch.tensor([len(s) for s in suffixes], device=device)
        past = np.full((len(beams), max(len(r.place) for r in readings)), -1, dtype=np.int64)
        for row, reading in enumerate(readings):
            past[row, : len(reading.place)] = reading.place
        rows = _Rows(
            log_mass=torch.zeros(len(beams), 1, dtype=torch.float64, device=device),
            states=self.metric.start(lengths)[:, None],
            tokens=torch.full((len(beams), 1, max(map(len, suffixes))), -1, device=device),
            past=torch.from_numpy(past).to(device),
            seen=torch.from_numpy(past >= 0).to(device)[:, None],
            written=torch.zeros_like(lengths),
            lengths=lengths,
            targets=self.metric.targets(suffixes, device),
        )
        return rows, self.reader.states(readings)

    def _feed(self, rows: _Rows, beams: Sequence[Beam]) -> tuple[Tensor, list[int]]:
        """Feed the last token of every beam: a row per sequence, in which each beam sees its own past."""
        alive = rows.log_mass > -torch.inf
        counts = alive.sum(1).tolist()
        fresh = self.reader.take(sum(counts))
        for one, own in zip(beams, np.split(fresh, np.cumsum(counts)[:-1]), strict=True):
            one.entries.append(own)
            one.evals += len(own)
        place = torch.full_like(rows.log_mass, -1, dtype=torch.int64)
        place[alive] = torch.from_numpy(fresh).to(place.device)
        last = (rows.written - 1)[:, None, None].expand(-1, place.shape[1], 1)
        tokens = torch.where(alive, rows.tokens.gather(2, last)[:, :, 0], 0)
        itself = torch.eye(place.shape[1], dtype=torch.bool, device=place.device).expand(len(place), -1, -1)
        seen = torch.cat([rows.seen, itself], 2)
        hidden = self.reader.feed(tokens, rows.past, place, seen)
        rows.past, rows.seen = torch.cat([rows.past, place], 1), seen
        return hidden[alive], counts

    def _step(self, rows: _Rows, beams: Sequence[Beam], hidden: Tensor, counts: Sequence[int]) -> None:
        """Sort what may follow each beam, book what is certain or let go, and keep the likeliest."""
        sequence, beam = (rows.log_mass > -torch.inf).nonzero(as_tuple=True)
        labels = [one.example.id for one, count in zip(beams, counts, strict=True) for _ in range(count)]
        found, _ = self.reader.supports(hidden, torch.zeros_like(sequence), labels)
        tokens, order = found.tokens.sort(dim=1)  # equally likely children stand by token id
        log_mass = rows.log_mass[sequence, beam][:, None] + found.log_probs.gather(1, order)
        mass = log_mass.exp()

        metric, last = self.metric, self.metric.tolerance
        own, written, lengths = rows.states[sequence, beam], rows.written[sequence], rows.lengths[sequence]
        window = metric.window(rows.targets[sequence], written)
        early = torch.isin(tokens, self.eos) & (written + 1 < lengths)[:, None] & (metric.eos != "ignore")
        states, floor, ceil = metric.children(own, written, lengths, window, tokens, early)
        ends = (written + 1 == lengths)[:, None] | (early & (metric.eos == "stop"))
        counts_out = early & (metric.eos == "exclude")
        closed = (ceil <= last) & ~ends & (self.variant == "closing")
        may = ~counts_out & ((floor <= last) | (self.variant == "baseline"))
        goes_on = may & ~ends & ~closed & (mass > 0)

        width, size = rows.log_mass.shape[1], tokens.shape[1]
        grid = torch.full((len(beams), width, size), -torch.inf, dtype=torch.float64, device=tokens.device)
        grid[sequence, beam] = torch.where(goes_on, log_mass, -torch.inf)
        best, chosen = grid.flatten(1).sort(dim=1, descending=True, stable=True)
        best, chosen = best[:, : self.width], chosen[:, : self.width]
        kept = torch.zeros_like(grid, dtype=torch.bool).flatten(1).scatter_(1, chosen, best > -torch.inf)
        dropped = goes_on & ~kept.view_as(grid)[sequence, beam]

        rest = rows.log_mass[sequence, beam].exp() * found.rest
        sums = []
        for e in range(last + 1):
            near = ~counts_out if self.variant == "baseline" else floor <= e
            parted = (closed & (floor <= e) & (ceil > e)) | (dropped & near)
            sums += [
                (mass * ((ends | closed) & (ceil <= e))).sum(1),
                (mass * parted).sum(1) + self._left(own, e, written, lengths) * rest,
            ]
        sums.append((mass * counts_out).sum(1))
        totals = torch.zeros(len(beams), len(sums), dtype=torch.float64, device=tokens.device)
        totals.index_add_(0, sequence, torch.stack(sums, 1))
        for one, booked in zip(beams, totals.cpu().numpy(), strict=True):
            one.lower += booked[0:-1:2]
            one.bank += booked[1:-1:2]
            one.eos_mass += float(booked[-1])
        self._show(
            rows, beams, sequence, beam, tokens, log_mass, ceil, (ends | closed) & (ceil <= last) & (mass > 0), ends
        )

        parent, child = chosen // size, chosen % size
        which = torch.arange(len(beams), device=tokens.device)[:, None]
        every = torch.zeros((*grid.shape, states.shape[-1]), dtype=states.dtype, device=states.device)
        every[sequence, beam] = states
        names = torch.zeros_like(grid, dtype=torch.int64)
        names[sequence, beam] = tokens
        rows.tokens = rows.tokens[which, parent].scatter(
            2, rows.written[:, None, None].expand(-1, chosen.shape[1], 1), names[which, parent, child][:, :, None]
        )
        rows.log_mass, rows.states, rows.seen = best, every[which, parent, child], rows.seen[which, parent]
        rows.written = rows.written + 1

    def _left(self, states: Tensor, tolerance: int, written: Tensor, lengths: Tensor) -> Tensor:
        """Whether the unlisted children of these states may still end within the tolerance."""
        floor, _ = self.metric.bounds(states, written, lengths)
        return (floor <= tolerance) | (self.variant == "baseline")

    def _going(self, rows: _Rows, beams: Sequence[Beam]) -> list[bool]:
        """Which sequences take another step; books the mass of their beams."""
        mass = rows.log_mass.exp()
        written, lengths = rows.written[:, None], rows.lengths[:, None]
        live = [(mass * self._left(rows.states, e, written, lengths)).sum(1) for e in range(self.metric.tolerance + 1)]
        going = []
        for one, by_tolerance, count in zip(
            beams, torch.stack(live, 1).cpu().numpy(), (mass > 0).sum(1).tolist(), strict=True
        ):
            one.live = by_tolerance
            lower, upper = one.bounds()[-1]
            hopeless = self.goal.until == "decision" and lower + by_tolerance[-1] < self.goal.tau
            going.append(
                0 < count <= self.budget(one.example) - one.evals
                and not hopeless
                and not self.goal.reached(lower, upper)
            )
        return going

    def _show(
        self, rows: _Rows, beams: Sequence[Beam], sequence: Tensor, beam: Tensor, tokens: Tensor, log_mass: Tensor,
        ceil: Tensor, whole: Tensor, ends: Tensor,
    ) -> None:  # fmt: skip
        """Keep the heaviest outputs that count, but for the suffix itself."""
        row, child = whole.nonzero(as_tuple=True)
        if not len(row):
            return
        weight = log_mass[row, child]
        order = weight.argsort(descending=True, stable=True)
        row, child, weight = row[order], child[order], weight[order]
        before = rows.tokens[sequence[row], beam[row]].cpu().numpy()
        written = rows.written[sequence[row]].tolist()
        taken: dict[int, int] = {}
        facts = zip(
            sequence[row].tolist(), before, written, tokens[row, child].tolist(), weight.tolist(),
            ceil[row, child].tolist(), ends.expand_as(whole)[row, child].tolist(), strict=True,
        )  # fmt: skip
        for which, output, count, token, log_prob, distance, final in facts:
            if taken.get(which, 0) > self.shown:
                continue
            taken[which] = taken.get(which, 0) + 1
            ids = (*output[:count].tolist(), token)
            if ids != beams[which].example.suffix:
                beams[which].candidates.append(
                    Candidate(ids, log_prob, distance) if final else self._member(beams[which], ids, log_prob)
                )
        for which in taken:
            beams[which].candidates = heaviest(beams[which].candidates, self.shown)

    def _member(self, one: Beam, output: tuple[int, ...], log_mass: float) -> Candidate:
        """One output of a closed set, not scored."""
        whole = completed(output, one.example.suffix)
        measure = levenshtein if self.metric.distance == "levenshtein" else hamming
        return Candidate(whole, None, measure(whole, one.example.suffix), log_mass)
