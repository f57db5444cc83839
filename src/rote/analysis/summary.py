"""The headline numbers of a finished run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import polars as pl

from rote.analysis.corpus import in_corpus
from rote.analysis.coverage import coverage, merge_spans, spans
from rote.analysis.groups import differences, sampled_rates, with_origin
from rote.analysis.narrow import Narrowed
from rote.analysis.near.rates import near_summary
from rote.analysis.rates import LeftOut, audit, rates_by, staged_rates
from rote.errors import InputError
from rote.scheme import Scheme
from rote.store.files import FORMAT
from rote.store.manifest import Manifest
from rote.store.outputs import Outputs
from rote.store.stages import Staged
from rote.store.summary import Longest, LookedAt, SchemeNumbers, Summary
from rote.store.table import ShardFacts
from rote.store.variants import Trial

THRESHOLDS = (0.01, 0.1, 0.5, 0.75)
"""The probabilities at which coverage is told."""


def summarise(
    manifest: Manifest,
    narrowed: Narrowed,
    facts: Sequence[ShardFacts],
    variants: list[Trial] | None,
    outputs: Outputs | None = None,
    ended: int = 0,
) -> Summary:
    """What a run comes to under each of its schemes: it follows from manifest, shards, and what of it was tried anew.

    `narrowed`: what is needed of the shards' rows. `outputs`: those that were looked for in an indexed corpus. `ended`:
    of a scan in stages, how many of these have.
    So summary.json is written for other programs, and never read: what stands in a summary is worked out again.
    """
    logit_tolerance, served = manifest.logit_tolerance, manifest.model.served is not None
    scores = narrowed.rows
    schemes: dict[str, SchemeNumbers] = {}
    for scheme in manifest.schemes:
        own = rows_of(scores, scheme, manifest)
        doubt = Scheme.parse(scheme).doubt(logit_tolerance) * narrowed.most_tokens
        numbers = _numbers(
            own,
            tau=manifest.tau,
            numeric_tolerance=doubt,
            border_tolerance=logit_tolerance,
            drawn=manifest.sampling is not None,
            left_out=(left_out := left_out_of(own, manifest)),
        )
        if left_out is not None:
            numbers = replace(numbers, audit=audit(own, manifest.tau, left_out))
        if manifest.near is not None:
            numbers = replace(numbers, near=near_summary(own, tau=manifest.tau))
        if manifest.source.characters is not None:
            covered = coverage(own, manifest.source.characters, thresholds=THRESHOLDS, served=served)
            numbers = replace(numbers, coverage=covered, longest=_longest(narrowed.longest[scheme], left_out, manifest))
        schemes[scheme] = numbers
    first = rows_of(scores, manifest.schemes[0], manifest)
    _refuse_untold(first, served)
    return Summary(
        format=FORMAT,
        kind=manifest.kind,
        source=manifest.source,
        model=manifest.model,
        examples=first.height,
        dropped=manifest.dropped,
        tau=manifest.tau,
        logit_tolerance=logit_tolerance,
        token_evals=int(first["token_evals"].sum()),
        seconds=round(sum(each.seconds for each in facts), 3),
        warnings=sorted({warning for each in facts for warning in each.warnings}),
        versions=manifest.versions,
        looked_at=_looked_at(first, manifest),
        staged=_staged(first, manifest, ended),
        sampling=manifest.sampling,
        variants=variants or None,
        corpus=None if manifest.index is None else in_corpus(first, outputs),
        schemes=schemes,
    )


def _refuse_untold(rows: pl.DataFrame, served: bool) -> None:
    """Raise an InputError for a row whose `greedy` is not told: logits always tell it, a server's list may not."""
    if not served and rows["greedy"].null_count():
        example = rows["example_id"][int(rows["greedy"].is_null().arg_max() or 0)]
        raise InputError(
            f"example {example!r} has no greedy, and only a served model's list leaves that open; score it again."
        )


def _numbers(
    scores: pl.DataFrame, *, tau: float, numeric_tolerance: float, border_tolerance: float, drawn: bool,
    left_out: LeftOut | None,
) -> SchemeNumbers:  # fmt: skip
    """The rates, and those of the groups that the rows say they belong to.

    Of examples drawn from a corpus, a held-out corpus is a group beside it, not a part of its rates.
    """
    rows = with_origin(scores) if drawn else scores
    own = rows.filter(pl.col("corpus") == "main") if drawn else rows
    of = sampled_rates if drawn else partial(staged_rates, left_out=left_out)
    by_split, by_repetitions = (
        rates_by(rows, "split", tau=tau, numeric_tolerance=numeric_tolerance, border_tolerance=border_tolerance, of=of),
        rates_by(
            rows, "repetitions", tau=tau, numeric_tolerance=numeric_tolerance, border_tolerance=border_tolerance, of=of
        ),
    )
    return SchemeNumbers(
        rates=of(own, tau=tau, numeric_tolerance=numeric_tolerance, border_tolerance=border_tolerance),
        by_repetitions=by_repetitions or None,
        by_split=by_split or None,
        differences=differences(by_split) if drawn and by_split else None,
    )


def rows_of(scores: pl.DataFrame, scheme: str, manifest: Manifest) -> pl.DataFrame:
    """The rows of one scheme; without a copy where there is no other."""
    return scores if manifest.schemes == [scheme] else scores.filter(pl.col("scheme") == scheme)


def _longest(
    found: dict[str, Longest | None], left_out: LeftOut | None, manifest: Manifest
) -> dict[str, Longest | None]:
    """A window that has no number may go further than those that have one, but not further than its suffix."""
    if left_out is None or left_out.windows == int(left_out.drawn.sum()):
        return found
    cut = manifest.windows
    most = cut.suffix if cut is not None and cut.unit == "tokens" else math.inf
    return {threshold: own and replace(own, exact=own.exact and own.tokens == most) for threshold, own in found.items()}


def left_out_of(scores: pl.DataFrame, manifest: Manifest) -> LeftOut | None:
    """What one scheme's rows of a scan in stages leave out; None where all windows have a number, drawn or not."""
    if manifest.refined is None:
        return None
    drawn = (scores["stage"] == manifest.refined.closer + 1).to_numpy()
    windows = manifest.refined.windows - int((~drawn).sum())
    return LeftOut(windows, drawn) if windows > drawn.sum() else None


def _staged(scores: pl.DataFrame, manifest: Manifest, ended: int) -> Staged | None:
    refined = manifest.refined
    if refined is None:
        return None
    audited = scores.filter(pl.col("stage") == refined.closer + 1)
    return Staged(
        ended=ended,
        stages=refined.stages,
        windows=refined.windows,
        scored=scores.height,
        audited=audited.height,
        token_evals=int(scores["token_evals"].sum()) - int(audited["token_evals"].sum()),
        audit_token_evals=int(audited["token_evals"].sum()),
    )


def _looked_at(scores: pl.DataFrame, manifest: Manifest) -> LookedAt | None:
    """What of a scanned text was measured at all."""
    if manifest.source.characters is None:
        return None
    covered = merge_spans(*spans(scores))
    characters = sum(end - start for start, end in covered)
    gaps = covered[-1][1] - covered[0][0] - characters if covered else 0
    return LookedAt(characters=characters, share=characters / manifest.source.characters, gaps=gaps)
