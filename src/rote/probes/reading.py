"""What an answer says, read out of it by one who does not know what would be right.

Nothing here is told the word that was hidden, so nothing can be read into an answer. `key` is what words are compared
by once they are read.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

LONGEST = 4_000
"""Characters of an answer without tags that are read; a longer one names no one word."""

SENTENCE = 60
"""Words of an answer that is read as a sentence about the word. In a longer one the word must stand out by itself."""

_ALIKE = dict.fromkeys(map(ord, "’ʼ‘`´′＇"), "'") | dict.fromkeys(map(ord, "‐‑"), "-")
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff]"
)

_LETTER = r"[^\W_]"  # a letter or digit; marks that no composed letter has are added by WORD
WORD = rf"{_LETTER}[\w\u0300-\u036f]*(?:(?:['’‐‑.&-]|(?<=\d)[,:](?=\d)){_LETTER}[\w\u0300-\u036f]*)*(?:['’](?!\w))?"
"""One word: letters and digits, with hyphens, apostrophes and points between them."""

_WORD = re.compile(WORD)
_OPEN, _CLOSE = r"[\s\"'“‘«*_`(<\[{]{0,8}", r"[\"'”’»*_`)>\]}]{0,8}"
_ONE = re.compile(rf"\W{{0,12}}?(?:(?:the|an?)\s+{_OPEN})?({WORD}){_CLOSE}", re.I)
_GOES_ON = re.compile(
    r"\s+(?:because|since|given|based|which|due\s+to|here|as\s+(?:it|the|this|in)|(?:in|from|for|of)\s+(?:this|the|that)|"
    r"that\s+(?:is|best|fits|fills|makes|completes))\b",
    re.I,
)
_ASIDE = re.compile(r"\s*(?:\(|[-–—:]+\s|\s[-–—]+)")
_OTHER = re.compile(
    rf"\s*(?:\([^()\n]{{0,60}}\)\s*)?[,;/|]?\s*(?:or|and|nor|&|/|\||vs\.?)(?!\w)|\s*/|\s*[,;]\s*{_OPEN}{WORD}{_CLOSE}\s*(?:[,;.]|$)",
    re.I,
)
_STOP = re.compile(r"\s*[.!?;,…]+")

_TAG = re.compile(r"<\s{0,3}(/?)\s{0,3}(?:word|answer|output)\s{0,3}/?>", re.I)
_THOUGHT = re.compile(r"[<\[]\s{0,3}(/?)\s{0,3}(?:think|thinking|thought|reasoning|scratchpad)\s{0,3}[>\]]", re.I)
_BOX = re.compile(r"\\boxed\{(?:\\text\w{0,4}\{)?([^{}\n]{0,80})\}")
_NEXT = re.compile(
    r"\n[ \t>*#]{0,4}(?:passage|input|question|example|human|user)[ \t]*\d{0,3}[ \t]*:|"
    r"<\|[^|<>\s]{1,30}\|>|</s>|<(?:end_of_turn|start_of_turn|eos)>",
    re.I,
)
_MASK = re.compile(r"\[\s?mask\s?\]|<\s?mask\s?>", re.I)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*$", re.M)
_NUMBER = re.compile(r"^[ \t]*\d{1,3}[.)][ \t]+(?=\S)", re.M)
_CIVIL = re.compile(
    r"\W{0,4}(?:sure|certainly|okay|ok|of course|absolutely|great|hm+|well|yes|alright|understood)"
    r"(?: thing)?\s{0,2}[,.!:]+\s*(?=\S)",
    re.I,
)

_LABEL = re.compile(
    r"^[^\w\n]{0,8}"
    r"(?:(?:the|my|your|best|final|correct|missing|hidden|masked|most|likely|one|original|single)[ \t]+){0,4}"
    r"(?:answer|output|word|guess|response|reply|result|solution|completion|assistant|mask)"
    r"[^\w\n]{0,6}?(?::|=|->|→|[ \t][-–—])(.*)$",
    re.I | re.M,
)
_SOFTLY = (
    r"(?:(?:most|likely|probably|possibly|perhaps|maybe|simply|just|actually|presumably|definitely|clearly|almost|"
    r"certainly|either|very|therefore|thus|indeed|also|something|like)\s+){0,4}"
)
_NO_WORD = (
    r"(?!(?:not|missing|hidden|masked|because|without|unknown|unclear|given|based|in|from|that|which|what|here|behind|"
    r"going|difficult|hard|impossible|replaced|covered|being|supposed|meant|filled|likely|probably|to|"
    r"an?\s+(?:proper\s+)?(?:name|noun|verb|adjective|adverb|person|place|character|word))\b)"
)
_VERB = r"(?:is|was|be|are|(?:replaced|filled(?:\s+in)?)\s+(?:with|by))"
_STATED = re.compile(
    r"\b(?:(?:word|answer|token|blank|mask\]?|guess|term)\b[^.!?\n;]{0,80}?"
    rf"(?<!\w){_VERB}|replace\s+\S{{1,12}}\s+with):?\s+{_SOFTLY}:?\s*{_NO_WORD}(?=[\W_]*\w)",
    re.I,
)
_HINTED = re.compile(
    r"\b(?:(?:it|this|that)(?:\s+(?:is|was|must|should|would|could|might|may|has\s+to|can|will)(?:\s+(?:well\s+)?be)?|['’]s|['’]d\s+be)|"
    r"I(?:['’]d|['’]ll|\s+would|\s+will)?\s+(?:guess|say|go\s+with|choose|pick|suggest|answer|think|believe)|maybe|perhaps|possibly|probably)"
    rf":?\s+{_SOFTLY}:?\s*{_NO_WORD}(?=[\W_]*\w)",
    re.I,
)
_STRONG = re.compile(r"\*\*([^*\n]{1,80})\*\*|(?<!\w)__([^_\n]{1,80})__(?!\w)|`([^`\n]{1,80})`")
_QUOTED = re.compile(
    r"\"([^\"\n]{1,80})\"|“([^”\n]{1,80})”|«([^»\n]{1,80})»|‘([^’\n]{1,80})’|„([^“”\n]{1,80})[“”]|「([^」\n]{1,80})」|"
    r"(?<!\w)'([^'\n]{1,80})'(?!\w)|(?<![\w*])\*([^*\n]{1,80})\*(?![\w*])|(?<!\w)_([^_\n]{1,80})_(?!\w)|<([^<>/\n]{1,40})>"
)
_NEGATED = re.compile(
    r"\b(?:not|never|nor|neither|cannot|doubt\w*|unlikely|rather\s+than|instead\s+of|unlike|other\s+than|except|without)\b|n['’]t\b",
    re.I,
)
_CLAUSE = re.compile(r"[.!?\n,;:]|\bbut\b", re.I)
_BREAK = re.compile(r"[.!?]\s+\S")

_SAY = (
    r"(?:help|assist|provide|reproduce|complete|answer|fulfil|continue|comply|determine|identify|tell|say|give|share|"
    r"guess|name|fill|know|see|find|access|recall|verify|confirm|quote|output|generate|reveal|discuss|engage|predict|"
    r"infer|respond|repeat|recite|disclose|offer|supply|assume|make|choose|pick|select|do\s+(?:that|this|so)|be\s+(?:sure|certain))"
)
_CANNOT = (
    r"(?:can['’]?t|can\s?not|could\s+not|couldn['’]t|won['’]t|will\s+not|(?:am|['’]m)\s+(?:not\s+(?:able|allowed|permitted)|unable)"
    r"(?:\s+to)?|must\s+decline(?:\s+to)?|have\s+to\s+decline(?:\s+to)?|decline\s+to|refuse\s+to)"
)
_HARD = re.compile(
    rf"\bI\s?(?:really\s+|truly\s+|simply\s+|just\s+)?{_CANNOT}\s*(?:\w+ly\s+){{0,2}}(?:{_SAY}|[.,!]|$)|"
    r"\bI(?:\s+am|['’]m)\s+(?:really\s+|truly\s+|so\s+|very\s+)?sorry\b|^\W{0,4}(?:sorry|apologies)\b[,.!]*\s+(?:but|I)\b|"
    r"\bI\s+apologi[sz]e\b|\bas\s+an?\s+(?:AI|artificial|(?:large\s+)?language\s+model|assistant)\b|\bI['’]?\s?a?m\s+an?\s+(?:AI|language\s+model)\b|"
    r"\b(?:cannot|can['’]t|unable\s+to|not\s+able\s+to|not\s+allowed\s+to)\s+(?:reproduce|provide|share|fulfil|comply|assist|help)|"
    r"\bagainst\s+(?:my|the|our)\s+(?:\w+\s+)?(?:polic|guideline|programming)|\bI(?:['’]d|\s+would)\s+(?:rather|prefer)\s+not\b|"
    r"^\W{0,4}(?:lo\s+siento|je\s+suis\s+désolé|désolé|es\s+tut\s+mir\s+leid|mi\s+dispiace|desculpe|sinto\s+muito|"
    r"к\s+сожалению|извините|простите|抱歉|很抱歉|对不起|對不起|申し訳|すみません|죄송)",
    re.I,
)
_SOFT = re.compile(
    r"\bI(?:\s+do\s+not|\s+don['’]t)\s+(?:know|recall|remember|recogni[sz]e|have)\b|\bI(?:\s+am|['’]m)\s+(?:not|un)\s?(?:sure|certain|familiar)\b|"
    r"\b(?:cannot|can['’]t|can\s+not|could\s+not)\s+be\s+(?:determined|known|inferred|identified)\b|"
    r"\b(?:not\s+enough|insufficient|without\s+(?:more|further|additional))\s+(?:context|information|details)\b|"
    r"\b(?:impossible|unable|not\s+possible|difficult|hard)\s+to\s+(?:determine|say|know|tell|identify|infer)\b",
    re.I,
)
TAGGED, FIRST_LINE = "in tags", "on the first line by itself"

EARLY = 300
"""A refusal is one if it stands within so many characters of an answer's beginning."""

