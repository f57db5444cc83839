"""rote spots and rote longer, as someone uses them after a scan."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import Run, Scheme
from rote.analysis.coverage import hot_spots
from rote.analysis.furthest import longest
from rote.corpus.windows import Windows, windows
from rote.errors import InputError
from rote.jobs.engine import check_context
from rote.jobs.longer import longer, starts_before
from rote.jobs.spots import finished_scan
from rote.progress import quiet
from tests import tiny
from tests.cli.command import Result, rote_here, rote_process
from tests.fakes import HashModel
from tests.jobs.support import same_table, wait_for_shards
from tests.seals import reseal, unfinish

SMALL = ("--prefix", "5", "--suffix", "12", "--device", "cpu")
SMALL_SHARDS = "import rote.jobs.engine; rote.jobs.engine.SHARD_FLOPS['cpu'] = 1.0"


@pytest.fixture(scope="module")
def book(alice: str, gatsby: str) -> str:
    """A passage that the bundled model knows between two that it does not."""
    return gatsby[20000:21200] + alice[3000:4200] + gatsby[30000:31200]


@pytest.fixture(scope="module")
def scanned(book: str, bundled: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "book"
    rote.scan(bundled, book, out=folder, name="book.txt", windows=Windows(prefix=20, suffix=10, stride=25))
    return folder


def refused(result: Result, *words: str) -> None:
    assert result.code == 1, result.out
    assert result.out == ""
    assert len(result.err.strip().splitlines()) == 1, result.err
    for word in words:
        assert word in result.err


# --- spots


def test_spots_are_printed(scanned: Path, book: str) -> None:
    result = rote_here("spots", scanned)
    assert result.code == 0, result.err
    spot = hot_spots(finished_scan(scanned).rows, len(book), 0.5)[0]
    assert 1200 < spot.start < spot.end < 2500
    assert f"{spot.start:,} to {spot.end:,}" in result.out
    assert "The part is a guess" in result.out
    assert "█" in result.out


def test_spots_as_json(scanned: Path, book: str) -> None:
    found = json.loads(rote_here("spots", scanned, "--json", "--at", "0.9", "--rank", "probability", "--top", "2").out)
    expected = hot_spots(finished_scan(scanned).rows, len(book), 0.9, rank="probability")
    assert found["hot_spots"] == len(expected)
    assert (found["threshold"], found["rank"], found["source"]) == (0.9, "probability", "book.txt")
    assert len(found["spots"]) == min(2, len(expected))
    for shown, spot in zip(found["spots"], expected[:2], strict=True):
        assert shown["log_prob"] == spot.log_prob
        assert shown["text"] == book[spot.start : spot.end]
        assert (shown["part"], shown["part_guessed"]) == ("work", True)


def test_spots_of_whole_examples_have_the_prefixes_too(scanned: Path, book: str) -> None:
    suffixes, examples = (
        json.loads(rote_here("spots", scanned, "--json", "--span", span).out) for span in ("suffix", "example")
    )
    expected = hot_spots(finished_scan(scanned).rows, len(book), 0.5, span="example")
    assert examples["characters"] == sum(spot.characters for spot in expected) > suffixes["characters"]
    assert "whole examples, prefixes included" in rote_here("spots", scanned, "--span", "example").out


def test_spots_outside_a_given_body(scanned: Path) -> None:
    result = rote_here("spots", scanned, "--body", "3000:3500")
    assert "front matter" in result.out
    assert "guess" not in result.out


def test_spots_of_a_text_that_is_not_known(book: str, bundled: Any, tmp_path: Path) -> None:
    rote.scan(bundled, book[:900], out=tmp_path / "run", windows=Windows(stride=100))
    result = rote_here("spots", tmp_path / "run")
    assert result.code == 0
    assert "0 hot-spots at p ≥ 50%" in result.out
    assert "No window reaches 50%: " in result.out
    nothing = rote_here("longer", tmp_path / "run", "--json", "--out", tmp_path / "more")
    assert (nothing.code, nothing.out) == (0, "null\n")
    assert "has no hot-spot at p ≥ 0.5" in nothing.err
    assert "Nothing was scored or written" in nothing.err
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--at", "0"), ("--at", "(0, 1]", "not 0")),
        (("--at", "nan"), ("--at", "not nan")),
        (("--top", "0"), ("--top", "at least 1", "not 0")),
        (("--body", "7"), ("--body 7", "START:END")),
    ],
)
def test_bad_options_of_spots(options: tuple[str, ...], words: tuple[str, ...], scanned: Path) -> None:
    refused(rote_here("spots", scanned, *options), *words)


def test_an_order_of_spots_that_is_none(scanned: Path) -> None:
    result = rote_here("spots", scanned, "--rank", "size")
    assert (result.code, result.out) == (2, "")
    assert "'--rank'" in result.err
    assert "'size' is not one of 'length', 'probability'" in result.err
    with pytest.raises(InputError, match="'length' or 'probability', not by 'size'"):
        rote.spots(scanned, rank="size")  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["spots", "longer"])
def test_folders_that_are_no_finished_scan(command: str, scanned: Path, bundled: Any, tmp_path: Path) -> None:
    refused(
        rote_here(command, tmp_path / "nowhere"),
        f"there is no folder {tmp_path / 'nowhere'}",
        "that a finished run was written to",
    )
    refused(rote_here(command, tmp_path), "not a run folder")
    unfinished = Path(shutil.copytree(scanned, tmp_path / "unfinished"))
    unfinish(unfinished)
    refused(rote_here(command, unfinished), "is unfinished")
    without = Path(shutil.copytree(scanned, tmp_path / "without"))
    (without / "text.txt").unlink()
    refused(rote_here(command, without), f"{without}/text.txt is gone, and the seal", "run the command that made it")
    reseal(without)
    refused(rote_here(command, without), "text.txt is gone; run the scan again to restore it")
    rote.score(bundled, [rote.Example("x", (1, 2), (3,))], out=tmp_path / "scores")
    refused(rote_here(command, tmp_path / "scores"), "is a score run", "rote scan")


# --- longer


def test_longer_windows_start_their_suffixes_in_hot_spots(scanned: Path, book: str, bundled: Any) -> None:
    result = rote_here("longer", scanned, *SMALL, "--at", "0.6")
    assert result.code == 0, result.err
    run = Run.open(f"{scanned}-longer")
    assert "12 is a whole suffix: it may go on beyond" in " ".join(result.out.split())
    assert "rote longer" not in result.out  # this is what made it
    assert "10 is a whole suffix: rote longer looks further" in " ".join(rote_here("report", scanned).out.split())
    spots = hot_spots(finished_scan(scanned).rows, len(book), 0.6)
    everywhere = windows(book, bundled.tokenizer, Windows(prefix=5, suffix=12, stride=10))
    expected = [e for e in everywhere if any(spot.start <= (e.suffix_start or 0) < spot.end for spot in spots)]
    assert run.scores["start"].to_list() == [e.start for e in expected]
    assert run.manifest.kind == "scan"
    assert run.text == book
    within = run.finished.windows.within
    assert within is not None
    inside = [s for s in range(0, len(book), 10) if any(a <= s < b for a, b in within)]
    assert run.manifest.dropped == len(inside) - len(expected) == 0
    assert [r.log_prob for r in rote.verbatim(bundled, expected)] == pytest.approx(
        run.scores["log_prob"].to_list(), abs=1e-4
    )
    found = run.summary.schemes["temperature=1 top_k=40"].longest
    assert found is not None
    table = longest(run.scores)
    assert list(found) == list(table)
    for key, entry in found.items():
        assert entry == table[key]
        if entry is not None:
            assert f"characters {entry.suffix_start:,} to {entry.suffix_end:,}" in result.out
            row = next(e for e in expected if e.id == entry.example_id)
            cut = book[entry.suffix_start : entry.suffix_end]
            assert bundled.tokenizer.decode(row.suffix[: entry.tokens]) == cut
    assert "chosen part" in result.out
    page = (run.folder / "report.html").read_text()
    assert "The longest sequences" in page
    assert "windows.within in manifest.json" in page


def test_dropped_windows_of_regions_are_counted(alice: str, bundled: Any, tmp_path: Path) -> None:
    cut = Windows(prefix=10, suffix=20)
    run = rote.scan(bundled, alice[3000:3400], out=tmp_path / "run", windows=cut, within=[(0, 55), (300, 400)])
    starts = [*range(0, 55, 10), *range(300, 400, 10)]
    assert run.scores.height + run.manifest.dropped == len(starts)
    assert run.manifest.dropped > 0
    assert run.finished.windows.within == [(0, 55), (300, 400)]
    stored = json.loads((tmp_path / "run/manifest.json").read_text())
    assert stored["windows"]["within"] == [[0, 55], [300, 400]]
    with pytest.raises(InputError, match="not one window of 10 \\+ 20 tokens starts in the given parts"):
        rote.scan(bundled, alice[3000:3400], out=tmp_path / "none", windows=cut, within=[(390, 400)])
    assert not (tmp_path / "none").exists()


def test_a_window_beyond_the_context(scanned: Path, tmp_path: Path) -> None:
    result = rote_here("longer", scanned, "--prefix", "25", "--suffix", "600", "--out", tmp_path / "run")
    refused(
        result,
        "25 + 600 tokens takes 625 positions",
        "context of 512",
        "beside --prefix 25, --suffix 487 is the largest that fits",
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("bos", [None, 3])
def test_the_largest_suffix_named_is_the_largest_that_fits(bos: int | None) -> None:
    model: Any = HashModel(bos_id=bos, context_length=30)
    largest = 21 if bos is None else 20
    check_context(model, 10, largest)
    with pytest.raises(InputError, match=f"beside prefix=10, suffix={largest} is the largest that fits\\."):
        check_context(model, 10, largest + 1)
    with pytest.raises(InputError, match="use a smaller prefix\\."):
        check_context(model, 40, 1)
    check_context(HashModel(context_length=None), 1000, 1000)


def test_another_model_must_be_asked_for(book: str, tiny_folder: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    loaded = rote.load(model, rote.ModelOptions(device="cpu"))
    everything = Scheme(top_k=None)
    rote.scan(loaded, book[:600], out=tmp_path / "run", windows=Windows(prefix=8, suffix=6), schemes=everything)
    options = ("--at", "1e-300", *SMALL, "--stride", "50")
    shutil.rmtree(model)
    tiny.save(model, seed=1)
    refused(
        rote_here("longer", tmp_path / "run", *options), "was made with another model: its fingerprint", "Give --model"
    )
    assert not (tmp_path / "run-longer").exists()
    result = rote_here("longer", tmp_path / "run", *options, "--model", model)
    assert result.code == 0, result.err


def test_options_of_longer_that_cannot_be(scanned: Path) -> None:
    for option in ("--prefix", "--suffix", "--stride"):
        refused(rote_here("longer", scanned, option, "0", "--device", "cpu"), option, "at least 1, not 0")
    refused(rote_here("longer", scanned, "--at", "2"), "--at", "not 2")
    refused(rote_here("longer", scanned, "--batch-size", "x", "--device", "cpu"), "--batch-size")


def test_longer_goes_on_after_a_kill(
    scanned: Path, tmp_path: Path, bundled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rote.jobs.engine.SHARD_FLOPS, "cpu", 1.0)
    whole = longer(scanned, bundled, out=tmp_path / "whole", prefix=5, suffix=12, at=0.5)
    assert whole is not None
    assert len(whole.shards()) > 2
    arguments = ("longer", scanned, *SMALL, "--out", tmp_path / "run")
    with rote_process(*arguments, before=SMALL_SHARDS) as process:
        wait_for_shards(process, tmp_path / "run", 1)
        process.kill()
    assert len(Run.open(tmp_path / "run").shards()) < len(whole.shards())
    result = rote_here(*arguments)
    assert result.code == 0, result.err
    same_table(Run.open(tmp_path / "run"), whole)
    other = rote_here(*arguments, "--at", "0.97")
    assert other.code == 1
    assert "made differently" in other.err
    assert "windows.within: the folder has [[" in other.err


def test_starts_before_regions(book: str, bundled: Any) -> None:
    regions = [(1300, 1310), (1500, 1900), (3500, 3600)]
    cut = Windows(prefix=7, suffix=1, stride=3)
    within = starts_before(book, bundled.tokenizer, regions, cut, quiet)
    chosen = [e.start for e in windows(book, bundled.tokenizer, cut, within=within)]
    everywhere = windows(book, bundled.tokenizer, cut)
    assert chosen == [e.start for e in everywhere if any(a <= (e.suffix_start or 0) < b for a, b in regions)]
    assert starts_before(book, bundled.tokenizer, [], cut, quiet) == []


@pytest.mark.parametrize("command", ["spots", "longer"])
def test_another_text_than_the_one_scored_is_refused(command: str, scanned: Path, tmp_path: Path) -> None:
    shutil.copytree(scanned, tmp_path / "run")
    text = (tmp_path / "run/text.txt").read_text(encoding="utf-8")
    (tmp_path / "run/text.txt").write_text(text.replace("a", "e", 1), encoding="utf-8")
    refused(rote_here(command, tmp_path / "run"), "run/text.txt is not what was sealed", "Put the right file back")
    reseal(tmp_path / "run")
    refused(rote_here(command, tmp_path / "run"), "is not the text that was scored")
