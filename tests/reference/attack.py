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
