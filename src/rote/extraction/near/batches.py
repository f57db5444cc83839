"""Reading for searches: many short continuations in batches that fit, with the entries of the model's memory."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.decoding import Support, TargetScores, support
from rote.errors import ModelError, argument
from rote.extraction.passes import HEAD_BYTES, out_of_memory, scores_of, send
from rote.models.base import LogitModel
from rote.scheme import Scheme

Ints = NDArray[np.int64]
LISTED = 64  # tokens of a support without top-k that are looked at one by one, where not all are asked for
PACKED = 64  # tokens of one sequence that are read in one row
SPARE = 8  # tokens tied at rank k that are


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Feed `tokens` after what the entries `past` hold, keep the new positions at `place`.

    What follows the last `predict` of them is wanted. `label` names the example in error messages; readings of the same
    `sequence` may be read in one row.
    """

    tokens: Ints
    past: Ints
    place: Ints
    predict: int
    label: str
    sequence: int


@dataclass(slots=True, eq=False)
class _Row:
    pack: list[Reading] = field(default_factory=list)
    which: list[int] = field(default_factory=list)
    fed: int = 0
    past: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A batch on the device."""

    rows: Sequence[_Row]
    tokens: Tensor
    past: Tensor
    place: Tensor
    seen: Tensor
    wanted: Tensor


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
        self._scores = scores_of(model, [scheme])

    def take(self, count: int) -> Ints:
        """Entries for `count` new positions."""
        assert count <= len(self._free) or self._memory is None
        if self._memory is None:
            return np.full(count, -1, dtype=np.int64)
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def give(self, *entries: Ints) -> None:
        """These entries are no longer needed."""
        if self._memory is not None:
            self._free = np.concatenate([self._free, *entries])

    def read(
        self, readings: Sequence[Reading], targets: Ints, *, width: int = 0, scores: bool = False
    ) -> tuple[Support, TargetScores | None]:
        """What may follow the wanted positions, one row each, readings in order; `targets` has a token for each row.

        `width`: how many tokens to list, if not as many as usual. `scores`: also what verbatim scoring says.
        """
        labels = [r.label for r in readings for _ in range(r.predict)]
        wanted = send(targets, self.device)
        return self.supports(self.states(readings), wanted, labels, width=width, scores=scores)

    def states(self, readings: Sequence[Reading], packed: Packed | None = None) -> Tensor:
        """The model's states at the wanted positions, one row each, readings in order.

        `packed`: what `pack` made of them, where there was time for that before.
        """
        ends = np.cumsum([r.predict for r in readings])
        rows = self._rows(readings) if packed is None else packed.rows
        parts: list[Tensor] = []
        places: list[Ints] = []
        at = 0
        while at < len(rows):
            if packed is None:
                packed = self._pack(rows[at : at + self._batch(rows, at)])
            try:
                parts.append(self._read(packed))
            except RuntimeError as error:
                self._shrink(error, len(packed.rows), packed.rows[0].pack[0].label)
                packed = None
                continue
            which = [i for row in packed.rows for i in row.which]
            places += [np.arange(ends[i] - readings[i].predict, ends[i]) for i in which]
            at += len(packed.rows)
            packed = None
        hidden = torch.empty((int(ends[-1]), *parts[0].shape[1:]), dtype=parts[0].dtype, device=parts[0].device)
        hidden[send(np.concatenate(places), hidden.device)] = torch.cat(parts)
        return hidden

    def pack(self, readings: Sequence[Reading]) -> Packed | None:
        """Bring readings to the device before they are read; None where they take more than one batch."""
        rows = self._rows(readings)
        return self._pack(rows) if rows and self._batch(rows, 0) == len(rows) else None

    @torch.inference_mode()
    def supports(
        self, hidden: Tensor, targets: Tensor, labels: Sequence[str], *, width: int = 0, scores: bool = False
    ) -> tuple[Support, TargetScores | None]:
        """What may follow these states; `labels` names the example of each: where a logit is no number, it is refused.

        Without labels nothing is refused, and the caller looks at `Support.bad`.
        """
        width = width or self.width
        limit = HEAD_BYTES.get(hidden.device.type, 1 << 25)
        chunk = max(1, limit // (self.model.vocabulary * 4 * (8 if width == self.model.vocabulary else 1)))
        parts, scored = [], []
        for start in range(0, len(hidden), chunk):
            logits = self.model.head(hidden[start : start + chunk])
            wanted = targets[start : start + chunk].to(logits.device)
            parts.append(support(logits, self.scheme, width, wanted))
            if scores:
                scored.append(self._scores(logits, wanted, (self.scheme,)))
        supports = Support.join(parts).to(self.device)
        if labels and len(bad := supports.bad().nonzero()):
            raise not_a_number(labels[int(bad[0])])
        return supports, TargetScores.join(scored) if scores else None

    def feed(self, tokens: Tensor, past: Tensor, place: Tensor, seen: Tensor) -> Tensor:
        """As `Memory.feed`, in as many batches as memory asks for."""
        assert self._memory is not None
        parts, at = [], 0
        while at < len(tokens):
            fits = min(self.positions // tokens.shape[1], self.model.memory_positions // seen.shape[2])
            here = slice(at, at + max(1, fits))
            try:
                parts.append(self._memory.feed(tokens[here], past[here], place[here], seen[here]))
            except RuntimeError as error:
                self._shrink(error, len(tokens[here]), "?")
                continue
            at = here.stop
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _rows(self, readings: Sequence[Reading]) -> list[_Row]:
        """Readings of one sequence share a row, and so the keys of their common past; short rows come first."""
        rows: list[_Row] = []
        unfinished: dict[int, _Row] = {}
        for i in sorted(range(len(readings)), key=lambda i: len(readings[i].tokens)):
            reading = readings[i]
            row = unfinished.get(reading.sequence)
            if row is None or row.fed + len(reading.tokens) > PACKED:
                row = unfinished[reading.sequence] = _Row()
                rows.append(row)
            row.pack.append(reading)
            row.which.append(i)
            row.fed += len(reading.tokens)
            row.past = max(row.past, len(reading.past))
        return sorted(rows, key=lambda row: row.fed)

    def _batch(self, rows: Sequence[_Row], at: int) -> int:
        """How many rows make the next batch. Sorted by length: all are padded to the last one taken."""
        count = fed = past = 0
        for row in rows[at:]:
            past = max(past, row.past)
            padding = count * row.fed - fed
            length = (count + 1) * (past + row.fed)  # attention sees whole histories side by side
            full = (count + 1) * row.fed > self.positions or length > self.model.memory_positions
            if count and (full or padding > max(self.positions // 50, fed // 4)):
                break
            count, fed = count + 1, fed + row.fed
        return count

    def _pack(self, rows: Sequence[_Row]) -> Packed:
        """One batch, padded, on the device."""
        histories = [_union(row.pack) for row in rows]
        width = max(row.fed for row in rows)
        length = max(len(entries) for entries, _ in histories)
        tokens = np.zeros((len(rows), width), dtype=np.int64)
        place = np.full((len(rows), width), -1, dtype=np.int64)
        past = np.full((len(rows), length), -1, dtype=np.int64)
        seen = np.zeros((len(rows), width if self.keeps else 0, length + width), dtype=np.bool_)
        if self.keeps:
            seen[:, np.arange(width), length + np.arange(width)] = True
        wanted = []
        for number, (row, (entries, columns)) in enumerate(zip(rows, histories, strict=True)):
            past[number, : len(entries)] = entries
            at = 0
            for reading, own in zip(row.pack, columns, strict=True):
                here = slice(at, at + len(reading.tokens))
                tokens[number, here], place[number, here] = reading.tokens, reading.place
                if self.keeps:
                    seen[number, here, own] = True
                    seen[number, here, length + at : length + here.stop] = np.tri(len(reading.tokens), dtype=np.bool_)
                wanted.append(np.arange(number * width + here.stop - reading.predict, number * width + here.stop))
                at = here.stop
        sent = (send(a, self.device) for a in (tokens, past, place, seen, np.concatenate(wanted)))
        return Packed(rows, *sent)

    @torch.inference_mode()
    def _read(self, packed: Packed) -> Tensor:
        """The states at the wanted positions, row by row."""
        if self._memory is None:
            hidden = self.model.hidden(packed.tokens)
        else:
            hidden = self._memory.feed(packed.tokens, packed.past, packed.place, packed.seen)
        return hidden.flatten(0, 1)[packed.wanted.to(hidden.device)]

    def _shrink(self, error: RuntimeError, rows: int, label: str) -> None:
        if not out_of_memory(error):
            raise error
        if rows == 1:
            raise ModelError(
                f"out of memory with a single row in the batch (example {label!r}); use a smaller model, a 16-bit "
                f"dtype, or fewer sequences at once ({argument('batch_size')})."
            ) from error
        self.positions = max(1, self.positions // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        warnings.warn(f"out of memory: going on with {self.positions} positions at once", RuntimeWarning, stacklevel=4)


def not_a_number(label: str) -> ModelError:
    return ModelError(
        f"the model's logits are NaN or infinite at example {label!r}: no probability can be computed. Check the "
        "weights; a model that overflows in float16 needs dtype bfloat16 or float32."
    )


def _union(pack: Sequence[Reading]) -> tuple[Ints, list[Ints]]:
    """(entries that any of the readings comes after, by position; for each reading which of them)."""
    if len(pack) == 1:
        return pack[0].past, [np.arange(len(pack[0].past))]
    every = np.concatenate([r.past for r in pack])
    position = np.concatenate([np.arange(len(r.past)) for r in pack])
    entries, first, which = np.unique(every, return_index=True, return_inverse=True)
    order = np.argsort(position[first], kind="stable")
    column = np.empty_like(order)
    column[order] = np.arange(len(order))
    return entries[order], np.split(column[which], np.cumsum([len(r.past) for r in pack])[:-1])
