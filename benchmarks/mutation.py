"""Would the tests notice? Small faults are put into what decides a number, one at a time, and the tests are run.

    python -m benchmarks.mutation                        # 400 faults at random, two at a time
    python -m benchmarks.mutation --sample 0             # every fault there is (a day)
    python -m benchmarks.mutation --only spines,distance # those of the 400 that are in some modules
    python -m benchmarks.mutation --sample 0 --only spines --match "states[-1]"  # all of one line

A fault replaces one expression in one module: a comparison, an operator, a term that is dropped, an index, a slice's
border, a constant, a condition, a bound taken for its opposite. Each is written into a copy of the tree and the
tests that should notice are run on it until the first one fails. Faults that change nothing anybody could see are in
`benchmarks/mutation_equivalents.toml`, each with its reason; they are not run.

Two kept libraries were looked at. mutmut leaves out functions with decorators other than classmethod, so most of what
runs under torch.inference_mode, and everything outside functions; cosmic-ray changes files in place and starts Python
anew for every fault, most of the time of which is importing torch. Neither drops terms, swaps bounds or samples, and
both number their mutants, so that a list of equivalent ones would not outlive the next change of a file.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent
EQUIVALENTS = Path(__file__).parent / "mutation_equivalents.toml"

SEARCH = tuple(f"tests/extraction/near/test_{name}.py" for name in ("long_outputs", "invariants", "frozen"))
NEAR = (*SEARCH, "tests/extraction/near/test_search.py")

TESTS = {
    "decoding.py": ("tests/test_decoding.py", "tests/test_support.py"),
    "largest.py": ("tests/test_decoding.py", "tests/test_support.py"),
    "odds.py": ("tests/test_odds.py",),
    "scheme.py": ("tests/test_scheme.py", "tests/test_decoding.py"),
    "extraction/verbatim.py": ("tests/extraction/test_verbatim.py",),
    "extraction/passes.py": ("tests/extraction/test_verbatim.py",),
    "extraction/near/distance.py": ("tests/extraction/near/test_distance.py", *SEARCH),
    "extraction/near/distances/levenshtein.py": ("tests/extraction/near/test_distance.py", *SEARCH),
    "extraction/near/distances/hamming.py": ("tests/extraction/near/test_distance.py", *SEARCH),
    "extraction/near/spines.py": SEARCH,
    "extraction/near/frontier.py": SEARCH,
    "extraction/near/fork.py": NEAR,
    "extraction/near/batches.py": NEAR,
    "extraction/near/beam.py": NEAR,
    "extraction/near/search.py": (*NEAR, "tests/extraction/near/test_montecarlo.py"),
    "extraction/near/results.py": (*NEAR, "tests/extraction/near/test_montecarlo.py"),
    "extraction/near/montecarlo.py": (
        "tests/extraction/near/test_invariants.py",
        "tests/extraction/near/test_montecarlo.py",
    ),
    "models/memory.py": ("tests/models/test_memory.py", *SEARCH),
    "corpus/windows.py": ("tests/corpus/test_windows.py",),
    "corpus/sampling.py": ("tests/corpus/test_sampling.py",),
    "analysis/coverage.py": ("tests/analysis/test_coverage.py",),
    "analysis/rates.py": ("tests/analysis/test_rates.py",),
    "analysis/groups.py": ("tests/analysis/test_groups.py",),
    "analysis/near/rates.py": ("tests/analysis/near/test_rates.py",),
    "store/files.py": ("tests/store/test_run.py", "tests/store/test_manifest.py"),
    "store/table.py": ("tests/store/test_run.py", "tests/jobs/test_scan.py"),
    "store/run.py": ("tests/store/test_run.py", "tests/jobs/test_scan.py"),
    "store/manifest.py": ("tests/store/test_manifest.py", "tests/store/test_run.py"),
}
"""What is tampered with, and the tests that should notice, quick ones first."""

COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="), ast.LtE: ("<", ">"), ast.Gt: (">=", "<="), ast.GtE: (">", "<"),
    ast.Eq: ("!=",), ast.NotEq: ("==",), ast.Is: ("is not",), ast.IsNot: ("is",), ast.In: ("not in",),
    ast.NotIn: ("in",),
}  # fmt: skip
OPERATORS: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("-",), ast.Sub: ("+",), ast.Mult: ("/",), ast.Div: ("*",), ast.FloorDiv: ("*",), ast.Mod: ("//",),
    ast.Pow: ("*",), ast.BitAnd: ("|",), ast.BitOr: ("&",), ast.LShift: (">>",), ast.RShift: ("<<",),
}  # fmt: skip
SYMBOLS = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
TERMS = (ast.Add, ast.Sub, ast.BitAnd, ast.BitOr)  # whose sides may be left out one by one
OPPOSITES = [("min", "max"), ("amin", "amax"), ("minimum", "maximum"), ("any", "all"), ("lower", "upper")]
OPPOSITES += [("floor", "ceil"), ("low", "high"), ("starts", "ends"), ("least", "most")]
OPPOSITE = {a: b for pair in OPPOSITES for a, b in (pair, pair[::-1])}


@dataclass(frozen=True, slots=True)
class Fault:
    module: str  # below src/rote
    kind: str
    line: int
    start: int  # in bytes of the file
    end: int
    new: str
    before: str  # the line as it is, and as it becomes
    after: str

    @property
    def name(self) -> tuple[str, str, str]:
        """What it is known by when lines have moved."""
        return self.module, self.before, self.after

    def __str__(self) -> str:
        return f"{self.module}:{self.line} [{self.kind}]\n    - {self.before}\n    + {self.after}"


def faults(module: str) -> list[Fault]:
    """All faults of one module, in the order of their places."""
    text = (ROOT / "src/rote" / module).read_text()
    data = text.encode()
    lines = data.split(b"\n")
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line) + 1)

    def place(node: ast.AST) -> tuple[int, int]:
        at: Any = node
        return begins[at.lineno - 1] + at.col_offset, begins[at.end_lineno - 1] + at.end_col_offset

    found: dict[tuple[int, int, str], Fault] = {}
    for kind, start, end, new in _changes(ast.parse(text), data, place):
        number = next(i for i, begin in enumerate(begins) if begin > start) - 1
        first, last = begins[number], begins[number]
        while last < end:
            last = begins[begins.index(last) + 1]
        before = " ".join(data[first:last].decode().split())
        after = " ".join((data[first:start] + new.encode() + data[end:last]).decode().split())
        fault = Fault(module, kind, number + 1, start, end, new, before, after)
        if before != after:
            found.setdefault((start, end, new), fault)
    return sorted(found.values(), key=lambda f: (f.start, f.end, f.new))


def _changes(tree: ast.AST, data: bytes, place: Any) -> Iterator[tuple[str, int, int, str]]:
    def text(node: ast.AST) -> str:
        start, end = place(node)
        return data[start:end].decode()

    for node in _looked_at(tree):
        if isinstance(node, ast.Compare):
            left: ast.expr = node.left
            for op, right in zip(node.ops, node.comparators, strict=True):
                start, end = place(left)[1], place(right)[0]
                between = data[start:end].decode()
                for other in COMPARISONS[type(op)]:
                    yield "comparison", start, end, between.replace(SYMBOLS[type(op)], other, 1)
                left = right
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _words(node):
            start, end = place(node.left)[1], place(node.right)[0]
            between = data[start:end].decode()
            symbol = between.strip(" ()\n")
            for other in OPERATORS[type(node.op)]:
                yield "operator", start, end, between.replace(symbol, other, 1)
            if isinstance(node.op, TERMS):
                yield "dropped term", *place(node), text(node.left)
                yield "dropped term", *place(node), text(node.right)
        elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
            start, end = place(node.target)[1], place(node.value)[0]
            yield from (("operator", start, end, f" {other}= ") for other in OPERATORS[type(node.op)])
            yield "dropped term", start, end, " = "
        elif isinstance(node, ast.BoolOp):
            swapped = ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
            yield "boolean", *place(node), f"({ast.unparse(swapped)})"
            for i in range(len(node.values)):
                fewer = ast.BoolOp(node.op, node.values[:i] + node.values[i + 1 :])
                yield "dropped term", *place(node), f"({ast.unparse(fewer)})"
        elif isinstance(node, ast.UnaryOp):
            yield "boolean" if isinstance(node.op, ast.Not) else "operator", *place(node), f"({text(node.operand)})"
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
                yield "condition", *place(node.test), f"(not ({text(node.test)}))"
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load | ast.Store):
            yield from _index(node.slice, place, text)
        elif isinstance(node, ast.Constant):
            yield from (("constant", *place(node), new) for new in _constants(node.value))
        elif isinstance(node, ast.Name) and node.id in OPPOSITE and isinstance(node.ctx, ast.Load):
            yield "opposite", *place(node), OPPOSITE[node.id]
        elif isinstance(node, ast.Attribute) and node.attr in OPPOSITE and isinstance(node.ctx, ast.Load):
            end = place(node)[1]
            yield "opposite", end - len(node.attr.encode()), end, OPPOSITE[node.attr]
        elif isinstance(node, ast.Call) and text(node.func).endswith(".where") and len(node.args) == 3:
            one, two = node.args[1:]
            yield "opposite", place(one)[0], place(two)[1], f"{text(two)}, {text(one)}"


def _index(index: ast.expr, place: Any, text: Any) -> Iterator[tuple[str, int, int, str]]:
    """First for last, the neighbour, and slices that end one sooner, one later or not at all."""
    for part in index.elts if isinstance(index, ast.Tuple) else [index]:
        if isinstance(part, ast.Slice):
            for border in (part.lower, part.upper):
                if border is not None:
                    yield "index", *place(border), ""
                    yield "index", *place(border), f"({text(border)}) + 1"
                    yield "index", *place(border), f"({text(border)}) - 1"
        elif text(part) == "-1":
            yield "index", *place(part), "0"
            yield "index", *place(part), "-2"
        elif text(part) == "0":
            yield "index", *place(part), "-1"
        elif isinstance(part, ast.BinOp):
            yield "index", *place(part), f"({text(part)}) + 1"


def _constants(value: object) -> tuple[str, ...]:
    if isinstance(value, bool):
        return (str(not value),)
    if isinstance(value, int):
        return (str(value + 1),) if value == 0 else (str(value + 1), str(value - 1))
    if isinstance(value, float):
        return (repr(2 * value if value else 1.0), repr(value / 2 if value else -1.0))
    return ()


def _words(node: ast.BinOp) -> bool:
    """Types that are one or the other (`int | None`) and strings that are put together are no arithmetic."""
    words = (str, type(None))
    sides = (node.left, node.right)
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, words)) for s in sides
    )


def _looked_at(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that computes: no annotations, decorators, assertions, or what is said in errors and warnings."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params") or (
            name == "keywords" and isinstance(node, ast.ClassDef)
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.JoinedStr | ast.Assert) or not isinstance(child, ast.AST):
                continue
            if isinstance(child, ast.Raise) and not isinstance(node, ast.ExceptHandler):
                continue
            if isinstance(child, ast.Call) and ast.unparse(child.func) == "warnings.warn":
                continue
            if isinstance(child, ast.keyword) and child.arg in ("stacklevel", "strict"):
                continue
            if isinstance(child, ast.Assign) and ast.unparse(child.value).startswith("Literal["):
                continue
            yield child
            yield from _looked_at(child)


def equivalents() -> dict[tuple[str, str, str], str]:
    """Faults that change nothing, and why."""
    listed = tomllib.loads(EQUIVALENTS.read_text())["fault"]
    return {
        (one["module"], one["before"], after): one["why"]
        for one in listed
        for after in (one["after"] if isinstance(one["after"], list) else [one["after"]])
    }


# --- running them


WARM = (
    "torch", "transformers", "transformers.models.llama.modeling_llama", "numpy", "polars", "pyarrow.parquet",
    "scipy.stats", "scipy.special", "sklearn.feature_extraction.text", "tokenizers", "rapidfuzz.distance", "rich",
    "typer", "hypothesis", "pytest", "xdist",
)  # fmt: skip


def work() -> None:
    """A worker, in a copy of the tree: for every line of standard input, run the tests in a forked child.

    What is slow to import was imported before the fork; Rote and its tests are not, so each child reads the fault.
    """
    for name in WARM:
        __import__(name)
    for line in sys.stdin:
        task = json.loads(line)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            os.setsid()
            _run_tests(task["tests"], task["log"])
        code = _wait(child, task["limit"])
        print(json.dumps({"code": code, "seconds": round(time.monotonic() - began, 1)}), flush=True)


def _run_tests(tests: Sequence[str], log: str) -> None:
    import pytest

    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(out, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    options = ["-x", "-n0", "-p", "no:cacheprovider", "--tb=line", "--hypothesis-seed=0", "-m", "not real"]
    options += ["--hypothesis-profile=any-failure"]  # that there is one is enough: do not look for the simplest
    code = int(pytest.main([*options, *tests]))
    sys.stdout.flush()
    os._exit(code)


def _wait(child: int, limit: float) -> int | None:
    """The child's exit code; None where it took too long."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _end(child)
            return os.waitstatus_to_exitcode(status)
        if os.getppid() == 1:  # whoever asked is gone
            _end(child)
            sys.exit(1)
        time.sleep(0.02)
    _end(child)
    os.waitpid(child, 0)
    return None


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)  # and what the tests have started


