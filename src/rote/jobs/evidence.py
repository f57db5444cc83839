"""Evidence: a run in one file, with its page, what it was made with, and how to make it again; and the way back."""

from __future__ import annotations

import platform
import tempfile
import zipfile
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

from rote.errors import InputError, RunError
from rote.jobs.open import Run
from rote.models.base import LogitModel, ModelOptions, load
from rote.progress import Progress, quiet
from rote.report.page.run import render_run
from rote.report.text.verification import instructions
from rote.scheme import Scheme
from rote.store.files import pretty, whole_file
from rote.store.manifest import Manifest
from rote.store.open import require_run
from rote.store.seal import SEAL, check_seal

RUN = "run"
"""The folder within the file that holds the run."""

PACKAGES = ("rote", "torch", "transformers", "tokenizers", "safetensors", "numpy", "polars", "pyarrow", "rapidfuzz")
MOST_BYTES = 64 << 30


@dataclass(frozen=True)
class Evidence:
    """What is to be verified: a run folder, or a file of evidence, which is unpacked to a place of its own."""

    path: Path

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | Path) or not str(self.path).strip():
            raise InputError(f"a run folder or a file of evidence is asked for, not {type(self.path).__name__}.")
        object.__setattr__(self, "path", Path(self.path))

    @cached_property
    def run(self) -> Run:
        """The run, with its files as they are: whether they fit the seal is for the reader to find out."""
        if self.path.is_dir():
            return Run(require_run(self.path))
        if not self.path.exists():
            raise RunError(f"there is no run folder and no file {self.path}; check the path.")
        return Run(self._unpacked / RUN)

    @property
    def packed(self) -> bool:
        return not self.path.is_dir()

    @property
    def name(self) -> str:
        return self.path.name or str(self.path)

    @property
    def result(self) -> Path:
        """Where the verification goes: into the folder, or beside the file."""
        if self.path.is_dir():
            return self.path / "verification.json"
        return self.path.with_name(f"{self.path.stem}.verification.json")

    @cached_property
    def _temporary(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="rote-evidence-")

    @property
    def _unpacked(self) -> Path:
        folder = Path(self._temporary.name)
        if (folder / RUN).exists():
            return folder
        try:
            with zipfile.ZipFile(self.path) as packed:
                names = [PurePosixPath(entry.filename) for entry in packed.infolist()]
                if any(name.is_absolute() or ".." in name.parts for name in names):
                    raise RunError(f"{self.path} holds names that lead out of it, so it is no evidence of Rote's.")
                if twice := next((name for name in names if names.count(name) > 1), None):
                    raise RunError(f"{self.path} holds {twice} twice, so it is no evidence of Rote's: which is meant?")
                if sum(entry.file_size for entry in packed.infolist()) > MOST_BYTES:
                    raise RunError(f"{self.path} would unpack to more than {MOST_BYTES >> 30} GiB; unpack it by hand.")
                packed.extractall(folder)
        except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
            raise RunError(
                f"{self.path} cannot be unpacked ({error}): it was cut off or changed, or is no file of rote export "
                "--to evidence. Get it again."
            ) from error
        if not (folder / RUN / "manifest.json").is_file():
            raise RunError(f"{self.path} holds no run; give a file that rote export --to evidence wrote.")
        return folder

    def beside(self) -> str | None:
        """What is wrong with what a file of evidence holds beside the sealed run; None: nothing.

        The page is compared where the same version of Rote can make it anew.
        """
        folder, run = self._unpacked, self.run
        present = {str(path.relative_to(folder).as_posix()) for path in folder.rglob("*") if path.is_file()}
        expected = {f"{RUN}/{name}" for name in (SEAL, *run.seal.files)} | {"environment.json"}
        made = {name: content.decode("utf-8", "replace") for name, content in _made(run, quiet).items()}
        for name in sorted((expected | made.keys()) - present):
            return f"{name} is missing"
        for name in sorted(present - expected - made.keys()):
            return f"{name} does not belong there"
        same = run.manifest.versions.get("rote") == version("rote")
        for name, content in made.items():
            if name != "environment.json" and same and (folder / name).read_text("utf-8") != content:
                return f"{name} is not what Rote makes of this run"
        return None

    @property
    def intact(self) -> bool:
        """Whether its files fit its seal."""
        try:
            check_seal(self.run.folder)
        except RunError:
            return False
        return True

    @property
    def model_options(self) -> ModelOptions:
        """How to load the run's model so that the same numbers come out."""
        return self.run.model_options

    def load_model(self, name: str | Path | None, options: ModelOptions) -> LogitModel:
        """The model of this name; whether it is the run's own is what is to be found out."""
        return load(self.run.manifest.model.name if name is None else name, options)


