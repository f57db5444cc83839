"""Near-verbatim search on the bundled model: passages it has seen 0 to 256 times, and a book it has not seen.

What the bounds are held against was sampled beforehand (benchmarks/near_verbatim_truth.json).
"""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import rote
from rote import Example
from rote.corpus.formats import as_examples
from rote.corpus.windows import Windows
from rote.extraction.near.results import NearVerbatim
from rote.odds import wilson
from tests.conftest import ROOT
from tests.extraction.near.searching import find_near

LEVEL = 1e-4  # how often a sound result may fail one comparison with samples
SIGMAS = 4.5
FIRST = 99  # token evaluations of the first pass
BEAM = 5


class Truth(NamedTuple):
    samples: int
    seed: int
    tolerance: int
    hits: dict[str, int]

    def mass(self, example: Example) -> float:
        return self.hits[example.id] / self.samples

    def error(self, example: Example) -> float:
        p = self.mass(example)
        return math.sqrt(p * (1 - p) / self.samples)


@cache
def ladder() -> list[Example]:
    return as_examples(ROOT / "training/ladder.jsonl", None)


@pytest.fixture(scope="module")
def truth() -> Truth:
    content = json.loads((ROOT / "benchmarks/near_verbatim_truth.json").read_text())
    return Truth(content["samples"], content["seed"], content["tolerance"], content["hits"])


@pytest.fixture(scope="module")
def sampled(truth: Truth) -> list[Example]:
    """24 of the sampled passages, from the least to the most likely."""
    known = sorted((e for e in ladder() if e.id in truth.hits), key=truth.mass)
    return [known[round(i)] for i in np.linspace(0, len(known) - 1, 24)]


@pytest.fixture(scope="module")
def rungs() -> list[Example]:
    """A few passages for each number of repetitions."""
    return ladder()[::12]


def upper_limit(hits: int, samples: int, level: float) -> float:
    """The exact one-sided limit: the share under which so few hits come only once in 1 / `level`."""
    ways = np.concatenate([[0.0], np.cumsum(np.log(np.arange(samples, samples - hits, -1.0) / np.arange(1, hits + 1)))])
    count = np.arange(hits + 1)
    low, high = hits / samples, 1.0
    for _ in range(60):
        share = (low + high) / 2
        logs = ways + count * math.log(share) + (samples - count) * math.log1p(-share)
        low, high = (share, high) if np.exp(logs).sum() > level else (low, share)
    return high


def sound(result: NearVerbatim) -> None:
    for lower, upper in result.by_tolerance:
        assert 0 <= lower <= upper <= 1
    for less, more in zip(result.by_tolerance, result.by_tolerance[1:], strict=False):
        assert less[0] <= more[0] + 1e-12
        assert less[1] <= more[1] + 1e-12


def test_the_limit_is_exact() -> None:
    assert upper_limit(0, 50, 0.025) == pytest.approx(1 - 0.025 ** (1 / 50), rel=1e-9)
    assert upper_limit(1, 2, 0.05) == pytest.approx(math.sqrt(0.95), rel=1e-9)
    assert upper_limit(49, 50, 0.025) == pytest.approx(0.975 ** (1 / 50), rel=1e-9)
    assert upper_limit(10_000, 20_000, 1e-4) == pytest.approx(0.5 + 3.719 * math.sqrt(0.25 / 20_000), abs=1e-4)


def test_the_sampled_truth_is_there(truth: Truth) -> None:
    assert truth.samples == 20_000
    assert truth.tolerance == 5
    assert len(truth.hits) >= 24
    assert set(truth.hits) <= {e.id for e in ladder()}
    assert all(0 <= h <= truth.samples for h in truth.hits.values())
    assert sum(0.05 <= h / truth.samples <= 0.95 for h in truth.hits.values()) >= 16


def test_the_sampled_truth_can_be_drawn_again(bundled: Any, truth: Truth, sampled: list[Example]) -> None:
    chosen, count = [sampled[8], sampled[16]], 300
    assert truth.seed != 1234
    for example, result in zip(
        chosen, find_near(bundled, chosen, method="sample", samples=count, seed=1234), strict=True
    ):
        assert result.estimate is not None
        p = (truth.hits[example.id] + result.estimate.mean * count) / (truth.samples + count)
        error = math.sqrt(p * (1 - p) * (1 / truth.samples + 1 / count))
        assert abs(result.estimate.mean - truth.mass(example)) <= SIGMAS * error


