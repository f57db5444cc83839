"""How a run was measured and what its numbers mean, in plain words from the manifest."""

from __future__ import annotations

import json

import polars as pl

from rote.models.base import ModelIdentity
from rote.report.keys import derived
from rote.report.text import numbers
from rote.report.text.corpus import corpus_facts
from rote.report.text.near import near_method
from rote.report.text.rate import sample_facts
from rote.report.text.stages import left_out
from rote.report.text.variants import normalised_words, variant_warnings, variants_fact
from rote.scheme import Scheme
from rote.store.manifest import Source
from rote.store.run import Finished
from rote.store.stages import Refined
from rote.store.summary import Rates

APART = "inside a token, so that prompt and target were tokenised apart"
P_Z = (
    "p_z is the probability that one generation from this prefix under this scheme is exactly this suffix, token for "
    "token. It is computed from the model’s own probabilities for the suffix tokens, not estimated by sampling."
)


def meaning(run: Finished, rows: pl.DataFrame) -> list[str]:
    """What the numbers say, and what they do not."""
    paragraphs = [P_Z]
    if run.scanned:
        paragraphs.append(
            "Coverage counts suffix characters only, because only they are generated; the prefix is given to "
            "the model, and the text’s first prefix can never be covered. A run of covered characters may join the "
            "suffixes of several windows, each with its own prompt."
        )
    if run.summary.staged is not None:
        paragraphs.append(_IN_STAGES)
    control = (
        "Compare the splits above."
        if "split" in rows.columns and rows["split"].drop_nulls().n_unique() > 1
        else "This run has no splits to compare; measure such a control in the same way."
    )
    paragraphs.append(
        "A high probability is evidence of memorization when a held-out control, text of the same kind that the model "
        f"cannot have seen, shows none: some text is easy to guess. {control}"
    )
    if run.manifest.near:
        sampled = run.manifest.near.method == "sample"
        paragraphs.append(
            "Near-verbatim extraction counts outputs within a few edits of the suffix. Their probability lies between "
            + ("the ends of a 95% interval, from samples." if sampled else "the lower and the upper bound, certainly: ")
            + ("" if sampled else "the lower is what was found, the upper what could not be excluded.")
        )
    return paragraphs


_IN_STAGES = (
    "A scan in stages first scores windows whose suffixes cover the text once, then those that may reach τ by what was "
    "read so far, and in the end, as an audit, some of the others, drawn at random. A window that was left out has no "
    "number. Rates are of all windows: the lower end takes those without a number as never extracted, the upper end as "
    "many of them as the audit allows."
)


def numeric_doubt(rates: Rates, unit: str) -> str:
    """How many rows another correct computation might put on the other side of a border."""
    near, border = rates.near_tau, rates.border_tokens
    return (
        f"{numbers.counted(near.count, unit)} within {numbers.setting(near.numeric_tolerance)} of log τ, and "
        f"{numbers.count(border.count)} with a token within {numbers.setting(border.border_tolerance)} of the border "
        "of the scheme’s support, may fall on the other side in another correct computation."
    )


def method(run: Finished) -> list[tuple[str, str]]:
    """Everything that decides a number, as (name, value)."""
    model = run.manifest.model
    facts = [
        ("Text" if run.scanned else "Examples", source_fact(run.manifest.source)),
        ("Model", _model(model)),
        ("Weights", _weights(model)),
        ("Tokenizer", numbers.name(model.tokenizer or numbers.MISSING)),
        *_served(model),
        ("Arithmetic", _arithmetic(model)),
        *(("Scheme", f"{numbers.name(label)}. {Scheme.parse(label).explain()}") for label in run.manifest.schemes),
        ("BOS", numbers.bos(model)),
        *(prompt_facts(run) or together_fact(run)),
    ]
    facts += sample_facts(run)
    if run.manifest.source.normalised is not None:
        steps = normalised_words(run.manifest.source.normalised)
        facts.append(("Normalised", f"{steps}. The text shown, its hash and all places are those of the original"))
    if windows := run.manifest.windows:
        facts.append(
            (
                "Windows",
                f"One every {numbers.counted(windows.stride, 'character')}: "
                f"{numbers.length(windows.prefix, windows.unit)} of prefix, then "
                f"{numbers.length(windows.suffix, windows.unit)} of suffix, {_tokenised(run)}. "
                f"{_within(run)}Positions count code points from 0.",
            )
        )
    if run.manifest.refined is not None:
        facts.append(("Stages", _stages(run.manifest.refined)))
    facts += [
        ("Scored", _scored(run)),
        ("Threshold τ", f"{numbers.setting(run.summary.tau)}: the smallest p_z that counts as extraction"),
        ("Early stop", _early_stop(run)),
        *near_method(run.manifest.near),
    ]
    facts += corpus_facts(run)
    if run.summary.variants is not None:
        facts.append(("Other forms", variants_fact(run)))
    versions = run.manifest.versions
    return [
        *facts,
        ("Numerics", numeric_doubt(run.numbers.rates, run.unit)),
        ("Cost", cost(run)),
        ("Warnings", _warnings(run)),
        *([("Seal", numbers.name(run.seal))] if run.seal else []),
        ("Versions", ", ".join(f"{name} {numbers.name(version)}" for name, version in versions.items())),
    ]


