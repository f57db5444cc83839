"""Each score against its definition, with loops and sorts; and which direction means that a text was seen."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.membership.scores import BY_NAME, SCORES, TextRead, named, scores_of
from tests.cases import cases
from tests.reference import membership as reference

ROUNDING = 1e-12

# Rounded to a grid now and then, so that there are ties; float32, as what comes from the device.
log_probs = st.one_of(
    st.floats(-40, 0, width=32), st.integers(-3, 0).map(float), st.just(0.0), st.floats(-(2.0**-20), 0, width=32),
    st.floats(-2.0**14, 0, width=32),
)  # fmt: skip
z_scores = st.one_of(st.floats(-20, 5, width=32), st.integers(-2, 1).map(float), st.just(0.0), st.just(-(2.0**80)))
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@st.composite
def reads(draw: st.DrawFn, tokens: int | None = None) -> TextRead:
    count = draw(st.integers(1, 45)) if tokens is None else tokens
    drawn = [draw(st.lists(each, min_size=count, max_size=count)) for each in (log_probs, z_scores)]
    return TextRead(np.array(drawn[0], dtype=np.float32), np.array(drawn[1], dtype=np.float32), count)


def of(log_probs: Any, z_scores: Any = None) -> TextRead:
    z = log_probs if z_scores is None else z_scores
    return TextRead(np.array(log_probs, dtype=np.float32), np.array(z, dtype=np.float32), len(log_probs))


def as_tokens(read: TextRead | None) -> list[reference.Token] | None:
    """What the reference takes: with a mean of l - z and a deviation of 1, the z-score is z."""
    if read is None:
        return None
    return [Given(float(a), float(b), 1.0) for a, b in zip(read.log_probs, read.z_scores, strict=True)]


class Given(reference.Token):
    """`mu` stands for the z-score itself."""

    @property
    def z(self) -> float:
        return self.mu


@cases(200)
@given(st.data())
def test_each_score_is_its_definition(data: st.DataObject) -> None:
    text, own = data.draw(texts), data.draw(reads())
    others = {
        "lowercase": data.draw(st.none() | reads() | st.just(own)),
        "reference": data.draw(st.none() | reads()),
        "prefixed": data.draw(st.none() | reads(len(own.log_probs)) | st.just(own)),
    }
    got = scores_of(text, own, **others)
    want = reference.scores(text, as_tokens(own) or [], **{name: as_tokens(read) for name, read in others.items()})
    assert set(got) == set(want) | {"perplexity"}
    for name, value in got.items():
        assert isinstance(value, float)
        assert math.isfinite(value), name
        if name in want:
            assert value == pytest.approx(want[name], rel=ROUNDING, abs=ROUNDING), name
    needs = {"lowercase": "lowercase", "reference": "reference", "prefixed": "prefix"}
    assert set(got) == set(named(["text", *(needs[name] for name, read in others.items() if read)]))  # type: ignore[list-item]


def test_the_tables_direction_is_that_of_the_methods() -> None:
    """By hand, from what the scores mean; the two of extraction are probabilities that the text is repeated."""
    higher = {**reference.MEMBERS_ARE_HIGHER, "best_window": True, "near_lower": True}
    assert {score.name: score.sign for score in SCORES} == {name: 1 if up else -1 for name, up in higher.items()}
    assert len(BY_NAME) == len(SCORES)


@pytest.mark.parametrize("name", sorted(reference.MEMBERS_ARE_HIGHER))
def test_what_the_model_knows_better_has_the_larger_oriented_score(name: str) -> None:
    """A seen text: likelier, in this case and not in lower case, to this model and not to the other, and it loses most
    by a prefix that the model has not seen."""
    text, unlikely, rare = "Once upon a Time", of([-3.0, -5.0] * 10), of([-0.5, -1.0] * 10)
    seen = scores_of(text, rare, lowercase=unlikely, reference=unlikely, prefixed=unlikely)
    unseen = scores_of(text, unlikely, lowercase=unlikely, reference=unlikely, prefixed=unlikely)
    sign = BY_NAME[name].sign
    assert seen[name] * sign > unseen[name] * sign


@pytest.mark.parametrize(
    ("tokens", "counts"),
    [(1, (1, 1, 1, 1, 1)), (2, (1, 1, 1, 1, 1)), (9, (1, 1, 1, 2, 3)), (10, (1, 1, 2, 3, 4)), (20, (1, 2, 4, 6, 8)),
     (39, (1, 3, 7, 11, 15)), (40, (2, 4, 8, 12, 16)), (1000, (50, 100, 200, 300, 400))],
)  # fmt: skip
def test_so_many_of_the_smallest_are_taken(tokens: int, counts: tuple[int, ...]) -> None:
    """Values -n .. -1 in any order: the mean of the m smallest is -(n - (m - 1) / 2), exactly."""
    values = np.random.default_rng(0).permutation(np.arange(-tokens, 0)).astype(float)
    got = scores_of("x", of(values, values[::-1]))
    for share, count in zip(reference.SHARES, counts, strict=True):
        assert got[f"min_k_{share}"] == got[f"min_k_plus_plus_{share}"] == -(tokens - (count - 1) / 2)


def test_what_is_certain_gives_numbers() -> None:
    """Every token has the probability 1, in every pass: no division by nothing, and no zero with a minus before it."""
    certain = of([0.0] * 5)
    got = scores_of("certain", certain, lowercase=certain, reference=certain, prefixed=certain)
    assert got["lowercase"] == got["recall"] == got["perplexity"] == 1
    assert {name for name, value in got.items() if value == 0} == set(got) - {"lowercase", "recall", "perplexity"}
    assert [name for name, value in got.items() if math.copysign(1, value) < 0] == []


def test_a_certain_text_that_another_pass_finds_unlikely() -> None:
    certain, unlikely = of([0.0] * 5), of([-1.0] * 5)
    got = scores_of("x", certain, lowercase=unlikely, prefixed=unlikely)
    assert (got["lowercase"], got["recall"]) == (0, 1e12)
    assert scores_of("x", unlikely, lowercase=certain, prefixed=certain)["lowercase"] == 1e12


def test_a_text_beyond_all_likelihood_has_a_perplexity() -> None:
    got = scores_of("x", of([-1e5] * 3))
    assert got["loss"] == 1e5
    assert math.isfinite(got["perplexity"])


def test_zlib_counts_bytes_not_characters(alice: str) -> None:
    """As zlib compresses by itself, which on a long text is not all that it can."""
    greek = "ἄνδρα μοι ἔννεπε 🦉 é"
    for text in (greek, alice[:50_000]):
        assert scores_of(text, of([-2.0, -4.0]))["zlib"] == 3 / reference.compressed(text)
    assert reference.compressed(greek) > len(greek)
    assert reference.compressed(alice[:50_000]) > len(zlib.compress(alice[:50_000].encode(), 9))


def test_a_sum_of_many_tokens_is_made_in_float64() -> None:
    """A million tokens of -0.1 as float32: a sum in float32 would be off by parts of a thousand."""
    got = scores_of("x", of(np.full(1_000_000, -0.1, dtype=np.float32)))
    assert got["loss"] == pytest.approx(float(np.float32(0.1)), rel=1e-12)
    assert got["min_k_40"] == pytest.approx(-float(np.float32(0.1)), rel=1e-12)
