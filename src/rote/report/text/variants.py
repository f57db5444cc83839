"""The steps of a scan, and what came of trying its windows after others, in words."""

from __future__ import annotations

from collections.abc import Sequence

from rote.analysis.variants import most_helpful
from rote.report.text import numbers
from rote.store.manifest import TakenStep
from rote.store.run import Finished

WORDS = {
    "bom": "byte order marks taken out",
    "line-ends": "line ends as LF",
    "soft-hyphens": "soft hyphens taken out",
    "spaces": "plain spaces",
    "double-spaces": "single spaces",
    "straight-quotes": "straight quotation marks",
    "curly-quotes": "curly quotation marks",
    "unwrap": "paragraphs on one line",
}


def normalised_words(steps: Sequence[TakenStep]) -> str:
    """The steps that were taken before a text was cut, and in how many places each changed it."""
    return ", ".join(f"{numbers.name(taken.step)} ({numbers.counted(taken.places, 'place')})" for taken in steps)


def variant_warnings(run: Finished) -> list[str]:
    """That a text would be extracted if it looked otherwise, and how to scan it so; nothing where it would not."""
    trial = most_helpful(run.summary.variants)
    if trial is None:
        return []
    reach = f"{'reaches' if trial.after == 1 else 'reach'} τ = {numbers.setting(run.summary.tau)}"
    return [
        f"The model may know this text in another form: with {_in_words(trial.steps)}, {numbers.count(trial.after)} of "
        f"{numbers.counted(trial.windows, 'sampled window')} {reach}, and {numbers.count(trial.before)} as the text "
        f"stands. Scanning with --normalise {','.join(map(numbers.name, trial.steps))} tells."
    ]


def variants_fact(run: Finished) -> str:
    """Every trial, for the method."""
    tried = [
        f"{numbers.count(trial.before)} as they stand and {numbers.count(trial.after)} with "
        f"{' and '.join(map(numbers.name, trial.steps))}, of {numbers.counted(trial.windows, 'window')}"
        for trial in run.summary.variants or ()
    ]
    return f"windows that reach τ, of samples that other steps would change: {'; '.join(tried)}"


def _in_words(steps: Sequence[str]) -> str:
    *others, last = (WORDS.get(step, "lines wrapped anew") for step in steps)
    return f"{', '.join(others)} and {last}" if others else last
