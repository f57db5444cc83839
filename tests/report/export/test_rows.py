"""Tables for other programs: what stands in them is what was measured, and no text becomes anything else on the way."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import unicodedata
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.report.export.rows import MOST_KEYS, as_csv, as_jsonl, metadata_kinds, score_rows
from rote.store.run import Passages
from tests.report.runs import manifest

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "'=1", "''", "\t=1", "\r\n=1", " =1", "\u200b=1", "\ufeff@x", "＝1", ";=1"]
NASTY = [*FORMULAS, "", "a,b", 'say "x"', "line\nline", "cr\rcr", "\u2028", "שלום", "👩\u200d👧 🙂", "a\0b", "漢字",
         "\x1b[31m", "<script>alert(1)</script>", "null", "1", "-inf", "true"]  # fmt: skip
text = st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
triggers = tuple("=+-@＝＋－＠")


def read_csv(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))


@given(st.lists(st.tuples(text, text), min_size=1, max_size=8))
def test_csv_gives_every_text_back_and_none_is_a_formula(rows: list[tuple[str, str]]) -> None:
    table = pl.DataFrame(rows, schema=["one", "two"], orient="row")
    header, *found = read_csv(as_csv(table, header=True))
    assert header == ["one", "two"]
    assert [tuple(cell.removeprefix("'") for cell in row) for row in found] == rows
    for cell in (cell for row in found for cell in row):
        seen = "".join(c for c in cell if not c.isspace() and unicodedata.category(c) not in ("Cc", "Cf"))
        assert not seen.startswith(triggers)


@given(st.lists(st.tuples(text, text), min_size=1, max_size=8))
def test_json_lines_give_every_text_back(rows: list[tuple[str, str]]) -> None:
    content = as_jsonl(pl.DataFrame(rows, schema=["one", "two"], orient="row"))
    assert [tuple(json.loads(line).values()) for line in content.decode().split("\n")[:-1]] == rows


def test_csv_of_numbers_lists_and_nothing() -> None:
    table = pl.DataFrame(
        {
            "number": [-math.inf, 1e-300, None],
            "flag": [True, False, None],
            "list": pl.Series([[-0.5, -math.inf], [], None], dtype=pl.List(pl.Float32)),
            "text": ["", "=", None],
        }
    )
    _, *rows = read_csv(as_csv(table, header=True))
    assert rows == [["-inf", "true", "[-0.5,null]", ""], ["1e-300", "false", "[]", "'="], ["", "", "", ""]]
    assert as_csv(table, header=True).startswith(b"\xef\xbb\xbf")  # or spreadsheets take it for another encoding
    assert not as_csv(table, header=False).startswith(b"\xef\xbb\xbf")


values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), text,
    st.lists(st.integers(), max_size=2),
)  # fmt: skip
metadata = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), values, max_size=4)


def table_of(each: list[dict[str, Any]], texts: list[tuple[str, str]], **columns: Any) -> pl.DataFrame:
    """Score rows with this metadata, as they come out for other programs."""
    count = len(each)
    given_: dict[str, Any] = {
        "example_id": [str(i) for i in range(count)],
        "scheme": ["greedy"] * count,
        **dict.fromkeys(("start", "suffix_start", "suffix_end", "repetitions"), [None] * count),
        "log_prob": [-1.0] * count,
        "bounded": [False] * count,
        "greedy": [False] * count,
        "split": [None] * count,
        "metadata": [json.dumps(one) for one in each],
        "token_evals": [1] * count,
        **dict.fromkeys(("token_log_probs", "base_log_probs", "ranks", "margins", "token_ends"), [[]] * count),
        **columns,
    }
    scores = pl.DataFrame(given_)
    made = manifest(scores, kind="score", characters=0, schemes=["greedy"])
    kinds = metadata_kinds(scores["metadata"])
    return score_rows(
        scores, manifest=made, passages=Passages(None, dict(zip(given_["example_id"], texts, strict=True))), kinds=kinds
    )


@given(st.lists(st.tuples(metadata, text, text), min_size=1, max_size=5))
def test_flattened_metadata_says_what_the_metadata_said(rows: list[tuple[dict[str, Any], str, str]]) -> None:
    each = [one for one, _, _ in rows]
    table = table_of(each, [(prefix, suffix) for _, prefix, suffix in rows])
    kinds = metadata_kinds(map(json.dumps, each))
    assert kinds is not None
    for one, row in zip(each, table.to_dicts(), strict=True):
        assert {f"metadata.{key}" for key in one if key not in ("repetitions", "split")} <= set(row)
        for key, kind in kinds.items():
            found = row[f"metadata.{key}"]
            if kind == "json" and found is not None:
                found = json.loads(found)
            assert found == one.get(key)
            assert isinstance(found, bool) == isinstance(one.get(key), bool)
    assert list(zip(table["prefix"], table["suffix"], strict=True)) == [(p, s) for _, p, s in rows]


def test_metadata_kinds() -> None:
    each = [{"a": 1, "b": 1, "c": "x", "d": True, "e": None, "f": 1, "split": "s", "repetitions": 3}]
    each += [{"b": 1.5, "f": "1", "g": [1], "h": 2**60}]
    assert metadata_kinds(map(json.dumps, each)) == {
        "a": "integer", "b": "number", "c": "text", "d": "boolean", "e": "json", "f": "json", "g": "json", "h": "json",
    }  # fmt: skip


def test_metadata_of_too_many_keys_stays_whole() -> None:
    each = [{f"key{i}": i} for i in range(MOST_KEYS + 1)]
    assert metadata_kinds(map(json.dumps, each)) is None
    table = table_of(each, [("", "")] * len(each))
    assert [json.loads(one) for one in table["metadata"]] == each
    assert metadata_kinds(map(json.dumps, each[:MOST_KEYS])) is not None


def test_what_is_only_an_upper_bound_is_not_called_p_z() -> None:
    log_probs = [-1.0, -9.0, -math.inf, -math.inf, -1000.0]
    table = table_of([{}] * 5, [("", "")] * 5, log_prob=log_probs, bounded=[False, True, True, False, False])
    assert table["p_z"].to_list() == [math.exp(-1), None, 0, 0, 0]
    assert table["log_prob"].to_list() == [-1, None, -math.inf, -math.inf, -1000]
    assert table["log_prob_upper"].to_list() == log_probs
    assert table["p_z_upper"].to_list() == [math.exp(-1), math.exp(-9), 0, 0, 0]


@pytest.mark.parametrize("lone", ["\ud800", "a\udfffb"])
def test_half_a_surrogate_pair_is_replaced(lone: str) -> None:
    table = table_of([{"key": lone}], [(lone, "x")])
    assert table["prefix"][0] == re.sub("[\ud800-\udfff]", "\ufffd", lone) == table["metadata.key"][0]
