"""Verbatim extraction: the probability that one generation from the prefix is exactly the suffix, from one pass.

    log p_z = sum over suffix tokens of log Pr_phi(token | everything before it)

The model is fed prefix and suffix once (the last suffix token need not be fed); only suffix positions go through the
head, in chunks; log-softmax is float32 on the device, the sum float64 on the host. One pass serves every scheme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rote.corpus.formats import Examples, as_examples
from rote.decoding import TargetScores
from rote.errors import InputError, ModelError, argument
from rote.extraction.passes import Doubts, Floats, Row, Scorer, cost_of
from rote.extraction.results import Results
from rote.listed import ListedScores
from rote.models.base import LogitModel, ScoringModel, SpreadModel, SuffixScorer, TokenModel
from rote.options import BatchSize, require_kind, require_tau, require_whole
from rote.progress import Progress, quiet
from rote.scheme import GREEDY, Scheme, Schemes, as_schemes
from rote.tokens import Example

PILOT = 32  # with tau: one example in this many is scored in full first, to see whether stopping early pays


@dataclass(frozen=True, slots=True, eq=False)
class Verbatim:
    """One example under one scheme.

    `log_prob` is log p_z, -inf where a suffix token lies outside the scheme's support. Where `bounded` it is an upper
    bound instead. Either scoring stopped early: the bound is certainly below the tau that was asked for, and the
    per-token arrays end there. Or a server's list of log-probs leaves tokens open (see `rote.listed`): then the bound
    may be anything, and these tokens have no log-prob (NaN) and margin 0.
    `greedy`: greedy decoding emits exactly the suffix; None where a server's list does not tell. `ranks`: of a token
    beyond such a list of N, N + 1; 0 where the list does not tell. `margins`: see `rote.decoding.target_scores`; tokens
    whose margin is smaller than the model's `logit_tolerance` may fall on either side of the support elsewhere.
    """

    example_id: str
    scheme: Scheme
    log_prob: float
    greedy: bool | None
    bounded: bool
    token_log_probs: Floats
    base_log_probs: Floats
    ranks: NDArray[np.int32]
    margins: Floats
    token_evals: int

    @property
    def prob(self) -> float:
        """p_z; 0.0 also where log p_z is finite but below the smallest float."""
        return math.exp(self.log_prob)

    def told(self) -> dict[str, Any]:
        """Its numbers by name; p_z is an upper bound where it is `bounded`."""
        own = {"scheme": str(self.scheme), "p_z": self.prob, "log_prob": self.log_prob}
        return {**own, "greedy": self.greedy, "bounded": self.bounded}


def verbatim(
    model: ScoringModel,
    examples: Examples,
    schemes: Schemes = Scheme(),
    *,
    tau: float | None = None,
    batch_size: BatchSize = "auto",
    progress: Progress | None = None,
) -> Results[Verbatim]:
    """Score every example under every scheme: a flat list, for each example, for each scheme.

    With `tau`, an example may be given up after its first few suffix tokens once it is certain that it ends below tau
    under every scheme and is not greedily extractable. All others get their numbers from the same full pass as without
    tau, so the examples at or above tau, and their numbers, are those of a full run. Whether stopping pays is judged on
    a pilot sample, so a memorized text costs no more than without. `progress` counts examples as "scored".
    """
    require_kind("model", model, TokenModel, "a model that rote.load gives")
    examples, schemes = as_examples(examples, model.tokenizer, bos=model.bos_id), as_schemes(schemes)
    check(model, examples, schemes, tau, batch_size)
    scored = _scored(model, examples, schemes, tau, batch_size, progress or quiet)
    return Results(scored, examples, model.tokenizer)


def _scored(
    model: ScoringModel, examples: Sequence[Example], schemes: tuple[Scheme, ...], tau: float | None,
    batch_size: BatchSize, progress: Progress,
) -> list[Verbatim]:  # fmt: skip
    if not examples:
        return []
    # What may turn out to be the greedy output is not given up: greedy decoding is asked about, too.
    asked = schemes if tau is None else (*schemes, GREEDY)
    if isinstance(model, SpreadModel):
        found: list[Verbatim] = model.call(_scored, examples, schemes, tau, batch_size, quiet)
        return found
    tell = _counting(progress, len(examples))
    if not isinstance(model, LogitModel):
        return _listed(model, examples, schemes, tell)
    scorer = Scorer(model, examples, asked, batch_size)
    everything = np.arange(len(examples))
    if tau is None:
        return _results(examples, schemes, scorer.run(everything, None, tell), {}, everything * 0)

    pilot = everything[:: min(PILOT, max(1, len(examples) // 8))]
    full = scorer.run(pilot, None, tell)
    rest = np.setdiff1d(everything, pilot)
    doubts = Doubts(model.logit_tolerance, np.array([[s.doubt(model.logit_tolerance)] for s in asked]))
    stop_at = _best_stop(examples, full, tau, doubts) if len(rest) else None
    stopped: dict[int, Row] = {}
    extra = np.zeros(len(examples), dtype=np.int64)
    if stop_at is not None:
        probe = scorer.run(rest, stop_at, lambda count: None)
        for i in rest:
            extra[i] = cost_of(examples[i], stop_at)
            bounds = probe[i].upper(doubts)
            if bounds.max() < math.log(tau):
                stopped[int(i)] = replace(probe[i], total=bounds, greedy=False)
        tell(len(stopped))
        rest = np.array([i for i in rest if int(i) not in stopped], dtype=np.int64)
    full.update(scorer.run(rest, None, tell))
    return _results(examples, schemes, full, stopped, extra)


def _counting(tell: Progress, total: int) -> Callable[[int], None]:
    """Adds up what is newly done."""
    done = 0

    def count(newly: int) -> None:
        nonlocal done
        done += newly
        tell("scored", done, total)

    return count


def _listed(
    model: SuffixScorer, examples: Sequence[Example], schemes: Sequence[Scheme], tell: Callable[[int], None]
) -> list[Verbatim]:
    """Scores that the model's source has worked out itself: every suffix in full, as nothing is gained by stopping."""
    results = []
    for example, scores in zip(examples, model.score_suffixes(examples, schemes), strict=True):
        shape = (len(schemes), len(example.suffix))
        if scores.log_probs.shape != shape or np.isnan(scores.log_probs).any() or np.isnan(scores.base_log_probs).any():
            raise ModelError(
                f"{model.identity().name} gave no probability for every token of the suffix of example {example.id!r} "
                "under every scheme: what it says of it is too short, or not a number."
            )
        results += [_from_list(example, scheme, number, scores) for number, scheme in enumerate(schemes)]
        tell(1)
    return results


