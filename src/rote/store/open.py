"""What a folder holds: a run, a sweep, a comparison, a reconstruction, a score and so on. Decided here alone."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rote.errors import InputError, RunError
from rote.store.comparison import StoredComparison
from rote.store.files import read_json
from rote.store.membership import StoredMembership
from rote.store.probing import StoredProbe
from rote.store.reconstruction import StoredReconstruction
from rote.store.run import StoredRun
from rote.store.submissions import SCORE, StoredScore
from rote.store.sweep import StoredSweep

Holding = Literal["run", "sweep", "comparison", "reconstruction", "score", "membership", "probe"]
Stored = (
    StoredRun | StoredSweep | StoredComparison | StoredReconstruction | StoredScore | StoredMembership | StoredProbe
)
Folder = Stored | str | Path
"""What a folder holds, opened, or the path of the folder."""


def kind_of(folder: str | Path) -> Holding:
    """What a folder holds; a RunError where it is none of Rote's."""
    path = Path(folder)
    if not path.is_dir():
        raise RunError(f"there is no folder {folder}; give the one that a finished run was written to.")
    if (path / "comparison.json").is_file():
        return "comparison"
    if (path / "sweep.json").is_file():
        return "sweep"
    if (path / SCORE).is_file():
        return "score"
    if (path / "index.json").is_file() or (path / "tokenized.0").is_file():
        raise RunError(
            f"{folder} holds an index of a corpus, which has no scores. Ask it with rote index count, find, next or "
            "trace."
        )
    if (path / "bench.json").is_file():
        raise RunError(f"{folder} holds a benchmark, which has no scores. Look at it with rote bench inspect.")
    if any(path.glob("prefix-*/manifest.json")):
        raise RunError(f"{folder} holds a sweep that is unfinished; run the same rote sweep again to finish it.")
    if not (path / "manifest.json").is_file():
        raise RunError(
            f"{folder} has no manifest.json, so it is not a run folder; give the one that a rote scan was written to."
        )
    kind = read_json(path / "manifest.json").get("kind")
    if kind == "attack":
        raise RunError(f"{folder} holds an attack's guesses, which are no run; `rote bench score` scores them.")
    if kind == "member":
        return "membership"
    if kind == "probe":
        return "probe"
    return "reconstruction" if kind == "reconstruct" else "run"


def open(folder: str | Path) -> Stored:
    """What a folder holds, finished or not, as its type."""
    path = Path(folder)
    match kind_of(folder):
        case "run":
            return StoredRun(path)
        case "sweep":
            return StoredSweep(path)
        case "comparison":
            return StoredComparison(path)
        case "reconstruction":
            return StoredReconstruction(path)
        case "score":
            return StoredScore(path)
        case "membership":
            return StoredMembership(path)
        case "probe":
            return StoredProbe(path)


def require_run(folder: str | Path) -> Path:
    """The path of a finished or unfinished run; anything else is an error that says what it is."""
    kind = kind_of(folder)
    if kind == "run":
        return Path(folder)
    if kind == "sweep":
        parts = sorted(path.parent for path in Path(folder).glob("prefix-*/manifest.json"))
        raise RunError(f"{folder} holds a sweep; give one of its runs, such as {parts[0] if parts else 'prefix-50'}.")
    if kind == "comparison":
        raise RunError(f"{folder} holds a comparison, which has no scores of its own; give one of the runs it names.")
    what = {
        "score": "scored guesses, no run",
        "membership": "membership scores of whole texts, no run of windows or examples",
        "probe": "probes of chat models, no run of windows or examples",
        "reconstruction": "a reconstruction, which has no scores",
    }[kind]
    raise RunError(f"{folder} holds {what}; `rote report` shows it.")


def path_of(given: object) -> Path:
    """The folder of what was opened, or the path itself."""
    path = getattr(given, "folder", given)
    if not isinstance(path, str | Path) or not str(path).strip():
        raise InputError(
            f"a folder that holds results is asked for, not {type(given).__name__}; give its path, or what rote.open "
            "gives."
        )
    return Path(path)
