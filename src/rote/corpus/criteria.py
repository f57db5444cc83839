"""What is asked of a benchmark's example without its model: of its token ids alone, and of its corpus."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rote.corpus.index import CorpusIndex

LEAST_ENTROPY = 1.0
"""Bits per token below which a suffix is trivial."""


def entropy(suffix: Sequence[int]) -> float:
    """The empirical unigram entropy of a suffix, in bits per token: 0 where all its tokens are the same."""
    total = len(suffix)
    return math.fsum(n / total * math.log2(total / n) for n in Counter(map(int, suffix)).values())


def period(suffix: Sequence[int]) -> int:
    """The length of the shortest run of tokens that gives the suffix when it is written over and over.

    The last copy may be cut short. A suffix that is no such thing is a run of its own length.
    """
    ids = tuple(suffix)
    return next((n for n in range(1, len(ids)) if ids[n:] == ids[:-n]), len(ids))


def repetitive(suffix: Sequence[int]) -> bool:
    """Whether the suffix is one short run of tokens over and over: at least twice in full, and nothing else."""
    return 2 * period(suffix) <= len(suffix)


def substring(prefix: Sequence[int], suffix: Sequence[int]) -> bool:
    """Whether the suffix stands in the prefix, one token after the other: then the prompt has told the answer."""
    before, ids = tuple(prefix), tuple(suffix)
    return any(before[start : start + len(ids)] == ids for start in range(len(before) - len(ids) + 1))


def unique(index: CorpusIndex, prefix: Sequence[int], suffix: Sequence[int]) -> bool:
    """Whether the text agrees with the suffix after every occurrence of the prefix, as far as its document goes."""
    ids, whole = list(prefix), index.count([*prefix, *suffix])
    for token in suffix:
        if index.count(ids) == whole:
            return True  # what stands there goes on with the whole suffix
        if not index.following(ids).keys() <= {token, None}:
            return False
        ids.append(token)
    return True
