"""Rows of which a served model's list gives only an upper bound, in words: what they may add to a number."""

from __future__ import annotations

from rote.models.base import ModelIdentity
from rote.report.text import numbers
from rote.store.comparison import ComparedRun
from rote.store.run import Finished
from rote.store.summary import Rate, Rates


def is_open(run: Finished, rate: Rate) -> bool:
    """Whether rows that a server's list leaves open may add to this rate of a run.

    Rows that were given up early are certain to end below tau, and never do at tau or above.
    """
    return run.manifest.model.served is not None and run.numbers.rates.bounded > 0 and rate.rate_upper > rate.rate


def left_open(run: Finished) -> str:
    """How many rows a server's list leaves open, as the last sentence of a headline; empty where there are none."""
    rates = run.numbers.rates
    if run.manifest.model.served is None or not rates.bounded:
        return ""
    which = f"{numbers.counted(rates.bounded, run.unit)} {'is' if rates.bounded == 1 else 'are'}"
    return f" {which} {numbers.bounded(run.manifest.model)}."


def why_open(run: Finished, rate: Rate, of: Rates) -> str:
    """What makes a rate a range, after "at most 12%: "; of a scan without stages."""
    why = numbers.bounded(run.manifest.model)
    if rate is of.greedy_rate and run.manifest.model.served is not None:
        return f"whether some are greedy is {why}"
    return f"{numbers.count(of.bounded)} {why}"


def or_open(*runs: Finished | ComparedRun) -> str:
    """What else a place may be that shows nothing, after "blank is below τ": a window there may be left open."""
    known = [(run.model, run.rates) if isinstance(run, ComparedRun) else _of(run) for run in runs]
    some = any(model.served is not None and rates.bounded for model, rates in known)
    return " or left open by the server’s list" if some else ""


def _of(run: Finished) -> tuple[ModelIdentity, Rates]:
    return run.manifest.model, run.numbers.rates
