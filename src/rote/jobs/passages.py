"""Whether runs measured the same passages, as only such are compared; and what else is different about them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from rote.errors import InputError
from rote.jobs.open import Run
from rote.store.files import plain
from rote.store.manifest import Manifest

_NOT_LISTED = {"created", "format", "kind", "source", "windows", "dropped", "shard_examples", "shards", "batch_tokens",
               "schemes", "refined.windows", "refined.closer"}  # fmt: skip


def refuse_incomparable(runs: Sequence[Run]) -> None:
    """Raise an InputError that names every field in which a run's passages differ from the first run's."""
    first = runs[0]
    problems = [problem for run in runs[1:] for problem in _different_passages(first, run)]
    if problems:
        raise InputError(
            "these runs did not measure the same passages, so they cannot be compared:\n  "
            + "\n  ".join(problems)
            + "\nCompare runs over the same text and windows, or over the same examples."
        )


def _different_passages(first: Run, other: Run) -> Iterator[str]:
    one, two = dict(_passage_fields(first.manifest)), dict(_passage_fields(other.manifest))
    for field in one | two:
        if one.get(field) == two.get(field):
            continue
        if field == "source.sha256" and one["kind"] == two["kind"] == "score" and _same_examples(first, other):
            continue
        yield (
            f"{field}: {first.folder} has {_value(first, field, one.get(field))}, "
            f"{other.folder} has {_value(other, field, two.get(field))}"
        )


def _passage_fields(manifest: Manifest) -> Iterator[tuple[str, Any]]:
    """What decides which passages a run measured, and where their prefixes end."""
    yield "kind", manifest.kind
    yield "source.sha256", manifest.source.sha256
    yield "source.normalised", manifest.source.steps or None
    if manifest.source.examples is not None:
        yield "source.examples", manifest.source.examples
    if manifest.windows is not None:
        for name, value in plain(manifest.windows).items():
            yield f"windows.{name}", value


def _value(run: Run, field: str, value: Any) -> str:
    if field == "source.sha256":
        return f"{value[:16]}… ({run.manifest.source.name})"
    return "nothing" if value is None else repr(value)


def _same_examples(first: Run, other: Run) -> bool:
    """Whether two score runs with different tokenizers hold the same texts under the same ids.

    Where their tokens end, a long text is cut off: of two texts that are the same, one begins with the other.
    """
    if first.manifest.model.tokenizer == other.manifest.model.tokenizer:
        return False
    one, two = first.texts.decoded, other.texts.decoded
    return list(one) == list(two) and all(_begin_alike("".join(one[key]), "".join(two[key])) for key in one)


def _begin_alike(one: str, two: str) -> bool:
    return bool(one and two) and (one.startswith(two) or two.startswith(one))


def refuse_nothing_scored_in_all(tables: Mapping[str, pl.DataFrame]) -> None:
    if not set.intersection(*(set(table["example_id"]) for table in tables.values())):
        raise InputError(
            "no window was scored in all of these runs: a scan in stages chooses its own. Let them go on, with the "
            "commands that made them, or scan the text in full."
        )


def differing(runs: Mapping[str, tuple[str, Manifest]]) -> dict[str, dict[str, Any]]:
    """The fields in which the manifests of runs differ, with each run's value. Of each: a scheme, its manifest."""
    flat = {key: {"scheme": scheme, **dict(_flat(plain(manifest)))} for key, (scheme, manifest) in runs.items()}
    if not all(manifest.model.served for _, manifest in runs.values()):  # what was sent differs from nothing
        flat = {
            key: {field: value for field, value in own.items() if not field.startswith("model.served.sent.")}
            for key, own in flat.items()
        }
    fields = dict.fromkeys(field for fields in flat.values() for field in fields)
    values = {field: {key: own.get(field) for key, own in flat.items()} for field in fields}
    return {field: each for field, each in values.items() if len({json.dumps(v) for v in each.values()}) > 1}


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if above + name in _NOT_LISTED or above + name == "near.memory_positions":
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value