Unread = Literal["refusal", "empty", "malformed"]


@dataclass(frozen=True, slots=True)
class Said:
    """What an answer says: one `word`, or why none can be read out of it; `how`: in which way it was said."""

    word: str | None
    how: str
    unread: Unread | None = None


def plain(text: str) -> str:
    """The text in its compatible, composed form, without characters that cannot be seen."""
    return _UNSEEN.sub("", unicodedata.normalize("NFKC", text))


def key(word: str) -> str:
    """By which words are the same: without case, punctuation at the ends and a possessive's s. Accents count."""
    folded = unicodedata.normalize("NFKC", plain(word).casefold()).translate(_ALIKE)
    bare = _bare(folded)
    return _bare(bare[:-2]) if bare.endswith("'s") else bare


def same(one: str, other: str, *, plurals: bool = False) -> bool:
    """Whether two words are the same word; with `plurals`, also where one is the other's regular English plural."""
    one, other = key(one), key(other)
    if not one or not other:
        return False
    return one == other or (
        plurals and min(len(one), len(other)) > 2 and (one in _plural(other) or other in _plural(one))
    )


def _plural(word: str) -> Iterator[str]:
    yield word + "s"
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        yield word + "es"
    if len(word) > 2 and word.endswith("y") and word[-2] not in "aeiou":
        yield word[:-1] + "ies"


