"""Texts as an index knows them, and back: as tokens of a model's tokenizer, or as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from rote.corpus.windows import lone_surrogate, plain_backend
from rote.errors import InputError

TOGETHER = 256
"""Texts that a tokenizer is handed at once."""


@dataclass(frozen=True)
class Reader:
    """`tokenizer`: a Hugging Face one; None: texts are read as their UTF-8 bytes."""

    tokenizer: Any | None

    @cached_property
    def backend(self) -> Any:
        return plain_backend(self.tokenizer)

    def ids(self, text: str) -> list[int]:
        """A text's tokens, without any that a model would be given beside them."""
        return self.placed(text)[0]

    def placed(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The same, and for each token the characters that it stands for, all of one of which it is a part."""
        _refuse_no_text(text)
        if self.tokenizer is None:
            ends = accumulate(len(character.encode()) for character in text)
            spans, before = [], 0
            for number, end in enumerate(ends):
                spans += [(number, number + 1)] * (end - before)
                before = end
            return list(text.encode()), spans
        encoding = self.backend.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def many(self, texts: Iterable[str]) -> Iterator[Sequence[int]]:
        """The tokens of many texts, in order."""
        if self.tokenizer is None:
            yield from (text.encode() for text in texts)
            return
        held: list[str] = []
        for text in texts:
            held.append(text)
            if len(held) == TOGETHER or sum(map(len, held)) > 1 << 22:
                yield from (each.ids for each in self.backend.encode_batch(held, add_special_tokens=False))
                held = []
        yield from (each.ids for each in self.backend.encode_batch(held, add_special_tokens=False))

    def queries(self, text: str) -> dict[str, list[int]]:
        """The tokens that a text may be in a corpus: those that it is alone, after a space, after a line break.

        The last differs from the first where a tokenizer puts a space of its own before a text. Those that end as
        another does are left out, as they are found with it; so no two are found at the same place, and their counts
        add up. As bytes there is one.
        """
        if not text:
            raise InputError("the text to look for is empty. Give at least one character.")
        ways = {"alone": self.ids(text)}
        if self.tokenizer is not None and not text[0].isspace():
            said = self.text(ways["alone"]).lstrip(" ")
            ids, places = self.placed("\n" + text)
            before = sum(start < 1 for start, _ in places)
            others = {"after a space": self.ids(" " + text)}
            if all(end <= 1 for _, end in places[:before]):
                others["after a line break"] = ids[before:]
            ways |= {how: ids for how, ids in others.items() if ids and self.text(ids).lstrip(" ") == said}
        kept: dict[str, list[int]] = {}
        for how, ids in sorted(ways.items(), key=lambda way: len(way[1])):
            if not any(_ends_with(ids, other) for other in kept.values()):
                kept[how] = ids
        return {how: kept[how] for how in ways if how in kept}

    def text(self, ids: Sequence[int]) -> str:
        """What tokens say. Part of a character is shown as one that cannot be read."""
        if self.tokenizer is None:
            return bytes(int(token) for token in ids).decode(errors="replace")
        tokens = [int(token) for token in ids]
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def text_after(self, ids: Sequence[int], token: int) -> str:
        """What a token says after others: some tokenizers leave out a space that a text begins with."""
        return self.text([*ids, token]).removeprefix(self.text(ids))


def _ends_with(ids: Sequence[int], end: Sequence[int]) -> bool:
    """As where a space is a token of its own."""
    return len(ids) >= len(end) and list(ids[len(ids) - len(end) :]) == list(end)


def _refuse_no_text(text: str) -> None:
    lone = lone_surrogate(text)
    if lone is not None:
        raise InputError(f"character {lone} of the text is half of a surrogate pair, which is not text. Replace it.")
