"""rote.open: what a folder holds, what can be done with it, and what is said of files that are none of this version."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import rote
from rote import BenchScore, Membership, Reconstruction, Run, RunError, SavedComparison, Sweep
from rote.cli.screen import print_summary
from rote.corpus.bench import Guess, write_guesses, write_ids
from rote.store.seal import read_seal
from rote.store.table import read_shard
from tests.cli.command import rote_here
from tests.jobs.support import SIZES, files
from tests.report.members import membership
from tests.seals import reseal, unfinish

pytest.importorskip("matplotlib")
SEED = "Alice was beginning to get very tired of sitting by her sister on the"
KINDS: dict[str, type[Any]] = {
    "run": Run, "scored": Run, "near": Run, "sweep": Sweep, "comparison": SavedComparison,
    "reconstruction": Reconstruction, "bench": BenchScore, "membership": Membership,
}  # fmt: skip


@pytest.fixture(scope="module")
def remake(model: Any, text: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[Path], object]]:
    """By kind of folder: what makes one."""
    runs = tmp_path_factory.mktemp("compared")
    for name, top_k in (("one", 40), ("two", 400)):
        rote.scan(model, text[:400], out=runs / name, schemes=[rote.Scheme(top_k=top_k)], tau=1e-12, windows=SIZES)
    windows = rote.windows(text, model.tokenizer, rote.Windows(prefix=8, suffix=6, stride=200))
    examples = [rote.Example(e.id, e.prefix, e.suffix, metadata={"split": "train"}) for e in windows]
    write_ids(runs / "answers.npy", np.array([[1, 2], [3, 4]]))
    write_guesses(runs / "guesses.csv", [Guess(0, (1, 2)), Guess(1, (1, 2))])
    truth = f"{SEED} bank, and of having nothing to do"
    return {
        "run": lambda out: rote.scan(model, text, out=out, windows=SIZES),
        "scored": lambda out: rote.score(model, examples, out=out),
        "near": lambda out: rote.score(
            model, examples, out=out, near=rote.Near(tolerance=1, budget=20, gap=0.0, until="budget")
        ),
        "sweep": lambda out: rote.sweep(model, examples, out=out, prefixes=[4, 8]),
        "comparison": lambda out: rote.compare([runs / "one", runs / "two"]).write(out),
        "bench": lambda out: rote.bench.score(runs / "guesses.csv", answers=runs / "answers.npy", out=out),
        "membership": lambda out: rote.open(membership(out).folder).report(),
        "reconstruction": lambda out: rote.reconstruct(
            model, SEED, out=out, truth=truth, writing=rote.Writing(tokens=40, step=5, beams=1, context_tokens=30)
        ),
    }


@pytest.fixture(scope="module")
def made(remake: dict[str, Callable[[Path], object]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(rote.jobs.engine.SHARD_FLOPS, "cpu", 1.0)
        for kind, make in remake.items():
            make(folder / kind)
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Callable[[str], Path]:
    return lambda kind: Path(shutil.copytree(made / kind, tmp_path / kind))


# --- what a folder holds


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_folder_is_opened_as_what_it_is(kind: str, copied: Callable[[str], Path]) -> None:
    folder = copied(kind)
    page = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    for given in (folder, str(folder)):
        opened = rote.open(given)
        assert type(opened) is KINDS[kind]
        assert opened.folder == folder
    assert opened.report() == folder / "report.html"
    assert (folder / "report.html").read_bytes() == page
    drawn = opened.figures(format="png")
    assert drawn.folder == folder / "figures"
    assert {path.suffix for path in drawn.figures} == {".png"}
    if kind == "reconstruction":
        with pytest.raises(RunError, match=r"holds a reconstruction.*generated\.txt"):
            opened.export("csv")
    else:
        exported = opened.export("csv")
        assert exported.files == (folder / "export.csv",)
        assert exported.rows == pl.read_csv(folder / "export.csv", infer_schema_length=None).height > 0
    assert type(rote.open(folder)) is KINDS[kind]  # what was written changes nothing


def test_what_was_opened_says_what_the_files_say(made: Path) -> None:
    def content(*names: str) -> Any:
        return json.loads(made.joinpath(*names).read_text())

    run, sweep, comparison, written = (
        rote.open(made / kind) for kind in ("run", "sweep", "comparison", "reconstruction")
    )
    assert isinstance(run, Run)
    assert run.summary.examples == content("run", "summary.json")["examples"] == run.scores.height
    assert isinstance(sweep, Sweep)
    assert [point.prefix for point in sweep.result.points] == [4, 8]
    assert list(sweep.runs()) == ["prefix-4", "prefix-8"]
    assert isinstance(comparison, SavedComparison)
    (pair,) = content("comparison", "comparison.json")["pairs"]
    assert comparison.result.pairs[0].gained == pair["gained"]
    assert comparison.differences.height == comparison.result.common_examples
    assert isinstance(written, Reconstruction)
    assert written.text == (made / "reconstruction/generated.txt").read_text()
    assert written.summary.tokens == len(written.tokens()) == content("reconstruction", "summary.json")["tokens"]


def test_every_json_file_says_its_format(made: Path) -> None:
    names = ("manifest.json", "summary.json", "sweep.json", "comparison.json", "score.json", "seal.json")
    found = [path for name in names for path in made.rglob(name)]
    assert Counter(path.name for path in found) == {
        "manifest.json": 7, "summary.json": 7, "sweep.json": 1, "comparison.json": 1, "score.json": 1, "seal.json": 10,
    }  # fmt: skip
    assert {json.loads(path.read_text())["format"] for path in found} == {7}


def test_what_is_none_of_them_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine")
    with pytest.raises(
        RunError, match=r"has no manifest\.json, so it is not a run folder; give the one that a rote scan was written"
    ):
        rote.open(tmp_path)
    for nowhere in (tmp_path / "nowhere", tmp_path / "notes.md"):
        with pytest.raises(
            RunError, match=rf"there is no folder {nowhere}; give the one that a finished run was written to\."
        ):
            rote.open(nowhere)
    (tmp_path / "manifest.json").write_text("[")
    with pytest.raises(RunError, match=r"cannot read .*manifest\.json: .* Delete the run folder and start anew\."):
        rote.open(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 7, "kind": "novel"}')
    with pytest.raises(RunError, match=r"manifest\.json is damaged: Invalid enum value 'novel' - at `\$\.kind`\. Make"):
        rote.open(tmp_path).report()


def test_what_is_unfinished_is_opened_and_says_so(copied: Callable[[str], Path]) -> None:
    run, written = copied("run"), copied("reconstruction")
    for folder, progress in ((run, "4 of 4 shards stored"), (written, "tokens stored")):
        unfinish(folder)
        opened = rote.open(folder)
        assert isinstance(opened, Run | Reconstruction)
        assert opened.progress().endswith(progress)
        for act in (opened.report, opened.figures, lambda opened=opened: opened.summary):
            with pytest.raises(RunError, match=rf"{folder} is unfinished \(.*{progress}\); run the command that made"):
                act()


def test_a_sweep_a_comparison_and_a_reconstruction_are_no_run(made: Path) -> None:
    for kind, said in (
        ("sweep", r"holds a sweep; give one of its runs, such as .*prefix-4\."),
        ("comparison", "holds a comparison, which has no scores of its own; give one of the runs it names"),
        ("reconstruction", "holds a reconstruction, which has no scores; `rote report` shows it"),
        ("bench", "holds scored guesses, no run; `rote report` shows it"),
    ):
        with pytest.raises(RunError, match=said):
            Run.open(made / kind)


# --- files of another format, and damaged ones


def without(content: dict[str, Any], *path: str | int) -> str:
    """The JSON without one of its fields, at any depth."""
    part: Any = content
    for name in path[:-1]:
        part = part[name]
    del part[path[-1]]
    return json.dumps(content)


SCHEME = "temperature=1 top_k=40"
REQUIRED: dict[tuple[str, str], tuple[str | int, ...]] = {
    ("run", "manifest.json"): ("model", "fingerprint"),
    ("run", "summary.json"): ("schemes", SCHEME, "rates", "rate_at_tau", "interval"),
    ("near", "manifest.json"): ("near", "tolerance"),
    ("scored", "summary.json"): ("schemes", SCHEME, "by_split", 0, "np_table"),
    ("sweep", "sweep.json"): ("points", 1, "perplexity"),
    ("comparison", "comparison.json"): ("pairs", 0, "log_prob", "known"),
    ("bench", "score.json"): ("submissions", 0, "curve", 0, "solved"),
    ("reconstruction", "manifest.json"): ("section_break",),
    ("reconstruction", "summary.json"): ("similarity", "word_ratio"),
}
"""By kind of folder and file: a field that must be there, however deep."""
NEVER_READ = (("run", "summary.json"), ("scored", "summary.json"))
"""Files that are written for other programs: what they say is worked out anew."""

FIXES = {
    ("run", "manifest.json"): "Make the run anew, in another folder.",
    ("near", "manifest.json"): "Make the run anew, in another folder.",
    ("sweep", "sweep.json"): "Run the command that made the sweep again.",
    ("comparison", "comparison.json"): "Compare the runs again: rote compare.",
    ("bench", "score.json"): "Score the guesses again: rote bench score.",
    ("reconstruction", "manifest.json"): "Delete the folder and start anew.",
    ("reconstruction", "summary.json"): "Run the command that made it again to restore it.",
}


def damages(kind: str, name: str, content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What a file may hold instead, and what is then said of it."""
    reads = "but this version of Rote reads format 7"
    yield json.dumps({**content, "format": 4}), f"has format 4, {reads}"
    yield json.dumps({**content, "format": "5"}), f"has format '5', {reads}"
    yield json.dumps({key: value for key, value in content.items() if key != "format"}), f"names no format, {reads}"
    part = next(name for name in ("model", "source", "answers") if name in content)
    yield json.dumps({**content, part: "x"}), "Expected `object`, got `str` - at"
    yield json.dumps({**content, "kind": None}), "is damaged: "
    path = REQUIRED[kind, name]
    yield without(json.loads(json.dumps(content)), *path), f"Object missing required field `{path[-1]}`"


