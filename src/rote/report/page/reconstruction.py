"""A reconstruction as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rote.analysis.similarity import NORMALISATION, Piece, Similarity
from rote.report.figures.reconstruction import reconstruction_figures
from rote.report.keys import derived, keyed
from rote.report.page.blocks import text_blocks
from rote.report.page.layout import render_page
from rote.report.text import numbers
from rote.report.text.reconstruction import headline, in_tenths, ratio, rows
from rote.report.text.strip import LEVELS
from rote.store.manifest import ReconstructionManifest
from rote.store.reconstruction import ReconstructionSummary, SimilarityNumbers

SHOWN = 100  # differences that the page lists
CONTEXT = 10  # words on either side of one
LONG = 80  # words of one side of a difference that are listed
BLOCK = 1_200  # characters of a paragraph of the compared texts, or little more
TEXT = 5_000_000  # characters of them that the page shows


def render_reconstruction(
    manifest: ReconstructionManifest,
    summary: ReconstructionSummary,
    seed: str,
    text: str,
    compared: Similarity | None,
) -> str:
    """The page of a reconstruction. `text` is what was written, its seed included.

    `compared`: it against the truth, where that was given.
    """
    figures = reconstruction_figures(manifest, summary)
    manifest, summary = keyed(manifest, "manifest"), keyed(summary, "summary")
    similarity = summary.similarity
    blocks = list(_plain_blocks(text, seed) if compared is None else _compared_blocks(compared))
    return render_page(
        "reconstruction.html.j2",
        packed=None,
        figures=figures,
        seed_name=numbers.name(manifest.source.name),
        model=numbers.title(manifest.model),
        headline=headline(summary),
        warnings=[numbers.name(warning) for warning in summary.warnings],
        rows=rows(manifest, summary),
        cards=[] if similarity is None else [_cards(similarity)],
        parts=[] if similarity is None else _parts(similarity),
        tenths=[] if similarity is None else _table(similarity),
        blocks=blocks,
        text_caption=_text_caption(compared is not None, blocks),
        differences=[] if compared is None else list(_differences(compared)),
        differences_note="" if similarity is None else _note(similarity.differences),
        method=_method(similarity),
    )


def _cards(similarity: SimilarityNumbers) -> list[dict[str, str]]:
    cosine = similarity.tf_idf_cosine
    longest = similarity.longest
    return [
        {"name": "Words", "value": ratio(similarity.word_ratio), "note": "matching ratio"},
        {"name": "Sentences", "value": ratio(similarity.sentence_ratio), "note": "matching ratio"},
        {
            "name": "TF-IDF",
            "value": numbers.MISSING if cosine is None else ratio(cosine),
            "note": "cosine, order ignored",
        },
        {
            "name": "Reproduced",
            "value": numbers.percent(similarity.matched_share),
            "note": "of the truth’s words lie in matching blocks",
        },
        {
            "name": "Longest block",
            "value": "none" if longest is None else numbers.count(longest.words),
            "note": "" if longest is None else f"words, {numbers.counted(longest.characters, 'character')}",
        },
    ]


def _parts(similarity: SimilarityNumbers) -> list[dict[str, Any]]:
    """The truth from beginning to end as a strip: how much of each part lies in matching blocks."""
    return [
        {
            "index": index,
            "level": None if share == 0 else min(LEVELS - 1, int(share * LEVELS)),
            "title": f"words {numbers.count(first)} to {numbers.count(last)}: {numbers.percent(share)}",
        }
        for index, (first, last, share) in enumerate(similarity.by_position)
    ]


def _table(similarity: SimilarityNumbers) -> list[list[str]]:
    return [
        ["Words of the truth", "In matching blocks"],
        *(
            [f"{numbers.count(tenth.first)} to {numbers.count(tenth.last)}", numbers.percent(tenth.share)]
            for tenth in in_tenths(similarity)
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
    differing = [(line, piece) for line, piece in enumerate(compared.pieces) if piece.kind != "equal"]
    for number, (line, piece) in enumerate(differing[:SHOWN]):
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


def _method(similarity: SimilarityNumbers | None) -> list[str]:
    paragraphs = [
        "Each chunk is generated from the end of the text so far: the model sees the seed and what it wrote itself, "
        "and never the true text. Beam search is deterministic, so the same command gives the same text; on other "
        "hardware rounding can decide a near tie differently, and everything after it.",
    ]
    if similarity is not None:
        seed = (
            f"The seed’s {numbers.counted(similarity.seed_words, 'word')} are left out of both texts, "
            "and what the truth has before them."
            if similarity.words_before
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
