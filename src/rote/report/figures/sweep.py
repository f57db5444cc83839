"""The plots of a sweep: rates as lengths or schemes vary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from rote.report.figures.figure import Axis, Figure, Layer
from rote.report.figures.layers import intervals, made_with, rate_table, rule, sentences, short_scheme
from rote.report.text import numbers
from rote.store.summary import Rate
from rote.store.sweep import SweepResult, SweptPart

CHANCE = 0.5
"""The p of the curves against n."""

SWEEP_FIGURES = {
    "prefix": "several prompt lengths",
    "suffix": "several suffix lengths",
    "schemes": "several schemes",
    "prompts": "at least one scheme",
}
"""Every figure that a sweep can have, and what it needs."""

_LENGTHS = {"prefix": "Prompt length (tokens)", "suffix": "Suffix length (tokens)"}


def sweep_figures(sweep: SweepResult) -> list[Figure]:
    """The figures of what `rote sweep` writes as sweep.json; those of what did not vary are left out."""
    made = [_by_length(sweep, "prefix"), _by_length(sweep, "suffix"), _by_scheme(sweep), _prompts(sweep)]
    return [figure for figure in made if figure is not None]


def _by_length(sweep: SweepResult, part: SweptPart) -> Figure | None:
    """Rate at tau against one length, a line for each scheme, or for each other length where there is one scheme."""
    lengths = sweep.lengths.of(part)
    if len(lengths) < 2:
        return None
    other: SweptPart = "suffix" if part == "prefix" else "prefix"
    layers: list[Layer] = []
    listed: list[tuple[dict[str, str | int], Rate]] = []
    series = list(_series(sweep, other))
    shift = min(0.04, 0.5 / len(series))  # side by side, but never as far as the next length
    shifts = [(i - (len(series) - 1) / 2) * shift for i in range(len(series))]
    for colour, (label, scheme, length) in enumerate(series):
        own = [p for p in sweep.points if p.scheme == scheme and p.length(other) == length]
        rates = [point.rates.rate_at_tau for point in own]
        places = [lengths.index(point.length(part)) + shifts[colour] for point in own]
        layers.append(Layer("line", pl.DataFrame({"x": places, "y": [rate.rate for rate in rates]}), "", colour))
        layers += intervals(places, rates, label, colour)
        for point, rate in zip(own, rates, strict=True):
            listed.append(({"scheme": point.scheme, "prefix": point.prefix, "suffix": point.suffix}, rate))
    fixed = max(sweep.lengths.of(other))
    same = f"with a {other} of {numbers.counted(fixed, 'token')}" if len(_schemes(sweep)) > 1 else ""
    return Figure(
        name=part,
        title=f"Rate by {'prompt' if part == 'prefix' else 'suffix'} length",
        caption=sentences(f"{_share(sweep)} {same}".strip() + ".", _sure(), _measured(sweep)),
        x=Axis(_LENGTHS[part], "category", "count", (-0.5, len(lengths) - 0.5), tuple(map(numbers.count, lengths))),
        y=Axis("Rate", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=rate_table(listed),
    )


def _by_scheme(sweep: SweepResult) -> Figure | None:
    """Rate at tau and greedy of each scheme, at the longest prompt and suffix."""
    own = sweep.longest
    if len(own) < 2:
        return None
    schemes = [point.scheme for point in own]
    layers: list[Layer] = []
    listed = []
    named = (
        (f"At τ = {sweep.tau:g}", [point.rates.rate_at_tau for point in own]),
        ("Maximum, any number of prompts", [point.rates.maximum_rate for point in own]),
    )
    for colour, (label, rates) in enumerate(named):
        layers += intervals([i + (-0.1, 0.1)[colour] for i in range(len(schemes))], rates, label, colour)
        listed += [({"scheme": s, "measure": label}, rate) for s, rate in zip(schemes, rates, strict=True)]
    greedy = own[0].rates.greedy_rate.rate
    return Figure(
        name="schemes",
        title="Rate by scheme",
        caption=sentences(f"{_share(sweep)}, {_lengths(sweep)}.", _sure(), _measured(sweep)),
        x=Axis("", "category", limits=(-0.5, len(schemes) - 0.5), names=tuple(map(short_scheme, schemes))),
        y=Axis("Rate", format="percent", limits=(0.0, 1.0)),
        layers=(*layers, rule(-0.5, greedy, len(schemes) - 0.5, greedy, f"Greedy, {numbers.percent(greedy)}")),
        table=rate_table(listed),
    )


def _prompts(sweep: SweepResult) -> Figure:
    """For each scheme the share that comes at least once in n generations with even odds, against n."""
    own = sweep.longest
    layers: list[Layer] = []
    listed = []
    for colour, point in enumerate(own):
        cells = [cell for cell in point.rates.np_table if cell.p == CHANCE]
        data = pl.DataFrame({"x": [float(cell.n) for cell in cells], "y": [cell.rate for cell in cells]})
        layers.append(Layer("line", data, "", colour))
        layers += intervals([cell.n for cell in cells], cells, short_scheme(point.scheme), colour)
        listed += [({"scheme": point.scheme, "n": cell.n, "p": cell.p}, cell) for cell in cells]
    greedy = own[0].rates.greedy_rate.rate
    last = float(max(cell.n for _, cell in listed))
    return Figure(
        name="prompts",
        title="How many prompts it takes",
        caption=sentences(
            "Share of examples that come at least once in n generations with probability "
            f"{numbers.threshold(CHANCE)} or more, {_lengths(sweep)}.",
            _sure(),
            _measured(sweep),
        ),
        x=Axis("Generations n", "log", "count", limits=(1.0, last)),
        y=Axis("Share of examples", format="percent", limits=(0.0, 1.0)),
        layers=(*layers, rule(1.0, greedy, last, greedy, f"Greedy, {numbers.percent(greedy)}")),
        table=rate_table(listed),
    )


def _series(sweep: SweepResult, other: SweptPart) -> Iterator[tuple[str, str, int]]:
    """What each line against a length is of: its label, scheme and other length."""
    schemes, lengths = _schemes(sweep), sweep.lengths.of(other)
    if len(schemes) > 1:
        yield from ((short_scheme(scheme), scheme, max(lengths)) for scheme in schemes)
    else:
        yield from ((f"{other} {length}", schemes[0], length) for length in lengths)


def _schemes(sweep: SweepResult) -> Sequence[str]:
    return list(dict.fromkeys(point.scheme for point in sweep.points))


def _share(sweep: SweepResult) -> str:
    return f"Share of {numbers.counted(sweep.examples, 'example')} extractable at τ = {sweep.tau:g}"


def _lengths(sweep: SweepResult) -> str:
    lengths = sweep.lengths
    prefix, suffix = (numbers.counted(max(each), "token") for each in (lengths.prefix, lengths.suffix))
    return f"with prompts of {prefix} and suffixes of {suffix}"


def _sure() -> str:
    return "Whiskers: 95% Wilson intervals, taking the examples as a random sample; windows that overlap are none."


def _measured(sweep: SweepResult) -> str:
    schemes = _schemes(sweep)
    return made_with(
        sweep.model, f"scheme {schemes[0]}" if len(schemes) == 1 else "temperature 1 unless said otherwise"
    )
