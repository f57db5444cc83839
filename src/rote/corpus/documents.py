"""Corpora: folders of texts, JSON lines, Parquet files, datasets saved by Hugging Face's `datasets`.

A corpus may be larger than memory. `open_corpus` goes through it once and keeps where each document stands, not its
text; `Corpus.read` then reads the documents that are asked for, and every file at most once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NoReturn

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from rote.corpus.formats import read_text
from rote.corpus.windows import lone_surrogate
from rote.errors import InputError, argument
from rote.options import whole
from rote.progress import Progress, quiet

Shape = Literal["texts", "jsonl", "parquet", "dataset"]

TEXT_COLUMN = "text"
GLOB = "*.txt"
FACTS = ("id", "split", "repetitions")
KINDS = "a folder of texts, a JSONL file, a Parquet file or folder, or a dataset saved with save_to_disk"


@dataclass(frozen=True, slots=True)
class Document:
    """Where a document stands and what its corpus says of it; its text stays on disk.

    `place` is for the reader of its file: (byte, 0), (row group, row in it) or (record batch, row in it). `number` is
    its line or row in the file, for messages. `said`: what else was asked for, as it stands there.
    """

    id: str
    file: Path
    place: tuple[int, int]
    number: int
    split: str | None = None
    repetitions: int | None = None
    said: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """The key or column of a document's content, and the option that names it; `also`: others to keep of it."""

    name: str
    holds: Literal["text", "ids"] = "text"
    also: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        return argument("text_column" if self.holds == "text" else "ids")


@dataclass(frozen=True, slots=True)
class Corpus:
    """The documents of a corpus, in the order of their sorted files."""

    path: Path
    shape: Shape
    column: Column
    documents: tuple[Document, ...]

    def read(self, documents: Iterable[Document]) -> Iterator[tuple[Document, str]]:
        """The texts of these documents, file by file. A missing text (null) is an empty one."""
        for document, text, where in self._read(documents):
            if text is not None and not isinstance(text, str):
                _fail(where, f"{self.column.name!r} is {_show(text)}. Give a string.")
            lone = lone_surrogate(text or "")
            if lone is not None:
                _fail(where, f"character {lone} is half of a surrogate pair, which is not text. Replace it.")
            yield document, text or ""

    def where(self, document: Document) -> str:
        """Its file, and its line or row there, for messages."""
        return _where(document.file, document.number, self.shape)

    def read_ids(self, documents: Iterable[Document], below: int) -> Iterator[tuple[Document, list[int]]]:
        """The same of documents that are token ids, all of them `below` the size of a vocabulary."""
        for document, ids, where in self._read(documents):
            if not isinstance(ids, list | None) or not all(map(whole, ids or ())):
                _fail(where, f"{self.column.name!r} is {_show(ids)}. Give a list of token ids.")
            wrong = next((token for token in ids or () if not 0 <= token < below), None)
            if wrong is not None:
                _fail(where, f"the token id {wrong} is none of the tokenizer's, which are 0 to {below - 1}.")
            yield document, ids or []

    def _read(self, documents: Iterable[Document]) -> Iterator[tuple[Document, Any, str]]:
        """What stands in the column, and where that is, for messages."""
        readers = {"texts": _read_texts, "jsonl": _read_jsonl, "parquet": _read_parquet, "dataset": _read_arrow}
        read = readers[self.shape]
        ordered = sorted(documents, key=lambda document: (document.file, document.place))
        for file, group in groupby(ordered, key=lambda document: document.file):
            for document, content in read(file, list(group), self.column):
                yield document, content, _where(file, document.number, self.shape)


