"""Shorter suffixes from one pass, and how perplexing suffixes are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.sweep import perplexities, shortened
from rote.errors import InputError
from rote.extraction.verbatim import verbatim
from rote.scheme import GREEDY, Scheme
from rote.store.table import SCHEMA, _table
from rote.tokens import Example
from tests.cases import cases
from tests.fakes import HashModel

SCHEMES = [Scheme(), Scheme(2.0, None, 0.7), GREEDY]


def table(model: Any, examples: list[Example], schemes: list[Scheme] = SCHEMES) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(_table(examples, verbatim(model, examples, schemes), [])))


@given(
    seed=st.integers(0, 50),
    length=st.integers(1, 6),
    tokens=st.lists(st.lists(st.integers(0, 3), min_size=9, max_size=9), min_size=1, max_size=4),
)
@cases(40)
def test_a_shortened_table_is_the_table_of_shorter_suffixes(seed: int, length: int, tokens: list[list[int]]) -> None:
    """Logits are rounded to one digit, so that ties, which only the greedy rows can settle, are common."""
    model = HashModel(4, seed=seed)
    schemes = [Scheme(1.0, 2), Scheme(2.0, None, 0.7), GREEDY]
    examples = [Example(str(i), tuple(t[:3]), tuple(t[3:])) for i, t in enumerate(tokens)]
    short = [replace(e, suffix=e.suffix[:length]) for e in examples]
    ours, theirs = shortened(table(model, examples, schemes), length), table(model, short, schemes)
    assert ours.drop("token_evals").equals(theirs.drop("token_evals"))  # what was paid is what was paid


def test_nothing_is_shortened_that_cannot_be() -> None:
    model = HashModel(60)
    scores = table(model, [Example("a", (1, 2), (3, 4, 5))])
    assert shortened(scores, 3).equals(scores)
    with pytest.raises(InputError, match="'a' has a suffix of 3 tokens, fewer than 4"):
        shortened(scores, 4)
    with pytest.raises(InputError, match="at least 1 token"):
        shortened(scores, 0)
    with pytest.raises(InputError, match="only an upper bound is known"):
        shortened(scores.with_columns(bounded=pl.lit(True)), 2)
    with pytest.raises(InputError, match="no row of the greedy scheme"):
        shortened(scores.filter(pl.col("scheme") != "greedy"), 2)


def test_perplexity_and_the_chance_within_a_hundred_generations() -> None:
    empty = pl.DataFrame(pl.from_arrow(pa.Table.from_pylist([], schema=SCHEMA)))
    rows = [(math.log(0.25), [math.log(0.5)] * 2), (-math.inf, [-math.inf, -1.0])]
    scores = pl.concat(
        [empty]
        + [
            pl.DataFrame(
                [{"example_id": str(i), "scheme": "s", "log_prob": p, "bounded": False, "token_log_probs": t}],
                schema_overrides={"token_log_probs": pl.List(pl.Float32)},
            )
            for i, (p, t) in enumerate(rows)
        ],
        how="diagonal",
    )
    found = perplexities(scores)
    assert found["perplexity"].to_list() == [pytest.approx(2.0), math.inf]
    assert found["within_trials"].to_list() == [pytest.approx(1 - 0.75**100), 0.0]
