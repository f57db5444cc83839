"""The models of a probe: chat models by what they are there for, the reference, the index of a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rote.errors import InputError, argument
from rote.jobs.index.places import opened
from rote.models.base import ModelOptions
from rote.models.chat import Endpoint, load_chat
from rote.models.probed import ChatModel, WordReference
from rote.options import require_kind
from rote.probes.options import Words
from rote.progress import Progress
from rote.store.index import StoredIndex
from rote.store.probe import Role

BUNDLED = "bundled"

Chat = str | Path | ChatModel
"""A chat model, loaded or by name."""


def open_index_for(index: str | Path | StoredIndex | None, words: Words, methods: Sequence[str]) -> StoredIndex | None:
    used = "rare" in words.select and "cloze" in methods
    if index is None and used:
        raise InputError(
            f"{argument('select', 'rare')} goes by how often words stand together in a corpus: give the folder of its "
            f"{argument('index')}."
        )
    if index is not None and not used:
        raise InputError(f"{argument('index')} is for {argument('select', 'rare')} alone: add it, or leave this out.")
    return None if index is None else opened(index, None)


def several(given: Chat | Sequence[Chat]) -> list[Chat]:
    return [given] if isinstance(given, str | Path | ChatModel) else list(given)


def load_models(
    target: Chat | Sequence[Chat], filters: Chat | Sequence[Chat], paraphraser: Chat | None, picker: Chat | None,
    methods: Sequence[str], endpoint: Endpoint, device: str, tell: Progress,
) -> dict[tuple[Role, int], ChatModel]:  # fmt: skip
    """Every chat model that is asked something, by what it is there for. A name that is given twice is loaded once."""
    targets = several(target) or [BUNDLED]
    wanted: dict[tuple[Role, int], Chat] = {("target", number): each for number, each in enumerate(targets)}
    wanted |= {("filter", number): each for number, each in enumerate(several(filters))}
    for role, method, given in (("paraphrase", "decop", paraphraser), ("slot", "slot", picker)):
        if method in methods:
            wanted[role, 0] = targets[0] if given is None else given  # type: ignore[index]
        elif given is not None:
            name = "paraphraser" if role == "paraphrase" else "picker"
            raise InputError(f"{argument(name)} is for {argument('method', method)} alone: add it, or leave this out.")
    if len({str(each) for each in targets}) < len(targets):
        raise InputError(f"{argument('target')} names one model twice: nothing would differ. Give each once.")
    if both := {str(each) for each in targets} & {str(each) for each in several(filters)}:
        raise InputError(
            f"{argument('filter')} {both.pop()!r} is a target too: it would drop what the target knows. Give a model "
            "that has not read the texts."
        )
    loaded: dict[Any, ChatModel] = {}
    for number, each in enumerate(wanted.values()):
        tell("loaded", number, len(wanted))
        if isinstance(each, str | Path) and each not in loaded:
            same = _origin(each) is not None and _origin(each) == _origin(targets[0])
            first = each == targets[0]
            loaded[each] = load_chat(each, endpoint if first or same else Endpoint(), ModelOptions(device=device))
        elif not isinstance(each, str | Path | ChatModel):
            require_kind("target", each, ChatModel, "a chat model's name, or one that rote.load_chat gives")
    tell("loaded", len(wanted), len(wanted))
    return {role: loaded[each] if isinstance(each, str | Path) else each for role, each in wanted.items()}


def _origin(name: Any) -> tuple[str, str] | None:
    """Where a model is served from: what a key may be sent to."""
    parts = urlsplit(str(name))
    return (parts.scheme, parts.netloc) if parts.scheme in ("http", "https") else None


def reference_of(
    given: str | Path | WordReference | None, words: Words, methods: Sequence[str], device: str, tell: Progress
) -> WordReference | None:
    """The reference, where a selector goes by it."""
    if "cloze" not in methods or not {"prob", "rank"} & set(words.select):
        if given is not None:
            raise InputError(
                f"{argument('reference')} is for {argument('select', 'prob,rank')} alone: add one, or leave this out."
            )
        return None
    if isinstance(given, str | Path | None):
        from rote.models.masked import load_reference

        tell("loaded", 0, 1)
        given = load_reference(given or BUNDLED, ModelOptions(device=device))
        tell("loaded", 1, 1)
    require_kind("reference", given, WordReference, "the name of a model, or one that rote.load_reference gives")
    return given
