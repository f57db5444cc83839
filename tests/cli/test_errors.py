"""The same mistake in Python and on the command line: each names what its user wrote, and how to write it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import Draw, Example, ModelOptions, Near, RoteError, Scheme, Windows, Writing
from rote.cli.items import items
from tests.cli.command import rote_here
from tests.corpus.corpora import write_jsonl, write_texts

SEED = "Alice was beginning to get very tired of sitting by her sister"


@dataclass(frozen=True)
class World:
    """A model, a text, a corpus of each kind, examples and a finished scan."""

    model: Any
    tiny: Path
    book: Path
    corpus: Path
    texts: Path
    examples: Path
    run: Path

    def command(self, words: Sequence[str]) -> list[str]:
        """`{book}` and the like stand for what is there."""
        return [word.format(**vars(self)) if re.fullmatch(r"\{\w+\}", word) else word for word in words]


@pytest.fixture(scope="module")
def world(tiny_folder: Path, alice: str, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    rows = [{"id": f"{i}.txt", "text": alice[i : i + 400]} for i in range(0, 1200, 400)]
    (folder / "book.txt").write_text(alice[3000:3600])
    model = rote.load(tiny_folder, ModelOptions(device="cpu"))
    run = rote.scan(model, folder / "book.txt", out=folder / "run", windows=Windows(8, 6, 50))
    return World(
        model=model,
        tiny=tiny_folder,
        book=folder / "book.txt",
        corpus=write_jsonl(folder / "corpus.jsonl", rows),
        texts=write_texts(folder / "texts", rows),
        examples=write_jsonl(folder / "examples.jsonl", [{"prefix": [1, 2], "suffix": [3]}]),
        run=run.folder,
    )


@dataclass(frozen=True)
class Mistake:
    """A call, and words of its error; a command, and words of its error."""

    call: Callable[[World], Any]
    said: str
    command: list[str]
    told: str

    def __str__(self) -> str:
        return " ".join(self.command)


def on_cpu(*words: str) -> list[str]:
    return [*words, "--model", "{tiny}", "--device", "cpu"]


MISTAKES = [
    Mistake(
        lambda w: Scheme(top_k=-1),
        "top_k must be a whole number of at least 1, not -1; top_k=None keeps the whole vocabulary.",
        on_cpu("scan", "{book}", "--top-k", "-1"),
        "--top-k must be a whole number of at least 1, not -1; --top-k 0 keeps the whole vocabulary.",
    ),
    Mistake(
        lambda w: Scheme(temperature=0, top_k=5),
        "temperature=0 is greedy decoding, to which top_k, top_p and min_p do not apply; leave them out",
        on_cpu("scan", "{book}", "--temperature", "0", "--top-k", "5"),
        "--temperature 0 is greedy decoding, to which --top-k, --top-p and --min-p do not apply; leave them out",
    ),
    Mistake(
        lambda w: rote.scan(w.model, w.book, windows=Windows(8, 6), schemes=Scheme(top_k=5000), out=w.run / "x"),
        "top_k=5000 is larger than the model's vocabulary of 4096 tokens; choose a smaller top_k, or top_k=None to",
        on_cpu("scan", "{book}", "--prefix", "8", "--suffix", "6", "--top-k", "5000", "--out", "/nowhere"),
        "--top-k 5000 is larger than the model's vocabulary of 4096 tokens; choose a smaller --top-k, or --top-k 0 to",
    ),
    Mistake(
        lambda w: Windows(stride=0),
        "stride must be a whole number of at least 1, not 0.",
        on_cpu("scan", "{book}", "--stride", "0"),
        "--stride must be a whole number of at least 1, not 0.",
    ),
    Mistake(
        lambda w: rote.scan(w.model, w.book, stop_early=True, tau=0.5),
        "with stop_early, tau must be at most 0.01",
        on_cpu("scan", "{book}", "--stop-early", "--tau", "0.5"),
        "with --stop-early, --tau must be at most 0.01",
    ),
    Mistake(
        lambda w: Near(method="beam", samples=5),
        "samples go with method='sample' or method='fork', not with method='beam'.",
        on_cpu("scan", "{book}", "--near", "--method", "beam", "--samples", "5"),
        "--samples go with --method sample or --method fork, not with --method beam.",
    ),
    Mistake(
        lambda w: Near(variant="pruned"),
        "variant changes nothing here; it goes with method='beam'.",
        on_cpu("scan", "{book}", "--near", "--variant", "pruned"),
        "--variant changes nothing here; it goes with --method beam.",
    ),
    Mistake(
        lambda w: ModelOptions(threads=0),
        "threads must be a whole number of at least 1, not 0.",
        ["scan", "{book}", "--threads", "0"],
        "--threads must be a whole number of at least 1, not 0.",
    ),
    Mistake(
        lambda w: rote.load(w.tiny, ModelOptions(device="abacus")),
        "device must be auto, cpu, cuda, cuda:N or mps, not 'abacus'.",
        ["scan", "{book}", "--model", "{tiny}", "--device", "abacus"],
        "--device must be auto, cpu, cuda, cuda:N or mps, not 'abacus'.",
    ),
    Mistake(
        lambda w: rote.load("cloud:something"),
        "there is no source of models called 'cloud', as model 'cloud:something' asks for",
        ["scan", "{book}", "--model", "cloud:something"],
        "there is no source of models called 'cloud', as --model 'cloud:something' asks for",
    ),
    Mistake(
        lambda w: rote.score(w.model, w.examples, prefix=5),
        "prefix has 2 tokens, and prefix=5 asks for another length. Leave it out",
        on_cpu("score", "{examples}", "--prefix", "5"),
        "prefix has 2 tokens, and --prefix 5 asks for another length. Leave it out",
    ),
    Mistake(
        lambda w: rote.rate(w.model, w.corpus, held_out=w.corpus),
        "held_out is the corpus itself",
        on_cpu("rate", "{corpus}", "--held-out", "{corpus}"),
        "--held-out is the corpus itself",
    ),
    Mistake(
        lambda w: rote.rate(w.model, w.texts, text_column="body"),
        "has no columns; leave text_column out.",
        on_cpu("rate", "{texts}", "--text-column", "body"),
        "has no columns; leave --text-column out.",
    ),
    Mistake(
        lambda w: Draw(runs=0),
        "runs must be a whole number of at least 1, not 0.",
        on_cpu("rate", "{corpus}", "--runs", "0"),
        "--runs must be a whole number of at least 1, not 0.",
    ),
    Mistake(
        lambda w: rote.sweep(w.model, w.book),
        "there is nothing to vary; give schemes, prefixes or suffixes.",
        on_cpu("sweep", "{book}"),
        "there is nothing to vary; give --scheme, --prefix or --suffix.",
    ),
    Mistake(
        lambda w: rote.reconstruct(w.model, SEED),
        "how long should the text get? Give tokens, or truth to go by its length.",
        on_cpu("reconstruct", "--seed", SEED),
        "how long should the text get? Give --tokens, or --truth to go by its length.",
    ),
    Mistake(
        lambda w: Writing(context_tokens=10),
        "context_tokens=10 leaves no room for step=50; use a longer context or shorter steps.",
        on_cpu("reconstruct", "--seed", SEED, "--context-tokens", "10"),
        "--context-tokens 10 leaves no room for --step 50; use a longer context or shorter steps.",
    ),
    Mistake(
        lambda w: Writing(section_break="CHAPTER {roman}"),
        "or section_break=None to end the text where the model ends it.",
        on_cpu("reconstruct", "--seed", SEED, "--section-break", "CHAPTER {roman}"),
        "or --section-break none to end the text where the model ends it.",
    ),
    Mistake(
        lambda w: rote.check(w.run, w.model, samples=0),
        "samples must be a whole number of at least 1, not 0.",
        ["check", "{run}", "--samples", "0", "--device", "cpu"],
        "--samples must be a whole number of at least 1, not 0.",
    ),
    Mistake(
        lambda w: rote.show(w.run),
        "give exactly one of example, quote and at.",
        ["show", "{run}"],
        "give exactly one of --example, --quote and --at.",
    ),
    Mistake(
        lambda w: rote.show(w.run, at=123456),
        "at=123456: the text has characters 0 to 599.",
        ["show", "{run}", "--at", "123456"],
        "--at 123456: the text has characters 0 to 599.",
    ),
    Mistake(
        lambda w: rote.spots(w.run, at=2),
        "at is a probability and must lie in (0, 1], not 2",
        ["spots", "{run}", "--at", "2"],
        "--at is a probability and must lie in (0, 1], not 2",
    ),
    Mistake(
        lambda w: rote.spots(w.run, top=0),
        "top is how many hot-spots to give and must be at least 1, not 0.",
        ["spots", "{run}", "--top", "0"],
        "--top is how many hot-spots to give and must be at least 1, not 0.",
    ),
    Mistake(
        lambda w: rote.export(w.run, "csv", out=w.run),
        "out ",
        ["export", "{run}", "--to", "csv", "--out", "{run}"],
        "--out ",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_errors_name_what_their_user_wrote(mistake: Mistake, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.book.parent)  # where a run would go by default
    before = sorted(world.book.parent.rglob("*"))
    with pytest.raises(RoteError) as error:
        mistake.call(world)
    assert mistake.said in str(error.value)
    assert not re.search(r"(?<!\S)--\w", str(error.value)), "Python has no options"
    result = rote_here(*world.command(mistake.command))
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert mistake.told in result.err
    not_in_python_s_words(mistake.command[0], result.err)
    assert sorted(world.book.parent.rglob("*")) == before


def not_in_python_s_words(command: str, message: str) -> None:
    """A command line has no pathlib and no arguments: neither top_k nor top_k=40."""
    assert "pathlib" not in message
    for item in items(command):
        assert not re.search(rf"\b{item.name}=", message)
        assert "_" not in item.name or item.name not in message


def test_parts_of_a_label_are_no_options(world: World) -> None:
    """In a scheme's label top_k=5000 is what was typed, and 0 is how to type that all are kept."""
    command = on_cpu("sweep", "{book}", "--scheme", "top_k=5000", "--prefix", "8", "--suffix", "6", "--out", "/nowhere")
    result = rote_here(*world.command(command))
    assert result.code == 1
    assert "top_k=5000 is larger than the model's vocabulary of 4096 tokens" in result.err
    assert "or top_k=0 to keep the whole vocabulary" in result.err
    wrong = rote_here(*world.command(on_cpu("sweep", "{book}", "--scheme", "top_q=5")))
    assert "the scheme 'top_q=5' is not understood; write it as in top_k=5,40" in wrong.err


