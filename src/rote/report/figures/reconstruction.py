"""The plot of a reconstruction: where it follows the truth."""

from __future__ import annotations

import polars as pl

from rote.report.figures.figure import Axis, Figure, Layer
from rote.report.figures.layers import made_with, rule, sentences
from rote.report.text import numbers
from rote.store.manifest import ReconstructionManifest
from rote.store.reconstruction import ReconstructionSummary

RECONSTRUCTION_FIGURES = {"matches": "a true text to compare with"}
"""Every figure that a reconstruction can have, and what it needs."""


def reconstruction_figures(manifest: ReconstructionManifest, summary: ReconstructionSummary) -> list[Figure]:
    """Where a reconstructed text follows the true one, from a reconstruction's manifest and summary."""
    compared = summary.similarity
    if compared is None or not compared.by_position:
        return []
    parts = pl.DataFrame(compared.by_position, schema=["x0", "x1", "y"], orient="row").cast(pl.Float64)
    last = float(parts["x1"].max() or 1.0)  # type: ignore[arg-type]
    whole = compared.matched_share
    beams = manifest.beams
    how = "greedy decoding" if beams == 1 else f"beam search of width {beams}"
    return [
        Figure(
            name="matches",
            title="Where the text follows the true one",
            caption=sentences(
                f"The true text in {numbers.counted(parts.height, 'part')} of equal length; the height is the share of "
                f"each one's words that lie in matching blocks, {numbers.percent(whole)} of all. The blocks are those "
                "of one alignment of the two texts; the seed is left out.",
                made_with(manifest.model, f"written by {how}"),
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
