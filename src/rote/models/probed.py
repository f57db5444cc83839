"""What models that are asked without logits can do, as types: chat models, and references for how likely words are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from rote.models.base import ModelIdentity, title_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a chat model is asked, in one message, and everything about how its answer is drawn.

    `tokens`: the most of its answer. `temperature` 0: always the likeliest token.
    """

    prompt: str
    tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back. `error`: why there is none; `text` is empty then. `again`: another time there may be one, so that
    this one is not kept; otherwise it was refused for good.

    `ended`: why the answer ends, as the server says: stop, length, content_filter. `refusal`: what a server says apart
    from the answer where the model refuses. `model`: what the server says it is. Tokens: None where it does not count
    them. `attempts`: how often it was asked until this came back; `lost`: how many of these brought nothing, but may
    have been charged for.
    """

    text: str
    ended: str | None = None
    refusal: str | None = None
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    model: str | None = None
    attempts: int = 1
    lost: int = 0
    error: str | None = None
    again: bool = False


@dataclass(frozen=True, kw_only=True)
class Price:
    """In US dollars for a million tokens."""

    prompt: float
    answer: float

    def of(self, prompt_tokens: int, answer_tokens: int) -> float:
        return (prompt_tokens * self.prompt + answer_tokens * self.answer) / 1e6


@dataclass(frozen=True, kw_only=True)
class ChatIdentity:
    """Everything that is known of a chat model and decides its answers.

    Of one that is served: its base `url` and what is sent beside the question (`body`; null leaves a parameter out).
    Its weights cannot be looked at. Of one that runs here: what `model` says. No key is in it, nor any header's value.
    """

    name: str
    label: str | None = None
    url: str | None = None
    body: dict[str, Any]
    headers: list[str]
    model: ModelIdentity | None = None
    template: str | None = None

    @property
    def title(self) -> str:
        return title_of(self.name, self.label)


@runtime_checkable
class ChatModel(Protocol):
    """It answers, and that is all that is known of it."""

    @property
    def price(self) -> Price | None:
        """What it costs; None where that is not known."""

    @property
    def paid(self) -> bool:
        """Whether asking may cost money: it is served elsewhere, and was not said to be free."""

    def identity(self) -> ChatIdentity: ...

    def answers(
        self, questions: Sequence[Question], *, admit: Callable[[int], bool] | None = None
    ) -> Iterator[tuple[int, Answer]]:
        """Each question's place and its answer, as answers come in, in any order.

        `admit` is called with a question's place right before it is sent, and again before it is sent anew where it was
        lost; once it says False, no more are sent, what is on its way is waited for, and the iterator ends without an
        answer to the others. A failure that says nothing about one question (no server, a wrong key, no money left) is
        a ModelError, after all that was on its way. All that was sent has an answer, if only that there is none.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class WordScore:
    """`log_likelihood`: of all of a word's pieces, masked at once, in nats. `rank`: how many pieces are likelier; that
    of the worst one. Both None where a piece is unknown to the reference. `pieces`: tokens of the word.
    """

    log_likelihood: float | None
    rank: int | None
    pieces: int


@dataclass(frozen=True, kw_only=True)
class ReferenceIdentity:
    """`kind`: a masked model, or a causal one that stands in for it and compares each word with `substitutes` others.

    `window`: the most tokens that are read at once. `trust_remote_code`: code that came with it was let run.
    """

    kind: Literal["masked", "causal"]
    name: str
    label: str | None = None
    revision: str | None = None
    fingerprint: str
    parameters: int
    vocabulary: int
    window: int
    dtype: str
    device: str
    tokenizer: str | None
    substitutes: int | None = None
    trust_remote_code: bool | None = None

    @property
    def title(self) -> str:
        return title_of(self.name, self.label)


@runtime_checkable
class WordReference(Protocol):
    """It says how likely given words are where they stand, in the light of what stands before and after them."""

    def identity(self) -> ReferenceIdentity: ...
    def score_words(self, text: str, spans: Sequence[tuple[int, int]]) -> list[WordScore]:
        """For each word, given by where it begins and ends in the text."""
