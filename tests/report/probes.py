"""Folders of `rote probe` made by hand: made-up answers, and what they come to, counted one by one."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, Literal

import polars as pl

from rote.corpus.texts import LabelledText
from rote.models.base import ChatIdentity, ModelIdentity, Price, ReferenceIdentity
from rote.odds import wilson
from rote.probes.options import OUTCOMES, Method
from rote.probes.prompts import PROMPTS, asked, choose, cloze, masked
from rote.store.files import FORMAT
from rote.store.member import Measured, TextsSource
from rote.store.probe import (
    Chosen,
    Estimate,
    Filtered,
    HitDifference,
    HitsByRepetitions,
    Judged,
    Overlap,
    Positions,
    Probed,
    ProbeEvaluation,
    ProbeManifest,
    ProbeSummary,
    Spent,
    WordCounts,
)
from rote.store.probing import VERDICTS_SCHEMA, StoredProbe, add_words, begin, finish, text_lines
from rote.store.table import ShardFacts
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
RULE = (
    "Case, punctuation around a word and a possessive 's do not count. A word in tags is taken before one without. An "
    "answer of several words is malformed, unless one of them is in tags."
)
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
    finished: bool = True,
    length: int = 36,
) -> StoredProbe:
    """A sealed folder; every other text is a member where there are `labels`.

    `answers`: those of the first target to its first questions, in the place of made-up ones.
    """
    made = _Made(random.Random(18), texts, list(methods), targets, filters, labels, list(select), unfiltered, length)
    made.write(ids, contents, answers)
    manifest = _manifest(made, local, reference, hits)
    begin(folder, manifest, text_lines(made.texts))
    for index in range(manifest.shards):
        own = {text.id for text in made.texts[index * manifest.shard_texts :][: manifest.shard_texts]}
        add_words(folder, index, [row for row in made.words if row["text"] in own], ShardFacts(0.5, []))
    if finished:
        verdicts = _verdicts(made, hits)
        finish(
            folder, _summary(made, manifest, verdicts, warnings), chosen=made.chosen, questions=made.questions,
            verdicts=pl.DataFrame(verdicts, schema={**dict.fromkeys(VERDICTS_SCHEMA.names, pl.String), **_KINDS}),
        )  # fmt: skip
    return StoredProbe(folder)


_KINDS = {
    "target": pl.Int32, "questions": pl.Int32, "hits": pl.Int32, "value": pl.Float64, "threshold": pl.Float64,
    "flagged": pl.Boolean,
}  # fmt: skip


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
        words = text.text.split()
        if "slot" in self.methods:
            self._add("slot", 0, "pick", text, None, asked("pick", text.text), "harbour", "harbour", True)
        if "decop" in self.methods:
            three = ["It was quiet.", "Nothing moved.", "All lay still."]
            told = "<first>It was quiet.</first><second>Nothing moved.</second><third>All lay still.</third>"
            self._add("paraphrase", 0, "paraphrase", text, None, asked("paraphrase", text.text), told, None, True)
        for target in range(self.targets):
            if "prefix" in self.methods:
                truth = words[12:]
                keep = int(len(truth) * min(1.0, strength + self.draw.random() * 0.2))
                answer = " ".join([*truth[:keep], *(self.draw.choice(GUESSES) for _ in truth[keep:])])
                row = self._add(
                    "target",
                    target,
                    "prefix",
                    text,
                    None,
                    asked("complete", " ".join(words[:12])),
                    answer,
                    answer,
                    None,
                )
                row |= {"common": keep, "words": len(truth), "outcome": "hit" if keep else "miss"}
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


def _manifest(made: _Made, local: bool, reference: Literal["masked", "causal"], hits: int | None) -> ProbeManifest:
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
        prefix_words=12,
        hits=hits,
        unfiltered=made.unfiltered,
        plurals=False,
        rule=RULE,
        temperature=0.0,
        seed=0,
        calibrated="parts" if made.labels else "none",
        membership="9f" * 32 if made.labels else None,
        shard_texts=1000,
        shards=-(-made.count // 1000),
        versions=VERSIONS,
    )  # fmt: skip


# --- what it comes to


def _names(made: _Made) -> list[tuple[str, Method]]:
    ways = ["+filter"] if made.filters else [""]
    ways = ["", *ways] if made.filters and made.unfiltered else ways
    names: list[tuple[str, Method]] = []
    if "cloze" in made.methods:
        names += [(f"{name}{way}", "cloze") for name in made.select for way in ways]
    if "slot" in made.methods:
        names += [(f"slot{way}", "slot") for way in ways]
    return [*names, *((name, name) for name in ("prefix", "decop") if name in made.methods)]


def _asked(made: _Made, target: int, name: str, method: Method, text: str | None = None) -> list[Row]:
    selector, _, filtered = name.partition("+")
    own = {
        (word["text"], word["start"])
        for word in made.chosen
        if selector in word["selectors"] and not (filtered and word["guessed"])
    }
    rows = [row for row in made.questions if row["role"] == "target" and row["model"] == target]
    rows = [row for row in rows if row["method"] == method and text in (None, row["text"])]
    return rows if method in ("prefix", "decop") else [row for row in rows if (row["text"], row["start"]) in own]


def _verdicts(made: _Made, hits: int | None) -> list[Row]:
    found = []
    for target in range(made.targets):
        for name, method in _names(made):
            by_text: dict[str, list[Row]] = {text.id: [] for text in made.texts}
            for row in _asked(made, target, name, method):
                by_text[row["text"]].append(row)
            for text, rows in by_text.items():
                right = sum(row["outcome"] == "hit" for row in rows)
                value = {
                    "prefix": float(rows[0]["common"]) if method == "prefix" and rows else 0.0,
                    "decop": right / max(1, len(rows)),
                }.get(method, float(right))
                threshold: float | None = 1.0 if method == "slot" else float(hits or 2)
                if method in ("prefix", "decop"):
                    threshold = {"prefix": 8.0, "decop": 0.5}[method] if made.labels else None
                found.append(
                    {
                        "target": target, "name": name, "text": text, "questions": len(rows), "hits": right,
                        "value": value if rows else None, "without": None if rows else "no word to ask for",
                        "threshold": threshold if rows else None,
                        "flagged": value >= threshold if rows and threshold is not None else None,
                    }
                )  # fmt: skip
    return found


def measured(count: int, total: int) -> Measured:
    return Measured(value=count / total if total else 0.0, interval=list(wilson(count, max(1, total))))


def _probed(made: _Made, verdicts: Sequence[Row]) -> list[Probed]:
    label = {text.id: text.label for text in made.texts}
    often = {text.id: text.repetitions for text in made.texts}
    found = []
    for target in range(made.targets):
        for name, method in _names(made):
            rows = _asked(made, target, name, method)
            own = [one for one in verdicts if (one["target"], one["name"]) == (target, name)]
            scored = [one for one in own if one["value"] is not None]
            flags = [one["flagged"] for one in scored if one["flagged"] is not None]

            def rate(keep: Callable[[str], bool], rows: Sequence[Row] = rows) -> Measured:
                mine = [row for row in rows if keep(row["text"])]
                return measured(sum(row["outcome"] == "hit" for row in mine), len(mine))

            steps = [
                HitsByRepetitions(
                    repetitions=times,
                    texts=sum(often[one["text"]] == times for one in scored),
                    questions=sum(often[row["text"]] == times for row in rows),
                    hit_rate=rate(lambda text, times=times: often[text] == times),  # type: ignore[misc]
                    flagged=measured(
                        sum(bool(one["flagged"]) for one in scored if often[one["text"]] == times),
                        sum(often[one["text"]] == times for one in scored),
                    ),
                )
                for times in REPETITIONS
            ]
            known = made.labels and method != "prefix"
            found.append(
                Probed(
                    target=target,
                    name=name,
                    method=method,
                    value={"prefix": "words", "decop": "share"}.get(method, "hits"),  # type: ignore[arg-type]
                    texts=len(scored),
                    without=dict(Counter(one["without"] for one in own if one["without"])),
                    questions=len(rows),
                    outcomes={
                        outcome: count
                        for outcome in OUTCOMES
                        if (count := sum(row["outcome"] == outcome for row in rows))
                    },
                    hit_rate=None if method == "prefix" else rate(lambda text: True),
                    mean=sum(one["value"] for one in scored) / len(scored) if scored else None,
                    flagged=sum(flags) if flags else None,
                    by_label={
                        "member": rate(lambda text: label[text] is True),
                        "non-member": rate(lambda text: label[text] is False),
                    }
                    if known
                    else None,
                    by_repetitions=steps if known else None,
                )
            )
    return found


def _judged(name: str, threshold: str, flags: Mapping[str, bool], label: Mapping[str, bool]) -> Judged:
    counts = Counter((flags[text], label[text]) for text in flags)
    tp, fp, fn, tn = (counts[pair] for pair in ((True, True), (True, False), (False, True), (False, False)))
    precision = measured(tp, tp + fp) if tp + fp else None
    recall = measured(tp, tp + fn)
    b = 0.01
    p, r = (precision.value if precision else 0.0), recall.value
    score = (1 + b) * p * r / (b * p + r) if p + r else 0.0
    return Judged(
        name=name, threshold=threshold, true_positives=tp, false_positives=fp, false_negatives=fn, true_negatives=tn,
        precision=precision, recall=recall,
        f_beta=Measured(value=score, interval=[max(0.0, score - 0.1), min(1.0, score + 0.1)]),
        auroc=None if name == "majority" else Measured(value=0.7, interval=[0.6, 0.8]),
    )  # fmt: skip


def _evaluations(made: _Made, verdicts: Sequence[Row]) -> list[ProbeEvaluation]:
    label = {text.id: bool(text.label) for text in made.texts}
    found = []
    for target in range(made.targets if made.labels else 0):
        flags = {
            name: {
                one["text"]: bool(one["flagged"])
                for one in verdicts
                if (one["target"], one["name"]) == (target, name) and one["value"] is not None
            }
            for name, _ in _names(made)
        }
        common = [text.id for text in made.texts if all(text.id in own for own in flags.values())]
        rows = [
            _judged(name, _threshold(name), {text: own[text] for text in common}, label) for name, own in flags.items()
        ]
        members = sum(label[text] for text in common)
        share = Measured(value=members / len(common), interval=[members / len(common)] * 2)
        half = Measured(value=0.5, interval=[0.5, 0.5])
        rows += [
            _judged("member:min_k_20", "at least -7.31", {text: i % 3 == 0 for i, text in enumerate(common)}, label),
            Judged(
                name="random", threshold="a coin", true_positives=None, false_positives=None, false_negatives=None,
                true_negatives=None, precision=share, recall=half, f_beta=half, auroc=half,
            ),
            _judged("majority", "what most texts are", dict.fromkeys(common, True), label),
        ]  # fmt: skip
        shown = list(flags)[:4]
        sets = Counter(tuple(name for name in shown if flags[name][text]) for text in common)
        right = Counter(tuple(name for name in shown if flags[name][text]) for text in common if label[text])
        found.append(
            ProbeEvaluation(
                target=target,
                members=members,
                non_members=len(common) - members,
                groups=7,
                validation=0,
                parts=5,
                left_out={
                    name: left
                    for name, own in flags.items()
                    if (left := sum(text.id not in own for text in made.texts))
                },
                unlabelled=0,
                resamples=2000,
                beta=0.1,
                rows=rows,
                overlap=[
                    Overlap(methods=list(names), flagged=count, right=right[names])
                    for names, count in sets.most_common()
                    if names
                ],
            )
        )
    return found


def _threshold(name: str) -> str:
    return {"prefix": "at least 8 words", "decop": "at least 50% of orders"}.get(
        name, "at least 1 word" if name.startswith("slot") else "at least 2 words"
    )


def _summary(made: _Made, manifest: ProbeManifest, verdicts: Sequence[Row], warnings: Sequence[str]) -> ProbeSummary:
    selectors = [*(made.select if "cloze" in made.methods else []), *(["slot"] if "slot" in made.methods else [])]
    by_selector = {name: [word for word in made.chosen if name in word["selectors"]] for name in selectors}
    return ProbeSummary(
        format=FORMAT,
        kind="probe",
        texts=made.count,
        members=sum(text.label is True for text in made.texts),
        non_members=sum(text.label is False for text in made.texts),
        seconds=74.5,
        warnings=list(warnings),
        words=WordCounts(
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
        if selectors
        else None,
        filters=_filtered(made),
        probed=_probed(made, verdicts),
        positions=_positions(made),
        evaluations=_evaluations(made, verdicts),
        not_evaluated=None if made.labels else "None of the texts has a label.",
        differences=_differences(made),
        estimates=_estimates(made),
        spent=_spent(made),
    )


def _filtered(made: _Made) -> list[Filtered]:
    found = []
    for place in range(made.filters if made.chosen else 0):
        rows = [row for row in made.questions if row["role"] == "filter" and row["model"] == place]
        hit = {how: sum(row["outcome"] == "hit" for row in rows if row["method"] == how) for how in ("guess", "list")}
        found.append(
            Filtered(
                filter=place, asked=len(made.chosen), guessed=hit["guess"], listed=hit["list"],
                dropped=sum(place in word["guessed"] for word in made.chosen),
                outcomes=dict(Counter(row["outcome"] for row in rows)),
            )
        )  # fmt: skip
    return found


def _positions(made: _Made) -> list[Positions]:
    found = []
    for target in range(made.targets if "decop" in made.methods else 0):
        rows = _asked(made, target, "decop", "decop")
        picked = Counter(row["said"] for row in rows)
        stood = Counter("ABCD"[row["order"].index("A")] for row in rows)
        right = Counter(row["said"] for row in rows if row["outcome"] == "hit")
        shares = [picked[letter] / len(rows) for letter in "ABCD"]
        found.append(
            Positions(
                target=target, letters={letter: picked[letter] for letter in "ABCD"},
                right={letter: right[letter] for letter in "ABCD"}, asked={letter: stood[letter] for letter in "ABCD"},
                none=0, bias=max(shares) - min(shares),
            )
        )  # fmt: skip
    return found


def _differences(made: _Made) -> list[HitDifference]:
    found = []
    for target in range(1, made.targets):
        for name, method in _names(made):
            if method == "prefix":
                continue
            first, other = (_asked(made, place, name, method) for place in (0, target))
            shares = [sum(row["outcome"] == "hit" for row in rows) / len(rows) for rows in (first, other) if rows]
            if len(shares) < 2:
                continue
            gap = shares[1] - shares[0]
            found.append(
                HitDifference(
                    target=target, name=name, questions=len(first), first=shares[0], other=shares[1],
                    difference=Measured(value=gap, interval=[gap - 0.04, gap + 0.04]),
                )
            )  # fmt: skip
    return found


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
                method=how if how in ("cloze", "prefix", "decop", "slot") else None,
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
