"""Questions asked of a chat model: each once, never what was answered before, and within what it may cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any, Protocol

from rote.errors import InputError, RunError, argument, counted
from rote.models.probed import Answer, ChatIdentity, ChatModel, Price, Question
from rote.options import require_number
from rote.progress import Progress, quiet

OVERHEAD = 256
"""Tokens that a server may put around a prompt: roles, a system prompt of its template."""


class AnswerStore(Protocol):
    """What keeps answers. `put` returns once the answer is kept, whatever becomes of this process."""

    def get(self, keys: Iterable[str]) -> Mapping[str, Answer]: ...
    def put(self, key: str, question: Question, identity: ChatIdentity, answer: Answer) -> None: ...


def key_of(identity: ChatIdentity, question: Question) -> str:
    """What an answer is kept by: a hash of everything that is known to decide it."""
    model = identity.model
    decides = {
        "url": identity.url, "name": identity.name, "body": identity.body, "template": identity.template,
        "model": model and [model.fingerprint, model.revision, model.dtype, model.tokenizer],
        "question": asdict(question),
    }  # fmt: skip
    return hashlib.sha256(json.dumps(decides, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass
class Budget:
    """What all models together may cost, in US dollars. `held`: what is spent, may be lost, or may yet be spent."""

    max_cost: float | None = None
    held: float = 0.0

    def __post_init__(self) -> None:
        if self.max_cost is not None and not require_number("max_cost", self.max_cost) >= 0:
            raise InputError(f"{argument('max_cost')} must be a number of at least 0, not {self.max_cost!r}.")


@dataclass
class Ledger:
    """What one model was asked and what that cost; `Spent` says what the numbers are.

    Before a question is sent, the most that it can cost is set aside: as many prompt tokens as the prompt has bytes,
    and some for what a server puts around it, and as many answer tokens as it may have. What it did cost takes the
    place of that when its answer comes in; where a server does not count tokens, the most stays set aside (`unsure`).
    """

    price: Price | None = None
    budget: Budget = field(default_factory=Budget)
    questions: int = 0
    known: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    uncounted: int = 0
    cost: float = 0.0
    lost: float = 0.0
    unsure: float = 0.0
    _aside: dict[Question, float] = field(default_factory=dict, repr=False)
    _lock: Any = field(default_factory=Lock, repr=False)

    def most(self, question: Question, body: Mapping[str, Any] | None = None) -> float:
        """What one try can cost at most."""
        if self.price is None:
            return 0.0
        limits = [(body or {}).get(name) for name in ("max_tokens", "max_completion_tokens")]
        tokens = max([question.tokens, *(limit for limit in limits if isinstance(limit, int))])
        return self.price.of(len(question.prompt.encode("utf-8", "surrogatepass")) + OVERHEAD, tokens)

    def reserve(self, question: Question, most: float) -> bool:
        """Set aside what a try may cost; False where that could be too much."""
        with self._lock:
            if self.budget.max_cost is not None and self.budget.held + most > self.budget.max_cost:
                return False
            self.budget.held += most
            self._aside[question] = self._aside.get(question, 0.0) + most
            return True

    def settle(self, question: Question, most: float, answer: Answer) -> None:
        """Its answer came in."""
        with self._lock:
            self.budget.held -= self._aside.pop(question, 0.0)
            cost, unsure, lost = 0.0, 0.0, answer.lost * most
            counts = (answer.prompt_tokens, answer.answer_tokens)
            if counts[0] is not None and counts[1] is not None:
                self.prompt_tokens += counts[0]
                self.answer_tokens += counts[1]
                cost = self.price.of(counts[0], counts[1]) if self.price else 0.0
            elif answer.error is None:
                self.uncounted += 1
                unsure = most
            self.cost, self.lost, self.unsure = self.cost + cost, self.lost + lost, self.unsure + unsure
            self.budget.held += cost + lost + unsure

    def abandon(self) -> None:
        """What is on its way is not waited for: it may cost what was set aside."""
        with self._lock:
            self.lost += sum(self._aside.values())
            self._aside.clear()


def ask(
    model: ChatModel,
    questions: Sequence[Question],
    store: AnswerStore,
    ledger: Ledger,
    tell: Progress = quiet,
) -> list[Answer]:
    """The answer to each question, in their order.

    What the store has is not asked again, and equal questions are asked once; every new answer is in the store as soon
    as it comes in. Answers with `again` are not kept. Where the next question could cost more than is left, those on
    their way are waited for, which may leave more; a RunError says where it does not.
    """
    identity = model.identity()
    if ledger.budget.max_cost is not None:
        _check_price(model, identity)
    keys = {question: key_of(identity, question) for question in dict.fromkeys(questions)}
    found = dict(store.get(keys.values()))
    ledger.questions += len(keys)
    ledger.known += len(found)
    tell("asked", len(found), len(keys))
    while left := [question for question, key in keys.items() if key not in found]:
        most = [ledger.most(question, identity.body) for question in left]
        before = len(found)
        with closing(_answers(model, left, most, ledger)) as answers:
            for place, answer in answers:
                key = keys[left[place]]
                if not answer.again:
                    store.put(key, left[place], identity, answer)
                ledger.settle(left[place], most[place], answer)
                found[key] = answer
                tell("asked", len(found), len(keys))
        if len(found) == before:  # with nothing on its way, and nothing set aside but for this one
            raise RunError(
                f"the next question could cost more than {argument('max_cost', ledger.budget.max_cost)} allows: up to "
                f"{ledger.budget.held:.4f} US$ are spent, and {len(left):,} of {counted(len(keys), 'question')} to "
                f"{identity.title} are not asked yet. All answers are kept: raise {argument('max_cost')} and run the "
                "same command again to go on."
            )
    return [found[keys[question]] for question in questions]


def _answers(
    model: ChatModel, questions: Sequence[Question], most: Sequence[float], ledger: Ledger
) -> Generator[tuple[int, Answer], None, None]:
    """As they come in, until the next one could cost too much while so many are on their way."""
    try:
        yield from model.answers(questions, admit=lambda place: ledger.reserve(questions[place], most[place]))
    finally:
        ledger.abandon()


def _check_price(model: ChatModel, identity: ChatIdentity) -> None:
    if model.price is None and model.paid:
        raise InputError(
            f"{argument('max_cost')} needs to know what {identity.title} costs: give its {argument('price')}, as in "
            f"{argument('price', '2.5,10')}, US dollars for a million tokens of prompts and of answers."
        )
    open_ended = identity.body.get("max_tokens", 0) is None and not identity.body.get("max_completion_tokens")
    if open_ended and model.paid:
        raise InputError(
            f"{argument('body')} leaves max_tokens out, so that an answer could cost any amount, whatever "
            f"{argument('max_cost')} says; give max_completion_tokens in its place."
        )
