"""`reconstruct`: a model writes a text on from its first sentences; its comparison with the truth."""

from __future__ import annotations

import re
import time
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from rote.analysis.similarity import NORMALISATION, Piece, Similarity, similarity
from rote.corpus.formats import Text, as_text, typed_text
from rote.corpus.windows import lone_surrogate, plain_backend
from rote.errors import InputError, RunError, argument
from rote.extraction.text.writing import Plan, Writing
from rote.jobs.engine import run_folder
from rote.jobs.open import Reconstruction
from rote.jobs.report import report_reconstruction
from rote.models.base import LogitModel, with_logits
from rote.options import Option, require_kind, typed_path
from rote.progress import Progress, quiet, stopping
from rote.store.files import FORMAT, digest, line, locked, now, read_declared, write_whole
from rote.store.manifest import ReconstructionManifest, Source, made_with
from rote.store.reconstruction import (
    Break,
    DiffLine,
    FirstDifference,
    LongestMatch,
    ReconstructionSummary,
    Seed,
    SimilarityNumbers,
    Truth,
    add_chunk,
    begin,
    finish,
    stored_chunk,
)

QUOTED = 12  # words on either side of a difference that the summary quotes
LAST = 8  # words of the seed that tell where in the truth it ends


def reconstruct(
    model: LogitModel,
    seed: Annotated[
        Text, Option("The text's first sentences: a UTF-8 file, or the text itself.", "--seed", parse=typed_text)
    ],
    *,
    truth: Annotated[Text | None, Option("The true text, to compare with. It decides nothing.")] = None,
    writing: Writing = Writing(),
    name: str | None = None,
    out: Annotated[
        Path | str | None, Option("Run folder.", "--out/-o", default="runs/SEED-MODEL", parse=typed_path)
    ] = None,
    progress: Progress | None = None,
) -> Reconstruction:
    """Write a text on from its first sentences, and compare it with the truth where that is given.

    The folder `out` gets every chunk as soon as it is written; one that holds part of this text is continued. White
    space at the seed's end is dropped: it would be half of a token. `writing.tokens`: how long the text gets, seed
    included; without it the truth's tokens and 5% more. The truth decides nothing that is generated, so it may be given
    later, or another one.
    """
    require_kind("writing", writing, Writing, "a rote.Writing")
    given, own_name = as_text(seed, "seed")
    true, truth_name = (None, None) if truth is None else as_text(truth, "truth")
    _refuse_surrogates(seed=given, truth=true or "")
    folder = run_folder(out, name or own_name, model)
    with stopping(lambda: _left(folder)):
        return _reconstructed(model, given, true, truth_name, writing, folder, name or own_name, progress or quiet)


def _left(folder: Path) -> str:
    stored = Reconstruction(folder).progress() if (folder / "manifest.json").exists() else "nothing stored yet"
    return f"{stored} in {folder}. Run the same command again to go on."


def _reconstructed(
    model: LogitModel, seed: str, truth: str | None, truth_name: str | None, asked: Writing, folder: Path, name: str,
    tell: Progress,
) -> Reconstruction:  # fmt: skip
    from rote.extraction.text.reconstruct import check_writing, longest_context

    with_logits(model, "writing a text on")
    backend = plain_backend(model.tokenizer)

    def encode(text: str) -> list[int]:
        ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        return ids

    start = seed.rstrip()
    ids, tokens = encode(start), asked.tokens
    if tokens is None:
        if truth is None:
            raise InputError(
                f"how long should the text get? Give {argument('tokens')}, or {argument('truth')} to go by its length."
            )
        length = len(encode(truth))
        tokens = length + length // 20
    context = longest_context(model) if asked.context_tokens is None else asked.context_tokens
    writing = Plan(**{**asdict(asked), "tokens": tokens, "context_tokens": context})
    check_writing(model, ids, writing)
    manifest = ReconstructionManifest(
        format=FORMAT,
        kind="reconstruct",
        created=now(),
        source=Source(name=name, sha256=digest(start), characters=len(start), dropped=len(seed) - len(start)),
        model=model.identity(),
        seed_tokens=len(ids),
        versions=made_with(),
        **asdict(writing),
    )
    if truth is not None:
        similarity(truth, start, seed=start)  # refuses a truth that cannot be compared with before anything is written
    written = Reconstruction(folder)
    with locked(written.folder):
        truth_name = truth_name or _name_before(written)
        begin(written.folder, manifest, Seed(text=_decode(model.tokenizer, ids), tokens=ids), truth=truth is not None)
        if truth is not None:
            write_whole(written.folder / "truth.txt", truth.encode())
        _write(written, model, ids, writing, encode, tell)
        tell("compared", 0, 1)
        _finish(written, model, truth_name)
        tell("compared", 1, 1)
    return written


def _refuse_surrogates(**texts: str) -> None:
    for name, text in texts.items():
        if (lone := lone_surrogate(text)) is not None:
            raise InputError(f"character {lone} of the {name} is half of a surrogate pair, which is not text.")


def _write(
    written: Reconstruction,
    model: LogitModel,
    seed: Sequence[int],
    writing: Plan,
    encode: Callable[[str], Sequence[int]],
    tell: Progress,
) -> None:
    from rote.extraction.text.reconstruct import write_on

    done, most = written.chunks(), writing.tokens
    length = len(seed) + sum(len(chunk.tokens) for chunk in done)
    tell("generated", length, most)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        began = time.perf_counter()
        for number, chunk in enumerate(write_on(model, seed, writing, encode, done=done), len(done)):
            moment = time.perf_counter()
            warned = [*model.warnings, *(str(w.message) for w in caught)]
            caught.clear()
            text = _decode(model.tokenizer, chunk.tokens)
            stored = stored_chunk(number, chunk, seconds=moment - began, warnings=warned, text=text)
            add_chunk(written.folder, stored)
            began = moment
            length += len(chunk.tokens)
            tell("generated", min(length, most), most)


