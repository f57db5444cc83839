"""Seals: whatever changed in a finished folder is refused and named, and a command that goes on with one says so."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rote
from rote import Reconstruction, Refine, RunError, Scheme, Sweep, Windows, Writing
from rote.jobs import engine
from rote.jobs.open import Run
from rote.store.run import begin
from rote.store.seal import ASIDE, READ, SEAL, check_seal, read_seal
from tests.cases import cases
from tests.jobs.support import SIZES, files
from tests.seals import reseal, unfinish

SHARDS = [f"scores/{number:06d}.parquet" for number in range(4)]
SEALED = ["manifest.json", *SHARDS, "summary.json", "text.txt", "variants.json"]
STAGES = [f"stages/{number:02d}.json" for number in range(9)]
SEED = "Alice was beginning to get very tired of sitting by her sister on the"
SMALL = Writing(tokens=40, step=5, beams=1, context_tokens=30)
TRUTH = f"{SEED} bank, and of having nothing to do"


CLOSER: dict[str, Any] = {
    "windows": Windows(prefix=8, suffix=6, stride=2), "schemes": "temperature=1", "tau": 1e-22, "refine": Refine()
}  # fmt: skip
IN_STAGES = {
    "staged": ["manifest.json", "scores/000000.parquet", *STAGES, "summary.json", "text.txt", "windows.parquet"],
    "stopped": ["manifest.json", SHARDS[0], SHARDS[1], *STAGES[:2], "summary.json", "text.txt", "windows.parquet"],
}


def stop(run: Run) -> None:
    if len(run.stages) == 2:
        raise ZeroDivisionError


@pytest.fixture(scope="module")
def sealed(model: Any, text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, `run`, and another of the same shape, `other`; one in stages, `staged`, and one that was stopped
    after two of these, `stopped`. They are left as they are.
    """
    folder = tmp_path_factory.mktemp("sealed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engine.SHARD_FLOPS, "cpu", 1.0)
        rote.scan(model, text, out=folder / "run", windows=SIZES)
        rote.scan(model, text, out=folder / "other", windows=SIZES, schemes=Scheme(top_k=400))
        rote.scan(model, text[:500], out=folder / "staged", windows=SIZES, refine=Refine(audit=5))
        with pytest.raises(ZeroDivisionError):
            rote.scan(model, text[:500], out=folder / "stopped", **CLOSER, on_stage=stop)
    return folder


@pytest.fixture
def folder(sealed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sealed / "run", tmp_path / "run"))


@pytest.fixture
def again(model: Any, text: str) -> Callable[..., Run]:
    """The command that made the run."""
    return lambda folder, **more: rote.scan(model, text, out=folder, windows=SIZES, **more)


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(RunError) as error:
        act()
    return str(error.value)


# --- what a seal is


def test_what_is_sealed_and_how_anybody_can_work_it_out(sealed: Path) -> None:
    folder = sealed / "run"
    stored = json.loads((folder / SEAL).read_text())
    assert stored["files"] == {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in SEALED}
    assert (stored["format"], stored["before"]) == (7, [])
    without = json.dumps({**stored, "id": ""}, indent=1, ensure_ascii=False) + "\n"
    assert stored["id"] == hashlib.sha256(without.encode()).hexdigest()
    assert Run(folder).seal == check_seal(folder) == read_seal(folder)
    assert Run(folder).seal.id == stored["id"]


def test_what_can_be_made_anew_is_not_sealed(folder: Path) -> None:
    for name in ("report.html", "export.csv", "notes.md", "scores/.000000.parquet.part"):
        (folder / name).write_text("mine")
    (folder / ".lock").unlink()
    Run(folder).report()


@pytest.mark.parametrize("run", IN_STAGES)
def test_what_is_sealed_of_a_scan_in_stages(run: str, sealed: Path) -> None:
    seal = check_seal(sealed / run)
    sealed_too = [name for name in IN_STAGES[run] if name.startswith(("stages", "scores")) or name in READ]
    assert [name for name in seal.files if name != "variants.json" and not name.startswith("scores")] == [
        name for name in sorted(sealed_too) if not name.startswith("scores")
    ]
    assert {*IN_STAGES[run]} <= seal.files.keys()
    assert seal.unfinished is (True if run == "stopped" else None)


