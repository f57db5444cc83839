"""`bench inspect`: what a benchmark's files say about its criteria."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rote.analysis.inspection import Inspection, inspected
from rote.corpus.bench import read_split, splits_in
from rote.errors import InputError, argument
from rote.options import Option, require_whole


def inspect(
    folder: Annotated[Path | str, Option("With files such as train_prefix.npy and train_suffix.npy.", metavar="DIR")],
    *,
    vocabulary: Annotated[
        int | None, Option("Token ids must lie below it, as the model's tokenizer has them.", default="not checked")
    ] = None,
) -> Inspection:
    """Read every split of a benchmark, check its files, and say which criteria its examples do not satisfy.

    That is what can be said without its corpus and its model: entropy, repetition, whether the prefix has the suffix in
    it, repeated examples, prefixes with several suffixes, and what the splits have in common.
    """
    if not isinstance(folder, str | Path) or not str(folder).strip():
        raise InputError(f"{argument('folder')} must be a path, not {folder!r}.")
    if vocabulary is not None:
        require_whole("vocabulary", vocabulary)
    path = Path(folder)
    return inspected(str(path), {name: read_split(path, name, vocabulary) for name in splits_in(path)})
