"""What a probe rests on: models, texts, words, prompts, how thresholds were chosen, what was spent."""

from __future__ import annotations

from collections.abc import Iterator

from rote.models.probed import ChatIdentity, ReferenceIdentity
from rote.report.text import numbers
from rote.report.text.member import listed
from rote.report.text.probe import title_of
from rote.report.text.probecosts import cost
from rote.store.probe import ProbeManifest, ProbeSummary


def facts(manifest: ProbeManifest, summary: ProbeSummary, seal: str = "") -> list[tuple[str, str]]:
    """What the numbers rest on, as (name, value)."""
    return [
        ("Target" if len(manifest.targets) == 1 else "Targets", "; ".join(map(chat_model, manifest.targets))),
        *([("Filter", "; ".join(map(chat_model, manifest.filters)))] if manifest.filters else []),
        *([("Paraphrases", chat_model(manifest.paraphraser))] if manifest.paraphraser else []),
        *([("Picks words", chat_model(manifest.picker))] if manifest.picker else []),
        *([("Reference", reference(manifest.reference))] if manifest.reference else []),
        *([("Corpus", numbers.name(manifest.index.name))] if manifest.index else []),
        ("Texts", _texts(manifest, summary)),
        ("Methods", ", ".join(title_of(str(name)) if name != "cloze" else "Cloze" for name in manifest.methods)),
        *([("Words", _words(manifest))] if manifest.words.select else []),
        ("Prompts", ", ".join(map(str, manifest.prompts))),
        ("Thresholds", _thresholds(manifest)),
        *(
            [("Membership", f"scores of a run of rote member, seal {numbers.short(manifest.membership)}")]
            if manifest.membership
            else []
        ),
        ("Sampling", f"temperature {numbers.setting(manifest.temperature)}, seed {numbers.setting(manifest.seed)}"),
        ("Cost", cost(summary)),
        *([("Seal", numbers.short(seal))] if seal else []),
    ]


def chat_model(model: ChatIdentity) -> str:
    """What a chat model is, and where it runs."""
    sent = f", sent beside each question: {', '.join(map(numbers.literal, map(str, model.body)))}" if model.body else ""
    if model.url is not None:
        return f"{numbers.title(model)}, served at {numbers.name(model.url)}{sent}"
    own = model.model
    if own is None:
        return numbers.title(model)
    return (
        f"{numbers.title(model)}, run here: {numbers.count(own.parameters)} parameters, weights "
        f"{numbers.short(own.fingerprint)}"
    )


def reference(model: ReferenceIdentity) -> str:
    """What told how surprising a word is."""
    size = f"{numbers.count(model.parameters)} parameters, {numbers.count(model.vocabulary)} tokens"
    if model.kind == "masked":
        return f"{numbers.title(model)}, a masked model ({size}): each word is hidden, and read from both sides"
    others = numbers.counted(model.substitutes or 0, "other")
    return (
        f"{numbers.title(model)}, a causal model ({size}) that stands in for a masked one: the text with the word is "
        f"compared with the text with {others} in its place"
    )


def _texts(manifest: ProbeManifest, summary: ProbeSummary) -> str:
    known = (
        f": {numbers.counted(summary.members, 'member')}, {numbers.counted(summary.non_members, 'non-member')}"
        if summary.members or summary.non_members
        else ", without labels"
    )
    source = manifest.source
    return f"{numbers.count(summary.texts)}{known}; {numbers.name(source.name)}, SHA-256 {numbers.short(source.sha256)}"


def _words(manifest: ProbeManifest) -> str:
    own = manifest.words
    wanted = listed([title_of(str(name)) for name in own.select])
    parts = [f"{wanted}, at most {numbers.count(own.most)} of a passage by each"]
    parts += (
        [f"surprising below a log-likelihood of {numbers.setting(own.log_likelihood)}"] if own.log_likelihood else []
    )
    parts += [f"surprising beyond rank {numbers.count(own.rank)}"] if own.rank else []
    parts += [f"the most surprising {numbers.threshold(own.share)} of content words"] if own.share else []
    parts += ["only words that stand nowhere else in their passage"] if own.once else []
    parts += [f"names and word classes by {numbers.name(own.tagger)}"]
    return "; ".join(parts)


def _thresholds(manifest: ProbeManifest) -> str:
    hits = (
        "how many words must come back was chosen on other texts"
        if manifest.hits is None
        else f"flagged from {numbers.counted(manifest.hits, 'word')} on"
    )
    others = {
        "split": "others chosen on the texts of the validation split",
        "parts": "others chosen part by part, on the texts of the other parts",
        "none": "no others, as there was nothing to choose them on",
    }[str(manifest.calibrated)]
    return f"{hits}; {others}"


def warnings(summary: ProbeSummary) -> Iterator[str]:
    yield from (numbers.name(warning) for warning in summary.warnings)
