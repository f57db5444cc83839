"""The headline numbers of a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from rote.analysis.coverage import coverage, longest, merge_spans, spans
from rote.analysis.groups import differences, sampled_rates, with_origin
from rote.analysis.near.rates import near_summary
from rote.analysis.rates import rates, rates_by
from rote.scheme import Scheme
from rote.store.files import FORMAT
from rote.store.manifest import Manifest
from rote.store.summary import LookedAt, SchemeNumbers, Summary
from rote.store.table import ShardFacts
from rote.store.variants import Trial

THRESHOLDS = (0.01, 0.1, 0.5, 0.75)
"""The probabilities at which coverage is told."""


def summarise(
    manifest: Manifest, scores: pl.DataFrame, facts: Sequence[ShardFacts], variants: list[Trial] | None
) -> Summary:
    """What a run comes to under each of its schemes: it follows from manifest, shards, and what of it was tried anew.

    So summary.json is written for other programs, and never read: what stands in a summary is worked out again.
    """
    logit_tolerance = manifest.logit_tolerance
    most_tokens = int(scores["ranks"].list.len().max() or 0)  # type: ignore[arg-type]
    schemes: dict[str, SchemeNumbers] = {}
    for scheme in manifest.schemes:
        own = scores.filter(scores["scheme"] == scheme)
        doubt = Scheme.parse(scheme).doubt(logit_tolerance) * most_tokens
        numbers = _numbers(
            own,
            tau=manifest.tau,
            numeric_tolerance=doubt,
            border_tolerance=logit_tolerance,
            drawn=manifest.sampling is not None,
        )
        if manifest.near is not None:
            numbers = replace(numbers, near=near_summary(own, tau=manifest.tau))
        if manifest.source.characters is not None:
            covered = coverage(own, manifest.source.characters, thresholds=THRESHOLDS)
            numbers = replace(numbers, coverage=covered, longest=longest(own, THRESHOLDS))
        schemes[scheme] = numbers
    first = scores.filter(scores["scheme"] == manifest.schemes[0])
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
        sampling=manifest.sampling,
        variants=variants or None,
        schemes=schemes,
    )


def _numbers(
    scores: pl.DataFrame, *, tau: float, numeric_tolerance: float, border_tolerance: float, drawn: bool
) -> SchemeNumbers:
    """The rates, and those of the groups that the rows say they belong to.

    Of examples drawn from a corpus, a held-out corpus is a group beside it, not a part of its rates.
    """
    rows = with_origin(scores) if drawn else scores
    own = rows.filter(pl.col("corpus") == "main") if drawn else rows
    of = sampled_rates if drawn else rates
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


def _looked_at(scores: pl.DataFrame, manifest: Manifest) -> LookedAt | None:
    """What of a scanned text was measured at all."""
    if manifest.source.characters is None:
        return None
    covered = merge_spans(*spans(scores))
    characters = sum(end - start for start, end in covered)
    gaps = covered[-1][1] - covered[0][0] - characters if covered else 0
    return LookedAt(characters=characters, share=characters / manifest.source.characters, gaps=gaps)
