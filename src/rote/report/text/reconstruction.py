"""A reconstruction in words, for the terminal and for its page, and the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rote.analysis.similarity import NORMALISATION, Piece, Similarity
from rote.report.figures.sweep import reconstruction_figures
from rote.report.keys import derived, key_of, keyed, mark
from rote.report.page.blocks import text_blocks
from rote.report.page.layout import render_page
from rote.report.text import numbers
from rote.report.text.strip import LEVELS

SHOWN = 100  # differences that the page lists
CONTEXT = 10  # words on either side of one
LONG = 80  # words of one side of a difference that are listed
BLOCK = 1_200  # characters of a paragraph of the compared texts, or little more
TEXT = 5_000_000  # characters of them that the page shows


def headline(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """The result in one sentence."""
    seed = f"a seed of {numbers.counted(summary['seed_tokens'], 'token')}"
    if (found := summary["similarity"]) is None:
        return f"{numbers.counted(_written(summary), 'token')} were written on from {seed}."
    name = numbers.name(summary["truth"]["name"])
    if found["first_difference"] is None:
        return f"From {seed}, the model wrote {name} to its end, word for word."
    return (
        f"From {seed}, the model wrote {numbers.percent(found['matched_share'])} of the words of {name}"
        f"{' that follow it' if found['words_before'] else ''}, in their order."
    )


def _written(summary: Mapping[str, Any]) -> int:
    """Tokens that the model wrote."""
    written: int = derived(summary["tokens"] - summary["seed_tokens"], "written/tokens", summary["tokens"])
    return written


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
        ("BOS", numbers.bos(manifest["model"]["bos"], manifest["model"].get("bos_token")).replace("prefix", "context")),
        ("Cost", _cost(manifest, summary)),
    ]
    return facts


def lines(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> list[str]:
    """The summary for a terminal."""
    found = rows(manifest, summary)
    found += [("Warning", numbers.literal(warning)) for warning in summary["warnings"]]
    return [headline(manifest, summary), "", *(f"{name.lower():<12}{value}" for name, value in found)]


def render(
    *, manifest: Mapping[str, Any], summary: Mapping[str, Any], seed: str, text: str, compared: Similarity | None
) -> str:
    """The reconstruction as one self-contained HTML page.

    `text` is what was written, its seed included; `compared`: it against the truth, where that was given.
    """
    figures = reconstruction_figures(manifest, summary)
    manifest, summary = keyed(manifest, "manifest"), keyed(summary, "summary")
    found = summary["similarity"]
    blocks = list(_plain_blocks(text, seed) if compared is None else _compared_blocks(compared))
    return render_page(
        "reconstruction.html.j2",
        packed=None,
        figures=figures,
        seed_name=numbers.name(manifest["source"]["name"]),
        model=numbers.name(manifest["model"]["name"]),
        headline=headline(manifest, summary),
        warnings=[numbers.name(warning) for warning in summary["warnings"]],
        rows=rows(manifest, summary),
        cards=[] if found is None else [_cards(found)],
        parts=[] if found is None else _parts(found),
        tenths=[] if found is None else _table(found),
        blocks=blocks,
        text_caption=_text_caption(compared is not None, blocks),
        differences=[] if compared is None else list(_differences(compared)),
        differences_note="" if found is None else _note(found["differences"]),
        method=_method(found),
    )


def _ratios(found: Mapping[str, Any]) -> str:
    cosine = numbers.MISSING if found["tf_idf_cosine"] is None else _ratio(found["tf_idf_cosine"])
    seed = f"the seed’s {numbers.counted(found['seed_words'], 'word')} left out"
    seed += " of both texts" if found["words_before"] else "; the truth does not hold the seed, so all of it counts"
    return (
        f"{_ratio(found['word_ratio'])} in words, {_ratio(found['sentence_ratio'])} in sentences (matching ratios); "
        f"TF-IDF cosine {cosine}; {seed}"
    )


def _ratio(value: float) -> str:
    """Four digits; only exactly 1 prints as 1."""
    return mark(value, "1" if value == 1 else f"{min(value, 0.9999):.4f}", "number")


def _verbatim(found: Mapping[str, Any]) -> str:
    matched = (
        f"{numbers.count(found['matched_words'])} of the truth’s {numbers.counted(found['truth_words'], 'word')} "
        f"({numbers.percent(found['matched_share'])}) in matching blocks"
    )
    if (longest := found["longest"]) is None:
        return matched
    return (
        f"{matched}; the longest block has {numbers.counted(longest['words'], 'word')} "
        f"({numbers.counted(longest['characters'], 'character')}), from word {numbers.count(longest['truth_word'])}"
    )


def _differs(found: Mapping[str, Any]) -> str:
    if (at := found["first_difference"]) is None:
        return "nowhere"
    place = f"{numbers.counted(found['differences'], 'place')}; first at word {numbers.count(at['word'])}"
    if at["word"] < found["truth_words"]:
        share = derived(at["word"] / found["truth_words"], f"{key_of(at['word'])}/place", at["word"])
        place += f" ({numbers.percent(share)} of the truth)"
    true, other = (f"“{numbers.name(at[side])}”" if at[side] else "nothing more" for side in ("truth", "generated"))
    after = f"after “{numbers.name(at['before'])}” " if at["before"] else ""
    return f"in {place}: {after}the truth has {true}, the generated text {other}"


def _in_tenths(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The truth in ten parts, or fewer: `first` and `last` word, and the `share` of its words in matching blocks."""
    parts, tenths = found["by_position"], []
    for tenth in range(10):
        if own := parts[len(parts) * tenth // 10 : len(parts) * (tenth + 1) // 10]:
            share = sum((last - first) * share for first, last, share in own) / (own[-1][1] - own[0][0])
            numbers = {"first": own[0][0] + 0, "last": own[-1][1] + 0, "share": share}
            tenths.append(derived(numbers, f"tenths/{tenth}", found["truth_words"]))
    return tenths


def _tenths(found: Mapping[str, Any]) -> str:
    shares = [numbers.percent(tenth["share"]) for tenth in _in_tenths(found)]
    return f"{' '.join(shares)} of the truth’s words in matching blocks"


def _text(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    why = "the model ended it" if summary["ended_by"] == "eos" else "the length asked for"
    return (
        f"{numbers.counted(summary['tokens'], 'token')}, {numbers.counted(summary['characters'], 'character')} (seed "
        f"{numbers.counted(summary['seed_tokens'], 'token')}), in {numbers.counted(summary['chunks'], 'chunk')} of up to "
        f"{numbers.setting(manifest['step'])}; end: {why}"
    )


def _sections(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    breaks = summary["breaks"]
    if not breaks:
        return "the model gave no EOS"
    if manifest["section_break"] is None:
        return f"EOS at token {numbers.count(breaks[0]['token'])} ended the text"
    skipped = derived(sum(one["skipped"] for one in breaks), "breaks/skipped", breaks[0]["token"])
    times = derived(len(breaks), "summary/breaks", breaks[0]["token"])
    places = ", ".join(numbers.count(one["token"]) for one in breaks[:10]) + (", …" if len(breaks) > 10 else "")
    missed = f"; {numbers.counted(skipped, 'break')} taken as missed" if skipped else ""
    return f"EOS {numbers.counted(times, 'time')} (at token {places}), each replaced by {manifest['section_break']!r}{missed}"


def _scheme(manifest: Mapping[str, Any]) -> str:
    if manifest["beams"] == 1:
        return "greedy decoding"
    penalty = numbers.setting(manifest["length_penalty"])
    return f"beam search, {numbers.counted(manifest['beams'], 'beam')}, length penalty {penalty}"


def _context(manifest: Mapping[str, Any]) -> str:
    most = manifest["context_tokens"]
    if manifest["context"] == "sliding":
        read = derived(most - manifest["step"], "context/read", most)
        return f"sliding: each chunk reads the last {numbers.count(read)} tokens anew"
    return (
        f"anchored: it grows to {numbers.count(most)} tokens with the chunk, then starts again at the last half of them"
    )


def _model(manifest: Mapping[str, Any]) -> str:
    model = manifest["model"]
    return f"{numbers.name(model['name'])}, weights {numbers.short(model.get('fingerprint'))}"


def _cost(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    evals, sliding = summary["token_evals"], summary["sliding_evals"]
    each = derived(evals / max(1, _written(summary)), "cost/each", evals)
    text = (
        f"{numbers.count(evals)} token evaluations ({mark(each, f'{each:,.1f}', 'error')} per token) in "
        f"{numbers.duration(summary['seconds'])}"
    )
    if manifest["context"] == "sliding" or not evals:
        return text
    times = derived(sliding / evals, "cost/times", evals)
    shown = mark(times, f"{times:.2g}", "error")
    return f"{text}; the sliding context would have taken {numbers.count(sliding)}, {shown} times as many"


def _cards(found: Mapping[str, Any]) -> list[dict[str, str]]:
    cosine = found["tf_idf_cosine"]
    longest = found["longest"]
    return [
        {"name": "Words", "value": _ratio(found["word_ratio"]), "note": "matching ratio"},
        {"name": "Sentences", "value": _ratio(found["sentence_ratio"]), "note": "matching ratio"},
        {
            "name": "TF-IDF",
            "value": numbers.MISSING if cosine is None else _ratio(cosine),
            "note": "cosine, order ignored",
        },
        {
            "name": "Reproduced",
            "value": numbers.percent(found["matched_share"]),
            "note": "of the truth’s words lie in matching blocks",
        },
        {
            "name": "Longest block",
            "value": "none" if longest is None else numbers.count(longest["words"]),
            "note": "" if longest is None else f"words, {numbers.count(longest['characters'])} characters",
        },
    ]


def _parts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The truth from beginning to end as a strip: how much of each part lies in matching blocks."""
    return [
        {
            "index": index,
            "level": None if share == 0 else min(LEVELS - 1, int(share * LEVELS)),
            "title": f"words {numbers.count(first)} to {numbers.count(last)}: {numbers.percent(share)}",
        }
        for index, (first, last, share) in enumerate(found["by_position"])
    ]


def _table(found: Mapping[str, Any]) -> list[list[str]]:
    return [
        ["Words of the truth", "In matching blocks"],
        *(
            [f"{numbers.count(tenth['first'])} to {numbers.count(tenth['last'])}", numbers.percent(tenth["share"])]
            for tenth in _in_tenths(found)
        ),
    ]


def _plain_blocks(text: str, seed: str) -> Iterator[list[tuple[str, str, str]]]:
    """A text that nothing is compared with, in paragraphs of (kind, text, id): its seed, then what was written."""
    given = len(seed) if text.startswith(seed) else 0
    for kind, part in (("seed", text[:given]), ("same", text[given:TEXT])):
        yield from ([(kind, block["text"], "")] for block in text_blocks(part))


def _compared_blocks(compared: Similarity) -> Iterator[list[tuple[str, str, str]]]:
    """The two texts as one, in paragraphs of (kind, text, id): what both have, what is missing, what stands instead."""
    block: list[tuple[str, str, str]] = []
    size = shown = number = 0
    for piece in compared.pieces:
        if piece.kind == "equal":
            sides = [("same", compared.truth[piece.first : piece.last], "")]
        else:
            own = f"difference-{number}" if number < SHOWN else ""
            number += 1
            sides = [("del", compared.truth[piece.first : piece.last], own)]
            sides.append(("ins", compared.generated[piece.other_first : piece.other_last], "" if sides[0][1] else own))
        for kind, words, name in sides:
            for part in _cut(words):
                block.append((kind, numbers.literal(part), name))
                name, size, shown = "", size + len(part), shown + len(part)
                if size >= BLOCK:
                    yield block
                    block, size = [], 0
                if shown >= TEXT:
                    return
    if block:
        yield block


def _cut(words: Sequence[str]) -> Iterator[str]:
    """The words in parts of about a paragraph each."""
    part: list[str] = []
    size = 0
    for word in words:
        part.append(word)
        size += len(word) + 1
        if size >= BLOCK:
            yield " ".join(part)
            part, size = [], 0
    if part:
        yield " ".join(part)


def _text_caption(compared: bool, blocks: Sequence[Sequence[tuple[str, str, str]]]) -> str:
    shown = sum(len(text) for block in blocks for _, text, _ in block)
    cut = " The rest is left out here." if shown >= TEXT else ""
    if not compared:
        return f"The seed is grey.{cut}"
    return (
        "Both texts in one, as they were compared: normalised, and without the seed. Struck out: words of the truth "
        f"that are missing; underlined: words that the generated text has instead.{cut}"
    )


def _differences(compared: Similarity) -> Iterator[dict[str, Any]]:
    """The first differences, each with the words around it. Their lines in diff.jsonl count from 0."""
    found = [(line, piece) for line, piece in enumerate(compared.pieces) if piece.kind != "equal"]
    for number, (line, piece) in enumerate(found[:SHOWN]):
        yield {"id": f"difference-{number}", **_difference(compared, piece, f"diff/{line}")}


def _difference(compared: Similarity, piece: Piece, key: str) -> dict[str, Any]:
    def cut(words: Sequence[str], side: str) -> str:
        left = keyed(len(words) - LONG, f"{key}/{side}/left_out")
        more = f" … ({numbers.counted(left, 'more word')})" if left > 0 else ""
        return numbers.literal(" ".join(words[:LONG])) + more

    return {
        "word": numbers.count(keyed(piece.first, f"{key}/truth/0")),
        "before": numbers.literal(" ".join(compared.truth[max(0, piece.first - CONTEXT) : piece.first])),
        "truth": cut(compared.truth[piece.first : piece.last], "truth"),
        "generated": cut(compared.generated[piece.other_first : piece.other_last], "generated"),
        "after": numbers.literal(" ".join(compared.truth[piece.last : piece.last + CONTEXT])),
    }


def _note(count: int) -> str:
    if not count:
        return "The texts are the same, word for word."
    listed = f"All {numbers.count(count)}"
    if count > SHOWN:
        listed = f"The first {numbers.count(derived(SHOWN, 'differences/listed', count))} of {numbers.count(count)}"
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
            f"The seed’s {numbers.counted(found['seed_words'], 'word')} are left out of both texts, "
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