def test_what_comes_after_the_last_sealed_stage_is_not_read(sealed: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sealed / "stopped", tmp_path / "run"))
    whole = Run(folder).summary
    assert (folder / STAGES[2]).is_file()  # decided, not scored
    for name in (STAGES[2], STAGES[3], "scores/000002.parquet", "scores/000007.parquet"):
        (folder / name).write_bytes(b"not to be read")
    assert Run(folder).summary == whole
    assert len(Run(folder).stages) == 2
    Run(folder).report()
    (folder / "variants.json").write_bytes(b"{}")  # what is no stage belongs to a run that has ended
    assert refusal(lambda: Run(folder).summary).startswith(f"{folder / 'variants.json'} is not one of the files")


# --- what changed is refused and named


def flip(path: Path, position: int, mask: int) -> bytes:
    content = path.read_bytes()
    changed = bytearray(content)
    changed[position % len(content)] ^= mask
    path.write_bytes(changed)
    return content


def check_refused(folder: Path, name: str) -> None:
    said = refusal(lambda: Run(folder).summary)
    assert str(folder / name) in said
    assert re.search(r"[Pp]ut|restore", said), said  # what to do about it


def test_each_of_300_flipped_bytes_is_refused_and_its_file_named(folder: Path) -> None:
    rng, seen = random.Random(14), set[str]()
    for _ in range(300):
        name = rng.choice([*SEALED, SEAL])
        content = flip(folder / name, rng.randrange(1 << 30), rng.choice([1 << rng.randrange(8), rng.randint(1, 255)]))
        check_refused(folder, name)
        (folder / name).write_bytes(content)
        seen.add(name)
    assert seen == {*SEALED, SEAL}
    assert Run(folder).summary.examples > 0  # every byte is back


@cases(200)
@given(
    of=st.sampled_from(
        [*(("other", name) for name in [*SEALED, SEAL])]
        + [(run, name) for run, names in IN_STAGES.items() for name in [*names, SEAL]]
    ),
    position=st.integers(0, 1 << 20),
    change=st.one_of(st.integers(1, 255), st.sampled_from(["cut", "empty", "added", "double"])),
)
def test_whatever_is_done_to_a_file_is_refused(
    sealed: Path, of: tuple[str, str], position: int, change: int | str
) -> None:
    run, name = of
    path = sealed / run / name
    content = path.read_bytes()
    end = position % len(content)
    try:
        if isinstance(change, int):
            flip(path, position, change)
        else:
            added = content[:end] + b" " + content[end:]
            path.write_bytes({"cut": content[:end], "empty": b"", "added": added, "double": content * 2}[change])
        check_refused(sealed / run, name)
    finally:
        path.write_bytes(content)


def edit_row(folder: Path) -> None:
    """One number of one row, in a shard that is otherwise as Rote would have written it."""
    shard = folder / SHARDS[1]
    table = pq.read_table(shard)
    column = table.column_names.index("log_prob")
    values = table["log_prob"].to_pylist()
    values[5] = -0.5
    edited = table.set_column(column, table.schema.field(column), [values])
    pq.write_table(edited.replace_schema_metadata(table.schema.metadata), shard, write_page_checksum=True)


def edit_tau(folder: Path) -> None:
    path = folder / "manifest.json"
    assert '"tau": 0.001' in path.read_text()
    path.write_text(path.read_text().replace('"tau": 0.001', '"tau": 0.01'))


def exchange(folder: Path) -> None:
    one, other = folder / SHARDS[0], folder / SHARDS[1]
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


CHANGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "an edited row": (edit_row, SHARDS[1], "is not what was sealed: it was changed afterwards"),
    "a removed shard": (lambda folder: (folder / SHARDS[3]).unlink(), SHARDS[3], "is gone, and the seal of"),
    "a shard of another run": (
        lambda folder: shutil.copy(folder.parent / "other" / SHARDS[2], folder / SHARDS[2]),
        SHARDS[2],
        "is not what was sealed",
    ),
    "two shards exchanged": (exchange, SHARDS[0], "is not what was sealed"),
    "an added shard": (
        lambda folder: shutil.copy(folder.parent / "other" / SHARDS[3], folder / "scores/000004.parquet"),
        "scores/000004.parquet",
        "is not one of the files that were sealed, so it does not belong there; take it away.",
    ),
    "another tau": (edit_tau, "manifest.json", "is not what was sealed"),
    "another text": (lambda folder: (folder / "text.txt").write_text("x"), "text.txt", "is not what was sealed"),
}


@pytest.fixture
def beside(sealed: Path, folder: Path) -> Path:
    shutil.copytree(sealed / "other", folder.parent / "other")
    return folder


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_named(change: str, beside: Path) -> None:
    act, name, words = CHANGES[change]
    act(beside)
    readers: list[Callable[[], object]] = [
        lambda: Run(beside).summary,
        lambda: Run(beside).manifest,
        lambda: Run(beside).view,
        lambda: rote.open(beside).report(),
        lambda: rote.open(beside).frame(),
        lambda: rote.open(beside).export("csv"),
        lambda: rote.spots(beside),
        lambda: rote.show(beside, example="w0"),
        lambda: rote.compare([beside.parent / "other", beside]),
    ]
    before = files(beside)
    for read in readers:
        said = refusal(read)
        assert said.startswith(f"{beside / name} {words}"), said
    assert files(beside) == before
    assert f"{beside / name} {words}" in str(rote.open(beside)._repr_html_())


@pytest.mark.parametrize("change", CHANGES)
def test_not_even_rows_and_texts_are_read_from_a_changed_run(change: str, beside: Path) -> None:
    act, name, _ = CHANGES[change]
    act(beside)
    opened = rote.open(beside)
    assert isinstance(opened, Run)
    for read in (lambda: opened.scores, lambda: opened.rows("temperature=1 top_k=40"), lambda: opened.text):
        assert refusal(read).startswith(str(beside / name))


def test_a_run_without_its_seal_is_not_read(folder: Path, again: Callable[..., Run]) -> None:
    """Whoever edits a run may also take its seal away: what is left is not taken for whole, nor for unfinished."""
    whole = Run(folder).seal
    (folder / SEAL).unlink()
    for read in (lambda: Run(folder).summary, lambda: rote.open(folder).report(), lambda: rote.open(folder).frame()):
        said = refusal(read)
        assert said.startswith(f"{folder} has no seal.json, so nothing says whether its files are as they were")
        assert said.endswith("Put the seal back; or make it anew, in another folder.")
    said = refusal(lambda: again(folder))  # else an edited row would be sealed by the next command
    assert said.startswith(f"{folder} was finished, and its seal.json is gone")
    assert not (folder / SEAL).exists()
    assert whole.files


def test_what_a_seal_does_not_prove(folder: Path) -> None:
    """It is no signature. Whoever can write the folder can change a row and the seal with it: its number is then
    another one, so it must be known from elsewhere. What is read must be in its list, though.
    """
    whole = Run(folder)
    honest, seal = whole.view.scores["log_prob"].to_list(), whole.seal
    edit_row(folder)
    reseal(folder)
    forged = Run(folder)
    assert forged.summary.examples == whole.summary.examples
    assert forged.scores["log_prob"].to_list() != honest
    assert forged.seal.id != seal.id

    stored = json.loads((folder / SEAL).read_text())
    del stored["files"]["text.txt"]
    (folder / SEAL).write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    assert refusal(lambda: Run(folder).summary).startswith(f"{folder / SEAL} was changed after it was made.")
    without = json.dumps({**stored, "id": ""}, indent=1, ensure_ascii=False) + "\n"
    stored["id"] = hashlib.sha256(without.encode()).hexdigest()
    (folder / SEAL).write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    assert f"{folder / 'text.txt'} is not one of the files that were sealed" in refusal(lambda: Run(folder).summary)

    stored["files"] = dict(forged.seal.files)
    del stored["files"][SHARDS[0]]
    without = json.dumps({**stored, "id": ""}, indent=1, ensure_ascii=False) + "\n"
    stored["id"] = hashlib.sha256(without.encode()).hexdigest()
    (folder / SEAL).write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    assert "is not one of the files that were sealed" in refusal(lambda: Run(folder).summary)  # rows are always watched


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[]", b"{}", b'{"format": 4}', b'{"format": 7}', b'{"format": 7, "files": {"x": 1}}']
)
def test_a_seal_that_is_none_is_named(content: bytes, folder: Path, again: Callable[..., Run]) -> None:
    (folder / SEAL).write_bytes(content)
    before = files(folder)
    for act in (lambda: Run(folder).summary, lambda: rote.open(folder).report(), lambda: again(folder)):
        said = refusal(act)
        assert str(folder / SEAL) in said
        assert said.endswith("restore the seal, or make the run anew elsewhere.")
    assert files(folder) == before


