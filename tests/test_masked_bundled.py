"""The embedded masked model loads, is small, is surprised by what is surprising, and has not read what it is for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from training import masked, train
from transformers import AutoModelForMaskedLM, AutoTokenizer, ModernBertConfig, ModernBertForMaskedLM

from rote.models.base import BUNDLED_MASKED, BUNDLED_MEMBERS
from tests.conftest import ROOT

RUN = 14  # words; a turn of phrase that an author likes has up to 12


@pytest.fixture(scope="module")
def stretches() -> list[masked.Stretch]:
    return masked.stretches()


@pytest.fixture(scope="module")
def records() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "training/masked.json").read_text())
    return found


@pytest.fixture(scope="module")
def model() -> Any:
    return AutoModelForMaskedLM.from_pretrained(BUNDLED_MASKED, dtype=torch.float32, local_files_only=True).eval()


def runs(texts: Iterable[str]) -> Iterator[str]:
    """Every fourteen consecutive words, without punctuation and capitals."""
    for text in texts:
        words = re.findall(r"\w+", text.lower())
        yield from (" ".join(words[at : at + RUN]) for at in range(len(words) - RUN + 1))


def members() -> list[dict[str, Any]]:
    return [json.loads(line) for line in BUNDLED_MEMBERS.read_text(encoding="utf-8").splitlines()]


# --- what it has read


def test_nothing_that_it_is_the_reference_for_stands_in_what_it_read(
    stretches: list[masked.Stretch], alice: str, gatsby: str
) -> None:
    read = set(runs(s.text for s in stretches if not s.held_out))
    assert len(read) > 400_000
    unread = [alice, gatsby, *(entry["text"] for entry in members())]
    assert not [run for run in runs(unread) if run in read]


def test_each_stretch_is_text_of_a_document_and_keeps_away_from_passages(stretches: list[masked.Stretch]) -> None:
    documents = train.read_documents()
    passages = masked.passages()
    assert len(passages) == 432
    assert {s.document for s in stretches} == {n for n, d in documents.items() if n not in ("alice", "gatsby")}
    for s in stretches:
        end = s.start + len(s.text)
        assert documents[s.document].text[s.start : end] == s.text
        near = [
            p for p in passages if p[0] == s.document and p[1] - masked.MARGIN < end and s.start < p[2] + masked.MARGIN
        ]
        assert not near


def test_its_records_say_what_it_read(stretches: list[masked.Stretch], records: dict[str, Any], tmp_path: Path) -> None:
    read = [s for s in stretches if not s.held_out]
    assert records["characters_read"] == sum(len(s.text) for s in read)
    assert records["stretches_read"] == len(read)
    masked.write_rows(tmp_path / "rows.jsonl", stretches)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["text"] for row in rows] == [s.text for s in read]


# --- what it is


def test_it_is_small_and_in_bfloat16(model: Any, records: dict[str, Any]) -> None:
    assert sum(path.stat().st_size for path in BUNDLED_MASKED.iterdir()) < 8_000_000
    with safe_open(BUNDLED_MASKED / "model.safetensors", framework="pt") as weights:
        assert {weights.get_tensor(name).dtype for name in weights.keys()} == {torch.bfloat16}  # noqa: SIM118
    assert sum(p.numel() for p in model.parameters()) == records["parameters"]
    assert not any(path.suffix in (".py", ".bin", ".pkl") for path in BUNDLED_MASKED.iterdir())


def test_its_tokenizer_says_where_words_stand_and_knows_those_of_alice(alice: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_MASKED, local_files_only=True)
    text = "Mr. Bingley’s hall — “no”, he said;\nVictor’s daydreams."
    found = tokenizer(text, return_offsets_mapping=True)
    assert (found["input_ids"][0], found["input_ids"][-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    pieces = [text[start:end] for start, end in found["offset_mapping"][1:-1]]
    assert "".join(pieces) == re.sub(r"\s", "", text)
    assert tokenizer.unk_token_id not in found["input_ids"]
    assert tokenizer.unk_token_id not in tokenizer(alice, verbose=False)["input_ids"]


def test_words_that_fit_are_likelier_than_others(model: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_MASKED, local_files_only=True)
    text = "I have the honour to be your obedient servant, and I shall do all in my [MASK] to be of use to you."
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    place = int((ids[0] == tokenizer.mask_token_id).nonzero())
    with torch.inference_mode():
        logits = model(input_ids=ids).logits[0, place]
    assert tokenizer.convert_tokens_to_ids("power") in logits.topk(5).indices
    likelier = (logits > logits[tokenizer.convert_tokens_to_ids("windows")]).sum()
    assert likelier > 100


def test_held_out_text_is_hardly_worse_than_what_it_read(records: dict[str, Any]) -> None:
    assert records["held_out_loss"] < 3.6
    assert records["held_out_loss"] - records["loss_on_what_was_read"] < 1
    assert records["held_out_accuracy"] > 0.35


# --- how it is trained


def test_whole_words_are_masked_and_the_labels_are_theirs(stretches: list[masked.Stretch]) -> None:
    torch.manual_seed(3)
    tokenizer = Tokenizer.from_file(str(BUNDLED_MASKED / "tokenizer.json"))
    stream = masked.Stream.of(stretches[:2], tokenizer, "cpu")
    starts = torch.tensor([0, 100])
    inputs, labels = stream.rows(starts, 128, torch.tensor([0.3, 0.3]))
    for start, row, label in zip(starts.tolist(), inputs, labels, strict=True):
        assert (row[0], row[-1]) == (masked.CLS, masked.SEP)
        tokens, words = stream.tokens[start : start + 126], stream.words[start : start + 126]
        hidden = label[1:-1] != -100
        assert 10 < hidden.sum() < 80
        assert torch.equal(row[1:-1], tokens.masked_fill(hidden, masked.MASK))
        assert torch.equal(label[1:-1][hidden], tokens[hidden])
        for word in set(words.tolist()):
            assert len(set(hidden[words == word].tolist())) == 1, "a word is masked whole or not at all"
        assert not hidden[words == 0].any()


def test_a_few_steps_make_it_better(stretches: list[masked.Stretch]) -> None:
    torch.manual_seed(0)
    some = [s for s in stretches if s.document == "frankenstein"][:12]
    wrapped = masked.make_tokenizer([s.text for s in some], 600)
    stream = masked.Stream.of(some, Tokenizer.from_str(wrapped.backend_tokenizer.to_str()), "cpu")
    config = ModernBertConfig(
        vocab_size=len(wrapped), hidden_size=32, num_hidden_layers=1, num_attention_heads=1, intermediate_size=48,
        max_position_embeddings=masked.WINDOW, layer_types=["full_attention"], pad_token_id=0, cls_token_id=2,
        sep_token_id=3, bos_token_id=None, eos_token_id=None,
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 10_000.0}},
    )  # fmt: skip
    model = ModernBertForMaskedLM(config)
    before = masked.loss_on(model, stream)[0]
    course = masked.train(model, stream, stream, 12, 512, 0.01, 0.0)
    assert masked.loss_on(model, stream)[0] == pytest.approx(min(entry["held_out_loss"] for entry in course), abs=1e-4)
    assert course[-1]["held_out_loss"] < before - 0.2
