"""Files in and out: a text, and examples as JSON lines."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rote.corpus.lines import SHAPES, SPANS, Reading, check_example, check_unicode, example_of, fail, parse
from rote.errors import InputError, argument
from rote.options import require_flag, require_whole
from rote.tokens import Example

MARKS = (  # UTF-32 first: its little-endian mark starts with UTF-16's
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def read_text(path: Path) -> str:
    """The file's text, decoded as UTF-8, every character as it is.

    Newlines are not translated, so that code points of the result are code points of the file. A byte order mark at
    the very start is dropped: it says how the file is stored and is no part of the text.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file. Check the path.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder. Give one text file.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}. Check its permissions.") from None
    for mark, encoding in MARKS:
        if data.startswith(mark):
            raise InputError(f"{path} is {encoding}. Save it as UTF-8: `iconv -f {encoding} -t UTF-8 OLD > NEW`.")
    zero = data.find(b"\0")
    if zero >= 0:
        raise InputError(
            f"{path} is not a text file: byte {zero} is NUL. Give plain UTF-8 text (export a PDF, EPUB or "
            "word-processor document as text first; convert UTF-16 with `iconv -f UTF-16LE -t UTF-8 OLD > NEW`)."
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8: byte {error.start} (0x{data[error.start]:02X}) cannot be decoded. If it is text "
            "in another encoding, convert it: `iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW`."
        ) from None
    text = text.removeprefix("\ufeff")
    if not text:
        raise InputError(f"{path} is empty. Give a file with text in it.")
    return text


Text = str | Path
"""A text itself, or the path of a file that holds one."""

Examples = Path | Iterable[Example | Mapping[str, Any]]
"""Examples as they are, as the objects of a JSON-lines file, or the path of such a file."""


def as_text(given: Text, name: str = "text") -> tuple[str, str]:
    """(the text, a name for it): a file's text for a Path, and for a str that very text.

    A str that can only be meant as a path is refused: it would be measured instead of what the file holds. `name`: of
    the argument.
    """
    if isinstance(given, Path):
        return read_text(given), given.name
    if not isinstance(given, str):
        raise InputError(f"{argument(name)} is {type(given).__name__}; give a text as str, or a file's pathlib.Path.")
    if _looks_like_a_path(given):
        raise InputError(
            f"{argument(name)} is {given!r}, which looks like the path of a file and is no text; to read the file, "
            f"give pathlib.Path({given!r})."
        )
    return given, name


def typed_text(typed: str) -> Text:
    """What a command line means where it may be told a text or a file: a Path where it names a file, or should."""
    named = _looks_like_a_path(typed) or len(typed.split()) == 1 or Path(typed).suffix.lower() in (".txt", ".md")
    if named and not _is_there(typed):
        raise ValueError("there is no such file. Check the path; to give the text itself, give at least two words.")
    return Path(typed) if named else typed


