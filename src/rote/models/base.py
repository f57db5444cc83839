"""What extraction needs of a model, as a type, and `load`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from rote.models.memory import Memory
from rote.scheme import Scheme
from rote.tokens import BosPolicy

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class ModelIdentity:
    """Everything about a model that decides a number."""

    name: str
    revision: str | None
    fingerprint: str
    parameters: int
    dtype: str
    device: str
    compiled: bool
    tokenizer: str | None
    bos: BosPolicy
    bos_token: int | None


@runtime_checkable
class LogitModel(Protocol):
    """Next-token logits for given token ids, in two halves so that only the positions that matter pay for the head.

    `hidden` maps right-padded token ids [batch, length] to one state per position; since each position depends only on
    the ones before it, padding on the right changes nothing. `head` maps chosen states [rows, size] to logits
    [rows, vocabulary].
    """

    @property
    def tokenizer(self) -> Any: ...
    @property
    def bos_id(self) -> int | None:
        """The token put before every prefix under this model's BOS policy; None: nothing is."""

    @property
    def eos_ids(self) -> frozenset[int]: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def context_length(self) -> int | None:
        """The most positions the model takes, BOS included; None: unlimited."""

    @property
    def batch_tokens(self) -> int:
        """How many positions to feed at once when the caller leaves it to us."""

    @property
    def logit_tolerance(self) -> float:
        """How far two correct computations of one logit may differ (other batch-mates, other lengths)."""

    @property
    def fingerprint(self) -> str:
        """A hash of the weights, the same on any device and in any dtype."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What there was to warn of when the model was loaded: runs made with it say so too."""

    @property
    def compiled(self) -> bool: ...
    @property
    def device(self) -> Any: ...
    def identity(self) -> ModelIdentity:
        """Everything about the model that decides a number: name, revision, weights, dtype, tokenizer, BOS."""

    def hidden(self, tokens: Tensor) -> Tensor: ...
    def head(self, hidden: Tensor) -> Tensor: ...
    @property
    def memory_positions(self) -> int:
        """How many positions a memory may hold without crowding out everything else."""

    def memory(self, positions: int) -> Memory:
        """An empty memory for so many positions: searches read with it instead of `hidden`."""


@runtime_checkable
class GeneratingModel(LogitModel, Protocol):
    """A model that also generates by itself, apart from anything Rote computes with its logits."""

    def generate(self, prompts: Tensor, *, length: int, scheme: Scheme) -> Tensor:
        """Prompts [rows, tokens] and what the model's own library goes on with, padded behind EOS."""


BUNDLED = Path(__file__).parent.parent / "data" / "model"
BUNDLED_TEXT = Path(__file__).parent.parent / "data" / "alice.txt"


def load(
    name: str | Path,
    *,
    device: str = "auto",
    dtype: Dtype = "auto",
    revision: str | None = None,
    bos: BosPolicy = "auto",
    device_map: str | Mapping[str, Any] | None = None,
    compile: bool | Literal["auto"] = "auto",
) -> LogitModel:
    """Load a causal language model: a Hugging Face folder or hub id, a GGUF file, or "bundled".

    `dtype="auto"`: float32 on the CPU; on a GPU the checkpoint's own 16-bit type, or bfloat16. `bos="auto"` puts the
    tokenizer's BOS before every prefix if it has one. `device_map` spreads a large model over devices (accelerate).
    `compile="auto"` compiles the layers on CUDA, where Triton is installed.
    """
    from rote.models.huggingface import load_huggingface

    return load_huggingface(
        name, device=device, dtype=dtype, revision=revision, bos=bos, device_map=device_map, compile=compile
    )
