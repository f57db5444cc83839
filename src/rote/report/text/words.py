"""A run in sentences: its headline, what that means, and what it rests on. For the report and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rote.report.keys import derived, plain
from rote.report.text import numbers
from rote.report.text.bounds import is_open, left_open
from rote.report.text.corpus import corpus_sentence
from rote.report.text.method import cost, numeric_doubt, parts_within, prompt_facts, trusted
from rote.report.text.rate import sample_facts, sampled_headline, sampled_lede, sampled_lines
from rote.report.text.spots import longest_sentence
from rote.report.text.stages import left_out, looked_at, stages_doubt, stages_sentence
from rote.report.text.variants import normalised_words, variant_warnings
from rote.store.run import Finished
from rote.store.summary import NearSummary, Rate, Rates, RepetitionRates

EVEN = "0.5"  # the coverage threshold of a scan's headline
GROUPS = 3  # groups that a headline tells one by one


def headline(run: Finished) -> str:
    """The result in a sentence, and another where what comes near was searched for.

    Of a scan it tells how much of what was looked at comes out with even odds, else what reaches tau; of examples in
    groups, each group: a control is not to be counted with the rest.
    """
    own = sampled_headline(run) if run.drawn else _scan_headline(run) if run.scanned else _score_headline(run)
    return own + left_open(run) + _near_headline(run)


def _scan_headline(run: Finished) -> str:
    rates, tau, even = run.numbers.rates, numbers.setting(run.summary.tau), run.coverage.get(EVEN)
    extracted, total = rates.rate_at_tau.count, rates.examples
    doubt = is_open(run, rates.rate_at_tau)
    if run.within:  # chosen windows: what they come to is not the text's
        suffix = numbers.length(run.windows.suffix, run.windows.unit)  # begins with a number, so no capital letter
        least = "at least " if doubt else ""
        reached = f"{least}{numbers.count(extracted)} of {numbers.counted(total, 'window')}"
        return f"{suffix} at a time, {reached} in the chosen places can be extracted at τ = {tau}."
    some = left_out(run) is not None  # windows without a number
    unit = "window"
    if some and not run.complete:
        total, unit = run.summary.examples, "scored window"
    share = numbers.percent(run.looked_at.share)
    seen = looked_at(run) if some else f"{share} of this text’s characters were looked at."
    even_rate = _even_rate(run)
    if even and even.characters:
        more = (some and run.complete) or is_open(run, even_rate)
        which = _least(_all_of(even_rate.count, total, "comes", "come", unit), more)
        least = "at least " if (some or even.undecided) and even.share_of_looked_at != 1 else ""
        covered = f"{least}{numbers.percent(even.share_of_looked_at)}"
        seen = seen if some else f"{share} of this text was looked at."
        return f"{which} out with even odds (p ≥ 50%): {covered} of the characters looked at; {seen}"
    none = "No scored window" if some else "No window"
    if extracted:
        which = _least(_all_of(extracted, total, "can", "can", unit), (some and run.complete) or doubt)
        comes = "is certain to come" if is_open(run, even_rate) else "comes"
        return f"{none} {comes} out with even odds, but {which[0].lower()}{which[1:]} be extracted at τ = {tau}; {seen}"
    if doubt:
        return f"{none} is certain to reach τ = {tau}; {seen}"
    if some:
        scored = numbers.counted(run.summary.examples, "scored window")
        return f"Nothing was extracted: none of {scored} reaches τ = {tau}; {seen}"
    windows = f"none of {numbers.count(total)} windows reaches" if total != 1 else "the only window does not reach"
    return f"Nothing was extracted: {windows} τ = {tau}; {seen}"


def _all_of(count: int, total: int, one: str, several: str, unit: str = "window") -> str:
    """Subject and verb: `All 12 windows come`, `1 of 12 windows comes`, `The only window comes`."""
    if total == 1:
        return f"The only {unit} {one}"
    if count == total:
        return f"All {numbers.counted(count, unit)} {several}"
    return f"{numbers.count(count)} of {numbers.counted(total, unit)} {one if count == 1 else several}"


def _least(which: str, some: bool) -> str:
    """A count that windows without a number may add to."""
    return f"At least {which}" if some and not which.startswith(("All", "The only")) else which


def _even_rate(run: Finished) -> Rate:
    """Which share of the windows comes out with even odds in one generation."""
    return next(cell for cell in run.numbers.rates.np_table if cell.n == 1 and cell.p == float(EVEN))


def _score_headline(run: Finished) -> str:
    tau, rates = numbers.setting(run.summary.tau), run.numbers.rates
    extracted, total = rates.rate_at_tau.count, rates.examples
    if groups := leading_groups(run):
        told = "; ".join(f"{name}: {_extracted(group)}" for name, group in _ends(groups))
        every = numbers.count(derived(len(groups), "groups/all", total))
        return f"Extracted at τ = {tau}{f', two of {every} groups' if len(groups) > GROUPS else ''}: {told}."
    doubt, every = is_open(run, rates.rate_at_tau), numbers.counted(total, "example")
    if not extracted and doubt:
        which = f"None of {every}" if total > 1 else "The only example"
        return f"{which} is {'' if total > 1 else 'not '}certain to be extractable at τ = {tau}."
    if total == 1:
        return f"The only example {'can' if extracted else 'cannot'} be extracted at τ = {tau}."
    if not extracted:
        return f"None of {every} can be extracted at τ = {tau}."
    return f"{'At least ' if doubt else ''}{numbers.count(extracted)} of {every} can be extracted at τ = {tau}."


def leading_groups(run: Finished) -> list[tuple[str, Rates]]:
    """The groups that a score run is told by, where its examples say that there are several.

    Splits, the one with the highest rate first, or else numbers of repetitions.
    """
    if run.scanned or run.drawn:
        return []
    if len(run.numbers.by_split or ()) > 1:
        named = [(_split(group.split), group) for group in run.numbers.by_split or ()]
        return sorted(named, key=lambda group: -group[1].rate_at_tau.rate)
    if len(run.numbers.by_repetitions or ()) > 1:
        return [(_times(group.repetitions), group) for group in run.numbers.by_repetitions or ()]
    return []


def _split(name: str | None) -> str:
    return "no split given" if name is None else numbers.name(name)


def _times(repetitions: int | None) -> str:
    return "repetitions not given" if repetitions is None else numbers.counted(repetitions, "repetition")


def _ends(groups: Sequence[tuple[str, Rates]]) -> list[tuple[str, Rates]]:
    """All groups, or of many two: with the fewest and the most repetitions, or with the highest and the lowest rate."""
    if len(groups) <= GROUPS:
        return list(groups)
    ranked = [group for group in groups if isinstance(group[1], RepetitionRates) and group[1].repetitions is not None]
    return [(ranked or groups)[0], (ranked or groups)[-1]]


def _extracted(group: Rates) -> str:
    rate = group.rate_at_tau
    return f"{numbers.count(rate.count)} of {numbers.count(group.examples)} ({numbers.rate(rate)})"


def _near_headline(run: Finished) -> str:
    """What only comes near, beyond what comes out verbatim; nothing where that was not searched for, or is all."""
    near, rates = run.numbers.near, run.numbers.rates
    if near is None or rates.rate_at_tau.count == rates.examples:
        return ""
    tau, edits = numbers.setting(near.tau), numbers.counted(run.search.tolerance, "edit")
    if not near.unlocked.count:
        return f" Within {edits}, no other {run.unit} was found to reach τ = {tau}."
    certainty = "by 95% intervals, not certified" if run.search.method == "sample" else "certified"
    pooled = ", of all groups together," if leading_groups(run) else ""
    if run.manifest.sampling is not None and "held-out" in run.manifest.sampling.corpora:
        pooled = ", held-out ones included,"
    one = near.unlocked.count == 1
    more = f"Another {run.unit}" if one else f"Another {numbers.counted(near.unlocked.count, run.unit)}"
    return f" {more}{pooled} {'reaches' if one else 'reach'} τ = {tau} only within {edits} ({certainty})."


def lede(run: Finished) -> str:
    """What the headline means."""
    if run.drawn:
        return sampled_lede(run)
    tau = numbers.setting(run.summary.tau)
    if not run.scanned:
        return _score_lede(run, tau)
    return _scan_lede(run, tau) + stages_sentence(run) + _normalised(run) + _unseen(run)


def _normalised(run: Finished) -> str:
    steps = run.manifest.source.normalised
    return "" if steps is None else f" Before it was cut, the text was normalised: {normalised_words(steps)}."


def _score_lede(run: Finished, tau: str) -> str:
    rates = run.numbers.rates
    low, high = rates.rate_at_tau.interval
    counts = (
        f"An example counts when one generation from its prefix is exactly its suffix with probability {tau} or more."
    )
    if groups := leading_groups(run):
        sure = "; ".join(f"{name} {_interval(group.rate_at_tau)}" for name, group in _ends(groups))
        greedy = "; ".join(f"{name} {numbers.rate(group.greedy_rate)}" for name, group in _ends(groups))
        return (
            f"95% Wilson intervals, taking each group as a random sample: {sure}. {counts} Greedy decoding gives back: "
            f"{greedy}."
        )
    return (
        f"That is {numbers.rate(rates.rate_at_tau)} of them (95% Wilson interval {numbers.percent(low)} to "
        f"{numbers.percent(high)}, taking the examples as a random sample). {counts} "
        f"Greedy decoding gives back {numbers.rate(rates.greedy_rate)}."
    )


def _interval(rate: Rate) -> str:
    low, high = rate.interval
    return f"{numbers.percent(low)} to {numbers.percent(high)}"


def _unseen(run: Finished) -> str:
    """Which characters of a scan's text can count at all."""
    given = " A prompt’s own characters are given to the model and can never count"
    gaps = run.looked_at.gaps
    if not gaps or run.within:
        return f"{given}, such as those of the text’s first prompt."
    return f"{given}; at this stride, {numbers.counted(gaps, 'character')} between suffixes were not looked at."


