"""How a run was measured and what its numbers mean, in plain words from the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from rote.report.keys import derived
from rote.report.text import numbers
from rote.report.text.drawn import sample_facts
from rote.report.text.near import near_method

P_Z = (
    "p_z is the probability that one generation from this prefix under this scheme is exactly this suffix, token for "
    "token. It is computed from the model’s own probabilities for the suffix tokens, not estimated by sampling."
)


def meaning(manifest: Mapping[str, Any], rows: pl.DataFrame) -> list[str]:
    """What the numbers say, and what they do not."""
    paragraphs = [P_Z]
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
        f"{numbers.counted(near['count'], unit)} within {numbers.setting(near['numeric_tolerance'])} of log τ, and "
        f"{numbers.count(border['count'])} with a token within {numbers.setting(border['border_tolerance'])} of the border "
        "of the scheme’s support, may fall on the other side in another correct computation."
    )


def method(manifest: Mapping[str, Any], summary: Mapping[str, Any], found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Everything that decides a number, as (name, value)."""
    model, unit = manifest["model"], numbers.unit(manifest)
    facts = [
        (
            "Text" if manifest["kind"] == "scan" else "Examples",
            _source(manifest["source"]),
        ),
        ("Model", _model(model)),
        ("Weights", f"fingerprint {numbers.name(model.get('fingerprint') or numbers.MISSING)}"),
        ("Tokenizer", numbers.name(model.get("tokenizer") or numbers.MISSING)),
        ("Arithmetic", f"{_made_on(model)}; logits turned to float32, sums in float64"),
        *(("Scheme", f"{numbers.name(label)}. {numbers.scheme(label)}") for label in manifest["schemes"]),
        ("BOS", numbers.bos(model["bos"], model.get("bos_token"))),
    ]
    facts += sample_facts(manifest)
    if windows := manifest.get("windows"):
        facts.append(
            (
                "Windows",
                f"One every {numbers.counted(windows['stride'], 'character')}: "
                f"{numbers.counted(windows['prefix'], 'token')} of prefix, then "
                f"{numbers.counted(windows['suffix'], 'token')} of suffix, tokenised together. "
                f"{_within(manifest)}Positions count code points from 0.",
            )
        )
    facts += [
        ("Scored", _scored(summary, unit)),
        ("Threshold τ", f"{numbers.setting(summary['tau'])}: the smallest p_z that counts as extraction"),
        ("Early stop", _early_stop(manifest, found, unit)),
        *near_method(manifest),
    ]
    if "rates" in found:
        facts.append(("Numerics", numeric_doubt(found["rates"], unit)))
    warned = derived(len(summary.get("warnings", [])), "summary/warnings", summary["examples"])
    versions = manifest.get("versions", {})
    return [
        *facts,
        ("Cost", cost(summary, unit)),
        ("Warnings", f"{numbers.count(warned)}, listed at the top" if warned else "none"),
        ("Versions", ", ".join(f"{name} {numbers.name(version)}" for name, version in versions.items())),
    ]


def parts_within(manifest: Mapping[str, Any]) -> int:
    """In how many parts of a text a scan's windows had to start."""
    windows = manifest["windows"]
    found: int = derived(len(windows["within"]), "manifest/windows/within", windows["stride"])
    return found


def _within(manifest: Mapping[str, Any]) -> str:
    if manifest["windows"].get("within") is None:
        return ""
    parts = numbers.counted(parts_within(manifest), "part")
    return f"Only windows that start in {parts} of the text, chosen beforehand (windows.within in manifest.json). "


def _source(source: Mapping[str, Any]) -> str:
    parts = [numbers.name(source["name"])]
    if source.get("characters") is not None:
        parts.append(numbers.counted(source["characters"], "character"))
    return ", ".join([*parts, f"SHA-256 {numbers.name(source.get('sha256') or numbers.MISSING)}"])


def _model(model: Mapping[str, Any]) -> str:
    revision = f"revision {numbers.name(model['revision'])}" if model.get("revision") else "no revision given"
    size = f", {numbers.count(model['parameters'])} parameters" if model.get("parameters") else ""
    return f"{numbers.name(model['name'])}, {revision}{size}"


def _made_on(model: Mapping[str, Any]) -> str:
    return f"{numbers.name(model['dtype'])} on {numbers.name(model['device'])}"


def _scored(summary: Mapping[str, Any], unit: str) -> str:
    dropped = summary["dropped"]
    left_out = f"{numbers.counted(dropped, unit)} dropped as too short" if dropped else "none dropped"
    return f"{numbers.counted(summary['examples'], unit)}; {left_out}"


def _early_stop(manifest: Mapping[str, Any], found: Mapping[str, Any], unit: str) -> str:
    if not manifest["stop_early"]:
        return f"off: every {unit} was scored to its last token"
    stopped = found.get("rates", {}).get("stopped", 0)
    if not stopped:
        return f"on, but no {unit} was given up: every one was scored to its last token"
    were = "was" if stopped == 1 else "were"
    return (
        f"on: {numbers.counted(stopped, unit)} {were} given up as soon as certain to end below τ. Of these only an upper "
        "bound on p_z is known, so a rate that counts anything below τ is printed as a range"
    )


def cost(summary: Mapping[str, Any], unit: str) -> str:
    evaluations, examples = summary["token_evals"], summary["examples"]
    if not examples:
        return f"{numbers.counted(evaluations, 'token evaluation')} in {numbers.duration(summary['seconds'])}"
    mean = derived(evaluations / examples, "cost/token_evals/mean", evaluations)
    each = f" ({numbers.average(mean)} per {unit})"
    searches = [found["near"]["token_evals"] for found in summary["schemes"].values() if "near" in found]
    if searches:
        total = sum(search["total"] for search in searches)
        spent = derived({"total": total, "mean": total / examples}, "cost/near_token_evals", evaluations)
        each += f", for near-verbatim search {numbers.count(spent['total'])} ({numbers.average(spent['mean'])})"
    return f"{numbers.counted(evaluations, 'token evaluation')}{each} in {numbers.duration(summary['seconds'])}"
