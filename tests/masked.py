"""Tiny random masked models with tokenizers of several kinds, saved as real model folders: no network."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from rote.models.base import BUNDLED_TEXT

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SIZE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
# Weights ten times as large as usual: the logits spread over several units.
COMMON = {"initializer_range": 0.2, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "bert": SIZE,
    "roberta": SIZE,
    "xlm-roberta": SIZE,
    "electra": SIZE | {"embedding_size": 24},
    "albert": SIZE | {"embedding_size": 24},
    "distilbert": {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 2},
    "mpnet": SIZE,
    "deberta-v2": SIZE | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "modernbert": SIZE | {"cls_token_id": 0, "sep_token_id": 2, "local_attention": 16},
}

COUNTED_FROM_PADDING = {"roberta", "xlm-roberta", "mpnet"}
"""Positions begin behind the padding token's id."""


def _texts() -> Iterator[str]:
    yield from BUNDLED_TEXT.read_text(encoding="utf-8")[:20_000].splitlines()


@cache
def trained(kind: str, vocabulary: int = 400) -> str:
    """A tokenizer of a kind, as tokenizers writes it: wordpiece, bytes or unigram."""
    if kind == "wordpiece":
        made = Tokenizer(models.WordPiece(unk_token="<unk>"))
        made.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=SPECIAL, show_progress=False)
    elif kind == "bytes":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=SPECIAL, show_progress=False, initial_alphabet=alphabet
        )
    elif kind == "glued":  # words and what follows them are cut at spaces alone: a token may hold both
        made = Tokenizer(models.BPE(unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s"), "isolated")
        trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=SPECIAL, show_progress=False)
    else:
        made = Tokenizer(models.Unigram())
        made.normalizer = normalizers.NFKC()
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        made.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=vocabulary, special_tokens=SPECIAL, show_progress=False, unk_token="<unk>"
        )
    made.train_from_iterator(_texts(), trainer)
    pair = [("<s>", made.token_to_id("<s>")), ("</s>", made.token_to_id("</s>"))]
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=pair)
    return str(made.to_str())


def tokenizer(kind: str, *, mask: bool = True) -> Any:
    from transformers import PreTrainedTokenizerFast

    names = {"bos_token": "<s>", "cls_token": "<s>", "sep_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>"}
    if mask:
        names["mask_token"] = "<mask>"
    backend = Tokenizer.from_str(trained(kind))
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", **names)


def build(architecture: str, kind: str, *, room: int = 40, seed: int = 0) -> tuple[Any, Any]:
    """A masked model that reads `room` tokens at once, and its tokenizer."""
    from transformers import AutoConfig, AutoModelForMaskedLM

    own = tokenizer(kind)
    torch.manual_seed(seed)
    positions = room + 2 if architecture in COUNTED_FROM_PADDING else room
    options = COMMON | {"vocab_size": len(own), "max_position_embeddings": positions} | ARCHITECTURES[architecture]
    return AutoModelForMaskedLM.from_config(AutoConfig.for_model(architecture, **options)).eval(), own


def save(folder: Path, architecture: str = "bert", kind: str = "wordpiece", **more: Any) -> Path:
    model, own = build(architecture, kind, **more)
    model.save_pretrained(folder)
    own.save_pretrained(folder)
    return folder
