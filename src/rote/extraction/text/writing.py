"""How a text is written on, and what each step of it gives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from string import Formatter
from typing import Annotated, Literal, get_args

from rote.errors import InputError, argument
from rote.options import Option, refuse_idle, require_known, require_number, require_whole, settle

Context = Literal["sliding", "anchored"]


def _typed_break(text: str) -> str | None:
    return None if text in ("", "none") else text.replace(r"\n", "\n").replace(r"\t", "\t")


@dataclass(frozen=True, slots=True)
class Writing:
    """How a text is written on.

    `tokens`: how long it gets, seed included. Each step generates `step` tokens by beam search. Under the sliding
    context each step reads the last `context_tokens` - `step` tokens anew. The anchored context keeps what it has read
    and grows; only where `context_tokens` would not suffice, it starts again at the last half of them. A model's BOS
    stands before every context and is not counted in it.

    `section_break` takes the place of an EOS: a template with {number} or, in words, {words}, {Words} or {WORDS}, the
    number of the section that begins. The seed is section 1; an EOS after `missed_after` tokens or more without one
    counts for two, since a break was probably missed. None: the text ends with an EOS.
    """

    tokens: Annotated[int | None, Option("Length of the text, seed included.", default="the truth's and 5%")] = None
    context_tokens: Annotated[
        int | None, Option("Tokens of context and step together.", default="3000, or what the model takes")
    ] = None
    step: Annotated[int, Option("Tokens generated at a time.")] = 50
    beams: Annotated[int, Option("Beams; 1 is greedy decoding.")] = 8
    length_penalty: Annotated[float, Option("Of the beam search; above 0 favours long outputs.")] = 1.2
    context: Annotated[Context, Option("As published, or cheaper: it keeps what was read.")] = "sliding"
    section_break: Annotated[
        str | None,
        Option(
            "What takes the place of an EOS: {number}, {words}, {Words}, {WORDS} are filled in. none: the end.",
            none="none",
            parse=_typed_break,
        ),
    ] = "\n\nCHAPTER {WORDS}\n"
    missed_after: Annotated[int, Option("An EOS after so many tokens without one counts for two breaks.")] = 10_000

    def __post_init__(self) -> None:
        self.refuse_impossible()
        refuse_idle(self, "length_penalty", self.beams > 1, f"{argument('beams')} above 1")
        refuse_idle(self, "missed_after", self.section_break is not None, argument("section_break"))

    def refuse_impossible(self) -> None:
        """Refuse what no text can be written with."""
        for name in ("tokens", "context_tokens"):
            if getattr(self, name) is not None:
                settle(self, name, require_whole(name, getattr(self, name)))
        for name in ("step", "beams", "missed_after"):
            settle(self, name, require_whole(name, getattr(self, name)))
        settle(self, "length_penalty", require_number("length_penalty", self.length_penalty))
        require_known("context", self.context, get_args(Context))
        if not math.isfinite(self.length_penalty):
            raise InputError(f"{argument('length_penalty')} must be a finite number, not {self.length_penalty}.")
        if self.context_tokens is not None and self.context_tokens <= self.step:
            raise InputError(
                f"{argument('context_tokens', self.context_tokens)} leaves no room for {argument('step', self.step)}; "
                "use a longer context or shorter steps."
            )
        if self.section_break is not None:
            section_break(self.section_break, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Writing):
    """The same, with every length settled."""

    tokens: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """One step: the tokens it adds to the text, and what they cost.

    `start`: the token of the text that the context started at. `ended`: an EOS came, which is not among the tokens;
    their last `break_tokens` are then the section break. `section`: the number of the section that the text is in
    after the chunk. `since_end`: tokens since the last EOS. `token_evals`: positions fed, BOS not counted;
    `sliding_evals`: what they would be under the sliding context.
    """

    start: int
    tokens: tuple[int, ...]
    ended: bool
    break_tokens: int
    section: int
    since_end: int
    token_evals: int
    sliding_evals: int


_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def in_words(number: int) -> str:
    """Twenty-one, one hundred and five: below a million."""
    if number < 20:
        return _SMALL[number]
    if number < 100:
        rest = number % 10
        return _TENS[number // 10] + (f"-{_SMALL[rest]}" if rest else "")
    size, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    rest = number % size
    link = " and " if rest < 100 else " "
    return f"{in_words(number // size)} {name}" + (f"{link}{in_words(rest)}" if rest else "")


def section_break(template: str, number: int) -> str:
    """The template filled in."""
    words = in_words(number)
    fields = {"number": str(number), "words": words, "Words": words.title(), "WORDS": words.upper()}
    try:
        parts = [part for part in Formatter().parse(template) if part[1] is not None]
        names = [f"{name}{spec or ''}{conversion or ''}" for _, name, spec, conversion in parts]
    except ValueError as error:
        names = [str(error)]
    if not template or any(name not in fields for name in names):
        raise InputError(
            f"{argument('section_break', template)} is no section break: give text with {{number}}, {{words}}, "
            f"{{Words}} or {{WORDS}} for the section's number, or {argument('section_break', None)} to end the text "
            "where the model ends it."
        )
    return template.format(**fields)
