"""What travels inside a page is the table: unpacked as data.js does it, every number is there to the last bit."""

from __future__ import annotations

import base64
import io
import json
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rote.report.page import pack as packing
from rote.report.page.pack import TABLE, VERDICTS, PackedPage, PackedRun, pack, varints
from rote.report.page.printed import printed
from rote.report.text import numbers
from tests.cases import cases
from tests.report.runs import search

SCHEME = "temperature=1 top_k=40"
TAU = 0.001
NEAR = search(2)
CANDIDATE = pl.Struct(
    {
        "tokens": pl.List(pl.Int32),
        "text": pl.String,
        "log_prob": pl.Float64,
        "set_log_prob": pl.Float64,
        "distance": pl.Int16,
    }
)
SCHEMA: dict[str, Any] = {
    "example_id": pl.String, "scheme": pl.String, "start": pl.Int64, "suffix_start": pl.Int64, "suffix_end": pl.Int64,
    "log_prob": pl.Float64, "greedy": pl.Boolean, "bounded": pl.Boolean, "token_log_probs": pl.List(pl.Float32),
    "ranks": pl.List(pl.Int32), "token_ends": pl.List(pl.Int32), "repetitions": pl.Int64, "split": pl.String,
}  # fmt: skip
NEAR_SCHEMA = {"lower": pl.Float64, "upper": pl.Float64, "verdict": pl.String, "candidates": pl.List(CANDIDATE)}

LogProbs = st.one_of(st.floats(-30, 0), st.floats(-5000, 0), st.sampled_from([0.0, -math.inf, -1e-9, -700.5]))
TokenLogProbs = st.one_of(st.floats(-40, 0, width=32), st.sampled_from([0.0, -math.inf, np.float32(-1e-7).item()]))


@st.composite
def row(draw: st.DrawFn, near: bool, scanned: bool) -> dict[str, Any]:
    tokens = draw(st.lists(TokenLogProbs, max_size=6))
    start = draw(st.integers(0, 10**6))
    places = [start, start + draw(st.integers(0, 300)), start + draw(st.integers(300, 600))]
    lengths = draw(st.lists(st.integers(0, 200), min_size=len(tokens), max_size=len(tokens) + 2))
    ends: list[int] | None = np.cumsum(lengths).tolist() if draw(st.booleans()) else None
    found: dict[str, Any] = {
        "example_id": draw(st.text(max_size=5)),
        "scheme": SCHEME,
        **dict(zip(("start", "suffix_start", "suffix_end"), places if scanned else [None] * 3, strict=True)),
        "log_prob": draw(LogProbs),
        "greedy": draw(st.booleans()),
        "bounded": draw(st.booleans()),
        "token_log_probs": tokens,
        "ranks": [draw(st.integers(1, 2**31 - 1)) for _ in tokens],
        "token_ends": ends,
        "repetitions": draw(st.sampled_from([None, 0, 3, 2**40])),
        "split": draw(st.sampled_from([None, "train", "a\0b"])),
    }
    if not near:
        return found
    candidates = [
        {
            "tokens": [1, 2],
            "text": draw(st.one_of(st.none(), st.text(max_size=4))),
            "log_prob": draw(st.one_of(st.none(), LogProbs)),
            "set_log_prob": draw(st.one_of(st.none(), LogProbs)),
            "distance": draw(st.integers(0, 2)),
        }
        for _ in range(draw(st.integers(0, 8)))
    ]
    bounds = sorted([draw(st.floats(0, 1)), draw(st.floats(0, 1))])
    verdict = draw(st.sampled_from([None, *VERDICTS[1:]]))
    return found | {"lower": bounds[0], "upper": bounds[1], "verdict": verdict, "candidates": candidates}


def table(rows: Sequence[dict[str, Any]], near: bool) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=SCHEMA | (NEAR_SCHEMA if near else {}), orient="row")


@st.composite
def tables(draw: st.DrawFn) -> tuple[pl.DataFrame, bool]:
    near = draw(st.booleans())
    return table(draw(st.lists(row(near, draw(st.booleans())), min_size=1, max_size=12)), near), near


# -- unpacking, as data.js does it


def unpacked(packed: PackedPage, name: str, *, compressed: bool = True) -> bytes:
    content = base64.b64decode(packed.blobs[name])
    return zlib.decompress(content) if compressed else content


