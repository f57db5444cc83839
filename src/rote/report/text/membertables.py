"""The tables of a membership run: every score against labels, at thresholds, what each one is; and of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rote.membership.scores import SCORES
from rote.report.text import numbers
from rote.report.text.member import OTHERS, area, scored, signed, title_of
from rote.store.member import DatasetTest, Evaluated, Evaluation, Measured, MemberManifest, MemberSummary

NEEDS = {
    "text": "the text",
    "lowercase": "the text, and it in lowercase",
    "reference": "the text, by both models",
    "prefix": "the text, and it after a prefix",
    "windows": "windows of the text, at their own cost",
}
LEAST = {"tpr_1": (100, "1%"), "tpr_01": (1000, "0.1%")}
"""How many non-members each share of found members needs, and at which share of false alarms it is."""


@dataclass(frozen=True, slots=True)
class MemberTable:
    """`columns` and `rows` are text. The first `words` columns are words, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    words: int = 1


DIRECTION = {score.name: "lower" if score.member == "low" else "higher" for score in SCORES}
"""Which values of a score mean that a text was seen."""


def areas(evaluation: Evaluation) -> MemberTable:
    """AUROC of every score, and how far it lies above the blind baseline's."""
    bound = any(row.auroc.bound for row in evaluation.rows)
    unit, enough = ("text", 20) if evaluation.groups is None else ("group", 10)
    few = (
        f" They are too narrow, as one of the two classes has only {numbers.counted(evaluation.fewest, unit)}."
        if evaluation.fewest < enough
        else ""
    )
    rows = [
        [
            title_of(row.name), DIRECTION.get(str(row.name), ""), area(row.auroc.value), _between(row.auroc),
            *_over(row.over_blind),
        ]
        for row in evaluation.rows
    ]  # fmt: skip
    return MemberTable(
        "how well each score tells members from non-members",
        ("score", "seen if", "AUROC", "95% interval", "over blind", "95% interval"),
        rows,
        caption=(
            f"AUROC: how often a member is ranked above a non-member; a half is chance. Over blind: less that of the "
            f"blind baseline, which has no model. Intervals: bootstrap over "
            f"{'texts' if evaluation.groups is None else 'groups'}, {numbers.count(evaluation.resamples)} resamples"
            f"{', and Wilson’s where all agree' if bound else ''}.{few}"
        ),
        words=2,
    )


def _between(measured: Measured) -> str:
    return "–".join(map(area, measured.interval))


def _over(measured: Measured | None) -> list[str]:
    if measured is None:
        return [numbers.MISSING, numbers.MISSING]
    low, high = measured.interval
    return [signed(measured.value), f"{signed(low)} to {signed(high)}"]


def thresholds(evaluation: Evaluation, *, intervals: bool) -> MemberTable:
    """What is found where few are accused wrongly. `intervals`: whether they stand beside the numbers."""
    columns: list[tuple[str, Callable[[Evaluated], Measured | None]]] = [
        ("TPR at 1% FPR", lambda row: row.tpr_1),
        ("TPR at 0.1% FPR", lambda row: row.tpr_01),
        ("precision", lambda row: row.precision),
        ("recall", lambda row: row.recall),
        (f"F {numbers.setting(evaluation.beta)}", lambda row: row.f_beta),
    ]
    few = [(name, least, fpr) for name, (least, fpr) in LEAST.items() if evaluation.non_members < least]
    lacking = {f"TPR at {fpr} FPR" for _, _, fpr in few}
    kept = [(name, of) for name, of in columns if name not in lacking]
    rows = [[title_of(row.name), *(_share(of(row), intervals=intervals) for _, of in kept)] for row in evaluation.rows]
    needs = "".join(
        f" TPR at {fpr} FPR needs {least:,} non-members; there are {numbers.count(evaluation.non_members)}."
        for _, least, fpr in few
    )
    where = "" if intervals else " Their intervals stand on the page."
    return MemberTable(
        "where few are accused wrongly",
        ("score", *(name for name, _ in kept)),
        rows,
        caption=(
            "TPR: the share of members found where at most so many of the non-members are taken for members. "
            "Precision, recall and F are at thresholds that were chosen on other texts; – where nothing is "
            "called a member."
            f"{needs}{where}"
        ),
    )


def _share(measured: Measured | None, *, intervals: bool) -> str:
    if measured is None:
        return numbers.MISSING
    shown = area(measured.value)
    return f"{shown} ({_between(measured)})" if intervals else shown


def meanings(manifest: MemberManifest) -> MemberTable:
    """What each score is, which direction means seen, and what it has to read."""
    asked = set(map(str, manifest.scores))
    rows = [[one.title, one.words, DIRECTION[one.name], NEEDS[one.needs]] for one in SCORES if one.name in asked]
    rows += [
        [title, words, "", "" if name != "combined" else "all that is read anyway"]
        for name, (title, words) in OTHERS.items()
    ]
    return MemberTable(
        "what the scores are",
        ("score", "what it is", "seen if", "reads"),
        rows,
        words=4,
    )


def weights(test: DatasetTest) -> MemberTable:
    """What the test of the whole weighs."""
    rows = [[title_of(str(name)), signed(weight)] for name, weight in test.weights.items()]
    return MemberTable(
        "what the test weighs",
        ("score", "weight"),
        rows,
        caption="Of standardised scores, turned so that large means seen; the mean over splits.",
    )


KINDS = {
    ("texts", True): "members",
    ("texts", False): "non-members",
    ("texts", None): "texts",
    ("held_out", None): "held-out texts",
}
"""What texts are called by their part and label."""


def kind_of(part: str, label: bool | None) -> str:
    return KINDS[str(part), label if part == "texts" else None]


QUANTILES = ("5%", "25%", "median", "75%", "95%")


def spread_table(summary: MemberSummary, *, whole: bool) -> MemberTable:
    """How each score lies over each kind of texts. `whole`: with its mean and every quantile."""
    step = 1 if whole else 2
    rows = [
        [
            title_of(str(one.score)), kind_of(one.part, one.label), numbers.count(one.texts),
            *([scored(one.mean)] if whole else []), *map(scored, one.quantiles[::step]),
        ]
        for one in summary.spreads
    ]  # fmt: skip
    return MemberTable(
        "how the scores lie",
        ("score", "of", "texts", *(["mean"] if whole else []), *QUANTILES[::step]),
        rows,
        caption="So many of the texts have a score of at most that.",
        words=2,
    )
