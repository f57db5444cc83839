"""The headline numbers of a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from rote.analysis.coverage import coverage, longest, merge_spans, spans
from rote.analysis.groups import differences, sampled_rates, with_origin
from rote.analysis.near.rates import near_summary
from rote.analysis.rates import rates, rates_by
from rote.corpus.windows import beginning_ends
from rote.errors import RunError
from rote.store.manifest import scheme_of
from rote.store.run import Run

THRESHOLDS = (0.01, 0.1, 0.5, 0.75)
"""The probabilities at which coverage is told."""


def summarise(run: Run, logit_tolerance: float, tokenizer: Any) -> dict[str, Any]:
    """What summary.json says, under every scheme of the run."""
    manifest, scores, facts = run.manifest, run.scores, run.shard_facts()
    tau = manifest["tau"]
    most_tokens = int(scores["ranks"].list.len().max() or 0)  # type: ignore[arg-type]
    schemes: dict[str, Any] = {}
    for scheme in manifest["schemes"]:
        own = scores.filter(scores["scheme"] == scheme)
        doubt = scheme_of(scheme).doubt(logit_tolerance) * most_tokens
        limits = {"tau": tau, "numeric_tolerance": doubt, "border_tolerance": logit_tolerance}
        numbers: dict[str, Any] = {"rates": rates(own, **limits)}
        if manifest["kind"] == "scan":
            numbers["coverage"] = coverage(own, manifest["source"]["characters"], thresholds=THRESHOLDS)
            numbers["longest"] = _longest_places(run, own, tokenizer)
        if own["repetitions"].is_not_null().any():
            numbers["by_repetitions"] = rates_by(own, "repetitions", **limits)
        if manifest["near"] is not None:
            numbers["near"] = near_summary(own, tau=tau)
        if own["split"].is_not_null().any():
            numbers["by_split"] = rates_by(own, "split", **limits)
        if "sampling" in manifest:
            numbers |= _sampled(own, limits)
        schemes[scheme] = numbers
    first = scores.filter(scores["scheme"] == manifest["schemes"][0])
    return {
        "kind": manifest["kind"],
        "source": manifest["source"],
        "model": manifest["model"],
        "examples": first.height,
        "dropped": manifest["dropped"],
        "tau": tau,
        "logit_tolerance": logit_tolerance,
        "token_evals": int(first["token_evals"].sum()),
        "seconds": round(sum(f["seconds"] for f in facts), 3),
        "warnings": sorted({w for f in facts for w in f["warnings"]}),
        "versions": manifest["versions"],
        **({"looked_at": _looked_at(first, manifest["source"]["characters"])} if manifest["kind"] == "scan" else {}),
        **({"sampling": manifest["sampling"]} if "sampling" in manifest else {}),
        "schemes": schemes,
    }


def _sampled(scores: pl.DataFrame, limits: Mapping[str, float]) -> dict[str, Any]:
    """The rates of examples drawn from a corpus. A held-out corpus is a group beside it, not a part of its rates."""
    rows = with_origin(scores)
    own = rows.filter(pl.col("corpus") == "main")
    found: dict[str, Any] = {"rates": sampled_rates(own, **limits)}
    if by_repetitions := rates_by(rows, "repetitions", **limits, of=sampled_rates):
        found["by_repetitions"] = by_repetitions
    if by_split := rates_by(rows, "split", **limits, of=sampled_rates):
        found |= {"by_split": by_split, "differences": differences(by_split)}
    return found


def _looked_at(scores: pl.DataFrame, length: int) -> dict[str, Any]:
    """The characters that lie in any suffix, and those that a wide stride leaves between them, not measured."""
    covered = merge_spans(*spans(scores))
    characters = sum(end - start for start, end in covered)
    gaps = covered[-1][1] - covered[0][0] - characters if covered else 0
    return {"characters": characters, "share": characters / length, "gaps": gaps}


def _longest_places(run: Run, scores: pl.DataFrame, tokenizer: Any) -> dict[str, Any]:
    """The longest sequence at each threshold, and where in the text it ends: the table knows only where suffixes do."""
    found = {threshold: entry for threshold, entry in longest(scores, THRESHOLDS).items() if entry is not None}
    windows, text = run.manifest["windows"], run.text
    if text is None:
        raise RunError(f"{run.folder / 'text.txt'} is gone; run the same command again to restore it.")
    beginnings = [(entry["start"] or 0, entry["tokens"]) for entry in found.values()]
    ends = beginning_ends(text, tokenizer, beginnings, prefix=windows["prefix"], suffix=windows["suffix"])
    placed = {t: {**entry, "suffix_end": end} for (t, entry), end in zip(found.items(), ends, strict=True)}
    return {f"{threshold:g}": placed.get(f"{threshold:g}") for threshold in THRESHOLDS}
