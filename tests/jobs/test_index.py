"""`rote.index`: built from every kind of corpus, stopped and continued, refused where it does not fit, and asked."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rote
from rote.corpus.readings import Reader
from rote.errors import InputError, RoteError, RunError
from rote.models.fingerprint import tokenizer_hash
from rote.store.index import StoredIndex, open_index
from tests.cases import cases
from tests.cli.command import rote_here, rote_process
from tests.corpus import corpora
from tests.corpus.test_index import indexed
from tests.reference import search

pytest.importorskip("infini_gram")

ROWS: list[dict[str, Any]] = [
    {"id": "alice", "text": "Alice was beginning to get very tired. Alice! said Alice"},
    {"id": "empty", "text": ""},
    {"id": "letter", "text": "a"},
    {"id": "ünïcödé", "text": "Der Bär läuft übers Eis; 愛麗絲 läuft übers Eis 🐇"},
    {"id": "repeated", "text": "to get very tired to get very tired\n\nto get very tired"},
    {"id": "last", "text": "Alice was"},
]
MEMORY = 1e-7
"""So little that a shard has the room of a few tokens."""


def texts_of(folder: Path) -> Path:
    return corpora.write_texts(folder, [{**row, "id": f"{row['id']}.txt"} for row in ROWS])


def splits_of(folder: Path) -> Path:
    return corpora.write_splits(folder, {"train": ROWS[:3], "other": ROWS[3:]})


KINDS: dict[str, Callable[[Path], Path]] = {
    "texts": texts_of,
    "jsonl": lambda path: corpora.write_jsonl(path, ROWS),
    "parquet": lambda path: corpora.write_parquet(path, ROWS),
    "parquets": lambda path: corpora.write_parquets(path, ROWS),
    "dataset": lambda path: corpora.write_dataset(path, ROWS),
    "splits": splits_of,
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return corpora.write_jsonl(tmp_path / "corpus.jsonl", ROWS)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StoredIndex]:
    folder = tmp_path_factory.mktemp("built")
    path = corpora.write_jsonl(folder / "corpus.jsonl", ROWS)
    return {
        "tokens": rote.index.build(path, out=folder / "tokens"),
        "bytes": rote.index.build(path, out=folder / "bytes", bytes=True, memory=MEMORY),
    }


def content(folder: Path) -> dict[str, Any]:
    """All files of an index, apart from when it was begun."""
    found: dict[str, Any] = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}
    found["index.json"] = {**json.loads(found["index.json"]), "created": ""}
    return found


# --- building


@pytest.mark.parametrize("unit", ["tokens", "bytes"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_corpus(kind: str, unit: str, tmp_path: Path) -> None:
    path = KINDS[kind](tmp_path / ("corpus.jsonl" if kind == "jsonl" else "corpus"))
    stored = rote.index.build(path, out=tmp_path / "index", bytes=unit == "bytes")
    index = stored.index
    assert index.unit == unit
    found = {index.name(number): stored.reader.text(index.document(number).tolist()) for number in range(len(ROWS))}
    names = {"texts": "{}.txt", "splits": "{}"}.get(kind, "{}")
    expected = {names.format(row["id"]): row["text"] for row in ROWS}
    if kind == "splits":
        expected = {f"{'train' if row in ROWS[:3] else 'other'}/{row['id']}": row["text"] for row in ROWS}
    assert found == expected
    assert index.tokens == sum(len(stored.reader.ids(row["text"])) for row in ROWS)
    assert rote.index.count(stored, "very tired").count == 4
    assert rote.index.count(stored, "very tired").documents == 2
    assert rote.index.count(stored, "愛麗絲").count == 1
    assert rote.index.count(stored, "nowhere").count == 0


def test_a_corpus_without_a_token(tmp_path: Path) -> None:
    path = corpora.write_jsonl(tmp_path / "corpus.jsonl", [{"text": ""}, {"text": None}])
    stored = rote.index.build(path, out=tmp_path / "index")
    assert (stored.index.documents, stored.index.tokens) == (2, 0)
    assert rote.index.count(stored, "Alice").count == 0
    assert rote.index.find(stored, "Alice").places == []
    assert rote.index.next(stored, "Alice").continuations == []
    assert rote.index.trace(stored, "Alice was").longest == 0
    assert rote.index.trace(stored, "x", least=1).spans == []
    (tmp_path / "none.jsonl").write_text("\n")
    with pytest.raises(InputError, match="holds no documents"):
        rote.index.build(tmp_path / "none.jsonl", out=tmp_path / "none")


IDS: list[dict[str, Any]] = [
    {"id": "one", "ids": [5, 6, 7, 5, 6]},
    {"id": "none", "ids": []},
    {"id": "two", "ids": [4095, 0]},
]


def write_ids(path: Path, kind: str) -> Path:
    if kind == "jsonl":
        return corpora.write_jsonl(path, IDS)
    types = {"list": pa.list_(pa.uint16()), "large": pa.large_list(pa.int64()), "small": pa.list_(pa.int32())}
    ids = pa.array([row["ids"] for row in IDS], type=types[kind])
    pq.write_table(pa.table({"id": [row["id"] for row in IDS], "ids": ids}), path)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "list", "large", "small"])
def test_a_corpus_of_token_ids(kind: str, tmp_path: Path) -> None:
    stored = rote.index.build(write_ids(tmp_path / "rows", kind), out=tmp_path / "index", ids="ids")
    assert [stored.index.document(n).tolist() for n in range(3)] == [row["ids"] for row in IDS]
    assert [stored.index.name(n) for n in range(3)] == ["one", "none", "two"]
    assert stored.index.count([5, 6]) == 2


def test_rows_of_one_length_in_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"rows": pa.array([[1, 2], [3, 4]], type=pa.list_(pa.uint32(), 2))}), tmp_path / "rows")
    stored = rote.index.build(tmp_path / "rows", out=tmp_path / "index", ids="rows")
    assert stored.index.document(1).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([5, 4096], "line 2: the token id 4096 is none of the tokenizer's, which are 0 to 4095"),
        ([-1], "line 2: the token id -1 is none"),
        ([1.5], r"line 2: 'ids' is \[1.5\]. Give a list of token ids"),
        ([True], "line 2: 'ids' is"),
        ("5 6", "line 2: 'ids' is '5 6'"),
        ([[5]], "line 2: 'ids' is"),
        ([10**30], "line 2: the token id 1000"),
    ],
)
def test_wrong_token_ids_are_named_by_row(ids: Any, said: str, tmp_path: Path) -> None:
    path = corpora.write_jsonl(tmp_path / "rows.jsonl", [{"ids": [1]}, {"ids": ids}])
    with pytest.raises(InputError, match=said):
        rote.index.build(path, out=tmp_path / "index", ids="ids")
    corpora.write_jsonl(path, [{"ids": [1]}, {"ids": [2]}])
    assert rote.index.build(path, out=tmp_path / "index", ids="ids").index.tokens == 2, "nothing was stored yet"


def test_columns_that_hold_no_token_ids(tmp_path: Path, corpus: Path) -> None:
    build = rote.index.build
    with pytest.raises(InputError, match=r"line 1: no 'ids'. Name the key that holds the ids with ids"):
        build(corpus, out=tmp_path / "index", ids="ids")
    path = corpora.write_parquet(tmp_path / "corpus.parquet", ROWS)
    with pytest.raises(InputError, match=r"the column 'text' of .* holds string, not token ids"):
        build(path, out=tmp_path / "index", ids="text")
    with pytest.raises(InputError, match="has no column 'ids'; it has id, text"):
        build(path, out=tmp_path / "index", ids="ids")
    with pytest.raises(InputError, match="holds texts, which have no token ids; leave ids out"):
        build(texts_of(tmp_path / "texts"), out=tmp_path / "index", ids="ids")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bytes": True, "tokenizer": "bundled"}, "bytes needs no tokenizer; leave tokenizer out"),
        ({"bytes": True, "revision": "main"}, "leave revision out"),
        ({"bytes": True, "ids": "ids"}, "bytes is for texts; leave ids out"),
        ({"revision": "main"}, "give tokenizer as well"),
        ({"ids": "ids", "text_column": "text"}, "name two contents; give one of them"),
        ({"memory": 0}, "memory=0: give gigabytes, more than 0"),
        ({"memory": float("nan")}, "memory"),
        ({"memory": "much"}, "memory"),
        ({"bytes": 1}, "bytes must be True or False"),
        ({"text_column": "words"}, "line 1: no 'words'"),
        ({"tokenizer": "./nowhere"}, "nowhere"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], said: str, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(RoteError, match=said):
        rote.index.build(corpus, out=tmp_path / "index", **options)


@pytest.fixture(scope="module")
def words_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of 70,000 words, which are their numbers."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("words")
    backend = Tokenizer(models.WordLevel({str(n): n for n in range(70_000)}, unk_token="0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="0").save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    return folder


@pytest.mark.parametrize("memory", [None, MEMORY])
def test_a_vocabulary_of_more_than_two_bytes(words_folder: Path, memory: float | None, tmp_path: Path) -> None:
    rows = [{"text": "65535 65536 1 69999"}, {"text": "0 65536 65535 65536 65535"}, {"text": "1 256 16777216"}]
    path = corpora.write_jsonl(tmp_path / "corpus.jsonl", rows)
    stored = rote.index.build(path, out=tmp_path / "index", tokenizer=str(words_folder), memory=memory)
    assert stored.manifest is not None
    assert (stored.manifest.width, stored.manifest.vocabulary) == (4, 70_000)
    assert stored.index.shards == (3 if memory else 1)
    assert rote.index.count(stored, "65535 65536").count == 2
    assert rote.index.count(stored, "65535").count == 3
    assert rote.index.count(stored, "69999").count == 1
    assert rote.index.count(stored, "1 256").count == 1
    follow = rote.index.next(stored, "65536").continuations
    assert [(each.token, each.text and each.text.strip(), each.count) for each in follow] == [
        (65535, "65535", 2), (1, "1", 1),
    ]  # fmt: skip
    assert [(each.token, each.count) for each in rote.index.next(stored, "69999").continuations] == [(None, 1)]


# --- stopped, and continued


@pytest.mark.parametrize("unit", ["tokens", "bytes"])
def test_shards_are_those_of_the_memory(unit: str, corpus: Path, tmp_path: Path) -> None:
    stored = rote.index.build(corpus, out=tmp_path / "index", bytes=unit == "bytes", memory=MEMORY)
    assert stored.index.shards == 4, "what is empty or a letter goes with the next"
    assert stored.index.documents == len(ROWS)
    assert rote.index.count(stored, "Alice was").count == 2
    places = rote.index.find(stored, "Alice").places
    assert [(place.document, place.character) for place in places] == [
        ("alice", 0), ("alice", 38 + (unit == "bytes")), ("alice", 50 + (unit == "bytes")), ("last", 0),
    ]  # fmt: skip


KILLS = {
    "tokenising": """
        import os, signal
        from rote.corpus.readings import Reader
        many = Reader.many
        def killed(self, texts):
            for number, ids in enumerate(many(self, texts)):
                if number == 4:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield ids
        Reader.many = killed
    """,
    "sorting": """
        import os, signal, subprocess
        run, calls = subprocess.run, []
        def killed(command, **options):
            calls.append(command)
            if len(calls) == 3:
                subprocess.Popen(command)
                os.kill(os.getpid(), signal.SIGKILL)
            return run(command, **options)
        subprocess.run = killed
    """,
}


@pytest.mark.parametrize("while_", KILLS)
def test_a_killed_build_goes_on(while_: str, built: dict[str, StoredIndex], corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    command: list[str | Path] = ["index", "build", corpus, "--out", folder, "--bytes", "--memory", f"{MEMORY:.9f}"]
    with rote_process(*command, before=textwrap.dedent(KILLS[while_])) as process:
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert not (folder / "table.4").exists()
    kept = (folder / "table.0").stat().st_mtime_ns
    with pytest.raises(RunError, match=r"is not finished\. Run the same rote index build again to go on"):
        open_index(folder)
    assert rote_here(*command).code == 0
    assert (folder / "table.0").stat().st_mtime_ns == kept
    assert content(folder) == content(built["bytes"].folder)


def test_a_build_stopped_by_hand_says_what_is_left(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rote.index.build(corpus, out=tmp_path / "whole", memory=MEMORY)
    ids = Reader.many

    def stopped(self: Reader, texts: Iterator[str]) -> Iterator[Any]:
        for number, each in enumerate(ids(self, texts)):
            if number == at:
                raise KeyboardInterrupt
            yield each

    monkeypatch.setattr(Reader, "many", stopped)
    command: list[str | Path] = ["index", "build", corpus, "--out", tmp_path / "index", "--memory", f"{MEMORY:.9f}"]
    lefts = {0: "nothing stored yet in", 1: "1 shard of the index stored in", 3: "2 shards of the index stored in"}
    for at, left in lefts.items():  # noqa: B007
        result = rote_here(*command)
        assert result.code == 130
        assert left in result.err
        assert "Run the same command again to go on." in result.err
    monkeypatch.undo()
    assert rote_here(*command).code == 0
    assert content(tmp_path / "index") == content(whole.folder)


def test_a_dataset_whose_files_are_in_no_order_goes_on_rightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents are read file by file, in the order of the files' names, whatever order state.json has."""
    path = corpora.write_dataset(tmp_path / "corpus", ROWS)
    state = json.loads((path / "state.json").read_text())
    state["_data_files"].reverse()
    (path / "state.json").write_text(json.dumps(state))
    whole = rote.index.build(path, out=tmp_path / "whole", bytes=True, memory=MEMORY)
    run, left = subprocess.run, 2

    def stopped(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return run(*arguments, **options)

    monkeypatch.setattr(subprocess, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        rote.index.build(path, out=tmp_path / "index", bytes=True, memory=MEMORY)
    monkeypatch.undo()
    again = rote.index.build(path, out=tmp_path / "index", bytes=True, memory=MEMORY)
    assert content(again.folder) == content(whole.folder)
    assert sorted(again.index.name(number) for number in range(len(ROWS))) == sorted(row["id"] for row in ROWS)


@pytest.mark.parametrize("after", [0, 1, 3, 7, 14])
def test_a_full_disk_and_then_not(
    after: int, built: dict[str, StoredIndex], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, room = os.fsync, after

    def full(file: int) -> None:
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    folder = tmp_path / "index"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=r"cannot write .*: No space left on device\. Free some space"):
            rote.index.build(corpus, out=folder, bytes=True, memory=MEMORY)
    assert not list(folder.rglob("*.part"))
    rote.index.build(corpus, out=folder, bytes=True, memory=MEMORY)
    assert content(folder) == content(built["bytes"].folder)


def test_no_room_for_the_table_is_said_before_sorting(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    corpora.write_jsonl(corpus, [{"text": "a" * 199_999}])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=599_999))
    with pytest.raises(RunError, match=r"tokenized\.0 needs 0\.6 MB, and .* has room for 0\.6\. Free some space"):
        rote.index.build(corpus, out=tmp_path / "index", bytes=True)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=600_000))
    assert rote.index.build(corpus, out=tmp_path / "index", bytes=True).index.count(b"aa") == 199_998
    assert (tmp_path / "index/table.0").stat().st_size == 600_000


