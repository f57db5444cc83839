"""Runs beside one another: whether they measured the same passages, what differs between them, and the comparison."""

from __future__ import annotations

import json
import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import polars as pl

from rote.analysis.compare import (
    OPEN,
    Change,
    changes,
    common,
    differences,
    extractable,
    fixed_sets,
    near_comparison,
    paired,
    whole_difference,
)  # fmt: skip
from rote.analysis.coverage import coverage, merge_spans, spans
from rote.analysis.groups import documents_of, sampled_rates, with_origin
from rote.analysis.near.rates import near_rates
from rote.analysis.rates import audit, staged_rates
from rote.analysis.summary import THRESHOLDS, left_out_of, rows_of
from rote.errors import InputError, RunError
from rote.frames import FrameKind, frame_of
from rote.jobs.open import Run, RunLike, as_run, several
from rote.jobs.passages import differing, refuse_incomparable, refuse_nothing_scored_in_all
from rote.jobs.report import write_page
from rote.options import Option, folder_of, require_tau, require_whole, typed_path
from rote.report.page.comparison import render_comparison
from rote.report.page.pack import PackedRun
from rote.report.text.cards import comparison_card
from rote.report.text.comparison import headline
from rote.report.text.conclusion import run_label
from rote.scheme import Scheme
from rote.store.comparison import (
    ComparedModel,
    ComparedNear,
    ComparedRun,
    ComparisonResult,
    MovedPassage,
    NearComparison,
    Pair,
    StoredComparison,
    Whole,
    write_comparison,
)
from rote.store.files import FORMAT, plain, pretty
from rote.store.manifest import Manifest
from rote.store.run import Finished, Passages

MOST = 20
"""Runs that can be compared at once: each has a letter, and a page with more could not be read."""

_HEAVY = ("token_log_probs", "base_log_probs", "ranks", "margins", "token_ends", "candidates")
_NOT_SHOWN = ("base_log_probs", "margins", "metadata", "lower_by_tolerance", "upper_by_tolerance")


@dataclass(frozen=True)
class Side:
    """One run under one of its schemes, and the letter it goes by."""

    key: str
    run: Run
    scheme: str

    @property
    def manifest(self) -> Manifest:
        return self.run.manifest

    @property
    def of(self) -> Finished:
        return self.run.finished

    @property
    def name(self) -> str:
        own = f" ({self.scheme})" if len(self.manifest.schemes) > 1 else ""
        return f"{self.run.folder}{own}"

    def rows(self) -> pl.DataFrame:
        return self.run.rows(self.scheme)

    def table(self) -> pl.DataFrame:
        """Its rows; of a run too large to keep without what `rote.analysis.narrow` leaves away."""
        return rows_of(self.run.table, self.scheme, self.manifest)

    def compared(self) -> tuple[pl.DataFrame, int]:
        """The rows that are compared, and how many more there are: a held-out corpus is a control, not a part."""
        rows = self.rows()
        if not self.of.drawn:
            return rows, 0
        every = with_origin(rows)
        own = every.filter(pl.col("corpus") == "main")
        return own, every.height - own.height


@dataclass(frozen=True)
class Comparison:
    """`result` is comparison.json; `table` has a row per passage that all runs have; `sides` are the runs."""

    result: ComparisonResult
    table: pl.DataFrame
    sides: Sequence[Side]

    def write(self, folder: str | Path) -> Path:
        """Write comparison.json, differences.parquet, differences.csv and report.html; return the page's path."""
        page = self.page()
        write_comparison(Path(folder), self.result, self.table)
        return write_page(Path(folder), page)

    def frame(self, kind: FrameKind = "polars") -> Any:
        """A row per passage that all runs have."""
        return frame_of(self.table, kind)

    def __repr__(self) -> str:
        return f"<Comparison: {headline(self.result)}>"

    def _repr_html_(self) -> str:
        return comparison_card(self.result)

    def page(self) -> str:
        """The comparison as HTML, with what is shown of single passages."""
        return render_comparison(self.result, _shown(self.sides, self.result), self.sides[0].run.texts)


def compare_again(stored: StoredComparison) -> Comparison:
    """Compare again the runs that a comparison's folder names; they must still be those that were compared."""
    folders = dict.fromkeys(run.folder for run in stored.result.runs)
    if missing := [name for name in folders if not Path(name).is_dir()]:
        raise RunError(
            f"{stored.folder} compares {missing[0]}, which is not there. Paths are as rote compare was given them: go "
            "to the folder in which it was called, or compare the runs again."
        )
    again = compare(list(folders), tau=stored.result.tau, top=stored.result.top)
    if json.loads(pretty(again.result)) != plain(stored.result):
        raise RunError(
            f"the runs of {stored.folder} are no longer those that were compared; compare them again: rote compare."
        )
    return again


