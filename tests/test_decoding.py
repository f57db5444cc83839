"""Schemes against the definition, on random rows with many ties, and the promise a margin makes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rote.decoding import TargetScores, target_scores
from rote.errors import InputError
from rote.largest import largest, largest_with_ids
from rote.scheme import GREEDY, Scheme
from tests.cases import cases
from tests.reference import decoding as reference

# Few distinct values make ties the rule, as bf16 does.
VALUES = st.one_of(
    st.integers(-3, 3).map(float), st.floats(-8, 8, width=32), st.sampled_from([0.0, 0.25, 0.5, -30.0, 30.0])
)


def min_ps(row: list[float], temperature: float) -> st.SearchStrategy[float | None]:
    """Half of the time none; or one with tokens just on this or that side of its border."""
    at = [math.exp((value - max(row)) / temperature) for value in row]
    near = st.builds(lambda share, side: min(1.0, share * side), st.sampled_from(at), st.sampled_from([0.998, 1.002]))
    return st.one_of(
        st.none(), st.none(), st.none(), near, st.sampled_from([1.0, 0.5, 0.05, 0.001]), st.floats(1e-6, 1)
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, int, Scheme]:
    row = np.array(draw(st.lists(VALUES, min_size=2, max_size=12)), dtype=np.float32)
    target = draw(st.integers(0, len(row) - 1))
    if draw(st.booleans()) and draw(st.booleans()):
        return row, target, GREEDY
    temperature = draw(st.sampled_from([0.3, 0.7, 1.0, 2.0]))
    scheme = Scheme(
        temperature=temperature,
        top_k=draw(st.one_of(st.none(), st.integers(1, len(row)))),
        top_p=draw(st.one_of(st.none(), st.sampled_from([0.1, 0.5, 0.9, 1.0]), st.floats(0.01, 1))),
        min_p=draw(min_ps(row.tolist(), temperature)),
    )
    return row, target, scheme


@st.composite
def crowds(draw: st.DrawFn) -> tuple[np.ndarray, int, Scheme]:
    """Many tokens just above min-p's floor, which the least rise of the largest one lifts above them."""
    temperature, min_p = draw(st.sampled_from([0.3, 1.0, 2.0])), draw(st.sampled_from([0.05, 0.2, 0.5]))
    floor = temperature * math.log(min_p)
    above = draw(st.lists(st.sampled_from([0.001, 0.001, 0.01, 0.1, 1.0]), min_size=2, max_size=12))
    row = np.array([0.0, *(min(0.0, floor + value) for value in above)], dtype=np.float32)
    top_k = draw(st.one_of(st.none(), st.none(), st.integers(1, len(row))))
    scheme = Scheme(temperature, top_k, draw(st.sampled_from([None, None, 0.5, 0.9])), min_p)
    return row, draw(st.integers(0, len(row) - 1)), scheme


def options(scheme: Scheme) -> tuple[float, int | None, float | None, float | None]:
    """As references take them."""
    return scheme.temperature, scheme.top_k, scheme.top_p, scheme.min_p


def one(row: np.ndarray, target: int, scheme: Scheme) -> tuple[float, float, int, bool]:
    scores = target_scores(torch.tensor(row)[None], torch.tensor([target]), [scheme])
    base = reference.log_prob(row.astype(np.float64), target, 1.0, None, None)
    assert float(scores.base_log_probs[0]) == pytest.approx(base, abs=2e-5)
    return (
        float(scores.log_probs[0, 0]), float(scores.margins[0, 0]), int(scores.ranks[0]), bool(scores.argmax[0]),
    )  # fmt: skip


@cases(600)
@given(problems())
def test_agrees_with_the_definition(problem: tuple[np.ndarray, int, Scheme]) -> None:
    row, target, scheme = problem
    got, margin, rank, argmax = one(row, target, scheme)
    wide = row.astype(np.float64)
    expected = reference.log_prob(wide, target, *options(scheme))
    assert rank == reference.rank(wide, target)
    assert argmax == (reference.support(wide, 0, None, None) == [target])
    if abs(margin) > 1e-5:  # closer than that, rounding may decide
        assert math.isinf(expected) == math.isinf(got)
        assert (margin > 0) == (got > -math.inf)
    if math.isfinite(expected) and math.isfinite(got) and abs(margin) > 1e-5:
        assert got <= 0
        assert got == pytest.approx(expected, abs=2e-5)


