"""Methods against labels, all on the same texts, by thresholds that were not chosen on these texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from rote.analysis.member.chance import by_chance, by_majority
from rote.analysis.member.fitting import FEWEST, deal, too_few
from rote.analysis.member.measures import (
    BETA,
    RESAMPLES,
    Bools,
    Floats,
    Ints,
    Ladder,
    Texts,
    auroc,
    called_rates,
    codes,
    f_within,
    measured,
)
from rote.analysis.probe import thresholds
from rote.analysis.probe.beside import sign_of
from rote.analysis.probe.verdicts import Way
from rote.corpus.texts import LabelledText
from rote.errors import counted
from rote.store.member import Evaluated, Measured
from rote.store.probe import Judged, Overlap, ProbeEvaluation, ProbeManifest


@dataclass(frozen=True, eq=False)
class Held:
    """What became of one target's scores. `thresholds`: of each way, one per text; NaN where there is none."""

    evaluation: ProbeEvaluation | str
    thresholds: dict[str, Floats]
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Plan:
    """`judged` and `learnt`: places of the texts that are judged, and that thresholds are chosen on; `part`: of judged.

    Where there are parts, thresholds are chosen on the judged texts of the others.
    """

    judged: Ints
    learnt: Ints
    part: Ints | None


def evaluate(
    target: int,
    manifest: ProbeManifest,
    ways: Sequence[Way],
    texts: Sequence[LabelledText],
    values: Mapping[str, Floats],
    beside: Mapping[str, Floats],
) -> Held:
    """`values`: each way's scores of the texts, NaN where it has none; `beside`: those of a run of `rote member`."""
    said = {way.name: thresholds.fixed(way, manifest.hits) for way in ways}
    at = {way.name: np.full(len(texts), np.nan) for way in ways}
    for name, value in said.items():
        if value is not None:
            at[name][:] = value
    labelled = np.array([text.label is not None for text in texts], dtype=np.bool_)
    member = np.array([text.label is True for text in texts], dtype=np.bool_)
    if not labelled.any():
        return Held("No text has a label, so no method was held against labels.", at)
    own = [
        way
        for way in ways
        if np.isfinite(values[way.name][labelled]).any()
        and (manifest.calibrated != "none" or said[way.name] is not None)
    ]
    if not own:
        return Held("No method has both a score for texts with labels and a threshold, so none was evaluated.", at)
    validating = np.array([text.split == "validation" for text in texts], dtype=np.bool_) & labelled
    split = manifest.calibrated == "split"
    pool = labelled & ~validating if split else labelled
    lacking = {way.name: int((pool & np.isnan(values[way.name])).sum()) for way in ways}
    scored = np.all([~np.isnan(values[way.name]) for way in own], axis=0)
    judged = np.flatnonzero(pool & scored)
    group, groups = codes(pl.Series([texts[place].group for place in judged.tolist()], dtype=pl.String))
    units = Texts(member[judged], group, groups is not None)
    if units.fewest < FEWEST:
        left = int(pool.sum()) - len(judged)
        after = f" among the texts that every method has a score for, which leaves out {left:,}" if left else ""
        return Held(too_few(units, after), at)
    need = [way for way in own if said[way.name] is None]
    part = None
    if manifest.calibrated == "parts" and (need or beside):
        part = deal(units, manifest.seed)
        if part is None and need:
            return Held(too_few(units), at)
    plan = _Plan(judged, np.flatnonzero(validating & split), part)
    warnings = _straddling(texts, plan) if split else []
    for way in need:
        one = _chosen(way, values[way.name], member, plan)
        if one is None:
            return Held(_no_validation(way, values[way.name], member, plan), at)
        at[way.name] = _spread(one, way, values[way.name], member, texts, plan, validating=validating)
    rows: dict[str, tuple[Floats, Bools, str]] = {}
    for way in own:
        mine = at[way.name][judged]
        rows[way.name] = (
            values[way.name][judged],
            values[way.name][judged] >= mine,
            thresholds.worded(way, mine.tolist()),
        )
    besides, told = _beside(beside, member, plan, calibrated=manifest.calibrated != "none")
    called = {way.name: rows[way.name][1] for way in own}
    rows |= besides
    return Held(
        ProbeEvaluation(
            target=target,
            members=int(member[judged].sum()),
            non_members=int((~member[judged]).sum()),
            groups=groups,
            validation=int(validating.sum()) if split else 0,
            parts=None if part is None else int(part.max()) + 1,
            left_out={name: count for name, count in lacking.items() if count},
            unlabelled=int((~labelled).sum()),
            resamples=RESAMPLES,
            beta=BETA,
            rows=[*_rated(units, rows, manifest.seed), *_chance(units.member)],
            overlap=overlap(called, units.member),
        ),
        at,
        warnings + told,
    )


# --- thresholds


def _chosen(way: Way | None, values: Floats, member: Bools, plan: _Plan) -> Floats | None:
    """The threshold of every part, or the one; None where the texts that they are chosen on lack a class."""
    found = []
    for number in range(1 if plan.part is None else int(plan.part.max()) + 1):
        on = plan.learnt if plan.part is None else plan.judged[plan.part != number]
        on = on[~np.isnan(values[on])]
        if not member[on].any() or member[on].all():
            return None
        found.append(thresholds.chosen(way, values[on], member[on]))
    return np.array(found)


def _spread(
    one: Floats, way: Way, values: Floats, member: Bools, texts: Sequence[LabelledText], plan: _Plan, validating: Bools
) -> Floats:
    """Every text's threshold: that of its part; of a text that is not judged, that of its group's part or of all."""
    if plan.part is None:
        return np.where(validating, np.nan, one[0])
    at = np.full(len(texts), thresholds.chosen(way, values[plan.judged], member[plan.judged]))
    part_of = {texts[place].group: number for place, number in zip(plan.judged, plan.part, strict=True)}
    for place, text in enumerate(texts):
        if text.group is not None and text.group in part_of:
            at[place] = one[part_of[text.group]]
    at[plan.judged] = one[plan.part]
    return at


