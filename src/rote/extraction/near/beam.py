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
from dataclasses import dataclass, field, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.extraction.near.batches import Ints, Reader, Reading, not_a_number
from rote.extraction.near.distance import NEVER, Metric, root_ceil
from rote.extraction.near.options import Variant
from rote.extraction.near.results import Candidate, Goal, completed, heaviest
from rote.tokens import Example

Floats = NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Beam:
    """One sequence: what is certain, what was let go, and what it cost. By tolerance, from 0 to the metric's."""

    example: Example
    lower: Floats
    bank: Floats  # mass of outputs that may be near enough but are not searched on
    live: Floats  # mass of the outputs still in the beam
    evals: int = 0
    eos_mass: float = 0.0
    entries: Ints | None = None
    candidates: list[Candidate] = field(default_factory=list)

    def bounds(self) -> tuple[tuple[float, float], ...]:
        upper = self.lower + self.bank + self.live
        pairs = np.minimum(np.stack([self.lower, upper], 1), 1.0).tolist()
        return tuple((low, high) for low, high in pairs)


@dataclass(slots=True, eq=False)
class _Rows:
    """The sequences in flight, as tensors on the device; second axis, where there is one, beams or tolerances."""

    log_mass: Tensor  # [sequences, width] float64; -inf: no such beam
    states: Tensor  # [sequences, width, state]
    tokens: Tensor  # [sequences, width, longest suffix]: the output so far
    past: Tensor  # [sequences, length]: the entries that any of its beams comes after; -1: none
    seen: Tensor  # [sequences, width, length]: which of them each beam comes after
    targets: Tensor  # [sequences, padded suffix]
    written: Tensor  # [sequences]
    lengths: Tensor  # [sequences]
    entries: Tensor  # [sequences, most]: its own, used from the left
    used: Tensor  # [sequences]: how many of them are
    evals: Tensor  # [sequences]
    budget: Tensor  # [sequences]
    lower: Tensor  # [sequences, tolerances] float64
    bank: Tensor  # [sequences, tolerances] float64
    eos_mass: Tensor  # [sequences] float64
    bad: Tensor  # [sequences]: a logit was no number

    def keep(self, which: Tensor) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name)[which])
        if len(self.past):
            self._forget()

    def _forget(self) -> None:
        """Entries that no beam comes after go; the others keep their order."""
        alive = (self.seen & (self.log_mass > -torch.inf)[:, :, None]).any(1)
        order = alive.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(alive.sum(1).max())]
        self.past = torch.where(alive.gather(1, order), self.past.gather(1, order), -1)
        columns = order[:, None, :].expand(-1, self.seen.shape[1], -1)
        self.seen = self.seen.gather(2, columns) & (self.past >= 0)[:, None, :]

    def add(self, other: _Rows) -> None:
        empty = {"seen": False, "log_mass": -torch.inf, "states": 0}
        for one in fields(self):
            ours, theirs = getattr(self, one.name), getattr(other, one.name)
            shape = [max(a, b) for a, b in zip(ours.shape[1:], theirs.shape[1:], strict=True)]
            padded = []
            for tensor in (ours, theirs):
                missing = [wanted - has for wanted, has in zip(shape, tensor.shape[1:], strict=True)]
                sides = [n for m in reversed(missing) for n in (0, m)]
                padded.append(
                    torch.nn.functional.pad(tensor, sides, value=empty.get(one.name, -1)) if sides else tensor
                )
            setattr(self, one.name, torch.cat(padded))


