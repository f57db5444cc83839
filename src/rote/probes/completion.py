"""Prefix completion: a text's beginning, and how much of what follows it stands in what a model wrote."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from rote.models.probed import Answer
from rote.probes import reading
from rote.probes.judging import Judgement, lacking

_SPACED = re.compile(r"\S+")
_DECLINES = re.compile(
    r"(?:(?:I\s?(?:am|['’]m)\s+)?(?:really\s+|very\s+)?sorry\b[^.!?\n\"“]{0,40}?\b|as\s+an?\s+[^.!?\n\"“]{0,40}?\b)?"
    r"I\s?(?:can['’]?t|can\s?not|won['’]t|(?:am|['’]m)\s+(?:not\s+able|unable)\s+to)\s+"
    r"(?:help|assist|provide|reproduce|complete|continue|fulfil|comply|share|quote|generate|write\s+out)",
    re.I,
)


def words(text: str) -> list[str]:
    """A text's words as they are compared: what stands between spaces, without case and punctuation at its ends.

    What is only punctuation is no word.
    """
    return [word for part in unicodedata.normalize("NFKC", text).split() if (word := reading.key(part))]


def split(text: str, count: int) -> tuple[str, str] | None:
    """The first words of a text exactly as they stand, and the rest; None where there is no rest.

    Here words are what stands between spaces.
    """
    found = [match.end() for _, match in zip(range(count), _SPACED.finditer(text), strict=False)]
    if len(found) < count or not words(text[found[-1] :]):
        return None
    return text[: found[-1]], text[found[-1] :]


def after(text: str, prefix: str) -> str | None:
    """What follows a prefix that was given with a text: all behind it, or all of the text where it has it not in it.

    None where nothing follows.
    """
    start = text.find(prefix)
    rest = text if start < 0 else text[start + len(prefix) :]
    return rest if words(rest) else None


def common(generated: str | Sequence[str], truth: str | Sequence[str]) -> int:
    """Words in the longest common subsequence of two texts."""
    from rapidfuzz.distance import LCSseq

    one = words(generated) if isinstance(generated, str) else list(generated)
    other = words(truth) if isinstance(truth, str) else list(truth)
    return int(LCSseq.similarity(one, other))


def judge_completion(answer: Answer, prefix: str, truth: str) -> tuple[Judgement, int | None]:
    """What became of a completion, and its words in common with the truth: 0 of a refusal, None of an error.

    A hit: all words of the true continuation came back, in their order. Where the answer says the prefix again before
    it goes on, that is left out.
    """
    if (none := lacking(answer)) is not None:
        return none, None if none.outcome == "error" else 0
    said = reading.spoken(answer.text)
    if not said.strip():
        return Judgement("empty", None, "nothing was said"), 0
    if _DECLINES.match(said.strip()):
        return Judgement("refusal", None, "declines"), 0
    written, known, wanted = words(said), words(prefix), words(truth)
    if written[: len(known)] == known:
        written = written[len(known) :]
    found = common(written, wanted)
    whole = found == len(wanted)
    return Judgement("hit" if whole else "miss", None, "all words came back" if whole else "compared by words"), found
