"""Reading spines: at every position of a continuation that is fed at once, which children are closed, dead and open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.decoding import Support, TargetScores
from rote.extraction.near.batches import Ints, Reader, Reading
from rote.extraction.near.distance import NEVER, Metric

Floats = NDArray[np.float64]

NEGLIGIBLE = math.log(1e-6)  # what weighs less is not shown


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """A continuation to read: it begins `written` tokens into the output, in distance state `state`.

    `spine` holds one token per wanted position: the one taken there. All but the last are fed by `reading`; the last
    (-1: none) is only asked for. `known` tokens are left out at the first position.
    """

    reading: Reading
    spine: Ints
    suffix: tuple[int, ...]
    log_mass: float
    written: int
    state: NDArray[np.int16]
    known: Ints | None = None
    on_target: bool = False  # the spine is the suffix itself


@dataclass(frozen=True, slots=True, eq=False)
class Children:
    """Open children off the spine, one row each; `step` counts wanted positions. Token -1: all that are not listed."""

    step: Ints
    token: Ints
    log_mass: Floats
    floor: Ints
    column: Ints  # how many suffix tokens the likeliest alignment has behind it
    edits: Ints  # and at what distance


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """Children that count, to show some of them: whole outputs (`final`) or closed sets."""

    step: Ints
    token: Ints
    log_mass: Floats
    distance: Ints
    final: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """What reading one spine came to. By tolerance: mass newly closed, left open but not searched on, and open."""

    lower: Floats
    parked: Floats
    open: Floats
    eos_mass: float
    path: Floats  # log-probability of getting to each wanted position
    taken: Floats  # and of the spine's token there
    states: NDArray[np.int16]  # the distance state at each wanted position
    children: Children | None
    listed: Ints | None  # the tokens sorted at each position, where not all of the support was
    shown: Shown
    scores: TargetScores | None


@torch.inference_mode()
def expand(
    reader: Reader, metric: Metric, starts: Sequence[Start], hidden: Tensor, *, children: bool, scores: bool = False,
    width: int = 0,
) -> list[Expansion]:  # fmt: skip
    """Sort what may follow each position that was read; `hidden` is what `Reader.states` gave for all starts.

    `children`: list the open ones; `scores`: also what verbatim scoring says; `width`: see `Reader.supports`.
    """
    counts = np.array([len(s.spine) for s in starts])
    targets = np.concatenate([s.spine for s in starts])
    labels = [start.reading.label for start in starts for _ in start.spine]
    wanted = torch.from_numpy(np.maximum(targets, 0)).to(reader.device)
    supports, verbatim = reader.supports(hidden, wanted, labels, width=width, scores=scores)
    batch = _Batch.of(metric, starts, counts, reader.device)
    taken = torch.where(batch.spine >= 0, supports.target, -torch.inf)
    along = torch.zeros(len(starts), int(counts.max()), dtype=torch.float64, device=reader.device)
    along[batch.row, batch.step] = taken
    before = torch.cat([torch.zeros_like(along[:, :1]), along.cumsum(1)[:, :-1]], 1)
    path = batch.log_mass + before[batch.row, batch.step]
    eos = torch.tensor(sorted(reader.model.eos_ids), dtype=torch.int64, device=reader.device)

    offspring = _Offspring.of(metric, batch, supports, path, eos, batch.left_out(supports.tokens, starts))
    sums = offspring.sums(metric, batch, path, len(starts)).cpu().numpy()
    shown = _by_row(offspring.shown(metric, batch), len(starts))
    opened = _by_row(offspring.still_open(metric, batch), len(starts)) if children else None
    listed = offspring.listed(batch)
    verbatim = None if verbatim is None else verbatim.to(torch.device("cpu"))
    states = batch.state.cpu().numpy()
    paths, takes = torch.stack([path, taken]).cpu().numpy()
    results = []
    for i, end in enumerate(counts.cumsum().tolist()):
        rows = slice(end - int(counts[i]), end)
        results.append(
            Expansion(
                lower=sums[i, 0:-1:3],
                parked=sums[i, 1:-1:3],
                open=sums[i, 2:-1:3],
                eos_mass=float(sums[i, -1]),
                path=paths[rows],
                taken=takes[rows],
                states=states[rows],
                listed=None if listed is None else listed[rows],
                children=None if opened is None else Children(*opened[i]),
                shown=Shown(*shown[i]),
                scores=None if verbatim is None else verbatim.rows(rows),
            )
        )
    return results


@dataclass(frozen=True, slots=True, eq=False)
class _Offspring:
    """The children of every wanted position, [positions, listed tokens + 2].

    The last two columns are the spine's own token, where it is not listed anyway, and all others together.
    """

    tokens: Tensor  # -1 in the last column
    log_mass: Tensor  # -inf: not there, or on the spine
    floor: Tensor
    ceil: Tensor
    states: Tensor
    early: Tensor  # ends before the suffix's length
    ends: Tensor  # a whole output

    @classmethod
    def of(
        cls, metric: Metric, batch: _Batch, supports: Support, path: Tensor, eos: Tensor, left_out: Tensor
    ) -> _Offspring:
        # The spine's own token is always looked at; where it is not among the listed ones, the others weigh that less.
        hidden = ~(supports.tokens == batch.spine[:, None]).any(1) & (batch.spine >= 0)
        own = torch.where(hidden, supports.target, -torch.inf)
        left = supports.unlisted - (own > -torch.inf).long()
        rest = torch.where(left > 0, (supports.rest - own.exp()).clamp(min=0), 0.0)
        tokens = torch.cat([supports.tokens, batch.spine[:, None]], 1)
        log_probs = torch.cat([supports.log_probs, own[:, None]], 1)
        states, floor, ceil, early = batch.children(metric, tokens, eos)
        goes_on = (tokens == batch.spine[:, None]) & batch.fed[:, None]
        log_probs = log_probs.masked_fill(goes_on | left_out, -torch.inf)
        others_floor, others_ceil = torch.full_like(floor[:, :1], NEVER), torch.full_like(ceil[:, :1], NEVER)
        (some,) = (rest > 0).nonzero(as_tuple=True)
        if len(some):
            others_floor[some, 0], others_ceil[some, 0] = batch.others(metric, tokens, eos, some)
        nothing = torch.zeros_like(early[:, :1])
        ends = (batch.written + 1 == batch.lengths)[:, None] | (early & (metric.eos == "stop"))
        return cls(
            tokens=torch.cat([tokens, torch.full_like(tokens[:, :1], -1)], 1),
            log_mass=path[:, None] + torch.cat([log_probs, rest.log()[:, None]], 1),
            floor=torch.cat([floor, others_floor], 1),
            ceil=torch.cat([ceil, others_ceil], 1),
            states=states,
            early=torch.cat([early, nothing], 1),
            ends=torch.cat([ends, nothing], 1),
        )

    def sums(self, metric: Metric, batch: _Batch, path: Tensor, starts: int) -> Tensor:
        """[starts, 3 * tolerances + 1]: by tolerance newly closed, parked and open mass; last what ends too early."""
        last, mass = metric.tolerance, self.log_mass.exp()
        _, own_ceil = metric.bounds(batch.state, batch.written, batch.lengths)
        # The spine itself may become closed on its way; where a reading starts it is open.
        before_ceil = torch.where(batch.step == 0, own_ceil, own_ceil.roll(1))
        searched = self.ceil > last
        sums = []
        for e in range(last + 1):
            closes = (self.ceil <= e) & (own_ceil > e)[:, None]
            still = (self.floor <= e) & (self.ceil > e)
            sums += [
                (mass * closes).sum(1) + torch.where((own_ceil <= e) & (before_ceil > e), path.exp(), 0.0),
                (mass * (still & ~searched)).sum(1),
                (mass * (still & searched)).sum(1),
            ]
        sums.append((mass * (self.early & (metric.eos == "exclude"))).sum(1))
        totals = torch.zeros(starts, len(sums), dtype=torch.float64, device=mass.device)
        return totals.index_add_(0, batch.row, torch.stack(sums, 1))

    def shown(self, metric: Metric, batch: _Batch) -> list[Tensor]:
        """Whole outputs and closed sets off the spine: row, step, token, log-mass, distance, whole."""
        known = (self.tokens >= 0) & (self.ceil <= metric.tolerance) & (self.log_mass > NEGLIGIBLE)
        at, which = known.nonzero(as_tuple=True)
        picked = [t[at, which] for t in (self.tokens, self.log_mass, self.ceil, self.ends)]
        return [batch.row[at], batch.step[at], *picked]

    def still_open(self, metric: Metric, batch: _Batch) -> list[Tensor]:
        """Open children: row, step, token, log-mass, floor, column, edits."""
        searched = (self.ceil > metric.tolerance) & (self.floor <= metric.tolerance) & (self.log_mass > -torch.inf)
        at, which = searched.nonzero(as_tuple=True)
        token, floor = self.tokens[at, which], self.floor[at, which].long()
        states = self.states[at, which.clamp(max=self.states.shape[1] - 1)]
        column, edits = metric.alignment(states, batch.written[at], batch.window[at], token)
        others = token < 0  # of these no alignment is known
        column, edits = torch.where(others, batch.written[at] + 1, column), torch.where(others, floor, edits)
        return [batch.row[at], batch.step[at], token, self.log_mass[at, which], floor, column, edits]

    def listed(self, batch: _Batch) -> Ints | None:
        """The tokens that are sorted one by one, or go on along the spine; None where that is all there are."""
        if not bool((self.log_mass[:, -1] > -torch.inf).any()):
            return None
        known: Ints = self.tokens[:, :-1].cpu().numpy()
        return known


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """One row per wanted position of all starts."""

    row: Tensor
    step: Tensor
    spine: Tensor
    fed: Tensor  # the spine's token there is fed: its child is the next position, not a child to sort
    log_mass: Tensor  # of the start
    written: Tensor
    lengths: Tensor
    state: Tensor
    window: Tensor

    @classmethod
    def of(cls, metric: Metric, starts: Sequence[Start], counts: Ints, device: torch.device) -> _Batch:
        rows = np.repeat(np.arange(len(starts)), counts)
        steps = np.concatenate([np.arange(c) for c in counts])
        spines = np.full((len(starts), int(counts.max())), -1, dtype=np.int64)
        spines[rows, steps] = np.concatenate([s.spine for s in starts])
        row, step, spine = (torch.from_numpy(a).to(device) for a in (rows, steps, spines))
        fed = torch.from_numpy(steps < counts[rows] - 1).to(device)
        first = torch.tensor([s.written for s in starts], device=device)
        lengths = torch.tensor([len(s.suffix) for s in starts], device=device)
        log_mass = torch.tensor([s.log_mass for s in starts], dtype=torch.float64, device=device)
        targets = metric.targets([s.suffix for s in starts], device)

        written = first[row] + step
        if all(s.on_target for s in starts):
            state = metric.along(written, lengths[row])
        else:
            states = [torch.from_numpy(np.stack([s.state for s in starts])).to(device)]
            for i in range(spine.shape[1] - 1):
                window = metric.window(targets, first + i)
                states.append(metric.advance(states[-1], first + i, lengths, window, spine[:, i : i + 1])[:, 0])
            state = torch.stack(states, 1)[row, step]
        return cls(
            row=row, step=step, spine=spine[row, step], fed=fed, log_mass=log_mass[row], written=written,
            lengths=lengths[row], state=state, window=metric.window(targets[row], written),
        )  # fmt: skip

    def children(self, metric: Metric, tokens: Tensor, eos: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(states, floor, ceil, ends early) of children, `tokens` [positions, children]."""
        is_eos = torch.isin(tokens, eos) & (metric.eos != "ignore")
        states, floor, ceil = metric.children(self.state, self.written, self.lengths, self.window, tokens, is_eos)
        return states, floor, ceil, is_eos & (self.written + 1 < self.lengths)[:, None]

    def others(self, metric: Metric, listed: Tensor, eos: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """Floor and ceil over all children at positions `at` that are not listed.

        A token that is nowhere near in the suffix stands for most of them; those that are, and EOS, are tried.
        """
        here = _Batch(*(getattr(self, name)[at] for name in self.__slots__))
        unlike = torch.full_like(here.spine[:, None], -2)
        tried = torch.cat([unlike, here.window, eos.expand(len(at), -1)], 1)
        known = (tried[:, :, None] == listed[at][:, None, :]).any(2)
        known[:, 1 : 1 + here.window.shape[1]] |= here.window < 0
        _, floor, ceil, _ = here.children(metric, tried, eos)
        return floor.masked_fill(known, NEVER).amin(1), ceil.masked_fill(known, 0).amax(1)

    def left_out(self, tokens: Tensor, starts: Sequence[Start]) -> Tensor:
        """Children that were listed when this position was first read."""
        out = torch.zeros(tokens.shape[0], tokens.shape[1] + 1, dtype=torch.bool, device=tokens.device)
        for i, start in enumerate(starts):
            if start.known is not None:
                (here,) = (self.row == i).nonzero(as_tuple=True)
                out[here[:1], :-1] = torch.isin(tokens[here[:1]], torch.from_numpy(start.known).to(tokens.device))
        return out


def _by_row(columns: list[Tensor], rows: int) -> list[list[NDArray]]:  # type: ignore[type-arg]
    """The first of the columns says which row each entry belongs to: the others, cut up by row."""
    row = columns[0].cpu().numpy()
    order = np.argsort(row, kind="stable")
    cuts = np.searchsorted(row[order], np.arange(1, rows))
    arrays = [np.split(c.cpu().numpy()[order], cuts) for c in columns[1:]]
    return [list(parts) for parts in zip(*arrays, strict=True)]
