"""Results of examples, as a list that can show itself: as a table in a notebook, or as a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Protocol, TypeVar

from rote.frames import FrameKind, frame_of
from rote.tokens import Example

ROWS = 20
"""Of a table in a notebook."""


class Told(Protocol):
    """A result of one example under one scheme, and its numbers by name."""

    @property
    def example_id(self) -> str: ...
    def told(self) -> Mapping[str, Any]: ...


Result = TypeVar("Result", bound=Told)


class Results(list[Result]):
    """Results for each example, for each scheme: a list, with the examples that they are of."""

    def __init__(self, results: Iterable[Result], examples: Sequence[Example], tokenizer: Any) -> None:
        super().__init__(results)
        self._examples, self._tokenizer = examples, tokenizer

    def rows(self, most: int | None = None) -> list[dict[str, Any]]:
        """The first of them: an example's name, the numbers, and the texts of its prefix and suffix."""
        rows, schemes = [], max(1, len(self) // max(1, len(self._examples)))
        for number, one in enumerate(self[:most]):
            example = self._examples[number // schemes]
            texts = {"prefix": self._text(example.prefix), "suffix": self._text(example.suffix)}
            rows.append({"example_id": one.example_id, **one.told(), **texts})
        return rows

    def _text(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens)) if self._tokenizer is None else str(self._tokenizer.decode(list(tokens)))

    def frame(self, kind: FrameKind = "polars") -> Any:
        """A row per result, with the texts of prefix and suffix: a `polars` or a `pandas` data frame."""
        return frame_of(self.rows(), kind)

    def _repr_html_(self) -> str:
        rows = self.rows(ROWS)
        head = "".join(f"<th>{escape(name)}</th>" for name in (rows[0] if rows else ()))
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row.values()) + "</tr>" for row in rows
        )
        more = f"<p>{len(self) - ROWS:,} more</p>" if len(self) > ROWS else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