def compare(
    runs: Annotated[
        RunLike | Sequence[RunLike], Option("Finished runs over the same passages; the first is compared to.")
    ],
    *,
    tau: Annotated[
        float | None, Option("Smallest probability that counts as extraction.", default="the largest tau of the runs")
    ] = None,
    top: Annotated[int, Option("How many of the largest gains and losses to list.")] = 10,
    out: Annotated[
        Path | str | None,
        Option("Folder for the page and the tables.", "--out/-o", default="print only", parse=typed_path),
    ] = None,
) -> Comparison:
    """Compare finished runs over the same passages; a run with several schemes counts as several.

    `tau`: the smallest probability that counts as extraction; by default the largest that one of the runs was made
    with, because rows that a run gave up early are only known to end below its own. `top`: how many of the largest
    gains and losses are listed. With `out`, it is written there, with a page.
    """
    require_whole("top", top, 0)
    sides = open_sides(runs)
    if len(sides) < 2:
        raise InputError("a comparison needs at least two runs, or one run with two schemes; give another folder.")
    chosen = max(side.manifest.tau for side in sides) if tau is None else tau
    require_tau(chosen)
    tables: dict[str, pl.DataFrame] = {}
    described: list[ComparedRun] = []
    held_out = 0
    for side in sides:
        rows, held_out = side.compared()
        if side.manifest.model.served is not None:
            rows = rows.with_columns(pl.col("bounded").alias(OPEN))
        _refuse_undecided(side, rows, chosen)
        described.append(_described(side, rows, chosen))
        tables[side.key] = rows.drop(_HEAVY)
    staged = any(run.left_out for run in described)
    if staged:
        refuse_nothing_scored_in_all(tables)
    aligned, unpaired = common(tables)
    if staged:
        stretches = [_unshared(side, aligned[side.key]) for side in sides]
        described = [replace(run, unshared=own) for run, own in zip(described, stretches, strict=True)]
    first = sides[0]
    compared = Comparison(
        result=ComparisonResult(
            format=FORMAT,
            kind=first.manifest.kind,
            source=first.manifest.source,
            windows=first.manifest.windows,
            tau=chosen,
            top=top,
            runs=described,
            differing=differing({side.key: (side.scheme, side.manifest) for side in sides}),
            held_out_examples=held_out,
            common_examples=aligned[first.key].height,
            common_windows=_common_windows(sides) if staged else None,
            unpaired=unpaired,
            tokenizers_differ=len({side.manifest.model.tokenizer for side in sides}) > 1,
            pairs=[
                _pair(
                    sides,
                    aligned,
                    other,
                    chosen,
                    top,
                    whole_difference(described[0].rates, own.rates) if staged else None,
                )
                for other, own in zip(sides[1:], described[1:], strict=True)
            ],
            fixed_sets=fixed_sets(aligned, tau=chosen),
            near=_near(sides, aligned, chosen),
        ),
        table=_with_text(differences(aligned, tau=chosen), aligned[first.key], first.run.texts),
        sides=sides,
    )
    if out is not None:
        compared.write(folder_of(out))
    return compared


def open_sides(given: RunLike | Sequence[RunLike]) -> list[Side]:
    """Open finished runs, check that they measured the same passages, and give each scheme of each a letter."""
    runs = [as_run(one) for one in several(given)]
    seen: set[Path] = set()
    for run in runs:
        if run.folder.resolve() in seen:
            raise InputError(f"{run.folder} was given twice; give each run once.")
        seen.add(run.folder.resolve())
    refuse_incomparable(runs)
    named = [(run, scheme) for run in runs for scheme in run.manifest.schemes]
    if len(named) > MOST:
        raise InputError(f"at most {MOST} runs can be compared at once, not {len(named)}; leave some out.")
    for run in runs:
        _ = run.summary  # refuses one that is unfinished
    return [Side(key, run, scheme) for key, (run, scheme) in zip(string.ascii_uppercase, named, strict=False)]


def _refuse_undecided(side: Side, rows: pl.DataFrame, tau: float) -> None:
    try:
        extractable(rows, tau)
    except InputError as error:
        raise InputError(f"{side.run.folder}: {error}") from error


def _common_windows(sides: Sequence[Side]) -> int:
    """How many windows all runs have, scored or not."""
    every = [set((side.rows() if side.run.places is None else side.run.places)["start"]) for side in sides]
    return len(set.intersection(*every))


