"""One line of a file of examples: its shape, checked, and the example that it stands for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, get_args

from tokenizers import Tokenizer

from rote.corpus.chat import chat_prefix
from rote.corpus.windows import Windows, lone_surrogate, plain_backend, split_at
from rote.errors import InputError, argument, counted
from rote.options import whole
from rote.tokens import Example, Tokenised

SPLIT = Windows()
"""Where a text example is split, unless it is said."""

SPANS = ("start", "suffix_start", "suffix_end")
KNOWN_METADATA = ("repetitions", "split")
TEXTS = ("text", "prompt", "messages")
"""What a line of text may begin with; each is a shape of its own."""
SHOWN = ("prefix_text", "suffix_text", "tokenised")
"""What a run's own examples.jsonl has beside the token ids, for the reader: it may be scored again as it is."""
KEYS = ("id", "prefix", "suffix", *TEXTS, "target", *SPANS, *KNOWN_METADATA, "metadata")
SHAPES = '{"prefix": [token ids], "suffix": [token ids]}, {"text": "..."} or {"prompt": "...", "target": "..."}'


@dataclass(frozen=True)
class Reading:
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


def fail(where: str, problem: str) -> NoReturn:
    raise InputError(f"{where}: {problem}")


def check_unicode(json_text: str, where: str) -> None:
    lone = lone_surrogate(json_text)
    if lone is not None:
        code = f"\\u{ord(json_text[lone]):04x}"
        fail(where, f"{code} is half of a surrogate pair, which is not text. Write both halves, or leave it out.")


