"""Which weights and which tokenizer these are: hashes that runs know them by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rote.models.base import Hashed

MEBI = 1 << 20
SMALL = 64 * MEBI


def weight_files(source: str, options: Mapping[str, Any]) -> list[Path]:
    if "gguf_file" in options:
        return [Path(source) / options["gguf_file"]]
    folder = Path(source)
    if not folder.is_dir():  # a hub id: the snapshot in the local cache that was just loaded
        from transformers.utils.hub import cached_file

        folder = Path(str(cached_file(source, "config.json", **options))).parent
    return sorted(folder.glob("*.safetensors"))


def fingerprint(files: list[Path], hashed: Hashed = "sampled") -> str:
    """A hash of the weights that does not depend on device or dtype, of every byte or, at little cost, of some.

    Files up to 64 MiB are hashed whole; of larger ones, if sampled, the size, the first MiB (names, shapes and offsets
    of all tensors) and 4 KiB of every MiB. That changes with any training step; it could miss an edit of a few weights.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.suffix} {size}\n".encode())
        with path.open("rb") as source:
            if hashed == "whole" or size <= SMALL:
                while part := source.read(16 * MEBI):
                    digest.update(part)
                continue
            digest.update(source.read(MEBI))
            for offset in range(MEBI, size, MEBI):
                source.seek(offset)
                digest.update(source.read(4096))
    return digest.hexdigest()


def tokenizer_hash(tokenizer: Any) -> str | None:
    if tokenizer is None:
        return None
    backend: Callable[[], str] | None = getattr(getattr(tokenizer, "backend_tokenizer", None), "to_str", None)
    text = backend() if backend else repr(sorted(tokenizer.get_vocab().items()))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
