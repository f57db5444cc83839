"""The chance that a guess is right: learnt where the answers are known, from what an attack knows of its guesses.

Recall at a number of errors is largest when guesses are sorted by that chance, whichever examples they are of. The
model's own probability of a guess is not that chance: it is one of the things that tell it.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rote.corpus.criteria import entropy
from rote.errors import InputError, argument
from rote.extraction.attack.rounds import Found
from rote.store.attack import Reliability, ReliabilityBin, Weights

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FEATURES = (
    "log_prob", "prob", "least", "entropy", "gap", "share", "rank", "others", "prefix_log_prob", "zlib",
    "unigram_entropy",
)  # fmt: skip
FOLDS = 5
BINS = 10
FAR = 20.0  # nats: gaps beyond it are all the same
FEWEST = 10  # right and wrong guesses that something can be learnt from


def chances_of(weights: Weights, features: Floats) -> Floats:
    """What a logistic regression says of guesses."""
    raised = ((features - weights.means) / weights.scales) @ np.array(weights.weights) + weights.intercept
    chances: Floats = 1 / (1 + np.exp(-np.clip(raised, -500, 500)))
    return chances


def features_of(found: Sequence[Found], texts: Sequence[str] | None = None) -> Floats:
    """[guesses, features]; `texts` are the guesses decoded, where there is a tokenizer.

    `gap`: to the likeliest other candidate of its example; `share`: of what all its candidates come to; `others`: what
    is left beside them. `zlib`: bytes of the compressed text by those of the text, or of token ids.
    """
    log_prob = np.array([f.log_prob for f in found])
    gap, share, rank, others = (np.zeros(len(found)) for _ in range(4))
    by_example: dict[int, list[int]] = {}
    for i, one in enumerate(found):
        by_example.setdefault(one.example, []).append(i)
    for own in by_example.values():
        own.sort(key=lambda i: -log_prob[i])
        total = float(np.exp(log_prob[own]).sum())
        for place, i in enumerate(own):
            rival = log_prob[own[1 if place == 0 else 0]] if len(own) > 1 else -math.inf
            gap[i] = np.clip(log_prob[i] - rival, -FAR, FAR)
            share[i] = max(log_prob[i] - math.log(total), -FAR) if total > 0 else -FAR
            rank[i] = math.log1p(place)
            others[i] = max(1 - total, 0.0)
    prefix = {f.example: f.prefix_log_prob for f in found if f.prefix_log_prob is not None}
    raw = [np.array(f.suffix, dtype=np.uint32).tobytes() for f in found] if texts is None else None
    content = raw or [text.encode("utf-8", "surrogatepass") for text in texts or ()]
    packed = np.array([len(zlib.compress(one)) / max(len(one), 1) for one in content])
    columns = {
        "log_prob": np.maximum(log_prob, -200.0),
        "prob": np.exp(log_prob),
        "least": np.maximum([f.least for f in found], -FAR),
        "entropy": np.array([f.entropy for f in found]),
        "gap": gap,
        "share": share,
        "rank": rank,
        "others": others,
        "prefix_log_prob": np.array([prefix.get(f.example, 0.0) for f in found]),
        "zlib": packed,
        "unigram_entropy": np.array([entropy(f.suffix) for f in found]),
    }
    return np.column_stack([columns[name] for name in FEATURES])


def learn(features: Floats, right: Bools) -> Weights:
    """Weights from guesses of which it is known whether they are right."""
    from sklearn.linear_model import LogisticRegression

    means, scales = features.mean(0), features.std(0)
    scales = np.where(scales > 1e-12, scales, 1.0)
    model = LogisticRegression(C=1.0, max_iter=2000).fit((features - means) / scales, right)
    return Weights(
        features=list(FEATURES),
        means=means.tolist(),
        scales=scales.tolist(),
        weights=model.coef_[0].tolist(),
        intercept=float(model.intercept_[0]),
    )


def calibrate(features: Floats, right: Bools, example: Sequence[int]) -> tuple[Weights, Reliability]:
    """Weights, and how chances turn out on examples that were not learnt from: each fifth by the other four."""
    if min(right.sum(), (~right).sum()) < FEWEST:
        raise InputError(
            f"{argument('train')}: of {len(right):,} guesses on the examples with answers {int(right.sum()):,} are "
            f"right; at least {FEWEST} right and {FEWEST} wrong ones are needed to learn a chance. Give more examples "
            f"({argument('train_examples')}), a larger {argument('budget')}, or leave {argument('train')} out."
        )
    fold = np.asarray(example) % FOLDS
    out = np.zeros(len(right))
    for held_out in range(FOLDS):
        own, rest = fold == held_out, fold != held_out
        if own.any():
            both = 0 < right[rest].sum() < rest.sum()
            out[own] = chances_of(learn(features[rest], right[rest]), features[own]) if both else right.mean()
    return learn(features, right), reliability(out, right)


def reliability(chances: Floats, right: Bools) -> Reliability:
    """In tenths of the chance; the calibration error is the mean distance of chance and share, by guesses."""
    tenth = np.minimum((chances * BINS).astype(int), BINS - 1)
    bins: list[ReliabilityBin | None] = []
    for number in range(BINS):
        own = tenth == number
        if not own.any():
            bins.append(None)
            continue
        mean, share = float(chances[own].mean()), float(right[own].mean())
        bins.append(ReliabilityBin(guesses=int(own.sum()), mean_chance=mean, share_right=share))
    off = sum(b.guesses * abs(b.mean_chance - b.share_right) for b in bins if b is not None)
    return Reliability(
        guesses=len(right),
        right=int(right.sum()),
        brier=float(((chances - right) ** 2).mean()),
        calibration_error=off / max(len(right), 1),
        bins=bins,
    )


def in_order(found: Sequence[Found], chances: Floats, *, firsts: bool) -> list[int]:
    """Guesses, most confident first; equal ones as they were found.

    `firsts`: the likeliest guess of every example comes before any second one.
    """
    best: dict[int, int] = {}
    for i, one in enumerate(found):
        if one.example not in best or one.log_prob > found[best[one.example]].log_prob:
            best[one.example] = i
    first = set(best.values())
    return sorted(range(len(found)), key=lambda i: (firsts and i not in first, -chances[i], -found[i].log_prob, i))
