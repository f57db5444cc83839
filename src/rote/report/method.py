"""How a run was measured and what its numbers mean, in plain words from the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from rote.report import show
from rote.report.near import near_method
from rote.report.sampled import sample_facts


def meaning(manifest: Mapping[str, Any], rows: pl.DataFrame) -> list[str]:
    """What the numbers say, and what they do not."""
    paragraphs = [
        "p_z is the probability that one generation from this prefix under this scheme is exactly this suffix, token "
        "for token. It is computed from the model’s own probabilities for the suffix tokens, not estimated by sampling."
    ]
    if manifest["kind"] == "scan":
        paragraphs.append(
            "Coverage counts suffix characters only, because only they are generated; the prefix is given to "
            "the model, and the text’s first prefix can never be covered. A run of covered characters may join the "
            "suffixes of several windows, each with its own prompt."
        )
    control = (
        "Compare the splits above."
        if "split" in rows.columns and rows["split"].drop_nulls().n_unique() > 1
        else "This run has no splits to compare; measure such a control in the same way."
    )
    paragraphs.append(
        "A high probability is evidence of memorization when a held-out control, text of the same kind that the model "
        f"cannot have seen, shows none: some text is easy to guess. {control}"
    )
    if manifest.get("near"):
        sampled = manifest["near"]["method"] == "sample"
        paragraphs.append(
            "Near-verbatim extraction counts outputs within a few edits of the suffix. Their probability lies between "
            + ("the ends of a 95% interval, from samples." if sampled else "the lower and the upper bound, certainly: ")
            + ("" if sampled else "the lower is what was found, the upper what could not be excluded.")
        )
    return paragraphs


def numeric_doubt(rates: Mapping[str, Any], unit: str) -> str:
    """How many rows another correct computation might put on the other side of a border."""
    near, border = rates["near_tau"], rates["border_tokens"]
    return (
        f"{show.counted(near['count'], unit)} within {near['numeric_tolerance']:g} of log τ, "
        f"and {show.count(border['count'])} with a token within {border['border_tolerance']:g} of the border of the "
        "scheme’s support, may fall on the other side in another correct computation."
    )


def method(manifest: Mapping[str, Any], summary: Mapping[str, Any], found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Everything that decides a number, as (name, value)."""
    model, unit = manifest["model"], show.unit(manifest)
    facts = [
        (
            "Text" if manifest["kind"] == "scan" else "Examples",
            _source(manifest["source"]),
        ),
        ("Model", _model(model)),
        ("Weights", f"fingerprint {model.get('fingerprint') or show.MISSING}"),
        ("Tokenizer", str(model.get("tokenizer") or show.MISSING)),
        ("Arithmetic", f"{model['dtype']} on {model['device']}; logits turned to float32, sums in float64"),
        *(("Scheme", f"{label}. {show.scheme(label)}") for label in manifest["schemes"]),
        ("BOS", show.bos(model["bos"], model.get("bos_token"))),
    ]
    facts += sample_facts(manifest)
    if windows := manifest.get("windows"):
        facts.append(
            (
                "Windows",
                f"One every {show.counted(windows['stride'], 'character')}: "
                f"{show.counted(windows['prefix'], 'token')} of prefix, then "
                f"{show.counted(windows['suffix'], 'token')} of suffix, tokenised together. "
                f"{_within(windows)}Positions count code points from 0.",
            )
        )
    facts += [
        ("Scored", _scored(summary, unit)),
        ("Threshold τ", f"{summary['tau']:g}: the smallest p_z that counts as extraction"),
        ("Early stop", _early_stop(manifest, found, unit)),
        *near_method(manifest),
    ]
    if "rates" in found:
        facts.append(("Numerics", numeric_doubt(found["rates"], unit)))
    warned = len(summary.get("warnings", []))
    versions = manifest.get("versions", {})
    return [
        *facts,
        ("Cost", cost(summary, unit)),
        ("Warnings", f"{show.count(warned)}, listed at the top" if warned else "none"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]


def _within(windows: Mapping[str, Any]) -> str:
    within = windows.get("within")
    if within is None:
        return ""
    parts = show.counted(len(within), "part")
    return f"Only windows that start in {parts} of the text, chosen beforehand (windows.within in manifest.json). "


def _source(source: Mapping[str, Any]) -> str:
    parts = [show.literal(source["name"])]
    if source.get("characters") is not None:
        parts.append(show.counted(source["characters"], "character"))
    return ", ".join([*parts, f"SHA-256 {source.get('sha256') or show.MISSING}"])


def _model(model: Mapping[str, Any]) -> str:
    revision = f"revision {show.literal(model['revision'])}" if model.get("revision") else "no revision given"
    size = f", {show.count(model['parameters'])} parameters" if model.get("parameters") else ""
    return f"{show.literal(model['name'])}, {revision}{size}"


def _scored(summary: Mapping[str, Any], unit: str) -> str:
    dropped = summary.get("dropped") or 0
    left_out = f"{show.counted(dropped, unit)} dropped as too short" if dropped else "none dropped"
    return f"{show.counted(summary['examples'], unit)}; {left_out}"


def _early_stop(manifest: Mapping[str, Any], found: Mapping[str, Any], unit: str) -> str:
    if not manifest["stop_early"]:
        return f"off: every {unit} was scored to its last token"
    stopped = found.get("rates", {}).get("stopped", 0)
    if not stopped:
        return f"on, but no {unit} was given up: every one was scored to its last token"
    were = "was" if stopped == 1 else "were"
    return (
        f"on: {show.counted(stopped, unit)} {were} given up as soon as certain to end below τ. Of these only an upper "
        "bound on p_z is known, so a rate that counts anything below τ is printed as a range"
    )


def cost(summary: Mapping[str, Any], unit: str) -> str:
    evaluations, examples = summary["token_evals"], summary["examples"]
    each = f" ({evaluations / examples:,.1f} per {unit})" if examples else ""
    searches = [found["near"]["token_evals"] for found in summary["schemes"].values() if "near" in found]
    if searches and examples:
        total = sum(search["total"] for search in searches)
        each += f", for near-verbatim search {show.count(total)} ({total / examples:,.1f})"
    return f"{show.counted(evaluations, 'token evaluation')}{each} in {show.duration(summary['seconds'])}"
