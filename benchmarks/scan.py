"""What stopping early saves on a whole book, and that it finds the same windows.

    python -m benchmarks.scan                 (two CPU cores: about a quarter of an hour)

Scans a book that the bundled model has never seen and the one it knows by heart, every window in full and with early
stopping, as `rote scan` does it. Token evaluations count everything that was fed, scoring again included.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import tempfile
import time
from pathlib import Path

import torch

import rote
from rote.models.base import BUNDLED_TEXT

BOOKS = {"Gatsby": Path("training/data/books/gatsby.txt"), "Alice": BUNDLED_TEXT}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stride", type=int, default=10)
    parser.add_argument("--tau", type=float, default=1e-3)
    options = parser.parse_args()
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} CPU cores")
    model = rote.load("bundled", rote.ModelOptions(device="cpu"))
    print("\n| book | procedure | windows | at tau | token evaluations | of plain | seconds | windows a second |")
    print("|---|---|---|---|---|---|---|---|")
    for book, path in BOOKS.items():
        text = path.read_text(encoding="utf-8")
        plain, same = 0, []
        for early in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                run = rote.scan(
                    model,
                    text,
                    out=folder,
                    windows=rote.Windows(stride=options.stride),
                    tau=options.tau,
                    stop_early=early,
                )
                seconds = time.perf_counter() - began
                scores = run.scores
            at_tau = scores.filter(~scores["stopped"] & (scores["log_prob"] >= math.log(options.tau)))
            same.append(dict(zip(at_tau["example_id"], at_tau["log_prob"], strict=True)))
            evals = int(scores["token_evals"].sum())
            plain = plain or evals
            print(
                f"| {book} | {'stop early' if early else 'plain'} | {scores.height:,} | {at_tau.height:,} | {evals:,} "
                f"| {evals / plain:.1%} | {seconds:.0f} | {scores.height / seconds:,.0f} |",
                flush=True,
            )
        assert same[0].keys() == same[1].keys()
        apart = max((abs(same[0][key] - same[1][key]) for key in same[0]), default=0.0)
        print(f"|   the same windows at or above tau: yes; log p_z apart by at most {apart:.1e} | | | | | | | |")


if __name__ == "__main__":
    main()
