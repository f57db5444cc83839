"""How `probe` goes about it: words read and chosen, every model asked what it is there for, answers judged."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rote.jobs import questions
from rote.jobs.questions import Asking, Mask, Models, Texts, judged, row
from rote.models.probed import Answer, Question, WordReference, WordScore
from rote.probes.asking import Budget, Ledger, ask, key_of
from rote.probes.judging import Judgement, judge_pick, read_paraphrases
from rote.probes.options import Method, Wording, Words
from rote.probes.selecting import ScoredWord, Thresholds, candidates, rare_counts, select, thresholds
from rote.probes.words import Tagger, Word, spans
from rote.progress import Progress
from rote.store.answers import Answers
from rote.store.index import StoredIndex
from rote.store.probe import Estimate, Role, Spent, WordCounts
from rote.store.probing import StoredProbe, add_words, has_words
from rote.store.table import ShardFacts

Scored = dict[str, list[ScoredWord]]
"""The words of each text that might be asked for."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is asked about, how, and by means of what. `index`: only where words are chosen by it."""

    texts: Texts
    models: Models
    reference: WordReference | None
    tagger: Tagger
    index: StoredIndex | None
    methods: Sequence[Method]
    words: Words
    wording: Wording
    plurals: bool
    prefix_words: int
    unfiltered: bool
    seed: int
    tell: Progress

    def number(self, role: Role) -> int:
        return sum(own == role for own, _ in self.models)


# --- words


def read_words(folder: Path, setup: Setup, size: int) -> Scored:
    """Find and score the words of texts that are not stored yet, `size` texts to a shard, and give all of them."""
    if "cloze" not in setup.methods:
        return {}
    texts = list(setup.texts.values())
    for index, start in enumerate(range(0, len(texts), size)):
        if not has_words(folder, index):
            began = time.perf_counter()
            rows = []
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", RuntimeWarning)
                for place, text in enumerate(texts[start : start + size], start):
                    rows += [{"text": text.id, **_row(word)} for word in _words(text.text, setup)]
                    setup.tell("words", place + 1, len(texts))
            facts = ShardFacts(time.perf_counter() - began, [str(each.message) for each in caught])
            add_words(folder, index, rows, facts)
        setup.tell("words", min(start + size, len(texts)), len(texts))
    scored: Scored = {text.id: [] for text in texts}
    for stored in StoredProbe(folder).words.iter_rows(named=True):
        scored[stored["text"]].append(_word(stored))
    return scored


def _words(text: str, setup: Setup) -> list[ScoredWord]:
    words = setup.tagger.words(text)
    counts = None if setup.index is None else rare_counts(setup.index.index, setup.index.reader, text, words)
    return candidates(text, words, setup.reference, counts)


def _row(scored: ScoredWord) -> dict[str, Any]:
    return {
        "start": scored.word.start,
        "end": scored.word.end,
        "word": scored.word.text,
        "classes": sorted(scored.word.classes),
        "elsewhere": scored.elsewhere,
        "log_likelihood": scored.log_likelihood,
        "rank": scored.rank,
        "pieces": None if scored.score is None else scored.score.pieces,
        "count": scored.count,
    }


def _word(stored: dict[str, Any]) -> ScoredWord:
    word = Word(text=stored["word"], start=stored["start"], end=stored["end"], classes=frozenset(stored["classes"]))
    score = None
    if stored["pieces"] is not None:
        score = WordScore(log_likelihood=stored["log_likelihood"], rank=stored["rank"], pieces=stored["pieces"])
    return ScoredWord(word=word, elsewhere=stored["elsewhere"], score=score, count=stored["count"])


Place = tuple[str, int, int]
"""A text, and where in it a word begins and ends."""


def choose(setup: Setup, scored: Scored) -> tuple[Thresholds | None, dict[Place, dict[str, Any]]]:
    """The words that are asked for, as rows of CHOSEN_SCHEMA; and beyond what they were surprising."""
    if "cloze" not in setup.methods:
        return None, {}
    identity = None if setup.reference is None else setup.reference.identity()
    found = thresholds([word for own in scored.values() for word in own], identity, setup.words)
    chosen = {
        (text, each.word.word.start, each.word.word.end): {
            "text": text, **_row(each.word), "selectors": list(each.selectors), "guessed": [],
        }
        for text, own in scored.items()
        for each in select(own, setup.words, found)
    }  # fmt: skip
    return found, chosen


