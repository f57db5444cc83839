"""Which windows of a scan in stages are scored next, against plain loops; and whether the audit's bound holds."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rote.analysis import refine
from rote.analysis.rates import LeftOut, audit
from rote.analysis.refine import CLOSER, closer, drawn, tiles
from tests.cases import all_cases, cases
from tests.reference import refine as reference
from tests.reference.refine import Rule, Scored, Span

RULE = Rule(
    refine.CLOSER, refine.FLOOR, refine.FIRST, refine.LEAST, refine.REACH, refine.MARGIN, refine.NEARLY, refine.CLOSE
)
STRICT = RULE._replace(first=3, least=1, reach=(0.75, 0.25))
"""Leaves out more: what decides is then seen in texts of a few windows."""

SCORES: dict[str, Any] = {
    "start": pl.Int64,
    "suffix_start": pl.Int64,
    "scheme": pl.String,
    "stage": pl.Int16,
    "log_prob": pl.Float64,
    "token_log_probs": pl.List(pl.Float32),
    "base_log_probs": pl.List(pl.Float32),
    "token_ends": pl.List(pl.Int32),
}


def placed(spans: list[Span], stride: int = 3) -> pl.DataFrame:
    """Windows with these suffixes, as windows.parquet has them."""
    starts = [stride * number for number in range(len(spans))]
    suffixes = {"suffix_start": [start for start, _ in spans], "suffix_end": [end for _, end in spans]}
    return pl.DataFrame(
        {"start": starts, **suffixes}, schema={"start": pl.Int64, "suffix_start": pl.Int64, "suffix_end": pl.Int64}
    )


def table(spans: list[Span], scored: dict[int, Scored], stride: int = 3) -> pl.DataFrame:
    """The rows of scored windows, as a run has them: by start, then by scheme."""
    rows = [
        {
            "start": stride * window, "suffix_start": spans[window][0], "scheme": f"scheme {number}",
            "stage": each.stage, "log_prob": each.log_probs[number], "token_log_probs": each.tokens[number],
            "base_log_probs": each.base, "token_ends": each.ends,
        }
        for window, each in sorted(scored.items())
        for number in range(len(each.tokens))
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=SCORES)


@st.composite
def spans_of(draw: st.DrawFn, most: int = 40) -> list[Span]:
    """Suffixes as windows have them: each a little after the one before or, now and then, before it or far behind."""
    step = st.one_of(st.integers(0, 4), st.integers(-4, 12), st.sampled_from([0, 3, 60]))
    start, spans = 100, []
    for _ in range(draw(st.integers(1, most))):
        spans.append((start, start + draw(st.integers(1, 14))))
        start = max(start + draw(step), 0)
    return spans


Like = tuple[int, int]
"""Log-probs are drawn from a grid between these, in eighths: sums of them are exact, in whatever order."""

FOREIGN, KNOWN, SURE = (-15 * 8, 0), (-4, 0), (0, 0)


def read(span: Span, stage: int, schemes: int, like: list[Like], rng: random.Random) -> Scored:
    """A window as it may come out: ragged tokens, some of them parts of a character, some ruled out by a scheme."""
    length = span[1] - span[0]
    inner = sorted(rng.randint(0, length) for _ in range(rng.randrange(5)))
    between = rng.choice(like)
    base = [-math.inf if rng.random() < 0.05 else rng.randint(*between) / 8 for _ in [*inner, length]]
    tokens = [[-math.inf if rng.random() < 0.2 else rng.randint(*between) / 8 for _ in base] for _ in range(schemes)]
    return Scored(stage, [sum(own) for own in tokens], tokens, base, [*inner, length])


@st.composite
def scans(draw: st.DrawFn) -> tuple[list[Span], dict[int, Scored], int]:
    """All windows, those that were scored before stage `number`, and that number."""
    spans, number, schemes = draw(spans_of()), draw(st.integers(2, CLOSER)), draw(st.integers(1, 3))
    like = draw(st.sampled_from([[FOREIGN], [KNOWN], [FOREIGN, KNOWN, SURE]]))
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    stages = dict.fromkeys(tiles(placed(spans)).tolist(), 0)
    for window in range(len(spans)):
        if window not in stages and rng.random() < 0.5:
            stages[window] = rng.randrange(number)
    return spans, {window: read(spans[window], stage, schemes, like, rng) for window, stage in stages.items()}, number


@pytest.fixture
def strict() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("first", "least", "reach"):
            patch.setattr(refine, name.upper(), getattr(STRICT, name))
        yield


@cases(400)
@given(spans_of())
@example([(10, 20), (12, 25), (20, 24), (26, 36)])  # the last that leaves nothing out goes less far than one before it
@example([(10, 14), (8, 12)])
@example([(10, 14), (30, 31), (50, 60)])
@example([(5, 6)])
def test_tiles_cover_what_any_suffix_covers(spans: list[Span]) -> None:
    chosen = tiles(placed(spans)).tolist()
    assert chosen == sorted({*chosen})
    assert {0, len(spans) - 1} <= {*chosen} <= {*range(len(spans))}  # so every other has one on each side
    assert reference.covered([spans[window] for window in chosen]) == reference.covered(spans)
    assert len(chosen) <= reference.fewest_tiles(spans) + 2


def test_tiles_of_even_windows_overlap_by_less_than_a_stride() -> None:
    spans = [(10 * number, 10 * number + 47) for number in range(100)]
    assert tiles(placed(spans)).tolist() == [*range(0, 100, 4), 99]


def check_closer(spans: list[Span], scored: dict[int, Scored], number: int, tau: float, rule: Rule) -> list[int]:
    chosen: list[int] = closer(placed(spans), table(spans, scored), tau, number).tolist()
    assert chosen == reference.closer(spans, scored, tau, number, rule)
    assert chosen == sorted({*chosen})
    assert not {*chosen} & scored.keys()  # a window is scored once
    return chosen


@cases(200)
@given(scans(), st.sampled_from([1.0, 0.125, 0.001]))
def test_what_is_looked_at_more_closely(scan: tuple[list[Span], dict[int, Scored], int], tau: float) -> None:
    check_closer(*scan, tau, RULE)


@pytest.mark.usefixtures("strict")
@cases(400)
@given(scans(), st.sampled_from([1.0, 0.125, 0.001]))
def test_what_is_looked_at_more_closely_where_little_is(
    scan: tuple[list[Span], dict[int, Scored], int], tau: float
) -> None:
    check_closer(*scan, tau, STRICT)


def sure(span: Span, stage: int, schemes: int, rng: random.Random) -> Scored:
    ends = read(span, stage, 1, [SURE], rng).ends
    return Scored(stage, [0.0] * schemes, [[0.0] * len(ends)] * schemes, [0.0] * len(ends), ends)


@cases(60)
@given(spans_of(), st.integers(1, 2), st.integers(0, 1000))
def test_where_all_is_known_all_is_looked_at_in_the_end(spans: list[Span], schemes: int, seed: int) -> None:
    places, rng = placed(spans), random.Random(seed)
    scored: dict[int, Scored] = {}
    for number in range(CLOSER + 1):
        chosen = tiles(places)[number::2].tolist()
        if number > 1:
            chosen = closer(places, table(spans, scored), 0.001, number).tolist()
        assert not {*chosen} & scored.keys()
        scored |= {window: sure(spans[window], number, schemes, rng) for window in chosen}
    assert scored.keys() == {*range(len(spans))}


@pytest.mark.usefixtures("strict")
def test_nothing_is_looked_at_where_no_token_is_foreseen() -> None:
    spans = [(10 * number, 10 * number + 100) for number in range(60)]
    scored = {
        window: Scored(0, [-500.0], [[-50.0] * 10], [-50.0] * 10, [*range(10, 101, 10)])
        for window in tiles(placed(spans)).tolist()
    }
    assert len(check_closer(spans, scored, 2, 0.001, STRICT)) == 2  # the most promising third of six gaps in any case
    for number in range(3, CLOSER + 1):
        assert check_closer(spans, scored, number, 0.001, STRICT) == []


@pytest.mark.usefixtures("strict")
def test_how_far_windows_reach_is_learnt_from_those_that_did() -> None:
    """One came out 10 above its promise, so others may by 15: -12.5 is looked at, -16 is not, and tau is 1."""
    spans = [(4 * number, 4 * number + 20) for number in range(21)]
    like = {0: -1.0, 5: -1.0, 10: -1.25, 15: -1.25, 20: -3.0, 2: 0.0}
    ends = [*range(2, 21, 2)]
    scored = {
        window: Scored(2 * (window == 2), [10 * each], [[each] * 10], [each] * 10, ends)
        for window, each in like.items()
    }
    assert tiles(placed(spans)).tolist() == [0, 5, 10, 15, 20]
    assert check_closer(spans, scored, 3, 1.0, STRICT) == [1, 3, 7, 12]


# --- the audit


@cases(100)
@given(scans(), st.integers(0, 50), st.integers(0, 1000))
def test_the_audit_draws_from_what_has_no_row(
    scan: tuple[list[Span], dict[int, Scored], int], count: int, seed: int
) -> None:
    spans, scored, _ = scan
    left = [window for window in range(len(spans)) if window not in scored]
    found = drawn(placed(spans), table(spans, scored), count, seed).tolist()
    assert found == sorted({*found})
    assert len(found) == min(count, len(left))
    assert {*found} <= {*left}
    assert found == drawn(placed(spans), table(spans, scored), count, seed).tolist()


def test_every_window_left_out_is_drawn_as_often_as_any_other() -> None:
    spans = [(number, number + 5) for number in range(40)]
    scored = {window: Scored(0, [0.0], [[0.0]], [0.0], [5]) for window in (0, 7, 8, 39)}
    places, rows, draws, rounds = placed(spans), table(spans, scored), 9, 1000
    counts = np.zeros(40)
    together = 0
    for seed in range(rounds):
        found = drawn(places, rows, draws, seed)
        counts[found] += 1
        together += bool(np.isin([20, 21], found).all())
    assert (counts[[0, 7, 8, 39]] == 0).all()
    left = np.delete(counts, [0, 7, 8, 39])
    share, error = draws / 36, math.sqrt(rounds * draws / 36 * (1 - draws / 36))
    assert np.abs(left - rounds * share).max() < 4 * error
    pair = rounds * draws * (draws - 1) / (36 * 35)  # neighbours are drawn together no more often than others
    assert abs(together - pair) < 4 * math.sqrt(pair)


def bound_of(windows: int, draws: int, hits: int) -> float:
    rows = pl.DataFrame(
        {
            "example_id": [f"w{number}" for number in range(draws)],
            "scheme": ["s"] * draws,
            "log_prob": [0.0] * hits + [-50.0] * (draws - hits),
            "bounded": [False] * draws,
        }
    )
    return audit(rows, 0.001, LeftOut(windows, np.ones(draws, dtype=np.bool_))).bound


@pytest.mark.parametrize(("windows", "draws"), [(20_000, 1000), (5000, 1000), (1100, 1000), (400, 60), (12, 5), (3, 2)])
def test_the_bound_covers_the_share_left_out_at_its_worst_point(windows: int, draws: int) -> None:
    """Without simulation. The bound misses a truth if there are too few hits, which is likeliest for the least truth
    that so many hits miss: these are the worst points, one for each number of hits.
    """
    bounds = [bound_of(windows, draws, hits) for hits in range(min(draws, 100))]
    assert bounds == sorted(bounds)
    points = [(hits, int(bound * windows) + 1) for hits, bound in enumerate(bounds)]
    assert all(truth / windows > bounds[hits] for hits, truth in points)
    misses = [reference.tail(hits, draws, truth, windows) for hits, truth in points if truth <= windows]
    assert max(misses, default=0.0) <= 0.05


@pytest.mark.scaled
def test_the_bound_covers_the_share_left_out_under_the_procedure_itself() -> None:
    """Windows drawn as a scan draws them, their rows audited as its rows are; shares from 0.01 to 5%, and the worst."""
    windows, draws, rounds = 10_000, 1000, 2500 if all_cases() else 120
    spans = [(number, number + 50) for number in range(windows + 100)]
    scored = {window: Scored(0, [-50.0], [[-50.0]], [-50.0], [50]) for window in range(0, windows + 100, 101)}
    places, rows = placed(spans), table(spans, scored)
    left = np.setdiff1d(np.arange(windows + 100), [*scored])
    assert left.size == windows
    just_missed = [int(bound_of(windows, draws, hits) * windows) + 1 for hits in range(5)]
    shares = [*(round(windows * share) for share in (0.0001, 0.0005, 0.002, 0.005, 0.01, 0.02, 0.05)), *just_missed]
    rng, missed = np.random.default_rng(15), dict.fromkeys(shares, 0)
    for seed in range(rounds):
        found = drawn(places, rows, draws, seed)
        order = rng.permutation(windows)
        for successes in shares:
            hits = np.isin(found, left[order[:successes]])
            kept = pl.DataFrame(
                {
                    "example_id": found.astype(str),
                    "scheme": "s",
                    "log_prob": np.where(hits, -1.0, -50.0),
                    "bounded": False,
                }
            )
            result = audit(kept, 0.001, LeftOut(windows, np.ones(draws, dtype=np.bool_)))
            assert (result.left_out, result.drawn, result.hits) == (windows, draws, hits.sum())
            missed[successes] += result.bound < successes / windows
    most = max(missed.values()) / rounds
    assert most <= 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / rounds), missed
    assert missed[just_missed[0]] > 0  # the simulation can see a miss