@pytest.mark.parametrize(
    "command",
    [
        ["scan", "nowhere.txt"], ["score", "nowhere.jsonl"], ["rate", "nowhere"], ["sweep", "nowhere.txt"],
        ["reconstruct", "--seed", "nowhere.txt"], ["reconstruct", "--seed", "nowhere"],
        ["reconstruct", "--seed", SEED, "--truth", "nowhere.txt"], ["rate", "{corpus}", "--held-out", "nowhere"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_missing_file_is_named_before_a_model_is_loaded(
    command: list[str], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: Any) -> None:
        pytest.fail("loading a model may take minutes")

    monkeypatch.setattr(rote, "load", load, raising=False)
    result = rote_here(*world.command(command))
    assert (result.code, result.out) == (1, "")
    assert "nowhere" in result.err
    assert re.search("there is no such file( or folder)?. Check the path", result.err)
    not_in_python_s_words(command[0], result.err)


def test_a_text_of_one_word_is_the_name_of_a_file(world: World) -> None:
    """On a command line a text may be typed; in Python a str is the text, and one that must be a path is refused."""
    with pytest.raises(RoteError, match=r"seed is 'book\.txt', which looks like the path of a file.*pathlib\.Path\("):
        rote.reconstruct(world.model, "book.txt")
    with pytest.raises(RoteError, match=r"give a list of examples or of their objects, or pathlib\.Path\("):
        rote.score(world.model, "examples.jsonl")  # type: ignore[arg-type]
    with pytest.raises(RoteError, match="examples, number 2: it is int"):
        rote.score(world.model, [Example("a", (1,), (2,)), 3])  # type: ignore[list-item]


def test_an_error_while_printing_is_told_in_the_same_words(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from rote.errors import InputError, argument

    def fail(*_: Any) -> None:
        raise InputError(f"{argument('stop_early')} is the matter.")

    monkeypatch.setattr("rote.cli.scan.print_summary", fail)
    options = ["--prefix", "8", "--suffix", "6", "--stride", "50", "--out", "{run}"]
    result = rote_here(*world.command(on_cpu("scan", "{book}", *options)))
    assert (result.code, result.err) == (1, "error: --stop-early is the matter.\n")
