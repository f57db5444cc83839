"""How far correct computations of the same windows differ per token, and how far those of another model do.

    python -m benchmarks.agreement --model bundled

Windows of the bundled text and of one the bundled model never saw are scored in every dtype, on every device that is
there, one at a time and in batches, with other threads, on a GPU with compiled layers, too, and by siblings: the model
after one step of training (AdamW, at the learning rate that is printed) and after ten. For each pair: the mean absolute
difference of a token's own log-prob (temperature 1, nothing left out), the largest mean of any one window, and the
largest difference of a window's sum, divided by the square root of its tokens. `rote verify` judges by these.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import rote
from rote import Example, ModelOptions, Scheme, Windows, verbatim
from rote.corpus.windows import windows
from rote.models.base import BUNDLED_TEXT

UNSEEN_TEXT = Path(__file__).parent.parent / "training" / "data" / "books" / "gatsby.txt"
Floats = NDArray[np.float64]


def spread(text: str, tokenizer: object, count: int) -> list[Example]:
    stride = max(1, len(text) // (count + 20))
    return windows(text, tokenizer, Windows(stride=stride))[:count]


def scored(name: str, examples: list[Example], options: ModelOptions, batch: int) -> Floats:
    """[windows, tokens] base log-probs."""
    model = rote.load(name, options)
    return np.array([row.base_log_probs for row in verbatim(model, examples, Scheme(), batch_size=batch)], np.float64)


def siblings(name: str, examples: list[Example], rate: float) -> dict[str, Floats]:
    """The model after one and after ten steps of training on other windows than those that are scored."""
    from transformers import AutoModelForCausalLM

    from rote.models.huggingface import HuggingFaceModel
    from rote.models.sources import find

    loaded = rote.load(name, ModelOptions(device="cpu", dtype="float32"))
    place = find(name)
    model = AutoModelForCausalLM.from_pretrained(place.source, dtype=torch.float32, **place.given)
    text = UNSEEN_TEXT.read_text(encoding="utf-8")
    other = [e.prefix + e.suffix for e in spread(text[len(text) // 2 :], loaded.tokenizer, 80)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    found = {}
    for step in range(1, 11):
        batch = torch.tensor(other[8 * (step % 10) :][:8])
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step in (1, 10):
            sibling = HuggingFaceModel(model, loaded.tokenizer, name=f"{name}+{step}")
            rows = verbatim(sibling, examples, Scheme(), batch_size=16)
            found[f"{step} step{'s' if step > 1 else ''} at {rate:g}"] = np.array(
                [row.base_log_probs for row in rows], np.float64
            )
            model.train().requires_grad_(True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--windows", type=int, default=60, help="of each text")
    parser.add_argument("--dtypes", default="float32,bfloat16,float16")
    parser.add_argument("--no-siblings", action="store_true")
    asked = parser.parse_args()
    tokenizer = rote.load(asked.model, ModelOptions(device="cpu")).tokenizer
    texts = [path.read_text(encoding="utf-8") for path in (BUNDLED_TEXT, UNSEEN_TEXT)]
    examples = [e for text in texts for e in spread(text, tokenizer, asked.windows)]
    examples = [Example(f"{number}", e.prefix, e.suffix) for number, e in enumerate(examples)]
    ways: dict[str, Floats] = {}
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        for dtype in asked.dtypes.split(","):
            for batch, other in ((1, False), (32, False), (32, True)):
                compiled, threads = other and device == "cuda", 3 if other and device == "cpu" else None
                options = ModelOptions(device=device, dtype=dtype, compile=compiled, threads=threads)
                how = "compiled" if compiled else "3 threads" if threads else f"batch {batch}"
                name = f"{dtype} {device} {how}"
                before = torch.get_num_threads()
                ways[name] = scored(asked.model, examples, options, batch)
                torch.set_num_threads(before)
                print("scored", name, flush=True)
    print(f"\n{asked.model}: {len(examples)} windows of {ways[name].shape[1]} tokens")
    print(f"{'pair':<60}{'mean |d| per token':>20}{'largest row mean':>20}{'|sum| / sqrt(n)':>18}")
    for one, two in itertools.combinations(ways, 2):
        _print(f"{one} / {two}", ways[one], ways[two])
    if not asked.no_siblings:
        for rate in (1e-6, 1e-5, 1e-4):
            for name, own in siblings(asked.model, examples, rate).items():
                _print(f"sibling: {name}", ways["float32 cpu batch 32"], own)


def _print(name: str, one: Floats, two: Floats) -> None:
    difference = two - one
    means, sums = np.abs(difference).mean(1), np.abs(difference.sum(1)) / np.sqrt(difference.shape[1])
    print(f"{name:<60}{np.abs(difference).mean():>20.3g}{means.max():>20.3g}{sums.max():>18.3g}", flush=True)


if __name__ == "__main__":
    main()
