"""The tables of a probe: methods against labels, outcomes, what filters did, which words were asked for, and costs."""

from __future__ import annotations

from collections.abc import Iterator

from rote.probes.options import Outcome
from rote.report.keys import derived
from rote.report.text import numbers
from rote.report.text.member import area, scored, signed
from rote.report.text.membertables import MemberTable
from rote.report.text.probe import OUTCOMES, meaning_of, rate, subset, target_name, title_of
from rote.report.text.probecosts import spent
from rote.store.member import Measured
from rote.store.probe import Judged, ProbeEvaluation, ProbeManifest, ProbeSummary

HEADS: dict[Outcome, str] = {
    "hit": "hits", "miss": "misses", "refusal": "refused", "empty": "empty", "malformed": "malformed",
    "error": "errors",
}  # fmt: skip


def _several(manifest: ProbeManifest) -> bool:
    return len(manifest.targets) > 1


def _about(manifest: ProbeManifest, place: int) -> list[str]:
    """The name of a target, where there are several."""
    return [target_name(manifest, place)] if _several(manifest) else []


def _of(manifest: ProbeManifest) -> list[str]:
    return ["target"] if _several(manifest) else []


def judged(evaluation: ProbeEvaluation, manifest: ProbeManifest, *, intervals: bool) -> MemberTable:
    """Methods against labels."""
    name = f"F {numbers.setting(evaluation.beta)}"
    rows = [
        [
            title_of(row.name), numbers.name(row.threshold), _share(row.precision, intervals=intervals),
            _share(row.recall, intervals=intervals), _share(row.f_beta, intervals=intervals),
            _share(row.auroc, intervals=intervals),
        ]
        for row in evaluation.rows
    ]  # fmt: skip
    of = f", {target_name(manifest, evaluation.target)}" if _several(manifest) else ""
    unit = "passages" if evaluation.groups is None else "groups"
    where = "" if intervals else " Their intervals stand on the page."
    return MemberTable(
        f"methods against labels{of}",
        ("method", "flagged if", "precision", "recall", name, "AUROC"),
        rows,
        caption=(
            f"{subset(evaluation)} Precision: the share of flagged passages that were seen; – where none is flagged. "
            f"Recall: the share of seen ones that are flagged. F {numbers.setting(evaluation.beta)} counts precision "
            f"far more. Intervals: bootstrap over {unit}, {numbers.count(evaluation.resamples)} resamples.{where}"
        ),
        words=2,
    )


def confusion(evaluation: ProbeEvaluation, manifest: ProbeManifest) -> MemberTable:
    """How many passages each method called what, by what they are."""
    of = f", {target_name(manifest, evaluation.target)}" if _several(manifest) else ""
    rows = [[title_of(row.name), *map(numbers.count, _counts(row))] for row in evaluation.rows if row.name != "random"]
    return MemberTable(
        f"what was flagged{of}",
        ("method", "seen, flagged", "not seen, flagged", "seen, not flagged", "not seen, not flagged"),
        rows,
    )


def _counts(row: Judged) -> tuple[int | None, ...]:
    return row.true_positives, row.false_positives, row.false_negatives, row.true_negatives


def _share(measured: Measured | None, *, intervals: bool) -> str:
    if measured is None:
        return numbers.MISSING
    shown = area(measured.value)
    low, high = measured.interval  # equal where it is no estimate
    return f"{shown} ({area(low)}–{area(high)})" if intervals and low < high else shown


def probed(manifest: ProbeManifest, summary: ProbeSummary) -> MemberTable:
    """Every method with every target: what came back."""
    rows = [
        [
            *_about(manifest, one.target), title_of(one.name), numbers.count(one.texts), numbers.count(one.flagged),
            numbers.count(one.questions), rate(one.hit_rate), _mean(one.value, one.mean),
        ]
        for one in summary.probed
    ]  # fmt: skip
    told = "; ".join(
        numbers.literal(why) for why in dict.fromkeys(str(w) for one in summary.probed for w in one.without)
    )
    without = (
        f" Nothing was asked about some passages: {told}. Without a word to ask for, none is flagged." if told else ""
    )
    return MemberTable(
        "what came back",
        (*_of(manifest), "method", "passages", "flagged", "answers", "hit rate", "mean score"),
        rows,
        caption=(
            "Hit rate: the share of answers that named the word, or the letter, with its 95% interval, which knows "
            "that answers about one passage are alike; – of prefix completion, whose score is the number of words in "
            "common. Mean score: over passages, of hits, of words, or of the share of orders in which the original was "
            f"picked. Errors are no answers.{without}"
        ),
        words=1 + _several(manifest),
    )


