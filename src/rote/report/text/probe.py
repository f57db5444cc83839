"""Probes of chat models in words: how many passages were flagged, what that is worth, and what it does not say."""

from __future__ import annotations

from rote.membership.scores import BY_NAME
from rote.probes.options import Outcome
from rote.report.keys import derived, mark
from rote.report.text import numbers
from rote.report.text.member import area, between, listed, scored
from rote.store.member import Measured
from rote.store.probe import Judged, Probed, ProbeEvaluation, ProbeManifest, ProbeSummary

TITLES = {
    "prob": "Probability",
    "rank": "Rank",
    "person": "Names",
    "content": "Content words",
    "number": "Numbers",
    "rare": "Rare words",
    "slot": "Slot",
    "prefix": "Prefix",
    "decop": "DE-COP",
    "random": "Random",
    "majority": "Majority",
}
"""What methods are called, and what stands beside them."""

MEANINGS = {
    "prob": "words that the reference finds least likely where they stand, asked for one by one",
    "rank": "words before which the reference would put the most others, asked for one by one",
    "person": "names of people, asked for one by one",
    "content": "content words, asked for one by one",
    "number": "numbers, asked for one by one",
    "rare": "words of the rarest three-word runs of a corpus, asked for one by one",
    "slot": "the one word that a chat model takes for the most telling",
    "prefix": "the model goes on with the beginning; score: words in the longest common subsequence with the truth",
    "decop": "the model picks the original among three paraphrases, in all orders; score: the share of orders with it",
    "random": "each passage is flagged with probability 1/2",
    "majority": "all passages are called what most of them are",
}

ROLES = {"target": "target", "filter": "filter", "paraphrase": "paraphrases", "slot": "picks words"}

OUTCOMES: dict[Outcome, str] = {
    "hit": "the word came back",
    "miss": "another word came back",
    "refusal": "the model would not say",
    "empty": "nothing came back",
    "malformed": "no word could be read out of the answer",
    "error": "there was no answer",
}
"""What each outcome of a question means."""

UNGUESSED = (
    "A word that comes back shows that the model saw the passage only as far as the word cannot be guessed: from what "
    "stands around it, or from knowing the world."
)
NO_PROOF = "A passage that is not flagged may have been seen all the same."


def title_of(name: str) -> str:
    """What a method is called."""
    if name.startswith("member:"):
        score = name.removeprefix("member:")
        return f"Member: {BY_NAME[score].title if score in BY_NAME else numbers.literal(score)}"
    selector, *ways = str(name).split("+")
    said = {"filter": "filtered", "class": "content words"}
    return ", ".join([TITLES.get(selector, numbers.literal(selector)), *(said.get(way, way) for way in ways)])


def meaning_of(name: str) -> str:
    """What a method does."""
    if name.startswith("member:"):
        return "a score of a run of rote member over the same texts"
    selector, *ways = str(name).split("+")
    said = {"filter": "without words that a filter guessed", "class": "nouns, verbs, adjectives and adverbs alone"}
    return "; ".join([MEANINGS.get(selector, ""), *(said.get(way, way) for way in ways)])


def rate(measured: Measured | None) -> str:
    """A share with its interval."""
    if measured is None:
        return numbers.MISSING
    low, high = measured.interval
    return f"{numbers.percent(measured.value)} ({numbers.percent(low)}–{numbers.percent(high)})"


def share_with_interval(measured: Measured) -> str:
    low, high = measured.interval
    return f"{numbers.percent(measured.value)} (95% interval {numbers.percent(low)} to {numbers.percent(high)})"


def target_name(manifest: ProbeManifest, place: int) -> str:
    return numbers.title(manifest.targets[place])


def main(summary: ProbeSummary, target: int = 0) -> Probed:
    """What is told first of a target: its first method that flags anything at all, filtered where there is a filter."""
    own = [one for one in summary.probed if one.target == target]
    best = [one for one in own if one.name.endswith("+filter") and one.flagged is not None]
    return next(iter([*best, *(one for one in own if one.flagged is not None), *own]))


def judged_of(evaluation: ProbeEvaluation, name: str) -> Judged | None:
    return next((row for row in evaluation.rows if row.name == name), None)


# --- what it comes to


def headline(manifest: ProbeManifest, summary: ProbeSummary) -> str:
    first, model = main(summary), target_name(manifest, 0)
    texts = numbers.counted(first.texts if first.flagged is None else first.judged, "passage")
    if first.flagged is None:
        return f"{texts} asked about, none flagged or cleared: {_mean(first, model)}"
    return f"{numbers.count(first.flagged)} of {texts} flagged: {_flagged(first, manifest, model)}"


def _flagged(first: Probed, manifest: ProbeManifest, model: str) -> str:
    if first.method == "prefix":
        return f"{model} went on with them as they do, by more words than was set on other texts."
    if first.method == "decop":
        return f"{model} picked the original among paraphrases in more orders than was set on other texts."
    if first.method == "slot":
        return f"the word asked for came back from {model}."
    if manifest.hits is None:
        return f"as many of their words came back from {model} as was set on other texts, or more."
    return f"at least {numbers.count(manifest.hits)} of their words came back from {model}."


def _mean(first: Probed, model: str) -> str:
    mean = scored(first.mean)
    if first.method == "prefix":
        return f"on average {mean} words of what follows came back from {model}, and no threshold was set."
    if first.method == "decop":
        picked = numbers.percent(first.mean)
        return f"{model} picked the original in {picked} of the orders on average, and no threshold was set."
    share = None if first.hit_rate is None else first.hit_rate.value
    return f"{numbers.percent(share)} of the words came back from {model}."


