"""Rates as the scheme or the suffix length varies, all from the token probabilities of one pass."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from rote.analysis.rates import log_prob_bounds, rates
from rote.errors import InputError, argument, counted
from rote.odds import at_least_once
from rote.store.sweep import Perplexity, Point, WithinTrials

GREEDY = "greedy"
"""The label of the greedy scheme, whose rows tell which tokens greedy decoding emits."""

LISTS = ("token_log_probs", "base_log_probs", "ranks", "margins", "token_ends")
TRIALS = 100


def shortened(scores: pl.DataFrame, suffix: int) -> pl.DataFrame:
    """The score table of the first `suffix` tokens of every suffix, as scoring those alone would give it.

    The prefix stays, and each token's probability depends on what is before it alone, so nothing is computed again.
    Which tokens greedy decoding emits is read off the rows of the greedy scheme, so the table must hold them too. Rows
    that stopped early lack tokens: they are an InputError, as are suffixes shorter than asked for.
    """
    if suffix < 1:
        raise InputError(f"a suffix must have at least 1 token, not {suffix}.")
    if scores["bounded"].any():
        raise InputError(
            "rows of which only an upper bound is known cannot be shortened; score without stop_early, or where a "
            f"server's list leaves tokens open, ask it for more with {argument('listed')}."
        )
    if scores["token_log_probs"].list.eval(pl.element().is_null()).list.any().any():
        raise InputError(
            "a server's list leaves tokens of these rows open, so they cannot be shortened; ask it for more with "
            f"{argument('listed')}."
        )
    lengths = scores["token_log_probs"].list.len()
    if (lengths < suffix).any():
        row = scores.row(int((lengths < suffix).arg_max() or 0), named=True)
        raise InputError(
            f"example {row['example_id']!r} has a suffix of {counted(len(row['token_log_probs']), 'token')}, fewer "
            f"than {suffix}."
        )
    if missing := set(scores["example_id"]) - set(scores.filter(pl.col("scheme") == GREEDY)["example_id"]):
        raise InputError(f"example {min(missing)!r} has no row of the greedy scheme; score with rote.GREEDY as well.")
    cut = scores.with_columns(pl.col(name).list.head(suffix) for name in LISTS)
    emitted = cut.filter(pl.col("scheme") == GREEDY).select(
        "example_id", pl.col("token_log_probs").list.min().eq(0.0).alias("greedy")
    )
    total = [float(row.to_numpy().sum(dtype=np.float64)) for row in cut["token_log_probs"]]  # as the scorer sums
    return (
        cut.drop("greedy")
        .join(emitted, on="example_id", how="left", maintain_order="left")
        .with_columns(pl.Series("log_prob", total, dtype=pl.Float64))
        .select(scores.columns)
    )


def perplexities(scores: pl.DataFrame) -> pl.DataFrame:
    """For each row its suffix's perplexity under the scheme and the probability of it within TRIALS generations.

    The perplexity is exp(-log p_z / tokens): infinite where a token lies outside the scheme's support.
    """
    _, log_prob = log_prob_bounds(scores)
    tokens = scores["token_log_probs"].list.len().to_numpy()
    with np.errstate(over="ignore"):
        perplexity = np.exp(-log_prob / tokens)
    within = [at_least_once(math.exp(value), TRIALS) for value in log_prob]
    return scores.select("example_id", "scheme").with_columns(
        pl.Series("perplexity", perplexity), pl.Series("within_trials", within, dtype=pl.Float64)
    )


def point(scores: pl.DataFrame, prefix: int, suffix: int, **limits: float) -> Point:
    """What one scheme's rows come to at one place of a sweep: their rates, and how perplexing the suffixes are.

    `limits` are the options of `rates`.
    """
    each = perplexities(scores)
    finite = each.filter(pl.col("perplexity").is_finite())["perplexity"]
    quartiles = [float(finite.quantile(q, "linear") or 0.0) for q in (0.25, 0.5, 0.75)] if len(finite) else []
    mean = float(each["within_trials"].mean() or 0.0)  # type: ignore[arg-type]
    return Point(
        scheme=scores["scheme"][0],
        prefix=prefix,
        suffix=suffix,
        rates=rates(scores, **limits),
        perplexity=Perplexity(finite=len(finite), quartiles=quartiles),
        within_trials=WithinTrials(trials=TRIALS, mean=mean),
    )