def _scan_lede(run: Finished, tau: str) -> str:
    rates, seen = run.numbers.rates, run.looked_at
    extracted = rates.rate_at_tau
    windows, even = run.windows, run.coverage.get(EVEN)
    up_to = "up to " if windows.unit == "characters" else ""
    prefix, suffix = (up_to + numbers.length(each, windows.unit) for each in (windows.prefix, windows.suffix))
    prompt = f"Prompted with {prefix} of the text, the model goes on with exactly the next {suffix}"
    least = "at least " if left_out(run) or is_open(run, extracted) else ""
    every = numbers.counted(rates.examples, "window")
    share = f"{least}{numbers.count(extracted.count)} of {every} ({numbers.rate(extracted)})"
    if even and even.characters:
        more = "at least " if even.undecided else ""
        return (
            f"{prompt}, with a probability of at least 50% per generation, in windows whose suffixes cover "
            f"{more}{numbers.count(even.characters)} of the {numbers.counted(seen.characters, 'character')} looked at; "
            f"the text has {numbers.count(run.length)}. "
            f"At the threshold τ = {tau}, {share} count as extracted."
        )
    if extracted.count:
        return f"{prompt} with a probability of {tau} or more in {share}."
    window = "scored window" if left_out(run) else "window"
    does, go = ("is it certain that", "goes") if is_open(run, extracted) else ("does", "go")
    return (
        f"In no {window} {does} the model, prompted with {prefix} of the text, {go} on with exactly the next {suffix} "
        f"with a probability of {tau} or more."
    )


