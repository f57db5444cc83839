"""A sweep in words and tables, for the terminal and for its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rote.report.keys import mark
from rote.report.text import numbers
from rote.report.text.method import trusted
from rote.report.text.variants import normalised_words
from rote.store.sweep import Point, SweepResult

EVEN = 0.5
"""The p of the table against n."""

HUNDRED = 100
"""The n of the table of schemes."""

INTERVALS = "95%, Wilson, taking the examples as a random sample; windows that overlap are not."


@dataclass(frozen=True, slots=True)
class SweepTable:
    """`columns` and `rows` are text; the first column says what a row is of."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


def headline(sweep: SweepResult) -> str:
    """The rate of the first scheme at the longest prompt and suffix, in one sentence."""
    first = sweep.longest[0]
    source = numbers.name(sweep.source.name)
    return (
        f"{_at_tau(first)} of {numbers.counted(sweep.examples, 'example')} of {source} can be extracted at τ = "
        f"{numbers.setting(sweep.tau)}, with {_lengths(first)}."
    )


def lede(sweep: SweepResult) -> list[str]:
    """What the headline rests on, and between what the rate varies."""
    longest, points = sweep.longest, sweep.points
    first = longest[0]
    low, high = first.rates.rate_at_tau.interval
    sentences = [
        f"That is under {numbers.name(first.scheme)}; 95% Wilson interval {numbers.percent(low)} to "
        f"{numbers.percent(high)}. Greedy decoding gives back {numbers.rate(first.rates.greedy_rate)}."
    ]
    if sweep.source.normalised is not None:
        sentences.append(f"Before it was cut, the text was normalised: {normalised_words(sweep.source.normalised)}.")
    if len(longest) > 1:
        ordered = sorted(longest, key=lambda point: float(point.rates.rate_at_tau.rate))
        least, most = ordered[0], ordered[-1]
        sentences.append(
            f"Between schemes the rate goes from {_at_tau(least)} ({numbers.name(least.scheme)}) to {_at_tau(most)} "
            f"({numbers.name(most.scheme)})."
        )
    under = [point for point in points if point.scheme == first.scheme]
    varied = (
        ("prompts", [(point, point.prefix) for point in under if point.suffix == first.suffix]),
        ("suffixes", [(point, point.suffix) for point in under if point.prefix == first.prefix]),
    )
    for name, own in varied:
        if len(own) > 1:
            each = ", ".join(f"{_at_tau(point)} with {numbers.count(length)}" for point, length in own)
            sentences.append(f"By the length of the {name} in tokens: {each}.")
    return sentences


def sweep_tables(sweep: SweepResult) -> list[SweepTable]:
    """By scheme at the longest prompt and suffix; and by length, where that varies, under the first scheme."""
    tables, lengths = [_by_scheme(sweep)], sweep.lengths
    if len(lengths.prefix) + len(lengths.suffix) > 2:
        tables.append(_by_length(sweep))
    return tables


def facts(sweep: SweepResult) -> list[tuple[str, str]]:
    """What the tables rest on, as (name, value)."""
    model = sweep.model
    return [
        ("Examples", numbers.count(sweep.examples)),
        ("Model", f"{numbers.title(model)}, {numbers.weights(model)}{trusted(model)}"),
        ("BOS", numbers.bos(model)),
        ("Intervals", INTERVALS),
    ]


def _by_scheme(sweep: SweepResult) -> SweepTable:
    whole, rows = sweep.longest, []
    for point in whole:
        rates = point.rates
        hundred = next(cell for cell in rates.np_table if cell.n == HUNDRED and cell.p == EVEN)
        rows.append(
            [
                numbers.name(point.scheme), _at_tau(point), _interval(point), numbers.rate(rates.maximum_rate),
                numbers.rate(hundred), _perplexity(point),
            ]
        )  # fmt: skip
    prefix, suffix = numbers.counted(whole[0].prefix, "token"), numbers.count(whole[0].suffix)
    return SweepTable(
        title=f"prompt of {prefix}, suffix of {suffix}",
        columns=("scheme", _rate_at(sweep), "95% interval", "maximum", "in 100", "perplexity"),
        rows=rows,
        caption=(
            f"Greedy rate {numbers.rate(whole[0].rates.greedy_rate)}. In 100: the suffix comes at least once in 100 "
            "generations with even odds. Perplexity: the median, and of how many it is finite."
        ),
    )


def _by_length(sweep: SweepResult) -> SweepTable:
    points, lengths = sweep.points, sweep.lengths
    rows = []
    for prefix in lengths.prefix:
        own = [p for p in points if p.prefix == prefix and p.scheme == points[0].scheme]
        cells = [f"{_at_tau(point)}, {numbers.rate(point.rates.greedy_rate)}" for point in own]
        rows.append([numbers.count(prefix), *cells])
    return SweepTable(
        title=f"{_rate_at(sweep)}, and greedy, under {numbers.name(points[0].scheme)}",
        columns=("prompt tokens", *(f"suffix of {numbers.count(length)}" for length in lengths.suffix)),
        rows=rows,
    )


def odds_table(sweep: SweepResult) -> SweepTable:
    """At the longest prompt and suffix, for each scheme the share that comes in n generations with even odds."""
    longest = sweep.longest
    cells = [[cell for cell in point.rates.np_table if cell.p == EVEN] for point in longest]
    return SweepTable(
        title=f"p = {numbers.threshold(cells[0][0].p)}",
        columns=("scheme", *(f"n = {numbers.count(cell.n)}" for cell in cells[0])),
        rows=[[numbers.name(point.scheme), *map(numbers.rate, own)] for point, own in zip(longest, cells, strict=True)],
        caption="Share of the examples whose suffix appears at least once in n generations with probability p or more.",
    )


def points_table(sweep: SweepResult) -> SweepTable:
    rows = []
    for point in sweep.points:
        own = point.rates
        rates = [numbers.rate(rate) for rate in (own.greedy_rate, own.rate_at_1e_4, own.maximum_rate)]
        lengths = [numbers.count(point.prefix), numbers.count(point.suffix)]
        rows.append(
            [numbers.name(point.scheme), *lengths, _at_tau(point), _interval(point), *rates, _perplexity(point)]
        )
    return SweepTable(
        title="every scheme at every length",
        columns=(
            "scheme", "prompt tokens", "suffix tokens", _rate_at(sweep), "95% interval", "greedy", "at 0.0001",
            "maximum", "perplexity",
        ),
        rows=rows,
        caption=f"Intervals: {INTERVALS} Perplexity: the median, and of how many it is finite.",
    )  # fmt: skip


def _lengths(point: Point) -> str:
    prefix, suffix = numbers.counted(point.prefix, "token"), numbers.counted(point.suffix, "token")
    return f"prompts of {prefix} and suffixes of {suffix}"


def _rate_at(sweep: SweepResult) -> str:
    return f"rate at {numbers.setting(sweep.tau)}"


def _at_tau(point: Point) -> str:
    return numbers.rate(point.rates.rate_at_tau)


def _interval(point: Point) -> str:
    return "–".join(numbers.percent(end) for end in point.rates.rate_at_tau.interval)


def _perplexity(point: Point) -> str:
    quartiles = point.perplexity.quartiles
    if not quartiles:
        return "none finite"
    median = mark(quartiles[1], f"{quartiles[1]:.3g}", "number")
    return f"{median} of {numbers.count(point.perplexity.finite)}"
