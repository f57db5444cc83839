"""Windows over a book: one example every `stride` characters, with its exact place in the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer

from rote.errors import InputError
from rote.tokens import Example

SLICE = 800
"""Characters tokenised for a window at first; doubled for a window that needs more."""

MARGIN = 32
"""Characters that must follow a window's last token in its slice, so that the cut does not decide the tokens."""

CHUNK = 1024
"""Slices of the first size that are tokenised at once: enough to use every core, few enough to hold in memory."""


def window_count(text_length: int, stride: int) -> int:
    """How many windows start in a text of `text_length` code points; those too short to keep are counted too."""
    return len(range(0, text_length, stride))


def windows(
    text: str,
    tokenizer: Any,
    *,
    prefix: int = 50,
    suffix: int = 50,
    stride: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> list[Example]:
    """Examples of `prefix` + `suffix` tokens from windows that start every `stride` code points of `text`.

    Each window is tokenised on its own, as plain text: no special tokens are added, and a control token's name that
    stands in the text is a string like any other (as far as the tokenizer can tell them apart). The spans are code
    points of `text` as given and leave no gap: a token that holds part of a character covers all of it, and a
    character that the tokenizer's normaliser merged away belongs to the token before it. Windows that the end of the
    text leaves with too few tokens are dropped: `window_count(len(text), stride) - len(result)` of them.

    `progress(done, total)` is called as windows are finished, dropped ones included.
    """
    for option, value in (("prefix", prefix), ("suffix", suffix), ("stride", stride)):
        require_positive(option, value)
    if not text:
        raise InputError("the text is empty: there is nothing to cut windows from. Give at least one character.")
    lone = lone_surrogate(text)
    if lone is not None:
        raise InputError(
            f"character {lone} of the text (U+{ord(text[lone]):04X}) is half of a surrogate pair, which is not text. "
            "Decode the text as strict UTF-8, or replace that character."
        )
    backend = plain_backend(tokenizer)
    starts = range(0, len(text), stride)
    shared: dict[int, int] = {}
    examples: list[Example] = []
    for first in range(0, len(starts), CHUNK):
        chunk = starts[first : first + CHUNK]
        examples += _chunk_windows(text, backend, chunk, prefix=prefix, suffix=suffix, shared=shared)
        if progress is not None:
            progress(first + len(chunk), len(starts))
    return examples


def _chunk_windows(
    text: str, backend: Tokenizer, starts: range, *, prefix: int, suffix: int, shared: dict[int, int]
) -> list[Example]:
    """The windows at `starts`, in order, without those that are too short."""
    total = prefix + suffix
    found: dict[int, Example] = {}
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
                end = _end(encoding, total, len(cut))
                at_text_end = start + length >= len(text)
                if not at_text_end and end > length - MARGIN:
                    too_small.append(start)
                elif len(encoding) >= total:
                    # One object per distinct id: a book has millions of ids, and they would outweigh all else.
                    ids = tuple([shared.setdefault(token, token) for token in encoding.ids[:total]])
                    found[start] = Example(
                        id=f"w{start}",
                        prefix=ids[:prefix],
                        suffix=ids[prefix:],
                        start=start,
                        suffix_start=start + encoding.token_to_chars(prefix)[0],
                        suffix_end=start + end,
                    )
        pending = too_small
        length *= 2
    return [found[start] for start in starts if start in found]


def _end(encoding: Any, total: int, length: int) -> int:
    """Where the first `total` tokens end in a slice of `length` characters: where the next one starts, at least.

    A normaliser may merge characters into one (a letter and its accent), and offsets then name only the first. If no
    token follows, all that is left of the slice is theirs.
    """
    if len(encoding) <= total:
        return length
    end: int = max(encoding.token_to_chars(total - 1)[1], encoding.token_to_chars(total)[0])
    return end


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


def require_positive(option: str, value: int) -> None:
    """Refuse an option that is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"--{option} {value}: {option} must be a whole number of at least 1.")


def lone_surrogate(text: str) -> int | None:
    """Where half of a surrogate pair stands alone, as lenient decoders and broken escapes leave it; None if nowhere."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None
