"""Results as a notebook shows them: a headline, the strip over the text, a table. Fragments of HTML, without scripts.

Colours are those of the surroundings, so that they can be read in dark notebooks too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup

from rote.analysis.empirical import Agreement
from rote.report.text import numbers
from rote.report.text.comparison import headline as comparison_headline
from rote.report.text.comparison import numbers_table, runs_table
from rote.report.text.passage import ShownPassage, passage_lines
from rote.report.text.reconstruction import headline as reconstruction_headline
from rote.report.text.reconstruction import rows as reconstruction_rows
from rote.report.text.spots import Spots, excerpt
from rote.report.text.strip import LEVELS, levels
from rote.report.text.sweep import headline as sweep_headline
from rote.report.text.sweep import lede as sweep_lede
from rote.report.text.sweep import sweep_tables
from rote.report.text.terminal import Lane, lanes, legend, legend_words, passages
from rote.report.text.words import headline, lede
from rote.store.comparison import ComparisonResult
from rote.store.manifest import ReconstructionManifest
from rote.store.reconstruction import ReconstructionSummary
from rote.store.run import RunView
from rote.store.sweep import SweepResult

BARS = 160
STYLES = {
    "heading": "font-weight:bold",
    "prefix": "opacity:.6",
    "suffix": "font-weight:bold",
    "del": "text-decoration:line-through;color:#c33",
    "ins": "text-decoration:underline;color:#292",
}
LANE = Markup('<div style="display:flex;align-items:center;gap:.6em"><span style="width:5em">{}</span>{}</div>')


def card(title: str, *parts: Markup) -> str:
    head = Markup('<div style="font-weight:bold;margin-bottom:.4em">{}</div>').format(numbers.typeset(title))
    inside = Markup("").join([head, *parts])
    return str(Markup('<div style="max-width:60em;line-height:1.4">{}</div>').format(inside))


def sentence(text: str) -> Markup:
    return Markup('<div style="margin:.4em 0">{}</div>').format(numbers.typeset(text))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    head = Markup("").join(
        Markup('<th style="text-align:left;padding:.1em .8em .1em 0">{}</th>').format(numbers.typeset(c))
        for c in columns
    )
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(
                Markup('<td style="text-align:left;padding:.1em .8em .1em 0">{}</td>').format(numbers.typeset(c))
                for c in row
            )
        )
        for row in rows
    )
    return Markup('<table style="margin:.4em 0"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>').format(head, body)


def run_card(run: RunView) -> str:
    """A run: its headline and what that means, the strip of a scan, and the strongest passages."""
    shown = passages(run)
    strongest = table(("strongest passages", "begins"), [(p.facts, p.words) for p in shown])
    parts = [sentence(lede(run)), *([_strip(run, lanes(run))] if run.scanned else []), *([strongest] if shown else [])]
    rests = f"{run.manifest.model.name}; scheme {run.scheme}; BOS {numbers.bos(*_bos(run))}"
    return card(headline(run), *parts, sentence(numbers.literal(rests)))


def _bos(run: RunView) -> tuple[str, int | None]:
    return run.manifest.model.bos, run.manifest.model.bos_token


def _strip(run: RunView, shown: Sequence[Lane]) -> Markup:
    """The text from left to right, a line for each lane: the higher and warmer, the more likely."""
    tau = run.summary.tau
    lines = [LANE.format(lane.name, _bars(levels(lane.best, tau=tau, count=BARS))) for lane in shown]
    scale = Markup("&emsp;").join(
        Markup('<span style="color:{}">■</span> {}').format(_colour(level), label)
        for level, label in (legend(shown[0], tau) if shown else ())
    )
    return Markup("").join([*lines, Markup("<div>{}</div>").format(scale), sentence(legend_words(run, BARS))])


def _bars(shown: Sequence[int | None]) -> Markup:
    bars = Markup("").join(
        Markup('<rect x="{}" y="{}" width="1.05" height="{}" fill="{}"/>').format(x, 24 - high, high, _colour(level))
        for x, level in enumerate(shown)
        if level is not None
        for high in [3 + 21 * level / (LEVELS - 1)]
    )
    return Markup(
        '<svg viewBox="0 0 {} 24" preserveAspectRatio="none" shape-rendering="crispEdges" role="img" '
        'aria-label="probability along the text" '
        'style="width:100%;height:24px;border:1px solid rgba(128,128,128,.5)">{}</svg>'
    ).format(len(shown), bars)


def _colour(level: int) -> str:
    share = level / (LEVELS - 1)
    return f"rgb({round(255 - 60 * share)},{round(170 * (1 - share))},{round(60 * (1 - share))})"


def sweep_card(result: SweepResult) -> str:
    tables = [part for each in sweep_tables(result) for part in (sentence(each.title), table(each.columns, each.rows))]
    return card(sweep_headline(result), *map(sentence, sweep_lede(result)), *tables)


def comparison_card(result: ComparisonResult) -> str:
    (names, *runs), (heads, *rows) = runs_table(result), numbers_table(result)
    return card(comparison_headline(result), table(names, runs), table(heads, rows))


def reconstruction_card(manifest: ReconstructionManifest, summary: ReconstructionSummary) -> str:
    return card(reconstruction_headline(summary), table(("", ""), reconstruction_rows(manifest, summary)))


def spots_card(listed: Spots) -> str:
    title = f"{numbers.counted(listed.hot_spots, 'hot-spot')} at p ≥ {numbers.threshold(listed.threshold)} in "
    rows = [
        (
            f"{numbers.count(spot.start)} to {numbers.count(spot.end)}",
            numbers.count(spot.windows),
            numbers.probability(spot.log_prob),
            spot.part + (" (a guess)" if spot.part_guessed else ""),
            excerpt(spot.text),
        )
        for spot in listed.spots
    ]
    heads = ("characters", "windows", "highest p", "part", "first words")
    return card(title + numbers.literal(listed.source), table(heads, rows), sentence(f"Scheme {listed.scheme}."))


def passage_card(passage: ShownPassage) -> str:
    styled = Markup('<span style="{}">{}</span>')
    lines = Markup("\n").join(
        Markup("").join(styled.format(STYLES.get(kind, ""), part) for kind, part in line)
        for line in passage_lines(passage)
    )
    return str(Markup('<pre style="white-space:pre-wrap">{}</pre>').format(lines))


def checked_card(checked: Mapping[str, Agreement], scheme: str, outside: int) -> str:
    rows = []
    for name, own in checked.items():
        low, high = own.interval
        shares = f"{numbers.count(own.hits)}/{numbers.count(own.samples)}"
        rows.append((numbers.literal(name), f"{own.p_z:.3g}", shares, f"{low:.4f}–{high:.4f}"))
    title = f"{outside} of {len(checked)} computed probabilities lie outside the 95% interval of the generated share."
    return card(title, table(("example", "p_z", "generated", "95% interval"), rows), sentence(f"Scheme {scheme}."))


def facts_card(title: str, facts: Mapping[str, str]) -> str:
    return card(title, table(("", ""), [(name, numbers.literal(fact)) for name, fact in facts.items()]))
