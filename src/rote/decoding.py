"""Decoding schemes: temperature, then top-k, top-p and min-p, renormalised; or greedy.

`target_scores` computes, for rows of logits and one target token each, everything verbatim extraction needs, for any
number of schemes at once. All of it happens on the logits' device; nothing of vocabulary size leaves this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rote.largest import largest, largest_with_ids
from rote.scheme import Scheme


@dataclass(frozen=True, slots=True)
class TargetScores:
    """What rows of logits say about one target token each. First axis of the scheme tensors: schemes; last: rows."""

    base_log_probs: Tensor  # [rows] float32, log-softmax of the raw logits at the target
    ranks: Tensor  # [rows] int32, 1 + number of strictly larger logits
    argmax: Tensor  # [rows] bool, the target is what greedy decoding emits
    log_probs: Tensor  # [schemes, rows] float32, -inf outside the support, never above 0
    margins: Tensor  # [schemes, rows] float32, see `target_scores`
    headroom: Tensor  # [schemes, rows] float32, see `target_scores`

    @classmethod
    def join(cls, parts: Sequence[TargetScores]) -> TargetScores:
        return cls(*(torch.cat([getattr(p, name) for p in parts], -1) for name in cls.__slots__))

    def to(self, device: torch.device) -> TargetScores:
        return TargetScores(*(getattr(self, name).to(device) for name in self.__slots__))

    def rows(self, which: slice) -> TargetScores:
        return TargetScores(*(getattr(self, name)[..., which] for name in self.__slots__))


def target_scores(logits: Tensor, targets: Tensor, schemes: Sequence[Scheme]) -> TargetScores:
    """Score one target token per row of `logits` [rows, vocabulary] under every scheme.

    A margin says how firmly the target stands inside (+) or outside (-) the scheme's support: the smallest change that,
    made to any of the raw logits, could carry it across the border. Two correct computations whose logits differ by
    less than the margin agree on which side it is. It is infinite where the scheme truncates nothing; with top_p it may
    be smaller than it need be.

    Other tokens may cross the border too, and what is left then shares all of the probability. A log-prob can rise by
    `headroom` for that reason, besides the 2 d / temperature for which logits that differ by d account themselves: the
    support is never lighter than its top_k heaviest tokens, or than a share top_p of those, or with min_p than the
    heaviest token: how many others are left depends on how far that one rises.
    """
    vocabulary = logits.shape[1]
    value = logits.gather(1, targets[:, None])
    # After top-k, a nucleus's margin depends on what could join the set: as many again are looked at one by one.
    wanted = max(2, *((s.top_k or 0) * (2 if s.nucleus else 1) + 1 for s in schemes))
    top = largest(logits, min(wanted, vocabulary)).float()
    ranks = _count(torch.gt, logits, value) + 1
    tied_before = _tied_before(
        logits, value, targets, (ranks == 1) & (top[:, 0] == top[:, min(1, vocabulary - 1)]), schemes
    )
    argmax = (ranks == 1) & (tied_before == 0)

    target = value[:, 0].float()
    highest = top[:, 0]
    base = target - highest - (logits.float() - highest[:, None]).exp().sum(1).log()
    rows = [_under_scheme(s, logits, target, argmax, tied_before, top) for s in schemes]
    return TargetScores(
        base_log_probs=base.clamp(max=0),
        ranks=ranks,
        argmax=argmax,
        log_probs=torch.stack([log_prob for log_prob, _, _ in rows]),
        margins=torch.stack([margin for _, margin, _ in rows]),
        headroom=torch.stack([room for _, _, room in rows]),
    )


def _count(compare: Callable[..., Tensor], values: Tensor, border: Tensor) -> Tensor:
    """How many values of each row compare so with its border. In floats: on the CPU, sums of booleans are slow."""
    return compare(values, border, out=torch.empty_like(values)).sum(1, dtype=torch.float32).int()


def _tied_before(logits: Tensor, value: Tensor, targets: Tensor, top_tied: Tensor, schemes: Sequence[Scheme]) -> Tensor:
    """How many tokens of lower id have the target's very logit: they stand before it in the argmax and the nucleus."""
    ordered = any(s.top_p is not None for s in schemes)
    if logits.device.type == "cpu" and not ordered and not top_tied.any():
        return torch.zeros_like(targets)  # only ties for the first place matter then, and there are none
    columns = torch.arange(logits.shape[1], device=logits.device)
    return ((logits == value) & (columns < targets[:, None])).sum(1)


