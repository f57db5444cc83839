"""Examples: a prefix to prompt with and the suffix the training text has next. Token ids are the unit of truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rote.errors import InputError
from rote.options import require_whole


def _ids(example: str, name: str, ids: Any) -> tuple[int, ...]:
    """Token ids as Python's own numbers, whatever they were kept in."""
    try:
        listed = tuple(ids)
        return listed if set(map(type, listed)) <= {int} else tuple(require_whole(name, token, 0) for token in listed)
    except (InputError, TypeError):
        raise InputError(f"the {name} of example {example!r} must be a list of token ids, not {ids!r:.60}.") from None


Tokenised = Literal["together", "apart", "chat"]
"""How a prompt and its target became tokens: as one text, apart as their border falls inside a token, or as a chat."""

BosPolicy = Literal["auto", "always", "never"]
"""Whether BOS stands before every prefix; `auto`: if the tokenizer has one. It never counts as part of the prefix."""


@dataclass(frozen=True, slots=True)
class Example:
    """One prefix and suffix as token ids, tokenised once and never decoded and re-encoded.

    `start`, `suffix_start` and `suffix_end` are code points of the text the example was cut from: the prefix is
    text[start:suffix_start], the suffix text[suffix_start:suffix_end]. A token that holds part of a character covers
    all of it, so where the border falls inside a character the suffix's span includes it. `token_ends` says where in
    the suffix's text each of its tokens ends, for people who look at tokens, and `tokenised` how a prompt and its
    target became tokens; both are no part of what the example is, and None where not known.
    """

    id: str
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    start: int | None = None
    suffix_start: int | None = None
    suffix_end: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    token_ends: tuple[int, ...] | None = field(default=None, compare=False)
    tokenised: Tokenised | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise InputError(f"an example's id is a text, not {self.id!r}.")
        for name in ("prefix", "suffix"):
            object.__setattr__(self, name, _ids(self.id, name, getattr(self, name)))
        if not self.suffix:
            raise InputError(f"example {self.id!r} has an empty suffix; give at least one suffix token to score.")
        if self.token_ends is not None and len(self.token_ends) != len(self.suffix):
            raise InputError(
                f"example {self.id!r} has {len(self.token_ends)} token_ends for {len(self.suffix)} suffix tokens."
            )
