"""Rote measures what a language model knows by rote: how much of a text it can be made to repeat, and how likely.

The names below are the public surface. They load on first use: `import rote` needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rote.corpus.windows import windows
    from rote.errors import InputError, ModelError, RoteError, RunError
    from rote.extraction.near.results import NearVerbatim
    from rote.extraction.near.search import Near, near_verbatim
    from rote.extraction.verbatim import Verbatim, verbatim
    from rote.jobs.check import check
    from rote.jobs.compare import Comparison, compare
    from rote.jobs.export import export
    from rote.jobs.figures import figures
    from rote.jobs.open import Reconstruction, Run, SavedComparison, Sweep, open
    from rote.jobs.rate import rate
    from rote.jobs.reconstruct import reconstruct
    from rote.jobs.scan import scan
    from rote.jobs.score import score
    from rote.jobs.sweep import sweep
    from rote.models.base import LogitModel, load
    from rote.odds import at_least_once, expected_queries, queries_needed
    from rote.scheme import GREEDY, Scheme
    from rote.tokens import Example

_HOME = {
    "windows": "rote.corpus.windows",
    "GREEDY": "rote.scheme",
    "Scheme": "rote.scheme",
    "InputError": "rote.errors",
    "ModelError": "rote.errors",
    "RoteError": "rote.errors",
    "RunError": "rote.errors",
    "Near": "rote.extraction.near.search",
    "near_verbatim": "rote.extraction.near.search",
    "at_least_once": "rote.odds",
    "expected_queries": "rote.odds",
    "queries_needed": "rote.odds",
    "NearVerbatim": "rote.extraction.near.results",
    "Verbatim": "rote.extraction.verbatim",
    "verbatim": "rote.extraction.verbatim",
    "LogitModel": "rote.models.base",
    "load": "rote.models.base",
    "check": "rote.jobs.check",
    "compare": "rote.jobs.compare",
    "Comparison": "rote.jobs.compare",
    "export": "rote.jobs.export",
    "figures": "rote.jobs.figures",
    "rate": "rote.jobs.rate",
    "Reconstruction": "rote.jobs.open",
    "Run": "rote.jobs.open",
    "SavedComparison": "rote.jobs.open",
    "Sweep": "rote.jobs.open",
    "open": "rote.jobs.open",
    "reconstruct": "rote.jobs.reconstruct",
    "scan": "rote.jobs.scan",
    "score": "rote.jobs.score",
    "sweep": "rote.jobs.sweep",
    "Example": "rote.tokens",
}

__all__ = [
    "GREEDY",
    "Comparison",
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
    "SavedComparison",
    "Scheme",
    "Sweep",
    "Verbatim",
    "at_least_once",
    "check",
    "compare",
    "expected_queries",
    "export",
    "figures",
    "load",
    "near_verbatim",
    "open",
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
