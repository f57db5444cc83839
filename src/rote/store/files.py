"""Files that are there in full or not at all, and JSON files whose content has a declared type and a format number."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from rote.errors import InputError, RunError, argument

FORMAT = 7
"""Of every JSON file that Rote writes; one that differs in it is refused, not guessed at."""

Declared = TypeVar("Declared")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there in full or not at all, whatever happens meanwhile."""
    with whole_file(path) as out:
        out.write(content)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to piece by piece that is there in full or not at all, whatever happens meanwhile."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, path)
    except (Exception, KeyboardInterrupt) as error:
        part.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise RunError(
            f"cannot write {path}: {error.strerror}. Free some space or mend the permissions, then run the same "
            "command again: what is stored already is kept."
        ) from error


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"cannot make the folder {folder}: {error.strerror}. Choose another {argument('out')}."
        ) from error
    if not os.access(folder, os.W_OK):
        raise RunError(
            f"the folder {folder} is not writable. Choose another {argument('out')} or mend its permissions."
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a second process from writing to the same folder. The lock goes with the process, however it ends."""
    make_folder(folder)
    try:
        import fcntl
    except ImportError:  # no file locks on this system
        yield
        return
    try:
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise RunError(
            f"cannot write {folder / '.lock'}: {error.strerror}. Choose another {argument('out')}."
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(
                f"another rote process is writing {folder}; wait for it or choose another {argument('out')}."
            ) from error
        except OSError as error:
            raise RunError(
                f"cannot lock {folder}: {error.strerror}. Choose an {argument('out')} on a local disk."
            ) from error
        yield


def plain(content: Any) -> Any:
    """What a JSON file says of declared content: objects, lists and values.

    A field whose default is None may be absent, and is where it is None; any other is null where it has no value.
    """
    if is_dataclass(content):
        own = [(field, getattr(content, field.name)) for field in fields(content)]
        return {field.name: plain(value) for field, value in own if value is not None or field.default is not None}
    if isinstance(content, Mapping):
        return {name: plain(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [plain(value) for value in content]
    return content


def pretty(content: Any) -> bytes:
    """Declared content as the lines of a JSON file. A number that is none is an error: JSON has no word for it."""
    text = json.dumps(plain(content), indent=1, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8", "surrogatepass")


def line(content: Any) -> bytes:
    """Declared content as one line."""
    return (json.dumps(plain(content), ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


def read_json(path: Path, again: str = "Delete the run folder and start anew.") -> dict[str, Any]:
    """A JSON object as it stands in a file; `again` says what to do about a file that cannot be read."""
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {path}: {error}. {again}") from error
    return content


def read_declared(path: Path, kind: type[Declared], again: str) -> Declared:
    """A JSON file as the type that it was written from; one of another format, or damaged, is refused."""
    content = read_json(path, again)
    if (own_format := content.get("format")) != FORMAT:
        said = "names no format" if own_format is None else f"has format {own_format!r}"
        raise RunError(f"{path} {said}, but this version of Rote reads format {FORMAT}. {again}")
    typed = declared(content, kind, path, again)
    if missing := next(_missing(plain(typed), content), None):
        raise RunError(f"{path} is damaged: Object missing required field {missing}. {again}")
    return typed


def declared(content: Any, kind: type[Declared], path: Path, again: str) -> Declared:
    try:
        return msgspec.convert(content, kind)
    except (msgspec.ValidationError, InputError) as error:
        raise RunError(f"{path} is damaged: {str(error).rstrip('.')}. {again}") from error


def _missing(written: Any, content: Any, place: str = "$") -> Iterator[str]:
    """Fields that are always written and that a file lacks: a default, meant for Python callers, was taken for them."""
    if isinstance(written, dict):
        for name, value in written.items():
            if name not in content:
                yield f"`{name}` - at `{place}`"
            else:
                yield from _missing(value, content[name], f"{place}.{name}")
    elif isinstance(written, list):
        for value, own in zip(written, content, strict=True):
            yield from _missing(value, own, f"{place}[...]")
