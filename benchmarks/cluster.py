"""What Ray costs: the same scan by the local engine and by workers of a cluster on this machine.

    python -m benchmarks.cluster

The first table is of many small shards of a tiny amount of work, so that what is left over for each is Ray's: sending,
waiting, receiving. The second is of larger shards, by one and by two workers, each with one thread:
seconds of one worker over seconds of two is how it scales. Best of three; loading and starting are not counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rote
from rote.corpus.windows import Windows
from rote.jobs.shards import Scoring, score_shard
from rote.models.base import BUNDLED_TEXT

ALONE = rote.ModelOptions(device="cpu", threads=1)


def shards(model: Any, size: int, count: int) -> dict[int, tuple[list[rote.Example], Scoring]]:
    """So many shards of a book's windows."""
    text = BUNDLED_TEXT.read_text(encoding="utf-8")
    cut = rote.windows(text, model.tokenizer, Windows(stride=20))
    scoring = Scoring([rote.Scheme()], 1e-3, False, None, "auto")
    return {number: (cut[number * size : (number + 1) * size], scoring) for number in range(count)}


def stored(folder: Path, made: Any) -> int:
    """Takes shards as they come, and writes each; how many bytes that were."""
    total = 0
    for number, shard in made:
        (folder / f"{number}.parquet").write_bytes(shard.content)
        total += len(shard.content)
    return total


def best(work: Any, times: int) -> tuple[float, int]:
    """The fewest seconds of several tries, and what it gave."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        given = work()
        taken.append(time.perf_counter() - began)
    return min(taken), given


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=24)
    parser.add_argument("--small", type=int, default=1, help="Examples in a small shard.")
    parser.add_argument("--large", type=int, default=64, help="Examples in a large one.")
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args(arguments)
    here = rote.load("bundled", ALONE)
    print("| shards | engine | seconds | ms a shard | of local | bytes a shard |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as out:
        by_engine: dict[int, float] = {}
        for workers in (0, 1, 2):
            model = rote.load_on(rote.Engine("ray", "local", workers), "bundled", ALONE) if workers else here
            while workers and len(model.workers) < workers:  # type: ignore[union-attr]
                list(model.work(abs_of, {number: (number,) for number in range(workers)}))  # type: ignore[union-attr]
            for size in (asked.small, asked.large):
                tasks = shards(here, size, asked.shards)

                def work(model: Any = model, tasks: Any = tasks, local: bool = not workers) -> int:
                    made = ((n, score_shard(model, *task)) for n, task in tasks.items())
                    return stored(Path(out), made if local else model.work(score_shard, tasks))

                seconds, given = best(work, asked.times)
                local = by_engine.setdefault(size, seconds)
                name = f"ray, {workers} worker{'s' * (workers > 1)}" if workers else "local"
                print(
                    f"| {asked.shards} of {size} | {name} | {seconds:.2f} | {seconds / asked.shards * 1e3:.1f} | "
                    f"{seconds / local:.2f} | {given // asked.shards:,} |",
                    flush=True,
                )
            if workers:
                model.close()  # type: ignore[union-attr]


def abs_of(model: Any, number: int) -> int:
    """Next to nothing: what is sent to see who is there."""
    return abs(number)


if __name__ == "__main__":
    main()
