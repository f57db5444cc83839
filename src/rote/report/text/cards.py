"""Results as a notebook shows them: a headline, the strip over the text, a table. Fragments of HTML, without scripts.

Colours are those of the surroundings, so that they can be read in dark notebooks too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from markupsafe import Markup

from rote.analysis.empirical import Agreement
from rote.frames import html_card, html_table
from rote.report.text import numbers
from rote.report.text.comparison import TableLine, notes, numbers_table, pairs_table, runs_table
from rote.report.text.comparison import headline as comparison_headline
from rote.report.text.conclusion import conclusion
from rote.report.text.member import headline as member_headline
from rote.report.text.member import lede as member_lede
from rote.report.text.membertables import areas, thresholds
from rote.report.text.passage import Line, ShownPassage, passage_lines
from rote.report.text.probe import headline as probe_headline
from rote.report.text.probe import lede as probe_lede
from rote.report.text.probe import rule as probe_rule
from rote.report.text.probetables import confusion, judged, outcomes, probed
from rote.report.text.reconstruction import headline as reconstruction_headline
from rote.report.text.reconstruction import rows as reconstruction_rows
from rote.report.text.spots import Spots, excerpt
from rote.report.text.spots import headline as spots_headline
from rote.report.text.strip import BELOW, LEVELS, UNSEEN, levels
from rote.report.text.submissions import headline as score_headline
from rote.report.text.submissions import lede as score_lede
from rote.report.text.submissions import score_tables
from rote.report.text.sweep import headline as sweep_headline
from rote.report.text.sweep import lede as sweep_lede
from rote.report.text.sweep import sweep_tables
from rote.report.text.terminal import Lane, lanes, legend, legend_words, passages, unlocked
from rote.report.text.variants import variant_warnings
from rote.report.text.words import headline, lede, near_sentence
from rote.store.comparison import ComparisonResult
from rote.store.manifest import ReconstructionManifest
from rote.store.member import MemberSummary
from rote.store.probe import ProbeManifest, ProbeSummary
from rote.store.reconstruction import ReconstructionSummary
from rote.store.run import RunView
from rote.store.submissions import ScoreResult
from rote.store.sweep import SweepResult

BARS = 160
LONG = 12
"""A table with more rows than this within a card is folded."""

STYLES = {
    "heading": "font-weight:bold",
    "prefix": "opacity:.6",
    "suffix": "font-weight:bold",
    "del": "text-decoration:line-through;color:#d33",
    "ins": "text-decoration:underline;color:#292",
}
LANE = Markup('<div style="display:flex;align-items:center;gap:.6em"><span style="width:5em">{}</span>{}</div>')


def card(title: str, *parts: Markup) -> str:
    return html_card(_html(title), *parts)


def sentence(text: str) -> Markup:
    return Markup('<div style="margin:.4em 0">{}</div>').format(_html(text))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    return Markup(html_table(columns, rows, _html))


def _html(text: str) -> Markup:
    """A sentence or a cell; whatever foreign text stands in it, it can be stored and shown."""
    return numbers.typeset(numbers.literal(text))


def run_card(run: RunView) -> str:
    """A run: its headline and what that means, the strip of a scan, the strongest passages, and warnings."""
    shown, model, near = passages(run), run.manifest.model, run.numbers.near
    parts = [sentence(lede(run))]
    if near is not None:
        parts.append(sentence(f"Near-verbatim: {near_sentence(run, near)}"))
    if run.scanned:
        parts.append(_strip(run, lanes(run)))
    if shown:
        parts.append(table(("strongest passages", "begins"), [(p.facts, p.words) for p in shown]))
    if only := unlocked(run):
        rows = [(passage.facts, passage.words) for passage in only.shown]
        parts += [sentence(only.title), table(("passage", "likeliest output"), rows)]
        parts += [sentence(only.note)] if only.note else []
    parts.append(sentence(f"{model.title}; scheme {run.scheme}; BOS {numbers.bos(model)}"))
    return card(
        headline(run),
        *parts,
        *(sentence(f"Warning: {warning}") for warning in [*variant_warnings(run), *run.summary.warnings]),
    )


def _strip(run: RunView, shown: Sequence[Lane]) -> Markup:
    """The text from left to right, a line for each lane: the higher and warmer, the more likely."""
    tau = run.summary.tau
    lines = [LANE.format(lane.name, _bars(levels(lane.best, tau=tau, count=BARS))) for lane in shown]
    scale = Markup("&emsp;").join(
        Markup('<span style="color:{}">■</span> {}').format(_colour(level), label)
        for level, label in (legend(shown[0], tau) if shown else ())
    )
    return Markup("").join([*lines, Markup("<div>{}</div>").format(scale), sentence(legend_words(run, BARS, "grey"))])


def _bars(shown: Sequence[int]) -> Markup:
    bars = Markup("").join(
        Markup('<rect x="{}" y="{}" width="1.05" height="{}" fill="{}"/>').format(x, 24 - high, high, _colour(level))
        for x, level in enumerate(shown)
        if level != BELOW
        for high in [24 if level == UNSEEN else 3 + 21 * level / (LEVELS - 1)]
    )
    return Markup(
        '<svg viewBox="0 0 {} 24" preserveAspectRatio="none" shape-rendering="crispEdges" role="img" '
        'aria-label="probability along the text" '
        'style="width:100%;height:24px;border:1px solid rgba(128,128,128,.5)">{}</svg>'
    ).format(len(shown), bars)


def _colour(level: int) -> str:
    if level == UNSEEN:
        return "rgba(128,128,128,.3)"
    share = level / (LEVELS - 1)
    return f"rgb({round(255 - 55 * share)},{round(170 * (1 - share))},{round(60 * (1 - share))})"


def sweep_card(result: SweepResult) -> str:
    tables = [part for each in sweep_tables(result) for part in (sentence(each.title), table(each.columns, each.rows))]
    return card(sweep_headline(result), *map(sentence, sweep_lede(result)), *tables)


def score_card(result: ScoreResult) -> str:
    tables = [part for each in score_tables(result) for part in (sentence(each.title), table(each.columns, each.rows))]
    return card(score_headline(result), *map(sentence, score_lede(result)), *tables)


def member_card(summary: MemberSummary) -> str:
    evaluation = summary.evaluation
    shown = [] if evaluation is None else [areas(evaluation), thresholds(evaluation, intervals=True)]
    tables = [part for each in shown for part in (sentence(each.title), table(each.columns, each.rows))]
    return card(member_headline(summary), *map(sentence, member_lede(summary)), *tables)


def probe_card(manifest: ProbeManifest, summary: ProbeSummary) -> str:
    against = [
        each
        for one in summary.evaluations
        for each in (judged(one, manifest, intervals=True), confusion(one, manifest))
    ]
    shown = [*against, probed(manifest, summary), outcomes(manifest, summary)]
    tables = [part for each in shown for part in (sentence(each.title), table(each.columns, each.rows))]
    said = [*probe_lede(manifest, summary), f"How answers were judged: {probe_rule(manifest)}"]
    return card(probe_headline(manifest, summary), *map(sentence, said), *tables)


def comparison_card(result: ComparisonResult) -> str:
    (names, *runs), (heads, *rows), (between, *pairs) = (
        runs_table(result), numbers_table(result, cost=False), pairs_table(result),
    )  # fmt: skip
    against = f"Against {result.runs[0].key}, at τ = {numbers.setting(result.tau)}"
    tables = [table(names, runs), table(heads, rows), sentence(against), table(between, pairs)]
    first, *others = conclusion(result)
    return card(first, *map(sentence, [*others, comparison_headline(result)]), *tables, *map(sentence, notes(result)))


def reconstruction_card(manifest: ReconstructionManifest, summary: ReconstructionSummary) -> str:
    return card(reconstruction_headline(summary), table((), reconstruction_rows(manifest, summary)))


def spots_card(listed: Spots) -> str:
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
    parts = [table(heads, rows)] if rows else []
    if len(rows) < listed.hot_spots:
        parts.append(sentence(f"The first {numbers.count(len(rows))}, by {listed.rank}."))
    return card(spots_headline(listed), *parts, sentence(f"{listed.model}; scheme {listed.scheme}"))


def passage_card(passage: ShownPassage) -> str:
    title, *lines = passage_lines(passage)
    parts: list[Markup] = []
    for columns, group in groupby(lines, lambda line: len(_cells(line))):
        own = list(group)
        parts += [_folded([_cells(line) for line in own])] if columns else map(_line, filter(None, own))
    return card("".join(text for _, text in title), *parts)


def _cells(line: Line) -> tuple[str, ...]:
    """Of a row of a table; nothing of any other line."""
    text = line[0][1] if line else ""
    return text.cells if isinstance(text, TableLine) else ()


def _folded(rows: Sequence[Sequence[str]]) -> Markup:
    """A table, with a head where it has more than names and values; to be unfolded where it is long."""
    head, body = (rows[0], rows[1:]) if len(rows[0]) > 2 else ((), rows)
    shown = table(head, body)
    if len(body) <= LONG:
        return shown
    return Markup("<details><summary>{}</summary>{}</details>").format(numbers.counted(len(body), "row"), shown)


def _line(line: Line) -> Markup:
    parts = Markup("").join(
        Markup('<span style="{}">{}</span>').format(STYLES.get(kind, ""), numbers.literal(text)) for kind, text in line
    )
    above = ".6em" if line[0][0] == "heading" else "0"
    return Markup('<div style="white-space:pre-wrap;margin-top:{}">{}</div>').format(above, parts)


def checked_headline(passages: int, outside: int) -> str:
    if passages == 1:
        place = "outside" if outside else "within"
        return f"The computed probability lies {place} the 95% interval of the generated share."
    return f"{outside} of {passages} computed probabilities lie outside the 95% interval of the generated share."


def checked_card(checked: Mapping[str, Agreement], scheme: str, outside: int) -> str:
    rows = []
    for name, own in checked.items():
        low, high = own.interval
        shares = f"{numbers.count(own.hits)}/{numbers.count(own.samples)}"
        rows.append((name, f"{own.p_z:.3g}", shares, f"{low:.4f}–{high:.4f}"))
    title = checked_headline(len(checked), outside)
    return card(title, table(("example", "p_z", "generated", "95% interval"), rows), sentence(f"Scheme {scheme}."))


def facts_card(title: str, facts: Mapping[str, str]) -> str:
    return card(title, table((), facts.items()))
