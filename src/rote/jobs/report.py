"""`report`: the page of what a folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rote.analysis.similarity import Similarity, similarity
from rote.jobs.open import BenchScore, Membership, Probe, Reconstruction, Run, SavedComparison, Sweep, as_handle
from rote.options import Option
from rote.progress import Progress, quiet
from rote.report.page.member import render_member
from rote.report.page.probe import render_probe
from rote.report.page.reconstruction import render_reconstruction
from rote.report.page.run import render_run
from rote.report.page.submissions import render_score
from rote.report.page.sweep import render_sweep
from rote.store.files import write_whole
from rote.store.open import Folder
from rote.store.reconstruction import StoredReconstruction


def report(
    folder: Annotated[
        Folder,
        Option("The folder of a finished run, reconstruction, sweep, comparison, score, membership run or probe."),
    ],
    *,
    progress: Progress | None = None,
) -> Path:
    """Write report.html anew from what a folder holds, and return its path."""
    tell = progress or quiet
    match stored := as_handle(folder):
        case Run():
            return write_page(stored.folder, render_run(stored.view, tell))
        case Sweep():
            return write_page(stored.folder, render_sweep(stored.result, stored.runs()))
        case Reconstruction():
            truth = stored.truth if stored.summary.truth else None  # an unfinished one is refused by its summary
            compared = None if truth is None else similarity(truth, stored.text, seed=stored.seed)
            return report_reconstruction(stored, compared)
        case BenchScore():
            return write_page(stored.folder, render_score(stored.result))
        case Membership():
            return write_page(stored.folder, render_member(stored.view))
        case Probe():
            return write_page(stored.folder, render_probe(stored.view))
        case SavedComparison():
            from rote.jobs.compare import compare_again

            return write_page(stored.folder, compare_again(stored).page())


def report_reconstruction(written: StoredReconstruction, compared: Similarity | None) -> Path:
    """The page of a reconstruction, once it is compared with the truth."""
    page = render_reconstruction(written.manifest, written.summary, written.seed, written.text, compared)
    return write_page(written.folder, page)


def write_page(folder: Path, page: str) -> Path:
    write_whole(folder / "report.html", page.encode("utf-8", "replace"))
    return folder / "report.html"
