"""What the N likeliest log-probs of a position, as servers list them, determine of a token's probability.

Logits are known up to a constant for what is listed, and of all else it is known how likely it is together, and that no
token of it is likelier than the last that is listed. The tokens that a scheme keeps are the likeliest, however many
(equal ones by their ids): so what is kept is known where the fewest and the most that it can be are the same number.
Where they are not, a log-prob is given that is certainly not too small.

Two log-probs that are the same number count as a tie, as equal logits do elsewhere: log-probs that a server works out
in float32 show every tie of 16-bit models, and may show one where logits differ in their last bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rote.errors import InputError, argument, counted
from rote.scheme import Scheme

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]

SLACK = 1e-4
"""How far the listed probabilities of a position may be from adding up: servers round, each in its own way."""

TINY = float(np.finfo(np.float32).tiny)
"""The least margin of a token that is certainly outside: 0 is that of one of which nothing is certain."""

UNTOLD = 0
"""The rank of a token of which a list that has lost entries does not tell how many are likelier."""


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """What a server lists where an example's suffix tokens stand, under the base distribution: temperature 1, all kept.

    `own`: the log-prob of the suffix's own token, listed or not. `values`: those of the n likeliest tokens, falling;
    -inf where fewer came. `ids`: which tokens these are; -1 where that is not told. `whole`: n entries came, each of
    another token. Where it is false, entries were lost on the way (as where they are told apart by their text, which
    tokens may share): each that came is still one token's log-prob, but a likelier one may be missing. `ranks`: 1 +
    the number of strictly likelier tokens, where the server says so.
    """

    own: Floats  # [tokens]
    values: Floats  # [tokens, n]
    ids: Counts  # [tokens, n]
    whole: Mask  # [tokens]
    ranks: Counts | None = None  # [tokens]


@dataclass(frozen=True, slots=True, eq=False)
class ListedScores:
    """What a list says about one token per position; `rote.decoding.TargetScores` is what logits say.

    Where `bounded`, a log-prob is only the largest that the token can have under the scheme; what is certainly outside
    the support is not bounded but -inf. `ranks`: n + 1 stands for every rank beyond the list, UNTOLD for what a list
    with lost entries does not tell. `unsure`: the list does not tell whether the token is the argmax, as where the
    likeliest tie and their ids are not known; `argmax` is false there. Margins are never larger than those of
    `target_scores`, but may be smaller: with top-p, and where what stands beyond the list decides; 0 where bounded.
    """

    base_log_probs: NDArray[np.float32]  # [tokens]
    ranks: NDArray[np.int32]  # [tokens]
    argmax: Mask  # [tokens]
    unsure: Mask  # [tokens]
    log_probs: NDArray[np.float32]  # [schemes, tokens]
    margins: NDArray[np.float32]  # [schemes, tokens]
    bounded: Mask  # [schemes, tokens]


def refuse_unlistable(scheme: Scheme, count: int, vocabulary: int) -> None:
    """Raise InputError for a scheme that can never be exact from `count` listed log-probs, before the first request."""
    if count >= vocabulary or scheme.greedy or scheme.min_p is not None:
        return
    more = f"Ask the server for more with {argument('listed')}"
    if scheme.top_k is not None and scheme.top_k < vocabulary:
        if scheme.top_k >= count:
            raise InputError(
                f"{argument('top_k', scheme.top_k)} cannot be computed from the {counted(count, 'log-prob')} that the "
                f"server lists at each position: whether more tokens tie with number {scheme.top_k} shows only in a "
                f"longer list. {more}, well above {scheme.top_k} (16-bit models tie often)."
            )
    elif scheme.temperature != 1:
        raise InputError(
            f"{argument('temperature', scheme.temperature)} without top-k or min-p cannot be computed from the "
            f"{counted(count, 'log-prob')} that the server lists at each position: all tokens of the vocabulary have "
            f"their share in it. Give {argument('top_k')} (below {count}) or {argument('min_p')}, or temperature 1; or "
            f"ask for the whole vocabulary with {argument('listed', vocabulary)} where the server allows that."
        )


def listed_scores(listed: Listed, targets: Sequence[int], schemes: Sequence[Scheme], vocabulary: int) -> ListedScores:
    """Score one target token per position under every scheme, as far as the list determines it."""
    known = _known(listed, np.asarray(targets, dtype=np.int64), vocabulary)
    argmax, unsure = _greedy(known)
    rows = [_under_scheme(scheme, known, argmax, unsure) for scheme in schemes]
    log_probs, margins, bounded = (np.stack([row[i] for row in rows]) for i in range(3))
    return ListedScores(
        base_log_probs=np.minimum(listed.own, 0).astype(np.float32),
        ranks=_ranks(known).astype(np.int32),
        argmax=argmax,
        unsure=unsure,
        log_probs=log_probs.astype(np.float32),
        margins=margins.astype(np.float32),
        bounded=bounded.astype(np.bool_),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """A list, and what follows from it for each position whatever the scheme."""

    own: Floats
    values: Floats  # [tokens, n], -inf for what did not come
    whole: Mask
    ranks: Counts | None  # as the server says
    vocabulary: int
    larger: Counts  # how many listed tokens are strictly likelier than the own
    tied_low: Counts  # so many that are just as likely certainly have a lower id
    tied_high: Counts  # and so many may, the list's and others
    hidden: Counts  # how many tokens are not listed
    among: Mask  # whether the own token is certainly listed
    rest: Floats  # what the others that are not listed can be together, in base probability
    ceiling: Floats  # the largest log-prob that one of these can have; -inf where there are none

    @property
    def size(self) -> int:
        return int(self.values.shape[1])

    @property
    def last(self) -> Floats:
        return self.values[:, -1]


def _known(listed: Listed, targets: Counts, vocabulary: int) -> _Known:
    values, ids = listed.values[:, :vocabulary].astype(np.float64), listed.ids[:, :vocabulary]
    values = np.minimum(values, 0.0)
    here = ids == targets[:, None]
    # The own token's number in the list is the one that is compared with the others there.
    own = np.where(here.any(1), np.where(here, values, -np.inf).max(1), np.minimum(listed.own, 0.0))
    came = np.where(listed.whole, values.shape[1], np.isfinite(values).sum(1))
    same = (values == own[:, None]) & (np.arange(values.shape[1]) < came[:, None])
    among = here.any(1) | same.any(1)  # of ties with the last, one may be listed in its place: then more is hidden
    rest = np.maximum(1 - np.exp(values).sum(1) - np.where(among, 0.0, np.exp(own)), 0.0) + SLACK
    hidden = vocabulary - came
    ceiling = np.where(listed.whole, np.minimum(values[:, -1], np.log(rest)), np.log(rest))
    ceiling = np.where(hidden > 0, ceiling, -np.inf)

    others = same & ~here
    lower, untold = (others & (ids >= 0) & (ids < targets[:, None])).sum(1), (others & (ids < 0)).sum(1)
    # Without ids, one of those that are as likely as the own token is itself.
    tied_high = lower + np.maximum(untold - (~here.any(1) & (untold > 0)), 0) + np.where(ceiling >= own, hidden, 0)
    return _Known(
        own=own,
        values=values,
        whole=listed.whole,
        ranks=listed.ranks,
        vocabulary=vocabulary,
        larger=(values > own[:, None]).sum(1),
        tied_low=lower,
        tied_high=tied_high,
        hidden=hidden,
        among=among,
        rest=rest,
        ceiling=ceiling,
    )


def _greedy(known: _Known) -> tuple[Mask, Mask]:
    """(whether each own token is the argmax, whether that is not told)."""
    may = (known.larger == 0) & (known.tied_low == 0)
    sure = (known.tied_high == 0) & (known.ceiling < known.own)
    return may & sure, may & ~sure


def _ranks(known: _Known) -> Counts:
    own = np.where(known.whole, known.size + 1, UNTOLD)
    if known.ranks is not None:
        own = known.ranks
    # None of what is not listed is likelier.
    return np.where((known.whole & (known.own >= known.last)) | (known.ceiling < known.own), known.larger + 1, own)


def _under_scheme(scheme: Scheme, known: _Known, argmax: Mask, unsure: Mask) -> tuple[Floats, Floats, Mask]:
    """(log-prob or its largest value, margin, whether it is that) of the own tokens."""
    if scheme.greedy:
        second = np.where(known.size > 1, known.values[:, min(1, known.size - 1)], known.ceiling)
        rival = np.where(known.larger > 0, known.values[:, 0], np.maximum(second, known.ceiling))
        margin = np.where(unsure, 0.0, _less(known.own, rival) / 2)
        return np.where(argmax | unsure, 0.0, -np.inf), margin, unsure
    everything = scheme.top_k is None or scheme.top_k >= known.vocabulary
    if everything and not scheme.nucleus and scheme.min_p is None and scheme.temperature == 1:
        return known.own, np.full_like(known.own, np.inf), np.zeros_like(unsure)

    weights = _Weights.of(known, scheme.temperature)
    fewest, most, out = _kept_by_top_k(scheme, known)
    if scheme.nucleus:
        sizes = _kept_by_top_p(scheme, known, weights, fewest, most)
        fewest, most, out = np.minimum(fewest, sizes[0]), np.minimum(most, sizes[1]), out | sizes[2]
    if scheme.min_p is not None:
        floor = known.values[:, 0] + scheme.temperature * math.log(scheme.min_p)
        at_least = (known.values >= floor[:, None]).sum(1)
        fewest = np.minimum(fewest, at_least)
        more = (known.ceiling >= floor) | (~known.among & (known.own >= floor))
        most = np.minimum(most, np.where(more, known.size + 1, at_least))
        out |= known.own < floor
    first, last = known.larger + known.tied_low + 1, known.larger + known.tied_high + 1  # where the own token stands
    out |= known.whole & (first > most)
    exact = out | (known.whole & (fewest == most) & (most <= known.size) & (last <= fewest))
    # Where it is kept, so is everything that stands before it, besides what is kept in any case.
    kept = np.where(known.whole, np.maximum(fewest, np.minimum(first, known.size)), known.larger)
    mass = np.take_along_axis(weights.through, kept[:, None], 1)[:, 0]
    mass = np.where(known.whole & (known.own >= known.last), mass, mass + weights.own)
    with np.errstate(divide="ignore"):
        log_prob = np.minimum(weights.own_log - np.log(mass), 0.0)
    margin = np.where(exact, _margin(scheme, known, weights), 0.0)
    margin = np.where(out, np.minimum(margin, -TINY), np.maximum(margin, 0.0))
    return np.where(out, -np.inf, log_prob), margin, ~exact


@dataclass(frozen=True, slots=True, eq=False)
class _Weights:
    """Probabilities at a temperature, relative to the likeliest token that is known."""

    own_log: Floats
    own: Floats
    each: Floats  # [tokens, n]
    through: Floats  # [tokens, n + 1]: of the first 0, 1, ... that are listed, together
    rest: Floats  # the most that all tokens together can weigh that are not listed

    @classmethod
    def of(cls, known: _Known, temperature: float) -> _Weights:
        highest = np.maximum(known.values[:, 0], known.own)
        own_log = _less(known.own, highest) / temperature
        each = np.exp(_less(known.values, highest[:, None]) / temperature)
        through = np.concatenate([np.zeros((len(each), 1)), np.cumsum(each, 1)], 1)
        # Weights are base probabilities to the power 1 / temperature. Below temperature 1 their sum is largest with as
        # few tokens as there can be, all as likely as the ceiling lets them be; above it, with as many as there are.
        power = 1 / temperature
        if power >= 1:
            rest = np.log(known.rest) + (power - 1) * np.where(known.hidden > 0, known.ceiling, 0.0)
        else:
            rest = power * np.log(known.rest) + (1 - power) * np.log(np.maximum(known.hidden, 1))
        rest = np.where(known.hidden > 0, np.exp(np.minimum(rest - power * highest, 700.0)), 0.0)
        rest += np.where(known.among, 0.0, np.exp(own_log))
        return cls(own_log, np.exp(own_log), each, through, rest)


def _kept_by_top_k(scheme: Scheme, known: _Known) -> tuple[Counts, Counts, Mask]:
    """(the fewest tokens that are kept, the most, what is certainly not); size + 1 stands for more than are listed."""
    size, beyond = known.size, np.where(known.hidden > 0, known.size + 1, known.size)
    if scheme.top_k is None or scheme.top_k >= known.vocabulary:
        return np.full_like(beyond, size), beyond, np.zeros_like(known.whole)
    k = scheme.top_k
    out = known.larger >= k  # what the server says of ranks may count ties, and decides nothing
    if k > size:
        return np.full_like(beyond, size), beyond, out
    border = known.values[:, k - 1]
    kept = (known.values >= border[:, None]).sum(1)
    return kept, np.where(known.ceiling >= border, beyond, kept), out


def _kept_by_top_p(
    scheme: Scheme, known: _Known, weights: _Weights, fewest: Counts, most: Counts
) -> tuple[Counts, Counts, Mask]:
    """The same, of what top-k left."""
    assert scheme.top_p is not None
    least, largest = _total(scheme, known, weights, fewest, most)
    before, through = weights.through[:, :-1], weights.through[:, -1]
    sizes = []
    for total in (least, largest):
        kept = (before < scheme.top_p * total[:, None]).sum(1)
        sizes.append(np.where((through < scheme.top_p * total) & (known.hidden > 0), known.size + 1, kept))
    above = np.take_along_axis(weights.through, known.larger[:, None], 1)[:, 0]
    return np.minimum(sizes[0], known.size), sizes[1], above >= scheme.top_p * largest


def _total(scheme: Scheme, known: _Known, weights: _Weights, fewest: Counts, most: Counts) -> tuple[Floats, Floats]:
    """The least and the most that what top-k leaves weighs."""
    least = np.take_along_axis(weights.through, fewest[:, None], 1)[:, 0]
    rest = weights.rest
    if scheme.top_k is not None and scheme.top_k <= known.size:  # what is not listed can only tie with the k-th
        border = known.values[:, scheme.top_k - 1]
        with np.errstate(over="ignore"):
            ties = np.minimum(known.hidden, np.floor(known.rest / np.exp(np.maximum(border, -700.0))))
        rest = np.where(known.whole, ties * weights.each[:, scheme.top_k - 1], rest)
    elif scheme.temperature == 1 and (scheme.top_k is None or scheme.top_k >= known.vocabulary):
        highest = np.maximum(known.values[:, 0], known.own)
        everything = np.where(known.hidden > 0, np.exp(np.minimum(-highest, 700.0)), least)
        return everything, everything
    return least, np.where((most > known.size) | ~known.whole, least + rest, least)


def _margin(scheme: Scheme, known: _Known, weights: _Weights) -> Floats:
    """How far logits can move without carrying the own token across the border of the support; not always the most.

    As in `target_scores`: inside (+) one border is enough to cross, outside (-) every one that keeps it out.
    """
    margin, outside = np.full_like(known.own, np.inf), np.zeros_like(known.whole)
    k, next_value = scheme.top_k, np.concatenate([known.values[:, 1:], known.ceiling[:, None]], 1)
    if k is not None and k < known.vocabulary:
        outside = known.larger >= k
        column = min(k, known.size) - 1
        inner = next_value[:, column] if k <= known.size else known.last
        border = known.values[:, column]
        margin = np.where(outside, _less(known.own, border) / 2, np.maximum(_less(known.own, inner), 0.0) / 2)
    if scheme.nucleus:
        of_nucleus = _nucleus_margin(scheme, known, weights)
        margin = np.where(outside, margin, np.where(of_nucleus > 0, np.minimum(margin, of_nucleus), of_nucleus))
    if scheme.min_p is not None:
        rival = np.where(known.larger > 0, known.values[:, 0], next_value[:, 0])
        margin = np.minimum(margin, (_less(known.own, rival) - scheme.temperature * math.log(scheme.min_p)) / 2)
    return margin


def _nucleus_margin(scheme: Scheme, known: _Known, weights: _Weights) -> Floats:
    """A safe one: changing every logit by at most d multiplies the odds of a set by at most exp(2 d).

    Inside: as long as nothing from place j on among the others can come before the own token, what stands before it is
    at most the j likeliest others. Outside: as long as number j still stands before it, so do the j likeliest. Each j
    gives a margin, and the best of them counts.
    """
    assert scheme.top_p is not None
    wall, halved = math.log(scheme.top_p) - math.log1p(-scheme.top_p), 2 * scheme.temperature
    own, size = known.own[:, None], min(scheme.top_k or known.size, known.size)
    rest = weights.rest[:, None]
    tail = known.values[:, size : size + 1] if size < known.size else known.ceiling[:, None]
    place = np.arange(size - 1)[None]
    place = place + (place >= known.larger[:, None])  # all that top-k keeps in any case, but for the own token
    with np.errstate(divide="ignore", invalid="ignore"):
        # Summed up from the small end: 1 - (1 - 1e-18) would be 0.
        behind = np.cumsum(np.concatenate([rest, weights.each[:, :0:-1]], 1), 1)[:, ::-1]
        room = (np.log(weights.through[:, 1:]) - np.log(behind) - wall) / 2
        outside = np.minimum(_less(known.values, own) / halved, room).max(1)

        others, nothing = np.take_along_axis(weights.each, place, 1), np.zeros_like(own)
        before = np.cumsum(np.concatenate([nothing, others], 1), 1)
        behind = weights.own[:, None] + np.cumsum(np.concatenate([nothing, others[:, ::-1]], 1), 1)[:, ::-1]
        room = (wall - np.log(before) + np.log(behind)) / 2
        coming = np.concatenate([np.take_along_axis(known.values, place, 1), tail], 1)
        inside = np.minimum(-_less(coming, own) / halved, room).max(1)
    margin: Floats = np.where(inside > 0, inside, np.minimum(-outside, -0.0)) * scheme.temperature
    return margin


def _less(one: Floats, other: Floats) -> Floats:
    """one - other, of logarithms; 0 for two that are -inf."""
    with np.errstate(invalid="ignore"):
        difference: Floats = np.where(one == other, 0.0, one - other)
    return difference
