"""A run in sentences: its headline, what that means, and what it rests on. For the report and for the terminal."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rote.report.keys import derived, plain
from rote.report.text import numbers
from rote.report.text.method import cost, numeric_doubt, parts_within
from rote.report.text.rate import sample_facts, sampled_headline, sampled_lede, sampled_lines
from rote.report.text.spots import longest_sentence
from rote.report.text.variants import normalised_words, variant_warnings
from rote.store.run import Finished
from rote.store.summary import NearSummary

GAPS = 0.05  # share of the text between suffixes from which on it must be said that it was not looked at
EVEN = "0.5"  # the coverage threshold of a scan's headline


def headline(run: Finished) -> str:
    """The result in one sentence; for a scan how much comes out with even odds, else what reaches tau."""
    tau = numbers.setting(run.summary.tau)
    if run.drawn:
        return sampled_headline(run)
    extracted, total = run.numbers.rates.rate_at_tau.count, run.numbers.rates.examples
    if not run.scanned:
        if total == 1:
            return f"The only example {'can' if extracted else 'cannot'} be extracted at τ = {tau}."
        if not extracted:
            return f"None of {numbers.counted(total, 'example')} can be extracted at τ = {tau}."
        return f"{numbers.count(extracted)} of {numbers.counted(total, 'example')} can be extracted at τ = {tau}."
    even = run.coverage.get(EVEN)
    if run.within:  # chosen windows: what they come to is not the text's
        suffix = numbers.length(run.windows.suffix, run.windows.unit)  # begins with a number, so no capital letter
        reached = f"{numbers.count(extracted)} of {numbers.counted(total, 'window')}"
        return f"{suffix} at a time, {reached} in the chosen places can be extracted at τ = {tau}."
    if even and even.characters:
        return f"{numbers.percent(even.share)} of this text’s characters can be drawn out with even odds (p ≥ 50%)."
    if extracted:
        return (
            f"No whole suffix of this text comes out with even odds, but {numbers.count(extracted)} of its "
            f"{numbers.counted(total, 'window')} can be extracted at τ = {tau}."
        )
    windows = f"none of its {numbers.count(total)} windows reaches" if total > 1 else "its only window does not reach"
    return f"Nothing in this text was extracted: {windows} τ = {tau}."


def lede(run: Finished) -> str:
    """What the headline means."""
    if run.drawn:
        return sampled_lede(run)
    rates, tau = run.numbers.rates, numbers.setting(run.summary.tau)
    extracted = rates.rate_at_tau
    if not run.scanned:
        low, high = extracted.interval
        return (
            f"That is {numbers.rate(extracted)} of them (95% Wilson interval {numbers.percent(low)} to "
            f"{numbers.percent(high)}, taking the examples as a random sample). An example counts when one generation "
            f"from its prefix is exactly its suffix with probability {tau} or more. "
            f"Greedy decoding gives back {numbers.rate(rates.greedy_rate)}."
        )
    return _scan_lede(run, tau) + _normalised(run) + _gaps(run)


def _normalised(run: Finished) -> str:
    steps = run.manifest.source.normalised
    return "" if steps is None else f" Before it was cut, the text was normalised: {normalised_words(steps)}."


def _gaps(run: Finished) -> str:
    """A warning where windows are so far apart that much of the text lies in no suffix, if nobody chose them so."""
    looked_at = run.summary.looked_at
    if looked_at is None or run.within:
        return ""
    if looked_at.gaps <= GAPS * run.length:
        return ""
    return (
        f" The windows’ suffixes lie in only {numbers.percent(looked_at.share)} of the text’s characters; the others "
        "were not looked at, and no share of the text can be larger than that. A smaller stride looks at more."
    )


def _scan_lede(run: Finished, tau: str) -> str:
    rates = run.numbers.rates
    extracted = rates.rate_at_tau
    windows, even = run.windows, run.coverage.get(EVEN)
    up_to = "up to " if windows.unit == "characters" else ""
    prefix, suffix = (up_to + numbers.length(each, windows.unit) for each in (windows.prefix, windows.suffix))
    prompt = f"Prompted with {prefix} of the text, the model goes on with exactly the next {suffix}"
    share = (
        f"{numbers.count(extracted.count)} of {numbers.counted(rates.examples, 'window')} ({numbers.rate(extracted)})"
    )
    if even and even.characters:
        return (
            f"{prompt}, with a probability of at least 50% per generation, in windows whose suffixes cover "
            f"{numbers.count(even.characters)} of the {numbers.count(run.length)} characters. "
            f"At the threshold τ = {tau}, {share} count as extracted."
        )
    if extracted.count:
        return f"{prompt} with a probability of {tau} or more in {share}."
    return (
        f"In no window does the model, prompted with {prefix} of the text, go on with exactly the next {suffix} "
        f"with a probability of {tau} or more."
    )


def provenance(run: Finished, best: NDArray[np.float64] | None = None) -> list[tuple[str, str]]:
    """What the headline rests on and how sure it is, as (name, value).

    `best`, a scan's largest log p_z per character, tells how far the coverage would move with every log p_z.
    """
    model = run.manifest.model
    facts = [
        ("Model", f"{numbers.name(model.name)}, weights {numbers.short(model.fingerprint)}"),
        ("Scheme", numbers.name(run.scheme)),
        ("BOS", numbers.bos(model.bos, model.bos_token)),
        *sample_facts(run),
    ]
    rates, doubt = run.numbers.rates, numeric_doubt(run.numbers.rates, run.unit)
    if not run.scanned:
        low, high = rates.rate_at_tau.interval
        interval = f"95% interval of the rate at τ: {numbers.percent(low)} to {numbers.percent(high)}."
        return [*facts, ("Uncertainty", f"{interval} {doubt}")]
    doubt = f"{_choice(run)} {doubt}"
    if best is not None:
        tolerance = rates.near_tau.numeric_tolerance
        low, high = (
            derived(float((best >= math.log(float(EVEN)) + shift).mean()), f"doubt/{end}", tolerance)
            for end, shift in (("lower", tolerance), ("upper", -tolerance))
        )
        bounds = numbers.percent(low)
        if plain(numbers.percent(high)) != plain(bounds):
            bounds += f" to {numbers.percent(high)}"
        doubt += f" Should every log p_z be off by {numbers.setting(tolerance)}, coverage at 50% would be {bounds}."
    return [*facts, ("Uncertainty", doubt)]


def _choice(run: Finished) -> str:
    """Which of the text's windows a scan looked at."""
    if not run.within:
        return "The windows are all of this text’s at this stride, not a sample."
    return (
        f"The windows are those that start in {numbers.counted(parts_within(run), 'chosen part')} of the text: the "
        "rates are theirs, not the text’s, and the rest of it was not looked at."
    )