def _warnings(run: Finished) -> str:
    warned = derived(len(run.summary.warnings), "summary/warnings", run.summary.examples)
    found = ["that the text may be known in another form"] if variant_warnings(run) else []
    found += [f"{numbers.count(warned)}{' more' if found else ''}"] if warned else []
    return f"{', and '.join(found)}, listed at the top" if found else "none"


def _tokenised(run: Finished) -> str:
    if run.windows.unit == "tokens":
        return "tokenised together"
    apart = run.manifest.source.apart
    assert apart is not None
    return (
        "each to the last word that ends within it, the same for every tokenizer; tokenised together, but apart in "
        f"{numbers.counted(apart, 'window')} where a token lies across the border"
    )


def prompt_facts(run: Finished) -> list[tuple[str, str]]:
    """What a reader must know of how prompts became tokens: those in a chat template, and those cut inside a token."""
    facts, apart, chat = [], run.manifest.source.apart, run.manifest.chat
    if apart and not run.scanned:
        examples = numbers.counted(run.summary.examples, "example")
        facts.append(
            (
                "Prompts",
                f"in {numbers.count(apart)} of {examples} the border falls inside a token: prompt and target were "
                "tokenised apart. A model seldom goes on from half a token, so that these may come out too low",
            )
        )
    if chat is not None:
        told = f" It asks for today’s date and was told {numbers.name(chat.date)}." if chat.date else ""
        facts.append(
            (
                "Chat",
                "the prefix is the tokenizer’s chat template up to where the answer begins (template SHA-256 "
                f"{numbers.name(chat.sha256)}), and the target was tokenised apart.{told}",
            )
        )
    return facts


def together_fact(run: Finished) -> list[tuple[str, str]]:
    if run.scanned or run.manifest.source.apart is None:
        return []
    return [("Prompts", "tokenised together with their targets, and split where the target begins")]


def parts_within(run: Finished) -> int:
    """In how many parts of a text a scan's windows had to start."""
    windows = run.windows
    return derived(len(windows.within or ()), "manifest/windows/within", windows.stride)


def _within(run: Finished) -> str:
    if not run.within:
        return ""
    parts = numbers.counted(parts_within(run), "part")
    return f"Only windows that start in {parts} of the text, chosen beforehand (windows.within in manifest.json). "


def source_fact(source: Source) -> str:
    """What was measured: its name, its length where it is a text, and its hash."""
    parts = [numbers.name(source.name)]
    if source.characters is not None:
        parts.append(numbers.counted(source.characters, "character"))
    return ", ".join([*parts, f"SHA-256 {numbers.name(source.sha256)}"])


_HASHED = {"sampled": "of every byte of small files, of a part of every MiB of large ones", "whole": "of every byte"}


def _weights(model: ModelIdentity) -> str:
    if model.hashed is None:
        return numbers.weights(model)
    return f"fingerprint {numbers.name(model.fingerprint or numbers.MISSING)}, {_HASHED[model.hashed]}"


def _served(model: ModelIdentity) -> list[tuple[str, str]]:
    """What a server said of itself, and what it was sent."""
    if (served := model.served) is None:
        return []
    listed = numbers.setting(served.listed or 0)
    sent = ", ".join(f"{name}={numbers.literal(json.dumps(value))}" for name, value in served.sent.items())
    version = f"it says that it is {numbers.name(served.version)}" if served.version else "it does not say what it is"
    return [
        ("Server", f"{numbers.name(served.url)}, model {numbers.name(served.model or numbers.MISSING)}; {version}"),
        ("Sent", f"{listed} log-probs asked for at each position; {sent}"),
    ]


