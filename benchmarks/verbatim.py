"""Verbatim scoring against its peers, in one process on one machine.

    python -m benchmarks.verbatim                        the bundled model on the CPU
    python -m benchmarks.verbatim --model PATH           a real model on the CPU (folder or .gguf)
    python -m benchmarks.verbatim --gpu                  Pythia-1B and 2.8B shapes, random weights, on a CUDA GPU
    python -m benchmarks.verbatim --gpu --shapes "half of Llama-3-70B" --dtypes bfloat16 --examples 1000 --slow 64

(a) published: whole-vocabulary logits of every position to the host, then a Python loop over the suffix tokens.
(b) plain: batches of a transformers model, logits of the suffix positions only, top-k and log-softmax on the device.
(c) rote: `rote.verbatim`. All three score the same examples, top-k 40, and must agree.

Where a method is too slow for all examples it scores the first ones, and the table says how many; seconds are then
scaled up. Compilation and first-batch warm-up are timed apart ("warm-up").
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import rote
from rote.models.huggingface import HuggingFaceModel
from rote.tokens import Example

PREFIX, SUFFIX, TOP_K = 50, 50, 40


def _llama(hidden: int, layers: int, heads: tuple[int, int], inner: int, vocabulary: int) -> dict[str, Any]:
    """`heads`: of attention, and those of their keys and values."""
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": inner, "vocab_size": vocabulary}
    return {"model_type": "llama", **sizes, "num_attention_heads": heads[0], "num_key_value_heads": heads[1]}


_NEOX = {"model_type": "gpt_neox", "vocab_size": 50304, "rotary_pct": 0.25, "use_parallel_residual": True}
SHAPES: dict[str, dict[str, Any]] = {
    "Pythia-1B": _NEOX
    | {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 8, "intermediate_size": 8192},
    "Pythia-2.8B": _NEOX
    | {"hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 10240},
    "Llama-3-8B": _llama(4096, 32, (32, 8), 14336, 128256),
    "Llama-2-13B": _llama(5120, 40, (40, 40), 13824, 32000),
    "CodeLlama-34B": _llama(8192, 48, (64, 8), 22016, 32000),
    "half of Llama-3-70B": _llama(8192, 40, (64, 8), 28672, 128256),  # 40 of its 80 layers: all would not fit one GPU
}


@dataclass(frozen=True)
class Row:
    configuration: str
    method: str
    scored: int
    seconds: float  # for all examples
    warm_up: float
    evals_per_example: int
    largest_difference: float


@torch.inference_mode()
def published(model: Any, rows: torch.Tensor, batch: int) -> Iterator[float]:
    """(a): one forward pass a batch, logits of all positions and the whole vocabulary to the host, a loop per token."""
    for start in range(0, len(rows), batch):
        tokens = rows[start : start + batch]
        logits = model(tokens.to(model.device)).logits.detach().cpu()
        border = logits.topk(TOP_K, dim=-1).values[..., -1:]
        log_probs = F.log_softmax(logits.masked_fill(logits < border, -torch.inf), dim=-1)
        for row, own in zip(tokens, log_probs, strict=True):
            total = 0.0
            for position in range(len(row) - SUFFIX - 1, len(row) - 1):
                token = own[position, row[position + 1]].item()
                if not math.isfinite(token):
                    total = -math.inf
                    break
                total += token
            yield total


@torch.inference_mode()
def plain(model: Any, rows: torch.Tensor, batch: int) -> Iterator[float]:
    """(b): what a careful user writes with transformers alone."""
    for start in range(0, len(rows), batch):
        tokens = rows[start : start + batch].to(model.device)
        logits = model(tokens, logits_to_keep=SUFFIX + 1, use_cache=False).logits[:, :-1].float()
        border = logits.topk(TOP_K, dim=-1).values[..., -1:]
        log_probs = F.log_softmax(logits.masked_fill(logits < border, -torch.inf), dim=-1)
        yield from log_probs.gather(2, tokens[:, -SUFFIX:, None]).sum((1, 2)).tolist()


def ours(model: HuggingFaceModel, examples: Sequence[Example]) -> Iterator[float]:
    """(c)"""
    yield from (result.log_prob for result in rote.verbatim(model, examples))


def as_examples(rows: torch.Tensor, bos: int | None) -> list[Example]:
    ids = rows[:, int(bos is not None) :].tolist()
    return [Example(str(i), tuple(r[:-SUFFIX]), tuple(r[-SUFFIX:])) for i, r in enumerate(ids)]


def timed(score: Callable[[Any], Iterator[float]], rows: Any, warm: int, repeats: int) -> tuple[float, float]:
    """(best seconds, seconds of the warm-up on the first `warm` rows)."""
    began = time.perf_counter()
    list(score(rows[:warm]))
    warm_up = time.perf_counter() - began
    best = math.inf
    for _ in range(repeats):
        began = time.perf_counter()
        list(score(rows))
        best = min(best, time.perf_counter() - began)
    return best, warm_up


def compare(
    label: str, model: Any, bos: int | None, rows: torch.Tensor, checked: torch.Tensor, *,
    batch: int, slow: int, variants: dict[str, bool],
) -> list[Row]:  # fmt: skip
    """Time the peers on the model as it is, then rote on the same model (which may compile its layers in place).

    `checked` are rows with finite probabilities, on which all methods are compared with (b).
    """
    fed = rows.shape[1] - (bos is not None)
    truth = list(plain(model, checked, batch))
    examples = as_examples(rows, bos)
    results = []
    for name, peer, count in (("(a) published", published, slow), ("(b) plain", plain, len(rows))):
        score = partial(peer, model, batch=batch)
        seconds, warm_up = timed(score, rows[:count], batch, 1 if count < len(rows) else 2)
        gap = difference(list(score(checked)), truth)
        results.append(Row(label, name, count, seconds * len(rows) / count, warm_up, fed, gap))
    for name, compiled in variants.items():
        wrapped = HuggingFaceModel(model, compile=compiled)
        wrapped.bos_id = bos
        seconds, warm_up = timed(partial(ours, wrapped), examples, 3 * wrapped.batch_tokens // fed, 3)
        gap = difference(list(ours(wrapped, as_examples(checked, bos))), truth)
        results.append(Row(label, name, len(rows), seconds, warm_up, fed - 1, gap))
    return results


def difference(found: list[float], reference: list[float]) -> float:
    """Largest difference of log p_z where both are finite (a token at the border of the top-k may be in one only)."""
    a, b = np.array(found), np.array(reference)
    both = np.isfinite(a) & np.isfinite(b)
    return float(np.abs(a[both] - b[both]).max()) if both.any() else math.nan


def windows_of_alice(model: Any, count: int) -> torch.Tensor:
    """The first windows of the bundled text, spread over it, BOS included where the model has one."""
    from rote.models.base import BUNDLED_TEXT

    text = BUNDLED_TEXT.read_text(encoding="utf-8")
    examples = rote.windows(
        text, model.tokenizer, rote.Windows(prefix=PREFIX, suffix=SUFFIX, stride=len(text) // (count + 2))
    )[:count]
    bos = [] if model.bos_id is None else [model.bos_id]
    return torch.tensor([[*bos, *e.prefix, *e.suffix] for e in examples])


def on_cpu(name: str, count: int, batch: int) -> list[Row]:
    wrapped = rote.load(name, rote.ModelOptions(device="cpu"))
    assert isinstance(wrapped, HuggingFaceModel)
    rows = windows_of_alice(wrapped, count)
    label = f"{Path(name).name}, CPU float32"
    return compare(
        label, wrapped._model, wrapped.bos_id, rows, rows[:64], batch=batch, slow=count, variants={"(c) rote": False}
    )


def on_gpu(shape: str, dtype: torch.dtype, count: int, slow: int) -> list[Row]:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**SHAPES[shape])
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config).eval()
    torch.set_default_dtype(torch.float32)
    rows = torch.randint(0, config.vocab_size, (count, PREFIX + SUFFIX), generator=torch.Generator().manual_seed(1))
    # Random suffixes have probability 0; to compare numbers, let the model write some itself.
    checked = model.generate(
        rows[:128, :PREFIX].cuda(),
        do_sample=True,
        top_k=10,
        min_new_tokens=SUFFIX,
        max_new_tokens=SUFFIX,
        pad_token_id=0,
    ).cpu()
    size = sum(weight.numel() for weight in model.parameters())
    label = f"{shape} shape ({size:.3g} parameters), {torch.cuda.get_device_name()} {str(dtype).removeprefix('torch.')}"
    variants = {"(c) rote, not compiled": False, "(c) rote": True}
    return compare(label, model, None, rows, checked, batch=256, slow=slow, variants=variants)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bundled", help="model to score with on the CPU")
    parser.add_argument(
        "--examples", type=int, default=None, help="how many (default: 512 on the CPU, 10,000 on the GPU)"
    )
    parser.add_argument("--batch", type=int, default=32, help="batch size of the peers on the CPU")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--shapes", nargs="*", default=["Pythia-1B", "Pythia-2.8B"], choices=list(SHAPES))
    parser.add_argument("--dtypes", nargs="*", default=["bfloat16", "float32"])
    parser.add_argument("--float32-examples", type=int, default=2000, help="examples in float32 on the GPU")
    parser.add_argument("--slow", type=int, default=512, help="examples for method (a) on the GPU")
    options = parser.parse_args()

    print(f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} CPU cores")
    rows: list[Row] = []
    if options.gpu:
        for shape in options.shapes:
            for dtype in options.dtypes:
                count = options.examples or 10_000
                if dtype == "float32":
                    count = min(count, options.float32_examples)
                rows += on_gpu(shape, getattr(torch, dtype), count, min(options.slow, count))
                torch.cuda.empty_cache()
                show(rows)
    else:
        rows += on_cpu(options.model, options.examples or 512, options.batch)
        show(rows)


def show(rows: list[Row]) -> None:
    head = (
        "configuration | method | examples | seconds | a second | times (c) | evals each | warm-up s | largest Δ log p"
    )
    print(f"\n| {head} |\n|{'---|' * 9}")
    fastest = {row.configuration: row.seconds for row in rows}  # the last method of each configuration is rote
    examples = {row.configuration: row.scored for row in rows}
    for row in rows:
        per_second = examples[row.configuration] / row.seconds
        print(
            f"| {row.configuration} | {row.method} | {row.scored} | {row.seconds:.2f} | {per_second:,.0f} | "
            f"{row.seconds / fastest[row.configuration]:.2f} | {row.evals_per_example} | {row.warm_up:.1f} | "
            f"{row.largest_difference:.1e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
