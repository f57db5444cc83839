"""What is summed up part by part is, to the last bit, what the whole table comes to."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.furthest import longest
from rote.analysis.narrow import Narrowed, narrow, narrowed
from rote.analysis.rates import _border_rows, told_margins
from rote.analysis.summary import THRESHOLDS, summarise
from rote.store.manifest import Manifest, Sampling
from rote.store.stages import Refined
from rote.store.summary import Summary
from rote.store.table import SCHEMA
from tests.cases import cases
from tests.report.runs import manifest, search

FRAME = pl.DataFrame(pl.from_arrow(SCHEMA.empty_table())).schema
SCHEMES = ("temperature=1 top_k=40", "temperature=0.8 top_p=0.9")
LENGTH = 900
"""Characters of the made-up text."""


def of_the_whole(scores: pl.DataFrame, made: Manifest) -> Narrowed:
    """What is needed of the rows, with every list and column that there is."""
    most = max((len(ranks) for ranks in scores["ranks"]), default=0)
    every = {scheme: scores.filter(pl.col("scheme") == scheme) for scheme in made.schemes}
    scanned = made.source.characters is not None
    return Narrowed(scores, most, {s: longest(own, THRESHOLDS) for s, own in every.items()} if scanned else {})


def same(scores: pl.DataFrame, parts: list[pl.DataFrame], made: Manifest) -> Summary:
    whole = summarise(made, of_the_whole(scores, made), [], None, None, 1)
    streamed = summarise(made, narrowed(parts, made, THRESHOLDS), [], None, None, 1)
    assert streamed == whole
    return whole


def cut(scores: pl.DataFrame, at: list[int]) -> list[pl.DataFrame]:
    return [scores[first:last] for first, last in pairwise([0, *sorted(at), scores.height])]


def one(chance: random.Random, number: int, scheme: str, *, near: bool, kind: str, **other: Any) -> dict[str, Any]:
    size = chance.choice((1, 3, 8))
    bounded = chance.random() < 0.2
    # Few different numbers, so that rows tie; -inf is outside the support, and never beside a bound.
    values = (0.0, -0.1, -0.25, -0.7, -3.0) if bounded else (0.0, -0.1, -0.25, -0.7, -3.0, -math.inf)
    log_probs = [chance.choice(values) for _ in range(size)]
    total = -9.0 + sum(log_probs) if bounded else float(sum(log_probs))
    start = 7 * number
    row = {
        "example_id": f"w{start}",
        "scheme": scheme,
        "log_prob": total,
        "greedy": not bounded and all(value == 0.0 for value in log_probs),
        "bounded": bounded,
        "token_evals": chance.randrange(5, 30),
        "token_log_probs": log_probs,
        "base_log_probs": [-1.0] * size,
        "ranks": [1] * size,
        "margins": [chance.choice((-2.0, -4e-4, 3e-4, 5e-4, 1.5, math.inf)) for _ in range(size)],
        "metadata": "{}",
        **other,
    }
    if kind == "scan":
        places = {"start": start, "suffix_start": start + 20, "suffix_end": start + 20 + 4 * size}
        row |= {**places, "token_ends": [4 * i + 4 for i in range(size)]}
    if near:
        bounds = sorted(chance.choice((0.0, 5e-4, 0.001, 0.4, 1.0)) for _ in range(4))
        lower, upper = [bounds[0], bounds[1]], [bounds[2], bounds[3]]
        verdict = "extractable" if lower[-1] >= 0.001 else "not extractable" if upper[-1] < 0.001 else "undecided"
        row |= {"lower": lower[-1], "upper": upper[-1], "lower_by_tolerance": lower, "upper_by_tolerance": upper}
        row |= {"verdict": verdict, "near_token_evals": 40, "eos_mass": chance.random() / 10, "candidates": []}
        row |= {"estimate": chance.choice((None, bounds[1])), "greedy_distance": chance.choice((None, 0, 3))}
        row |= {"bounded": False, "log_prob": total if not bounded else total + 9.0}
    return row


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 60),
    kind=st.sampled_from(("scan", "score")),
    near=st.booleans(),
    shape=st.sampled_from(("plain", "groups", "drawn", "stages")),
    several=st.booleans(),
    at=st.lists(st.integers(0, 120), max_size=6),
)
@cases(200)
def test_parts_come_to_what_the_whole_table_does(
    seed: int, count: int, kind: Any, near: bool, shape: str, several: bool, at: list[int]
) -> None:
    chance, schemes = random.Random(seed), SCHEMES[: 1 + several]
    kind = {"stages": "scan", "drawn": "score"}.get(shape, kind)
    numbers = sorted(chance.sample(range(100), count))
    rows = []
    for number in numbers:
        other: dict[str, Any] = {}
        if shape in ("groups", "drawn"):
            other = {"split": chance.choice(("train", "held-out", None)), "repetitions": chance.choice((None, 0, 1, 9))}
        if shape == "drawn":
            origin = {"corpus": chance.choice(("main", "main", "held-out")), "document": f"d{number % 5}", "run": "0"}
            other["metadata"] = json.dumps(origin)
        if shape == "stages":
            other["stage"] = chance.choice((0, 1, 4))
        rows += [one(chance, number, scheme, near=near, kind=kind, **other) for scheme in schemes]
    scores = pl.DataFrame(rows, schema=FRAME, infer_schema_length=None)
    made = manifest(
        scores, kind=kind, characters=LENGTH, schemes=schemes, near=search(1) if near else None,
    )  # fmt: skip
    if shape == "drawn":
        if not (scores["metadata"].str.contains('"main"')).any():
            return
        sampling = Sampling(documents=None, examples=1, runs=1, prefix=5, suffix=5, seed=0, corpora={})
        made = replace(made, sampling=sampling)
    if shape == "stages":
        made = replace(made, refined=Refined(audit=5, audit_seed=0, windows=130, closer=3), shards=None)
    # A coverage that a stopped row leaves open is an error of either; these rows' bounds are all below.
    same(scores, cut(scores, [min(place, scores.height) for place in at]), made)


def test_the_margin_of_a_token_that_is_left_open_is_no_border() -> None:
    """It is 0 there, which says nothing; in the row of a token that is certainly outside it decides nothing either."""
    rows = pl.DataFrame(
        [one(random.Random(7), number, SCHEMES[0], near=False, kind="scan") for number in range(2)], schema=FRAME
    ).with_columns(
        token_log_probs=pl.Series([[-0.1, None, -math.inf], [-0.1, -0.2, -0.3]], dtype=FRAME["token_log_probs"]),
        margins=pl.Series([[1.0, 0.0, -2.0], [1.0, 0.0, 2.0]], dtype=FRAME["margins"]),
    )
    made = manifest(rows, characters=LENGTH, schemes=SCHEMES[:1])
    assert told_margins(rows).to_list() == [[1.0, None, -2.0], [1.0, 0.0, 2.0]]
    assert narrow(rows, made)["margins"].to_list() == [[1.0], [0.0]]
    assert _border_rows(rows, 0.001) == 1
