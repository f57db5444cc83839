"""What `rote index` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import rote
from tests.cli.command import rote_here, rote_in_terminal
from tests.cli.test_screen import ESCAPE
from tests.corpus import corpora

pytest.importorskip("infini_gram")

ESCAPES = "\x1b[31mred\x1b[0m \x1b]0;title\x07"
ROWS: list[dict[str, Any]] = [
    {"id": "first\nid \x1b[2J", "text": f"Alice was tired. The tired {ESCAPES} Alice was tired. "},
    {"id": "second", "text": "Who was tired? " + "word " * 200 + "Alice. " + "word " * 200},
    {"id": "third", "text": "Nobody"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexes")
    corpus = corpora.write_jsonl(folder / "corpus.jsonl", ROWS)
    rote.index.build(corpus, out=folder / "tokens")
    rote.index.build(corpus, out=folder / "bytes", bytes=True)
    (folder / "output.txt").write_text(f"He said: Who was tired? {ROWS[0]['text'][:40]} Nobody")
    return folder


def said(*arguments: str | Path) -> str:
    result = rote_here("index", *arguments)
    assert (result.code, result.err) == (0, "")
    return result.out


WHOLE = "Found as whole tokens:"


def test_build(folder: Path) -> None:
    out = said("build", folder / "corpus.jsonl", "--out", folder / "tokens")
    assert "3 documents, " in out
    assert " tokens of bundled, 1 shard, " in out
    assert " bytes of text, 1 shard" in said("build", folder / "corpus.jsonl", "--out", folder / "bytes", "--bytes")
    manifest = json.loads(said("build", folder / "corpus.jsonl", "--out", folder / "tokens", "--json"))
    assert manifest == json.loads((folder / "tokens/index.json").read_text())


def test_count(folder: Path) -> None:
    out = said("count", folder / "tokens", "was tired")
    assert out.startswith("It stands in the corpus 3 times, in 2 documents.\nThe corpus has 3 documents and ")
    assert "As the tokens that it is alone: 0; after a space: 3.\n" in out
    assert WHOLE in out
    assert said("count", folder / "bytes", "as tire").startswith("It stands in the corpus 3 times, in 2 documents.")
    assert WHOLE not in said("count", folder / "bytes", "as tire")
    assert "It stands in the corpus nowhere." in said("count", folder / "tokens", "rabbit")
    assert "It stands in the corpus once, in 1 document." in said("count", folder / "tokens", "Nobody")
    found = json.loads(said("count", folder / "tokens", "Alice", "--json"))
    assert (found["count"], found["documents"]) == (3, 2), "a document that has it in both ways is one"
    assert sum(reading["documents"] for reading in found["readings"]) == 3


def test_find(folder: Path) -> None:
    out = said("find", folder / "bytes", "Alice", "--most", "2")
    assert "It stands in the corpus 3 times.\nThe first 2 places, in the order of the corpus:\n" in out
    lines = out.splitlines()
    assert lines[3].endswith("character 0 (byte 0 of 68)")
    assert lines[4].startswith("[Alice] was tired.")
    assert lines[4].endswith("Alice was tired."), "nothing is left out before or after"
    around = said("find", folder / "tokens", "Alice. word").splitlines()
    assert around[3].startswith("…")
    assert around[3].endswith("…")
    assert "[ Alice. word]" in around[3]


def test_next(folder: Path) -> None:
    out = said("next", folder / "tokens", "Nobody")
    assert "What follows: 1 continuation\n" in out
    assert "(the document ends)" in out
    assert "100%" in out
    assert "What follows: the 1 most frequent of 2 continuations" in said(
        "next", folder / "bytes", "was tired", "--most", "1"
    )
    nothing = said("next", folder / "bytes", "rabbit")
    assert nothing == "It stands in the corpus nowhere.\n"


def test_trace(folder: Path) -> None:
    out = said("trace", folder / "bytes", folder / "output.txt", "--least", "14")
    assert " bytes of output.txt stand in the corpus in spans of at least 14; the longest span has " in out
    assert "15 bytes at character 9 of the text, once in the corpus:\n" in out
    assert "second, character 0 (byte 0 of " in out
    assert "0% of the " in said("trace", folder / "bytes", folder / "output.txt", "--least", "1000")
    (folder / "empty.txt").write_text("")
    for kind in ("tokens", "bytes"):
        result = rote_here("index", "trace", folder / kind, folder / "empty.txt")
        assert result.code == 1
        assert "is empty" in result.err


@pytest.mark.parametrize(
    "command",
    [
        ["find", "bytes", "Alice"],
        ["next", "tokens", "tired"],
        ["trace", "bytes", "output.txt", "--least", "5"],
    ],
    ids=lambda command: command[0],
)
def test_a_corpus_cannot_act_on_the_terminal_and_fits_it(command: list[str], folder: Path) -> None:
    shown = rote_in_terminal([["index", *command]], widths=[40, 100], within=folder)
    for (_, width), result in shown.items():
        assert result.code == 0
        text = ESCAPE.sub("", result.out)
        for acting in ("\x1b[2J", "\x1b[31m", "\x1b]", "\x07"):
            assert acting not in result.out
        assert "\x1b" not in text
        assert len(text.splitlines()) > 3
        assert [line for line in text.splitlines() if cell_len(line) > width] == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["count", "tokens", ""], "the text to look for is empty"),
        (["count", "nothing", "Alice"], "there is no folder nothing"),
        (["count", ".", "Alice"], "holds no index"),
        (["find", "tokens", "Alice", "--most", "0"], "--most"),
        (["next", "tokens", "Alice", "--most", "-3"], "--most"),
        (["trace", "tokens", "nothing.txt"], "nothing.txt"),
        (["trace", "tokens", "output.txt", "--least", "0"], "--least"),
        (["count", "bytes", "Alice", "--tokenizer", "bundled"], "leave --tokenizer out"),
        (["build", "corpus.jsonl", "--out", "tokens", "--bytes"], "of tokens, not of bytes. Choose another --out"),
        (["build", "corpus.jsonl", "--out", "new", "--memory", "0"], "--memory 0"),
        (["build", "corpus.jsonl", "--out", "new", "--bytes", "--model", "bundled"], "leave --model out"),
        (["build", "output.txt", "--out", "new"], "is one text. Give a folder of texts"),
    ],
)
def test_errors_name_the_option(
    arguments: list[str], error: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    result = rote_here("index", *arguments)
    assert result.code in (1, 2)
    assert error in " ".join(result.err.replace("│", " ").split())
    assert "Traceback" not in result.err
