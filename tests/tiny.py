"""Tiny random models of many architectures, saved as real model folders beside the bundled tokenizer: no network."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from rote.models.base import BUNDLED

VOCABULARY = 4096  # the bundled tokenizer's
SIZE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
GROUPED = {"num_key_value_heads": 1, "head_dim": 16}
# Weights ten times as large as usual: the logits spread over several units, so that a wrong scale or cap shows.
COMMON = {"vocab_size": VOCABULARY, "max_position_embeddings": 128, "initializer_range": 0.2, "pad_token_id": None}

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2},
    "gpt_neox": SIZE,
    "llama": SIZE | GROUPED,
    "gemma2": SIZE | GROUPED | {"final_logit_softcapping": 3.0, "sliding_window": 8},
    "cohere": SIZE | {"logit_scale": 0.25},
    "granite": SIZE | {"logits_scaling": 4.0},
    "mistral": SIZE | GROUPED | {"sliding_window": 8},
}

GGUF_NAMES = {
    "model.layers.": "blk.",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def build(architecture: str = "llama", *, seed: int = 0, **changes: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    options = COMMON | {"bos_token_id": 0, "eos_token_id": 1} | ARCHITECTURES[architecture] | changes
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **options)).eval()


def save(folder: Path, architecture: str = "llama", *, seed: int = 0, **changes: Any) -> Path:
    """A model folder as anyone would have it: config, weights and tokenizer."""
    build(architecture, seed=seed, **changes).save_pretrained(folder)
    for path in BUNDLED.glob("tokenizer*"):
        shutil.copy(path, folder)
    return folder


def copy_bundled(folder: Path) -> Path:
    shutil.copytree(BUNDLED, folder)
    return folder


def without_bos(folder: Path) -> Path:
    """The same model folder, its tokenizer without a BOS token."""
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["bos_token"]
    path.write_text(json.dumps(settings))
    return folder


def write_gguf(path: Path, model: Any, tokenizer: Any) -> Path:
    """A tiny Llama as llama.cpp stores it: unquantised, the rows of its queries and keys in that format's order."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(config.vocab_size)
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    tokens = sorted(settings["model"]["vocab"], key=settings["model"]["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if i < 2 else gguf.TokenType.NORMAL for i in range(len(tokens))])
    writer.add_token_merges([" ".join(pair) for pair in settings["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_add_bos_token(True)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    for name, tensor in model.state_dict().items():
        data = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:
            heads = len(data) // config.head_dim
            data = data.reshape(heads, 2, config.head_dim // 2, -1).swapaxes(1, 2).reshape(data.shape).copy()
        for ours, theirs in GGUF_NAMES.items():
            name = name.replace(ours, theirs)
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
