"""Writing a book on from its first sentences: beam search, chunk after chunk, each from the end of the text so far.

One row holds all beams of a search, over keys that they share; each sees its own past alone, so that nothing is copied
or put in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rote.errors import InputError, ModelError, argument, counted
from rote.extraction.passes import out_of_memory
from rote.extraction.text.beams import BeamSearch, candidates
from rote.extraction.text.writing import Chunk, Plan, section_break
from rote.models.base import LogitModel

Encoder = Callable[[str], Sequence[int]]
CONTEXT = 3000
"""Tokens of a context and what is generated from it, where the model takes so many."""


def longest_context(model: LogitModel) -> int:
    """The default: 3000 tokens, or as many as the model takes beside its BOS."""
    return CONTEXT if model.context_length is None else min(CONTEXT, _room(model, model.context_length))


def check_writing(model: LogitModel, seed: Sequence[int], writing: Plan) -> None:
    """Refuse what this model cannot do."""
    if str(model.device).startswith("mps"):
        raise ModelError(f"beams are added up in float64, which Apple GPUs lack; use {argument('device', 'cpu')}.")
    if not seed:
        raise InputError(f"{argument('seed')} has no tokens; give the first sentences of the text.")
    if len(seed) >= writing.tokens:
        raise InputError(
            f"the seed has {counted(len(seed), 'token')} and the text is to have {writing.tokens}: there is nothing to "
            f"generate. Ask for more {argument('tokens')}, or give a shorter {argument('seed')}."
        )
    limit = model.context_length
    if limit is not None and writing.context_tokens > _room(model, limit):
        bos = "" if model.bos_id is None else ", one of them for BOS"
        raise InputError(
            f"{argument('context_tokens', writing.context_tokens)} is longer than the model takes ({limit} positions"
            f"{bos}); use at most {_room(model, limit)}."
        )


def _room(model: LogitModel, limit: int) -> int:
    return limit - (model.bos_id is not None)


def write_on(
    model: LogitModel, seed: Sequence[int], writing: Plan, encode: Encoder, *, done: Sequence[Chunk] = ()
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


def _start(writing: Plan, before: int, length: int) -> int:
    """Where the next context starts, `before` being where the last one did."""
    most = writing.context_tokens - writing.step
    if writing.context == "sliding":
        return max(0, length - most)
    return before if length - before <= most else length - min(most, writing.context_tokens // 2)


def _chunk(writing: Plan, output: Output, last: Chunk, start: int, length: int, read: int, encode: Encoder) -> Chunk:
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

    def __init__(self, model: LogitModel, writing: Plan) -> None:
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