class Worker:
    """A process with a copy of the tree, and a fault in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
        )
        for name in kept.stdout.decode().splitlines():
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        here = {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
        alone = {
            "OMP_NUM_THREADS": "1",
            "RAYON_NUM_THREADS": "1",
            "POLARS_MAX_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.mutation", "--worker"], cwd=folder, env={**os.environ, **here, **alone},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, fault: Fault | None, tests: Sequence[str], limit: float) -> dict[str, Any]:
        """`code` 0: nobody noticed; None: it took longer than `limit` seconds. Also `seconds` and who `noticed`."""
        log = self.folder / "log.txt"
        path = self.folder / "src/rote" / fault.module if fault else None
        data = path.read_bytes() if path else b""
        if fault and path:
            path.write_bytes(data[: fault.start] + fault.new.encode() + data[fault.end :])
        try:
            pipes: tuple[IO[str] | None, IO[str] | None] = (self.process.stdin, self.process.stdout)
            assert pipes[0] is not None
            assert pipes[1] is not None
            pipes[0].write(json.dumps({"tests": list(tests), "log": str(log), "limit": limit}) + "\n")
            pipes[0].flush()
            answer: dict[str, Any] = json.loads(pipes[1].readline())
        finally:
            if path:
                path.write_bytes(data)
        said = log.read_text(errors="replace").splitlines() if log.exists() else []
        failed = [line.split(" - ")[0] for line in said if line.startswith(("FAILED ", "ERROR "))]
        answer["noticed"] = failed[0].split(" ", 1)[1] if failed else "took too long" if answer["code"] is None else ""
        if not fault and answer["code"] != 0:
            raise SystemExit("\n".join([*said[-40:], "the tests fail as they are: nothing can be learned from them."]))
        return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=400, help="how many faults to try, at random; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="modules, by a part of their names, with commas between")
    parser.add_argument("--match", default="", help="only faults of lines that hold this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a JSON-lines file for the results; what it has is not tried again")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return
    every = [fault for module in TESTS for fault in faults(module)]
    # By hash, so that a change of one file leaves the sample of the others as it was.
    chosen = sorted(every, key=lambda f: sha256(repr((options.seed, f.name)).encode()).digest())
    chosen = chosen[: options.sample or None]
    wanted = [part for part in options.only.split(",") if part]
    chosen = [f for f in chosen if not wanted or any(part in f.module for part in wanted)]
    chosen = [f for f in chosen if options.match in f.before]
    harmless = equivalents()
    for name in harmless.keys() - {f.name for f in every}:
        print(f"listed as equivalent, but there is no such fault any more: {name}")
    tried = _tried(options.out)
    tasks = [f for f in chosen if f.name not in harmless and f.name not in tried]
    print(
        f"{len(every)} faults can be made; {len(chosen)} are looked at, of which {len(chosen) - len(tasks)} are known"
    )
    results = {**tried, **_run_all(tasks, options.workers, options.out)}
    _table(chosen, harmless, results)


def _tried(out: Path | None) -> dict[tuple[str, str, str], dict[str, Any]]:
    if out is None or not out.exists():
        return {}
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return {(r["module"], r["before"], r["after"]): r for r in rows}


def _run_all(tasks: Sequence[Fault], workers: int, out: Path | None) -> dict[tuple[str, str, str], dict[str, Any]]:
    results: dict[tuple[str, str, str], dict[str, Any]] = {}
    limits: dict[tuple[str, ...], float] = {}
    waiting = deque(sorted(tasks, key=lambda f: list(TESTS).index(f.module)))
    lock = threading.Lock()

    def go(folder: Path, next_one: Callable[[], Fault]) -> None:
        worker = Worker(folder)
        while True:
            with lock:
                if not waiting:
                    break
                fault = next_one()
            tests = tuple(t for t in TESTS[fault.module] if (ROOT / t).exists())
            if tests not in limits:  # as they are, the tests must pass; how long they take is known then, too
                limits[tests] = 20 + 2 * worker.run(None, tests, 1800)["seconds"]
            found = worker.run(fault, tests, limits[tests])
            with lock:
                results[fault.name] = row = {**asdict(fault), **found}
                if out is not None:
                    with out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                verdict = "SURVIVED" if found["code"] == 0 else f"noticed by {found['noticed']}"
                print(f"{len(results)}/{len(tasks)} ({found['seconds']} s) {verdict}: {fault}", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        ends = (waiting.popleft, waiting.pop)  # so that two workers seldom try the same tests at the same time
        threads = [threading.Thread(target=go, args=(Path(scratch) / str(i), ends[i % 2])) for i in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return results


def _table(
    chosen: Sequence[Fault], harmless: dict[tuple[str, str, str], str], results: dict[Any, dict[str, Any]]
) -> None:
    print("\n| module | faults | equivalent | noticed | survived |\n|---|---|---|---|---|")
    total: Counter[str] = Counter()
    for module in dict.fromkeys(f.module for f in chosen):
        here = [f for f in chosen if f.module == module]
        known = [f for f in here if f.name in harmless]
        ran = [results[f.name] for f in here if f.name in results and f.name not in harmless]
        survived = sum(r["code"] == 0 for r in ran)
        row = {"faults": len(here), "equivalent": len(known), "noticed": len(ran) - survived, "survived": survived}
        total.update(row)
        print(f"| `{module}` | " + " | ".join(map(str, row.values())) + " |")
    print("| all | " + " | ".join(str(total[n]) for n in ("faults", "equivalent", "noticed", "survived")) + " |")
    live = total["noticed"] + total["survived"]
    share = total["noticed"] / max(live, 1)
    print(f"\n{total['noticed']} of {live} faults that are not equivalent were noticed ({share:.1%}).")
    for fault in chosen:
        if fault.name not in harmless and results.get(fault.name, {}).get("code") == 0:
            print(f"\nsurvived: {fault}")


if __name__ == "__main__":
    main()
