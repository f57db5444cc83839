"""Texts as people have them: a scan that finds little says which step would help, and with it finds what it should."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import Run, Windows
from rote.analysis.coverage import hot_spots
from rote.analysis.variants import most_helpful
from rote.corpus.normalise import normalised
from rote.report.text.words import summary_lines
from rote.store.variants import Trial
from tests.cli.command import rote_here
from tests.fakes import OnlyScores

CUT = Windows(stride=300)

EXACT: dict[str, tuple[str, Callable[[str], str], Callable[[str], str]]] = {
    "crlf": ("line-ends", lambda text: text.replace("\n", "\r\n"), lambda text: text.replace("\r\n", "\n")),
    "cr": ("line-ends", lambda text: text.replace("\n", "\r"), lambda text: text.replace("\r", "\n")),
    "bom": ("bom", lambda text: text.replace("\n", "\n\ufeff"), lambda text: text.replace("\ufeff", "")),
    "nbsp": ("spaces", lambda text: text.replace(" ", "\u00a0"), lambda text: text.replace("\u00a0", " ")),
    "soft hyphens": (
        "soft-hyphens",
        lambda text: re.sub(r"(?<=\w\w\w)(?=\w\w\w)", "\u00ad", text),
        lambda text: text.replace("\u00ad", ""),
    ),
    "double spaces": (
        "double-spaces",
        lambda text: re.sub(r"(?<=[.,:;!?]) ", "  ", text),
        lambda text: text.replace("  ", " "),
    ),
}


@pytest.fixture(scope="module")
def known_text(alice: str) -> str:
    return alice[160:3400]


@pytest.fixture
def few_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to tell one from its neighbours."""
    monkeypatch.setattr("rote.jobs.variants.WIDTHS", range(70, 75))