def _bare(text: str) -> str:
    """Without what is neither letter, digit nor mark, at the ends."""
    start, end = 0, len(text)
    while start < end and unicodedata.category(text[start])[0] not in "LN":
        start += 1
    while end > start and unicodedata.category(text[end - 1])[0] not in "LNM":
        end -= 1
    return text[start:end]


def spoken(text: str) -> str:
    """What is left of an answer without reasoning that stands before it; what is only reasoning leaves nothing."""
    left, depth = text, 0
    for mark in _THOUGHT.finditer(text):
        if mark[1]:
            left, depth = text[mark.end() :], 0
        elif not depth:
            left, depth = text[: mark.start()] if not text[: mark.start()].strip() else left, 1
    return left


def refused(text: str) -> bool:
    """Whether an answer declines to answer, by its words."""
    return bool(_HARD.search(text[:EARLY]) or _SOFT.search(text[:EARLY]))


def read(text: str) -> Said:
    """The one word that an answer names."""
    text = plain(text)
    said = spoken(text)
    if not said.strip():
        if text.strip():
            return Said(None, "nothing but reasoning", "malformed")
        return Said(None, "nothing was said", "empty")
    text = said
    begun = len(text) - len(text.lstrip())
    if again := _NEXT.search(text, begun + 1):
        text = text[: again.start()]
    if marks := list(_TAG.finditer(text)):
        return _tagged(text, marks)
    if boxes := list(dict.fromkeys(box[1] for box in _BOX.finditer(text) if box[1].strip())):
        return _one_of(map(_untagged, boxes[:50]), "in a box")
    return _untagged(text)