def _from_list(example: Example, scheme: Scheme, number: int, scores: ListedScores) -> Verbatim:
    """One example under scheme `number`. Where a token is certainly outside the support, no open one matters."""
    log_probs, open_ones = scores.log_probs[number], scores.bounded[number]
    log_prob = float(log_probs.sum(dtype=np.float64))
    return Verbatim(
        example_id=example.id,
        scheme=scheme,
        log_prob=log_prob,
        greedy=None if (scores.argmax | scores.unsure).all() and scores.unsure.any() else bool(scores.argmax.all()),
        bounded=log_prob > -math.inf and bool(open_ones.any()),
        token_log_probs=np.where(open_ones, np.float32(np.nan), log_probs),
        base_log_probs=scores.base_log_probs,
        ranks=scores.ranks,
        margins=scores.margins[number],
        token_evals=cost_of(example, None),
    )


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
        bounded=False,
        token_log_probs=log_probs[0],
        base_log_probs=base,
        ranks=ranks,
        margins=margins[0],
        token_evals=cost_of(example, None),
    )


def check(
    model: TokenModel, examples: Sequence[Example], schemes: Sequence[Scheme], tau: float | None, batch_size: BatchSize
) -> None:
    """Refuse what cannot be scored before any work is done, naming it."""
    for scheme in schemes:
        scheme.check(model.vocabulary)
    if batch_size != "auto":
        require_whole("batch_size", batch_size)
    if tau is not None:
        require_tau(tau)
    bos, vocabulary, context = model.bos_id is not None, model.vocabulary, model.context_length
    too_long = []
    for example in examples:
        if not example.prefix and not bos:
            raise InputError(
                f"example {example.id!r} has an empty prefix and no BOS token stands before it. Give it a prompt, or a "
                f"BOS with {argument('bos', 'always')} where the tokenizer has one."
            )
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
    if isinstance(model, SuffixScorer) and not isinstance(model, LogitModel):
        model.refuse(examples, schemes)


def _best_stop(examples: Sequence[Example], pilot: dict[int, Row], tau: float, doubts: Doubts) -> int | None:
    """After how many suffix tokens to look, judged by what the pilot examples would have cost; None: score in full."""
    full = sum(cost_of(examples[i], None) for i in pilot)
    best, best_cost = None, 0.95 * full
    for stop_at in range(1, max(len(examples[i].suffix) for i in pilot)):
        cost = 0
        for i, row in pilot.items():
            survives = row.upper(doubts, stop_at).max() >= math.log(tau)
            cost += cost_of(examples[i], stop_at) + (cost_of(examples[i], None) if survives else 0)
        if cost < best_cost:
            best, best_cost = stop_at, cost
        if sum(cost_of(examples[i], stop_at) for i in pilot) >= best_cost:
            break  # looking later costs more than the best found even if nothing survived
    # A small pilot misses stragglers: two more tokens cost 2% and save most of their second passes.
    return None if best is None else best + 2


def _results(
    examples: Sequence[Example],
    schemes: Sequence[Scheme],
    full: dict[int, Row],
    stopped: dict[int, Row],
    extra: NDArray[np.int64],
) -> list[Verbatim]:
    results = []
    for i, example in enumerate(examples):
        row = stopped.get(i) or full[i]
        evals = int(extra[i]) + (0 if i in stopped else cost_of(example, None))
        for s, scheme in enumerate(schemes):
            results.append(
                Verbatim(
                    example_id=example.id,
                    scheme=scheme,
                    log_prob=float(row.total[s]),
                    greedy=row.greedy,
                    bounded=i in stopped,
                    token_log_probs=row.log_probs[s],
                    base_log_probs=row.base,
                    ranks=row.ranks,
                    margins=row.margins[s],
                    token_evals=evals,
                )
            )
    return results
