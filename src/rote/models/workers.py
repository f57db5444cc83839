"""Workers of a Ray cluster, each with the same model loaded: what is sent to them, and what becomes of work that fails.

Ray starts a worker anew where it died, on another node if need be, and says that what it was doing is lost. What is
left to decide here is little: such work is done again elsewhere, once, and no more is sent out than is soon to be done.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rote.errors import ModelError
from rote.models.base import LogitModel, ModelIdentity, ModelOptions, load
from rote.models.failures import Failure, died, failure, first_line, fixes
from rote.progress import Progress

IN_FLIGHT = 2
"""Tasks that a worker has at once: one that it does, and one that it need not wait for."""

TRIES = 2
"""How often a task is tried, on different workers where there are several, until it is set aside."""

PATIENCE = 300.0
"""Seconds that a task which failed on all workers that are there waits for one that is still to come."""

LOSSES = 3
"""How often a worker may be lost, without having finished a task in between, until it is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a worker says of the model that it has loaded: all that one needs to know who has it not."""

    identity: ModelIdentity
    bos_id: int | None
    eos_ids: frozenset[int]
    vocabulary: int
    context_length: int | None
    logit_tolerance: float
    warnings: tuple[str, ...]
    batch_tokens: int
    memory_positions: int
    versions: Mapping[str, str]
    tokenizer: Any
    node: str
    process: int

    def differs(self, other: Told) -> str | None:
        """In what the other's numbers may be others, in words; None: in nothing."""
        ours, theirs = ({**told._deciding(), **told._limits()} for told in (self, other))
        apart = next((name for name in ours if ours[name] != theirs.get(name)), None)
        return None if apart is None else f"{apart} is {theirs.get(apart)!r} there and {ours[apart]!r} on {self.node}"

    def _deciding(self) -> dict[str, Any]:
        """Of its identity: what it is called, and what lies where, decides nothing."""
        return {
            name: value for name, value in vars(self.identity).items() if name not in ("name", "label", "placement")
        }

    def _limits(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("logit_tolerance", "batch_tokens", "memory_positions")}


class NotReady(Exception):
    """A worker was started anew, and nobody has looked yet at what it has loaded."""


