"""One shard of a run, scored: the same rows wherever that is done, here or on a worker of a cluster."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rote.errors import InputError, argument, counted
from rote.extraction.near.options import Near
from rote.models.base import LogitModel, ScoringModel
from rote.options import BatchSize
from rote.progress import Progress
from rote.scheme import Scheme
from rote.store.table import CandidateColumns, NearColumns, ShardFacts, shard_bytes
from rote.tokens import Example

if TYPE_CHECKING:  # torch is imported when it is needed: a command's options are read off its job without it
    from rote.extraction.near.results import NearVerbatim
    from rote.extraction.verbatim import Verbatim


@dataclass(frozen=True, slots=True)
class Scoring:
    """How examples are scored, whatever they are; `stage`: of a scan in stages, which one they belong to."""

    schemes: Sequence[Scheme]
    tau: float
    stop_early: bool
    near: Near | None
    batch_size: BatchSize
    stage: int | None = None


@dataclass(frozen=True, slots=True)
class Shard:
    """A scored shard: its file's bytes, and what it cost in token evaluations."""

    content: bytes
    token_evals: int


def score_shard(
    model: ScoringModel, part: Sequence[Example], scoring: Scoring, progress: Progress | None = None
) -> Shard:
    """Score these examples. Nothing is read or written: what comes back follows from what is given, but the seconds."""
    from rote.extraction.verbatim import verbatim

    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        near: list[NearColumns] = []
        results: Sequence[Verbatim]
        if scoring.near is None:
            tau = scoring.tau if scoring.stop_early else None
            results = verbatim(model, part, scoring.schemes, tau=tau, batch_size=scoring.batch_size, progress=progress)
        else:
            results, near = _near_shard(model, part, scoring, scoring.near, progress)
    facts = ShardFacts(time.perf_counter() - began, [*model.warnings, *(str(w.message) for w in caught)])
    once = sum(result.token_evals for result in results[:: len(scoring.schemes)])  # one pass for all schemes
    spent = sum(columns.near_token_evals for columns in near) if near else once
    return Shard(shard_bytes(part, results, facts, near, scoring.stage), spent)


def _near_shard(
    model: ScoringModel, part: Sequence[Example], scoring: Scoring, near: Near, tell: Progress | None
) -> tuple[list[Verbatim], list[NearColumns]]:
    """Verbatim results and near-verbatim columns: for each example, for each scheme."""
    from rote.extraction.near.search import greedy_distances, near_verbatim
    from rote.extraction.verbatim import verbatim

    size = scoring.batch_size
    greedy: Sequence[int | None] = [None] * len(part)
    by_scheme = []
    for scheme in scoring.schemes:
        once = tell if scheme is scoring.schemes[0] else None  # progress counts examples
        scored = verbatim(model, part, [scheme], batch_size=size) if near.method == "sample" else []
        _refuse_open(part, scored)
        searched = near_verbatim(model, part, scheme, near=near, tau=scoring.tau, batch_size=size, progress=once)
        scored = scored or [each.verbatim for each in searched if each.verbatim is not None]
        if len(scored) < len(part):  # beams, and budgets too small for a first pass
            scored = verbatim(model, part, [scheme], batch_size=size)
        by_scheme.append((scored, searched))
    costs = ((v, n) for scored, searched in by_scheme for v, n in zip(scored, searched, strict=True))
    if isinstance(model, LogitModel) and any(n.token_evals > v.token_evals for v, n in costs):
        greedy = greedy_distances(model, part, near, batch_size=size)  # where more than first passes is paid for
    results, columns = [], []
    for i in range(len(part)):
        for scored, searched in by_scheme:
            results.append(scored[i])
            columns.append(_near_columns(searched[i], greedy[i], model.tokenizer))
    return results, columns


def _refuse_open(part: Sequence[Example], scored: Sequence[Verbatim]) -> None:
    """Raise an InputError, before samples are paid for, where a served model's list leaves a p_z open."""
    left_open = [example.id for example, result in zip(part, scored, strict=False) if result.bounded]
    if left_open:
        raise InputError(
            f"what the server lists leaves p_z of {left_open[0]!r} open ({len(left_open)} of the "
            f"{counted(len(part), 'example')} that were asked for together), and near-verbatim numbers are compared "
            f"with p_z. Ask the server for more with {argument('listed')}, or use a scheme that its list always "
            f"decides, such as temperature 1 without top-k; or leave {argument('near')} out: then such rows are "
            "intervals."
        )


def _near_columns(searched: NearVerbatim, greedy: int | None, tokenizer: Any) -> NearColumns:
    return NearColumns(
        lower=searched.lower,
        upper=searched.upper,
        lower_by_tolerance=[lower for lower, _ in searched.by_tolerance],
        upper_by_tolerance=[upper for _, upper in searched.by_tolerance],
        verdict=searched.verdict,
        near_token_evals=searched.token_evals,
        eos_mass=searched.eos_mass,
        estimate=None if searched.estimate is None else searched.estimate.mean,
        estimate_error=None if searched.estimate is None else searched.estimate.error,
        candidates=[
            CandidateColumns(
                tokens=candidate.tokens,
                text=None if tokenizer is None else str(tokenizer.decode(list(candidate.tokens))),
                log_prob=candidate.log_prob,
                set_log_prob=candidate.set_log_prob,
                distance=candidate.distance,
            )
            for candidate in searched.candidates
        ],
        greedy_distance=greedy,
    )
