"""Verbatim extraction: the probability that one generation from the prefix is exactly the suffix, from one pass.

    log p_z = sum over suffix tokens of log Pr_phi(token | everything before it)

The model is fed prefix and suffix once (the last suffix token need not be fed); only suffix positions go through the
head, in chunks; log-softmax is float32 on the device, the sum float64 on the host. One pass serves every scheme.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from rote.decoding import TargetScores, target_scores
from rote.errors import InputError, ModelError
from rote.models.base import LogitModel
from rote.scheme import GREEDY, Scheme
from rote.tokens import Example

BatchSize = int | Literal["auto"]
Floats = NDArray[np.float32]

HEAD_BYTES = {"cuda": 1 << 30}  # logits held at once; 32 MiB elsewhere, so that they stay near the cache
PILOT = 32  # with tau: one example in this many is scored in full first, to see whether stopping early pays


@dataclass(frozen=True, slots=True, eq=False)
class Verbatim:
    """One example under one scheme.

    `log_prob` is log p_z, -inf where a suffix token lies outside the scheme's support. Where `stopped` it is an upper
    bound instead, certainly below the tau that was asked for, and the per-token arrays end where scoring stopped.
    `greedy`: greedy decoding emits exactly the suffix. `margins`: see `rote.decoding.target_scores`; tokens whose
    margin is smaller than the model's `logit_tolerance` may fall on either side of the support in another computation.
    """

    example_id: str
    scheme: Scheme
    log_prob: float
    greedy: bool
    stopped: bool
    token_log_probs: Floats
    base_log_probs: Floats
    ranks: NDArray[np.int32]
    margins: Floats
    token_evals: int

    @property
    def prob(self) -> float:
        """p_z; 0.0 also where log p_z is finite but below the smallest float."""
        return math.exp(self.log_prob)


def verbatim(
    model: LogitModel,
    examples: Sequence[Example],
    schemes: Sequence[Scheme] = (Scheme(),),
    *,
    tau: float | None = None,
    batch_size: BatchSize = "auto",
    progress: Callable[[int], None] | None = None,
) -> list[Verbatim]:
    """Score every example under every scheme: a flat list, for each example, for each scheme.

    With `tau`, an example may be given up after its first few suffix tokens once it is certain that it ends below tau
    under every scheme and is not greedily extractable. All others get their numbers from the same full pass as without
    tau, so the examples at or above tau, and their numbers, are those of a full run. Whether stopping pays is judged on
    a pilot sample, so a memorized text costs no more than without. `progress` is called with the number of examples
    newly done.
    """
    check(model, examples, schemes, tau, batch_size)
    if not examples:
        return []
    # What may turn out to be the greedy output is not given up: greedy decoding is asked about, too.
    asked = tuple(schemes) if tau is None else (*schemes, GREEDY)
    scorer = _Scorer(model, examples, asked, batch_size)
    everything = np.arange(len(examples))
    tell = progress or (lambda count: None)
    if tau is None:
        return _results(examples, schemes, scorer.run(everything, None, tell), {}, everything * 0)

    pilot = everything[:: min(PILOT, max(1, len(examples) // 8))]
    full = scorer.run(pilot, None, tell)
    rest = np.setdiff1d(everything, pilot)
    doubts = _Doubts(model.logit_tolerance, np.array([[s.doubt(model.logit_tolerance)] for s in asked]))
    stop_at = _best_stop(examples, full, tau, doubts) if len(rest) else None
    stopped: dict[int, _Row] = {}
    extra = np.zeros(len(examples), dtype=np.int64)
    if stop_at is not None:
        probe = scorer.run(rest, stop_at, lambda count: None)
        for i in rest:
            extra[i] = _cost(examples[i], stop_at)
            bounds = probe[i].upper(doubts)
            if bounds.max() < math.log(tau):
                stopped[int(i)] = replace(probe[i], total=bounds, greedy=False)
        tell(len(stopped))
        rest = np.array([i for i in rest if int(i) not in stopped], dtype=np.int64)
    full.update(scorer.run(rest, None, tell))
    return _results(examples, schemes, full, stopped, extra)


@dataclass(frozen=True, slots=True, eq=False)
class _Doubts:
    """How far two correct computations may be apart."""

    logit: float
    log_prob: NDArray[np.float64]  # [schemes, 1]: a token's, if its support is the same


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """What one pass said about one example's suffix tokens."""

    base: Floats  # [tokens]
    ranks: NDArray[np.int32]  # [tokens]
    log_probs: Floats  # [schemes, tokens]
    margins: Floats  # [schemes, tokens]
    headroom: Floats  # [schemes, tokens]
    total: NDArray[np.float64]  # [schemes], the sum of the log-probs, or a bound on what it would come to
    greedy: bool  # all tokens are the argmax

    def upper(self, doubts: _Doubts, stop_at: int | None = None) -> NDArray[np.float64]:
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
    def send(cls, batch: list[int], counts: list[int], scores: TargetScores) -> _Pending:
        made = tuple(getattr(scores, name) for name in TargetScores.__slots__)
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