@pytest.fixture(scope="module")
def clean(bundled: Any, known_text: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return rote.scan(bundled, known_text, out=tmp_path_factory.mktemp("clean") / "run", windows=CUT)


def warning(run: Run) -> str:
    """What the run says of other forms of its text; on the terminal as on the page."""
    (said,) = [line for line in summary_lines(run.view) if "in another form" in line] or [""]
    assert ("in another form" in (run.folder / "report.html").read_text()) == bool(said)
    return said


def test_a_text_that_comes_out_is_not_tried_again(clean: Run, bundled: Any, known_text: str, tmp_path: Path) -> None:
    told: list[str] = []
    again = rote.scan(
        bundled, known_text, out=tmp_path / "run", windows=CUT, progress=lambda what, *_: told.append(what)
    )
    assert again.summary.variants is None
    assert not (again.folder / "variants.json").exists()
    assert warning(again) == ""


@pytest.mark.parametrize("name", EXACT)
def test_what_a_step_undoes_exactly(name: str, clean: Run, bundled: Any, known_text: str, tmp_path: Path) -> None:
    step, spoil, mend = EXACT[name]
    text = spoil(known_text)
    spoiled = rote.scan(bundled, text, out=tmp_path / "spoiled", windows=CUT)
    assert spoiled.finished.numbers.rates.rate_at_tau.rate < 0.5
    assert warning(spoiled).endswith(f" as the text stands. Scanning with --normalise {step} tells.")
    trial = most_helpful(spoiled.summary.variants)
    assert trial is not None
    assert trial.steps == [step]
    assert trial.after == trial.windows > 2 * trial.before

    mended = rote.scan(bundled, text, out=tmp_path / "mended", windows=CUT, normalise=[step])
    assert warning(mended) == ""
    assert mended.text == text
    assert mended.manifest.source.steps == [step]
    assert mended.scores["log_prob"].to_list() == pytest.approx(clean.scores["log_prob"].to_list(), abs=1e-4)
    for row, was in zip(mended.scores.iter_rows(named=True), clean.scores.iter_rows(named=True), strict=True):
        for span in (("start", "suffix_start"), ("suffix_start", "suffix_end")):
            assert mend(text[row[span[0]] : row[span[1]]]) == known_text[was[span[0]] : was[span[1]]]
        ends = [row["suffix_start"] + end for end in row["token_ends"]]
        assert mend(text[row["suffix_start"] : ends[9]]) == known_text[was["suffix_start"] :][: was["token_ends"][9]]
    at = "0.5"
    share = clean.finished.coverage[at].share
    assert mended.finished.coverage[at].share == pytest.approx(share, abs=0.01)


@pytest.mark.usefixtures("few_widths")
def test_what_a_server_leaves_open_is_not_taken_to_come_out(bundled: Any, known_text: str, tmp_path: Path) -> None:
    """By their upper bounds some windows would come out as the text stands, and nearly all of them after a step."""
    _, spoil, _ = EXACT["double spaces"]
    served, cut = OnlyScores(bundled, 3), Windows(10, 10, 150)
    run, clean = (
        rote.scan(served, text, out=tmp_path / name, windows=cut)
        for name, text in (("spoiled", spoil(known_text)), ("clean", known_text))
    )
    upper = [own.finished.numbers.rates.rate_at_tau for own in (run, clean)]
    assert [rate.count for rate in upper] == [0, 0]
    assert 0 < upper[0].rate_upper < 0.9 < upper[1].rate_upper
    trials = run.summary.variants
    assert trials
    assert trials[0].steps == ["double-spaces"]
    assert {(trial.before, trial.after) for trial in trials} == {(0, 0)}
    assert warning(run) == ""


@pytest.mark.usefixtures("few_widths")
@pytest.mark.parametrize(("spoiling", "steps"), [("straight-quotes", ["curly-quotes"]), ("unwrap", ["wrap-72"])])
def test_what_can_only_be_guessed(
    spoiling: str, steps: list[str], clean: Run, bundled: Any, known_text: str, tmp_path: Path
) -> None:
    text = normalised(known_text, [spoiling]).text
    spoiled = rote.scan(bundled, text, out=tmp_path / "spoiled", windows=CUT)
    assert f"--normalise {steps[0]} tells." in warning(spoiled)
    trial = most_helpful(spoiled.summary.variants)
    assert trial is not None
    assert trial.steps == steps
    mended = rote.scan(bundled, text, out=tmp_path / "mended", windows=CUT, normalise=steps)
    recovered = mended.finished.numbers.rates.rate_at_tau.count
    assert recovered > spoiled.finished.numbers.rates.rate_at_tau.count
    assert recovered >= (len(clean.scores) if spoiling == "straight-quotes" else len(clean.scores) / 2)


@pytest.mark.usefixtures("few_widths")
def test_several_things_at_once(bundled: Any, known_text: str, tmp_path: Path) -> None:
    text = normalised(known_text, ["straight-quotes", "unwrap"]).text.replace("\n", "\r\n")
    run = rote.scan(bundled, text, out=tmp_path / "run", windows=CUT)
    assert "--normalise line-ends,curly-quotes,wrap-72 tells." in warning(run)
    assert "line ends as LF, curly quotation marks and lines wrapped anew" in warning(run)


def test_a_step_that_does_harm_is_not_taken_along(bundled: Any, alice: str, tmp_path: Path) -> None:
    stars = alice.index("  *  ")  # a row of stars and spaces, which double-spaces would spoil
    text = normalised(alice[stars - 1500 : stars + 900], ["straight-quotes"]).text
    run = rote.scan(bundled, text, out=tmp_path / "run", windows=Windows(stride=150))
    assert "double-spaces" in [trial.steps[0] for trial in run.summary.variants or ()]
    assert "--normalise curly-quotes tells." in warning(run)


def test_an_unknown_text_stays_unknown_in_every_form(bundled: Any, gatsby: str, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    run = rote.scan(
        bundled,
        gatsby[20_000:28_000].replace("\n", "\r\n"),
        out=tmp_path / "run",
        windows=Windows(prefix=10, suffix=10, stride=200),
        progress=lambda what, done, of: told.append((done, of)) if what == "tried" else None,
    )
    assert warning(run) == ""
    trials = run.summary.variants
    assert trials
    assert not any(trial.after for trial in trials)
    assert told == sorted(told, key=lambda each: each[0])
    assert told[-1][0] == told[-1][1] <= 300
    assert "Other forms" in (run.folder / "report.html").read_text()


def test_trials_are_made_once_and_told_by_the_command(
    bundled: Any, known_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "book.txt"
    path.write_bytes(known_text[:1500].replace("\n", "\r\n").encode())
    command: list[str | Path] = ["scan", path, "--stride", "300", "--out", tmp_path / "run"]
    first = rote_here(*command)
    assert first.code == 0, first.err
    assert "with line ends as LF, " in first.out
    assert "--normalise line-ends tells." in first.out
    before = (tmp_path / "run/variants.json").read_bytes()
    monkeypatch.setattr("rote.jobs.variants._Trials", None)  # whoever tries again, fails
    assert rote_here(*command).out == first.out
    assert (tmp_path / "run/variants.json").read_bytes() == before
    content = json.loads(before)
    assert list(content["trials"][0]) == ["steps", "affected", "windows", "before", "after"]
    monkeypatch.undo()
    mended = rote_here("scan", path, "--stride", "300", "--out", tmp_path / "mended", "--normalise", "line-ends")
    assert mended.code == 0, mended.err
    assert "another form" not in mended.out
    other = rote_here("scan", path, "--stride", "300", "--out", tmp_path / "mended", "--normalise", "exact")
    assert other.code == 1
    assert "source.normalised" in other.err
    wrong = rote_here("scan", path, "--normalise", "crlf")
    assert "error: --normalise crlf: there is no step 'crlf'; give some of" in wrong.err


def test_longer_check_and_show_cut_a_normalised_text_as_it_was(bundled: Any, known_text: str, tmp_path: Path) -> None:
    text = known_text.replace("\n", "\r\n")
    run = rote.scan(bundled, text, out=tmp_path / "run", windows=CUT, normalise=["line-ends"])
    longer = rote.longer(run, bundled, prefix=20, suffix=60, stride=200)
    assert longer is not None
    assert longer.manifest.source == run.manifest.source
    spots = hot_spots(run.scores, len(text), 0.5)
    assert all(any(spot.start <= at < spot.end for spot in spots) for at in longer.scores["suffix_start"])
    example = run.scores["example_id"][2]
    checked = rote.check(run, bundled, examples=[example], samples=20)
    assert checked.passages[0].hits > 10
    (shown,) = rote.show(run, example=example).runs
    assert shown.tokens_unknown is None
    assert "".join(token.text or "" for token in shown.tokens) == shown.suffix.replace("\r\n", "\n")


def test_a_sweep_normalises_its_text_too(bundled: Any, known_text: str, tmp_path: Path) -> None:
    lengths: dict[str, Any] = {"prefixes": [20], "suffixes": [5, 10], "stride": 600}
    clean = rote.sweep(bundled, known_text, **lengths, out=tmp_path / "clean")
    crlf = known_text.replace("\n", "\r\n")
    mended = rote.sweep(bundled, crlf, **lengths, normalise=["line-ends"], out=tmp_path / "mended")
    assert mended.result.points == clean.result.points
    assert [(taken.step, taken.places) for taken in mended.result.source.normalised or ()] == [
        ("line-ends", known_text.count("\n"))
    ]
    assert "the text was normalised: line-ends (" in re.sub("<[^>]*>", "", (mended.folder / "report.html").read_text())
    with pytest.raises(rote.InputError, match="normalise is for a text; examples are used as they are"):
        rote.sweep(bundled, [rote.Example("a", (5,) * 20, (6,) * 10)], suffixes=[5], normalise=["bom"])


def test_the_command_measures_in_characters(known_text: str, tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text(known_text[:1500], encoding="utf-8")
    command: list[str | Path] = ["scan", path, "--stride", "300", "--unit", "characters", "--out"]
    for more, lengths in (([], (250, 250)), (["--suffix", "90"], (250, 90))):
        folder = tmp_path / f"run-{len(more)}"
        result = rote_here(*command, folder, *more)
        assert result.code == 0, result.err
        cut = Run.open(folder).manifest.windows
        assert cut is not None
        assert (cut.prefix, cut.suffix, cut.unit) == (*lengths, "characters")
        assert f"Prompted with up to {lengths[0]} characters of the text" in result.out


def test_which_step_is_named() -> None:
    one = Trial(steps=["bom"], affected=2, windows=2, before=0, after=2)
    many = Trial(steps=["line-ends"], affected=900, windows=40, before=1, after=30)
    both = Trial(steps=["bom", "line-ends"], affected=900, windows=40, before=1, after=30)
    none = Trial(steps=["spaces"], affected=900, windows=40, before=10, after=13)
    assert most_helpful([one, both, many, none]) == many
    assert most_helpful([one, none]) == one
    assert most_helpful([none]) is most_helpful([]) is most_helpful(None) is None
    assert most_helpful([replace(none, after=14)]) is not None
