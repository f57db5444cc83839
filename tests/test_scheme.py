"""A scheme says what it is: as a label, in words, and what is wrong with one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote import GREEDY, InputError, Scheme
from rote.scheme import as_schemes, label_of

SHARES = st.none() | st.floats(0, 1, exclude_min=True)
SCHEMES = st.builds(
    Scheme, temperature=st.floats(1e-6, 100), top_k=st.none() | st.integers(1, 10**6), top_p=SHARES, min_p=SHARES
) | st.just(GREEDY)


@given(SCHEMES)
def test_a_label_is_read_back_as_the_same_scheme(scheme: Scheme) -> None:
    assert Scheme.parse(str(scheme)) == scheme


def test_labels() -> None:
    assert str(Scheme()) == "temperature=1 top_k=40"
    assert str(Scheme(0.1 + 0.2, None, 1 / 3)) == "temperature=0.30000000000000004 top_p=0.3333333333333333"
    assert str(Scheme(min_p=0.05)) == "temperature=1 top_k=40 min_p=0.05"
    assert str(GREEDY) == "greedy"


def test_several_values_are_several_schemes() -> None:
    assert Scheme.parse_all("temperature=0.7,1 top_k=40,0") == [
        Scheme(0.7, 40), Scheme(0.7, None), Scheme(1, 40), Scheme(1, None)
    ]  # fmt: skip
    assert Scheme.parse_all("min_p=0.1,0.2") == [Scheme(top_k=None, min_p=0.1), Scheme(top_k=None, min_p=0.2)]
    with pytest.raises(InputError, match="2 schemes"):
        Scheme.parse("top_k=1,2")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not understood"),
        ("top_k", "not understood"),
        ("top_k=a", "not understood"),
        ("top_n=5", "not understood"),
        ("top_k=5 top_k=6", "twice"),
        ("top_k=2.5", "whole number"),
        ("top_k=-1", "whole number"),
        ("temperature=0", "greedy"),
        ("min_p=0", "min_p must lie in"),
        ("temperature=nan", "temperature must be"),
    ],
)
def test_what_is_no_scheme_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Scheme.parse(text)


def test_temperature_zero_is_greedy() -> None:
    assert Scheme(temperature=0) == GREEDY
    for option in ({"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.5}):
        with pytest.raises(InputError, match="greedy decoding"):
            Scheme(temperature=0, **option)


def test_explained() -> None:
    assert "40 most likely tokens" in Scheme().explain()
    assert "every token of the vocabulary" in Scheme(0.7, None).explain()
    assert "reaches 0.9" in Scheme(top_p=0.9).explain()
    assert "at least 0.05 times as likely" in Scheme(min_p=0.05).explain()
    assert GREEDY.explain().startswith("Greedy")


def test_one_scheme_or_several() -> None:
    assert as_schemes(Scheme()) == (Scheme(),)
    assert as_schemes("top_k=5,40") == (Scheme(top_k=5), Scheme())
    assert as_schemes([Scheme(), "greedy"]) == (Scheme(), GREEDY)


@pytest.mark.parametrize(
    ("schemes", "problem"),
    [([], "at least one"), ([Scheme(), "top_k=40"], "asked for twice"), ([40], "not int")],
)
def test_no_scheme_twice_the_same_and_other_things(schemes: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        as_schemes(schemes)


def test_a_label_may_be_written_shorter() -> None:
    assert label_of("min_p=0.05") == "temperature=1 min_p=0.05"
    assert label_of("temperature=1.0 top_k=40") == label_of(Scheme()) == str(Scheme())
    assert label_of("greedy") == "greedy"
    assert label_of("something else") == "something else"
