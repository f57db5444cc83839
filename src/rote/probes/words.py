"""The words of a passage: where each stands, and whether it is a content word, a person's name or a number.

A word is a run of letters and digits. An apostrophe or a hyphen between two of them is part of it, but a hyphen between
digits is not; neither is 's, 'll, 've, 're or 'm at its end. A comma or a full stop between digits is part of a number.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rote.errors import InputError, argument
from rote.probes.english import ABBREVIATED, CLOSED, NOT_PEOPLE, NUMBERS, TITLES, VERSION

WordClass = Literal["content", "person", "number"]

APOSTROPHES = "'’ʼ＇"
HYPHENS = "-‐‑\u00ad"
SHAPE = re.compile(r"[a0]+(?:(?:'|(?<=a)-|-(?=a)|(?<=0)[.,](?=0))[a0]+)*")
"""Of a word, where `a` stands for a letter or a mark, and `0` for a digit."""

CLITICS = ("'s", "'ll", "'ve", "'re", "'m")
CONTENT = {"NOUN", "PROPN", "VERB", "ADJ", "ADV"}
"""Parts of speech, as spaCy calls them."""


@dataclass(frozen=True, slots=True)
class Word:
    """`start` and `end`: its characters in the passage."""

    text: str
    start: int
    end: int
    classes: frozenset[WordClass] = frozenset()


class Tagger(Protocol):
    @property
    def name(self) -> str:
        """What told the classes: the rule, or spaCy and its pipeline, with their versions."""

    def words(self, text: str) -> list[Word]:
        """All words of a passage, in order; of no class are those that are never asked for."""


def tagger(spacy: str | None) -> Tagger:
    """By a spaCy pipeline of this name; without one by lists of English words and a rule for capitals."""
    return RuleTagger() if spacy is None else SpacyTagger(spacy)


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the words of a text begin and end."""
    shapes = "".join(map(_shape, text))
    for match in SHAPE.finditer(shapes):
        start, end = match.span()
        own = plain(text[start:end])
        end -= next((len(clitic) for clitic in CLITICS if own.endswith(clitic)), 0)
        if end > start:
            yield start, end


def _shape(character: str) -> str:
    if character in APOSTROPHES:
        return "'"
    if character in HYPHENS:
        return "-"
    if character in ".,":
        return character
    kind = unicodedata.category(character)[0]
    return "a" if kind in "LM" else "0" if kind == "N" else " "


def plain(word: str) -> str:
    """A word as words are compared: without regard to case, its apostrophes straight, its hyphens plain."""
    folded = unicodedata.normalize("NFC", word).casefold().replace("\u00ad", "")
    return re.sub(f"[{HYPHENS}]", "-", re.sub(f"[{APOSTROPHES}]", "'", folded))


def is_number(word: str) -> bool:
    """Whether a word begins with a digit and has no hyphen, or is made of number words: 1,200, 3.5, 20th, sixty-one."""
    parts = plain(word).split("-")
    if len(parts) == 1 and word[0].isnumeric():
        return True
    return any(part in NUMBERS for part in parts) and set(parts) <= NUMBERS | {"one", "and"}


# --- without spaCy


class RuleTagger:
    """Content words are those of no closed class, names among them; these are capitalised where no sentence begins.

    In English.
    """

    name = f"rule: English word lists {VERSION}"

    def words(self, text: str) -> list[Word]:
        places = list(spans(text))
        named = _names(text, places)
        found = []
        for start, end in places:
            word = text[start:end]
            found.append(Word(word, start, end, frozenset(_classes(word, named))))
        return found


def _classes(word: str, named: set[str]) -> Iterator[WordClass]:
    own = plain(word)
    if is_number(word):
        yield "number"
    elif not _closed(own) and own not in ABBREVIATED and sum(unicodedata.category(c)[0] == "L" for c in word) > 1:
        yield "content"
        if _capitalised(word) and own in named and own not in NOT_PEOPLE:
            yield "person"


def _closed(own: str) -> bool:
    """Whether a word is of a closed class, or is one with 'd behind it."""
    return own in CLOSED or own.removesuffix("'d") in CLOSED


def _capitalised(word: str) -> bool:
    """Whether it begins with a capital, has small letters too, and no digit."""
    return word[0].isupper() and any(map(str.islower, word)) and not any(map(str.isnumeric, word))


