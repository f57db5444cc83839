"""A comparison on disk: comparison.json and a table of differences, about runs that stand elsewhere."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import polars as pl

from rote.errors import RunError, argument
from rote.models.base import AdapterIdentity, ServedModel, full_title
from rote.store.files import make_folder, pretty, read_declared, write_whole
from rote.store.manifest import NearSearch, ScannedWindows, Source
from rote.store.seal import check_seal, write_seal
from rote.store.stages import Audit, Staged
from rote.store.summary import Coverage, NearRate, Rates, Share


@dataclass(frozen=True, kw_only=True)
class ComparedModel:
    name: str
    label: str | None = None
    parameters: int | None
    fingerprint: str | None
    dtype: str
    device: str
    bos: str
    bos_token: int | None
    bos_text: str | None
    served: ServedModel | None = None
    adapter: AdapterIdentity | None = None

    @property
    def title(self) -> str:
        return full_title(self)


@dataclass(frozen=True, kw_only=True)
class ComparedNear(NearSearch):
    """A run's near-verbatim search, and its rate at the search's own tolerance."""

    rate: NearRate


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One run under one of its schemes, by itself: `key` is the letter that it goes by, `seal` its seal's number.

    `examples` are its rows. Of a scan in stages `staged` says how far it has come, and `audit`, where windows were left
    out, how many of these may reach the comparison's tau. `unshared`: in a comparison with such scans, the stretches of
    the text in suffixes of its windows that not every run has scored.
    """

    key: str
    folder: str
    name: str
    model: ComparedModel
    versions: dict[str, str]
    seal: str
    scheme: str
    stop_early: bool
    examples: int
    dropped: int
    rates: Rates
    coverage: dict[str, Coverage] | None
    near: ComparedNear | None
    seconds: float
    token_evals: int
    warnings: list[str]
    staged: Staged | None = None
    audit: Audit | None = None
    unshared: list[list[int]] | None = None

    @property
    def left_out(self) -> bool:
        """Whether windows of it have no number."""
        return self.audit is not None and self.audit.drawn < self.audit.left_out


