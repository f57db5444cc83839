"""What writing a book on costs: sliding and anchored contexts, greedy and beam search, and transformers' `generate`.

    python -m benchmarks.reconstruct --tokens 1000 --device cpu

Each writes the bundled text on from its first 200 tokens. Printed: seconds, new tokens a second, token evaluations per
new token (`generate` copies a prompt for every beam and feeds it so often), and the first token that is not the book's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import torch

import rote
from rote.extraction.text.reconstruct import longest_context, write_on
from rote.extraction.text.writing import Context, Plan
from rote.models.base import BUNDLED_TEXT

SEED = 200
STEP = 50


def ours(model: Any, ids: Sequence[int], tokens: int, beams: int, context: Context) -> tuple[list[int], int]:
    writing = Plan(
        tokens=tokens,
        context_tokens=longest_context(model),
        step=STEP,
        beams=beams,
        context=context,
        section_break=None,
    )
    text, evals = list(ids[:SEED]), 0
    for chunk in write_on(model, text[:], writing, lambda words: []):
        text += chunk.tokens
        evals += chunk.token_evals
    return text, evals


def theirs(model: Any, ids: Sequence[int], tokens: int, beams: int) -> tuple[list[int], int]:
    """The same with transformers, which reads the context anew for every chunk, once for every beam."""
    text, evals = list(ids[:SEED]), 0
    options: dict[str, Any] = {"length_penalty": 1.2, "early_stopping": False} if beams > 1 else {}
    while len(text) < tokens:
        context = text[-(longest_context(model) - STEP) :]
        prompt = torch.tensor([[*([] if model.bos_id is None else [model.bos_id]), *context]], device=model.device)
        output = model._model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=min(STEP, tokens - len(text)),
            num_beams=beams, do_sample=False, pad_token_id=0, **options,
        )[0, prompt.shape[1] :].tolist()  # fmt: skip
        evals += beams * (len(context) + len(output) - 1)
        text += [token for token in output if token not in model.eos_ids]
        if output[-1] in model.eos_ids:
            break
    return text, evals


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="bundled", help="model folder, hub id, .gguf file, or 'bundled'")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps")
    parser.add_argument("--tokens", type=int, default=1000, help="of the text (default: %(default)s)")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 8], help="(default: %(default)s)")
    arguments = parser.parse_args()
    model: Any = rote.load(arguments.model, rote.ModelOptions(device=arguments.device, compile=False))
    ids = model.tokenizer.backend_tokenizer.encode(BUNDLED_TEXT.read_bytes().decode(), add_special_tokens=False).ids
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {model.identity().device}")
    print("| beams | method | seconds | tokens a second | evaluations a token | first difference |")
    print("|---|---|---|---|---|---|")
    for beams in arguments.beams:
        for name in ("transformers", "rote, sliding", "rote, anchored"):
            began = time.perf_counter()
            if name == "transformers":
                text, evals = theirs(model, ids, arguments.tokens, beams)
            else:
                context: Context = "anchored" if name.endswith("anchored") else "sliding"
                text, evals = ours(model, ids, arguments.tokens, beams, context)
            seconds, new = time.perf_counter() - began, len(text) - SEED
            at = next((i for i, (a, b) in enumerate(zip(text, ids, strict=False)) if a != b), None)
            print(
                f"| {beams} | {name} | {seconds:.1f} | {new / seconds:.0f} | {evals / new:.1f} | {at or 'none'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
