"""Windows over a book: one example every `stride` characters, with its exact place in the text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from rote.corpus.normalise import Normalised, normalised
from rote.errors import InputError, argument, counted
from rote.options import Option, Stride, require_kind, require_known, require_whole, settle
from rote.progress import Progress, quiet
from rote.tokens import Example

SLICE = 800
"""Characters tokenised for a window at first; doubled for a window that needs more."""

MARGIN = 32
"""Characters that must follow a window's last token in its slice, so that the cut does not decide the tokens."""

CHUNK = 1024
"""Slices of the first size that are tokenised at once: enough to use every core, few enough to hold in memory."""


Unit = Literal["tokens", "characters"]
USUAL: dict[Unit, int] = {"tokens": 50, "characters": 250}
"""How long prefixes and suffixes are where nothing is said."""

_USUAL = ", ".join(f"{length} {unit}" for unit, length in USUAL.items())

ALONE = "\u3041-\u3096\u309d-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Characters of writing without spaces between words, each a word of its own: Chinese characters and kana."""

BORDER = re.compile(
    rf"(?<=\S)(?=\s)|(?<=\S)(?=[{ALONE}])|(?<=[{ALONE}])(?![\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef])"
)


@dataclass(frozen=True, slots=True)
class Windows:
    """How a text is cut: an example of `prefix` + `suffix` tokens starts every `stride` characters.

    With `unit="characters"`, prefix and suffix are measured in characters instead and end with a word, so that they
    are the same whatever the tokenizer is.
    """

    prefix: Annotated[int, Option("Length of the prompt.", default=_USUAL)] = None  # type: ignore[assignment]
    suffix: Annotated[int, Option("Length of what must come back.", default=_USUAL)] = None  # type: ignore[assignment]
    stride: Stride = 10
    unit: Annotated[
        Unit, Option("What prefix and suffix count; characters end with a word, the same for all models.")
    ] = "tokens"

    def __post_init__(self) -> None:
        require_known("unit", self.unit, USUAL)
        for name in ("prefix", "suffix"):
            if getattr(self, name) is None:
                settle(self, name, USUAL[self.unit])
        for name in ("prefix", "suffix", "stride"):
            settle(self, name, require_whole(name, getattr(self, name)))


Regions = Sequence[Sequence[int]]
"""Parts of a text as [start, end) pairs of code points, in order, none overlapping the next."""


def window_starts(ready: Normalised, cut: Windows, within: Regions | None = None) -> Sequence[int]:
    """Where windows start in a text as it is cut: every `stride`, `within` regions of the original or everywhere.

    By characters, where the next word does. Those that turn out too short to keep are among them.
    """
    starts: Sequence[int] = range(0, len(ready.text), cut.stride)
    if cut.unit == "characters":
        words = word_borders(ready.text)[:-1]
        places = np.searchsorted(words, starts)
        starts = words[np.unique(places[places < words.size])].tolist()
    if within is None:
        return starts
    end, length = 0, int(ready.borders[-1])
    inside = np.zeros(length + 1, dtype=np.bool_)
    for region in within:
        if len(region) != 2 or not end <= region[0] < region[1] <= length:
            raise InputError(
                f"{argument('within')} has the region {list(region)}; give [start, end) pairs in order that do not "
                f"overlap, inside the text's {counted(length, 'character')}."
            )
        end = region[1]
        inside[region[0] : end] = True
    return [start for start in starts if inside[ready.borders[start]]]


def word_borders(text: str) -> NDArray[np.int64]:
    """Where words end, and 0. The space before a word belongs to it, as most tokenizers have it."""
    end = len(text.rstrip())
    inner = (match.start() for match in BORDER.finditer(text, 0, end))
    return np.unique(np.fromiter((0, *inner, end), dtype=np.int64))


def windows(
    text: str,
    tokenizer: Any,
    cut: Windows = Windows(),
    *,
    normalise: Sequence[str] = (),
    within: Regions | None = None,
    progress: Progress | None = None,
) -> list[Example]:
    """Examples of `cut.prefix` + `cut.suffix` tokens from windows that start every `cut.stride` code points of `text`.

    With `within`, those of them that start in these regions of the text; they may end outside. With `normalise`, the
    text is cut after these steps, and `stride` counts what they leave; all places are those of `text` as given.

    Each window is tokenised on its own, as plain text: no special tokens are added, and a control token's name that
    stands in the text is a string like any other (as far as the tokenizer can tell them apart). The spans are code
    points of `text` as given and leave no gap: a token that holds part of a character covers all of it, and a
    character that the tokenizer's normaliser merged away belongs to the token before it. Windows that the end of the
    text leaves too short are dropped: `len(window_starts(ready(text), cut, within)) - len(result)`.

    By characters, a window starts where the first word at or after its place does; prefix and suffix end with the last
    word that ends within their length, or with the only one. They are tokenised together if a token ends where the
    prefix does; `tokenised` says which had to be tokenised apart.

    `progress` counts "windows" as they are finished, dropped ones included.
    """
    prepared = ready(text, normalise)
    return cut_windows(prepared, plain_backend(tokenizer), cut, window_starts(prepared, cut, within), progress)


