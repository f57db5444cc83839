"""Results in the shapes that other programs load: CSV, JSON lines, Parquet, and the files of lm-evaluation-harness."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, get_args

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from rote.errors import InputError, RunError, argument
from rote.frames import FrameKind, frame_of, require_frame
from rote.jobs.open import BenchScore, Handle, Membership, Probe, Reconstruction, Run, SavedComparison, Sweep, as_handle
from rote.options import Option, folder_of, require_known, typed_path
from rote.progress import Progress, quiet, stopping
from rote.report.export.harness import Samples, file_date, folder_name, results, tasks
from rote.report.export.rows import (
    Kind,
    as_csv,
    as_jsonl,
    curve_rows,
    metadata_kinds,
    question_rows,
    score_rows,
    sweep_rows,
    text_rows,
)
from rote.scheme import label_of
from rote.store.files import make_folder, whole_file, write_whole
from rote.store.open import Folder

Format = Literal["csv", "jsonl", "parquet", "lm-eval", "evidence"]
NO_TABLE = (
    "{} holds a reconstruction, which has no table of scores. Load its files as they are: generated.txt is the text, "
    "chunks.jsonl has a line per step, diff.jsonl one per stretch that differs from the truth."
)
NUL = "␀"
"""What stands in a CSV file for the character NUL, at which many readers end a text."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: `files`, and how many `rows` they hold.

    `nul_characters`: how many were written as ␀. `metadata_kept_whole`: there were too many keys for columns.
    """

    files: tuple[Path, ...]
    rows: int
    nul_characters: int = 0
    metadata_kept_whole: bool = False


def export(
    folder: Annotated[
        Folder, Option("A finished run, a sweep, a comparison, a score, a membership run or a probe.", metavar="DIR")
    ],
    to: Annotated[Format, Option("What the other program reads.", "--to")],
    *,
    out: Annotated[
        Path | str | None,
        Option(
            "The file; for lm-eval a folder.",
            "--out/-o",
            default="DIR/export.csv and so on, DIR/lm-eval, DIR/evidence.zip",
            parse=typed_path,
        ),
    ] = None,
    scheme: Annotated[str, Option("One of the run's schemes, as it names it, or all.")] = "all",
    progress: Progress | None = None,
) -> Exported:
    """Write the results of a finished run, a sweep or a comparison for other programs.

    `out` is a file, `folder`/export.FORMAT unless given; for "lm-eval" a folder, `folder`/lm-eval unless given. It is
    put into a folder that is there, and written over only where it is an earlier export.FORMAT of no other run.
    "evidence" is the run itself in one file, `folder`/evidence.zip unless given, for `rote.verify`.
    `scheme` is one of the run's schemes, as the run names it, or "all".
    """
    require_known("to", to, get_args(Format))
    with stopping(lambda: "nothing was written. Run the same command again."):
        return _exported(as_handle(folder), to, out, scheme, progress or quiet)


def _exported(stored: Handle, to: Format, out: str | Path | None, scheme: str, tell: Progress) -> Exported:
    match stored:
        case Sweep() | SavedComparison() | BenchScore() | Membership() | Probe():
            return _export_table(stored, to, out, scheme)
        case Reconstruction():
            raise RunError(NO_TABLE.format(stored.folder))
        case Run():
            chosen = _schemes(stored.folder, stored.manifest.schemes, scheme)
            _ = stored.seal  # refuses a run that is unfinished
            total = stored.height * len(chosen) // len(stored.manifest.schemes)
            if to == "evidence":
                return _export_evidence(stored, out, scheme, tell)
            if to == "lm-eval":
                return _export_harness(stored, Path(out or stored.folder / "lm-eval"), chosen, tell, total)
            return _export_run(stored, to, out, chosen, tell, total)


def frame(folder: Folder, kind: FrameKind = "polars", *, scheme: str = "all") -> Any:
    """The table that `export` writes, as a polars.DataFrame or a pandas.DataFrame."""
    require_frame(kind)
    return frame_of(_frame(as_handle(folder), scheme), kind)


def _frame(stored: Handle, scheme: str) -> pl.DataFrame:
    match stored:
        case Run():
            chosen = _schemes(stored.folder, stored.manifest.schemes, scheme)
            _ = stored.summary  # refuses a run that is unfinished
            return pl.concat(_tables(stored, chosen, _metadata_kinds(stored), quiet))
        case Sweep() | SavedComparison() | BenchScore() | Membership() | Probe():
            return _table(stored, scheme)
        case Reconstruction():
            raise RunError(NO_TABLE.format(stored.folder))


def _export_run(
    run: Run, to: Format, out: str | Path | None, chosen: Sequence[str], tell: Progress, total: int
) -> Exported:
    kinds, path = _metadata_kinds(run), _target(run.folder, to, out)
    rows, nul = _write(path, to, _tables(run, chosen, kinds, lambda what, done, of: tell(what, done, total)))
    return Exported((path,), rows, nul, metadata_kept_whole=kinds is None)


def _tables(run: Run, chosen: Sequence[str], kinds: dict[str, Kind] | None, tell: Progress) -> Iterator[pl.DataFrame]:
    """The rows of a run, shard by shard, for people to read."""
    passages, done = run.texts, 0
    for part in run.parts():
        rows = part.filter(pl.col("scheme").is_in(chosen))
        yield score_rows(rows, manifest=run.manifest, passages=passages, kinds=kinds)
        done += rows.height
        tell("exported", done, done)


def _schemes(folder: Path, known: Sequence[str], asked: str) -> list[str]:
    if asked == "all":
        return list(known)
    if (label := label_of(asked)) not in known:
        named = ", ".join(f"'{label}'" for label in known)
        raise InputError(f"{folder} has no scheme {asked!r}; it has {named}. Give one of them, or all.")
    return [label]


def _metadata_kinds(run: Run) -> dict[str, Kind] | None:
    return metadata_kinds(text for part in run.column("metadata") for text in part.unique(maintain_order=True))


def _export_table(
    stored: Sweep | SavedComparison | BenchScore | Membership | Probe, to: Format, out: str | Path | None, scheme: str
) -> Exported:
    """The table of a sweep, of a comparison, of scored guesses, of texts or of questions."""
    folder = stored.folder
    if to in ("lm-eval", "evidence"):
        if isinstance(stored, Membership | Probe):
            what = "scores of texts" if isinstance(stored, Membership) else "answers of chat models"
            raise InputError(f"{folder} holds {what}, which {to} has no place for; export csv, jsonl or parquet.")
        raise InputError(f"{folder} holds no run but a table about several; export one of its runs to {to}.")
    table, path = _table(stored, scheme), _target(folder, to, out)
    rows, nul = _write(path, to, iter([table]))
    return Exported((path,), rows, nul)


def _table(stored: Sweep | SavedComparison | BenchScore | Membership | Probe, scheme: str) -> pl.DataFrame:
    folder = stored.folder
    if isinstance(stored, Sweep):
        table = sweep_rows(stored.result)
        known = list(dict.fromkeys(table["scheme"]))
        return table.filter(pl.col("scheme").is_in(_schemes(folder, known, scheme)))
    if scheme != "all":
        kind = {BenchScore: "score", Membership: "membership run", Probe: "probe"}.get(type(stored), "comparison")
        raise InputError(f"{folder} holds a {kind}: {argument('scheme')} does not apply to it; leave it out.")
    if isinstance(stored, BenchScore):
        return curve_rows(stored.result)
    if isinstance(stored, Membership):
        return text_rows(stored.view)
    if isinstance(stored, Probe):
        return question_rows(stored.view)
    _ = stored.result  # refuses a comparison of another format, or damaged
    return stored.differences


def _target(folder: Path, to: Format, out: str | Path | None) -> Path:
    """Where the file goes. Nothing that belongs to the run is written over."""
    default = folder / ("evidence.zip" if to == "evidence" else f"export.{to}")
    path = default if out is None else folder_of(out)
    if path.is_dir():
        raise InputError(
            f"{argument('out')} {path} is a folder; give the name of a file, such as {path / default.name}."
        )
    if path.exists() and path.resolve() != default.resolve():
        if (other := _owner(path)) is not None:
            raise InputError(f"{argument('out')} {path} is a file of {other} itself; choose another.")
        if path.name != default.name:
            raise InputError(f"{argument('out')} {path} is there already; choose another name, or delete it first.")
    _refuse_place(path)
    return path


def _refuse_place(path: Path) -> None:
    """Refuse a place that only a slip of the keyboard can mean: in a folder that is not there, or among the shards."""
    if not path.parent.is_dir():
        raise InputError(
            f"{argument('out')} {path}: there is no folder {path.parent}. Make it first, or choose another."
        )
    inside = path.parent.resolve()
    if inside.name == "scores" and _holds_results(inside.parent):
        raise InputError(f"{argument('out')} {path} is among the scores of {inside.parent}; choose another.")


def _owner(path: Path) -> Path | None:
    """The run, sweep or comparison whose folder a file lies in."""
    folder = path.resolve().parent
    return next((each for each in (folder, folder.parent) if _holds_results(each)), None)


def _holds_results(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("manifest.json", "sweep.json", "comparison.json", "score.json"))


def _write(path: Path, to: Format, tables: Iterator[pl.DataFrame]) -> tuple[int, int]:
    """Write the tables, one after the other, as one file; return the number of rows and of NUL characters replaced."""
    rows = nul = 0
    with whole_file(path) as file, ExitStack() as stack:
        parquet: pq.ParquetWriter | None = None
        for number, table in enumerate(tables):
            if to == "csv":
                content = as_csv(table, header=number == 0)
                nul += content.count(b"\0")
                file.write(content.replace(b"\0", NUL.encode()))
            elif to == "jsonl":
                file.write(as_jsonl(table))
            else:
                arrow = _plain(table)
                parquet = parquet or stack.enter_context(_parquet_writer(file, arrow.schema))
                parquet.write_table(arrow)
            rows += table.height
    return rows, nul


def _parquet_writer(file: BinaryIO, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)


def _plain(table: pl.DataFrame) -> pa.Table:
    """As Arrow, with the types that every reader knows: no large strings or lists."""
    arrow = table.to_arrow(compat_level=pl.CompatLevel.oldest())
    return arrow.cast(pa.schema([(field.name, _plain_type(field.type)) for field in arrow.schema]))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain_type(field.type)) for field in kind])
    return kind


def _export_evidence(run: Run, out: str | Path | None, scheme: str, tell: Progress) -> Exported:
    """All of the run: what it is sealed with, its page, and how to make it again."""
    from rote.jobs.evidence import pack

    if scheme != "all":
        raise InputError(f"evidence holds the whole run: {argument('scheme')} does not apply; leave it out.")
    path = _target(run.folder, "evidence", out)
    pack(run, path, tell)
    return Exported((path,), run.height)


def _export_harness(run: Run, out: Path, schemes: Sequence[str], tell: Progress, total: int) -> Exported:
    """The folder that lm-evaluation-harness writes: OUT/MODEL with results_DATE.json and samples_TASK_DATE.jsonl."""
    manifest, passages = run.manifest, run.texts
    folder = out / folder_name(manifest.model.name)
    _refuse_place(out)
    if _holds_results(out):
        raise InputError(f"{argument('out')} {out} is the folder of a run; choose another, such as {out / 'lm-eval'}.")
    make_folder(folder)
    date = file_date(manifest)
    every = [Samples(task, manifest) for task in tasks(manifest, schemes)]
    paths = [folder / f"samples_{samples.task.name}_{date}.jsonl" for samples in every]
    with ExitStack() as stack:
        files = [stack.enter_context(whole_file(path)) for path in paths]
        done = 0
        for part in run.parts():
            for samples, file in zip(every, files, strict=True):
                file.write(samples.lines(part, passages.__getitem__))
            done += int(part["scheme"].is_in(list(schemes)).sum())
            tell("exported", done, total)
    path = folder / f"results_{date}.json"
    content = json.dumps(results(manifest, run.summary, every), indent=2, ensure_ascii=False) + "\n"
    write_whole(path, content.encode())
    return Exported((path, *paths), sum(samples.values.height for samples in every))
