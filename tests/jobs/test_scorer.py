"""A source that only scores given suffixes: the same tables as the model itself, and searches are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import rote
from rote import GREEDY, Example, InputError, ModelError, Near, Run, Scheme, SuffixScorer, Windows
from rote.listed import ListedScores
from rote.models.base import GeneratingModel, LogitModel
from tests.fakes import OnlyScores

WINDOWS = Windows(prefix=8, suffix=10, stride=15)
SCHEMES = [Scheme(), Scheme(0.7, None), Scheme(1.0, None, 0.9), Scheme(top_k=None, min_p=0.1), GREEDY]


@pytest.fixture(scope="module")
def scorer(bundled: Any) -> OnlyScores:
    return OnlyScores(bundled)


@pytest.fixture(scope="module")
def passage(alice: str, gatsby: str) -> str:
    return alice[3000:3300] + gatsby[50_000:50_300]


def nearly_same(run: Run, other: Run, tolerance: float = 1e-3) -> None:
    """But for the last digits: batches decide them."""
    exact = ["example_id", "scheme", "start", "suffix_start", "suffix_end", "greedy", "bounded", "token_evals", "ranks",
             "token_ends", "metadata"]  # fmt: skip
    assert run.scores.select(exact).equals(other.scores.select(exact))
    for name in ("log_prob", "token_log_probs", "base_log_probs", "margins"):
        columns = [each.scores[name] for each in (run, other)]
        ours, theirs = (column.explode() if column.dtype == pl.List else column for column in columns)
        if name == "margins":  # with top-p a list's are safe, not the largest
            assert (np.abs(ours.to_numpy()) <= np.abs(theirs.to_numpy()) + tolerance).all()
        else:
            np.testing.assert_allclose(ours.to_numpy(), theirs.to_numpy(), atol=tolerance, rtol=0)


def test_it_is_a_scorer_and_nothing_more(scorer: OnlyScores, bundled: Any) -> None:
    assert isinstance(scorer, SuffixScorer)
    assert not isinstance(scorer, LogitModel)
    assert not isinstance(scorer, GeneratingModel)
    assert isinstance(bundled, LogitModel)


def test_a_scan_gives_the_table_of_the_model_itself(
    scorer: OnlyScores, bundled: Any, passage: str, tmp_path: Path
) -> None:
    told: list[tuple[str, int, int]] = []
    ours = rote.scan(
        scorer, passage, windows=WINDOWS, schemes=SCHEMES, out=tmp_path / "scores",
        progress=lambda *what: told.append(what),
    )  # fmt: skip
    theirs = rote.scan(bundled, passage, windows=WINDOWS, schemes=SCHEMES, out=tmp_path / "model")
    nearly_same(ours, theirs)
    probable = ours.scores.filter(pl.col("log_prob").is_finite())["log_prob"].exp()
    assert probable.max() > 0.5 > 1e-6 > probable.min()  # type: ignore[operator]
    manifest = replace(ours.manifest, created="")
    assert manifest == replace(theirs.manifest, created="", batch_tokens=None)  # how much is fed at once is its affair
    examples = ours.summary.examples
    assert [what for what in told if what[0] == "scored"][-1] == ("scored", examples, examples)
    for label, numbers in ours.summary.schemes.items():
        expected = theirs.summary.schemes[label]
        assert numbers.rates.rate_at_tau.count == expected.rates.rate_at_tau.count
        assert numbers.coverage == expected.coverage
    assert (ours.folder / "report.html").is_file()


def test_examples_and_sweeps_too(scorer: OnlyScores, bundled: Any, passage: str, tmp_path: Path) -> None:
    examples = rote.windows(passage, bundled.tokenizer, replace(WINDOWS, stride=60))
    runs = [rote.score(model, examples, out=tmp_path / f"score {i}") for i, model in enumerate((scorer, bundled))]
    nearly_same(runs[0], runs[1])
    swept = [
        rote.sweep(model, examples, prefixes=[4, 8], suffixes=[5, 10], out=tmp_path / f"sweep {i}").result
        for i, model in enumerate((scorer, bundled))
    ]
    for ours, theirs in zip(swept[0].points, swept[1].points, strict=True):
        assert (ours.prefix, ours.suffix, ours.scheme) == (theirs.prefix, theirs.suffix, theirs.scheme)
        assert ours.rates.rate_at_tau.count == theirs.rates.rate_at_tau.count
    early = rote.verbatim(scorer, examples, tau=0.5)  # nothing is gained by stopping, so nothing is
    assert [found.log_prob for found in early] == runs[0].scores["log_prob"].to_list()
    assert not any(found.bounded for found in early)


def refused_for_its_logits(act: Callable[[], object], what: str) -> None:
    cause = rf"bundled gives the probabilities of given tokens alone, and {what} needs its logits: load the model"
    with pytest.raises(ModelError, match=cause):
        act()


def test_what_needs_more_than_scores_is_refused_by_its_cause(
    scorer: OnlyScores, bundled: Any, passage: str, tmp_path: Path
) -> None:
    given, out = [Example("x", (5, 6), (7, 8, 9))], tmp_path / "run"
    model: Any = scorer  # which no type checker would let through
    near = r"near-verbatim extraction \(near\)"
    for job, what in (
        (lambda: rote.scan(scorer, passage, windows=WINDOWS, near=Near(), out=out), near),
        (lambda: rote.score(scorer, given, near=Near(tolerance=1), out=out), near),
        (lambda: rote.near_verbatim(model, given), "a near-verbatim search"),
        (lambda: rote.reconstruct(model, passage, writing=rote.Writing(tokens=300), out=out), "writing a text on"),
    ):
        refused_for_its_logits(job, what)
    assert not (tmp_path / "run").exists()
    run = rote.scan(scorer, passage, windows=replace(WINDOWS, stride=200), out=tmp_path / "scan")
    with pytest.raises(InputError, match="this model cannot generate by itself"):
        rote.check(run, scorer)


@pytest.mark.parametrize("fault", ["too short", "no number", "another scheme"])
def test_scores_that_cannot_be_are_refused(fault: str, bundled: Any) -> None:
    class Faulty(OnlyScores):
        def score_suffixes(self, examples: Sequence[Example], schemes: Sequence[Scheme]) -> Iterator[ListedScores]:
            for scores in super().score_suffixes(examples, schemes):
                if fault == "too short":
                    yield replace(scores, log_probs=scores.log_probs[:, :-1])
                elif fault == "no number":
                    yield replace(scores, log_probs=np.full_like(scores.log_probs, np.nan))
                else:
                    yield replace(scores, log_probs=scores.log_probs[:1])

    with pytest.raises(ModelError, match="bundled gave no probability for every token of the suffix of example 'x'"):
        rote.verbatim(Faulty(bundled), [Example("x", (5, 6), (7, 8, 9))], [Scheme(), GREEDY])