@cases(400)
@given(problems(), st.integers(0, 2**32 - 1))
def test_no_change_smaller_than_the_margin_crosses_the_border(
    problem: tuple[np.ndarray, int, Scheme], seed: int
) -> None:
    row, target, scheme = problem
    _, margin, _, _ = one(row, target, scheme)
    if abs(margin) < 1e-4 or math.isinf(margin):
        return
    rng = np.random.default_rng(seed)
    for _ in range(8):
        step = rng.choice([-1.0, 1.0], size=len(row)) * 0.99 * abs(margin)
        moved = row.astype(np.float64) + step
        kept = reference.support(moved, *options(scheme))
        assert (target in kept) == (margin > 0)


@cases(600)
@given(problems())
def test_no_change_made_to_carry_the_target_across_does_so(problem: tuple[np.ndarray, int, Scheme]) -> None:
    """What random changes rarely hit on: all that stands before the target one way and all else the other, and with
    top-k, every token that can be brought to tie with the k-th, so that the set is as large as it can get."""
    row, target, scheme = problem
    _, margin, _, _ = one(row, target, scheme)
    if abs(margin) < 1e-4 or math.isinf(margin):
        return
    d = 0.99 * abs(margin)
    wide = row.astype(np.float64)
    before = wide > wide[target]
    own, largest_other = np.arange(len(row)) == target, np.argmax(np.where(np.arange(len(row)) == target, -99, wide))
    moves = [np.where(before, wide - d, wide + d), np.where(before, wide + d, wide - d)]
    moves += [np.where(own, wide + sign * d, wide - sign * d) for sign in (1, -1)]
    moves += [np.where(np.arange(len(row)) == largest_other, wide + d, wide - d)]  # what min-p compares it with
    close = before & (wide <= wide[target] + 2 * d)
    moves.append(np.where(before & ~close, wide - d, np.where(close, wide[target] + d, wide + d)))
    if scheme.top_k is not None:
        border = np.sort(wide)[-scheme.top_k]
        tied = (wide <= border) & (wide >= border - 2 * d)
        moves += [np.where(tied & ~own, border - d, moved) for moved in moves]
    for moved in moves:
        kept = reference.support(moved, *options(scheme))
        assert (target in kept) == (margin > 0)


@cases(600)
@given(problems())
def test_margins_are_no_smaller_than_they_need_be(problem: tuple[np.ndarray, int, Scheme]) -> None:
    """One that is would exempt rows that are certain."""
    row, target, scheme = problem
    _, margin, _, _ = one(row, target, scheme)
    want = reference.margin(row.astype(np.float64), target, *options(scheme))
    if not math.isinf(want) and abs(want) < 1e-4:  # rounding decides on which side it is
        return
    assert abs(margin) <= abs(want) * 1.001 + 1e-4
    k, p = scheme.top_k or len(row), scheme.top_p or 1
    # After top-k, tokens beyond the 2 k + 1 largest, and ties that reach there, are not looked at one by one.
    looked_at = p == 1 or k == len(row) or (len(row) <= 2 * k + 1 and row.min() < np.sort(row)[-k])
    if looked_at and (p == 1 or p < 1 - 1e-9):  # next to 1, room is left for rounding
        assert margin == pytest.approx(want, rel=1e-3, abs=1e-4)


@cases(600)
@given(st.one_of(problems(), crowds()), st.one_of(st.floats(0.0, 0.6), st.floats(0, 0.01)), st.integers(0, 2**32 - 1))
def test_no_change_lifts_a_log_prob_above_its_headroom(
    problem: tuple[np.ndarray, int, Scheme], d: float, seed: int
) -> None:
    row, target, scheme = problem
    scores = target_scores(torch.tensor(row)[None], torch.tensor([target]), [scheme])
    if scheme.greedy or scores.log_probs[0, 0] == -math.inf:
        assert scheme.greedy is False or scores.headroom[0, 0] == 0
        return
    limit = float(scores.log_probs[0, 0] + scores.headroom[0, 0]) + 2 * d / scheme.temperature
    wide, own = row.astype(np.float64), np.arange(len(row)) == target
    order = np.argsort(np.argsort(-wide, kind="stable"))  # its place in the row, the largest first
    moves = [np.where(own | (order > i), wide + d, wide - d) for i in range(len(row))]
    moves += [np.where(own | (order < i), wide + d, wide - d) for i in range(len(row))]
    moves += [wide + d * np.random.default_rng([seed, i]).uniform(-1, 1, len(row)) for i in range(4)]
    moves += [np.where(own, wide + d, wide - d * (order + 1) / len(row))]
    if scheme.min_p is not None:  # the largest rises, if at all, just until another token is below its floor
        floor = scheme.temperature * math.log(scheme.min_p)
        rise = [value - d - wide.max() - floor + 1e-6 for value in wide]
        moves += [np.where(own, wide + d, np.where(order == 0, wide + a, wide - d)) for a in rise if abs(a) <= d]
    for moved in moves:
        after = reference.log_prob(moved, target, *options(scheme))
        assert after <= limit + 2e-5 / scheme.temperature
    if scheme.top_k is None and scheme.top_p in (None, 1) and scheme.min_p is None:
        assert scores.headroom[0, 0] == 0


