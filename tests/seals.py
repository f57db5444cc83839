"""Folders that a test changes on purpose, and seals again, so that what reads them gets as far as what it tests."""

from __future__ import annotations

from pathlib import Path

from rote.store.seal import READ, SEAL, read_seal, write_seal


def reseal(folder: Path) -> None:
    """Forget the seal, and seal what it named, or would have, as it stands now: whoever can write a folder can."""
    sealed = read_seal(folder)
    named = {name for name in (*sealed.files, *READ) if (folder / name).is_file()}
    for name in named:
        if Path(name).name == SEAL:  # of a run within a sweep
            reseal((folder / name).parent)
    (folder / SEAL).unlink()
    write_seal(folder, named, unfinished=sealed.unfinished)


def unfinish(folder: Path) -> None:
    """Take away what comes last: the folder as a command leaves it that is stopped before it sums up."""
    for name in (SEAL, "summary.json"):
        (folder / name).unlink()
