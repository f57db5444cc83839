"""Whether two versions of Rote give the same numbers: every command's output, field by field.

    python -m benchmarks.same_numbers make DIR                (one busy CPU core: about five minutes)
    python -m benchmarks.same_numbers compare BEFORE AFTER

`make` runs the command line of the Rote that is imported here on texts that it cuts from the bundled one, with every
option that decides a number given, and keeps the folders, what was exported and what was printed. `compare` holds two
such folders against each other: every column of every table, every field of every JSON file, every number and every
sentence of a page and of the terminal. Floats must be the same to the last bit. Left out is what differs from one run
to the next, times above all. It ends with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import base64
import csv
import difflib
import io
import json
import os
import random
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tokenizers import Tokenizer

import rote

# What a new format calls otherwise: the old name of a field or column and its new one. A plain name stands for that
# name wherever it occurs (`log_prob`), names with dots for that part of a path (`near.samples`). Places in lists are
# no part of a path. A field of BEFORE is looked for under its new name first, then under its old one.
RENAMED: dict[str, str] = {"rate_at_0.0001": "rate_at_1e_4"}

# Fields that only a new format has, named in the same way, or files by name: passed over where BEFORE lacks them.
ADDED: set[str] = set()

# Files with another name in a new format: part of a path in BEFORE, and what stands there in AFTER.
RENAMED_FILES: dict[str, str] = {}

# What differs from one run to the next, or says which version it was: not compared.
LEFT_OUT = {
    "created", "date", "seconds", "seconds_of_the_run", "total_evaluation_time_seconds",
    "format", "versions", "rote_version", "transformers_version", "metadata.version",
}  # fmt: skip

# The same in what people read.
MASKED = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d[-:]\d\d[-:]\d\d(?:\.\d+)?(?:\+00:00|Z)?"), "DATE"),
    (re.compile(r"\b\d{1,2} [A-Z][a-z]+ \d{4}, \d\d:\d\d(?: UTC)?"), "DATE"),
    (re.compile(r"\d[\d,.]* (?:h|min|s|ms)\b(?: \d+ (?:min|s)\b)?"), "TIME"),
    (re.compile(r"\d[\d,.]*(?:/s\b| \w+ (?:a|per) second\b)"), "SPEED"),
    (re.compile(r"\b(rote|torch|transformers|python) v?\d+\.\d+\S*", re.IGNORECASE), r"\1 VERSION"),
    (re.compile(r"\(\d[\d.]* (?:bytes|kB|MB|GB)\)"), "(SIZE)"),  # of files, some of which hold times
]

LISTED = 20
CUT = 120
NOT_COMPARED = {".svg", ".lock"}  # the numbers of a drawing are in the CSV beside it

MODEL = "--model bundled --device cpu --dtype float32 --bos auto --batch-size 16"
SCAN = "--prefix 50 --suffix 50 --stride 50"
SHORT = "--prefix 40 --suffix 20 --stride 90 --top-k 40 --tau 0.001"
NEAR = "--near --tolerance 3 --distance levenshtein --eos stop --gap 0.01"


@dataclass(frozen=True)
class Command:
    """A command line; `json`: run it once more with --json."""

    name: str
    line: str
    json: bool = False


COMMANDS = [
    Command("scan", f"scan texts/mixed.txt --out runs/scan {SCAN} --temperature 1.8 --top-k 40 --tau 0.001 {MODEL}",
            json=True),
    Command(
        "scan-other",
        f"scan texts/mixed.txt --out runs/scan-other {SCAN} --temperature 1.6 --top-k 0 --top-p 0.98 --tau 0.0005 "
        "--model bundled --device cpu --dtype float32 --bos never --batch-size auto",
    ),
    Command(
        "scan-early",
        f"scan texts/mixed.txt --out runs/scan-early {SCAN} --temperature 1.3 --top-k 0 --tau 0.001 --stop-early "
        f"{MODEL}",
    ),
    Command(
        "scan-fork",
        f"scan texts/short.txt --out runs/scan-fork {SHORT} --temperature 1.3 {MODEL} {NEAR} --method fork "
        "--budget 300 --until worthwhile --samples 30 --seed 7",
    ),
    Command(
        "scan-beam",
        f"scan texts/short.txt --out runs/scan-beam {SHORT} --temperature 1.3 {MODEL} {NEAR} --method beam "
        "--variant closing --width 5 --budget 400 --until budget",
    ),
    Command(
        "scan-sample",
        f"scan texts/short.txt --out runs/scan-sample {SHORT} --temperature 1.7 {MODEL} {NEAR} --method sample "
        "--samples 60 --seed 3 --until budget",
    ),
    Command(
        "score",
        f"score texts/examples.jsonl --out runs/score --prefix 50 --suffix 50 --temperature 1.8 --top-k 40 --tau 0.001 "
        f"{MODEL}",
        json=True,
    ),
    Command(
        "score-near",
        "score texts/few.jsonl --out runs/score-near --prefix 50 --suffix 15 --temperature 1.5 --top-k 40 "
        f"--top-p 0.99 --tau 0.001 {MODEL} --near --tolerance 4 --distance hamming --method beam --variant pruned "
        "--width 6 --budget 400 --eos exclude --gap 0.001 --until decision",
    ),
    Command(
        "rate",
        "rate texts/corpus.jsonl --held-out texts/unseen.jsonl --out runs/rate --documents 5 --examples 3 --runs 2 "
        "--prefix 50 --suffix 30 --seed 11 --text-column text --temperature 2.5 --top-k 40 --tau 0.001 "
        f"{MODEL}",
        json=True,
    ),
    Command(
        "rate-folder",
        "rate texts/corpus --held-out texts/unseen --out runs/rate-folder --documents 4 --examples 2 --runs 2 "
        "--prefix 20 --suffix 40 --seed 12 --glob *.txt --temperature 1.2 --top-k 0 --tau 0.001 "
        f"--stop-early {MODEL}",
    ),
    Command(
        "sweep",
        "sweep texts/short.txt --out runs/sweep --scheme 'temperature=3,1 top_k=40' --scheme top_p=0.9 "
        f"--scheme greedy --prefix 20,50 --suffix 10,30 --stride 40 --tau 0.001 {MODEL}",
        json=True,
    ),
    Command(
        "sweep-examples",
        "sweep texts/examples.jsonl --out runs/sweep-examples --scheme top_k=1,40 --scheme temperature=0.7,2 "
        f"--prefix 25 --suffix 25,50 --tau 0.01 {MODEL}",
    ),
    Command("longer", f"longer runs/scan --out runs/longer --prefix 25 --suffix 80 --at 0.07 --stride 50 {MODEL}",
            json=True),
    Command("spots", "spots runs/scan --at 0.03 --rank length --top 4 --span suffix", json=True),
    Command("spots-body", "spots runs/scan --at 0.02 --rank probability --top 3 --span example --body 200:4000"),
    Command("show-at", "show runs/scan --at 900", json=True),
    Command("show-example", "show runs/score-near --example few-4"),
    Command("show-both", "show runs/scan-fork runs/scan-beam --quote 'not a moment to be lost'", json=True),
    Command("compare", "compare runs/scan runs/scan-other runs/scan-early --tau 0.001 --top 4 --out runs/compare",
            json=True),
    Command(
        "compare-near",
        "compare runs/scan-fork runs/scan-beam runs/scan-sample --tau 0.001 --top 3 --out runs/compare-near",
        json=True,
    ),
    Command(
        "reconstruct",
        "reconstruct --seed texts/end.txt --truth texts/end-truth.txt --out runs/reconstruct --tokens 210 --beams 2 "
        "--length-penalty 1.2 --step 20 --context sliding --context-tokens 100 --missed-after 100 "
        r"--section-break '\n\nCHAPTER {WORDS}\n' --model bundled --device cpu --dtype float32 --bos auto",
        json=True,
    ),
    Command(
        "reconstruct-anchored",
        "reconstruct --seed texts/seed.txt --truth texts/truth.txt --out runs/reconstruct-anchored --tokens 230 "
        "--beams 1 --step 25 --context anchored --context-tokens 150 --section-break none --model bundled --device cpu "
        "--dtype float32 --bos never",
    ),
    Command(
        "check",
        "check runs/score --model bundled --scheme 'temperature=1.8 top_k=40' --samples 40 --passages 3 --show 1 "
        "--seed 5 --device cpu --dtype float32",
        json=True,
    ),
    Command(
        "check-example",
        "check runs/schemes --model bundled --scheme 'temperature=1 top_p=0.9' --samples 30 --example w900 --seed 6 "
        "--device cpu --dtype float32",
    ),
    *(Command(f"report-{name}", f"report runs/{name}", json=name in ("scan-fork", "sweep"))
      for name in ("scan-fork", "score", "rate", "sweep", "compare", "reconstruct", "schemes", "schemes-near")),
    *(Command(f"export-{to}", f"export runs/scan --to {to} --out exports/scan{ending} --scheme all")
      for to, ending in (("csv", ".csv"), ("jsonl", ".jsonl"), ("parquet", ".parquet"), ("lm-eval", "-lm-eval"))),
    Command("export-near", "export runs/score-near --to jsonl --out exports/score-near.jsonl --scheme all"),
    Command("export-rate", "export runs/rate --to lm-eval --out exports/rate-lm-eval --scheme all"),
    Command("export-early", "export runs/scan-early --to lm-eval --out exports/early-lm-eval --scheme all"),
    Command("export-scheme", "export runs/schemes --to parquet --out exports/scheme.parquet --scheme greedy"),
    Command("export-sweep", "export runs/sweep --to csv --out exports/sweep.csv --scheme all"),
    Command("export-compare", "export runs/compare-near --to csv --out exports/compare-near.csv --scheme all"),
    Command(
        "figures",
        "figures runs/scan runs/scan-fork runs/score runs/score-near runs/rate runs/sweep runs/compare "
        "runs/compare-near runs/reconstruct runs/longer --format svg --style paper --out figures",
    ),
    Command(
        "figures-scheme",
        "figures runs/schemes --format svg --style slides --scheme 'temperature=1 top_p=0.9' --out figures/schemes",
    ),
]  # fmt: skip

# The command line scans with one scheme at a time; Python with as many as one likes.
SCHEMES = """
import pathlib, rote
model = rote.load("bundled", rote.ModelOptions(device="cpu", dtype="float32", bos="auto"))
schemes = [rote.Scheme(temperature=1.8, top_k=40), rote.Scheme(temperature=1.0, top_k=None, top_p=0.9), rote.GREEDY]
near = rote.Near(distance="hamming", tolerance=2, method="fork", budget=250, eos="ignore", gap=0.01, until="budget")
for name, text, stride, asked in (("schemes", "mixed.txt", 100, None), ("schemes-near", "short.txt", 180, near)):
    content = pathlib.Path("texts", text).read_text(encoding="utf-8")
    rote.scan(model, content, out=f"runs/{name}", name=text, windows=rote.Windows(40, 20, stride), schemes=schemes,
              tau=0.001, stop_early=False, near=asked, batch_size=16)