def test_headroom_by_hand() -> None:
    """Three tie at rank 2 of 4: without two of them the others share a lighter support."""
    row = torch.tensor([[3.0, 2.0, 2.0, 2.0, 0.0]])
    found = target_scores(row, torch.tensor([1]), [Scheme(top_k=2), Scheme(top_k=2, top_p=0.9), Scheme(top_k=1)])
    both, three = math.exp(3) + math.exp(2), math.exp(3) + 3 * math.exp(2)
    assert found.headroom[0, 0] == pytest.approx(math.log(three / both), abs=1e-6)
    nucleus = math.exp(3) + 3 * math.exp(2)  # 0.9 of it needs all three
    assert found.headroom[1, 0] == pytest.approx(math.log(nucleus / (0.9 * both)), abs=1e-6)
    assert found.headroom[2, 0] == 0


def test_headroom_of_min_p_is_all_but_the_heaviest_token() -> None:
    """It may rise until it is alone; where top-k left less than min-p did, that is less to lose."""
    row = torch.tensor([[3.0, 2.0, 2.0, 0.5, 0.0]])
    schemes = [Scheme(top_k=None, min_p=0.3), Scheme(top_k=1, min_p=0.3), Scheme(top_k=2, top_p=0.7, min_p=0.01)]
    three, two = math.log(1 + 2 * math.exp(-1)), math.log(1 + math.exp(-1))  # 0.7 of the three needs the first two
    for target, want in ((0, [three, 0, two]), (1, [three, 0, two]), (3, [0, 0, 0])):
        found = target_scores(row, torch.tensor([target]), schemes).headroom[:, 0]
        np.testing.assert_allclose(found, want, atol=1e-6)


def test_a_border_that_rounding_alone_decides_leaves_no_margin() -> None:
    """top_p next to 1: the sum of the others comes within a few units of the last place of it."""
    row, scheme = np.array([1.8, -1.8, 2.3, 7.2], dtype=np.float32), Scheme(0.3, None, 0.9999999999999998)
    _, margin, _, _ = one(row, 2, scheme)
    moved = np.where(row > row[2], row + 0.99 * abs(margin), row - 0.99 * abs(margin)).astype(np.float64)
    assert 2 in reference.support(moved, 0.3, None, scheme.top_p)
    assert 0 < margin < 2.956  # what it would be were sums exact


def test_rounding_leaves_less_of_a_margin_where_more_is_added_up() -> None:
    row, scheme = np.array([1.8, -1.8, 2.3, 7.2], dtype=np.float32), Scheme(0.3, None, 1 - 2.0**-45)
    few, many = (one(np.append(row, [-1000.0] * n).astype(np.float32), 2, scheme)[1] for n in (0, 120))
    assert 0 < many < few - 0.03


def test_margins_of_a_nucleus_among_the_top_k_are_not_needlessly_small() -> None:
    """Nothing that stands far below the k-th logit can join the set by a small change."""
    logits = torch.randn(200, 3000, generator=torch.Generator().manual_seed(0)) * 3
    nucleus, both = Scheme(top_k=None, top_p=0.9), Scheme(top_k=40, top_p=0.9)
    for rank in (5, 15, 25, 35):
        targets = logits.argsort(1, descending=True)[:, rank]
        alone, after = target_scores(logits, targets, [nucleus, both]).margins.abs()
        assert (after < 5e-4).sum() <= 2 + (alone < 5e-4).sum()


def test_a_token_within_reach_of_the_top_k_counts_for_the_margin() -> None:
    """Outside the nucleus by little: token 3 joins at d = 0.05, and makes room for the target."""
    row = np.array([2.0, 0.0, -0.1, -0.2] + [-9.0] * 20, dtype=np.float32)
    log_prob, margin, _, _ = one(row, 1, Scheme(top_k=3, top_p=0.75))
    assert log_prob == -math.inf
    assert margin == pytest.approx(-0.05, abs=1e-6)
    joined = np.array([1.95, 0.05, -0.15, -0.15] + [-9.0] * 20)
    assert 1 in reference.support(joined, 1.0, 3, 0.75)


