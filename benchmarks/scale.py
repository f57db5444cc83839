"""Ten million rows through the store, without a model: written, gone on with, summed up, reported, drawn, exported.

    python -m benchmarks.scale --rows 100000 1000000 10000000

The rows are those of a scan: windows every --stride characters of a made-up text, 50 suffix tokens each with the
log-probs, ranks and margins of a model that knows some stretches of the text by heart. They are written by the very
functions that a scan writes its shards with. Every step is a process of its own, so that its peak is its own: what
`ru_maxrss` says at its end. Writing is killed once, in the middle, and gone on with.

"write" is the second half of the rows, after the kill; its rows a second are without making them up. "resume" is what a
run that has all of its shards does before it sums up. "finish" reads all rows, sums up and seals. "summary" (what a
terminal shows of a run), "report", "figures" and "export" each open the sealed folder anew, hold every file against its
seal and read the table once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import rote
from rote.extraction.verbatim import Verbatim
from rote.models.base import ModelIdentity
from rote.store.files import FORMAT, digest, locked
from rote.store.manifest import Manifest, ScannedWindows, Source, made_with
from rote.store.run import add_shard, begin, finish, has_shard
from rote.store.table import ShardFacts
from rote.tokens import Example

SHARD = 4096
TOKENS = 50
KINDS = 16
WORDS = ("the of and to a in that he was it his her with as had she for you not but at on be is him said my all which "
         "from they so no one there were them or when an by what if are up out little would very")  # fmt: skip
STEPS = ("write", "resume", "finish", "summary", "report", "figures", "export")
MODEL = ModelIdentity(
    name="made up", revision=None, trust_remote_code=False, fingerprint="00" * 32, hashed="whole", parameters=1_000_000,
    dtype="float32", device="cpu", compiled=False, tokenizer="00" * 32, bos="auto", bos_token=0, bos_text="<bos>",
)  # fmt: skip


@dataclass(frozen=True)
class Setup:
    """One run: so many rows, a window at every `stride` characters."""

    folder: Path
    rows: int
    stride: int

    @property
    def shards(self) -> int:
        return -(-self.rows // SHARD)

    def text(self) -> str:
        """Words in a random order, long enough for the last window."""
        random = np.random.default_rng(1)
        length = self.rows * self.stride + 500
        words = np.array(WORDS.split())
        return " ".join(words[random.integers(0, words.size, length // 3)])[:length]

    def manifest(self, text: str) -> Manifest:
        return Manifest(
            format=FORMAT,
            kind="scan",
            created="2026-01-01T00:00:00+00:00",
            source=Source(name="made up.txt", sha256=digest(text), characters=len(text)),
            model=MODEL,
            windows=ScannedWindows(prefix=50, suffix=TOKENS, stride=self.stride, unit="tokens"),
            dropped=0,
            schemes=["temperature=1 top_k=40"],
            tau=0.001,
            stop_early=False,
            batch_size="auto",
            batch_tokens=None,
            near=None,
            logit_tolerance=5e-4,
            shard_examples=SHARD,
            shards=self.shards,
            versions=made_with(),
        )


@cache
def said(kind: int) -> list[tuple[Verbatim, tuple[int, ...]]]:
    """What a made-up model says of a shard's windows, and where their tokens end; a run has KINDS such shards."""
    random = np.random.default_rng((2, kind))
    places = (kind + np.arange(SHARD) / SHARD) / KINDS
    # Mean loss per token: slow waves along the text, so that high and low stretches take turns.
    wave = np.sin(places * 2 * math.pi) + np.sin(places * 34 * math.pi) + np.sin(places * 402 * math.pi)
    loss = np.exp(-3.5 - 2.0 * wave[:, None]) * random.exponential(size=(SHARD, TOKENS)) + 1e-4
    base = (-loss).astype(np.float32)
    ranks = (1 + np.floor(loss * 4)).astype(np.int32)
    margins = random.normal(6, 3, size=base.shape).astype(np.float32)
    outside = ranks > 40
    margins[outside] = -np.abs(margins[outside])
    tokens = np.where(outside, -np.inf, base).astype(np.float32)
    log_probs = tokens.sum(axis=1, dtype=np.float64).tolist()
    greedy = (ranks == 1).all(axis=1).tolist()
    ends = np.cumsum(random.integers(1, 8, size=base.shape), axis=1).tolist()
    scheme = rote.Scheme(top_k=40)
    return [
        (
            Verbatim(
                "", scheme, log_probs[row], greedy[row], False, tokens[row], base[row], ranks[row], margins[row], 99
            ),
            tuple(ends[row]),
        )
        for row in range(SHARD)
    ]


