"""Passes over examples: prefix and suffix are fed once, in batches; what the scheme makes of the logits comes back."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from rote.decoding import TargetScores, target_scores
from rote.errors import ModelError, argument, counted
from rote.models.base import LogitModel
from rote.options import BatchSize
from rote.scheme import Scheme
from rote.tokens import Example

Floats = NDArray[np.float32]
Read = TypeVar("Read")

HEAD_BYTES = {"cuda": 1 << 30}  # logits held at once; 32 MiB elsewhere, so that they stay near the cache


MEND = f"Check the weights; a model that overflows in float16 needs {argument('dtype', 'bfloat16')} or float32."
"""What to do about logits that are no numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Doubts:
    """How far two correct computations may be apart."""

    logit: float
    log_prob: NDArray[np.float64]  # [schemes, 1]: a token's, if its support is the same


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """What one pass said about one example's suffix tokens."""

    base: Floats  # [tokens]
    ranks: NDArray[np.int32]  # [tokens]
    log_probs: Floats  # [schemes, tokens]
    margins: Floats  # [schemes, tokens]
    headroom: Floats  # [schemes, tokens]
    total: NDArray[np.float64]  # [schemes], the sum of the log-probs, or a bound on what it would come to
    greedy: bool  # all tokens are the argmax

    def upper(self, doubts: Doubts, stop_at: int | None = None) -> NDArray[np.float64]:
        """[schemes]: no full pass can give these tokens, or the first `stop_at` of them, a larger sum of log-probs.

        A token just outside the support might be inside in another pass: it counts as certain here. One that is inside
        gains what its own logit and the others' may move it, and what tokens that drop out of the support leave to it.
        """
        log_probs, margins = self.log_probs[:, :stop_at], self.margins[:, :stop_at]
        doubtful = (log_probs == -np.inf) & (np.abs(margins) <= 2 * doubts.logit)
        token = np.where(doubtful, 0.0, log_probs).astype(np.float64)
        gain = self.headroom[:, :stop_at] + doubts.log_prob
        total: NDArray[np.float64] = np.minimum(token + gain, 0.0).sum(axis=1)
        return total


@dataclass(frozen=True, slots=True)
class _Pending:
    """A batch whose scores are on their way to the host."""

    batch: list[int]
    counts: list[int]
    tensors: tuple[torch.Tensor, ...]
    sent: torch.cuda.Event | None

    @classmethod
    def send(cls, batch: list[int], counts: list[int], made: Sequence[torch.Tensor]) -> _Pending:
        tensors = tuple(t.to("cpu", non_blocking=True) for t in made)
        sent = None
        if made[0].device.type == "cuda":
            sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
            sent.record(torch.cuda.current_stream(made[0].device))
        return cls(batch, counts, tensors, sent)

    def arrays(self) -> list[NDArray[Any]]:
        if self.sent is None:
            return [t.numpy() for t in self.tensors]
        self.sent.synchronize()
        return [t.numpy().copy() for t in self.tensors]  # what arrived is page-locked memory: let it go


