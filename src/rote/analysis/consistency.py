"""Whether a run's rows add up by themselves: with each other, with the manifest, and with the text or the examples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import polars as pl

from rote.corpus.windows import ready, window_starts
from rote.store.manifest import Manifest

KINDS = ("token_log_probs", "base_log_probs", "ranks", "margins")
PLACES = ("start", "suffix_start", "suffix_end", "token_ends", "split", "repetitions", "metadata")


class Given(Protocol):
    """An example as a run keeps it."""

    @property
    def id(self) -> str: ...
    @property
    def suffix(self) -> Sequence[int]: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...


def row_problems(manifest: Manifest, scores: pl.DataFrame) -> Iterator[str]:
    """Rows that cannot be what a run wrote, whatever its model."""
    first = scores.filter(pl.col("scheme") == manifest.schemes[0])
    ids = first["example_id"]
    if not ids.len():
        yield "there are no rows"
    if ids.n_unique() != ids.len():
        yield f"example {ids.filter(ids.is_duplicated())[0]!r} is there twice"
    for scheme in manifest.schemes[1:]:
        own = scores.filter(pl.col("scheme") == scheme)
        if not own["example_id"].equals(ids):
            yield f"the rows under {scheme} are not those of {manifest.schemes[0]}"
        elif not own.select(PLACES).equals(first.select(PLACES)):
            yield f"a row under {scheme} has another place than under {manifest.schemes[0]}"
    if scores.height != ids.len() * len(manifest.schemes):
        yield f"the rows are not those of {manifest.schemes[0]} and the other schemes that the manifest names"
    yield from _number_problems(manifest, scores)
    if manifest.near is not None:
        yield from _near_problems(manifest, scores)


def _number_problems(manifest: Manifest, scores: pl.DataFrame) -> Iterator[str]:
    lengths = [scores[name].list.len() for name in KINDS]
    if any(not lengths[0].equals(own, check_names=False) or own.null_count() for own in lengths):
        yield "a row has not one number of each kind for each of its tokens"
        return
    if scores["stopped"].any() and not manifest.stop_early:
        yield "a row was stopped early in a run that stops none"
    if (lengths[0] == 0).any():
        yield f"{scores.filter(lengths[0] == 0)['example_id'][0]!r} has no tokens"
    whole = scores.filter(~pl.col("stopped"))
    sums = whole["token_log_probs"].list.eval(pl.element().cast(pl.Float64)).list.sum()
    off = whole.filter(~((sums == whole["log_prob"]) | ((sums - whole["log_prob"]).abs() <= 1e-6 * (1 + sums.abs()))))
    if off.height:
        yield f"the log-prob of {off['example_id'][0]!r} is not the sum of its tokens'"
    above = scores.filter((pl.col("log_prob") > 0) | (pl.col("greedy") & (pl.col("ranks").list.max() > 1)))
    if above.height:
        yield f"{above['example_id'][0]!r} has a probability above 1, or is called greedy and is not"


def _near_problems(manifest: Manifest, scores: pl.DataFrame) -> Iterator[str]:
    """Bounds and verdicts that do not fit each other, tau, or p_z."""
    assert manifest.near is not None
    lower, upper = pl.col("lower"), pl.col("upper")
    above = pl.when(lower >= manifest.tau).then(pl.lit("extractable"))
    verdict = above.when(upper < manifest.tau).then(pl.lit("not extractable")).otherwise(pl.lit("undecided"))
    fits = (lower >= 0) & (lower <= upper) & (upper <= 1 + 1e-9) & (verdict == pl.col("verdict"))
    fits &= (pl.col("lower_by_tolerance").list.last() == lower) & (pl.col("upper_by_tolerance").list.last() == upper)
    fits &= pl.col("lower_by_tolerance").list.len() == manifest.near.tolerance + 1
    if manifest.near.method == "sample":
        fits &= (pl.col("estimate") >= lower - 1e-9) & (pl.col("estimate") <= upper + 1e-9)
    elif manifest.near.method == "fork":
        fits &= lower >= pl.col("log_prob").exp() * (1 - 1e-3)  # what comes out verbatim comes near
    off = scores.filter(~fits.fill_null(False))
    if off.height:
        yield f"the near-verbatim bounds or the verdict of {off['example_id'][0]!r} do not fit together"


def scan_problems(manifest: Manifest, scores: pl.DataFrame, text: str) -> Iterator[str]:
    """Windows that do not stand where the text and the manifest put them."""
    cut, source = manifest.windows, manifest.source
    assert cut is not None
    rows = scores.filter(pl.col("scheme") == manifest.schemes[0])
    if source.characters != len(text):
        yield f"the manifest says {source.characters} characters, and the text has {len(text)}"
    prepared = ready(text, source.steps)
    if [(taken.step, taken.places) for taken in source.normalised or ()] != list(prepared.changed.items()):
        yield "the steps that the manifest names do not change the text in so many places"
    starts = [int(prepared.borders[start]) for start in window_starts(prepared, cut, cut.within)]
    own = rows["start"].to_list()
    if any(name != f"w{start}" for name, start in zip(rows["example_id"], own, strict=True)):
        yield "a row's place is not the one that its name says"
    expected = set(starts)
    if own != sorted(set(own) & expected) or len(starts) - len(own) != manifest.dropped:
        yield f"the rows are not the windows at every {cut.stride} characters, less the {manifest.dropped} dropped"
    middles, ends = rows["suffix_start"], rows["suffix_end"]
    if not ((rows["start"] < middles) & (middles < ends) & (ends <= len(text))).all():
        yield "a row's place lies outside the text"
    tokens, last = rows["token_ends"].list.len(), rows["token_ends"].list.last()
    if not ((last == ends - middles) & (rows["stopped"] | (tokens == rows["ranks"].list.len()))).fill_null(False).all():
        yield "a row's tokens do not end where its suffix does"
    if cut.unit == "tokens" and not (tokens == cut.suffix).all():
        yield f"a row has not {cut.suffix} suffix tokens"
    if not ((rows["metadata"] == "{}") & rows["split"].is_null() & rows["repetitions"].is_null()).all():
        yield "a window belongs to a group, and windows belong to none"


def score_problems(manifest: Manifest, scores: pl.DataFrame, examples: Sequence[Given]) -> Iterator[str]:
    """Rows that are not those of the stored examples."""
    rows = scores.filter(pl.col("scheme") == manifest.schemes[0])
    if rows["example_id"].to_list() != [example.id for example in examples]:
        yield "the rows are not those of the examples"
        return
    columns = rows.select("metadata", "split", "repetitions", "stopped", pl.col("ranks").list.len()).iter_rows()
    for example, (metadata, split, repetitions, stopped, tokens) in zip(examples, columns, strict=True):
        told = example.metadata
        if (json.loads(metadata), split, repetitions) != (told, told.get("split"), told.get("repetitions")):
            yield f"the row of {example.id!r} has other metadata than the example"
        if tokens > len(example.suffix) or (tokens < len(example.suffix) and not stopped):
            yield f"the row of {example.id!r} has {tokens} tokens, and its suffix {len(example.suffix)}"
    ways = [getattr(example, "tokenised", None) for example in examples]
    stated, apart = manifest.source.apart, ways.count("apart")
    if stated is not None and stated != apart:
        yield f"the manifest says that {stated} prompts were tokenised apart, and {apart} were"