def column(packed: PackedPage, run: dict[str, Any], name: str) -> list[float]:
    how, content = run["columns"][name]["type"], unpacked(packed, run["columns"][name]["blob"])
    code, size = {"d4": ("i", 4), "f8": ("d", 8), "f4": ("f", 4), "u1": ("B", 1)}[how]
    count = run["count"]
    assert len(content) == count * size
    each = [bytes(content[plane * count + i] for plane in range(size)) for i in range(count)]
    values = [struct.unpack(f"<{code}", one)[0] for one in each]
    for i in range(1, count if how == "d4" else 0):
        values[i] += values[i - 1]
    return values


def details(packed: PackedPage, run: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """For each row that has them: (probability, rank, end) of its tokens, and the outputs near it."""
    found = {}
    for place, name in enumerate(run["details"]["blobs"]):
        if name is None:
            continue
        content = unpacked(packed, name)
        sizes = struct.unpack("<8I", content[:32])
        parts, at = [], 32
        for size in sizes:
            parts.append(content[at : at + size])
            at += size
        assert at == len(content)
        places = struct.unpack(f"<{len(parts[0]) // 2}H", parts[0])
        counts, end_counts = whole_numbers(parts[1]), whole_numbers(parts[2])
        lengths, ranks = whole_numbers(parts[3]), whole_numbers(parts[6])
        outputs, token, piece = json.loads(parts[7]), 0, 0
        for number, inside in enumerate(places):
            tokens: list[list[Any]] = []
            for _ in range(counts[number]):
                shown = run["details"]["palette"][parts[4][token] | parts[5][token] << 8]
                tokens.append([shown, ranks[token], None])
                token += 1
            end = 0
            for i in range(end_counts[number]):
                end += lengths[piece]
                piece += 1
                if i < len(tokens):
                    tokens[i][2] = end
            own = outputs[number] if outputs else []
            found[place * run["details"]["block"] + inside] = {"tokens": tokens, "outputs": own}
        assert token == len(parts[4])
        assert piece == len(lengths)
    return found


def whole_numbers(content: bytes) -> list[int]:
    """Whole numbers of seven bits to a byte, low bits first, the top bit set on all bytes but a number's last."""
    found, value, factor = [], 0, 1
    for byte in content:
        value += (byte & 127) * factor
        factor *= 128
        if not byte & 128:
            found.append(value)
            value, factor = 0, 1
    assert factor == 1
    return found


@cases(60)
@given(tables())
def test_every_number_comes_back(made: tuple[pl.DataFrame, bool]) -> None:
    rows, near = made
    side = PackedRun("", "a\0model", SCHEME, rows, NEAR if near else None)
    packed = pack([side], tau=TAU, length=None, unit="window")
    json.dumps(packed.data, allow_nan=False)
    (run,) = packed.data["runs"]
    assert run["name"] == "a␀model"
    scanned = not rows["start"].null_count()
    assert ("start" in run["columns"]) == scanned
    exact = ["log_prob", *(["lower", "upper"] if near else []), *(["start", "suffix_start", "suffix_end"] * scanned)]
    for name in exact:
        assert column(packed, run, name) == rows[name].to_list()
    for flags, own in zip(column(packed, run, "flags"), rows.iter_rows(named=True), strict=True):
        assert (bool(int(flags) & 1), bool(int(flags) & 2)) == (own["greedy"], own["bounded"])
        assert VERDICTS[int(flags) >> 2] == ((own["verdict"] or "") if near else "")
    starts = column(packed, run, "start") if scanned else []
    names = run["ids"] if run["ids"] is not None else [f"w{start}" for start in starts]
    assert names == [numbers.literal(name) for name in rows["example_id"]]
    assert run["repetitions"] in (rows["repetitions"].to_list(), None)
    unpackaged = details(packed, run)
    assert sorted(unpackaged) == list(range(rows.height))
    assert run["details"]["kept"] == rows.height
    for place, own in enumerate(rows.iter_rows(named=True)):
        ends = [*(own["token_ends"] or []), *[None] * 9]
        expected = [
            [numbers.probability(log_prob), rank, ends[i]]
            for i, (log_prob, rank) in enumerate(zip(own["token_log_probs"], own["ranks"], strict=True))
        ]
        assert unpackaged[place]["tokens"] == expected
        assert unpackaged[place]["outputs"] == (heaviest(own["candidates"]) if near else [])


def heaviest(candidates: list[dict[str, Any]]) -> list[list[Any]]:
    """The first few that differ from the suffix: place, edits, their probability and that of their set, text."""
    found: list[list[Any]] = []
    for place, one in enumerate(candidates):
        if one["distance"] and len(found) < 5:
            text = "1 2" if one["text"] is None else numbers.literal(one["text"])
            both = (None if p is None else numbers.probability(p) for p in (one["log_prob"], one["set_log_prob"]))
            found.append([place, one["distance"], *both, text])
    return found


@given(tables())
def test_the_table_for_download_is_the_table(made: tuple[pl.DataFrame, bool]) -> None:
    rows, near = made
    packed = pack([PackedRun("", "m", SCHEME, rows, NEAR if near else None)], tau=TAU, length=None, unit="window")
    told = packed.data["table"]
    found = pl.read_parquet(io.BytesIO(unpacked(packed, told["blob"], compressed=False)))
    assert (found.height, found.columns) == (told["rows"], told["columns"])
    assert found.equals(rows.select(found.columns))
    assert set(found.columns) <= set(TABLE)
    left_out = set(TABLE) & set(rows.columns) - set(found.columns)
    assert all(rows[name].null_count() == rows.height for name in left_out)


def many(count: int, seed: int = 0) -> pl.DataFrame:
    chance = np.random.default_rng(seed)
    tokens = -chance.exponential(1.0, (count, 20)).astype(np.float32)
    return table(
        [
            {
                "example_id": f"w{10 * i}", "scheme": SCHEME, "start": 10 * i, "suffix_start": 10 * i + 100,
                "suffix_end": 10 * i + 200, "log_prob": float(tokens[i].sum()), "greedy": False,
                "bounded": i % 7 == 0, "token_log_probs": tokens[i].tolist(),
                "ranks": chance.integers(1, 5000, 20).tolist(), "token_ends": list(range(5, 105, 5)),
            }
            for i in range(count)
        ],
        near=False,
    )  # fmt: skip


def taken(packed: PackedPage, found: dict[str, Any]) -> int:
    """Characters of a page."""
    return sum(map(len, packed.blobs.values())) + len(json.dumps(found["palette"], separators=(",", ":")))


@pytest.mark.parametrize("count", [1, 300, 1500])
@pytest.mark.parametrize("share", [-1.0, 0.0, 0.05, 0.4, 0.9, 2.0])
def test_rows_that_do_not_fit_are_the_least_likely(count: int, share: float) -> None:
    rows = many(count)
    side = PackedRun("", "m", SCHEME, rows)
    whole, packed = PackedPage({}), PackedPage({})
    told: list[int] = []
    budget = int(share * taken(whole, packing._details(whole, side, 10**9, told.append)))
    assert told == [*range(0, count, packing.BLOCK), count]
    found = packing._details(packed, side, budget, told.append)
    unpackaged = details(packed, {"details": found})
    size = taken(packed, found)
    assert size <= budget + 10 or not unpackaged  # ten: what base64 rounds up, brackets
    assert len(unpackaged) == found["kept"]
    values = [-math.inf if own["bounded"] else own["log_prob"] for own in rows.iter_rows(named=True)]
    order = sorted(range(count), key=lambda i: (-values[i], i))
    assert sorted(unpackaged) == sorted(order[: len(unpackaged)])
    if share == 2.0:
        assert len(unpackaged) == count
    if share == 0.9 and count == 1500:
        assert size > 0.7 * budget  # and most of the room is used
    for place, own in unpackaged.items():
        shown = [numbers.probability(value) for value in rows["token_log_probs"][place].to_list()]
        assert [token[0] for token in own["tokens"]] == shown


def test_a_page_of_many_rows_says_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PAGE", packing.TABLES + 60_000)
    monkeypatch.setattr(packing, "EXACT", 100)
    rows = many(1200)
    packed = pack([PackedRun("", "m", SCHEME, rows)], tau=TAU, length=100, unit="window")
    (run,) = packed.data["runs"]
    assert 0 < run["details"]["kept"] < 1200
    assert run["columns"]["log_prob"]["type"] == "f4"
    assert column(packed, run, "log_prob") == rows["log_prob"].cast(pl.Float32).to_list()


def test_progress_counts_the_rows_of_all_runs() -> None:
    told: list[tuple[str, int, int]] = []
    sides = [PackedRun(k, k, SCHEME, many(600)) for k in "AB"]
    pack(sides, tau=TAU, length=10_000, unit="window", progress=lambda *done: told.append(done))
    assert told == [("page", done, 1200) for done in (0, 512, 600, 600, 1112, 1200)]


def test_equal_columns_of_several_runs_are_stored_once() -> None:
    rows = many(50)
    one, two = (
        pack([PackedRun(k, k, SCHEME, rows) for k in keys], tau=TAU, length=1000, unit="window") for keys in ("A", "AB")
    )
    columns = [run["columns"] for run in two.data["runs"]]
    assert columns[0] == columns[1] == one.data["runs"][0]["columns"]
    assert two.data["runs"][0]["details"]["blobs"] == two.data["runs"][1]["details"]["blobs"]
    table_of_both = pl.read_parquet(io.BytesIO(unpacked(two, two.data["table"]["blob"], compressed=False)))
    assert table_of_both["run"].to_list() == ["A"] * 50 + ["B"] * 50


@given(st.lists(TokenLogProbs, max_size=60))
@example([-5e-17, -1e-7])
def test_the_palette_prints_what_show_prints(log_probs: list[float]) -> None:
    places, palette = printed(np.array(log_probs, dtype=np.float64))
    assert [palette[place] for place in places] == [numbers.probability(value) for value in log_probs]
    assert [value for value in log_probs if numbers.probability(value).startswith("1") and -0.1 < value < 0] == []


@given(st.lists(st.integers(0, 2**45), max_size=50))
def test_varints(values: list[int]) -> None:
    assert whole_numbers(varints(np.array(values, dtype=np.int64))) == values


def test_a_probability_on_a_rounding_border_speaks_for_no_other() -> None:
    """Probabilities of few digits, many of them exactly between two that are printed, and others beside each."""
    borders = [math.log(step / 20_000) for step in range(1, 20_000)]
    beside = [value * (1 + change) for value in borders for change in (1e-9, -1e-9)]
    for log_probs in (borders + beside, beside + borders):
        places, palette = printed(np.array(log_probs))
        wrong = [v for v, place in zip(log_probs, places, strict=True) if palette[place] != numbers.probability(v)]
        assert len(set(wrong) - set(borders)) == 0  # on the border itself either is right


def plain(count: int) -> pl.DataFrame:
    """So many rows with nothing special about them."""
    one = {"scheme": SCHEME, "log_prob": -1.0, "greedy": True, "bounded": False, "token_log_probs": [], "ranks": []}
    return table([{**one, "example_id": f"e{i}"} for i in range(count)], near=False)


def test_examples_without_a_place_stand_beside_those_with_one() -> None:
    rows = plain(2).with_columns(
        start=pl.Series([None, 40]), suffix_start=pl.Series([None, 50]), suffix_end=pl.Series([None, 70])
    )
    packed = pack([PackedRun("", "m", SCHEME, rows)], tau=TAU, length=None, unit="example")
    (run,) = packed.data["runs"]
    assert column(packed, run, "suffix_start") == [-1, 50]
    assert column(packed, run, "suffix_end") == [-1, 70]


def test_a_suffix_may_have_more_tokens_than_sixteen_bits_count() -> None:
    many = 70_000
    rows = plain(1).with_columns(
        token_log_probs=pl.Series([[-0.5] * many], dtype=pl.List(pl.Float32)),
        ranks=pl.Series([[2] * many], dtype=pl.List(pl.Int32)),
        token_ends=pl.Series([list(range(1, many + 1))], dtype=pl.List(pl.Int32)),
    )
    packed = pack([PackedRun("", "m", SCHEME, rows)], tau=TAU, length=None, unit="example")
    (run,) = packed.data["runs"]
    tokens = details(packed, run)[0]["tokens"]
    assert (len(tokens), tokens[-1]) == (many, [numbers.probability(-0.5), 2, many])
