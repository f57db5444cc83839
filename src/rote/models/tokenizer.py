"""A model's tokenizer alone, to show the tokens of a finished run: the weights stay where they are."""

from __future__ import annotations

from typing import Any

from rote.errors import ModelError, RoteError
from rote.models.fingerprint import tokenizer_hash
from rote.models.huggingface import source_of


def load_tokenizer(name: str, *, revision: str | None = None, expected: str | None = None) -> Any:
    """The tokenizer of a model folder, GGUF file or hub id, from this machine's own files: nothing is downloaded.

    `expected`: the hash that a run's manifest has for it; another tokenizer is refused, as its tokens would be wrong.
    """
    from transformers import AutoTokenizer

    try:
        source, options = source_of(name)
        if revision is not None:
            options["revision"] = revision
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True, **options)
    except RoteError:
        raise
    except Exception as error:  # whatever a missing or damaged file makes transformers and tokenizers raise
        raise ModelError(f"the tokenizer of {name} is not on this machine, or cannot be read.") from error
    if expected is not None and tokenizer_hash(tokenizer) != expected:
        raise ModelError(f"the tokenizer of {name} is no longer the one that the run was made with.")
    return tokenizer
