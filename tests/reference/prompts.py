"""Where a text's tokens part at a border, slowly: by the bytes of each token. For byte-level tokenizers only."""

from __future__ import annotations

from typing import Any

from tests.reference.windows import LETTERS


def split(prompt: str, target: str, tokenizer: Any) -> tuple[list[int], list[int], bool]:
    """(prompt's tokens, target's tokens, whether they are those of the whole text)."""
    ids = plain(prompt + target, tokenizer)
    said = b""
    for place in range(len(ids) + 1):
        if said == prompt.encode():
            return ids[:place], ids[place:], True
        if place < len(ids):
            said += bytes(LETTERS[letter] for letter in tokenizer.convert_ids_to_tokens(ids[place]))
    return plain(prompt, tokenizer), plain(target, tokenizer), False


def plain(text: str, tokenizer: Any) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    return ids