def lede(manifest: ProbeManifest, summary: ProbeSummary) -> list[str]:
    """What the headline means; what speaks against it comes first."""
    first = main(summary)
    said = [guessing(manifest, summary)] if first.value == "hits" else []
    evaluation = next((one for one in summary.evaluations if one.target == 0), None)
    if evaluation is None:
        why = numbers.name(summary.not_evaluated) if summary.not_evaluated else ""
        unknown = (
            "How many passages that the model never saw would be flagged as well is not known: give texts with labels, "
            "and some that it cannot have seen among them."
        )
        return [*said, " ".join(filter(None, [why, unknown])), NO_PROOF]
    said.append(base_rate(evaluation, first))
    said.append(best(evaluation))
    return [*said, NO_PROOF]


def guessing(manifest: ProbeManifest, summary: ProbeSummary) -> str:
    """What a word that comes back shows, and what was done about words that can be guessed."""
    if not summary.filters:
        return (
            f"{UNGUESSED} No other model was asked which words can be guessed (--filter), so some of these may be "
            "guesses."
        )
    names = listed([numbers.title(manifest.filters[one.filter]) for one in summary.filters])
    kept = "were asked for too, and are told apart" if manifest.unfiltered else "were not asked for"
    what = "a model that is" if len(summary.filters) == 1 else "models that are"
    return (
        f"{UNGUESSED} Words that {names} guessed {kept}; {what} weaker than the probed one leaves words that "
        "the probed one can guess."
    )


def base_rate(evaluation: ProbeEvaluation, first: Probed) -> str:
    """How often passages that were not seen are flagged."""
    row = judged_of(evaluation, first.name)
    if row is None or row.false_positives is None or row.true_negatives is None:
        return "How often passages that were not seen are flagged is not known."
    unseen = derived(row.false_positives + row.true_negatives, f"base/{evaluation.target}/unseen", row.false_positives)
    words = ""
    if first.by_label is not None and "non-member" in first.by_label:
        unseen_rate = share_with_interval(first.by_label["non-member"])
        words = f"; {unseen_rate} of " + (
            "what follows in them came back" if first.value == "words" else "the answers about them were hits"
        )
    return (
        f"The base rate: of {numbers.counted(unseen, 'passage')} that the model had not seen, "
        f"{numbers.count(row.false_positives)} {'was' if row.false_positives == 1 else 'were'} flagged by "
        f"{title_of(first.name)}{words}. What is flagged among others is to be held against that."
    )


def best(evaluation: ProbeEvaluation) -> str:
    """The method with the best F-beta, against what chance has."""
    beside = ("random", "majority", "member:")
    methods = [row for row in evaluation.rows if not row.name.startswith(beside)]
    row = max(methods, key=lambda one: one.f_beta.value)
    chance = judged_of(evaluation, "random")
    if row.precision is None or chance is None or chance.precision is None:
        return f"No method flagged any of {numbers.counted(_texts(evaluation), 'labelled passage')}."
    many = numbers.count(derived(len(methods), f"evaluations/{evaluation.target}/methods", evaluation.members))
    sure = row.precision.interval[0] > chance.precision.value
    picked = f" It is the best of {many}, picked after looking, which flatters it." if len(methods) > 1 else ""
    told = (
        f"precision {area(row.precision.value)} ({between(row.precision.interval)}), recall {area(row.recall.value)} "
        f"({between(row.recall.interval)}); flagging at random, precision is {area(chance.precision.value)}"
    )
    if not sure:
        unsure = "No method is sure to be better than flagging at random"
        return f"{unsure}: {title_of(row.name)}, the best, has {told}.{picked}"
    return f"{title_of(row.name)} has {told}.{picked}"


def _texts(evaluation: ProbeEvaluation) -> int:
    return derived(
        evaluation.members + evaluation.non_members, f"evaluations/{evaluation.target}/texts", evaluation.members
    )


def rule(manifest: ProbeManifest) -> str:
    """How answers were matched; it stands beside every result."""
    return mark(manifest.rule, numbers.literal(manifest.rule), "text")


def subset(evaluation: ProbeEvaluation) -> str:
    """Which texts methods are compared on, and where their thresholds come from."""
    texts = (
        f"All rows are on the same passages: {numbers.counted(evaluation.members, 'member')} and "
        f"{numbers.counted(evaluation.non_members, 'non-member')} that every method has a score for."
    )
    left = [
        f"{numbers.count(count)} without one by {title_of(name)}"
        for name, count in evaluation.left_out.items()
        if count
    ]
    left += [f"{numbers.count(evaluation.unlabelled)} without a label"] if evaluation.unlabelled else []
    said = [texts, f"Left out: {', '.join(left)}." if left else ""]
    if evaluation.validation:
        chosen = numbers.counted(evaluation.validation, "passage")
        said.append(f"Thresholds were chosen on {chosen} that are not among them.")
    elif evaluation.parts is not None:
        groups = "" if evaluation.groups is None else f" by {numbers.counted(evaluation.groups, 'group')}"
        said.append(
            f"They were dealt into {numbers.counted(evaluation.parts, 'part')}{groups}; each part is judged by "
            "thresholds chosen on the others."
        )
    return " ".join(filter(None, said))


def bias(summary: ProbeSummary, manifest: ProbeManifest) -> list[str]:
    """How far answers to DE-COP went by the letter alone."""
    return [
        f"{target_name(manifest, one.target)}: the letter picked most and the one picked least lie "
        f"{numbers.percent(one.bias)} of the answers apart; "
        + (f"{numbers.counted(one.none, 'answer')} named none." if one.none else "every answer named one.")
        for one in summary.positions
    ]
