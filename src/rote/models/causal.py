"""How likely a word is where it stands, by a causal model, where no masked one is at hand.

A causal model knows what stands before a word alone. So the text with the word is compared with the text with each of
the word's likeliest substitutes, up to some tokens behind it: a word that fits what follows gains by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rote.errors import ModelError
from rote.models.base import LogitModel
from rote.models.pieces import Pieces, Read, refuse_no_numbers, refuse_no_words
from rote.models.probed import ReferenceIdentity, WordScore
from rote.options import require_whole

SUBSTITUTES = 20
RIGHT = 16
"""Tokens behind a word that are looked at."""

KEPT_FREE = 64
"""Positions of the context that are left to a word and what follows it."""

WINDOW = 2048
"""Tokens that are read at once, at most; fewer where the model's context is shorter."""

SPACES = ("Ġ", "▁")
"""What a token begins with that stands for a space and what follows it."""

LOGIT_BYTES = {"cuda": 1 << 30}  # held at once; 64 MiB elsewhere


class CausalReference:
    """A `WordReference` around any `LogitModel` with a fast tokenizer."""

    def __init__(self, model: LogitModel, substitutes: int = SUBSTITUTES) -> None:
        self.model = model
        self.substitutes = require_whole("substitutes", substitutes)
        self._own = model.identity()
        self._pieces = Pieces(model.tokenizer, self._own.name)
        self._bos = [] if model.bos_id is None else [model.bos_id]
        self.window = min(model.context_length or WINDOW, WINDOW)
        self._left = self.window - len(self._bos) - min(KEPT_FREE, self.window // 2)
        if self._left < 1:
            raise ModelError(
                f"{self._own.name} can read {self.window} tokens at once, which leaves no room for a text."
            )

    def __repr__(self) -> str:
        return (
            f"<{self._own.title}: causal, {self._own.parameters:,} parameters, {self._own.dtype} on {self._own.device}>"
        )

    def identity(self) -> ReferenceIdentity:
        return ReferenceIdentity(
            kind="causal",
            name=self._own.name,
            label=self._own.label,
            revision=self._own.revision,
            fingerprint=self._own.fingerprint or "",
            parameters=self._own.parameters or 0,
            vocabulary=self.model.vocabulary,
            window=self.window,
            dtype=self._own.dtype,
            device=self._own.device,
            tokenizer=self._own.tokenizer,
            substitutes=self.substitutes,
            trust_remote_code=self._own.trust_remote_code or None,
        )

    @torch.inference_mode()
    def score_words(self, text: str, spans: Sequence[tuple[int, int]]) -> list[WordScore]:
        """For each word: the logarithm of its share among itself and its substitutes, and how many are likelier.

        A word has no score where one of its tokens is the unknown one or stands for a part of a neighbour too; where
        nothing stands before it, not even BOS; and where it has more tokens than the context keeps free.
        """
        refuse_no_words(text, spans)
        read = self._pieces.of(text)
        found = []
        windows: dict[int, list[_Asked]] = {}
        for number, span in enumerate(spans):
            pieces = read.pieces(*span)
            found.append(WordScore(log_likelihood=None, rank=None, pieces=len(pieces)))
            if asked := self._asked(text, read, span, number, pieces):
                windows.setdefault(asked.start, []).append(asked)
        for start, words in windows.items():
            last = max(word.first for word in words)
            known = [*self._bos, *read.ids[start:last]]
            for word, score in self._read(known, words):
                found[word.number] = score
        return found

    def _asked(self, text: str, read: Read, span: tuple[int, int], number: int, pieces: list[int]) -> _Asked | None:
        free = self.window - len(self._bos) - self._left
        if not pieces or len(pieces) > free or self._pieces.unknown in {read.ids[i] for i in pieces}:
            return None
        first, behind = pieces[0], pieces[-1] + 1
        glued = text[read.offsets[first][0] : span[0]].strip() or text[span[1] : read.offsets[behind - 1][1]].strip()
        if glued or (first == 0 and not self._bos):
            return None
        word, right = read.ids[first:behind], read.ids[behind : behind + min(RIGHT, free - len(pieces))]
        start = 0
        if first > self._left:  # windows begin at fixed places, so that words share them: at least half is filled
            step = max(1, self._left // 2)
            start = -(-(first - self._left) // step) * step
        name = text[span[0] : span[1]].casefold()
        return _Asked(number, start, first, len(self._bos) + first - start, name, word, right)

    def _read(self, known: list[int], words: list[_Asked]) -> Iterator[tuple[_Asked, WordScore]]:
        model = self.model
        longest = max(len(word.word) + len(word.right) for word in words)
        memory = model.memory(len(known) + (self.substitutes + 1) * longest)
        tokens = torch.tensor([known], device=model.device)
        places = torch.arange(len(known), device=model.device)[None]
        causal = torch.ones(1, len(known), len(known), dtype=torch.bool, device=model.device).tril()
        states = memory.feed(tokens, places[:, :0], places, causal)[0]
        for word in words:
            logits = model.head(states[word.left - 1][None])[0].float().to(model.device)
            first = logits.log_softmax(0)
            variants = [word.word, *([token] for token in self._likeliest(first, word))]
            rows = [[*variant, *word.right] for variant in variants]
            lengths = [len(row) for row in rows]
            width = max(lengths)
            padded = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=model.device)
            real = torch.arange(width, device=model.device)[None] < torch.tensor(lengths, device=model.device)[:, None]
            own = len(known) + torch.arange(len(rows) * width, device=model.device).view(len(rows), width)
            place = torch.where(real, own, -1)
            past = places[:, : word.left].expand(len(rows), -1)
            seen = torch.ones(len(rows), width, word.left + width, dtype=torch.bool, device=model.device)
            seen[:, :, word.left :] = torch.ones(width, width, dtype=torch.bool, device=model.device).tril()
            seen &= real[:, :, None]
            seen[:, :, word.left :] |= torch.eye(width, dtype=torch.bool, device=model.device) & ~real[:, :, None]
            later = memory.feed(padded, past, place, seen)
            begin = first[padded[:, 0]].double()
            rest = self._following(later[:, :-1], padded[:, 1:], real[:, 1:])
            totals = begin + rest
            refuse_no_numbers(totals, self._own.name)
            share = totals[0] - totals.logsumexp(0)
            rank = int((totals[1:] > totals[0]).sum())
            yield word, WordScore(log_likelihood=min(float(share), 0.0), rank=rank, pieces=len(word.word))

    def _following(self, states: Tensor, tokens: Tensor, real: Tensor) -> Tensor:
        """[rows]: the log-probabilities of these tokens, each after the state before it, summed where they are real."""
        at_once = max(1, LOGIT_BYTES.get(states.device.type, 1 << 26) // (4 * self.model.vocabulary))
        chosen, truth = states[real], tokens[real]
        parts = []
        for at in range(0, len(chosen), at_once):
            logits = self.model.head(chosen[at : at + at_once]).float()
            own = truth[at : at + at_once, None].to(logits.device)
            parts.append(logits.log_softmax(1).gather(1, own)[:, 0].double().to(states.device))
        each = torch.zeros(real.shape, dtype=torch.float64, device=states.device)
        if parts:
            each[real] = torch.cat(parts)
        return each.sum(1)

    def _likeliest(self, log_probs: Tensor, word: _Asked) -> list[int]:
        """The likeliest words of one token, in the place of this word."""
        spaced = self._words[1][word.word[0]]
        allowed = self._allowed[int(spaced)].to(log_probs.device)
        order = log_probs.masked_fill(~allowed, -torch.inf).topk(min(4 * self.substitutes + 16, len(log_probs)))
        found = [
            token
            for value, token in zip(order.values.tolist(), order.indices.tolist(), strict=True)
            if value > -torch.inf and self._words[0][token].casefold() != word.name
        ]
        return found[: self.substitutes]

    @cached_property
    def _words(self) -> tuple[list[str], list[bool]]:
        """For each token: the text that it stands for, and whether there is a space before that."""
        tokenizer = self.model.tokenizer
        special = set(tokenizer.all_special_ids)
        names = tokenizer.convert_ids_to_tokens(list(range(min(len(tokenizer), self.model.vocabulary))))
        texts = [
            "" if token in special or name is None else str(tokenizer.convert_tokens_to_string([name])).strip()
            for token, name in enumerate(names)
        ]
        missing = self.model.vocabulary - len(names)
        return texts + [""] * missing, [str(name).startswith(SPACES) for name in names] + [False] * missing

    @cached_property
    def _allowed(self) -> tuple[Tensor, Tensor]:
        """Tokens that are a word: without a space before them, and with one."""
        texts, spaced = self._words
        words = torch.tensor([text.isalpha() for text in texts], dtype=torch.bool)
        after = torch.tensor(spaced, dtype=torch.bool)
        return words & ~after, words & after


@dataclass(frozen=True, slots=True)
class _Asked:
    """A word: its place in the answer; where its window starts in the text's tokens, and its own first token.

    `left`: how many positions stand before it in that window. `right`: tokens that follow.
    """

    number: int
    start: int
    first: int
    left: int
    name: str
    word: list[int]
    right: list[int]
