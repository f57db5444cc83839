"""What it costs to keep half of a model's layers elsewhere: the same windows scored, with fewer and with more of them.

    python -m benchmarks.placement                      the bundled model, with half of its layers on the disk
    python -m benchmarks.placement --model FOLDER       another one; with a CUDA GPU in the processor's memory too

The model is loaded again for each placement. "times": seconds over those with everything in one place, not compiled, as
layers that lie elsewhere cannot be; "numbers": whether they are the same as there, to the last bit. On a GPU, what a
model in one place would be, compiled, is shown as well. What is elsewhere is fetched once a batch, so many windows in
few batches pay less of it.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

import rote
from rote.models.base import BUNDLED_TEXT
from rote.models.huggingface import HuggingFaceModel

IN_ONE_PLACE, COMPILED = "in one place", "in one place, compiled"


def device_maps(name: str) -> dict[str, dict[str, Any] | None]:
    """By what is said of them; the layers are those of the model as it is loaded plainly."""
    plain = rote.load(name)
    assert isinstance(plain, HuggingFaceModel)
    model = plain._model
    stack = next(part for part, module in model.named_modules() if isinstance(module, torch.nn.ModuleList))
    layers = [f"{stack}.{number}" for number in range(len(model.get_submodule(stack)))]
    base = stack.rpartition(".")[0]
    inside = [f"{base}.{part}" for part, _ in model.get_submodule(base).named_children()]
    beside = [part for part, _ in model.named_children()]
    home: Any = 0 if torch.cuda.is_available() else "cpu"
    whole = dict.fromkeys([part for part in (*inside, *beside) if part not in (base, stack)], home)
    elsewhere = {"in memory": "cpu"} if home == 0 else {}
    elsewhere |= {"on the disk": "disk"}
    maps: dict[str, dict[str, Any] | None] = {IN_ONE_PLACE: None}
    maps |= {COMPILED: None} if home == 0 else {}
    for where, place in elsewhere.items():
        half = {part: home if at < len(layers) // 2 else place for at, part in enumerate(layers)}
        maps[f"half of the layers {where}"] = {**whole, **half}
    return maps


def seconds(model: Any, examples: list[rote.Example], times: int) -> tuple[float, list[float]]:
    """(best of several tries, log p_z), after a batch that is not counted."""
    list(rote.verbatim(model, examples[:16]))
    taken, found = [], list[float]()
    for _ in range(times):
        began = time.perf_counter()
        found = [result.log_prob for result in rote.verbatim(model, examples, [rote.Scheme(top_k=None)])]
        taken.append(time.perf_counter() - began)
    return min(taken), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--windows", nargs="*", type=int, default=[16, 512])
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    text = BUNDLED_TEXT.read_text(encoding="utf-8")
    print("| placement | windows | seconds | times | numbers |\n|---|---|---|---|---|")
    first: dict[int, tuple[float, list[float]]] = {}
    for said, placed in device_maps(options.model).items():
        dtype: Any = "bfloat16" if torch.cuda.is_available() else "float32"
        compiled = said == COMPILED
        model = rote.load(options.model, rote.ModelOptions(dtype=dtype, device_map=placed, compile=compiled))
        cut = rote.windows(text, model.tokenizer, rote.Windows(stride=len(text) // (max(options.windows) + 10)))
        for count in options.windows:
            took, found = seconds(model, cut[:count], options.times)
            fastest, truth = first.setdefault(count, (took, found))
            apart = max(abs(own - other) for own, other in zip(found, truth, strict=True))
            numbers = "the same" if found == truth else f"log p differs by up to {apart:.2g}"
            print(f"| {said} | {count:,} | {took:.2f} | {took / fastest:.2f} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