def ready(text: str, steps: Sequence[str] = ()) -> Normalised:
    """A text as it is cut, after these steps; what is no text is refused."""
    require_kind("text", text, str, "a text")
    if not text:
        raise InputError("the text is empty: there is nothing to cut windows from. Give at least one character.")
    lone = lone_surrogate(text)
    if lone is not None:
        raise InputError(
            f"character {lone} of the text (U+{ord(text[lone]):04X}) is half of a surrogate pair, which is not text. "
            "Decode the text as strict UTF-8, or replace that character."
        )
    prepared = normalised(text, steps)
    if not prepared.text:
        raise InputError(f"{argument('normalise')} leaves nothing of the text. Give a text with words in it.")
    return prepared


def cut_at(text: str, tokenizer: Any, cut: Windows, steps: Sequence[str], starts: Sequence[int]) -> list[Example]:
    """The windows that start at these characters of `text`, as a scan with these steps cut them.

    In the order of `starts`; without those that the end of the text leaves too short, and without starts of which the
    steps left nothing: no window starts there.
    """
    prepared = ready(text, steps)
    places = np.searchsorted(prepared.borders[:-1], starts)
    kept = [int(p) for p, s in zip(places, starts, strict=True) if p < len(prepared.text) and prepared.borders[p] == s]
    return cut_windows(prepared, plain_backend(tokenizer), cut, kept)


def cut_windows(
    prepared: Normalised, backend: Tokenizer, cut: Windows, starts: Sequence[int], progress: Progress | None = None
) -> list[Example]:
    """The windows at `starts` of a text as it is cut, in order, without those that are too short."""
    text, tell = prepared.text, progress or quiet
    words = word_borders(text) if cut.unit == "characters" else None
    shared: dict[int, int] = {}
    examples: list[Example] = []
    for first in range(0, len(starts), CHUNK):
        chunk = starts[first : first + CHUNK]
        if words is None:
            found: Iterable[Example] = windows_at(
                text, backend, chunk, prefix=cut.prefix, suffix=cut.suffix, shared=shared
            )
        else:
            found = _words_at(text, backend, chunk, cut, words)
        examples += found if not prepared.changed else [_placed(example, prepared.borders) for example in found]
        tell("windows", first + len(chunk), len(starts))
    return examples


def _placed(example: Example, borders: NDArray[np.int64]) -> Example:
    """An example of a text as it was cut, with its places in the original."""
    start, first, end = example.start, example.suffix_start, example.suffix_end
    assert start is not None
    assert first is not None
    assert end is not None
    assert example.token_ends is not None
    ends = borders[first + np.array(example.token_ends)] - borders[first]
    return replace(
        example,
        id=f"w{borders[start]}",
        start=int(borders[start]),
        suffix_start=int(borders[first]),
        suffix_end=int(borders[end]),
        token_ends=tuple(ends.tolist()),
    )


def _words_at(
    text: str, backend: Tokenizer, starts: Sequence[int], cut: Windows, words: NDArray[np.int64]
) -> Iterator[Example]:
    """The windows of whole words at `starts`, in order, without those that are too short."""
    for start in starts:
        border = _word_end(words, start, cut.prefix)
        end = _word_end(words, border, cut.suffix)
        if border + cut.suffix > len(text) or border >= end:
            continue
        prefix, suffix, ends, together = _split(text[start:end], border - start, backend)
        if prefix and suffix:
            yield Example(
                id=f"w{start}",
                prefix=prefix,
                suffix=suffix,
                start=start,
                suffix_start=border,
                suffix_end=end,
                tokenised="together" if together else "apart",
                token_ends=ends,
            )


def _word_end(words: NDArray[np.int64], start: int, length: int) -> int:
    """Where the last word ends that does so within `length` characters of `start`, or else the first one."""
    own = int(np.searchsorted(words, start))
    last = int(np.searchsorted(words, start + length, side="right")) - 1
    return int(words[min(max(last, own + 1), words.size - 1)])


def split_at(text: str, border: int, backend: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """(tokens before character `border`, tokens from it on, whether they are those of the whole text).

    The text is tokenised once and split where a token starts at the border. Where none does, because one reaches over
    it or the normaliser merged characters across it, the two sides are tokenised apart: the second as what goes on
    with a text, without the space that some tokenizers put before one.
    """
    prefix, suffix, _, together = _split(text, border, backend)
    return prefix, suffix, together


def _split(
    text: str, border: int, backend: Tokenizer
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]:
    """As `split_at`, with where each token of the second part ends in it."""
    whole: Any = backend.encode(text, add_special_tokens=False)
    before = sum(start < border for start, _ in whole.offsets)
    first, rest = whole.offsets[:before], whole.offsets[before:]
    clean = all(end <= border for _, end in first) and all(start >= border for start, _ in rest)
    # What stands between the border and the next token was merged into the one before, unless it is space, left out.
    if clean and (border in (0, len(text)) or (rest and not text[border : rest[0][0]].strip())):
        ends = [end - border for end in _token_ends(whole, before, len(whole), len(text))] if rest else []
        return tuple(whole.ids[:before]), tuple(whole.ids[before:]), tuple(ends), True
    one: Any = backend.encode(text[:border], add_special_tokens=False)
    with _going_on(backend):
        two: Any = backend.encode(text[border:], add_special_tokens=False)
    ends = _token_ends(two, 0, len(two), len(text) - border) if len(two) else []
    return tuple(one.ids), tuple(two.ids), tuple(ends), False


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
