"""Lists of the likeliest log-probs against full logits, with ties in most rows; and what no list can tell."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rote.errors import InputError
from rote.listed import UNTOLD, Listed, ListedScores, listed_scores, refuse_unlistable
from rote.scheme import GREEDY, Scheme
from tests.cases import cases
from tests.reference import decoding as reference
from tests.reference import listed as rules

# Few distinct values make ties the rule, as 16-bit models do.
VALUES = st.one_of(
    st.integers(-3, 3).map(float), st.integers(-3, 3).map(float), st.integers(-512, 512).map(lambda i: i / 64),
    st.sampled_from([12.0, -30.0]),
)  # fmt: skip
TEMPERATURES = (1.0, 1.0, 0.3, 0.7, 2.0)


def options(scheme: Scheme) -> rules.Options:
    """As references take them."""
    return scheme.temperature, scheme.top_k, scheme.top_p, scheme.min_p


@st.composite
def schemes(draw: st.DrawFn, vocabulary: int) -> Scheme:
    if draw(st.integers(0, 7)) == 0:
        return GREEDY
    return Scheme(
        temperature=draw(st.sampled_from(TEMPERATURES)),
        top_k=draw(st.one_of(st.none(), st.integers(1, vocabulary))),
        top_p=draw(st.one_of(st.none(), st.none(), st.sampled_from([0.1, 0.5, 0.9, 0.99, 1.0]), st.floats(0.01, 1))),
        min_p=draw(st.one_of(st.none(), st.none(), st.sampled_from([1.0, 0.4, 0.05, 0.001]), st.floats(1e-6, 1))),
    )


def log_probs_of(logits: np.ndarray) -> np.ndarray:
    """Of the base distribution, in float32, as servers have them; equal logits stay equal."""
    wide = logits.astype(np.float64)
    highest = wide.max()
    base: np.ndarray = wide - highest - math.log(np.exp(wide - highest).sum())
    return base.astype(np.float32).astype(np.float64)


def list_of(
    logits: np.ndarray, count: int, targets: list[int], order: np.ndarray, *, ids: bool = True, ranks: bool = False
) -> Listed:
    """The same row for every target; ties stand in the order of `order`, so that no rule may rest on the list's own."""
    base = log_probs_of(logits)
    chosen = np.lexsort((order, -base))[:count]
    rows = len(targets)
    return Listed(
        own=base[targets],
        values=np.tile(base[chosen], (rows, 1)),
        ids=np.tile(chosen if ids else np.full(len(chosen), -1), (rows, 1)),
        whole=np.ones(rows, dtype=np.bool_),
        ranks=np.array([reference.rank(logits, target) for target in targets]) if ranks else None,
    )


def merged(listed: Listed, lost: list[int]) -> Listed:
    """As it comes where these places of the list were lost."""
    values, ids = listed.values.copy(), listed.ids.copy()
    stay = [i for i in range(values.shape[1]) if i not in lost]
    values[:, : len(stay)], ids[:, : len(stay)] = values[:, stay], ids[:, stay]
    values[:, len(stay) :], ids[:, len(stay) :] = -np.inf, -1
    return replace(listed, values=values, ids=ids, whole=np.zeros(len(values), dtype=np.bool_))


def rounding_decides(logits: np.ndarray, scheme: Scheme) -> bool:
    """Whether a border that is a sum, or a quotient, falls on a token to within rounding."""
    temperature, top_k, top_p, min_p = options(scheme)
    if temperature == 0:
        return False
    scaled = np.sort(logits.astype(np.float64) / temperature)[::-1]
    near = False
    if min_p is not None:
        near |= bool((np.abs(scaled - scaled[0] - math.log(min_p))[scaled < scaled[0]] < 1e-5).any())
    if top_p is not None and top_p < 1:
        kept = scaled if top_k is None else scaled[scaled >= scaled[top_k - 1]]
        through = np.exp(kept - kept[0]).cumsum()
        near |= bool((np.abs(through / through[-1] - top_p) < 1e-5).any())
    return near


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, int, Scheme, np.ndarray, bool, bool]:
    row = np.array(draw(st.lists(VALUES, min_size=2, max_size=12)), dtype=np.float32)
    order = np.array(draw(st.permutations(range(len(row)))))
    return (
        row, draw(st.integers(1, len(row))), draw(schemes(len(row))), order, draw(st.booleans()), draw(st.booleans())
    )  # fmt: skip


