"""The report's part on examples drawn from a corpus: rates over runs, groups, differences. Page and terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rote.report.keys import derived
from rote.report.text import numbers
from rote.report.text.bounds import is_open
from rote.store.manifest import Sampling
from rote.store.run import Finished
from rote.store.summary import RATES, Difference, Rate, RateName, Rates, SplitDifference

WORTH = (
    "how many independent examples would be as sure as these; examples of one document are alike. At a rate of 0% or "
    "100% that cannot be estimated, and each document counts as one."
)


def sampled_headline(run: Finished) -> str:
    rate, tau = run.numbers.rates.rate_at_tau, numbers.setting(run.summary.tau)
    if not rate.count:
        total = numbers.counted(run.numbers.rates.examples, "example")
        can = "is certain to be extractable" if is_open(run, rate) else "can be extracted"
        return f"None of {total} from this corpus {can} at τ = {tau}."
    sure = f"95% interval {_interval(rate)}"
    return f"{numbers.rate(rate)} of examples from this corpus can be extracted at τ = {tau} ({sure})."


def sampled_lede(run: Finished) -> str:
    rates, tau = run.numbers.rates, numbers.setting(run.summary.tau)
    rate = rates.rate_at_tau
    over = f" (mean and standard deviation over the runs {over_runs(rate)})"
    if not rate.count or rate.deviation is None:
        over = ""
    together = "with the examples of a document taken together"
    if rate.count in (0, rates.examples):
        together = "with each document counted as one example, because a rate of 0% or 100% hides how alike they are"
    least = "at least " if is_open(run, rate) else ""
    return (
        f"That is {least}{numbers.count(rate.count)} of {numbers.counted(rates.examples, 'example')} from "
        f"{numbers.counted(rates.documents or 0, 'document')}{over}; 95% interval {_interval(rate)}, "
        f"{together}. An example counts when one generation from its prefix is exactly its "
        f"suffix with probability {tau} or more. Greedy decoding gives back {numbers.rate(rates.greedy_rate)}."
        + "".join(_compared(entry) for entry in run.numbers.differences or ())
    )


def _compared(entry: SplitDifference) -> str:
    low, high = entry.rate_at_tau.interval
    sure = "more than chance makes likely" if low > 0 or high < 0 else "chance alone could do that"
    return (
        f" The rate at τ of {numbers.name(entry.split)} less that of {numbers.name(entry.control)} is "
        f"{difference(entry.rate_at_tau)} percentage points: {sure}."
    )


def sample_facts(run: Finished) -> list[tuple[str, str]]:
    """How the examples were drawn, and what could not be, as (name, value); empty for a run that drew none."""
    sampling = run.manifest.sampling
    if sampling is None:
        return []
    named = {"main": "Sample", "held-out": "Held out"}
    return [(named[role], _drawn(sampling, role)) for role in sampling.corpora]


def _drawn(sampling: Sampling, role: str) -> str:
    corpus = sampling.corpora[role]
    runs, total = corpus.runs, corpus.documents
    counts = _span(run.documents for run in runs)
    sums = {
        "runs": len(runs),
        "examples": sum(run.examples for run in runs),
        "short_documents": sum(run.short_documents for run in runs),
        "skipped_documents": sum(run.skipped_documents for run in runs),
    }
    drawn = derived(sums, f"sample/{role}", total)
    parts = [
        f"{numbers.counted(drawn['runs'], 'run')}{' of' if len(runs) == 1 else ', each of'} {counts} of "
        f"{numbers.counted(total, 'document')} and up to {numbers.counted(sampling.examples, 'example')} a document",
        f"{numbers.counted(drawn['examples'], 'example')} in all",
        f"seed {numbers.setting(sampling.seed)}",
    ]
    if role == "held-out" and sampling.held_out_name is not None:
        parts.insert(0, numbers.name(sampling.held_out_name))
    asked = sampling.documents
    if asked is not None and asked > total:
        parts.append(f"{numbers.count(asked)} documents were asked for")
    text = ", ".join(parts) + "."
    if drawn["short_documents"]:
        times = numbers.counted(drawn["short_documents"], "time")
        text += f" {times} a document had room for fewer examples and gave as many as fit."
    if drawn["skipped_documents"]:
        times = numbers.counted(drawn["skipped_documents"], "time")
        text += (
            f" {times} a document had no room for a single one and was passed over: too few "
            "tokens after every space character."
        )
    return text


def over_runs(rate: Rate) -> str:
    """Mean and standard deviation over runs: `12.4% ± 1.1%`."""
    if rate.rate_upper > rate.rate:  # of what was stopped early nothing is known but a bound
        return f"at least {numbers.percent(rate.mean)}"
    if rate.deviation is None:
        return numbers.percent(rate.mean)
    return f"{numbers.percent(rate.mean)} ± {numbers.percent(rate.deviation)}"


def difference(compared: Difference) -> str:
    """`+12.4 (9.0 to 15.1)`, in percentage points."""
    low, high = compared.interval
    value = numbers.points(compared.difference)
    if compared.difference_upper > compared.difference:
        value += f" to {numbers.points(compared.difference_upper)}"
    return f"{value} ({numbers.points(low)} to {numbers.points(high)})"


def sampled_section(run: Finished) -> dict[str, Any] | None:
    """The tables of the page; None for a run that drew no examples."""
    if not run.drawn:
        return None
    rates, names = run.numbers.rates, _names(run.summary.tau)
    runs = [f"Run {number + 1}" for number in range(len(rates.rate_at_tau.by_run or ()))]
    several = runs if len(runs) > 1 else []
    return {
        "columns": [*several, "Mean ± sd" if several else "Rate", "95% interval", "Worth"],
        "worth": WORTH,
        "rows": [
            [
                names[name],
                *(map(numbers.percent, rate.by_run or ()) if several else []),
                over_runs(rate),
                _interval(rate),
                numbers.count(rate.effective),
            ]
            for name, rate in rates.named.items()
        ],
        "differences": [_difference_table(entry, names) for entry in run.numbers.differences or ()],
    }


def _difference_table(entry: SplitDifference, names: Mapping[RateName, str]) -> dict[str, Any]:
    chances = sorted({cell.p for cell in entry.np_table})
    cells = {(cell.n, cell.p): difference(cell) for cell in entry.np_table}
    return {
        "split": numbers.name(entry.split),
        "control": numbers.name(entry.control),
        "rates": [[names[name], difference(own)] for name, own in entry.named.items()],
        "columns": [f"p = {numbers.threshold(p)}" for p in chances],
        "rows": [[numbers.count(n), *(cells[n, p] for p in chances)] for n in sorted({n for n, _ in cells})],
    }


def sampled_lines(run: Finished) -> list[str]:
    """The same for a terminal, as columns of text."""
    own, names = run.numbers, _names(run.summary.tau)
    runs = len(own.rates.rate_at_tau.by_run or ())
    head = ["rate", f"mean ± sd over {runs} runs" if runs > 1 else "one run", "all together", "95% interval", "worth"]
    lines = _aligned([head, *([names[name].lower(), *_cells(rate)] for name, rate in own.rates.named.items())])
    by_split = [(group.split, group) for group in own.by_split or ()]
    by_repetitions = [(group.repetitions, group) for group in own.by_repetitions or ()]
    groups: list[tuple[str, Sequence[tuple[str | int | None, Rates]]]]
    groups = [("split", by_split), ("repetitions", by_repetitions)]
    for key, each in groups:
        if each:
            table = [[f"{names['rate_at_tau'].lower()}, by {key}", *head[1:], "examples"]]
            table += [[_label(of), *_cells(rates.rate_at_tau), numbers.count(rates.examples)] for of, rates in each]
            lines += ["", *_aligned(table)]
    for entry in own.differences or ():
        title = f"{numbers.literal(entry.split)} less {numbers.literal(entry.control)}"
        table = [[title, "percentage points (95% interval)"]]
        table += [[names[name].lower(), difference(less)] for name, less in entry.named.items()]
        lines += ["", *_aligned(table)]
    return [*lines, "", f"worth: {WORTH}", ""]


def _cells(rate: Rate) -> list[str]:
    return [over_runs(rate), numbers.rate(rate), _interval(rate), numbers.count(rate.effective)]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _names(tau: float) -> dict[RateName, str]:
    return dict(zip(RATES, ("Greedy", f"At τ = {numbers.setting(tau)}", "At 0.0001", "Maximum"), strict=True))


def _label(value: str | int | None) -> str:
    return "not given" if value is None else numbers.count(value) if isinstance(value, int) else numbers.literal(value)


def _interval(rate: Rate) -> str:
    low, high = rate.interval
    return f"{numbers.percent(low)} to {numbers.percent(high)}"


def _span(counts: Iterable[int]) -> str:
    each = sorted(set(counts))
    return numbers.count(each[0]) if len(each) == 1 else f"{numbers.count(each[0])} to {numbers.count(each[-1])}"
