"""PEFT adapters: looked through before anything of them is opened, merged into a loaded model, known by their hash."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import safe_open

from rote.errors import ModelError, argument, counted
from rote.models.base import AdapterIdentity, title_of
from rote.models.fingerprint import fingerprint
from rote.models.placement import away
from rote.models.quantised import quiet_bitsandbytes
from rote.models.sources import find_adapter

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
NOT_MERGED = {
    "PROMPT_TUNING",
    "P_TUNING",
    "PREFIX_TUNING",
    "MULTITASK_PROMPT_TUNING",
    "ADAPTION_PROMPT",
    "CPT",
    "XLORA",
}
"""Kinds that are no change of the model's weights: what they add has to be computed beside them."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter's files, in a folder on this machine."""

    name: str
    folder: Path
    config: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """As `LORA rank 8`."""
        kind, rank = str(self.config.get("peft_type")), self.config.get("r")
        extra = " ".join(word for word in ("dora", "rslora") if self.config.get(f"use_{word}"))
        return " ".join(filter(None, [kind, f"rank {rank}" if rank else "", extra]))

    def identity(self) -> AdapterIdentity:
        files = [self.folder / CONFIG, self.folder / WEIGHTS]
        return AdapterIdentity(name=self.name, kind=self.kind, fingerprint=fingerprint(files, "whole"))


def read_adapter(name: str) -> Adapter:
    """Find an adapter and refuse one that cannot be merged, or that would run code: nothing of it is loaded yet."""
    if find_spec("peft") is None:
        raise ModelError(f"{argument('adapter')} needs the package peft: pip install 'rote[adapters]'")
    folder = find_adapter(name, CONFIG, WEIGHTS)
    try:
        config = json.loads((folder / CONFIG).read_text("utf-8"))
        kind = str(config["peft_type"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"the adapter {name}: its {CONFIG} cannot be read ({type(error).__name__}: {error}); get its files again."
        ) from error
    _refuse_running(name, config)
    if kind in NOT_MERGED or config.get("alora_invocation_tokens") or config.get("layer_replication"):
        what = kind if kind in NOT_MERGED else f"{kind} that works at some tokens alone, or repeats layers"
        raise ModelError(
            f"the adapter {name} is of the kind {what}, which is no change of the model's weights and cannot be merged "
            "into them; LoRA and its relatives can."
        )
    return Adapter(name, folder, config)


def _refuse_running(name: str, config: Mapping[str, Any]) -> None:
    """peft imports what these name."""
    mapping = config.get("auto_mapping")
    library = str((mapping if isinstance(mapping, Mapping) else {}).get("parent_library") or "transformers")
    if config.get("megatron_config") or library.partition(".")[0] != "transformers":
        what = "megatron_config" if config.get("megatron_config") else f"auto_mapping ({library})"
        raise ModelError(
            f"the adapter {name}: its {CONFIG} has Python modules imported by name ({what}). Nothing of it was loaded; "
            "save it again from where it was trained, as an adapter of a transformers model."
        )


def merge(model: Any, adapter: Adapter, name: str, source: str) -> tuple[Any, tuple[str, ...]]:
    """The model with the adapter merged into its weights, in the model's own dtype; and what there is to warn of.

    Merged, it is a plain model: the same numbers as of the checkpoint that `merge_and_unload` and `save_pretrained`
    make of it, at the speed of the model without adapter. In 16 bits the sums of weights are rounded once more.
    """
    quiet_bitsandbytes()  # which peft imports where it is installed
    from peft import PeftModel, get_peft_model_state_dict

    if waiting := away(model):  # of layers on the disk peft would write the model's own files anew
        part, place = next(iter(waiting.items()))
        raise ModelError(
            f"the adapter {adapter.name} cannot be merged into {name} while {counted(len(waiting), 'part')} of it (the "
            f"first: {part}) {'lies' if len(waiting) == 1 else 'lie'} "
            f"{'on the disk' if place == 'disk' else 'in the memory of the processor'}. Leave "
            f"{argument('device_map')} out; or merge it first, on a machine that holds the model (merge_and_unload and "
            "save_pretrained), and spread what you have saved."
        )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found missing adapter keys")  # they are refused below
            warnings.filterwarnings("ignore", "You are trying to modify a model with PEFT")
            added = PeftModel.from_pretrained(model, str(adapter.folder), is_trainable=False)
            with safe_open(adapter.folder / WEIGHTS, "pt") as file:
                there = {key.removeprefix("base_model.model.") for key in file.keys()}  # noqa: SIM118
            wanted = {key.removeprefix("base_model.model.") for key in get_peft_model_state_dict(added)}
            if there != wanted:
                odd = sorted(there ^ wanted)
                raise ModelError(
                    f"the adapter {adapter.name} does not fit {name}: {len(odd)} of its tensors have no place there, "
                    f"or are missing (the first: {odd[0]}). Give the model that it was trained on."
                )
            merged = added.merge_and_unload(safe_merge=True)
    except ModelError:
        raise
    except Exception as error:  # whatever peft raises of an adapter of another model, or a damaged one
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"the adapter {adapter.name} could not be merged into {name}: {first:.300} Give the model that it was "
            "trained on, with the vocabulary it had then."
        ) from error
    return merged, _other_base(adapter, name, source)


def _other_base(adapter: Adapter, name: str, source: str) -> tuple[str, ...]:
    was = adapter.config.get("base_model_name_or_path")
    if not was or title_of(str(was), None) in (title_of(name, None), title_of(source, None)):
        return ()
    return (
        f"the adapter {adapter.name} says that it was trained on {was}, and it was merged into {name}. Its "
        "tensors fit; make sure that this is the same model.",
    )
