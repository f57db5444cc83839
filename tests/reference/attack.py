"""Outputs after a prefix, the slow way: one history at a time, every output written down."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

Tokens = tuple[int, ...]
LogitsAfter = Callable[[Tokens], np.ndarray]


def log_softmax(logits: np.ndarray) -> list[float]:
    exact = [float(np.float32(x)) for x in logits]
    top = max(exact)
    total = top + math.log(math.fsum(math.exp(x - top) for x in exact))
    return [x - total for x in exact]


def token_log_probs(after: LogitsAfter, prompt: Tokens, output: Tokens) -> list[float]:
    return [log_softmax(after(prompt + output[:i]))[token] for i, token in enumerate(output)]


def greedy(after: LogitsAfter, prompt: Tokens, length: int) -> Tokens:
    output: Tokens = ()
    for _ in range(length):
        logits = [float(np.float32(x)) for x in after(prompt + output)]
        output += (logits.index(max(logits)),)
    return output


def every_output(after: LogitsAfter, prompt: Tokens, length: int, vocabulary: int) -> dict[Tokens, float]:
    return {
        output: math.fsum(token_log_probs(after, prompt, output))
        for output in itertools.product(range(vocabulary), repeat=length)
    }


def beam(after: LogitsAfter, prompt: Tokens, length: int, width: int) -> tuple[list[Tokens], int]:
    """(the last beam, likeliest first; positions fed)."""
    beams: list[tuple[float, Tokens]] = [(0.0, ())]
    fed = len(prompt)
    for step in range(length):
        if step:
            fed += len(beams)
        children = []
        for parent, (mass, output) in enumerate(beams):
            for token, log_prob in enumerate(log_softmax(after(prompt + output))):
                children.append((-(mass + log_prob), parent, token, output))
        beams = [(-mass, (*output, token)) for mass, _, token, output in sorted(children)[:width]]
    return [output for _, output in beams], fed


def shared(
    after: LogitsAfter, prompts: Sequence[Tokens], length: int, evals: int, *, bos: int, last: int = 8
) -> tuple[list[tuple[int, Tokens]], int]:
    """Beams of which every example has one, and the rest goes to the largest shares of an example's children."""
    beams: list[list[tuple[float, Tokens]]] = [[(0.0, ())] for _ in prompts]
    fed = sum(len(prompt) - bos for prompt in prompts)
    for written in range(1, length + 1):
        children = []
        for example, prompt in enumerate(prompts):
            own = []
            for parent, (mass, output) in enumerate(beams[example]):
                for token, log_prob in enumerate(log_softmax(after(prompt + output))):
                    own.append((-(mass + log_prob), parent, token, output))
            own.sort()
            total = math.log(math.fsum(math.exp(-mass) for mass, *_ in own))
            for rank, (mass, _, token, output) in enumerate(own):
                children.append((rank > 0, -round(-mass - total, 2), example, rank, -mass, (*output, token)))
        if written == length:
            kept = [child for child in children if child[3] < last]
        else:
            steps, left = length - written, evals - fed
            share = int((1 + 0.75 * steps / (length - 1)) * left / steps)
            rows = max(len(prompts), min(share, left - (steps - 1) * len(prompts)))
            kept = sorted(children)[:rows]
            fed += len(kept)
        kept.sort(key=lambda child: child[2:4])
        beams = [[(mass, out) for *_, e, _, mass, out in kept if e == i] for i in range(len(prompts))]
    return [(example, output) for example, own in enumerate(beams) for _, output in own], fed


def recall(guesses: Sequence[tuple[int, Tokens]], answers: Sequence[Tokens], errors: int) -> float:
    """Examples solved at the last right guess with fewer than so many errors before it."""
    solved: set[int] = set()
    wrong, reached = 0, 0
    for example, output in guesses:
        if output == answers[example]:
            solved.add(example)
            if wrong < errors:
                reached = len(solved)
        else:
            wrong += 1
    return reached / len(answers)
