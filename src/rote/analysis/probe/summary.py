"""All that the answers of a run of `rote probe` come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from rote.analysis.member.measures import Floats
from rote.analysis.probe.beside import membership_scores
from rote.analysis.probe.evaluate import Held, evaluate
from rote.analysis.probe.rates import differences, filtered, positions, probed
from rote.analysis.probe.thresholds import NOTHING
from rote.analysis.probe.verdicts import Way, questions_of, verdicts, ways
from rote.corpus.texts import LabelledText
from rote.models.probed import ChatIdentity
from rote.progress import Progress
from rote.store.files import FORMAT
from rote.store.membership import MemberView
from rote.store.probe import (
    Estimate,
    ProbeEvaluation,
    ProbeManifest,
    ProbeSummary,
    Spent,
    WordCounts,
)


def summarise(
    *,
    manifest: ProbeManifest,
    texts: Mapping[str, LabelledText],
    words: WordCounts | None,
    chosen: pl.DataFrame,
    questions: pl.DataFrame,
    spent: list[Spent],
    estimates: list[Estimate],
    seconds: float,
    warnings: list[str],
    membership: MemberView | None,
    progress: Progress,
) -> tuple[ProbeSummary, pl.DataFrame]:
    """The summary, and one row for each text, target and method, by `VERDICTS_SCHEMA`.

    `chosen` and `questions`: by `CHOSEN_SCHEMA` and `QUESTIONS_SCHEMA`. A word that was picked for slot and chosen for
    cloze too stands among the questions of both methods.
    """
    every = ways(manifest)
    targets = range(len(manifest.targets))
    table = verdicts(manifest, texts, chosen, questions)
    held_texts = list(texts.values())
    beside = {} if membership is None else membership_scores(membership, held_texts)
    found: list[Held] = []
    parts = []
    for target in targets:
        own = table.filter(pl.col("target") == target)
        scores = {way.name: _values(own, way) for way in every}
        others = beside if _may_be(manifest.targets[target], membership) else {}
        held = evaluate(target, manifest, every, held_texts, scores, others)
        found.append(held)
        parts += [_flagged(own, way, held.thresholds[way.name]) for way in every]
        progress("folds", target + 1, len(targets))
    table = pl.concat([table.clear(), *parts])
    by_way = {way: questions_of(way, chosen, questions) for way in every}
    labels = [text.label for text in held_texts]
    return (
        ProbeSummary(
            format=FORMAT,
            kind="probe",
            texts=len(texts),
            members=labels.count(True),
            non_members=labels.count(False),
            seconds=seconds,
            warnings=list(dict.fromkeys([*warnings, *(line for held in found for line in held.warnings)])),
            words=words,
            filters=[filtered(number, questions) for number in range(len(manifest.filters))],
            probed=[
                probed(
                    way,
                    target,
                    texts,
                    by_way[way].filter(pl.col("model") == target),
                    table.filter((pl.col("target") == target) & (pl.col("name") == way.name)),
                )
                for target in targets
                for way in every
            ],
            positions=[
                positions(target, by_way[way].filter(pl.col("model") == target))
                for way in every
                if way.method == "decop"
                for target in targets
            ],
            evaluations=[held.evaluation for held in found if isinstance(held.evaluation, ProbeEvaluation)],
            not_evaluated=_not_evaluated(manifest, found),
            differences=differences(manifest, every, texts, chosen, questions),
            estimates=estimates,
            spent=spent,
        ),
        table,
    )


def _may_be(target: ChatIdentity, membership: MemberView | None) -> bool:
    """Whether membership scores may be of this model: nobody can tell of one that is served."""
    return (
        membership is None or target.model is None or target.model.fingerprint == membership.manifest.model.fingerprint
    )


def _values(verdict: pl.DataFrame, way: Way) -> Floats:
    """The scores of a way in the order of the texts; NaN where there is none."""
    values: Floats = verdict.filter(pl.col("name") == way.name)["value"].fill_null(np.nan).to_numpy()
    return values


def _flagged(verdict: pl.DataFrame, way: Way, at: Floats) -> pl.DataFrame:
    """The rows of a way with their thresholds. Where nothing is flagged there is no threshold to tell."""
    limit = pl.Series("threshold", at, dtype=pl.Float64).fill_nan(None)
    own = verdict.filter(pl.col("name") == way.name).with_columns(limit)
    flagged = pl.when(pl.col("value").is_not_null()).then(pl.col("value") >= pl.col("threshold"))
    return own.with_columns(flagged.alias("flagged")).with_columns(
        pl.when(pl.col("threshold") < NOTHING).then("threshold").alias("threshold")
    )


def _not_evaluated(manifest: ProbeManifest, found: Sequence[Held]) -> str | None:
    """Why targets have no evaluation."""
    told = [
        (manifest.targets[place].title, held.evaluation)
        for place, held in enumerate(found)
        if isinstance(held.evaluation, str)
    ]
    sentences = list(dict.fromkeys(sentence for _, sentence in told))
    if len(told) == len(found) and len(sentences) == 1:
        return sentences[0]
    return " ".join(f"{name}: {sentence}" for name, sentence in told) or None