def provenance(run: Finished, best: NDArray[np.float64] | None = None) -> list[tuple[str, str]]:
    """What the headline rests on and how sure it is, as (name, value).

    `best`, a scan's largest log p_z per character (NaN: not looked at), tells how far coverage would move with it.
    """
    model = run.manifest.model
    facts = [
        ("Model", f"{numbers.title(model)}, {numbers.weights(model)}{trusted(model)}"),
        ("Scheme", numbers.name(run.scheme)),
        ("BOS", numbers.bos(model)),
        *prompt_facts(run),
        *sample_facts(run),
    ]
    rates = run.numbers.rates
    doubt = numeric_doubt(rates, "scored window" if left_out(run) else run.unit)
    if not run.scanned:
        low, high = rates.rate_at_tau.interval
        pooled = ", all groups together" if leading_groups(run) else ""
        interval = f"95% interval of the rate at τ{pooled}: {numbers.percent(low)} to {numbers.percent(high)}."
        return [*facts, ("Uncertainty", f"{interval} {doubt}")]
    doubt = f"{_choice(run)} {doubt}"
    if best is not None:
        tolerance = rates.near_tau.numeric_tolerance
        low, high = (
            derived(_share_of_seen(best, math.log(float(EVEN)) + shift), f"doubt/{end}", tolerance)
            for end, shift in (("lower", tolerance), ("upper", -tolerance))
        )
        bounds = numbers.percent(low)
        if plain(numbers.percent(high)) != plain(bounds):
            bounds += f" to {numbers.percent(high)}"
        doubt += (
            f" Should every log p_z be off by {numbers.setting(tolerance)}, coverage at 50% would be {bounds} of the "
            "characters looked at."
        )
    return [*facts, ("Uncertainty", doubt)]


def _share_of_seen(best: NDArray[np.float64], least: float) -> float:
    seen = np.count_nonzero(~np.isnan(best))
    return float(np.count_nonzero(best >= least) / seen) if seen else math.nan


def _choice(run: Finished) -> str:
    """Which of the text's windows a scan looked at."""
    if left_out(run) is not None:
        return stages_doubt(run)
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
        pooled = "all groups together: " if leading_groups(run) else ""
        rows.insert(0, ("Rates", pooled + ", ".join(f"{name} {numbers.rate(rate)}" for name, rate in named)))
    if run.scanned:
        rows.insert(1, ("Coverage", _coverage(run)))
    if run.numbers.longest:
        rows.insert(2, ("Longest", longest_sentence(run)))
    if run.numbers.near is not None:
        rows.insert(0, ("Near", near_sentence(run, run.numbers.near)))
    if run.summary.corpus is not None:
        rows.append(("Corpus", corpus_sentence(run)))
    rows.append(("Cost", cost(run)))
    rows += [("Warning", numbers.literal(warning)) for warning in run.summary.warnings]
    return lines + [f"{name.lower():<12}{value}" for name, value in rows]


def _coverage(run: Finished) -> str:
    """How much of what was looked at is covered at each threshold."""
    seen = run.looked_at
    characters = numbers.counted(seen.characters, "character")
    shares = [f"at {numbers.threshold(float(p))} {numbers.covered(c)}" for p, c in run.coverage.items()]
    least = "at least, " if left_out(run) is not None else ""
    return f"{least}of the {characters} looked at, {numbers.percent(seen.share)} of the text: {', '.join(shares)}"
