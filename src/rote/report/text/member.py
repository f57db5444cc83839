"""A membership run in words: how well scores tell members apart, what the texts alone tell, and what that proves."""

from __future__ import annotations

from collections.abc import Sequence

from rote.membership.scores import BY_NAME
from rote.odds import wilson
from rote.report.keys import key_of, keyed, mark
from rote.report.text import numbers
from rote.store.member import DatasetTest, Evaluated, Evaluation, Measured, MemberManifest, MemberSummary

ALPHA = 0.05
"""A p-value below it is small."""

OTHERS = {
    "combined": ("All together", "all scores, weighted as fits other texts best"),
    "blind": ("No model", "words, character n-grams, lengths and, where there are any, dates"),
    "random": ("Random", "each text is called a member with probability 1/2"),
    "majority": ("Majority", "all texts are called what most of them are"),
}
"""What is evaluated beside the scores: its title, and what it is."""

ALONE = (
    "Scores alone are no evidence: a text may be likely because it is plain, common or quoted elsewhere. Give texts of "
    "the same kind and time that the model cannot have seen (--held-out), or texts with labels."
)
NO_PROOF = "That is no evidence that the model did not see them: it may have, and these scores not show it."


def title_of(name: str) -> str:
    """What a score, or what stands beside the scores, is called."""
    return OTHERS[name][0] if name in OTHERS else BY_NAME[name].title


def scored(value: float | None) -> str:
    """The value of a score in three digits."""
    if value is None:
        return numbers.MISSING
    return mark(value, f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip("."), "number")


def area(value: float) -> str:
    """An AUROC, or another share that is told as a fraction: three digits, and only exactly 1 prints as 1."""
    if value in (0, 1) or value < 0.1:
        return mark(value, f"{value:#.3g}" if 0 < value < 1 else f"{value:.0f}", "number")
    digits = next((n for n in range(3, 9) if float(f"{value:.{n}f}") < 1), 9)
    return mark(value, f"{value:.{digits}f}", "number")


def between(interval: Sequence[float]) -> str:
    return f"{area(interval[0])} to {area(interval[1])}"


def signed(value: float) -> str:
    """A difference, in three digits."""
    return mark(value, f"{value:+#.3g}".rstrip(".") if value else "0", "number")


def with_interval(measured: Measured) -> str:
    return f"{area(measured.value)} (95% interval {between(measured.interval)})"


def row_of(evaluation: Evaluation, name: str) -> Evaluated:
    return next(row for row in evaluation.rows if row.name == name)


def listed(names: Sequence[str], last: str = "and") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


# --- what it comes to


def headline(summary: MemberSummary) -> str:
    evaluation, test = summary.evaluation, summary.test
    if evaluation is not None:
        best, blind = row_of(evaluation, evaluation.best), row_of(evaluation, "blind")
        found = f"AUROC {area(best.auroc.value)} ({between(best.auroc.interval)})"
        told = (
            f"No score is sure to tell members from non-members: {title_of(best.name)}, the best, has {found}"
            if _at_chance(best)
            else f"{title_of(best.name)} tells members from non-members with {found}"
        )
        return f"{told}; without any model, AUROC is {area(blind.auroc.value)} ({between(blind.auroc.interval)})."
    if test is not None:
        return (
            f"{numbers.counted(test.suspects, 'text')}, tested together against "
            f"{numbers.count(test.held_out)} held-out ones: p = {numbers.chance(test.p)}; without any model, "
            f"p = {numbers.chance(test.blind)}."
        )
    return f"{numbers.counted(summary.texts, 'text')} scored, which alone is no evidence that the model saw them."


def _at_chance(row: Evaluated) -> bool:
    """Whether its AUROC may be no better than chance."""
    return row.auroc.interval[0] <= 0.5


