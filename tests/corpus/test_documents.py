"""Corpora of every kind: the same documents come out, and what is wrong with one is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rote.corpus.documents import open_corpus
from rote.errors import InputError
from tests.corpus.corpora import (
    write_dataset,
    write_jsonl,
    write_parquet,
    write_parquets,
    write_splits,
    write_texts,
)

ROWS = [{"id": f"{'deep/er/' * (i % 2)}{i:02d}.txt", "text": f"text {i} é\u2028 {'word ' * i}"} for i in range(11)]
KINDS: dict[str, Callable[[Path], Path]] = {
    "texts": lambda folder: write_texts(folder / "texts", ROWS),
    "jsonl": lambda folder: write_jsonl(folder / "corpus.jsonl", ROWS),
    "parquet": lambda folder: write_parquet(folder / "corpus.parquet", ROWS),
    "parquets": lambda folder: write_parquets(folder / "parquets", ROWS),
    "dataset": lambda folder: write_dataset(folder / "dataset", ROWS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_documents(kind: str, tmp_path: Path) -> None:
    corpus = open_corpus(KINDS[kind](tmp_path))
    assert corpus.shape == ("parquet" if kind == "parquets" else kind)
    assert sorted(document.id for document in corpus.documents) == sorted(row["id"] for row in ROWS)
    texts = {document.id: text for document, text in corpus.read(corpus.documents)}
    assert texts == {row["id"]: row["text"] for row in ROWS}


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_is_asked_for_is_read_whatever_the_order(kind: str, tmp_path: Path) -> None:
    corpus = open_corpus(KINDS[kind](tmp_path))
    some = [document for document in reversed(corpus.documents) if document.id.endswith(("3.txt", "8.txt", "10.txt"))]
    assert {document.id: text for document, text in corpus.read(some)} == {
        row["id"]: row["text"] for row in ROWS if row["id"].endswith(("3.txt", "8.txt", "10.txt"))
    }


def test_without_ids_the_place_names_a_document(tmp_path: Path) -> None:
    rows = [{"body": row["text"]} for row in ROWS]

    def ids(path: Path) -> list[str]:
        return [document.id for document in open_corpus(path, text_column="body").documents]

    assert ids(write_jsonl(tmp_path / "c.jsonl", rows))[:2] == ["line-1", "line-2"]
    assert ids(write_parquet(tmp_path / "c.parquet", rows))[-1] == "row-11"
    assert ids(write_parquets(tmp_path / "parts", rows))[3:5] == ["part-0.parquet/row-4", "part-1.parquet/row-1"]
    assert ids(write_dataset(tmp_path / "d", rows)) == [f"row-{i}" for i in range(1, 12)]


def test_splits_and_repetitions_are_kept(tmp_path: Path) -> None:
    rows = [{"id": i, "text": "x", "split": "train", "repetitions": i} for i in range(3)]
    for path in (write_jsonl(tmp_path / "c.jsonl", rows), write_parquet(tmp_path / "c.parquet", rows)):
        found = [(d.id, d.split, d.repetitions) for d in open_corpus(path).documents]
        assert found == [("0", "train", 0), ("1", "train", 1), ("2", "train", 2)]


def test_a_dataset_of_splits_names_them(tmp_path: Path) -> None:
    same = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]
    corpus = open_corpus(write_splits(tmp_path / "d", {"train": same, "test": same[:1]}))
    assert [(d.id, d.split) for d in corpus.documents] == [
        ("test/a", "test"),
        ("train/a", "train"),
        ("train/b", "train"),
    ]
    assert [text for _, text in corpus.read(corpus.documents)] == ["one", "one", "two"]


def test_other_suffixes_by_glob(tmp_path: Path) -> None:
    write_texts(tmp_path, [{"id": "a/b.md", "text": "x"}, {"id": "c.txt", "text": "y"}])
    assert [d.id for d in open_corpus(tmp_path, glob="*.md").documents] == ["a/b.md"]
    write_parquet(tmp_path / "c.parquet", ROWS)
    assert [d.id for d in open_corpus(tmp_path, glob="*.md").documents] == ["a/b.md"]
    assert open_corpus(tmp_path, glob="*.html").shape == "parquet"


def test_empty_documents_are_documents(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_bytes(b"")
    (tmp_path / "c.jsonl").write_text('{"text": null}\n\n{"text": ""}\n')
    for path, ids in ((tmp_path / "texts", ["a.txt"]), (tmp_path / "c.jsonl", ["line-1", "line-3"])):
        corpus = open_corpus(path)
        assert [(d.id, text) for d, text in corpus.read(corpus.documents)] == [(i, "") for i in ids]


def read_all(path: Path, **options: Any) -> None:
    corpus = open_corpus(path, **options)
    list(corpus.read(corpus.documents))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no documents"),
        (b'{"text": "a"}\n{"body": "b"}\n', r"c\.jsonl, line 2: no 'text'.*with text_column"),
        (b'{"text": "a"}\nnonsense\n', r"c\.jsonl, line 2: not JSON"),
        (b"[1]\n", r"line 1: not a JSON object"),
        (b'{"text": "\xff"}\n', r"line 1: not UTF-8: byte 10 of the line \(0xFF\)"),
        (b'{"text": 5}\n', r"line 1: 'text' is 5"),
        (b'{"text": "a \\ud800"}\n', r"line 1: character 2 is half of a surrogate pair"),
        (b'{"text": "a", "id": "x"}\n{"text": "b", "id": "x"}\n', r"line 2: the id 'x' is already that of .*line 1"),
        (b'{"text": "a", "id": ""}\n', "line 1: id is ''"),
        (b'{"text": "a", "repetitions": 1.5}\n', r"line 1: repetitions is 1\.5"),
        (b'{"text": "a", "repetitions": true}\n', "line 1: repetitions is True"),
        (b'{"text": "a", "split": 1}\n', "line 1: split is 1"),
    ],
)
def test_bad_lines_are_named(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_all(tmp_path / "c.jsonl")


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        read_all(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"holds no \*\.txt file"):
        read_all(tmp_path)
    (tmp_path / "book.txt").write_bytes(b"caf\xe9 au lait")
    with pytest.raises(InputError, match=r"book\.txt is not UTF-8"):
        read_all(tmp_path)
    with pytest.raises(InputError, match=r"is one text.*rote scan"):
        read_all(tmp_path / "book.txt")
    with pytest.raises(InputError, match="Choose files with glob"):
        read_all(tmp_path, glob="")
    write_parquet(tmp_path / "c.parquet", ROWS)
    with pytest.raises(InputError, match="holds Parquet files and texts"):
        read_all(tmp_path)


def test_bad_tables_are_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "c.parquet", ROWS)
    with pytest.raises(InputError, match=r"c\.parquet has no column 'body'; it has id, text"):
        read_all(path, text_column="body")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"c\.parquet cannot be read.*complete"):
        read_all(path)
    pq.write_table(pa.table({"text": [1, 2]}), path)
    with pytest.raises(InputError, match=r"column 'text' of .* holds int64, not text"):
        read_all(path)
    pq.write_table(pa.table({"text": ["a", "b"], "id": ["x", "x"]}), path)
    with pytest.raises(InputError, match=r"c\.parquet, row 2: the id 'x' is already that of .*row 1"):
        read_all(path)


def test_bad_datasets_are_named(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", ROWS)
    (arrow, other) = sorted(folder.glob("*.arrow"))
    whole = arrow.read_bytes()
    arrow.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"data-00000-of-00002\.arrow cannot be read"):
        read_all(folder)
    arrow.write_bytes(whole)
    other.unlink()
    with pytest.raises(InputError, match=r"data-00001-of-00002\.arrow is missing"):
        read_all(folder)
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(state | {"_indices_data_files": [{"filename": "i.arrow"}]}))
    with pytest.raises(InputError, match="index file"):
        read_all(folder)
    (folder / "state.json").write_text("{}")
    with pytest.raises(InputError, match="names no data files"):
        read_all(folder)
    (folder / "state.json").write_text("{")
    with pytest.raises(InputError, match=r"state\.json cannot be read"):
        read_all(folder)