def parse(line: str, where: str) -> dict[str, Any]:
    """The line's object. Stricter than `json`, which takes NaN, numbers too large to hold, and keys given twice."""

    def constant(name: str) -> NoReturn:
        fail(where, f"{name} is not JSON. Use null, or leave the key out.")

    def number(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            fail(where, f"the number {digits} is too large.")
        return value

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        by_key = dict(items)
        if len(by_key) < len(items):
            twice = next(key for place, (key, _) in enumerate(items) if key in dict(items[:place]))
            fail(where, f"the key {twice!r} is given twice. Keep one of the two.")
        return by_key

    try:
        record = json.loads(line, parse_constant=constant, parse_float=number, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        fail(where, f"not JSON ({error.msg} at character {error.pos}). Give one JSON object a line: {SHAPES}.")
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits; brackets nested too deeply
        fail(where, f"not usable JSON ({error}). Give one JSON object a line: {SHAPES}.")
    if not isinstance(record, dict):
        fail(where, f"a JSON {_kind(record)}, not an object. Give one object a line: {SHAPES}.")
    if "\\ud" in line.lower():  # only an escape can bring half a surrogate pair into decoded UTF-8
        check_unicode(json.dumps(record, ensure_ascii=False), where)
    return record


def example_of(record: Mapping[str, Any], default_id: str, where: str, reading: Reading) -> Example:
    unknown = [key for key in record if key not in KEYS and not (key in SHOWN and "prefix" in record)]
    if unknown:
        fail(where, f"unknown key {unknown[0]!r}. The keys are {', '.join(KEYS)}; put anything else under metadata.")
    name = _id(record.get("id", default_id), where)
    metadata = _metadata(record, where)
    if shapes := [key for key in TEXTS if key in record]:
        others = [key for key in ("prefix", "suffix", *SPANS) if key in record]
        others = [*shapes[1:], *others, *(["target"] if "target" in record and shapes[0] == "text" else [])]
        if others:
            fail(where, f"both {shapes[0]!r} and {others[0]!r}: they belong to two shapes. Give either {SHAPES}.")
        return _of_text(shapes[0], record, name, metadata, where, reading)
    if "target" in record:
        fail(where, f"a target without a prompt. Give either {SHAPES}.")
    if reading.chat:
        fail(where, f"{argument('chat')} is for prompts, and these are token ids. Leave it out: they are used as is.")
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
        fail(where, f"tokenised is {_show(told)}. Leave it out, or give one of {', '.join(get_args(Tokenised))}.")
    return told  # type: ignore[no-any-return]


def _of_text(
    shape: str, record: Mapping[str, Any], name: str, metadata: dict[str, Any], where: str, reading: Reading
) -> Example:
    """An example of one of the shapes that need a tokenizer."""
    if reading.tokenizer is None:
        fail(where, "a text example needs a tokenizer. Name the model it is for, or give token ids.")
    if shape == "text":
        if reading.chat:
            fail(where, f'{argument("chat")} is for prompts. Give {{"prompt": "...", "target": "..."}}.')
        text = _text(record["text"], "text", where)
        lengths = reading.prefix or SPLIT.prefix, reading.suffix or SPLIT.suffix
        return Example(name, *_split(text, where, reading.backend, *lengths), metadata=metadata)
    if reading.longer:
        fail(
            where,
            f"a sweep cuts prompts and suffixes to lengths in tokens, and a {shape} and its target are used whole. "
            'Give {"text": "..."} or token ids; rote score takes several schemes.',
        )
    for option in ("prefix", "suffix"):
        if (length := getattr(reading, option)) is not None:
            fail(
                where,
                f'{argument(option, length)} is for {{"text": "..."}}: a prompt and its target are used whole. '
                "Leave it out.",
            )
    if "target" not in record:
        fail(where, f"{shape!r} without a target. Give the text that should come back as its target.")
    target = _text(record["target"], "target", where)
    if not target:
        fail(where, "target is empty. Give the text that should come back.")
    nothing = f"the tokenizer leaves nothing of the target {_show(target)}. Give another."
    if shape == "prompt" and not reading.chat:
        prompt = _text(record["prompt"], "prompt", where)
        prefix, suffix, together = split_at(prompt + target, len(prompt), reading.backend)
        if not suffix:
            fail(where, nothing)
        tokenised: Tokenised = "together" if together else "apart"
        return Example(name, prefix, suffix, metadata=metadata, tokenised=tokenised)
    asked = [{"role": "user", "content": record["prompt"]}] if shape == "prompt" else record["messages"]
    messages = _messages(asked, where)
    suffix = tuple(reading.backend.encode(target, add_special_tokens=False).ids)
    if not suffix:
        fail(where, nothing)
    prefix = chat_prefix(messages, reading.tokenizer, reading.bos, where)
    return Example(name, prefix, suffix, metadata=metadata, tokenised="chat")


def _messages(given: Any, where: str) -> list[dict[str, str]]:
    """The messages of a chat, each with who says it and what; the model is to say the next one."""
    if not isinstance(given, list) or not given:
        fail(where, f'messages is {_show(given)}. Give a list: [{{"role": "user", "content": "..."}}].')
    for number, message in enumerate(given, 1):
        place = f"messages, number {number}"
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            fail(where, f"{place} is {_show(message)}. Give an object with role and content, and nothing else.")
        for key in ("role", "content"):
            _text(message[key], f"{place}: {key}", where)
        if not message["role"]:
            fail(where, f"{place}: role is empty. Give who says it, such as user.")
    if given[-1]["role"] in ("assistant", "model"):
        fail(where, "the last message is the model's own, and the target is what it says next. End with the user's.")
    return [dict(message) for message in given]


def check_example(example: Example, where: str, lengths: Mapping[str, int | None]) -> None:
    """An example that was made in Python is held to what a line of a file is."""
    for key, length in lengths.items():
        _check_length(key, len(getattr(example, key)), length, where, longer=False)
    spans = {key: getattr(example, key) for key in SPANS if getattr(example, key) is not None}
    if spans or example.metadata:
        where = f"{where}, {example.id!r}"
        _spans(spans, where)
        _metadata({"metadata": dict(example.metadata)}, where)
    if lone_surrogate(example.id) is not None:
        fail(where, "its id holds half of a surrogate pair, which is not text. Give another id.")


def _check_length(key: str, found: int, length: int | None, where: str, longer: bool) -> None:
    if length is not None and found != length and not (longer and found > length):
        asked = f"{argument(key, length)} asks for another length"
        fail(where, f"{key} has {counted(found, 'token')}, and {asked}. Leave it out: token ids are used as they are.")


def _id(value: Any, where: str) -> str:
    if _is_count(value):
        return str(value)
    if not isinstance(value, str) or not value:
        fail(where, f"id is {_show(value)}. Give a string that is not empty, or leave id out to use the line number.")
    return value


def _metadata(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    metadata = record.get("metadata", {})
    if not isinstance(metadata, dict):
        fail(where, f"metadata is {_show(metadata)}. Give an object, or leave it out.")
    metadata = dict(metadata)
    for key in KNOWN_METADATA:
        if key in record and key in metadata:
            fail(where, f"{key} is given twice, once under metadata. Keep one of the two.")
        if key in record:
            metadata[key] = record[key]
    repetitions, split = metadata.get("repetitions"), metadata.get("split")
    if repetitions is not None and not _is_count(repetitions):
        fail(where, f"repetitions is {_show(repetitions)}. Give a whole number of at least 0.")
    if split is not None and not isinstance(split, str):
        fail(where, f'split is {_show(split)}. Give a string such as "train".')
    try:
        check_unicode(json.dumps(metadata, ensure_ascii=False, allow_nan=False, sort_keys=True), where)
    except (TypeError, ValueError, RecursionError) as error:
        fail(where, f"its metadata is not JSON ({error}). Use plain numbers, strings, lists and dicts.")
    return metadata


def _check_ids(record: Mapping[str, Any], key: str, where: str) -> None:
    if key not in record:
        fail(where, f"no {key!r}. Give either {SHAPES}.")
    ids = record[key]
    if isinstance(ids, str):
        fail(
            where,
            f'{key} is text. Give {{"prompt": "...", "target": "..."}}, or one {{"text": "..."}}: either is tokenised '
            "as a whole and then split, as a prefix and a suffix tokenised apart are not the tokens of the text. Or "
            "give token ids.",
        )
    if isinstance(ids, Mapping) or not isinstance(ids, Iterable):
        fail(where, f"{key} is {_show(ids)}. Give a list of token ids.")
    if not len(list(ids)):
        fail(where, f"{key} is empty. Give at least one token id.")
    for place, token in enumerate(ids):
        if not _is_count(token):
            fail(where, f"{key}[{place}] is {_show(token)}. Give token ids: whole numbers of at least 0.")


def _spans(record: Mapping[str, Any], where: str) -> tuple[int | None, int | None, int | None]:
    if not any(key in record for key in SPANS):
        return None, None, None
    values: list[Any] = [record.get(key) for key in SPANS]
    if not all(_is_count(value) for value in values) or values != sorted(values):
        shown = ", ".join(f"{key} {_show(record[key]) if key in record else 'missing'}" for key in SPANS)
        fail(where, f"{shown}. Give all three, with 0 <= start <= suffix_start <= suffix_end, or none.")
    start, suffix_start, suffix_end = values
    return start, suffix_start, suffix_end


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str):
        fail(where, f"{key} is {_show(value)}. Give a string.")
    check_unicode(value, where)
    return value


def _split(text: str, where: str, backend: Any, prefix: int, suffix: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    ids: list[int] = backend.encode(text, add_special_tokens=False).ids
    if len(ids) < prefix + suffix:
        fail(
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
