"""A model that workers of a Ray cluster have loaded. This process joins the cluster, and loads no weights."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rote.errors import InputError, ModelError, argument, counted
from rote.models.base import LogitModel, ModelIdentity, ModelOptions, load, source_of
from rote.models.engine import Engine
from rote.models.failures import fixes
from rote.models.workers import Crew, Told, Work, Worker
from rote.progress import Progress, quiet
from rote.scheme import Scheme

CONNECT_SECONDS = 5.0
"""How long a cluster may take to answer at all."""

REGISTER_SECONDS = "600"
"""How long a process may take to start in a cluster that is started here: Ray's 60 s are short on a busy machine."""

PLACE_SECONDS = 20.0
"""How long workers may wait for a place before that is said."""

OBJECTS = 1 << 28
"""Bytes for what is on its way, in a cluster that is started here: a few shards for each worker."""

DECIDING = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_CBWR")
"""Variables that decide how a processor adds up: workers have them as this process has."""


_joined: dict[str, str] = {}
"""The address that this process joined a cluster by, if it was this module that did."""


def load_on(engine: Engine, name: str | Path, options: ModelOptions = ModelOptions()) -> LogitModel | ClusterModel:
    """Load a model where `engine` says: here, as `rote.load` does, or on workers of a Ray cluster."""
    if engine.engine == "local":
        return load(name, options)
    if (source := source_of(name)) != "hf":
        raise InputError(
            f"{argument('engine', 'ray')} loads a model on every worker, and {name} is served elsewhere already "
            f"({source}:); leave {argument('engine')} out."
        )
    if options.tp_plan is not None:
        raise InputError(
            f"{argument('tp_plan')} needs one process for each GPU, which torchrun starts; workers of a cluster are "
            f"given several GPUs each with {argument('gpus_per_worker')} and {argument('device_map', 'auto')}."
        )
    if (engine.gpus_per_worker or 0) > 1 and options.device_map is None:
        raise InputError(
            f"{argument('gpus_per_worker', engine.gpus_per_worker)} would leave all but one idle: spread the model "
            f"over them with {argument('device_map', 'auto')}, or use more {argument('workers')} with one each."
        )
    if engine.gpus_per_worker == 0 and options.device.startswith("cuda"):
        raise InputError(f"{argument('device', options.device)} needs a GPU, and {argument('gpus_per_worker', 0)}.")
    import torch

    ray = join(engine.address)
    threads = options.threads or torch.get_num_threads()  # as many as here: that decides the last bits of a number
    has = ray.cluster_resources()
    gpus = _gpus(engine, options, has)
    cpus = 1 if gpus else threads
    room = _room(ray.nodes(), gpus, cpus)
    if not room and engine.address == "local":
        raise InputError(
            f"this machine has no room for a worker of {_size(gpus, cpus)}; use fewer {argument('threads')} or "
            f"{argument('gpus_per_worker')}."
        )
    own = replace(options, threads=threads, adapter=_adapter_anywhere(options.adapter))
    if not gpus and has.get("GPU", 0) and options.device == "auto" and options.device_map is None:
        own = replace(own, device="cpu")  # where a worker has no GPU of its own, Ray hides none from it
    variables = {name: os.environ[name] for name in DECIDING if name in os.environ}
    variables |= {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", "TQDM_DISABLE": "1"}
    asked, kind = engine.workers or max(room, 1), worker(ray, cpus, gpus)
    crew = Crew([kind.remote(_anywhere(name), own, variables) for _ in range(asked)])
    _first(crew, ray, gpus, cpus)
    return ClusterModel(crew)


def worker(ray: Any, cpus: int, gpus: int) -> Any:
    """What Ray starts workers from: anew where one dies, and as far apart as there is room."""
    return ray.remote(Worker).options(
        num_cpus=cpus, num_gpus=gpus, max_restarts=-1, max_task_retries=0, scheduling_strategy="SPREAD"
    )


def _anywhere(name: str | Path) -> str | Path:
    """A name as every worker understands it: workers stand in folders of their own."""
    if not Path(name).exists():
        name = str(name).removeprefix("hf:")
    path = Path(name)
    return path.resolve() if path.exists() and str(name) not in ("bundled", "bundled-chat") else name


def _adapter_anywhere(name: str | None) -> str | None:
    path = None if name is None else Path(name).expanduser()
    return str(path.resolve()) if path is not None and path.exists() else name


def join(address: str) -> Any:
    """Ray, joined to the cluster at this address; a process that has joined one stays in it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_worker_register_timeout_seconds", REGISTER_SECONDS)
    try:
        import ray
    except ImportError as error:
        raise InputError(f"{argument('engine', 'ray')} needs Ray: pip install 'rote[ray]'.") from error
    if ray.is_initialized():
        if address not in ("auto", _joined.get("address", address)):
            raise InputError(
                f"{argument('address', address)}: this process has joined another cluster ({_joined['address']}), and "
                "stays in it; use another process."
            )
        return ray
    _joined["address"] = address
    silent: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address == "local":
        try:
            ray.init(address="local", include_dashboard=False, object_store_memory=OBJECTS, **silent)
        except Exception as error:  # whatever keeps its processes from starting
            raise InputError(f"{argument('address', 'local')}: Ray cannot be started here ({error}).") from error
        return ray
    named = os.environ.get("RAY_ADDRESS", "auto") if address == "auto" else address
    if ":" in named:
        _refuse_silent(named)
    try:
        ray.init(address=named, **silent)
    except ConnectionError as error:
        raise InputError(
            "there is no Ray cluster that this machine belongs to. Start one with ray start --head, say where it is "
            f"with {argument('address')} or RAY_ADDRESS, or use {argument('address', 'local')}, which starts one here "
            "for this command."
        ) from error
    except (RuntimeError, ValueError, OSError) as error:
        first, *_ = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{argument('address', named)}: this cluster cannot be joined ({first}).") from error
    return ray


def _refuse_silent(address: str) -> None:
    """Refuse an address where nothing answers, at once: Ray would go on asking."""
    host, _, port = address.rpartition(":")
    if "/" in host or not port.isdecimal():
        raise InputError(
            f"RAY_ADDRESS is {address!r}, and HOST:PORT is wanted: run the command on a machine of the cluster."
        )
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # gRPC, which Ray speaks, begins so: the other side says its settings
    greeting = preface + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS) as there:
            there.sendall(greeting)
            if there.recv(9)[3:4] != b"\x04":
                raise OSError("what answers there is something else")
    except OSError as error:
        raise InputError(
            f"{argument('address', address)}: there is no Ray cluster ({error.strerror or error}). Check the address, "
            "and that ray start --head was run there."
        ) from error


def _gpus(engine: Engine, options: ModelOptions, has: Mapping[str, float]) -> int:
    if engine.gpus_per_worker is not None:
        return engine.gpus_per_worker
    return int(has.get("GPU", 0) >= 1 and options.device != "cpu")


def _room(nodes: Iterable[Mapping[str, Any]], gpus: int, cpus: int) -> int:
    """For how many workers there is room, if they had the cluster's machines for themselves."""
    room = 0
    for has in (node["Resources"] for node in nodes if node["Alive"]):
        by_cpu = int(has.get("CPU", 0)) // cpus
        room += min(by_cpu, int(has.get("GPU", 0)) // gpus) if gpus else by_cpu
    return room


def _size(gpus: int, cpus: int) -> str:
    return " and ".join(counted(number, kind) for number, kind in ((gpus, "GPU"), (cpus, "CPU")) if number)


def _first(crew: Crew, ray: Any, gpus: int, cpus: int) -> None:
    """Wait until one worker has loaded the model; the others join it as they come."""
    began, said = time.monotonic(), False
    while crew.first is None:
        crew.refuse_empty()
        done, _ = ray.wait([member.coming for member in crew.members], timeout=1.0)
        for member in [member for member in crew.members if member.coming in done]:
            crew.came(member)
        if not said and crew.first is None and time.monotonic() - began > PLACE_SECONDS:
            has = ray.cluster_resources()
            said = True
            if not _room(ray.nodes(), gpus, cpus):
                warnings.warn(
                    f"no worker has a place yet: each takes {_size(gpus, cpus)} of one machine, and the cluster has "
                    f"{_size(int(has.get('GPU', 0)), int(has.get('CPU', 0))) or 'neither'} in all. Waiting for it to "
                    "grow.",
                    stacklevel=4,
                )


class ClusterModel:
    """A model on workers of a cluster. What can be known of it without its weights is known here, by the first worker.

    What it computes is computed there: `verbatim` and `generate` on one worker, the shards of a run on all of them.
    """

    def __init__(self, crew: Crew) -> None:
        assert crew.first is not None
        self._crew, self._told = crew, crew.first

    def __repr__(self) -> str:
        own = self.identity()
        return f"<{own.title} on {counted(self._crew.asked, 'worker')} of a Ray cluster, BOS {own.bos}>"

    @property
    def workers(self) -> tuple[Told, ...]:
        """What those workers told that have the model now: where they are, and what they have loaded."""
        return tuple(member.told for member in self._crew.members if member.told is not None)

    @property
    def tokenizer(self) -> Any:
        return self._told.tokenizer

    @property
    def bos_id(self) -> int | None:
        return self._told.bos_id

    @property
    def eos_ids(self) -> frozenset[int]:
        return self._told.eos_ids

    @property
    def vocabulary(self) -> int:
        return self._told.vocabulary

    @property
    def context_length(self) -> int | None:
        return self._told.context_length

    @property
    def logit_tolerance(self) -> float:
        return self._told.logit_tolerance

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._told.warnings

    @property
    def batch_tokens(self) -> int:
        return self._told.batch_tokens

    @property
    def memory_positions(self) -> int:
        return self._told.memory_positions

    @property
    def device(self) -> str:
        return self._told.identity.device

    def identity(self) -> ModelIdentity:
        return self._told.identity

    def work(self, function: Callable[..., Any], tasks: Mapping[Any, tuple[Any, ...]], tell: Progress = quiet) -> Work:
        """`function(model, *arguments)` for every task, on all workers; see `rote.models.workers.Work`."""
        return Work(self._crew, function, tasks, tell)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(model, *arguments)`, on one worker."""
        work = self.work(function, {0: arguments})
        try:
            for _, value in work:
                return value
        except BaseException:
            work.arrived()
            raise
        failures = work.set_aside[0]
        where = ", ".join(failure.worker for failure in failures)
        raise ModelError(f"the workers failed ({where}): {failures[-1].reason.rstrip('.')}.{fixes(failures)}")

    def generate(
        self, prompt: Sequence[int], scheme: Scheme, *, length: int, samples: int, seed: int
    ) -> Iterator[tuple[int, ...]]:
        """With transformers' own sampler, on one worker."""
        yield from self.call(_generated, list(prompt), scheme, length, samples, seed)

    def close(self) -> None:
        """End the workers: their places and GPUs are free for others."""
        import ray

        for member in self._crew.members:
            ray.kill(member.actor)
        self._crew.members.clear()
        self._crew.failures.clear()


def _generated(
    model: Any, prompt: Sequence[int], scheme: Scheme, length: int, samples: int, seed: int
) -> list[tuple[int, ...]]:
    return list(model.generate(prompt, scheme, length=length, samples=samples, seed=seed))