def test_a_builder_that_fails_is_quoted(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panic = "thread 'main' panicked at src/main.rs:1:\nout of luck\nnote: run with `RUST_BACKTRACE=1`\n"
    for code, said, expected in ((101, panic, r": out of luck\. If memory ran out"), (-9, "", "it ended with -9")):
        done = subprocess.CompletedProcess([], code, "", said)
        monkeypatch.setattr(subprocess, "run", lambda *_, done=done, **__: done)
        with pytest.raises(RunError, match=expected):
            rote.index.build(corpus, out=tmp_path / "index", bytes=True)
    assert not list((tmp_path / "index").glob("sort-*"))


def test_a_folder_that_cannot_be_written(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot make the folder .*\. Choose another out"):
        rote.index.build(corpus, out=tmp_path / "file", bytes=True)
    (tmp_path / "file").unlink()
    with pytest.raises(RunError, match=r"is not empty \(it has corpus.jsonl\) and holds no index"):
        rote.index.build(corpus, out=corpus.parent, bytes=True)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(RunError, match=r"is not writable\. Choose another out or mend its permissions"):
        rote.index.build(corpus, out=tmp_path / "index", bytes=True)


# --- what does not fit


def test_a_folder_made_differently_is_left_alone(
    built: dict[str, StoredIndex], tiny_folder: Path, words_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "index"
    shutil.copytree(built["tokens"].folder, folder)
    corpus = corpora.write_jsonl(tmp_path / "corpus.jsonl", ROWS)
    before = content(folder)
    build = rote.index.build
    build(corpus, out=folder)
    build(corpus, out=folder, tokenizer=str(tiny_folder))  # which has the bundled tokenizer
    with pytest.raises(RunError, match=r"made of tokens, not of bytes\. Choose another out, or delete the folder"):
        build(corpus, out=folder, bytes=True)
    with pytest.raises(RunError, match=r"made with another tokenizer \(bundled\) than that of .*words"):
        build(corpus, out=folder, tokenizer=str(words_folder))
    with pytest.raises(RunError, match="made with another memory"):
        build(corpus, out=folder, memory=1)
    corpora.write_jsonl(corpus, [{**row, "text": row["text"].replace("tired", "tried")} for row in ROWS])
    with pytest.raises(RunError, match=r"of another corpus \(corpus.jsonl, 6 documents\) than corpus.jsonl is now"):
        build(corpus, out=folder)
    assert content(folder) == before


def test_a_model_with_another_tokenizer_is_refused(built: dict[str, StoredIndex], bundled: Any) -> None:
    stored = built["tokens"]
    stored.require_tokenizer("bundled", tokenizer_hash(bundled.tokenizer))
    with pytest.raises(InputError, match=r"made with another tokenizer \(bundled\) than that of other-model.*--bytes"):
        stored.require_tokenizer("other-model", "0" * 32)
    with pytest.raises(InputError, match="another tokenizer"):
        stored.require_tokenizer("other-model", None)
    built["bytes"].require_tokenizer("other-model", "0" * 32)


def test_asking_with_another_tokenizer_is_refused(
    built: dict[str, StoredIndex], words_folder: Path, tiny_folder: Path
) -> None:
    folder, count = built["tokens"].folder, rote.index.count
    assert count(folder, "very tired", tokenizer=str(tiny_folder)).count == 4
    other = r"is no longer the one that this was made with\. Say where that is with tokenizer"
    with pytest.raises(InputError, match=other):
        count(folder, "very tired", tokenizer=str(words_folder))
    with pytest.raises(InputError, match=r"needs the tokenizer it was made with: .*nowhere"):
        count(folder, "very tired", tokenizer="./nowhere")
    with pytest.raises(InputError, match="is one of bytes; leave tokenizer out"):
        count(built["bytes"].folder, "very tired", tokenizer="bundled")
    with pytest.raises(InputError, match="the index is open, with its tokenizer; leave tokenizer out"):
        count(built["tokens"], "very tired", tokenizer="bundled")


def test_an_index_of_infini_grams_own(built: dict[str, StoredIndex], words_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    shutil.copytree(built["tokens"].folder, folder)
    (folder / "index.json").unlink()
    count = rote.index.count
    with pytest.raises(InputError, match=r"nothing says which tokenizer it was made with\. Name it with tokenizer"):
        count(folder, "very tired")
    assert count(folder, "very tired", tokenizer="bundled").count == 4
    stored = open_index(folder, "bundled")
    assert stored.manifest is None
    assert len(stored.id) == 64
    stored.require_tokenizer("bundled", tokenizer_hash(stored.tokenizer))
    for tokenizer in ("bytes", str(words_folder)):
        with pytest.raises(InputError, match=r"width|do not fit together"):
            count(folder, "very tired", tokenizer=tokenizer)
    (folder / "metadata.0").write_text('{"path": "a.jsonl", "linenum": 6, "metadata": {}}\n')
    (folder / "metaoff.0").write_bytes(bytes(8))
    assert open_index(folder, "bundled").index.name(0) == "a.jsonl, line 7", "they count lines from 0"
    for name in ("metadata.0", "metaoff.0"):
        (folder / name).unlink()
    assert rote.index.find(folder, "tired", tokenizer="bundled").places[0].document == "document 0"
    for name, said in (("offset.0", "offset.0 is missing"), ("tokenized.0", "holds no index")):
        (folder / name).unlink()
        with pytest.raises(InputError, match=said):
            count(folder, "very tired", tokenizer="bundled")
    (bytes_folder := tmp_path / "bytes").mkdir()
    for path in built["bytes"].folder.iterdir():
        if path.name != "index.json":
            shutil.copy(path, bytes_folder)
    assert count(bytes_folder, "ery tire", tokenizer="bytes").count == 4


def test_without_infini_gram(
    built: dict[str, StoredIndex], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("infini_gram", "infini_gram.engine"):
        monkeypatch.setitem(sys.modules, name, None)
    needs = r"needs the package infini-gram \(Linux, x86\): pip install 'rote\[index\]'"
    with pytest.raises(RoteError, match=needs):
        rote.index.build(corpus, out=tmp_path / "index")
    assert not (tmp_path / "index").exists(), "it is said before anything is begun"
    with pytest.raises(RoteError, match=needs):
        rote.index.count(built["bytes"].folder, "Alice")


def test_an_index_is_no_run(built: dict[str, StoredIndex], tmp_path: Path) -> None:
    said = "holds an index of a corpus, which has no scores. Ask it with rote index count, find, next or trace."
    with pytest.raises(RunError, match=re.escape(said)):
        rote.open(built["bytes"].folder)
    assert said in rote_here("report", built["bytes"].folder).err
    shutil.copytree(built["bytes"].folder, tmp_path / "there")
    with pytest.raises(RunError, match=r"index\.json is there already and belongs to no run.*choose another out"):
        rote.scan(rote.load("bundled"), "down the rabbit-hole " * 40, out=tmp_path / "there")
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench/bench.json").write_text("{}")
    with pytest.raises(RunError, match=r"holds a benchmark, which has no scores.*rote bench inspect"):
        rote.open(tmp_path / "bench")
    for nothing, said in ((tmp_path, "holds no index"), (tmp_path / "none", "there is no folder")):
        with pytest.raises(InputError, match=said):
            rote.index.count(nothing, "Alice")
    damaged = tmp_path / "damaged"
    shutil.copytree(built["bytes"].folder, damaged)
    (damaged / "index.json").write_text("{}")
    with pytest.raises(RunError, match=r"index.json names no format.*, and run rote index build again"):
        rote.index.count(damaged, "Alice")


def test_an_index_without_its_last_shard_is_refused(built: dict[str, StoredIndex], tmp_path: Path) -> None:
    """Its counts would be too low."""
    damaged, last = tmp_path / "damaged", built["bytes"].index.shards - 1
    shutil.copytree(built["bytes"].folder, damaged)
    for path in damaged.glob(f"*.{last}"):
        path.unlink()
    with pytest.raises(RunError, match=r"not those that its index.json lists\. Copy the whole index again"):
        rote.index.count(damaged, "Alice")


@pytest.mark.parametrize("unit", ["tokens", "bytes"])
def test_nothing_to_look_for(unit: str, built: dict[str, StoredIndex]) -> None:
    stored = built[unit]
    for ask in (rote.index.count, rote.index.find, rote.index.next):
        with pytest.raises(InputError, match="the text to look for is empty"):
            ask(stored, "")
        with pytest.raises(InputError, match="half of a surrogate pair"):
            ask(stored, "Al\ud800ice")
    for most in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="most"):
            rote.index.find(stored, "Alice", most=most)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="most"):
            rote.index.next(stored, "Alice", most=most)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="least"):
            rote.index.trace(stored, "Alice", least=most)  # type: ignore[arg-type]


# --- answers, on random texts


PIECES = ["to get", "very", "tired", "Alice", "a", "aa", "é", "è", "愛", "🐇", "\n", "'s", "1865", ",", "  ", "\u0301"]
TEXTS = st.lists(st.tuples(st.sampled_from(["", " "]), st.sampled_from(PIECES)), max_size=9).map(
    lambda parts: "".join(a + b for a, b in parts)
)


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[str], str]:
    """Documents, and a text of which most is somewhere in them."""
    documents = draw(st.lists(TEXTS, min_size=1, max_size=4))
    source = draw(st.sampled_from(documents))
    start = draw(st.integers(0, len(source)))
    text = source[start : start + draw(st.integers(0, 12))] + draw(st.sampled_from(["", "", " ", "tired", "愛"]))
    return documents, text or "a"


@pytest.fixture(scope="module")
def readers(bundled: Any) -> dict[str, Reader]:
    return {"tokens": Reader(bundled.tokenizer), "bytes": Reader(None)}


def after_a_line(reader: Reader, text: str) -> list[int]:
    ids, line = reader.ids("\n" + text), reader.ids("\n")
    return ids[len(line) :] if ids[: len(line)] == line else reader.ids(text)


@cases(100)
@given(searches(), st.sampled_from(["tokens", "bytes"]), st.sampled_from([1, 1 << 30]))
def test_answers_about_texts_are_those_of_reading_them(
    tmp_path_factory: pytest.TempPathFactory,
    readers: dict[str, Reader],
    searched: tuple[list[str], str],
    unit: Any,
    room: int,
) -> None:
    (texts, text), reader = searched, readers[unit]
    folder = tmp_path_factory.getbasetemp() / "texts"
    documents = [list(ids) for ids in reader.many(texts)]
    index = indexed(folder, documents, 1 if unit == "bytes" else 2, room)
    object.__setattr__(index, "unit", unit)
    stored = StoredIndex(folder, index, None, None, None)
    stored.__dict__["reader"] = reader
    occurrences = [
        (number, at)
        for number, content in enumerate(texts)
        for at in range(len(content))
        if content.startswith(text, at)
    ]

    counted = rote.index.count(stored, text)
    found = rote.index.find(stored, text, most=1000)
    if unit == "bytes":
        assert counted.count == len(occurrences)
        assert [(place.number, place.character) for place in found.places] == occurrences
    else:
        ways = [reader.ids(text)] + ([] if text[0].isspace() else [reader.ids(" " + text), after_a_line(reader, text)])
        ends = {(number, at + len(ids)) for ids in ways for number, at in search.places(documents, ids)}
        assert counted.count == len(ends) <= len(occurrences)
        assert counted.documents == len({number for number, _ in ends})
    assert found.count == counted.count == len(found.places)
    for place in found.places:
        content = texts[place.number]
        assert content[place.character :].removeprefix("" if text[0] == " " else " ").startswith(text)
        assert place.document == f"d{place.number}"
        assert place.text.removeprefix("" if text[0] == " " else " ") == text
        if "�" not in place.before + place.after:
            assert place.before + place.text + place.after in content

    following = rote.index.next(stored, text, most=1000)
    assert following.count == counted.count
    assert sum(each.count for each in following.continuations) == counted.count
    for each in following.continuations:
        if each.text is not None and "�" not in each.text:
            assert any((text + each.text) in content for content in texts)

    traced = rote.index.trace(stored, text, least=1)
    ids = reader.ids(text)
    assert traced.tokens == len(ids)
    assert sorted((s.first_token, s.first_token + s.tokens) for s in traced.spans) == search.spans(documents, ids, 1)
    assert traced.longest == max(search.longest(documents, ids))
    for span in traced.spans:
        assert span.text == text[span.start : span.end]
        assert span.text in texts[span.place.number]
        assert span.text in span.place.text
        assert span.count == len(search.places(documents, ids[span.first_token : span.first_token + span.tokens]))


@pytest.mark.parametrize("space_of_its_own", [True, False])
def test_a_tokenizer_that_puts_a_space_before_a_text(space_of_its_own: bool, tmp_path: Path) -> None:
    """As Llama's does: what begins a line, or follows a quotation mark, is not what begins a text."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    merges = [("i", "c"), ("ic", "e"), ("A", "l"), ("Al", "ice"), *([] if space_of_its_own else [("▁", "Alice")])]
    pieces = ["▁", "A", "l", "ice", "Al", "Alice", "\n", "‘", "s", "o", "▁Alice", "d"]
    if space_of_its_own:
        pieces.remove("▁Alice")
    vocabulary = {piece: number for number, piece in enumerate([*pieces, "i", "c", "e", "ic"])}
    backend = Tokenizer(models.BPE(vocabulary, merges))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    reader = Reader(PreTrainedTokenizerFast(tokenizer_object=backend))
    texts = ["Alice", "so Alice", "so\nAlice", "‘Alice Alice", "soAlice"]
    index = indexed(tmp_path / "index", [list(ids) for ids in reader.many(texts)], 2)
    stored = StoredIndex(tmp_path, index, None, None, None)
    stored.__dict__["reader"] = reader
    counted = rote.index.count(stored, "Alice")
    assert (counted.count, counted.documents) == (6, 5)
    alone = {"after a line break": 6} if space_of_its_own else {"alone": 3, "after a line break": 3}
    assert {reading.how: reading.count for reading in counted.readings} == alone
    for place in rote.index.find(stored, "Alice").places:
        assert texts[place.number][place.character :].removeprefix(" ").startswith("Alice")
    follows = rote.index.next(stored, "Alice").continuations
    assert [(each.text, each.count) for each in follows if each.text] == [
        (" Alice" if not space_of_its_own else " ", 1)
    ]


def test_part_of_a_character_is_not_told_as_one(readers: dict[str, Reader], tmp_path: Path) -> None:
    """é and è begin with the same byte."""
    stored = StoredIndex(tmp_path, indexed(tmp_path / "index", [list("xè".encode())], 1), None, None, None)
    object.__setattr__(stored.index, "unit", "bytes")
    (span,) = rote.index.trace(stored, "xéy", least=2).spans
    assert (span.tokens, span.start, span.end, span.text) == (2, 0, 1, "x")


# --- what the bundled model writes


def test_a_generation_is_traced_to_its_book(bundled: Any, alice: str, gatsby: str, tmp_path: Path) -> None:
    from tests.conftest import ROOT

    speeches = sorted((ROOT / "training/data/speeches/inaugural").glob("*.txt"))[:4]
    rows = [{"id": path.stem, "text": path.read_text(encoding="utf-8")} for path in speeches]
    path = corpora.write_jsonl(tmp_path / "corpus.jsonl", [*rows[:2], {"id": "Alice", "text": alice}, *rows[2:]])
    stored = rote.index.build(path, out=tmp_path / "index")

    at = alice.index("There was nothing so VERY remarkable")
    prompt = stored.reader.ids(alice[at : at + 300])[:50]
    end = at + len(stored.reader.text(prompt))
    (output,) = bundled.generate([bundled.bos_id, *prompt], rote.Scheme(temperature=0), length=100, samples=1, seed=0)
    written = stored.reader.text(output)
    traced = rote.index.trace(stored, written)
    longest = traced.spans[0]
    assert longest.tokens >= 98, "the last word may be cut"
    assert (longest.place.document, longest.place.number, longest.count) == ("Alice", 2, 1)
    assert longest.place.character == end + longest.start, "it goes on where the prompt ended"
    assert alice[longest.place.character :].startswith(longest.text)

    other = rote.index.trace(stored, gatsby[50_000:54_000])
    assert other.tokens > 1000
    assert 3 <= other.longest <= 8, "of the whole book, too"
    assert (other.spans, other.covered) == ([], 0)


def test_a_finished_index_is_held_against_what_was_built(tmp_path: Path) -> None:
    corpus = corpora.write_jsonl(tmp_path / "corpus.jsonl", [{"id": "a", "text": "one two three one two"}])
    rote.index.build(corpus, out=tmp_path / "index")
    rote.index.build(corpus, out=tmp_path / "index")
    for name in ("table.0", "tokenized.0"):
        path = tmp_path / "index" / name
        content = path.read_bytes()
        path.write_bytes(content[:-2] + content[:2])
        with pytest.raises(RunError, match=f"{name} is gone, or was changed"):
            rote.index.build(corpus, out=tmp_path / "index")
        path.write_bytes(content)
