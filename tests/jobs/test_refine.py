"""Scans in stages: the numbers of a full scan, whatever happens meanwhile; and an audit that tells a bad rule."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import rote
from rote import InputError, Near, Refine, Run, RunError, Scheme, Windows
from rote.analysis import refine as rule
from rote.jobs import engine
from rote.store.seal import ASIDE, SEAL
from rote.store.stages import Audit
from rote.store.summary import Summary
from tests.cases import all_cases
from tests.cli.command import rote_here, rote_process
from tests.jobs.support import files, same_table, wait_for_shards
from tests.reference.refine import covered

SMALL_SHARDS = "import rote.jobs.engine; rote.jobs.engine.SHARD_FLOPS['cpu'] = 1.0"
HOW: dict[str, Any] = {
    "windows": Windows(prefix=8, suffix=6, stride=2), "schemes": "temperature=1", "tau": 1e-22,
    "refine": Refine(audit=20),
}  # fmt: skip
"""A scan of the tiny model in stages, some of them of several shards, that leaves some windows out in the end."""

STAGES = 9


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(RunError) as error:
        act()
    return str(error.value)


def check_against(run: Run, full: Run, *, exact: bool = True) -> None:
    """What a scan in stages must be, seen beside the scan of all windows."""
    everything, rows = full.rows(full.manifest.schemes[0]), run.rows(run.manifest.schemes[0])
    assert run.places is not None
    assert_frame_equal(run.places, everything.select("start", "suffix_start", "suffix_end"))
    assert run.complete
    assert [stage.kind for stage in run.stages] == ["tiles", "tiles", *["closer"] * 6, "audit"]
    for number, stage in enumerate(run.stages):
        assert stage.starts == rows.filter(pl.col("stage") == number)["start"].to_list() == sorted({*stage.starts})
    assert rows["start"].to_list() == sorted({start for stage in run.stages for start in stage.starts})
    left = run.view.left_out
    outside = set() if left is None else {*left["start"]}
    assert outside == {*everything["start"]} - {*rows["start"]}
    spans = rows.filter(pl.col("stage") <= 1).select("suffix_start", "suffix_end").rows()
    assert covered(spans) == covered(everything.select("suffix_start", "suffix_end").rows())
    assert run.summary.looked_at == full.summary.looked_at
    same = full.scores.filter(pl.col("start").is_in(rows["start"].implode()))
    tables = [each.drop("stage", "token_evals") for each in (run.scores, same)]
    if exact:
        assert_frame_equal(*tables, check_exact=True)
    else:  # windows of different lengths are read beside others, and padded otherwise
        assert_frame_equal(*tables, rel_tol=0, abs_tol=1e-3)

    staged, audited = run.summary.staged, rows.filter(pl.col("stage") == 8)
    assert staged is not None
    assert (staged.ended, staged.stages, staged.windows) == (STAGES, STAGES, everything.height)
    assert (staged.scored, staged.audited) == (rows.height, audited.height)
    assert staged.token_evals + staged.audit_token_evals == rows["token_evals"].sum() == run.summary.token_evals
    for scheme, numbers in run.summary.schemes.items():
        truth, rate = full.summary.schemes[scheme].rates, numbers.rates
        assert rate.examples == truth.examples == everything.height
        for name in ("greedy_rate", "rate_at_tau", "maximum_rate"):
            own = getattr(rate, name)
            assert own.rate <= getattr(truth, name).rate
            assert own.count == round(own.rate * everything.height)
        if left is None:
            assert rate.rate_at_tau.rate == rate.rate_at_tau.rate_upper == truth.rate_at_tau.rate


@pytest.fixture(scope="module")
def passage(alice: str) -> str:
    return alice[3000:3600]


@pytest.fixture(scope="module")
def undisturbed(model: Any, passage: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engine.SHARD_FLOPS, "cpu", 1.0)
        run = rote.scan(model, passage, out=tmp_path_factory.mktemp("staged") / "run", **HOW)
    assert run.view.left_out is not None
    assert sum(len(stage.starts) > 32 for stage in run.stages) >= 3  # stages of several shards
    return run


@pytest.fixture
def folder(undisturbed: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(undisturbed.folder, tmp_path / "run"))


@pytest.fixture
def again(model: Any, passage: str) -> Callable[..., Run]:
    """The command that made the run."""
    return lambda folder, **more: rote.scan(model, passage, out=folder, **{**HOW, **more})


# --- the numbers


PLANTED = Windows(prefix=10, suffix=10, stride=6)


@pytest.fixture(scope="module")
def planted(alice: str, gatsby: str) -> str:
    """Passages that the bundled model knows in a text that it does not know."""
    parts = [gatsby[20_000 + 600 * n : 20_600 + 600 * n] + alice[5000 * n + 3000 :][:150] for n in range(3)]
    return "".join(parts) + gatsby[30_000:30_500]


@pytest.fixture(scope="module")
def full(bundled: Any, planted: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return rote.scan(bundled, planted, out=tmp_path_factory.mktemp("full") / "run", windows=PLANTED)


def reaching(run: Run) -> set[int]:
    return {*run.scores.filter(pl.col("log_prob") >= math.log(run.manifest.tau))["start"]}


def ends(run: Run) -> list[int]:
    """After how many stages others had something to score: the run is sealed then, and told of."""
    return [number for number, stage in enumerate(run.stages) if number and stage.starts]


def audit_of(run: Run) -> Audit:
    audit = run.finished.numbers.audit
    assert audit is not None
    return audit


def test_the_numbers_are_those_of_a_full_scan_and_a_bad_rule_is_exposed(
    full: Run, bundled: Any, planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Summary] = []
    honest = rote.scan(
        bundled, planted, out=tmp_path / "honest", windows=PLANTED, refine=Refine(audit=100),
        on_stage=lambda run: told.append(run.summary),
    )  # fmt: skip
    check_against(honest, full)
    assert reaching(honest) == reaching(full)
    assert len(reaching(full)) > 30
    assert honest.scores.height < 0.75 * full.scores.height
    truth = full.finished.numbers.rates.rate_at_tau.rate
    for summary in (*told, honest.summary):  # from the first stage on
        rate = summary.schemes[full.finished.scheme].rates.rate_at_tau
        assert rate.rate <= truth <= rate.rate_upper
        assert rate.interval == [rate.rate, rate.rate_upper]
    assert [summary.staged.ended for summary in told if summary.staged] == ends(honest)

    monkeypatch.setattr(rule, "closer", lambda places, scores, tau, number: np.zeros(0, dtype=np.int64))
    bad = rote.scan(bundled, planted, out=tmp_path / "bad", windows=PLANTED, refine=Refine(audit=100))
    monkeypatch.undo()
    check_against(bad, full)
    assert len(reaching(bad)) < len(reaching(full)) / 2
    rate = bad.finished.numbers.rates.rate_at_tau
    assert audit_of(honest).hits == 0
    assert audit_of(bad).hits > 5
    assert audit_of(bad).bound > 3 * audit_of(honest).bound
    assert rate.rate < truth <= rate.rate_upper
    missed = len(reaching(full) - {*bad.scores.filter(pl.col("stage") < 8)["start"]}) / audit_of(bad).left_out
    assert audit_of(bad).hits / 100 < audit_of(bad).bound
    assert missed <= audit_of(bad).bound


@pytest.mark.parametrize(
    "how",
    [
        {"schemes": ["temperature=1", Scheme(top_k=3), rote.GREEDY]},
        {"windows": Windows(prefix=30, suffix=25, stride=3, unit="characters")},
        {"normalise": ["line-ends", "spaces", "unwrap"]},
        {"within": [[0, 150], [153, 160], [400, 430]]},  # the suffixes of the second and the third do not touch
        {"within": [[100, 101]], "windows": Windows(prefix=8, suffix=6, stride=1)},
        {"windows": Windows(prefix=8, suffix=2, stride=20)},  # every window is a tile
        {"refine": Refine(audit=0)},
        {"refine": Refine(audit=10_000, audit_seed=3)},
        {"windows": Windows(prefix=8, suffix=6, stride=1)},  # suffixes that begin before those of earlier windows
    ],
    ids=str,
)
def test_whatever_is_asked_for(how: dict[str, Any], model: Any, passage: str, tmp_path: Path) -> None:
    asked = {**HOW, **how}
    text = passage.replace(". ", ".  \r\n") if "normalise" in how else passage
    run = rote.scan(model, text, out=tmp_path / "staged", **asked)
    full = rote.scan(model, text, out=tmp_path / "full", **{**asked, "refine": None})
    check_against(run, full, exact=asked["windows"].unit == "tokens")
    audited = len(run.stages[8].starts)
    if asked["refine"].audit == 0:
        assert audited == 0
        assert audit_of(run).bound == 1
    elif audited < 20:
        assert run.view.left_out is None
    if asked["refine"].audit == 10_000:  # all that was left out was drawn
        assert audited > 0
        assert run.finished.numbers.audit is None  # every window has a number, as in a full scan
        assert run.finished.numbers.rates == full.finished.numbers.rates
    if "windows" in how and how["windows"].stride == 20:
        sizes, height = [len(stage.starts) for stage in run.stages], full.scores.height
        assert sizes == [-(-height // 2), height // 2, *[0] * 7]
    rote.open(run.folder).report()


@pytest.mark.parametrize("windows", [1, 2, 3])
def test_texts_of_one_two_and_three_windows(windows: int, model: Any, passage: str, tmp_path: Path) -> None:
    cut = Windows(prefix=8, suffix=6, stride=2)
    starts = [example.suffix_end for example in rote.windows(passage, model.tokenizer, cut)]
    text = passage[: starts[windows - 1]]
    full = rote.scan(model, text, out=tmp_path / "full", windows=cut)
    run = rote.scan(model, text, out=tmp_path / "staged", windows=cut, refine=Refine())
    check_against(run, full)
    assert run.scores.height == full.scores.height
    assert abs(full.scores.height - windows) <= 1  # of the last ones, tokens may differ where the text ends
    assert run.finished.numbers.audit is None or run.finished.numbers.audit.bound in (0, 1)


# --- killed, stopped, gone on with


def timeless(run: Run) -> Summary:
    return replace(run.summary, seconds=0.0)


def same_run(run: Run, other: Run) -> None:
    same_table(run, other)
    assert [files(each.folder / "stages") for each in (run,)] == [files(other.folder / "stages")]
    assert run.complete
    assert run.seal.files.keys() == other.seal.files.keys()
    assert not (run.folder / ASIDE).exists()


@pytest.mark.scaled
def test_killed_around_every_file_that_appears(
    undisturbed: Run, again: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kill would leave before and after each file is kept, read, and gone on with."""
    replace_file, folder = os.replace, tmp_path / "run"
    left: list[tuple[Path, int]] = []
    states: dict[int, Summary] = {}

    def keep() -> None:
        left.append((Path(shutil.copytree(folder, tmp_path / f"left-{len(left)}")), max(states, default=0)))

    def keeping(source: Any, target: Any) -> None:
        keep()
        replace_file(source, target)
        keep()

    def note(run: Run) -> None:
        states[len(run.stages)] = timeless(run)

    monkeypatch.setattr(os, "replace", keeping)
    run = again(folder, on_stage=note)
    monkeypatch.undo()
    monkeypatch.setitem(engine.SHARD_FLOPS, "cpu", 1.0)
    same_run(run, undisturbed)
    states[STAGES] = timeless(run)
    assert [*states] == [*ends(undisturbed), STAGES]

    can_be_read = [(kept / SEAL).is_file() and (kept / "summary.json").is_file() for kept, _ in left]
    assert sum(can_be_read) > len(left) / 3
    chosen = left if all_cases() else random.Random(15).sample(left, 6)
    for kept, ended in chosen:
        if (kept / SEAL).is_file() and not (kept / "summary.json").is_file():  # the seal comes first
            assert "run the command that made it again" in refusal(lambda kept=kept: Run.open(kept))  # type: ignore[misc]
        elif (kept / "manifest.json").is_file():
            opened = Run.open(kept)
            if (kept / SEAL).is_file():
                assert timeless(opened) == states[len(opened.stages)]
                assert len(opened.stages) >= ended
            else:
                assert "run the command that made it again" in refusal(lambda opened=opened: opened.summary)  # type: ignore[misc]
        finished = again(kept)
        same_run(finished, undisturbed)
        shutil.rmtree(kept)


