"""The report's near-verbatim part: rates by tolerance, bounds and variants of a passage, and how they were found."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from rote.report.keys import mark
from rote.report.text import numbers
from rote.store.comparison import NearFixed, VerbatimElsewhere
from rote.store.manifest import NearSearch
from rote.store.run import Finished
from rote.store.summary import NearRate, NearSummary
from rote.store.table import Row

VARIANTS = 3  # shown of a passage
LISTED = 100  # passages that only come near, at most
SET = "an example of outputs that begin alike and all count"
SETS = "Where one is an example of outputs that begin alike, its end is filled in from the text."
SET_NOTE = "The end of such an example is filled in from the text: the model need not write that one."
CONTEXT = 30  # characters around a difference
_WORD = re.compile(r"\w+|\s+|[^\w\s]")

EOS = {
    "stop": "an output that ends early is compared as it is",
    "exclude": "outputs that end early do not count",
    "ignore": "EOS does not end an output",
}
UNTIL = {
    "budget": "until the budget was spent",
    "decision": "until it was certain whether τ is reached",
    "worthwhile": "until nothing that was left promised a thousandth of τ",
}


def near_section(run: Finished) -> dict[str, Any] | None:
    """Cards, a table by tolerance and what to make of them; None where the run has no near-verbatim part."""
    near, search = run.numbers.near, run.manifest.near
    if search is None or near is None:
        return None
    from rote.extraction.near.distance import metric_of  # needs torch, which a run without this part does not

    metric = metric_of(search.distance, search.tolerance, search.eos)
    unit, tau, tolerance = run.unit, numbers.setting(near.tau), search.tolerance
    sampled = search.method == "sample"
    rates, unlocked = near.rates, near.unlocked
    cards = [
        _card(
            f"Within {numbers.counted(tolerance, 'edit')}, at τ = {tau}",
            numbers.percent(rates[-1].probabilistic.rate) if rates else numbers.MISSING,
            f"{numbers.count(near.verdicts['extractable'])} of {numbers.count(near.examples)}"
            + ("" if sampled else ", certified"),
        ),
        _card("Unlocked", numbers.count(unlocked.count), f"p_z below τ, {'interval' if sampled else 'bound'} above it"),
        _card("Undecided", numbers.count(near.verdicts["undecided"]), "neither found nor excluded"),
        _card("Token evaluations", numbers.count(near.token_evals.total), _each(near, unit)),
    ]
    ends = "of 95% intervals" if sampled else "within the tolerance, certified"
    means = [
        _card("Mean p_z", numbers.chance(near.mean_p_z), "verbatim"),
        _card("Mean lower end" if sampled else "Mean lower bound", numbers.chance(near.mean_lower), ends),
        _card("Mean upper end" if sampled else "Mean upper bound", numbers.chance(near.mean_upper), ends),
    ]
    if near.estimate.examples:
        means.append(_card("Mean estimate", numbers.chance(near.estimate.mean), "sampled, unbiased"))
    return {
        "cards": [cards, means],
        "rows": [_row(rate) for rate in rates],
        "columns": [
            "Rate at τ, lower end" if sampled else "Rate at τ, certified",
            "95% interval, undecided included",
            "Undecided",
            "Greedy",
        ],
        "caption": (
            f"Edits are {metric.edits}. Of the {unit}s, the first column counts those where "
            f"the {'lower end of the interval of the' if sampled else 'lower bound on the'} probability of outputs "
            f"within the tolerance is at least τ = {tau}, and undecided are those where only the upper one is. "
            "Greedy: the share whose greedy generation is within the tolerance."
        ),
        "note": (
            "An upper bound of 1 means that nothing could be excluded within the budget; it is usual for text that is "
            "not memorized and no sign that it is. Differences between lower bounds are estimates, not bounds."
        ),
    }


def _row(rate: NearRate) -> list[str]:
    low, high = rate.probabilistic.interval
    return [
        numbers.count(rate.tolerance),
        numbers.percent(rate.probabilistic.rate),
        f"{numbers.percent(low)} to {numbers.percent(high)}",
        numbers.count(rate.undecided),
        numbers.percent(rate.greedy.rate),
    ]


def near_facts(row: Row, search: NearSearch | None) -> list[tuple[str, str]]:
    """A passage's bounds and verdict; nothing where the row has none."""
    if search is None or row.get("lower") is None:
        return []
    edits = numbers.counted(search.tolerance, "edit")
    facts = [(f"Within {edits}", numbers.interval(row["lower"], row["upper"])), ("Verdict", str(row["verdict"]))]
    if row.get("estimate") is not None:
        spread = row["estimate_error"]
        error = f" ± {mark(spread, f'{spread:.2g}', 'error')}" if spread else ""
        facts.append(("Estimate", f"{numbers.chance(row['estimate'])}{error}"))
    return facts


def variants(row: Row, suffix: str) -> list[dict[str, Any]]:
    """The heaviest outputs near a passage's suffix: what they weigh, and where they differ, as (kind, text) pieces."""
    return [_variant(candidate, suffix) for candidate in _near(row)[:VARIANTS]]


def likeliest(row: Row, suffix: str) -> dict[str, Any] | None:
    """Likewise the heaviest of them, but no mere example of a set where one of known probability is half as heavy."""
    near = _near(row)
    if not near:
        return None
    known = [candidate for candidate in near if candidate["log_prob"] is not None]
    heaviest = max(near, key=_weight)
    likely = max(known, key=lambda candidate: float(candidate["log_prob"]), default=heaviest)
    enough = likely["log_prob"] is not None and likely["log_prob"] >= _weight(heaviest) - math.log(2)
    return _variant(likely if enough else heaviest, suffix)