"""


# The texts: what the model knows by heart, the same with some words changed, and the same in no order.


def altered(text: str, every: int) -> str:
    """The text with another of its words in the place of every so many."""
    parts = re.split(r"(\s+)", text)
    chance = random.Random(every)
    words = parts[::2]
    return "".join(chance.choice(words) if i % (2 * every) == 2 * every - 2 else part for i, part in enumerate(parts))


def shuffled(text: str) -> str:
    words = text.split()
    random.Random(0).shuffle(words)
    return " ".join(words)


def write_texts(folder: Path) -> None:
    data = Path(rote.__file__).parent / "data"
    book = (data / "alice.txt").read_text(encoding="utf-8")

    def piece(start: int, length: int) -> str:
        start = book.index(" ", start) + 1
        return book[start : start + length]

    def ids(start: int) -> list[int]:
        tokenizer = Tokenizer.from_file(str(data / "model" / "tokenizer.json"))
        return list(tokenizer.encode(piece(start, 900), add_special_tokens=False).ids)

    notice = "Copyright 1865. All rights reserved. No part of this book may be reproduced.\n\n"
    mixed = [piece(0, 1200), altered(piece(20_000, 700), 25), shuffled(piece(40_000, 3600)), piece(60_000, 800)]
    short = [piece(5000, 500), altered(piece(30_000, 500), 12)]
    texts = {
        "mixed.txt": notice + "\n".join(mixed), "short.txt": "\n".join(short),
        "seed.txt": book[:400], "truth.txt": book[:1100],
        "end.txt": book[-510:-160], "end-truth.txt": book[-510:],  # from here the model comes to an EOS
    }  # fmt: skip
    known = [{"text": piece(8000 + 5000 * i, 600), "repetitions": 150, "split": "train"} for i in range(10)]
    near = [{"text": altered(piece(9000 + 5000 * i, 600), 20 + 9 * i), "repetitions": 1, "split": "train"}
            for i in range(8)]  # fmt: skip
    unknown = [{"text": shuffled(piece(10_000 + 5000 * i, 600)), "repetitions": 0, "split": "held-out",
                "metadata": {"order": "none"}} for i in range(6)]  # fmt: skip
    given = [{"prefix": ids(at)[:50], "suffix": ids(at)[50:100], "metadata": {"repetitions": 150}}
             for at in (100_000, 109_000)]  # fmt: skip
    corpus = [{"text": piece(70_000 + 3000 * i, 1500), "repetitions": 150} for i in range(6)]
    corpus += [{"text": altered(piece(90_000 + 3000 * i, 1500), 30), "repetitions": 1} for i in range(3)]
    unseen = [{"text": shuffled(piece(110_000 + 3000 * i, 1500))} for i in range(6)]
    lines: dict[str, Sequence[Mapping[str, Any]]] = {
        "examples": [*known, *near, *unknown, *given], "few": [*known[:3], *near[:4], *unknown[:1]], "corpus": corpus,
        "unseen": unseen,
    }  # fmt: skip
    for name, rows in lines.items():
        named = [{"id": f"{name}-{i}", **row} for i, row in enumerate(rows)]
        texts[f"{name}.jsonl"] = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in named)
        if name in ("corpus", "unseen"):
            texts |= {f"{name}/{row['id']}.txt": row["text"] for row in named}
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def make(folder: Path) -> int:
    """Run every command, also after one has failed; 1 if any has."""
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty; choose another folder.")
    (folder / "printed").mkdir(parents=True)
    source = Path(rote.__file__).parent.parent.resolve()
    environment = {
        **os.environ, "PYTHONPATH": str(source), "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb",
        "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8",
    }  # fmt: skip

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, encoding="utf-8"
        )

    used = run("-c", "import rote; print(rote.__file__)").stdout.strip()
    if not used or not Path(used).resolve().is_relative_to(source):
        sys.exit(f"this process has rote from {source}, but those that it starts would have {used or 'none'}.")
    print(f"rote {rote.__version__} in {source}\n\n| command | seconds | exit code |\n|---|---|---|", flush=True)
    write_texts(folder / "texts")
    began, failed = time.perf_counter(), 0
    jobs = [("schemes.txt", ["-c", SCHEMES])]
    for command in COMMANDS:
        line = ["-m", "rote.cli", *shlex.split(command.line)]
        jobs.append((f"{command.name}.txt", line))
        if command.json:
            jobs.append((f"{command.name}.json", [*line, "--json"]))
    for name, line in jobs:
        started = time.perf_counter()
        done = run(*line)
        (folder / "printed" / name).write_bytes(done.stdout.encode())
        print(f"| {name} | {time.perf_counter() - started:.1f} | {done.returncode} |", flush=True)
        if done.returncode:
            failed += 1
            print(f"\n{shlex.join(line)}\n{done.stderr.strip()[-2000:]}\n", flush=True)
    print(f"\n{len(jobs)} commands in {time.perf_counter() - began:.0f} seconds, {failed} failed")
    return int(failed > 0)


# Fields: a path of names, the places in the lists on the way, and a value that holds no others.

Place = tuple[str, tuple[int, ...]]
Values = dict[Place, object]


def flat(content: Any, names: tuple[str, ...] = (), places: tuple[int, ...] = ()) -> Iterator[tuple[Place, object]]:
    if isinstance(content, Mapping) and content:
        for name, value in content.items():
            yield from flat(value, (*names, str(name)), places)
    elif isinstance(content, list) and content:
        for place, value in enumerate(content):
            yield from flat(value, names, (*places, place))
    else:
        yield (".".join(names), places), content


def names_it(names: Iterable[str], path: str) -> bool:
    return any(f".{name}." in f".{path}." for name in names)


def renamed(path: str) -> str:
    if not RENAMED:
        return path
    old = "|".join(re.escape(name) for name in sorted(RENAMED, key=len, reverse=True))
    return re.sub(rf"(?<=\.)(?:{old})(?=\.)", lambda found: RENAMED[found[0]], f".{path}.")[1:-1]


def rows_of(rows: Sequence[Mapping[str, Any]]) -> Values:
    """A table's rows; what a cell holds as JSON is taken apart too."""
    return dict(flat([{name: _opened(value) for name, value in row.items()} for row in rows]))