@pytest.mark.scaled
def test_kill_minus_nine_again_and_again(bundled: Any, alice: str, gatsby: str, tmp_path: Path) -> None:
    text = gatsby[20_000:20_500] + alice[3000 : 3900 if all_cases() else 3300] + gatsby[30_000:30_300]
    (tmp_path / "book.txt").write_text(text)
    folder = tmp_path / "killed"
    command: list[str | Path] = ["scan", tmp_path / "book.txt", "--prefix", "20", "--suffix", "10", "--stride", "3"]
    command += ["--refine", "--audit", "30", "--device", "cpu", "--out", folder]
    rng = random.Random(15)
    stored = 0
    for _ in range(3 if all_cases() else 1):
        with rote_process(*command, before=SMALL_SHARDS) as process:
            wait_for_shards(process, folder, stored + 2)
            time.sleep(0.3 * rng.random())
            process.kill()
            assert process.wait() == -signal.SIGKILL
        stored = len([*(folder / "scores").glob("[0-9]*.parquet")])
        assert not Run.open(folder).complete
    finished = rote_here(*command)
    assert finished.code == 0, finished.err
    undisturbed = rote.scan(
        bundled, text, out=tmp_path / "undisturbed", name="book.txt", refine=Refine(audit=30),
        windows=Windows(prefix=20, suffix=10, stride=3),
    )  # fmt: skip
    same_run(Run.open(folder), undisturbed)


