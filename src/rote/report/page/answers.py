"""One passage of a probe's page: its words with the answers in place, the answers as a table, its completion."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from rote.corpus.texts import LabelledText
from rote.probes.completion import after, split
from rote.probes.reading import key
from rote.report.keys import keyed
from rote.report.page.blocks import escaped
from rote.report.text import numbers
from rote.report.text.member import scored
from rote.report.text.probe import target_name, title_of
from rote.store.probe import ProbeManifest

Row = dict[str, Any]

CHIP = 24
"""Characters of an answer that stand beside its word."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Characters, of a passage, an answer, what was read out of it, a completion; and words of a passage, at most."""

    text: int
    answer: int
    said: int
    completion: int
    words: int


def passage(
    text: LabelledText,
    place: int,
    manifest: ProbeManifest,
    chosen: Sequence[Row],
    questions: Sequence[Row],
    verdicts: Sequence[Row],
    targets: Sequence[int],
    limits: Limits,
    symbols: Mapping[str, str],
) -> dict[str, Any]:
    """What is shown of a passage, by target; and by what it can be found: outcomes, and who flagged it."""
    shown, found, flagged = [], [], []
    for target in targets:
        own = [row for row in questions if row["model"] == target]
        asked = [row for row in own if row["method"] != "prefix"]
        words = list(_words(chosen, asked))[: limits.words]
        judged = [row for row in verdicts if row["target"] == target]
        found += [f"{target}:{state}" for state in dict.fromkeys(word["state"] for word in words)]
        flagged += [str(target)] if any(row["flagged"] for row in judged) else []
        shown.append(
            {
                "target": target,
                "name": target_name(manifest, target),
                "verdicts": [_said(row) for row in judged],
                "pieces": list(_pieces(text.text, words, limits, symbols, place, target)) if words else [],
                "answers": [_answer(word, limits, symbols, place, target) for word in words],
                "completion": _completion(text, manifest, [row for row in own if row["method"] == "prefix"], limits),
            }
        )
    return {
        "targets": shown,
        "outcomes": " ".join(found),
        "flagged": " ".join(flagged),
        "cut": f"The first {numbers.count(keyed(limits.text, 'limits/text'))} characters."
        if len(text.text) > limits.text
        else "",
    }


def _said(row: Row) -> str:
    """A verdict in words."""
    own = keyed({name: row[name] for name in ("value", "hits", "questions")}, f"verdicts/{row['row']}")
    name = row["name"]
    if row["without"] is not None:
        return f"{title_of(name)}: {numbers.literal(row['without'] or 'no score')}"
    told = {
        "prefix": f"{numbers.counted(own['value'], 'word')} in common",
        "decop": f"the original picked in {numbers.percent(own['value'])} of the orders",
    }.get(name, f"{numbers.count(own['hits'])} of {numbers.count(own['questions'])} came back")
    return f"{title_of(name)}: {told}{', flagged' if row['flagged'] else ''}"


# --- words in place


def _words(chosen: Sequence[Row], asked: Sequence[Row]) -> Iterator[Row]:
    """Each chosen word with its questions, in their order in the text; and how it ended."""
    by_place: dict[tuple[int, int], list[Row]] = {}
    for row in asked:
        by_place.setdefault((row["start"], row["end"]), []).append(row)
    for word in sorted(chosen, key=lambda row: (row["start"], -row["end"])):
        own = by_place.get((word["start"], word["end"]), [])
        if own or word["guessed"]:
            yield {**word, "asked_as": own, "state": own[0]["outcome"] if own else "dropped"}


def _pieces(
    text: str, words: Sequence[Row], limits: Limits, symbols: Mapping[str, str], place: int, target: int
) -> Iterator[dict[str, Any]]:
    """The text, with what belongs to each word that was asked for."""
    shown, at = numbers.literal(text), 0  # one for one, so that places stay what they are
    for word in words:
        start, end = word["start"], word["end"]
        if start < at or end > limits.text:  # within another, or beyond what is shown
            continue
        if start > at:
            yield {"text": escaped(shown[at:start]), "state": None}
        yield {
            "text": escaped(shown[start:end]),
            "state": word["state"],
            "symbol": symbols[word["state"]],
            "chip": escaped(_chip(word)),
            "id": f"{place}-{target}-{word['row']}",
        }
        at = end
    rest = shown[at : limits.text]
    if rest:
        yield {"text": escaped(rest), "state": None}
    if len(shown) > limits.text:
        yield {"text": Markup("…"), "state": None}