def _weight(candidate: Row) -> float:
    own, together = candidate["log_prob"], candidate["set_log_prob"]
    return float(together if together is not None else own if own is not None else -math.inf)


def _near(row: Row) -> list[Row]:
    return [candidate for candidate in row.get("candidates") or () if candidate["distance"]]


def _variant(candidate: Row, suffix: str) -> dict[str, Any]:
    text = candidate["text"] if candidate["text"] is not None else " ".join(map(str, candidate["tokens"]))
    return {
        "label": _label(candidate) + (", the same text in other tokens" if text == suffix else ""),
        "pieces": [(kind, numbers.literal(part)) for kind, part in _pieces(suffix, text)],
    }


def _label(candidate: Row) -> str:
    """How far an output is, and how likely: by itself, with all that begin like it, or only as an example of these."""
    edits = numbers.counted(candidate["distance"], "edit")
    own, together = candidate["log_prob"], candidate["set_log_prob"]
    if own is None:
        return edits if together is None else f"{edits}, {SET}, together probability {numbers.probability(together)}"
    alike = "" if together is None else f", with all that begin alike and count {numbers.probability(together)}"
    return f"{edits}, probability {numbers.probability(own)}{alike}"


def _pieces(suffix: str, text: str) -> Iterator[tuple[str, str]]:
    """A word difference: ("same" | "del" | "ins", text); long stretches without a difference are cut out."""
    before, after = _WORD.findall(suffix), _WORD.findall(text)
    steps = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    for i, (kind, i1, i2, j1, j2) in enumerate(steps):
        if kind == "equal":
            yield "same", _shortened(before[i1:i2], first=i == 0, last=i == len(steps) - 1)
            continue
        if i2 > i1:
            yield "del", "".join(before[i1:i2])
        if j2 > j1:
            yield "ins", "".join(after[j1:j2])


def _shortened(words: Sequence[str], *, first: bool, last: bool) -> str:
    whole = "".join(words)
    head = "" if first else _up_to(words)
    tail = "" if last else "".join(reversed(_up_to([w[::-1] for w in reversed(words)])))
    if len(head) + len(tail) + CONTEXT >= len(whole):
        return whole
    return f"{head} … {tail}" if head and tail else f"{head} …" if head else f"… {tail.lstrip()}"


def _up_to(words: Sequence[str]) -> str:
    taken = ""
    for word in words:
        if len(taken) + len(word) > CONTEXT:
            break
        taken += word
    return taken


def near_method(options: NearSearch | None) -> list[tuple[str, str]]:
    """The options of a search, in words; nothing where there was none."""
    if options is None:
        return []
    near = f"within {numbers.counted(options.tolerance, 'edit')}, {options.distance} distance; {EOS[options.eos]}"
    seed = numbers.setting(options.seed)
    if options.method == "sample":
        how = f"{numbers.counted(options.samples or 1000, 'sample')} per row, seed {seed}"
    else:
        width = numbers.setting(options.width)
        beam = f" ({options.variant}, width {width})" if options.method == "beam" else ""
        most = f"what a beam of width {width} costs"
        if options.budget is not None:
            most = numbers.counted(options.budget, "token evaluation")
        how = f"{options.method} search{beam}, at most {most} per row, {UNTIL[options.until]}"
        how += f", or the bounds were {numbers.setting(options.gap)} apart"
        if options.samples:
            how += f"; {numbers.counted(options.samples, 'sample')} of what was left open, seed {seed}"
    return [("Near-verbatim", near), ("Search", how)]


def _each(near: NearSummary, unit: str) -> str:
    mean = near.token_evals.mean
    return "" if mean is None else f"{numbers.average(mean)} per {unit}"


def _card(name: str, value: str, note: str) -> dict[str, str]:
    return {"name": name, "value": value, "note": note}


def near_caption(group: NearFixed, unit: str) -> str:
    """What runs whose searches can be compared count as near."""
    edits = f"Within {numbers.counted(group.tolerance or 0, 'edit')}, by the lower bound"
    if not group.fixed_examples:
        return edits
    every = numbers.counted(group.fixed_examples, unit)
    return f"{edits}; means over the {every} near-verbatim extractable in all of these"


def near_rows(group: NearFixed) -> list[list[str]]:
    """Such runs beside one another."""
    rows = [["", "Near-verbatim", "Verbatim", "Undecided"]]
    rows[0] += ["Mean lower bound", "Mean p_z"] if group.fixed_examples else []
    for model in group.models:
        row = [model.model, numbers.percent(model.near.rate), numbers.percent(model.verbatim.rate)]
        row.append(numbers.count(model.undecided))
        if group.fixed_examples:
            row += [numbers.chance(model.fixed.mean_lower), numbers.chance(model.fixed.mean_p_z)]
        rows.append(row)
    return rows


def verbatim_elsewhere(share: VerbatimElsewhere, interval: bool) -> str:
    """How many of what only tolerance unlocks in one run another has verbatim."""
    count = numbers.count(share.count)
    if not share.unlocked:
        return count
    low, high = map(numbers.percent, share.interval)
    return f"{count} ({numbers.percent(share.rate)}{f', {low} to {high}' if interval else ''})"