class _Scorer:
    """Batches, the forward pass, and the memory they need. The batch shrinks for good when memory runs out."""

    def __init__(
        self, model: LogitModel, examples: Sequence[Example], schemes: tuple[Scheme, ...], batch_size: BatchSize
    ) -> None:
        self.model, self.examples, self.schemes = model, examples, schemes
        self.rows = None if batch_size == "auto" else batch_size
        self.positions = model.batch_tokens
        self.score = compiled_scores() if model.compiled else target_scores

    def run(self, indices: NDArray[np.int64], stop_at: int | None, tell: Callable[[int], None]) -> dict[int, _Row]:
        """Score these examples (their first `stop_at` suffix tokens, if given), longest batch-mates together."""
        done: dict[int, _Row] = {}
        waiting: deque[_Pending] = deque()
        order = sorted((int(i) for i in indices), key=lambda i: _cost(self.examples[i], stop_at))
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
        while end < len(order) and (end + 1 - at) * (_cost(self.examples[order[end]], stop_at) + 1) <= self.positions:
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
            parts.append(self.score(logits, targets[start : start + chunk].to(logits.device), self.schemes))
        return _Pending.send(batch, counts, TargetScores.join(parts))

    def _collect(self, pending: _Pending, done: dict[int, _Row]) -> None:
        base, ranks, argmax, log_probs, margins, headroom = pending.arrays()
        bad = np.isnan(base) | np.isnan(log_probs).any(0)
        if bad.any():
            self._refuse_nan(pending.batch, pending.counts, bad)
        counts = np.array(pending.counts)
        ends = counts.cumsum()
        starts = ends - counts
        totals = np.add.reduceat(log_probs, starts, axis=1, dtype=np.float64)
        greedy = np.logical_and.reduceat(argmax, starts).tolist()
        spans = zip(pending.batch, starts.tolist(), ends.tolist(), strict=True)
        for row, (i, start, end) in enumerate(spans):
            here = slice(start, end)
            done[i] = _Row(
                base[here], ranks[here], log_probs[:, here], margins[:, here], headroom[:, here], totals[:, row],
                greedy[row],
            )  # fmt: skip

    def _refuse_nan(self, batch: list[int], counts: list[int], bad: NDArray[np.bool_]) -> None:
        place = int(np.argmax(bad))
        row = int(np.searchsorted(np.cumsum(counts), place, side="right"))
        raise ModelError(
            f"the model's logits are NaN or infinite at example {self.examples[batch[row]].id!r}, suffix token "
            f"{place - int(np.sum(counts[:row]))}: no probability can be computed. Check the weights; a model that "
            "overflows in float16 needs dtype bfloat16 or float32."
        )

    def _shrink(self, error: RuntimeError, batch: list[int]) -> None:
        if not out_of_memory(error):
            raise error
        if len(batch) == 1:
            raise ModelError(
                f"out of memory with a single example in the batch ({self.examples[batch[0]].id!r}); use a smaller "
                "model, a 16-bit dtype, or device_map='auto'."
            ) from error
        self.rows = max(1, len(batch) // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        warnings.warn(f"out of memory: going on with batches of {self.rows} examples", RuntimeWarning, stacklevel=4)


def out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def from_scores(example: Example, scheme: Scheme, scores: TargetScores) -> Verbatim:
    """What one pass that was made for another purpose says of an example; one scheme."""
    base, ranks, argmax, log_probs, margins = (
        getattr(scores, name).cpu().numpy() for name in ("base_log_probs", "ranks", "argmax", "log_probs", "margins")
    )
    return Verbatim(
        example_id=example.id,
        scheme=scheme,
        log_prob=float(log_probs[0].sum(dtype=np.float64)),
        greedy=bool(argmax.all()),
        stopped=False,
        token_log_probs=log_probs[0],
        base_log_probs=base,
        ranks=ranks,
        margins=margins[0],
        token_evals=_cost(example, None),
    )


def check(
    model: LogitModel, examples: Sequence[Example], schemes: Sequence[Scheme], tau: float | None, batch_size: BatchSize
) -> None:
    """Refuse what cannot be scored before any work is done, naming it."""
    if not schemes:
        raise InputError("no decoding scheme was given; pass at least one rote.Scheme.")
    for scheme in schemes:
        scheme.check(model.vocabulary)
    if batch_size != "auto" and batch_size < 1:
        raise InputError(f"batch_size must be 'auto' or at least 1, not {batch_size}.")
    if tau is not None and not 0 < tau <= 1:
        raise InputError(f"tau must lie in (0, 1], not {tau}.")
    bos, vocabulary, context = model.bos_id is not None, model.vocabulary, model.context_length
    too_long = []
    for example in examples:
        if not example.prefix and not bos:
            raise InputError(f"example {example.id!r} has an empty prefix and no BOS token stands before it.")
        ids = example.prefix + example.suffix
        lowest, highest = min(ids), max(ids)
        if highest >= vocabulary or lowest < 0:
            raise InputError(
                f"example {example.id!r} has token id {highest if lowest >= 0 else lowest}, but the model's "
                f"vocabulary is 0 to {vocabulary - 1}: it was made with another tokenizer. Tokenise it again."
            )
        if context is not None and len(ids) - 1 + bos > context:
            too_long.append(f"{example.id!r} ({len(ids) - 1 + bos} positions)")
    if too_long:
        more = f" and {len(too_long) - 5} more" if len(too_long) > 5 else ""
        are = "example is" if len(too_long) == 1 else "examples are"
        raise InputError(
            f"{len(too_long)} {are} longer than the model's context of {context} positions: "
            f"{', '.join(too_long[:5])}{more}. Use shorter prefixes or suffixes."
        )


def _cost(example: Example, stop_at: int | None) -> int:
    """Token evaluations of one pass: positions fed, BOS not counted."""
    return len(example.prefix) + min(len(example.suffix), stop_at or len(example.suffix)) - 1


def _best_stop(examples: Sequence[Example], pilot: dict[int, _Row], tau: float, doubts: _Doubts) -> int | None:
    """After how many suffix tokens to look, judged by what the pilot examples would have cost; None: score in full."""
    full = sum(_cost(examples[i], None) for i in pilot)
    best, best_cost = None, 0.95 * full
    for stop_at in range(1, max(len(examples[i].suffix) for i in pilot)):
        cost = 0
        for i, row in pilot.items():
            survives = row.upper(doubts, stop_at).max() >= math.log(tau)
            cost += _cost(examples[i], stop_at) + (_cost(examples[i], None) if survives else 0)
        if cost < best_cost:
            best, best_cost = stop_at, cost
        if sum(_cost(examples[i], stop_at) for i in pilot) >= best_cost:
            break  # looking later costs more than the best found even if nothing survived
    # A small pilot misses stragglers: two more tokens cost 2% and save most of their second passes.
    return None if best is None else best + 2


def _results(
    examples: Sequence[Example],
    schemes: Sequence[Scheme],
    full: dict[int, _Row],
    stopped: dict[int, _Row],
    extra: NDArray[np.int64],
) -> list[Verbatim]:
    results = []
    for i, example in enumerate(examples):
        row = stopped.get(i) or full[i]
        evals = int(extra[i]) + (0 if i in stopped else _cost(example, None))
        for s, scheme in enumerate(schemes):
            results.append(
                Verbatim(
                    example_id=example.id,
                    scheme=scheme,
                    log_prob=float(row.total[s]),
                    greedy=row.greedy,
                    stopped=i in stopped,
                    token_log_probs=row.log_probs[s],
                    base_log_probs=row.base,
                    ranks=row.ranks,
                    margins=row.margins[s],
                    token_evals=evals,
                )
            )
    return results


def send(array: NDArray[Any], device: Any) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cuda":
        tensor = tensor.pin_memory()  # from pageable memory the copy would wait for all work on the device
    return tensor.to(device, non_blocking=True)


@cache
def compiled_scores() -> Callable[..., TargetScores]:
    compiled: Any = torch.compile(target_scores)
    return compiled  # type: ignore[no-any-return]
