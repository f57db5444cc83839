"""A reconstruction in words, for the terminal and for its page, and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rote.analysis.similarity import NORMALISATION, Piece, Similarity
from rote.report import show
from rote.report.page import environment

SHOWN = 100  # differences on the page
CONTEXT = 10  # words on either side of one
LONG = 80  # words of one side of a difference that are shown
LEVELS = 12


def headline(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """The result in one sentence."""
    seed = f"a seed of {show.counted(summary['seed_tokens'], 'token')}"
    if (found := summary["similarity"]) is None:
        return f"{show.counted(summary['tokens'] - summary['seed_tokens'], 'token')} were written on from {seed}."
    name = show.literal(summary["truth"]["name"])
    if found["first_difference"] is None:
        return f"From {seed}, the model wrote {name} to its end, word for word."
    return (
        f"From {seed}, the model wrote {show.percent(found['matched_share'])} of the words of {name}"
        f"{' that follow it' if found['words_before'] else ''}, in their order."
    )


def rows(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The numbers and what they rest on, as (name, value)."""
    facts = []
    if (found := summary["similarity"]) is not None:
        facts += [("Similarity", _ratios(found)), ("Verbatim", _verbatim(found)), ("Differs", _differs(found))]
        facts.append(("By tenths", _tenths(found)))
    facts += [
        ("Text", _text(manifest, summary)),
        ("Sections", _sections(manifest, summary)),
        ("Scheme", _scheme(manifest)),
        ("Context", _context(manifest)),
        ("Model", _model(manifest)),
        ("BOS", show.bos(manifest["model"]["bos"], manifest["model"].get("bos_token")).replace("prefix", "context")),
        ("Cost", _cost(manifest, summary)),
    ]
    return facts


