"""Scores against labels: how well each tells members, with what no model is needed for beside it.

Texts are dealt into parts by group. What is fitted or chosen for one part, a threshold, the blind baseline, the weights
of `combined`, is fitted or chosen on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from rote.analysis.groups import binned_repetitions
from rote.analysis.member import blind
from rote.analysis.member.chance import by_chance, by_majority
from rote.analysis.member.fitting import EXTRACTED, FEWEST, aligned, deal, oriented, scaled, too_few, weigh
from rote.analysis.member.matching import matched
from rote.analysis.member.measures import (
    BETA,
    RESAMPLES,
    Bools,
    Floats,
    Ints,
    Ladder,
    Texts,
    apart,
    auroc,
    called_rates,
    codes,
    f_within,
    measured,
    roc,
    threshold,
    tpr_at,
)
from rote.progress import Progress
from rote.store.member import Blind, ByRepetitions, Evaluated, Evaluation, Measured, Roc, Spread

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def evaluate(
    rows: pl.DataFrame,
    names: Sequence[str],
    *,
    match: Sequence[str],
    seed: int,
    unlabelled: int,
    prefix: int,
    progress: Progress,
) -> Evaluation | str:
    """The scores `names` of labelled texts against their labels; a sentence where there is too little to tell.

    Where labels are drawn at random the blind baseline's AUROC is a half on the mean, with groups and without (see
    tests/analysis/member/test_blind.py).
    """
    kept = matched(rows, match, seed)
    member = kept["label"].to_numpy().astype(np.bool_)
    group, groups = codes(kept["group"])
    texts = Texts(member, group, groups is not None)
    after = f" after matching by {' and '.join(match)}, which dropped {rows.height - kept.height:,}" if match else ""
    if not names:
        return "No score has a value for every text with a label, so none was evaluated."
    part = deal(texts, seed) if texts.fewest >= FEWEST else None
    if part is None:
        return too_few(texts, after)
    scores = dict(zip(names, oriented(kept, names).T, strict=True))
    called = {name: _called(own, member, part) for name, own in scores.items()}
    features = blind.features(kept["text"].to_list(), kept["date"].to_list())
    together = [name for name in names if name not in EXTRACTED]
    table = np.array([scores[name] for name in together]).T
    fitted = {"combined": np.zeros(len(member))} if len(together) > 1 else {}
    fitted["blind"] = np.zeros(len(member))
    parts = int(part.max()) + 1
    for number in range(parts):
        own, rest = part == number, np.flatnonzero(part != number)
        fitted["blind"][own] = blind.fit(features, rest, member).scores[own]
        if "combined" in fitted:
            standard = scaled(table, rest)
            fitted["combined"][own] = (standard @ weigh(standard[rest], member[rest]))[own]
        progress("folds", number + 1, parts)
    for name, values in fitted.items():
        called[name] = _called(values, member, part)
        scores[name] = aligned(values, member, part)
    rated = _rated(texts, scores, called, seed)
    best = max(names, key=lambda name: rated[name].auroc.value)
    high, low = blind.named(features, member)
    chance = [by_chance(member), by_majority(member)]
    return Evaluation(
        members=int(member.sum()),
        non_members=int((~member).sum()),
        groups=groups,
        fewest=texts.fewest,
        folds=parts,
        resamples=RESAMPLES,
        beta=BETA,
        unlabelled=unlabelled,
        prefix=prefix,
        unmatched=rows.height - kept.height,
        best=best,
        rows=[*rated.values(), *chance],
        blind=Blind(
            features=features.words,
            for_members=high,
            for_non_members=low,
            explained=explained(rated["blind"].auroc.value, rated[best].auroc.value),
        ),
        roc=[
            *(roc(name, own, member) for name, own in scores.items()),
            *(Roc(name=row.name, fpr=[0.0, 1.0], tpr=[0.0, 1.0]) for row in chance),
        ],
        by_repetitions=_by_repetitions(kept, texts, scores, seed),
    )


def explained(blind: float, best: float) -> float | None:
    """The share of the best score's AUROC above a half that the blind baseline reaches."""
    return min(max((blind - 0.5) / (best - 0.5), 0.0), 1.0) if best > 0.5 else None