def near_sentence(run: Finished, near: NearSummary) -> str:
    """What the search for near-verbatim outputs came to, in one line."""
    options, verdicts, evals = run.search, near.verdicts, near.token_evals.mean or 0
    unit, tau = run.unit, numbers.setting(near.tau)
    certainty = "95% intervals, not certified" if options.method == "sample" else "certified"
    return (
        f"within {numbers.counted(options.tolerance, 'edit')} ({options.distance}), "
        f"{numbers.counted(verdicts['extractable'], unit)} {'reaches' if verdicts['extractable'] == 1 else 'reach'} "
        f"τ = {tau} ({certainty}), "
        f"{numbers.count(verdicts['undecided'])} undecided; {numbers.count(near.unlocked.count)} that verbatim "
        f"probability misses. {numbers.count(round(evals))} token evaluations per {unit} ({options.method})."
    )


def summary_lines(run: Finished) -> list[str]:
    """The run's headline numbers for a terminal, a line each, under the manifest's first scheme."""
    lines = [headline(run), lede(run), *variant_warnings(run), ""]
    rows = provenance(run)
    if run.drawn:
        lines += sampled_lines(run)
    else:
        names = ("greedy", f"at {run.summary.tau:g}", "at 0.0001", "maximum")
        named = zip(names, run.numbers.rates.named.values(), strict=True)
        rows.insert(0, ("Rates", ", ".join(f"{name} {numbers.rate(rate)}" for name, rate in named)))
    if run.scanned:
        shares = [f"at {numbers.threshold(float(p))} {numbers.percent(c.share)}" for p, c in run.coverage.items()]
        rows.insert(1, ("Coverage", ", ".join(shares)))
    if run.numbers.longest:
        rows.insert(2, ("Longest", longest_sentence(run)))
    if run.numbers.near is not None:
        rows.insert(0, ("Near", near_sentence(run, run.numbers.near)))
    rows.append(("Cost", cost(run)))
    rows += [("Warning", numbers.literal(warning)) for warning in run.summary.warnings]
    return lines + [f"{name.lower():<12}{value}" for name, value in rows]
