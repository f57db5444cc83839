"""A scan in stages on the screen: what is known so far, and what it comes to in the end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rote
from rote.cli import screen
from rote.report.text.words import headline, summary_lines
from tests.cli.test_screen import piped, plain, printed, window

CUT = rote.Windows(prefix=20, suffix=10, stride=2)


@pytest.fixture(scope="module")
def scanned(bundled: rote.LogitModel, alice: str, gatsby: str, tmp_path_factory: pytest.TempPathFactory) -> rote.Run:
    folder = tmp_path_factory.mktemp("stages")
    text = gatsby[20_000:20_600] + alice[3000:3300] + gatsby[30_000:30_600]
    return rote.scan(bundled, text, windows=CUT, refine=rote.Refine(audit=20), out=folder / "run")


def test_what_is_known_so_far_stands_on_the_screen(
    scanned: rote.Run, bundled: rote.LogitModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "messages", console := window(100))
    with screen.progress() as shown:
        rote.scan(
            bundled, scanned.texts.text or "", windows=CUT, refine=rote.Refine(audit=20), out=tmp_path / "run",
            progress=shown.tell, on_stage=shown.stage,
        )  # fmt: skip
    meanwhile = " ".join(plain(console))
    told = re.findall(r"so\s+far\s+[\d.]+%\s+of\s+the\s+windows\s+were\s+scored,\s+in\s+(\d) of 9 stages", meanwhile)
    assert told[0] == "1"
    assert sorted(set(told)) == list(dict.fromkeys(told))  # one after the other
    assert "│" in meanwhile  # the strip
    assert "scoring" in meanwhile


def test_where_there_is_no_terminal_nothing_is_said_on_the_way(
    scanned: rote.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "messages", console := piped())
    with screen.progress() as shown:
        shown.stage(scanned)
    assert printed(console) == ""


def test_the_summary_says_what_was_left_out(scanned: rote.Run) -> None:
    screen.print_summary(scanned, console := window(100))
    shown = " ".join(" ".join(plain(console)).split())
    assert headline(scanned.finished) in shown
    assert "a dot (·) not looked at in full" in shown


def test_the_words_of_a_scan_that_left_windows_out(scanned: rote.Run) -> None:
    run = scanned
    staged, audit = run.summary.staged, run.finished.numbers.audit
    assert staged is not None
    assert audit is not None
    assert audit.drawn == 20 < audit.left_out
    lines = summary_lines(run.finished)
    share, bound = f"{100 * staged.scored / staged.windows:.3g}%", f"{100 * audit.bound:.3g}%"
    assert (
        f"; {share} of the windows were scored; of those left out at most {bound} reach τ (95% confidence)." in lines[0]
    )
    assert ": at least " in lines[0]
    chosen = staged.scored - staged.audited
    assert f"Of {staged.windows} windows, {chosen} were chosen and scored: those that tile the text, and" in lines[1]
    assert lines[0].startswith("At least ")
    assert f"Of the {audit.left_out} others 20 were drawn at random and scored as an audit; none of these" in lines[1]
    uncertain = next(line for line in lines if line.startswith("uncertainty"))
    assert "some were left out and have no number" in uncertain
    assert "not a sample" not in uncertain
    rate = run.finished.numbers.rates.rate_at_tau
    assert rate.interval == [rate.rate, rate.rate_upper]
    assert f"({100 * rate.rate:.3g}% to {100 * rate.rate_upper:.3g}%)" in lines[1]


def test_the_words_of_one_that_is_stopped_and_of_one_without_an_audit(
    scanned: rote.Run, bundled: rote.LogitModel, tmp_path: Path
) -> None:
    text = scanned.texts.text or ""

    def stop(run: rote.Run) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        rote.scan(bundled, text, windows=CUT, refine=rote.Refine(), out=tmp_path / "stopped", on_stage=stop)
    note = f"1 of 9 stages stored in {tmp_path / 'stopped'}. Run the same command again to go on. rote report shows"
    assert stopped.value.__notes__[-1].startswith(note)
    lines = summary_lines(rote.open(tmp_path / "stopped").finished)  # type: ignore[union-attr]
    assert " of the windows were scored, in 1 of 9 stages." in lines[0]
    assert " scored windows " in lines[0]
    assert "others have no number yet; 1 of 9 stages have ended" in lines[1]
    run = rote.scan(bundled, text, windows=CUT, refine=rote.Refine(audit=0), out=tmp_path / "unaudited")
    lines = summary_lines(run.finished)
    assert lines[0].endswith(" of the windows were scored, the others left out without an audit.")
    assert " others were left out, and nothing bounds how many of them reach τ. So what is covered is" in lines[1]