def _tagged(text: str, marks: list[re.Match[str]]) -> Said:
    inside: list[str] = []
    unclosed: list[str] = []
    for place, mark in enumerate(marks):
        after = marks[place + 1] if place + 1 < len(marks) else None
        if mark[1]:
            if not place:  # closed and never opened
                unclosed.append(_line(text[: mark.start()], last=True))
        elif after is not None:
            inside.append(text[mark.end() : after.start()])
        else:
            unclosed.append(_line(text[mark.end() :], last=False))
    how = TAGGED if any(map(str.strip, inside)) else "in half a tag"
    parts = [part for part in inside if part.strip()] or [part for part in unclosed if part.strip()]
    if not parts:
        return Said(None, "nothing in the tags", "empty")
    return _one_of([_untagged(part) for part in dict.fromkeys(parts[:50])], how)


def _one_of(found: Iterable[Said], how: str) -> Said:
    """What several parts of an answer say, if it is one thing."""
    every = list(found)
    words = {key(said.word): said.word for said in every if said.word is not None}
    if len(words) > 1:
        return Said(None, f"different words {how}", "malformed")
    if words and all(said.word is not None for said in every):
        return Said(next(iter(words.values())), how)
    first = next(said for said in every if said.word is None)
    return Said(None, f"{first.how}, {how}", first.unread)


def _untagged(text: str) -> Said:
    """What an answer, or a part of it, says in which no tags stand."""
    if len(text) > LONGEST:
        refusal = bool(_HARD.search(text[:EARLY]))
        return Said(None, "declines", "refusal") if refusal else Said(None, "too long for a word", "malformed")
    text = _NUMBER.sub("", _FENCE.sub("", text))
    bare = _MASK.sub("", text)
    if not key(bare):
        return Said(None, "the mask itself" if bare != text else "no word in it", "malformed")
    if (word := alone(text)) is not None:
        return Said(word, "one word")
    if found := [line[1] for line in _LABEL.finditer(text) if key(_MASK.sub("", line[1]))]:
        return _one_of([_unlabelled(line) for line in dict.fromkeys(found[:50])], "after a label")
    return _unlabelled(text)


