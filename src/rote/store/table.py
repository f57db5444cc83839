"""The score table: its columns, how results become rows, and how its shards are written and read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

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
    # Floats hardly repeat: a dictionary of them takes most of the time and a third more room, for nothing.
    repeating = [leaf for field in table.schema for leaf, kind in _leaves(field) if not pa.types.is_floating(kind)]
    pq.write_table(
        table.replace_schema_metadata(said), sink,
        compression="zstd", write_page_checksum=True, use_dictionary=repeating,
    )  # fmt: skip
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _leaves(field: pa.Field, above: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """The columns of plain values that Parquet makes of a field, by their paths."""
    path = f"{above}{field.name}"
    if pa.types.is_list(field.type):
        yield from _leaves(field.type.value_field.with_name("element"), f"{path}.list.")
    elif pa.types.is_struct(field.type):
        for own in field.type:
            yield from _leaves(own, f"{path}.")
    else:
        yield path, field.type


def read_facts(path: Path) -> ShardFacts:
    return declared(json.loads(pq.read_schema(path).metadata[b"rote"]), ShardFacts, path, _AGAIN)


_AGAIN = "Delete it and run the command that made the run again."


def read_shard(path: Path, schema: pa.Schema = SCHEMA, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """The rows of a shard, whose pages are as they were written and whose columns are those of `schema`.

    `columns`: of these alone, where others are not needed.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as shard:
            if not shard.schema_arrow.remove_metadata().equals(schema):
                raise ValueError("its columns are not those of a score table")
            table = shard.read(columns=columns).replace_schema_metadata(None)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise RunError(f"the shard {path} is damaged ({error}). {_AGAIN}") from error
    return pl.DataFrame(pl.from_arrow(table))


def _table(
    examples: Sequence[Example], results: Sequence[Verbatim], near: Sequence[NearColumns], stage: int | None = None
) -> pa.Table:
    """Results as rows, made column by column: a row as an object of its own would cost several times as much."""
    by_id = {example.id: example for example in examples}
    own = [by_id[result.example_id] for result in results]
    schemes = {scheme: str(scheme) for scheme in {result.scheme for result in results}}
    repetitions = [example.metadata.get("repetitions") for example in own]
    columns: dict[str, Any] = {
        "example_id": [example.id for example in own],
        "scheme": [schemes[result.scheme] for result in results],
        **{name: [getattr(example, name) for example in own] for name in ("start", "suffix_start", "suffix_end")},
        **{name: [getattr(result, name) for result in results] for name in _SINGLE},
        **{name: _lists([getattr(result, name) for result in results], SCHEMA.field(name).type) for name in _LISTS},
        "token_ends": _lists([example.token_ends for example in own], SCHEMA.field("token_ends").type),
        "repetitions": [None if number is None else int(number) for number in repetitions],
        "split": [example.metadata.get("split") for example in own],
        "metadata": [_json(example.metadata) for example in own],
        "stage": [stage] * len(own),
    }
    if near and len(near) != len(results):
        raise ValueError(f"{len(near)} rows of near-verbatim columns for {len(results)} results")
    if near:
        columns |= {field.name: [plain(getattr(each, field.name)) for each in near] for field in fields(NearColumns)}
    return pa.Table.from_arrays(
        [_array(columns.get(field.name), field.type, len(own)) for field in SCHEMA], schema=SCHEMA
    )


_SINGLE = ("log_prob", "greedy", "bounded", "token_evals")
_LISTS = ("token_log_probs", "base_log_probs", "ranks", "margins")


def _array(values: Any, kind: pa.DataType, rows: int) -> pa.Array:
    if values is None:
        return pa.nulls(rows, kind)
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def _lists(rows: Sequence[Any], kind: pa.ListType) -> pa.Array:
    """A list for each row, or null: their values end to end, and where each begins.

    A log-prob that is no number is one that a served model's list leaves open: null.
    """
    lengths = np.array([0 if row is None else len(row) for row in rows], dtype=np.int64)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    some = [np.asarray(row) for row, length in zip(rows, lengths, strict=True) if length]
    dtype = kind.value_type.to_pandas_dtype()
    values = np.concatenate(some).astype(dtype) if some else np.zeros(0, dtype)
    missing = np.array([row is None for row in rows], dtype=np.bool_)
    mask = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, from_pandas=True), type=kind, mask=mask)


def _json(metadata: Mapping[str, Any]) -> str:
    return json.dumps(dict(metadata), ensure_ascii=False) if metadata else "{}"