def _chip(word: Row) -> str:
    """What stands beside a word: another one that came back, or how its question ended."""
    if word["state"] in ("hit", "dropped"):
        return ""
    said = word["asked_as"][0]["said"]
    return _cut(said, CHIP) if word["state"] == "miss" and said else word["state"]


def _cut(text: str, most: int) -> str:
    shown = numbers.literal(" ".join(text[: 4 * most].split()))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _answer(word: Row, limits: Limits, symbols: Mapping[str, str], place: int, target: int) -> dict[str, Any]:
    """A row of the table: the word, and all that is known of it and of its answers."""
    own = keyed({name: word[name] for name in ("log_likelihood", "rank")}, f"chosen/{word['row']}")
    return {
        "id": f"{place}-{target}-{word['row']}",
        "word": _cut(word["word"], limits.said),
        "state": word["state"],
        "symbol": symbols[word["state"]],
        "guessed": bool(word["guessed"]),
        "answers": [_given(row, limits, symbols) for row in word["asked_as"]],
        "selectors": ", ".join(title_of(name) for name in word["selectors"]),
        "log_likelihood": scored(own["log_likelihood"]),
        "rank": numbers.count(own["rank"]),
    }


def _given(row: Row, limits: Limits, symbols: Mapping[str, str]) -> dict[str, str]:
    """An answer as it was given, as far as there is room; what was read out of it, and why."""
    answer = row["answer"] or row["refusal"] or ""
    length = keyed(len(answer), f"questions/{row['row']}/length")
    return {
        "method": title_of("slot") if row["method"] == "slot" else "",
        "state": row["outcome"],
        "symbol": symbols[row["outcome"]],
        "text": numbers.literal(answer[: limits.answer]),
        "more": f"… {numbers.counted(length, 'character')} in all" if len(answer) > limits.answer else "",
        "said": _cut(row["said"] or "", limits.said),
        "why": _cut(row["why"] or "", limits.answer),
    }


# --- completions


def _completion(
    text: LabelledText, manifest: ProbeManifest, rows: Sequence[Row], limits: Limits
) -> dict[str, Any] | None:
    """What the model went on with beside the truth, with the words that both have in the same order."""
    if not rows:
        return None
    row = rows[0]
    known = keyed({name: row[name] for name in ("common", "words")}, f"questions/{row['row']}")
    truth = _follows(text, manifest.prefix_words)
    answer = row["answer"] or ""
    length = keyed(len(answer), f"questions/{row['row']}/length")
    left, right = marked_words(truth[: limits.completion], answer[: limits.completion])
    common = numbers.MISSING if known["common"] is None else numbers.counted(known["common"], "word")
    return {
        "outcome": row["outcome"],
        "said": f"{common} of {numbers.count(known['words'])} in common",
        "truth": left,
        "answer": right,
        "more": f"… {numbers.counted(length, 'character')} in all" if len(answer) > limits.completion else "",
    }


def _follows(text: LabelledText, count: int) -> str:
    """What follows the prefix of a text."""
    if text.prefix is not None:
        return after(text.text, text.prefix) or ""
    parts = split(text.text, count)
    return "" if parts is None else parts[1]


Pieces = list[tuple[bool, str]]


def marked_words(truth: str, answer: str) -> tuple[Pieces, Pieces]:
    """Both texts in pieces, each with whether its words are among those that they have in common, in one order."""
    from rapidfuzz.distance import LCSseq

    parts = [re.findall(r"\s*\S+\s*", numbers.literal(text)) for text in (truth, answer)]
    bare = [[key(word) or word.strip() for word in words] for words in parts]
    same: tuple[set[int], set[int]] = (set(), set())
    for block in LCSseq.opcodes(*bare):
        if block.tag == "equal":
            same[0].update(range(block.src_start, block.src_end))
            same[1].update(range(block.dest_start, block.dest_end))
    return _joined(parts[0], same[0]), _joined(parts[1], same[1])


def _joined(words: Sequence[str], same: set[int]) -> Pieces:
    pieces: Pieces = []
    for place, word in enumerate(words):
        if pieces and pieces[-1][0] == (place in same):
            pieces[-1] = pieces[-1][0], pieces[-1][1] + word
        else:
            pieces.append((place in same, word))
    return pieces
