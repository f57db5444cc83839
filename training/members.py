"""Make the bundled set of members and non-members: passages that the bundled model saw, and others that it never did.

    python -m training.members --out src/rote/data/members.jsonl
    python -m training.members --few --out src/rote/data/passages.jsonl

Members are the ladder's passages, each seen as often as it says. Non-members are those of its passages that were seen 0
times, and passages cut in the same way from the last fifths of the same books, which were never seen; of every book as
many as there are members. No model is asked, and nothing is drawn.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from training.train import HELD_OUT_BOOK, HELD_OUT_TAIL, HERE, LADDER_BOOKS, Document, passage_from, read_documents

TOKENIZER = HERE.parent / "src/rote/data/model/tokenizer.json"
BLOCK = 20_000  # characters of a book whose passages make up a group, those that were seen and those that were not
YEARS = {"frankenstein": 1818, "gatsby": 1925, "pride-and-prejudice": 1813, "sherlock-holmes": 1892}
Line = dict[str, Any]
Span = tuple[int, int]


def line(document: Document, span: Span, repetitions: int) -> Line:
    """White space at the end is left off: which tokens it is depends on what follows, and here nothing does."""
    start, end = span
    return {
        "id": f"{document.name}-{start:06d}",
        "text": document.text[start:end].rstrip(),
        "label": repetitions > 0,
        "group": f"{document.name}-{start // BLOCK:02d}{'' if repetitions else '-unseen'}",
        "date": str(YEARS[document.name]),
        "repetitions": repetitions,
    }


def evenly(text: str, start: int, count: int, tokenizer: Tokenizer, apart: Sequence[Span] = ()) -> list[Span]:
    """Up to `count` evenly spaced passages from `start` on, without those that touch another one."""
    found: list[Span] = []
    for i in range(count):
        first, last = passage_from(text, start + i * (len(text) - 2000 - start) // count, tokenizer)
        if all(last <= other or end <= first for other, end in (*apart, *found)):
            found.append((first, last))
    return found


def tails(documents: dict[str, Document], tokenizer: Tokenizer) -> dict[str, list[Span]]:
    """Of the last fifth of each book: as many passages as it takes, beside the ladder's unseen ones, to match it."""
    found = {}
    for name in LADDER_BOOKS:
        levels = [entry["repetitions"] for entry in ladder() if entry["document"] == name]
        text = documents[name].text
        start = int(len(text) * (1 - HELD_OUT_TAIL))
        found[name] = evenly(text, start, len(levels) - 2 * levels.count(0), tokenizer)
    return found


def ladder() -> list[Line]:
    found: list[Line] = json.loads((HERE / "manifest.json").read_text())["ladder"]
    return found


def members() -> list[Line]:
    """The bundled set, book by book."""
    documents, tokenizer = read_documents(), Tokenizer.from_file(str(TOKENIZER))
    lines = [line(documents[p["document"]], (p["start"], p["end"]), p["repetitions"]) for p in ladder()]
    lines += [line(documents[name], span, 0) for name, spans in tails(documents, tokenizer).items() for span in spans]
    return sorted(lines, key=lambda entry: str(entry["id"]))


def few(each: int = 2) -> list[Line]:
    """A part of the bundled set, to be asked about: of each book and each number of repetitions so many, and of each
    book as many that were never seen, evenly spaced."""
    own: dict[tuple[str, int], list[Line]] = {}
    for entry in members():
        own.setdefault((entry["id"].rpartition("-")[0], entry["repetitions"]), []).append(entry)
    levels = len({repetitions for _, repetitions in own}) - 1
    found = []
    for (_, repetitions), lines in own.items():
        count = each if repetitions else each * levels
        found += [lines[(2 * place + 1) * len(lines) // (2 * count)] for place in range(count)]
    return sorted(found, key=lambda entry: str(entry["id"]))


def held_out(gatsby: int = 200, tail: int = 130) -> list[Line]:
    """Other passages that were never seen, none of them in the bundled set: of Gatsby, and of each last fifth.

    Up to so many; fewer where they would touch each other.
    """
    documents, tokenizer = read_documents(), Tokenizer.from_file(str(TOKENIZER))
    lines = [line(documents[HELD_OUT_BOOK], s, 0) for s in evenly(documents[HELD_OUT_BOOK].text, 0, gatsby, tokenizer)]
    for name, taken in tails(documents, tokenizer).items():
        text = documents[name].text
        start = int(len(text) * (1 - HELD_OUT_TAIL))
        lines += [line(documents[name], span, 0) for span in evenly(text, start, tail, tokenizer, taken)]
    return lines


def confounded() -> list[Line]:
    """Two styles, neither of which was ever seen: the last fifth of Pride and Prejudice, called members, and Gatsby."""
    styles = ("pride-and-prejudice", HELD_OUT_BOOK)
    lines = [entry for entry in held_out(gatsby=80) if entry["id"].startswith(styles)]
    said = [{key: entry[key] for key in ("id", "text", "group")} for entry in lines]
    return [{**entry, "label": not entry["id"].startswith(HELD_OUT_BOOK)} for entry in said]


def write(path: Path, lines: Iterable[Line]) -> None:
    path.write_text("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines")
    parser.add_argument("--held-out", action="store_true", help="write the other passages that were never seen instead")
    parser.add_argument("--few", action="store_true", help="write a part of the set instead, a quarter of it")
    options = parser.parse_args()
    lines = held_out() if options.held_out else few() if options.few else members()
    write(options.out, lines)
    print(f"{len(lines)} passages, {sum(entry['label'] for entry in lines)} of them members, in {options.out}")


if __name__ == "__main__":
    main()
