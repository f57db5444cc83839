"""Windows, slowly: one at a time, with every span counted from the bytes that each token stands for.

For byte-level tokenizers without a normaliser only: there, and nowhere else, the tokens' bytes are the text's bytes.
Uses no offsets, no batches and no copy of the tokenizer.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Window(NamedTuple):
    start: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    suffix_start: int
    suffix_end: int
    token_ends: tuple[int, ...]


def byte_of_each_letter() -> dict[str, int]:
    """The byte-level alphabet: printable Latin-1 bytes are themselves, the others, in order, U+0100 onwards."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    letters = {chr(byte): byte for byte in printable}
    rest = [byte for byte in range(256) if byte not in printable]
    for place, byte in enumerate(rest):
        letters[chr(256 + place)] = byte
    return letters


LETTERS = byte_of_each_letter()


def character_of_each_byte(text: str) -> list[int]:
    """For each byte of the text, the character it is part of."""
    owners: list[int] = []
    for position, character in enumerate(text):
        owners += [position] * len(character.encode("utf-8"))
    return owners


def reference_windows(text: str, tokenizer: Any, *, prefix: int, suffix: int, stride: int) -> list[Window]:
    found = []
    start = 0
    while start < len(text):
        window = one_window(text, tokenizer, start, prefix, suffix)
        if window is not None:
            found.append(window)
        start += stride
    return found


def one_window(text: str, tokenizer: Any, start: int, prefix: int, suffix: int) -> Window | None:
    length = 800
    while True:
        cut = text[start : start + length]
        ids = tokenizer.encode(cut, add_special_tokens=False, split_special_tokens=True)
        sizes = [len([LETTERS[letter] for letter in token]) for token in tokenizer.convert_ids_to_tokens(ids)]
        owners = character_of_each_byte(cut)
        assert sum(sizes) == len(owners)
        reaches_end = start + length >= len(text)
        if len(ids) >= prefix + suffix:
            bytes_in_prefix = sum(sizes[:prefix])
            bytes_in_all = sum(sizes[: prefix + suffix])
            first = owners[bytes_in_prefix]
            last = owners[bytes_in_all - 1]
            characters_after = len(cut) - (last + 1)
            if reaches_end or characters_after >= 32:
                return Window(
                    start=start,
                    prefix=tuple(ids[:prefix]),
                    suffix=tuple(ids[prefix : prefix + suffix]),
                    suffix_start=start + first,
                    suffix_end=start + last + 1,
                    token_ends=tuple(
                        owners[sum(sizes[: prefix + count]) - 1] + 1 - first for count in range(1, suffix + 1)
                    ),
                )
        if reaches_end:
            return None
        length = length * 2


def reference_word_windows(text: str, *, prefix: int, suffix: int, stride: int) -> list[tuple[int, int, int]]:
    """Where windows by characters start, where their prefix ends and where their suffix ends; for words with spaces."""
    ends = [at for at in range(1, len(text)) if not text[at - 1].isspace() and text[at].isspace()]
    if text and not text[-1].isspace():
        ends.append(len(text))
    if not ends:
        return []
    found: list[tuple[int, int, int]] = []
    for place in range(0, len(text), stride):
        starts = [border for border in [0, *ends[:-1]] if border >= place]
        if not starts:
            continue
        start = starts[0]
        border = last_word(ends, start, prefix)
        end = None if border is None else last_word(ends, border, suffix)
        if border is None or end is None or border + suffix > len(text):
            continue
        if (start, border, end) not in found:
            found.append((start, border, end))
    return found


def last_word(ends: list[int], start: int, length: int) -> int | None:
    later = [end for end in ends if end > start]
    within = [end for end in later if end <= start + length]
    return within[-1] if within else later[0] if later else None