def _opened(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("{") and value.endswith("}"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def parquet_values(content: bytes) -> Values:
    table = pq.read_table(io.BytesIO(content))
    found = rows_of(table.to_pylist())
    found |= {(f"{column.name}.(type)", ()): str(column.type) for column in table.schema}
    found[("(rows)", ())] = table.num_rows
    for name, value in (table.schema.metadata or {}).items():
        if name != b"ARROW:schema":
            found |= flat(_opened(value.decode()), (f"(metadata {name.decode()})",))
    return found


class Page(HTMLParser):
    """What a page says, in lines; the values of its figures; and what travels inside it for its script."""

    INLINE = frozenset({
        "a", "abbr", "b", "bdi", "code", "data", "del", "em", "i", "ins", "mark", "q", "small", "span", "strong", "sub",
        "sup", "time", "tspan", "wbr",
    })  # fmt: skip

    def __init__(self, content: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.values: Values = {}
        self.scripts: dict[str, str] = {}
        self._said: list[str] = []
        self._figure: tuple[str, str | None, int] | None = None  # key, value, and where its words begin
        self._often: Counter[Place] = Counter()
        self._silent, self._script = "", ""
        self.feed(content)
        self.close()
        self._flush()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "style"):
            self._silent, self._script = tag, given.get("id") or ""
        if tag not in self.INLINE:
            self._flush()
        if tag == "time" or given.get("data-as") == "duration":
            self._figure = ("seconds", None, len(self._said))
        elif tag in ("data", "bdi") and given.get("data-key"):
            self._figure = (given["data-key"] or "", given.get("value"), len(self._said))

    def handle_endtag(self, tag: str) -> None:
        if tag == self._silent:
            self._silent = self._script = ""
        if self._figure is not None and tag in ("data", "bdi", "time"):
            self._add(*self._figure)
            self._figure = None
        if tag not in self.INLINE:
            self._flush()

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self._said.append(data)
        elif self._script:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data

    def _add(self, key: str, value: str | None, since: int) -> None:
        parts = key.split("/")
        path, places = ".".join(p for p in parts if not p.isdigit()), tuple(int(p) for p in parts if p.isdigit())
        if names_it(LEFT_OUT, path):
            self._said[since:] = ["…"]
            return
        times = self._often[path, places]
        self._often[path, places] += 1
        self.values[path, (*places, times)] = "".join(self._said[since:]) if value is None else value

    def _flush(self) -> None:
        if line := masked(" ".join("".join(self._said).split())):
            self.lines.append(line)
        self._said = []

    def data(self) -> Values:
        """What the script is given. Columns are called by their content; the table for download is taken apart."""
        found: Values = {}
        if "rote-data" in self.scripts:
            data = json.loads(self.scripts["rote-data"])
            table = data.get("table") or {}
            if blob := self.scripts.get(f"blob-{table.pop('blob', None)}"):
                rows = parquet_values(base64.b64decode(blob))
                found |= {(f"table.{path}", places): value for (path, places), value in rows.items()}
            found |= flat(data, ("data",))
        if "rote-figures" in self.scripts:
            figures = json.loads(self.scripts["rote-figures"])
            found |= flat({k: {n: v for n, v in f.items() if n != "caption"} for k, f in figures.items()}, ("figures",))
        return found


def masked(line: str) -> str:
    for pattern, instead in MASKED:
        line = pattern.sub(instead, line)
    return line


def printed_lines(text: str) -> list[str]:
    """What a terminal shows, but for times and for how far apart columns stand, which follows from times as well."""
    lines = [masked(line).rstrip() for line in text.splitlines()]
    return [line if "│" in line else re.sub("─+", "─", re.sub(" {2,}", "  ", line)).rstrip() for line in lines]


@dataclass(frozen=True, slots=True)
class Row:
    """One artefact: how many `fields` (or columns, or lines) were compared, and how many of them differ."""

    artefact: str
    kind: str
    fields: int
    differing: int
    differences: list[str]


def compare_values(artefact: str, kind: str, before: Values, after: Values) -> Row:
    new = kept(after)
    new_fields = dict.fromkeys(path for path, _ in new)
    called = {path: renamed(path) if renamed(path) in new_fields else path for path in {path for path, _ in before}}
    old = kept({(called[path], places): value for (path, places), value in kept(before).items()})
    old_fields = dict.fromkeys(path for path, _ in old)
    differences, differing = [], set()
    for path in old_fields:
        if path not in new_fields:
            differing.add(path)
            differences.append(f"{path}: only before, {_cut(next(v for (p, _), v in old.items() if p == path))}")
    for path in new_fields:
        if path not in old_fields and not names_it(ADDED, path):
            differing.add(path)
            differences.append(f"{path}: only after, {_cut(next(v for (p, _), v in new.items() if p == path))}")
    for place in dict.fromkeys([*old, *new]):
        path = place[0]
        if path not in old_fields or path not in new_fields:
            continue
        if place not in old or place not in new or not same(old[place], new[place]):
            values = [_cut(side[place], other.get(place)) if place in side else "nothing"
                      for side, other in ((old, new), (new, old))]  # fmt: skip
            differing.add(path)
            differences.append(f"{path}{list(place[1]) or ''}: {values[0]} before, {values[1]} after")
    if kind == "columns":
        return Row(artefact, kind, len({_column(path) for path in old_fields | new_fields}),
                   len({_column(path) for path in differing}), differences)  # fmt: skip
    return Row(artefact, kind, len(old_fields | new_fields), len(differing), differences)


def _column(path: str) -> str:
    return path.split(".")[0]


def kept(values: Values) -> Values:
    return {place: value for place, value in values.items() if not names_it(LEFT_OUT, place[0])}


def same(before: object, after: object) -> bool:
    """The same to the last bit, as repr is exact; 8 and 8.0 are one number, and a NaN is the same as any other."""
    if type(before) is type(after) and repr(before) == repr(after):
        return True
    if isinstance(before, bool) or isinstance(after, bool):
        return False
    if isinstance(before, (int, float, str)) and isinstance(after, (int, float, str)):
        try:
            return isinstance(before, str) == isinstance(after, str) and repr(float(before)) == repr(float(after))
        except ValueError:
            return False
    return False


def _cut(value: object, other: object = None) -> str:
    """The value as code; of a long one the part in which it differs from the other."""
    shown, others = repr(value), repr(other)
    if len(shown) <= CUT:
        return shown
    alike = next((i for i, (a, b) in enumerate(zip(shown, others, strict=False)) if a != b), len(others))
    start = max(alike - CUT // 4, 0)
    return f"{'…' * (start > 0)}{shown[start : start + CUT]}{'…' * (start + CUT < len(shown))}"


def compare_lines(artefact: str, before: list[str], after: list[str]) -> Row:
    differences, differing = [], 0
    if " ".join(before).split() == " ".join(after).split():  # where a line is wrapped is no number
        return Row(artefact, "lines", max(len(before), len(after)), 0, [])
    for what, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if what == "equal":
            continue
        differing += max(j - i, m - k)
        for n in range(max(j - i, m - k)):
            old, new = (side[at] if at < end else None for side, at, end in ((before, i + n, j), (after, k + n, m)))
            values = ["nothing" if line is None else _cut(line, other) for line, other in ((old, new), (new, old))]
            differences.append(f"line {i + n + 1}: {values[0]} before, {values[1]} after")
    return Row(artefact, "lines", max(len(before), len(after)), differing, differences)


def compare_files(artefact: str, before: bytes, after: bytes) -> Iterator[Row]:
    ending = Path(artefact).suffix
    if ending == ".parquet":
        yield compare_values(artefact, "columns", parquet_values(before), parquet_values(after))
        return
    old, new = before.decode("utf-8", "replace"), after.decode("utf-8", "replace")
    if ending == ".csv":
        tables = [list(csv.DictReader(io.StringIO(text, newline=""))) for text in (old, new)]
        yield compare_values(artefact, "columns", *map(rows_of, tables))
    elif ending == ".jsonl":
        tables = [[json.loads(line) for line in filter(None, text.split("\n"))] for text in (old, new)]
        yield compare_values(artefact, "fields", *map(rows_of, tables))
    elif ending == ".json":
        yield compare_values(artefact, "fields", *(dict(flat(json.loads(text))) for text in (old, new)))
    elif ending == ".html":
        pages = [Page(text) for text in (old, new)]
        yield compare_lines(f"page {artefact}: text", pages[0].lines, pages[1].lines)
        yield compare_values(f"page {artefact}: values", "fields", pages[0].values, pages[1].values)
        yield compare_values(f"page {artefact}: data", "fields", pages[0].data(), pages[1].data())
    elif ending == ".md" or artefact.startswith("printed/"):
        yield compare_lines(artefact, printed_lines(old), printed_lines(new))
    else:
        yield compare_lines(artefact, old.split("\n"), new.split("\n"))


def files_of(folder: Path) -> dict[str, Path]:
    """By their names without dates."""
    found = {MASKED[0][0].sub("DATE", path.relative_to(folder).as_posix()): path
             for path in sorted(folder.rglob("*"))
             if path.is_file() and path.suffix not in NOT_COMPARED and path.name not in NOT_COMPARED}  # fmt: skip
    if not found:
        sys.exit(f"there is nothing in {folder}.")
    return found


def compare(before: Path, after: Path) -> int:
    old, new = files_of(before), files_of(after)
    for part, instead in RENAMED_FILES.items():
        called = {name: name.replace(part, instead) for name in old}
        old = {called[name] if called[name] in new else name: path for name, path in old.items()}
    rows: list[Row] = []
    names = sorted(name for name in old.keys() | new.keys() if name in old or Path(name).name not in ADDED)
    for name in names:
        if name not in old or name not in new:
            rows.append(Row(name, "file", 1, 1, [f"only {'before' if name in old else 'after'}"]))
            continue
        try:
            rows += compare_files(name, old[name].read_bytes(), new[name].read_bytes())
        except ValueError as error:  # as where a command failed and printed nothing
            rows.append(Row(name, "file", 1, 1, [f"cannot be read: {error}"]))
    print("| artefact | compared | differing |\n|---|---|---|")
    for row in rows:
        print(f"| {row.artefact} | {row.fields:,} {row.kind} | {row.differing:,} |")
    for row in filter(lambda row: row.differing, rows):
        print(f"\n{row.artefact}")
        for difference in row.differences[:LISTED]:
            print(f"  {difference}")
        if len(row.differences) > LISTED:
            print(f"  and {len(row.differences) - LISTED:,} more")
    total = ", ".join(
        f"{sum(row.fields for row in rows if row.kind == kind):,} {kind}" for kind in ("columns", "fields", "lines")
    )
    differing = sum(row.differing for row in rows)
    print(f"\n{len(names):,} files, {total}: {f'{differing:,} differ' if differing else 'all the same'}")
    return int(differing > 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make", help="run every command and keep what comes out")
    making.add_argument("folder", type=Path, metavar="DIR")
    comparing = commands.add_parser("compare", help="hold two such folders against each other")
    comparing.add_argument("before", type=Path, metavar="BEFORE")
    comparing.add_argument("after", type=Path, metavar="AFTER")
    given = parser.parse_args()
    sys.exit(make(given.folder) if given.command == "make" else compare(given.before, given.after))


if __name__ == "__main__":
    main()
