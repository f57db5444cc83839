from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

import rote.corpus.formats as module
from rote import Windows
from rote.corpus.formats import as_examples, as_text, read_text, typed_text, write_examples
from rote.corpus.windows import windows
from rote.errors import InputError
from rote.tokens import Example

DATA = Path(module.__file__).parents[1] / "data"
ALICE = (DATA / "alice.txt").read_bytes().decode("utf-8")
SMALL = '{"prefix": [1, 2], "suffix": [3]}'


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(DATA / "model")


def store(folder: Path, *lines: str | dict[str, Any]) -> Path:
    path = folder / "examples.jsonl"
    path.write_bytes("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines).encode())
    return path


# --- texts


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), mark=st.booleans())
def test_text_comes_back_as_it_is(text: str, mark: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        path.write_bytes((b"\xef\xbb\xbf" if mark else b"\xef\xbb\xbf" * text.startswith("\ufeff")) + text.encode())
        assert read_text(path) == text


def test_newlines_and_inner_marks_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n\xef\xbb\xbffour\x0c\xc2\x85")
    assert read_text(path) == "one\r\ntwo\rthree\n\ufefffour\x0c\x85"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        ("héllo".encode("utf-16"), "is UTF-16.*iconv -f UTF-16 "),
        (b"\xfe\xff" + "héllo".encode("utf-16-be"), "is UTF-16.*iconv"),
        ("héllo".encode("utf-32"), "is UTF-32.*iconv -f UTF-32 "),
        (b"\x00\x00\xfe\xff" + "héllo".encode("utf-32-be"), "is UTF-32.*iconv"),
        (b"%PDF\x00\x01", "byte 4 is NUL.*as text first"),
        ("hello".encode("utf-16-le"), "byte 1 is NUL.*iconv -f UTF-16LE"),
        ("caf\xe9 au lait".encode("latin-1"), r"byte 3 \(0xE9\).*iconv"),
        (b"\xef\xbb\xbfcaf\xe9", r"byte 6 \(0xE9\)"),
        (b"cut short \xf0\x9f\x98", r"byte 10 \(0xF0\)"),
        (b"surrogate \xed\xa0\xbd", r"byte 10 \(0xED\)"),
    ],
)
def test_files_that_are_no_text(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        read_text(path)
    assert str(path) in str(caught.value)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.txt: there is no such file"):
        read_text(tmp_path / "nowhere.txt")
    with pytest.raises(InputError, match="is a folder"):
        read_text(tmp_path)
    (tmp_path / "file").write_text("text")
    with pytest.raises(InputError, match="cannot be read"):
        read_text(tmp_path / "file" / "below")


# --- examples


def test_token_ids_are_used_as_they_are(tmp_path: Path) -> None:
    path = store(
        tmp_path,
        SMALL,
        "",
        {"id": "b", "prefix": [0], "suffix": [7, 7], "metadata": {"source": "x"}, "repetitions": 4, "split": "train"},
        {"id": 12, "prefix": [5], "suffix": [6], "start": 0, "suffix_start": 3, "suffix_end": 9},
        {"id": "\u2028", "prefix": [5], "suffix": [6], "repetitions": None},
    )
    assert as_examples(path, None) == [
        Example("line-1", (1, 2), (3,)),
        Example("b", (0,), (7, 7), metadata={"source": "x", "repetitions": 4, "split": "train"}),
        Example("12", (5,), (6,), 0, 3, 9),
        Example("\u2028", (5,), (6,), metadata={"repetitions": None}),
    ]


def test_line_endings_marks_and_separators_inside_strings(tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    second = '{"id": "a\u2028b\x85c", "prefix": [1], "suffix": [2]}'
    path.write_bytes(b"\xef\xbb\xbf" + f"{SMALL}\r\n\r\n{second}".encode())
    assert [example.id for example in as_examples(path, None)] == ["line-1", "a\u2028b\x85c"]


def test_texts_are_tokenised_once_and_split_by_index(tmp_path: Path, tokenizer: Any) -> None:
    text = ALICE[1000:1600]
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(ids) > 100
    path = store(tmp_path, {"text": text})
    assert as_examples(path, tokenizer) == [Example("line-1", tuple(ids[:50]), tuple(ids[50:100]))]
    path = store(tmp_path, {"text": text, "split": "held-out"}, {"id": "literal", "text": "<|eos|>" * 20})
    first, literal = as_examples(path, tokenizer, prefix=3, suffix=4)
    assert first == Example("line-1", tuple(ids[:3]), tuple(ids[3:7]), metadata={"split": "held-out"})
    assert tokenizer.eos_token_id not in literal.prefix + literal.suffix
    assert tokenizer.decode(literal.prefix + literal.suffix) == ("<|eos|>" * 20)[: len("<|eos|>") + 1]


def test_a_text_example_equals_the_window_at_its_start(tmp_path: Path, tokenizer: Any) -> None:
    text = ALICE[3000:3800]
    window = windows(text, tokenizer, Windows(stride=10_000))[0]
    example = as_examples(store(tmp_path, {"text": text}), tokenizer)[0]
    assert (example.prefix, example.suffix) == (window.prefix, window.suffix)


@pytest.mark.parametrize("key", ["prefix", "suffix"])
def test_given_lengths_must_hold_for_token_ids(key: str, tmp_path: Path) -> None:
    path = store(tmp_path, {"prefix": [1, 2], "suffix": [3, 4]})
    assert len(as_examples(path, None, prefix=2, suffix=2)) == 1
    given: list[dict[str, Any]] = [{key: length} for length in (1, 5, 0)]
    one, five, none = given
    with pytest.raises(InputError, match=f"line 1: {key} has 2 tokens, and {key}=5"):
        as_examples(path, None, **five)
    with pytest.raises(InputError, match=f"^{key} must be a whole number of at least 1, not 0"):
        as_examples(path, None, **none)
    assert len(as_examples(path, None, **one, longer=True)) == 1
    with pytest.raises(InputError, match=f"line 1: {key} has 2 tokens, and {key}=5"):
        as_examples(path, None, **five, longer=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON .*at character 1"),
        ('{"prefix": [1], "suffix": [2]} {}', "not JSON"),
        ("[1, 2]", "a JSON list, not an object"),
        ('"text"', "a JSON string, not an object"),
        ("null", "a JSON constant, not an object"),
        ("17", "a JSON number, not an object"),
        ("{}", "no 'prefix'"),
        ('{"prefix": [1]}', "no 'suffix'"),
        ('{"suffix": [1]}', "no 'prefix'"),
        ('{"prefix": [1], "suffix": []}', "suffix is empty"),
        ('{"prefix": [], "suffix": [1]}', "prefix is empty"),
        ('{"prefix": "a", "suffix": "b"}', "prefix is text.*tokenised as a whole"),
        ('{"prefix": 3, "suffix": [1]}', "prefix is 3. Give a list"),
        ('{"prefix": null, "suffix": [1]}', "prefix is null"),
        ('{"prefix": [1, 2.0], "suffix": [1]}', r"prefix\[1\] is 2\.0"),
        ('{"prefix": [1], "suffix": [4, -1]}', r"suffix\[1\] is -1"),
        ('{"prefix": [true], "suffix": [1]}', r"prefix\[0\] is true"),
        ('{"prefix": ["1"], "suffix": [1]}', r'prefix\[0\] is "1"'),
        ('{"prefix": [[1]], "suffix": [1]}', r"prefix\[0\] is \[1\]"),
        ('{"prefix": [NaN], "suffix": [1]}', "NaN is not JSON"),
        ('{"prefix": [1], "suffix": [2], "metadata": {"x": Infinity}}', "Infinity is not JSON"),
        ('{"prefix": [1], "suffix": [2], "metadata": {"x": 1e999}}', "1e999 is too large"),
        ('{"prefix": [1], "suffix": [%s]}' % ("9" * 5000), "not usable JSON"),
        ("[" * 100_000, "not usable JSON"),
        ('{"prefix": [1], "suffix": [2], "text": "a"}', "both 'text' and 'prefix'"),
        ('{"suffix": [2], "text": "a"}', "both 'text' and 'suffix'"),
        ('{"start": 2, "text": "a"}', "both 'text' and 'start'"),
        ('{"text": 5}', "text is 5. Give a string"),
        ('{"text": "too short"}', r"the text has \d tokens, and prefix 50 \+ suffix 50 need 100"),
        ('{"text": ""}', "the text has 0 tokens"),
        ('{"text": "\\ud83d"}', r"\\ud83d is half of a surrogate pair"),
        ('{"id": "\\uDE00", "prefix": [1], "suffix": [2]}', r"\\ude00 is half of a surrogate pair"),
        ('{"prefix": [1], "prefix": [2], "suffix": [2]}', "the key 'prefix' is given twice"),
        ('{"prefix": [1], "suffix": [2], "suffx": [2]}', "unknown key 'suffx'.*under metadata"),
        ('{"id": "", "prefix": [1], "suffix": [2]}', 'id is "". Give a string'),
        ('{"id": null, "prefix": [1], "suffix": [2]}', "id is null"),
        ('{"id": 1.5, "prefix": [1], "suffix": [2]}', r"id is 1\.5"),
        ('{"id": true, "prefix": [1], "suffix": [2]}', "id is true"),
        ('{"prefix": [1], "suffix": [2], "metadata": [1]}', r"metadata is \[1\]"),
        ('{"prefix": [1], "suffix": [2], "metadata": null}', "metadata is null"),
        ('{"prefix": [1], "suffix": [2], "repetitions": -1}', "repetitions is -1"),
        ('{"prefix": [1], "suffix": [2], "repetitions": true}', "repetitions is true"),
        ('{"prefix": [1], "suffix": [2], "metadata": {"repetitions": 1.5}}', r"repetitions is 1\.5"),
        ('{"prefix": [1], "suffix": [2], "split": 3}', "split is 3"),
        ('{"prefix": [1], "suffix": [2], "split": "a", "metadata": {"split": "b"}}', "split is given twice"),
        ('{"prefix": [1], "suffix": [2], "start": 3}', "start 3, suffix_start missing, suffix_end missing"),
        ('{"prefix": [1], "suffix": [2], "start": 3, "suffix_start": 2, "suffix_end": 9}', "start 3, suffix_start 2"),
        ('{"prefix": [1], "suffix": [2], "start": null, "suffix_start": 2, "suffix_end": 9}', "start null"),
    ],
)
def test_bad_lines_are_named(line: str, message: str, tmp_path: Path, tokenizer: Any) -> None:
    path = store(tmp_path, '{"id": "first", "prefix": [1], "suffix": [2]}', "", line)
    with pytest.raises(InputError, match=message) as caught:
        as_examples(path, tokenizer)
    assert str(caught.value).startswith(f"{path}, line 3: ")


def test_a_whole_surrogate_pair_is_one_character(tmp_path: Path) -> None:
    path = store(tmp_path, '{"id": "\\ud83d\\ude00", "prefix": [1], "suffix": [2]}')
    assert as_examples(path, None)[0].id == "😀"


def test_repeated_ids(tmp_path: Path) -> None:
    path = store(tmp_path, {"id": "line-3", "prefix": [1], "suffix": [2]}, "", SMALL)
    with pytest.raises(InputError, match="line 3: the id 'line-3' is already that of line 1"):
        as_examples(path, None)


def test_text_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2: a text example needs a tokenizer"):
        as_examples(store(tmp_path, SMALL, {"text": ALICE[:800]}), None)


def test_files_without_examples(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no examples"):
        as_examples(store(tmp_path, "", " \t"), None)
    with pytest.raises(InputError, match="is empty"):
        as_examples(store(tmp_path), None)


# --- writing

STRINGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3),
    max_leaves=8,
)
METADATA = st.dictionaries(STRINGS.filter(lambda key: key not in ("repetitions", "split")), JSON, max_size=4)
KNOWN = st.fixed_dictionaries({}, optional={"repetitions": st.none() | st.integers(0), "split": st.none() | STRINGS})
IDS = st.lists(st.integers(0, 300_000), min_size=1, max_size=8).map(tuple)
SPANS = st.just([None, None, None]) | st.lists(st.integers(0, 10**9), min_size=3, max_size=3).map(sorted)


