"""What a membership run rests on: model, texts, how they were read, what was left out, what it cost."""

from __future__ import annotations

from collections.abc import Iterator

from rote.models.base import ModelIdentity
from rote.report.text import numbers
from rote.report.text.member import listed
from rote.store.member import Evaluation, MemberManifest, MemberSummary


def facts(manifest: MemberManifest, summary: MemberSummary, seal: str = "") -> list[tuple[str, str]]:
    """What the numbers rest on, as (name, value)."""
    return [
        ("Model", numbers.title(manifest.model)),
        *([("Reference", numbers.title(manifest.reference))] if manifest.reference else []),
        ("Texts", _texts(manifest, summary)),
        *([("Held-out", _held_out(manifest, summary))] if manifest.held_out else []),
        ("Read", _read(manifest, summary)),
        *([("ReCaLL", _prefix(manifest))] if manifest.prefix or "lowercase" in manifest.scores else []),
        *([("Extraction", _extracted(manifest, summary))] if manifest.extracted else []),
        *([("Evaluated", _evaluated(manifest, summary.evaluation))] if summary.evaluation else []),
        ("Cost", cost(summary)),
        ("Seed", numbers.setting(manifest.seed)),
        *([("Seal", numbers.short(seal))] if seal else []),
    ]


def _texts(manifest: MemberManifest, summary: MemberSummary) -> str:
    known = (
        f": {numbers.counted(summary.members, 'member')}, {numbers.counted(summary.non_members, 'non-member')}"
        if summary.members or summary.non_members
        else ", without labels"
    )
    source = manifest.source
    hashed = f"SHA-256 {numbers.short(source.sha256)}"
    return f"{numbers.count(summary.texts)}{known}; {numbers.name(source.name)}, {hashed}"


def _held_out(manifest: MemberManifest, summary: MemberSummary) -> str:
    assert manifest.held_out is not None
    own = manifest.held_out
    return f"{numbers.count(summary.held_out)}; {numbers.name(own.name)}, SHA-256 {numbers.short(own.sha256)}"


def _read(manifest: MemberManifest, summary: MemberSummary) -> str:
    windows = (
        f"windows of {numbers.counted(manifest.window, 'token')}, which begin {numbers.count(manifest.stride)} apart"
    )
    long = (
        f"{numbers.counted(summary.windowed, 'text')} in several {windows}"
        if summary.windowed
        else f"each text in one window; longer ones would be in {windows}"
    )
    first = _first(manifest.model)
    other = ""
    if manifest.reference and manifest.reference_window is not None and manifest.reference_stride is not None:
        other = (
            f". By the reference model: windows of {numbers.counted(manifest.reference_window, 'token')}, "
            f"{numbers.count(manifest.reference_stride)} apart; {_first(manifest.reference)}"
        )
    return f"{numbers.counted(summary.tokens, 'token')} scored; {long}; {first}. Nothing is cut off{other}."


def _first(model: ModelIdentity) -> str:
    """What stands before a text."""
    if model.bos_token is None:
        return "the first token of a text has no score, as no BOS stands before it"
    return f"after BOS {numbers.bos_token(model)}"


def _prefix(manifest: MemberManifest) -> str:
    if not manifest.prefix:
        return "not scored: it needs two held-out texts or non-members, one of which stands before every text"
    names = ", ".join(numbers.name(name) for name in manifest.prefix)
    one = len(manifest.prefix) == 1
    fit, whole = manifest.prefix_tokens, manifest.prefix_whole
    cut = ""
    if fit is not None and whole is not None:
        cut = f", {f'{numbers.count(fit)} of ' if fit < whole else ''}{numbers.counted(whole, 'token')}"
    return (
        f"{names} {'stands' if one else 'stand'} before every text{cut}; {'it is' if one else 'they are'} left out of "
        "every evaluation and test"
    )


def _extracted(manifest: MemberManifest, summary: MemberSummary) -> str:
    own = manifest.extracted
    assert own is not None
    short = numbers.counted(summary.short or 0, "text") if summary.short else ""
    return (
        f"windows of {numbers.count(own.prefix)} and {numbers.counted(own.suffix, 'token')}, one every "
        f"{numbers.count(own.every)}; {numbers.name(own.scheme)}; near-verbatim within "
        f"{numbers.counted(own.tolerance, 'edit')}" + (f"; {short} shorter than one have no number" if short else "")
    )


def _evaluated(manifest: MemberManifest, evaluation: Evaluation | None) -> str:
    assert evaluation is not None
    said = [
        f"{numbers.counted(evaluation.members, 'member')}, {numbers.counted(evaluation.non_members, 'non-member')}",
        f"dealt into {numbers.counted(evaluation.folds, 'part')}"
        + ("" if evaluation.groups is None else f" by {numbers.counted(evaluation.groups, 'group')}"),
    ]
    said += [f"matched by {listed([str(name) for name in manifest.match])}"] if manifest.match else []
    left = [
        f"{numbers.count(count)} {why}"
        for count, why in (
            (evaluation.unlabelled, "without a label"),
            (evaluation.prefix, "before every text for ReCaLL, or of its group"),
            (evaluation.unmatched, "without a match"),
        )
        if count
    ]
    return "; ".join([*said, *([f"left out: {', '.join(left)}"] if left else [])])


PASSES = {
    "text": "the texts",
    "lowercase": "them in lowercase",
    "prefix": "them after the prefix",
    "reference": "the reference model",
    "windows": "extraction",
}


def cost(summary: MemberSummary) -> str:
    """Token evaluations by pass, and the time."""
    parts = [f"{PASSES.get(str(name), str(name))} {numbers.count(own)}" for name, own in summary.token_evals.items()]
    return f"token evaluations: {', '.join(parts)}; {numbers.duration(summary.seconds)}"


def warnings(summary: MemberSummary) -> Iterator[str]:
    yield from (numbers.name(warning) for warning in summary.warnings)
