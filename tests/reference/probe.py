"""Probes counted one word, one question, one text at a time."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any


def words(text: str) -> list[str]:
    """Of plain English: split at spaces, lowercased, stripped of punctuation and of a possessive's s."""
    found = []
    for part in text.split():
        word = part.lower().strip(string.punctuation)
        if word.endswith("'s"):
            word = word[:-2].rstrip(string.punctuation)
        if word:
            found.append(word)
    return found


def common(one: Sequence[str], other: Sequence[str]) -> int:
    """The longest common subsequence, by the table of all prefixes."""
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i in range(len(one)):
        for j in range(len(other)):
            if one[i] == other[j]:
                table[i + 1][j + 1] = table[i][j] + 1
            else:
                table[i + 1][j + 1] = max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def asked(name: str, row: Mapping[str, Any], chosen: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a question to a target is one of the method of this name."""
    if name in ("prefix", "decop"):
        return bool(row["method"] == name)
    selector, _, more = name.partition("+")
    if row["method"] != ("slot" if selector == "slot" else "cloze"):
        return False
    for word in chosen:
        here = (word["text"], word["start"], word["end"]) == (row["text"], row["start"], row["end"])
        if here and wanted(selector, more, word):
            return True
    return False


def wanted(selector: str, more: str, word: Mapping[str, Any]) -> bool:
    """Whether a method asks for a chosen word."""
    if selector not in word["selectors"]:
        return False
    if more == "filter" and word["guessed"]:
        return False
    return not (more == "class" and "content" not in word["classes"])


def verdict(
    name: str,
    target: int,
    text: str,
    questions: Sequence[Mapping[str, Any]],
    chosen: Sequence[Mapping[str, Any]],
) -> tuple[int, int, float | None]:
    """Answered questions, hits, and the score of one text."""
    count = hits = 0
    lengths = []
    for row in questions:
        if row["role"] == "target" and row["model"] == target and row["text"] == text and asked(name, row, chosen):
            if row["outcome"] == "error":
                continue
            count += 1
            hits += row["outcome"] == "hit"
            lengths.append(row["common"])
    if not count:
        selector, _, more = name.partition("+")
        mine = [word for word in chosen if word["text"] == text and wanted(selector, more, word)]
        nothing_to_ask = name not in ("prefix", "decop") and not mine
        return 0, 0, 0.0 if nothing_to_ask else None
    if name == "prefix":
        return count, hits, float(lengths[0])
    return count, hits, float(Fraction(hits, count)) if name == "decop" else float(hits)


def confusion(flagged: Sequence[bool], members: Sequence[bool]) -> dict[str, int]:
    counts = {"true_positives": 0, "false_positives": 0, "false_negatives": 0, "true_negatives": 0}
    for flag, member in zip(flagged, members, strict=True):
        if flag and member:
            counts["true_positives"] += 1
        elif flag:
            counts["false_positives"] += 1
        elif member:
            counts["false_negatives"] += 1
        else:
            counts["true_negatives"] += 1
    return counts


def overlap(flags: Mapping[str, Sequence[bool]], members: Sequence[bool]) -> dict[frozenset[str], tuple[int, int]]:
    """For each set of methods the texts that they alone flagged, and the members among them."""
    found: dict[frozenset[str], tuple[int, int]] = {}
    for place, member in enumerate(members):
        own = frozenset(name for name, called in flags.items() if called[place])
        if own:
            count, right = found.get(own, (0, 0))
            found[own] = count + 1, right + member
    return found


def difference(
    questions: Sequence[Mapping[str, Any]], chosen: Sequence[Mapping[str, Any]], name: str, target: int
) -> tuple[int, Fraction, Fraction] | None:
    """Questions that both answered, and the share of hits of the first target and of the other."""
    pairs = []
    mine = [row for row in questions if row["role"] == "target" and asked(name, row, chosen)]
    for one in mine:
        for other in mine:
            if one["model"] != 0 or other["model"] != target or "error" in (one["outcome"], other["outcome"]):
                continue
            if all(one[key] == other[key] for key in ("text", "start", "end", "order")):
                pairs.append((one["outcome"] == "hit", other["outcome"] == "hit"))
    if not pairs:
        return None
    count = len(pairs)
    return count, Fraction(sum(one for one, _ in pairs), count), Fraction(sum(other for _, other in pairs), count)
