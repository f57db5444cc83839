"""What a book's score table costs to look at: coverage, maxima per character, hot-spots, location, longest sequences.

    OMP_NUM_THREADS=1 python -m benchmarks.coverage

A made-up table: windows every ten characters of a text, suffixes of 50 tokens and about 200 characters, log-probs that
rise and fall along the text. The peer is the obvious loop: for each window one numpy slice, maximum or assignment. Both
must give the same numbers. Seconds are the best of three runs; "times" is the peer's seconds over ours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rote.analysis.coverage import character_maximum, coverage, hot_spots, location, spans
from rote.analysis.furthest import longest

THRESHOLDS = (0.01, 0.1, 0.5, 0.75)
TOKENS = 50


def book(length: int, windows: int) -> pl.DataFrame:
    """The score table of a text that is known in parts."""
    random = np.random.default_rng(0)
    starts = np.sort(random.integers(0, length - 500, windows))
    suffix = starts + random.integers(150, 250, windows)
    ends = suffix + random.integers(150, 250, windows)
    # Mean loss per token: a few slow waves along the text, so that high and low stretches take turns.
    wave = np.sin(starts / length * 211.0) + np.sin(starts / length * 37.0)
    loss = np.exp(-4.0 - 2.5 * wave[:, None]) * random.exponential(size=(windows, TOKENS))
    tokens = (-loss).astype(np.float32)
    return pl.DataFrame(
        {
            "example_id": [f"w{start}-{i}" for i, start in enumerate(starts.tolist())],
            "scheme": "temperature=1 top_k=40",
            "start": starts,
            "suffix_start": suffix,
            "suffix_end": ends,
            "log_prob": tokens.sum(axis=1, dtype=np.float64),
            "bounded": False,
            "token_log_probs": pl.Series(tokens).arr.to_list(),
        }
    )


def best_of(times: int, what: Callable[[], Any]) -> tuple[float, Any]:
    seconds, result = [], None
    for _ in range(times):
        began = time.perf_counter()
        result = what()
        seconds.append(time.perf_counter() - began)
    return min(seconds), result


def loop_maximum(scores: pl.DataFrame, length: int) -> NDArray[np.float64]:
    best = np.full(length, -np.inf)
    for start, end, value in scores.select("suffix_start", "suffix_end", "log_prob").iter_rows():
        np.maximum(best[start:end], value, out=best[start:end])
    return best


def loop_coverage(scores: pl.DataFrame, length: int) -> dict[str, int]:
    found = {}
    for threshold in THRESHOLDS:
        covered = np.zeros(length, dtype=np.bool_)
        for start, end, value in scores.select("suffix_start", "suffix_end", "log_prob").iter_rows():
            if value >= np.log(threshold):
                covered[start:end] = True
        found[f"{threshold:g}"] = int(covered.sum())
    return found


def loop_longest(scores: pl.DataFrame) -> dict[str, int]:
    found = dict.fromkeys((f"{threshold:g}" for threshold in THRESHOLDS), 0)
    for (tokens,) in scores.select("token_log_probs").iter_rows():
        sums = np.cumsum(np.array(tokens, dtype=np.float64))
        for threshold in THRESHOLDS:
            found[f"{threshold:g}"] = max(found[f"{threshold:g}"], int(np.count_nonzero(sums >= np.log(threshold))))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--characters", type=int, default=1_000_000)
    parser.add_argument("--windows", type=int, default=100_000)
    given = parser.parse_args()
    length = given.characters
    scores = book(length, given.windows)
    peers: dict[str, Callable[[], Any]] = {
        "coverage at 4 thresholds": lambda: loop_coverage(scores, length),
        "maximum per character": lambda: loop_maximum(scores, length),
        "longest at 4 thresholds": lambda: loop_longest(scores),
    }
    ours: dict[str, Callable[[], Any]] = {
        "coverage at 4 thresholds": lambda: coverage(scores, length, THRESHOLDS),
        "maximum per character": lambda: character_maximum(*spans(scores), scores["log_prob"], length),
        "hot-spots at 0.5": lambda: hot_spots(scores, length, 0.5),
        "location and histograms": lambda: location(scores),
        "longest at 4 thresholds": lambda: longest(scores, THRESHOLDS),
    }
    print("| what | rote, s | loop over windows, s | times |\n|---|---|---|---|")
    results, total = {}, 0.0
    for name, what in ours.items():
        seconds, results[name] = best_of(3, what)
        total += seconds
        peer = ["–", "–"]
        if name in peers:
            slow, expected = best_of(3, peers[name])
            peer = [f"{slow:.3f}", f"{slow / seconds:.1f}"]
            same(name, results[name], expected)
        print(f"| {name} | {seconds:.3f} | {' | '.join(peer)} |")
    print(f"| all of it | {total:.3f} | – | – |")
    covered = results["coverage at 4 thresholds"]["0.5"]
    print(f"\n{length:,} characters, {given.windows:,} windows; at 0.5 {covered.share:.1%} in {covered.runs:,} runs.")


def same(name: str, found: Any, expected: Any) -> None:
    if name == "maximum per character":
        assert np.array_equal(found, expected)
    elif name == "longest at 4 thresholds":
        assert {key: entry.tokens if entry else 0 for key, entry in found.items()} == expected
    else:
        assert {key: entry.characters for key, entry in found.items()} == expected


if __name__ == "__main__":
    main()
