"""Where a model is loaded and computes: in this process, or on workers of a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from rote.errors import InputError, argument
from rote.options import Option, refuse_idle, require_kind, require_known, require_whole

Kind = Literal["local", "ray"]


@dataclass(frozen=True, slots=True)
class Engine:
    """What computes: "local" is this process; "ray" are workers of a cluster, each with the model loaded once.

    `address`: "auto" joins the cluster that RAY_ADDRESS names or that this machine belongs to, "local" starts one on
    this machine for as long as the process lives; otherwise HOST:PORT. `workers`: left out, as many as the cluster has
    room for. `gpus_per_worker`: left out, one where the cluster has GPUs and the model is not put on the processor. A
    worker without a GPU takes as many of the cluster's CPUs as it has threads.
    """

    engine: Annotated[Kind, Option("What computes: this process, or workers of a Ray cluster.")] = "local"
    address: Annotated[str, Option("The Ray cluster: auto, local (starts one here) or HOST:PORT.")] = "auto"
    workers: Annotated[int | None, Option("Workers, each with the model.", default="all there is room for")] = None
    gpus_per_worker: Annotated[int | None, Option("GPUs of each worker.", default="1 if the cluster has any")] = None

    def __post_init__(self) -> None:
        require_known("engine", self.engine, get_args(Kind))
        require_kind("address", self.address, str, "auto, local or HOST:PORT")
        host, _, port = self.address.rpartition(":")
        if self.address not in ("auto", "local") and not (host and "/" not in host and port.isdecimal()):
            raise InputError(f"{argument('address', self.address)}: give auto, local or HOST:PORT of a Ray cluster.")
        if self.workers is not None:
            require_whole("workers", self.workers)
        if self.gpus_per_worker is not None:
            require_whole("gpus_per_worker", self.gpus_per_worker, 0)
        for name in ("address", "workers", "gpus_per_worker"):
            refuse_idle(self, name, self.engine == "ray", argument("engine", "ray"))
