"""Seals: the hashes of a finished folder's files, so that whoever reads it knows that nothing changed since."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from rote.errors import RunError
from rote.store.files import FORMAT, now, pretty, read_declared, write_whole

SEAL = "seal.json"
ASIDE = "seal-before.json"
"""Where the seal of a folder is while that is gone on with: the next seal is the same, or names it."""

BEGUN_WITH = ("manifest.json", "seed.json")
"""What a folder is begun with: without it, nothing else can be made again."""

READ = (
    *BEGUN_WITH, "text.txt", "examples.jsonl", "texts.jsonl", "windows.parquet", "variants.json", "outputs.json",
    "chunks.jsonl", "summary.json", "sweep.json", "comparison.json", "score.json", "rounds.jsonl", "guesses.jsonl",
    "guesses.csv", "calibration.json", "chosen.parquet", "verdicts.parquet",
)  # fmt: skip
"""What is read of a folder where it is there, beside shards."""

MEANING = (
    "A seal proves that none of the sealed files changed since it was made. It does not prove who made it, when, or "
    "with which model: whoever can write the folder can seal it anew. Keep its number somewhere else, and compare."
)


@dataclass(frozen=True, kw_only=True)
class Seal:
    """The SHA-256 of each of the sealed `files`, by its path in the folder.

    `before`: the numbers of the seals that this one follows, the oldest first. `id`, its own number, is the SHA-256 of
    the seal without it, and stands for all. `unfinished`: a stage is sealed, and others are to come; what is there of
    them already is not read.
    """

    format: int
    created: str
    before: list[str]
    files: dict[str, str]
    id: str
    unfinished: bool | None = None


def read_seal(folder: Path, name: str = SEAL) -> Seal:
    """The seal as it stands; whether the files still fit is another question."""
    path = folder / name
    again = "Nothing says now whether the files are as they were: restore the seal, or make the run anew elsewhere."
    seal = read_declared(path, Seal, again)
    if path.read_bytes() != pretty(seal) or seal.id != _id(seal):
        raise RunError(f"{path} was changed after it was made. {again}")
    return seal


def check_seal(folder: Path) -> Seal:
    """The seal of a folder whose files are as they were when it was made; a RunError names the first that is not."""
    if not (folder / SEAL).is_file() and (folder / ASIDE).is_file():
        raise RunError(
            f"{folder} has no {SEAL} yet: it is gone on with. Wait for it, or run the command that made it again."
        )
    if not (folder / SEAL).is_file():
        raise RunError(
            f"{folder} has no {SEAL}, so nothing says whether its files are as they were when it was finished. Put the "
            "seal back; or make it anew, in another folder."
        )
    seal = read_seal(folder)
    for name, expected in seal.files.items():
        path = folder / name
        if not path.is_file():
            raise RunError(f"{path} is gone, and the seal of {folder} names it. {_mend(name)}")
        if hash_of(path) != expected:
            raise RunError(_changed(path, folder))
    _refuse_added(folder, seal)
    return seal


def write_seal(
    folder: Path,
    names: Iterable[str],
    coming: Mapping[str, bytes] = MappingProxyType({}),
    *,
    unfinished: bool | None = None,
) -> Seal:
    """Seal these files. Where they are sealed already as they stand, that seal stays; else the new one names it.

    `coming`: those that are written after it, so that what is finished is never there without its seal.
    """
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in coming.items()}
    files = {name: hashes.get(name) or hash_of(folder / name) for name in sorted({*names, *coming})}
    earlier = next((read_seal(folder, name) for name in (SEAL, ASIDE) if (folder / name).is_file()), None)
    if earlier is not None and (earlier.files, earlier.unfinished) == (files, unfinished):
        seal = earlier
    else:
        before = [] if earlier is None else [*earlier.before, earlier.id]
        seal = Seal(format=FORMAT, created=now(), before=before, files=files, id="", unfinished=unfinished)
        seal = replace(seal, id=_id(seal))
    write_whole(folder / SEAL, pretty(seal))
    (folder / ASIDE).unlink(missing_ok=True)
    return seal


def reopen(folder: Path, restored: Iterable[str] = ()) -> None:
    """Before a sealed folder is gone on with: what is there must be as it was, but for what is `restored` in any case.

    Until the folder is sealed again, its seal is put aside, so that nobody takes it for whole meanwhile.
    """
    if not (folder / SEAL).is_file():
        return
    seal = read_seal(folder)
    for name, expected in seal.files.items():
        path = folder / name
        if name not in restored and path.is_file() and hash_of(path) != expected:
            raise RunError(_changed(path, folder))
    _refuse_added(folder, seal)
    os.replace(folder / SEAL, folder / ASIDE)


def put_back(folder: Path) -> None:
    """Take the seal that was put aside again, if all that it names is as it was: what was to follow did not come."""
    if (folder / SEAL).is_file() or not (folder / ASIDE).is_file():
        return
    files = read_seal(folder, ASIDE).files
    if all((folder / name).is_file() and hash_of(folder / name) == expected for name, expected in files.items()):
        os.replace(folder / ASIDE, folder / SEAL)


def hash_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}.") from error


def shards_in(folder: Path) -> list[Path]:
    return sorted((folder / "scores").glob("[0-9]*.parquet"))


def words_in(folder: Path) -> list[Path]:
    return sorted((folder / "words").glob("[0-9]*.parquet"))


def stages_in(folder: Path) -> list[Path]:
    return sorted((folder / "stages").glob("[0-9]*.json"))


def _refuse_added(folder: Path, seal: Seal) -> None:
    """Whatever is read, and was not sealed."""
    numbered = [
        f"{path.parent.name}/{path.name}" for path in (*shards_in(folder), *words_in(folder), *stages_in(folder))
    ]
    if seal.unfinished:  # what comes after the last that was sealed belongs to the stages that are to come
        last = {kind: max(name for name in seal.files if name.startswith(kind)) for kind in ("scores/", "stages/")}
        numbered = [name for name in numbered if name <= last.get(name[:7], name)]
    present = {*numbered, *(name for name in READ if (folder / name).is_file())}
    if added := sorted(present - seal.files.keys()):
        raise RunError(
            f"{folder / added[0]} is not one of the files that were sealed, so it does not belong there; take it away."
        )


def _changed(path: Path, folder: Path) -> str:
    return f"{path} is not what was sealed: it was changed afterwards, so nothing is read from {folder}. " + _mend(
        path.name, "delete it and "
    )


def _mend(name: str, first: str = "") -> str:
    if name in BEGUN_WITH:
        return "Put the right file back, or make all of it anew, in another folder."
    return f"Put the right file back, or {first}run the command that made it again; a new seal then names the old one."


def _id(seal: Seal) -> str:
    return hashlib.sha256(pretty(replace(seal, id=""))).hexdigest()
