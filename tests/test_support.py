"""What may follow under a scheme: the listed tokens, their order and probabilities, and what the others sum to."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rote.decoding import Support, support, target_scores
from rote.scheme import GREEDY, Scheme
from tests.cases import cases
from tests.reference import decoding as reference
from tests.test_decoding import VALUES, min_ps, options

Problem = tuple[np.ndarray, Scheme, int, list[int]]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Some rows of equal length, a scheme, a width and a target for each row."""
    size = draw(st.integers(2, 12))
    rows = draw(st.lists(st.lists(VALUES, min_size=size, max_size=size), min_size=1, max_size=3))
    scheme = GREEDY
    if draw(st.integers(0, 5)):
        temperature = draw(st.sampled_from([0.3, 0.7, 1.0, 2.0]))
        scheme = Scheme(
            temperature=temperature,
            top_k=draw(st.one_of(st.none(), st.integers(1, size))),
            top_p=draw(st.one_of(st.none(), st.sampled_from([0.1, 0.5, 0.9, 1.0]), st.floats(0.01, 0.9999))),
            min_p=draw(min_ps(rows[0], temperature)),
        )
    targets = [draw(st.integers(0, size - 1)) for _ in rows]
    return np.array(rows, dtype=np.float32), scheme, draw(st.integers(1, size + 3)), targets


def normalised(row: np.ndarray, kept: list[int], scheme: Scheme) -> dict[int, float]:
    """Log-probabilities of the tokens kept: the division in float32, as schemes are defined, all else in float64."""
    scaled = (row[kept].astype(np.float32) / np.float32(scheme.temperature or 1)).astype(np.float64)
    shifted = scaled - scaled.max()
    log_probs = shifted - math.log(math.fsum(np.exp(shifted)))
    return dict(zip(kept, log_probs.tolist(), strict=True))


def at_the_border(row: np.ndarray, scheme: Scheme) -> bool:
    """Whether rounding decides which token is the nucleus's last, or which is above min-p's floor."""
    if scheme.min_p is not None and scheme.min_p < 1:
        scaled = row.astype(np.float32) / np.float32(scheme.temperature)
        if (np.abs(scaled - scaled.max() - math.log(scheme.min_p)) < 1e-4).any():
            return True
    if scheme.top_p is None or scheme.top_p == 1:
        return False
    kept = reference.support(row, scheme.temperature, scheme.top_k, None)
    probs = np.exp(list(normalised(row, kept, scheme).values()))
    sums = np.cumsum(sorted(probs, reverse=True))
    return bool((np.abs(sums - scheme.top_p) < 1e-6).any())


def check_row(row: np.ndarray, scheme: Scheme, width: int, target: int, found: Support, at: int) -> None:
    kept = reference.support(row, *options(scheme))
    log_probs = normalised(row, kept, scheme)
    tokens, got = found.tokens[at].tolist(), found.log_probs[at].tolist()
    assert found.log_probs.dtype == torch.float64
    assert len(set(tokens)) == len(tokens)

    listed = [token for token, log_prob in zip(tokens, got, strict=True) if log_prob > -math.inf]
    assert listed == tokens[: len(listed)]
    assert len(listed) == min(width, len(kept))
    assert set(listed) <= set(kept)
    assert all(log_prob <= 0 for log_prob in got)
    assert float(found.target[at]) <= 0
    np.testing.assert_allclose(got[: len(listed)], [log_probs[i] for i in listed], atol=2e-6, rtol=0)
    scaled = np.asarray(row, dtype=np.float32) / np.float32(scheme.temperature or 1)
    assert listed == sorted(listed, key=lambda i: (-scaled[i], i))
    others = sorted(set(kept) - set(listed))
    if listed and others:  # no token that is left out is heavier than one that is listed
        assert max(scaled[others]) <= min(scaled[listed])
    assert float(found.rest[at]) == pytest.approx(math.fsum(math.exp(log_probs[i]) for i in others), abs=1e-6)
    assert float(found.rest[at]) >= 0
    assert int(found.unlisted[at]) == len(others)
    if not others:
        assert float(found.rest[at]) == 0  # nothing left is nothing left: a search would look for it
    assert float(found.target[at]) == pytest.approx(log_probs.get(target, -math.inf), abs=2e-6)


@cases(800)
@given(problems())
def test_agrees_with_the_definition(problem: Problem) -> None:
    rows, scheme, width, targets = problem
    found = support(torch.from_numpy(rows), scheme, width, torch.tensor(targets))
    for at, (row, target) in enumerate(zip(rows.astype(np.float64), targets, strict=True)):
        if not at_the_border(row, scheme):
            check_row(row, scheme, width, target, found, at)