# --- the same command again


def test_an_untouched_run_keeps_its_seal(folder: Path, again: Callable[..., Run]) -> None:
    before = files(folder)
    for _ in range(2):
        again(folder)
        assert files(folder) == before  # seal.json too, to the byte, and seal-before.json is gone again


def test_another_name_or_machine_changes_nothing_in_a_finished_run(folder: Path, again: Callable[..., Run]) -> None:
    """What decides no number may differ; the manifest stays, so what follows from it and is sealed stays too."""
    before = files(folder)
    again(folder, name="another name")
    assert files(folder) == before


def test_what_was_lost_is_made_again_and_the_old_seal_named(folder: Path, again: Callable[..., Run]) -> None:
    seals = [Run(folder).seal]
    scores = Run(folder).scores.drop("token_evals")
    for lost in (SHARDS[2], SHARDS[0]):
        (folder / lost).unlink()
        made = again(folder).seal
        assert made.before == [seal.id for seal in seals]
        assert made.files.keys() == seals[0].files.keys()
        assert {name for name in made.files if made.files[name] != seals[-1].files[name]} <= {lost, "summary.json"}
        assert check_seal(folder) == made
        seals.append(made)
    assert Run(folder).scores.drop("token_evals").equals(scores)
    for name in ("text.txt", "summary.json"):  # what is the same again needs no other seal
        (folder / name).unlink()
        assert again(folder).seal == seals[-1]


@pytest.mark.parametrize("change", [change for change in CHANGES if change not in ("a removed shard", "another text")])
def test_a_changed_run_is_not_gone_on_with(change: str, beside: Path, again: Callable[..., Run]) -> None:
    act, name, _ = CHANGES[change]
    act(beside)
    before = files(beside)
    said = refusal(lambda: again(beside))
    assert str(beside) in said
    assert (name in said) or (change == "another tau" and "tau: the folder has 0.01, this command 0.001" in said)
    assert files(beside) == before


def test_a_manifest_that_decides_as_before_but_was_edited_is_named(folder: Path, again: Callable[..., Run]) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"created": "20', '"created": "19'))
    assert refusal(lambda: again(folder)).startswith(f"{path} is not what was sealed")


@pytest.mark.parametrize("lost", [None, SHARDS[1]])
def test_killed_while_it_is_gone_on_with(lost: str | None, folder: Path, again: Callable[..., Run]) -> None:
    """As after a kill right behind `begin`: nobody takes the folder for whole, and the same command ends it."""
    whole = Run(folder)
    seal, content = whole.seal, {"text.txt": (folder / "text.txt").read_bytes()}
    if lost:
        (folder / lost).unlink()
    begin(folder, replace(whole.manifest, created="later"), content=content)
    assert not (folder / SEAL).exists()
    assert read_seal(folder, ASIDE) == seal
    said = refusal(lambda: Run(folder).summary)
    assert said.startswith(f"{folder} is unfinished (3 of 4 shards stored)" if lost else f"{folder} has no seal.json")
    assert "run the command that made it again" in said
    made = again(folder).seal
    assert made.before == ([seal.id] if lost else [])
    assert (made == seal) == (lost is None)
    assert not (folder / ASIDE).exists()


