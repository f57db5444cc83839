"""Extraction as a membership score: the likeliest window of a text, and what comes near it, at its own cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rote.extraction.near.options import Near
from rote.extraction.near.search import near_verbatim
from rote.extraction.verbatim import verbatim
from rote.models.base import LogitModel
from rote.options import BatchSize
from rote.scheme import Scheme
from rote.tokens import Example

PREFIX, SUFFIX, EVERY = 50, 50, 25
"""Tokens of a window's prompt, tokens that must come back, and from one window to the next."""

SCHEME = Scheme(top_k=None)
"""Plain sampling: under a scheme that truncates, most windows of most texts would have the same number, none."""

NEAR = Near()


@dataclass(frozen=True, slots=True)
class BestWindow:
    """The likeliest of `tried` windows of a text, from token `start`: its log p_z, and the log of a lower bound on the
    probability of an output near it."""

    log_prob: float
    near_lower: float
    start: int
    tried: int
    token_evals: int


def best_windows(
    model: LogitModel, texts: Sequence[Sequence[int]], batch_size: BatchSize = "auto"
) -> list[BestWindow | None]:
    """The best window of each text, of those that begin at its first token, every 25 tokens after, and at the last
    token from which one fits; None for a text below one window."""
    examples: list[Example] = []
    owners: list[int] = []
    for number, ids in enumerate(texts):
        last = len(ids) - PREFIX - SUFFIX
        for start in sorted({*range(0, last + 1, EVERY), *([last] if last >= 0 else [])}):
            middle = start + PREFIX
            examples.append(Example(str(start), tuple(ids[start:middle]), tuple(ids[middle : middle + SUFFIX])))
            owners.append(number)
    scored = verbatim(model, examples, SCHEME, batch_size=batch_size)
    own: list[list[int]] = [[] for _ in texts]
    for place, owner in enumerate(owners):
        own[owner].append(place)
    best = {owner: max(own[owner], key=lambda place: scored[place].log_prob) for owner in dict.fromkeys(owners)}
    searched = near_verbatim(
        model, [examples[place] for place in best.values()], SCHEME, near=NEAR, batch_size=batch_size
    )
    found: list[BestWindow | None] = [None] * len(texts)
    for (owner, place), near in zip(best.items(), searched, strict=True):
        found[owner] = BestWindow(
            log_prob=scored[place].log_prob,
            near_lower=max(scored[place].log_prob, math.log(near.lower) if near.lower > 0 else -math.inf),
            start=int(examples[place].id),
            tried=len(own[owner]),
            token_evals=sum(scored[each].token_evals for each in own[owner]) + near.token_evals,
        )
    return found
