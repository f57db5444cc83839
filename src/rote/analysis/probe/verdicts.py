"""Answers to scores: which questions are a method's, and what they say of each text.

An answer that is an error is no answer: it counts neither as asked nor as missed, and is told apart. Refusals, empty
and malformed answers are answers that did not name the word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from rote.corpus.texts import LabelledText
from rote.probes.options import Method
from rote.store.probe import ProbeManifest
from rote.store.probing import VERDICTS_SCHEMA, empty

FILTERED, OF_CLASS = "+filter", "+class"

NONE_CHOSEN = "no word was chosen"
NONE_PICKED = "no word was picked"
ALL_GUESSED = "a filter guessed every word"
NO_CLASS = "the picked word is no content word"
NO_PREFIX = "too short for a prefix"
NO_PARAPHRASES = "no paraphrases"
NOT_ASKED = "no word was asked for"
ALL_ERRORS = "every answer was an error"

WORDLESS = (NONE_CHOSEN, NONE_PICKED, ALL_GUESSED, NO_CLASS)
"""A text with no word to ask for is not flagged, and counts: nothing of it came back."""

Value = Literal["hits", "words", "share"]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to score texts, as a result names it: see `rote.store.probe.Probed`."""

    name: str
    method: Method
    value: Value

    @property
    def selector(self) -> str:
        """What chose its words."""
        return self.name.split("+")[0]

    @property
    def filtered(self) -> bool:
        return self.name.endswith(FILTERED)

    @property
    def of_class(self) -> bool:
        return self.name.endswith(OF_CLASS)


def ways(manifest: ProbeManifest) -> list[Way]:
    """All of a run. Where words that filters guessed were not asked for, there is none without the filter."""
    filters = bool(manifest.filters)
    bare = not filters or manifest.unfiltered
    found: list[Way] = []
    for method, selectors in (("cloze", manifest.words.select), ("slot", ["slot"])):
        for selector in selectors if method in manifest.methods else ():
            names = [selector] * bare + [selector + FILTERED] * filters
            names += [selector + OF_CLASS] * (bare and method == "slot")
            found += [Way(name, "slot" if method == "slot" else "cloze", "hits") for name in names]
    if "prefix" in manifest.methods:
        found.append(Way("prefix", "prefix", "words"))
    if "decop" in manifest.methods:
        found.append(Way("decop", "decop", "share"))
    return found


def words_of(way: Way, chosen: pl.DataFrame) -> pl.DataFrame:
    """The chosen words that a way of cloze or slot asks for."""
    own = chosen.filter(pl.col("selectors").list.contains(way.selector))
    if way.filtered:
        own = own.filter(pl.col("guessed").list.len().fill_null(0) == 0)
    if way.of_class:
        own = own.filter(pl.col("classes").list.contains("content").fill_null(value=False))
    return own


def questions_of(way: Way, chosen: pl.DataFrame, questions: pl.DataFrame) -> pl.DataFrame:
    """The questions to targets that a way rests on."""
    own = questions.filter((pl.col("role") == "target") & (pl.col("method") == way.method))
    if way.value != "hits":
        return own
    spans = words_of(way, chosen).select("text", "start", "end").unique()
    return own.join(spans, on=["text", "start", "end"], how="semi", maintain_order="left")


def answered(questions: pl.DataFrame) -> pl.DataFrame:
    """Those that have an answer."""
    return questions.filter(pl.col("outcome") != "error")


def verdicts(
    manifest: ProbeManifest,
    texts: Mapping[str, LabelledText],
    chosen: pl.DataFrame,
    questions: pl.DataFrame,
) -> pl.DataFrame:
    """One row for each text, target and way, without thresholds."""
    tables = [empty(VERDICTS_SCHEMA)]
    for way in ways(manifest):
        own = questions_of(way, chosen, questions)
        reasons = _reasons(way, texts, chosen)
        for target in range(len(manifest.targets)):
            asked = own.filter(pl.col("model") == target)
            tables.append(_of_target(way, target, list(texts), asked, reasons))
    return pl.concat(tables)


def _of_target(
    way: Way, target: int, ids: Sequence[str], asked: pl.DataFrame, reasons: Mapping[str, str]
) -> pl.DataFrame:
    counts = {
        row["text"]: row
        for row in answered(asked)
        .group_by("text")
        .agg(
            pl.len().alias("questions"),
            (pl.col("outcome") == "hit").sum().alias("hits"),
            pl.col("common").fill_null(0).max().alias("common"),
        )
        .iter_rows(named=True)
    }
    failed = set(asked["text"].to_list())
    rows = []
    for name in ids:
        row = counts.get(name)
        value = None
        if row is not None:
            value = {"hits": row["hits"], "words": row["common"], "share": row["hits"] / row["questions"]}[way.value]
        without = None
        if value is None:
            without = ALL_ERRORS if name in failed else reasons.get(name, NOT_ASKED)
            value = 0.0 if without in WORDLESS else None
        rows.append(
            {
                "target": target,
                "name": way.name,
                "text": name,
                "questions": row["questions"] if row else 0,
                "hits": row["hits"] if row else 0,
                "value": value,
                "without": without,
                "threshold": None,
                "flagged": None,
            }
        )
    return pl.DataFrame(rows, schema=empty(VERDICTS_SCHEMA).schema)


def _reasons(way: Way, texts: Mapping[str, LabelledText], chosen: pl.DataFrame) -> dict[str, str]:
    """Why a text that was asked nothing was asked nothing."""
    if way.method == "prefix":
        return dict.fromkeys(texts, NO_PREFIX)
    if way.method == "decop":
        return dict.fromkeys(texts, NO_PARAPHRASES)
    found = dict.fromkeys(texts, NONE_PICKED if way.method == "slot" else NONE_CHOSEN)
    some = chosen.filter(pl.col("selectors").list.contains(way.selector))["text"].unique().to_list()
    left = set(words_of(way, chosen)["text"].to_list())
    for name in some:
        if name not in left:
            found[name] = ALL_GUESSED if way.filtered else NO_CLASS
        else:
            found[name] = NOT_ASKED
    return found
