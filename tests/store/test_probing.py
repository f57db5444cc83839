"""The folder of `rote probe`: what is written is read again, sealed, and refused where it is not whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rote.errors import RunError
from rote.store.probing import CHOSEN, TEXTS, VERDICTS, StoredProbe, add_words, begin, has_words, text_lines
from rote.store.seal import SEAL
from rote.store.table import ShardFacts
from tests.report.probes import probe


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return probe(tmp_path_factory.mktemp("probe") / "run", texts=6).folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def test_what_is_stored_is_read_again(folder: Path) -> None:
    stored = StoredProbe(folder)
    view = stored.view
    assert list(view.texts) == [text.id for text in view.texts.values()]
    assert view.seal == stored.seal.id
    assert sorted(stored.seal.files) == sorted(
        ["manifest.json", TEXTS, CHOSEN, VERDICTS, "words/000000.parquet", "scores/000000.parquet", "summary.json"]
    )
    assert [facts.seconds for facts in stored.facts()] == [0.5]
    assert has_words(folder, 0)
    assert not has_words(folder, 1)


@pytest.mark.parametrize(
    "name", [TEXTS, CHOSEN, VERDICTS, "manifest.json", "summary.json", "words/000000.parquet", "scores/000000.parquet"]
)
def test_a_changed_file_is_refused(folder: Path, name: str) -> None:
    with (folder / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(RunError, match="is not what was sealed"):
        _ = StoredProbe(folder).view


@pytest.mark.parametrize("name", ["words", "scores"])
def test_an_added_shard_is_refused(folder: Path, name: str) -> None:
    shutil.copy(folder / name / "000000.parquet", folder / name / "000009.parquet")
    with pytest.raises(RunError, match="not one of the files that were sealed"):
        _ = StoredProbe(folder).summary


@pytest.mark.parametrize(
    "name", ["report.html", "scores/000000.parquet", "words/000000.parquet", CHOSEN, VERDICTS, TEXTS]
)
def test_foreign_files_are_not_taken_over(made: Path, tmp_path: Path, name: str) -> None:
    stored = StoredProbe(made)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("something else")
    with pytest.raises(RunError, match="belongs to no run of this folder"):
        begin(tmp_path, stored.manifest, text_lines(stored.texts.values()))


def test_an_unfinished_folder_says_how_far_it_is(folder: Path) -> None:
    for name in (SEAL, "summary.json"):
        (folder / name).unlink()
    with pytest.raises(RunError, match=r"is unfinished \(words of 1 of 1 shard of texts stored\)"):
        _ = StoredProbe(folder).summary


def test_a_column_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="colour"):
        add_words(tmp_path, 0, [{"word": "a", "colour": "red"}], ShardFacts(0.0, []))
