"""Run folders that are damaged, full or out of bounds: every error names the file, and nothing is lost or made up."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import rote
from rote import Run, RunError
from rote.jobs.score import decoded_ends
from rote.report.text.words import summary_lines
from rote.store.files import locked, make_folder, pretty, whole_file, write_whole
from rote.store.run import add_shard, has_shard
from rote.store.summary import LookedAt
from rote.store.table import CandidateColumns, NearColumns, ShardFacts
from tests.cases import cases
from tests.cli.command import rote_here
from tests.jobs.support import SIZES, same_table
from tests.seals import reseal, unfinish


def test_a_truncated_shard_is_named_and_can_be_made_again(
    undisturbed: Run, model: Any, text: str, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(undisturbed.folder, tmp_path / "run"))
    shard = Run(folder).shards()[2]
    shard.write_bytes(shard.read_bytes()[:-100])
    acts: list[Callable[[], object]] = [
        lambda: Run(folder).report(),
        lambda: rote.scan(model, text, out=folder, windows=SIZES),
    ]
    for act in acts:
        with pytest.raises(RunError, match=r"000002\.parquet is not what was sealed.* delete it and run the command"):
            act()
    reseal(folder)
    for act in [lambda: Run(folder).scores, *acts]:
        with pytest.raises(RunError, match=r"000002\.parquet is damaged .* Delete it and run the command that made"):
            act()
    shard.unlink()
    with pytest.raises(RunError, match="unfinished"):
        Run(folder).report()
    same_table(rote.scan(model, text, out=folder, windows=SIZES), undisturbed)


def test_a_flipped_bit_never_gives_another_number(undisturbed: Run) -> None:
    shard, good = undisturbed.shards()[1], undisturbed.scores
    content = shard.read_bytes()
    rng = random.Random(0)
    noticed = 0
    for _ in range(200):
        broken = bytearray(content)
        broken[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        shard.write_bytes(broken)
        try:
            read = Run(undisturbed.folder).scores
        except RunError:
            noticed += 1
        else:  # the bit decides nothing, such as one of the statistics
            assert_frame_equal(read, good, check_exact=True)
    assert noticed > 100


def test_a_parquet_file_that_is_no_shard_is_refused(undisturbed: Run) -> None:
    pl.DataFrame({"example_id": ["w0"]}).write_parquet(undisturbed.shards()[0])
    reseal(undisturbed.folder)
    with pytest.raises(RunError, match=r"000000\.parquet is damaged"):
        _ = Run(undisturbed.folder).scores


def test_a_damaged_manifest_is_named(undisturbed: Run, model: Any, text: str) -> None:
    (undisturbed.folder / "manifest.json").write_text('{"format": 1,')
    with pytest.raises(RunError, match=r"cannot read .*manifest\.json"):
        rote.scan(model, text, out=undisturbed.folder, windows=SIZES)
    assert "manifest.json" in rote_here("report", undisturbed.folder).err


def test_a_missing_text_is_named(undisturbed: Run) -> None:
    (undisturbed.folder / "text.txt").unlink()
    with pytest.raises(
        RunError, match=r"text\.txt is gone, and the seal of .* names it\. Put the right file back, or run the"
    ):
        Run(undisturbed.folder).report()
    reseal(undisturbed.folder)
    with pytest.raises(RunError, match=r"cannot read .*text\.txt"):
        Run(undisturbed.folder).report()


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    no_run = "has no manifest.json, so it is not a run folder; give the one that a rote scan was written to."
    for folder, said in (
        (tmp_path, f"{tmp_path} {no_run}"),
        (nowhere, f"there is no folder {nowhere}; give the one that a finished run was written to."),
    ):
        result = rote_here("report", folder)
        assert result.code == 1
        assert said in result.err
        assert "Traceback" not in result.err


@pytest.mark.parametrize("after", range(9))  # text, manifest, four shards, summary, seal, report
def test_disk_full_then_not(
    after: int, undisturbed: Run, model: Any, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    fsync = os.fsync
    room = after

    def full(file: int) -> None:
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room -= 1
        fsync(file)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=r"cannot write .*: No space left on device\. Free some space"):
            rote.scan(model, text, out=folder, windows=SIZES)
    assert not list(folder.rglob("*.part"))
    assert len(list((folder / "scores").iterdir())) == min(max(after - 2, 0), 4)
    same_table(rote.scan(model, text, out=folder, windows=SIZES), undisturbed)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "rote-test", str(place)]
    if os.name != "posix" or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs takes Linux and root; test_disk_full_then_not covers the rest")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_really_full(undisturbed: Run, tiny_folder: Path, small_disk: Path, tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text(undisturbed.text or "")
    sizes = [word for name, value in asdict(SIZES).items() for word in (f"--{name}", str(value))]
    command: list[str | Path] = [
        "scan",
        book,
        "--model",
        tiny_folder,
        "--out",
        small_disk / "run",
        "--device",
        "cpu",
        *sizes,
    ]
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(30 << 10))
    result = rote_here(*command)
    assert result.code == 1
    assert "No space left on device. Free some space" in result.err
    assert "Traceback" not in result.err
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    assert rote_here(*command).code == 0
    assert_frame_equal(Run.open(small_disk / "run").scores, undisturbed.scores, check_exact=True)


def test_a_folder_that_cannot_be_made(model: Any, text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError, match=r"cannot make the folder .*file.* Choose another out"):
            rote.scan(model, text, out=out, windows=SIZES)
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(model: Any, text: str, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    with pytest.raises(RunError, match="not writable"):
        rote.scan(model, text, out=folder, windows=SIZES)


def test_a_lock_that_cannot_be_written(model: Any, text: str, tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(RunError, match=r"cannot write .*\.lock"):
        rote.scan(model, text, out=tmp_path, windows=SIZES)


@cases(60)
@given(text=st.text(alphabet="ab é世🐇 ‍\n", max_size=40))
def test_decoded_tokens_end_where_their_text_does(bundled: Any, text: str) -> None:
    """Every end lies where the tokens so far have been decoded, as far as whole characters go."""
    tokenizer = bundled.tokenizer
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"] or [5]
    decoded = tokenizer.decode(tokens)
    (ends,) = decoded_ends(tokenizer, [(tokens, decoded)])
    assert len(ends) == len(tokens)
    assert ends[-1] == len(decoded)
    assert list(ends) == sorted(ends)
    for count, end in enumerate(ends, 1):
        assert tokenizer.decode(tokens[:count]).startswith(decoded[:end])
        assert tokenizer.decode(tokens[:count]).rstrip("\ufffd") == decoded[:end].rstrip("\ufffd")


def test_texts_of_examples_that_were_changed_are_refused(model: Any, tmp_path: Path) -> None:
    run = rote.score(model, [rote.Example("a", (5, 6), (7, 8))], out=tmp_path / "run")
    path = run.folder / "examples.jsonl"
    whole = path.read_text()
    for changed in (whole.replace('"suffix_text": "', '"suffix_text": "forged '), whole[:-20], ""):
        path.write_text(changed)
        with pytest.raises(RunError, match=r"examples\.jsonl is not what was sealed"):
            Run(run.folder).report()
        reseal(run.folder)
        with pytest.raises(RunError, match="does not hold the examples that were scored"):
            Run(run.folder).report()
    path.write_text(whole)
    reseal(run.folder)
    Run(run.folder).report()


def test_what_summary_json_says_is_never_believed(undisturbed: Run) -> None:
    """Where it is changed, the seal tells; where that is forged too, the numbers come from the rows all the same."""
    path, page = undisturbed.folder / "summary.json", undisturbed.report().read_text()
    content = json.loads(path.read_text())
    for forged in ("[]", json.dumps({**content, "examples": content["examples"] + 1, "schemes": {}})):
        path.write_text(forged)
        with pytest.raises(RunError, match=r"summary\.json is not what was sealed"):
            Run(undisturbed.folder).report()
        reseal(undisturbed.folder)
        again = Run(undisturbed.folder)
        assert again.summary == undisturbed.summary
        assert again.report().read_text() == page.replace(undisturbed.seal.id, again.seal.id)
        assert json.loads(rote_here("report", undisturbed.folder, "--json").out) == content


def test_a_scan_says_how_much_of_the_text_it_looked_at(model: Any, text: str, tmp_path: Path) -> None:
    run = rote.scan(model, text, out=tmp_path / "run", windows=rote.Windows(prefix=8, suffix=6, stride=150))
    seen = {c for start, end in run.scores.select("suffix_start", "suffix_end").rows() for c in range(start, end)}
    between = max(seen) + 1 - min(seen) - len(seen)
    assert run.summary.looked_at == LookedAt(characters=len(seen), share=len(seen) / len(text), gaps=between)
    words = "\n".join(summary_lines(run.finished))
    given = "A prompt’s own characters are given to the model and can never count"
    assert f"{given}; at this stride, {between:,} characters between suffixes were not looked at." in words
    assert f"of the {len(seen):,} characters looked at, {100 * len(seen) / len(text):.1f}% of the text: at 1% " in words
    close = rote.scan(model, text, out=tmp_path / "close", windows=rote.Windows(prefix=8, suffix=6, stride=5))
    words = "\n".join(summary_lines(close.finished))
    assert given in words
    assert "not looked at" not in words


def a_folder(folder: Path, manifest: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_only_folders_of_runs_of_this_format_are_opened(undisturbed: Run, tmp_path: Path) -> None:
    good = json.loads((undisturbed.folder / "manifest.json").read_text())
    assert Run.open(str(a_folder(tmp_path / "good", good))).folder == tmp_path / "good"
    for other, said in ((5, "has format 5"), (8, "has format 8"), ("7", "has format '7'"), (None, "names no format")):
        folder = a_folder(tmp_path / f"format {other}", {**good, "format": other})
        with pytest.raises(
            RunError,
            match=rf"manifest\.json {said}, but this version of Rote reads format 7\. Make the run anew, in another",
        ):
            Run.open(folder)
    with pytest.raises(RunError, match="holds a reconstruction, which has no scores"):
        Run.open(a_folder(tmp_path / "reconstructed", {"format": 7, "kind": "reconstruct"}))
    sweep = a_folder(tmp_path / "sweep" / "prefix-70", {"format": 7}).parent
    (sweep / "sweep.json").write_text("{}")
    with pytest.raises(RunError, match=r"holds a sweep; give one of its runs, such as .*prefix-70\."):
        Run.open(sweep)


def test_a_run_is_finished_with_its_summary_its_last_shard_and_its_seal(undisturbed: Run) -> None:
    assert undisturbed.summary.examples == undisturbed.scores.height
    kept = {path: path.read_bytes() for path in (undisturbed.folder / "summary.json", undisturbed.shards()[-1])}
    seal = undisturbed.folder / "seal.json"
    sealed = seal.read_bytes()
    for path, content in kept.items():
        path.unlink()
        with pytest.raises(RunError, match=rf"{path} is gone, and the seal of {undisturbed.folder} names it"):
            _ = Run(undisturbed.folder).summary
        seal.unlink()
        stored = len(undisturbed.shards())
        with pytest.raises(RunError, match=rf"is unfinished \({stored} of 4 shards stored\)"):
            _ = Run(undisturbed.folder).summary
        path.write_bytes(content)
        with pytest.raises(RunError, match=r"has no seal\.json.* Put the seal back; or make it anew"):
            _ = Run(undisturbed.folder).summary
        seal.write_bytes(sealed)
    again = Run(undisturbed.folder)
    assert again.summary.examples == again.scores.height


def test_a_run_without_shards_has_a_table_without_rows(undisturbed: Run) -> None:
    whole = undisturbed.scores
    unfinish(undisturbed.folder)
    for shard in undisturbed.shards():
        shard.unlink()
    assert_frame_equal(Run(undisturbed.folder).scores, whole.clear())


def test_the_text_is_the_one_that_was_scored_or_an_error(undisturbed: Run, text: str) -> None:
    assert undisturbed.text == text
    passages = undisturbed.texts
    for row in undisturbed.scores.to_dicts():
        assert passages[row] == (
            text[row["start"] : row["suffix_start"]],
            text[row["suffix_start"] : row["suffix_end"]],
        )
    (undisturbed.folder / "text.txt").write_text(text + ".")
    with pytest.raises(RunError, match=r"text\.txt is not what was sealed"):
        _ = Run(undisturbed.folder).text
    reseal(undisturbed.folder)
    with pytest.raises(RunError, match=r"text\.txt is not the text that was scored"):
        _ = Run(undisturbed.folder).text
    (undisturbed.folder / "text.txt").unlink()
    with pytest.raises(RunError, match=r"text\.txt is gone, and the seal of"):
        _ = Run(undisturbed.folder).texts
    reseal(undisturbed.folder)
    gone = Run(undisturbed.folder)
    assert gone.text is None
    with pytest.raises(RunError, match=r"cannot read .*text\.txt: it is gone"):
        _ = gone.texts


def test_examples_keep_their_texts_and_near_verbatim_columns(model: Any, tmp_path: Path) -> None:
    given = [rote.Example("a", (5, 6), (7, 8), metadata={"source": "Brontë"}), rote.Example("b", (9,), (10,))]
    run = rote.score(model, given, out=tmp_path / "run")
    assert run.text is None
    passages, entries = run.texts, run.examples
    assert [entry.id for entry in entries] == ["a", "b"]
    for row, entry in zip(run.scores.to_dicts(), entries, strict=True):
        assert passages[row] == (entry.prefix_text, entry.suffix_text)
    assert run.scores["metadata"].to_list() == ['{"source": "Brontë"}', "{}"]
    results = rote.verbatim(model, given)
    kept = CandidateColumns(tokens=(7, 9), text="near", log_prob=-1.5, set_log_prob=None, distance=1)
    near = [
        near_columns(lower=0.25, upper=0.5, verdict="extractable", candidates=[kept]),
        near_columns(lower=0.0, upper=0.125, verdict="undecided", candidates=[]),
    ]
    assert run.scores["lower"].to_list() == [None, None]
    unfinish(run.folder)
    add_shard(run.folder, 0, given, results, ShardFacts(1.0, ["careful"]), near)
    changed = Run(run.folder)
    assert changed.scores["lower"].to_list() == [0.25, 0.0]
    assert changed.scores["upper"].to_list() == [0.5, 0.125]
    assert changed.scores["verdict"].to_list() == ["extractable", "undecided"]
    assert changed.scores["estimate"].to_list() == [None, None]
    assert changed.scores["candidates"].to_list() == [
        [{"tokens": [7, 9], "text": "near", "log_prob": -1.5, "set_log_prob": None, "distance": 1}],
        [],
    ]
    assert changed.facts() == [ShardFacts(1.0, ["careful"])]
    assert (has_shard(run.folder, 0), has_shard(run.folder, 1)) == (True, False)
    (run.folder / "examples.jsonl").unlink()
    with pytest.raises(RunError, match=r"cannot read .*examples\.jsonl: No such file or directory\. Run the command"):
        _ = Run(run.folder).examples


def near_columns(*, lower: float, upper: float, verdict: str, candidates: list[CandidateColumns]) -> NearColumns:
    return NearColumns(
        lower=lower, upper=upper, lower_by_tolerance=[lower], upper_by_tolerance=[upper], verdict=verdict,
        near_token_evals=3, eos_mass=0.0, estimate=None, estimate_error=None, candidates=candidates,
        greedy_distance=None,
    )  # fmt: skip


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "run"),
        pytest.raises(RunError, match="another rote process is writing"),
        locked(tmp_path / "run"),
    ):
        pass
    with locked(tmp_path / "run"):  # it is let go
        pass


def test_what_stands_in_the_place_of_a_file_is_left_there(model: Any, text: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").mkdir()
    with pytest.raises(RunError, match=r"text\.txt is there already"):
        rote.scan(model, text, out=tmp_path, windows=SIZES)
    assert (tmp_path / "text.txt").is_dir()


def test_files_and_folders_are_made_or_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write .*nowhere/file: No such file or directory"):
        write_whole(tmp_path / "nowhere" / "file", b"x")
    for _ in range(2):
        make_folder(tmp_path / "one" / "in" / "another")
        write_whole(tmp_path / "one" / "in" / "another" / "file", b"x")
    assert [path.name for path in (tmp_path / "one" / "in" / "another").iterdir()] == ["file"]
    with pytest.raises(KeyError), whole_file(tmp_path / "half"):  # an error of another kind is not hidden
        raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert pretty({"name": "Brontë", "of": {"a": 1}}).decode() == '{\n "name": "Brontë",\n "of": {\n  "a": 1\n }\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):  # no reader but Python's takes NaN
        pretty({"mean": float("nan")})
