"""How fast an index is built and asked, and in how much memory, beside infini-gram's own builder and a plain scan.

    python -m benchmarks.index [--megabytes 100] [--queries 200] [--keep FOLDER]

The corpus: sentences of the texts in this repository (books, speeches, Alice), drawn at random with replacement into
documents of about 2,000 words, until their tokens (the bundled tokenizer's, two bytes each) take that many megabytes.
So sentences are repeated, about as often as the table says, and documents are not.

Peers, in the same run on the same token file: `infini_gram.indexing.build_sa` as it ships, with its default of a part
for each core; its engine's own answers, where it has one; and a scan of all tokens for the query's bytes in memory.
Memory is the sum of what this process and those it starts have resident, sampled every 20 ms, less what this process
had before.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from rote.corpus.index import CorpusIndex
from rote.corpus.readings import Reader
from rote.corpus.shards import Width
from rote.jobs.index.places import shown
from rote.models.tokenizer import load_tokenizer
from rote.store.index import StoredIndex, sort_tokens, write_tokens

ROOT = Path(__file__).parent.parent
WIDTH: Width = 2
BUILD_AS_IT_SHIPS = """
import os, sys
from argparse import Namespace
from infini_gram.indexing import build_sa
folder = sys.argv[1]
build_sa(Namespace(save_dir=folder, temp_dir=folder, worker_id=0, workers=1, shards=1, mem=int(sys.argv[2]),
    cpus=os.cpu_count(), token_width=2))
"""


def sentences() -> list[str]:
    texts = [ROOT / "src/rote/data/alice.txt", *sorted((ROOT / "training/data").rglob("*.txt"))]
    found = (re.split(r"(?<=[.!?])\s+", path.read_text(encoding="utf-8")) for path in texts)
    return [sentence for text in found for sentence in text if sentence.strip()]


def documents(pool: Sequence[str], reader: Reader, size: int) -> Iterator[tuple[dict[str, Any], Sequence[int]]]:
    """Documents until their tokens take `size` bytes."""
    rng, made, number = random.Random(0), 0, 0

    def texts() -> Iterator[str]:
        while True:
            parts: list[str] = []
            words = 0
            while words < 2000:
                parts.append(rng.choice(pool))
                words += parts[-1].count(" ") + 1
            yield " ".join(parts)

    for ids in reader.many(texts()):
        if made >= size:
            return
        made, number = made + WIDTH * (len(ids) + 1), number + 1
        yield {"path": "drawn", "linenum": number - 1, "metadata": {"id": f"drawn-{number}"}}, ids


# --- measuring


@dataclass
class Spent:
    """Seconds, and megabytes of memory at the most."""

    seconds: float = 0.0
    megabytes: float = 0.0


@contextmanager
def measured() -> Iterator[Spent]:
    spent, done, before = Spent(), threading.Event(), resident()

    def watch() -> None:
        while not done.wait(0.02):
            spent.megabytes = max(spent.megabytes, (resident() - before) / 1e6)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start = time.perf_counter()
    try:
        yield spent
    finally:
        spent.seconds = time.perf_counter() - start
        done.set()
        watcher.join()


def resident() -> int:
    """Of this process and all below it, in bytes."""
    parents, sizes = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(path.name)], sizes[int(path.name)] = int(fields[1]), int(fields[21])

    def below(process: int | None) -> bool:
        while process is not None and process != os.getpid():
            process = parents.get(process)
        return process is not None

    return sum(size for process, size in sizes.items() if below(process)) * os.sysconf("SC_PAGE_SIZE")


def microseconds(ask: Callable[[Any], object], queries: Sequence[Any]) -> float:
    """Of a query: the median, after one round."""
    took = []
    for round_ in range(2):
        for query in queries:
            start = time.perf_counter()
            ask(query)
            if round_:
                took.append(time.perf_counter() - start)
    return 1e6 * median(took)


# --- a plain scan


def scan(data: bytes, ids: Sequence[int]) -> list[int]:
    """Where the query's tokens stand, in tokens of the file."""
    query, found, at = np.array(ids, dtype="<u2").tobytes(), [], -1
    while (at := data.find(query, at + 1)) >= 0:
        if at % WIDTH == 0:
            found.append(at // WIDTH)
    return found


def scan_next(data: bytes, ids: Sequence[int]) -> dict[bytes, int]:
    counts: dict[bytes, int] = {}
    for place in scan(data, ids):
        end = (place + len(ids)) * WIDTH
        after = data[end : end + WIDTH]
        counts[after] = counts.get(after, 0) + 1
    return counts


# --- the table


def queries_of(index: CorpusIndex, length: int, number: int, seed: int) -> list[list[int]]:
    """So many tokens from anywhere in the corpus."""
    rng = random.Random(seed)
    found: list[list[int]] = []
    while len(found) < number:
        document = index.document(rng.randrange(index.documents))
        if len(document) > length:
            at = rng.randrange(len(document) - length)
            found.append(document[at : at + length].tolist())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=100, help="of tokens")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="folder to leave the index in")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="rote-index-"))
    try:
        run(folder, options.megabytes, options.queries)
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def run(folder: Path, megabytes: int, number: int) -> None:
    ours, theirs = folder / "rote", folder / "as-it-ships"
    for each in (ours, theirs):
        each.mkdir(parents=True)
    tokenizer, pool = load_tokenizer("bundled"), sentences()
    reader = Reader(tokenizer)
    texts = documents(pool, reader, megabytes * 10**6)
    with measured() as tokenising:
        shard = write_tokens(ours, 0, texts, WIDTH, 1 << 60)
    size = (ours / "tokenized.0").stat().st_size / 1e6
    with measured() as sorting:
        sort_tokens(ours, 0, WIDTH, shard)
    os.link(ours / "tokenized.0", theirs / "tokenized.0")
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**31
    with measured() as shipping:
        command = [sys.executable, "-c", BUILD_AS_IT_SHIPS, str(theirs), str(gigabytes)]
        subprocess.run(command, check=True, capture_output=True)
    same = (ours / "table.0").read_bytes() == (theirs / "table.0").read_bytes()
    mean = sum(map(len, reader.many(pool[:2000]))) / min(len(pool), 2000)
    print(
        f"{shard.documents:,} documents, {shard.tokens:,} tokens ({size:.0f} MB), of {len(pool):,} sentences of "
        f"{mean:.0f} tokens, each about {shard.tokens / mean / len(pool):.0f} times. "
        f"{os.cpu_count()} cores. The two tables are {'the same' if same else 'not the same'}.\n"
    )
    print("| building | seconds | MB of tokens a second | peak MB | bytes of memory a byte of tokens |")
    print("|---|---|---|---|---|")
    for name, spent in (
        ("rote: texts to token files", tokenising),
        ("rote: token files to tables (one part)", sorting),
        ("infini-gram's builder as it ships: the same", shipping),
    ):
        rate = f"{size / spent.seconds:.1f}"
        print(f"| {name} | {spent.seconds:.1f} | {rate} | {spent.megabytes:,.0f} | {spent.megabytes / size:.1f} |")
    del texts
    ask(ours, tokenizer, number)