def _looks_like_a_path(text: str) -> bool:
    """Whether it names a file that is there, or is one word that ends like a text file's name."""
    there = len(text) < 4096 and "\n" not in text and _is_there(text) and Path(text).is_file()
    return there or (len(text.split()) == 1 and Path(text).suffix.lower() in (".txt", ".md", ".jsonl", ".gz", ".epub"))


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def as_examples(
    given: Examples, tokenizer: Any | None, *, prefix: int | None = None, suffix: int | None = None,
    longer: bool = False, bos: int | None = None, chat: bool = False,
) -> list[Example]:  # fmt: skip
    """Examples from what stands for them: examples, the objects of a JSON-lines file, or the path of one.

    An object has one of four shapes. Token ids, used as they are: `{"prefix": [ids], "suffix": [ids]}`, with optional
    `start`, `suffix_start` and `suffix_end` (all three: code points of the text the example was cut from). If `prefix`
    or `suffix` is given, every such example must have that length, or with `longer` at least that length.

    Text: `{"text": "..."}`, tokenised once, as plain text without special tokens, and split by token index into
    `prefix` and `suffix` tokens (50 and 50 unless given). As in a window, the first `prefix` + `suffix` tokens are
    the example and whatever follows them is not used; a text with fewer tokens is an error.

    A prompt and its target, of any lengths: `{"prompt": "...", "target": "..."}`, tokenised together, as plain text,
    and split where the target begins. Where that falls inside a token they are tokenised apart, and the example's
    `tokenised` says so. The prompt may be empty where the model has a BOS.

    A chat and its answer: `{"messages": [{"role": "user", "content": "..."}], "target": "..."}`. The prefix is what the
    tokenizer's chat template makes of the messages, up to where the answer begins, less `bos`, which the model puts
    before every prefix; the target is tokenised apart, as plain text. With `chat`, every prompt is a chat of one
    message. A file has chats alone, or none.

    All may have `id` (unique; `line-N` if missing), `metadata` (an object), and `repetitions` (how often the example
    stands in the training data) and `split`, which join the metadata.
    """
    for option, value in (("prefix", prefix), ("suffix", suffix)):
        if value is not None:
            require_whole(option, value)
    require_flag("chat", chat)
    if isinstance(given, str):
        raise InputError(
            f"{argument('examples')} is a str; give a list of examples or of their objects, or pathlib.Path({given!r})."
        )
    if isinstance(given, Example | Mapping) or not isinstance(given, Path | Iterable):
        raise InputError(f"{argument('examples')} must be a list of examples or of their objects, not {given!r:.60}.")
    lines = _lines(given) if isinstance(given, Path) else _objects(given)
    examples: list[Example] = []
    places: dict[str, str] = {}
    reading = Reading(tokenizer, prefix, suffix, longer, bos, chat)
    for number, where, record in lines:
        if isinstance(record, Example):
            check_example(record, where, {} if longer else {"prefix": prefix, "suffix": suffix})
            examples.append(record)
            continue
        example = example_of(record, f"line-{number}", where, reading)
        first = places.setdefault(example.id, where)
        if first != where:
            before = first.rpartition(", ")[2]
            fail(where, f"the id {example.id!r} is already that of {before}. Give every example its own id.")
        if examples and (example.tokenised == "chat") != (examples[-1].tokenised == "chat"):
            fail(where, "chats and other examples are measured differently. Give them in files of their own.")
        examples.append(example)
    if not examples and isinstance(given, Path):
        raise InputError(f"{given} holds no examples. Give one JSON object a line: {SHAPES}.")
    return examples


def _lines(path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    # Not splitlines(): a JSON string may hold U+2028 and the like as they are.
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            where = f"{path}, line {number}"
            yield number, where, parse(line, where)


def _objects(given: Iterable[Any]) -> Iterator[tuple[int, str, Any]]:
    for number, one in enumerate(given, 1):
        where = f"{argument('examples')}, number {number}"
        if not isinstance(one, Example | Mapping):
            fail(where, f"it is {type(one).__name__}. Give a rote.Example, or a dict: {SHAPES}.")
        yield number, where, one


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Write examples as token ids, one JSON object a line; `as_examples` gives back exactly the same examples.

    An example that would not come back the same (a repeated id, metadata that JSON cannot hold) is an error, and then
    nothing is written.
    """
    lines: list[str] = []
    ids: set[str] = set()
    for example in examples:
        where = f"example {example.id!r}"
        if example.id in ids:
            fail(where, "this id is there twice. Give every example its own id.")
        ids.add(example.id)
        spans = {key: getattr(example, key) for key in SPANS if getattr(example, key) is not None}
        record = {"id": example.id, "prefix": example.prefix, "suffix": example.suffix, **spans}
        if example.metadata:
            record["metadata"] = dict(example.metadata)
        try:
            line = json.dumps(record, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{where} is not JSON: {error}. Use plain numbers, strings, lists and dicts.") from None
        check_unicode(line, where)
        if example_of(parse(line, where), "", where, Reading(None)) != example:
            fail(where, "it would not be read back as it is. Use lists, not tuples, and string keys in its metadata.")
        lines.append(line + "\n")
    if not lines:
        raise InputError(f"there are no examples to write to {path}.")
    try:
        Path(path).write_bytes("".join(lines).encode("utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}. Check the folder.") from None
