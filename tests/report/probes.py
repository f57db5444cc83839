"""Folders of `rote probe` made by hand: made-up answers, and what these come to."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, Literal

from rote.analysis.probe.summary import summarise
from rote.corpus.texts import LabelledText
from rote.models.base import ModelIdentity
from rote.models.probed import ChatIdentity, Price, ReferenceIdentity
from rote.probes.completion import common, split
from rote.probes.judging import rule
from rote.probes.options import OUTCOMES, Method
from rote.probes.prompts import PROMPTS, asked, choose, cloze, masked
from rote.progress import quiet
from rote.store.files import FORMAT
from rote.store.member import TextsSource
from rote.store.membership import MemberView
from rote.store.probe import Chosen, Estimate, ProbeManifest, Spent, WordCounts
from rote.store.probing import (
    CHOSEN_SCHEMA,
    QUESTIONS_SCHEMA,
    StoredProbe,
    add_words,
    as_frame,
    begin,
    finish,
    text_lines,
)
from rote.store.table import ShardFacts
from tests.report.members import membership as member_run
from tests.report.runs import CREATED, MODEL, VERSIONS

Row = dict[str, Any]

STORY = (
    "Maren and Tobias went with Ada and Ruth to Maren and Tobias again the harbour lay quiet and Maren watched a "
    "schooner drift beyond the breakwater while Tobias counted seventeen lanterns along the pier because nobody had "
    "lit them since the storm took the almanac vendor and his crooked barometer"
)
WORDS = STORY.split()
GUESSES = ("ship", "boat", "Boston", "night", "light", "old", "river", "captain")
REPETITIONS = (1, 4, 16, 64)
RULE = rule(plurals=False)
PREFIX = 12
PRICE = Price(prompt=2.5, answer=10.0)


def probe(
    folder: Path,
    *,
    texts: int = 40,
    methods: Sequence[Method] = ("cloze", "prefix", "decop", "slot"),
    targets: int = 2,
    filters: int = 1,
    labels: bool = True,
    select: Sequence[str] = ("prob", "person"),
    unfiltered: bool = False,
    local: bool = False,
    reference: Literal["masked", "causal"] = "masked",
    hits: int | None = 2,
    ids: Sequence[str] = (),
    contents: Sequence[str] = (),
    answers: Sequence[str] = (),
    warnings: Sequence[str] = (),
    membership: bool = False,
    finished: bool = True,
    length: int = 36,
) -> StoredProbe:
    """A sealed folder; every other text is a member where there are `labels`.

    `answers`: those of the first target to its first questions, in the place of made-up ones. `membership`: scores of
    a run of `rote member` stand beside.
    """
    made = _Made(random.Random(18), texts, list(methods), targets, filters, labels, list(select), unfiltered, length)
    made.write(ids, contents, answers)
    manifest = _manifest(made, local, reference, hits, labels and membership)
    begin(folder, manifest, text_lines(made.texts))
    for index in range(manifest.shards):
        own = {text.id for text in made.texts[index * manifest.shard_texts :][: manifest.shard_texts]}
        add_words(folder, index, [row for row in made.words if row["text"] in own], ShardFacts(0.5, []))
    if finished:
        summary, verdicts = summarise(
            manifest=manifest, texts={text.id: text for text in made.texts}, words=_counts(made),
            chosen=as_frame(made.chosen, CHOSEN_SCHEMA), questions=as_frame(made.questions, QUESTIONS_SCHEMA),
            spent=_spent(made), estimates=_estimates(made), seconds=74.5, warnings=list(warnings),
            membership=_membership(folder, made) if labels and membership else None, progress=quiet,
        )  # fmt: skip
        finish(folder, summary, chosen=made.chosen, questions=made.questions, verdicts=verdicts)
    return StoredProbe(folder)


class _Made:
    """What was asked and answered."""

    def __init__(
        self,
        draw: random.Random,
        count: int,
        methods: list[Method],
        targets: int,
        filters: int,
        labels: bool,
        select: list[str],
        unfiltered: bool,
        length: int,
    ) -> None:
        self.draw, self.count, self.methods, self.targets = draw, count, methods, targets
        self.filters, self.labels, self.select, self.unfiltered, self.length = (
            filters, labels, select, unfiltered, length,
        )  # fmt: skip
        self.texts: list[LabelledText] = []
        self.words: list[Row] = []
        self.chosen: list[Row] = []
        self.questions: list[Row] = []

    def write(self, ids: Sequence[str], contents: Sequence[str], answers: Sequence[str]) -> None:
        given = list(answers)
        for number in range(self.count):
            member = number % 2 == 0
            text = LabelledText(
                id=ids[number] if number < len(ids) else f"p{number:03d}",
                text=contents[number] if number < len(contents) else self._written(),
                label=member if self.labels else None,
                group=f"book {number % 7}",
                repetitions=REPETITIONS[number % 8 // 2] if self.labels and member else None,
            )
            self.texts.append(text)
            strength = 0.06 if not member else 0.2 + 0.22 * REPETITIONS.index(REPETITIONS[number % 8 // 2])
            self._ask(text, strength, given)

    def _written(self) -> str:
        said = " ".join(self.draw.choice(WORDS) for _ in range(self.length))
        return f"{said[0].upper()}{said[1:]}."

    def _ask(self, text: LabelledText, strength: float, given: list[str]) -> None:
        spans = [match.span() for match in re.finditer(r"[^\W\d_]{4,}", text.text)]
        words: list[Row] = []
        for start, end in spans:
            word = text.text[start:end]
            elsewhere = len(re.findall(rf"\b{re.escape(word)}\b", text.text)) - 1
            known = self.draw.random() > 0.1
            words.append(
                {
                    "text": text.id, "start": start, "end": end, "word": word,
                    "classes": ["content", "person"] if word[0].isupper() else ["content"], "elsewhere": elsewhere,
                    "log_likelihood": -self.draw.gammavariate(3, 3) if known else None,
                    "rank": self.draw.randrange(9000) if known else None, "pieces": 1 + len(word) // 6, "count": None,
                }
            )  # fmt: skip
        self.words += words
        asks = {"cloze", "slot"} & set(self.methods)
        for place, one in enumerate(sorted(words, key=_order)[: 6 if asks else 0]):
            selectors = [name for name in self.select if name != "person" or "person" in one["classes"]]
            selectors = selectors if "cloze" in self.methods else []
            selectors += ["slot"] if place == 1 and "slot" in self.methods else []
            if selectors:
                self._word(text, {**one, "selectors": selectors}, strength, given)
        self._others(text, strength)

    def _word(self, text: LabelledText, word: Row, strength: float, given: list[str]) -> None:
        prompt = masked(text.text, word["start"], word["end"])
        guessed = []
        for place in range(self.filters):
            for method in ("guess", "list"):
                hit = self.draw.random() < 0.12
                said = word["word"] if hit else self.draw.choice(GUESSES)
                self._add("filter", place, method, text, word, asked(method, prompt), said, said, hit)
                guessed += [place] if hit and place not in guessed else []
        wanted = self.unfiltered or not guessed
        self.chosen.append({**word, "guessed": guessed, "asked": wanted})
        for target in range(self.targets if wanted else 0):
            for method in {"slot" if name == "slot" else "cloze": None for name in word["selectors"]}:
                hit = self.draw.random() < strength * (1 - 0.4 * target)
                said = word["word"] if hit else self.draw.choice(GUESSES)
                question = cloze(prompt, "passage")
                if given and target == 0:
                    self._add("target", 0, method, text, word, question, given.pop(0), None, False, "malformed")
                elif not hit and self.draw.random() < 0.3:
                    odd = self.draw.choice([*OUTCOMES[2:]])
                    told = {
                        "refusal": "I cannot tell what the text says.",
                        "empty": "",
                        "malformed": "It is one of many.",
                    }
                    self._add("target", target, method, text, word, question, told.get(odd, ""), None, False, odd)
                else:
                    self._add("target", target, method, text, word, question, f"<word>{said}</word>", said, hit)

    def _others(self, text: LabelledText, strength: float) -> None:
        if "slot" in self.methods:
            self._add("slot", 0, "pick", text, None, asked("pick", text.text), "harbour", "harbour", True)
        if "decop" in self.methods:
            three = ["It was quiet.", "Nothing moved.", "All lay still."]
            told = "<first>It was quiet.</first><second>Nothing moved.</second><third>All lay still.</third>"
            self._add("paraphrase", 0, "paraphrase", text, None, asked("paraphrase", text.text), told, None, True)
        for target in range(self.targets):
            if "prefix" in self.methods:
                parts = split(text.text, PREFIX)
                if parts is not None:
                    truth = parts[1].split()
                    keep = int(len(truth) * min(1.0, strength + self.draw.random() * 0.2))
                    answer = " ".join([*truth[:keep], *(self.draw.choice(GUESSES) for _ in truth[keep:])])
                    row = self._add(
                        "target", target, "prefix", text, None, asked("complete", parts[0]), answer, None, False
                    )  # fmt: skip
                    row |= {"common": common(answer, parts[1]), "words": len(truth)}
                    row |= {"outcome": "hit" if row["common"] == row["words"] else "miss"}
            for order in map("".join, permutations("ABCD")) if "decop" in self.methods else ():
                right = "ABCD"[order.index("A")]
                picked = right if self.draw.random() < 0.2 + strength else self.draw.choice("AAABCD")
                options = {"A": text.text, **dict(zip("BCD", three, strict=True))}
                row = self._add(
                    "target", target, "decop", text, None, choose([options[one] for one in order]), picked, picked,
                    picked == right,
                )  # fmt: skip
                row |= {"order": order}

    def _add(
        self,
        role: str,
        model: int,
        method: str,
        text: LabelledText,
        word: Row | None,
        prompt: str,
        answer: str,
        said: str | None,
        hit: bool | None,
        odd: str | None = None,
    ) -> Row:
        row: Row = {
            "role": role, "model": model, "method": method, "text": text.id,
            "start": None if word is None else word["start"], "end": None if word is None else word["end"],
            "word": None if word is None else word["word"], "prompt": prompt, "answer": answer, "said": said,
            "outcome": odd or ("hit" if hit else "miss"), "why": "the word in tags" if odd is None else f"it is {odd}",
            "ended": "stop", "served": "served-model-2" if role == "target" else None,
            "prompt_tokens": len(prompt) // 4, "answer_tokens": max(1, len(answer) // 4), "attempts": 1,
        }  # fmt: skip
        self.questions.append(row)
        return row


def _served(name: str, place: int) -> ChatIdentity:
    return ChatIdentity(name=name, url=f"http://host-{place}:8000/v1", body={"top_k": None}, headers=["X-Project"])


def _local(name: str, parameters: int) -> ChatIdentity:
    own = {**{field: getattr(MODEL, field) for field in MODEL.__dataclass_fields__}, "name": name}
    model = ModelIdentity(**{**own, "parameters": parameters})
    return ChatIdentity(name=name, body={}, headers=[], model=model, template="ab" * 32)


def _manifest(
    made: _Made, local: bool, reference: Literal["masked", "causal"], hits: int | None, membership: bool
) -> ProbeManifest:
    words = bool({"cloze", "slot"} & set(made.methods))
    used = {
        "cloze": ["passage"],
        "prefix": ["complete"],
        "decop": ["choose", "paraphrase"],
        "slot": ["pick", "passage"],
    }
    names = [*dict.fromkeys(name for method in made.methods for name in used[method])]
    names += ["guess", "list"] if made.filters else []
    return ProbeManifest(
        format=FORMAT,
        kind="probe",
        created=CREATED,
        source=TextsSource(name="passages.jsonl", sha256="ab" * 32, texts=made.count),
        targets=[
            _local(f"models/chat-{place}", 10**6 * 8**place) if local else _served(f"org/chat-{place}", place)
            for place in range(made.targets)
        ],
        filters=[_local(f"models/small-{place}", 500_000) for place in range(made.filters)],
        paraphraser=_served("org/rewriter", 8) if "decop" in made.methods else None,
        picker=_served("org/picker", 9) if "slot" in made.methods else None,
        reference=ReferenceIdentity(
            kind=reference, name="bundled", fingerprint="cd" * 32, parameters=3_000_000, vocabulary=8000, window=256,
            dtype="float32", device="cpu", tokenizer="ef" * 32, substitutes=20 if reference == "causal" else None,
        )
        if words
        else None,
        methods=made.methods,
        words=Chosen(
            select=made.select, most=5, log_likelihood=None, rank=None, share=0.2, once=False,
            tagger="lists of closed-class words; a name is a capital within a sentence",
        ),
        wording="passage",
        prompts={name: PROMPTS[name] for name in names},
        prefix_words=PREFIX,
        hits=hits,
        unfiltered=made.unfiltered,
        plurals=False,
        rule=RULE,
        temperature=0.0,
        seed=0,
        calibrated="parts" if made.labels else "none",
        membership="9f" * 32 if membership else None,
        shard_texts=1000,
        shards=-(-made.count // 1000),
        versions=VERSIONS,
    )  # fmt: skip


def _membership(folder: Path, made: _Made) -> MemberView:
    """A run of `rote member` over the same texts."""
    beside = folder.with_name(f"{folder.name} member")
    return member_run(beside, texts=made.count, held_out=0, quick=True, contents=[own.text for own in made.texts]).view


def _counts(made: _Made) -> WordCounts | None:
    selectors = [*(made.select if "cloze" in made.methods else []), *(["slot"] if "slot" in made.methods else [])]
    by_selector = {name: [word for word in made.chosen if name in word["selectors"]] for name in selectors}
    if not selectors:
        return None
    return WordCounts(
        words=sum(len(text.text.split()) for text in made.texts),
        content=len(made.words),
        scored=sum(word["rank"] is not None for word in made.words),
        unknown=sum(word["rank"] is None for word in made.words),
        log_likelihood=-11.25,
        rank=2314.0,
        chosen={name: len(own) for name, own in by_selector.items()},
        dropped={name: sum(bool(word["guessed"]) for word in own) for name, own in by_selector.items()},
        few={
            name: sum(many[text.id] < 2 for text in made.texts)
            for name, own in by_selector.items()
            for many in [Counter(word["text"] for word in own)]
        },
    )


# --- what was spent


def _spent(made: _Made) -> list[Spent]:
    found = []
    for role, model in dict.fromkeys((row["role"], row["model"]) for row in made.questions):
        rows = [row for row in made.questions if (row["role"], row["model"]) == (role, model)]
        read, written = (sum(row[name] for row in rows) for name in ("prompt_tokens", "answer_tokens"))
        price = PRICE if role == "target" and model == 0 else None
        found.append(
            Spent(
                role=role, model=model, questions=len(rows), known=len(rows) // 10, prompt_tokens=read,
                answer_tokens=written, uncounted=3 if model else 0, price=price,
                cost=None if price is None else price.of(read, written), lost=0.0123 if price else None,
            )
        )  # fmt: skip
    return found


def _estimates(made: _Made) -> list[Estimate]:
    found = []
    for role, model, how in dict.fromkeys((row["role"], row["model"], row["method"]) for row in made.questions):
        rows = [row for row in made.questions if (row["role"], row["model"], row["method"]) == (role, model, how)]
        characters = sum(len(row["prompt"]) for row in rows)
        price = PRICE if role == "target" and model == 0 else None
        found.append(
            Estimate(
                role=role, model=model, name=f"{role}-{model}",
                method=how,
                questions=len(rows), known=len(rows) // 10, prompt_characters=characters,
                prompt_tokens=characters // 4, answer_tokens=24 * len(rows),
                cost=None if price is None else price.of(characters // 4, 24 * len(rows)),
                formula=0.0421 if price is not None and how in ("cloze", "prefix", "decop") else None,
            )
        )  # fmt: skip
    return found


def _order(word: Row) -> tuple[bool, float]:
    """Names first, so that every passage has some; then the most surprising."""
    return "person" not in word["classes"], word["log_likelihood"] or 0.0
