"""Reconstructions: a folder to which chunks of text are added until it is whole, its comparison with the truth."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rote.analysis.similarity import NORMALISATION, Similarity, similarity
from rote.corpus.windows import lone_surrogate, plain_backend
from rote.errors import InputError, RunError
from rote.extraction.text.reconstruct import Chunk, Context, Writing, check_writing, longest_context, write_on
from rote.models.base import LogitModel
from rote.store.manifest import build, digest, refuse_if_different
from rote.store.run import Run, make_folder, pretty, read_json, write_whole

Progress = Callable[[str, int, int], None]
"""Called with "generated" and how many tokens the text has, of how many, or with "compared" and 0 or 1, of 1."""

_KEYS = {"chunk", *Chunk.__dataclass_fields__, "seconds", "warnings"}
QUOTED = 12  # words on either side of a difference that the summary quotes


@dataclass(frozen=True)
class Reconstruction:
    """One folder: the chunks of a text that a model wrote on from its seed."""

    folder: Path

    @classmethod
    def open(cls, folder: str | Path) -> Reconstruction:
        """Open a finished or unfinished reconstruction."""
        if not is_reconstruction(folder):
            raise RunError(f"{folder} holds no reconstruction; give the --out of a rote reconstruct.")
        return cls(Path(folder))

    @property
    def manifest(self) -> dict[str, Any]:
        return read_json(self.folder / "manifest.json")

    @property
    def summary(self) -> dict[str, Any]:
        if not (self.folder / "summary.json").is_file():
            raise RunError(
                f"{self.folder} is unfinished ({self.progress()}); run the command that made it again to finish it."
            )
        return read_json(self.folder / "summary.json")

    @property
    def seed(self) -> str:
        """What the text was written on from."""
        return str(read_json(self.folder / "seed.json")["text"])

    @property
    def text(self) -> str:
        """The finished text, seed included."""
        return self._text("generated.txt")

    @property
    def truth(self) -> str | None:
        return self._text("truth.txt") if (self.folder / "truth.txt").is_file() else None

    def tokens(self) -> list[int]:
        """The text's tokens as far as they are stored, seed included."""
        return [
            *read_json(self.folder / "seed.json")["tokens"],
            *(token for chunk in self.chunks() for token in chunk.tokens),
        ]

    def chunks(self) -> list[Chunk]:
        fields = Chunk.__dataclass_fields__
        return [
            Chunk(**{key: line[key] for key in fields} | {"tokens": tuple(line["tokens"])}) for line in self.lines()
        ]

    def lines(self) -> list[dict[str, Any]]:
        """What chunks.jsonl holds. A last line that a killed process left half written does not count."""
        path = self.folder / "chunks.jsonl"
        if not path.is_file():
            return []
        found: list[dict[str, Any]] = []
        whole = path.read_bytes().split(b"\n")[:-1]
        for number, line in enumerate(whole):
            try:
                entry = json.loads(line)
                if not isinstance(entry, dict) or entry.get("chunk") != number or not entry.keys() >= _KEYS:
                    raise ValueError("it is not the chunk that should stand there")
            except ValueError as error:
                if number == len(whole) - 1:
                    break
                raise RunError(
                    f"line {number + 1} of {path} is damaged ({error}). Delete it and all lines after it, then run the "
                    "same command again."
                ) from error
            found.append(entry)
        return found

    def progress(self) -> str:
        return f"{len(self.tokens()):,} of {self.manifest['tokens']:,} tokens stored"

    def report(self) -> Path:
        """Write report.html from what the folder holds, and return its path."""
        truth = self.truth if self.summary["truth"] else None  # an unfinished one is refused by its summary
        return self._report(None if truth is None else similarity(truth, self.text, seed=self.seed))

    def _report(self, compared: Similarity | None) -> Path:
        from rote.report.text.reconstruction import render

        page = render(manifest=self.manifest, summary=self.summary, seed=self.seed, text=self.text, compared=compared)
        write_whole(self.folder / "report.html", page.encode("utf-8", "replace"))
        return self.folder / "report.html"

    def begin(self, manifest: Mapping[str, Any], seed: Mapping[str, Any]) -> None:
        """Start the folder, or make sure that what it holds is the beginning of this very text."""
        make_folder(self.folder)
        if (self.folder / "manifest.json").is_file():
            refuse_if_different(self.manifest, manifest, str(self.folder))
        else:
            for name in ("chunks.jsonl", "generated.txt", "summary.json", "report.html", "truth.txt"):
                if (self.folder / name).exists():
                    raise RunError(
                        f"{self.folder / name} is there already and belongs to no reconstruction of this folder; "
                        "choose another --out."
                    )
            write_whole(self.folder / "seed.json", _line(seed))
            write_whole(self.folder / "manifest.json", pretty(manifest))  # last: then the folder has all it needs
        stored = b"".join(_line(entry) for entry in self.lines())
        path = self.folder / "chunks.jsonl"
        if not path.is_file() or path.read_bytes() != stored:
            write_whole(path, stored)  # without what a killed process left half written

    def add(self, entry: Mapping[str, Any]) -> None:
        """Add a chunk. A process that is killed meanwhile leaves a line without its end, which counts as absent."""
        try:
            with (self.folder / "chunks.jsonl").open("ab") as out:
                out.write(_line(entry))
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            raise RunError(
                f"cannot write {self.folder / 'chunks.jsonl'}: {error.strerror}. Free some space or mend the "
                "permissions, then run the same command again: what is stored already is kept."
            ) from error

    def _text(self, name: str) -> str:
        try:
            return (self.folder / name).read_bytes().decode("utf-8", "surrogatepass")
        except OSError as error:
            raise RunError(
                f"cannot read {self.folder / name}: {error.strerror}. Run the command that made it again to restore it."
            ) from error


