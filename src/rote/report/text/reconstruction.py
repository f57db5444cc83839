"""A reconstruction in words, for the terminal and for its page."""

from __future__ import annotations

from dataclasses import dataclass

from rote.report.keys import derived, key_of, mark
from rote.report.text import numbers
from rote.report.text.method import trusted
from rote.store.manifest import ReconstructionManifest
from rote.store.reconstruction import ReconstructionSummary, SimilarityNumbers


def headline(summary: ReconstructionSummary) -> str:
    """The result in one sentence."""
    seed = f"a seed of {numbers.counted(summary.seed_tokens, 'token')}"
    similarity, truth = summary.similarity, summary.truth
    if similarity is None or truth is None:
        return f"{numbers.counted(_written(summary), 'token')} were written on from {seed}."
    name = numbers.name(truth.name)
    if similarity.first_difference is None:
        return f"From {seed}, the model wrote {name} to its end, word for word."
    return (
        f"From {seed}, the model wrote {numbers.percent(similarity.matched_share)} of the words of {name}"
        f"{' that follow it' if similarity.words_before else ''}, in their order."
    )


def _written(summary: ReconstructionSummary) -> int:
    """Tokens that the model wrote."""
    return derived(summary.tokens - summary.seed_tokens, "written/tokens", summary.tokens)


def rows(manifest: ReconstructionManifest, summary: ReconstructionSummary) -> list[tuple[str, str]]:
    """The numbers and what they rest on, as (name, value)."""
    facts = []
    if (similarity := summary.similarity) is not None:
        facts += [
            ("Similarity", _ratios(similarity)),
            ("Verbatim", _verbatim(similarity)),
            ("Differs", _differs(similarity)),
        ]
        facts.append(("By tenths", _tenths(similarity)))
    facts += [
        ("Text", _text(manifest, summary)),
        ("Sections", _sections(manifest, summary)),
        ("Scheme", _scheme(manifest)),
        ("Context", _context(manifest)),
        ("Model", _model(manifest)),
        ("BOS", numbers.bos(manifest.model).replace("prefix", "context")),
        ("Cost", _cost(manifest, summary)),
    ]
    return facts


def lines(manifest: ReconstructionManifest, summary: ReconstructionSummary) -> list[str]:
    """The summary for a terminal."""
    facts = rows(manifest, summary)
    facts += [("Warning", numbers.literal(warning)) for warning in summary.warnings]
    return [headline(summary), "", *(f"{name.lower():<12}{value}" for name, value in facts)]


def _ratios(similarity: SimilarityNumbers) -> str:
    cosine = numbers.MISSING if similarity.tf_idf_cosine is None else ratio(similarity.tf_idf_cosine)
    seed = f"the seed’s {numbers.counted(similarity.seed_words, 'word')} left out"
    seed += " of both texts" if similarity.words_before else "; the truth does not hold the seed, so all of it counts"
    return (
        f"{ratio(similarity.word_ratio)} in words, {ratio(similarity.sentence_ratio)} in sentences (matching ratios); "
        f"TF-IDF cosine {cosine}; {seed}"
    )


def ratio(value: float) -> str:
    """Four digits; only exactly 1 prints as 1."""
    return mark(value, "1" if value == 1 else f"{min(value, 0.9999):.4f}", "number")


def _verbatim(similarity: SimilarityNumbers) -> str:
    matched = (
        f"{numbers.count(similarity.matched_words)} of the truth’s {numbers.counted(similarity.truth_words, 'word')} "
        f"({numbers.percent(similarity.matched_share)}) in matching blocks"
    )
    if (longest := similarity.longest) is None:
        return matched
    return (
        f"{matched}; the longest block has {numbers.counted(longest.words, 'word')} "
        f"({numbers.counted(longest.characters, 'character')}), from word {numbers.count(longest.truth_word)}"
    )


def _differs(similarity: SimilarityNumbers) -> str:
    if (at := similarity.first_difference) is None:
        return "nowhere"
    place = f"{numbers.counted(similarity.differences, 'place')}; first at word {numbers.count(at.word)}"
    if at.word < similarity.truth_words:
        share = derived(at.word / similarity.truth_words, f"{key_of(at.word)}/place", at.word)
        place += f" ({numbers.percent(share)} of the truth)"
    true, other = (f"“{numbers.name(words)}”" if words else "nothing more" for words in (at.truth, at.generated))
    after = f"after “{numbers.name(at.before)}” " if at.before else ""
    return f"in {place}: {after}the truth has {true}, the generated text {other}"


