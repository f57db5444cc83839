"""A served model's rows through the whole product: exact rows are those of the model here, intervals hold its numbers.

The server lists few log-probs of the bundled model's own, so that some rows are intervals.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import rote
from rote import GREEDY, InputError, Refine, Run, Scheme, Windows
from rote.analysis.consistency import row_problems
from rote.analysis.coverage import coverage, longest
from tests.fakes import OnlyScores

WINDOWS = Windows(prefix=8, suffix=10, stride=12)
LISTED = 6
SCHEMES = [Scheme(), Scheme(0.8, 5), Scheme(1.0, 5, 0.9), Scheme(1.0, None, 0.9), Scheme(0.7, None, None, 0.02),
           Scheme(1.0, None), GREEDY]  # fmt: skip
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def passage(alice: str, gatsby: str) -> str:
    return alice[3000:3500] + gatsby[50_000:50_400]


@pytest.fixture(scope="module")
def here(bundled: Any, passage: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return rote.scan(bundled, passage, windows=WINDOWS, schemes=SCHEMES, out=tmp_path_factory.mktemp("here") / "run")


@pytest.fixture(scope="module")
def served(bundled: Any, passage: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    model = OnlyScores(bundled, LISTED)
    return rote.scan(model, passage, windows=WINDOWS, schemes=SCHEMES, out=tmp_path_factory.mktemp("served") / "run")


def test_exact_rows_are_the_models_and_intervals_hold_its_numbers(served: Run, here: Run) -> None:
    assert served.manifest.model.served is not None
    assert served.scores["bounded"].any()
    for label in here.manifest.schemes:
        ours, theirs = served.rows(label), here.rows(label)
        bounded, got, want = (each.to_numpy() for each in (ours["bounded"], ours["log_prob"], theirs["log_prob"]))
        np.testing.assert_allclose(got[~bounded], want[~bounded], atol=TOLERANCE)
        assert (got[bounded] >= want[bounded] - TOLERANCE).all()
        assert np.isfinite(got[bounded]).all()
        assert ours["greedy"].equals(theirs["greedy"])
        ranks = np.minimum(theirs["ranks"].explode().to_numpy(), LISTED + 1)
        np.testing.assert_array_equal(ours["ranks"].explode().to_numpy(), ranks)
        tokens, known = (rows["token_log_probs"].explode().to_numpy() for rows in (ours, theirs))
        told = ~np.isnan(tokens)
        np.testing.assert_allclose(tokens[told], known[told], atol=TOLERANCE)
    exact = [label for label in here.manifest.schemes if not served.rows(label)["bounded"].any()]
    assert {"temperature=1", "greedy"} <= set(exact)
    assert not list(row_problems(served.manifest, served.scores))


def test_every_range_holds_the_true_number(served: Run, here: Run) -> None:
    for label, numbers in served.summary.schemes.items():
        truth = here.summary.schemes[label]
        for name, rate in numbers.rates.named.items():
            own = truth.rates.named[name]
            assert rate.rate <= own.rate <= rate.rate_upper
        for cell, own_cell in zip(numbers.rates.np_table, truth.rates.np_table, strict=True):
            assert cell.rate <= own_cell.rate <= cell.rate_upper
        for threshold, covered in (numbers.coverage or {}).items():
            own_covered = (truth.coverage or {})[threshold]
            most = covered.characters if covered.characters_upper is None else covered.characters_upper
            assert covered.characters <= own_covered.characters <= most
            assert (covered.characters_upper is None) == (covered.undecided == 0)
        for threshold, found in (numbers.longest or {}).items():
            true = (truth.longest or {})[threshold]
            if found is not None:
                assert true is not None
                assert true.tokens >= found.tokens
                assert not found.exact or true.tokens == found.tokens
    assert served.summary.schemes["temperature=1 top_k=40"].rates.bounded > 0
    open_at = [c for s in served.summary.schemes.values() for c in (s.coverage or {}).values() if c.undecided]
    assert open_at, "nothing is left open at any threshold: the test says nothing"


def test_everything_that_tells_of_it_says_why(served: Run, here: Run, tmp_path: Path) -> None:
    why = f"left open by the server’s list of {LISTED} log-probs"
    page = (served.folder / "report.html").read_text(encoding="utf-8")
    assert "server’s list of 6 log-probs" in page
    assert "given up early, as certain" not in page
    label = "temperature=1 top_k=40"
    row = served.rows(label).filter(pl.col("bounded") & (pl.col("log_prob") > -30)).row(0, named=True)
    shown = rote.show(served, example=row["example_id"])
    tokens = shown.runs[0].tokens  # of the first scheme
    assert any(token.probability is None for token in tokens)
    from rote.report.text.passage import passage_lines

    text = "\n".join("".join(piece for _, piece in line) for line in passage_lines(shown))
    assert why in text
    assert "not known" in text
    if any(token.rank == LISTED + 1 for token in tokens):
        assert f"> {LISTED}" in text
    spots = rote.spots(served, at=0.01)
    assert spots.undecided > 0
    exported = tmp_path / "rows.csv"
    rote.export(served.folder, "csv", out=exported)
    told = pl.read_csv(exported).filter(pl.col("bounded"))
    assert told["p_z"].null_count() == told.height
    assert told["p_z_upper"].null_count() == 0


def test_compared_with_the_model_here(served: Run, here: Run, tmp_path: Path) -> None:
    found = rote.compare([here, served], out=tmp_path / "comparison")
    for pair in found.result.pairs:
        assert pair.both + pair.gained + pair.lost + pair.neither == pair.examples
        assert pair.examples + pair.undecided == found.result.common_examples
    same = [pair for pair in found.result.pairs if found.result.runs[ord(pair.second) - 65].model.served is not None]
    first = next(pair for pair in same if found.result.runs[ord(pair.second) - 65].scheme == here.manifest.schemes[0])
    assert first.gained == first.lost == 0  # the same model, as far as it is known
    assert first.undecided > 0
    page = (tmp_path / "comparison" / "report.html").read_text(encoding="utf-8")
    assert "left out of what was gained and lost" in page
    assert "eft open by the server’s list of" in page


def test_it_is_verified_like_any_other_run(served: Run, bundled: Any) -> None:
    verification = rote.verify(served)
    assert not [finding for finding in verification.findings if finding.passed is False]


def test_a_scan_in_stages_keeps_open_rows_in_its_bounds(bundled: Any, passage: str, tmp_path: Path, here: Run) -> None:
    model = OnlyScores(bundled, LISTED)
    run = rote.scan(
        model, passage, windows=WINDOWS, schemes=Scheme(), refine=Refine(audit=10), tau=0.001, out=tmp_path / "staged"
    )
    rate, truth = run.summary.schemes["temperature=1 top_k=40"].rates.rate_at_tau, here.summary.schemes[
        "temperature=1 top_k=40"].rates.rate_at_tau  # fmt: skip
    assert rate.rate <= truth.rate <= rate.rate_upper


def test_lists_told_apart_by_text_lose_entries_and_no_truth(bundled: Any, passage: str, tmp_path: Path) -> None:
    model = OnlyScores(bundled, 60, by_text=True)
    ours = rote.scan(model, passage[:500], windows=WINDOWS, schemes=[Scheme(), GREEDY], out=tmp_path / "by text")
    theirs = rote.scan(bundled, passage[:500], windows=WINDOWS, schemes=[Scheme(), GREEDY], out=tmp_path / "own")
    bounded, got, want = (
        rows[name].to_numpy() for rows, name in ((ours.scores, "bounded"), (ours.scores, "log_prob"),
                                                 (theirs.scores, "log_prob"))
    )  # fmt: skip
    np.testing.assert_allclose(got[~bounded], want[~bounded], atol=TOLERANCE)
    assert (got[bounded] >= want[bounded] - TOLERANCE).all()


def test_coverage_of_stopped_rows_is_still_refused() -> None:
    rows = pl.DataFrame(
        {"example_id": ["a", "b"], "scheme": "greedy", "log_prob": [math.log(0.5), math.log(0.2)],
         "bounded": [False, True], "start": [0, 30], "suffix_start": [10, 40], "suffix_end": [20, 60],
         "token_log_probs": [[math.log(0.5)], [0.0, None]]}
    )  # fmt: skip
    with pytest.raises(InputError, match=r"coverage at 0\.1 cannot be known"):
        coverage(rows, 100, [0.1])
    found = coverage(rows, 100, [0.1, 0.3], served=True)
    assert (found["0.1"].characters, found["0.1"].characters_upper, found["0.1"].undecided) == (10, 30, 1)
    assert (found["0.3"].characters, found["0.3"].characters_upper, found["0.3"].undecided) == (10, None, 0)
    best = longest(rows, [0.1])["0.1"]
    assert best is not None
    assert (best.tokens, best.example_id, best.exact) == (1, "b", False)
