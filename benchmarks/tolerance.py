"""How far two correct computations of one number differ: an example scored alone, among 64, and beside longer ones.

    python -m benchmarks.tolerance --model bundled --dtype float32 --device cpu

Windows of the bundled text and of one the bundled model never saw are scored three ways. Printed, against the windows
scored alone: the largest difference of any logit at any suffix position, of the log-prob of a token and of a suffix,
and of p_z, under any of five schemes. Tokens within `logit_tolerance` of the border of a scheme's support may fall on
either side of it: they, and the suffixes that hold one, are left out of the differences of log-probs and counted.
`crossed` counts those that did fall on the other side, `widest` is the largest margin of such a token: it must stay
below the tolerance.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import rote
from rote import GREEDY, Example, LogitModel, Scheme, Verbatim, verbatim
from rote.models.base import BUNDLED_TEXT

UNSEEN_TEXT = Path(__file__).parent.parent / "training" / "data" / "books" / "gatsby.txt"
SCHEMES = (
    Scheme(),
    Scheme(temperature=0.7, top_k=None),
    Scheme(top_k=None, top_p=0.9),
    Scheme(top_k=40, top_p=0.9),
    GREEDY,
)
BATCH = 64
MATES = 4  # of a batch's examples, at least so many are there only to be others
LONG = 400  # tokens of the much longer ones: attention takes other blocks from some 200 on
LOGIT_BYTES = 1 << 30  # logits kept of each way to score


@dataclass
class Differences:
    """The largest differences seen so far between two ways to score the same windows."""

    logit: float = 0.0
    token: float = 0.0
    suffix: float = 0.0
    probability: float = 0.0
    tokens: int = 0
    exempt: int = 0
    crossed: int = 0
    widest: float = 0.0

    def add_logits(self, alone: Tensor, other: Tensor) -> None:
        for a, b in zip(alone, other, strict=True):
            self.logit = max(self.logit, float((a.float() - b.float()).abs().max()))

    def add_scores(self, alone: Sequence[Verbatim], other: Sequence[Verbatim], tolerance: float) -> None:
        for a, b in zip(alone, other, strict=True):
            assert (a.example_id, a.scheme) == (b.example_id, b.scheme)
            border = np.minimum(np.abs(a.margins), np.abs(b.margins)) < tolerance
            crossed = np.isinf(a.token_log_probs) != np.isinf(b.token_log_probs)
            self.tokens += len(border)
            self.exempt += int(border.sum())
            self.crossed += int(crossed.sum())
            self.widest = max(self.widest, float(np.abs(a.margins[crossed]).max(initial=0.0)))
            both = ~border & np.isfinite(a.token_log_probs) & np.isfinite(b.token_log_probs)
            token = np.abs(a.token_log_probs[both] - b.token_log_probs[both])
            self.token = max(self.token, float(token.max(initial=0.0)))
            if not border.any() and math.isfinite(a.log_prob):
                self.suffix = max(self.suffix, abs(a.log_prob - b.log_prob))
                self.probability = max(self.probability, abs(a.prob - b.prob))


def listening(model: LogitModel) -> tuple[LogitModel, list[Tensor]]:
    """The same model, and a list to which it adds all logits that it gives."""
    heard: list[Tensor] = []

    def head(hidden: Tensor) -> Tensor:
        heard.append(model.head(hidden))
        return heard[-1]

    ears: Any = copy(model)
    ears.head = head
    return ears, heard


def compare(model: LogitModel, examples: Sequence[Example], known: str) -> dict[str, Differences]:
    """Score `examples` alone, in full batches of others as long as they, and beside much longer ones."""
    prefix, suffix = len(examples[0].prefix), len(examples[0].suffix)
    short = evenly(known, model.tokenizer, BATCH, prefix=prefix + suffix - 1, suffix=1)
    long = evenly(known, model.tokenizer, MATES, prefix=LONG, suffix=1)
    among, beside = Differences(), Differences()
    ears, heard = listening(model)

    def listened() -> Tensor:
        """[suffix tokens, vocabulary] since the last time it was asked."""
        logits = torch.cat(heard)
        heard.clear()
        return logits

    size = max(1, min(BATCH - MATES, LOGIT_BYTES // (4 * suffix * model.vocabulary)))
    for start in range(0, len(examples), size):
        group = examples[start : start + size]
        alone = [result for example in group for result in verbatim(ears, [example], SCHEMES, batch_size=1)]
        logits = listened()
        for found, mates in ((among, short[: BATCH - len(group)]), (beside, long)):
            together = verbatim(ears, [*group, *mates], SCHEMES, batch_size=BATCH)
            found.add_logits(logits, listened()[: len(logits)])
            found.add_scores(alone, together[: len(alone)], model.logit_tolerance)
    return {f"among {BATCH}": among, "beside longer": beside}


def evenly(text: str, tokenizer: Any, count: int, *, prefix: int, suffix: int) -> list[Example]:
    """`count` windows spread over the text."""
    stride = max(1, len(text) // (count + 2))
    return rote.windows(text, tokenizer, rote.Windows(prefix=prefix, suffix=suffix, stride=stride))[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="bundled", help="model folder, hub id, .gguf file, or 'bundled'")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps")
    parser.add_argument("--windows", type=int, default=100, help="windows of each text (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=50, help="in a prefix and in a suffix (default: %(default)s)")
    arguments = parser.parse_args()

    # Not compiled: every batch size would be compiled anew, and only the kernels of the layers would differ.
    model = rote.load(arguments.model, rote.ModelOptions(dtype=arguments.dtype, device=arguments.device, compile=False))
    size = arguments.tokens
    known, unseen = (path.read_bytes().decode() for path in (BUNDLED_TEXT, UNSEEN_TEXT))
    identity = model.identity()
    print(f"{identity.name}, {identity.dtype} on {identity.device}, torch {torch.__version__}")
    print(f"{arguments.windows} windows of {size}+{size} tokens a text, {len(SCHEMES)} schemes")
    print(f"logit tolerance {model.logit_tolerance}; largest differences from the same windows scored alone:")
    columns = ("text", "scored", "logit", "token log-prob", "log p_z", "p_z", "exempt tokens", "crossed", "widest")
    print(" | ".join(f"{column:>14}" for column in columns))
    for name, text in ((BUNDLED_TEXT.stem, known), (UNSEEN_TEXT.stem, unseen)):
        examples = evenly(text, model.tokenizer, arguments.windows, prefix=size, suffix=size)
        for way, d in compare(model, examples, known).items():
            numbers = [f"{v:.2e}" for v in (d.logit, d.token, d.suffix, d.probability)]
            cells = [name, way, *numbers, f"{d.exempt}/{d.tokens}", d.crossed, f"{d.widest:.2e}"]
            print(" | ".join(f"{cell:>14}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
