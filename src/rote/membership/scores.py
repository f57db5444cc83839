"""The membership scores: one definition each, and which direction means that a text was seen.

A text has n scored tokens with log-probs l. Under the model's own distribution at each position, log p has a mean mu
and a deviation sigma; a token's z-score is (l - mu) / sigma, and 0 where sigma is 0.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

KS = (5, 10, 20, 30, 40)
"""The shares of the tokens, in percent, that Min-K% looks at."""

Needs = Literal["text", "lowercase", "reference", "prefix", "windows"]
"""The passes that a score needs beside that over the text itself: `windows` is extraction, at its own cost."""

TINY = 1e-12
"""A loss below it counts as it where something is divided by it: of a text that the model is certain of."""


@dataclass(frozen=True, slots=True)
class Score:
    """`name` is its column; `words` what it is, for people; `member`: which values mean that the text was seen."""

    name: str
    title: str
    words: str
    member: Literal["low", "high"]
    needs: Needs = "text"

    @property
    def sign(self) -> int:
        """What it is multiplied by so that large means seen."""
        return 1 if self.member == "high" else -1


SCORES: tuple[Score, ...] = (
    Score("loss", "Loss", "mean surprise per token, in nats", "low"),
    Score("perplexity", "Perplexity", "e to the loss", "low"),
    Score("zlib", "Zlib", "loss by bytes of the text when zlib has compressed it", "low"),
    Score("lowercase", "Lowercase", "loss by the loss of the text in lowercase", "low", "lowercase"),
    *(
        Score(f"min_k_{k}", f"Min-K% {k}", f"mean log-prob of the {k}% least likely tokens", "high")
        for k in KS
    ),
    *(
        Score(f"min_k_plus_plus_{k}", f"Min-K%++ {k}", f"mean of the {k}% smallest z-scores of log-probs", "high")
        for k in KS
    ),
    Score("reference", "Reference", "mean log-prob less that under the reference model", "high", "reference"),
    Score("recall", "ReCaLL", "mean log-prob after a held-out prefix by that without it", "high", "prefix"),
    Score("best_window", "Best window", "largest log p_z of its windows", "high", "windows"),
    Score("near_lower", "Near-verbatim", "log of a lower bound on that window's near-verbatim p_z", "high", "windows"),
)  # fmt: skip
"""Every score, in the order in which they are shown."""

BY_NAME = {score.name: score for score in SCORES}


@dataclass(frozen=True, slots=True, eq=False)
class TextRead:
    """What a model's passes said about the scored tokens of one text: all but the first where there is no BOS."""

    log_probs: Floats
    z_scores: Floats
    token_evals: int

    @property
    def mean(self) -> float:
        """The mean log-prob."""
        return float(self.log_probs.mean(dtype=np.float64))


def smallest(values: Floats, percent: int) -> float:
    """The mean of the max(1, floor(k n)) smallest."""
    count = max(1, len(values) * percent // 100)
    least = np.partition(values, count - 1)[:count]
    return float(least.mean(dtype=np.float64))


def ratio(upper: float, lower: float) -> float:
    """upper / lower of two losses: 1 where they are the same, so also where the model is certain of both."""
    return 1.0 if upper == lower else upper / max(lower, TINY)


def scores_of(
    text: str,
    read: TextRead,
    *,
    lowercase: TextRead | None = None,
    reference: TextRead | None = None,
    prefixed: TextRead | None = None,
) -> dict[str, float]:
    """The scores of a text, by name: all that need one pass, and those whose other passes are given.

    `prefixed` has read the same tokens after the prefix.
    """
    loss = 0.0 - read.mean  # not -0.0 where the model is certain
    scores = {
        "loss": loss,
        "perplexity": math.exp(min(loss, 709.0)),  # beyond, no float is large enough
        "zlib": loss / len(zlib.compress(text.encode())),
    }
    for k in KS:
        scores[f"min_k_{k}"] = smallest(read.log_probs, k)
        scores[f"min_k_plus_plus_{k}"] = smallest(read.z_scores, k)
    if lowercase is not None:
        scores["lowercase"] = ratio(loss, -lowercase.mean)
    if reference is not None:
        scores["reference"] = read.mean - reference.mean
    if prefixed is not None:
        scores["recall"] = ratio(-prefixed.mean, loss)
    return scores


def named(needs: Sequence[Needs]) -> list[str]:
    """The names of the scores that these passes serve, in their order."""
    return [score.name for score in SCORES if score.needs in needs]
