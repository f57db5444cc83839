"""Files in and out: a text, and examples as JSON lines."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, get_args

from tokenizers import Tokenizer

from rote.corpus.chat import chat_prefix
from rote.corpus.windows import Windows, lone_surrogate, plain_backend, split_at
from rote.errors import InputError, argument, counted
from rote.options import require_flag, require_whole, whole
from rote.tokens import Example, Tokenised

SPLIT = Windows()
"""Where a text example is split, unless it is said."""

SPANS = ("start", "suffix_start", "suffix_end")
KNOWN_METADATA = ("repetitions", "split")
SHOWN = ("prefix_text", "suffix_text", "tokenised")
"""What a run's own examples.jsonl has beside the token ids, for the reader: it may be scored again as it is."""
TEXTS = ("text", "prompt", "messages")
"""What a line of text may begin with; each is a shape of its own."""
KEYS = ("id", "prefix", "suffix", *TEXTS, "target", *SPANS, *KNOWN_METADATA, "metadata")
SHAPES = '{"prefix": [token ids], "suffix": [token ids]}, {"text": "..."} or {"prompt": "...", "target": "..."}'
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


@dataclass(frozen=True)
class _Reading:
    """How lines become examples: the model's tokenizer, its BOS where it puts one before every prefix, the options."""

    tokenizer: Any
    prefix: int | None = None
    suffix: int | None = None
    longer: bool = False
    bos: int | None = None
    chat: bool = False

    @cached_property
    def backend(self) -> Tokenizer:
        return plain_backend(self.tokenizer)


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
    reading = _Reading(tokenizer, prefix, suffix, longer, bos, chat)
    for number, where, record in lines:
        if isinstance(record, Example):
            _check_example(record, where, {} if longer else {"prefix": prefix, "suffix": suffix})
            examples.append(record)
            continue
        example = _example(record, f"line-{number}", where, reading)
        first = places.setdefault(example.id, where)
        if first != where:
            before = first.rpartition(", ")[2]
            _fail(where, f"the id {example.id!r} is already that of {before}. Give every example its own id.")
        if examples and (example.tokenised == "chat") != (examples[-1].tokenised == "chat"):
            _fail(where, "chats and other examples are measured differently. Give them in files of their own.")
        examples.append(example)
    if not examples and isinstance(given, Path):
        raise InputError(f"{given} holds no examples. Give one JSON object a line: {SHAPES}.")
    return examples