def is_reconstruction(folder: str | Path) -> bool:
    path = Path(folder) / "manifest.json"
    return path.is_file() and Reconstruction(Path(folder)).manifest.get("kind") == "reconstruct"


def reconstruct(
    seed: str,
    model: LogitModel,
    *,
    out: str | Path,
    truth: str | None = None,
    name: str = "text",
    truth_name: str = "truth",
    tokens: int | None = None,
    context_tokens: int | None = None,
    step: int = 50,
    beams: int = 8,
    length_penalty: float = 1.2,
    context: Context = "sliding",
    section_break: str | None = "\n\nCHAPTER {WORDS}\n",
    missed_after: int = 10_000,
    progress: Progress | None = None,
) -> Reconstruction:
    """Write a text on from its first sentences, and compare it with the truth where that is given.

    The folder `out` gets every chunk as soon as it is written; one that holds part of this text is continued. White
    space at the seed's end is dropped: it would be half of a token. `tokens`: how long the text gets, seed included;
    without it the truth's tokens and 5% more. `context_tokens`: 3000, or what the model takes. The other options are
    those of `rote.extraction.text.reconstruct.Writing`; `beams=1` is greedy. The truth decides nothing that is generated, so
    it may be given later, or another one.
    """
    tell = progress or (lambda what, done, total: None)
    _refuse_surrogates(seed=seed, truth=truth or "")
    backend = plain_backend(model.tokenizer)

    def encode(text: str) -> list[int]:
        ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        return ids

    start = seed.rstrip()
    ids = encode(start)
    if tokens is None:
        if truth is None:
            raise InputError("how long should the text get? Give a number of tokens, or the truth to go by.")
        length = len(encode(truth))
        tokens = length + length // 20
    writing = Writing(
        tokens=tokens, context_tokens=longest_context(model) if context_tokens is None else context_tokens, step=step,
        beams=beams, length_penalty=length_penalty, context=context, section_break=section_break,
        missed_after=missed_after,
    )  # fmt: skip
    check_writing(model, ids, writing)
    manifest = build(
        kind="reconstruct",
        source={"name": name, "sha256": digest(start), "characters": len(start), "dropped": len(seed) - len(start)},
        model=model.identity(),
        options={"seed_tokens": len(ids), **asdict(writing)},
    )
    if truth is not None:
        similarity(truth, start, seed=start)  # refuses a truth that cannot be compared with before anything is written
    found = Reconstruction(Path(out))
    with Run(found.folder).locked():
        found.begin(manifest, {"text": _decode(model.tokenizer, ids), "tokens": ids})
        if truth is not None:
            write_whole(found.folder / "truth.txt", truth.encode())
        _write(found, model, ids, writing, encode, tell)
        tell("compared", 0, 1)
        _finish(found, model, truth_name if truth is not None else None)
        tell("compared", 1, 1)
    return found


def _refuse_surrogates(**texts: str) -> None:
    for name, text in texts.items():
        if (lone := lone_surrogate(text)) is not None:
            raise InputError(f"character {lone} of the {name} is half of a surrogate pair, which is not text.")