def truth_of(row: np.ndarray, scheme: Scheme) -> list[float]:
    return [reference.log_prob(row.astype(np.float64), target, *options(scheme)) for target in range(len(row))]


def holds(scores: ListedScores, truth: list[float]) -> None:
    """Every exact number is the true one, and no bound is too small."""
    for found, bounded, expected in zip(scores.log_probs[0], scores.bounded[0], truth, strict=True):
        assert found <= 0
        if bounded:
            assert found >= expected - 2e-5
        elif math.isinf(expected):
            assert found == -math.inf
        else:
            assert found == pytest.approx(expected, abs=2e-5)


@cases(1000)
@given(problems())
def test_exact_where_the_rules_say_so_and_never_wrong(
    problem: tuple[np.ndarray, int, Scheme, np.ndarray, bool, bool],
) -> None:
    row, count, scheme, order, ids, ranks = problem
    if rounding_decides(row, scheme):
        return
    targets = list(range(len(row)))
    listed = list_of(row, count, targets, order, ids=ids, ranks=ranks)
    scores = listed_scores(listed, targets, [scheme], len(row))
    holds(scores, truth_of(row, scheme))
    for target in targets:
        must = rules.determined(
            listed.values[0].tolist(), listed.ids[0].tolist(), float(listed.own[target]), target, len(row),
            options(scheme),
        )  # fmt: skip
        if must:
            assert not scores.bounded[0, target]
        if not must or scheme.min_p is not None:
            continue
        refuse_unlistable(scheme, count, len(row))  # what can be exact is not refused


@cases(400)
@given(problems(), st.data())
def test_lists_that_lost_entries_only_bound(
    problem: tuple[np.ndarray, int, Scheme, np.ndarray, bool, bool], data: st.DataObject
) -> None:
    row, count, scheme, order, ids, ranks = problem
    if rounding_decides(row, scheme):
        return
    targets = list(range(len(row)))
    lost = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=count - 1 or 1, unique=True))
    listed = merged(list_of(row, count, targets, order, ids=ids, ranks=ranks), lost)
    scores = listed_scores(listed, targets, [scheme, Scheme(top_k=None)], len(row))
    truth = truth_of(row, scheme)
    holds(replace(scores, log_probs=scores.log_probs[:1], bounded=scores.bounded[:1]), truth)
    assert not scores.bounded[1].any()  # the own log-prob alone decides
    np.testing.assert_allclose(scores.log_probs[1], truth_of(row, Scheme(top_k=None)), atol=2e-5)
    alone = scheme.greedy or (scheme == replace(scheme, temperature=1.0, min_p=None) and not scheme.nucleus
                              and scheme.top_k in (None, len(row)))  # fmt: skip
    for target in targets:
        if not alone:  # never exact, but where enough that came is likelier to rule the token out
            assert scores.bounded[0, target] or scores.log_probs[0, target] == -math.inf


@cases(400)
@given(problems(), st.booleans())
def test_ranks_and_the_argmax_are_never_guessed(
    problem: tuple[np.ndarray, int, Scheme, np.ndarray, bool, bool], lose: bool
) -> None:
    row, count, _, order, ids, ranks = problem
    targets = list(range(len(row)))
    listed = list_of(row, count, targets, order, ids=ids, ranks=ranks)
    listed = merged(listed, [0]) if lose else listed
    scores = listed_scores(listed, targets, [GREEDY], len(row))
    first = reference.support(row.astype(np.float64), 0, None, None)[0]
    for target in targets:
        rank, found = reference.rank(row, target), int(scores.ranks[target])
        assert found in (rank, UNTOLD if lose else count + 1)
        assert found == rank or rank > (0 if lose else count)
        assert found == rank or not ranks
        assert not (scores.argmax[target] and scores.unsure[target])
        if not scores.unsure[target]:
            assert bool(scores.argmax[target]) == (target == first)
    exact = np.where(scores.argmax, 0.0, -math.inf)
    np.testing.assert_array_equal(scores.log_probs[0], np.where(scores.unsure, 0.0, exact))
    np.testing.assert_array_equal(scores.bounded[0], scores.unsure)
    if not lose and ids and (np.sort(row)[::-1][count - 1] < row.max() or count == len(row)):
        assert not scores.unsure.any()


