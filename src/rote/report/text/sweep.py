"""A sweep in words and tables, for the terminal and for its page, and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rote.report.figures.sweep import sweep_figures
from rote.report.keys import keyed, mark
from rote.report.page.layout import render_page
from rote.report.text import numbers
from rote.report.text.method import method

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


def headline(sweep: Mapping[str, Any]) -> str:
    """The rate of the first scheme at the longest prompt and suffix, in one sentence."""
    first = _longest(sweep)[0]
    source = numbers.name(sweep["source"]["name"])
    return (
        f"{_at_tau(first)} of {numbers.counted(sweep['examples'], 'example')} of {source} can be extracted at τ = "
        f"{numbers.setting(sweep['tau'])}, with {_lengths(first)}."
    )


def lede(sweep: Mapping[str, Any]) -> list[str]:
    """What the headline rests on, and between what the rate varies."""
    found, points = _longest(sweep), sweep["points"]
    first = found[0]
    low, high = first["rates"]["rate_at_tau"]["interval"]
    sentences = [
        f"That is under {numbers.name(first['scheme'])}; 95% Wilson interval {numbers.percent(low)} to {numbers.percent(high)}. "
        f"Greedy decoding gives back {numbers.rate(first['rates']['greedy_rate'])}."
    ]
    if len(found) > 1:
        ordered = sorted(found, key=lambda point: float(point["rates"]["rate_at_tau"]["rate"]))
        least, most = ordered[0], ordered[-1]
        sentences.append(
            f"Between schemes the rate goes from {_at_tau(least)} ({numbers.name(least['scheme'])}) to {_at_tau(most)} "
            f"({numbers.name(most['scheme'])})."
        )
    for part, name in (("prefix", "prompts"), ("suffix", "suffixes")):
        other = "suffix" if part == "prefix" else "prefix"
        own = [p for p in points if p["scheme"] == first["scheme"] and p[other] == first[other]]
        if len(own) > 1:
            each = ", ".join(f"{_at_tau(point)} with {numbers.count(point[part])}" for point in own)
            sentences.append(f"By the length of the {name} in tokens: {each}.")
    return sentences


def sweep_tables(sweep: Mapping[str, Any]) -> list[SweepTable]:
    """By scheme at the longest prompt and suffix; and by length, where that varies, under the first scheme."""
    tables, lengths = [_by_scheme(sweep)], sweep["lengths"]
    if len(lengths["prefix"]) + len(lengths["suffix"]) > 2:
        tables.append(_by_length(sweep))
    return tables


def facts(sweep: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the tables rest on, as (name, value)."""
    model = sweep["model"]
    return [
        ("Examples", numbers.count(sweep["examples"])),
        ("Model", f"{numbers.name(model['name'])}, weights {numbers.short(model['fingerprint'])}"),
        ("BOS", numbers.bos(model["bos"], model.get("bos_token"))),
        ("Intervals", INTERVALS),
    ]


