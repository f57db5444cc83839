"""The manifest: everything that decides a number, and the refusal to mix runs that differ in it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import rote
from rote.decoding import GREEDY, Scheme
from rote.errors import RunError

FORMAT = 3
NOT_DECIDING = {"created", "source.name", "sampling.held_out_name", "model.name", "versions.python"}


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


def scheme_of(label: str) -> Scheme:
    """The scheme that a run calls by this label; labels tell every two schemes apart."""
    if label == str(GREEDY):
        return GREEDY
    parts = dict(part.split("=", 1) for part in label.split())
    return Scheme(
        temperature=float(parts["temperature"]),
        top_k=int(parts["top_k"]) if "top_k" in parts else None,
        top_p=float(parts["top_p"]) if "top_p" in parts else None,
    )


def refuse_other_model(
    manifest: Mapping[str, Any], identity: Mapping[str, Any], folder: str, *fields: str, fix: str
) -> None:
    """Raise a RunError where the model at hand is not, in these fields, the one that a run was made with."""
    before = manifest["model"]
    for field in fields:
        if identity[field] != before[field]:
            raise RunError(
                f"{folder} was made with another model: its {field} is "
                f"{before[field]!r}, that of {identity['name']} is {identity[field]!r}. {fix}"
            )


def refuse_if_different(stored: Mapping[str, Any], asked: Mapping[str, Any], folder: str) -> None:
    """Raise a RunError that names every field in which the stored run and the asked one differ."""
    differing = [
        f"{key}: the folder has {_shown(before)}, this command {_shown(now)}"
        for key, before, now in _differing(stored, asked)
    ]
    if differing:
        raise RunError(
            f"{folder} holds a run that was made differently, so its numbers cannot be continued:\n  "
            + "\n  ".join(differing)
            + "\nChoose another --out, or delete the folder to start anew."
        )


def _differing(stored: Mapping[str, Any], asked: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any, Any]]:
    for key in sorted(stored.keys() | asked.keys()):
        before, now = stored.get(key, "nothing"), asked.get(key, "nothing")
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            yield from _differing(before, now, f"{above}{key}.")
        elif above + key not in NOT_DECIDING and before != now:
            yield above + key, before, now


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={part}" for key, part in value.items() if part is not None)
    shown = repr(value)
    return shown if len(shown) <= 200 else f"{shown[:200]}…"
