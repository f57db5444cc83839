"""A run's score table: whole, by scheme, part by part, or single rows; and how much of it stays in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from rote.store.manifest import Manifest
from rote.store.table import EMPTY, read_shard

KEPT = 300_000
"""Rows up to which a run that was read stays in memory with all of their tokens: a page of as many takes 3.5 GB."""


def shard_path(folder: Path, index: int) -> Path:
    return folder / "scores" / f"{index:06d}.parquet"


class ScoreTable(ABC):
    """The table of one run folder. What was read of it is kept, as far as it is not too large."""

    folder: Path

    @property
    @abstractmethod
    def manifest(self) -> Manifest: ...

    @abstractmethod
    def shards(self) -> list[Path]: ...

    @cached_property
    def scores(self) -> pl.DataFrame:
        """One row per example and scheme, in the order of the examples. All of a run, however large it is."""
        _ = self.manifest  # refuses a run that was changed after it was sealed
        shards = self._kept if self.kept else list(map(read_shard, self.shards()))
        scores = pl.concat(shards) if shards else EMPTY
        return scores if self.manifest.refined is None else scores.sort("start", maintain_order=True)

    def rows(self, scheme: str) -> pl.DataFrame:
        """The rows of one scheme; without a copy where there is no other."""
        return self.scores if self.manifest.schemes == [scheme] else self.scores.filter(pl.col("scheme") == scheme)

    def parts(self) -> Iterator[pl.DataFrame]:
        """The score table, shard by shard: for what need not hold it whole. Of a scan in stages whole, in order."""
        _ = self.manifest
        if self.manifest.refined is not None:
            return iter([self.scores])
        return iter(self._kept) if self.kept else map(read_shard, self.shards())

    def column(self, name: str) -> Iterator[pl.Series]:
        """One column, part by part: of what is not kept, nothing else is read."""
        if self.kept:
            return (part[name] for part in self.parts())
        return (read_shard(path, columns=[name])[name] for path in self.shards())

    @property
    def height(self) -> int:
        """How many rows there are, as the shards themselves say."""
        return self.scores.height if self.kept else sum(pq.read_metadata(path).num_rows for path in self.shards())

    @cached_property
    def kept(self) -> bool:
        """Whether its rows are kept once they were read: up to KEPT of them, counted in whole shards.

        Those of a scan in stages always are: which are scored next follows from all of them.
        """
        manifest = self.manifest
        return manifest.shards is None or manifest.shards * manifest.shard_examples * len(manifest.schemes) <= KEPT

    @cached_property
    def _kept(self) -> list[pl.DataFrame]:
        return [read_shard(path) for path in self.shards()]

    def in_full(self, numbers: Sequence[int], scheme: str | None = None) -> pl.DataFrame:
        """Rows of one scheme, the first, by their numbers, ascending, from the shards that hold them."""
        size, scheme = self.manifest.shard_examples, scheme or self.manifest.schemes[0]
        by_shard: dict[int, list[int]] = {}
        for number in numbers:
            by_shard.setdefault(number // size, []).append(number % size)
        found = []
        for shard, own in sorted(by_shard.items()):
            rows = read_shard(shard_path(self.folder, shard))
            rows = (rows if len(self.manifest.schemes) == 1 else rows.filter(pl.col("scheme") == scheme))[own]
            # Strings would keep the whole shard's in memory.
            found.append(rows.with_columns(pl.lit(scheme).alias("scheme")))
        return pl.concat(found) if found else EMPTY
