"""The score table: its columns, how results become rows, and how its shards are written and read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rote.errors import RunError
from rote.store.files import declared, plain, write_whole
from rote.tokens import Example

if TYPE_CHECKING:  # reading a run needs no torch
    from rote.extraction.verbatim import Verbatim

CANDIDATE = pa.struct(
    [
        ("tokens", pa.list_(pa.int32())),
        ("text", pa.string()),
        ("log_prob", pa.float64()),
        ("set_log_prob", pa.float64()),
        ("distance", pa.int16()),
    ]
)
SCHEMA = pa.schema(
    [
        ("example_id", pa.string()),
        ("scheme", pa.string()),
        ("start", pa.int64()),
        ("suffix_start", pa.int64()),
        ("suffix_end", pa.int64()),
        ("log_prob", pa.float64()),
        ("greedy", pa.bool_()),
        ("bounded", pa.bool_()),
        ("token_evals", pa.int32()),
        ("token_log_probs", pa.list_(pa.float32())),
        ("base_log_probs", pa.list_(pa.float32())),
        ("ranks", pa.list_(pa.int32())),
        ("margins", pa.list_(pa.float32())),
        ("token_ends", pa.list_(pa.int32())),
        ("repetitions", pa.int64()),
        ("split", pa.string()),
        ("metadata", pa.string()),
        ("stage", pa.int16()),  # of a scan in stages, from 0
        # near-verbatim extraction; null where it was not asked for
        ("lower", pa.float64()),
        ("upper", pa.float64()),
        ("lower_by_tolerance", pa.list_(pa.float64())),
        ("upper_by_tolerance", pa.list_(pa.float64())),
        ("verdict", pa.string()),
        ("near_token_evals", pa.int32()),
        ("eos_mass", pa.float64()),
        ("estimate", pa.float64()),
        ("estimate_error", pa.float64()),
        ("candidates", pa.list_(CANDIDATE)),
        ("greedy_distance", pa.int32()),
    ]
)

Row = Mapping[str, Any]
"""A row of the score table, or some columns of one, by their names, as Polars gives it."""

EMPTY = pl.DataFrame(pl.from_arrow(SCHEMA.empty_table()))


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """What is known of a shard beside its rows, so that these stay reproducible."""

    seconds: float
    warnings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateColumns:
    """An output near the suffix: its tokens and their text, its probability or that of a set it stands for."""

    tokens: tuple[int, ...]
    text: str | None
    log_prob: float | None
    set_log_prob: float | None
    distance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NearColumns:
    """The near-verbatim columns of one row."""

    lower: float
    upper: float
    lower_by_tolerance: list[float]
    upper_by_tolerance: list[float]
    verdict: str
    near_token_evals: int
    eos_mass: float
    estimate: float | None
    estimate_error: float | None
    candidates: list[CandidateColumns]
    greedy_distance: int | None


def shard_bytes(
    examples: Sequence[Example],
    results: Sequence[Verbatim],
    facts: ShardFacts,
    near: Sequence[NearColumns] = (),
    stage: int | None = None,
) -> bytes:
    """One shard as its file has it. `near`: the near-verbatim columns, a row for each result."""
    return _content(_table(examples, results, near, stage), facts)


def write_table(path: Path, table: pa.Table, facts: ShardFacts) -> None:
    """Rows as a shard, with the facts as its metadata."""
    write_whole(path, _content(table, facts))


def _content(table: pa.Table, facts: ShardFacts) -> bytes:
    sink = pa.BufferOutputStream()
    said = {"rote": json.dumps(plain(facts))}
    pq.write_table(table.replace_schema_metadata(said), sink, compression="zstd", write_page_checksum=True)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_facts(path: Path) -> ShardFacts:
    return declared(json.loads(pq.read_schema(path).metadata[b"rote"]), ShardFacts, path, _AGAIN)


_AGAIN = "Delete it and run the command that made the run again."


def read_shard(path: Path, schema: pa.Schema = SCHEMA) -> pl.DataFrame:
    """The rows of a shard, whose pages are as they were written and whose columns are those of `schema`."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as shard:
            table = shard.read().replace_schema_metadata(None)
        if not table.schema.equals(schema):
            raise ValueError("its columns are not those of a score table")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise RunError(f"the shard {path} is damaged ({error}). {_AGAIN}") from error
    return pl.DataFrame(pl.from_arrow(table))


def _told(log_probs: NDArray[np.float32]) -> Sequence[float | None] | NDArray[np.float32]:
    """Log-probs as a column holds them: null for what a server's list leaves open."""
    return pa.array(log_probs, from_pandas=True).to_pylist() if np.isnan(log_probs).any() else log_probs


def _table(
    examples: Sequence[Example], results: Sequence[Verbatim], near: Sequence[NearColumns], stage: int | None = None
) -> pa.Table:
    by_id = {example.id: example for example in examples}
    rows = []
    columns: Sequence[NearColumns | None] = near or [None] * len(results)
    for result, more in zip(results, columns, strict=True):
        example = by_id[result.example_id]
        metadata = dict(example.metadata)
        repetitions = metadata.get("repetitions")
        rows.append(
            {
                "example_id": example.id,
                "scheme": str(result.scheme),
                "start": example.start,
                "suffix_start": example.suffix_start,
                "suffix_end": example.suffix_end,
                "log_prob": result.log_prob,
                "greedy": result.greedy,
                "bounded": result.bounded,
                "token_evals": result.token_evals,
                "token_log_probs": _told(result.token_log_probs),
                "base_log_probs": result.base_log_probs,
                "ranks": result.ranks,
                "margins": result.margins,
                "token_ends": example.token_ends,
                "repetitions": None if repetitions is None else int(repetitions),
                "split": metadata.get("split"),
                "metadata": json.dumps(metadata, ensure_ascii=False),
                "stage": stage,
                **({} if more is None else plain(more)),
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMA)
