"""Handles on what a folder holds, with what can be done with it: `rote.open`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from rote.analysis.narrow import Narrowed, narrowed
from rote.analysis.summary import THRESHOLDS, summarise
from rote.corpus.windows import cut_at
from rote.errors import InputError, ModelError, RoteError, RunError, argument
from rote.frames import FrameKind
from rote.models.base import LogitModel, ModelOptions, SpreadModel, TokenModel, load
from rote.models.cluster import load_on
from rote.models.engine import Engine
from rote.progress import Progress
from rote.store import open as stores
from rote.store.comparison import StoredComparison
from rote.store.manifest import refuse_other_model
from rote.store.membership import StoredMembership
from rote.store.probing import StoredProbe
from rote.store.reconstruction import StoredReconstruction
from rote.store.run import Finished, RunView, StoredRun
from rote.store.submissions import StoredScore
from rote.store.summary import Summary
from rote.store.sweep import StoredSweep, part
from rote.tokens import Example

if TYPE_CHECKING:
    from rote.jobs.export import Exported, Format
    from rote.jobs.figures import DrawnFigures
    from rote.report.figures.mpl.draw import FileFormat, Style


RunLike = StoredRun | str | Path
"""A run, or its folder."""

Model = TypeVar("Model", bound=TokenModel)


def as_run(given: RunLike) -> Run:
    """A run as a handle; one that was opened already keeps what it has read."""
    return given if isinstance(given, Run) else Run.open(stores.path_of(given))


def several(given: Any) -> list[Any]:
    """One folder or handle, or several of them."""
    one = isinstance(given, str | Path) or hasattr(given, "folder") or not isinstance(given, Iterable)
    if not one and not (given := list(given)):
        raise InputError("give at least one folder.")
    return [given] if one else given


class _Handle(ABC):
    """What can be done with every folder, whatever it holds."""

    folder: Path

    def report(self, *, progress: Progress | None = None) -> Path:
        """Write report.html from what the folder holds, and return its path."""
        from rote.jobs.report import report

        return report(self, progress=progress)  # type: ignore[arg-type]  # every handle is something stored

    def figures(
        self,
        *,
        out: str | Path | None = None,
        format: FileFormat = "svg",
        style: Style = "paper",
        scheme: str | None = None,
        progress: Progress | None = None,
    ) -> DrawnFigures:
        """Draw every figure; see `rote.figures`."""
        from rote.jobs.figures import figures

        return figures(self.folder, out=out, format=format, style=style, scheme=scheme, progress=progress)[0]

    def frame(self, kind: FrameKind = "polars") -> Any:
        """Its rows as a data frame, a `polars` or a `pandas` one, with the columns that `export` writes.

        Of a run: a row per example and scheme, with p_z and the texts of prefix and suffix.
        """
        from rote.jobs.export import frame

        return frame(self, kind)  # type: ignore[arg-type]  # every handle is something stored

    def export(
        self, to: Format, *, out: str | Path | None = None, scheme: str = "all", progress: Progress | None = None
    ) -> Exported:
        """Write its table for other programs; see `rote.export`."""
        from rote.jobs.export import export

        return export(self.folder, to, out=out, scheme=scheme, progress=progress)

    @abstractmethod
    def _card(self) -> str:
        """What a notebook shows of it."""

    def _repr_html_(self) -> str:
        from rote.report.text.cards import card

        try:
            return self._card()
        except RoteError as error:  # unfinished, or damaged: what can be done about it
            return card(str(error))


@dataclass(frozen=True)
class Run(_Handle, StoredRun):
    """A run: scanned windows or scored examples. `scores` has one row per example and scheme."""

    @cached_property
    def summary(self) -> Summary:
        """What the run came to, worked out from its rows. One that has not ended, or was changed since, is refused."""
        _ = self.seal
        return self.summed_up()

    def summed_up(self) -> Summary:
        """What its rows come to, sealed or not."""
        return summarise(self.manifest, self._narrowed, self.facts(), self.variants, self.outputs, len(self.stages))

    @cached_property
    def _narrowed(self) -> Narrowed:
        return narrowed(self.parts(), self.manifest, THRESHOLDS)

    @property
    def table(self) -> pl.DataFrame:
        """The score table; of a run too large to keep without what `rote.analysis.narrow` leaves away."""
        return self.scores if self.kept else self._narrowed.rows

    @property
    def finished(self) -> Finished:
        """A finished run without its rows."""
        return Finished(manifest=self.manifest, summary=self.summary, seal=self.seal.id)

    @cached_property
    def view(self) -> RunView:
        """All of a finished run."""
        return RunView(
            folder=self.folder,
            manifest=self.manifest,
            summary=self.summary,
            seal=self.seal.id,
            scores=self.table,
            texts=self.texts,
            places=self.places,
            lacking=None if self.kept else self.in_full,
        )

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """A finished or unfinished run; anything else is an error that says what it is."""
        run = cls(stores.require_run(folder))
        _ = run.manifest  # refuses one of another format, changed or damaged
        return run

    def _card(self) -> str:
        from rote.report.text.cards import run_card

        return run_card(self.view)

    def left_out(self, example: str) -> str | None:
        """Of a window that a scan in stages left out, a sentence that says so; None of any other."""
        if self.places is None:
            return None
        starts = self.rows(self.manifest.schemes[0])["start"]
        asked = next((start for start in self.places["start"] if f"w{start}" == example), None)
        if asked is None or asked in starts:
            return None
        nearest = starts[int((starts - asked).abs().arg_min() or 0)]
        return (
            f"{self.folder} is a scan in stages that left {example!r} out, so it has no number; the nearest window "
            f"that has one is 'w{nearest}'."
        )

    @property
    def intact(self) -> bool:
        """Whether it can be read at all: what does not fit its seal was refused when it was opened."""
        return True

    @property
    def model_options(self) -> ModelOptions:
        """How to load its model so that the same numbers come out: dtype, revision, adapter and BOS as they were.

        Code that came with the model was trusted then, if at all. It is not trusted again without being told to.
        """
        was = self.manifest.model
        if (served := was.served) is not None:
            return ModelOptions(bos=was.bos, label=was.label, tokenizer=served.tokenizer, listed=served.listed or 1)
        as_it_was = {"revision": was.revision, "bos": was.bos, "fingerprint": was.hashed, "label": was.label}
        adapter = None if was.adapter is None else was.adapter.name
        return ModelOptions(dtype=was.dtype, adapter=adapter, **as_it_was)  # type: ignore[arg-type]

    def cut(self, rows: pl.DataFrame, tokenizer: Any) -> list[Example]:
        """The rows' examples: as stored, or cut from the text again, with their places."""
        cut, text = self.manifest.windows, self.texts.text
        if cut is None or text is None:
            stored = {entry.id: entry for entry in self.examples}
            ids = [(name, stored[name]) for name in rows["example_id"]]
            return [Example(name, tuple(entry.prefix), tuple(entry.suffix)) for name, entry in ids]
        made = cut_at(text, tokenizer, cut, self.manifest.source.steps, rows["start"].to_list())
        if len(made) < rows.height:
            raise RunError(f"not all windows of {self.folder} can be cut from its text again with this tokenizer.")
        return made

    def load_model(self, name: str | Path | None = None, options: ModelOptions | None = None) -> LogitModel:
        """The model that the run was made with, from where it was, or from `name`: then it may be another."""
        return self._loaded(load, name, options)

    def load_model_on(
        self, engine: Engine, name: str | Path | None = None, options: ModelOptions | None = None
    ) -> LogitModel | SpreadModel:
        """The same on an engine, which may be a cluster's workers."""
        return self._loaded(partial(load_on, engine), name, options)

    def _loaded(
        self, loader: Callable[[str | Path, ModelOptions], Model], name: str | Path | None, options: ModelOptions | None
    ) -> Model:
        was, options = self.manifest.model, self.model_options if options is None else options
        if name is None and was.trust_remote_code and not options.trust_remote_code:
            raise ModelError(
                f"{self.folder} was made with code that came with the model {was.name!r}, trusted at that time. It "
                f"runs here only if you trust it too: {argument('trust_remote_code', True)}."
            )
        model = loader(was.name if name is None else name, options)
        if name is None:
            fix = f"Give {argument('model')} with the path of the same weights, or of another model on purpose."
            refuse_other_model(was, model.identity(), str(self.folder), "fingerprint", "tokenizer", "served", fix=fix)
        return model


