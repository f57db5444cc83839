"""Why something failed on a worker of a cluster, in words, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rote.errors import argument

SMALLER = (
    f"a smaller {argument('batch_size')}, fewer {argument('workers')}, a 16-bit {argument('dtype')}, or more "
    f"{argument('gpus_per_worker')} with {argument('device_map', 'auto')}"
)
MEMORY = f"It ran out of memory: use {SMALLER}."
DIED = f"If it died for lack of memory, which Ray does not always say, use {SMALLER}."


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task was not done, or a model not loaded; `fix`: what to do, where that is known."""

    worker: str
    reason: str
    fix: str = ""


def failure(where: str, error: BaseException) -> Failure:
    """What went wrong, in words that keep their arguments marked."""
    text = error._marked if hasattr(error, "_marked") else f"{type(error).__name__}: {error}"
    short = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    short |= any(sign in str(text) for sign in ("out of memory", "allocate memory"))
    return Failure(where, str(text), MEMORY if short else "")


def died(where: str, error: Exception, what: str) -> Failure:
    """A worker's death. Of one that it starts anew Ray does not say why it died, not even where it ended it itself.

    What it says of others may name the system's OOM killer among "common causes": that tells nothing of this one.
    """
    short = any(sign in str(error) for sign in ("memory pressure", "low on memory"))
    return Failure(where, f"{what} ({first_line(error)})", MEMORY if short else DIED)


def fixes(failures: Iterable[Failure]) -> str:
    """What to do about these, after their reasons: said once, by the one of which most is known."""
    told = {why.fix for why in failures}
    return next((f" {fix}" for fix in (MEMORY, DIED) if fix in told), "")


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).strip()