def test_ties_at_rank_k_are_all_kept() -> None:
    row = np.array([3, 2, 2, 2, 0], dtype=np.float32)
    for target in (1, 2, 3):
        log_prob, margin, _, _ = one(row, target, Scheme(top_k=2))
        assert log_prob == pytest.approx(2 - math.log(math.exp(3) + 3 * math.exp(2)), abs=1e-6)
        assert margin == 0


def test_equal_probabilities_enter_the_nucleus_lower_id_first() -> None:
    row = np.zeros(4, dtype=np.float32)
    kept = [one(row, i, Scheme(top_k=None, top_p=0.5))[0] > -math.inf for i in range(4)]
    assert kept == [True, True, False, False]


def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest() -> None:
    row = np.log(np.array([0.5, 0.2, 0.2, 0.0751, 0.0249], dtype=np.float32))
    for min_p, kept in ((0.4001, 1), (0.3999, 3), (0.15, 4), (0.0497, 5), (1.0, 1)):
        whole = [1, 0.5, 0.7, 0.9, 0.9751, 1.0][kept]
        for target, prob in enumerate(np.exp(row)):
            log_prob, margin, _, _ = one(row, target, Scheme(top_k=None, min_p=min_p))
            assert math.exp(log_prob) == pytest.approx(prob / whole if target < kept else 0, abs=1e-6)
            rival = 0.5 if target else 0.2
            assert margin == pytest.approx(math.log(prob / rival / min_p) / 2, abs=1e-5)


def test_min_p_is_of_the_likeliest_after_the_temperature() -> None:
    row = np.array([1.0, 0.0], dtype=np.float32)
    kept = [one(row, 1, Scheme(t, None, None, 0.25))[0] > -math.inf for t in (0.5, 0.72, 0.73, 2.0)]
    assert kept == [False, False, True, True]  # exp(-1 / temperature) is 0.25 at 0.7213


def test_min_p_one_keeps_what_ties_for_the_first_place() -> None:
    row = np.array([1, 5, 5, 4.9999], dtype=np.float32)
    kept = [one(row, i, Scheme(0.7, None, None, 1.0))[0] for i in range(4)]
    assert kept == [-math.inf, pytest.approx(-math.log(2)), pytest.approx(-math.log(2)), -math.inf]


def test_the_border_that_holds_a_token_out_most_firmly_is_its_margin() -> None:
    """Rank 3 of top-k 2, by half a logit; and min-p's floor lies one above it, or three below."""
    row = np.array([4.0, 2.5, 2.0, -9.0], dtype=np.float32)
    for floor, want in ((3.0, -0.5), (-1.0, -0.25)):
        min_p = math.exp(floor - 4)
        assert one(row, 2, Scheme(top_k=2, min_p=min_p))[1] == pytest.approx(want, abs=1e-6)
        inside = one(row, 1, Scheme(top_k=2, min_p=min_p))[1]
        assert inside == pytest.approx(-0.25 if floor == 3 else 0.25, abs=1e-6)
    assert one(row, 1, Scheme(top_k=2, min_p=math.exp(-1.6)))[1] == pytest.approx(0.05, abs=1e-6)


def warped(logits: torch.Tensor, scheme: Scheme) -> torch.Tensor:
    """What transformers' sampler makes of them."""
    from transformers.generation import logits_process as theirs

    steps = [theirs.TemperatureLogitsWarper(scheme.temperature)]
    steps += [theirs.TopKLogitsWarper(scheme.top_k)] if scheme.top_k is not None else []
    steps += [theirs.TopPLogitsWarper(scheme.top_p)] if scheme.top_p is not None else []
    steps += [theirs.MinPLogitsWarper(scheme.min_p)] if scheme.min_p is not None else []
    for step in steps:
        logits = step(torch.zeros(len(logits), 1, dtype=torch.int64), logits)
    return logits


