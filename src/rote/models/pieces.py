"""A text's tokens and where they stand in it: which of them are the pieces of a word."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from rote.errors import InputError, ModelError, argument


@dataclass(frozen=True)
class Read:
    """A text's tokens, without special ones, and the characters that each stands for."""

    ids: list[int]
    offsets: list[tuple[int, int]]

    @cached_property
    def _reach(self) -> tuple[list[int], list[int]]:
        """How far tokens have come, at most; and from where on all that follow stand."""
        ends = list(accumulate((end for _, end in self.offsets), max))
        starts = list(accumulate((start for start, _ in reversed(self.offsets)), min))[::-1]
        return starts, ends

    def pieces(self, start: int, end: int) -> list[int]:
        """The places of the tokens that overlap these characters; one that stands for none, if it is between them."""
        starts, ends = self._reach
        around = range(bisect_right(ends, start), bisect_left(starts, end))
        return [i for i in around if self.offsets[i][0] < end and self.offsets[i][1] > start]


class Pieces:
    """A fast tokenizer that reads everything as plain text; what it puts before and after a text stands apart.

    `mask` and `unknown`: the ids of these tokens; None where it has none.
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise ModelError(
                f"the tokenizer of {name}, a {type(tokenizer).__name__}, is not a fast one, so it cannot say where its "
                "tokens stand in a text. Use a model folder that holds a tokenizer.json; transformers' "
                "AutoTokenizer.from_pretrained(...).save_pretrained(...) writes one for most models."
            )
        self._plain, around = (Tokenizer.from_str(backend.to_str()) for _ in range(2))
        for copy in (self._plain, around):
            copy.no_truncation()
            copy.no_padding()
        self._plain.post_processor = None  # it adds special tokens, and trims offsets
        self._plain.encode_special_tokens = True  # despite its name: split a special token's text like any other text
        told = around.encode("a")
        text = [place for place, special in enumerate(told.special_tokens_mask) if not special]
        self.before: list[int] = told.ids[: text[0]] if text else []
        self.after: list[int] = told.ids[text[-1] + 1 :] if text else []
        self.mask: int | None = getattr(tokenizer, "mask_token_id", None)
        self.unknown: int | None = getattr(tokenizer, "unk_token_id", None)

    @property
    def around(self) -> int:
        """How many special tokens stand around a text."""
        return len(self.before) + len(self.after)

    def of(self, text: str) -> Read:
        encoding = self._plain.encode(text, add_special_tokens=False)
        return Read(encoding.ids, encoding.offsets)


def refuse_no_words(text: str, spans: Sequence[tuple[int, int]]) -> None:
    for start, end in spans:
        if not 0 <= start < end <= len(text):
            raise InputError(f"characters {start} to {end} are no word of a text of {len(text):,} characters.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"character {error.start} of the text is half of a surrogate pair, which is not text. Replace it."
        ) from error


def refuse_no_numbers(log_probs: Tensor, name: str) -> None:
    if not bool(torch.isfinite(log_probs).all()):
        raise ModelError(
            f"{name} returned logits that are NaN or infinite, of which no probability can be computed. Check the "
            f"weights; a model that overflows in float16 needs {argument('dtype', 'bfloat16')} or float32."
        )