def _decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    return str(tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _finish(written: Reconstruction, model: LogitModel, truth_name: str) -> None:
    """Write the text, its comparison with the truth, the summary and the report."""
    text = _decode(model.tokenizer, written.tokens())
    write_whole(written.folder / "generated.txt", text.encode("utf-8", "surrogatepass"))
    truth = written.truth
    compared = None if truth is None else similarity(truth, text, seed=written.seed)
    if compared is not None:
        write_whole(
            written.folder / "diff.jsonl", b"".join(line(_diff_line(piece, compared)) for piece in compared.pieces)
        )
    known = None
    if truth is not None:
        known = Truth(name=truth_name, sha256=digest(truth), characters=len(truth))
    finish(written.folder, summarise(written, text, known, compared))
    report_reconstruction(written, compared)


def _name_before(written: Reconstruction) -> str:
    """The name of a truth that was given earlier."""
    try:
        path = written.folder / "summary.json"
        truth = read_declared(path, ReconstructionSummary, "").truth  # whatever else was changed: its seal may be aside
    except RunError:
        truth = None
    return "truth.txt" if truth is None else truth.name


def summarise(
    written: Reconstruction, text: str, truth: Truth | None, compared: Similarity | None
) -> ReconstructionSummary:
    """What summary.json says."""
    manifest, chunks = written.manifest, written.chunks()
    seed, warned = manifest.seed_tokens, {warning for chunk in chunks for warning in chunk.warnings}
    if written.truth is not None and (word := word_cut(written.seed, written.truth)):
        warned.add(
            f"the seed ends inside a word of the truth ({word}): the model was asked to go on from part of it, which "
            "may lead it astray from the first word on. End the seed with a whole word."
        )
    breaks, length, section = list[Break](), seed, 1
    for chunk in chunks:
        length += len(chunk.tokens)
        if chunk.ended:
            skipped = max(0, chunk.section - section - 1)
            breaks.append(Break(token=length - chunk.break_tokens, section=chunk.section, skipped=skipped))
            section = chunk.section
    return ReconstructionSummary(
        format=FORMAT,
        kind="reconstruct",
        source=manifest.source,
        model=manifest.model,
        tokens=length,
        seed_tokens=seed,
        characters=len(text),
        chunks=len(chunks),
        ended_by="eos" if manifest.section_break is None and breaks else "tokens",
        breaks=breaks,
        token_evals=sum(chunk.token_evals for chunk in chunks),
        sliding_evals=sum(chunk.sliding_evals for chunk in chunks),
        seconds=round(sum(chunk.seconds for chunk in chunks), 3),
        warnings=sorted(warned),
        truth=truth,
        similarity=None if compared is None else _similarity(compared),
        versions=manifest.versions,
    )


def word_cut(seed: str, truth: str) -> str:
    """The word of the truth inside which the seed ends, as `be|ginning`; empty where it ends with a word, or elsewhere.

    The seed's last words are looked for, whatever white space is between them; where they stand several times, one
    place at which a word ends is enough.
    """
    tail = r"\s+".join(map(re.escape, seed.split()[-LAST:]))
    words = [
        (re.search(r"\w*$", truth[: m.end()]), re.match(r"\w*", truth[m.end() :])) for m in re.finditer(tail, truth)
    ]
    halves = [(begun[0], rest[0]) for begun, rest in words if begun is not None and rest is not None]
    if not halves or not all(begun and rest and _spaced(begun[-1]) and _spaced(rest[0]) for begun, rest in halves):
        return ""
    return "|".join(halves[0])


def _spaced(letter: str) -> bool:
    """Whether its script sets words apart; of the others nobody knows where a word ends."""
    return not unicodedata.name(letter, "").startswith(
        ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
    )


def _similarity(compared: Similarity) -> SimilarityNumbers:
    longest, at = compared.longest, compared.first_difference
    truth, generated = compared.truth, compared.generated
    return SimilarityNumbers(
        normalisation=NORMALISATION,
        seed_words=compared.seed_words,
        words_before=compared.words_before,
        truth_words=len(truth),
        generated_words=len(generated),
        word_ratio=compared.word_ratio,
        sentence_ratio=compared.sentence_ratio,
        tf_idf_cosine=compared.tf_idf_cosine,
        matched_words=compared.matched,
        matched_share=compared.matched / len(truth),
        differences=sum(piece.kind != "equal" for piece in compared.pieces),
        longest=None
        if longest is None
        else LongestMatch(
            words=longest.last - longest.first,
            characters=len(" ".join(truth[longest.first : longest.last])),
            truth_word=longest.first,
        ),
        first_difference=None
        if at is None
        else FirstDifference(
            word=at,
            before=" ".join(truth[max(0, at - QUOTED) : at]),
            truth=" ".join(truth[at : at + QUOTED]),
            generated=" ".join(generated[at : at + QUOTED]),
        ),
        by_position=compared.by_position(),
    )


def _diff_line(piece: Piece, compared: Similarity) -> DiffLine:
    same = piece.kind == "equal"
    return DiffLine(
        kind=piece.kind,
        truth=(piece.first, piece.last),
        generated=(piece.other_first, piece.other_last),
        truth_text=None if same else " ".join(compared.truth[piece.first : piece.last]),
        generated_text=None if same else " ".join(compared.generated[piece.other_first : piece.other_last]),
    )