def lede(summary: MemberSummary) -> list[str]:
    """What the headline means; what speaks against it comes first."""
    evaluation, test = summary.evaluation, summary.test
    if evaluation is None and test is None:
        return [*(numbers.name(why) for why in (summary.not_evaluated, summary.not_tested) if why), ALONE]
    said = [] if evaluation is None else [confound(evaluation), picked(evaluation)]
    if evaluation is None and summary.not_evaluated:
        said.append(numbers.name(summary.not_evaluated))
    if test is not None:
        said.append(verdict(test, summary))
    elif summary.not_tested:
        said.append(f"The texts were not tested as a whole. {numbers.name(summary.not_tested)}")
    return said


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def picked(evaluation: Evaluation) -> str:
    """That the best score is the best of several, chosen afterwards."""
    scores = [row for row in evaluation.rows if row.name in BY_NAME]
    many = numbers.count(_counted(len(scores), "evaluation/scores", evaluation))
    return (
        f"{title_of(evaluation.best)} is the best of {many} scores, picked after looking: that flatters its AUROC, "
        "which the interval does not know of. A score that was chosen beforehand has no such gain."
    )


def _counted(number: int, key: str, evaluation: Evaluation) -> int:
    """A number that was counted here; with a key where the others have one."""
    return number if key_of(evaluation.members) is None else keyed(number, key)


def confound(evaluation: Evaluation) -> str:
    """How much of what the best score tells apart is told by the texts alone, and what is left of the evidence."""
    best, blind = row_of(evaluation, evaluation.best), row_of(evaluation, "blind")
    features = listed([numbers.name(feature) for feature in evaluation.blind.features])
    alone = f"{features} alone tell them apart with AUROC {with_interval(blind.auroc)}"
    over = best.over_blind
    differ = not _at_chance(blind)
    if _at_chance(best):
        parts = ["It is not certain that any score here tells members from non-members better than chance does."]
        parts += ["All point the other way: members surprise the model more."] if best.auroc.interval[1] < 0.5 else []
        parts += [f"Yet members and non-members differ by themselves: without any model, {alone}."] if differ else []
        return " ".join(parts)
    explained = blind.auroc.value >= best.auroc.value or over is None or over.interval[0] <= 0
    if explained and differ:
        return (
            f"Members and non-members differ by themselves: without any model, {alone}. No score here is evidence that "
            "the model saw anything beyond that."
        )
    if explained or over is None:
        said = "" if over is None else f" (by {_larger(over)})"
        return (
            f"It is not certain that {title_of(best.name)} tells more than the texts alone do{said}: without any "
            f"model, {alone}. These texts are too few to say; no score here is evidence yet."
        )
    more = f"{title_of(best.name)} tells more than that: its AUROC is larger by {_larger(over)}."
    if differ:
        return (
            f"Members and non-members differ by themselves, too: without any model, {alone}. That explains "
            f"{numbers.percent(evaluation.blind.explained)} of what the best score reaches above chance. {more}"
        )
    return (
        f"The texts alone do not tell members from non-members beyond chance: {features} have, without any model, "
        f"AUROC {with_interval(blind.auroc)}. {more} {unseen(evaluation.blind.features)}"
    )


def unseen(features: Sequence[str]) -> str:
    """What a baseline of such features cannot notice."""
    undated = "" if "dates" in features else "There are no dates, so it was not asked whether the two are of one time. "
    return f"{undated}What such features do not see can still differ."


def _larger(over: Measured) -> str:
    return f"{signed(over.value)}, 95% interval {signed(over.interval[0])} to {signed(over.interval[1])}"


def blind_words(evaluation: Evaluation) -> list[str]:
    """What the blind baseline is, what it explains, and what it goes by."""
    found, own = evaluation.blind, row_of(evaluation, "blind")
    features = listed([numbers.name(feature) for feature in found.features])
    said = [
        f"The blind baseline has no model: it is fitted on {features}, and evaluated as every score is. What is fitted "
        "for one part of the texts is fitted on the others.",
        f"Its AUROC is {with_interval(own.auroc)}"
        + (
            "."
            if found.explained is None
            else f": {numbers.percent(found.explained)} of what {title_of(evaluation.best)} reaches above chance."
        ),
    ]
    for names, kind in ((found.for_members, "members"), (found.for_non_members, "non-members")):
        if names:
            said.append(f"What speaks most for {kind}: {', '.join(numbers.name(name) for name in names)}.")
    return said


