"""`index.build`: an index over a corpus, with a model's own tokens or with bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import Annotated, Any

from rote.corpus.documents import Corpus, Document, open_corpus
from rote.corpus.readings import Reader
from rote.corpus.shards import width_of
from rote.errors import InputError, RunError, argument, counted
from rote.models.fingerprint import tokenizer_hash
from rote.models.tokenizer import load_tokenizer
from rote.options import Option, folder_of, require_flag, require_number, typed_path
from rote.progress import Progress, quiet, stopping
from rote.store import index as files
from rote.store.files import FORMAT, digest, locked, now
from rote.store.manifest import made_with
from rote.store.seal import hash_of

GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What is to be read, and as what."""

    corpus: Corpus
    reader: Reader
    vocabulary: int
    ids: bool


def build(
    corpus: Annotated[str | Path, Option("A folder of texts, a JSONL or Parquet file, or a dataset saved to disk.")],
    *,
    out: Annotated[Path | str, Option("Folder for the index.", "--out/-o", parse=typed_path)],
    tokenizer: Annotated[
        str | None, Option("Model whose tokenizer makes the tokens.", "--model/-m", default="bundled")
    ] = None,
    revision: Annotated[str | None, Option("Branch, tag or commit of a hub model.")] = None,
    bytes: Annotated[bool, Option("Index bytes of text instead of tokens: serves every model.")] = False,
    text_column: Annotated[str | None, Option("Key or column that holds the text.", default="text")] = None,
    ids: Annotated[str | None, Option("Key or column that holds token ids, in a corpus that has them.")] = None,
    glob: Annotated[str | None, Option("Which files of a folder are texts.", default="*.txt")] = None,
    memory: Annotated[
        float | None, Option("Gigabytes that sorting may take; decides the size of shards.", default="half of it")
    ] = None,
    progress: Progress | None = None,
) -> files.StoredIndex:
    """Index a corpus, so that it can be searched exactly; a folder that holds part of this index is continued.

    Documents are tokenised by the `tokenizer` of a model, without special tokens, and searched token by token; or, with
    `bytes`, as UTF-8. `ids` names where token ids stand in a corpus that is tokenised already, such as the rows that
    were fed to a model. The files are those of infini-gram, so that its own tools can read them. A finished index is
    held against the hashes that it was built with.
    """
    tell, folder = progress or quiet, folder_of(out)
    require_flag("bytes", bytes)
    _refuse_idle(tokenizer, revision, bytes, text_column, ids)
    files.builder()  # or nothing is begun
    name = None if bytes else tokenizer or "bundled"
    loaded = None if name is None else load_tokenizer(name, revision=revision, download=True)
    opened = open_corpus(corpus, text_column=text_column, ids_column=ids, glob=glob, progress=tell)
    vocabulary = 255 if loaded is None else len(loaded)
    plan = _Plan(corpus=opened, reader=Reader(loaded), vocabulary=vocabulary, ids=ids is not None)
    with locked(folder), stopping(lambda: _left(folder)):
        manifest = _begin(folder, _manifest(plan, name, revision, memory), memory)
        files.clear_away(folder)
        if manifest.shards is not None:
            files.refuse_changed(folder, manifest.shards)
        shards = manifest.shards or _complete(folder, manifest, plan, tell)
        if manifest.shards is None:
            files.close(folder, manifest, shards)
    return files.open_index(folder)


def _refuse_idle(
    tokenizer: str | None, revision: str | None, bytes: bool, text_column: str | None, ids: str | None
) -> None:
    for name, value in (("tokenizer", tokenizer), ("revision", revision), ("ids", ids)):
        if bytes and value is not None:
            why = "is for texts" if name == "ids" else "needs no tokenizer"
            raise InputError(f"{argument('bytes')} {why}; leave {argument(name)} out.")
    if revision is not None and tokenizer is None:
        raise InputError(f"{argument('revision')} is for a model of the hub; give {argument('tokenizer')} as well.")
    if ids is not None and text_column is not None:
        raise InputError(f"{argument('ids')} and {argument('text_column')} name two contents; give one of them.")


