"""A served model's rows through the whole product: exact rows are those of the model here, intervals hold its numbers.

The server lists few log-probs of the bundled model's own, so that some rows are intervals.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import rote
from rote import GREEDY, Draw, InputError, Refine, Run, Scheme, Windows
from rote.analysis.consistency import row_problems
from rote.analysis.coverage import coverage
from rote.analysis.furthest import longest
from rote.report.text import numbers
from rote.report.text.comparison import fixed_table, numbers_table
from rote.report.text.conclusion import conclusion
from rote.report.text.spots import highest_in_words
from rote.report.text.words import summary_lines
from tests.corpus.corpora import write_jsonl
from tests.fakes import OnlyScores
from tests.report.page.test_run import words

WINDOWS = Windows(prefix=8, suffix=10, stride=12)
LISTED = 6
DRAW = Draw(documents=2, examples=3, runs=1, prefix=8, suffix=8)
SCHEMES = [Scheme(), Scheme(0.8, 5), Scheme(1.0, 5, 0.9), Scheme(1.0, None, 0.9), Scheme(0.7, None, None, 0.02),
           Scheme(1.0, None), GREEDY]  # fmt: skip
NUCLEUS = Scheme(1.0, None, 0.9)
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


@pytest.fixture(scope="module")
def unsure(bundled: Any, passage: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A list that leaves every window of a known text open."""
    return rote.scan(
        OnlyScores(bundled, 3), passage[:300], windows=WINDOWS, out=tmp_path_factory.mktemp("unsure") / "run"
    )


@pytest.fixture(scope="module")
def some(bundled: Any, passage: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One that leaves some open, and others not."""
    out = tmp_path_factory.mktemp("some") / "some"
    return rote.scan(OnlyScores(bundled, 3), passage, windows=WINDOWS, schemes=[NUCLEUS], out=out)


@pytest.fixture(scope="module")
def known(bundled: Any, passage: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same of the model here."""
    out = tmp_path_factory.mktemp("known") / "known"
    return rote.scan(bundled, passage, windows=WINDOWS, schemes=[NUCLEUS], out=out)


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
    for label, told in served.summary.schemes.items():
        truth = here.summary.schemes[label]
        for name, rate in told.rates.named.items():
            own = truth.rates.named[name]
            assert rate.rate <= own.rate <= rate.rate_upper
        for cell, own_cell in zip(told.rates.np_table, truth.rates.np_table, strict=True):
            assert cell.rate <= own_cell.rate <= cell.rate_upper
        for threshold, covered in (told.coverage or {}).items():
            own_covered = (truth.coverage or {})[threshold]
            most = covered.characters if covered.characters_upper is None else covered.characters_upper
            assert covered.characters <= own_covered.characters <= most
            assert (covered.characters_upper is None) == (covered.undecided == 0)
        for threshold, found in (told.longest or {}).items():
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


def test_nothing_is_said_to_be_nothing_where_more_may_be(unsure: Run, bundled: Any, tmp_path: Path) -> None:
    rate = unsure.summary.schemes["temperature=1 top_k=40"].rates.rate_at_tau
    assert (rate.rate, rate.rate_upper > 0.5) == (0.0, True)
    examples = rote.windows(unsure.text or "", bundled.tokenizer, WINDOWS)
    scored = rote.score(OnlyScores(bundled, 3), examples, out=tmp_path / "score")
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"id": f"d{i}", "text": unsure.text} for i in range(2)])
    drawn = rote.rate(OnlyScores(bundled, 3), corpus, draw=DRAW, out=tmp_path / "rate")
    for run, said in (
        (unsure, "No window is certain to reach τ = 0.001;"),
        (scored, f"None of {len(examples)} examples is certain to be extractable at τ = 0.001."),
        (drawn, "None of 6 examples from this corpus is certain to be extractable at τ = 0.001."),
    ):
        page = words((run.folder / "report.html").read_text(encoding="utf-8")).replace("\u00a0", " ")
        terminal = "\n".join(summary_lines(run.view))
        for text in (page, terminal):
            assert said in text
            assert (
                f" {run.summary.examples} {run.view.unit}s are left open by the server’s list of 3 log-probs." in text
            )
            assert not re.search("Nothing was extracted|can be extracted|cannot be extracted|: none(?! found)", text)
        assert f"No {run.view.unit} is certain to reach τ = 0.001, so there is no passage to show" in page
    assert "in one generation, at 1%, 10%, 50%, 75%: none found" in "\n".join(summary_lines(unsure.view))
    assert f"but for {unsure.summary.examples} left open by the server’s list" in highest_in_words(unsure.view)


def test_what_is_certain_is_the_least(some: Run, known: Run) -> None:
    found, exact = "\n".join(summary_lines(some.view)), "\n".join(summary_lines(known.view))
    assert re.match(r"At least \d+ of 71 windows come out with even odds \(p ≥ 50%\): at least [\d.]+% of the", found)
    assert re.search(r"in windows whose suffixes cover at least \d+ of the", found)
    assert re.search(r"at least \d+ of 71 windows \([\d.]+% to [\d.]+%\) count as extracted", found)
    assert "the most likely window of those that are not left open has" in highest_in_words(some.view)
    assert not re.search("[Aa]t least(?! 50% per)|left open|is certain", exact)


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


def test_a_comparison_says_what_the_rows_that_are_left_open_may_do(some: Run, known: Run) -> None:
    found = rote.compare([known, some])
    first, run = found.result.runs
    (pair,) = found.result.pairs
    (said,) = conclusion(found.result)
    own, rate = first.rates.rate_at_tau, run.rates.rate_at_tau
    ends = [rate.rate - own.rate, rate.rate_upper - own.rate]
    assert pair.possible_difference == pytest.approx(ends)
    low, high = map(numbers.points, ends)
    assert said.endswith(
        f" {pair.undecided} windows more are left open by a server’s list and not counted here: with them the "
        f"difference may be anything from {low} to {high} percentage points."
    )
    head, one, two = numbers_table(found.result)
    assert run.coverage is not None
    assert any(covered.undecided for covered in run.coverage.values())
    for (threshold, covered), cell, exact in zip(run.coverage.items(), two[6:], one[6:], strict=False):
        assert f"Covered at {100 * float(threshold):g}%" in head
        assert (" to " in cell) == (covered.characters_upper not in (None, covered.characters))
        assert " to " not in exact
    (_, _, of_first, of_second), *_ = fixed_table(found.result)[1:]
    assert of_first.startswith("100%, ")
    assert re.fullmatch(r"[\d.]+% to 100%, 0\.\d+ to 0\.\d+", of_second)
    page = words(found.page()).replace("\u00a0", " ")
    assert said.partition(".")[2] in page
    assert "blank is below τ or left open by the server’s list, and grey is in no suffix" in page
    assert page.count("blank is below τ = 0.001 or left open by the server’s list, grey was not looked at") == 1


def test_a_row_whose_tokens_are_all_open_is_not_exact(unsure: Run) -> None:
    scores = unsure.scores
    assert scores["token_log_probs"].list.drop_nulls().list.len().max() == 0
    assert not list(row_problems(unsure.manifest, scores))
    first = pl.col("example_id") == "w0"
    called = scores.with_columns(
        bounded=pl.col("bounded") & ~first, log_prob=pl.when(first).then(0.0).otherwise("log_prob")
    )
    assert list(row_problems(unsure.manifest, called)) == [
        "'w0' is called bounded or exact, and its tokens say otherwise"
    ]


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
