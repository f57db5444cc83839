"""A model whose layers are cut across processes that torchrun started: the first one leads, the others follow.

Every process loads its part of each layer. `load` returns in the first alone: there the work goes on as always, and
whatever it feeds is sent to the others, which compute their part, until the first one is done; then they end too.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from rote.errors import InputError, ModelError, argument
from rote.models.base import ModelIdentity, ModelOptions
from rote.models.huggingface import HuggingFaceModel
from rote.models.memory import Memory, Replay
from rote.scheme import Scheme

HIDDEN, HEAD, CLOSE = range(3)

STUCK = timedelta(minutes=30)
"""No pass and no loading takes longer: then a process is gone that torchrun has not noticed, and the others end too."""

IDLE = timedelta(days=30)
"""Between passes the others wait. If the first one dies meanwhile, torchrun ends them."""

KINDS = {torch.int64: 0, torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}


def join(options: ModelOptions, gguf: bool) -> torch.device:
    """Find the other processes; this one's device. Refuses what does not go together with tensor parallel."""
    for name in ("device_map", "adapter"):
        if (value := getattr(options, name)) is not None:
            raise InputError(f"{argument(name, value)} does not go with {argument('tp_plan')}; leave one of them out.")
    if gguf:
        raise InputError(f"GGUF files cannot be cut across processes; leave {argument('tp_plan')} out.")
    if "WORLD_SIZE" not in os.environ or "RANK" not in os.environ:
        raise InputError(
            f"{argument('tp_plan', 'auto')} cuts the model across processes, and torchrun has to start them, one for "
            "each GPU: torchrun --nproc-per-node N -m rote.cli ... with the same arguments (in Python: torchrun "
            "--nproc-per-node N script.py)."
        )
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if options.device not in ("auto", kind):
        raise InputError(
            f"{argument('device', options.device)} does not go with {argument('tp_plan')}: each process takes the "
            "GPU of its number, or the processor where there is none; leave it out."
        )
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if kind == "cuda" and local >= torch.cuda.device_count():
        raise InputError(
            f"torchrun started more processes than the {torch.cuda.device_count()} GPUs that torch sees here; give "
            "--nproc-per-node their number."
        )
    device = torch.device(kind, local) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        backend = {"cuda": "nccl", "cpu": "gloo"}[kind]
        dist.init_process_group(backend, timeout=STUCK, device_id=device if kind == "cuda" else None)
    if dist.get_rank():
        warnings.simplefilter("ignore")  # the first process says the same
    return device


def refuse_uneven(config: Any, name: str) -> None:
    """Raise a ModelError where so many processes cannot share the model's layers evenly."""
    ranks, own = dist.get_world_size(), config.get_text_config()
    for what in ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size"):
        number = getattr(own, what, None)
        if isinstance(number, int) and number % ranks:
            raise ModelError(
                f"{name} cannot be cut across {ranks} processes: its {what} is {number}. Give torchrun a "
                "--nproc-per-node that divides it."
            )


def load_parallel(model: Any, tokenizer: Any, **about: Any) -> HuggingFaceModel:
    """In the first process the model; the others follow it here and end with it."""
    if not model.tp_plan:
        raise ModelError(
            f"{about['name']}: transformers knows no way to cut models of its kind ({model.config.model_type}) across "
            f"processes; spread it with {argument('device_map', 'auto')} instead."
        )
    made = ParallelModel(model, tokenizer, **about)
    if dist.get_rank():
        made.follow()
    made.lead()
    return made


class ParallelModel(HuggingFaceModel):
    """A `LogitModel` whose passes are computed by several processes at once."""

    def __init__(self, model: Any, tokenizer: Any, **about: Any) -> None:
        self._leading = self._busy = False
        super().__init__(model, tokenizer, **about)  # which tries the model out, in all processes alike
        self._orders = dist.new_group(backend="gloo", timeout=IDLE)

    def identity(self) -> ModelIdentity:
        return replace(super().identity(), tensor_parallel=dist.get_world_size())

    def hidden(self, tokens: Tensor) -> Tensor:
        return self._together(HIDDEN, tokens, super().hidden)

    def head(self, hidden: Tensor) -> Tensor:
        return self._together(HEAD, hidden, super().head) if self._split else hidden

    def memory(self, positions: int) -> Memory:
        """Keys are not shared between processes: every history is fed anew."""
        return Replay(self, positions)

    def generate(
        self, prompt: Sequence[int], scheme: Scheme, *, length: int, samples: int, seed: int
    ) -> Iterator[tuple[int, ...]]:
        raise ModelError(
            f"{self.name} is cut across processes, and transformers' sampler is not run in several of them here; check "
            f"with {argument('device_map', 'auto')} instead of {argument('tp_plan', 'auto')}."
        )

    def lead(self) -> None:
        """From here on, what this process feeds is fed in all of them."""
        self._leading = True
        atexit.register(self._close)

    def follow(self) -> NoReturn:
        """Compute this process's part of whatever the first one feeds, until it is done."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the first one's to decide what that means
        while True:
            order = torch.zeros(4, dtype=torch.int64)
            dist.broadcast(order, 0, group=self._orders)
            what, kind, *shape = order.tolist()
            if what == CLOSE:
                dist.destroy_process_group()
                sys.exit(0)
            dtype = next(dtype for dtype, number in KINDS.items() if number == kind)
            given = torch.empty(shape, dtype=dtype, device=self.device)
            dist.broadcast(given, 0)
            (super().hidden if what == HIDDEN else super().head)(given)

    @torch.inference_mode()
    def _together(self, what: int, given: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        if not self._leading:
            return compute(given)
        given = given.to(self.device).contiguous()
        self._busy = True  # and stays so where this fails: the others then wait inside a pass, and cannot be told
        try:
            dist.broadcast(torch.tensor([what, KINDS[given.dtype], *given.shape]), 0, group=self._orders)
            dist.broadcast(given, 0)
            computed = compute(given)
        except torch.OutOfMemoryError as error:
            raise ModelError(
                f"{self.name}: out of memory in a pass of several processes, which cannot be tried again in part. Give "
                f"a smaller {argument('batch_size')}, or more processes; finished shards are kept."
            ) from error
        self._busy = False
        return computed

    def _close(self) -> None:
        if self._busy:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)  # torchrun then ends the others
        dist.broadcast(torch.tensor([CLOSE, 0, 0, 0]), 0, group=self._orders)
        dist.destroy_process_group()