def test_verbatim_mass_is_the_scorers(bundled: Any, rungs: list[Example]) -> None:
    scored = rote.verbatim(bundled, rungs)
    for budget in (FIRST, 130):
        for result, own in zip(find_near(bundled, rungs, budget=budget), scored, strict=True):
            sound(result)
            # A token at the border of the top 40 may fall on either side.
            if not (np.abs(own.margins) < bundled.logit_tolerance).any():
                assert result.by_tolerance[0] == pytest.approx((own.prob, own.prob), abs=1e-5)
    for variant in ("closing", "pruned"):
        for result, own in zip(
            find_near(bundled, rungs, method="beam", width=BEAM, variant=variant),
            scored,
            strict=True,
        ):
            sound(result)
            if not (np.abs(own.margins) < bundled.logit_tolerance).any():
                assert result.by_tolerance[0][0] <= own.prob + 1e-5
                assert result.by_tolerance[0][1] >= own.prob - 1e-5


def test_verbatim_mass_is_sampled(bundled: Any, sampled: list[Example]) -> None:
    chosen, count = sampled[5::6], 150
    between = 0
    for result, own in zip(
        find_near(bundled, chosen, method="sample", samples=count, seed=4), rote.verbatim(bundled, chosen),
        strict=True,
    ):  # fmt: skip
        counts = {wilson(h, count): h for h in range(count + 1)}
        low, high = wilson(counts[result.by_tolerance[0]], count, 1 - LEVEL)
        assert low <= own.prob <= high
        between += 0.02 < own.prob < 0.98
    assert between >= 2


SEARCHES: dict[str, dict[str, Any]] = {
    "first pass": {"budget": FIRST},
    "forks": {"budget": 400},
    "closing beam": {"method": "beam", "width": BEAM},
    "published beam": {"method": "beam", "width": BEAM, "variant": "pruned"},
}


@pytest.mark.parametrize("name", SEARCHES)
def test_bounds_agree_with_samples(name: str, bundled: Any, truth: Truth, sampled: list[Example]) -> None:
    found = find_near(bundled, sampled, **SEARCHES[name])
    for example, result in zip(sampled, found, strict=True):
        sound(result)
        hits = truth.hits[example.id]
        assert result.lower <= upper_limit(hits, truth.samples, LEVEL), example.id
        assert result.upper >= 1 - upper_limit(truth.samples - hits, truth.samples, LEVEL), example.id
    share = np.mean([r.lower for r in found]) / np.mean([truth.mass(e) for e in sampled])
    print(f"{name}: lower bounds hold {share:.3f} of the sampled mass")
    assert share > 0.8


def test_residual_estimates_agree_with_samples_and_are_sharper(
    bundled: Any, truth: Truth, sampled: list[Example]
) -> None:
    """Sharper than plain sampling of as many token evaluations, where a sample costs one for every token it writes."""
    chosen, count = [e for e in sampled if 0.05 <= truth.mass(e) <= 0.95][::2], 80
    assert len(chosen) >= 6
    errors, reported, plain = [], [], []
    for example, result in zip(chosen, find_near(bundled, chosen, budget=150, samples=count, seed=6), strict=True):
        sound(result)
        assert result.estimate is not None
        assert result.lower <= result.estimate.interval[0] <= result.estimate.mean <= result.upper
        p, still = truth.mass(example), result.upper - result.lower
        q = min(max((p - result.lower) / still, 0.0), 1.0)
        errors.append(still * math.sqrt(q * (1 - q) / count))  # what it is: with no hit at all it is reported as 0
        reported.append(result.estimate.error)
        combined = math.hypot(max(errors[-1], result.estimate.error), truth.error(example))
        assert abs(result.estimate.mean - p) < 4 * combined, example.id
        samples = (result.token_evals - len(example.prefix)) / (len(example.suffix) - 1)
        plain.append(math.sqrt(p * (1 - p) / samples))
    print(f"standard errors: {np.mean(errors):.4f} (reported {np.mean(reported):.4f}), plain {np.mean(plain):.4f}")
    assert np.mean(errors) <= 0.5 * np.mean(plain)
    assert np.mean(reported) <= 0.5 * np.mean(plain)


@pytest.mark.parametrize(
    "search", [{"budget": 300}, SEARCHES["closing beam"], SEARCHES["published beam"]], ids=["fork", "closing", "pruned"]
)
def test_a_book_it_has_not_seen_is_not_extractable(bundled: Any, gatsby: str, search: dict[str, Any]) -> None:
    examples = rote.windows(gatsby, bundled.tokenizer, Windows(stride=len(gatsby) // 26))[:24]
    assert len(examples) == 24
    for result in find_near(bundled, examples, tolerance=5, **search):
        sound(result)
        assert len(result.by_tolerance) == 6
        assert max(lower for lower, _ in result.by_tolerance) < result.tau == 1e-3
        assert result.verdict != "extractable"