class Worker:
    """What runs on a node of the cluster. `variables`: of the environment, set before torch reads them."""

    def __init__(self, name: str | Path, options: ModelOptions, variables: Mapping[str, str] = MappingProxyType({})):
        os.environ.update(variables)
        self.name, self.options = name, options
        self.model: LogitModel | None = None

    def up(self) -> None:
        """Say no more than that it runs."""

    def ready(self, up: None = None) -> Told | Failure:
        """Load the model, unless that was done, and say what it is."""
        where = f"{socket.gethostname()} (process {os.getpid()})"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they are part of what is told
                model = self.model = self.model or load(self.name, self.options)
        except Exception as error:
            return failure(where, error)
        return _told(model, where)

    def do(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """`function(model, *arguments)`; or why it failed, for its error may be of a kind that only this node knows."""
        if self.model is None:
            raise NotReady
        try:
            return function(self.model, *arguments)
        except Exception as error:
            return failure(f"{socket.gethostname()} (process {os.getpid()})", error)


def versions() -> dict[str, str]:
    """What must be of one version everywhere."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("rote", "torch", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a checkout
            found[name] = "not installed"
    return found


def _told(model: LogitModel, where: str) -> Told:
    return Told(
        identity=model.identity(),
        bos_id=model.bos_id,
        eos_ids=model.eos_ids,
        vocabulary=model.vocabulary,
        context_length=model.context_length,
        logit_tolerance=model.logit_tolerance,
        warnings=model.warnings,
        batch_tokens=model.batch_tokens,
        memory_positions=model.memory_positions,
        versions=versions(),
        tokenizer=model.tokenizer,
        node=where,
        process=os.getpid(),
    )


@dataclass(slots=True, eq=False)
class Member:
    """A worker as it is known here. `told`: what it has loaded; None while that is not known, or not any more."""

    number: int
    actor: Any
    coming: Any = None  # what `ready` will say
    told: Told | None = None
    doing: deque[tuple[Any, Any]] = field(default_factory=deque)  # (what it will give, its task), as they were sent
    lost: int = 0

    @property
    def name(self) -> str:
        return f"worker {self.number}" + ("" if self.told is None else f" on {self.told.node}")


class Crew:
    """All workers of a model: those that have it, and those that are still to come."""

    def __init__(self, actors: Iterable[Any]) -> None:
        self.versions = versions()
        self.members = [Member(number, actor) for number, actor in enumerate(actors, 1)]
        self.asked = len(self.members)
        self.first: Told | None = None
        self.failures: list[Failure] = []
        self.busy: Work | None = None  # whose tasks the members have
        for member in self.members:
            self.call(member)

    def call(self, member: Member) -> None:
        """Ask it to load the model, once it runs: while Ray starts it anew, what it is asked is refused."""
        member.told = None
        member.coming = member.actor.ready.remote(member.actor.up.options(max_task_retries=-1).remote())

    @property
    def there(self) -> list[Member]:
        return [member for member in self.members if member.told is not None]

    def came(self, member: Member) -> None:
        """See what a worker says that was asked to load the model: one that cannot, or has another one, is let go.

        One that dies over it is asked again, LOSSES times in all.
        """
        import ray
        from ray.exceptions import RayError

        try:
            said = ray.get(member.coming)
        except RayError as error:
            member.lost += not _preempted(error)
            if member.lost < LOSSES:
                self.call(member)
                return
            said = died(f"worker {member.number}", error, "it died while it loaded the model")
        member.coming = None
        if isinstance(said, Failure):
            self.leave(member, said)
            return
        other = next((f"{name} {v} there" for name, v in said.versions.items() if v != self.versions[name]), None)
        apart = (f"{other}, and another one here" if other else None) or (self.first or said).differs(said)
        if apart is not None:
            self.leave(member, Failure(said.node, f"its numbers would be others: {apart}."))
            return
        member.told, self.first = said, self.first or said

    def leave(self, member: Member, why: Failure) -> None:
        """Go on without a worker, and say so; its place in the cluster is free again."""
        import ray

        self.members.remove(member)
        self.failures.append(why)
        ray.kill(member.actor)
        if self.members:
            left = f"{len(self.members)} of {self.asked} workers are left"
            reason = ModelError(f"{why.reason.rstrip('.')}.{fixes([why])}")  # which spells out its arguments
            warnings.warn(f"worker {member.number}, {why.worker}, is left out: {reason} {left}.", stacklevel=2)

    def refuse_empty(self) -> None:
        """Raise a ModelError where no worker is left."""
        if not self.members and not self.failures:
            raise ModelError("the workers of this model were ended; load it again.")
        if not self.members:
            reasons = dict.fromkeys(why.reason for why in self.failures)
            where = ", ".join(why.worker for why in self.failures)
            raise ModelError(
                f"no worker of the cluster could go on with the model ({where}): "
                f"{'; '.join(reasons).rstrip('.')}.{fixes(self.failures)}"
            )


def _preempted(error: Exception) -> bool:
    """Whether a worker died because its machine was taken away: that is held against nobody."""
    return bool(getattr(error, "preempted", False))


class Work:
    """Tasks that workers do, each `function(model, *arguments)`, by their keys; what they give comes in any order.

    Nothing is sent out while nobody takes what has come in, so that no more than IN_FLIGHT results for each worker are
    ever on the way. `set_aside`: tasks that failed TRIES times, and why. Workers do one such work at a time: another
    one, whose tasks nobody takes any more, is left. What it has sent out is done, and goes nowhere: where Ray takes a
    task back, the worker waits half a minute for it and then gives up all that came after it.
    """

    def __init__(
        self, crew: Crew, function: Callable[..., Any], tasks: Mapping[Any, tuple[Any, ...]], tell: Progress
    ) -> None:
        self.crew, self.function, self.tasks, self.tell = crew, function, tasks, tell
        self.left = deque(tasks)
        self.failures: dict[Any, list[Failure]] = {}
        self.tried: dict[Any, set[Member]] = {}
        self.failed_at: dict[Any, float] = {}
        self.set_aside: dict[Any, list[Failure]] = {}

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        import ray

        self._leave()
        self.crew.busy = self
        while self.left or any(member.doing for member in self.crew.members):
            if self.crew.busy is not self:
                raise ModelError("the workers of this model were given other work before this was done.")
            self.crew.refuse_empty()
            self._send()
            self.tell("workers", len(self.crew.there), self.crew.asked)
            awaited: dict[Any, Member] = {}
            for member in self.crew.members:
                awaited |= dict.fromkeys([member.coming] if member.coming else [], member)
                awaited |= {member.doing[0][0]: member} if member.doing else {}
            done, _ = ray.wait(list(awaited), timeout=1.0)  # a worker does its tasks in their order
            for ref in done:
                yield from self._settle(awaited[ref], ref)

    def arrived(self) -> list[tuple[Any, Any]]:
        """What has come in and was not taken yet; nothing else is waited for, or taken."""
        import ray

        found: list[tuple[Any, Any]] = []
        if self.crew.busy is self:
            for member in list(self.crew.members):
                while member.doing and ray.wait([member.doing[0][0]], timeout=0)[0]:
                    found += self._settle(member, member.doing[0][0])
            self._leave()
        return found

    def _leave(self) -> None:
        for member in self.crew.members:
            member.doing.clear()

    def _send(self) -> None:
        """Give every worker enough to do: in rounds, so that all have something before one has more."""
        there = self.crew.there
        for _ in range(IN_FLIGHT):
            for member in there:
                if len(member.doing) < IN_FLIGHT and (key := self._next(member)) is not None:
                    self.left.remove(key)
                    arguments = self.tasks[key]
                    member.doing.append((member.actor.do.remote(self.function, arguments), key))

    def _next(self, member: Member) -> Any:
        """A task that this worker has not failed at, unless all others have too, or do not come."""
        for key in self.left:
            tried = self.tried.get(key, set())
            if member not in tried:
                return key
            waited = time.monotonic() - self.failed_at[key] > PATIENCE
            if all(other in tried for other in (self.crew.there if waited else self.crew.members)):
                return key
        return None

    def _settle(self, member: Member, ref: Any) -> Iterator[tuple[Any, Any]]:
        """What has become of this: of what a worker was to load, or of the oldest task that it has."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        if ref == member.coming:
            self.crew.came(member)
            return
        _, key = member.doing[0]
        try:
            value = ray.get(ref)
        except RayTaskError as error:
            if isinstance(error.cause, NotReady):
                self._begin_anew(member)
                return
            value = failure(member.name, error)  # what it gave could not be sent back
        except RayError as error:
            self._lost(member, key, error)
            return
        member.doing.popleft()
        if isinstance(value, Failure):
            self._failed(member, key, value)
        else:
            member.lost = 0
            yield key, value

    def _lost(self, member: Member, key: Any, error: Exception) -> None:
        """A worker died. Ray starts it anew; what it was doing may have been why, what it was still to do was not."""
        why = died(member.name, error, "the worker died over it")
        preempted = _preempted(error)
        member.lost += 0 if preempted else 1
        warnings.warn(f"{member.name} was lost; what it was doing is done again ({first_line(error)})", stacklevel=2)
        if not preempted:
            member.doing.popleft()
            self._failed(member, key, why)
        if member.lost >= LOSSES:
            self.left.extendleft(key for _, key in reversed(member.doing))
            member.doing.clear()
            self.crew.leave(member, died(member.name, error, f"it was lost {LOSSES} times in a row"))
            return
        self._begin_anew(member)

    def _begin_anew(self, member: Member) -> None:
        self.left.extendleft(key for _, key in reversed(member.doing))
        member.doing.clear()
        self.crew.call(member)

    def _failed(self, member: Member, key: Any, why: Failure) -> None:
        self.failures.setdefault(key, []).append(why)
        self.tried.setdefault(key, set()).add(member)
        self.failed_at[key] = time.monotonic()
        if len(self.failures[key]) < TRIES:
            self.left.appendleft(key)
        else:
            self.set_aside[key] = self.failures[key]
