"""Small runs for tests of figures: rows by chance, and the finished run that goes with them."""

from __future__ import annotations

import math
import random
from typing import Any

import polars as pl

from rote.analysis.rates import rates
from rote.store.manifest import Sampling
from rote.store.run import Finished
from rote.store.summary import SchemeNumbers
from tests.report.runs import Kind, manifest, search, summary

SCHEME = "temperature=1 top_k=40"
LENGTH = 3000
TAU = 0.001


def finished(
    rows: pl.DataFrame,
    *,
    kind: Kind = "scan",
    tolerance: int | None = None,
    tau: float = TAU,
    sampling: Sampling | None = None,
) -> Finished:
    """A run that came to these rows; `tolerance`: of its near-verbatim search."""
    near = None if tolerance is None else search(tolerance)
    made = manifest(rows, kind=kind, characters=LENGTH, schemes=[SCHEME], tau=tau, near=near, sampling=sampling)
    found = {SCHEME: SchemeNumbers(rates=rates(rows, tau=tau))}
    return Finished(manifest=made, summary=summary(made, rows, found, seconds=12.3))


def rows(
    count: int, seed: int = 0, *, tolerance: int | None = None, stopping: bool = False, tau: float = TAU
) -> pl.DataFrame:
    """Rows with probabilities of every kind: 0, far below any float's reach of a plot, tau itself, 1."""
    chance = random.Random(seed)
    return pl.DataFrame(
        [_row(chance, number, tolerance, stopping, tau) for number in range(count)],
        schema_overrides={
            "log_prob": pl.Float64,
            "repetitions": pl.Int64,
            "split": pl.String,
            "greedy_distance": pl.Int32,
            "lower": pl.Float64,
            "margins": pl.List(pl.Float64),
        },
        infer_schema_length=None,
    )


def _row(chance: random.Random, number: int, tolerance: int | None, stopping: bool, tau: float) -> dict[str, Any]:
    start = chance.randrange(0, LENGTH - 400)
    kinds = (-math.inf, -800.0, -40.0, math.log(tau), 0.0, chance.uniform(-12, 0), chance.uniform(-3, 0))
    log_prob = chance.choice(kinds)
    stopped = stopping and log_prob < math.log(tau) and chance.random() < 0.5
    if stopped:  # an upper bound, below tau
        log_prob = chance.uniform(math.log(tau) - 8, math.log(tau) - 1e-6)
    row = {
        "example_id": f"w{number}",
        "scheme": SCHEME,
        "start": start,
        "suffix_start": start + 100,
        "suffix_end": start + 100 + chance.randrange(1, 300),
        "log_prob": log_prob,
        "greedy": not stopped and log_prob > -1,
        "bounded": stopped,
        "token_evals": chance.randrange(50, 100),
        "margins": [1.0],
        "repetitions": chance.choice((None, 0, 1, 2, 4)),
        "split": chance.choice((None, "train", "held-out")),
        "metadata": "{}",
    }
    if tolerance is None:
        return row | {"lower": None, "near_token_evals": None, "greedy_distance": None}
    lower, upper = [math.exp(log_prob)], []
    for _ in range(tolerance):
        lower.append(min(1.0, lower[-1] + chance.choice((0.0, 1e-9, 1e-4, 0.01, chance.random() / 10))))
    gap = chance.choice((0.0, 1e-4, 0.2))
    upper = [min(1.0, value + gap) for value in lower]
    return row | {
        "lower": lower[-1],
        "upper": upper[-1],
        "lower_by_tolerance": lower,
        "upper_by_tolerance": upper,
        "near_token_evals": chance.randrange(100, 400),
        "greedy_distance": chance.choice((None, 0, 1, 2, tolerance + 1)),
    }
