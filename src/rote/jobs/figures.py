"""The figures of what a folder holds: a run, a comparison, a sweep and so on; with their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

import polars as pl

from rote.analysis.narrow import LISTS
from rote.analysis.summary import rows_of
from rote.errors import InputError, RunError, argument
from rote.jobs.open import (
    BenchScore,
    Handle,
    Membership,
    Probe,
    Reconstruction,
    Run,
    SavedComparison,
    Sweep,
    as_handle,
    several,
)
from rote.options import Option, folder_of, require_known, typed_path
from rote.progress import Progress, quiet, stopping
from rote.report.figures.comparison import COMPARISON_FIGURES, comparison_figures
from rote.report.figures.figure import Figure
from rote.report.figures.member import MEMBER_FIGURES, member_figures
from rote.report.figures.mpl.draw import FileFormat, Style, draw, require_matplotlib
from rote.report.figures.probe import PROBE_FIGURES, probe_figures
from rote.report.figures.reconstruction import RECONSTRUCTION_FIGURES, reconstruction_figures
from rote.report.figures.run import RUN_FIGURES, run_figures
from rote.report.figures.submissions import SCORE_FIGURES, score_figures
from rote.report.figures.sweep import SWEEP_FIGURES, sweep_figures
from rote.scheme import label_of
from rote.store.comparison import ComparedRun
from rote.store.files import make_folder, write_whole
from rote.store.open import Folder, kind_of


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
    folders: Annotated[
        Folder | Sequence[Folder],
        Option(
            "Finished runs, comparisons, sweeps, reconstructions, scores, membership runs or probes.", metavar="DIR"
        ),
    ],
    *,
    format: Annotated[FileFormat, Option("Of the pictures.")] = "svg",
    style: Annotated[Style, Option("A column wide with small letters, or large with titles.")] = "paper",
    scheme: Annotated[str | None, Option("One of a run's schemes, as it names it.", default="the first")] = None,
    out: Annotated[
        Path | str | None,
        Option(
            "Folder for the figures; of several DIRs: with one in it for each.",
            "--out/-o",
            default="DIR/figures",
            parse=typed_path,
        ),
    ] = None,
    progress: Progress | None = None,
) -> list[DrawnFigures]:
    """Draw every figure of finished runs, comparisons, sweeps or reconstructions; write each with its data as CSV.

    `out`: a folder's own figures/ unless given. `scheme`: one of a run's schemes, the first unless given. Drawing the
    same again gives the same bytes.
    """
    for name, value, known in (("format", format, FileFormat), ("style", style, Style)):
        require_known(name, value, get_args(known))
    require_matplotlib()
    every = [as_handle(one) for one in several(folders)]
    targets = _targets([stored.folder for stored in every], None if out is None else folder_of(out))
    with stopping(lambda: "what is drawn already is kept. Run the same command again for the rest."):
        return [
            _drawn(stored, target, format, style, scheme, progress or quiet)
            for stored, target in zip(every, targets, strict=True)
        ]


def _targets(folders: Sequence[Path], out: Path | None) -> list[Path]:
    """Where each folder's figures go."""
    places = [folder.resolve() for folder in folders]
    if again := next((folder for folder in folders if places.count(folder.resolve()) > 1), None):
        raise InputError(f"{again} was given twice; give each folder once.")
    if out is None:
        return [folder / "figures" for folder in folders]
    if len(folders) == 1:
        return [out]
    names = [place.name for place in places]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(
            f"two of the folders are called {twice!r}, so their figures would mix in {out}; draw them one at a time."
        )
    return [out / name for name in names]


def _drawn(
    stored: Handle, target: Path, format: FileFormat, style: Style, scheme: str | None, tell: Progress
) -> DrawnFigures:
    made, known_figures = _figures(stored, scheme)
    if any((target / name).exists() for name in ("manifest.json", "comparison.json", "score.json")):
        raise InputError(f"{target} holds results of its own; choose another {argument('out')} for the figures.")
    make_folder(target)
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
    several = ("pair-", "scores-")  # of which there may be more than one
    names = {figure.name.split("-")[0] if figure.name.startswith(several) else figure.name for figure in made}
    absent = {name: needs for name, needs in known_figures.items() if name not in names}
    return DrawnFigures(target, tuple(written), captions, absent)


def _figures(stored: Handle, scheme: str | None) -> tuple[list[Figure], Mapping[str, str]]:
    """The figures of what a folder holds, and all that such a folder can have."""
    if scheme is not None and not isinstance(stored, Run):
        kind = "membership run" if isinstance(stored, Membership) else kind_of(stored.folder)
        raise InputError(f"{stored.folder} holds a {kind}: {argument('scheme')} does not apply to it; leave it out.")
    match stored:
        case SavedComparison():
            return _comparison_figures(stored), COMPARISON_FIGURES
        case Sweep(result=sweep):
            return sweep_figures(sweep), SWEEP_FIGURES
        case Reconstruction(manifest=manifest, summary=summary):
            return reconstruction_figures(manifest, summary), RECONSTRUCTION_FIGURES
        case BenchScore(result=score):
            return score_figures(score), SCORE_FIGURES
        case Membership(view=view):
            return member_figures(view.manifest, view.summary, view.rows), MEMBER_FIGURES
        case Probe(view=probed):
            return probe_figures(probed), PROBE_FIGURES
        case Run():
            return _run_figures(stored, scheme), RUN_FIGURES


def _run_figures(run: Run, scheme: str | None) -> list[Figure]:
    schemes, finished = run.manifest.schemes, run.finished
    chosen = schemes[0] if scheme is None else label_of(scheme)
    if chosen not in schemes:
        named = ", ".join(f"'{label}'" for label in schemes)
        raise InputError(f"{run.folder} has no scheme {scheme!r}; it has {named}. Give one of them.")
    unscored = None if run.manifest.refined is None else run.view.left_out
    return run_figures(finished, rows_of(run.table, chosen, run.manifest).drop(LISTS, strict=False), unscored)


def _comparison_figures(stored: SavedComparison) -> list[Figure]:
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
        pl.col(f"bounded_{key}").alias("bounded"),
        *(pl.col(place).alias(name) for name, place in own.items()),
    )


def _captions(made: Sequence[Figure]) -> str:
    """What each figure shows, for the paper."""
    return "\n".join(f"## {figure.name}: {figure.title}\n\n{figure.caption}\n" for figure in made)
