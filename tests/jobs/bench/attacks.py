"""Submissions for tests: random guesses at random answers, and folders as an attack leaves them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np

from rote.corpus.bench import Guess, write_guesses
from rote.store.seal import write_seal


def random_case(draw: Random, folder: Path) -> tuple[Path, Path, list[Guess]]:
    """Answers and guesses in files, and the guesses: right and wrong ones, repeated, all of a few tokens."""
    examples, length = draw.randint(1, 12), draw.choice([1, 2, 2, 3, 3, 3, 50, 53])
    answers = np.array([[draw.randint(0, 1) for _ in range(length)] for _ in range(examples)])
    guesses: list[Guess] = []
    chance = draw.random()
    for _ in range(draw.randint(1, 40)):
        number = draw.randrange(examples)
        suffix = answers[number].tolist()
        if draw.random() > chance:
            suffix[draw.randrange(length)] ^= 1
        own = Guess(number, tuple(suffix))
        guesses += [own] * (draw.randint(1, 3) if draw.random() < 0.2 else 1)
    name = f"{draw.getrandbits(64):x}"  # a new file is made faster than an old one is written over
    np.save(folder / f"{name}.npy", answers)
    write_guesses(folder / f"{name}.csv", guesses)
    return folder / f"{name}.csv", folder / f"{name}.npy", guesses


def attack(folder: Path, guesses: Sequence[Guess], found: Sequence[tuple[float, int]], *, sealed: bool = True) -> Path:
    """An attack's folder. Its guesses.jsonl is in the order in which they were found."""
    folder.mkdir(parents=True)
    write_guesses(folder / "guesses.csv", guesses)
    lines = [
        json.dumps({"example": guess.example, "suffix": list(guess.suffix), "confidence": 0.5, "log_prob": -1.0,
                    "seconds": seconds, "token_evals": evals})
        for (seconds, evals), guess in sorted(zip(found, guesses, strict=True), key=lambda one: one[0])
    ]  # fmt: skip
    (folder / "guesses.jsonl").write_text("\n".join([*lines, ""]))
    (folder / "manifest.json").write_text("{}")
    if sealed:
        write_seal(folder, ["manifest.json", "guesses.csv", "guesses.jsonl"])
    return folder