@pytest.mark.parametrize("name", [SEAL, ASIDE])
def test_the_seal_of_another_folder_is_not_taken_over(
    name: str, sealed: Path, tmp_path: Path, again: Callable[..., Run]
) -> None:
    shutil.copy(sealed / "other" / SEAL, tmp_path / name)
    assert refusal(lambda: again(tmp_path)).startswith(f"{tmp_path / name} is there already and belongs to no run")


# --- reconstructions


@pytest.fixture(scope="module")
def written(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text without a truth, and one with."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "alice.txt").write_text(TRUTH)
    rote.reconstruct(model, SEED, out=folder / "plain", writing=SMALL)
    rote.reconstruct(model, SEED, out=folder / "compared", truth=folder / "alice.txt", writing=SMALL)
    return folder


COMPARED = ["chunks.jsonl", "diff.jsonl", "generated.txt", "manifest.json", "seed.json", "summary.json", "truth.txt"]


def test_a_truth_that_comes_later_makes_a_new_seal(written: Path, model: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written / "plain", tmp_path / "run"))
    first = check_seal(folder)
    assert list(first.files) == [name for name in COMPARED if name not in ("diff.jsonl", "truth.txt")]
    rote.reconstruct(model, SEED, out=folder, writing=SMALL)
    assert check_seal(folder) == first
    rote.reconstruct(model, SEED, out=folder, truth=TRUTH, writing=SMALL)
    second = check_seal(folder)
    assert list(second.files) == COMPARED
    assert second.before == [first.id]
    rote.reconstruct(model, SEED, out=folder, truth=f"{TRUTH} in it", writing=SMALL)
    third = check_seal(folder)
    assert third.before == [first.id, second.id]
    rote.reconstruct(model, SEED, out=folder, writing=SMALL)  # the truth stays
    assert check_seal(folder) == third


@pytest.mark.parametrize("name", COMPARED)
def test_a_changed_reconstruction_is_refused(name: str, written: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written / "compared", tmp_path / "run"))
    whole = check_seal(folder)
    content = flip(folder / name, 40, 1)
    for read in (lambda: Reconstruction(folder).summary, lambda: rote.open(folder).report()):
        assert str(folder / name) in refusal(read)
    (folder / name).write_bytes(content)
    assert check_seal(folder) == whole


@pytest.mark.parametrize("name", COMPARED)
def test_not_even_the_texts_of_a_changed_reconstruction_are_read(name: str, written: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written / "compared", tmp_path / "run"))
    flip(folder / name, 40, 1)
    for read in (
        lambda: Reconstruction(folder).text,
        lambda: Reconstruction(folder).truth,
        lambda: Reconstruction(folder).seed,
        lambda: Reconstruction(folder).chunks(),
    ):
        assert str(folder / name) in refusal(read)


@pytest.mark.parametrize("name", ["generated.txt", "diff.jsonl"])
def test_what_follows_from_the_chunks_is_restored(name: str, written: Path, model: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written / "compared", tmp_path / "run"))
    whole = check_seal(folder)
    flip(folder / name, 40, 1)
    rote.reconstruct(model, SEED, out=folder, writing=SMALL)
    assert check_seal(folder) == whole


@pytest.mark.parametrize("name", ["chunks.jsonl", "manifest.json", "seed.json", "truth.txt"])
def test_a_changed_reconstruction_is_not_gone_on_with(name: str, written: Path, model: Any, tmp_path: Path) -> None:
    """The truth neither, where the command does not give it anew: it would be compared with another one, unnoticed."""
    folder = Path(shutil.copytree(written / "compared", tmp_path / "run"))
    flip(folder / name, 200 if name == "manifest.json" else 40, 1)
    before = files(folder)
    assert str(folder) in refusal(lambda: rote.reconstruct(model, SEED, out=folder, writing=SMALL))
    assert files(folder) == before


def test_a_truth_that_is_given_restores_it(written: Path, model: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written / "compared", tmp_path / "run"))
    whole = check_seal(folder)
    (folder / "truth.txt").write_text("another")
    rote.reconstruct(model, SEED, out=folder, truth=written / "alice.txt", writing=SMALL)
    assert check_seal(folder) == whole


