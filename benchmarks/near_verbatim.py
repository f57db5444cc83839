"""Near-verbatim search: how much mass each method certifies, against what it costs.

    python -m benchmarks.near_verbatim                        the frontier on the bundled model's repetition ladder
    python -m benchmarks.near_verbatim --monte-carlo 20000    draw the truth anew and write near_verbatim_truth.json
    python -m benchmarks.near_verbatim --speed                1B shape on a CUDA GPU: beams against `generate`, first
                                                              passes against verbatim scoring, and the memory

The frontier is measured on the sequences whose sampled mass within 5 edits lies in [0.05, 0.95]; they are listed, with
the number of samples that came near, in benchmarks/near_verbatim_truth.json. "share" is the mean lower bound divided by
the mean sampled mass. `generate` is Hugging Face's beam search: its 20 outputs are scored under the scheme and those
within 5 edits added up; its token evaluations are the positions it feeds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rote
from rote.corpus.formats import as_examples
from rote.extraction.near.distance import levenshtein
from rote.models.base import BUNDLED_TEXT
from rote.models.huggingface import HuggingFaceModel
from rote.tokens import Example

HERE = Path(__file__).parent
TRUTH = HERE / "near_verbatim_truth.json"
LADDER = HERE.parent / "training" / "ladder.jsonl"
TOLERANCE, TAU, BEAMS = 5, 1e-3, 20
PASSAGES = 40


@dataclass(frozen=True)
class Row:
    method: str
    lower: float
    share: float
    decided: int
    evals: float
    seconds: float


def ladder(least: int) -> list[Example]:
    examples = as_examples(LADDER, None)
    return [e for e in examples if e.metadata["repetitions"] >= least]


def monte_carlo(model: Any, samples: int) -> None:
    """Sample passages that look neither certain nor hopeless, and list those that are not."""
    every = ladder(16)
    first = rote.near_verbatim(model, every, near=rote.Near(tolerance=TOLERANCE, budget=99, gap=0.0, until="budget"))
    likely = [e for e, f in zip(every, first, strict=True) if 0.03 <= f.lower <= 0.95]
    chosen = likely[:: max(1, len(likely) // PASSAGES)]
    began = time.perf_counter()
    found = rote.near_verbatim(
        model,
        chosen,
        near=rote.Near(tolerance=TOLERANCE, method="sample", samples=samples, seed=1, gap=0.0, until="budget"),
    )
    hits = {f.example_id: round(f.estimate.mean * samples) for f in found if f.estimate}
    middle = [name for name, count in hits.items() if 0.05 <= count / samples <= 0.95]
    content = {"samples": samples, "seed": 1, "tolerance": TOLERANCE, "hits": hits, "frontier": sorted(middle)}
    TRUTH.write_text(json.dumps(content, indent=1) + "\n")
    evals = np.mean([f.token_evals for f in found])
    print(f"{len(hits)} passages sampled, {len(middle)} in [0.05, 0.95]; {evals:,.0f} token evaluations each")
    print(f"{time.perf_counter() - began:.1f} s")


@torch.inference_mode()
def generated(model: HuggingFaceModel, examples: Sequence[Example], batch: int) -> tuple[list[float], float]:
    """Lower bounds from `generate`: mass of its outputs within the tolerance; and the positions it feeds for each."""
    bos = [] if model.bos_id is None else [model.bos_id]
    lower = []
    for start in range(0, len(examples), batch):
        part = examples[start : start + batch]
        rows = torch.tensor([[*bos, *e.prefix] for e in part], device=model.device)
        length = len(part[0].suffix)
        made = beam_search(model._model, rows, length)[:, rows.shape[1] :].reshape(len(part), BEAMS, length).tolist()
        near = [
            Example(f"{i} {j}", e.prefix, tuple(o))
            for i, (e, outputs) in enumerate(zip(part, made, strict=True))
            for j, o in enumerate(outputs)
            if levenshtein(tuple(o), e.suffix) <= TOLERANCE
        ]
        masses = np.zeros(len(part))
        for scored in rote.verbatim(model, near):
            masses[int(scored.example_id.split()[0])] += scored.prob
        lower += masses.tolist()
    return lower, BEAMS * (len(examples[0].prefix) + len(examples[0].suffix) - 1)


def beam_search(model: Any, rows: torch.Tensor, length: int) -> torch.Tensor:
    made: torch.Tensor = model.generate(
        rows, num_beams=BEAMS, num_return_sequences=BEAMS, do_sample=False, min_new_tokens=length,
        max_new_tokens=length, length_penalty=0.0, pad_token_id=0,
    )  # fmt: skip
    return made


def frontier(model: HuggingFaceModel, limit: int | None) -> None:
    truth = json.loads(TRUTH.read_text())
    names = truth["frontier"][:limit]
    examples = [e for e in ladder(1) if e.id in set(names)]
    mass = float(np.mean([truth["hits"][e.id] / truth["samples"] for e in examples]))
    print(f"{len(examples)} passages, sampled mass {mass:.4f}, tolerance {TOLERANCE}, top-k 40, on {model.device}")
    rows: list[Row] = []

    def search(name: str, **options: Any) -> None:
        began = time.perf_counter()
        near = rote.Near(**{"tolerance": TOLERANCE, "gap": 0.0, "until": "budget", **options})
        found = rote.near_verbatim(model, examples, near=near, tau=TAU)
        seconds = time.perf_counter() - began
        lower = float(np.mean([f.lower for f in found]))
        decided = sum(f.verdict != "undecided" for f in found)
        rows.append(Row(name, lower, lower / mass, decided, float(np.mean([f.token_evals for f in found])), seconds))
        show(rows[-1:])

    print("\n| method | mean lower bound | share | decided | token evaluations | seconds |\n|---|---|---|---|---|---|")
    began = time.perf_counter()
    lower, evals = generated(model, examples, 16)
    mean = float(np.mean(lower))
    decided = sum(value >= TAU for value in lower)
    show([Row("generate(num_beams=20)", mean, mean / mass, decided, evals, time.perf_counter() - began)])
    search("k-CBS, baseline, B=20", method="beam", variant="baseline")
    search("k-CBS, Levenshtein-pruned, B=20", method="beam", variant="pruned")
    for width in (5, 10, 20):
        search(f"closing beam, B={width}", method="beam", width=width)
    search("fork, first pass", budget=len(examples[0].prefix) + len(examples[0].suffix) - 1)
    for budget in (150, 200, 400, 1000, 2000, 4000):
        search(f"fork, {budget}", budget=budget)
    search("fork, until decided", until="decision")
    text = BUNDLED_TEXT.read_text(encoding="utf-8")
    windows = rote.windows(text, model.tokenizer, rote.Windows(stride=len(text) // 514))[:512]
    seconds: dict[str, list[float]] = {"verbatim": [], "first": []}
    for _ in range(3):
        began = time.perf_counter()
        rote.verbatim(model, windows)
        middle = time.perf_counter()
        rote.near_verbatim(model, windows, near=rote.Near(budget=99, gap=0.0, until="budget"))
        seconds["verbatim"].append(middle - began)
        seconds["first"].append(time.perf_counter() - middle)
    ratio = min(seconds["first"]) / min(seconds["verbatim"])
    print(f"\nfirst pass / verbatim scoring, 512 windows of the bundled text, best of three: {ratio:.2f}")


def show(rows: Sequence[Row]) -> None:
    for row in rows:
        print(
            f"| {row.method} | {row.lower:.4f} | {row.share:.3f} | {row.decided} | {row.evals:,.0f} "
            f"| {row.seconds:.2f} |",
            flush=True,
        )


def timed(work: Callable[[], Any], repeats: int = 2) -> float:
    work()
    best = float("inf")
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return best


def speed(count: int) -> None:
    """Wall time and memory on a 1B shape with random weights, bfloat16. Random text is pruned at once: the beams run on
    outputs that the model itself makes likely, so that all of them stay alive to the end."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    from benchmarks.verbatim import SHAPES

    config = GPTNeoXConfig(vocab_size=50304, rotary_pct=0.25, use_parallel_residual=True, **SHAPES["Pythia-1B"])
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        network = GPTNeoXForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    network.generation_config.eos_token_id = None
    prefixes = torch.randint(0, 50304, (count, 50), generator=torch.Generator().manual_seed(1))
    written = network.generate(
        prefixes[:256].cuda(), do_sample=False, min_new_tokens=50, max_new_tokens=50, pad_token_id=0
    )
    rows = written.tolist()
    examples = [Example(str(i), tuple(r[:50]), tuple(r[50:])) for i, r in enumerate(rows)]
    plain = HuggingFaceModel(network)
    print("\n| what | sequences | seconds | a second | peak GiB |\n|---|---|---|---|---|")

    def line(name: str, n: int, work: Callable[[], Any], repeats: int = 2) -> float:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        seconds = timed(work, repeats)
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(f"| {name} | {n} | {seconds:.2f} | {n / seconds:,.1f} | {peak:.1f} |", flush=True)
        return seconds / n

    peers = []
    for batch in (10, 64):
        tokens = torch.tensor([e.prefix for e in examples[:batch]]).cuda()
        name = f"generate(num_beams=20), batches of {batch}"
        peers.append(line(name, batch, lambda tokens=tokens: beam_search(network, tokens, 50), 1))  # type: ignore[misc]
    for in_flight in (10, 64, 256):
        part = examples[:in_flight]
        ours = line(
            f"k-CBS, published (baseline), B=20, {in_flight} in flight",
            len(part),
            lambda part=part, n=in_flight: rote.near_verbatim(  # type: ignore[misc]
                plain,
                part,
                near=rote.Near(method="beam", variant="baseline", eos="ignore", gap=0.0, until="budget"),
                batch_size=n,
            ),
        )
        print(f"|   generate takes | | {peers[0] / ours:.1f}x (10), {peers[1] / ours:.1f}x (64) | | |")
    line(
        "fork, 1000 evaluations",
        64,
        lambda: rote.near_verbatim(plain, examples[:64], near=rote.Near(budget=1000, gap=0.0, until="budget")),
        1,
    )
    many = [Example(str(i), tuple(r[:50]), tuple(r[50:])) for i, r in enumerate(rows * (count // len(rows)))]
    compiled = HuggingFaceModel(network, compile=True)
    rote.verbatim(compiled, many[:600])
    scored = line("verbatim scoring", len(many), lambda: rote.verbatim(compiled, many))
    first = line(
        "fork, first pass",
        len(many),
        lambda: rote.near_verbatim(compiled, many, near=rote.Near(budget=99, gap=0.0, until="budget")),
    )
    print(f"|   first pass / verbatim | | {first / scored:.2f} | | |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--monte-carlo", type=int, metavar="SAMPLES")
    parser.add_argument("--passages", type=int, help="only the first so many passages of the frontier")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--examples", type=int, default=5120, help="how many to score in --speed")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} CPU cores")
    if options.speed:
        speed(options.examples)
        return
    model = rote.load(options.model, rote.ModelOptions(device=options.device, dtype="float32", compile=False))
    assert isinstance(model, HuggingFaceModel)
    if options.monte_carlo:
        monte_carlo(model, options.monte_carlo)
    frontier(model, options.passages)


if __name__ == "__main__":
    main()