@dataclass(frozen=True)
class Tenth:
    """A part of the truth: `first` and `last` word, and the `share` of its words in matching blocks."""

    first: int
    last: int
    share: float


def in_tenths(similarity: SimilarityNumbers) -> list[Tenth]:
    """The truth in ten parts, or fewer."""
    parts, tenths = similarity.by_position, []
    for tenth in range(10):
        if own := parts[len(parts) * tenth // 10 : len(parts) * (tenth + 1) // 10]:
            share = sum((last - first) * share for first, last, share in own) / (own[-1][1] - own[0][0])
            part = Tenth(first=own[0][0] + 0, last=own[-1][1] + 0, share=share)
            tenths.append(derived(part, f"tenths/{tenth}", similarity.truth_words))
    return tenths


def _tenths(similarity: SimilarityNumbers) -> str:
    shares = [numbers.percent(tenth.share) for tenth in in_tenths(similarity)]
    return f"{' '.join(shares)} of the truth’s words in matching blocks"


def _text(manifest: ReconstructionManifest, summary: ReconstructionSummary) -> str:
    why = "the model ended it" if summary.ended_by == "eos" else "the length asked for"
    return (
        f"{numbers.counted(summary.tokens, 'token')}, {numbers.counted(summary.characters, 'character')} (seed "
        f"{numbers.counted(summary.seed_tokens, 'token')}), in {numbers.counted(summary.chunks, 'chunk')} of up to "
        f"{numbers.setting(manifest.step)}; end: {why}"
    )


def _sections(manifest: ReconstructionManifest, summary: ReconstructionSummary) -> str:
    breaks = summary.breaks
    if not breaks:
        return "the model gave no EOS"
    if manifest.section_break is None:
        return f"EOS at token {numbers.count(breaks[0].token)} ended the text"
    skipped = derived(sum(one.skipped for one in breaks), "breaks/skipped", breaks[0].token)
    times = derived(len(breaks), "summary/breaks", breaks[0].token)
    places = ", ".join(numbers.count(one.token) for one in breaks[:10]) + (", …" if len(breaks) > 10 else "")
    missed = f"; {numbers.counted(skipped, 'break')} taken as missed" if skipped else ""
    return (
        f"EOS {numbers.counted(times, 'time')} (at token {places}), each replaced by {manifest.section_break!r}{missed}"
    )


def _scheme(manifest: ReconstructionManifest) -> str:
    if manifest.beams == 1:
        return "greedy decoding"
    penalty = numbers.setting(manifest.length_penalty)
    return f"beam search, {numbers.counted(manifest.beams, 'beam')}, length penalty {penalty}"


def _context(manifest: ReconstructionManifest) -> str:
    most = manifest.context_tokens
    if manifest.context == "sliding":
        read = derived(most - manifest.step, "context/read", most)
        return f"sliding: each chunk reads the last {numbers.count(read)} tokens anew"
    return (
        f"anchored: it grows to {numbers.count(most)} tokens with the chunk, then starts again at the last half of them"
    )


def _model(manifest: ReconstructionManifest) -> str:
    model = manifest.model
    return f"{numbers.name(model.name)}, {numbers.weights(model)}{trusted(model)}"


def _cost(manifest: ReconstructionManifest, summary: ReconstructionSummary) -> str:
    evals, sliding = summary.token_evals, summary.sliding_evals
    each = derived(evals / max(1, _written(summary)), "cost/each", evals)
    text = (
        f"{numbers.count(evals)} token evaluations ({mark(each, f'{each:,.1f}', 'error')} per token) in "
        f"{numbers.duration(summary.seconds)}"
    )
    if manifest.context == "sliding" or not evals:
        return text
    times = derived(sliding / evals, "cost/times", evals)
    shown = mark(times, f"{times:.2g}", "error")
    return f"{text}; the sliding context would have taken {numbers.count(sliding)}, {shown} times as many"
