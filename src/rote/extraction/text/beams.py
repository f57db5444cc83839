"""The rules of beam search as transformers has them: `num_beams`, `length_penalty`, `early_stopping=False`.

Reading is left to the caller, who feeds the beams' last tokens and hands in what may follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rote.errors import ModelError


def candidates(
    logits: Tensor, log_probs: Sequence[float], width: int, label: int = 0
) -> tuple[list[float], list[int], list[int]]:
    """The `width` likeliest continuations by one token: log-probability, beam and token of each, likeliest first.

    Equally likely ones stand by their beam, then by their token.
    """
    each = min(width, logits.shape[1])
    values, tokens = logits.topk(min(each + 1, logits.shape[1]))
    if bool((values[:, each - 1 : each] == values[:, each:]).any()):  # which of the equal ones topk took is its secret
        tokens = logits.argsort(dim=1, descending=True, stable=True)
    tokens = tokens[:, :each].sort(dim=1).values
    chosen = logits.gather(1, tokens).double() - logits.double().logsumexp(1, keepdim=True)
    total = (torch.tensor(log_probs, dtype=torch.float64, device=chosen.device)[:, None] + chosen).flatten()
    best, order = total.sort(descending=True, stable=True)
    facts = torch.stack([best[:width], (order // each)[:width], tokens.flatten()[order[:width]]]).tolist()
    if any(math.isnan(value) or value == math.inf for value in facts[0]):
        raise ModelError(
            f"the model's logits are NaN or infinite at chunk {label}: nothing can be generated. Check the weights; "
            "a model that overflows in float16 needs dtype bfloat16 or float32."
        )
    return facts[0], [int(beam) for beam in facts[1]], [int(token) for token in facts[2]]


class BeamSearch:
    """Which beams go on, which outputs are finished, and when to stop. It never sees the model.

    An output is worth its log-probability divided by its number of tokens (EOS counted) to the power of the length
    penalty. Enough is found once as many outputs as there are beams are finished and the likeliest beam, worth what it
    would be if it ended now, is worth no more than the worst of them. That is the usual rule, and no proof that nothing
    better would come.
    """

    def __init__(self, beams: int, length_penalty: float, count: int, eos: frozenset[int]) -> None:
        self.beams, self.length_penalty, self.count, self.eos = beams, length_penalty, count, eos
        self.width = beams * max(2, 1 + len(eos)) if beams > 1 else 1  # enough go on even if all beams could end
        self.log_probs: list[float] = [0.0]
        self.outputs: list[list[int]] = [[]]
        self.parents: list[int] = []
        self.finished: list[tuple[float, list[int]]] = []  # best first
        self.done = False

    @property
    def last(self) -> list[int]:
        return [output[-1] for output in self.outputs]

    def extend(self, log_probs: Sequence[float], parents: Sequence[int], tokens: Sequence[int]) -> None:
        """One step. Of the continuations, likeliest first, only the first `beams` may finish an output."""
        length = len(self.outputs[0]) + 1
        running: list[tuple[float, int, int]] = []
        for rank, (log_prob, parent, token) in enumerate(zip(log_probs, parents, tokens, strict=True)):
            if log_prob == -math.inf:
                break
            if token in self.eos or length == self.count:
                if rank < self.beams:
                    self.finished.append((log_prob / length**self.length_penalty, [*self.outputs[parent], token]))
            elif len(running) < self.beams:
                running.append((log_prob, parent, token))
        self.finished = sorted(self.finished, key=lambda one: -one[0])[: self.beams]
        self.outputs = [[*self.outputs[parent], token] for _, parent, token in running]
        self.log_probs = [log_prob for log_prob, _, _ in running]
        self.parents = [parent for _, parent, _ in running]
        full = len(self.finished) == self.beams
        self.done = not running or (full and self.log_probs[0] / length**self.length_penalty <= self.finished[-1][0])

    def best(self) -> tuple[tuple[int, ...], bool]:
        """(tokens, whether an EOS follows them)."""
        output = self.finished[0][1]
        ended = output[-1] in self.eos
        return tuple(output[:-1] if ended else output), ended