def render_sweep(sweep: Mapping[str, Any], runs: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """A sweep as one self-contained HTML page. `runs`: manifest and summary of each of its runs, by folder name."""
    figures = sweep_figures(sweep)
    sweep = keyed(sweep, "sweep")
    parts = {
        name: (keyed(m, f"runs/{name}/manifest"), keyed(s, f"runs/{name}/summary")) for name, (m, s) in runs.items()
    }
    return render_page(
        "sweep.html.j2",
        packed=None,
        figures=figures,
        source=numbers.name(sweep["source"]["name"]),
        model=numbers.name(sweep["model"]["name"]),
        headline=headline(sweep),
        lede=lede(sweep),
        provenance=facts(sweep),
        warnings=[f"{name}: {numbers.name(text)}" for name, (_, own) in parts.items() for text in own["warnings"]],
        tables=[_laid_out(table) for table in sweep_tables(sweep)],
        odds=_laid_out(_odds(sweep)),
        points=_laid_out(_points(sweep)),
        method=_method(sweep, parts),
    )


def _by_scheme(sweep: Mapping[str, Any]) -> SweepTable:
    whole, rows = _longest(sweep), []
    for point in whole:
        rates = point["rates"]
        hundred = next(cell for cell in rates["np_table"] if cell["n"] == HUNDRED and cell["p"] == EVEN)
        rows.append(
            [
                numbers.name(point["scheme"]), _at_tau(point), _interval(point), numbers.rate(rates["maximum_rate"]),
                numbers.rate(hundred), _perplexity(point),
            ]
        )  # fmt: skip
    prefix, suffix = numbers.count(whole[0]["prefix"]), numbers.count(whole[0]["suffix"])
    return SweepTable(
        title=f"prompt of {prefix} tokens, suffix of {suffix}",
        columns=("scheme", _rate_at(sweep), "95% interval", "maximum", "in 100", "perplexity"),
        rows=rows,
        caption=(
            f"Greedy rate {numbers.rate(whole[0]['rates']['greedy_rate'])}. In 100: the suffix comes at least once in 100 "
            "generations with even odds. Perplexity: the median, and of how many it is finite."
        ),
    )


def _by_length(sweep: Mapping[str, Any]) -> SweepTable:
    points, lengths = sweep["points"], sweep["lengths"]
    rows = []
    for prefix in lengths["prefix"]:
        own = [p for p in points if p["prefix"] == prefix and p["scheme"] == points[0]["scheme"]]
        cells = [f"{_at_tau(point)}, {numbers.rate(point['rates']['greedy_rate'])}" for point in own]
        rows.append([numbers.count(prefix), *cells])
    return SweepTable(
        title=f"{_rate_at(sweep)}, and greedy, under {numbers.name(points[0]['scheme'])}",
        columns=("prompt tokens", *(f"suffix of {numbers.count(length)}" for length in lengths["suffix"])),
        rows=rows,
    )


def _odds(sweep: Mapping[str, Any]) -> SweepTable:
    """At the longest prompt and suffix, for each scheme the share that comes in n generations with even odds."""
    found = _longest(sweep)
    cells = [[cell for cell in point["rates"]["np_table"] if cell["p"] == EVEN] for point in found]
    return SweepTable(
        title=f"p = {numbers.threshold(cells[0][0]['p'])}",
        columns=("scheme", *(f"n = {numbers.count(cell['n'])}" for cell in cells[0])),
        rows=[
            [numbers.name(point["scheme"]), *map(numbers.rate, own)] for point, own in zip(found, cells, strict=True)
        ],
        caption="Share of the examples whose suffix appears at least once in n generations with probability p or more.",
    )


def _points(sweep: Mapping[str, Any]) -> SweepTable:
    rows = []
    for point in sweep["points"]:
        rates = [numbers.rate(point["rates"][name]) for name in ("greedy_rate", "rate_at_0.0001", "maximum_rate")]
        lengths = [numbers.count(point[part]) for part in ("prefix", "suffix")]
        rows.append(
            [numbers.name(point["scheme"]), *lengths, _at_tau(point), _interval(point), *rates, _perplexity(point)]
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


def _method(
    sweep: Mapping[str, Any], runs: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> list[tuple[str, str]]:
    """What decided the numbers: the manifest of the run with the longest prompts, and what each run took."""
    manifest, summary = list(runs.values())[-1]
    found = summary["schemes"][manifest["schemes"][0]]
    same = [fact for fact in method(manifest, summary, found) if fact[0] not in ("Cost", "Warnings", "Numerics")]
    lengths = sweep["lengths"]
    prompts, suffixes = (", ".join(map(numbers.count, lengths[part])) for part in ("prefix", "suffix"))
    same.insert(
        1,
        (
            "Lengths",
            f"Prompts of {prompts} tokens, suffixes of {suffixes}. A shorter prompt is the end of a longer one, a "
            "shorter suffix its beginning: all prompts ask for the same suffix.",
        ),
    )
    costs = [
        (
            f"Cost, {name}",
            f"{numbers.counted(own['token_evals'], 'token evaluation')} in {numbers.duration(own['seconds'])}, for all "
            "schemes and suffix lengths",
        )
        for name, (_, own) in runs.items()
    ]
    return [*same, *costs]


def _laid_out(table: SweepTable) -> dict[str, Any]:
    """For the page: titles and columns begin with a capital letter, but for the symbols n and p."""

    def begun(text: str) -> str:
        return text if text[1:2] == " " else text[:1].upper() + text[1:]

    return {
        "title": begun(table.title),
        "rows": [list(map(begun, table.columns)), *table.rows],
        "caption": table.caption,
    }


def _longest(sweep: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Each scheme's point at the longest prompt and suffix, in the order in which the schemes were given."""
    most = {part: max(sweep["lengths"][part]) for part in ("prefix", "suffix")}
    return [point for point in sweep["points"] if all(point[part] == length for part, length in most.items())]


def _lengths(point: Mapping[str, Any]) -> str:
    prefix, suffix = (numbers.counted(point[part], "token") for part in ("prefix", "suffix"))
    return f"prompts of {prefix} and suffixes of {suffix}"


def _rate_at(sweep: Mapping[str, Any]) -> str:
    return f"rate at {numbers.setting(sweep['tau'])}"


def _at_tau(point: Mapping[str, Any]) -> str:
    return numbers.rate(point["rates"]["rate_at_tau"])


def _interval(point: Mapping[str, Any]) -> str:
    return "–".join(numbers.percent(end) for end in point["rates"]["rate_at_tau"]["interval"])


def _perplexity(point: Mapping[str, Any]) -> str:
    quartiles = point["perplexity"]["quartiles"]
    if not quartiles:
        return "none finite"
    median = mark(quartiles[1], f"{quartiles[1]:.3g}", "number")
    return f"{median} of {numbers.count(point['perplexity']['finite'])}"