def spreads(rows: pl.DataFrame, names: Sequence[str]) -> list[Spread]:
    """How each score lies over texts of each kind that have one; -inf, a probability of 0, is none."""
    found = []
    for (kind, label), own in rows.group_by(["part", "label"], maintain_order=True):
        for name in names:
            values = own[name].cast(pl.Float64).drop_nulls().to_numpy()
            values = values[np.isfinite(values)]
            if values.size:
                found.append(
                    Spread(
                        score=name,
                        part="texts" if kind == "texts" else "held_out",
                        label=None if label is None else bool(label),
                        texts=len(values),
                        mean=float(values.mean()),
                        quantiles=np.quantile(values, QUANTILES).tolist(),
                    )
                )
    return found


def _called(scores: Floats, member: Bools, part: Ints) -> Bools:
    """Which texts are called members, each part's by the threshold that is best on the others."""
    called = np.zeros(len(member), dtype=np.bool_)
    for number in np.unique(part):
        own = part == number
        called[own] = scores[own] >= threshold(scores[~own], member[~own])
    return called


def _rated(texts: Texts, scores: dict[str, Floats], called: dict[str, Bools], seed: int) -> dict[str, Evaluated]:
    """Every way to tell members, with intervals from the same resamples."""
    member = texts.member
    ladders = [Ladder.of(own, member) for own in scores.values()]
    calls = np.stack(list(called.values()), axis=1)

    def statistics(weights: Ints) -> Floats:
        """[resamples, (AUROC, TPR at 1%, at 0.1%, precision, recall, F-beta), ways]"""
        ranked = []
        for ladder in ladders:
            found, wrong = ladder.counts(weights)
            ranked.append([auroc(found, wrong), tpr_at(found, wrong, 100), tpr_at(found, wrong, 1000)])
        return np.concatenate([np.array(ranked).transpose(2, 1, 0), called_rates(weights, calls, member)], axis=1)

    truth = statistics(np.ones((len(member), 1), dtype=np.int64))[0]
    drawn = texts.bootstrap(statistics, seed)
    members, others = texts.units(member), int((~member).sum())
    ways = {}
    at_blind = list(scores).index("blind")
    for way, name in enumerate(scores):

        def of(row: int, units: int, way: int = way) -> Measured:
            return measured(float(truth[row, way]), drawn[:, row, way], units)

        area = of(0, texts.fewest)
        precision = of(3, texts.units(called[name])) if called[name].any() else None
        recall = of(4, members)
        ways[name] = Evaluated(
            name=name,
            auroc=area,
            tpr_1=of(1, members) if others >= 100 else None,
            tpr_01=of(2, members) if others >= 1000 else None,
            precision=precision,
            recall=recall,
            f_beta=f_within(of(5, members), precision, recall),
        )
    for way, name in enumerate(scores):
        if name != "blind":
            less = drawn[:, 0, way] - drawn[:, 0, at_blind]
            ways[name] = replace(ways[name], over_blind=apart(ways[name].auroc, ways["blind"].auroc, less))
    return ways


def _by_repetitions(
    rows: pl.DataFrame, texts: Texts, scores: dict[str, Floats], seed: int
) -> list[ByRepetitions] | None:
    """The AUROC of members that were seen so often, where that is known and differs."""
    seen = rows.select(pl.when("label").then("repetitions").cast(pl.Int64).alias("repetitions"))
    if seen["repetitions"].n_unique() - bool(seen["repetitions"].null_count()) < 2:
        return None
    often = binned_repetitions(seen)[0]["repetitions"]
    levels = []
    for level in sorted(often.drop_nulls().unique()):
        which = ~texts.member | (often == level).fill_null(value=False).to_numpy()
        own = Texts(texts.member[which], np.unique(texts.group[which], return_inverse=True)[1], texts.grouped)
        ladders = [Ladder.of(values[which], own.member) for values in scores.values()]

        def statistics(weights: Ints, ladders: list[Ladder] = ladders) -> Floats:
            return np.stack([auroc(*ladder.counts(weights)) for ladder in ladders], axis=1)

        truth = statistics(np.ones((len(own.member), 1), dtype=np.int64))[0]
        drawn = own.bootstrap(statistics, seed)
        levels.append(
            ByRepetitions(
                repetitions=int(level),
                members=int(own.member.sum()),
                auroc={name: measured(float(truth[way]), drawn[:, way], own.fewest) for way, name in enumerate(scores)},
            )
        )
    return levels
