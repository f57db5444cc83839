"""Rote measures what a language model knows by rote: how much of a text it can be made to repeat, and how likely.

The names below are the public surface. They load on first use: `import rote` needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rote.corpus.windows import windows
    from rote.decoding import GREEDY, Scheme
    from rote.errors import InputError, ModelError, RoteError, RunError
    from rote.extraction.near import Near, near_verbatim
    from rote.extraction.odds import at_least_once, expected_queries, queries_needed
    from rote.extraction.outcome import NearVerbatim
    from rote.extraction.verbatim import Verbatim, verbatim
    from rote.models.base import LogitModel, load
    from rote.runs.check import check
    from rote.runs.compare import compare
    from rote.runs.engine import scan, score
    from rote.runs.export import export
    from rote.runs.figures import figures
    from rote.runs.rate import rate
    from rote.runs.reconstruct import Reconstruction, reconstruct
    from rote.runs.store import Run
    from rote.runs.sweep import sweep
    from rote.tokens import Example

_HOME = {
    "windows": "rote.corpus.windows",
    "GREEDY": "rote.decoding",
    "Scheme": "rote.decoding",
    "InputError": "rote.errors",
    "ModelError": "rote.errors",
    "RoteError": "rote.errors",
    "RunError": "rote.errors",
    "Near": "rote.extraction.near",
    "near_verbatim": "rote.extraction.near",
    "at_least_once": "rote.extraction.odds",
    "expected_queries": "rote.extraction.odds",
    "queries_needed": "rote.extraction.odds",
    "NearVerbatim": "rote.extraction.outcome",
    "Verbatim": "rote.extraction.verbatim",
    "verbatim": "rote.extraction.verbatim",
    "LogitModel": "rote.models.base",
    "load": "rote.models.base",
    "check": "rote.runs.check",
    "compare": "rote.runs.compare",
    "scan": "rote.runs.engine",
    "score": "rote.runs.engine",
    "export": "rote.runs.export",
    "figures": "rote.runs.figures",
    "rate": "rote.runs.rate",
    "Reconstruction": "rote.runs.reconstruct",
    "reconstruct": "rote.runs.reconstruct",
    "Run": "rote.runs.store",
    "sweep": "rote.runs.sweep",
    "Example": "rote.tokens",
}

__all__ = [
    "GREEDY",
    "Example",
    "InputError",
    "LogitModel",
    "ModelError",
    "Near",
    "NearVerbatim",
    "Reconstruction",
    "RoteError",
    "Run",
    "RunError",
    "Scheme",
    "Verbatim",
    "at_least_once",
    "check",
    "compare",
    "expected_queries",
    "export",
    "figures",
    "load",
    "near_verbatim",
    "queries_needed",
    "rate",
    "reconstruct",
    "scan",
    "score",
    "sweep",
    "verbatim",
    "windows",
]

try:
    __version__ = version("rote")
except PackageNotFoundError:  # run from a checkout that is not installed, as on a GPU machine with nothing else on it
    __version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'rote' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
