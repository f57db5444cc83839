"""The folder of `rote member`: what is written is read again, sealed, and refused where it is not whole."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from rote.errors import RunError
from rote.store.membership import SCHEMA, TEXTS, StoredMembership, add_shard, begin, has_shard, text_lines
from rote.store.seal import ASIDE, SEAL
from tests.report.members import membership


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return membership(tmp_path_factory.mktemp("member") / "run", extract=True, reference=True).folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def test_what_is_stored_is_read_again(folder: Path) -> None:
    stored = StoredMembership(folder)
    view = stored.view
    assert view.rows.columns == [*SCHEMA.names, "text"]
    assert view.rows["text"].to_list() == [text.text for text in stored.texts]
    assert view.rows["id"].to_list() == [text.id for text in stored.texts]
    assert view.rows["part"].to_list() == ["texts"] * 24 + ["held_out"] * 8
    assert view.seal == stored.seal.id
    assert math.inf in view.rows["near_lower"].abs().to_list()
    assert [facts.seconds for facts in stored.facts()] == [0.5] * 4
    assert stored.summary.texts == 24
    assert sorted(stored.seal.files) == sorted(
        ["manifest.json", "scores/000000.parquet", "scores/000001.parquet", "scores/000002.parquet",
         "scores/000003.parquet", "summary.json", TEXTS]
    )  # fmt: skip


@pytest.mark.parametrize("name", [TEXTS, "manifest.json", "summary.json", "scores/000001.parquet"])
def test_a_changed_file_is_refused(folder: Path, name: str) -> None:
    with (folder / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(RunError, match="is not what was sealed"):
        _ = StoredMembership(folder).view


def test_an_added_shard_is_refused(folder: Path) -> None:
    shutil.copy(folder / "scores/000000.parquet", folder / "scores/000009.parquet")
    with pytest.raises(RunError, match="not one of the files that were sealed"):
        _ = StoredMembership(folder).summary


def test_an_unfinished_folder_says_how_far_it_is(folder: Path) -> None:
    for name in (SEAL, "summary.json", "scores/000003.parquet"):
        (folder / name).unlink()
    stored = StoredMembership(folder)
    with pytest.raises(RunError, match=r"is unfinished \(3 of 4 shards stored\)"):
        _ = stored.summary
    assert stored.rows.height == 30
    assert [has_shard(folder, index) for index in (2, 3)] == [True, False]


def test_a_finished_folder_is_gone_on_with_only_as_it_was(folder: Path) -> None:
    stored = StoredMembership(folder)
    manifest, texts = stored.manifest, text_lines(stored.texts)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    begin(folder, manifest, texts)
    assert [(folder / name).is_file() for name in (ASIDE, SEAL)] == [True, False]
    (folder / ASIDE).rename(folder / SEAL)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    other = json.loads((folder / "manifest.json").read_bytes())
    other["window"] = 7
    (folder / "manifest.json").write_text(json.dumps(other))
    with pytest.raises(RunError, match="window: the folder has 7, this command 1024"):
        begin(folder, manifest, texts)


def test_a_finished_folder_without_its_seal_is_not_gone_on_with(folder: Path) -> None:
    stored = StoredMembership(folder)
    manifest, texts = stored.manifest, text_lines(stored.texts)
    (folder / SEAL).unlink()
    with pytest.raises(RunError, match=r"its seal\.json is gone"):
        begin(folder, manifest, texts)


@pytest.mark.parametrize("name", ["report.html", "scores/000000.parquet", TEXTS])
def test_foreign_files_are_not_taken_over(made: Path, tmp_path: Path, name: str) -> None:
    stored = StoredMembership(made)
    (tmp_path / "scores").mkdir()
    (tmp_path / name).write_text("something else")
    with pytest.raises(RunError, match="belongs to no run of this folder"):
        begin(tmp_path, stored.manifest, text_lines(stored.texts))


def test_a_column_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="min_k_7"):
        add_shard(tmp_path, 0, [{"id": "a", "min_k_7": 1.0}], 0.0, [])
