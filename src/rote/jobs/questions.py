"""What `probe` asks of which model: questions, the rows that they become, and what they will cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rote.analysis.probe.costs import formula
from rote.corpus.texts import LabelledText
from rote.models.probed import Answer, ChatModel, Question
from rote.probes import completion, decop, prompts
from rote.probes.judging import Judgement, judge, judge_letter, judge_list
from rote.probes.options import Method, Wording
from rote.store.probe import Estimate, Role

CHARACTERS = 4
"""Characters a token, for estimates."""

Models = Mapping[tuple[Role, int], ChatModel]
"""Chat models, by what they are there for and their place among those that are there for the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """A word of a text that is asked for; `method`: cloze, or slot where only a model picked it."""

    text: str
    start: int
    end: int
    word: str
    method: Method = "cloze"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """One question of one model; and where it belongs.

    `method`: cloze, slot, prefix or decop of targets; guess and list of filters; paraphrase; pick. `parts`: of prefix,
    that, and how the text goes on.
    """

    role: Role
    model: int
    method: str
    text: str
    question: Question
    start: int | None = None
    end: int | None = None
    word: str | None = None
    order: str | None = None
    parts: tuple[str, str] | None = None


Texts = Mapping[str, LabelledText]


def words_asked(texts: Texts, masks: Iterable[Mask], targets: int, wording: Wording, seed: int) -> list[Asking]:
    """For the hidden word: one question for each word and target."""
    return [
        Asking(
            role="target", model=target, method=mask.method, text=mask.text, start=mask.start, end=mask.end,
            word=mask.word, question=_hidden(wording, texts, mask, seed),
        )
        for target in range(targets)
        for mask in masks
    ]  # fmt: skip


def guesses_asked(texts: Texts, masks: Iterable[Mask], filters: int, seed: int) -> list[Asking]:
    """For each filter's best guess, and for its list."""
    return [
        Asking(
            role="filter", model=model, method=name, text=mask.text, question=_hidden(name, texts, mask, seed),
            start=mask.start, end=mask.end, word=mask.word,
        )
        for model in range(filters)
        for mask in masks
        for name in ("guess", "list")
    ]  # fmt: skip


def completions_asked(texts: Texts, targets: int, words: int, seed: int) -> list[Asking]:
    """For how each text goes on after its prefix; a text that does not go on is not asked about."""
    parts = {name: part for name, text in texts.items() if (part := _completed(text, words)) is not None}
    return [
        Asking(
            role="target", model=target, method="prefix", text=name, question=_question("complete", own[0], seed),
            parts=own,
        )
        for target in range(targets)
        for name, own in parts.items()
    ]  # fmt: skip


def _completed(text: LabelledText, words: int) -> tuple[str, str] | None:
    if text.prefix is None:
        return completion.split(text.text, words)
    truth = completion.after(text.text, text.prefix)
    return None if truth is None else (text.prefix, truth)


def choices_asked(texts: Texts, paraphrases: Mapping[str, Sequence[str]], targets: int, seed: int) -> list[Asking]:
    """For the one of four that is the original, in all orders."""
    return [
        Asking(
            role="target", model=target, method="decop", text=name, order=order,
            question=Question(
                prompt=prompts.choose(decop.options(order, texts[name].text, others)), tokens=prompts.TOKENS["choose"],
                seed=seed,
            ),
        )
        for target in range(targets)
        for name, others in paraphrases.items()
        for order in decop.orders()
    ]  # fmt: skip


def paraphrases_asked(texts: Texts, seed: int) -> list[Asking]:
    """For three paraphrases of each text that came without."""
    return [
        Asking(
            role="paraphrase",
            model=0,
            method="paraphrase",
            text=name,
            question=_question("paraphrase", text.text, seed),
        )
        for name, text in texts.items()
        if text.paraphrases is None
    ]


def picks_asked(texts: Texts, seed: int) -> list[Asking]:
    """For the most informative word of each text."""
    return [
        Asking(role="slot", model=0, method="pick", text=name, question=_question("pick", text.text, seed))
        for name, text in texts.items()
    ]


def _hidden(prompt: str, texts: Texts, mask: Mask, seed: int) -> Question:
    return _question(prompt, prompts.masked(texts[mask.text].text, mask.start, mask.end), seed)


def _question(prompt: str, passage: str, seed: int) -> Question:
    return Question(prompt=prompts.asked(prompt, passage), tokens=prompts.room(prompt, passage), seed=seed)


# --- what came back


def row(asked: Asking, answer: Answer, found: Judgement, **more: Any) -> dict[str, Any]:
    """The row of a question: see `rote.store.probing.QUESTIONS_SCHEMA`."""
    places = ("role", "model", "method", "text", "start", "end", "word", "order")
    return {
        **{name: getattr(asked, name) for name in places},
        "prompt": asked.question.prompt,
        "answer": answer.text,
        "said": found.said,
        "outcome": found.outcome,
        "why": answer.error or found.why,
        "ended": answer.ended,
        "refusal": answer.refusal,
        "served": answer.model,
        "prompt_tokens": answer.prompt_tokens,
        "answer_tokens": answer.answer_tokens,
        "attempts": answer.attempts,
        **more,
    }


def judged(asked: Asking, answer: Answer, plurals: bool) -> dict[str, Any]:
    """The row of a question for a word, a list of words, a completion or a letter."""
    if asked.method == "prefix":
        assert asked.parts is not None
        found, common = completion.judge_completion(answer, *asked.parts)
        return row(asked, answer, found, common=common, words=len(completion.words(asked.parts[1])))
    if asked.method == "decop":
        assert asked.order is not None
        return row(asked, answer, judge_letter(answer, decop.right(asked.order)))
    assert asked.word is not None
    judging = judge_list if asked.method == "list" else judge
    return row(asked, answer, judging(answer, asked.word, plurals=plurals))


# --- what it will cost


def estimates(
    asked: Sequence[Asking], known: Sequence[bool], models: Models, texts: Texts, most: int
) -> list[Estimate]:
    """What these questions come to, by model and method. `known`: whether each was answered before."""
    groups: dict[tuple[Role, int, str], list[int]] = {}
    for place, one in enumerate(asked):
        groups.setdefault((one.role, one.model, one.method), []).append(place)
    return [
        _estimate([asked[place] for place in own], [known[place] for place in own], models[role, model], texts, most)
        for (role, model, _), own in groups.items()
    ]


def _estimate(own: Sequence[Asking], known: Sequence[bool], model: ChatModel, texts: Texts, most: int) -> Estimate:
    first, price = own[0], model.price
    to_ask = {one.question for one, answered in zip(own, known, strict=True) if not answered}
    characters = sum(len(question.prompt) for question in to_ask)
    prompt_tokens, answer_tokens = math.ceil(characters / CHARACTERS), sum(question.tokens for question in to_ask)
    lengths = [math.ceil(len(texts[name].text) / CHARACTERS) for name in {one.text for one in own}]
    by_formula = [
        one
        for tokens in lengths
        if price is not None and (one := formula(first.method, tokens, price, most)) is not None
    ]
    return Estimate(
        role=first.role,
        model=first.model,
        name=model.identity().title,
        method=first.method,
        questions=len(own),
        known=sum(known),
        prompt_characters=characters,
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
        cost=None if price is None else price.of(prompt_tokens, answer_tokens),
        formula=sum(by_formula) if by_formula else None,
    )
