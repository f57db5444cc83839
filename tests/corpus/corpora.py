"""The same documents as every kind of corpus that can be read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

Rows = Sequence[Mapping[str, Any]]


def write_texts(folder: Path, rows: Rows) -> Path:
    for row in rows:
        path = folder / row["id"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(row["text"].encode())
    return folder


def write_jsonl(path: Path, rows: Rows) -> Path:
    path.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
    return path


def write_parquet(path: Path, rows: Rows, *, group: int = 3) -> Path:
    pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=group)
    return path


def write_parquets(folder: Path, rows: Rows) -> Path:
    folder.mkdir()
    for part in range(3):
        write_parquet(folder / f"part-{part}.parquet", rows[part::3])
    return folder


def write_dataset(folder: Path, rows: Rows, *, files: int = 2, split: str | None = None) -> Path:
    """What save_to_disk of Hugging Face's datasets leaves: Arrow streams and two JSON files."""
    folder.mkdir(parents=True)
    names = [f"data-{index:05d}-of-{files:05d}.arrow" for index in range(files)]
    size = -(-len(rows) // files)
    for index, name in enumerate(names):
        table = pa.Table.from_pylist(list(rows[index * size : (index + 1) * size]))
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table, max_chunksize=2)
    state: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": "0123456789abcdef",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }
    (folder / "state.json").write_text(json.dumps(state))
    features = {name: {"dtype": "string", "_type": "Value"} for name in rows[0]}
    (folder / "dataset_info.json").write_text(json.dumps({"citation": "", "description": "", "features": features}))
    return folder


def write_splits(folder: Path, splits: Mapping[str, Rows]) -> Path:
    for split, rows in splits.items():
        write_dataset(folder / split, rows, files=1, split=split)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    return folder
