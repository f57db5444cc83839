"""What a probe cost, and what it was expected to: questions, tokens and dollars, by model."""

from __future__ import annotations

from collections.abc import Sequence

from rote.report.keys import derived
from rote.report.text import numbers
from rote.report.text.membertables import MemberTable
from rote.report.text.probe import ROLES
from rote.store.probe import Estimate, ProbeManifest, ProbeSummary, Role


def cost(summary: ProbeSummary) -> str:
    """Questions and money, over all models."""
    first = summary.spent[0].questions if summary.spent else None
    asked = derived(sum(one.questions for one in summary.spent), "spent/questions", first)
    known = derived(sum(one.known for one in summary.spent), "spent/known", first)
    paid = [one.cost for one in summary.spent if one.cost is not None]
    lost = [one.lost for one in summary.spent if one.lost]
    parts = [f"{numbers.counted(asked, 'question')}, {numbers.count(known)} of them answered before"]
    parts.append(numbers.dollars(derived(sum(paid), "spent/cost", first)) if paid else "no price is known")
    more = numbers.dollars(derived(sum(lost), "spent/lost", first))
    parts += [f"at most {more} more for attempts without an answer"] if lost else []
    return f"{'; '.join(parts)}; {numbers.duration(summary.seconds)}"


def model_name(manifest: ProbeManifest, role: Role, place: int) -> str:
    """The chat model of a role."""
    others = {"paraphrase": manifest.paraphraser, "slot": manifest.picker}
    several = {"target": manifest.targets, "filter": manifest.filters}
    found = several[str(role)][place] if role in several else others[str(role)]
    return numbers.MISSING if found is None else numbers.title(found)


def spent(manifest: ProbeManifest, summary: ProbeSummary) -> MemberTable:
    """What each chat model was asked, and what that cost; beside it what was expected."""
    rows = []
    for place, one in enumerate(summary.spent):
        own = [each.cost for each in summary.estimates if (each.role, each.model) == (one.role, one.model)]
        known = [cost for cost in own if cost is not None]
        expected = derived(sum(known), f"spent/{place}/expected", one.questions) if known else None
        rows.append(
            [
                model_name(manifest, one.role, one.model), ROLES[str(one.role)], numbers.count(one.questions),
                numbers.count(one.known), numbers.count(one.prompt_tokens), numbers.count(one.answer_tokens),
                numbers.dollars(one.cost), numbers.dollars(one.lost),
                numbers.dollars(expected),
            ]
        )  # fmt: skip
    first = summary.spent[0].questions if summary.spent else None
    uncounted = derived(sum(one.uncounted for one in summary.spent), "spent/uncounted", first)
    missing = (
        f" {numbers.counted(uncounted, 'answer')} came without a count of tokens; their cost is not in it."
        if uncounted
        else ""
    )
    return MemberTable(
        "what it cost",
        (
            "model", "role", "questions", "known before", "tokens read", "tokens written", "cost", "lost at most",
            "expected",
        ),
        rows,
        caption=(
            "Tokens as the servers count them. Known before: answers that were in the store already and cost nothing "
            "now. Lost at most: what attempts without an answer may have cost. Expected: before anything was asked, at "
            f"the longest answers. – where no price is known.{missing}"
        ),
        words=2,
    )  # fmt: skip


def estimates(found: Sequence[Estimate]) -> MemberTable:
    """What will be asked, or was to be, and what that may cost."""
    rows = [
        [
            numbers.name(one.name), ROLES[str(one.role)],
            numbers.name(one.method), numbers.count(one.questions),
            numbers.count(one.known), numbers.count(one.prompt_tokens), numbers.count(one.answer_tokens),
            numbers.dollars(one.cost), numbers.dollars(one.formula),
        ]
        for one in found
    ]  # fmt: skip
    return MemberTable(
        "what it may cost",
        ("model", "role", "method", "questions", "known", "tokens to read", "to write", "cost", "by formula"),
        rows,
        caption=(
            "From the prompts themselves, at four characters a token, and the longest answers that are allowed. Known: "
            "answers in the store, which cost nothing again. By formula: that of the paper, for the same passages."
        ),
        words=3,
    )


def total(found: Sequence[Estimate]) -> str:
    """What all of it may cost, in a sentence."""
    asked = sum(one.questions - one.known for one in found)
    known = [one.cost for one in found if one.cost is not None]
    if not known:
        return f"{numbers.counted(asked, 'question')} to ask; no price is known."
    more = "" if len(known) == len(found) else ", and what is asked of models without a price"
    return f"{numbers.counted(asked, 'question')} to ask, for at most {numbers.dollars(sum(known))}{more}."