def _described(side: Side, rows: pl.DataFrame, tau: float) -> ComparedRun:
    model, summary, near = side.manifest.model, side.run.summary, side.manifest.near
    longest = int(rows["ranks"].list.len().max() or 0)  # type: ignore[arg-type]
    tolerance = summary.logit_tolerance
    doubt = Scheme.parse(side.scheme).doubt(tolerance)
    left_out = left_out_of(rows, side.manifest)
    # A document's examples belong together.
    rate_of = sampled_rates if side.of.drawn else partial(staged_rates, left_out=left_out)
    cost = int(rows["token_evals"].sum())
    if near is not None:  # a fork search's first pass is the verbatim pass
        cost = int(rows["near_token_evals"].sum()) + (0 if near.method == "fork" else cost)
    return ComparedRun(
        key=side.key,
        folder=str(side.run.folder),
        name=side.name,
        model=ComparedModel(
            name=model.name,
            label=model.label,
            parameters=model.parameters,
            fingerprint=model.fingerprint,
            dtype=model.dtype,
            device=model.device,
            bos=model.bos,
            bos_token=model.bos_token,
            bos_text=model.bos_text,
            served=model.served,
            adapter=model.adapter,
        ),
        versions=side.manifest.versions,
        seal=side.run.seal.id,
        scheme=side.scheme,
        stop_early=side.manifest.stop_early,
        examples=rows.height,
        dropped=summary.dropped,
        rates=rate_of(rows, tau=tau, numeric_tolerance=doubt * longest, border_tolerance=tolerance),
        coverage=coverage(rows, side.of.length, THRESHOLDS, served=model.served is not None)
        if side.of.scanned
        else None,
        near=None if near is None else ComparedNear(**asdict(near), rate=near_rates(rows, tau=tau)[-1]),
        seconds=summary.seconds,
        token_evals=cost,
        warnings=summary.warnings,
        staged=summary.staged,
        audit=None if left_out is None else audit(rows, tau, left_out),
    )


def _unshared(side: Side, rows: pl.DataFrame) -> list[list[int]]:
    """The stretches of the text in suffixes of a scan's windows that are not among these rows."""
    windows = side.rows() if side.run.places is None else side.run.places
    return [[*stretch] for stretch in merge_spans(*spans(windows.join(rows, on="start", how="anti")))]


def _shown(sides: Sequence[Side], result: ComparisonResult) -> list[PackedRun]:
    """The runs as the page shows them: every window of a scan, but of examples those that all runs have, in one order.

    Another tokenizer cuts an example's text elsewhere. Then its tokens have no place in the first run's text, which is
    the one that is shown.
    """
    tables = {side.key: side.compared()[0].drop(_NOT_SHOWN) for side in sides}
    if not sides[0].of.scanned:
        tables, _ = common(tables)
        for side in sides:
            if side.manifest.model.tokenizer != sides[0].manifest.model.tokenizer:
                ends = pl.lit(None, dtype=tables[side.key].schema["token_ends"])
                tables[side.key] = tables[side.key].with_columns(token_ends=ends)
    return [
        PackedRun(
            key=side.key,
            name=run_label(run),
            scheme=side.scheme,
            rows=tables[side.key],
            near=side.manifest.near,
            unscored=side.run.view.left_out,
            left_out=left_out_of(tables[side.key], side.manifest),
            served=side.manifest.model.served,
        )
        for side, run in zip(sides, result.runs, strict=True)
    ]


def _pair(
    sides: Sequence[Side], tables: Mapping[str, pl.DataFrame], other: Side, tau: float, top: int, whole: Whole | None
) -> Pair:
    first, second = tables[sides[0].key], tables[other.key]
    document = documents_of(first) if sides[0].of.drawn else None
    listed = partial(changes, first, second, tau=tau, count=top, apart=other.of.scanned)
    passage = partial(_passage, first, second, sides[0].run.texts)
    return Pair(
        first=sides[0].key,
        second=other.key,
        whole=whole,
        **vars(paired(first, second, tau=tau, document=document)),
        largest_gains=[passage(change) for change in listed(kind="gain")],
        largest_losses=[passage(change) for change in listed(kind="loss")],
    )


def _passage(first: pl.DataFrame, second: pl.DataFrame, passages: Passages, change: Change) -> MovedPassage:
    one, two = first.row(change.row, named=True), second.row(change.row, named=True)
    prefix, suffix = passages[one]
    return MovedPassage(
        example_id=one["example_id"],
        suffix_start=one["suffix_start"],
        suffix_end=one["suffix_end"],
        log_prob=[None if row["log_prob"] == -math.inf else row["log_prob"] for row in (one, two)],
        bounded=[row["bounded"] for row in (one, two)],
        greedy=[row["greedy"] for row in (one, two)],
        crossed=change.crossed,
        least_change=change.least_change if math.isfinite(change.least_change) else None,
        exact=change.exact,
        prefix=prefix,
        suffix=suffix,
    )


def _near(sides: Sequence[Side], tables: Mapping[str, pl.DataFrame], tau: float) -> NearComparison | None:
    near = {side.key: side.manifest.near for side in sides if side.manifest.near is not None}
    if not near:
        return None
    searches = {key: (own.distance, own.tolerance, own.eos) for key, own in near.items()}
    weights = {side.key: side.manifest.model.fingerprint or side.manifest.model.name for side in sides}
    return near_comparison(tables, searches=searches, weights=weights, tau=tau)


def _with_text(table: pl.DataFrame, rows: pl.DataFrame, passages: Passages) -> pl.DataFrame:
    places = rows.select("example_id", "start", "suffix_start", "suffix_end").to_dicts()
    clean = [passages[row][1].encode("utf-8", "replace").decode() for row in places]
    return table.with_columns(pl.Series("suffix", clean, dtype=pl.String))
