"""What is sent to workers of a cluster to see what becomes of it: work that fails, ends its process, or is counted."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rote import Example
from rote.jobs.shards import Scoring, Shard, score_shard

POISON = "w310"
"""The window that cannot be scored."""


def _holds(part: Sequence[Example]) -> bool:
    return any(example.id == POISON for example in part)


def _runs_out() -> None:
    """As torch does where a batch does not fit."""
    torch.empty(2**50, dtype=torch.uint8)


def raises(model: Any, part: Sequence[Example], scoring: Scoring) -> Shard:
    if _holds(part):
        raise ValueError("this cannot be scored")
    return score_shard(model, part, scoring)


def kills(model: Any, part: Sequence[Example], scoring: Scoring) -> Shard:
    if _holds(part):
        os.kill(os.getpid(), signal.SIGKILL)
    return score_shard(model, part, scoring)


def runs_out(model: Any, part: Sequence[Example], scoring: Scoring) -> Shard:
    if _holds(part):
        _runs_out()
    return score_shard(model, part, scoring)


def once_runs_out(model: Any, first: str, number: int) -> tuple[int, int]:
    """Runs out of memory in the process that gets there first, whenever it is asked."""
    path = Path(first)
    try:
        with path.open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        pass
    if path.read_text() == str(os.getpid()):
        _runs_out()
    return number, os.getpid()


def noted(model: Any, folder: str, number: int) -> int:
    """Leaves a file behind that says that it was begun."""
    Path(folder, str(number)).touch()
    return number