FAR = (np.array([0, 0, 12], dtype=np.float32), 2, Scheme(0.3, None, 0.5), np.arange(3), False, False)
"""1 less what the first weighs would be 0 in float64."""


@cases(400)
@given(problems(), st.integers(0, 2**32 - 1))
@example(FAR, 0)
def test_no_change_smaller_than_the_margin_crosses_the_border(
    problem: tuple[np.ndarray, int, Scheme, np.ndarray, bool, bool], seed: int
) -> None:
    row, count, scheme, order, ids, ranks = problem
    targets = list(range(len(row)))
    scores = listed_scores(list_of(row, count, targets, order, ids=ids, ranks=ranks), targets, [scheme], len(row))
    rng = np.random.default_rng(seed)
    wide = row.astype(np.float64)
    for target in targets:
        margin, inside = float(scores.margins[0, target]), scores.log_probs[0, target] > -math.inf
        assert not math.isnan(margin)
        assert scores.bounded[0, target] <= (margin == 0)
        if abs(margin) < 1e-4 or math.isinf(margin):
            continue
        assert inside == (margin > 0)
        d, before = 0.99 * abs(margin), wide > wide[target]
        own = np.arange(len(row)) == target
        moves = [wide + rng.choice([-d, d], size=len(row)) for _ in range(3)]
        moves += [np.where(before, wide - d, wide + d), np.where(before, wide + d, wide - d)]
        moves += [np.where(own, wide + sign * d, wide - sign * d) for sign in (1, -1)]
        for moved in moves:
            assert (target in reference.support(moved, *options(scheme))) == inside


def test_margins_of_top_k_and_min_p_are_those_of_the_logits() -> None:
    row = np.array([3.0, 1.5, 1.0, 0.0, -2.0, -2.5], dtype=np.float32)
    targets = list(range(len(row)))
    for scheme in (Scheme(1, 2), Scheme(0.7, 2), GREEDY, Scheme(1, 3, None, 0.1), Scheme(1, None, None, 0.2)):
        scores = listed_scores(list_of(row, 4, targets, np.arange(6)), targets, [scheme], len(row))
        want = [reference.margin(row.astype(np.float64), target, *options(scheme)) for target in targets]
        if scheme.greedy:
            want = [0.75, *((row[1:] - 3) / 2).tolist()]
        np.testing.assert_allclose(scores.margins[0], want, atol=1e-5)


def row_of(*probabilities: float) -> np.ndarray:
    assert math.fsum(probabilities) == pytest.approx(1)
    return np.array([math.log(probability) for probability in probabilities])


TWINS = {
    "a temperature alone": (Scheme(0.7, None), [0.4, 0.3, 0.15, 0.15], [0.4, 0.3, 0.29, 0.01]),
    "a temperature and top-p": (Scheme(2.0, None, 0.7), [0.5, *[0.1] * 5], [0.5, 0.1, *[0.08] * 5]),
    "top-k beyond the list": (Scheme(1.0, 3), [0.4, 0.3, 0.25, 0.05], [0.4, 0.3, 0.12, 0.09, 0.09]),
    "as many as listed": (Scheme(1.0, 2), [0.4, 0.2, 0.2, 0.2], [0.4, 0.2, 0.15, 0.15, 0.1]),
    "top-k beyond the list and top-p": (Scheme(1.0, 3, 0.75), [0.4, 0.3, 0.25, 0.05], [0.4, 0.3, 0.12, 0.09, 0.09]),
}