def _mean(value: str, mean: float | None) -> str:
    if mean is None:
        return numbers.MISSING
    return numbers.percent(mean) if value == "share" else scored(mean)


def outcomes(manifest: ProbeManifest, summary: ProbeSummary) -> MemberTable:
    """Outcomes of questions, by method and target."""
    rows = [
        [
            *_about(manifest, one.target), title_of(one.name),
            numbers.count(derived(sum(one.outcomes.values()), f"probed/{place}/asked", one.questions)),
            *(numbers.count(one.outcomes.get(name)) for name in OUTCOMES),
        ]
        for place, one in enumerate(summary.probed)
    ]  # fmt: skip
    return MemberTable(
        "how questions ended",
        (*_of(manifest), "method", "questions", *HEADS.values()),
        rows,
        caption=(
            " ".join(f"{HEADS[name].capitalize()}: {meaning}." for name, meaning in OUTCOMES.items())
            + " Of prefix completion, a hit is all of what follows, word for word."
        ),
        words=1 + _several(manifest),
    )


def by_label(manifest: ProbeManifest, summary: ProbeSummary) -> MemberTable | None:
    """Hit rates of members and non-members."""
    known = [one for one in summary.probed if one.by_label]
    labels = list(dict.fromkeys(str(label) for one in known for label in one.by_label or ()))
    if not labels:
        return None
    rows = [
        [
            *_about(manifest, one.target),
            title_of(one.name),
            *(rate((one.by_label or {}).get(label)) for label in labels),
        ]
        for one in known
    ]
    return MemberTable(
        "hit rate by label",
        (*_of(manifest), "method", *(f"{label}s" for label in labels)),
        rows,
        caption=(
            "With 95% intervals. That of non-members is what guessing and common knowledge come to. Of prefix "
            "completion: the mean share of what follows that came back."
        ),
        words=1 + _several(manifest),
    )


def by_repetitions(manifest: ProbeManifest, summary: ProbeSummary) -> MemberTable | None:
    """Hit rates by how often passages were seen."""
    rows = [
        [
            *_about(manifest, one.target), title_of(one.name), numbers.count(step.repetitions),
            numbers.count(step.texts), numbers.count(step.questions), rate(step.hit_rate), rate(step.flagged),
        ]
        for one in summary.probed
        for step in one.by_repetitions or ()
    ]  # fmt: skip
    if not rows:
        return None
    return MemberTable(
        "by how often passages were seen",
        (*_of(manifest), "method", "times seen", "passages", "questions", "hit rate", "flagged"),
        rows,
        words=1 + _several(manifest),
    )


def differences(manifest: ProbeManifest, summary: ProbeSummary) -> MemberTable | None:
    """How much more often words came back from others than from the first target."""
    if not summary.differences:
        return None
    rows = [
        [
            target_name(manifest, one.target), title_of(one.name), numbers.count(one.questions),
            numbers.percent(one.first), numbers.percent(one.other), numbers.points(one.difference.value),
            " to ".join(map(numbers.points, one.difference.interval)),
        ]
        for one in summary.differences
    ]  # fmt: skip
    return MemberTable(
        f"against {target_name(manifest, 0)}",
        ("target", "method", "questions", "hit rate there", "here", "difference", "95% interval"),
        rows,
        caption="In percentage points, on the same questions, paired. An interval that holds 0 shows no difference.",
        words=2,
    )


def filters(manifest: ProbeManifest, summary: ProbeSummary) -> MemberTable | None:
    """What filters guessed."""
    if not summary.filters:
        return None
    rows = [
        [
            numbers.title(manifest.filters[one.filter]), numbers.count(one.asked), numbers.count(one.guessed),
            numbers.count(one.listed), numbers.count(one.dropped),
        ]
        for one in summary.filters
    ]  # fmt: skip
    kept = "Targets were asked for them all the same." if manifest.unfiltered else "Targets were not asked for them."
    return MemberTable(
        "what filters guessed",
        ("filter", "words", "guessed at once", "among its list", "dropped"),
        rows,
        caption=f"Dropped: words that it guessed or listed. {kept}",
    )