def shard(setup: Setup, index: int) -> tuple[list[Example], list[Verbatim]]:
    """The windows of a shard with what is said of them; the same whenever they are made."""
    suffix = (0,) * TOKENS
    examples, results = [], []
    numbers = range(index * SHARD, min((index + 1) * SHARD, setup.rows))
    for number, (result, ends) in zip(numbers, said(index % KINDS), strict=False):
        start = number * setup.stride
        middle = start + 200
        examples.append(Example(f"w{start}", (0,), suffix, start, middle, middle + ends[-1], {}, ends))
        results.append(Verbatim(
            f"w{start}", result.scheme, result.log_prob, result.greedy, False, result.token_log_probs,
            result.base_log_probs, result.ranks, result.margins, 99,
        ))  # fmt: skip
    return examples, results


def write(setup: Setup, text: str | None = None, until: int | None = None) -> tuple[float, int]:
    """Write what is missing: the seconds that it took without making up the rows, and how many these were."""
    text, writing, rows = text or setup.text(), 0.0, 0
    with locked(setup.folder):
        begin(setup.folder, setup.manifest(text), content={"text.txt": text.encode()})
        for index in range(setup.shards):
            if has_shard(setup.folder, index):
                continue
            if index == until:  # as if the machine went away
                os.kill(os.getpid(), signal.SIGKILL)
            examples, results = shard(setup, index)
            began = time.perf_counter()
            add_shard(setup.folder, index, examples, results, ShardFacts(1.0, []))
            writing, rows = writing + time.perf_counter() - began, rows + len(results)
    return writing, rows


def step(name: str, setup: Setup) -> tuple[float, int] | None:
    """One step; of writing and resuming, its own seconds and rows: making up rows and text is no part of these."""
    folder = setup.folder
    if name == "killed":
        return write(setup, until=setup.shards // 2)
    if name == "write":
        return write(setup)
    if name == "resume":
        text = setup.text()
        began = time.perf_counter()
        write(setup, text)
        return time.perf_counter() - began, setup.rows
    if name == "finish":
        finish(folder, rote.Run(folder).summed_up())
    elif name == "summary":
        from rich.console import Console

        from rote.cli.screen import print_summary

        with (folder / "screen.txt").open("w") as file:
            print_summary(rote.Run.open(folder), Console(file=file))
    elif name == "report":
        rote.open(folder).report()
    elif name == "figures":
        rote.open(folder).figures()
    elif name == "export":
        rote.open(folder).export("parquet", out=folder / "export.parquet")
    return None


def measured(name: str, setup: Setup) -> dict[str, Any]:
    """A step in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.scale", "--folder", str(setup.folder), "--rows", str(setup.rows)]
    done = subprocess.run(
        [*words, "--stride", str(setup.stride), "--step", name],
        stdout=subprocess.PIPE,
        text=True,
        check=name != "killed",
    )
    return json.loads(done.stdout) if name != "killed" else {}


def run_step(name: str, setup: Setup) -> None:
    import_module("rote.jobs.open")  # what every command imports is no part of what it takes
    began, cpu = time.perf_counter(), time.process_time()
    own = step(name, setup)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({
        "seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "own": own, "peak": used / 2**20,
    }))  # fmt: skip


def size(*paths: Path) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())


def table(folder: Path, every: Sequence[int], stride: int, steps: Sequence[str], keep: bool) -> None:
    print("| rows | step | seconds | of CPU | rows a second | peak GiB |\n|---|---|---|---|---|---|", flush=True)
    said = []
    for rows in every:
        setup = Setup(folder / str(rows), rows, stride)
        for name in steps:
            if name == "write" and not has_shard(setup.folder, 0):
                measured("killed", setup)
            took = measured(name, setup)
            seconds, done = took["own"] or (took["seconds"], rows)
            rate = f"{done / max(seconds, 0.001):,.0f}"
            print(
                f"| {rows:,} | {name} | {seconds:.1f} | {took['cpu']:.1f} | {rate} | {took['peak']:.2f} |",
                flush=True,
            )
        shards = sorted((setup.folder / "scores").glob("*.parquet"))
        page = size(setup.folder / "report.html") / 1e6
        said.append(f"{rows:,} rows: {size(*shards) / 1e6:,.0f} MB in {len(shards):,} shards, "
                    f"{size(*shards) / rows:.0f} bytes a row; page {page:.1f} MB")  # fmt: skip
        if not keep:
            shutil.rmtree(setup.folder)
    print("\n" + "\n".join(said))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    arguments.add_argument("--stride", type=int, default=3, help="characters from window to window")
    arguments.add_argument("--folder", type=Path, default=Path("scale"))
    arguments.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    arguments.add_argument("--keep", action="store_true", help="do not delete the folders afterwards")
    arguments.add_argument("--step", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.step:
        return run_step(given.step, Setup(given.folder, given.rows[0], given.stride))
    given.folder.mkdir(parents=True, exist_ok=True)
    return table(given.folder, given.rows, given.stride, given.steps, given.keep)


if __name__ == "__main__":
    main()