# --- the test of all texts together


def unreliable(test: DatasetTest) -> bool:
    """Whether the check on held-out texts alone found a difference more often than one in twenty by chance."""
    found = test.false_positives
    return any(wilson(count, found.trials)[0] > ALPHA for count in (found.single, found.combined))


def verdict(test: DatasetTest, summary: MemberSummary) -> str:
    """What the p-value says, and whether it says it about the model at all."""
    small = test.p < ALPHA
    p = f"p = {numbers.chance(test.p)}"
    if test.blind < ALPHA:
        return (
            f"The held-out texts are not of the same distribution as the suspect ones: without any model, the test of "
            f"the whole gives p = {numbers.chance(test.blind)}. So its {p} proves nothing about the model. Held-out "
            "texts of the same kind and time are needed."
        )
    if unreliable(test):
        return f"The test of the whole gives {p}, but is not to be relied on here: {_lowered(check(test))}"
    if not small:
        return (
            f"As a whole, the suspect texts are not likelier to the model than held-out ones beyond chance: {p}. "
            f"{NO_PROOF}"
        )
    if summary.evaluation is not None and not summary.held_out and not _at_chance(row_of(summary.evaluation, "blind")):
        return (
            f"As a whole, the suspect texts are likelier to the model than held-out ones: {p}. But they are the "
            "members and the non-members, which differ by themselves, if not enough for the same test without any "
            f"model to say so (p = {numbers.chance(test.blind)}): the p-value by itself is no evidence that the model "
            "saw them."
        )
    return (
        f"As a whole, the suspect texts are likelier to the model than held-out ones: {p}. The texts alone do not tell "
        f"the two apart beyond chance (p = {numbers.chance(test.blind)} without any model). If they are of the same "
        "kind and time, this is evidence that the model saw suspect texts, though not which. "
        f"{unseen(test.features)}"
    )


def sides(manifest: MemberManifest, summary: MemberSummary) -> str:
    """Which texts are tested against which."""
    held_out = manifest.held_out
    others = "the non-members" if held_out is None else numbers.name(held_out.name)
    whole = " All of them, also those without a match." if manifest.match else ""
    return f"Suspect: {'the members' if summary.members else 'all texts'}; held out: {others}.{whole}"


def difference(test: DatasetTest) -> str:
    """How large it is, and what the p-value is a probability of."""
    return (
        f"Weighted by what tells them apart in one half, the scores of the other half of the "
        f"{numbers.counted(test.suspects, 'suspect text')} differ from those of the {numbers.count(test.held_out)} "
        f"held-out ones by {signed(test.difference)} deviations (the median of {numbers.count(test.splits)} splits; "
        "above 0, the suspect ones are likelier). If the "
        "suspect texts were as new to the model as the held-out ones, and of the same kind, a p-value as small as "
        f"{numbers.chance(test.p)} would come up with at most that probability."
    )


def check(test: DatasetTest) -> str:
    """How often the same test finds a difference where there is none."""
    found = test.false_positives
    trials = numbers.count(found.trials)
    said = (
        f"On held-out texts alone, dealt at random into suspects and others, it finds a difference (p below 5%) in "
        f"{numbers.count(found.combined)} of {trials} trials, and a single split in {numbers.count(found.single)} of "
        f"{trials}; one in twenty may, by chance."
    )
    return f"{said} That is too often." if unreliable(test) else said


def blind_check(test: DatasetTest) -> str:
    """The same test without a model."""
    meaning = (
        "They differ by themselves, so that a small p-value proves nothing about the model."
        if test.blind < ALPHA
        else "So these do not show that they differ by themselves."
    )
    features = listed([numbers.name(feature) for feature in test.features])
    return f"The same test on {features}, without any model: p = {numbers.chance(test.blind)}. {meaning}"