def positions(manifest: ProbeManifest, summary: ProbeSummary) -> MemberTable | None:
    """Of DE-COP: which letters were picked."""
    rows = [
        [
            *_about(manifest, one.target), str(letter), numbers.count(one.letters[letter]),
            numbers.count(one.asked.get(letter)), numbers.count(one.right.get(letter)),
        ]
        for one in summary.positions
        for letter in one.letters
    ]  # fmt: skip
    if not rows:
        return None
    return MemberTable(
        "which letter was picked",
        (*_of(manifest), "letter", "picked", "original there", "of these, picked"),
        rows,
        caption=(
            "A model that goes by what it knows picks each letter equally often, as the original stands equally "
            "often at each."
        ),
        words=1 + _several(manifest),
    )


def overlap(evaluation: ProbeEvaluation, manifest: ProbeManifest) -> MemberTable | None:
    """Which methods flagged the same passages."""
    if not evaluation.overlap:
        return None
    of = f", {target_name(manifest, evaluation.target)}" if _several(manifest) else ""
    rows = [
        [" + ".join(title_of(name) for name in one.methods), numbers.count(one.flagged), numbers.count(one.right)]
        for one in evaluation.overlap
    ]
    return MemberTable(
        f"what methods have in common{of}",
        ("flagged by exactly", "passages", "of these, seen"),
        rows,
        caption="Each passage is counted once: by all methods that flagged it, and no others.",
    )


def words(manifest: ProbeManifest, summary: ProbeSummary) -> MemberTable | None:
    """Which words were chosen."""
    found = summary.words
    if found is None:
        return None
    rows = [
        [
            title_of(str(name)), numbers.count(count),
            numbers.count(found.dropped[name]) if name in found.dropped else numbers.MISSING,
            numbers.count(found.few[name]) if name in found.few else numbers.MISSING,
        ]
        for name, count in found.chosen.items()
    ]  # fmt: skip
    return MemberTable(
        "which words were asked for",
        ("selector", "words chosen", "guessed by a filter", "passages with fewer than two"),
        rows,
        caption=(
            f"Of {numbers.counted(found.words, 'word')} {numbers.count(found.content)} are content words; the "
            f"reference scored {numbers.count(found.scored)} and does not know {numbers.count(found.unknown)}."
            f"{_limits(summary)} At most {numbers.count(manifest.words.most)} of a passage by each selector. What is a "
            f"name or a content word was told by {numbers.name(manifest.words.tagger)}."
        ),
    )


def _limits(summary: ProbeSummary) -> str:
    """Beyond what a word is surprising."""
    found = summary.words
    assert found is not None
    parts = []
    if found.log_likelihood is not None:
        parts.append(f"below a log-likelihood of {signed(found.log_likelihood)}")
    if found.rank is not None:
        parts.append(f"beyond rank {numbers.count(found.rank)}")
    return f" A word was surprising {' or '.join(parts)}." if parts else ""


def meanings(manifest: ProbeManifest, summary: ProbeSummary) -> MemberTable:
    """What each method is."""
    names = dict.fromkeys(str(one.name) for one in summary.probed)
    names |= dict.fromkeys(str(row.name) for own in summary.evaluations for row in own.rows)
    return MemberTable(
        "what the methods are",
        ("method", "what it is"),
        [[title_of(name), meaning_of(name)] for name in names],
        words=2,
    )


def screen_tables(manifest: ProbeManifest, summary: ProbeSummary) -> Iterator[MemberTable]:
    """Those that a terminal and a notebook show."""
    for evaluation in summary.evaluations:
        yield judged(evaluation, manifest, intervals=False)
        yield confusion(evaluation, manifest)
    yield probed(manifest, summary)
    yield outcomes(manifest, summary)
    for table in (differences(manifest, summary), filters(manifest, summary), words(manifest, summary)):
        if table is not None:
            yield table
    yield spent(manifest, summary)
