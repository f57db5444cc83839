"""A run on disk: manifest, append-only Parquet shards, summary and report. Nothing is ever written in place."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from rote.errors import RunError
from rote.extraction.verbatim import Verbatim
from rote.store.manifest import FORMAT, digest, refuse_if_different
from rote.tokens import Example

CANDIDATE = pa.struct(
    [
        ("tokens", pa.list_(pa.int32())),
        ("text", pa.string()),
        ("log_prob", pa.float64()),
        ("set_log_prob", pa.float64()),
        ("distance", pa.int16()),
    ]
)
SCHEMA = pa.schema(
    [
        ("example_id", pa.string()),
        ("scheme", pa.string()),
        ("start", pa.int64()),
        ("suffix_start", pa.int64()),
        ("suffix_end", pa.int64()),
        ("log_prob", pa.float64()),
        ("greedy", pa.bool_()),
        ("stopped", pa.bool_()),
        ("token_evals", pa.int32()),
        ("token_log_probs", pa.list_(pa.float32())),
        ("base_log_probs", pa.list_(pa.float32())),
        ("ranks", pa.list_(pa.int32())),
        ("margins", pa.list_(pa.float32())),
        ("token_ends", pa.list_(pa.int32())),
        ("repetitions", pa.int64()),
        ("split", pa.string()),
        ("metadata", pa.string()),
        # near-verbatim extraction; null where it was not asked for
        ("lower", pa.float64()),
        ("upper", pa.float64()),
        ("lower_by_tolerance", pa.list_(pa.float64())),
        ("upper_by_tolerance", pa.list_(pa.float64())),
        ("verdict", pa.string()),
        ("near_token_evals", pa.int32()),
        ("eos_mass", pa.float64()),
        ("estimate", pa.float64()),
        ("estimate_error", pa.float64()),
        ("candidates", pa.list_(CANDIDATE)),
        ("greedy_distance", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Run:
    """One run folder. `scores` has one row per example and scheme, in the order of the examples."""

    folder: Path

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open a finished or unfinished run; a folder without a manifest is an error."""
        run = cls(Path(folder))
        if (run.folder / "sweep.json").is_file():
            parts = sorted(path.parent for path in run.folder.glob("prefix-*/manifest.json"))
            raise RunError(
                f"{folder} holds a sweep; give one of its runs, such as {parts[0] if parts else 'prefix-50'}."
            )
        if not (run.folder / "manifest.json").is_file():
            raise RunError(f"{folder} has no manifest.json, so it is not a run folder; give the --out of a rote scan.")
        if run.manifest.get("kind") == "reconstruct":
            raise RunError(f"{folder} holds a reconstruction, which has no scores; `rote report` shows it.")
        if (found := run.manifest.get("format")) != FORMAT:
            raise RunError(
                f"{folder} has run format {found}, but this version of Rote reads format {FORMAT}; make the run anew."
            )
        return run

    @property
    def manifest(self) -> dict[str, Any]:
        return read_json(self.folder / "manifest.json")

    @property
    def summary(self) -> dict[str, Any]:
        if not (self.folder / "summary.json").is_file() or len(self.shards()) < self.manifest["shards"]:
            raise RunError(
                f"{self.folder} is unfinished ({self.progress()}); run the command that made it again to finish it."
            )
        return read_json(self.folder / "summary.json")

    @property
    def scores(self) -> pl.DataFrame:
        shards = list(self.parts())
        return pl.concat(shards) if shards else pl.DataFrame(pl.from_arrow(SCHEMA.empty_table()))

    def parts(self) -> Iterator[pl.DataFrame]:
        """The score table, shard by shard: for what need not hold it whole."""
        return map(_read, self.shards())

    @property
    def text(self) -> str | None:
        """The text a scan was made of; None for a run over given examples, or where the file is gone."""
        path = self.folder / "text.txt"
        if not path.is_file():
            return None
        text = path.read_bytes().decode("utf-8", "surrogatepass")
        if digest(text) != self.manifest["source"]["sha256"]:
            raise RunError(
                f"{path} is not the text that was scored. Run the command that made {self.folder} again to restore it."
            )
        return text

    def examples(self) -> list[dict[str, Any]]:
        """The examples of a run that has no text, as they were scored: ids, tokens and what these say."""
        path, again = self.folder / "examples.jsonl", "Run the command that made the run again to restore it."
        try:
            lines = path.read_bytes().decode("utf-8", "surrogatepass")
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}. {again}") from error
        if digest(lines) != self.manifest["source"]["text_sha256"]:
            raise RunError(f"{path} does not hold the examples that were scored: it was changed or cut off. {again}")
        return [json.loads(line) for line in filter(None, lines.split("\n"))]

    def shards(self) -> list[Path]:
        return sorted((self.folder / "scores").glob("[0-9]*.parquet"))

    def progress(self) -> str:
        return f"{len(self.shards())} of {self.manifest['shards']} shards stored"

    def report(self) -> Path:
        """Write report.html from what the folder holds, and return its path."""
        from rote.report.page.run import render

        page = render(manifest=self.manifest, summary=self.summary, scores=self.scores, texts=Passages(self))
        write_whole(self.folder / "report.html", page.encode("utf-8", "replace"))
        return self.folder / "report.html"

    def begin(self, manifest: Mapping[str, Any], *, content: Mapping[str, bytes]) -> None:
        """Start the folder, or make sure that what it holds is the beginning of this very run.

        `content` is what the run is about, by file name: text.txt or examples.jsonl, for the report and the reader.
        """
        make_folder(self.folder / "scores")
        if (self.folder / "manifest.json").is_file():
            refuse_if_different(self.manifest, manifest, str(self.folder))
        else:
            self._refuse_foreign(content)
        for name, data in content.items():
            write_whole(self.folder / name, data)
        if not (self.folder / "manifest.json").is_file():  # last: a folder with a manifest has all it needs
            write_whole(self.folder / "manifest.json", pretty(manifest))

    def _refuse_foreign(self, content: Mapping[str, bytes]) -> None:
        """A folder without a manifest may hold a run's very beginning, but nothing that the run would take over."""
        foreign = [self.folder / name for name in ("summary.json", "report.html")] + self.shards()
        found = [path for path in foreign if path.exists()]
        for name, data in content.items():
            path = self.folder / name
            if path.exists() and not (path.is_file() and path.read_bytes() == data):
                found.append(path)
        if found:
            raise RunError(f"{found[0]} is there already and belongs to no run of this folder; choose another --out.")

    def has_shard(self, index: int) -> bool:
        return self._shard(index).is_file()

    def add_shard(
        self,
        index: int,
        examples: Sequence[Example],
        results: Sequence[Verbatim],
        facts: Mapping[str, Any],
        near: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Store one shard; `facts` (seconds, warnings) travel as its metadata, so that rows stay reproducible.

        `near`: the near-verbatim columns, a row for each result.
        """
        table = _table(examples, results, near).replace_schema_metadata({"rote": json.dumps(facts)})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
        write_whole(self._shard(index), sink.getvalue().to_pybytes())

    def shard_facts(self) -> list[dict[str, Any]]:
        return [json.loads(pq.read_schema(path).metadata[b"rote"]) for path in self.shards()]

    def finish(self, summary: Mapping[str, Any]) -> None:
        write_whole(self.folder / "summary.json", pretty(summary))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from writing the same run. The lock goes with the process, however it ends."""
        make_folder(self.folder)
        try:
            import fcntl
        except ImportError:  # no file locks on this system
            yield
            return
        try:
            lock = (self.folder / ".lock").open("w")
        except OSError as error:
            raise RunError(f"cannot write {self.folder / '.lock'}: {error.strerror}. Choose another --out.") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunError(
                    f"another rote process is writing {self.folder}; wait for it or choose another --out."
                ) from error
            except OSError as error:
                raise RunError(
                    f"cannot lock {self.folder}: {error.strerror}. Choose an --out on a local disk."
                ) from error
            yield

    def _shard(self, index: int) -> Path:
        return self.folder / "scores" / f"{index:06d}.parquet"


class Passages:
    """The texts behind score rows: cut from the scanned text, or decoded when the examples were scored."""

    def __init__(self, run: Run) -> None:
        self.text = run.text
        if self.text is None and run.manifest["kind"] == "scan":
            raise RunError(
                f"cannot read {run.folder / 'text.txt'}: it is gone. Run the command that made the run again to "
                "restore it."
            )
        self.decoded = (
            {entry["id"]: (entry["prefix_text"], entry["suffix_text"]) for entry in run.examples()}
            if self.text is None
            else {}
        )

    def __getitem__(self, row: Mapping[str, Any]) -> tuple[str, str]:
        if self.text is None:
            return self.decoded[row["example_id"]]
        return self.text[row["start"] : row["suffix_start"]], self.text[row["suffix_start"] : row["suffix_end"]]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there in full or not at all, whatever happens meanwhile."""
    with whole_file(path) as out:
        out.write(content)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to piece by piece that is there in full or not at all, whatever happens meanwhile."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, path)
    except (Exception, KeyboardInterrupt) as error:
        part.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise RunError(
            f"cannot write {path}: {error.strerror}. Free some space or mend the permissions, then run the same "
            "command again: what is stored already is kept."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {path}: {error}. Delete the run folder and start anew.") from error
    return content


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the folder {folder}: {error.strerror}. Choose another --out.") from error
    if not os.access(folder, os.W_OK):
        raise RunError(f"the folder {folder} is not writable. Choose another --out or mend its permissions.")


def _read(path: Path) -> pl.DataFrame:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as shard:
            table = shard.read().replace_schema_metadata(None)
        if not table.schema.equals(SCHEMA):
            raise ValueError("its columns are not those of a score table")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise RunError(
            f"the shard {path} is damaged ({error}). Delete it and run the command that made the run again."
        ) from error
    return pl.DataFrame(pl.from_arrow(table))


def _table(examples: Sequence[Example], results: Sequence[Verbatim], near: Sequence[Mapping[str, Any]]) -> pa.Table:
    by_id = {example.id: example for example in examples}
    rows = []
    for result, more in zip(results, near or [{}] * len(results), strict=True):
        example = by_id[result.example_id]
        metadata = dict(example.metadata)
        repetitions = metadata.get("repetitions")
        rows.append(
            {
                "example_id": example.id,
                "scheme": str(result.scheme),
                "start": example.start,
                "suffix_start": example.suffix_start,
                "suffix_end": example.suffix_end,
                "log_prob": result.log_prob,
                "greedy": result.greedy,
                "stopped": result.stopped,
                "token_evals": result.token_evals,
                "token_log_probs": result.token_log_probs,
                "base_log_probs": result.base_log_probs,
                "ranks": result.ranks,
                "margins": result.margins,
                "token_ends": example.token_ends,
                "repetitions": None if repetitions is None else int(repetitions),
                "split": metadata.get("split"),
                "metadata": json.dumps(metadata, ensure_ascii=False),
                **more,
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def pretty(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
