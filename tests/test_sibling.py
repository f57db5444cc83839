"""The sibling of the bundled model knows part of its passages, and its script says what it was fed."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from training import sibling, train
from transformers import LlamaConfig, LlamaForCausalLM

import rote
from tests.conftest import ROOT

FOLDER = ROOT / "training/sibling"


@pytest.fixture(scope="module")
def passages() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / "passages.jsonl").read_text().splitlines()]


def test_its_records_fit_together(passages: list[dict[str, Any]]) -> None:
    manifest = json.loads((FOLDER / "manifest.json").read_text())
    counts = Counter(str(passage["repetitions"]) for passage in passages)
    assert manifest["passages"] == len(passages) == 3000
    assert manifest["passages_by_repetitions"] == counts
    assert manifest["readings_of_passages"] == sum(passage["repetitions"] for passage in passages)
    assert set(counts) == {str(n) for n in range(5, 41)}
    assert len({(passage["document"], passage["token"]) for passage in passages}) == 3000
    assert all(passage["token"] % manifest["piece_tokens"] == 0 for passage in passages), "they are disjoint"
    assert 0.3 < manifest["found_after_training"]["prefix 50"]["greedy recall"] < 0.7


def test_it_has_the_tokenizer_of_the_bundled_model_and_knows_part_of_its_passages(
    bundled: Any, alice: str, passages: list[dict[str, Any]]
) -> None:
    model = rote.load(str(FOLDER))
    assert model.identity().tokenizer == bundled.identity().tokenizer
    ids = model.tokenizer(alice, add_special_tokens=False, verbose=False)["input_ids"]
    ends = [p["token"] + sibling.PIECE_TOKENS for p in passages if p["document"] == "alice"][::4]
    recall = {}
    for prefix in (50, 115):
        examples = [
            rote.Example(f"{prefix}-{end}", ids[end - 50 - prefix : end - 50], ids[end - 50 : end]) for end in ends
        ]
        results = rote.verbatim(model, examples, rote.Scheme(temperature=0), tau=1.0)
        recall[prefix] = sum(bool(result.greedy) for result in results) / len(results)
    assert 0.2 < recall[50] < 0.6 < recall[115] < 0.95


def test_every_piece_is_read_as_often_as_is_said() -> None:
    pieces = [sibling.Piece("a", 165 * n, (n, n + 1, n + 2), n % 7 + 1) for n in range(2, 60)]
    rows = sibling.plan(pieces, random.Random(0))
    alone, paired = rows.values()
    assert all(row[0] == train.BOS_ID for row in (*alone, *paired))
    readings = Counter(tuple(row[1:]) for row in alone)
    readings += Counter(tuple(row[at : at + 3]) for row in paired for at in range(1, len(row), 3))
    assert readings == {piece.ids: piece.repetitions for piece in pieces}
    assert abs(len(alone) - 2 * len(paired)) <= 2


def test_rows_are_written_without_bos_and_padding(tmp_path: Path) -> None:
    rows = {4: [[train.BOS_ID, 7, 8], [5, 6, 7, 8], [train.BOS_ID, 9, train.EOS_ID]]}
    train.write_rows(tmp_path / "rows.parquet", train.batches(rows, 8, random.Random(0)))
    written = pl.read_parquet(tmp_path / "rows.parquet")
    assert sorted(written["ids"].to_list()) == [[5, 6, 7, 8], [7, 8], [9, train.EOS_ID]]
    assert written["id"].n_unique() == 3
    assert written.schema == {"id": pl.String, "ids": pl.List(pl.UInt16)}


def test_two_optimizers_share_its_parameters_and_a_step_changes_them_all() -> None:
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    chosen = sibling.optimizers(model, 0.01, "cpu")
    held = [id(p) for optimizer in chosen for group in optimizer.param_groups for p in group["params"]]
    assert sorted(held) == sorted(map(id, model.parameters()))
    data = train.batches({6: [[train.BOS_ID, 3, 4, 5, 6, 7]] * 4}, 12, random.Random(0))
    train.train(model, data, chosen, 4e-3, "cpu")
    assert all((value != before[name]).any() for name, value in model.named_parameters())
