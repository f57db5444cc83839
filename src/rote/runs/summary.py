"""The headline numbers of a finished run."""

from __future__ import annotations

from typing import Any

from rote.analysis.coverage import coverage
from rote.analysis.nearverbatim import near_summary
from rote.analysis.rates import rates, rates_by
from rote.runs.store import Run

THRESHOLDS = (0.01, 0.1, 0.5, 0.75)
"""The probabilities at which coverage is told."""


def summarise(run: Run, logit_tolerance: float) -> dict[str, Any]:
    """What summary.json says, under every scheme of the run."""
    manifest, scores, facts = run.manifest, run.scores, run.shard_facts()
    tau = manifest["tau"]
    longest = int(scores["ranks"].list.len().max() or 0)  # type: ignore[arg-type]
    doubt = 2 * logit_tolerance * longest  # each token's log-prob may differ by twice what a logit may
    schemes: dict[str, Any] = {}
    for scheme in manifest["schemes"]:
        own = scores.filter(scores["scheme"] == scheme)
        numbers: dict[str, Any] = {
            "rates": rates(own, tau=tau, numeric_tolerance=doubt, border_tolerance=logit_tolerance)
        }
        if manifest["kind"] == "scan":
            numbers["coverage"] = coverage(own, manifest["source"]["characters"], thresholds=THRESHOLDS)
        if own["repetitions"].is_not_null().any():
            numbers["by_repetitions"] = rates_by(own, "repetitions", tau=tau)
        if manifest["near"] is not None:
            numbers["near"] = near_summary(own, tau=tau)
        if own["split"].is_not_null().any():
            numbers["by_split"] = rates_by(own, "split", tau=tau)
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
        "schemes": schemes,
    }
