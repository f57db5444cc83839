"""Checkpoints whose weights are stored in few bits: what they are, what they need, how far their logits may move."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from copy import deepcopy
from importlib.util import find_spec
from typing import Any

import torch

from rote.errors import ModelError, argument
from rote.models.base import ModelOptions

LIBRARIES = {
    "bitsandbytes": ("bitsandbytes", "rote[quantised]"),
    "gptq": ("gptqmodel", "gptqmodel"),
    "awq": ("gptqmodel", "gptqmodel"),
    "compressed-tensors": ("compressed_tensors", "compressed-tensors"),
    "torchao": ("torchao", "torchao"),
    "quanto": ("optimum.quanto", "optimum-quanto"),
    "hqq": ("hqq", "hqq"),
}
"""By method: what transformers imports for it, and what to install. Any other method says itself what it lacks."""

LOGIT_TOLERANCE = {torch.float32: 5e-4, torch.float16: 0.1, torch.bfloat16: 0.5}
"""Measured with `benchmarks/tolerance.py`, rounded up: see docs/numerics.md."""

QUANTISED_TOLERANCE = {"bitsandbytes 4-bit": 0.0, "bitsandbytes 8-bit": 1.0}
"""The same of quantised weights by method, on a CPU; 0: no more than what its layers compute in, as 4 bits are
multiplied out before they are used.

8 bits move by up to 0.37: activations are rounded too, and which columns are spared that depends on batch-mates.
"""


def tolerance_of(dtype: str, quantised: str | None = None) -> float:
    """How far one logit may move in another correct computation, for a model that computes in this type.

    For a quantised model whose method was not measured that of its type, which may be too small: it is said at load.
    """
    plain = LOGIT_TOLERANCE.get(getattr(torch, dtype, torch.bfloat16), 0.5)
    computed = (quantised or "").rpartition(" in ")[2]
    inner = next((own for kind, own in LOGIT_TOLERANCE.items() if str(kind) == f"torch.{computed}"), 0.0)
    return max(plain, inner, QUANTISED_TOLERANCE.get(_measured(quantised) or "", 0.0))


def _measured(quantised: str | None) -> str | None:
    return next((method for method in QUANTISED_TOLERANCE if (quantised or "").startswith(method)), None)


def settings_of(config: Any) -> dict[str, Any] | None:
    """What a configuration says of how its weights are quantised; None: they are not, once loaded.

    GGUF files are dequantised at load, and what is loaded still says that they were.
    """
    given = getattr(config, "quantization_config", None)
    if given is None:
        return None
    made: Any = given if isinstance(given, Mapping) else given.to_dict()
    settings = {key.lstrip("_"): value for key, value in made.items()}
    return None if method_of(settings) == "gguf" else settings


def method_of(settings: Mapping[str, Any]) -> str:
    """The method that transformers takes it for: one of bitsandbytes needs no name."""
    if settings.get("load_in_8bit") or settings.get("load_in_4bit"):
        return "bitsandbytes"
    method = settings.get("quant_method") or "an unnamed method"
    return str(getattr(method, "value", method))


def said(settings: Mapping[str, Any], dtype: torch.dtype) -> str:
    """Method, bits and what its layers compute in: `bitsandbytes 4-bit nf4, computed in float32`."""
    method = method_of(settings)
    computed = str(dtype).removeprefix("torch.")
    if method != "bitsandbytes":
        bits = settings.get("bits") or settings.get("w_bit") or settings.get("num_bits")
        return f"{method}{f' {bits}-bit' if bits else ''}, computed in {computed}"
    if settings.get("load_in_8bit"):
        return f"{method} 8-bit, computed in int8 and float16"
    own = str(settings.get("bnb_4bit_compute_dtype") or "float32").removeprefix("torch.")
    computed = own if dtype == torch.float16 else computed  # bitsandbytes takes that of what comes in, but for float16
    return f"{method} 4-bit {settings.get('bnb_4bit_quant_type', 'fp4')}, computed in {computed}"


def quiet_bitsandbytes() -> None:
    """On some processors it says that a kernel of the hub is missing, which is switched off here, and how to get it."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


def compute_as_said(model: Any) -> None:
    """Without this bitsandbytes multiplies in bfloat16, whatever it was told, on processors that know how to."""
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def refuse_quantised(name: str, settings: Mapping[str, Any], options: ModelOptions) -> None:
    """Raise a ModelError where a quantised checkpoint cannot be loaded as asked."""
    method = method_of(settings)
    quiet_bitsandbytes()
    if method in LIBRARIES:
        module, get = LIBRARIES[method]
        if find_spec(module.partition(".")[0]) is None:
            raise ModelError(f"{name} is quantised with {method}, which needs a package: pip install '{get}'")
    if options.adapter is not None:
        raise ModelError(
            f"{name} is quantised ({method}): to merge an adapter into it, the sum would have to be quantised again. "
            f"Give {argument('model')} as the model that was not quantised, and the same {argument('adapter')}."
        )
    if options.tp_plan is not None:
        raise ModelError(
            f"{name} is quantised ({method}), and packed weights are not cut across processes here; leave "
            f"{argument('tp_plan')} out, or spread it with {argument('device_map', 'auto')}."
        )
    if method == "bitsandbytes" and find_spec("kernels") is not None and not options.trust_remote_code:
        raise ModelError(
            f"{name}: bitsandbytes, where the package kernels is installed, fetches code from the hub and runs it. "
            f"Uninstall kernels (pip uninstall kernels), or allow it with {argument('trust_remote_code', True)}."
        )


def warned(name: str, quantised: str, device: str) -> tuple[str, ...]:
    """A sentence where nobody has measured how far the logits of such a model move."""
    if _measured(quantised) and device == "cpu":
        return ()
    return (
        f"{name} is quantised ({quantised}). How far its logits move with other batch-mates is unknown on {device}: "
        "the tolerance that the run states is that of its dtype, or of the same method on a CPU, and may be too small.",
    )


def parameters_of(config: Any) -> int:
    """How many parameters the model has, whatever they are packed into: counted on a model without weights."""
    from transformers import AutoModelForCausalLM

    plain = deepcopy(config)
    if hasattr(plain, "quantization_config"):
        del plain.quantization_config
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(plain)
    return sum(p.numel() for p in model.parameters())
