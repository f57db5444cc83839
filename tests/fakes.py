"""Models whose logits are known, as they depend on the tokens so far by a seeded hash; and one that tells no logits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rote.listed import Listed, ListedScores, listed_scores
from rote.models.base import ModelIdentity, ServedModel
from rote.models.huggingface import HuggingFaceModel
from rote.models.memory import Replay
from rote.scheme import Scheme
from rote.tokens import Example


class HashModel:
    """Tiny `LogitModel`: every distinct history has its own random logits, so any misplaced position shows."""

    tokenizer = None
    eos_ids: frozenset[int] = frozenset()
    logit_tolerance = 1e-6
    warnings: tuple[str, ...] = ()
    compiled = False
    batch_tokens = 64
    device = torch.device("cpu")

    def __init__(
        self, vocabulary: int = 50, *, bos_id: int | None = None, context_length: int | None = None, seed: int = 0
    ) -> None:
        self.vocabulary, self.bos_id, self.context_length, self.seed = vocabulary, bos_id, context_length, seed
        self.fingerprint = str(seed)
        self.calls: list[tuple[int, ...]] = []

    def identity(self) -> ModelIdentity:
        return ModelIdentity(
            name="hash",
            revision=None,
            trust_remote_code=False,
            fingerprint=self.fingerprint,
            hashed="sampled",
            parameters=1_000_000,
            dtype="float32",
            device="cpu",
            compiled=False,
            tokenizer=None,
            bos="auto",
            bos_token=self.bos_id,
            bos_text=None if self.bos_id is None else "<bos>",
        )

    def logits_after(self, history: tuple[int, ...]) -> np.ndarray:
        key = hashlib.sha256(repr((self.seed, history)).encode()).digest()
        rng = np.random.default_rng(list(key))
        return np.round(rng.normal(size=self.vocabulary) * 2, 1)

    def hidden(self, tokens: Tensor) -> Tensor:
        self.calls.append(tuple(tokens.shape))
        rows = [[self.logits_after(tuple(row[: i + 1])) for i in range(len(row))] for row in tokens.tolist()]
        return torch.tensor(np.array(rows), dtype=torch.float32)

    def head(self, hidden: Tensor) -> Tensor:
        return hidden

    memory_positions = 100_000

    def memory(self, positions: int) -> Replay:
        return Replay(self, positions)


Tokens = tuple[int, ...]


class ReciteModel(HashModel):
    """Knows texts by heart, and finds back into them after a token too many, one too few or a wrong one.

    `firmness` is what the logit of the text's next token has before the others; the rest is noise on a grid. What comes
    next depends on `context` alone: outputs by the thousand share a few distributions, so all of them can be written
    out. Where the last tokens stand in the text near the place where they would if nothing had been edited, the text
    goes on from there; else it goes on at that place.
    """

    def __init__(
        self, texts: Sequence[tuple[Tokens, Tokens]], *args: Any, firmness: float, grid: float = 0.1, reach: int = 2,
        banned: int = -1, eos_ids: frozenset[int] = frozenset(), **options: Any,
    ) -> None:  # fmt: skip
        """`texts`: pairs of prefix and suffix."""
        super().__init__(*args, **options)
        self.firmness, self.grid, self.reach, self.banned, self.eos_ids = firmness, grid, reach, banned, eos_ids
        bos = () if self.bos_id is None else (self.bos_id,)
        self._texts = [(bos + prefix, bos + prefix + suffix) for prefix, suffix in texts]
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    def context(self, history: Tokens) -> tuple[int, ...]:
        """(text, place in it, tokens so far, last token): all that the next logits depend on."""
        for number, (prompt, text) in enumerate(self._texts):
            if history[: len(prompt)] == prompt:
                place = len(history)
                for off in sorted(range(-self.reach, self.reach + 1), key=abs):
                    if text[: place + off][-2:] == history[-2:]:
                        place += off
                        break
                return number, place, len(history), history[-1]
        return -1, 0, len(history), history[-1]

    def logits_after(self, history: Tokens) -> np.ndarray:
        context = self.context(history)
        if context not in self._known:
            rng = np.random.default_rng([self.seed, *(c + 1 for c in context)])
            logits = np.round(rng.normal(size=self.vocabulary) / self.grid) * self.grid
            number, place = context[:2]
            if number >= 0 and place < len(self._texts[number][1]):
                logits[self._texts[number][1][place]] += self.firmness
            if self.banned >= 0:
                logits[self.banned] = -np.inf
            self._known[context] = logits
        return self._known[context]


class OnlyScores:
    """A `SuffixScorer` and nothing more: what it lists comes from the logits of transformers' own forward pass.

    It stands for models that are served elsewhere: one example at a time, in full, without Rote's batches. `listed`: so
    many log-probs at each position, in float32 as servers have them; None: those of the whole vocabulary. `by_text`:
    tokens are told apart by their text, as some servers do; those that share one with a likelier one are lost.
    """

    def __init__(self, model: HuggingFaceModel, listed: int | None = None, *, by_text: bool = False) -> None:
        self._network, self.listed, self.by_text = model._model, listed or model.vocabulary, by_text
        served = None if listed is None else ServedModel(url="http://localhost/v1", protocol="test", listed=listed)
        self._identity = replace(model.identity(), served=served)
        self.tokenizer, self.bos_id, self.eos_ids = model.tokenizer, model.bos_id, model.eos_ids
        self.vocabulary, self.context_length = model.vocabulary, model.context_length
        self.logit_tolerance, self.warnings = model.logit_tolerance, model.warnings

    def identity(self) -> ModelIdentity:
        return self._identity

    def refuse(self, examples: Sequence[Example], schemes: Sequence[Scheme]) -> None:
        """It can score everything."""

    def score_suffixes(self, examples: Sequence[Example], schemes: Sequence[Scheme]) -> Iterator[ListedScores]:
        for example in examples:
            yield listed_scores(self.list_of(example), example.suffix, schemes, self.vocabulary)

    @torch.inference_mode()
    def list_of(self, example: Example) -> Listed:
        bos = [] if self.bos_id is None else [self.bos_id]
        fed = torch.tensor([[*bos, *example.prefix, *example.suffix[:-1]]])
        base = self._network(fed).logits[0, -len(example.suffix) :].float().log_softmax(1)
        values, ids = base.topk(self.listed)
        own = base.gather(1, torch.tensor(example.suffix)[:, None])[:, 0]
        known = Listed(own.double().numpy(), values.double().numpy(), ids.numpy(), np.ones(len(own), dtype=np.bool_))
        return self._by_text(known) if self.by_text else known

    def _by_text(self, known: Listed) -> Listed:
        values, whole = np.full_like(known.values, -np.inf), known.whole.copy()
        for row, ids in enumerate(known.ids.tolist()):
            texts = [self.tokenizer.decode([i]) for i in ids]
            stay = [place for place, text in enumerate(texts) if text not in texts[:place]]
            values[row, : len(stay)], whole[row] = known.values[row, stay], len(stay) == len(ids)
        return Listed(known.own, values, np.full_like(known.ids, -1), whole)
