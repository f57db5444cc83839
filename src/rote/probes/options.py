"""How words are chosen to be asked for, and how answers are matched with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from rote.errors import InputError, argument
from rote.options import Option, require_flag, require_kind, require_known, require_number, require_whole

Selector = Literal["prob", "rank", "person", "content", "number", "rare"]
Method = Literal["cloze", "prefix", "decop", "slot"]
Wording = Literal["passage", "question"]
Outcome = Literal["hit", "miss", "refusal", "empty", "malformed", "error"]

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

BERT_VOCABULARY = 30_522
LOG_LIKELIHOOD = -12.0
RANK = 2_000
"""When a word is surprising to BERT. For any other reference, the same share of words is taken: `Words.share`."""


def typed_selectors(text: str) -> tuple[Selector, ...]:
    """What prob,rank stands for on a command line."""
    parts = [part.strip() for part in text.split(",")]
    if not set(parts) <= set(get_args(Selector)):
        raise ValueError(f"give one or several of {', '.join(get_args(Selector))}, with commas between.")
    return tuple(dict.fromkeys(parts))  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Words:
    """Which words of a passage are asked for.

    `select`: prob and rank take the words that surprise the reference most, by likelihood or by rank; person takes
    names of people, content any content words, number numbers, rare the words that make the rarest three-word runs of a
    corpus. A word is surprising below `log_likelihood` or beyond `rank`: -12 and 2,000 for a masked model with BERT's
    vocabulary. For any other reference, or where `share` is given, it is the `share` of all content words that is most
    surprising. `once`: only words that stand nowhere else in their passage. `spacy`: the name of an installed pipeline,
    which says what a name or a content word is; without it, lists of closed-class words and a rule for capitals do.
    """

    select: Annotated[
        tuple[Selector, ...],
        Option("By what words are chosen: prob,rank,person,content,number,rare.", default="prob,rank,person",
               parse=typed_selectors),
    ] = ("prob", "rank", "person")  # fmt: skip
    most: Annotated[int, Option("Words of a passage that are asked for, at most.")] = 10
    log_likelihood: Annotated[
        float | None, Option("A word is surprising below this log-likelihood.", default="-12 for BERT's vocabulary")
    ] = None
    rank: Annotated[
        int | None, Option("A word is surprising beyond this rank.", default="2000 for BERT's vocabulary")
    ] = None
    share: Annotated[
        float | None, Option("The share of content words that is surprising.", default="0.2 for other references")
    ] = None
    once: Annotated[bool, Option("Only words that stand nowhere else in their passage.")] = False
    spacy: Annotated[str | None, Option("An installed spaCy pipeline, for names and word classes.")] = None

    def __post_init__(self) -> None:
        if isinstance(self.select, str) or not self.select:
            raise InputError(f"{argument('select')} must be a tuple, as in ('prob', 'rank'), not {self.select!r}.")
        for name in self.select:
            require_known("select", name, get_args(Selector))
        require_whole("most", self.most)
        if self.log_likelihood is not None and require_number("log_likelihood", self.log_likelihood) >= 0:
            raise InputError(f"{argument('log_likelihood')} must be below 0, not {self.log_likelihood}.")
        if self.rank is not None:
            require_whole("rank", self.rank)
        if self.share is not None and not 0 < require_number("share", self.share) <= 1:
            raise InputError(f"{argument('share')} must lie in (0, 1], not {self.share}.")
        if self.share is not None and (self.log_likelihood is not None or self.rank is not None):
            raise InputError(
                f"{argument('share')} takes the place of {argument('log_likelihood')} and {argument('rank')}: give "
                "either."
            )
        require_flag("once", self.once)
        if self.spacy is not None:
            require_kind("spacy", self.spacy, str, "the name of a spaCy pipeline")


SHARE = 0.2
