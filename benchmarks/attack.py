"""Attacks at equal cost on a model that knows part of what it read: recall, ceiling, calibration.

    python -m training.sibling --rows rows.parquet
    rote bench build rows.parquet --ids ids --model training/sibling --out my-bench --train 5000 --val 2500 --test 2500
    python -m benchmarks.attack --model training/sibling --bench my-bench

The examples of the benchmark's train and test splits are put together (its val split is there to tune on); every seed
draws other ones to attack, and twice as many to learn from. Recall is at errors equal to a tenth of the examples;
costs are token evaluations an example, the same for all attacks. What `ranked` spends on the examples that it learns
from comes on top: the same again for every one of those.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import rote
from rote.analysis.chances import reliability
from rote.corpus.bench import Guess, read_guesses, read_split, splits_in, write_ids
from rote.extraction.attack.options import Method
from rote.store.attack import StoredAttack

Ids = NDArray[np.int64]
ATTACKS: dict[str, tuple[Method, dict[str, float]]] = {
    "greedy": ("greedy", {}),
    "sample": ("sample", {}),
    "sample, temperature 0.5": ("sample", {"temperature": 0.5}),
    "beam": ("beam", {}),
    "ranked": ("ranked", {}),
}
"""The public baseline draws from the 10 likeliest tokens at temperature 1; a lower one is kinder to it."""


def recall(guesses: Sequence[Guess], answers: Ids) -> float:
    """Examples solved at the last right guess made with fewer errors than a tenth of the examples."""
    solved: set[int] = set()
    errors = 0
    for guess in guesses:
        if guess.suffix == tuple(answers[guess.example].tolist()):
            solved.add(guess.example)
        else:
            errors += 1
            if errors >= len(answers) / 10:
                break
    return len(solved) / len(answers)


def ceiling(guesses: Sequence[Guess], answers: Ids) -> float:
    return len({g.example for g in guesses if g.suffix == tuple(answers[g.example].tolist())}) / len(answers)


def told(values: Sequence[float]) -> str:
    """Mean and 95% interval over seeds, in percent."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:6.1%}"
    half = stats.t.ppf(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return f"{mean:6.1%} ±{half:5.1%}"


def by_log_prob(found: StoredAttack) -> list[Guess]:
    """The same candidates in the order of the model's own probability, the likeliest of every example first."""
    guesses = sorted(found.guesses(), key=lambda g: -g.log_prob)
    first = {g.example: g for g in reversed(guesses)}
    firsts = {id(g) for g in first.values()}
    ordered = sorted(guesses, key=lambda g: (id(g) not in firsts, -g.log_prob))
    return [Guess(g.example, g.suffix) for g in ordered]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="training/sibling")
    parser.add_argument("--bench", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=200, help="attacked; twice as many are learnt from")
    parser.add_argument("--costs", type=int, nargs="+", default=[148, 197, 295], help="token evaluations an example")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    model = rote.load(asked.model, rote.ModelOptions(device=asked.device))
    splits = [read_split(asked.bench, name) for name in splits_in(asked.bench) if name != "val"]
    prefix = np.concatenate([s.prefix for s in splits if s.suffix is not None])
    suffix = np.concatenate([s.suffix for s in splits if s.suffix is not None])
    print(f"{len(prefix)} examples; {asked.examples} attacked, {2 * asked.examples} learnt from; {asked.seeds} seeds")
    for cost in asked.costs:
        rows: dict[str, list[tuple[float, float]]] = {}
        learnt, seconds = [], dict.fromkeys(ATTACKS, 0.0)
        for seed in range(asked.seeds):
            drawn = np.random.default_rng(seed).permutation(len(prefix))
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                parts = {"test": drawn[: asked.examples], "train": drawn[asked.examples : 3 * asked.examples]}
                for split, own in parts.items():
                    write_ids(folder / f"{split}_prefix.npy", prefix[own], model.vocabulary)
                    write_ids(folder / f"{split}_suffix.npy", suffix[own], model.vocabulary)
                answers = suffix[parts["test"]]
                for label, (method, options) in ATTACKS.items():
                    more: dict[str, Any] = {"train": folder} if method == "ranked" else {"seed": seed, **options}
                    began = time.perf_counter()
                    found = rote.bench.attack(
                        model, folder, budget=cost * asked.examples, method=method, out=folder / label, **more
                    )
                    seconds[label] += time.perf_counter() - began
                    guesses = read_guesses(folder / label / "guesses.csv")
                    rows.setdefault(label, []).append((recall(guesses, answers), ceiling(guesses, answers)))
                    if method == "ranked":
                        plain = by_log_prob(found)
                        rows.setdefault("  by log-prob", []).append((recall(plain, answers), ceiling(plain, answers)))
                        stored = found.guesses()
                        right = np.array([g.suffix == tuple(answers[g.example].tolist()) for g in stored])
                        learnt.append(reliability(np.array([g.confidence for g in stored]), right))
        print(f"\n{cost} token evaluations an example   recall at 10% errors   ceiling          seconds a seed")
        for label, values in rows.items():
            spent = f"{seconds[label] / asked.seeds:8.1f}" if label in seconds else ""
            print(f"  {label:<28} {told([v[0] for v in values]):<20}   {told([v[1] for v in values]):<16} {spent}")
        for other in ("sample", "sample, temperature 0.5", "beam"):
            gain = [ours[0] - theirs[0] for ours, theirs in zip(rows["ranked"], rows[other], strict=True)]
            print(f"  ranked - {other:<23} {told(gain)}")
        brier, off = np.mean([r.brier for r in learnt]), np.mean([r.calibration_error for r in learnt])
        print(f"  chances on the attacked examples: Brier score {brier:.4f}, calibration error {off:.4f}")
        for number in range(10):
            bins = [b for r in learnt if (b := r.bins[number]) is not None]
            if total := sum(b.guesses for b in bins):
                mean = sum(b.guesses * b.mean_chance for b in bins) / total
                share = sum(b.guesses * b.share_right for b in bins) / total
                span = f"{number / 10:.1f}-{(number + 1) / 10:.1f}"
                print(f"    chance {span}: {total:6} guesses, mean {mean:.3f}, right {share:.3f}")


if __name__ == "__main__":
    main()