@pytest.mark.parametrize(
    "scheme",
    [
        *(Scheme(top_k=None, min_p=p) for p in (1.0, 0.3, 0.05, 0.001)),
        Scheme(0.7, 20, None, 0.05),
        Scheme(0.7, None, 0.9, 0.05),
        Scheme(1.5, 20, 0.95, 0.02),
        Scheme(1.0, 5, 0.6, 0.2),
    ],
    ids=str,
)
@pytest.mark.parametrize("grid", [0.25, 1e-6])
def test_transformers_keeps_the_same_tokens(scheme: Scheme, grid: float) -> None:
    """But for those within 1e-5 of a border: they compare probabilities, and at equal ones top-p enters higher ids."""
    logits = (torch.randn(60, 80, generator=torch.Generator().manual_seed(4)) * 2 / grid).round() * grid
    found = target_scores(logits.repeat_interleave(80, 0), torch.arange(80).repeat(60), [scheme])
    log_probs, margins = found.log_probs.view(60, 80), found.margins.view(60, 80)
    theirs = warped(logits, scheme)
    agree, firm = (log_probs > -math.inf) == (theirs > -math.inf), margins.abs() > 1e-5
    assert agree[firm].all()
    if not scheme.nucleus:  # all borders lie on tokens, or well between them
        assert agree.all()
    same = agree.all(1)
    assert same.sum() >= 20
    torch.testing.assert_close(log_probs[same], theirs[same].log_softmax(1), atol=2e-5, rtol=0)


def test_top_p_one_changes_nothing() -> None:
    row = np.random.default_rng(0).normal(size=50).astype(np.float32)
    for target in range(50):
        assert one(row, target, Scheme(top_k=40, top_p=1.0)) == one(row, target, Scheme(top_k=40))


def test_greedy_ties_go_to_the_lowest_id() -> None:
    row = np.array([1, 5, 5], dtype=np.float32)
    assert [one(row, i, GREEDY)[0] for i in range(3)] == [-math.inf, 0.0, -math.inf]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [100, 5000, 50304, 50257])
def test_largest_is_topk(width: int, dtype: torch.dtype) -> None:
    logits = torch.randn(7, width, generator=torch.Generator().manual_seed(width)).to(dtype)
    for k in (1, 2, 41):
        assert torch.equal(largest(logits, k), logits.topk(k, dim=1).values)


def test_largest_looks_into_every_corner() -> None:
    """The first and the last of a block, and what is left beside whole blocks."""
    places = [0, 127, 128, 50175, 50176, 50177, 50256]
    logits = torch.zeros(len(places), 50257)
    logits[torch.arange(len(places)), torch.tensor(places)] = 1.0
    assert largest(logits, 2).tolist() == [[1.0, 0.0]] * len(places)
    values, ids = largest_with_ids(logits, 2)
    assert values[:, 0].tolist() == [1.0] * len(places)
    assert ids[:, 0].tolist() == places


def test_bf16_logits_are_scored_in_float32() -> None:
    logits = torch.randn(64, 5000, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16) * 4
    targets = logits.float().argmax(1)
    got = target_scores(logits, targets, [Scheme(top_k=None)]).log_probs[0]
    assert got.dtype == torch.float32
    expected = torch.log_softmax(logits.double(), 1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(got.double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": 9e-7}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"temperature": 0.0, "top_k": 5}, "greedy"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
    ],
)
def test_impossible_schemes_are_refused_by_name(options: dict[str, float], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Scheme(**options)  # type: ignore[arg-type]


def test_the_smallest_temperature() -> None:
    assert one(np.array([1.0, 2.0], dtype=np.float32), 1, Scheme(temperature=1e-6, top_k=None))[0] == 0.0
    assert Scheme(temperature=1.0, top_k=None, top_p=1.0).top_p == 1
    assert Scheme(top_k=1).top_k == 1


def test_scores_of_parts_make_up_the_whole() -> None:
    logits, targets = torch.randn(7, 30, generator=torch.Generator().manual_seed(2)), torch.arange(7)
    schemes = [Scheme(top_k=5), Scheme(0.7, None, 0.9), Scheme(top_k=None, min_p=0.1), GREEDY]
    whole = target_scores(logits, targets, schemes)
    parts = [target_scores(logits[a:b], targets[a:b], schemes) for a, b in ((0, 3), (3, 4), (4, 7))]
    joined = TargetScores.join(parts).to(torch.device("cpu"))
    for name in TargetScores.__slots__:
        assert torch.equal(getattr(joined, name), getattr(whole, name)), name
        assert torch.equal(getattr(joined.rows(slice(3, 4)), name), getattr(parts[1], name)), name


def test_a_vocabulary_of_one_token() -> None:
    schemes = [GREEDY, Scheme(top_k=1), Scheme(top_k=None), Scheme(top_k=None, min_p=0.5)]
    found = target_scores(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64), schemes)
    assert (found.log_probs == 0).all()
    assert (found.margins == math.inf).all()
    assert found.argmax.all()


def test_doubt_grows_as_the_temperature_falls() -> None:
    assert [Scheme(t, None).doubt(0.25) for t in (2.0, 1.0, 0.5)] == [0.25, 0.5, 1.0]
    assert GREEDY.doubt(0.25) == 0.5
