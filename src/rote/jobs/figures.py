"""The figures of what a folder holds: a run, a comparison, a sweep or a reconstruction; drawn, with their data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import polars as pl

from rote.errors import InputError, RunError
from rote.jobs.reconstruct import Reconstruction, is_reconstruction
from rote.report.figures.comparison import COMPARISON_FIGURES, comparison_figures
from rote.report.figures.figure import Figure
from rote.report.figures.mpl.draw import FileFormat, Style, draw, require_matplotlib
from rote.report.figures.run import RUN_FIGURES, run_figures
from rote.report.figures.sweep import RECONSTRUCTION_FIGURES, SWEEP_FIGURES, reconstruction_figures, sweep_figures
from rote.store.run import Run, make_folder, read_json, write_whole

Progress = Callable[[str, int, int], None]
"""Called with "figures", how many are drawn, and of how many."""


_UNUSED = ("token_log_probs", "base_log_probs", "ranks", "token_ends", "candidates")  # most of a table's size


@dataclass(frozen=True, slots=True)
class Drawn:
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
) -> Drawn:
    """Draw every figure of a finished run, comparison, sweep or reconstruction; write each with its data as CSV.

    `out`: `folder`/figures unless given. `scheme`: one of a run's schemes, the first unless given. Drawing the same
    again gives the same bytes.
    """
    for name, value, known in (("format", format, FileFormat), ("style", style, Style)):
        if value not in get_args(known):
            raise InputError(f"there is no {name} {value!r}; choose {', '.join(get_args(known))}.")
    require_matplotlib()
    source = Path(folder)
    made, known_figures = _figures(source, scheme)
    target = source / "figures" if out is None else Path(out)
    if (target / "manifest.json").exists() or (target / "comparison.json").exists():
        raise InputError(f"{target} holds results of its own; choose another --out for the figures.")
    make_folder(target)
    tell = progress or (lambda what, done, total: None)
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
    return Drawn(target, tuple(written), captions, absent)


def _figures(folder: Path, scheme: str | None) -> tuple[list[Figure], Mapping[str, str]]:
    """The figures of what a folder holds, and all that such a folder can have."""
    kind = _kind(folder)
    if kind != "run" and scheme is not None:
        raise InputError(f"{folder} holds a {kind}: --scheme does not apply to it; leave it out.")
    if kind == "comparison":
        return _comparison_figures(folder), COMPARISON_FIGURES
    if kind == "sweep":
        path = folder / "sweep.json"
        try:
            return sweep_figures(read_json(path)), SWEEP_FIGURES
        except KeyError as error:
            raise RunError(f"{path} has no {error}, so this version of Rote did not write it; sweep again.") from error
    if kind == "reconstruction":
        written = Reconstruction.open(folder)
        return reconstruction_figures(written.manifest, written.summary), RECONSTRUCTION_FIGURES
    run = Run.open(folder)
    manifest, summary = run.manifest, run.summary
    chosen = manifest["schemes"][0] if scheme is None else scheme
    if chosen not in manifest["schemes"]:
        named = ", ".join(f"'{label}'" for label in manifest["schemes"])
        raise InputError(f"{folder} has no scheme {chosen!r}; it has {named}. Give one of them.")
    rows = pl.concat(part.filter(pl.col("scheme") == chosen).drop(_UNUSED) for part in run.parts())
    return run_figures(manifest, summary, rows), RUN_FIGURES


def _kind(folder: Path) -> str:
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}; give the --out of a finished run.")
    if (folder / "comparison.json").is_file():
        return "comparison"
    if (folder / "sweep.json").is_file():
        return "sweep"
    return "reconstruction" if is_reconstruction(folder) else "run"


def _comparison_figures(folder: Path) -> list[Figure]:
    """From each run's rows of the passages that all have, as far as the comparison's own files tell."""
    path = folder / "differences.parquet"
    try:
        result = read_json(folder / "comparison.json")
        table = pl.read_parquet(path)
        return comparison_figures(result, {run["key"]: _rows(table, run) for run in result["runs"]})
    except (OSError, pl.exceptions.PolarsError) as error:
        raise RunError(f"cannot read {path}: {error}. Run rote compare again.") from error
    except KeyError as error:
        raise RunError(
            f"{folder / 'comparison.json'} has no {error}, so this version of Rote did not write it; compare again."
        ) from error


def _rows(table: pl.DataFrame, run: Mapping[str, Any]) -> pl.DataFrame:
    key = run["key"]
    own = {
        name: f"{name}_{key}" if f"{name}_{key}" in table.columns else name for name in ("suffix_start", "suffix_end")
    }
    return table.select(
        "example_id",
        pl.lit(run["scheme"]).alias("scheme"),
        pl.col(f"log_prob_{key}").alias("log_prob"),
        pl.col(f"stopped_{key}").alias("stopped"),
        *(pl.col(place).alias(name) for name, place in own.items()),
    )


def _captions(made: Sequence[Figure]) -> str:
    """What each figure shows, for the paper."""
    return "\n".join(f"## {figure.name}: {figure.title}\n\n{figure.caption}\n" for figure in made)