def test_killed_while_it_is_compared_it_still_knows_the_truth(written: Path, model: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written / "compared", tmp_path / "run"))
    whole = check_seal(folder)
    os.replace(folder / SEAL, folder / ASIDE)  # as `begin` does, and then the process ends
    assert refusal(lambda: Reconstruction(folder).summary).startswith(f"{folder} has no seal.json")
    again = rote.reconstruct(model, SEED, out=folder, writing=SMALL)
    assert again.summary.truth is not None
    assert again.summary.truth.name == "alice.txt"
    assert check_seal(folder) == whole
    unfinish(folder)
    assert "is unfinished (40 of 40 tokens stored)" in refusal(lambda: Reconstruction(folder).summary)


# --- sweeps and comparisons


@pytest.fixture(scope="module")
def swept(model: Any, text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swept") / "sweep"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engine.SHARD_FLOPS, "cpu", 1.0)
        sweep_again(folder, model, text)
    return folder


def sweep_again(folder: Path, model: Any, text: str) -> Sweep:
    examples = rote.windows(text, model.tokenizer, rote.Windows(prefix=8, suffix=6, stride=300))
    return rote.sweep(model, examples, out=folder, prefixes=[4, 8])


def test_a_changed_sweep_is_refused(swept: Path, model: Any, text: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(swept, tmp_path / "sweep"))
    whole = check_seal(folder)
    assert list(whole.files) == ["prefix-4/seal.json", "prefix-8/seal.json", "sweep.json"]
    assert sweep_again(folder, model, text).result == Sweep(swept).result
    assert check_seal(folder) == whole
    for name in ("sweep.json", "prefix-4/seal.json", f"prefix-8/{SHARDS[0]}", "prefix-4/examples.jsonl"):
        content = flip(folder / name, 100, 1)
        said = refusal(lambda: rote.open(folder).report())
        assert str(folder / name) in said
        if name == "sweep.json":
            for read in (lambda: Sweep(folder).result, lambda: rote.open(folder).frame()):
                assert refusal(read) == said
        (folder / name).write_bytes(content)
    rote.open(folder).report()
    (folder / "sweep.json").write_text("{")  # follows from its runs, so it is written anew in any case
    sweep_again(folder, model, text)
    assert check_seal(folder) == whole
    (folder / "prefix-4" / SHARDS[0]).unlink()
    sweep_again(folder, model, text)
    assert check_seal(folder).before == [whole.id]
    assert check_seal(folder / "prefix-4").before == [check_seal(swept / "prefix-4").id]
    assert check_seal(folder / "prefix-8") == check_seal(swept / "prefix-8")


def test_a_changed_comparison_is_refused_and_knows_its_runs_by_their_seals(beside: Path, tmp_path: Path) -> None:
    runs, folder = [beside, beside.parent / "other"], tmp_path / "compared"
    found = rote.compare(runs)
    found.write(folder)
    whole = check_seal(folder)
    assert list(whole.files) == ["comparison.json", "differences.csv", "differences.parquet"]
    assert [run.seal for run in found.result.runs] == [check_seal(run).id for run in runs]
    rote.compare(runs).write(folder)
    assert check_seal(folder) == whole
    for name in whole.files:
        content = flip(folder / name, 100, 1)
        for read in (
            lambda: rote.SavedComparison(folder).result,
            lambda: rote.SavedComparison(folder).differences,
            lambda: rote.open(folder).report(),
        ):
            assert refusal(read).startswith(f"{folder / name} is not what was sealed")
        (folder / name).write_bytes(content)
    edit_row(beside)
    assert refusal(lambda: rote.open(folder).report()).startswith(f"{beside / SHARDS[1]} is not what was sealed")
    reseal(beside)  # then it is whole again, but not the run that was compared
    assert "are no longer those that were compared" in refusal(lambda: rote.open(folder).report())
    rote.compare(runs).write(folder)
    assert check_seal(folder).before == [whole.id]
