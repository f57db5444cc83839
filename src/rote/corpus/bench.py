"""The extraction benchmark's public files: arrays of token ids as .npy, and guesses as CSV.

A split is SPLIT_prefix.npy, SPLIT_suffix.npy and SPLIT_preprefix.npy; rows are examples, and the row's number is the
example's id. The last two may be missing: the answers to test prefixes are kept back, and few know what stood before.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rote.corpus.formats import read_text
from rote.corpus.lines import fail
from rote.errors import InputError, counted

Ids = NDArray[np.int64]
"""A row of token ids for each example."""

SPLITS = ("train", "val", "test")
HEADER = ("Example ID", "Suffix Guess")
LARGEST = 2**32 - 1
"""The largest token id that the files hold."""

_NUMBER = re.compile(r"\s*-?[0-9]{1,18}\s*")
_LIST = re.compile(r"\s*\[\s*-?[0-9]{1,18}\s*(?:,\s*-?[0-9]{1,18}\s*)*\]\s*")
_ROW = 'Give two fields a line: an example\'s id and a list in quotes, as in 12,"[1, 2, 3]".'


@dataclass(frozen=True, slots=True)
class Guess:
    """What an attack takes for the suffix of an example."""

    example: int
    suffix: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """The examples of one split. `preprefix`: what stood before the prefix."""

    prefix: Ids
    suffix: Ids | None = None
    preprefix: Ids | None = None

    def __len__(self) -> int:
        return len(self.prefix)


# --- arrays


def read_ids(path: Path, vocabulary: int | None = None) -> Ids:
    """An array of token ids, a row for each example; `vocabulary`: every id must lie below it."""
    try:
        found = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file. Check the path.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder. Give one .npy file.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, EOFError):
        raise InputError(f"{path} is not an .npy file of numbers. Save it with numpy.save.") from None
    if not isinstance(found, np.ndarray):
        found.close()
        raise InputError(f"{path} holds several arrays. Save one, with numpy.save.")
    if found.ndim != 2 or found.dtype.kind not in "iu":
        raise InputError(
            f"{path} holds {_shape(found.shape)} of {found.dtype}. Give a row of token ids for each example: two "
            "dimensions, whole numbers."
        )
    if not found.size:
        raise InputError(f"{path} holds {_shape(found.shape)}: nothing. Give at least one row with one token id.")
    most = LARGEST if vocabulary is None else vocabulary - 1
    wrong = np.argwhere((found < 0) | (found > most))
    if len(wrong):
        row, column = map(int, wrong[0])
        fail(
            f"{path}, row {row}",
            f"token {column} is {int(found[row, column])}. Give token ids from 0 to {most:,}"
            + (", as the file can hold them." if vocabulary is None else ": the vocabulary has no others."),
        )
    return found.astype(np.int64)


def write_ids(path: Path, ids: Ids, vocabulary: int | None = None) -> None:
    """Write them as the public set has them: as 16 bits an id where the vocabulary, or what is there, fits; else 32."""
    array = np.asarray(ids)
    if array.ndim != 2 or array.dtype.kind not in "iu" or not array.size:
        raise InputError(f"{path}: {_shape(array.shape)} of {array.dtype} is no array of token ids.")
    least, most = int(array.min()), int(array.max())
    if least < 0 or most > (LARGEST if vocabulary is None else vocabulary - 1):
        raise InputError(f"{path}: the token id {least if least < 0 else most} cannot be written.")
    out = io.BytesIO()
    np.save(out, array.astype(np.uint16 if (vocabulary or most + 1) <= 2**16 else np.uint32))
    _write(path, out.getvalue())


def splits_in(folder: Path) -> list[str]:
    """The names of the splits that a folder has, the usual ones first."""
    if not Path(folder).is_dir():
        raise InputError(f"there is no folder {folder}; give one with files such as train_prefix.npy.")
    found = sorted(path.name.removesuffix("_prefix.npy") for path in Path(folder).glob("*_prefix.npy"))
    if not found:
        raise InputError(f"{folder} has no files such as train_prefix.npy, so it holds no benchmark. Check the folder.")
    return [name for name in SPLITS if name in found] + [name for name in found if name not in SPLITS]


def read_split(folder: Path, name: str, vocabulary: int | None = None) -> Split:
    """One split of a folder; its files must be of the same examples."""
    folder = Path(folder)
    prefix = read_ids(folder / f"{name}_prefix.npy", vocabulary)
    others: dict[str, Ids | None] = {}
    for part in ("suffix", "preprefix"):
        path = folder / f"{name}_{part}.npy"
        others[part] = read_ids(path, vocabulary) if path.is_file() else None
        if (rows := others[part]) is not None and len(rows) != len(prefix):
            raise InputError(
                f"{path} has {counted(len(rows), 'row')}, and {name}_prefix.npy beside it has {len(prefix):,}: they "
                "are not of the same examples. Put the right file there."
            )
    return Split(prefix, others["suffix"], others["preprefix"])


def _shape(shape: tuple[int, ...]) -> str:
    return f"an array of shape {'×'.join(map(str, shape)) or 'none (a single number)'}"


# --- guesses


def read_guesses(path: Path, examples: int | None = None, length: int | None = None) -> list[Guess]:
    """The guesses of a CSV file, in order; a line that cannot be used is named.

    `examples`: how many there are, so that ids must lie below. `length`: how many tokens every guess must have.
    """
    guesses = [_guess(row, where, examples, length) for where, row in _rows(path)]
    if not guesses:
        raise InputError(f"{path} holds no guesses: there is nothing after the header. {_ROW}")
    return guesses


def check_guess(guess: Guess, where: str, examples: int | None, length: int | None) -> None:
    """A guess must be of an example that is there, and as long as its answer."""
    if guess.example < 0 or (examples is not None and guess.example >= examples):
        last = "" if examples is None else f", up to {examples - 1:,} as there are {counted(examples, 'answer')}"
        fail(where, f"there is no example {guess.example}. Give the row of an answer, counted from 0{last}.")
    for place, token in enumerate(guess.suffix):
        if not 0 <= token <= LARGEST:
            fail(where, f"token {place} of the guess is {token}. Give token ids: whole numbers of at least 0.")
    if length is not None and len(guess.suffix) != length:
        fail(
            where,
            f"the guess has {counted(len(guess.suffix), 'token')}, and the answers have {length}. Give guesses that "
            "are as long as the answers.",
        )


def write_guesses(path: Path, guesses: Iterable[Guess]) -> None:
    """Write guesses in order, as the public example is written."""
    out = io.StringIO(newline="")
    rows = csv.writer(out)
    rows.writerow(HEADER)
    for number, guess in enumerate(guesses):
        check_guess(guess, f"guess {number}", None, None)
        if not guess.suffix:
            fail(f"guess {number}", "it is empty. Give at least one token.")
        rows.writerow([guess.example, f"[{','.join(map(str, guess.suffix))}]"])
    _write(path, out.getvalue().encode())


def _rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The rows after the header, each with its place; what is blank is no row."""
    reader, line = csv.reader(io.StringIO(read_text(path), newline=""), strict=True), 1
    try:
        for row in reader:
            where, line = f"{path}, line {line}", reader.line_num + 1
            if where.endswith(", line 1"):
                if tuple(row) != HEADER:
                    fail(where, f"the header is {','.join(row)[:60]!r}. Begin the file with {','.join(HEADER)}.")
            elif row:
                yield where, row
    except csv.Error as error:
        fail(f"{path}, line {line}", f"not CSV ({error}). {_ROW}")


def _guess(row: list[str], where: str, examples: int | None, length: int | None) -> Guess:
    if len(row) != 2:
        fail(where, f"{counted(len(row), 'field')}, not 2. {_ROW}")
    number, ids = row
    if not _NUMBER.fullmatch(number):
        fail(where, f"the example's id is {number[:40]!r}, which is no whole number. {_ROW}")
    if not _LIST.fullmatch(ids):
        fail(where, f"the guess is {ids[:40]!r}, which is no list of token ids. {_ROW}")
    guess = Guess(int(number), tuple(map(int, ids.strip()[1:-1].split(","))))
    check_guess(guess, where, examples, length)
    return guess


def _write(path: Path, content: bytes) -> None:
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}. Check the folder.") from None
