"""What this machine has and lacks, for `rote doctor`."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import rote
from rote.report.text.cards import facts_card

NEEDED = ("torch", "transformers", "pyarrow", "polars", "rapidfuzz", "httpx2")
EXTRAS = {
    "report": ("matplotlib",),
    "bleu": ("sacrebleu",),
    "pandas": ("pandas",),
    "spacy": ("spacy",),
    "ray": ("ray",),
    "index": ("infini-gram",),
    "adapters": ("peft",),
    "quantised": ("bitsandbytes",),
    "dev": ("pytest", "hypothesis", "ruff", "mypy", "sacrebleu", "nbclient"),
}


@dataclass(frozen=True, slots=True)
class Doctor:
    """What was looked at, and what was found: by name, in words."""

    facts: dict[str, str]

    def _repr_html_(self) -> str:
        return facts_card("This machine", self.facts)


def doctor() -> Doctor:
    """What is installed, which devices there are, which extras are missing; the bundled model is tried."""
    facts = {
        "rote": rote.__version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{name: installed(name) or f"missing: pip install {name}" for name in NEEDED},
        "devices": devices(),
    }
    for extra, packages in EXTRAS.items():
        missing = [name for name in packages if installed(name) is None]
        get = f"missing {', '.join(missing)}: pip install 'rote[{extra}]'"
        facts[f"extra {extra}"] = get if missing else "installed"
    facts["bundled model"] = try_bundled()
    return Doctor(facts)


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def devices() -> str:
    try:
        import torch
    except (ImportError, OSError) as error:  # missing, or installed with libraries that this machine lacks
        return f"unknown: torch is missing or broken ({error}): pip install torch"

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    listed = [f"cpu ({cores} cores, {torch.get_num_threads()} threads used)"]
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        listed.append(f"cuda:{index} {properties.name} ({properties.total_memory / 2**30:.0f} GiB)")
    if torch.backends.mps.is_available():
        listed.append("mps")
    if torch.cuda.device_count() > 1:
        listed.append(f"a model too large for one: --device-map auto, or torchrun --nproc-per-node {len(listed) - 1}")
    return ", ".join(listed)


def try_bundled() -> str:
    """Load the bundled model and score the first window of the bundled text: the whole path, once."""
    try:
        from rote.models.base import BUNDLED_TEXT

        began = time.perf_counter()
        model = rote.load("bundled")
    except (ImportError, OSError) as error:
        return f"not tried: a package is missing or broken ({error}): pip install rote"
    loaded = time.perf_counter()
    first = rote.windows(BUNDLED_TEXT.read_text(encoding="utf-8")[:2000], model.tokenizer, rote.Windows(stride=2000))[0]
    result = rote.verbatim(model, [first])[0]
    done = time.perf_counter()
    return (
        f"loads in {loaded - began:.1f} s; the first window of the bundled text: p_z = {result.prob:.3f} "
        f"({result.scheme}) in {1000 * (done - loaded):.0f} ms"
    )