def _lines(path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    # Not splitlines(): a JSON string may hold U+2028 and the like as they are.
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            where = f"{path}, line {number}"
            yield number, where, _parse(line, where)


def _objects(given: Iterable[Any]) -> Iterator[tuple[int, str, Any]]:
    for number, one in enumerate(given, 1):
        where = f"{argument('examples')}, number {number}"
        if not isinstance(one, Example | Mapping):
            _fail(where, f"it is {type(one).__name__}. Give a rote.Example, or a dict: {SHAPES}.")
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
            _fail(where, "this id is there twice. Give every example its own id.")
        ids.add(example.id)
        spans = {key: getattr(example, key) for key in SPANS if getattr(example, key) is not None}
        record = {"id": example.id, "prefix": example.prefix, "suffix": example.suffix, **spans}
        if example.metadata:
            record["metadata"] = dict(example.metadata)
        try:
            line = json.dumps(record, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{where} is not JSON: {error}. Use plain numbers, strings, lists and dicts.") from None
        _check_unicode(line, where)
        if _example(_parse(line, where), "", where, _Reading(None)) != example:
            _fail(where, "it would not be read back as it is. Use lists, not tuples, and string keys in its metadata.")
        lines.append(line + "\n")
    if not lines:
        raise InputError(f"there are no examples to write to {path}.")
    try:
        Path(path).write_bytes("".join(lines).encode("utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}. Check the folder.") from None


def _fail(where: str, problem: str) -> NoReturn:
    raise InputError(f"{where}: {problem}")


def _check_unicode(json_text: str, where: str) -> None:
    lone = lone_surrogate(json_text)
    if lone is not None:
        code = f"\\u{ord(json_text[lone]):04x}"
        _fail(where, f"{code} is half of a surrogate pair, which is not text. Write both halves, or leave it out.")


def _parse(line: str, where: str) -> dict[str, Any]:
    """The line's object. Stricter than `json`, which takes NaN, numbers too large to hold, and keys given twice."""

    def constant(name: str) -> NoReturn:
        _fail(where, f"{name} is not JSON. Use null, or leave the key out.")

    def number(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            _fail(where, f"the number {digits} is too large.")
        return value

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        by_key = dict(items)
        if len(by_key) < len(items):
            twice = next(key for place, (key, _) in enumerate(items) if key in dict(items[:place]))
            _fail(where, f"the key {twice!r} is given twice. Keep one of the two.")
        return by_key

    try:
        record = json.loads(line, parse_constant=constant, parse_float=number, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        _fail(where, f"not JSON ({error.msg} at character {error.pos}). Give one JSON object a line: {SHAPES}.")
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits; brackets nested too deeply
        _fail(where, f"not usable JSON ({error}). Give one JSON object a line: {SHAPES}.")
    if not isinstance(record, dict):
        _fail(where, f"a JSON {_kind(record)}, not an object. Give one object a line: {SHAPES}.")
    if "\\ud" in line.lower():  # only an escape can bring half a surrogate pair into decoded UTF-8
        _check_unicode(json.dumps(record, ensure_ascii=False), where)
    return record


def _example(record: Mapping[str, Any], default_id: str, where: str, reading: _Reading) -> Example:
    unknown = [key for key in record if key not in KEYS and not (key in SHOWN and "prefix" in record)]
    if unknown:
        _fail(where, f"unknown key {unknown[0]!r}. The keys are {', '.join(KEYS)}; put anything else under metadata.")
    name = _id(record.get("id", default_id), where)
    metadata = _metadata(record, where)
    if shapes := [key for key in TEXTS if key in record]:
        others = [key for key in ("prefix", "suffix", *SPANS) if key in record]
        others = [*shapes[1:], *others, *(["target"] if "target" in record and shapes[0] == "text" else [])]
        if others:
            _fail(where, f"both {shapes[0]!r} and {others[0]!r}: they belong to two shapes. Give either {SHAPES}.")
        return _of_text(shapes[0], record, name, metadata, where, reading)
    if "target" in record:
        _fail(where, f"a target without a prompt. Give either {SHAPES}.")
    if reading.chat:
        _fail(where, f"{argument('chat')} is for prompts, and these are token ids. Leave it out: they are used as is.")
    for key, length in (("prefix", reading.prefix), ("suffix", reading.suffix)):
        _check_ids(record, key, where)
        _check_length(key, len(record[key]), length, where, reading.longer)
    start, suffix_start, suffix_end = _spans(record, where)
    return Example(
        id=name,
        prefix=tuple(record["prefix"]),
        suffix=tuple(record["suffix"]),
        start=start,
        suffix_start=suffix_start,
        suffix_end=suffix_end,
        metadata=metadata,
        tokenised=_way(record.get("tokenised"), where),
    )


def _way(told: Any, where: str) -> Tokenised | None:
    """How a run says that an example of its own became tokens."""
    if told is not None and told not in get_args(Tokenised):
        _fail(where, f"tokenised is {_show(told)}. Leave it out, or give one of {', '.join(get_args(Tokenised))}.")
    return told  # type: ignore[no-any-return]


def _of_text(
    shape: str, record: Mapping[str, Any], name: str, metadata: dict[str, Any], where: str, reading: _Reading
) -> Example:
    """An example of one of the shapes that need a tokenizer."""
    if reading.tokenizer is None:
        _fail(where, "a text example needs a tokenizer. Name the model it is for, or give token ids.")
    if shape == "text":
        if reading.chat:
            _fail(where, f'{argument("chat")} is for prompts. Give {{"prompt": "...", "target": "..."}}.')
        text = _text(record["text"], "text", where)
        lengths = reading.prefix or SPLIT.prefix, reading.suffix or SPLIT.suffix
        return Example(name, *_split(text, where, reading.backend, *lengths), metadata=metadata)
    if reading.longer:
        _fail(
            where,
            f"a sweep cuts prompts and suffixes to lengths in tokens, and a {shape} and its target are used whole. "
            'Give {"text": "..."} or token ids; rote score takes several schemes.',
        )
    for option in ("prefix", "suffix"):
        if (length := getattr(reading, option)) is not None:
            _fail(
                where,
                f'{argument(option, length)} is for {{"text": "..."}}: a prompt and its target are used whole. '
                "Leave it out.",
            )
    target = _text(record.get("target"), "target", where)
    if not target:
        _fail(where, "target is empty. Give the text that should come back.")
    nothing = f"the tokenizer leaves nothing of the target {_show(target)}. Give another."
    if shape == "prompt" and not reading.chat:
        prompt = _text(record["prompt"], "prompt", where)
        prefix, suffix, together = split_at(prompt + target, len(prompt), reading.backend)
        if not suffix:
            _fail(where, nothing)
        tokenised: Tokenised = "together" if together else "apart"
        return Example(name, prefix, suffix, metadata=metadata, tokenised=tokenised)
    asked = [{"role": "user", "content": record["prompt"]}] if shape == "prompt" else record["messages"]
    messages = _messages(asked, where)
    suffix = tuple(reading.backend.encode(target, add_special_tokens=False).ids)
    if not suffix:
        _fail(where, nothing)
    prefix = chat_prefix(messages, reading.tokenizer, reading.bos, where)
    return Example(name, prefix, suffix, metadata=metadata, tokenised="chat")


def _messages(given: Any, where: str) -> list[dict[str, str]]:
    """The messages of a chat, each with who says it and what; the model is to say the next one."""
    if not isinstance(given, list) or not given:
        _fail(where, f'messages is {_show(given)}. Give a list: [{{"role": "user", "content": "..."}}].')
    for number, message in enumerate(given, 1):
        place = f"messages, number {number}"
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            _fail(where, f"{place} is {_show(message)}. Give an object with role and content, and nothing else.")
        for key in ("role", "content"):
            _text(message[key], f"{place}: {key}", where)
        if not message["role"]:
            _fail(where, f"{place}: role is empty. Give who says it, such as user.")
    if given[-1]["role"] in ("assistant", "model"):
        _fail(where, "the last message is the model's own, and the target is what it says next. End with the user's.")
    return [dict(message) for message in given]


def _check_example(example: Example, where: str, lengths: Mapping[str, int | None]) -> None:
    """An example that was made in Python is held to what a line of a file is."""
    for key, length in lengths.items():
        _check_length(key, len(getattr(example, key)), length, where, longer=False)
    spans = {key: getattr(example, key) for key in SPANS if getattr(example, key) is not None}
    if spans or example.metadata:
        where = f"{where}, {example.id!r}"
        _spans(spans, where)
        _metadata({"metadata": dict(example.metadata)}, where)
    if lone_surrogate(example.id) is not None:
        _fail(where, "its id holds half of a surrogate pair, which is not text. Give another id.")


def _check_length(key: str, found: int, length: int | None, where: str, longer: bool) -> None:
    if length is not None and found != length and not (longer and found > length):
        asked = f"{argument(key, length)} asks for another length"
        _fail(where, f"{key} has {counted(found, 'token')}, and {asked}. Leave it out: token ids are used as they are.")


def _id(value: Any, where: str) -> str:
    if _is_count(value):
        return str(value)
    if not isinstance(value, str) or not value:
        _fail(where, f"id is {_show(value)}. Give a string that is not empty, or leave id out to use the line number.")
    return value


def _metadata(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    metadata = record.get("metadata", {})
    if not isinstance(metadata, dict):
        _fail(where, f"metadata is {_show(metadata)}. Give an object, or leave it out.")
    metadata = dict(metadata)
    for key in KNOWN_METADATA:
        if key in record and key in metadata:
            _fail(where, f"{key} is given twice, once under metadata. Keep one of the two.")
        if key in record:
            metadata[key] = record[key]
    repetitions, split = metadata.get("repetitions"), metadata.get("split")
    if repetitions is not None and not _is_count(repetitions):
        _fail(where, f"repetitions is {_show(repetitions)}. Give a whole number of at least 0.")
    if split is not None and not isinstance(split, str):
        _fail(where, f'split is {_show(split)}. Give a string such as "train".')
    try:
        _check_unicode(json.dumps(metadata, ensure_ascii=False, allow_nan=False, sort_keys=True), where)
    except (TypeError, ValueError, RecursionError) as error:
        _fail(where, f"its metadata is not JSON ({error}). Use plain numbers, strings, lists and dicts.")
    return metadata


def _check_ids(record: Mapping[str, Any], key: str, where: str) -> None:
    if key not in record:
        _fail(where, f"no {key!r}. Give either {SHAPES}.")
    ids = record[key]
    if isinstance(ids, str):
        _fail(
            where,
            f'{key} is text. Give {{"prompt": "...", "target": "..."}}, or one {{"text": "..."}}: either is tokenised '
            "as a whole and then split, as a prefix and a suffix tokenised apart are not the tokens of the text. Or "
            "give token ids.",
        )
    if isinstance(ids, Mapping) or not isinstance(ids, Iterable):
        _fail(where, f"{key} is {_show(ids)}. Give a list of token ids.")
    if not len(list(ids)):
        _fail(where, f"{key} is empty. Give at least one token id.")
    for place, token in enumerate(ids):
        if not _is_count(token):
            _fail(where, f"{key}[{place}] is {_show(token)}. Give token ids: whole numbers of at least 0.")


def _spans(record: Mapping[str, Any], where: str) -> tuple[int | None, int | None, int | None]:
    if not any(key in record for key in SPANS):
        return None, None, None
    values: list[Any] = [record.get(key) for key in SPANS]
    if not all(_is_count(value) for value in values) or values != sorted(values):
        shown = ", ".join(f"{key} {_show(record[key]) if key in record else 'missing'}" for key in SPANS)
        _fail(where, f"{shown}. Give all three, with 0 <= start <= suffix_start <= suffix_end, or none.")
    start, suffix_start, suffix_end = values
    return start, suffix_start, suffix_end


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str):
        _fail(where, f"{key} is {_show(value)}. Give a string.")
    _check_unicode(value, where)
    return value


def _split(text: str, where: str, backend: Any, prefix: int, suffix: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    ids: list[int] = backend.encode(text, add_special_tokens=False).ids
    if len(ids) < prefix + suffix:
        _fail(
            where,
            f"the text has {counted(len(ids), 'token')}, and prefix {prefix} + suffix {suffix} need {prefix + suffix}. "
            f"Give a longer text, a smaller {argument('prefix')} or {argument('suffix')}, or token ids.",
        )
    return tuple(ids[:prefix]), tuple(ids[prefix : prefix + suffix])


def _is_count(value: Any) -> bool:
    return whole(value) and bool(value >= 0)


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "constant"
    return {str: "string", list: "list", int: "number", float: "number"}.get(type(value), "object")


def _show(value: Any) -> str:
    """A value as JSON writes it, short enough for one line."""
    shown = json.dumps(value, default=repr)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."
