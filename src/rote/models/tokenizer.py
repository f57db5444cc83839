"""A model's tokenizer alone, to show the tokens of a finished run: the weights stay where they are."""

from __future__ import annotations

from typing import Any

from rote.errors import ModelError
from rote.models.fingerprint import tokenizer_hash
from rote.models.safety import refuse_unsafe_tokenizer
from rote.models.sources import find, quietly


def load_tokenizer(
    name: str, *, revision: str | None = None, expected: str | None = None, download: bool = False
) -> Any:
    """The tokenizer of a model folder, GGUF file or hub id; from this machine's own files, unless told to `download`.

    `expected`: the hash that a run's manifest has for it; another tokenizer is refused, as its tokens would be wrong.
    Code that comes with a tokenizer is not run, whatever the run was made with.
    """
    with quietly():
        from transformers import AutoTokenizer

    found = find(name, revision, download=download)
    try:
        refuse_unsafe_tokenizer(found)
        own = {**found.given, "local_files_only": not download, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(found.source, **own)
    except ModelError as error:
        raise ModelError(
            f"the tokenizer of {name} is not read to show tokens: it would run code of its own."
        ) from error
    except Exception as error:  # whatever a missing or damaged file makes transformers and tokenizers raise
        raise ModelError(f"the tokenizer of {name} is not on this machine, or cannot be read.") from error
    if expected is not None and tokenizer_hash(tokenizer) != expected:
        raise ModelError(f"the tokenizer of {name} is no longer the one that this was made with.")
    return tokenizer
