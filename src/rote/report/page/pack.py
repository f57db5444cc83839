"""A run's numbers as they travel inside its page: columns of every row, and each row's tokens as far as they fit.

A page opens from disk, so it can ask nobody for more. Columns of all rows are small: they feed the strips, the shading
and the curves. What a reader sees of one passage alone (its tokens' probabilities and ranks, the outputs near it) is
large, so it is cut into blocks that the page unpacks when a passage is chosen, and where all of it would not fit, the
likeliest rows have it and the page says so.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.coverage import merge_spans, spans
from rote.analysis.rates import LeftOut, log_prob_bounds
from rote.models.base import ServedModel
from rote.progress import Progress, quiet
from rote.report.page.printed import near_outputs, printed
from rote.report.text import numbers
from rote.store.manifest import NearSearch

BLOCK = 512
"""Rows whose tokens are packed together: some tens of kilobytes."""

PAGE = 14_000_000
"""Bytes that a page may take, or little more. What text, columns and tables leave is for the rows' tokens."""

TABLES = 180_000
"""Characters of the page that a run's tables and plots take."""

EXACT = 400_000
"""Probabilities over all runs up to which they are kept as float64; beyond that as float32, 7 digits."""

DOWNLOAD = 3_000_000
"""Characters that the table for download may take."""

VERDICTS = ("", "extractable", "not extractable", "undecided")
TABLE = (
    "example_id", "scheme", "start", "suffix_start", "suffix_end", "log_prob", "greedy", "bounded", "repetitions",
    "split", "lower", "upper", "verdict",
)  # fmt: skip
"""The columns of the table that a page offers for download, as far as a run has them."""


@dataclass(frozen=True, slots=True)
class PackedRun:
    """One run as the page knows it: rows of one scheme, and what to call it.

    Of a scan in stages: the places of the windows that have no number, and what its rates take as `left_out`. `served`:
    where its model is, if it is served.
    """

    key: str
    name: str
    scheme: str
    rows: pl.DataFrame
    near: NearSearch | None = None
    unscored: pl.DataFrame | None = None
    left_out: LeftOut | None = None
    served: ServedModel | None = None
    total: int | None = None
    """How many rows there are, where those given are but some of them."""


@dataclass(frozen=True, slots=True)
class PackedPage:
    """`data` is JSON for the page; its columns and blocks are names of `blobs`, which are base64."""

    data: dict[str, Any]
    blobs: dict[str, str] = field(default_factory=dict)

    def add(self, content: bytes, *, compressed: bool = False) -> str:
        """Store bytes under a name that follows from them, so that equal columns of several runs are stored once."""
        name = hashlib.sha256(content).hexdigest()[:16]
        if name not in self.blobs:
            packed = content if compressed else zlib.compress(content, 6)
            self.blobs[name] = base64.b64encode(packed).decode("ascii")
        return name


