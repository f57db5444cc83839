"""Writing a book on from its first sentences: beam search, chunk after chunk, each from the end of the text so far.

One row holds all beams of a search, over keys that they share; each sees its own past alone, so that nothing is copied
or put in another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Literal

import torch
from torch import Tensor

from rote.errors import InputError, ModelError
from rote.extraction.text.beams import BeamSearch, candidates
from rote.extraction.verbatim import out_of_memory
from rote.models.base import LogitModel

Context = Literal["sliding", "anchored"]
Encoder = Callable[[str], Sequence[int]]
CONTEXT = 3000
"""Tokens of a context and what is generated from it, where the model takes so many."""


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

    tokens: int
    context_tokens: int
    step: int = 50
    beams: int = 8
    length_penalty: float = 1.2
    context: Context = "sliding"
    section_break: str | None = "\n\nCHAPTER {WORDS}\n"
    missed_after: int = 10_000

    def __post_init__(self) -> None:
        for name in ("tokens", "context_tokens", "step", "beams", "missed_after"):
            if getattr(self, name) < 1:
                raise InputError(f"{name.replace('_', ' ')} must be at least 1, not {getattr(self, name)}.")
        if not math.isfinite(self.length_penalty):
            raise InputError(f"the length penalty must be a finite number, not {self.length_penalty}.")
        if self.context not in ("sliding", "anchored"):
            raise InputError(f"unknown context {self.context!r}; use sliding or anchored.")
        if self.context_tokens <= self.step:
            raise InputError(
                f"a context of {self.context_tokens} tokens leaves no room for a step of {self.step}; "
                "use a longer context or shorter steps."
            )
        if self.section_break is not None:
            section_break(self.section_break, 1)


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


def longest_context(model: LogitModel) -> int:
    """The default: 3000 tokens, or as many as the model takes beside its BOS."""
    return CONTEXT if model.context_length is None else min(CONTEXT, _room(model, model.context_length))


def check_writing(model: LogitModel, seed: Sequence[int], writing: Writing) -> None:
    """Refuse what this model cannot do."""
    if str(model.device).startswith("mps"):
        raise ModelError("beams are added up in float64, which Apple GPUs lack; use device='cpu'.")
    if not seed:
        raise InputError("the seed has no tokens; give the first sentences of the text.")
    if len(seed) >= writing.tokens:
        raise InputError(
            f"the seed has {len(seed)} tokens and the text is to have {writing.tokens}: there is nothing to generate. "
            "Ask for more tokens or give a shorter seed."
        )
    limit = model.context_length
    if limit is not None and writing.context_tokens > _room(model, limit):
        bos = "" if model.bos_id is None else ", one of them for BOS"
        raise InputError(
            f"a context of {writing.context_tokens} tokens is longer than the model takes ({limit} positions{bos}); "
            f"use at most {_room(model, limit)}."
        )


def _room(model: LogitModel, limit: int) -> int:
    return limit - (model.bos_id is not None)


def write_on(
    model: LogitModel, seed: Sequence[int], writing: Writing, encode: Encoder, *, done: Sequence[Chunk] = ()
) -> Iterator[Chunk]:
    """The chunks after `done`, one by one, until the text is long enough or ends.

    A chunk follows from the seed and the chunks before it: where writing was interrupted changes nothing, since keys
    that were lost are made again in the very steps in which they were made at first. `encode` turns section breaks into
    tokens.
    """
    check_writing(model, seed, writing)
    if writing.section_break is not None and not encode(section_break(writing.section_break, 2)):
        raise InputError(f"the section break {writing.section_break!r} has no tokens: the text would never go on.")
    text = [*seed]
    begins: list[tuple[int, int]] = []  # for each chunk: where its context starts, and where it ends
    for chunk in done:
        begins.append((chunk.start, len(text)))
        text += chunk.tokens
    last = done[-1] if done else Chunk(0, (), False, 0, 1, 0, 0, 0)
    reader = _Reader(model, writing)
    while len(text) < writing.tokens and not (last.ended and writing.section_break is None):
        start = _start(writing, last.start, len(text))
        begins.append((start, len(text)))
        read = reader.read(text, begins, label=len(begins))
        output = reader.search(min(writing.step, writing.tokens - len(text)), label=len(begins))
        last = _chunk(writing, output, last, start, len(text), read, encode)
        text += last.tokens
        yield last


def _start(writing: Writing, before: int, length: int) -> int:
    """Where the next context starts, `before` being where the last one did."""
    most = writing.context_tokens - writing.step
    if writing.context == "sliding":
        return max(0, length - most)
    return before if length - before <= most else length - min(most, writing.context_tokens // 2)


def _chunk(writing: Writing, output: Output, last: Chunk, start: int, length: int, read: int, encode: Encoder) -> Chunk:
    tokens, section = output.tokens, last.section
    since_end = last.since_end + len(tokens) + output.ended
    added: tuple[int, ...] = ()
    if output.ended and writing.section_break is not None:
        section += 2 if since_end >= writing.missed_after else 1
        if length + len(tokens) < writing.tokens:
            added = tuple(encode(section_break(writing.section_break, section)))
    return Chunk(
        start=start,
        tokens=(*tokens, *added),
        ended=output.ended,
        break_tokens=len(added),
        section=section,
        since_end=0 if output.ended else since_end,
        token_evals=read + output.token_evals,
        sliding_evals=min(length, writing.context_tokens - writing.step) + output.token_evals,
    )


@dataclass(frozen=True, slots=True)
class Output:
    """What one beam search chose. `ended`: an EOS followed `tokens`. `token_evals`: positions fed for it."""

    tokens: tuple[int, ...]
    ended: bool
    token_evals: int


class _Reader:
    """The model's memory: the context at the first entries, in order, the beams of a search behind it."""

    def __init__(self, model: LogitModel, writing: Writing) -> None:
        self.model, self.writing = model, writing
        self.bos = [] if model.bos_id is None else [model.bos_id]
        context = writing.context_tokens + 1
        self.entries = torch.arange(context + writing.beams * writing.step, device=model.device)
        self.memory = model.memory(len(self.entries))
        self.start, self.end = 0, 0  # what is read: these tokens of the text
        self.state = torch.empty(0)  # after the last of them
        self.eos = model.eos_ids

    def read(self, text: Sequence[int], begins: Sequence[tuple[int, int]], *, label: int) -> int:
        """Read what the last context has and the memory lacks; how many tokens that is without an interruption."""
        start = begins[-1][0]
        same = self.writing.context == "anchored"
        ends = [end for own, end in begins if own == start] if same else [begins[-1][1]]
        if not same or self.end == 0 or self.start != start:
            self.start, self.end = start, start
        for end in ends:
            if end > self.end or self.end == start:
                self._feed_context(text[self.end : end], label)
                self.end = end
        return ends[-1] - (ends[-2] if len(ends) > 1 else start)

    def _feed_context(self, tokens: Sequence[int], label: int) -> None:
        before = self.end - self.start + (len(self.bos) if self.end > self.start else 0)
        fed = [*(self.bos if self.end == self.start else ()), *tokens]
        place = self.entries[None, before : before + len(fed)]
        seen = torch.ones(1, len(fed), before + len(fed), dtype=torch.bool, device=self.model.device).tril(before)
        self.state = self._feed(fed, self.entries[None, :before], place, seen, label)[-1:]

    def _feed(self, tokens: Sequence[int], past: Tensor, place: Tensor, seen: Tensor, label: int) -> Tensor:
        try:
            return self.memory.feed(torch.tensor([tokens], device=self.model.device), past, place, seen)[0]
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            raise ModelError(
                f"out of memory at chunk {label}; use a shorter context, fewer beams, a smaller model or a 16-bit "
                "dtype."
            ) from error

    @torch.inference_mode()
    def search(self, count: int, *, label: int) -> Output:
        """Beam search for the `count` tokens after the context, or fewer with an EOS after them."""
        search = BeamSearch(self.writing.beams, self.writing.length_penalty, count, self.eos)
        length = self.end - self.start + len(self.bos)
        context, free = self.entries[:length], self.entries[self.writing.context_tokens + 1 :]
        tree = free[:0]  # entries of tokens that some beam has behind it
        seen = torch.ones(1, 0, dtype=torch.bool, device=free.device)  # by beam: which of them
        states, used = self.state, 0
        while not search.done:
            logits = self.model.head(states)
            search.extend(*candidates(logits, search.log_probs, search.width, label))
            if search.done:
                break
            seen = seen[search.parents]
            alive = seen.any(0)
            tree, seen = tree[alive], seen[:, alive]
            beams = len(search.parents)
            place, itself = free[used : used + beams], torch.eye(beams, dtype=torch.bool, device=free.device)
            used += beams
            every = torch.cat([seen.new_ones(beams, length), seen, itself], 1)
            states = self._feed(search.last, torch.cat([context, tree])[None], place[None], every[None], label)
            tree, seen = torch.cat([tree, place]), torch.cat([seen, itself], 1)
        tokens, ended = search.best()
        return Output(tokens, ended, used)


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
        names = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        names = [str(error)]
    if not template or any(name not in fields for name in names):
        raise InputError(
            f"the section break {template!r} is none: give text with {{number}}, {{words}}, {{Words}} or {{WORDS}} for "
            "the section's number, or 'none' to end the text where the model ends it."
        )
    return template.format(**fields)
