"""Manifests: everything that decides a number, and the refusal to mix runs that differ in it."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

import rote
from rote.corpus.chat import ChatTemplate
from rote.corpus.sampling import Draw, Drawn
from rote.corpus.windows import Unit, Windows
from rote.errors import RunError, argument
from rote.extraction.near.options import Near
from rote.extraction.text.writing import Plan
from rote.models.base import ModelIdentity
from rote.store.files import plain
from rote.store.outputs import IndexUse
from rote.store.stages import Refined

NOT_DECIDING = {
    "created",
    "source.name",
    "train.name",
    "held_out.name",
    "reference.name",
    "reference.label",
    "sampling.held_out_name",
    "model.name",
    "model.label",
    "model.adapter.name",
    "model.placement",
    "model.served.tokenizer",
    "index.name",
    "versions.python",
}

MEASURED = {"model.dtype", "logit_tolerance"}
"""What is found out of a served model by asking it, and may come out otherwise the next time: a run keeps its first."""


@dataclass(frozen=True, kw_only=True)
class TakenStep:
    """A step that was taken before a text was cut, and in how many places it changed it."""

    step: str
    places: int


def taken(changed: Mapping[str, int]) -> list[TakenStep] | None:
    """Steps and what they changed, as files have them; None where there are none."""
    return [TakenStep(step=step, places=places) for step, places in changed.items()] or None


@dataclass(frozen=True, kw_only=True)
class Source:
    """What was measured: a text of so many `characters` (`dropped` more at its end, in a seed), or `examples`.

    `sha256` is that of the text or of the examples' tokens, `text_sha256` that of the stored examples. `normalised`:
    the steps that were taken before the text was cut, in their order. `apart`: of prompts with their targets, or of
    windows by characters, how many were tokenised apart, as their border falls inside a token.
    """

    name: str
    sha256: str
    characters: int | None = None
    dropped: int | None = None
    text_sha256: str | None = None
    examples: int | None = None
    normalised: list[TakenStep] | None = None
    apart: int | None = None

    @property
    def steps(self) -> list[str]:
        """The steps that were taken before the text was cut."""
        return [taken.step for taken in self.normalised or ()]


@dataclass(frozen=True, kw_only=True)
class ScannedWindows(Windows):
    """How a text was cut; `within`: the [start, end) regions in which windows had to start, where they were chosen."""

    prefix: int
    suffix: int
    stride: int
    unit: Unit
    within: list[tuple[int, int]] | None = None


@dataclass(frozen=True, kw_only=True)
class NearSearch(Near):
    """The options of a near-verbatim search, and the positions of the model's memory, which limit it too."""

    budget: int | None
    samples: int | None
    memory_positions: int

    def __post_init__(self) -> None:
        """What was searched is told as it was, idle options and all."""


@dataclass(frozen=True, kw_only=True)
class SampledCorpus:
    """A corpus that examples were drawn from, and what each run took."""

    kind: str
    documents: int
    runs: list[Drawn]


@dataclass(frozen=True, kw_only=True)
class Sampling(Draw):
    """How examples were drawn, and the corpora by their roles, main and held-out."""

    documents: int | None
    examples: int
    runs: int
    prefix: int
    suffix: int
    seed: int
    corpora: dict[str, SampledCorpus]
    held_out_name: str | None = None


