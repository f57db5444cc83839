"""Windows over a book: one example every `stride` characters, with its exact place in the text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tokenizers import Tokenizer

from rote.errors import InputError, argument, counted
from rote.options import Prefix, Stride, Suffix, require_kind, require_whole, settle
from rote.progress import Progress, quiet
from rote.tokens import Example

SLICE = 800
"""Characters tokenised for a window at first; doubled for a window that needs more."""

MARGIN = 32
"""Characters that must follow a window's last token in its slice, so that the cut does not decide the tokens."""

CHUNK = 1024
"""Slices of the first size that are tokenised at once: enough to use every core, few enough to hold in memory."""


@dataclass(frozen=True, slots=True)
class Windows:
    """How a text is cut: an example of `prefix` + `suffix` tokens starts every `stride` characters."""

    prefix: Prefix = 50
    suffix: Suffix = 50
    stride: Stride = 10

    def __post_init__(self) -> None:
        for name in ("prefix", "suffix", "stride"):
            settle(self, name, require_whole(name, getattr(self, name)))


Regions = Sequence[Sequence[int]]
"""Parts of a text as [start, end) pairs of code points, in order, none overlapping the next."""


def window_starts(text_length: int, stride: int, within: Regions | None = None) -> Sequence[int]:
    """Where windows start in a text of `text_length` code points: every `stride`, `within` regions or everywhere.

    Those that turn out too short to keep are among them.
    """
    if within is None:
        return range(0, text_length, stride)
    end = 0
    for region in within:
        if len(region) != 2 or not end <= region[0] < region[1] <= text_length:
            raise InputError(
                f"{argument('within')} has the region {list(region)}; give [start, end) pairs in order that do not "
                f"overlap, inside the text's {counted(text_length, 'character')}."
            )
        end = region[1]
    return [start for first, last in within for start in range(-(-first // stride) * stride, last, stride)]


def windows(
    text: str,
    tokenizer: Any,
    cut: Windows = Windows(),
    *,
    within: Regions | None = None,
    progress: Progress | None = None,
) -> list[Example]:
    """Examples of `cut.prefix` + `cut.suffix` tokens from windows that start every `cut.stride` code points of `text`.

    With `within`, those of them that start in these regions of the text; they may end outside.

    Each window is tokenised on its own, as plain text: no special tokens are added, and a control token's name that
    stands in the text is a string like any other (as far as the tokenizer can tell them apart). The spans are code
    points of `text` as given and leave no gap: a token that holds part of a character covers all of it, and a
    character that the tokenizer's normaliser merged away belongs to the token before it. Windows that the end of the
    text leaves with too few tokens are dropped: `len(window_starts(len(text), cut.stride, within)) - len(result)`.

    `progress` counts "windows" as they are finished, dropped ones included.
    """
    require_kind("text", text, str, "a text")
    if not text:
        raise InputError("the text is empty: there is nothing to cut windows from. Give at least one character.")
    lone = lone_surrogate(text)
    if lone is not None:
        raise InputError(
            f"character {lone} of the text (U+{ord(text[lone]):04X}) is half of a surrogate pair, which is not text. "
            "Decode the text as strict UTF-8, or replace that character."
        )
    backend = plain_backend(tokenizer)
    starts = window_starts(len(text), cut.stride, within)
    tell = progress or quiet
    shared: dict[int, int] = {}
    examples: list[Example] = []
    for first in range(0, len(starts), CHUNK):
        chunk = starts[first : first + CHUNK]
        examples += windows_at(text, backend, chunk, prefix=cut.prefix, suffix=cut.suffix, shared=shared)
        tell("windows", first + len(chunk), len(starts))
    return examples


def beginning_ends(
    text: str, tokenizer: Any, beginnings: Sequence[tuple[int, int]], *, prefix: int, suffix: int
) -> list[int]:
    """For each (start of a window that `windows` gives, tokens): where its suffix's first so many tokens end."""
    backend = plain_backend(tokenizer)
    ends = []
    for start, tokens in beginnings:
        ((_, encoding, length),) = _encodings(text, backend, [start], prefix + suffix)
        ends.append(start + _end(encoding, prefix + tokens, length))
    return ends


def windows_at(
    text: str, backend: Tokenizer, starts: Sequence[int], *, prefix: int, suffix: int, shared: dict[int, int]
) -> list[Example]:
    """The windows at `starts`, in order, without those that are too short."""
    total = prefix + suffix
    by_start: dict[int, Example] = {}
    for start, encoding, length in _encodings(text, backend, starts, total):
        # One object per distinct id: a book has millions of ids, and they would outweigh all else.
        ids = tuple([shared.setdefault(token, token) for token in encoding.ids[:total]])
        first, ends = encoding.token_to_chars(prefix)[0], _token_ends(encoding, prefix, total, length)
        by_start[start] = Example(
            id=f"w{start}",
            prefix=ids[:prefix],
            suffix=ids[prefix:],
            start=start,
            suffix_start=start + first,
            suffix_end=start + ends[-1],
            token_ends=tuple([shared.setdefault(end - first, end - first) for end in ends]),
        )
    return [by_start[start] for start in starts if start in by_start]


def _encodings(text: str, backend: Tokenizer, starts: Sequence[int], total: int) -> Iterator[tuple[int, Any, int]]:
    """(start, encoding, length of the slice) of each window that has `total` tokens, in the order they are found."""
    pending = list(starts)
    length = SLICE
    while pending:
        too_small: list[int] = []
        batch_size = max(1, CHUNK * SLICE // length)  # longer slices, fewer at once: the memory stays the same
        for first in range(0, len(pending), batch_size):
            batch = pending[first : first + batch_size]
            slices = [text[start : start + length] for start in batch]
            encodings: list[Any] = backend.encode_batch(slices, add_special_tokens=False)
            for start, cut, encoding in zip(batch, slices, encodings, strict=True):
                at_text_end = start + length >= len(text)
                if not at_text_end and _end(encoding, total, len(cut)) > length - MARGIN:
                    too_small.append(start)
                elif len(encoding) >= total:
                    yield start, encoding, len(cut)
        pending = too_small
        length *= 2


def _end(encoding: Any, total: int, length: int) -> int:
    """Where the first `total` tokens end in a slice of `length` characters: where the next one starts, at least.

    A normaliser may merge characters into one (a letter and its accent), and offsets then name only the first. If no
    token follows, all that is left of the slice is theirs.
    """
    if len(encoding) <= total:
        return length
    end: int = max(encoding.token_to_chars(total - 1)[1], encoding.token_to_chars(total)[0])
    return end


def _token_ends(encoding: Any, prefix: int, total: int, length: int) -> list[int]:
    """Where each suffix token ends in the slice, by the same rule for all: `_end`, token by token."""
    offsets = encoding.offsets
    ends = [max(offsets[i][1], offsets[i + 1][0]) for i in range(prefix, total - 1)]
    return list(accumulate([*ends, _end(encoding, total, length)], max))


def split_at(text: str, border: int, backend: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """(tokens before character `border`, tokens from it on, whether they are those of the whole text).

    The text is tokenised once and split where a token starts at the border. Where none does, because one reaches over
    it or the normaliser merged characters across it, the two sides are tokenised apart: the second as what goes on
    with a text, without the space that some tokenizers put before one.
    """
    encoding: Any = backend.encode(text, add_special_tokens=False)
    before = sum(start < border for start, _ in encoding.offsets)
    ids, first, rest = encoding.ids, encoding.offsets[:before], encoding.offsets[before:]
    clean = all(end <= border for _, end in first) and all(start >= border for start, _ in rest)
    if clean and (border in (0, len(text)) or (rest and rest[0][0] == border)):
        return tuple(ids[:before]), tuple(ids[before:]), True
    prefix: list[int] = backend.encode(text[:border], add_special_tokens=False).ids
    with _going_on(backend):
        suffix: list[int] = backend.encode(text[border:], add_special_tokens=False).ids
    return tuple(prefix), tuple(suffix), False


@contextmanager
def _going_on(backend: Tokenizer) -> Iterator[None]:
    """Meanwhile the backend adds no space in front: what it reads is not the beginning of a text."""
    kept = backend.normalizer, backend.pre_tokenizer
    normalizer, pre_tokenizer = (None if part is None else json.loads(part.__getstate__()) for part in kept)
    model = {"type": "BPE", "vocab": {}, "merges": []}
    bare = Tokenizer.from_str(
        json.dumps({"model": model, "normalizer": _unspaced(normalizer), "pre_tokenizer": _unspaced(pre_tokenizer)})
    )
    backend.normalizer, backend.pre_tokenizer = bare.normalizer, bare.pre_tokenizer
    try:
        yield
    finally:
        backend.normalizer, backend.pre_tokenizer = kept


def _unspaced(part: Any) -> Any:
    """A part of a tokenizer, as its file has it, that puts nothing before a text."""
    if part is None or part["type"] == "Prepend":
        return None
    changed: dict[str, Any] = {"add_prefix_space": False, "prepend_scheme": "never"}
    for steps in ("normalizers", "pretokenizers"):
        changed[steps] = [step for step in map(_unspaced, part.get(steps, ())) if step is not None]
    return {name: changed.get(name, value) for name, value in part.items()}


def plain_backend(tokenizer: Any) -> Tokenizer:
    """A copy of a Hugging Face fast tokenizer's backend that reads everything as plain text and gives true offsets.

    The copy leaves the caller's tokenizer alone. It has no post-processor: that adds special tokens and, in byte-level
    tokenizers, trims spaces off the offsets, but decides no other token.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise InputError(
            f"{type(tokenizer).__name__} is not a fast tokenizer, so it cannot say where its tokens stand in the text. "
            "Use a model folder that holds a tokenizer.json; transformers' AutoTokenizer.from_pretrained(...)"
            ".save_pretrained(...) writes one for most models."
        )
    copy = Tokenizer.from_str(backend.to_str())
    copy.post_processor = None
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True  # despite its name: split a special token's text like any other text
    return copy


def lone_surrogate(text: str) -> int | None:
    """Where half of a surrogate pair stands alone, as lenient decoders and broken escapes leave it; None if nowhere."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None
