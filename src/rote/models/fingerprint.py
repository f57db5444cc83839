"""Which weights and which tokenizer these are: hashes that runs know them by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def weight_files(source: str, options: Mapping[str, Any]) -> list[Path]:
    if "gguf_file" in options:
        return [Path(source) / options["gguf_file"]]
    folder = Path(source)
    if not folder.is_dir():  # a hub id: the snapshot in the local cache that was just loaded
        from transformers.utils.hub import cached_file

        folder = Path(str(cached_file(source, "config.json", **options))).parent
    for pattern in ("*.safetensors", "*.bin"):
        if files := sorted(folder.glob(pattern)):
            return files
    return []


def fingerprint(files: list[Path]) -> str:
    """A hash of the weights that costs little and does not depend on device or dtype.

    Files up to 64 MiB are hashed whole; of larger ones the size, the first MiB (names, shapes and offsets of all
    tensors) and 4 KiB of every MiB. It changes with any training step; it could miss an edit of a few weights.
    """
    mebi = 1 << 20
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.suffix} {size}\n".encode())
        with path.open("rb") as source:
            if size <= 64 * mebi:
                digest.update(source.read())
                continue
            digest.update(source.read(mebi))
            for offset in range(mebi, size, mebi):
                source.seek(offset)
                digest.update(source.read(4096))
    return digest.hexdigest()


def tokenizer_hash(tokenizer: Any) -> str | None:
    if tokenizer is None:
        return None
    backend: Callable[[], str] | None = getattr(getattr(tokenizer, "backend_tokenizer", None), "to_str", None)
    text = backend() if backend else repr(sorted(tokenizer.get_vocab().items()))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