@dataclass(frozen=True, kw_only=True)
class SweptLengths:
    """Which part of a sweep a run is: the tokens of its prompts and of its longest suffixes."""

    prefix: int
    suffix: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Of a run over a text (a scan) or over given examples (a score run). What may be absent was not asked for.

    `shards`: how many there are in the end; None in a scan in stages (`refined`), where that is found on the way.
    """

    format: int
    kind: Literal["scan", "score"]
    created: str
    source: Source
    model: ModelIdentity
    windows: ScannedWindows | None = None
    dropped: int
    schemes: list[str]
    tau: float
    stop_early: bool
    batch_size: int | Literal["auto"]
    batch_tokens: int | None
    near: NearSearch | None
    logit_tolerance: float
    shard_examples: int
    shards: int | None
    refined: Refined | None = None
    sampling: Sampling | None = None
    sweep: SweptLengths | None = None
    chat: ChatTemplate | None = None
    index: IndexUse | None = None
    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ReconstructionManifest(Plan):
    """Of a text that a model wrote on: how, from which seed of so many tokens."""

    format: int
    kind: Literal["reconstruct"]
    created: str
    source: Source
    model: ModelIdentity
    seed_tokens: int
    versions: dict[str, str]

    def __post_init__(self) -> None:
        """What was written is told as it was, idle options and all."""
        self.refuse_impossible()


def made_with() -> dict[str, str]:
    """The versions that decide a number."""
    versions = {"rote": rote.__version__, "torch": version("torch"), "transformers": version("transformers")}
    return {**versions, "python": platform.python_version()}


def refuse_other_model(before: ModelIdentity, now: ModelIdentity, folder: str, *fields: str, fix: str) -> None:
    """Raise a RunError where the model at hand is not, in these fields, the one that a run was made with."""
    for field in fields:
        if getattr(now, field) != getattr(before, field):
            if before.served is not None and now.served is not None and field == "served":
                one, two = plain(before.served), plain(now.served)
                apart = (name for name in one if one[name] != two.get(name))
                if (name := next((name for name in apart if f"model.served.{name}" not in NOT_DECIDING), None)) is None:
                    continue
                raise RunError(
                    f"{folder} was made with a model that is served otherwise: its {name} was {one[name]!r}, and that "
                    f"of {now.name} is {two.get(name)!r}. {fix}"
                )
            if field == "fingerprint" and now.hashed != before.hashed:
                raise RunError(
                    f"{folder} was made with a model that {where_it_runs(before)}, and {now.name} "
                    f"{where_it_runs(now)}. {fix}"
                    if None in (now.hashed, before.hashed)
                    else f"{folder} knows its model by a {before.hashed} hash of the weights, and that of "
                    f"{now.name} is a {now.hashed} one: they cannot be compared. Load the model with "
                    f"{argument('fingerprint', before.hashed)}."
                )
            raise RunError(
                f"{folder} was made with another model: its {field} is "
                f"{getattr(before, field)!r}, that of {now.name} is {getattr(now, field)!r}. {fix}"
            )
    was, own = (None if model.adapter is None else model.adapter.fingerprint for model in (before, now))
    if was != own:
        raise RunError(
            f"{folder} was made with {adapter_of(before)}, and {now.title} has {adapter_of(now)}. Load the model with "
            f"the run's {argument('adapter')}, or with none where it has none."
        )


def adapter_of(model: ModelIdentity) -> str:
    """Which adapter a model has, in words, with its hash."""
    own = model.adapter
    return "no adapter" if own is None else f"the adapter {own.name} ({own.fingerprint})"


def where_it_runs(model: ModelIdentity) -> str:
    return "runs where Rote does" if model.served is None else f"is served by {model.served.url}"


def refuse_if_different(stored: Mapping[str, Any], asked: Any, folder: str) -> None:
    """Raise a RunError that names every field in which the stored run and the asked one differ.

    `stored` is what manifest.json says, whatever made it: another version, or another kind of command. `asked` is the
    manifest of this one.
    """
    given = plain(asked)
    before, now = _server_of(stored), _server_of(given)
    if (before is None) != (now is None):
        told = ["runs where Rote does" if url is None else f"is served by {url}" for url in (before, now)]
        raise RunError(
            f"{folder} holds a run whose model {told[0]}, and this command's {told[1]}: nobody can tell whether they "
            f"are the same. Choose another {argument('out')}."
        )
    served = now is not None
    differing = [
        f"{key}: the folder has {_shown(one)}, this command {_shown(other)}"
        for key, one, other in _differing(stored, given)
        if not (served and key in MEASURED)
    ]
    if differing:
        raise RunError(
            f"{folder} holds a run that was made differently, so its numbers cannot be continued:\n  "
            + "\n  ".join(differing)
            + f"\nChoose another {argument('out')}, or delete the folder to start anew."
        )


def _server_of(manifest: Mapping[str, Any]) -> str | None:
    model = manifest.get("model")
    served = model.get("served") if isinstance(model, Mapping) else None
    return str(served.get("url")) if isinstance(served, Mapping) else None


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
