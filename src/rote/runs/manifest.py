"""The manifest: everything that decides a number, and the refusal to mix runs that differ in it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import rote
from rote.errors import RunError

FORMAT = 2
NOT_DECIDING = {"created", "source.name", "model.name", "versions.python"}


def build(
    *,
    kind: str,
    source: Mapping[str, Any],
    model: Mapping[str, Any],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "kind": kind,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": dict(source),
        "model": dict(model),
        **options,
        "versions": {
            "rote": rote.__version__,
            "torch": version("torch"),
            "transformers": version("transformers"),
            "python": platform.python_version(),
        },
    }


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def refuse_if_different(stored: Mapping[str, Any], asked: Mapping[str, Any], folder: str) -> None:
    """Raise a RunError that names every field in which the stored run and the asked one differ."""
    before, now = dict(_flat(stored)), dict(_flat(asked))
    differing = [
        f"{key}: the folder has {before.get(key, 'nothing')!r}, this command {now.get(key, 'nothing')!r}"
        for key in sorted(before.keys() | now.keys())
        if key not in NOT_DECIDING and before.get(key) != now.get(key)
    ]
    if differing:
        raise RunError(
            f"{folder} holds a run that was made differently, so its numbers cannot be continued:\n  "
            + "\n  ".join(differing)
            + "\nChoose another --out, or delete the folder to start anew."
        )


def _flat(tree: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value
