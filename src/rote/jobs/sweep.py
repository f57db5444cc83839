"""Sweeps: rates as the scheme, the prefix length or the suffix length varies.

Every prefix length is a run folder of its own, because the model must read again. All schemes and all suffix lengths
come from that one reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from rote.analysis.sweep import point, shortened
from rote.decoding import GREEDY, Scheme
from rote.errors import InputError, RunError
from rote.extraction.verbatim import BatchSize
from rote.jobs.engine import Progress, score
from rote.models.base import LogitModel
from rote.store.manifest import scheme_of
from rote.store.run import Run, pretty, read_json, write_whole
from rote.tokens import Example


def sweep(
    examples: Sequence[Example],
    model: LogitModel,
    *,
    out: str | Path,
    name: str = "examples",
    schemes: Sequence[Scheme] = (Scheme(),),
    prefixes: Sequence[int] | None = None,
    suffixes: Sequence[int] | None = None,
    tau: float = 1e-3,
    batch_size: BatchSize = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Rates at every scheme, prefix length and suffix length; also written to `out`, as sweep.json and report.html.

    A shorter prefix is the end of an example's prefix, a shorter suffix the beginning of its suffix, so that all prefix
    lengths ask for the same suffix. Lengths are in tokens; left out, they are the examples' own, which must then agree.
    `out`/prefix-N is an ordinary run, which is continued if it is there already.
    """
    if not examples:
        raise InputError(f"{name} holds no examples.")
    lengths = {"prefix": _lengths(examples, "prefix", prefixes), "suffix": _lengths(examples, "suffix", suffixes)}
    tell = progress or (lambda what, done, total: None)
    total = len(lengths["prefix"]) * len(examples)
    points = []
    for number, prefix in enumerate(lengths["prefix"]):

        def on(what: str, done: int, of: int, before: int = number * len(examples)) -> None:
            tell(what, before + done, total)

        run = score(
            [_cut(example, prefix, lengths["suffix"][-1]) for example in examples],
            model,
            out=Path(out) / _part(prefix),
            name=name,
            schemes=[*schemes, *([] if GREEDY in schemes else [GREEDY])],
            tau=tau,
            batch_size=batch_size,
            recorded={"sweep": {"prefix": prefix, "suffix": lengths["suffix"][-1]}},
            progress=on,
        )
        points += _points(run, [str(scheme) for scheme in schemes], prefix, lengths["suffix"])
    first = run.summary
    result = {
        "kind": "sweep",
        **{key: first[key] for key in ("model", "examples", "tau", "logit_tolerance", "versions")},
        "source": {"name": name},
        "lengths": lengths,
        "points": points,
    }
    write_whole(Path(out) / "sweep.json", pretty(result))
    report_sweep(out)
    return result


def is_sweep(folder: str | Path) -> bool:
    return (Path(folder) / "sweep.json").is_file()


def report_sweep(folder: str | Path) -> dict[str, Any]:
    """Write a finished sweep's report.html from what its folder holds, and return what sweep.json says."""
    from rote.report.text.sweep import render_sweep

    found = read_json(Path(folder) / "sweep.json")
    if not {"lengths", "points", "model"} <= set(found):
        raise RunError(f"{Path(folder) / 'sweep.json'} is damaged. Run the command that made it again to restore it.")
    runs = {}
    for length in found["lengths"]["prefix"]:
        run = Run(Path(folder) / _part(length))
        if not (run.folder / "manifest.json").is_file():
            raise RunError(f"{run.folder}, a run of this sweep, is not there. Run the command that made it again.")
        runs[run.folder.name] = (run.manifest, run.summary)
    write_whole(Path(folder) / "report.html", render_sweep(found, runs).encode("utf-8", "replace"))
    return found


def _part(length: int) -> str:
    """The folder of the run with prompts of this length."""
    return f"prefix-{length}"


def _points(run: Run, schemes: Sequence[str], prefix: int, suffixes: Sequence[int]) -> list[dict[str, Any]]:
    scores, summary = run.scores, run.summary
    tolerance = summary["logit_tolerance"]
    found = []
    for suffix in suffixes:
        table = shortened(scores, suffix)
        for scheme in schemes:
            own = table.filter(pl.col("scheme") == scheme)
            numbers = point(
                own,
                tau=summary["tau"],
                numeric_tolerance=scheme_of(scheme).doubt(tolerance) * suffix,
                border_tolerance=tolerance,
            )
            found.append({"scheme": scheme, "prefix": prefix, "suffix": suffix, **numbers})
    return found


def _lengths(examples: Sequence[Example], part: str, asked: Sequence[int] | None) -> list[int]:
    """The lengths to sweep, ascending, once each; every example must be long enough for the longest."""
    own = [len(getattr(example, part)) for example in examples]
    if asked is None:
        if min(own) != max(own):
            raise InputError(
                f"the examples' {part}es have from {min(own)} to {max(own)} tokens; say which lengths to compare: "
                f"--{part} with up to {min(own)}."
            )
        return [own[0]]
    if not asked or min(asked) < 1:
        raise InputError(f"--{part}: lengths are whole numbers of at least 1.")
    if max(asked) > min(own):
        short = examples[own.index(min(own))]
        raise InputError(
            f"example {short.id!r} has a {part} of {min(own)} tokens, fewer than {max(asked)}; "
            f"give --{part} up to that."
        )
    return sorted(set(asked))


def _cut(example: Example, prefix: int, suffix: int) -> Example:
    """The last tokens of the prefix and the first of the suffix. Where they stand in the text is not known any more."""
    return replace(
        example,
        prefix=example.prefix[len(example.prefix) - prefix :],
        suffix=example.suffix[:suffix],
        start=None,
        suffix_start=None,
        suffix_end=None,
        token_ends=None,
    )
