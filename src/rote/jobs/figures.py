"""The figures of what a folder holds: a run, a comparison, a sweep or a reconstruction; drawn, with their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import polars as pl

from rote.errors import InputError, RunError
from rote.jobs.progress import Progress, quiet
from rote.report.figures.comparison import COMPARISON_FIGURES, comparison_figures
from rote.report.figures.figure import Figure
from rote.report.figures.mpl.draw import FileFormat, Style, draw, require_matplotlib
from rote.report.figures.reconstruction import RECONSTRUCTION_FIGURES, reconstruction_figures
from rote.report.figures.run import RUN_FIGURES, run_figures
from rote.report.figures.sweep import SWEEP_FIGURES, sweep_figures
from rote.store.comparison import ComparedRun, StoredComparison
from rote.store.files import make_folder, write_whole
from rote.store.open import Stored, kind_of
from rote.store.open import open as open_stored
from rote.store.reconstruction import StoredReconstruction
from rote.store.run import StoredRun
from rote.store.sweep import StoredSweep

_UNUSED = ("token_log_probs", "base_log_probs", "ranks", "token_ends", "candidates")  # most of a table's size


@dataclass(frozen=True, slots=True)
class DrawnFigures:
    """What was written to `folder`: a picture and a CSV for each of `figures`, and their captions.

    `absent` names the figures that there is no data for, and what they would need.
    """

    folder: Path
    figures: tuple[Path, ...]
    captions: Path
    absent: Mapping[str, str]


def figures(
    folder: str | Path,
    *,
    out: str | Path | None = None,
    format: FileFormat = "svg",
    style: Style = "paper",
    scheme: str | None = None,
    progress: Progress | None = None,
) -> DrawnFigures:
    """Draw every figure of a finished run, comparison, sweep or reconstruction; write each with its data as CSV.

    `out`: `folder`/figures unless given. `scheme`: one of a run's schemes, the first unless given. Drawing the same
    again gives the same bytes.
    """
    for name, value, known in (("format", format, FileFormat), ("style", style, Style)):
        if value not in get_args(known):
            raise InputError(f"there is no {name} {value!r}; choose {', '.join(get_args(known))}.")
    require_matplotlib()
    stored = open_stored(folder)
    made, known_figures = _figures(stored, scheme)
    target = stored.folder / "figures" if out is None else Path(out)
    if (target / "manifest.json").exists() or (target / "comparison.json").exists():
        raise InputError(f"{target} holds results of its own; choose another --out for the figures.")
    make_folder(target)
    tell = progress or quiet
    written = []
    for number, figure in enumerate(made):
        tell("figures", number, len(made))
        path = target / f"{figure.name}.{format}"
        write_whole(path, draw(figure, style=style, format=format))
        write_whole(target / f"{figure.name}.csv", figure.table.write_csv().encode("utf-8", "replace"))
        written.append(path)
    tell("figures", len(made), len(made))
    captions = target / "captions.md"
    write_whole(captions, _captions(made).encode("utf-8", "replace"))
    names = {figure.name.split("-")[0] if figure.name.startswith("pair-") else figure.name for figure in made}
    absent = {name: needs for name, needs in known_figures.items() if name not in names}
    return DrawnFigures(target, tuple(written), captions, absent)


def _figures(stored: Stored, scheme: str | None) -> tuple[list[Figure], Mapping[str, str]]:
    """The figures of what a folder holds, and all that such a folder can have."""
    if scheme is not None and not isinstance(stored, StoredRun):
        kind = kind_of(stored.folder)
        raise InputError(f"{stored.folder} holds a {kind}: --scheme does not apply to it; leave it out.")
    match stored:
        case StoredComparison():
            return _comparison_figures(stored), COMPARISON_FIGURES
        case StoredSweep(result=sweep):
            return sweep_figures(sweep), SWEEP_FIGURES
        case StoredReconstruction(manifest=manifest, summary=summary):
            return reconstruction_figures(manifest, summary), RECONSTRUCTION_FIGURES
        case StoredRun():
            return _run_figures(stored, scheme), RUN_FIGURES


def _run_figures(run: StoredRun, scheme: str | None) -> list[Figure]:
    schemes, finished = run.manifest.schemes, run.finished
    chosen = schemes[0] if scheme is None else scheme
    if chosen not in schemes:
        named = ", ".join(f"'{label}'" for label in schemes)
        raise InputError(f"{run.folder} has no scheme {chosen!r}; it has {named}. Give one of them.")
    rows = pl.concat(part.filter(pl.col("scheme") == chosen).drop(_UNUSED) for part in run.parts())
    return run_figures(finished, rows)


def _comparison_figures(stored: StoredComparison) -> list[Figure]:
    """From each run's rows of the passages that all have, as far as the comparison's own files tell."""
    result, table = stored.result, stored.differences
    try:
        return comparison_figures(result, {run.key: _rows(table, run) for run in result.runs})
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        path = stored.folder / "differences.parquet"
        raise RunError(f"{path} is damaged: {reason}. Run rote compare again.") from error


def _rows(table: pl.DataFrame, run: ComparedRun) -> pl.DataFrame:
    key = run.key
    own = {
        name: f"{name}_{key}" if f"{name}_{key}" in table.columns else name for name in ("suffix_start", "suffix_end")
    }
    return table.select(
        "example_id",
        pl.lit(run.scheme).alias("scheme"),
        pl.col(f"log_prob_{key}").alias("log_prob"),
        pl.col(f"stopped_{key}").alias("stopped"),
        *(pl.col(place).alias(name) for name, place in own.items()),
    )


def _captions(made: Sequence[Figure]) -> str:
    """What each figure shows, for the paper."""
    return "\n".join(f"## {figure.name}: {figure.title}\n\n{figure.caption}\n" for figure in made)
