"""Reconstructions on disk: killed and run again they end in the same text; what they sum up; the command line."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import InputError, Reconstruction, RunError, Writing
from rote.analysis.similarity import similarity
from rote.jobs.reconstruct import word_cut
from rote.store.files import plain
from rote.store.reconstruction import Break, StoredChunk
from tests.cli.command import rote_here, rote_process
from tests.seals import reseal, unfinish

SEED = "Alice was beginning to get very tired of sitting by her sister on the"
SMALL = Writing(tokens=160, step=5, beams=2, context_tokens=40)
SMALL_OPTIONS = ["--tokens", "160", "--step", "5", "--beams", "2", "--context-tokens", "40", "--device", "cpu"]


def timeless(found: Reconstruction) -> list[StoredChunk]:
    return [replace(chunk, seconds=0.0) for chunk in found.chunks()]


def open_reconstruction(folder: Path) -> Reconstruction:
    opened = rote.open(folder)
    assert isinstance(opened, Reconstruction)
    return opened


def same(one: Reconstruction, other: Reconstruction) -> None:
    assert timeless(one) == timeless(other)
    assert one.text == other.text
    assert replace(one.summary, seconds=0.0, source=other.summary.source) == replace(other.summary, seconds=0.0)
    assert (one.folder / "report.html").is_file()


@pytest.fixture
def whole(model: Any, tmp_path: Path) -> Reconstruction:
    return rote.reconstruct(model, SEED, out=tmp_path / "whole", writing=SMALL)


def test_a_book_comes_back_from_its_first_sentences(bundled: Any, alice: str, tmp_path: Path) -> None:
    truth = alice[: alice.index("In another moment down went Alice")]
    seed = alice[: alice.index("So she was considering")]
    found = rote.reconstruct(
        bundled, seed, out=tmp_path / "run", truth=truth, writing=Writing(beams=2, context="anchored")
    )
    summary = found.summary
    assert summary.seed_tokens == len(bundled.tokenizer(seed.rstrip(), add_special_tokens=False)["input_ids"])
    assert summary.source.dropped == 2
    ids = bundled.tokenizer(truth, add_special_tokens=False)["input_ids"]
    assert summary.tokens == len(ids) + len(ids) // 20
    assert found.text.startswith(truth.rstrip())
    # What differs are the 5% that were generated beyond the truth.
    compared = similarity(truth, found.text, seed=seed)
    said = summary.similarity
    assert said is not None
    assert said.word_ratio == compared.word_ratio > 0.9
    assert said.matched_share == 1
    assert said.first_difference is not None
    assert said.first_difference.word == said.truth_words
    assert said.longest is not None
    assert said.longest.words == said.truth_words
    assert said.differences == 1
    assert summary.sliding_evals > 1.5 * summary.token_evals
    pieces = [json.loads(line) for line in (found.folder / "diff.jsonl").read_text().splitlines()]
    assert [piece["kind"] for piece in pieces] == ["equal", "insert"]
    assert pieces[1]["generated_text"] == " ".join(compared.generated[len(compared.truth) :])


def test_eos_becomes_a_section_break_or_the_end(bundled: Any, alice: str, tmp_path: Path) -> None:
    """The bundled model learned that its book ends with EOS."""
    seed = alice[-500:-120]
    writing = Writing(tokens=190, beams=1)
    found = rote.reconstruct(bundled, seed, out=tmp_path / "breaks", writing=writing)
    first = found.summary.breaks[0]
    text = bundled.tokenizer.decode(found.tokens()[: first.token])
    assert text == alice[-500:].rstrip() or alice[-500:].startswith(text)
    assert found.text.startswith(text + "\n\nCHAPTER TWO\n")
    assert first == Break(token=first.token, section=2, skipped=0)
    assert found.summary.ended_by == "tokens"
    assert found.summary.tokens >= 190
    ended = rote.reconstruct(bundled, seed, out=tmp_path / "ends", writing=replace(writing, section_break=None))
    assert ended.text == text
    assert ended.summary.ended_by == "eos"
    assert ended.summary.tokens == first.token < 190
    again = rote.reconstruct(bundled, seed, out=tmp_path / "ends", writing=replace(writing, section_break=None))
    assert again.text == text
    missed = rote.reconstruct(bundled, seed, out=tmp_path / "missed", writing=replace(writing, missed_after=20))
    assert missed.text.startswith(text + "\n\nCHAPTER THREE\n")
    assert missed.summary.breaks[0].skipped == 1


def test_killed_at_any_moment_it_goes_on_with_the_same_text(model: Any, tiny_folder: Path, tmp_path: Path) -> None:
    """Of the anchored context, whose keys are lost with the process."""
    whole = rote.reconstruct(model, SEED, out=tmp_path / "whole", writing=replace(SMALL, context="anchored"))
    assert len(whole.chunks()) > 20
    folder = tmp_path / "killed"
    command: list[str | Path] = ["reconstruct", "--seed", SEED, "--model", tiny_folder, "--out", folder]
    command += ["--context", "anchored"]
    rng = random.Random(0)
    with rote_process(*command, *SMALL_OPTIONS) as process:
        path = folder / "chunks.jsonl"
        deadline = time.monotonic() + 120
        while not path.is_file() or path.read_bytes().count(b"\n") < 9:  # the anchored context has jumped by then
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(rng.random() / 50)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    opened = open_reconstruction(folder)
    assert 9 <= len(opened.chunks()) < len(whole.chunks())
    assert timeless(opened) == timeless(whole)[: len(opened.chunks())]
    assert rote_here(*command, *SMALL_OPTIONS).code == 0
    same(open_reconstruction(folder), whole)


@pytest.mark.parametrize("torn", [b'{"chunk": 7, "sta', b"\0\0\0\0", b'{"chunk": 7}\n', b"\0\0\n"])
def test_a_half_written_line_counts_as_absent(whole: Reconstruction, model: Any, torn: bytes) -> None:
    path = whole.folder / "chunks.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    expected = timeless(whole)
    path.write_bytes(b"".join(lines[:7]) + torn)
    with pytest.raises(RunError, match=r"chunks\.jsonl is not what was sealed"):  # of a finished one it is damage
        rote.reconstruct(model, SEED, out=whole.folder, writing=SMALL)
    unfinish(whole.folder)
    assert len(whole.chunks()) == 7
    again = rote.reconstruct(model, SEED, out=whole.folder, writing=SMALL)
    assert timeless(again) == expected


@pytest.mark.parametrize(
    ("damaged", "cause"),
    [
        (b"nonsense\n", "Expecting value"),
        (b"[]\n", "Expected `object`, got `array`"),
        (b'{"chunk": 3}\n', "Object missing required field `start`"),
        (None, "it is not the chunk that should stand there"),
    ],
)
def test_a_damaged_line_is_named(damaged: bytes | None, cause: str, whole: Reconstruction, model: Any) -> None:
    path = whole.folder / "chunks.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], damaged or lines[2], *lines[4:]]))
    with pytest.raises(RunError, match=r"chunks\.jsonl is not what was sealed.* or delete it and run the command that"):
        rote.reconstruct(model, SEED, out=whole.folder, writing=SMALL)
    unfinish(whole.folder)
    with pytest.raises(RunError, match=rf"line 4 of .*chunks\.jsonl is damaged \({cause}") as error:
        rote.reconstruct(model, SEED, out=whole.folder, writing=SMALL)
    assert str(error.value).endswith("). Delete it and all lines after it, then run the same command again.")
    assert str(error.value).count("is damaged") == 1


def test_a_finished_text_is_not_generated_again(
    whole: Reconstruction, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (whole.folder / "chunks.jsonl").stat().st_mtime_ns
    monkeypatch.setattr("rote.jobs.reconstruct.add_chunk", None)
    told: list[tuple[str, int, int]] = []
    rote.reconstruct(model, SEED, out=whole.folder, writing=SMALL, progress=lambda *what: told.append(what))
    assert (whole.folder / "chunks.jsonl").stat().st_mtime_ns == before
    assert told[0] == ("generated", 160, 160)


def test_the_truth_may_come_later_and_stays(whole: Reconstruction, model: Any, tmp_path: Path) -> None:
    assert whole.summary.similarity is None
    assert whole.truth is None
    path = tmp_path / "alice.txt"
    path.write_text(SEED + " bank, and of having nothing to do")
    rote.reconstruct(model, SEED, out=whole.folder, truth=path, writing=SMALL)
    first = whole.summary
    assert first.truth is not None
    assert first.truth.name == "alice.txt"
    assert first.similarity is not None
    assert first.similarity.seed_words == len(SEED.split()) - 1  # the random model goes on within its last word
    rote.reconstruct(model, SEED, out=whole.folder, writing=SMALL)
    assert whole.summary == first


def test_another_text_is_refused(whole: Reconstruction, model: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="beams: the folder has 2, this command 3"):
        rote.reconstruct(model, SEED, out=whole.folder, writing=replace(SMALL, beams=3))
    with pytest.raises(RunError, match=r"source\.sha256"):
        rote.reconstruct(model, SEED + " bank", out=whole.folder, writing=SMALL)
    run = rote.scan(model, text, out=tmp_path / "scan", windows=rote.Windows(prefix=8, suffix=6, stride=100))
    with pytest.raises(RunError, match="kind: the folder has 'scan', this command 'reconstruct'"):
        rote.reconstruct(model, SEED, out=run.folder, writing=SMALL)
    with pytest.raises(RunError, match="kind: the folder has 'reconstruct'"):
        rote.scan(model, text, out=whole.folder, windows=rote.Windows(prefix=8, suffix=6, stride=100))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "generated.txt").write_text("my novel")
    with pytest.raises(RunError, match="belongs to no reconstruction"):
        rote.reconstruct(model, SEED, out=tmp_path / "other", writing=SMALL)


def test_what_makes_no_sense_is_refused_before_anything_is_written(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for seed, writing, says in (
        ("  \n", SMALL, "seed has no tokens"),
        (SEED, Writing(), "how long"),
        (SEED, replace(SMALL, tokens=3), "nothing to generate"),
        (SEED + "\ud800", SMALL, "surrogate"),
        (SEED, replace(SMALL, context_tokens=9999), "use at most 127"),
    ):
        with pytest.raises(InputError, match=says):
            rote.reconstruct(model, seed, out=out, writing=writing)
    with pytest.raises(InputError, match="nothing to compare with"):
        rote.reconstruct(model, SEED, out=out, truth=SEED, writing=SMALL)
    assert not out.exists()


def test_what_is_no_longer_there_or_damaged_is_named(whole: Reconstruction) -> None:
    (whole.folder / "generated.txt").rename(whole.folder / "elsewhere")
    with pytest.raises(
        RunError, match=r"generated\.txt is gone, and the seal of .* names it\. Put the right file back, or run"
    ):
        whole.report()
    reseal(whole.folder)
    with pytest.raises(RunError, match=r"cannot read .*generated\.txt: No such file .*\. Run the command that made it"):
        whole.report()
    (whole.folder / "elsewhere").rename(whole.folder / "generated.txt")
    (whole.folder / "seed.json").write_text('{"text": 1, "tokens": []}')
    with pytest.raises(RunError, match=r"seed\.json is not what was sealed: it was changed afterwards"):
        whole.report()
    reseal(whole.folder)
    with pytest.raises(RunError, match=r"seed\.json is damaged: Expected `str`, got `int` - at `\$\.text`\. \w+"):
        whole.report()


def test_a_reconstruction_is_no_run_of_scores(whole: Reconstruction) -> None:
    with pytest.raises(RunError, match="holds a reconstruction, which has no scores"):
        rote.Run.open(whole.folder)


# --- the command line


def test_command_line(tiny_folder: Path, tmp_path: Path, whole: Reconstruction) -> None:
    (tmp_path / "seed.txt").write_text(SEED + "\n")
    (tmp_path / "truth.txt").write_text(SEED + " bank, and of having <b>nothing</b> to do")
    command: list[str | Path] = [
        "reconstruct",
        "--seed",
        tmp_path / "seed.txt",
        "--model",
        tiny_folder,
        "--out",
        tmp_path / "run",
    ]
    command += [*SMALL_OPTIONS, "--truth", tmp_path / "truth.txt"]
    done = rote_here(*command)
    assert done.code == 0, done.err
    found = open_reconstruction(tmp_path / "run")
    assert found.text == whole.text
    assert "similarity" in done.out
    assert "the truth has “the bank, and of having <b>nothing</b> to do”" in done.out
    assert str(tmp_path / "run" / "report.html") in done.out
    page = (tmp_path / "run" / "report.html").read_text()
    assert "&lt;b&gt;nothing&lt;/b&gt;" in page
    assert "<b>nothing" not in page
    again = rote_here(*command, "--json")
    assert json.loads(again.out) == plain(found.summary)
    assert json.loads(again.out) == json.loads((tmp_path / "run/summary.json").read_text())
    shown = rote_here("report", tmp_path / "run")
    assert shown.code == 0
    assert shown.out == done.out


def test_an_unfinished_one_with_a_truth_is_said_to_be_unfinished(model: Any, tmp_path: Path) -> None:
    found = rote.reconstruct(
        model, SEED, out=tmp_path, truth=f"{SEED} bank, and of having nothing to do", writing=SMALL
    )
    unfinish(found.folder)
    (found.folder / "generated.txt").unlink()
    done = rote_here("report", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert "is unfinished (160 of 160 tokens stored)" in " ".join(done.err.split())


def test_ctrl_c_says_how_far_it_came(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command: list[str | Path] = ["reconstruct", "--seed", SEED, "--model", tiny_folder, "--out", folder]
    command += SMALL_OPTIONS
    command[command.index("160")] = "100000"
    with rote_process(*command) as process:
        deadline = time.monotonic() + 120
        while not (folder / "chunks.jsonl").is_file() or not (folder / "chunks.jsonl").read_bytes():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        second = rote_here(*command)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert second.code == 1
    assert "another rote process is writing" in second.err
    assert process.returncode == 130
    stored = len(open_reconstruction(folder).tokens())
    assert f"stopped: {stored:,} of 100,000 tokens stored in {folder}. Run the same command again to go on." in err
    assert "Traceback" not in err
    unfinished = rote_here("report", folder)
    assert unfinished.code == 1
    assert "unfinished" in unfinished.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seed", "nowhere.txt", "--tokens", "100"], "--seed nowhere.txt: there is no such file"),
        (["--seed", "two words.txt", "--tokens", "100"], "there is no such file"),
        (["--seed", "word", "--tokens", "100"], "at least two words"),
        (["--seed", "w" * 5000, "--tokens", "100"], "at least two words"),
        (["--seed", " ", "--tokens", "100"], "--seed has no tokens; give the first sentences"),
        (["--seed", ".", "--tokens", "100"], "is a folder"),
        (["--seed", SEED], "Give --tokens, or --truth"),
        (["--seed", SEED, "--truth", "nowhere.txt"], "nowhere.txt: there is no such file"),
        (["--seed", SEED, "--tokens", "100", "--beams", "1", "--length-penalty", "1"], "changes nothing"),
        (["--seed", SEED, "--tokens", "100", "--section-break", "none", "--missed-after", "5"], "changes nothing"),
        (
            ["--seed", SEED, "--tokens", "100", "--section-break", "{chapter}"],
            "--section-break {chapter} is no section break: give text with {number}",
        ),
        (["--seed", SEED, "--tokens", "100", "--beams", "0"], "--beams must be a whole number of at least 1"),
        (["--seed", SEED, "--tokens", "100", "--step", "600"], "leaves no room"),
    ],
)
def test_mistakes_end_in_one_line(
    arguments: list[str], says: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = rote_here("reconstruct", *arguments, "--model", tiny_folder, "--device", "cpu")
    assert done.code == 1
    assert done.err.strip().startswith("error: ")
    assert says in " ".join(done.err.split())
    assert list(tmp_path.iterdir()) == []


def test_a_context_that_is_none_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="context must be sliding or anchored, not 'frozen'"):
        Writing(context="frozen")  # type: ignore[arg-type]
    done = rote_here("reconstruct", "--seed", SEED, "--tokens", "100", "--context", "frozen", "--out", tmp_path / "run")
    assert done.code == 2
    assert "'--context'" in done.err
    assert "'frozen' is not one of 'sliding', 'anchored'" in done.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("seed", "truth", "word"), [
    ("Alice was be", "Alice was beginning to get", "be|ginning"),
    ("Alice was beginning", "Alice was beginning to get", ""),
    ("Alice was beginning to", "Alice was\r\nbeginning  to get", ""),
    ("Alice\nwas beg", "Alice  was beginning", "beg|inning"),
    ("was be", "what was be. Alice was beginning", ""),  # one place where a word ends is enough
    ("Alice was", "Alice was, of course", ""),
    ("another text", "Alice was beginning", ""),
    ("café na", "un café naïf", "na|ïf"),
    ("東京", "東京都は", ""),  # nobody knows where a word ends
    ("the end", "the end", ""),
    ("", "the end", ""),
])  # fmt: skip
def test_where_a_seed_ends(seed: str, truth: str, word: str) -> None:
    assert word_cut(seed, truth) == word


def test_a_seed_that_ends_inside_a_word_is_warned_of(model: Any, tmp_path: Path) -> None:
    cut = f"{SEED} so ver"
    found = rote.reconstruct(model, cut, out=tmp_path, truth=f"{SEED} so very tired of it", writing=SMALL)
    (warning,) = found.summary.warnings
    assert warning.startswith("the seed ends inside a word of the truth (ver|y): ")
    assert warning in (tmp_path / "report.html").read_text()
    whole = rote.reconstruct(model, cut, out=tmp_path, truth=f"{SEED} so ver y tired of it", writing=SMALL)
    assert not whole.summary.warnings
