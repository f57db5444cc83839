"""Where a model's weights lie and where it computes: one device, several, the processor's memory, the disk."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import nn

from rote.errors import InputError, argument, counted
from rote.models.base import Dtype, ModelOptions

OFFLOADED = ("cpu", "disk")


def pick_device(device: str) -> str:
    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?|mps", device):
        raise InputError(f"{argument('device')} must be auto, cpu, cuda, cuda:N or mps, not {device!r}.")
    kind, _, index = device.partition(":")
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"{argument('device', device)} was asked for, but torch sees no CUDA GPU here; use "
            f"{argument('device', 'cpu')}."
        )
    if index and int(index) >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise InputError(
            f"{argument('device', device)} was asked for, but the last GPU that torch sees here is cuda:{last}."
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise InputError(
            f"{argument('device', device)} was asked for, but torch sees no Apple GPU here; use "
            f"{argument('device', 'cpu')}."
        )
    return device


def pick_dtype(dtype: Dtype, device: torch.device, config: Any) -> torch.dtype:
    if dtype != "auto":
        return getattr(torch, dtype)  # type: ignore[no-any-return]
    if device.type == "cpu":
        return torch.float32
    own = getattr(config.get_text_config(), "dtype", None)
    return own if own in (torch.float16, torch.bfloat16) else torch.bfloat16


@cache
def offload_folder() -> str:
    """Where weights go that are to lie on the disk in another form than their files have; gone with the process."""
    return _kept().name


@cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="rote-offload-")


def require_device_map(options: ModelOptions) -> None:
    """Refuse a device map that names what this machine lacks, or that another option contradicts."""
    given = options.device_map
    if given is None:
        return
    if options.device != "auto" and isinstance(given, str) and options.device != pick_device("auto"):
        raise InputError(
            f"{argument('device_map', given)} spreads the model over all devices that torch sees, and "
            f"{argument('device', options.device)} asks for one: leave one of them out."
        )
    for module, device in given.items() if isinstance(given, Mapping) else ():
        kind = f"cuda:{device}" if isinstance(device, int) else str(device)
        if kind != "disk" and not re.fullmatch(r"cpu|cuda(:\d+)?|mps", kind):
            raise InputError(
                f"{argument('device_map')}: {module!r} is to lie on {device!r}; give cpu, disk, cuda:N, mps, or the "
                "number of a GPU."
            )
        if kind != "disk":
            pick_device(kind)
    if isinstance(given, Mapping) and set(given.values()) == {"disk"}:
        raise InputError(
            f"{argument('device_map')} puts everything on the disk; leave the embedding, the norm and the head on a "
            "device, and put layers on the disk."
        )


def device_of(module: nn.Module) -> torch.device:
    """Where a module computes; while it lies in memory or on the disk its weight is nowhere, and a hook knows."""
    device = getattr(getattr(module, "_hf_hook", None), "execution_device", None)
    if device is not None:
        return torch.device(device if isinstance(device, torch.device | str) else f"cuda:{device}")
    return next(module.parameters()).device  # of a quantised layer, the packed weight


def spread(model: Any) -> dict[str, str]:
    """Where each of a model's parts lies, where it was spread over more than one place."""
    placed = {name: _named(device) for name, device in (getattr(model, "hf_device_map", None) or {}).items()}
    return placed if len(set(placed.values())) > 1 else {}


def _named(device: Any) -> str:
    return f"cuda:{device}" if isinstance(device, int) else str(device)


def placement(model: Any) -> str | None:
    """In words: how many of its parameters lie where. None: all in one place."""
    placed = spread(model)
    if not placed:
        return None
    return ", ".join(f"{place}: {number:,} parameters" for place, number in sorted(_parameters(model, placed).items()))


def _parameters(model: Any, placed: Mapping[str, str]) -> Counter[str]:
    """Parameters by place; a name's own part of the map counts, or else that of the module it lies in."""
    found: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        holder = max(
            (part for part in placed if part == "" or f"{name}.".startswith(f"{part}.")), key=len, default=None
        )
        found[placed[holder] if holder is not None else str(parameter.device)] += parameter.numel()
    return found


def away(model: Any) -> dict[str, str]:
    """The parts of a model that lie where nothing is computed, and where that is."""
    placed = spread(model)
    computing = {place for place in placed.values() if place not in OFFLOADED}
    waiting = OFFLOADED if computing else ("disk",)  # without a GPU the processor's memory is where it computes
    return {part: place for part, place in placed.items() if place in waiting}


def offloaded(model: Any, name: str) -> tuple[str, ...]:
    """A sentence about what has to be fetched for every pass."""
    if not (waiting := away(model)):
        return ()
    numbers = _parameters(model, spread(model))
    total = sum(numbers.values())
    parts = Counter(waiting.values())
    where = " and ".join(
        f"{counted(parts[place], 'part')} with {100 * numbers[place] / total:.0f}% of its parameters "
        f"{'lie on the disk' if place == 'disk' else 'lie in the memory of the processor'}"
        for place in OFFLOADED
        if parts[place]
    )
    return (
        f"{name}: {where}. They are fetched again for every batch, which may take longer than computing it; the "
        "numbers are the same.",
    )


def positions_that_fit(model: Any, device: torch.device, bytes_of_one: int, layers: int) -> int:
    """How many positions' keys and values 0.4 of the memory holds, of the fullest GPU where there are several."""
    if device.type != "cuda":
        return int(0.4 * (5 << 30) / bytes_of_one)
    placed = spread(model)
    per_gpu = {place: sum(_is_layer(part) and at == place for part, at in placed.items()) for place in placed.values()}
    if not (shares := {place: number for place, number in per_gpu.items() if place not in OFFLOADED and number}):
        return int(0.4 * torch.cuda.get_device_properties(device).total_memory / bytes_of_one)
    behind = sum(number for place, number in per_gpu.items() if place in OFFLOADED)  # these compute on the first GPU
    first = next(iter(shares))
    shares[first] += behind
    rooms = {place: torch.cuda.get_device_properties(place).total_memory for place in shares}
    return int(min(0.4 * rooms[place] * layers / number / bytes_of_one for place, number in shares.items()))


def _is_layer(part: str) -> bool:
    return re.search(r"\.\d+$", part) is not None
