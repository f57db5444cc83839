"""Results of examples, as a list that can show itself: as a table in a notebook, or as a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from rote.frames import FrameKind, frame_of, html_card, html_table, html_text, require_frame
from rote.tokens import Example

ROWS = 20
"""Of a table in a notebook."""

WIDEST = 80
"""Characters of a cell."""


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
        schemes = max(1, len(self) // max(1, len(examples)))
        self._made = [(one, examples[number // schemes]) for number, one in enumerate(self)]
        self._tokenizer = tokenizer

    def rows(self, most: int | None = None) -> list[dict[str, Any]]:
        """The first of them: an example's name, the numbers, and the texts of its prefix and suffix."""
        rows, of = [], {id(one): example for one, example in self._made}  # a list can be sorted, cut and added to
        for one in self[:most]:
            example = of.get(id(one))
            sides = ("prefix", "suffix")
            texts = {side: None if example is None else self._text(getattr(example, side)) for side in sides}
            rows.append({"example_id": one.example_id, **one.told(), **texts})
        return rows

    def _text(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens)) if self._tokenizer is None else str(self._tokenizer.decode(list(tokens)))

    def frame(self, kind: FrameKind = "polars") -> Any:
        """A row per result, with the texts of prefix and suffix: a `polars` or a `pandas` data frame."""
        require_frame(kind)
        return frame_of(self.rows(), kind)

    def _headline(self) -> str:
        schemes = ", ".join(dict.fromkeys(one.told()["scheme"] for one in self))
        return f"{len(self):,} result{'' if len(self) == 1 else 's'}" + (f" under {schemes}" if schemes else "")

    def __repr__(self) -> str:
        return f"<{self._headline()}>"

    def _repr_html_(self) -> str:
        rows = self.rows(ROWS)
        table = html_table(tuple(rows[0]), ([_cell(*each) for each in row.items()] for row in rows)) if rows else ""
        more = f"<div>{len(self) - ROWS:,} more</div>" if len(self) > ROWS else ""
        return html_card(html_text(self._headline()), table, more)


def _cell(name: str, value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    if len(text) <= WIDEST:
        return text
    return f"…{text[-WIDEST:]}" if name == "prefix" else f"{text[:WIDEST]}…"  # what stands beside the suffix