def _under_scheme(
    scheme: Scheme, logits: Tensor, target: Tensor, argmax: Tensor, tied_before: Tensor, top: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(log-prob, margin, headroom) of the target; `top` holds at least the top_k + 1 largest logits, sorted."""
    found = _before_min_p(scheme, logits, target, argmax, tied_before, top)
    return found if scheme.min_p is None else _min_p(scheme, logits, target, top, found)


def _before_min_p(
    scheme: Scheme, logits: Tensor, target: Tensor, argmax: Tensor, tied_before: Tensor, top: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same under temperature, top-k and top-p, or greedy."""
    never = torch.full_like(target, -torch.inf)
    always = torch.full_like(target, torch.inf)
    none = torch.zeros_like(target)
    vocabulary = logits.shape[1]
    if scheme.greedy:
        rival = top[:, 1] if vocabulary > 1 else never
        margin = torch.where(argmax, (target - rival) / 2, (target - top[:, 0]) / 2)
        return torch.where(argmax, none, never), margin, none

    temperature = scheme.temperature
    if scheme.top_k is None or scheme.top_k == vocabulary:
        if scheme.nucleus:
            kept = logits.float().sort(1, descending=True).values
            return _nucleus(scheme, kept, target, tied_before)
        return (target / temperature - torch.logsumexp(logits.float() / temperature, 1)).clamp(max=0), always, none

    k = scheme.top_k
    kept, border = top[:, :k], top[:, k - 1]
    # Ties at rank k are all kept: they are counted on the whole row, after the division, as the scheme is defined.
    scaled = _scaled(logits, scheme)
    ties = _count(torch.ge, scaled, (border / temperature)[:, None]) - k
    inside = target / temperature >= border / temperature
    margin = torch.where(inside, (target - top[:, k]) / 2, (target - border) / 2)
    if scheme.nucleus:
        tail = top[:, k:]
        unlisted = torch.where(logits.float() <= tail[:, -1:], scaled - top[:, :1] / temperature, -torch.inf)
        outer = _Outer(ties, tail, unlisted.double().exp().sum(1))
        log_prob, nucleus_margin, room = _nucleus(scheme, kept, target, tied_before, outer)
        # Outside the nucleus, a target that drops out of the top k as well is still outside.
        both = torch.where(nucleus_margin > 0, torch.minimum(margin, nucleus_margin), nucleus_margin)
        return torch.where(inside, log_prob, never), torch.where(inside, both, margin), room
    highest = top[:, :1] / temperature
    least = torch.exp(kept / temperature - highest).sum(1)
    mass = least + ties * torch.exp(border / temperature - highest[:, 0])
    log_prob = (target / temperature - highest[:, 0] - mass.log()).clamp(max=0)
    return torch.where(inside, log_prob, never), margin, mass.log() - least.log()


def _min_p(
    scheme: Scheme, logits: Tensor, target: Tensor, top: Tensor, before: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """(log-prob, margin, headroom) of the target, from what they are `before` min-p.

    Top-k, top-p and min-p each keep the most likely tokens, however many: the support is the smallest of the three
    sets, in which a token's log-prob is the largest.
    """
    assert scheme.min_p is not None
    temperature = scheme.temperature
    scaled, own, highest = _scaled(logits, scheme), target / temperature, top[:, 0] / temperature
    floor = _floor(highest, scheme.min_p)
    mass = torch.exp(scaled - highest[:, None]).masked_fill(scaled < floor[:, None], 0.0).sum(1)
    inside = (before[0] > -torch.inf) & (own >= floor)
    log_prob = torch.where(inside, torch.maximum(before[0], (own - highest - mass.log()).clamp(max=0)), -torch.inf)

    # The target leaves when the largest of the others has risen far enough above it; that it is the largest itself
    # only makes this take longer. Outside it has every border to cross that keeps it out, inside one is enough.
    second = top[:, 1] if logits.shape[1] > 1 else torch.full_like(target, -torch.inf)
    rival = torch.where(target < top[:, 0], top[:, 0], second)
    margin = torch.minimum(before[1], (target - rival - temperature * math.log(scheme.min_p)) / 2)
    return log_prob, margin, torch.where(inside, (own - highest - log_prob).clamp(min=0), 0.0)


def _scaled(logits: Tensor, scheme: Scheme) -> Tensor:
    return logits.float() if scheme.temperature == 1 else logits.float() / scheme.temperature


def _floor(highest: Tensor, min_p: float) -> Tensor:
    """The least scaled logit that min-p keeps; `highest` is the largest."""
    return highest + math.log(min_p)


@dataclass(frozen=True, slots=True)
class _Outer:
    """What top-k left beyond the k largest logits."""

    ties: Tensor  # [rows] how many more are equal to the k-th, and so belong to the set
    tail: Tensor  # [rows, some] the next largest, sorted
    weight: Tensor  # [rows] float64, of all that are not above the last of the tail, relative to the largest logit


def _nucleus(
    scheme: Scheme, kept: Tensor, target: Tensor, tied_before: Tensor, outer: _Outer | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(log-prob, margin, headroom) of the target under top-p, among the sorted logits `kept`.

    In float64: a border that depends on a running sum over the vocabulary should not depend on its rounding. The margin
    minds the nucleus's border alone, not the one of top-k before it.
    """
    assert scheme.top_p is not None
    threshold = scheme.top_p
    scaled = (kept / scheme.temperature).double()
    own = (target / scheme.temperature).double()
    weight = torch.exp(scaled - scaled[:, :1])
    own_weight = torch.exp(own - scaled[:, 0])
    least = weight.sum(1)
    tied = torch.zeros_like(least) if outer is None else weight[:, -1] * outer.ties
    total = least + tied

    before = weight.cumsum(1) - weight
    mass = (weight * (before < threshold * total[:, None])).sum(1)
    if outer is not None:
        missing = ((threshold * total - least) / weight[:, -1]).ceil().clamp(min=0)
        mass = mass + weight[:, -1] * missing.minimum(outer.ties.double())
    above = torch.where(scaled > own[:, None], weight, 0.0).sum(1)
    inside = above + tied_before * own_weight < threshold * total
    log_prob = torch.where(inside, (own - scaled[:, 0] - mass.log()).clamp(max=0), -torch.inf)

    # Changing every logit by at most d multiplies the odds of a set by at most exp(2d) and can bring tokens within 2d
    # of the target before it. Inside, the target leaves once the set before it reaches the threshold; outside, the
    # mirror image. Top-k's own set may meanwhile lose its ties, but never falls below k tokens (`least`).
    # Sets and their complements are summed apart: a difference would lose the small one. Sums are known up to rounding.
    slack = (kept.shape[1] + 8) * 2.0**-52
    wall, upper_wall = _log_odds(threshold - slack), _log_odds(threshold + slack)
    distance = (own[:, None] - scaled) / 2
    is_own = scaled == own[:, None]
    others = torch.where(is_own & (is_own.cumsum(1) == 1), 0.0, weight)
    level = torch.where(scaled > own[:, None], 0.0, weight).sum(1)

    room = (wall - others.cumsum(1).log() + (_sum_after(others) + own_weight[:, None]).log()) / 2
    leave = torch.where(distance >= 0, torch.maximum(distance, room), torch.inf).amin(1)
    leave = torch.minimum(leave, (wall - above.log() + level.log()) / 2)
    enter = _enter(scaled, own, weight, level + tied, upper_wall, outer, scheme.temperature)
    margin = torch.where(inside, leave.clamp(min=0), -enter.clamp(min=0)) * scheme.temperature
    room = mass.log() - (threshold * least).log()
    return log_prob.float(), margin.float(), room.float()


def _enter(
    scaled: Tensor, own: Tensor, weight: Tensor, level: Tensor, wall: float, outer: _Outer | None, temperature: float
) -> Tensor:
    """The least change of the scaled logits that could bring into the nucleus a target that stands outside it.

    With growing d, tokens before the target fall behind it, once they are within 2d of it, and tokens beyond the top k
    join the set: the k-th largest logit stays at least what it was, less d, so what joins was within 2d of it. (More
    than k may be in the set then: they may all tie.) Between two such events only exp(2d) moves. `level` is the
    weight of what is not before the target at d = 0.
    """
    event = ((scaled - own[:, None]) / 2).clamp(min=0).flip(1)
    falls = torch.where(scaled > own[:, None], weight, 0.0).flip(1)
    gains = falls  # what comes to stand at the target or behind it
    if outer is not None:
        tail = (outer.tail / temperature).double()
        single = (tail < scaled[:, -1:]) & (tail > tail[:, -1:])  # the others: ties, in the set already, and the last
        joining = torch.where(single, torch.exp(tail - scaled[:, :1]), 0.0)
        gains = torch.cat([falls, joining[:, :-1], outer.weight[:, None]], 1)
        falls = torch.nn.functional.pad(falls, (0, tail.shape[1]))
        late = (scaled[:, -1:] - tail) / 2
        event, order = torch.cat([event, late], 1).sort(1)
        falls, gains = falls.gather(1, order), gains.gather(1, order)
    room = (_sum_after(falls).log() - (level[:, None] + gains.cumsum(1)).log() - wall) / 2
    return torch.maximum(event, room).amin(1)


def _log_odds(share: float) -> float:
    if 0 < share < 1:
        return math.log(share) - math.log1p(-share)
    return math.copysign(1e5, share)  # beyond every ratio of weights


def _sum_after(values: Tensor) -> Tensor:
    """For each column the sum of the ones behind it."""
    through = values.flip(1).cumsum(1).flip(1)
    return torch.nn.functional.pad(through[:, 1:], (0, 1))


@dataclass(frozen=True, slots=True)
class Support:
    """What rows of logits may be continued with under one scheme: the heaviest tokens, and how much is left.

    `tokens` [rows, width] stand by falling probability, equal ones by rising id; `log_probs` [rows, width] float64 are
    -inf past the end of the support. `rest` [rows] is the probability of the support's tokens that are not listed, of
    which there are `unlisted` [rows]. `target` [rows] is the log-prob of the row's target token, listed or not.
    """

    tokens: Tensor
    log_probs: Tensor
    rest: Tensor
    unlisted: Tensor
    target: Tensor

    @classmethod
    def join(cls, parts: Sequence[Support]) -> Support:
        return cls(*(torch.cat([getattr(p, name) for p in parts]) for name in cls.__slots__))

    def bad(self) -> Tensor:
        """[rows]: a logit was no number."""
        return self.log_probs[:, 0].isnan() | self.rest.isnan()

    def to(self, device: torch.device) -> Support:
        return Support(*(getattr(self, name).to(device) for name in self.__slots__))


def support(logits: Tensor, scheme: Scheme, width: int, targets: Tensor) -> Support:
    """The `width` heaviest tokens of the scheme's support, per row of logits [rows, vocabulary], and its target's."""
    width = min(width, logits.shape[1])
    if scheme.greedy:
        first = _first_argmax(logits)
        certain = 0 * logits.amax(1).double()  # NaN where the largest logit is no number
        target = torch.where(first[:, 0] == targets, certain, -torch.inf)
        return Support(first, certain[:, None], 0 * certain, torch.zeros_like(targets), target)
    scaled = _scaled(logits, scheme)
    if scheme.nucleus:
        return _nucleus_support(scaled, scheme, width, targets)
    k = min(scheme.top_k or logits.shape[1], logits.shape[1])
    if k == logits.shape[1]:
        return _wide_support(scaled, scheme, width, targets)
    values, tokens = largest_with_ids(scaled, max(width, k))
    # Ties at rank k are all kept; those that `values` does not hold weigh as much as the border does. Where min-p keeps
    # fewer than top-k, `values` holds them all.
    border = values[:, k - 1 : k]
    if scheme.min_p is not None:
        border = torch.maximum(border, _floor(values[:, :1], scheme.min_p))
    inside = values >= border
    highest = values[:, :1].double()
    weights = torch.where(inside, (values.double() - highest).exp(), 0.0)
    edge = (border.double() - highest)[:, 0].exp()
    hidden = _count(torch.ge, scaled, border) - inside.sum(1)
    mass = weights.sum(1) + hidden * edge
    log_probs = torch.where(inside, values.double() - highest - mass.log()[:, None], -torch.inf).clamp(max=0)
    rest = (weights[:, width:].sum(1) + hidden * edge) / mass
    own = scaled.gather(1, targets[:, None])
    target = torch.where(own >= border, own.double() - highest - mass.log()[:, None], -torch.inf).clamp(max=0)[:, 0]
    unlisted = hidden + inside[:, width:].sum(1)
    return Support(tokens[:, :width], log_probs[:, :width], rest, unlisted, target)


def _wide_support(scaled: Tensor, scheme: Scheme, width: int, targets: Tensor) -> Support:
    """All tokens that have a probability, or all that min-p keeps."""
    if scheme.min_p is not None:
        floor = _floor(scaled.amax(1, keepdim=True), scheme.min_p)
        scaled = scaled.masked_fill(scaled < floor, -torch.inf)
    known = _count(torch.gt, scaled, torch.full_like(scaled[:, :1], -torch.inf))
    unlisted = (known.long() - width).clamp(min=0)  # a model may rule tokens out: rounding must not stand for them
    values, tokens = largest_with_ids(scaled, width)
    log_mass = torch.logsumexp(scaled.double(), 1)  # in float32 the parts would not add up to the whole
    log_probs = values.double() - log_mass[:, None]
    rest = torch.where(unlisted > 0, (1 - log_probs.exp().sum(1)).clamp(min=0), 0.0)
    target = (scaled.gather(1, targets[:, None])[:, 0].double() - log_mass).clamp(max=0)
    return Support(tokens, log_probs.clamp(max=0), rest, unlisted, target)


def _nucleus_support(scaled: Tensor, scheme: Scheme, width: int, targets: Tensor) -> Support:
    """Top-p after top-k, then min-p: the whole row is put in order, equal probabilities lower id first."""
    assert scheme.top_p is not None
    values, tokens = scaled.sort(dim=1, descending=True, stable=True)
    weights = (values.double() - values[:, :1].double()).exp()
    if scheme.top_k is not None and scheme.top_k < scaled.shape[1]:
        weights = torch.where(values >= values[:, scheme.top_k - 1 : scheme.top_k], weights, 0.0)
    before = weights.cumsum(1) - weights
    inside = (before < scheme.top_p * weights.sum(1, keepdim=True)) & (weights > 0)
    if scheme.min_p is not None:
        inside &= values >= _floor(values[:, :1], scheme.min_p)
    weights = torch.where(inside, weights, 0.0)
    mass = weights.sum(1, keepdim=True)
    log_probs = torch.where(inside, values.double() - values[:, :1].double() - mass.log(), -torch.inf).clamp(max=0)
    target = torch.where(tokens == targets[:, None], log_probs, -torch.inf).amax(1)
    rest, unlisted = weights[:, width:].sum(1) / mass[:, 0], inside[:, width:].sum(1)
    return Support(tokens[:, :width], log_probs[:, :width], rest, unlisted, target)


def _first_argmax(logits: Tensor) -> Tensor:
    """The lowest id among the largest logits: on a GPU argmax may name any of them."""
    columns = torch.arange(logits.shape[1], device=logits.device)
    return torch.where(logits == logits.amax(1, keepdim=True), columns, logits.shape[1] - 1).amin(1, keepdim=True)