def pack(
    sides: Sequence[PackedRun],
    *,
    tau: float,
    length: int | None,
    unit: str,
    beside: int = 0,
    progress: Progress = quiet,
) -> PackedPage:
    """Everything that the page's script needs of these runs.

    `length`: characters of the text that they share. `beside`: bytes of the page that its text takes. `progress`
    counts rows that are packed, as "page".
    """
    packed = PackedPage({"tau": tau, "length": length, "unit": unit, "runs": []})
    exact = sum(side.rows.height * (3 if side.near else 1) for side in sides) <= EXACT
    for side in sides:
        packed.data["runs"].append(
            {
                "key": side.key,
                "name": numbers.literal(side.name),
                "scheme": side.scheme,
                "listed": None if side.served is None else side.served.listed,
                "left_open": None if side.served is None else numbers.listed(side.served),
                "count": side.rows.height,
                "tolerance": side.near.tolerance if side.near else None,
                "sampled": side.near is not None and side.near.method == "sample",
                "columns": _columns(packed, side, exact),
                "unscored": None if side.unscored is None else merge_spans(*spans(side.unscored)),
                "left_out": None if side.left_out is None else _left_out(packed, side.left_out),
                "ids": _ids(side.rows),
                "repetitions": _listed(side.rows, "repetitions"),
                "split": _listed(side.rows, "split"),
            }
        )
        if side.total is not None:
            packed.data["runs"][-1]["total"] = side.total
    packed.data["table"] = _download(packed, sides)
    left, total = PAGE - beside - sum(map(len, packed.blobs.values())), sum(side.rows.height for side in sides)
    before = 0
    for side, run in zip(sides, packed.data["runs"], strict=True):

        def tell(done: int, before: int = before) -> None:
            progress("page", before + done, total)

        run["details"] = _details(packed, side, left // len(sides) - TABLES, tell)
        before += side.rows.height
    return packed


def _columns(packed: PackedPage, side: PackedRun, exact: bool) -> dict[str, dict[str, str]]:
    """By name: the blob, and how it is written. `d4`: differences of 32-bit integers; `f8`, `f4`, `u1`: as in numpy."""
    rows, columns = side.rows, {}
    real = "f8" if exact else "f4"
    if not _empty(rows, "suffix_start"):
        for name in ("start", "suffix_start", "suffix_end"):  # -1: an example that has no place in a text
            columns[name] = _column(packed, rows[name].fill_null(-1).to_numpy(), "d4")
    columns["log_prob"] = _column(packed, rows["log_prob"].to_numpy(), real)
    flags = rows["greedy"].fill_null(False).to_numpy().astype(np.uint8)
    flags |= rows["bounded"].to_numpy().astype(np.uint8) << 1
    flags |= rows["greedy"].is_null().to_numpy().astype(np.uint8) << 6
    if side.near:
        columns["lower"] = _column(packed, rows["lower"].to_numpy(), real)
        columns["upper"] = _column(packed, rows["upper"].to_numpy(), real)
        verdicts = [VERDICTS.index(verdict or "") for verdict in rows["verdict"]]
        flags |= np.array(verdicts, dtype=np.uint8).reshape(-1) << 2
    if "corpus" in rows.columns:  # drawn examples: those of a held-out corpus stand beside the run's own
        flags |= (rows["corpus"] != "main").to_numpy().astype(np.uint8) << 4
    if side.left_out is not None:
        flags |= side.left_out.drawn.astype(np.uint8) << 5
    columns["flags"] = _column(packed, flags, "u1")
    return columns


def _left_out(packed: PackedPage, left_out: LeftOut) -> dict[str, Any]:
    """How many windows were left out, and the share of them that so many hits among those drawn allow, from 0 on."""
    bounds = np.array(left_out.bounds())
    return {"windows": left_out.windows, "drawn": bounds.size - 1, "bounds": _column(packed, bounds, "f8")}


def _column(packed: PackedPage, values: NDArray[Any], kind: str) -> dict[str, str]:
    if kind == "d4":
        values, dtype = np.diff(values.astype(np.int64), prepend=0), "<i4"
    else:
        dtype = f"<{kind}"
    return {"blob": packed.add(_planes(values.astype(dtype))), "type": kind}


def _planes(values: NDArray[Any]) -> bytes:
    """The first byte of every number, then the second of every one, ...: like bytes together compress better."""
    return np.ascontiguousarray(values.view(np.uint8).reshape(values.size, -1).T).tobytes() if values.size else b""


def _ids(rows: pl.DataFrame) -> list[str] | None:
    """The rows' ids, unless each is `w` and where it starts, as in every scan."""
    ids = rows["example_id"].to_list()
    starts = rows["start"].to_list()
    return None if ids == [f"w{start}" for start in starts] else [numbers.literal(name) for name in ids]


def _listed(rows: pl.DataFrame, name: str) -> list[Any] | None:
    if name not in rows.columns or rows[name].null_count() == rows.height:
        return None
    return [numbers.literal(value) if isinstance(value, str) else value for value in rows[name].to_list()]


def _details(packed: PackedPage, side: PackedRun, budget: int, tell: Callable[[int], None]) -> dict[str, Any]:
    """Blocks of the rows' tokens: of all rows, or of the likeliest that fit. `tell`: how many rows were packed."""
    tell(0)
    rows, tokens, order = side.rows, _tokens(side.rows), _likeliest(side.rows, side)
    outputs = _Outputs(rows)
    count = rows.height
    if count > 8 * BLOCK:  # packing all to keep few takes long: a few blocks tell about how many fit
        firsts = range(0, count - BLOCK, count // 4)
        some = np.concatenate([np.arange(first, first + BLOCK) for first in firsts])
        size = _size(_blocks(rows.height, tokens, outputs, some, lambda done: None))
        count = min(count, int(some.size * max(budget, 0) / size))
    for turn in range(20):
        kept = np.sort(order[:count])
        own = _fewer_printed(tokens, kept)
        blobs = _blocks(rows.height, own, outputs, kept, tell)
        size = _size(blobs) + sum(len(shown) + 3 for shown in own.palette)  # these go as JSON
        most = rows.height if turn < 3 else count - 1  # at first it may turn out that more fit
        fits = size <= budget
        if not count or (fits and (count == rows.height or turn >= 3 or size > 0.9 * budget)):
            break
        count = max(0, min(most, int(count * max(budget, 0) / size * 0.97)))
    return {
        "block": BLOCK,
        "blobs": [packed.add(blob, compressed=True) if blob else None for blob in blobs],
        "kept": int(kept.size),
        "palette": own.palette,
    }


def _size(blobs: Sequence[bytes]) -> int:
    """Characters of the page, as base64."""
    return sum(map(len, blobs)) * 4 // 3 + 1


def _likeliest(rows: pl.DataFrame, side: PackedRun) -> NDArray[np.int64]:
    lower = log_prob_bounds(rows)[0]
    near = rows["lower"].fill_null(0.0).to_numpy() if side.near else np.zeros(rows.height)
    return np.lexsort((np.arange(rows.height), -np.where(np.isfinite(lower), lower, -1e300), -near))


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The lists of all rows end to end. `codes` are places in `palette`, the probabilities as they are printed."""

    counts: NDArray[np.int64]
    codes: NDArray[np.uint16]
    palette: list[str]
    ranks: NDArray[np.int64]
    end_counts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def _tokens(rows: pl.DataFrame) -> _Tokens:
    counts, log_probs = _flat(rows, "token_log_probs")
    _, ranks = _flat(rows, "ranks")
    end_counts, ends = _flat(rows, "token_ends")
    lengths = ends.astype(np.int64)
    lengths[1:] -= ends.astype(np.int64)[:-1]
    first = np.cumsum(end_counts)[:-1][end_counts[1:] > 0] if end_counts.size else np.zeros(0, np.int64)
    lengths[first] = ends[first]
    log_probs = log_probs.astype(np.float64)
    left_open = np.isnan(log_probs)  # by a served model's list
    codes, palette = printed(np.where(left_open, 0.0, log_probs))
    if left_open.any():
        palette = [*palette, "not known"]
        codes[left_open] = len(palette) - 1
    return _Tokens(counts, codes, palette, ranks.astype(np.int64), end_counts, lengths)


def _fewer_printed(tokens: _Tokens, kept: NDArray[np.int64]) -> _Tokens:
    """The same with a palette of what the rows `kept` need; codes of other rows mean nothing any more."""
    used = np.unique(tokens.codes[_spread(np.concatenate(([0], np.cumsum(tokens.counts))), kept)])
    places = np.zeros(len(tokens.palette), np.uint16)
    places[used] = np.arange(used.size)
    return replace(tokens, codes=places[tokens.codes], palette=[tokens.palette[code] for code in used])


def _flat(rows: pl.DataFrame, name: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    if name not in rows.columns:
        return np.zeros(rows.height, np.int64), np.zeros(0)
    column = rows[name]
    counts = column.list.len().fill_null(0).to_numpy().astype(np.int64)
    return counts, column.filter(pl.Series(counts > 0)).explode().to_numpy() if counts.any() else np.zeros(0)


def _blocks(
    height: int, tokens: _Tokens, outputs: _Outputs, kept: NDArray[np.int64], tell: Callable[[int], None]
) -> list[bytes]:
    starts = np.concatenate(([0], np.cumsum(tokens.counts)))
    end_starts = np.concatenate(([0], np.cumsum(tokens.end_counts)))
    outputs.read(kept)
    blocks = []
    for first in range(0, height, BLOCK):
        own = kept[np.searchsorted(kept, first) : np.searchsorted(kept, first + BLOCK)]
        tell(min(first + BLOCK, height))
        if not own.size:
            blocks.append(b"")
            continue
        at = _spread(starts, own)
        codes = tokens.codes[at]
        sections = [
            (own - first).astype("<u2").tobytes(),
            varints(tokens.counts[own]),
            varints(tokens.end_counts[own]),
            varints(tokens.lengths[_spread(end_starts, own)]),
            (codes & 255).astype(np.uint8).tobytes(),
            (codes >> 8).astype(np.uint8).tobytes(),
            varints(tokens.ranks[at]),
            f"[{outputs.of(own)}]".encode(),
        ]
        sizes = np.array([len(section) for section in sections], dtype="<u4").tobytes()
        blocks.append(zlib.compress(sizes + b"".join(sections), 6))
    return blocks


def _spread(starts: NDArray[np.int64], own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the values of the rows `own` lie in the lists put end to end."""
    counts = starts[own + 1] - starts[own]
    before = np.cumsum(counts) - counts
    at: NDArray[np.int64] = np.arange(int(counts.sum())) + np.repeat(starts[own] - before, counts)
    return at


def varints(values: NDArray[np.int64]) -> bytes:
    """Whole numbers from 0 on, seven bits to a byte, low bits first, the top bit set on all bytes but the last."""
    if not values.size:
        return b""
    columns = max(1, -(-int(values.max()).bit_length() // 7))
    shifted = values[:, None] >> (7 * np.arange(columns))
    last = np.maximum(columns - 1 - np.argmax((shifted > 0)[:, ::-1], axis=1), 0) * (values > 0)
    place = np.arange(columns)
    coded = (shifted & 127) | np.where(place < last[:, None], 128, 0)
    return bytes(coded[place <= last[:, None]].astype(np.uint8))


class _Outputs:
    """Each row's heaviest outputs near the suffix as JSON, worked out when they are needed, and once."""

    def __init__(self, rows: pl.DataFrame) -> None:
        some = "candidates" in rows.columns and not _empty(rows, "candidates")
        self._candidates = rows["candidates"] if some else None
        self._known: dict[int, str] = {}

    def of(self, own: NDArray[np.int64]) -> str:
        """Those of these rows, one after the other, as far as they were read."""
        return "" if self._candidates is None else ",".join(self._known[row] for row in own.tolist())

    def read(self, needed: NDArray[np.int64]) -> None:
        if self._candidates is not None:
            rows = [row for row in needed.tolist() if row not in self._known]
            texts = near_outputs(self._candidates.gather(rows))
            self._known |= zip(rows, texts, strict=True)


def _download(packed: PackedPage, sides: Sequence[PackedRun]) -> dict[str, Any]:
    """The table as Parquet, where it fits, for a button of the page."""
    tables = []
    for side in sides:
        names = [name for name in TABLE if name in side.rows.columns and not _empty(side.rows, name)]
        own = side.rows.select(names)
        tables.append(own.select(pl.lit(side.key).alias("run"), pl.all()) if len(sides) > 1 else own)
    whole = pl.concat(tables, how="diagonal")
    sink = io.BytesIO()
    whole.write_parquet(sink, compression="zstd")
    content = sink.getvalue()
    fits = len(content) * 4 // 3 <= DOWNLOAD
    return {
        "rows": whole.height,
        "columns": whole.columns,
        "blob": packed.add(content, compressed=True) if fits else None,
    }


def _empty(rows: pl.DataFrame, name: str) -> bool:
    return rows[name].null_count() == rows.height