@pytest.mark.parametrize(("kind", "name"), REQUIRED)
def test_a_file_of_another_format_or_damaged_is_refused_by_every_command(
    kind: str, name: str, copied: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, out = copied(kind), tmp_path / "out"
    commands: list[list[str | Path]] = [["report", folder], ["figures", folder, "--out", out]]
    if kind != "reconstruction":  # which has nothing to export, whatever its files say
        commands += [["export", folder, "--to", to, "--out", out] for to in ("csv", "parquet")]
    content, page = json.loads((folder / name).read_text()), (folder / "report.html").read_text()
    seal = read_seal(folder).id
    for damaged, cause in damages(kind, name, content):
        if '"kind": null' in damaged and (kind, name) == ("reconstruction", "manifest.json"):
            continue  # what it holds is then not known
        (folder / name).write_text(damaged)
        for command in commands:
            changed = "is not what was sealed: it was changed afterwards"
            mended = "in another folder." if name == "manifest.json" else "a new seal then names the old one."
            refused(command, folder, out, folder / name, changed, mended)
        reseal(folder)
        if (kind, name) in NEVER_READ:
            run = Run.open(folder)
            assert run.report().read_text() == page.replace(seal, run.seal.id)
            continue
        for command in commands:
            refused(command, folder, out, folder / name, cause, FIXES[kind, name])


def refused(command: Sequence[str | Path], folder: Path, out: Path, named: Path, cause: str, fix: str) -> None:
    before = files(folder)
    result = rote_here(*command)
    assert (result.code, result.out) == (1, ""), command
    assert len(result.err.strip().splitlines()) == 1, result.err
    assert result.err.startswith(f"error: {named} ")
    assert cause in result.err
    assert result.err.strip().endswith(fix)
    assert files(folder) == before
    assert not out.exists()


@pytest.mark.parametrize(
    ("kind", "name"), [("run", "summary.json"), ("sweep", "sweep.json"), ("reconstruction", "summary.json")]
)
def test_running_the_command_again_restores_what_was_damaged(
    kind: str, name: str, copied: Callable[[str], Path], remake: dict[str, Callable[[Path], object]]
) -> None:
    folder = copied(kind)
    content, seal = json.loads((folder / name).read_text()), (folder / "seal.json").read_bytes()
    for damaged in ("{", "[]", json.dumps({**content, "format": 3}), without(content, "model")):
        (folder / name).write_text(damaged)
        with pytest.raises(RunError, match=re.escape(str(folder / name))):
            rote.open(folder).report()
        before = {path: path.read_bytes() for path in folder.rglob("*.parquet")}
        remake[kind](folder)
        assert {path: path.read_bytes() for path in folder.rglob("*.parquet")} == before
        assert (folder / "seal.json").read_bytes() == seal
        rote.open(folder).report()


def test_a_manifest_with_an_option_that_cannot_be_is_damaged(copied: Callable[[str], Path]) -> None:
    path = copied("reconstruction") / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "beams": 0}))
    reseal(path.parent)
    with pytest.raises(
        RunError,
        match=rf"^{path} is damaged: beams must be a whole number of at least 1, not 0\. Delete the folder and",
    ):
        rote.open(path.parent).report()