class Passes(ABC, Generic[Read]):
    """Batches, the forward pass, and the memory they need. The batch shrinks for good when memory runs out."""

    def __init__(self, model: LogitModel, examples: Sequence[Example], batch_size: BatchSize) -> None:
        self.model, self.examples = model, examples
        self.rows = None if batch_size == "auto" else batch_size
        self.positions = model.batch_tokens

    @abstractmethod
    def measure(self, logits: torch.Tensor, targets: torch.Tensor) -> Sequence[torch.Tensor]:
        """On the device: what rows of logits say about one target token each. Last axis of each tensor: rows."""

    @abstractmethod
    def read(
        self, arrays: Sequence[NDArray[Any]], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Iterator[Read]:
        """On the host: what was measured of a batch, as one result for each [start, end) of an example's tokens."""

    @abstractmethod
    def bad(self, arrays: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
        """Which of a batch's tokens have no number."""

    @abstractmethod
    def refuse(self, example: Example, token: int) -> ModelError:
        """What is said where token `token` of an example's suffix has no number."""

    def called(self, example: Example) -> str:
        """An example, for messages."""
        return repr(example.id)

    def run(self, indices: NDArray[np.int64], stop_at: int | None, tell: Callable[[int], None]) -> dict[int, Read]:
        """Score these examples (their first `stop_at` suffix tokens, if given), longest batch-mates together."""
        done: dict[int, Read] = {}
        waiting: deque[_Pending] = deque()
        order = sorted((int(i) for i in indices), key=lambda i: cost_of(self.examples[i], stop_at))
        at = 0
        while at < len(order):
            batch = self._batch(order, at, stop_at)
            try:
                waiting.append(self._forward(batch, stop_at))
            except RuntimeError as error:
                self._shrink(error, batch)
                continue
            at += len(batch)
            tell(len(batch))
            if len(waiting) > 3:  # the host works on finished batches while the device works on the next ones
                self._collect(waiting.popleft(), done)
        while waiting:
            self._collect(waiting.popleft(), done)
        return done

    def _batch(self, order: list[int], at: int, stop_at: int | None) -> list[int]:
        """The next batch. Sorted by length: the last one taken is the longest, and all are padded to it."""
        if self.rows is not None:
            return order[at : at + self.rows]
        end = at + 1
        while end < len(order) and (end + 1 - at) * (cost_of(self.examples[order[end]], stop_at) + 1) <= self.positions:
            end += 1
        return order[at:end]

    @torch.inference_mode()
    def _forward(self, batch: list[int], stop_at: int | None) -> _Pending:
        model = self.model
        bos = [] if model.bos_id is None else [model.bos_id]
        suffixes = [self.examples[i].suffix[:stop_at] for i in batch]
        rows = [[*bos, *self.examples[i].prefix, *suffix[:-1]] for i, suffix in zip(batch, suffixes, strict=True)]
        counts = [len(suffix) for suffix in suffixes]
        width = max(map(len, rows))
        tokens = np.zeros((len(rows), width), dtype=np.int64)
        for row, ids in enumerate(rows):
            tokens[row, : len(ids)] = ids
        # The position that predicts suffix token t is the one before it: the last `count` positions fed.
        ends = [row * width + len(ids) for row, ids in enumerate(rows)]
        place = np.concatenate([np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)])
        target = np.fromiter((token for suffix in suffixes for token in suffix), dtype=np.int64, count=sum(counts))

        hidden = model.hidden(send(tokens, model.device))
        chosen = hidden.flatten(0, 1)[send(place, hidden.device)]
        targets = send(target, hidden.device)
        limit = HEAD_BYTES.get(hidden.device.type, 1 << 25)
        chunk = max(1, limit // (model.vocabulary * chosen.element_size()))
        parts = []
        for start in range(0, len(targets), chunk):
            logits = model.head(chosen[start : start + chunk])
            parts.append(self.measure(logits, targets[start : start + chunk].to(logits.device)))
        return _Pending.send(batch, counts, [torch.cat(part, -1) for part in zip(*parts, strict=True)])

    def _collect(self, pending: _Pending, done: dict[int, Read]) -> None:
        arrays = pending.arrays()
        bad = self.bad(arrays)
        if bad.any():
            place = int(np.argmax(bad))
            row = int(np.searchsorted(np.cumsum(pending.counts), place, side="right"))
            raise self.refuse(self.examples[pending.batch[row]], place - int(np.sum(pending.counts[:row])))
        counts = np.array(pending.counts)
        ends = counts.cumsum()
        done.update(zip(pending.batch, self.read(arrays, ends - counts, ends), strict=True))

    def _shrink(self, error: RuntimeError, batch: list[int]) -> None:
        if not out_of_memory(error):
            raise error
        if len(batch) == 1:
            raise ModelError(
                f"out of memory with a single example in the batch ({self.called(self.examples[batch[0]])}); use a "
                f"smaller model, a 16-bit {argument('dtype')}, or {argument('device_map', 'auto')}."
            ) from error
        self.rows = max(1, len(batch) // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        warnings.warn(
            f"out of memory: going on with batches of {counted(self.rows, 'example')}", RuntimeWarning, stacklevel=4
        )


class Scorer(Passes[Row]):
    """What schemes make of every suffix token."""

    def __init__(
        self, model: LogitModel, examples: Sequence[Example], schemes: tuple[Scheme, ...], batch_size: BatchSize
    ) -> None:
        super().__init__(model, examples, batch_size)
        self.schemes, self.score = schemes, scores_of(model, schemes)

    def measure(self, logits: torch.Tensor, targets: torch.Tensor) -> Sequence[torch.Tensor]:
        scores = self.score(logits, targets, self.schemes)
        return [getattr(scores, name) for name in TargetScores.__slots__]

    def bad(self, arrays: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
        base, _, _, log_probs, *_ = arrays
        no_number: NDArray[np.bool_] = np.isnan(base) | np.isnan(log_probs).any(0)
        return no_number

    def read(self, arrays: Sequence[NDArray[Any]], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterator[Row]:
        base, ranks, argmax, log_probs, margins, headroom = arrays
        totals = np.add.reduceat(log_probs, starts, axis=1, dtype=np.float64)
        greedy = np.logical_and.reduceat(argmax, starts).tolist()
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            here = slice(start, end)
            yield Row(
                base[here], ranks[here], log_probs[:, here], margins[:, here], headroom[:, here], totals[:, row],
                greedy[row],
            )  # fmt: skip

    def refuse(self, example: Example, token: int) -> ModelError:
        return ModelError(
            f"the model's logits are NaN or infinite at example {example.id!r}, suffix token {token}: no probability "
            f"can be computed. {MEND}"
        )


def out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def cost_of(example: Example, stop_at: int | None) -> int:
    """Token evaluations of one pass: positions fed, BOS not counted."""
    return len(example.prefix) + min(len(example.suffix), stop_at or len(example.suffix)) - 1


def send(array: NDArray[Any], device: Any) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cuda":
        tensor = tensor.pin_memory()  # from pageable memory the copy would wait for all work on the device
    return tensor.to(device, non_blocking=True)


def scores_of(model: LogitModel, schemes: Sequence[Scheme]) -> Callable[..., TargetScores]:
    """`target_scores`, compiled if the model is, unless a scheme adds up the whole vocabulary in order.

    That takes a scan over long rows in float64, for which torch's compiler writes no code.
    """
    long_scan = any(scheme.nucleus and scheme.top_k is None for scheme in schemes)
    return compiled_scores() if model.compiled and not long_scan else target_scores


@cache
def compiled_scores() -> Callable[..., TargetScores]:
    compiled: Any = torch.compile(target_scores)
    return compiled  # type: ignore[no-any-return]
