"""Membership scores by their definitions: one sequence at a time, whole logits, float64. Slow; shares no code."""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch

Logits = Callable[[list[int]], Any]
"""For the tokens that are fed: [tokens, vocabulary] float64, row i being what the model says after tokens 0 to i."""

SHARES = (5, 10, 20, 30, 40)
MEMBERS_ARE_HIGHER = {
    "loss": False,
    "perplexity": False,
    "zlib": False,
    "lowercase": False,
    "reference": True,
    "recall": True,
    **{f"min_k_{share}": True for share in SHARES},
    **{f"min_k_plus_plus_{share}": True for share in SHARES},
}
"""What a model has seen costs it less, most of all at its worst tokens, and less than it costs a model that has not;
what it has not seen costs as much in lower case; and a prefix that was not seen costs most where the text was."""


class Token(NamedTuple):
    log_prob: float
    mu: float
    sigma: float

    @property
    def z(self) -> float:
        return 0.0 if self.sigma == 0 else (self.log_prob - self.mu) / self.sigma


class Reader(NamedTuple):
    """A model as texts are read with it. `window` and `stride` are in tokens of the text."""

    logits: Logits
    tokenizer: Any
    bos: int | None
    window: int
    stride: int


def float64(model: Any) -> Logits:
    """A transformers model, all of whose weights are float64."""
    network = copy.deepcopy(model).double().eval()

    def logits(tokens: list[int]) -> Any:
        with torch.no_grad():
            found = network(torch.tensor([tokens])).logits[0]
        assert found.dtype == torch.float64
        return found.numpy()

    return logits


def tokens_of(text: str, tokenizer: Any) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))


def token(row: Any, target: int) -> Token:
    """The target's log-prob, and mean and deviation of the log-prob of a token that is drawn from the row itself.

    All three are worked out from the distances to the largest logit, which are what is exact.
    """
    below = np.asarray(row, dtype=np.float64) - np.max(row)
    weights = np.exp(below)
    total = math.fsum(weights)
    possible = weights > 0  # p log p is 0 where p is
    p, below_possible = weights[possible] / total, below[possible]
    mean = math.fsum(p * below_possible)
    variance = math.fsum(p * (below_possible - mean) ** 2)
    return Token(float(below[target]) - math.log(total), mean - math.log(total), math.sqrt(variance))


def windows(count: int, window: int, stride: int) -> list[range]:
    found = []
    start = 0
    while True:
        found.append(range(start, min(start + window, count)))
        if start + window >= count:
            return found
        start += stride


def read(
    logits: Logits, tokens: Sequence[int], *, bos: int | None, window: int, stride: int, prefix: Sequence[int] = ()
) -> list[Token]:  # fmt: skip
    """Each scored token, in order: all, but for the first where no BOS stands before it, prefixed or not."""
    before = ([] if bos is None else [bos]) + list(prefix)
    scored: dict[int, Token] = {}
    for places in windows(len(tokens), window, stride):
        fed = before + [tokens[place] for place in places]
        rows = None
        for at, place in enumerate(places):
            if place in scored or (place == 0 and bos is None):
                continue
            if rows is None:
                rows = logits(fed[:-1])
            predicted_at = len(before) + at - 1
            assert predicted_at >= 0, f"nothing stands before token {place} in its window"
            scored[place] = token(rows[predicted_at], tokens[place])
    first = 1 if bos is None else 0
    assert sorted(scored) == list(range(first, len(tokens)))
    return [scored[place] for place in range(first, len(tokens))]


def loss(read_tokens: Sequence[Token]) -> float:
    return -math.fsum(each.log_prob for each in read_tokens) / len(read_tokens)


def ratio(a: float, b: float) -> float:
    return 1.0 if a == b else a / max(b, 1e-12)


def mean_of_smallest(values: Sequence[float], share: int) -> float:
    count = max(1, math.floor(Fraction(share, 100) * len(values)))
    ordered = sorted(values)
    total = 0.0
    for place in range(count):
        total += ordered[place]
    return total / count


def compressed(text: str) -> int:
    return len(zlib.compress(text.encode("utf-8")))


def read_text(text: str, reader: Reader, prefix: Sequence[int] = ()) -> list[Token]:
    ids = tokens_of(text, reader.tokenizer)
    return read(reader.logits, ids, bos=reader.bos, window=reader.window, stride=reader.stride, prefix=prefix)


def scores(
    text: str,
    own: Sequence[Token],
    *,
    lowercase: Sequence[Token] | None = None,
    reference: Sequence[Token] | None = None,
    prefixed: Sequence[Token] | None = None,
) -> dict[str, float]:
    """Every score that there is something to compute it from. `prefixed`: the same tokens, after the prefix."""
    found = {"loss": loss(own), "zlib": loss(own) / compressed(text)}
    if loss(own) < 709:  # beyond, no float64 is large enough
        found["perplexity"] = math.exp(loss(own))
    for share in SHARES:
        found[f"min_k_{share}"] = mean_of_smallest([each.log_prob for each in own], share)
        found[f"min_k_plus_plus_{share}"] = mean_of_smallest([each.z for each in own], share)
    if lowercase is not None:
        found["lowercase"] = ratio(loss(own), loss(lowercase))
    if reference is not None:
        found["reference"] = -loss(own) - -loss(reference)
    if prefixed is not None:
        assert len(prefixed) == len(own)
        found["recall"] = ratio(loss(prefixed), loss(own))
    return found
