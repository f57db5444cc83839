"""A probe as one self-contained HTML page, with the answers where the words stand that were asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from rote.corpus.texts import LabelledText
from rote.models.base import title_of as file_of
from rote.report.figures.probe import probe_figures
from rote.report.keys import keyed, mark
from rote.report.page.answers import Limits, passage
from rote.report.page.layout import render_page
from rote.report.page.member import laid_out
from rote.report.text import numbers
from rote.report.text.membertables import MemberTable
from rote.report.text.probe import OUTCOMES as MEANINGS
from rote.report.text.probe import bias, headline, lede, main, rule, target_name, title_of
from rote.report.text.probecosts import estimates, spent
from rote.report.text.probefacts import facts, warnings
from rote.report.text.probetables import (
    by_label,
    by_repetitions,
    confusion,
    differences,
    filters,
    judged,
    meanings,
    outcomes,
    overlap,
    positions,
    probed,
    words,
)
from rote.store.probe import ProbeManifest, ProbeSummary
from rote.store.probing import ProbeView

LISTED = 300
"""Passages of the table."""

SHOWN = 60
"""Passages that are shown with their answers, a third each of those with the most and the least, and from between."""

TARGETS = 4
"""Targets whose answers are shown."""

COLUMNS = 8
"""Of the table of passages: methods and targets."""

LONG = 60
"""Characters of an id or a group that is shown whole."""

LIMITS = Limits(text=4_000, answer=300, said=60, completion=1_500, words=80)

SYMBOLS = {
    "hit": "✓", "miss": "✗", "refusal": "⊘", "empty": "∅", "malformed": "?", "error": "!", "dropped": "≈",
}  # fmt: skip
"""What stands beside a word, so that colour is not alone."""

STATES = {**dict[str, str](MEANINGS.items()), "dropped": "a filter guessed the word, so it was not asked for"}
"""How it can end with a chosen word."""


def render_probe(view: ProbeView) -> str:
    """The page of a probe."""
    manifest, summary = keyed(view.manifest, "manifest"), keyed(view.summary, "summary")
    order = _order(view)
    shown = _chosen(order)
    return render_page(
        "probe.html.j2",
        packed=None,
        figures=probe_figures(view),
        source=mark(manifest.source.name, numbers.literal(file_of(manifest.source.name, None)), "title"),
        model=numbers.title(manifest.targets[0]),
        others=len(manifest.targets) - 1,
        headline=headline(manifest, summary),
        lede=lede(manifest, summary),
        warnings=list(warnings(summary)),
        provenance=facts(manifest, summary, keyed(view.seal, "seal/id")),
        rule=rule(manifest),
        evaluated=[
            _tables(judged(one, manifest, intervals=True), confusion(one, manifest), overlap(one, manifest))
            for one in summary.evaluations
        ],
        came=_tables(probed(manifest, summary), outcomes(manifest, summary)),
        known=_tables(by_label(manifest, summary), by_repetitions(manifest, summary)),
        differences=_tables(differences(manifest, summary)),
        chosen=_tables(words(manifest, summary), filters(manifest, summary)),
        letters=_tables(positions(manifest, summary)),
        bias=bias(summary, manifest),
        costs=_tables(spent(manifest, summary)),
        expected=_tables(estimates(summary.estimates)),
        meanings=laid_out(meanings(manifest, summary)),
        prompts=[(str(name), numbers.literal(text)) for name, text in view.manifest.prompts.items()],
        texts=_texts(view, manifest, order, set(shown)),
        passages=_passages(view, manifest, shown),
        passages_caption=_passages_caption(view, order, shown),
        legend=[(name, symbol, STATES[name]) for name, symbol in SYMBOLS.items()],
        targets=[target_name(manifest, place) for place in range(min(TARGETS, len(manifest.targets)))],
        labelled=any(text.label is not None for text in view.texts.values()),
    )  # fmt: skip


def _tables(*found: MemberTable | None) -> list[dict[str, Any]]:
    return [laid_out(table) for table in found if table is not None]


# --- passage by passage


def _order(view: ProbeView) -> list[str]:
    """The ids of all texts: those with the highest scores of the first target's first method, then the others."""
    first = main(view.summary)
    own = view.verdicts.filter((pl.col("target") == first.target) & (pl.col("name") == first.name))
    score = dict(own.select("text", "value").rows())
    return sorted(view.texts, key=lambda text: -np.inf if (value := score.get(text)) is None else value, reverse=True)


def _chosen(order: Sequence[str]) -> list[str]:
    """Of the ordered texts: all, or a third each from the beginning, from the end and evenly from between."""
    if len(order) <= SHOWN:
        return list(order)
    third = SHOWN // 3
    middle = np.linspace(third, len(order) - third - 1, third + 2).round().astype(int)[1:-1]
    return [*order[:third], *(order[place] for place in middle), *order[-third:]]