def _manifest(plan: _Plan, name: str | None, revision: str | None, memory: float | None) -> files.IndexManifest:
    width = width_of(plan.vocabulary)
    versions = {key: value for key, value in made_with().items() if key in ("rote", "transformers", "python")}
    return files.IndexManifest(
        format=FORMAT,
        kind="index",
        created=now(),
        corpus=plan.corpus.path.name,
        documents=len(plan.corpus.documents),
        listing=digest("\n".join(_listed(plan.corpus))),
        unit="bytes" if name is None else "tokens",
        model=name,
        revision=revision,
        tokenizer=tokenizer_hash(plan.reader.tokenizer),
        vocabulary=plan.vocabulary,
        width=width,
        shard_bytes=int(_memory(memory) // files.MEMORY[width]),
        versions=versions,
    )


def _listed(corpus: Corpus) -> Iterator[str]:
    yield f"{corpus.shape} {corpus.column.name}"
    hashes: dict[Path, str] = {}
    for document in corpus.documents:
        if document.file not in hashes:
            hashes[document.file] = hash_of(document.file)
        yield f"{hashes[document.file]} {document.id}"


def _memory(memory: float | None) -> float:
    if memory is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
    if not require_number("memory", memory) > 0:
        raise InputError(f"{argument('memory', memory)}: give gigabytes, more than 0.")
    return memory * GIB


def _begin(folder: Path, asked: files.IndexManifest, memory: float | None) -> files.IndexManifest:
    """What the folder is an index of; one of something else, or made differently, is refused."""
    if not (folder / files.INDEX).is_file():
        other = next((path.name for path in folder.iterdir() if not path.name.startswith(".")), None)
        if other is not None:
            raise RunError(
                f"{folder} is not empty (it has {other}) and holds no index. Choose another {argument('out')}."
            )
        files.write_index(folder, asked)
        return asked
    stored = files.read_index(folder)
    if stored.shards is None and not files.finished_shards(folder):  # nothing would be lost
        files.write_index(folder, asked)
        return asked
    differs = {
        f"of {stored.unit}, not of {asked.unit}": stored.unit != asked.unit,
        f"with another tokenizer ({stored.model}) than that of {asked.model}": stored.tokenizer != asked.tokenizer,
        f"of another corpus ({stored.corpus}, {counted(stored.documents, 'document')}) than {asked.corpus} is now": (
            stored.listing != asked.listing
        ),
        f"with another {argument('memory')}": memory is not None and stored.shard_bytes != asked.shard_bytes,
    }
    for how, so in differs.items():
        if so:
            raise RunError(
                f"{folder} holds an index that was made {how}. Choose another {argument('out')}, or delete the folder "
                "to start anew."
            )
    return stored


def _complete(folder: Path, manifest: files.IndexManifest, plan: _Plan, tell: Progress) -> list[files.IndexedShard]:
    shards = files.finished_shards(folder)
    done, total = sum(shard.documents for shard in shards), manifest.documents
    in_order = sorted(plan.corpus.documents, key=lambda document: (document.file, document.place))  # as they are read
    documents = _documents(plan, in_order[done:], tell, done)
    while done < total:
        shard = files.write_tokens(folder, len(shards), documents, manifest.width, manifest.shard_bytes)
        tell("sorted", len(shards), len(shards) + 1)
        shards.append(files.sort_tokens(folder, len(shards), manifest.width, shard))
        done += shard.documents
        tell("sorted", len(shards), len(shards) + (done < total))
    return shards


def _documents(
    plan: _Plan, documents: Sequence[Document], tell: Progress, done: int
) -> Iterator[tuple[dict[str, Any], Sequence[int]]]:
    """What is said of each document, as infini-gram's own builder would say it, and its tokens."""
    total = done + len(documents)
    if plan.ids:
        found: Iterator[tuple[Document, Sequence[int]]] = plan.corpus.read_ids(documents, plan.vocabulary)
    else:
        first, second = tee(plan.corpus.read(documents))
        texts = plan.reader.many(text for _, text in second)
        found = ((document, ids) for (document, _), ids in zip(first, texts, strict=True))
    base = plan.corpus.path if plan.corpus.path.is_dir() else plan.corpus.path.parent
    for number, (document, ids) in enumerate(found, done + 1):
        path = document.file.relative_to(base).as_posix()
        yield {"path": path, "linenum": document.number - 1, "metadata": {"id": document.id}}, ids
        tell("tokenised", number, total)


def _left(folder: Path) -> str:
    shards = files.finished_shards(folder)
    said = f"{counted(len(shards), 'shard')} of the index stored" if shards else "nothing stored yet"
    return f"{said} in {folder}. Run the same command again to go on."
