"""The plots of a sweep, rates as lengths or schemes vary, and of a reconstruction, where it follows the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from rote.report.figures.figure import Axis, Figure, Layer
from rote.report.figures.layers import intervals, made_with, rate_table, rule, sentences, short_scheme
from rote.report.text import numbers

CHANCE = 0.5
"""The p of the curves against n."""

SWEEP_FIGURES = {
    "prefix": "several prompt lengths (--prefix)",
    "suffix": "several suffix lengths (--suffix)",
    "schemes": "several schemes (--scheme)",
    "prompts": "at least one scheme",
}
"""Every figure that a sweep can have, and what it needs."""

RECONSTRUCTION_FIGURES = {"matches": "a true text to compare with (--truth)"}

_LENGTHS = {"prefix": "Prompt length (tokens)", "suffix": "Suffix length (tokens)"}


def sweep_figures(sweep: Mapping[str, Any]) -> list[Figure]:
    """The figures of what `rote sweep` writes as sweep.json; those of what did not vary are left out."""
    made = [_by_length(sweep, "prefix"), _by_length(sweep, "suffix"), _by_scheme(sweep), _prompts(sweep)]
    return [figure for figure in made if figure is not None]


def reconstruction_figures(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> list[Figure]:
    """Where a reconstructed text follows the true one, from a reconstruction's manifest and summary."""
    found = summary["similarity"]
    if found is None or not found["by_position"]:
        return []
    parts = pl.DataFrame(found["by_position"], schema=["x0", "x1", "y"], orient="row").cast(pl.Float64)
    last = float(parts["x1"].max() or 1.0)  # type: ignore[arg-type]
    whole = found["matched_share"]
    beams = manifest["beams"]
    how = "greedy decoding" if beams == 1 else f"beam search of width {beams}"
    return [
        Figure(
            name="matches",
            title="Where the text follows the true one",
            caption=sentences(
                f"The true text in {numbers.counted(parts.height, 'part')} of equal length; the height is the share of "
                f"each one's words that lie in matching blocks, {numbers.percent(whole)} of all. The blocks are those of "
                "one alignment of the two texts; the seed is left out.",
                made_with(manifest, f"written by {how}"),
            ),
            x=Axis("Word of the true text", format="count", limits=(0.0, last)),
            y=Axis("Share in matching blocks", format="percent", limits=(0.0, 1.0)),
            layers=(Layer("bars", parts), rule(0.0, whole, last, whole, f"Whole text, {numbers.percent(whole)}")),
            table=parts.select(
                pl.col("x0").cast(pl.Int64).alias("first_word"),
                pl.col("x1").cast(pl.Int64).alias("end_word"),
                pl.col("y").alias("share_in_matching_blocks"),
            ),
        )
    ]


def _by_length(sweep: Mapping[str, Any], part: str) -> Figure | None:
    """Rate at tau against one length, a line for each scheme, or for each other length where there is one scheme."""
    lengths = sweep["lengths"][part]
    if len(lengths) < 2:
        return None
    other = "suffix" if part == "prefix" else "prefix"
    layers: list[Layer] = []
    listed = []
    series = list(_series(sweep, other))
    shift = min(0.04, 0.5 / len(series))  # side by side, but never as far as the next length
    shifts = [(i - (len(series) - 1) / 2) * shift for i in range(len(series))]
    for colour, (label, scheme, length) in enumerate(series):
        own = [p for p in sweep["points"] if p["scheme"] == scheme and p[other] == length]
        rates = [point["rates"]["rate_at_tau"] for point in own]
        places = [lengths.index(point[part]) + shifts[colour] for point in own]
        layers.append(Layer("line", pl.DataFrame({"x": places, "y": [rate["rate"] for rate in rates]}), "", colour))
        layers += intervals(places, rates, label, colour)
        listed += [({name: point[name] for name in ("scheme", "prefix", "suffix")}, point["rates"]) for point in own]
    fixed = max(sweep["lengths"][other])
    same = f"with a {other} of {numbers.counted(fixed, 'token')}" if len(_schemes(sweep)) > 1 else ""
    return Figure(
        name=part,
        title=f"Rate by {'prompt' if part == 'prefix' else 'suffix'} length",
        caption=sentences(f"{_share(sweep)} {same}".strip() + ".", _sure(), _measured(sweep)),
        x=Axis(_LENGTHS[part], "category", "count", (-0.5, len(lengths) - 0.5), tuple(map(numbers.count, lengths))),
        y=Axis("Rate", format="percent", limits=(0.0, 1.0)),
        layers=tuple(layers),
        table=rate_table([(of, rates["rate_at_tau"]) for of, rates in listed]),
    )