@dataclass(frozen=True, kw_only=True)
class Moved:
    """How log p_z differs, second run less first. Every example stands in exactly one of the first five counts.

    `known` are finite in both runs, `appeared` and `vanished` have p_z = 0 in one of them, `zero` in both, and
    `unknown` are only bounded in at least one. Mean and median are over the `known`; None where there are none.
    """

    known: int
    appeared: int
    vanished: int
    zero: int
    unknown: int
    mean_difference: float | None
    median_difference: float | None


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Two runs over the same examples at tau. `difference` is the second rate less the first.

    `interval` is Newcombe's 95% interval for it, taking the examples as a random sample of a larger set: windows that
    overlap are no such sample, and over them it is too narrow. `effective` is the number of independent examples that
    it rests on: fewer than `examples` where documents were drawn that gave several each. `undecided` more are left out,
    as a served model's list leaves open whether they reach tau; with them the difference lies in `possible_difference`.
    """

    examples: int
    both: int
    gained: int
    lost: int
    neither: int
    difference: float
    interval: list[float]
    effective: float
    log_prob: Moved
    undecided: int = 0
    possible_difference: list[float] | None = None


@dataclass(frozen=True, kw_only=True)
class MovedPassage:
    """A passage that moved: its two log p_z (None is p_z = 0) and by how much at least (None: without bound)."""

    example_id: str
    suffix_start: int | None
    suffix_end: int | None
    log_prob: list[float | None]
    bounded: list[bool]
    greedy: list[bool | None]
    crossed: bool
    least_change: float | None
    exact: bool
    prefix: str
    suffix: str


@dataclass(frozen=True, kw_only=True)
class Whole:
    """The difference of two runs' rates at tau over all windows, where some have no number: it lies in `difference`.

    Each end rests on one run's audit, with 95% confidence. `interval` is wider: by as much as the rates at these ends
    may differ by chance (Newcombe's interval for independent rates), as if windows were independent.
    """

    difference: list[float]
    interval: list[float]


@dataclass(frozen=True, kw_only=True)
class Pair(Paired):
    """A run against the first, over what was scored in all runs; `whole`: over all windows, where some were left out.

    The passages that moved most are among those that were scored in all.
    """

    first: str
    second: str
    whole: Whole | None = None
    largest_gains: list[MovedPassage]
    largest_losses: list[MovedPassage]


@dataclass(frozen=True, kw_only=True)
class RunOfSet:
    """What one run makes of a fixed set; `mean_p_z_upper` is larger where stopped rows leave doubt."""

    extractable: Share
    mean_p_z: float | None
    mean_p_z_upper: float | None


@dataclass(frozen=True, kw_only=True)
class FixedSet:
    """The examples that one run, `reference`, extracts (None: that all do), and what each run makes of them."""

    reference: str | None
    examples: int
    runs: dict[str, RunOfSet]


@dataclass(frozen=True, kw_only=True)
class NearOfSet:
    """One model within a fixed set."""

    verbatim: int
    near: int
    mean_p_z: float | None
    mean_lower: float | None
    median_lower: float | None


@dataclass(frozen=True, kw_only=True)
class NearModel:
    """One model over all examples, and within the fixed set."""

    model: str
    verbatim: Share
    near: Share
    undecided: int
    fixed: NearOfSet


@dataclass(frozen=True, kw_only=True)
class NearFixed:
    """Models over the same examples, and over a fixed set of them; see `rote.analysis.near.compare.compare_fixed`."""

    examples: int
    tolerance: int | None
    tau: float
    reference: str | None
    fixed_examples: int
    models: list[NearModel]


@dataclass(frozen=True, kw_only=True)
class VerbatimInLarger(Share):
    """Of the examples that only tolerance unlocks for one model, the share that another has verbatim."""

    unlocked: int
    example_ids: list[str]


@dataclass(frozen=True, kw_only=True)
class VerbatimElsewhere(VerbatimInLarger):
    """The same for two runs of a comparison."""

    run: str
    other: str


@dataclass(frozen=True, kw_only=True)
class NearComparison:
    """Near-verbatim bounds across runs; see `rote.analysis.compare.near_comparison`."""

    fixed: list[NearFixed]
    alone: list[str]
    verbatim_elsewhere: list[VerbatimElsewhere]


@dataclass(frozen=True, kw_only=True)
class ComparisonResult:
    """What comparison.json says. `differing`: manifest fields in which the runs differ, with each run's value.

    `common_examples` have a row in every run. Where windows were left out of one, all of them have so many more windows
    that they are `common_windows`.
    """

    format: int
    kind: Literal["scan", "score"]
    source: Source
    windows: ScannedWindows | None
    tau: float
    top: int
    runs: list[ComparedRun]
    differing: dict[str, dict[str, Any]]
    held_out_examples: int
    common_examples: int
    common_windows: int | None = None
    unpaired: dict[str, int]
    tokenizers_differ: bool
    pairs: list[Pair]
    fixed_sets: list[FixedSet]
    near: NearComparison | None

    @property
    def scanned(self) -> bool:
        """Whether the passages are windows of one text, and not examples on their own."""
        return self.kind == "scan"

    @property
    def by_characters(self) -> bool:
        """Whether the passages are windows that are the same for every tokenizer."""
        return self.windows is not None and self.windows.unit == "characters"

    @property
    def unit(self) -> str:
        """What one passage is called."""
        return "window" if self.scanned else "example"

    @property
    def length(self) -> int:
        """Characters of the text that was scanned."""
        assert self.source.characters is not None
        return self.source.characters


def write_comparison(folder: Path, result: ComparisonResult, table: pl.DataFrame) -> None:
    """Write comparison.json, and the table of differences as Parquet and as CSV."""
    if (folder / "manifest.json").exists():
        raise RunError(f"{folder} holds a run; choose another {argument('out')} for the comparison.")
    make_folder(folder)
    for suffix, writer in ((".parquet", table.write_parquet), (".csv", table.write_csv)):
        buffer = io.BytesIO()
        writer(buffer)
        write_whole(folder / f"differences{suffix}", buffer.getvalue())
    write_whole(folder / "comparison.json", pretty(result))
    write_seal(folder, ["comparison.json", "differences.parquet", "differences.csv"])


@dataclass(frozen=True)
class StoredComparison:
    """One comparison's folder."""

    folder: Path

    @cached_property
    def result(self) -> ComparisonResult:
        check_seal(self.folder)
        return read_declared(self.folder / "comparison.json", ComparisonResult, "Compare the runs again: rote compare.")

    @cached_property
    def differences(self) -> pl.DataFrame:
        """A row per passage that all runs have."""
        check_seal(self.folder)
        path = self.folder / "differences.parquet"
        try:
            return pl.read_parquet(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise RunError(f"cannot read {path}: {error}. Run rote compare again.") from error