class Beams:
    """Beam searches of many sequences, step by step side by side."""

    def __init__(
        self, reader: Reader, metric: Metric, *, variant: Variant, width: int, most: int,
        budget: Callable[[Example], int], goal: Goal, shown: int,
    ) -> None:  # fmt: skip
        """`most`: the largest budget. `shown`: how many candidates to keep."""
        self.reader, self.metric, self.variant, self.width, self.most = reader, metric, variant, width, most
        self.budget, self.goal, self.shown = budget, goal, shown
        self.bos = [] if reader.model.bos_id is None else [reader.model.bos_id]
        self.eos = torch.tensor(sorted(reader.model.eos_ids), dtype=torch.int64, device=reader.device)

    @torch.inference_mode()
    def run(self, examples: Sequence[Example], *, at_once: int) -> Iterator[tuple[int, Beam]]:
        """Finished searches and the index of their example, as they finish; waiting ones enter in their place."""
        waiting = deque(enumerate(examples))
        active: list[tuple[int, Beam]] = []
        rows: _Rows | None = None
        while waiting or active:
            count = min(at_once - len(active), len(waiting))
            new = [(i, self._root(e)) for i, e in (waiting.popleft() for _ in range(count))]
            begin = [(i, b) for i, b in new if b.live[-1] and len(b.example.prefix) <= self.budget(b.example)]
            yield from (pair for pair in new if pair not in begin)
            if active:
                assert rows is not None
                self._step(rows, [b for _, b in active], self._feed(rows))
            if begin:
                more, hidden = self._begin([b for _, b in begin])
                self._step(more, [b for _, b in begin], hidden)
                if rows is None:
                    rows = more
                else:
                    rows.add(more)
            active += begin
            if not active:
                continue
            assert rows is not None
            going = self._going(rows, [b for _, b in active])
            if all(going):
                rows.keep(torch.arange(len(active), device=self.reader.device))
                continue
            for pair, goes in zip(active, going, strict=True):
                if not goes:
                    yield pair
                    assert pair[1].entries is not None
                    self.reader.give(pair[1].entries)
            active = [pair for pair, goes in zip(active, going, strict=True) if goes]
            rows.keep(torch.tensor(going, device=self.reader.device))

    def _root(self, example: Example) -> Beam:
        """A sequence before anything is read; only the closing beam asks whether everything is near enough."""
        ceil = root_ceil(self.metric, len(example.suffix)) if self.variant == "closing" else NEVER
        closed = (np.arange(self.metric.tolerance + 1) >= ceil).astype(np.float64)
        return Beam(example, closed, np.zeros_like(closed), 1 - closed)

    def _begin(self, beams: Sequence[Beam]) -> tuple[_Rows, Tensor]:
        """Read the prefixes. The beam of each sequence is its empty output."""
        device = self.reader.device
        readings: list[Reading] = []
        for one in beams:
            tokens = np.array([*self.bos, *one.example.prefix], dtype=np.int64)
            one.entries = self.reader.take(self.most + 1)
            place = one.entries[: len(tokens)]
            readings.append(Reading(tokens, tokens[:0], place, 1, one.example.id, len(readings)))
        past = np.full((len(beams), max(len(r.place) for r in readings)), -1, dtype=np.int64)
        for row, reading in enumerate(readings):
            past[row, : len(reading.place)] = reading.place
        suffixes = [one.example.suffix for one in beams]
        lengths = torch.tensor([len(s) for s in suffixes], device=device)
        nothing = torch.zeros(len(beams), self.metric.tolerance + 1, dtype=torch.float64, device=device)
        rows = _Rows(
            log_mass=nothing[:, :1].clone(),
            states=self.metric.start(lengths)[:, None],
            tokens=torch.full((len(beams), 1, max(map(len, suffixes))), -1, device=device),
            past=torch.from_numpy(past).to(device),
            seen=torch.from_numpy(past >= 0).to(device)[:, None],
            targets=self.metric.targets(suffixes, device),
            written=torch.zeros_like(lengths),
            lengths=lengths,
            entries=torch.from_numpy(np.stack([one.entries for one in beams if one.entries is not None])).to(device),
            used=torch.tensor([len(r.place) for r in readings], device=device),
            evals=torch.tensor([len(one.example.prefix) for one in beams], device=device),
            budget=torch.tensor([self.budget(one.example) for one in beams], device=device),
            lower=torch.from_numpy(np.stack([one.lower for one in beams])).to(device),
            bank=nothing.clone(),
            eos_mass=nothing[:, 0].clone(),
            bad=torch.zeros_like(lengths, dtype=torch.bool),
        )
        return rows, self.reader.states(readings)

    def _feed(self, rows: _Rows) -> Tensor:
        """Feed the last token of every beam: a row per sequence, in which each beam sees its own past."""
        alive = rows.log_mass > -torch.inf
        count = alive.sum(1)
        rank = (rows.used[:, None] + alive.cumsum(1) - 1).clamp(0, rows.entries.shape[1] - 1)
        place = torch.where(alive, rows.entries.gather(1, rank), -1)
        rows.used, rows.evals = rows.used + count, rows.evals + count
        last = (rows.written - 1)[:, None, None].expand(-1, place.shape[1], 1)
        tokens = torch.where(alive, rows.tokens.gather(2, last)[:, :, 0], 0)
        itself = torch.eye(place.shape[1], dtype=torch.bool, device=place.device).expand(len(place), -1, -1)
        seen = torch.cat([rows.seen & alive[:, :, None], itself], 2)
        hidden = self.reader.feed(tokens, rows.past, place, seen)
        rows.past, rows.seen = torch.cat([rows.past, place], 1), seen & alive[:, :, None]
        return hidden.flatten(0, 1)

    def _step(self, rows: _Rows, beams: Sequence[Beam], hidden: Tensor) -> None:
        """Sort what may follow each beam, book what is certain or let go, and keep the likeliest."""
        sequences, width = rows.log_mass.shape
        supports, _ = self.reader.supports(hidden, torch.zeros(len(hidden), dtype=torch.int64), ())
        alive = rows.log_mass > -torch.inf
        rows.bad = rows.bad | (supports.bad().view(sequences, width) & alive).any(1)
        tokens, order = supports.tokens.sort(dim=1)  # equally likely children stand by token id
        log_mass = rows.log_mass.flatten()[:, None] + supports.log_probs.gather(1, order)
        mass = log_mass.exp()

        metric, last = self.metric, self.metric.tolerance
        written, lengths = (t.repeat_interleave(width) for t in (rows.written, rows.lengths))
        window = metric.window(rows.targets, rows.written).repeat_interleave(width, 0)
        early = torch.isin(tokens, self.eos) & (written + 1 < lengths)[:, None] & (metric.eos != "ignore")
        own = rows.states.flatten(0, 1)
        states, floor, ceil = metric.children(own, written, lengths, window, tokens, early)
        ends = (written + 1 == lengths)[:, None] | (early & (metric.eos == "stop"))
        out = early & (metric.eos == "exclude")
        closed = (ceil <= last) & ~ends & (self.variant == "closing")
        may = ~out & ((floor <= last) | (self.variant == "baseline"))
        goes_on = may & ~ends & ~closed & (mass > 0)

        every = torch.where(goes_on, log_mass, -torch.inf).view(sequences, -1)
        best, chosen = every.sort(dim=1, descending=True, stable=True)
        best, chosen = best[:, : self.width], chosen[:, : self.width]
        kept = torch.zeros_like(every, dtype=torch.bool).scatter_(1, chosen, best > -torch.inf)
        dropped = goes_on & ~kept.view_as(goes_on)

        rest = rows.log_mass.flatten().exp() * supports.rest
        own_floor, _ = metric.bounds(own, written, lengths)
        for e in range(last + 1):
            near = ~out if self.variant == "baseline" else floor <= e
            parted = (closed & (floor <= e) & (ceil > e)) | (dropped & near)
            left = torch.where((own_floor <= e) | (self.variant == "baseline"), rest, 0.0)
            certain = (ends | closed) & (ceil <= e)
            rows.lower[:, e] += (mass * certain).sum(1).view(sequences, width).sum(1)
            rows.bank[:, e] += ((mass * parted).sum(1) + left).view(sequences, width).sum(1)
        rows.eos_mass = rows.eos_mass + (mass * out).sum(1).view(sequences, width).sum(1)
        whole = (ends | closed) & (ceil <= last) & (mass > 0)
        self._show(rows, beams, tokens, log_mass, ceil, whole, ends.expand_as(whole))

        parent = chosen // tokens.shape[1]
        which = torch.arange(sequences, device=tokens.device)[:, None]
        flat = (which * every.shape[1] + chosen).flatten()
        name = tokens.flatten()[flat].view(*chosen.shape, 1)
        at = rows.written[:, None, None].expand(-1, chosen.shape[1], 1)
        rows.tokens = rows.tokens[which, parent].scatter(2, at, name)
        rows.states = states.flatten(0, 1)[flat].view(*chosen.shape, -1)
        rows.log_mass, rows.seen = best, rows.seen[which, parent]
        rows.written = rows.written + 1

    def _going(self, rows: _Rows, beams: Sequence[Beam]) -> list[bool]:
        """Which sequences take another step. Those that do not get their numbers."""
        mass = rows.log_mass.exp()
        floor, _ = self.metric.bounds(rows.states, rows.written[:, None], rows.lengths[:, None])
        tolerances = torch.arange(self.metric.tolerance + 1, device=mass.device)
        near = (floor[:, :, None] <= tolerances) | (self.variant == "baseline")
        live = (mass[:, :, None] * near).sum(1)
        upper = (rows.lower + rows.bank + live).clamp(max=1)
        count = (mass > 0).sum(1)
        numbers = [rows.lower[:, -1].clamp(max=1), upper[:, -1], live[:, -1], count, rows.budget - rows.evals, rows.bad]
        going, done = [], []
        for i, (lower, most, alive, beams_left, left, bad) in enumerate(torch.stack(numbers, 1).tolist()):
            if bad:
                raise not_a_number(beams[i].example.id)
            hopeless = self.goal.until == "decision" and lower + alive < self.goal.tau
            going.append(0 < beams_left <= left and not hopeless and not self.goal.reached(lower, most))
            if not going[-1]:
                done.append(i)
        if done:
            ends = torch.tensor(done, device=mass.device)
            booked = torch.stack([rows.lower, rows.bank, live], 1)[ends].cpu().numpy()
            costs, masses = rows.evals[ends].tolist(), rows.eos_mass[ends].tolist()
            for i, sums, evals, eos_mass in zip(done, booked, costs, masses, strict=True):
                beams[i].lower, beams[i].bank, beams[i].live = sums
                beams[i].evals, beams[i].eos_mass = evals, eos_mass
        return going

    def _show(
        self, rows: _Rows, beams: Sequence[Beam], tokens: Tensor, log_mass: Tensor, ceil: Tensor, whole: Tensor,
        ends: Tensor,
    ) -> None:  # fmt: skip
        """Keep the heaviest outputs that count, but for the suffix itself."""
        row, child = whole.nonzero(as_tuple=True)
        if not len(row):
            return
        order = log_mass[row, child].argsort(descending=True, stable=True)
        row, child = row[order], child[order]
        before = rows.tokens.flatten(0, 1)[row].cpu().numpy()
        sequence = row // rows.log_mass.shape[1]
        facts = zip(
            sequence.tolist(), before, rows.written[sequence].tolist(), tokens[row, child].tolist(),
            log_mass[row, child].tolist(), ceil[row, child].tolist(), ends[row, child].tolist(), strict=True,
        )  # fmt: skip
        taken: dict[int, int] = {}
        for which, output, count, token, log_prob, distance, final in facts:
            if taken.get(which, 0) > self.shown:
                continue
            taken[which] = taken.get(which, 0) + 1
            ids = (*output[:count].tolist(), token)
            one = Candidate(ids, log_prob, distance) if final else self._member(beams[which], ids, log_prob)
            if one.tokens != beams[which].example.suffix:
                beams[which].candidates.append(one)
        for which in taken:
            beams[which].candidates = heaviest(beams[which].candidates, self.shown)

    def _member(self, one: Beam, output: tuple[int, ...], log_mass: float) -> Candidate:
        """One output of a closed set, not scored."""
        whole = completed(output, one.example.suffix)
        return Candidate(whole, None, self.metric.between(whole, one.example.suffix), log_mass)