def _by_scheme(sweep: Mapping[str, Any]) -> Figure | None:
    """Rate at tau and greedy of each scheme, at the longest prompt and suffix."""
    schemes = _schemes(sweep)
    if len(schemes) < 2:
        return None
    own = _longest(sweep)
    layers: list[Layer] = []
    listed = []
    named = (("rate_at_tau", f"At τ = {sweep['tau']:g}"), ("maximum_rate", "Maximum, any number of prompts"))
    for colour, (name, label) in enumerate(named):
        rates = [own[scheme]["rates"][name] for scheme in schemes]
        layers += intervals([i + (-0.1, 0.1)[colour] for i in range(len(schemes))], rates, label, colour)
        listed += [({"scheme": s, "measure": label}, own[s]["rates"][name]) for s in schemes]
    greedy = own[schemes[0]]["rates"]["greedy_rate"]["rate"]
    return Figure(
        name="schemes",
        title="Rate by scheme",
        caption=sentences(f"{_share(sweep)}, {_lengths(sweep)}.", _sure(), _measured(sweep)),
        x=Axis("", "category", limits=(-0.5, len(schemes) - 0.5), names=tuple(map(short_scheme, schemes))),
        y=Axis("Rate", format="percent", limits=(0.0, 1.0)),
        layers=(*layers, rule(-0.5, greedy, len(schemes) - 0.5, greedy, f"Greedy, {numbers.percent(greedy)}")),
        table=rate_table(listed),
    )


def _prompts(sweep: Mapping[str, Any]) -> Figure:
    """For each scheme the share that comes at least once in n generations with even odds, against n."""
    own = _longest(sweep)
    layers: list[Layer] = []
    listed = []
    for colour, scheme in enumerate(_schemes(sweep)):
        cells = [cell for cell in own[scheme]["rates"]["np_table"] if cell["p"] == CHANCE]
        data = pl.DataFrame({"x": [float(cell["n"]) for cell in cells], "y": [cell["rate"] for cell in cells]})
        layers.append(Layer("line", data, "", colour))
        layers += intervals([cell["n"] for cell in cells], cells, short_scheme(scheme), colour)
        listed += [({"scheme": scheme, "n": cell["n"], "p": cell["p"]}, cell) for cell in cells]
    greedy = own[_schemes(sweep)[0]]["rates"]["greedy_rate"]["rate"]
    last = float(max(row[0]["n"] for row in listed))
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


def _series(sweep: Mapping[str, Any], other: str) -> Iterator[tuple[str, str, int]]:
    """What each line against a length is of: its label, scheme and other length."""
    schemes, lengths = _schemes(sweep), sweep["lengths"][other]
    if len(schemes) > 1:
        yield from ((short_scheme(scheme), scheme, max(lengths)) for scheme in schemes)
    else:
        yield from ((f"{other} {length}", schemes[0], length) for length in lengths)


def _schemes(sweep: Mapping[str, Any]) -> Sequence[str]:
    return list(dict.fromkeys(point["scheme"] for point in sweep["points"]))


def _longest(sweep: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Each scheme's point at the longest prompt and suffix."""
    most = {part: max(sweep["lengths"][part]) for part in ("prefix", "suffix")}
    return {p["scheme"]: p for p in sweep["points"] if all(p[part] == length for part, length in most.items())}


def _share(sweep: Mapping[str, Any]) -> str:
    return f"Share of {numbers.counted(sweep['examples'], 'example')} extractable at τ = {sweep['tau']:g}"


def _lengths(sweep: Mapping[str, Any]) -> str:
    prefix, suffix = (numbers.counted(max(sweep["lengths"][part]), "token") for part in ("prefix", "suffix"))
    return f"with prompts of {prefix} and suffixes of {suffix}"


def _sure() -> str:
    return "Whiskers: 95% Wilson intervals, taking the examples as a random sample; windows that overlap are none."


def _measured(sweep: Mapping[str, Any]) -> str:
    schemes = _schemes(sweep)
    return made_with(sweep, f"scheme {schemes[0]}" if len(schemes) == 1 else "temperature 1 unless said otherwise")