def _texts(view: ProbeView, manifest: ProbeManifest, order: Sequence[str], shown: set[str]) -> dict[str, Any]:
    asked = list(dict.fromkeys(view.verdicts.select("target", "name").rows()))[:COLUMNS]
    places = {text: place for place, text in enumerate(view.texts)}
    listed = order[:LISTED]
    found: dict[tuple[str, int, str], tuple[int, dict[str, Any]]] = {}
    for row in view.verdicts.with_row_index("row").filter(pl.col("text").is_in(listed)).iter_rows(named=True):
        found[row["text"], row["target"], row["name"]] = row["row"], row
    known = {name: any(getattr(text, name) is not None for text in view.texts.values()) for name in MORE}
    more = [name for name, there in known.items() if there]
    columns = [("Passage", False), *(MORE[name] for name in more)]
    several = len(manifest.targets) > 1
    for target, name in asked:
        of = f" · {target_name(manifest, target)}" if several else ""
        columns.append((f"{title_of(name)}{of}", True))
    rows = [
        {
            "place": places[text],
            "shown": text in shown,
            "name": _shortened(keyed(text, f"texts/{places[text]}/id")),
            "words": [_known(view.texts[text], name, places[text]) for name in more],
            "numbers": [_verdict(found.get((text, target, name))) for target, name in asked],
        }
        for text in listed
    ]
    return {"columns": columns, "rows": rows, "caption": _texts_caption(len(order), view.summary), "more": more}


MORE = {"label": ("Is", False), "group": ("Group", False), "repetitions": ("Times seen", True)}
"""Columns that are there where anything is known, and whether they are numbers."""


def _known(text: LabelledText, name: str, place: int) -> tuple[bool, str]:
    if name == "label":
        return False, numbers.MISSING if text.label is None else "member" if text.label else "non-member"
    if name == "group":
        return False, numbers.MISSING if text.group is None else _shortened(keyed(text.group, f"texts/{place}/group"))
    if text.repetitions is None:
        return True, numbers.MISSING
    return True, numbers.count(keyed(text.repetitions, f"texts/{place}/repetitions"))


def _verdict(found: tuple[int, dict[str, Any]] | None) -> tuple[str, bool]:
    """(the score, whether it is flagged)."""
    if found is None or found[1]["value"] is None:
        return numbers.MISSING, False
    row, own = found
    return score(keyed(own["value"], f"verdicts/{row}/value"), own["name"]), bool(own["flagged"])


def score(value: float, name: str) -> str:
    """What a method makes of a passage: words, or a share of orders."""
    return numbers.percent(value) if name == "decop" else numbers.count(value)


def _shortened(text: str) -> str:
    return numbers.name(text) if len(text) <= LONG else numbers.short(text)


def _texts_caption(texts: int, summary: ProbeSummary) -> str:
    total = keyed(texts, "texts/count")
    by = title_of(main(summary).name)
    if texts <= LISTED:
        shown, rest = f"All {numbers.count(total)}", ""
    else:
        shown = f"The first {numbers.count(keyed(LISTED, 'texts/listed'))} of {numbers.count(total)}"
        rest = " The others are in verdicts.parquet beside this page, too."
    return (
        f"{shown}, those with the most by {by} first: words that came back, words in common with the true "
        f"continuation, or the share of orders in which the original was picked. ⚑: flagged.{rest}"
    )


# --- the passages themselves


def _passages(view: ProbeView, manifest: ProbeManifest, shown: Sequence[str]) -> list[dict[str, Any]]:
    targets = range(min(TARGETS, len(manifest.targets)))
    asked = (pl.col("role") == "target") & pl.col("model").is_in(list(targets)) & (pl.col("method") != "decop")
    questions = _by_text(view.questions, asked, shown)
    chosen = _by_text(view.chosen, pl.lit(True), shown)
    verdicts = _by_text(view.verdicts, pl.col("target").is_in(list(targets)), shown)
    places = {text: place for place, text in enumerate(view.texts)}
    return [
        {
            "place": places[text],
            "name": _shortened(keyed(text, f"texts/{places[text]}/id")),
            "facts": ", ".join(_facts(view.texts[text], places[text])),
            "label": _label(view.texts[text]),
            **passage(
                view.texts[text], places[text], manifest, chosen.get(text, []), questions.get(text, []),
                verdicts.get(text, []), targets, LIMITS, SYMBOLS,
            ),
        }
        for text in shown
    ]  # fmt: skip


def _by_text(table: pl.DataFrame, keep: pl.Expr, shown: Sequence[str]) -> Mapping[str, list[dict[str, Any]]]:
    """Rows by text, each with its place in the table."""
    own = table.with_row_index("row").filter(keep & pl.col("text").is_in(list(shown)))
    found: dict[str, list[dict[str, Any]]] = {}
    for row in own.iter_rows(named=True):
        found.setdefault(row["text"], []).append(row)
    return found


def _label(text: LabelledText) -> str:
    return "" if text.label is None else "member" if text.label else "non-member"


def _facts(text: LabelledText, place: int) -> Iterator[str]:
    if text.label is not None:
        yield _label(text)
    if text.repetitions is not None:
        yield f"seen {numbers.counted(keyed(text.repetitions, f'texts/{place}/repetitions'), 'time')}"
    yield numbers.counted(keyed(len(text.text), f"texts/{place}/characters"), "character")


def _passages_caption(view: ProbeView, order: Sequence[str], shown: Sequence[str]) -> str:
    which = "All passages"
    if len(shown) < len(order):
        count = numbers.count(keyed(len(shown), "shown/count"))
        which = (
            f"{count} of {numbers.count(keyed(len(order), 'texts/count'))} passages: a third each of those with the "
            "most and the least, and evenly from between"
        )
    more = len(view.manifest.targets) - TARGETS
    left = f" {numbers.counted(keyed(more, 'targets/more'), 'more target')} left out." if more > 0 else ""
    marks = numbers.marks_in(view.texts[text].text for text in shown)
    return (
        f"{which}. Each word that was asked for stands where it belongs, and beside it what came back. Point at one to "
        f"read the whole answer and how it was judged; it stands in the table below the passage too.{left}"
        + (f" {marks}." if marks else "")
    )