@dataclass(frozen=True)
class Sweep(_Handle, StoredSweep):
    """A sweep over schemes, prompt lengths and suffix lengths; `result` is sweep.json."""

    def runs(self) -> Mapping[str, Finished]:
        """Its runs without their rows, by folder name."""
        runs = [Run(self.folder / part(length)) for length in self.result.lengths.prefix]
        for run in runs:
            if not (run.folder / "manifest.json").is_file():
                raise RunError(f"{run.folder}, a run of this sweep, is not there. Run the command that made it again.")
        return {run.folder.name: run.finished for run in runs}

    def _card(self) -> str:
        from rote.report.text.cards import sweep_card

        return sweep_card(self.result)


@dataclass(frozen=True)
class SavedComparison(_Handle, StoredComparison):
    """A comparison that was written to a folder; `result` is comparison.json."""

    def _card(self) -> str:
        from rote.report.text.cards import comparison_card

        return comparison_card(self.result)


@dataclass(frozen=True)
class Reconstruction(_Handle, StoredReconstruction):
    """A text that a model wrote on, and its comparison with the truth."""

    def _card(self) -> str:
        from rote.report.text.cards import reconstruction_card

        return reconstruction_card(self.manifest, self.summary)


@dataclass(frozen=True)
class BenchScore(_Handle, StoredScore):
    """Guesses held against a benchmark's answers; `result` is score.json."""

    def _card(self) -> str:
        from rote.report.text.cards import score_card

        return score_card(self.result)


@dataclass(frozen=True)
class Membership(_Handle, StoredMembership):
    """Membership scores of texts, and what they come to. `scores` has one row per text."""

    def _card(self) -> str:
        from rote.report.text.cards import member_card

        return member_card(self.summary)


@dataclass(frozen=True)
class Probe(_Handle, StoredProbe):
    """Probes of chat models. `questions` has a row for each question and its answer, `verdicts` what they come to."""

    def _card(self) -> str:
        from rote.report.text.cards import probe_card

        return probe_card(self.manifest, self.summary)


Handle = Run | Sweep | SavedComparison | Reconstruction | BenchScore | Membership | Probe


def as_handle(given: stores.Folder) -> Handle:
    """What a folder holds; what was opened already keeps what it has read."""
    return given if isinstance(given, Handle) else open(stores.path_of(given))


def open(folder: str | Path) -> Handle:
    """What a folder holds, finished or not: a run, a sweep, a comparison, a reconstruction, a score, and so on."""
    match stores.open(stores.path_of(folder)):
        case StoredRun(folder=path):
            return Run(path)
        case StoredSweep(folder=path):
            return Sweep(path)
        case StoredComparison(folder=path):
            return SavedComparison(path)
        case StoredReconstruction(folder=path):
            return Reconstruction(path)
        case StoredScore(folder=path):
            return BenchScore(path)
        case StoredMembership(folder=path):
            return Membership(path)
        case StoredProbe(folder=path):
            return Probe(path)
