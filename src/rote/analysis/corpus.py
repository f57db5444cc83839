"""What of a run stands in an indexed corpus."""

from __future__ import annotations

import polars as pl

from rote.store.outputs import InCorpus, LookedUp, Outputs

LISTED = 10
"""Outputs that a summary lists at most; where an output does not stand in the corpus as a whole, one of an example."""


def in_corpus(rows: pl.DataFrame, outputs: Outputs | None) -> InCorpus:
    """`rows`: of one scheme, with the counts in their metadata."""
    suffixes = rows["metadata"].str.json_path_match("$.suffix_repetitions").cast(pl.Int64).drop_nulls()
    whole = rows["repetitions"].drop_nulls().cast(pl.Int64)  # a column of nulls alone has no type
    every: list[LookedUp] = [] if outputs is None else outputs.outputs
    return InCorpus(
        counted=len(whole),
        standing=int((whole > 0).sum()),
        most=int(whole.max() or 0),  # type: ignore[arg-type]
        suffixes=len(suffixes),
        suffixes_standing=int((suffixes > 0).sum()),
        near=0 if outputs is None else outputs.near,
        near_elsewhere=sum(each.count > 0 for each in every if each.kind == "near"),
        greedy=0 if outputs is None else outputs.greedy,
        greedy_elsewhere=sum(each.count > 0 for each in every if each.kind == "greedy"),
        left=0 if outputs is None else outputs.left,
        listed=_listed(strongest(every)),
    )


def _listed(outputs: list[LookedUp]) -> list[LookedUp]:
    whole = [each for each in outputs if each.count]
    parts = {each.example_id: each for each in reversed(outputs) if not each.count}
    told = {each.example_id for each in whole}
    return [*whole, *strongest([each for each in parts.values() if each.example_id not in told])][:LISTED]


def strongest(outputs: list[LookedUp]) -> list[LookedUp]:
    """Those that stand in the corpus as a whole first, then those of which the longest part does."""
    return sorted(outputs, key=lambda each: (each.count == 0, -each.longest, each.example_id, each.candidate or 0))