def count_words(setup: Setup, scored: Scored, found: Thresholds | None, chosen: Iterable[dict[str, Any]]) -> WordCounts:
    """What became of the words of all texts."""
    words = [word for own in scored.values() for word in own]
    by_selector: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    per_text: Counter[tuple[str, str]] = Counter()
    for one in chosen:
        for selector in one["selectors"]:
            by_selector[selector] += 1
            dropped[selector] += bool(one["guessed"])
            per_text[selector, one["text"]] += not one["guessed"] or setup.unfiltered
    selectors = [*(setup.words.select if scored else ()), *(("slot",) if "slot" in setup.methods else ())]
    return WordCounts(
        words=sum(1 for text in setup.texts.values() for _ in spans(text.text)),
        content=sum("content" in word.word.classes for word in words),
        scored=sum(word.log_likelihood is not None for word in words),
        unknown=sum(word.score is not None and word.log_likelihood is None for word in words),
        log_likelihood=None if found is None else found.log_likelihood,
        rank=None if found is None else found.rank,
        chosen={name: by_selector[name] for name in selectors},
        dropped={name: dropped[name] for name in selectors},
        few={name: sum(per_text[name, text] < 2 for text in setup.texts) for name in selectors},
    )


# --- what there is to ask, and what it will cost


def to_expect(setup: Setup, chosen: Iterable[dict[str, Any]], store: Answers) -> list[Estimate]:
    """What the models will be asked at most: what they say themselves decides how much of it.

    A word that is yet to be picked is one of the same passage; a paraphrase that is yet to be written is as long.
    """
    texts, targets, seed = setup.texts, setup.number("target"), setup.seed
    masks = [mask for one in chosen for mask in _masks(one)]
    picked = []
    asked = []
    if "slot" in setup.methods:
        asked += questions.picks_asked(texts, seed)
        first = {name: next(iter(spans(text.text)), None) for name, text in texts.items()}
        picked = [
            Mask(text=name, start=span[0], end=span[1], word="", method="slot")
            for name, span in first.items()
            if span is not None
        ]
    asked += questions.guesses_asked(texts, [*masks, *picked], setup.number("filter"), seed)
    asked += questions.words_asked(texts, [*masks, *picked], targets, setup.wording, seed)
    if "prefix" in setup.methods:
        asked += questions.completions_asked(texts, targets, setup.prefix_words, seed)
    if "decop" in setup.methods:
        asked += questions.paraphrases_asked(texts, seed)
        like = {name: text.paraphrases or (text.text,) * 3 for name, text in texts.items()}
        asked += questions.choices_asked(texts, like, targets, seed)
    known = _known(asked, setup.models, store)
    return questions.estimates(asked, known, setup.models, texts, setup.words.most)


def _known(asked: Sequence[Asking], models: Models, store: Answers) -> list[bool]:
    identities = {place: model.identity() for place, model in models.items()}
    keys = [key_of(identities[one.role, one.model], one.question) for one in asked]
    there = store.get(keys)
    return [key in there for key in keys]


def _masks(chosen: dict[str, Any]) -> list[Mask]:
    """A word once for each method that asks for it; an answer serves both."""
    picked = "slot" in chosen["selectors"]
    methods: list[Method] = ["slot"] if picked else []
    if len(chosen["selectors"]) > picked:
        methods.insert(0, "cloze")
    return [
        Mask(text=chosen["text"], start=chosen["start"], end=chosen["end"], word=chosen["word"], method=method)
        for method in methods
    ]


# --- asking


class Asker:
    """Asks models, through the store of answers and within what may be spent, and keeps every row.

    What this run has spent before, since it `began`, counts.
    """

    def __init__(self, setup: Setup, store: Answers, max_cost: float | None, began: str) -> None:
        self.setup, self.store, self.began = setup, store, began
        self.rows: list[dict[str, Any]] = []
        self.used: dict[tuple[Role, int], dict[Question, Answer]] = {place: {} for place in setup.models}
        budget = Budget(max_cost)
        self.ledgers = {place: Ledger(price=model.price, budget=budget) for place, model in setup.models.items()}
        for model in {id(model): model for model in setup.models.values()}.values():
            if model.price is not None:
                own = store.since(model.identity(), began)
                budget.held += sum(model.price.of(a.prompt_tokens or 0, a.answer_tokens or 0) for a in own)

    def ask(self, asked: Sequence[Asking]) -> list[Answer]:
        """The answers, in order; each model is asked what it has not answered yet."""
        answers: dict[int, Answer] = {}
        for place, model in self.setup.models.items():
            own = [number for number, one in enumerate(asked) if (one.role, one.model) == place]
            if own:
                wanted = [asked[number].question for number in own]
                said = ask(model, wanted, self.store, self.ledgers[place], self.setup.tell)
                answers |= dict(zip(own, said, strict=True))
                self.used[place] |= dict(zip(wanted, said, strict=True))
        return [answers[number] for number in range(len(asked))]

    def judge(self, asked: Sequence[Asking]) -> list[dict[str, Any]]:
        """Ask, and add a row for each answer."""
        answers = self.ask(asked)
        rows = [judged(one, answer, self.setup.plurals) for one, answer in zip(asked, answers, strict=True)]
        self.rows += rows
        return rows

    def spent(self) -> list[Spent]:
        """What the answers cost that were used."""
        return [self._spent(*place) for place in self.setup.models]

    def _spent(self, role: Role, number: int) -> Spent:
        model, used = self.setup.models[role, number], self.used[role, number]
        price, identity = model.price, model.identity()
        tokens = [(answer.prompt_tokens, answer.answer_tokens) for answer in used.values()]
        whole = [(prompt, answer) for prompt, answer in tokens if prompt is not None and answer is not None]
        prompt_tokens, answer_tokens = sum(prompt for prompt, _ in whole), sum(answer for _, answer in whole)
        most = self.ledgers[role, number].most
        return Spent(
            role=role,
            model=number,
            questions=len(used),
            known=self.store.before([key_of(identity, question) for question in used], self.began),
            prompt_tokens=prompt_tokens,
            answer_tokens=answer_tokens,
            uncounted=sum(answer.error is None for answer in used.values()) - len(whole),
            price=price,
            cost=None if price is None else price.of(prompt_tokens, answer_tokens),
            lost=None if price is None else sum(a.lost * most(q, identity.body) for q, a in used.items() if a.lost),
        )


