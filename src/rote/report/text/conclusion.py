"""What a comparison comes to, in a sentence for every pair of runs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rote.report.keys import derived, key_of
from rote.report.text import numbers
from rote.store.comparison import ComparedRun, ComparisonResult, Pair, Whole


def run_label(run: ComparedRun) -> str:
    """A run's letter, and its model's label or the last part of its folder; its scheme too, where there are several."""
    own = run.model.label or re.split(r"[/\\]", str(run.folder).rstrip("/\\"))[-1]
    several = str(run.name).endswith(f"({run.scheme})")
    return f"{run.key} {numbers.literal(own)}" + (f" ({run.scheme.removeprefix('temperature=1 ')})" if several else "")


def conclusion(result: ComparisonResult) -> list[str]:
    """What came out of it, a sentence for every run against the first: which extracts more, by how much, how surely."""
    names = {
        run.key: numbers.name(derived(run_label(run), f"{key_of(run.name)}/label", run.name)) for run in result.runs
    }
    return [_outcome(pair, names, result) + _undecided(pair, result) for pair in result.pairs]


def _undecided(pair: Pair, result: ComparisonResult) -> str:
    """That rows are in no number of this pair, and what they would do to its difference."""
    if not pair.undecided or pair.possible_difference is None or pair.whole is not None:  # whole takes them in
        return ""
    low, high = map(numbers.points, pair.possible_difference)
    which = f"{numbers.counted(pair.undecided, result.unit)} more {'is' if pair.undecided == 1 else 'are'}"
    return (
        f" {which} left open by a server’s list and not counted here: with them the difference may be anything from "
        f"{low} to {high} percentage points."
    )


def _outcome(pair: Pair, names: Mapping[str, str], result: ComparisonResult) -> str:
    first, second = names[pair.first], names[pair.second]
    tau, unit, total = numbers.setting(result.tau), result.unit, pair.examples
    if not total:
        return f"{first} and {second} have no {unit} in common: there is nothing to compare."
    if pair.whole is not None:
        return _over_all(pair, pair.whole, names, result)
    shares = {
        pair.first: derived((pair.both + pair.lost) / total, f"{key_of(total)}/first", total),
        pair.second: derived((pair.both + pair.gained) / total, f"{key_of(total)}/second", total),
    }
    if not pair.gained and not pair.lost:
        same = f"the same {numbers.count(pair.both)} of" if pair.both else "none of"
        return f"{first} and {second} extract {same} {numbers.counted(total, unit)} at τ = {tau}."
    low, high = pair.interval
    sure = f"95% interval {numbers.points(low)} to {numbers.points(high)}"
    sure += " as if windows were independent" if result.scanned else ""
    counts = f"{numbers.count(pair.gained)} gained, {numbers.count(pair.lost)} lost"
    if low <= 0 <= high:
        each = " and ".join(numbers.percent(share) for share in shares.values())
        return (
            f"{first} and {second} do not differ by more than chance: they extract {each} of "
            f"{numbers.counted(total, unit)} at τ = {tau} (difference {numbers.points(pair.difference)} percentage "
            f"points, {sure}; {counts})."
        )
    more, less = (pair.second, pair.first) if pair.difference > 0 else (pair.first, pair.second)
    return (
        f"{names[more]} extracts more than {names[less]}: {numbers.percent(shares[more])} against "
        f"{numbers.percent(shares[less])} of {numbers.counted(total, unit)} at τ = {tau} (from {pair.first} to "
        f"{pair.second} {numbers.points(pair.difference)} percentage points, {sure}; {counts})."
    )


def _over_all(pair: Pair, whole: Whole, names: Mapping[str, str], result: ComparisonResult) -> str:
    """Where windows were left out: by the rates over all windows, as far as these are known, not by those scored."""
    rates = {run.key: numbers.rate(run.rates.rate_at_tau) for run in result.runs}
    first, second, at = names[pair.first], names[pair.second], f"of all windows at τ = {numbers.setting(result.tau)}"
    (low, high), ends = whole.difference, whole.interval
    scored = (
        f"of the {numbers.counted(pair.examples, 'window')} scored in all runs {numbers.count(pair.gained)} gained, "
        f"{numbers.count(pair.lost)} lost"
    )
    if low <= 0 <= high and low < high:
        return (
            f"Whether {first} or {second} extracts more is left open by the windows that were left out: "
            f"{rates[pair.first]} against {rates[pair.second]} {at} ({scored})."
        )
    between = numbers.points(low) if low == high else f"{numbers.points(low)} to {numbers.points(high)}"
    sure = (
        f"{between} percentage points; with chance, as if windows were independent, {numbers.points(ends[0])} to "
        f"{numbers.points(ends[1])}; {scored}"
    )
    if ends[0] <= 0 <= ends[1]:
        each = f"{rates[pair.first]} and {rates[pair.second]}"
        return f"{first} and {second} do not differ by more than chance: {each} {at} (difference {sure})."
    more, less = (pair.second, pair.first) if low > 0 else (pair.first, pair.second)
    return (
        f"{names[more]} extracts more than {names[less]}: {rates[more]} against {rates[less]} {at} (from {pair.first} "
        f"to {pair.second} {sure})."
    )
