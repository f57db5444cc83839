"""Whether a run's rows add up by themselves: with each other, with the manifest, and with the text or the examples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import polars as pl

from rote.analysis.refine import CLOSER, choice
from rote.corpus.windows import ready, window_starts
from rote.store.manifest import Manifest, made_with
from rote.store.stages import Stage

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
    if manifest.refined is None and scores["stage"].null_count() < scores.height:
        yield "a row belongs to a stage, and the manifest names none"
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
    if scores["bounded"].any() and not manifest.stop_early and manifest.model.served is None:
        yield "a row was stopped early in a run that stops none"
    yield from _open_problems(manifest, scores)
    if (lengths[0] == 0).any():
        yield f"{scores.filter(lengths[0] == 0)['example_id'][0]!r} has no tokens"
    whole = scores.filter(~pl.col("bounded"))
    sums = whole["token_log_probs"].list.eval(pl.element().cast(pl.Float64)).list.sum()  # but for open ones: then -inf
    off = whole.filter(~((sums == whole["log_prob"]) | ((sums - whole["log_prob"]).abs() <= 1e-6 * (1 + sums.abs()))))
    if off.height:
        yield f"the log-prob of {off['example_id'][0]!r} is not the sum of its tokens'"
    above = scores.filter((pl.col("log_prob") > 0) | (pl.col("greedy") & (pl.col("ranks").list.max() > 1)))
    if above.height:
        yield f"{above['example_id'][0]!r} has a probability above 1, or is called greedy and is not"


def _open_problems(manifest: Manifest, scores: pl.DataFrame) -> Iterator[str]:
    """Tokens without a log-prob where none can be, and rows that are called bounded or exact and are not."""
    tokens = pl.col("token_log_probs")
    few = scores.select(
        "example_id",
        "bounded",
        "greedy",
        left_open=tokens.list.eval(pl.element().is_null()).list.any(),
        impossible=(tokens.list.min() == float("-inf")).fill_null(False),  # null where all tokens are open
    )
    if manifest.model.served is None:
        off = few.filter(pl.col("left_open") | pl.col("greedy").is_null())
        said = "has a token, or a greedy, that is not told, and only a served model's list leaves any open"
    else:
        off = few.filter(pl.col("bounded") != (pl.col("left_open") & ~pl.col("impossible")))
        said = "is called bounded or exact, and its tokens say otherwise"
    if off.height:
        yield f"{off['example_id'][0]!r} {said}"


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


def scan_problems(
    manifest: Manifest, scores: pl.DataFrame, text: str, places: pl.DataFrame | None = None
) -> Iterator[str]:
    """Windows that do not stand where the text and the manifest put them; `places`: all of a scan in stages."""
    cut, source = manifest.windows, manifest.source
    assert cut is not None
    rows = scores.filter(pl.col("scheme") == manifest.schemes[0])
    if source.characters != len(text):
        yield f"the manifest says {source.characters} characters, and the text has {len(text)}"
    prepared = ready(text, source.steps)
    if [(taken.step, taken.places) for taken in source.normalised or ()] != list(prepared.changed.items()):
        yield "the steps that the manifest names do not change the text in so many places"
    starts = [int(prepared.borders[start]) for start in window_starts(prepared, cut, cut.within)]
    if any(name != f"w{start}" for name, start in rows.select("example_id", "start").iter_rows()):
        yield "a row's place is not the one that its name says"
    every, what = (rows, "the rows") if places is None else (places, "the places in windows.parquet")
    own, expected = every["start"].to_list(), set(starts)
    if own != sorted(set(own) & expected) or len(starts) - len(own) != manifest.dropped:
        yield f"{what} are not the windows at every {cut.stride} characters, less the {manifest.dropped} dropped"
    if not every.select((pl.col("start") < pl.col("suffix_start")) & (pl.col("suffix_start") < pl.col("suffix_end"))
                        & (pl.col("suffix_end") <= len(text))).to_series().all():  # fmt: skip
        yield f"one of {what} lies outside the text"
    middles, ends = rows["suffix_start"], rows["suffix_end"]
    tokens, last = rows["token_ends"].list.len(), rows["token_ends"].list.last()
    if not ((last == ends - middles) & (rows["bounded"] | (tokens == rows["ranks"].list.len()))).fill_null(False).all():
        yield "a row's tokens do not end where its suffix does"
    if cut.unit == "tokens" and not (tokens == cut.suffix).all():
        yield f"a row has not {cut.suffix} suffix tokens"
    if not (rows["split"].is_null() & _says_counts_alone(rows, manifest.index is not None)).all():
        yield "a window belongs to a group, and windows belong to none"


def _says_counts_alone(rows: pl.DataFrame, counted: bool) -> pl.Series:
    """Whether rows say nothing of themselves but how often they stand in a corpus, if that was counted."""
    if not counted:
        return (rows["metadata"] == "{}") & rows["repetitions"].is_null()
    said = [json.loads(metadata) for metadata in rows["metadata"]]
    repeated = pl.Series([each.get("repetitions") for each in said], dtype=pl.Int64)
    known = pl.Series([each.keys() <= {"repetitions", "suffix_repetitions"} for each in said], dtype=pl.Boolean)
    return known & repeated.eq_missing(rows["repetitions"])


def stage_problems(
    manifest: Manifest, scores: pl.DataFrame, places: pl.DataFrame, stages: Sequence[Stage]
) -> Iterator[str]:
    """Rows of a scan in stages that are not of the windows that its stages name, and stages chosen otherwise.

    Which windows a stage scores follows from the rows before it. Tiles and audit do in every version of Rote; where to
    look closer is chosen again only in the version that did, and no bound rests on it.
    """
    refined = manifest.refined
    assert refined is not None
    rows = scores.filter(pl.col("scheme") == manifest.schemes[0])
    if refined.windows != places.height:
        yield f"the manifest says {refined.windows} windows, and windows.parquet has {places.height}"
        return
    if refined.closer != CLOSER or len(stages) > refined.stages:
        yield f"there are {len(stages)} stages, {refined.closer} of them closer looks, and Rote makes {CLOSER} of these"
        return
    if rows.join(places, on=places.columns, how="anti").height:
        yield "a row stands elsewhere than windows.parquet says"
    if rows["stage"].null_count() or not rows["stage"].is_between(0, len(stages) - 1).all():
        yield "a row belongs to no stage that has ended"
    same = manifest.versions.get("rote") == made_with()["rote"]
    for number, stage in enumerate(stages):
        if rows.filter(pl.col("stage") == number)["start"].to_list() != stage.starts:
            yield f"the rows of stage {number} are not those of the windows that it names"
            return
        kind, starts = choice(places, scores.filter(pl.col("stage") < number), refined, manifest.tau, number)
        if stage.kind != kind or (stage.starts != starts and (same or kind != "closer")):
            how = "drawn" if kind == "audit" else "chosen"
            yield f"the windows of stage {number} ({kind}) are not those that are {how}, given the rows before it"
            return


def score_problems(manifest: Manifest, scores: pl.DataFrame, examples: Sequence[Given]) -> Iterator[str]:
    """Rows that are not those of the stored examples."""
    rows = scores.filter(pl.col("scheme") == manifest.schemes[0])
    if rows["example_id"].to_list() != [example.id for example in examples]:
        yield "the rows are not those of the examples"
        return
    columns = rows.select("metadata", "split", "repetitions", "bounded", pl.col("ranks").list.len()).iter_rows()
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
