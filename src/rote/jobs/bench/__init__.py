"""`rote.bench`: examples from a corpus, attacks on a model, and their score."""

from __future__ import annotations

from rote.jobs.bench.attack import attack
from rote.jobs.bench.build import build
from rote.jobs.bench.inspect import inspect
from rote.jobs.bench.score import score

__all__ = ["attack", "build", "inspect", "score"]