@st.composite
def an_example(draw: st.DrawFn) -> Example:
    start, suffix_start, suffix_end = draw(SPANS)
    name = draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8))
    metadata = {**draw(METADATA), **draw(KNOWN)}
    return Example(name, draw(IDS), draw(IDS), start, suffix_start, suffix_end, metadata)


@given(examples=st.lists(an_example(), min_size=1, max_size=5, unique_by=lambda example: example.id))
def test_written_examples_come_back_the_same(examples: list[Example]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.jsonl"
        write_examples(path, examples)
        assert as_examples(path, None) == examples
        assert len(path.read_bytes().split(b"\n")) == len(examples) + 1


def test_windows_come_back_the_same(tmp_path: Path, tokenizer: Any) -> None:
    found = windows(ALICE[:3000], tokenizer, Windows(stride=100))
    write_examples(tmp_path / "windows.jsonl", found)
    assert as_examples(tmp_path / "windows.jsonl", None) == found


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([], "no examples to write"),
        ([Example("a", (1,), (2,)), Example("a", (1,), (3,))], "'a': this id is there twice"),
        ([Example("a", (1,), (2,), metadata={"x": float("nan")})], "'a' is not JSON"),
        ([Example("a", (1,), (2,), metadata={"x": object()})], "'a' is not JSON"),
        ([Example("a", (1,), (2,), metadata={"x": (1, 2)})], "'a': it would not be read back"),
        ([Example("a", (1,), (2,), metadata={1: 2})], "'a': it would not be read back"),  # type: ignore[dict-item]
        ([Example("a", (1,), (2,), metadata={"x": "\ud83d"})], r"'a': \\ud83d is half of a surrogate pair"),
        ([Example("a", (1,), (2,), start=3)], "'a': start 3, suffix_start missing"),
        ([Example("a", (), (2,))], "'a': prefix is empty"),
        ([Example("a", (-1,), (2,))], r"'a': prefix\[0\] is -1"),
        ([Example("", (1,), (2,))], 'id is "". Give'),
    ],
)
def test_what_cannot_be_read_back_is_not_written(examples: list[Example], message: str, tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    with pytest.raises(InputError, match=message):
        write_examples(path, examples)
    assert not path.exists()


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_examples(tmp_path / "missing" / "examples.jsonl", [Example("a", (1,), (2,))])


# --- a text or a file


def test_a_str_is_a_text_and_a_path_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "book.txt").write_text("once upon a time")
    (tmp_path / "plain").write_text("there was")
    monkeypatch.chdir(tmp_path)
    assert as_text(Path("book.txt")) == ("once upon a time", "book.txt")
    assert as_text("once upon a time") == ("once upon a time", "text")
    assert as_text("once", "seed") == ("once", "seed")
    assert as_text("a\0b") == ("a\0b", "text")
    assert as_text("word " * 5000)[1] == "text"
    for path in ("book.txt", "plain", "nowhere.txt", "BOOK.MD", "examples.jsonl", str(tmp_path / "book.txt")):
        with pytest.raises(InputError, match=rf"^seed is '{re.escape(path)}', which looks like the path of a file"):
            as_text(path, "seed")
    with pytest.raises(InputError, match="text is int; give a text as str"):
        as_text(3)  # type: ignore[arg-type]


