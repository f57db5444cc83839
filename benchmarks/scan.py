"""What a scan of a book costs in full, with early stopping and in stages, and what these find.

    python -m benchmarks.scan                          (an hour on two CPU cores; minutes on a GPU)
    python -m benchmarks.scan gatsby planted
    python -m benchmarks.scan mixed --model gemma3-270m.gguf --suffix 25 --replay

Token evaluations count everything that was fed. `of plain` is without the audit, which costs the same for any book;
with it, in brackets. `recall`: of the windows at tau of the full scan, those that were found, audit hits not counted.
`left out at tau` is what the audit bounds (95%) and, in brackets, what is true.

With `--replay`, only the full scan is made, and the stages choose from its rows, as they would from their own.

The texts: Alice, which the bundled model knows by heart; Gatsby, which it never saw; Frankenstein, of which it knows
passages of 127 tokens; Gatsby with planted passages of Alice; Sherlock Holmes and Pride and Prejudice, which are known
like Frankenstein; and one that mixes famous texts with new ones, for other models.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch

import rote
from benchmarks.planted import planted
from rote.analysis.refine import CLOSER, choice
from rote.models.base import BUNDLED_TEXT
from rote.store.stages import PLACES, Refined

BOOKS = Path("training/data/books")
TEXTS: dict[str, Callable[[], str]] = {
    "alice": lambda: BUNDLED_TEXT.read_text(encoding="utf-8"),
    "gatsby": lambda: (BOOKS / "gatsby.txt").read_text(encoding="utf-8"),
    "frankenstein": lambda: (BOOKS / "frankenstein.txt").read_text(encoding="utf-8"),
    "planted": planted,
    "sherlock": lambda: (BOOKS / "sherlock-holmes.txt").read_text(encoding="utf-8"),
    "pride": lambda: (BOOKS / "pride-and-prejudice.txt").read_text(encoding="utf-8"),
    "mixed": lambda: Path(__file__).with_name("mixed.txt").read_text(encoding="utf-8"),
}
PROCEDURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "stop early": {"stop_early": True},
    "in stages": {"refine": rote.Refine()},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*", metavar="TEXT", help=f"some of {', '.join(TEXTS)}; default: the first four")
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--suffix", type=int, default=50)
    parser.add_argument("--stride", type=int, default=10)
    parser.add_argument("--tau", type=float, default=1e-3)
    parser.add_argument("--replay", action="store_true", help="one full scan, and the stages of its rows")
    options = parser.parse_args()
    model = rote.load(options.model, rote.ModelOptions(device=options.device, dtype=options.dtype))
    identity = model.identity()
    print(f"{identity.title} in {identity.dtype} on {identity.device}, ", end="")
    print(f"torch {torch.__version__}, Python {platform.python_version()}, ", end="")
    cut = f"windows of 50 + {options.suffix} tokens, stride {options.stride}, tau {options.tau}"
    print(f"{os.cpu_count()} CPU cores; {cut}")
    print(
        "\n| text | procedure | windows scored | at tau | token evaluations | of plain (with audit) | recall ", end=""
    )
    print("| left out at tau | first headline, s | seconds |\n|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.texts or list(TEXTS)[:4]:
        truth: dict[str, float] = {}
        plain, text = 0, TEXTS[name]()
        for procedure, how in {"plain": {}}.items() if options.replay else PROCEDURES.items():
            with tempfile.TemporaryDirectory() as folder:
                ends, began = list[float](), time.perf_counter()
                run = rote.scan(
                    model, text, out=folder, windows=rote.Windows(suffix=options.suffix, stride=options.stride),
                    tau=options.tau, on_stage=partial(_note, ends), **how,
                )  # fmt: skip
                seconds = time.perf_counter() - began
                found, scored, evals, share, bound = told(run, options.tau)
            truth, plain = truth or found, plain or evals[0]
            if procedure == "stop early":
                assert found.keys() == truth.keys()
            apart = max((abs(found[key] - truth[key]) for key in found), default=0.0)
            assert apart <= 1e-3, apart
            recall = len(found) / len(truth) if truth else 1.0
            missed = f"{bound:.2%} ({(len(truth) - len(found)) / share:.3%})" if share else "-"
            costs = f"{evals[0] / plain:.1%}" + (f" ({sum(evals) / plain:.1%})" if len(evals) > 1 else "")
            print(
                f"| {name} | {procedure} | {scored:,} | {len(found):,} | {evals[0]:,} | {costs} | {recall:.2%} "
                f"| {missed} | {f'{ends[0] - began:.0f}' if ends else '-'} | {seconds:.0f} |",
                flush=True,
            )
            if options.replay:
                rows = replayed(run.scores, options.tau)
                hits = rows.filter(rows["example_id"].is_in(list(truth))).height
                cost = int(rows["token_evals"].sum())
                print(
                    f"| {name} | in stages, replayed | {rows.height:,} | {hits:,} | {cost:,} | {cost / plain:.1%} ",
                    end="",
                )
                print(f"| {hits / len(truth) if truth else 1.0:.2%} | | | |", flush=True)


def replayed(rows: pl.DataFrame, tau: float) -> pl.DataFrame:
    """The rows of a full scan that a scan in stages would have, without its audit."""
    refined = Refined(audit=0, audit_seed=0, windows=rows.height, closer=CLOSER)
    places, scored = rows.select(PLACES.names), rows.clear()
    for number in range(refined.closer + 1):
        starts = choice(places, scored, refined, tau, number)[1]
        stage = rows.filter(rows["start"].is_in(starts)).with_columns(stage=pl.lit(number, dtype=pl.Int16))
        scored = pl.concat([scored, stage]).sort("start")
    return scored


def _note(ends: list[float], run: rote.Run) -> None:
    """When a stage ended: its headline can be shown."""
    ends.append(time.perf_counter())


def told(run: rote.Run, tau: float) -> tuple[dict[str, float], int, list[int], int, float]:
    """Windows at tau with their log p_z, windows scored, token evaluations (and the audit's), left out, their bound."""
    rows = run.scores.filter(~run.scores["bounded"] & (run.scores["log_prob"] >= math.log(tau)))
    staged, audit = run.summary.staged, run.finished.numbers.audit
    if staged is not None and run.manifest.refined is not None:
        rows = rows.filter(rows["stage"] <= run.manifest.refined.closer)
    found = dict(zip(rows["example_id"], rows["log_prob"], strict=True))
    if staged is None:
        return found, run.scores.height, [int(run.scores["token_evals"].sum())], 0, 0.0
    evals = [staged.token_evals, staged.audit_token_evals]
    return found, staged.scored - staged.audited, evals, audit.left_out if audit else 0, audit.bound if audit else 0.0


if __name__ == "__main__":
    main()