def _arithmetic(model: ModelIdentity) -> str:
    if model.served is not None:
        return f"log-probs as the server lists them, which are as fine as {numbers.name(model.dtype)}; sums in float64"
    return f"{numbers.name(model.dtype)} on {numbers.name(model.device)}; logits turned to float32, sums in float64"


def _model(model: ModelIdentity) -> str:
    revision = f"revision {numbers.name(model.revision)}" if model.revision else "no revision given"
    called = f" (called {numbers.name(model.label)})" if model.label else ""
    if model.served is not None:
        return f"{numbers.name(model.name)}{called}"
    parameters = numbers.count(model.parameters)
    return f"{numbers.name(model.name)}{called}, {revision}, {parameters} parameters{trusted(model)}"


def trusted(model: ModelIdentity) -> str:
    """That more than transformers' own code decided the numbers, where it did."""
    return "; code that came with the model was run (--trust-remote-code)" if model.trust_remote_code else ""


def _stages(refined: Refined) -> str:
    """How a scan was to be made in stages, whether or not all of them have ended."""
    audit = (
        f"an audit of {numbers.counted(refined.audit, 'window')} drawn with seed {numbers.setting(refined.audit_seed)}"
    )
    return (
        f"windows that cover the text once, {numbers.counted(refined.closer, 'closer look')} at those that may reach "
        f"τ, and {audit if refined.audit else 'no audit'}"
    )


def _scored(run: Finished) -> str:
    unit, dropped, staged = run.unit, run.summary.dropped, run.summary.staged
    short = f"{numbers.counted(dropped, unit)} dropped as too short" if dropped else "none dropped"
    if staged is None:
        return f"{numbers.counted(run.summary.examples, unit)}; {short}"
    ended = f"in {numbers.count(staged.ended)} of {numbers.counted(staged.stages, 'stage')}"
    return f"{numbers.count(run.summary.examples)} of {numbers.counted(staged.windows, unit)}, {ended}; {short}"


def _early_stop(run: Finished) -> str:
    unit = run.unit
    bounded = run.numbers.rates.bounded
    if run.manifest.model.served is not None and bounded:
        are = "is" if bounded == 1 else "are"
        return (
            f"off: every {unit} was scored to its last token, but {numbers.counted(bounded, unit)} {are} "
            f"{numbers.bounded(run.manifest.model)}: some token may stand inside the scheme’s support or outside, or "
            "share it with tokens that are not listed. Of these only an upper bound on p_z is known, so rates and "
            "coverage are printed as ranges"
        )
    if not run.manifest.stop_early:
        every = f"every scored {unit} was read" if left_out(run) is not None else f"every {unit} was scored"
        return f"off: {every} to its last token"
    if not bounded:
        return f"on, but no {unit} was given up: every one was scored to its last token"
    were = "was" if bounded == 1 else "were"
    return (
        f"on: {numbers.counted(bounded, unit)} {were} given up as soon as certain to end below τ. Of these only an "
        "upper bound on p_z is known, so a rate that counts anything below τ is printed as a range"
    )


def cost(run: Finished) -> str:
    evaluations, examples = run.summary.token_evals, run.summary.examples
    if not examples:
        return f"{numbers.counted(evaluations, 'token evaluation')} in {numbers.duration(run.summary.seconds)}"
    mean = derived(evaluations / examples, "cost/token_evals/mean", evaluations)
    each = f" ({numbers.average(mean)} per {run.unit})"
    searches = [own.near.token_evals for own in run.summary.schemes.values() if own.near is not None]
    if searches:
        total = sum(search.total for search in searches)
        spent = derived({"total": total, "mean": total / examples}, "cost/near_token_evals", evaluations)
        each += f", for near-verbatim search {numbers.count(spent['total'])} ({numbers.average(spent['mean'])})"
    if run.summary.staged is not None and run.summary.staged.audited:
        each += f", {numbers.count(run.summary.staged.audit_token_evals)} of them for the audit,"
    return f"{numbers.counted(evaluations, 'token evaluation')}{each} in {numbers.duration(run.summary.seconds)}"