def stop_at(count: int, error: type[BaseException] = KeyboardInterrupt) -> Callable[[str, int, int], None]:
    """Progress that is stopped once so many windows are scored."""

    def tell(what: str, done: int, total: int) -> None:
        if what == "scored" and done >= count:
            raise error

    return tell


@pytest.mark.parametrize(("scored", "stages"), [(5, 0), (25, 1), (40, 2), (95, 3)])
def test_stopped_by_hand(scored: int, stages: int, undisturbed: Run, again: Callable[..., Run], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt) as stopped:
        again(folder, progress=stop_at(scored))
    (note,) = stopped.value.__notes__
    assert note.startswith(f"{stages} of 9 stages stored in {folder}. Run the same command again to go on.")
    assert ("rote report shows what they say already" in note) == (stages > 0)
    run = Run.open(folder)
    if not stages:
        with pytest.raises(RunError, match=r"is unfinished \(0 of 9 stages stored\); run the command that made it"):
            _ = run.summary
    else:
        assert not run.complete
        assert run.seal.unfinished
        staged = run.summary.staged
        assert staged is not None
        assert (staged.ended, staged.scored) == (stages, sum(len(s.starts) for s in undisturbed.stages[:stages]))
        assert audit_of(run) == Audit(left_out=staged.windows - staged.scored, drawn=0, hits=0, bound=1.0)
        assert run.report().is_file()
        assert run.frame().height == staged.scored
        before = undisturbed.scores.filter(pl.col("stage") < stages)
        assert_frame_equal(run.scores, before, check_exact=True)
    first = run.seal.id if stages else None
    finished = again(folder)
    same_run(finished, undisturbed)
    assert finished.seal.unfinished is None
    assert first is None or first in finished.seal.before