def lines(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> list[str]:
    """The summary for a terminal."""
    found = rows(manifest, summary)
    found += [("Warning", show.literal(warning)) for warning in summary["warnings"]]
    return [headline(manifest, summary), "", *(f"{name.lower():<12}{value}" for name, value in found)]


def render(*, manifest: Mapping[str, Any], summary: Mapping[str, Any], compared: Similarity | None) -> str:
    """The reconstruction as one self-contained HTML page; `compared`: with the truth, where that was given."""
    found = summary["similarity"]
    differences = [] if compared is None else [piece for piece in compared.pieces if piece.kind != "equal"]
    return (
        environment()
        .get_template("reconstruction.html.j2")
        .render(
            seed_name=show.literal(manifest["source"]["name"]),
            model_name=show.literal(manifest["model"]["name"]),
            headline=headline(manifest, summary),
            warnings=[show.literal(warning) for warning in summary["warnings"]],
            rows=rows(manifest, summary),
            cards=[] if found is None else _cards(found),
            parts=[] if compared is None else _parts(compared),
            tenths=[] if compared is None else _table(compared),
            differences=[_difference(compared, piece) for piece in differences[:SHOWN] if compared is not None],
            differences_note=_note(len(differences)),
            method=_method(found),
        )
    )


def _ratios(found: Mapping[str, Any]) -> str:
    cosine = show.MISSING if found["tf_idf_cosine"] is None else _ratio(found["tf_idf_cosine"])
    seed = f"the seed’s {show.counted(found['seed_words'], 'word')} left out"
    seed += " of both texts" if found["words_before"] else "; the truth does not hold the seed, so all of it counts"
    return (
        f"{_ratio(found['word_ratio'])} in words, {_ratio(found['sentence_ratio'])} in sentences (matching ratios); "
        f"TF-IDF cosine {cosine}; {seed}"
    )


def _ratio(value: float) -> str:
    """Four digits; only exactly 1 prints as 1."""
    return "1" if value == 1 else f"{min(value, 0.9999):.4f}"


def _verbatim(found: Mapping[str, Any]) -> str:
    matched = (
        f"{show.count(found['matched_words'])} of the truth’s {show.counted(found['truth_words'], 'word')} "
        f"({show.percent(found['matched_share'])}) in matching blocks"
    )
    if (longest := found["longest"]) is None:
        return matched
    return (
        f"{matched}; the longest block has {show.counted(longest['words'], 'word')} "
        f"({show.counted(longest['characters'], 'character')}), from word {show.count(longest['truth_word'])}"
    )


def _differs(found: Mapping[str, Any]) -> str:
    if (at := found["first_difference"]) is None:
        return "nowhere"
    place = f"{show.counted(found['differences'], 'place')}; first at word {show.count(at['word'])}"
    if at["word"] < found["truth_words"]:
        place += f" ({show.percent(at['word'] / found['truth_words'])} of the truth)"
    true, other = (f"“{show.literal(at[side])}”" if at[side] else "nothing more" for side in ("truth", "generated"))
    return f"in {place}: after “{show.literal(at['before'])}” the truth has {true}, the generated text {other}"


def _tenths(found: Mapping[str, Any]) -> str:
    parts = found["by_position"]
    shares = []
    for tenth in range(10):
        own = parts[len(parts) * tenth // 10 : len(parts) * (tenth + 1) // 10]
        if own:
            shares.append(show.percent(sum((b - a) * share for a, b, share in own) / sum(b - a for a, b, _ in own)))
    return f"{' '.join(shares)} of the truth’s words in matching blocks"


def _text(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    why = "the model ended it" if summary["ended_by"] == "eos" else "the length asked for"
    return (
        f"{show.counted(summary['tokens'], 'token')}, {show.counted(summary['characters'], 'character')} (seed "
        f"{show.counted(summary['seed_tokens'], 'token')}), in {show.counted(summary['chunks'], 'chunk')} of up to "
        f"{manifest['step']}; end: {why}"
    )


def _sections(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    breaks = summary["breaks"]
    if not breaks:
        return "the model gave no EOS"
    if manifest["section_break"] is None:
        return f"EOS at token {show.count(breaks[0]['token'])} ended the text"
    skipped = sum(one["skipped"] for one in breaks)
    places = ", ".join(show.count(one["token"]) for one in breaks[:10]) + (", …" if len(breaks) > 10 else "")
    missed = f"; {show.counted(skipped, 'break')} taken as missed" if skipped else ""
    return (
        f"EOS {show.counted(len(breaks), 'time')} (at token {places}), each replaced by "
        f"{manifest['section_break']!r}{missed}"
    )


def _scheme(manifest: Mapping[str, Any]) -> str:
    if manifest["beams"] == 1:
        return "greedy decoding"
    return f"beam search, {show.counted(manifest['beams'], 'beam')}, length penalty {manifest['length_penalty']:g}"


def _context(manifest: Mapping[str, Any]) -> str:
    most = manifest["context_tokens"]
    if manifest["context"] == "sliding":
        return f"sliding: each chunk reads the last {show.count(most - manifest['step'])} tokens anew"
    return f"anchored: it grows to {show.count(most)} tokens with the chunk, then starts again at the last half of them"


def _model(manifest: Mapping[str, Any]) -> str:
    model = manifest["model"]
    return f"{show.literal(model['name'])}, weights {str(model.get('fingerprint') or show.MISSING)[:16]}"


def _cost(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    evals, sliding = summary["token_evals"], summary["sliding_evals"]
    new = max(1, summary["tokens"] - summary["seed_tokens"])
    text = f"{show.count(evals)} token evaluations ({evals / new:.1f} per token) in {show.duration(summary['seconds'])}"
    if manifest["context"] == "sliding":
        return text
    return f"{text}; the sliding context would have taken {show.count(sliding)}, {sliding / evals:.2g} times as many"


def _cards(found: Mapping[str, Any]) -> list[dict[str, str]]:
    cosine = found["tf_idf_cosine"]
    longest = found["longest"]
    return [
        {"name": "Words", "value": _ratio(found["word_ratio"]), "note": "matching ratio"},
        {"name": "Sentences", "value": _ratio(found["sentence_ratio"]), "note": "matching ratio"},
        {
            "name": "TF-IDF",
            "value": show.MISSING if cosine is None else _ratio(cosine),
            "note": "cosine, order ignored",
        },
        {
            "name": "Reproduced",
            "value": show.percent(found["matched_share"]),
            "note": "of the truth’s words lie in matching blocks",
        },
        {
            "name": "Longest block",
            "value": show.count(0 if longest is None else longest["words"]),
            "note": f"words, {show.count(0 if longest is None else longest['characters'])} characters",
        },
    ]


def _parts(compared: Similarity) -> list[dict[str, Any]]:
    """The truth from beginning to end as a strip: how much of each part lies in matching blocks."""
    return [
        {
            "index": index,
            "level": None if share == 0 else min(LEVELS - 1, int(share * LEVELS)),
            "title": f"words {show.count(first)} to {show.count(last)}: {show.percent(share)}",
        }
        for index, (first, last, share) in enumerate(compared.by_position())
    ]


def _table(compared: Similarity) -> list[list[str]]:
    return [
        [f"{show.count(first)} to {show.count(last)}", show.percent(share)]
        for first, last, share in compared.by_position(parts=10)
    ]


def _difference(compared: Similarity, piece: Piece) -> dict[str, Any]:
    def cut(words: Any) -> str:
        left = len(words) - LONG
        more = f" … ({show.counted(left, 'more word')})" if left > 0 else ""
        return show.literal(" ".join(words[:LONG])) + more

    return {
        "word": show.count(piece.first),
        "before": show.literal(" ".join(compared.truth[max(0, piece.first - CONTEXT) : piece.first])),
        "truth": cut(compared.truth[piece.first : piece.last]),
        "generated": cut(compared.generated[piece.other_first : piece.other_last]),
        "after": show.literal(" ".join(compared.truth[piece.last : piece.last + CONTEXT])),
    }


def _note(count: int) -> str:
    if not count:
        return "The texts are the same, word for word."
    listed = f"The first {SHOWN} of {show.count(count)}" if count > SHOWN else f"All {show.count(count)}"
    return (
        f"{listed}, in the order of the truth; diff.jsonl has every one. Struck out: words of the truth that are "
        "missing; underlined: words that the generated text has instead."
    )


def _method(found: Mapping[str, Any] | None) -> list[str]:
    paragraphs = [
        "Each chunk is generated from the end of the text so far: the model sees the seed and what it wrote itself, "
        "and never the true text. Beam search is deterministic, so the same command gives the same text; on other "
        "hardware rounding can decide a near tie differently, and everything after it.",
    ]
    if found is not None:
        seed = (
            f"The seed’s {show.counted(found['seed_words'], 'word')} are left out of both texts, "
            "and what the truth has before them."
            if found["words_before"]
            else "The seed is left out of the generated text; the truth does not hold it, so all of the truth counts."
        )
        paragraphs += [
            f"Before comparing, both texts are normalised: {NORMALISATION}. Words are what white space separates, with "
            f"their punctuation; sentences end after . ! or ? with closing quotes. {seed} Nothing else is cut off.",
            "A matching ratio is 2 M / T, with T the words (or sentences) of both texts and M those of one in matching "
            "blocks: the longest common stretch, then in the same way what lies left and right of it (Python’s "
            "difflib). Unrelated English books come to about 0.02 in words and to 0.9 in TF-IDF cosine, which "
            "ignores order.",
        ]
    return paragraphs
