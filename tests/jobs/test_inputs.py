"""What jobs and searches take: texts and files, examples in every shape, one scheme or several."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

import rote
from rote import Example, InputError, Near, Run, Scheme, Writing
from rote.corpus.formats import as_examples
from tests.jobs.support import SIZES, same_table

SEED = "Alice was beginning to get very tired of sitting by her sister on the"
WRITING = Writing(tokens=30, step=5, beams=1, context_tokens=25)


@pytest.fixture
def book(text: str, tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(text[:300])
    return path


# --- texts


def test_a_file_is_scanned_like_its_text(model: Any, book: Path, tmp_path: Path) -> None:
    of_file = rote.scan(model, book, windows=SIZES, out=tmp_path / "file")
    of_text = rote.scan(model, book.read_text(), windows=SIZES, out=tmp_path / "text", name="book.txt")
    same_table(of_file, of_text)
    assert replace(of_file.manifest, created="") == replace(of_text.manifest, created="")
    unnamed = rote.scan(model, book.read_text(), windows=SIZES, out=tmp_path / "unnamed")
    assert [run.manifest.source.name for run in (of_file, unnamed)] == ["book.txt", "text"]


def test_a_file_is_swept_like_its_text(model: Any, book: Path, tmp_path: Path) -> None:
    of_file, of_text = (
        rote.sweep(model, source, prefixes=[4, 8], suffixes=[6], out=tmp_path / kind, name="book.txt")
        for kind, source in (("file", book), ("text", book.read_text()))
    )
    assert of_file.result == of_text.result
    assert of_file.result.source.name == "book.txt"


def test_a_file_is_written_on_like_its_text(model: Any, tmp_path: Path) -> None:
    seed, truth = tmp_path / "seed.txt", tmp_path / "truth.md"
    seed.write_text(SEED)
    truth.write_text(f"{SEED} bank, and of having nothing to do")
    of_files = rote.reconstruct(model, seed, truth=truth, writing=WRITING, out=tmp_path / "files")
    of_texts = rote.reconstruct(
        model, SEED, truth=truth.read_text(), writing=WRITING, out=tmp_path / "texts", name="seed.txt"
    )
    assert of_files.text == of_texts.text
    assert replace(of_files.manifest, created="") == replace(of_texts.manifest, created="")
    assert of_files.summary.similarity == of_texts.summary.similarity is not None
    names = [found.summary.truth.name for found in (of_files, of_texts) if found.summary.truth is not None]
    assert names == ["truth.md", "truth"]


TAKES_TEXT: dict[str, Callable[[Any, Any, Path], object]] = {
    "text": lambda model, given, out: rote.scan(model, given, windows=SIZES, out=out),
    "source": lambda model, given, out: rote.sweep(model, given, suffixes=[6], out=out),
    "seed": lambda model, given, out: rote.reconstruct(model, given, writing=WRITING, out=out),
    "truth": lambda model, given, out: rote.reconstruct(model, SEED, truth=given, writing=WRITING, out=out),
}
"""By the name of an argument that is a text: a call that takes one."""


@pytest.mark.parametrize("argument", TAKES_TEXT)
def test_the_path_of_a_file_is_no_text(argument: str, model: Any, book: Path, tmp_path: Path) -> None:
    take = TAKES_TEXT[argument]
    for path in (str(book), "nowhere.txt"):  # there, or named like a text file
        with pytest.raises(InputError) as refusal:
            take(model, path, tmp_path / "run")
        assert str(refusal.value).startswith(f"{argument} is {path!r}, which looks like the path of a file")
        assert f"pathlib.Path({path!r})" in str(refusal.value)
    with pytest.raises(InputError, match=r"nowhere\.txt: there is no such file"):
        take(model, Path("nowhere.txt"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("argument", [name for name in TAKES_TEXT if name != "source"])
def test_what_is_neither_text_nor_path_is_refused(argument: str, model: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"{argument} is bytes; give a text as str, or a file's pathlib\.Path"):
        TAKES_TEXT[argument](model, SEED.encode(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- examples


@pytest.fixture(scope="module")
def records(text: str) -> list[dict[str, Any]]:
    """As lines of a file: token ids and texts, with and without what they may have besides."""
    return [
        {"prefix": [5, 6, 7, 8], "suffix": [9, 10, 11], "id": "ids", "repetitions": 3, "split": "train"},
        {"prefix": [15, 16, 17], "suffix": [19, 20], "start": 3, "suffix_start": 9, "suffix_end": 14},
        {"text": text[:600], "metadata": {"from": "Alice"}},
    ]


@pytest.fixture(scope="module")
def listed(records: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("examples") / "listed.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def shapes(model: Any, records: list[dict[str, Any]], listed: Path) -> dict[str, Any]:
    """The same examples: a file of them, its objects, examples, some of each, and what gives them one by one."""
    examples = as_examples(listed, model.tokenizer)
    return {
        "file": listed,
        "dicts": records,
        "examples": examples,
        "mixed": [examples[0], *records[1:]],
        "one by one": iter(records),
    }


def test_examples_are_scored_alike_in_every_shape(
    model: Any, records: list[dict[str, Any]], listed: Path, tmp_path: Path
) -> None:
    runs = [
        rote.score(model, given, out=tmp_path / shape, name="listed.jsonl")
        for shape, given in shapes(model, records, listed).items()
    ]
    for run in runs[1:]:
        same_table(run, runs[0])
        assert replace(run.manifest, created="") == replace(runs[0].manifest, created="")
    assert runs[0].scores["example_id"].to_list() == ["ids", "line-2", "line-3"]
    assert runs[0].scores["repetitions"].to_list() == [3, None, None]
    named = [
        rote.score(model, given, out=tmp_path / f"named {kind}") for kind, given in (("f", listed), ("d", records))
    ]
    assert [run.manifest.source.name for run in named] == ["listed.jsonl", "examples"]


def test_texts_are_split_alike_in_every_shape(model: Any, text: str, tmp_path: Path) -> None:
    records = [{"text": text[at : at + 200]} for at in (0, 300)]
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    of_file, of_dicts = (
        rote.score(model, given, prefix=6, suffix=4, out=tmp_path / kind, name="texts")
        for kind, given in (("file", path), ("dicts", records))
    )
    same_table(of_file, of_dicts)
    assert of_file.scores["ranks"].list.len().to_list() == [4, 4]


def test_probabilities_are_the_same_in_every_shape(model: Any, records: list[dict[str, Any]], listed: Path) -> None:
    near = Near(tolerance=1, budget=120)
    for search in (rote.verbatim, lambda *given: rote.near_verbatim(*given, near=near)):
        frames = [search(model, given).frame() for given in shapes(model, records, listed).values()]
        for frame in frames[1:]:
            assert_frame_equal(frame, frames[0], check_exact=True)
        assert frames[0]["example_id"].to_list() == ["ids", "line-2", "line-3"]


def test_examples_are_swept_alike_in_every_shape(
    model: Any, records: list[dict[str, Any]], listed: Path, tmp_path: Path
) -> None:
    found = [
        rote.sweep(model, given, prefixes=[2, 3], suffixes=[2], out=tmp_path / shape, name="listed").result
        for shape, given in shapes(model, records, listed).items()
    ]
    assert all(each == found[0] for each in found)
    assert found[0].examples == 3


def test_examples_that_are_none_are_refused(model: Any, listed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(InputError, match=r"examples is a str; give a list of .* pathlib\.Path\('.*listed\.jsonl'\)"):
        rote.score(model, str(listed), out=out)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"examples, number 2: it is int\. Give a rote\.Example, or a dict"):
        rote.score(model, [{"prefix": [1], "suffix": [2]}, 3], out=out)  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"examples, number 1: .*'sufix'"):
        rote.verbatim(model, [{"prefix": [1], "sufix": [2]}])
    with pytest.raises(InputError, match="the id 'x' is already that of number 1"):
        rote.verbatim(model, [{"id": "x", "prefix": [1], "suffix": [2]}] * 2)
    assert not out.exists()


# --- schemes


@pytest.mark.parametrize(
    ("shapes", "labels"),
    [
        ([Scheme(top_k=5), "top_k=5", "temperature=1 top_k=5", [Scheme(top_k=5)], ["top_k=5"]], ["top_k=5"]),
        (["greedy", rote.GREEDY, Scheme(temperature=0), (rote.GREEDY,)], ["greedy"]),
        (
            ["top_k=5,40", [Scheme(top_k=5), Scheme()], ["top_k=5", Scheme()], iter(["top_k=5,40"])],
            ["top_k=5", "top_k=40"],
        ),
    ],
)
def test_one_scheme_or_several_as_schemes_or_labels(
    shapes: list[Any], labels: list[str], model: Any, book: Path, tmp_path: Path
) -> None:
    names = [str(Scheme.parse(label)) for label in labels]
    runs: list[Run] = []
    for number, schemes in enumerate(shapes):
        runs.append(rote.scan(model, book, windows=SIZES, schemes=schemes, out=tmp_path / str(number)))
        same_table(runs[-1], runs[0])
        assert runs[-1].manifest.schemes == names
    example = Example("x", (5, 6), (7, 8))
    for schemes in shapes[:3]:
        assert [str(found.scheme) for found in rote.verbatim(model, [example], schemes)] == names


def test_a_search_takes_one_scheme(model: Any) -> None:
    near, examples = Near(tolerance=1, budget=20), [Example("x", (5, 6), (7, 8))]
    one, other = (rote.near_verbatim(model, examples, scheme, near=near)[0] for scheme in (Scheme(top_k=5), "top_k=5"))
    assert (one.lower, one.upper, one.scheme) == (other.lower, other.upper, other.scheme)
    with pytest.raises(InputError, match="'top_k=5,40' stands for 2 schemes, and one is asked for"):
        rote.near_verbatim(model, examples, "top_k=5,40", near=near)
    with pytest.raises(InputError, match="near_verbatim takes one scheme"):
        rote.near_verbatim(model, examples, [Scheme()], near=near)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schemes", "message"),
    [
        ("topk=5", "'topk=5' is not understood; write it as in top_k=5,40"),
        (["top_k=5", Scheme(top_k=5)], "the scheme temperature=1 top_k=5 is asked for twice"),
        ([], "at least one decoding scheme"),
        ([5], r"a scheme is a rote\.Scheme or its label, .*, not int"),
        (5, r"a scheme is a rote\.Scheme or its label, .*, not int"),
        (None, r"a scheme is a rote\.Scheme or its label, .*, not NoneType"),
    ],
)
def test_what_is_no_scheme_is_refused(schemes: Any, message: str, model: Any, book: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        rote.scan(model, book, windows=SIZES, schemes=schemes, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
