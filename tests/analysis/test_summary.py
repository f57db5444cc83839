"""What a summary refuses, and what it makes of rows that lack what others have."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from rote.analysis.corpus import in_corpus
from rote.analysis.narrow import narrowed
from rote.analysis.summary import THRESHOLDS, summarise
from rote.errors import InputError
from rote.models.base import ServedModel
from rote.store.manifest import Manifest
from rote.store.outputs import IndexUse
from rote.store.summary import Summary
from rote.store.table import SCHEMA
from tests.analysis.test_narrow import same
from tests.report.runs import manifest

FRAME = pl.DataFrame(pl.from_arrow(SCHEMA.empty_table())).schema
SCHEME = "temperature=1 top_k=40"
SERVED = ServedModel(url="http://localhost/v1", protocol="test", listed=3)
INDEX = IndexUse(name="corpus", id="ab" * 32, unit="tokens", documents=3, tokens=1000, counted="tokens")


def rows(greedy: list[bool | None], *, bounded: bool = False) -> pl.DataFrame:
    every = [
        {
            "example_id": f"e{number}",
            "scheme": SCHEME,
            "log_prob": math.log(0.5),
            "greedy": own,
            "bounded": bounded,
            "token_evals": 9,
            "token_log_probs": [math.log(0.5)],
            "base_log_probs": [-1.0],
            "ranks": [1],
            "margins": [1.0],
            "metadata": "{}",
        }
        for number, own in enumerate(greedy)
    ]
    return pl.DataFrame(every, schema=FRAME)


def made_of(scores: pl.DataFrame, **options: Any) -> Manifest:
    return manifest(scores, kind="score", characters=0, schemes=[SCHEME], **options)


def summed_up(scores: pl.DataFrame, made: Manifest) -> Summary:
    return summarise(made, narrowed([scores], made, THRESHOLDS), [], None)


def test_a_run_whose_examples_stand_at_no_count_is_summed_up() -> None:
    """A column in which no row has a value has no type, once it is narrowed."""
    scores = rows([True, False])
    made = replace(made_of(scores), index=INDEX)
    assert narrowed([scores], made, THRESHOLDS).rows["repetitions"].dtype == pl.Null
    found = same(scores, [scores[:1], scores[1:]], made).corpus
    assert found is not None
    assert (found.counted, found.standing, found.most, found.suffixes) == (0, 0, 0, 0)
    assert in_corpus(scores.with_columns(repetitions=pl.lit(None)), None).counted == 0
    counts = scores.with_columns(repetitions=pl.Series([0, 7]))
    assert (in_corpus(counts, None).counted, in_corpus(counts, None).most) == (2, 7)


def test_a_greedy_that_is_not_told_is_refused_of_a_model_here() -> None:
    scores = rows([True, None, None])
    with pytest.raises(InputError, match=r"example 'e1' has no greedy, and only a served model's list leaves that"):
        summed_up(scores, made_of(scores))
    rate = summed_up(scores.head(1), made_of(scores)).schemes[SCHEME].rates.greedy_rate
    assert (rate.rate, rate.rate_upper) == (1.0, 1.0)


def test_a_greedy_that_a_server_does_not_tell_makes_a_range() -> None:
    scores = rows([True, None, None, False])
    made = made_of(scores)
    made = replace(made, model=replace(made.model, served=SERVED))
    rate = summed_up(scores, made).schemes[SCHEME].rates.greedy_rate
    assert (rate.count, rate.rate, rate.rate_upper) == (1, 0.25, 0.75)