def test_stopped_while_a_stage_is_decided(
    undisturbed: Run, again: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sealed before can be read as before."""
    decide = rule.closer

    def deciding(places: Any, scores: Any, tau: float, number: int) -> Any:
        if number == 3:
            raise KeyboardInterrupt
        return decide(places, scores, tau, number)

    monkeypatch.setattr(rule, "closer", deciding)
    with pytest.raises(KeyboardInterrupt) as stopped:
        again(tmp_path / "run")
    monkeypatch.setattr(rule, "closer", decide)
    assert stopped.value.__notes__ == [
        f"2 of 9 stages stored in {tmp_path / 'run'}. Run the same command again to go on. rote report shows what they "
        "say already."
    ]
    assert len(Run.open(tmp_path / "run").stages) == 2
    assert rote.open(tmp_path / "run").report().is_file()
    same_run(again(tmp_path / "run"), undisturbed)


@pytest.mark.parametrize("at", [1, 5, 8])
def test_whoever_is_told_of_a_stage_may_stop_there(
    at: int, undisturbed: Run, again: Callable[..., Run], tmp_path: Path
) -> None:
    def stop(run: Run) -> None:
        assert run.complete is False
        if len(run.stages) == at:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        again(tmp_path / "run", on_stage=stop)
    run = Run.open(tmp_path / "run")
    assert len(run.stages) == at
    assert run.summary.examples == sum(len(stage.starts) for stage in undisturbed.stages[:at])
    assert run.report().is_file()
    same_run(again(run.folder), undisturbed)


def test_read_while_a_later_stage_is_under_way(undisturbed: Run, again: Callable[..., Run], tmp_path: Path) -> None:
    """What is there of it already is not read: neither its rows nor the list of its windows."""
    folder, states, seen = tmp_path / "run", dict[int, Summary](), 0

    def note(run: Run) -> None:
        states[len(run.stages)] = timeless(run)

    def read(what: str, done: int, total: int) -> None:
        nonlocal seen
        ended = max(states, default=0)
        if what != "scored" or not ended or not (folder / SEAL).is_file():
            return
        run = Run.open(folder)
        assert timeless(run) == states[ended]
        assert run.scores["stage"].max() == ended - 1 or not undisturbed.stages[ended - 1].starts
        assert len(run.stages) == ended
        more = len([*(folder / "scores").iterdir()]) > len(run.shards())
        seen += more and len([*(folder / "stages").iterdir()]) > ended

    again(folder, on_stage=note, progress=read)
    assert seen > 3
    same_run(Run.open(folder), undisturbed)


# --- what does not belong, and what changed


@pytest.mark.parametrize("name", ["stages/00.json", "stages/03.json", "windows.parquet", "scores/000000.parquet"])
def test_what_belongs_to_no_run_of_the_folder_is_not_taken_over(
    name: str, undisturbed: Run, again: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "run" / name).parent.mkdir(parents=True)
    shutil.copy(undisturbed.folder / name, tmp_path / "run" / name)
    if name == "windows.parquet":
        (tmp_path / "run" / name).write_bytes(b"PAR1")
    assert refusal(lambda: again(tmp_path / "run")).startswith(
        f"{tmp_path / 'run' / name} is there already and belongs to no run of this folder"
    )


def test_the_same_command_again_changes_nothing(folder: Path, again: Callable[..., Run]) -> None:
    before = files(folder)
    told: list[int] = []
    run = again(folder, on_stage=lambda run: told.append(len(run.stages)))
    assert files(folder) == before
    assert told == []
    assert run.complete


LOST = ["stages/00.json", "stages/03.json", "stages/08.json", "windows.parquet", "scores/000000.parquet",
        "scores/000003.parquet"]  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_what_was_lost_is_refused_by_name_and_made_again(
    name: str, folder: Path, undisturbed: Run, again: Callable[..., Run]
) -> None:
    (folder / name).unlink()
    for read in (lambda: Run(folder).summary, lambda: Run(folder).manifest, lambda: rote.open(folder).report()):
        assert refusal(read).startswith(f"{folder / name} is gone, and the seal of {folder} names it.")
    made = again(folder)
    same_run(made, undisturbed)
    whole = undisturbed.seal
    if name.startswith("scores"):  # its times are others
        assert whole.id in made.seal.before
    else:
        assert made.seal == whole
    assert {each for each in whole.files if whole.files[each] != made.seal.files[each]} <= {name, "summary.json"}


def test_all_lists_of_stages_lost(folder: Path, undisturbed: Run, again: Callable[..., Run]) -> None:
    shutil.rmtree(folder / "stages")
    same_run(again(folder), undisturbed)
    assert Run(folder).seal == undisturbed.seal


@pytest.mark.parametrize("name", ["stages/03.json", "windows.parquet"])
def test_what_was_changed_is_refused_by_name(
    name: str, folder: Path, undisturbed: Run, again: Callable[..., Run]
) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    for read in (lambda: Run(folder).summary, lambda: Run(folder).places, lambda: rote.open(folder).report()):
        assert refusal(read).startswith(f"{folder / name} is not what was sealed")
    if name == "windows.parquet":  # follows from the text, so it is written in any case
        assert again(folder).seal == undisturbed.seal
    else:
        assert refusal(lambda: again(folder)).startswith(f"{folder / name} is not what was sealed")


@pytest.mark.parametrize("name", ["stages/09.json", "scores/000013.parquet"])
def test_what_was_added_to_a_complete_run_is_refused_by_name(
    name: str, folder: Path, again: Callable[..., Run]
) -> None:
    shutil.copy(folder / ("stages/08.json" if name.startswith("stages") else "scores/000000.parquet"), folder / name)
    for act in (lambda: Run(folder).summary, lambda: again(folder)):
        assert refusal(act).startswith(f"{folder / name} is not one of the files that were sealed")


def test_a_stage_file_that_is_none_is_named(again: Callable[..., Run], tmp_path: Path) -> None:
    """One that is not sealed yet: whoever goes on reads it."""
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        again(folder, progress=stop_at(40))
    path = folder / "stages" / "01.json"
    content = path.read_text()
    for broken in ("", "{}", content.replace('"tiles"', '"tales"'), content.replace('"format": 7', '"format": 6')):
        assert broken != content
        path.write_text(broken)
        assert str(path) in refusal(lambda: again(folder))


def test_another_way_into_the_same_folder_is_refused_by_name(folder: Path, again: Callable[..., Run]) -> None:
    before = files(folder)
    for more, words in (
        ({"refine": Refine(audit=21)}, "refined.audit: the folder has 20, this command 21"),
        ({"refine": Refine(audit=20, audit_seed=1)}, "refined.audit_seed: the folder has 0, this command 1"),
        ({"refine": None}, "refined: the folder has audit=20 audit_seed=0 windows="),
        ({"tau": 1e-9}, "tau: the folder has 1e-22, this command 1e-09"),
    ):
        assert words in refusal(lambda more=more: again(folder, **more))  # type: ignore[misc]
    assert files(folder) == before


def test_a_full_scan_is_not_gone_on_with_in_stages(again: Callable[..., Run], tmp_path: Path) -> None:
    again(tmp_path / "run", refine=None)
    before = files(tmp_path / "run")
    assert "refined: the folder has 'nothing', this command audit=20" in refusal(lambda: again(tmp_path / "run"))
    assert files(tmp_path / "run") == before


def test_what_does_not_go_with_stages(model: Any, passage: str, tmp_path: Path) -> None:
    for name, more in (("near", {"near": Near(tolerance=1)}), ("stop_early", {"stop_early": True})):
        with pytest.raises(InputError, match=f"refine.* does not go with .*{name}.*Leave one of them out"):
            rote.scan(model, passage, out=tmp_path / "run", **{**HOW, "tau": 0.001, **more})
    for wrong in (True, 1000, {"audit": 5}):
        with pytest.raises(InputError, match=r"refine.*rote\.Refine, or None"):
            rote.scan(model, passage, out=tmp_path / "run", **{**HOW, "refine": wrong})
    for options in ({"audit": -1}, {"audit_seed": -1}, {"audit": 2.5}, {"audit": "many"}):
        with pytest.raises(InputError, match=next(iter(options))):
            Refine(**options)
    assert not (tmp_path / "run").exists()


def test_what_stands_in_the_files(undisturbed: Run) -> None:
    manifest = json.loads((undisturbed.folder / "manifest.json").read_text())
    assert manifest["refined"] == {"audit": 20, "audit_seed": 0, "windows": manifest["refined"]["windows"], "closer": 7}
    stage = json.loads((undisturbed.folder / "stages" / "08.json").read_text())
    assert (stage["format"], stage["kind"], len(stage["starts"])) == (7, "audit", 20)
    seal = json.loads((undisturbed.folder / "seal.json").read_text())
    assert {"windows.parquet", *(f"stages/{number:02d}.json" for number in range(9))} <= seal["files"].keys()
    assert "unfinished" not in seal
    assert len(seal["before"]) == len(ends(undisturbed))