def _names(text: str, places: list[tuple[int, int]]) -> set[str]:
    """Words that stand capitalised where no sentence begins, and nowhere in small letters."""
    capital, small = set(), set()
    for number, (start, end) in enumerate(places):
        word = text[start:end]
        own = plain(word)
        if word[0].islower():
            small.add(own)
        elif _capitalised(word) and not _closed(own) and not _begins(text, places, number):
            capital.add(own)
    return capital - small


OPENING = '"“„«‹([{‘'
ENDING = ".!?:…。！？"
DASHES = "—–―"


def _begins(text: str, places: list[tuple[int, int]], number: int) -> bool:
    """Whether a word may begin a sentence: it is the first, or behind a full stop, a colon, a dash, a line break or an
    opening quotation mark or bracket. The full stop of an abbreviated title or of an initial ends none."""
    if number == 0:
        return True
    start, end = places[number - 1]
    between = text[end : places[number][0]]
    before = text[start:end]
    if plain(before) in ABBREVIATED or (len(before) == 1 and before.isupper() and before != "I"):
        between = between.removeprefix(".")
    return (
        "\n" in between
        or "--" in between
        or between.endswith("'")  # an opening quotation mark, since a word follows
        or any(character in ENDING + OPENING + DASHES for character in between)
    )


# --- with spaCy


class SpacyTagger:
    """By a pipeline's parts of speech and its names of people.

    spaCy cuts a text otherwise. A word is of the class of a token that overlaps it, of one at least where there are
    several; it is a name where it overlaps the name of a person.
    """

    def __init__(self, pipeline: str) -> None:
        try:
            import spacy
        except ImportError as error:
            raise InputError(
                f"{argument('spacy', pipeline)} needs spaCy: pip install 'rote[spacy]', and the pipeline with "
                f"python -m spacy download {pipeline}. Without {argument('spacy')}, lists of words are used."
            ) from error
        try:
            self._pipeline: Any = spacy.load(pipeline)
        except Exception as error:  # whatever a missing, damaged or too old pipeline makes spaCy raise
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            installed = ", ".join(sorted(spacy.util.get_installed_models())) or "none"
            raise InputError(
                f"{argument('spacy', pipeline)} is no pipeline that spaCy can load here: {first} Installed: "
                f"{installed}. Name one of these, or get it: python -m spacy download {pipeline}."
            ) from error
        lacks = [part for part in ("tagger", "ner") if not self._has(part)]
        if lacks:
            raise InputError(
                f"the spaCy pipeline {pipeline} has no {' and no '.join(lacks)}, so it cannot tell word classes and "
                "names; name another, such as en_core_web_sm."
            )
        meta = self._pipeline.meta
        self.name = f"spaCy {spacy.__version__}, {meta['lang']}_{meta['name']} {meta['version']}"

    def _has(self, part: str) -> bool:
        names = set(self._pipeline.pipe_names)
        return part in names or (part == "tagger" and "morphologizer" in names)

    def words(self, text: str) -> list[Word]:
        if len(text) > self._pipeline.max_length:
            raise InputError(
                f"a text of {len(text):,} characters is more than spaCy reads at once ({self._pipeline.max_length:,}). "
                f"Cut it into passages, or leave {argument('spacy')} out."
            )
        read = self._pipeline(text)
        tokens = [(token.idx, token.idx + len(token), token.pos_) for token in read]
        people = [(name.start_char, name.end_char) for name in read.ents if name.label_ in ("PERSON", "PER")]
        found, at = [], 0
        for start, end in spans(text):
            while at < len(tokens) and tokens[at][1] <= start:
                at += 1
            kinds, token = set(), at
            while token < len(tokens) and tokens[token][0] < end:
                kinds.add(tokens[token][2])
                token += 1
            person = any(first < end and last > start for first, last in people)
            found.append(Word(text[start:end], start, end, frozenset(_tagged(text[start:end], kinds, person))))
        return found


def _tagged(word: str, kinds: set[str], person: bool) -> Iterator[WordClass]:
    letters = sum(unicodedata.category(c)[0] == "L" for c in word)
    if is_number(word) or ("NUM" in kinds and not kinds & CONTENT):
        yield "number"
    elif letters > 1 and (kinds & CONTENT or person) and plain(word) not in ABBREVIATED:
        yield "content"
        if person and plain(word) not in TITLES:
            yield "person"
