"""What a benchmark's files say about its criteria, in words and tables."""

from __future__ import annotations

from collections.abc import Sequence

from rote.analysis.inspection import Failing, InspectedSplit, Inspection, Overlap
from rote.report.text import numbers
from rote.report.text.submissions import ScoreTable

CRITERIA = {
    "repeated example": "the same stands in an earlier row",
    "low entropy": "the suffix has less than 1 bit per token",
    "repetitive": "the suffix is one run of tokens over and over, at least twice",
    "suffix in prefix": "the suffix stands in the prefix",
    "several continuations": "the prefix is followed by another suffix in another row",
    "suffix in longer prefix": "the suffix stands in the prefix with what came before it",
}
"""What each criterion that an example can fail asks, in words."""

LEFT = (
    "What needs the corpus (how often an example stands in it, whether its continuation is unique there) or the model "
    "(whether a longer prefix makes it write the suffix) is not looked at; rote bench build does."
)


def headline(found: Inspection) -> str:
    examples = sum(split.examples for split in found.splits)
    names = ", ".join(f"{split.name} {numbers.count(split.examples)}" for split in found.splits)
    return f"{numbers.name(found.folder)} holds {numbers.counted(examples, 'example')}: {names}."


def inspection_tables(found: Inspection) -> list[ScoreTable]:
    tables = [_splits(found.splits), _criteria(found.splits)]
    return [*tables, _overlaps(found.overlaps)] if found.overlaps else tables


def _splits(splits: Sequence[InspectedSplit]) -> ScoreTable:
    return ScoreTable(
        title="splits",
        columns=("split", "examples", "that differ", "preprefix", "prefix", "suffix", "largest id", "least entropy"),
        rows=[
            [
                split.name, *map(numbers.count, (split.examples, split.distinct, split.preprefix_tokens)),
                *map(numbers.count, (split.prefix_tokens, split.suffix_tokens, split.largest_id)),
                numbers.MISSING if split.least_entropy is None else f"{split.least_entropy:.2f}",
            ]
            for split in splits
        ],
        caption="Lengths in tokens; entropy in bits per token of a suffix.",
    )  # fmt: skip


def _criteria(splits: Sequence[InspectedSplit]) -> ScoreTable:
    rows = [
        [split.name, CRITERIA[one.criterion], numbers.count(one.failing), numbers.count(one.examples), _rows(one)]
        for split in splits
        for one in split.criteria
    ]
    return ScoreTable(
        title="what the criteria say",
        columns=("split", "an example fails where", "fail", "of", "first rows"),
        rows=rows,
        caption=LEFT,
    )


def _overlaps(overlaps: Sequence[Overlap]) -> ScoreTable:
    rows = [
        [
            f"{one.second} in {one.first}", *map(numbers.count, (one.examples, one.same_prefix, one.other_suffix)),
            numbers.count(one.shared_run), numbers.count(one.run_tokens), _rows(one),
        ]
        for one in overlaps
    ]  # fmt: skip
    return ScoreTable(
        title="what splits have in common",
        columns=("split", "examples", "same prefix", "other suffix", "share a run", "of tokens", "first rows"),
        rows=rows,
        caption=(
            "Examples of a split whose prefix stands in the other; of these, those with another suffix there; and "
            "examples with a run of so many tokens that stands in an example of the other, at the same place or not."
        ),
    )


def _rows(one: Failing | Overlap) -> str:
    return ", ".join(map(numbers.count, one.rows)) or numbers.MISSING
