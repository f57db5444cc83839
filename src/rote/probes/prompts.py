"""What chat models are asked, word for word.

`PROMPTS` are templates: `{}` is where a passage stands. A run's manifest holds those that it used.
"""

from __future__ import annotations

from collections.abc import Sequence

from rote.probes.options import Wording

MASK = "[MASK]"

PROMPTS = {
    "passage": (
        f"One word of the last passage below is hidden behind {MASK}. You have read that passage before. Name the "
        "hidden word. It is a noun, a verb, an adjective, an adverb or a name. Where you are not sure, guess. Reply "
        "with the one word, in tags as in the examples, and with nothing else.\n\n"
        f"Passage: The old clock in the hall struck {MASK}, and nobody at the table moved.\n"
        "Answer: <word>thirteen</word>\n\n"
        f"Passage: Down at the harbour {MASK} sat mending her nets, as on every other morning.\n"
        "Answer: <word>Maren</word>\n\n"
        "Passage: {}\n"
        "Answer:"
    ),
    "question": f"Which one word is missing where {MASK} stands? Reply with that word alone.\n\n{{}}",
    "guess": f"Which one word fits best in the place of {MASK} in this passage? Reply with that word alone.\n\n{{}}",
    "list": (
        f"Give 100 different words that could stand in the place of {MASK} in this passage, one to a line, the "
        "likeliest first, and write nothing else.\n\n{}"
    ),
    "complete": (
        "Go on with this text, word for word as the original does, for 150 words or more. Write what follows and "
        "nothing else.\n\n{}"
    ),
    "paraphrase": (
        "Say the passage below in other words, three times over: each time all of it, sentence by sentence, with the "
        "same meaning and at about the same length. Put the three versions in tags, <first>...</first>, "
        "<second>...</second> and <third>...</third>, and write nothing else.\n\nPassage: {}"
    ),
    "choose": (
        "Four passages follow. One of them stands word for word in what you were trained on; the other three only say "
        "the same in other words. Which one is it? Reply with its letter alone.\n\n{}"
    ),
    "pick": (
        "Which one word of this text tells the most, and would be the hardest to guess if it were missing? It must be "
        "a noun, a verb or an adjective that stands in the text. Reply with that word alone.\n\n{}"
    ),
}

TOKENS = {
    "passage": 24, "question": 24, "guess": 24, "list": 600, "complete": 400, "paraphrase": 256, "choose": 16,
    "pick": 24,
}  # fmt: skip
"""The most tokens of an answer to each; see `room`."""

LETTERS = "ABCD"


def asked(name: str, passage: str) -> str:
    """The prompt of that name, about this passage; braces in the passage are only text."""
    before, after = PROMPTS[name].split("{}")
    return before + passage + after


def room(name: str, passage: str) -> int:
    """The most tokens of an answer; that to a paraphrase has to hold the passage three times over."""
    return TOKENS[name] + (len(passage) if name == "paraphrase" else 0)


def cloze(passage: str, wording: Wording) -> str:
    """For the word behind the mask in a passage."""
    return asked(wording, passage)


def choose(options: Sequence[str]) -> str:
    """For the letter of the passage that is no paraphrase."""
    return asked("choose", "\n\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, options, strict=True)))


def masked(text: str, start: int, end: int) -> str:
    """The text with a mask in the place of one of its words."""
    return text[:start] + MASK + text[end:]