def test_what_is_typed_is_a_text_of_several_words_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my book.txt").write_text("once upon a time")
    monkeypatch.chdir(tmp_path)
    assert typed_text("my book.txt") == Path("my book.txt")
    assert typed_text("Once upon a time.") == "Once upon a time."
    for missing in ("book", "book.txt", "my other book.txt"):
        with pytest.raises(ValueError, match="there is no such file"):
            typed_text(missing)


def test_examples_are_given_as_such_or_like_lines_of_a_file(tmp_path: Path, tokenizer: Any) -> None:
    lines: list[dict[str, Any]] = [{"id": "a", "prefix": [1, 2], "suffix": [3], "split": "x"}, {"text": ALICE[:600]}]
    from_file = as_examples(store(tmp_path, *lines), tokenizer)
    assert as_examples(lines, tokenizer) == from_file
    assert as_examples(iter(from_file), None) == from_file
    assert as_examples([lines[0], from_file[1]], None) == from_file
    with pytest.raises(InputError, match="examples is a str; give a list of examples"):
        as_examples("examples.jsonl", None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^examples, number 2: it is int"):
        as_examples([lines[0], 3], None)  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"^examples, number 2: the id 'a' is already that of number 1"):
        as_examples([lines[0], lines[0]], None)


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ((5, (1,), (2,)), "id is a text, not 5"),
        (("a", "text", (2,)), "the prefix of example 'a' must be a list of token ids, not 'text'"),
        (("a", (1,), (True,)), "the suffix of example 'a' must be a list of token ids"),
        (("a", None, (2,)), "the prefix of example 'a' must be a list of token ids, not None"),
    ],
)
def test_what_is_no_example_is_refused_when_it_is_made(parts: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Example(*parts)


def test_ids_of_numpy_are_numbers() -> None:
    made = Example("a", np.array([1, 2]), np.array([3]))  # type: ignore[arg-type]
    assert made == Example("a", (1, 2), (3,))
    assert {type(token) for token in made.prefix + made.suffix} == {int}
    assert as_examples([{"prefix": np.array([1, 2]), "suffix": [np.int64(3)], "id": "a"}], None) == [made]


@pytest.mark.parametrize(
    ("example", "problem"),
    [
        (Example("a", (1,), (2,), start=3), "suffix_start missing"),
        (Example("a", (1,), (2,), metadata={"split": 5}), "split is 5"),
        (Example("a", (1,), (2,), metadata={"repetitions": "many"}), 'repetitions is "many"'),
        (Example("a", (1,), (2,), metadata={"x": float("nan")}), "not JSON"),
        (Example("a", (1,), (2,), metadata={"x": object()}), "not JSON"),
        (Example("\ud83d", (1,), (2,)), "surrogate"),
        ({"text": "a\ud83d"}, "surrogate"),
        ({"prefix": [1], "suffix": [2], "metadata": {"x": float("nan")}}, "not JSON"),
        ({"prefix": 5, "suffix": [2]}, "Give a list of token ids"),
    ],
)
def test_examples_of_python_are_held_to_what_a_line_is(example: Any, problem: str, tokenizer: Any) -> None:
    with pytest.raises(InputError, match=problem):
        as_examples([example], tokenizer)


def test_lengths_that_are_asked_for_hold_for_examples_too() -> None:
    with pytest.raises(InputError, match="prefix has 2 tokens, and prefix=5 asks for another length"):
        as_examples([Example("a", (1, 2), (3,))], None, prefix=5)


@pytest.mark.parametrize("given", [None, 5, Example("a", (1,), (2,)), {"prefix": [1], "suffix": [2]}])
def test_one_example_is_no_list_of_them(given: Any) -> None:
    with pytest.raises(InputError, match="examples must be a list of examples"):
        as_examples(given, None)