def ask_all(asker: Asker, chosen: dict[Place, dict[str, Any]]) -> None:
    """Ask every model what it is there for; what filters guessed and pickers picked stands in `chosen` then."""
    setup, texts = asker.setup, asker.setup.texts
    targets, seed = setup.number("target"), setup.seed
    if "slot" in setup.methods:
        _pick(asker, chosen)
    masks = [_masks(one)[0] for one in chosen.values()]
    for one in asker.judge(questions.guesses_asked(texts, masks, setup.number("filter"), seed)):
        guessed = chosen[one["text"], one["start"], one["end"]]["guessed"]
        if one["outcome"] == "hit" and one["model"] not in guessed:
            guessed.append(one["model"])
    for one in chosen.values():
        one["asked"] = setup.unfiltered or not one["guessed"]
    left = [mask for one in chosen.values() if one["asked"] for mask in _masks(one)]
    asked = questions.words_asked(texts, left, targets, setup.wording, seed)
    if "prefix" in setup.methods:
        asked += questions.completions_asked(texts, targets, setup.prefix_words, seed)
    if "decop" in setup.methods:
        asked += questions.choices_asked(texts, _paraphrases(asker), targets, seed)
    asker.judge(asked)


def _pick(asker: Asker, chosen: dict[Place, dict[str, Any]]) -> None:
    """The most informative word of each text, as a model sees it."""
    setup = asker.setup
    asked = questions.picks_asked(setup.texts, setup.seed)
    for one, answer in zip(asked, asker.ask(asked), strict=True):
        text = setup.texts[one.text].text
        span, found = judge_pick(answer, text)
        start, end = span or (None, None)
        asker.rows.append(row(one, answer, found, start=start, end=end, word=None if span is None else text[start:end]))
        if span is not None:
            place = (one.text, *span)
            new = {"text": one.text, **_row(_unscored(setup, text, span)), "selectors": [], "guessed": []}
            chosen.setdefault(place, new)["selectors"].append("slot")


def _unscored(setup: Setup, text: str, span: tuple[int, int]) -> ScoredWord:
    words = setup.tagger.words(text)
    classes = frozenset(name for word in words if word.start < span[1] and span[0] < word.end for name in word.classes)
    own = text[slice(*span)]
    elsewhere = sum(word.text.casefold() == own.casefold() and word.start != span[0] for word in words)
    return ScoredWord(word=Word(text=own, start=span[0], end=span[1], classes=classes), elsewhere=elsewhere)


def _paraphrases(asker: Asker) -> dict[str, Sequence[str]]:
    """Three paraphrases of each text that has them, its own or a model's."""
    texts = asker.setup.texts
    found: dict[str, Sequence[str]] = {name: text.paraphrases for name, text in texts.items() if text.paraphrases}
    asked = questions.paraphrases_asked(texts, asker.setup.seed)
    for one, answer in zip(asked, asker.ask(asked), strict=True):
        read = read_paraphrases(answer, texts[one.text].text)
        if isinstance(read, Judgement):
            asker.rows.append(row(one, answer, read))
        else:
            found[one.text] = read
            asker.rows.append(row(one, answer, Judgement(outcome="hit", said=None, why="three paraphrases")))
    return {name: found[name] for name in texts if name in found}