def _write(
    found: Reconstruction,
    model: LogitModel,
    seed: Sequence[int],
    writing: Writing,
    encode: Callable[[str], Sequence[int]],
    tell: Progress,
) -> None:
    done = found.chunks()
    length = len(seed) + sum(len(chunk.tokens) for chunk in done)
    tell("generated", length, writing.tokens)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        began = time.perf_counter()
        for number, chunk in enumerate(write_on(model, seed, writing, encode, done=done), len(done)):
            now = time.perf_counter()
            warned = [*model.warnings, *(str(w.message) for w in caught)]
            caught.clear()
            text = _decode(model.tokenizer, chunk.tokens)
            found.add({"chunk": number, **asdict(chunk), "seconds": now - began, "warnings": warned, "text": text})
            began = now
            length += len(chunk.tokens)
            tell("generated", min(length, writing.tokens), writing.tokens)


def _decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    return str(tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _finish(found: Reconstruction, model: LogitModel, truth_name: str | None) -> None:
    """Write the text, its comparison with the truth, the summary and the report."""
    text = _decode(model.tokenizer, found.tokens())
    write_whole(found.folder / "generated.txt", text.encode("utf-8", "surrogatepass"))
    truth = found.truth
    compared = None if truth is None else similarity(truth, text, seed=found.seed)
    if compared is not None:
        write_whole(found.folder / "diff.jsonl", b"".join(_line(piece) for piece in _pieces(compared)))
    summary = summarise(found, text, compared)
    if truth is not None:
        before = _name_before(found) if truth_name is None else truth_name
        summary["truth"] = {"name": before, "sha256": digest(truth), "characters": len(truth)}
    write_whole(found.folder / "summary.json", pretty(summary))
    found._report(compared)


def _name_before(found: Reconstruction) -> str:
    """The name of a truth that was given earlier."""
    try:
        return str(found.summary["truth"]["name"])
    except (RunError, KeyError, TypeError):
        return "truth.txt"


def summarise(found: Reconstruction, text: str, compared: Similarity | None) -> dict[str, Any]:
    """What summary.json says."""
    manifest, lines = found.manifest, found.lines()
    seed = manifest["seed_tokens"]
    breaks, length, section = [], seed, 1
    for line in lines:
        length += len(line["tokens"])
        if line["ended"]:
            at, number = length - line["break_tokens"], line["section"]
            breaks.append({"token": at, "section": number, "skipped": max(0, number - section - 1)})
            section = number
    return {
        "kind": "reconstruct",
        "source": manifest["source"],
        "model": manifest["model"],
        "tokens": length,
        "seed_tokens": seed,
        "characters": len(text),
        "chunks": len(lines),
        "ended_by": "eos" if manifest["section_break"] is None and breaks else "tokens",
        "breaks": breaks,
        "token_evals": sum(line["token_evals"] for line in lines),
        "sliding_evals": sum(line["sliding_evals"] for line in lines),
        "seconds": round(sum(line["seconds"] for line in lines), 3),
        "warnings": sorted({warning for line in lines for warning in line["warnings"]}),
        "truth": None,
        "similarity": None if compared is None else _similarity(compared),
        "versions": manifest["versions"],
    }


def _similarity(found: Similarity) -> dict[str, Any]:
    longest, at = found.longest, found.first_difference
    return {
        "normalisation": NORMALISATION,
        "seed_words": found.seed_words,
        "words_before": found.words_before,
        "truth_words": len(found.truth),
        "generated_words": len(found.generated),
        "word_ratio": found.word_ratio,
        "sentence_ratio": found.sentence_ratio,
        "tf_idf_cosine": found.tf_idf_cosine,
        "matched_words": found.matched,
        "matched_share": found.matched / len(found.truth),
        "differences": sum(piece.kind != "equal" for piece in found.pieces),
        "longest": None
        if longest is None
        else {
            "words": longest.last - longest.first,
            "characters": len(" ".join(found.truth[longest.first : longest.last])),
            "truth_word": longest.first,
        },
        "first_difference": None
        if at is None
        else {
            "word": at,
            "before": " ".join(found.truth[max(0, at - QUOTED) : at]),
            "truth": " ".join(found.truth[at : at + QUOTED]),
            "generated": " ".join(found.generated[at : at + QUOTED]),
        },
        "by_position": [list(part) for part in found.by_position()],
    }


def _pieces(found: Similarity) -> list[dict[str, Any]]:
    """The alignment as lines: word numbers in truth and generated text, and the words where they differ."""
    return [
        {
            "kind": piece.kind,
            "truth": [piece.first, piece.last],
            "generated": [piece.other_first, piece.other_last],
            **(
                {}
                if piece.kind == "equal"
                else {
                    "truth_text": " ".join(found.truth[piece.first : piece.last]),
                    "generated_text": " ".join(found.generated[piece.other_first : piece.other_last]),
                }
            ),
        }
        for piece in found.pieces
    ]


def _line(entry: Mapping[str, Any]) -> bytes:
    return (json.dumps(entry, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