def pack(run: Run, path: Path, tell: Progress) -> list[str]:
    """Write the evidence of a finished run to `path`, and return the names of the files within.

    The page is made anew: the one in the folder is not sealed. The same run gives the same bytes on the same machine.
    """
    content = {**_made(run, tell), "environment.json": pretty(environment())}
    files = [SEAL, *run.seal.files]
    with whole_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in content.items():
            packed.writestr(_entry(name), data)
        for number, name in enumerate(files, 1):
            packed.writestr(_entry(f"{RUN}/{name}"), (run.folder / name).read_bytes())
            tell("packed", number, len(files))
    return [*content, *(f"{RUN}/{name}" for name in files)]


def _made(run: Run, tell: Progress) -> dict[str, bytes]:
    """What follows from the run itself."""
    return {
        "README.md": instructions(run.finished, run.seal.id).encode(),
        "reproduce.py": script(run.manifest).encode(),
        f"{RUN}/report.html": render_run(run.view, tell).encode("utf-8", "replace"),
    }


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    return entry


def environment() -> dict[str, Any]:
    """What this machine has that may decide a number."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "packages": versions,
    }


def script(manifest: Manifest) -> str:
    """A program that makes the run again, from what lies beside it, in a folder of its own."""
    model, windows = manifest.model, manifest.windows
    options: dict[str, Any] = {"bos": model.bos, "label": model.label}
    if model.served is not None:
        options |= {"tokenizer": model.served.tokenizer, "listed": model.served.listed or 0}
    else:
        options |= {"dtype": model.dtype, "revision": model.revision, "device": model.device}
        options |= {"fingerprint": model.hashed}
    if model.adapter is not None:
        options["adapter"] = model.adapter.name
    near = None
    if manifest.near is not None:
        own = {field.name: getattr(manifest.near, field.name) for field in fields(manifest.near)}
        own.pop("memory_positions")
        near = f"rote.Near({_listed(own)})"
    source = f"pathlib.Path(__file__).parent / {f'{RUN}/text.txt' if windows else f'{RUN}/examples.jsonl'!r}"
    arguments = {
        "schemes": repr([str(Scheme.parse(label)) for label in manifest.schemes]),
        "tau": repr(manifest.tau),
        "stop_early": repr(manifest.stop_early),
        "near": repr(near) if near is None else near,
        "batch_size": repr(manifest.batch_size),
        "name": repr(manifest.source.name),
        "out": repr("again"),
    }
    if windows is not None:
        cut = {name: getattr(windows, name) for name in ("prefix", "suffix", "stride", "unit")}
        steps = repr(list(manifest.source.steps))
        own = {"windows": f"rote.Windows({_listed(cut)})", "normalise": steps, "within": repr(windows.within)}
        if (refined := manifest.refined) is not None:
            own["refine"] = f"rote.Refine({_listed({'audit': refined.audit, 'audit_seed': refined.audit_seed})})"
        arguments = {**own, **arguments}
    called = "scan" if windows else "score"
    lines = [f"    {name}={value}," for name, value in arguments.items()]
    return "\n".join(
        [
            '"""Makes the run again, into the folder "again". Give another path of the model where it is elsewhere.',
            *_differently(manifest),
            '"""',
            "",
            "import pathlib",
            "import sys",
            "",
            "import rote",
            "",
            f"name = sys.argv[1] if len(sys.argv) > 1 else {model.name!r}",
            f"model = rote.load(name, rote.ModelOptions({_listed(options)}))",
            f"rote.{called}(",
            "    model,",
            f"    {source},",
            *lines,
            ")",
            "",
        ]
    )


def _differently(manifest: Manifest) -> list[str]:
    """What the program does otherwise than the command did."""
    told = []
    if manifest.sampling is not None:
        told += ["", "The examples were drawn from a corpus: the same are scored again, and not drawn again."]
    if manifest.model.trust_remote_code:
        told += ["", "Code that came with the model was run; add trust_remote_code=True if you trust it, too."]
    return told


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())