def _no_validation(way: Way, values: Floats, member: Bools, plan: _Plan) -> str:
    on = plan.learnt[~np.isnan(values[plan.learnt])]
    members = int(member[on].sum())
    return (
        f"A threshold of {way.name} needs members and non-members among the texts whose split is validation; there are "
        f"{counted(members, 'member')} and {counted(len(on) - members, 'non-member')} that it has a score for."
    )


def _straddling(texts: Sequence[LabelledText], plan: _Plan) -> list[str]:
    both = {texts[place].group for place in plan.learnt} & {texts[place].group for place in plan.judged} - {None}
    if not both:
        return []
    verb = "has" if len(both) == 1 else "have"
    return [
        f"{counted(len(both), 'group')} {verb} texts that thresholds were chosen on and texts that are judged by them: "
        "the split does not keep groups together."
    ]


def _beside(
    beside: Mapping[str, Floats], member: Bools, plan: _Plan, *, calibrated: bool
) -> tuple[dict[str, tuple[Floats, Bools, str]], list[str]]:
    """Scores of a run of `rote member` that all texts have; and what is said of those that they have not."""
    if not beside:
        return {}, []
    learnt = plan.judged if plan.part is not None else plan.learnt
    if not calibrated or not member[learnt].any() or member[learnt].all():
        return {}, ["Membership scores are left out: there are no texts of both kinds to choose their thresholds on."]
    found, missing = {}, {}
    needed = np.concatenate([plan.judged, plan.learnt])
    for name, values in beside.items():
        if lacking := int(np.isnan(values[needed]).sum()):
            missing[name.removeprefix("member:")] = lacking
        elif (one := _chosen(None, values, member, plan)) is not None:
            at = np.broadcast_to(one[0], len(plan.judged)) if plan.part is None else one[plan.part]
            own = values[plan.judged]
            found[name] = (own, own >= at, thresholds.worded_score(sign_of(name), at.tolist()))
    if not missing:
        return found, []
    return found, [
        "Membership scores are left out, since the run of rote member has none of them for some of the "
        f"{len(needed):,} texts ({max(missing.values()):,} at most): {', '.join(missing)}."
    ]


# --- rates


def _rated(texts: Texts, rows: Mapping[str, tuple[Floats, Bools, str]], seed: int) -> list[Judged]:
    """Every row with its intervals, from the same resamples."""
    member = texts.member
    ladders = [Ladder.of(values, member) for values, _, _ in rows.values()]
    calls = np.stack([called for _, called, _ in rows.values()], axis=1)

    def statistics(weights: Ints) -> Floats:
        """[resamples, (precision, recall, F-beta, AUROC), rows]"""
        areas = np.stack([auroc(*ladder.counts(weights)) for ladder in ladders], axis=1)[:, None]
        return np.concatenate([called_rates(weights, calls, member), areas], axis=1)

    truth = statistics(np.ones((len(member), 1), dtype=np.int64))[0]
    drawn = texts.bootstrap(statistics, seed)
    members = texts.units(member)
    found = []
    for place, (name, (_, called, words)) in enumerate(rows.items()):

        def of(row: int, units: int, place: int = place) -> Measured:
            return measured(float(truth[row, place]), drawn[:, row, place], units)

        precision = of(0, texts.units(called)) if called.any() else None
        recall = of(1, members)
        found.append(
            Judged(
                name=name,
                threshold=words,
                **confusion(called, member),
                precision=precision,
                recall=recall,
                f_beta=f_within(of(2, members), precision, recall),
                auroc=of(3, texts.fewest),
            )
        )
    return found


def confusion(called: Bools, member: Bools) -> dict[str, int]:
    """Texts by what they are and what they are called."""
    return {
        "true_positives": int((called & member).sum()),
        "false_positives": int((called & ~member).sum()),
        "false_negatives": int((~called & member).sum()),
        "true_negatives": int((~called & ~member).sum()),
    }


def _chance(member: Bools) -> list[Judged]:
    most = np.full(len(member), 2 * member.sum() >= len(member))
    nothing = dict.fromkeys(confusion(most, member))

    def row(of: Evaluated, words: str, counts: Mapping[str, int | None]) -> Judged:
        return Judged(
            name=of.name, threshold=words, **counts, precision=of.precision, recall=of.recall, f_beta=of.f_beta,
            auroc=of.auroc,
        )  # fmt: skip

    every = "every text" if most.any() else "no text"
    return [
        row(by_chance(member), "each text by a coin: what is expected", nothing),
        row(by_majority(member), f"{every}, as most are", confusion(most, member)),
    ]


def overlap(called: Mapping[str, Bools], member: Bools) -> list[Overlap]:
    """For every set of methods that flagged a text together: the texts that they and no others flagged."""
    table = np.stack(list(called.values()), axis=1)
    sets: dict[tuple[bool, ...], list[int]] = {}
    for flags, own in zip(map(tuple, table.tolist()), member.tolist(), strict=True):
        if any(flags):
            counts = sets.setdefault(flags, [0, 0])
            counts[0] += 1
            counts[1] += own
    names = list(called)
    ordered = sorted(sets.items(), key=lambda item: (-item[1][0], sum(item[0]), [not flag for flag in item[0]]))
    return [
        Overlap(methods=[name for name, flag in zip(names, flags, strict=True) if flag], flagged=count, right=right)
        for flags, (count, right) in ordered
    ]
