"""Rote measures what a language model knows by rote: how much of a text it can be made to repeat, and how likely.

The names below are the public surface. They load on first use: `import rote` needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rote.corpus.sampling import Draw
    from rote.corpus.windows import Windows, windows
    from rote.decoding import TargetScores
    from rote.errors import InputError, ModelError, RoteError, RunError
    from rote.extraction.near.options import Near
    from rote.extraction.near.results import NearVerbatim
    from rote.extraction.near.search import near_verbatim
    from rote.extraction.text.writing import Writing
    from rote.extraction.verbatim import Verbatim, verbatim
    from rote.jobs import bench, index
    from rote.jobs.check import Checked, check
    from rote.jobs.compare import Comparison, compare
    from rote.jobs.doctor import Doctor, doctor
    from rote.jobs.export import Exported, export
    from rote.jobs.figures import DrawnFigures, figures
    from rote.jobs.longer import longer
    from rote.jobs.member import member
    from rote.jobs.open import BenchScore, Membership, Probe, Reconstruction, Run, SavedComparison, Sweep, open
    from rote.jobs.probe import DryRun, probe
    from rote.jobs.rate import rate
    from rote.jobs.reconstruct import reconstruct
    from rote.jobs.scan import scan
    from rote.jobs.score import score
    from rote.jobs.show import show
    from rote.jobs.spots import spots
    from rote.jobs.sweep import sweep
    from rote.jobs.verify import verify
    from rote.membership.options import Reading
    from rote.models.base import (
        GeneratingModel,
        LogitModel,
        ModelIdentity,
        ModelOptions,
        SuffixScorer,
        TokenModel,
        load,
    )
    from rote.models.chat import Endpoint, load_chat
    from rote.models.cluster import load_on
    from rote.models.engine import Engine
    from rote.models.masked import load_reference
    from rote.models.probed import ChatModel, Price
    from rote.odds import at_least_once, expected_queries, queries_needed
    from rote.probes.options import Words
    from rote.progress import Progress
    from rote.report.text.passage import ShownPassage
    from rote.report.text.spots import Spots
    from rote.scheme import GREEDY, Scheme
    from rote.store.stages import Refine
    from rote.store.verification import Verification
    from rote.tokens import Example

_HOME = {
    "BenchScore": "rote.jobs.open",
    "GREEDY": "rote.scheme",
    "ChatModel": "rote.models.probed",
    "Checked": "rote.jobs.check",
    "Comparison": "rote.jobs.compare",
    "Doctor": "rote.jobs.doctor",
    "Draw": "rote.corpus.sampling",
    "DrawnFigures": "rote.jobs.figures",
    "DryRun": "rote.jobs.probe",
    "Endpoint": "rote.models.chat",
    "Engine": "rote.models.engine",
    "Example": "rote.tokens",
    "Exported": "rote.jobs.export",
    "GeneratingModel": "rote.models.base",
    "InputError": "rote.errors",
    "LogitModel": "rote.models.base",
    "Membership": "rote.jobs.open",
    "ModelError": "rote.errors",
    "ModelIdentity": "rote.models.base",
    "ModelOptions": "rote.models.base",
    "Near": "rote.extraction.near.options",
    "NearVerbatim": "rote.extraction.near.results",
    "Price": "rote.models.probed",
    "Probe": "rote.jobs.open",
    "Progress": "rote.progress",
    "Reading": "rote.membership.options",
    "Reconstruction": "rote.jobs.open",
    "Refine": "rote.store.stages",
    "RoteError": "rote.errors",
    "Run": "rote.jobs.open",
    "RunError": "rote.errors",
    "SavedComparison": "rote.jobs.open",
    "Scheme": "rote.scheme",
    "ShownPassage": "rote.report.text.passage",
    "Spots": "rote.report.text.spots",
    "SuffixScorer": "rote.models.base",
    "Sweep": "rote.jobs.open",
    "TargetScores": "rote.decoding",
    "TokenModel": "rote.models.base",
    "Verbatim": "rote.extraction.verbatim",
    "Verification": "rote.store.verification",
    "Windows": "rote.corpus.windows",
    "Words": "rote.probes.options",
    "Writing": "rote.extraction.text.writing",
    "at_least_once": "rote.odds",
    "bench": "rote.jobs",
    "check": "rote.jobs.check",
    "compare": "rote.jobs.compare",
    "doctor": "rote.jobs.doctor",
    "expected_queries": "rote.odds",
    "export": "rote.jobs.export",
    "figures": "rote.jobs.figures",
    "index": "rote.jobs",
    "load": "rote.models.base",
    "load_chat": "rote.models.chat",
    "load_on": "rote.models.cluster",
    "load_reference": "rote.models.masked",
    "longer": "rote.jobs.longer",
    "member": "rote.jobs.member",
    "near_verbatim": "rote.extraction.near.search",
    "open": "rote.jobs.open",
    "probe": "rote.jobs.probe",
    "queries_needed": "rote.odds",
    "rate": "rote.jobs.rate",
    "reconstruct": "rote.jobs.reconstruct",
    "scan": "rote.jobs.scan",
    "score": "rote.jobs.score",
    "show": "rote.jobs.show",
    "spots": "rote.jobs.spots",
    "sweep": "rote.jobs.sweep",
    "verbatim": "rote.extraction.verbatim",
    "verify": "rote.jobs.verify",
    "windows": "rote.corpus.windows",
}

__all__ = [
    "GREEDY",
    "BenchScore",
    "ChatModel",
    "Checked",
    "Comparison",
    "Doctor",
    "Draw",
    "DrawnFigures",
    "DryRun",
    "Endpoint",
    "Engine",
    "Example",
    "Exported",
    "GeneratingModel",
    "InputError",
    "LogitModel",
    "Membership",
    "ModelError",
    "ModelIdentity",
    "ModelOptions",
    "Near",
    "NearVerbatim",
    "Price",
    "Probe",
    "Progress",
    "Reading",
    "Reconstruction",
    "Refine",
    "RoteError",
    "Run",
    "RunError",
    "SavedComparison",
    "Scheme",
    "ShownPassage",
    "Spots",
    "SuffixScorer",
    "Sweep",
    "TargetScores",
    "TokenModel",
    "Verbatim",
    "Verification",
    "Windows",
    "Words",
    "Writing",
    "at_least_once",
    "bench",
    "check",
    "compare",
    "doctor",
    "expected_queries",
    "export",
    "figures",
    "index",
    "load",
    "load_chat",
    "load_on",
    "load_reference",
    "longer",
    "member",
    "near_verbatim",
    "open",
    "probe",
    "queries_needed",
    "rate",
    "reconstruct",
    "scan",
    "score",
    "show",
    "spots",
    "sweep",
    "verbatim",
    "verify",
    "windows",
]

try:
    __version__ = version("rote")
except PackageNotFoundError:  # run from a checkout that is not installed, as on a GPU machine with nothing else on it
    __version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        home = import_module(_HOME[name])
        return getattr(home, name) if hasattr(home, name) else import_module(f"{_HOME[name]}.{name}")
    raise AttributeError(f"module 'rote' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
