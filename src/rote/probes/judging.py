"""Answers to outcomes: what was said is read by one who does not know the right word (`reading`), and then compared."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rote.models.probed import Answer
from rote.probes import reading
from rote.probes.options import Outcome
from rote.probes.prompts import LETTERS
from rote.probes.reading import Said, key, plain, refused, same, spoken


@dataclass(frozen=True, slots=True)
class Judgement:
    """`said`: what was read out of the answer; None where nothing could be. `why`: which part of the rule decided."""

    outcome: Outcome
    said: str | None
    why: str


def rule(plurals: bool) -> str:
    """How answers are matched, as it is printed with every result."""
    either = "a regular English plural counts as its singular" if plurals else "a plural is another word"
    return (
        "An answer's one word is read before it is compared: in tags, after a label, alone, in bold, on a line of its "
        "own, or as what a sentence names. Several words, or none, are malformed; an answer that declines is a "
        "refusal. It is a hit if the word equals the hidden one without case, punctuation at the ends and a "
        f"possessive's s; accents and hyphens count, and {either}."
    )


def judge(answer: Answer, word: str, *, plurals: bool = False) -> Judgement:
    """Whether an answer names the word."""
    said = _read(answer)
    if isinstance(said, Judgement):
        return said
    assert said.word is not None
    hit = same(said.word, word, plurals=plurals)
    return Judgement("hit" if hit else "miss", said.word, said.how)


def _read(answer: Answer) -> Said | Judgement:
    """The word that an answer names, or why there is none."""
    if (none := lacking(answer)) is not None:
        return none
    said = reading.read(answer.text)
    if said.unread is not None:
        return Judgement(said.unread, None, said.how)
    cut = answer.ended == "length" and said.how != reading.TAGGED
    if cut and said.word is not None and plain(answer.text).endswith(said.word):
        return Judgement("malformed", None, "cut off, maybe within the word")
    return said


def lacking(answer: Answer) -> Judgement | None:
    """What becomes of an answer whose text is not looked at."""
    if answer.error is not None:
        return Judgement("error", None, answer.error)
    if answer.refusal:
        return Judgement("refusal", None, "the server says that the model refuses")
    if answer.ended == "content_filter":
        return Judgement("refusal", None, "the server's filter withheld it")
    return None


# --- a list of words

LONGEST_LIST = 20_000
"""Characters of a list that are read."""

_ITEM = re.compile(r"[\n,;|]+")
_BULLET = re.compile(r"^\W{0,6}(?:\d{1,4}\s*[.):-]\s*)?")
_REST = re.compile(r"\s+[-–—(:]|:\s")


def judge_list(answer: Answer, word: str, *, plurals: bool = False) -> Judgement:
    """Whether the word is among those that an answer lists, with numbers, bullets or commas between, or only spaces."""
    if (none := lacking(answer)) is not None:
        return none
    text = spoken(plain(answer.text))
    if not text.strip():
        return Judgement("empty", None, "nothing was said")
    whole, text = text, text[:LONGEST_LIST]
    parts = [part for part in _ITEM.split(text) if key(part)]
    cut = len(text) < len(whole) or answer.ended == "length"
    if cut and len(parts) > 1 and text[-1].isalnum():
        parts.pop()
    if len(parts) < 3 and refused(text):
        return Judgement("refusal", None, "declines")
    if len(parts) == 1:
        parts = parts[0].split()
    candidates = [found for part in parts if (found := _item(part)) is not None]
    if not candidates:
        return Judgement("malformed", None, "lists no words")
    for place, candidate in enumerate(candidates, 1):
        if same(candidate, word, plurals=plurals):
            return Judgement("hit", candidate, f"place {place} of {len(candidates)}")
    return Judgement("miss", None, f"not among {len(candidates)}")


def _item(part: str) -> str | None:
    bare = _BULLET.sub("", part.strip()[:200])
    return reading.alone(_REST.split(bare, maxsplit=1)[0]) or reading.alone(part[:200])


# --- a letter of DE-COP

_LONE = re.compile(rf"\W{{0,8}}([{LETTERS}])\W{{0,8}}", re.I)
_LETTER = re.compile(
    r"\b(?i:answer|option|passage|choice|letter|text|version|it)\b(?i:\s+(?:is|would\s+be|must\s+be|should\s+be))?[\s:=]*"
    rf"(?i:option|passage|letter|choice)?[\s:\"'“*_`(<\[]{{0,8}}([{LETTERS}])(?![\w'’])|"
    r"\b(?i:answer|option|passage|choice|letter|text|version|one)\b[^.!?\n;]{0,80}?\b(?:is|was|be):?[\s\"'“*_`(<\[]{1,8}"
    rf"(?i:(?:option|passage|letter|choice)\s)?([{LETTERS}])(?![\w'’])|"
    rf"^[^\w\n]{{0,6}}([{LETTERS}])[^\w\s]{{0,3}}(?:[.):\]>]|$)|"
    rf"\*\*\W?([{LETTERS}])\b[^*\n]{{0,80}}\*\*|[(<\[]([{LETTERS}])[)>\]]",
    re.M,
)


def judge_letter(answer: Answer, right: str) -> Judgement:
    """Whether the letter that an answer names is the right one. `said`: the letter; none or several are malformed."""
    if (none := lacking(answer)) is not None:
        return none
    text = spoken(plain(answer.text)).strip()
    if not text:
        return Judgement("empty", None, "nothing was said")
    if lone := _LONE.fullmatch(text):
        letters = {lone[1].upper()}
    else:
        letters = {next(filter(None, found.groups())) for found in _LETTER.finditer(text[: reading.LONGEST])}
        if not letters and refused(text):
            return Judgement("refusal", None, "declines")
    if len(letters) != 1:
        return Judgement("malformed", None, "different letters are named" if letters else "no letter is named")
    (said,) = letters
    return Judgement("hit" if said == right else "miss", said, "one letter")


# --- a word that is picked, and passages in other words


def judge_pick(answer: Answer, text: str) -> tuple[tuple[int, int] | None, Judgement]:
    """Where the word that an answer picks stands first in the text; a word that does not stand there is a miss."""
    said = _read(answer)
    if isinstance(said, Judgement):
        return None, said
    assert said.word is not None
    wanted = key(said.word)
    for found in reading.words(text):
        if key(found[0]) == wanted:
            own = re.sub(r"['’](?:s)?$", "", found[0], flags=re.I)
            return (found.start(), found.start() + len(own)), Judgement("hit", said.word, "it stands in the text")
    return None, Judgement("miss", said.word, "it does not stand in the text")


_NAMES = ("first", "second", "third")
_VERSION = re.compile(r"<\s{0,3}(/?)\s{0,3}(first|second|third)\s{0,3}>", re.I)
_NUMBERED = re.compile(
    r"^[^\w\n]{0,6}(?:(?:version|paraphrase|rewrite|passage|text)\s*)?([1-3]|first|second|third)(?:\s+version)?"
    r"[^\w\n]{0,3}[.):]+\**[ \t]*",
    re.I | re.M,
)


def read_paraphrases(answer: Answer, text: str) -> tuple[str, str, str] | Judgement:
    """The three versions of a text that an answer holds, in their tags or numbered; or why it has not got them."""
    if (none := lacking(answer)) is not None:
        return none
    said = spoken(answer.text)
    if not said.strip():
        return Judgement("empty", None, "nothing was said")
    versions, whole = _versions(said)
    if len(versions) != 3:
        if refused(plain(said)):
            return Judgement("refusal", None, "declines")
        return Judgement("malformed", None, f"{len(versions)} of three versions")
    if answer.ended == "length" and not whole:
        return Judgement("malformed", None, "cut off within the third version")
    if not all(map(key, versions)):
        return Judgement("malformed", None, "a version is empty")
    if len({" ".join(key(each).split()) for each in (*versions, text)}) != 4:
        return Judgement("malformed", None, "versions are the same, or are the passage")
    return versions[0], versions[1], versions[2]


def _versions(said: str) -> tuple[list[str], bool]:
    """The versions, and whether the last is known to have ended."""
    marks = list(_VERSION.finditer(said))
    if marks:
        found: dict[int, str] = {}
        for place, mark in enumerate(marks):
            if not mark[1]:
                end = marks[place + 1].start() if place + 1 < len(marks) else len(said)
                found.setdefault(_NAMES.index(mark[2].lower()), said[mark.end() : end].strip())
        return [found[place] for place in sorted(found)], bool(marks[-1][1])
    numbers = list(_NUMBERED.finditer(said))
    named = [{"first": "1", "second": "2", "third": "3"}.get(mark[1].lower(), mark[1]) for mark in numbers]
    if named != ["1", "2", "3"]:
        return [], False
    ends = [mark.start() for mark in numbers[1:]] + [len(said)]
    return [said[mark.end() : end].strip() for mark, end in zip(numbers, ends, strict=True)], False