def test_the_differences_of_a_comparison_are_checked_too(copied: Callable[[str], Path]) -> None:
    folder = copied("comparison")
    table = folder / "differences.parquet"
    pl.read_parquet(table).drop("log_prob_B").write_parquet(table)
    refused(["figures", folder], folder, folder / "figures", table, "is not what was sealed", "names the old one.")
    reseal(folder)
    result = rote_here("figures", folder)
    assert (result.code, result.out) == (1, "")
    assert len(result.err.strip().splitlines()) == 1
    assert f"error: {table} is damaged: " in result.err
    assert "log_prob_B" in result.err
    assert result.err.strip().endswith("Run rote compare again.")


# --- what is read is read once


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[Path]:
    """How often each shard was read."""
    counted: Counter[Path] = Counter()

    def counting(path: Path) -> pl.DataFrame:
        counted[path] += 1
        return read_shard(path)

    monkeypatch.setattr("rote.store.parts.read_shard", counting)
    return counted


def test_a_scan_its_report_and_its_screen_read_the_table_once(
    model: Any, text: str, tmp_path: Path, reads: Counter[Path]
) -> None:
    run = rote.scan(model, text, out=tmp_path / "run", windows=SIZES)
    once = dict.fromkeys(run.shards(), 1)
    assert len(once) == 4
    screen = io.StringIO()
    print_summary(run, Console(file=screen))
    run.report()
    assert run.view.rows.height == run.scores.height
    assert "report.html" in screen.getvalue()
    assert reads == once


