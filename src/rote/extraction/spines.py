"""Reading spines: at every position of a continuation that is fed at once, which children are closed, dead and open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.decoding import Support, TargetScores
from rote.extraction.distance import Metric
from rote.extraction.reader import Ints, Reader, Reading

Floats = NDArray[np.float64]

MATCHED = 3  # how much likelier an alignment is in which the last token is a suffix token, in half edits


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
    """What reading one spine came to. By tolerance: newly closed mass, mass left open and not searched on, open mass."""

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
    reader: Reader, metric: Metric, starts: Sequence[Start], *, children: bool, scores: bool = False, width: int = 0
) -> list[Expansion]:
    """Read all starts and sort what may follow each position. `scores`: also what verbatim scoring says of them."""
    device = reader.device
    counts = np.array([len(s.spine) for s in starts])
    targets = np.concatenate([s.spine for s in starts])
    found, verbatim = reader.read([s.reading for s in starts], np.maximum(targets, 0), width=width, scores=scores)
    batch = _Batch.of(metric, starts, counts, device)
    found = Support(*(t.to(device) for t in (found.tokens, found.log_probs, found.rest, found.target)))
    taken = torch.where(batch.spine >= 0, found.target, -torch.inf)

    along = torch.zeros(len(starts), int(counts.max()), dtype=torch.float64, device=device)
    along[batch.row, batch.step] = taken
    before = torch.cat([torch.zeros_like(along[:, :1]), along.cumsum(1)[:, :-1]], 1)
    path = batch.log_mass + before[batch.row, batch.step]

    eos = torch.tensor(sorted(reader.model.eos_ids), dtype=torch.int64, device=device)
    is_eos = torch.isin(found.tokens, eos)
    after, floor, ceil = metric.children(
        batch.state, batch.written, batch.lengths, batch.window, found.tokens, is_eos
    )
    own_floor, own_ceil = metric.bounds(batch.state, batch.written, batch.lengths)
    goes_on = (found.tokens == batch.spine[:, None]) & batch.fed[:, None]
    counted = ~goes_on & ~batch.left_out(found.tokens, starts)
    log_mass = torch.where(counted, path[:, None] + found.log_probs, -torch.inf)
    mass = log_mass.exp()
    # The part of the support that is not listed, less the spine's own token where that is in it.
    listed = (found.tokens == batch.spine[:, None]).any(1) | ~batch.fed | found.target.isneginf()
    rest = path.exp() * (found.rest - torch.where(listed, 0.0, found.target.exp())).clamp(min=0)

    last = metric.tolerance
    searched = ceil > last
    # The spine itself may become closed on its way; where a reading starts it is open.
    before_ceil = torch.where(batch.step == 0, own_ceil, own_ceil.roll(1))
    sums = []
    for e in range(last + 1):
        closes = (ceil <= e) & (own_ceil > e)[:, None]
        still = (floor <= e) & (ceil > e)
        kept = torch.where((own_floor <= e) & (own_ceil > e), rest, 0.0)
        sums += [
            (mass * closes).sum(1) + torch.where((own_ceil <= e) & (before_ceil > e), path.exp(), 0.0),
            (mass * (still & ~searched)).sum(1) + torch.where(own_ceil <= last, kept, 0.0),
            (mass * (still & searched)).sum(1) + torch.where(own_ceil > last, kept, 0.0),
        ]
    early = is_eos & (batch.written + 1 < batch.lengths)[:, None]
    sums.append((mass * early).sum(1) if metric.eos == "exclude" else torch.zeros_like(path))
    totals = torch.zeros(len(starts), len(sums), dtype=torch.float64, device=device)
    totals.index_add_(0, batch.row, torch.stack(sums, 1))

    ends = (batch.written + 1 == batch.lengths)[:, None] | (early if metric.eos == "stop" else early & False)
    whole = counted & (ceil <= last) & (ends | (own_ceil > last)[:, None]) & (mass > 0)
    at, which = whole.nonzero(as_tuple=True)
    seen = [batch.row[at], batch.step[at], found.tokens[at, which], log_mass[at, which], ceil[at, which],
            ends.expand_as(whole)[at, which]]  # fmt: skip
    shown = _by_row(seen, len(starts))
    opened = listed_ = None
    if children:
        at, which = (counted & searched & (floor <= last) & (mass > 0)).nonzero(as_tuple=True)
        column, edits = _alignment(metric, batch.pick(at), found.tokens[at, which], after[at, which])
        (more,) = ((rest > 0) & (own_ceil > last) & (own_floor <= last)).nonzero(as_tuple=True)
        nothing = torch.full_like(more, -1)
        if len(more):
            listed_ = torch.cat([found.tokens, batch.spine[:, None]], 1).cpu().numpy()
        pairs = [
            (batch.row[at], batch.row[more]), (batch.step[at], batch.step[more]),
            (found.tokens[at, which], nothing), (log_mass[at, which], rest[more].log()),
            (floor[at, which].long(), own_floor[more].long()), (column, batch.written[more]),
            (edits, own_floor[more].long()),
        ]  # fmt: skip
        opened = _by_row([torch.cat(pair) for pair in pairs], len(starts))

    sums_, states = totals.cpu().numpy(), batch.state.cpu().numpy()
    path_, taken_ = torch.stack([path, taken]).cpu().numpy()
    results = []
    for i, end in enumerate(counts.cumsum().tolist()):
        rows = slice(end - int(counts[i]), end)
        results.append(
            Expansion(
                lower=sums_[i, 0:-1:3], parked=sums_[i, 1:-1:3], open=sums_[i, 2:-1:3], eos_mass=float(sums_[i, -1]),
                path=path_[rows], taken=taken_[rows], states=states[rows],
                listed=None if listed_ is None else listed_[rows],
                children=None if opened is None else Children(*opened[i]),
                shown=Shown(*shown[i]),
                scores=None if verbatim is None else verbatim.rows(rows),
            )  # fmt: skip
        )
    return results


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

        states = [torch.from_numpy(np.stack([s.state for s in starts])).to(device)]
        for i in range(spine.shape[1] - 1):
            window = metric.window(targets, first + i)
            states.append(metric.advance(states[-1], first + i, lengths, window, spine[:, i : i + 1])[:, 0])
        written = first[row] + step
        return cls(
            row=row, step=step, spine=spine[row, step], fed=fed, log_mass=log_mass[row], written=written,
            lengths=lengths[row], state=torch.stack(states, 1)[row, step], window=metric.window(targets[row], written),
        )  # fmt: skip

    def pick(self, which: Tensor) -> tuple[Tensor, Tensor]:
        return self.written[which], self.window[which]

    def left_out(self, tokens: Tensor, starts: Sequence[Start]) -> Tensor:
        """Children that were listed when this position was first read."""
        out = torch.zeros_like(tokens, dtype=torch.bool)
        for i, start in enumerate(starts):
            if start.known is not None:
                (here,) = (self.row == i).nonzero(as_tuple=True)
                out[here[:1]] = torch.isin(tokens[here[:1]], torch.from_numpy(start.known).to(tokens.device))
        return out


def _alignment(metric: Metric, place: tuple[Tensor, Tensor], token: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """(column, edits): where in the suffix an output most likely stands after `token`. A guess: no bound rests on it."""
    written, window = place
    if metric.distance == "hamming":
        return written + 1, states[:, 0].long()
    offset = torch.arange(metric.width, device=states.device) - metric.tolerance
    doubt = 4 * states.long() + 2 * offset.abs() - MATCHED * (token[:, None] == window)
    doubt = torch.where(states > metric.tolerance, 1 << 20, doubt)
    best = doubt.argmin(1, keepdim=True)
    return written + 1 + offset[best[:, 0]], states.gather(1, best)[:, 0].long()


def _by_row(columns: list[Tensor], rows: int) -> list[list[NDArray]]:  # type: ignore[type-arg]
    """The first of the columns says which row each entry belongs to: the others, cut up by row."""
    row = columns[0].cpu().numpy()
    order = np.argsort(row, kind="stable")
    cuts = np.searchsorted(row[order], np.arange(1, rows))
    arrays = [np.split(c.cpu().numpy()[order], cuts) for c in columns[1:]]
    return [list(parts) for parts in zip(*arrays, strict=True)]