def _unlabelled(text: str) -> Said:
    if civil := _CIVIL.match(text):
        text = text[civil.end() :]
    if (word := alone(text)) is not None:
        return Said(word, "one word")
    declines, own = _HARD.search(text[:EARLY]), _lines(text)
    if own is not None and own.how == FIRST_LINE and not declines:
        return own
    short = len(text.split()) <= SENTENCE
    if short and (said := _stated(text, _STATED)) is not None:
        return said
    if declines:
        return Said(None, "declines", "refusal")
    for way in (_marked(text, _STRONG, "in bold"), own):
        if way is not None:
            return way
    if short:
        if (said := _stated(text, _HINTED)) is not None:
            return said
        if _SOFT.search(text[:EARLY]):
            return Said(None, "declines", "refusal")
        # several sentences with quotes in them are rather the passage than about the word
        if not _BREAK.search(_QUOTED.sub(" ", text)) and (said := _marked(text, _QUOTED, "in quotes")) is not None:
            return said
    if _SOFT.search(text[:EARLY]):
        return Said(None, "declines", "refusal")
    if (word := _first(text, stated=False)) is not None:
        return Said(word, "one word, then more about it")
    return Said(None, "no one word is named", "malformed")


def words(text: str) -> Iterator[re.Match[str]]:
    """The words of a text, where they stand."""
    return _WORD.finditer(text)


def alone(text: str) -> str | None:
    """The word that is all there is, but for what stands around it."""
    found = _ONE.match(text)
    return found[1] if found and not key(text[found.end() :]) else None


def _first(text: str, *, stated: bool) -> str | None:
    """The word that the text begins with, if it is named by itself: what follows is only about it."""
    found = _ONE.match(text)
    if found is None or _OTHER.match(text, found.end()):
        return None
    end = found.end()
    if not key(text[end:]) or _ASIDE.match(text, end) or (stated and _GOES_ON.match(text, end)):
        return found[1]
    if (stop := _STOP.match(text, end)) and alone(text[stop.end() :]) is None:
        return found[1] if stated or stop[0].strip()[0] in ".!" else None
    return None


def _stated(text: str, way: re.Pattern[str]) -> Said | None:
    """The word that sentences such as "the word is ..." name; None where none does, or what they name is no word."""
    words: dict[str, str] = {}
    for statement in way.finditer(text):
        rest = text[statement.end() :].split("\n", 1)[0]
        found = _ONE.match(rest)
        if found and _OTHER.match(rest, found.end()):
            return Said(None, "several words are named", "malformed")
        word = None if _negated(text, statement.end()) else _first(rest, stated=True)
        if word is not None:
            words[key(word)] = word
    if len(words) > 1:
        return Said(None, "several words are named", "malformed")
    return Said(next(iter(words.values())), "in a sentence") if words else None


def _marked(text: str, way: re.Pattern[str], how: str) -> Said | None:
    """The one word that stands out; longer things that stand out are none."""
    words: dict[str, str] = {}
    for mark in way.finditer(text):
        inner = next(part for part in mark.groups() if part is not None)
        word = None if _MASK.search(mark[0]) or _negated(text, mark.start()) else alone(inner)
        if word is not None:
            words[key(word)] = word
    if len(words) > 1:
        return Said(None, f"different words {how}", "malformed")
    return Said(next(iter(words.values())), how) if words else None


def _negated(text: str, end: int) -> bool:
    """Whether what is named from here on is what the word is not."""
    before = text[max(end - 120, 0) : end]
    return _NEGATED.search(_CLAUSE.split(before)[-1]) is not None


def _lines(text: str) -> Said | None:
    """The word that has the first or the last line to itself, where no other line is one word."""
    lines = [line for line in text.split("\n") if key(line)]
    if len(lines) < 2:
        return None
    own = [None if line.rstrip(" *_").endswith(":") else alone(line) for line in lines]
    if len({key(word) for word in own if word is not None}) > 1:
        return Said(None, "several words are named", "malformed")
    if own[0] is not None:
        return Said(own[0], FIRST_LINE)
    return None if own[-1] is None else Said(own[-1], "on the last line by itself")


def _line(text: str, *, last: bool) -> str:
    """The first or the last line with something on it."""
    lines = [line for line in text.split("\n") if line.strip()] or [""]
    return lines[-1 if last else 0]
