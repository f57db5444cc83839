"""Reading for searches: many short continuations in batches that fit, with the entries of the model's memory."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.decoding import Scheme, Support, TargetScores, support, target_scores
from rote.errors import ModelError
from rote.models.base import LogitModel

Ints = NDArray[np.int64]
HEAD_BYTES = {"cuda": 1 << 30}  # logits held at once; 32 MiB elsewhere, so that they stay near the cache
LISTED = 64  # tokens of a support without top-k that are looked at one by one, where not all are asked for
SPARE = 8  # tokens tied at rank k that are


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Feed `tokens` after what the entries `past` hold, keep the new positions at `place`.

    What follows the last `predict` of them is wanted. `label` names the example in error messages.
    """

    tokens: Ints
    past: Ints
    place: Ints
    predict: int
    label: str


class Reader:
    def __init__(self, model: LogitModel, scheme: Scheme, entries: int) -> None:
        """`entries` = 0: nothing is kept, and every reading starts from the beginning."""
        self.model, self.scheme = model, scheme
        self.width = min(model.vocabulary, (scheme.top_k or LISTED) + SPARE)
        self.positions = model.batch_tokens
        self.device = torch.device(model.device)
        self._memory = model.memory(entries) if entries else None
        self._free = np.arange(entries, dtype=np.int64)
        self.keeps = entries > 0

    def take(self, count: int) -> Ints:
        """Entries for `count` new positions."""
        assert count <= len(self._free) or self._memory is None
        if self._memory is None:
            return np.full(count, -1, dtype=np.int64)
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def give(self, entries: Ints) -> None:
        """These entries are no longer needed."""
        if self._memory is not None:
            self._free = np.concatenate([self._free, entries])

    def read(
        self, readings: Sequence[Reading], targets: Ints, *, width: int = 0, scores: bool = False
    ) -> tuple[Support, TargetScores | None]:
        """What may follow the wanted positions, one row each, readings in order; `targets` has a token for each row.

        `width`: how many tokens to list, if not as many as usual. `scores`: also what verbatim scoring says.
        """
        labels = [r.label for r in readings for _ in range(r.predict)]
        wanted = torch.from_numpy(targets).to(self.device)
        return self.supports(self.states(readings), wanted, labels, width=width, scores=scores)

    def states(self, readings: Sequence[Reading]) -> Tensor:
        """The model's states at the wanted positions, one row each, readings in order."""
        ends = np.cumsum([r.predict for r in readings])
        order = sorted(range(len(readings)), key=lambda i: len(readings[i].tokens))
        parts: list[Tensor] = []
        places: list[Ints] = []
        at = 0
        while at < len(order):
            count = self._batch(readings, order, at)
            batch = order[at : at + count]
            try:
                parts.append(self._hidden([readings[i] for i in batch]))
            except RuntimeError as error:
                self._shrink(error, count, readings[batch[0]].label)
                continue
            places += [np.arange(ends[i] - readings[i].predict, ends[i]) for i in batch]
            at += count
        hidden = torch.empty((int(ends[-1]), *parts[0].shape[1:]), dtype=parts[0].dtype, device=parts[0].device)
        hidden[torch.from_numpy(np.concatenate(places)).to(hidden.device)] = torch.cat(parts)
        return hidden

    @torch.inference_mode()
    def supports(
        self, hidden: Tensor, targets: Tensor, labels: Sequence[str], *, width: int = 0, scores: bool = False
    ) -> tuple[Support, TargetScores | None]:
        """What may follow these states; `labels` names the example of each, for error messages."""
        width = width or self.width
        limit = HEAD_BYTES.get(hidden.device.type, 1 << 25)
        chunk = max(1, limit // (self.model.vocabulary * 4 * (8 if width == self.model.vocabulary else 1)))
        parts, scored = [], []
        for start in range(0, len(hidden), chunk):
            logits = self.model.head(hidden[start : start + chunk])
            wanted = targets[start : start + chunk].to(logits.device)
            parts.append(support(logits, self.scheme, width, wanted))
            if scores:
                scored.append(target_scores(logits, wanted, [self.scheme]))
        found = Support.join(parts).to(self.device)
        bad = (found.log_probs[:, 0].isnan() | found.rest.isnan()).nonzero()
        if len(bad):
            raise ModelError(
                f"the model's logits are NaN or infinite at example {labels[int(bad[0])]!r}: no probability can be "
                "computed. Check the weights; a model that overflows in float16 needs dtype bfloat16 or float32."
            )
        return found, TargetScores.join(scored) if scores else None

    def feed(self, tokens: Tensor, past: Tensor, place: Tensor) -> Tensor:
        """Rows of equal length, as tensors on the device, in as many batches as memory asks for."""
        assert self._memory is not None
        rows = max(1, min(self.positions // tokens.shape[1], self._rows(past.shape[1] + tokens.shape[1])))
        parts, at = [], 0
        while at < len(tokens):
            here = slice(at, at + rows)
            try:
                parts.append(self._memory.feed(tokens[here], past[here], place[here]))
            except RuntimeError as error:
                self._shrink(error, len(tokens[here]), "?")
                rows = max(1, rows // 2)
                continue
            at += rows
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _rows(self, length: int) -> int:
        """Attention sees whole histories side by side: a layer's worth of them may take what all entries take."""
        return max(1, self.model.memory_positions // length)

    def _batch(self, readings: Sequence[Reading], order: list[int], at: int) -> int:
        """How many readings make the next batch. Sorted by length: all are padded to the last one taken."""
        count = fed = history = 0
        for i in order[at:]:
            longest = len(readings[i].tokens)
            history = max(history, len(readings[i].past))
            padding = count * longest - fed
            full = (count + 1) * longest > self.positions or count + 1 > self._rows(longest + history)
            if count and (full or padding > max(self.positions // 50, fed // 4)):
                break
            count, fed = count + 1, fed + longest
        return count

    @torch.inference_mode()
    def _hidden(self, readings: list[Reading]) -> Tensor:
        width = max(len(r.tokens) for r in readings)
        length = max(len(r.past) for r in readings)
        tokens = np.zeros((len(readings), width), dtype=np.int64)
        place = np.full((len(readings), width), -1, dtype=np.int64)
        past = np.full((len(readings), length), -1, dtype=np.int64)
        wanted = []
        for row, reading in enumerate(readings):
            count = len(reading.tokens)
            tokens[row, :count] = reading.tokens
            place[row, :count] = reading.place
            past[row, length - len(reading.past) :] = reading.past
            wanted.append(np.arange(row * width + count - reading.predict, row * width + count))
        fed = torch.from_numpy(tokens).to(self.device)
        if self._memory is None:
            hidden = self.model.hidden(fed)
        else:
            hidden = self._memory.feed(
                fed, torch.from_numpy(past).to(self.device), torch.from_numpy(place).to(self.device)
            )
        return hidden.flatten(0, 1)[torch.from_numpy(np.concatenate(wanted)).to(hidden.device)]

    def _shrink(self, error: RuntimeError, rows: int, label: str) -> None:
        if not (isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)):
            raise error
        if rows == 1:
            raise ModelError(
                f"out of memory with a single row in the batch (example {label!r}); use a smaller model, a 16-bit "
                "dtype, or fewer sequences at once (batch_size)."
            ) from error
        self.positions = max(1, self.positions // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        warnings.warn(f"out of memory: going on with {self.positions} positions at once", RuntimeWarning, stacklevel=4)