@pytest.mark.parametrize("kind", TWINS)
def test_what_is_refused_cannot_be_known(kind: str) -> None:
    """Two rows of logits with the same list of two, and different probabilities of a listed token."""
    scheme, one, other = TWINS[kind]
    size = max(len(one), len(other))
    rows = [np.array([*each, *([0.0] * (size - len(each)))]) for each in (one, other)]
    with np.errstate(divide="ignore"):
        logits = [np.log(row / row.sum()) for row in rows]
    lists = [np.sort(row / row.sum())[::-1][:2] for row in rows]
    np.testing.assert_allclose(lists[0], lists[1], atol=1e-12)
    targets = [int(np.lexsort((np.arange(size), -row))[place]) for row, place in zip(logits, (1, 1), strict=True)]
    found = [reference.log_prob(row, target, *options(scheme)) for row, target in zip(logits, targets, strict=True)]
    assert abs(math.exp(found[0]) - math.exp(found[1])) > 0.01
    with pytest.raises(InputError, match="cannot be computed from the 2 log-probs that the server lists"):
        refuse_unlistable(scheme, 2, size)
    refuse_unlistable(scheme, size, size)  # the whole vocabulary is the logits
    base = np.log(lists[0])
    listed = Listed(base[1:], base[None], np.array([[0, 1]]), np.ones(1, dtype=np.bool_))
    scores = listed_scores(listed, [1], [scheme], size)
    assert scores.bounded.all()
    assert scores.log_probs[0, 0] >= max(found) - 1e-6


@pytest.mark.parametrize(
    "scheme", [GREEDY, Scheme(1, None), Scheme(1, None, 0.9), Scheme(1, 4), Scheme(0.7, 4), Scheme(0.7, 4, 0.5),
               Scheme(0.7, None, None, 0.1), Scheme(0.7, 40, 0.9, 0.1)],
)  # fmt: skip
def test_what_can_be_known_is_not_refused(scheme: Scheme) -> None:
    refuse_unlistable(scheme, 5, 1000)


def test_a_refusal_says_what_to_do() -> None:
    with pytest.raises(InputError, match=r"top_k=40 .* 20 log-probs .* more with listed, well above 40"):
        refuse_unlistable(Scheme(), 20, 1000)
    with pytest.raises(InputError, match=r"temperature=0.7 .* 20 log-probs .* Give top_k \(below 20\) or min_p"):
        refuse_unlistable(Scheme(0.7, None), 20, 1000)


def test_a_token_outside_what_was_lost_is_certainly_out() -> None:
    """Three likelier tokens came: whatever was lost, the own token is not among the three likeliest."""
    row = row_of(0.4, 0.3, 0.15, 0.1, 0.05)
    listed = merged(list_of(row, 4, [3, 2], np.arange(5)), [1])
    scores = listed_scores(listed, [3, 2], [Scheme(top_k=2), Scheme(top_k=3)], 5)
    assert scores.log_probs[0].tolist() == [-math.inf, scores.log_probs[0, 1]]
    assert scores.bounded.tolist() == [[False, True], [True, True]]
    # What came and is likelier is certainly kept: 0.15 / (0.4 + 0.15) at most.
    assert math.exp(scores.log_probs[0, 1]) == pytest.approx(0.15 / 0.55, abs=1e-6)


def test_a_bound_counts_what_is_certainly_kept() -> None:
    """Top-k 2 of [0.4, 0.2, 0.2, ...], of which three are listed: a fourth may tie, and the three are kept for sure."""
    row = row_of(0.4, 0.2, 0.2, 0.2)
    scores = listed_scores(list_of(row, 3, [0, 1, 3], np.arange(4)), [0, 1, 3], [Scheme(top_k=2)], 4)
    assert scores.bounded.all()
    np.testing.assert_allclose(np.exp(scores.log_probs[0]), [0.5, 0.25, 0.25], atol=1e-6)


def test_a_rank_that_counts_ties_decides_nothing() -> None:
    """vLLM counts the tokens that are as likely, where a token is listed by its place: here the second of two ties."""
    logits = np.array([3.0, 2.0, 1.0, 1.0, 0.0, -1.0, -2.0])
    listed = replace(list_of(logits, 5, [2, 3], np.arange(7)), ranks=np.array([3, 4]))
    scores = listed_scores(listed, [2, 3], [Scheme(1.0, 3)], 7)
    assert not scores.bounded.any()
    assert scores.log_probs[0] == pytest.approx([1 - math.log(np.exp(logits[:4]).sum())] * 2)