def open_corpus(
    path: str | Path,
    *,
    text_column: str | None = None,
    ids_column: str | None = None,
    glob: str | None = None,
    also: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> Corpus:
    """Find out which kind of corpus this is and list its documents.

    `text_column` is where the text stands ("text" unless given), `glob` which files of a folder are texts ("*.txt").
    `ids_column`: where token ids stand, in a corpus that is tokenised already; it is read with `read_ids` then.
    Documents may have an `id` (unique; else the path in the folder, `line-N` or `row-N`), a `split` (in a saved
    DatasetDict: the split's name) and `repetitions`; `also` names others that are kept as they
    stand. `progress` counts megabytes or files as "listed".
    """
    path = Path(path)
    shape, files = _recognise(path, glob)
    column = Column(text_column or TEXT_COLUMN, also=also) if ids_column is None else Column(ids_column, "ids")
    if ids_column is not None and shape == "texts":
        raise InputError(f"{path} holds texts, which have no token ids; leave {argument('ids')} out.")
    tell = progress or quiet
    listings = {"texts": _list_texts, "jsonl": _list_jsonl, "parquet": _list_parquet, "dataset": _list_arrow}
    documents: list[Document] = []
    seen: dict[str, Document] = {}
    for document in listings[shape](path, files, column, tell):
        first = seen.setdefault(document.id, document)
        if first is not document:
            before = _where(first.file, first.number, shape)
            _fail(
                _where(document.file, document.number, shape),
                f"the id {document.id!r} is already that of {before}. Give every document its own id.",
            )
        documents.append(document)
    if not documents:
        raise InputError(f"{path} holds no documents. Give {KINDS}.")
    return Corpus(path, shape, column, tuple(documents))


def _recognise(path: Path, glob: str | None) -> tuple[Shape, list[Path]]:
    """The kind of corpus and its files, sorted by their path: the order on disk must decide nothing."""
    if path.is_file():
        with _opened(path) as file:
            start = file.read(4)
        if start == b"PAR1":
            return "parquet", [path]
        if path.suffix == ".txt":
            raise InputError(f"{path} is one text. Give a folder of texts, or scan it with `rote scan`.")
        return "jsonl", [path]
    if not path.is_dir():
        raise InputError(f"{path}: there is no such file or folder. Give {KINDS}.")
    if (path / "dataset_dict.json").is_file():
        splits = _json(path / "dataset_dict.json").get("splits")
        if not isinstance(splits, list) or not all(isinstance(split, str) for split in splits):
            raise InputError(f"{path / 'dataset_dict.json'} names no splits. Save the dataset again.")
        return "dataset", [file for split in sorted(splits) for file in _arrow_files(path / split)]
    if (path / "state.json").is_file():
        return "dataset", _arrow_files(path)
    try:
        texts = sorted(file for file in path.rglob(GLOB if glob is None else glob) if file.is_file())
    except (ValueError, NotImplementedError) as error:
        raise InputError(f"{argument('glob', glob)} is no pattern for files in {path}: {error}.") from None
    tables = sorted(file for file in path.rglob("*.parquet") if file.is_file())
    if tables and texts and glob is None:
        raise InputError(
            f"{path} holds Parquet files and texts ({tables[0].name}, {texts[0].name}). Give a folder with one of "
            f"the two, or take the texts with {argument('glob', GLOB)}."
        )
    if not texts and not tables:
        raise InputError(f"{path} holds no {glob or GLOB} file. Choose files with {argument('glob')}, or give {KINDS}.")
    return ("texts", texts) if texts else ("parquet", tables)


def _arrow_files(folder: Path) -> list[Path]:
    state = _json(folder / "state.json")
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise InputError(f"{folder} selects rows by an index file. Save it anew with a current version of datasets.")
    try:
        return [folder / str(entry["filename"]) for entry in state["_data_files"]]
    except (KeyError, TypeError):
        raise InputError(f"{folder / 'state.json'} names no data files. Save the dataset again.") from None


# --- a folder of texts


def _list_texts(path: Path, files: list[Path], column: Column, tell: Progress) -> Iterator[Document]:
    for file in files:
        yield Document(file.relative_to(path).as_posix(), file, (0, 0), 1)


def _read_texts(file: Path, documents: list[Document], column: Column) -> Iterator[tuple[Document, str]]:
    for document in documents:
        yield document, "" if file.stat().st_size == 0 else read_text(file)


# --- JSON lines


def _list_jsonl(path: Path, files: list[Path], column: Column, tell: Progress) -> Iterator[Document]:
    size, at = path.stat().st_size, 0
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip() and not (number == 1 and line.strip() == b"\xef\xbb\xbf"):
                where = _where(path, number, "jsonl")
                record = _record(line, where)
                if column.name not in record:
                    _fail(
                        where, f"no {column.name!r}. Name the key that holds the {column.holds} with {column.option}."
                    )
                yield _document(record, f"line-{number}", path, (at, 0), number, where, column)
            at += len(line)
            if number % 1000 == 0:
                tell("listed", at >> 20, size >> 20)


def _read_jsonl(path: Path, documents: list[Document], column: Column) -> Iterator[tuple[Document, Any]]:
    with _opened(path) as file:
        for document in documents:
            file.seek(document.place[0])
            yield document, _record(file.readline(), _where(path, document.number, "jsonl"))[column.name]


def _record(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        _fail(where, f"not UTF-8: byte {error.start} of the line (0x{line[error.start]:02X}) cannot be decoded.")
    except (ValueError, RecursionError) as error:
        _fail(where, f'not JSON ({error}). Give one object a line: {{"text": "..."}}.')
    if not isinstance(record, dict):
        _fail(where, 'not a JSON object. Give one object a line: {"text": "..."}.')
    return record


# --- Parquet


def _list_parquet(path: Path, files: list[Path], column: Column, tell: Progress) -> Iterator[Document]:
    for done, file in enumerate(files, 1):
        before = "" if file == path else f"{file.relative_to(path).as_posix()}/"
        with _damage(file), pq.ParquetFile(file) as table:
            _require(column, table.schema_arrow, file)
            facts = _facts(column, table.schema_arrow.names)
            row = 0
            for group in range(table.num_row_groups):
                known = table.read_row_group(group, columns=facts).to_pylist() if facts else []
                for place in range(table.metadata.row_group(group).num_rows):
                    row += 1
                    record = known[place] if known else {}
                    where = _where(file, row, "parquet")
                    yield _document(record, f"{before}row-{row}", file, (group, place), row, where, column)
        tell("listed", done, len(files))


def _read_parquet(file: Path, documents: list[Document], column: Column) -> Iterator[tuple[Document, Any]]:
    with _damage(file), pq.ParquetFile(file) as table:
        for group, members in groupby(documents, key=lambda document: document.place[0]):
            texts = table.read_row_group(group, columns=[column.name]).column(0)
            for document in members:
                yield document, texts[document.place[1]].as_py()


# --- datasets saved to disk


def _list_arrow(path: Path, files: list[Path], column: Column, tell: Progress) -> Iterator[Document]:
    several = (path / "dataset_dict.json").is_file()
    row, folder = 0, None
    for done, file in enumerate(files, 1):
        row = row if file.parent == folder else 0
        folder = file.parent
        number = 0
        for index, batch in enumerate(_batches(file, column)):
            facts = _facts(column, batch.schema.names)
            known = batch.select(facts).to_pylist() if facts else []
            for place in range(batch.num_rows):
                row, number = row + 1, number + 1
                record = dict(known[place]) if known else {}
                where = _where(file, number, "dataset")
                if several:
                    record = {**record, "split": folder.name}
                document = _document(record, f"row-{row}", file, (index, place), number, where, column)
                yield replace(document, id=f"{folder.name}/{document.id}") if several else document
        tell("listed", done, len(files))


def _read_arrow(file: Path, documents: list[Document], column: Column) -> Iterator[tuple[Document, Any]]:
    wanted = {index: list(members) for index, members in groupby(documents, key=lambda document: document.place[0])}
    for index, batch in enumerate(_batches(file, column)):
        if index in wanted:
            texts = batch.column(batch.schema.get_field_index(column.name))
            for document in wanted[index]:
                yield document, texts[document.place[1]].as_py()


def _batches(file: Path, column: Column) -> Iterator[Any]:
    """The record batches of a file; mapped, so that what is not looked at is not read."""
    if not file.is_file():
        raise InputError(f"{file} is missing, although its state.json names it. Copy the whole folder.")
    with _damage(file), pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as stream:
        _require(column, stream.schema, file)
        yield from stream


# --- what they share


def _facts(column: Column, names: Iterable[str]) -> list[str]:
    """Which of a table's columns are read beside the content."""
    return [name for name in names if name in (*FACTS, *column.also) and name != column.name]


def _document(
    record: Mapping[str, Any], name: str, file: Path, place: tuple[int, int], number: int, where: str, column: Column
) -> Document:
    own, split, repetitions = (record.get(key) for key in FACTS)
    if own is not None:
        name = str(own) if whole(own) else own
    if not isinstance(name, str) or not name or lone_surrogate(name) is not None:
        _fail(where, f"id is {_show(name)}. Give a string that is not empty, or leave id out.")
    if split is not None and (not isinstance(split, str) or lone_surrogate(split) is not None):
        _fail(where, f'split is {_show(split)}. Give a string such as "train".')
    if repetitions is not None and not (whole(repetitions) and repetitions >= 0):
        _fail(where, f"repetitions is {_show(repetitions)}. Give a whole number of at least 0.")
    said = tuple((key, record[key]) for key in column.also if record.get(key) is not None)
    return Document(name, file, place, number, split, repetitions, said)


def _require(column: Column, schema: Any, file: Path) -> None:
    name, whose = column.name, "the text's" if column.holds == "text" else "that of the token ids"
    if name not in schema.names:
        raise InputError(
            f"{file} has no column {name!r}; it has {', '.join(schema.names)}. Name {whose} with {column.option}."
        )
    kind = schema.field(name).type
    fits = _is_text(kind) if column.holds == "text" else _is_ids(kind)
    if not fits:
        raise InputError(
            f"the column {name!r} of {file} holds {kind}, not {'text' if column.holds == 'text' else 'token ids'}. "
            f"Name {whose} with {column.option}."
        )


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_ids(kind: Any) -> bool:
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and pa.types.is_integer(kind.value_type))


@contextmanager
def _damage(file: Path) -> Iterator[None]:
    """Turns what pyarrow says of a broken file into an error that names the file."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file} cannot be read: {str(error).splitlines()[0]}. Is it complete?") from error


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}. Check its permissions.") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}. Save the dataset again.") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is not what save_to_disk writes. Save the dataset again.")
    return content


def _where(file: Path, number: int, shape: Shape) -> str:
    return str(file) if shape == "texts" else f"{file}, {'line' if shape == 'jsonl' else 'row'} {number}"


def _fail(where: str, problem: str) -> NoReturn:
    raise InputError(f"{where}: {problem}")


def _show(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."