def test_every_command_reads_the_table_once(
    text: str, tiny_folder: Path, tmp_path: Path, reads: Counter[Path], made: Path
) -> None:
    (tmp_path / "book.txt").write_text(text)
    sizes = [word for name, value in asdict(SIZES).items() for word in (f"--{name}", str(value))]
    run, compared = tmp_path / "run", tmp_path / "compared"

    def read_by(*command: str | Path) -> Counter[Path]:
        reads.clear()
        result = rote_here(*command)
        assert result.code == 0, result.err
        return reads

    once = dict.fromkeys((run / f"scores/{number:06d}.parquet" for number in range(4)), 1)
    assert (
        read_by("scan", tmp_path / "book.txt", "--model", tiny_folder, "--out", run, "--device", "cpu", *sizes) == once
    )
    for command in ("report", "figures", "spots"):
        assert read_by(command, run) == once, command
    both = once | dict.fromkeys((made / "run/scores").glob("*.parquet"), 1)
    assert read_by("compare", made / "run", run, "--out", compared) == both
    assert read_by("report", compared) == both


def test_a_handle_keeps_what_it_has_read_and_a_new_one_reads_anew(copied: Callable[[str], Path]) -> None:
    folder = copied("run")
    opened = Run.open(folder)
    scores, summary, manifest = opened.scores, opened.summary, opened.manifest
    shutil.rmtree(folder / "scores")
    (folder / "summary.json").unlink()
    (folder / "manifest.json").unlink()
    assert opened.scores is scores
    assert opened.summary is summary
    assert opened.manifest is manifest
    with pytest.raises(RunError, match=r"has no manifest\.json"):
        Run.open(folder)
