"""Whether schemes come out on a GPU as on the CPU: scores, compiled scores, supports, and bounds of searches.

    python -m benchmarks.schemes_on_device            (needs a CUDA GPU; torch, transformers and numpy suffice)

Random logits with many ties (bfloat16 has few values), every combination of temperature, top-k, top-p and min-p. A
token may fall on the other side of a border only where its margin is below MARGIN; everything else must agree.
"""

from __future__ import annotations

import torch

import rote
from rote.decoding import support, target_scores
from rote.extraction.passes import compiled_scores
from rote.models.base import BUNDLED_TEXT

MARGIN = 1e-4
SCHEMES = [
    rote.Scheme(temperature, top_k, top_p, min_p)
    for temperature in (0.7, 1.0, 1.5)
    for top_k in (None, 40)
    for top_p in (None, 0.9)
    for min_p in (None, 0.02, 0.1)
]
COMPILED = [
    rote.Scheme(), rote.Scheme(0.7, 40, 0.9, 0.05), rote.Scheme(1.5, None, None, 0.1), rote.Scheme(1, 40, None, 0.02)
]  # fmt: skip
"""Compiling takes a minute or two for a few; top-p over the whole vocabulary is never compiled."""

SEARCHES = (
    rote.Near(tolerance=3, budget=600, gap=0.0, until="budget"),
    rote.Near("hamming", 2, budget=600, gap=0.0, until="budget"),
)


def scores() -> None:
    print("| logits | scores | tokens compared | at a border | largest difference of log-probs | of margins |")
    print("|---|---|---|---|---|---|", flush=True)
    for dtype in (torch.float32, torch.bfloat16):
        logits = (torch.randn(256, 50304) * 3).to(dtype)
        targets = logits.float().topk(60).indices[torch.arange(256), torch.randint(0, 60, (256,))]
        for name, schemes in (("as they are", SCHEMES), ("compiled", COMPILED))[: 2 if dtype == torch.float32 else 1]:
            score = compiled_scores() if name == "compiled" else target_scores
            here = target_scores(logits, targets, schemes)
            there = score(logits.cuda(), targets.cuda(), schemes).to(torch.device("cpu"))
            firm = here.margins.abs() > MARGIN
            inside, other = here.log_probs > -torch.inf, there.log_probs > -torch.inf
            assert not ((inside != other) & firm).any(), "a token changed sides although its margin is large"
            both, finite = inside & other & firm, firm & here.margins.isfinite()
            apart = float((here.log_probs - there.log_probs)[both].abs().max())
            margins = float((here.margins - there.margins)[finite].abs().max())
            counts = f"{int(both.sum()):,} | {int((~firm).sum())}"
            print(f"| {dtype} | {name} | {counts} | {apart:.2g} | {margins:.2g} |", flush=True)
        for scheme in SCHEMES:
            one = support(logits, scheme, 64, targets)
            two = support(logits.cuda(), scheme, 64, targets.cuda()).to(torch.device("cpu"))
            same = float((one.unlisted == two.unlisted).float().mean())
            assert same > 0.98, f"{scheme}: supports of another size in {1 - same:.1%} of the rows"


def searches() -> None:
    print("\n| scheme | search | largest difference of a bound |\n|---|---|---|")
    bounds: dict[tuple[str, str], list[list[float]]] = {}
    for device in ("cpu", "cuda"):
        model = rote.load("bundled", rote.ModelOptions(device=device, dtype="float32"))
        text = BUNDLED_TEXT.read_text(encoding="utf-8")[20000:24000]
        examples = rote.windows(text, model.tokenizer, rote.Windows(30, 20, 200))[:12]
        for scheme in (rote.Scheme(1.5, None, None, 0.02), rote.Scheme(1.3, 40, 0.95, 0.05)):
            for near in SEARCHES:
                searched = rote.near_verbatim(model, examples, scheme, near=near, candidates=0)
                own = [bound for each in searched for bound in (each.lower, each.upper)]
                bounds.setdefault((str(scheme), f"{near.method}, {near.distance}"), []).append(own)
    for (scheme_name, search), (here, there) in bounds.items():
        apart = max(abs(one - two) for one, two in zip(here, there, strict=True))
        print(f"| {scheme_name} | {search} | {apart:.2g} |")


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("this needs a CUDA GPU.")
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}\n")
    scores()
    searches()


if __name__ == "__main__":
    main()