def ask(folder: Path, tokenizer: Any, number: int) -> None:
    index = CorpusIndex(folder, "tokens", WIDTH, len(tokenizer))
    stored = StoredIndex(folder, index, None, "bundled", None)
    data = (folder / "tokenized.0").read_bytes()
    fifty, three = queries_of(index, 50, number, 1), queries_of(index, 3, number, 2)
    rng = random.Random(3)
    absent = [[*ids[:25], rng.randrange(1000), *ids[26:]] for ids in fifty]
    mixed = [a + b for a, b in zip(fifty, queries_of(index, 50, number, 4), strict=True)]
    _ = stored.tokenizer

    def placed(ids: list[int]) -> object:
        return [shown(stored, place, len(ids)) for place in index.places(ids, 10)]

    for ids in (*fifty[:20], *absent[:20], *three[:5]):
        assert index.count(ids) == len(scan(data, ids))
    engine, few = index.engine, max(1, number // 20)
    rows: list[tuple[str, Callable[[Any], object], Any, Any, list[list[int]]]] = [
        ("count of 50 tokens that stand there", index.count, engine.count, lambda ids: scan(data, ids), fifty),
        ("count of 50 tokens, one of them changed", index.count, engine.count, lambda ids: scan(data, ids), absent),
        ("what follows 3 tokens", index.following, engine.ntd, lambda ids: scan_next(data, ids), three),
        ("the first 10 places of 50 tokens, with their text", placed, None, lambda ids: scan(data, ids), fifty),
        ("the longest runs of a text of 100 tokens", index.longest, engine.creativity, None, mixed),
    ]
    print("\n| query, microseconds | rote | the engine's own | plain scan |\n|---|---|---|---|")
    for name, own, engines, plain, queries in rows:
        took = f"{microseconds(own, queries):,.0f}"
        other = "" if engines is None else f"{microseconds(engines, queries):,.0f}"
        scanned = "" if plain is None else f"{microseconds(plain, queries[:few]):,.0f}"
        print(f"| {name} | {took} | {other} | {scanned} |")


if __name__ == "__main__":
    main()