@cases(300)
@given(problems())
def test_says_of_the_target_what_scoring_does(problem: Problem) -> None:
    rows, scheme, width, targets = problem
    logits, tokens = torch.from_numpy(rows), torch.tensor(targets)
    found, scores = support(logits, scheme, width, tokens), target_scores(logits, tokens, [scheme])
    for at, row in enumerate(rows.astype(np.float64)):
        if not at_the_border(row, scheme):
            assert float(found.target[at]) == pytest.approx(float(scores.log_probs[0, at]), abs=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "scheme",
    [
        Scheme(top_k=5),
        Scheme(),
        Scheme(temperature=0.8, top_k=None),
        Scheme(top_k=40, top_p=0.93),
        Scheme(top_k=None, min_p=0.013),  # some 200 tokens
        Scheme(temperature=0.8, top_k=40, min_p=0.1),
        Scheme(top_k=None, top_p=0.93, min_p=0.1),
        GREEDY,
    ],
    ids=str,
)
def test_wide_vocabularies(scheme: Scheme, dtype: Any) -> None:
    """Wide enough for the search in blocks; in bfloat16 most rows tie at the border of the support."""
    logits = (torch.randn(6, 12_345, generator=torch.Generator().manual_seed(3)) * 2).to(dtype)
    targets = logits.float().argsort(1, descending=True)[:, 3]
    for width in (1, 12, 60):
        found = support(logits, scheme, width, targets)
        for at, row in enumerate(logits.double().numpy()):
            if not at_the_border(row, scheme):
                check_row(row, scheme, width, int(targets[at]), found, at)


def test_equal_logits_are_listed_by_rising_id() -> None:
    logits = torch.zeros(1, 3000)
    logits[0, [17, 900, 2999]] = 2.0
    found = support(logits, Scheme(top_k=3), 3, torch.tensor([5]))
    assert found.tokens.tolist() == [[17, 900, 2999]]
    np.testing.assert_allclose(found.log_probs[0].exp(), 1 / 3)
    assert float(found.rest) == 0
    assert float(found.target) == -math.inf


def test_more_ties_than_are_listed() -> None:
    """All 3000 tokens tie at rank 2: all of them are the support, and what is not listed is the rest."""
    found = support(torch.zeros(1, 3000), Scheme(top_k=2), 8, torch.tensor([2999]))
    assert float(found.rest) == pytest.approx(2992 / 3000)
    assert float(found.target) == pytest.approx(-math.log(3000))


def test_what_min_p_keeps_and_is_not_listed_is_counted() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.0, 1.0, 2.0, -5.0]])
    for width, unlisted in ((1, 3), (2, 2), (3, 1), (4, 0), (5, 0), (6, 0)):
        found = support(logits, Scheme(top_k=None, min_p=0.1), width, torch.tensor([3]))
        assert found.unlisted.tolist() == [unlisted]
        assert found.tokens[0, :4].tolist() == [1, 2, 4, 3][:width] or width == 2  # of equal ones, either
        weights = np.exp([0.0, -1.0, -1.0, -2.0])
        assert float(found.rest) == pytest.approx(weights[width:].sum() / weights.sum(), abs=1e-15)
        assert float(found.target) == pytest.approx(math.log(weights[3] / weights.sum()))


def test_all_probability_adds_up_in_double_precision() -> None:
    """Bounds are sums of many of these: an error of float32 in the normalisation would add up."""
    logits = torch.randn(50, 300, generator=torch.Generator().manual_seed(0)) * 3
    cut = [Scheme(0.7, None, None, 0.01), Scheme(min_p=0.2), Scheme(top_k=40, top_p=0.9, min_p=0.1)]
    for scheme in (Scheme(temperature=0.7, top_k=None), Scheme(), Scheme(top_k=None, top_p=0.9), *cut):
        for width in (10, 300):
            found = support(logits, scheme, width, logits.argmax(1))
            np.testing.assert_allclose(found.log_probs.exp().sum(1) + found.rest, 1, atol=1e-12, rtol=0)


def test_nan_logits_stay_visible() -> None:
    plain = [Scheme(top_k=1), Scheme(top_k=2), Scheme(top_k=None), Scheme(top_k=None, top_p=0.5)]
    for scheme in (GREEDY, *plain, *(dataclasses.replace(s, min_p=0.3) for s in plain)):
        logits = torch.zeros(1, 5)
        logits[0, 3] = math.nan
        found = support(logits, scheme, 2, torch.tensor([0]))
        assert bool(found.log_probs[:, 0].isnan() | found.rest.isnan()), scheme
        assert found.bad().tolist() == [True]
    one_of_two = Support(
        torch.zeros(2, 1), torch.tensor([[0.0], [math.nan]]), torch.tensor([math.nan, 0.0]), *[torch.zeros(2)] * 2
    )
    assert one_of_two.bad().tolist() == [True, True]


def test_tokens_that_are_ruled_out_leave_no_rest() -> None:
    """1 - p - q is not 0 where p and q are all there is; a rest of rounding would stand for tokens that never come."""
    logits = torch.tensor([[-torch.inf, 0.5, 0.0, -torch.inf], [-torch.inf, 0.3, 0.1, 0.2]])
    found = support(logits, Scheme(temperature=0.6, top_k=None), 2, torch.tensor([1, 1]))
    assert found.unlisted.tolist() == [0, 1]
    assert found.rest[0] == 0
    assert found.rest[1] > 0.1
