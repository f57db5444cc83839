"""The types of what `rote probe` writes: its manifest, and what the answers come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rote.models.probed import ChatIdentity, Price, ReferenceIdentity
from rote.probes.options import Method, Outcome, Wording
from rote.store.member import Measured, MemberManifest, TextsSource
from rote.store.outputs import IndexUse

Role = Literal["target", "filter", "paraphrase", "slot"]
"""What a chat model is there for: it is probed, says which words can be guessed, rewrites passages or picks words."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """How words were chosen; see `rote.Words`. `tagger`: what told names and word classes, a pipeline or the rule."""

    select: list[str]
    most: int
    log_likelihood: float | None
    rank: int | None
    share: float | None
    once: bool
    tagger: str


@dataclass(frozen=True, kw_only=True)
class ProbeManifest:
    """Everything that decides a number.

    `prompts`: every prompt that is used, by name, with {} where the passage stands. `unfiltered`: words that a filter
    guessed are asked for too. `hits`: how many words must come back for a passage to be flagged; null: chosen on other
    texts. `prefix_words`: how many of a passage's words are its prefix, where it has none of its own. `rule`: how
    answers are matched. `calibrated`: thresholds are chosen on the texts whose split is validation, or by parts.
    `membership`: the seal of the run of `rote member` whose scores stand beside.
    """

    format: int
    kind: Literal["probe"]
    created: str
    source: TextsSource
    targets: list[ChatIdentity]
    filters: list[ChatIdentity]
    paraphraser: ChatIdentity | None = None
    picker: ChatIdentity | None = None
    reference: ReferenceIdentity | None = None
    index: IndexUse | None = None
    methods: list[Method]
    words: Chosen
    wording: Wording
    prompts: dict[str, str]
    prefix_words: int
    hits: int | None
    unfiltered: bool
    plurals: bool
    rule: str
    temperature: float
    seed: int
    calibrated: Literal["split", "parts", "none"]
    membership: str | None = None
    shard_texts: int
    shards: int
    versions: dict[str, str]


TextsManifest = MemberManifest | ProbeManifest
"""Of a run over whole texts."""

# --- summary.json


@dataclass(frozen=True, kw_only=True)
class HitsByRepetitions:
    """Passages that were seen so often: the share of words that came back, and the share of passages flagged."""

    repetitions: int
    texts: int
    questions: int
    hit_rate: Measured
    flagged: Measured | None


@dataclass(frozen=True, kw_only=True)
class Probed:
    """One method with one target, over all texts that it could ask about.

    `name`: the selector of words (prob, person ...), slot, prefix or decop; with `+filter`, only words that no filter
    guessed; `slot+class`: only picked nouns, verbs, adjectives and adverbs. `value`: what a text's score is: words that
    came back, words in the longest common subsequence, or the share of orders in which the original was picked.
    `texts`: those with a score. `without`: texts that nothing was asked about, and why: without a word to ask for, one
    scores 0; any other has none. `judged`: texts that are flagged or not, `flagged` of them; those for validation are
    neither, and no rate by label counts them. `questions`: answered ones; `outcomes` counts errors too.
    `hit_rate`: of questions; of prefix: null. Rates by label and repetitions are of prefix the mean share of the
    continuation's words that came back. Their intervals know that questions about a text are alike.
    """

    target: int
    name: str
    method: Method
    value: Literal["hits", "words", "share"]
    texts: int
    without: dict[str, int]
    questions: int
    outcomes: dict[Outcome, int]
    hit_rate: Measured | None
    mean: float | None
    judged: int
    flagged: int | None
    by_label: dict[str, Measured] | None = None
    by_repetitions: list[HitsByRepetitions] | None = None


@dataclass(frozen=True, kw_only=True)
class Positions:
    """Of DE-COP: how often each letter was picked, and how often the original was where it stood there.

    `bias`: the largest less the smallest share of a letter. `none`: answers that named no letter.
    """

    target: int
    letters: dict[str, int]
    right: dict[str, int]
    asked: dict[str, int]
    none: int
    bias: float


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One method against the labels of the common texts. `threshold`: in words; it was not chosen on these texts.

    `name`: as of `Probed`; random, majority; or `member:SCORE`, of a run of `rote member`. `true_positives` and so on:
    texts; null for random, whose rates are expected ones.
    """

    name: str
    threshold: str
    true_positives: int | None
    false_positives: int | None
    false_negatives: int | None
    true_negatives: int | None
    precision: Measured | None
    recall: Measured
    f_beta: Measured
    auroc: Measured | None


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Texts that exactly these methods flagged, and no others; `right`: members among them."""

    methods: list[str]
    flagged: int
    right: int


@dataclass(frozen=True, kw_only=True)
class ProbeEvaluation:
    """Methods against labels, all on the same texts: those that every method has a score for.

    `left_out`: labelled texts that some method has none for, by method. `validation`: texts that thresholds were chosen
    on alone. `parts`: in how many parts texts were dealt otherwise, by group, each judged by thresholds of the others.
    """

    target: int
    members: int
    non_members: int
    groups: int | None
    validation: int
    parts: int | None
    left_out: dict[str, int]
    unlabelled: int
    resamples: int
    beta: float
    rows: list[Judged]
    overlap: list[Overlap]


@dataclass(frozen=True, kw_only=True)
class HitDifference:
    """How much more often words came back from `target` than from the first target, on the same questions, paired."""

    target: int
    name: str
    questions: int
    first: float
    other: float
    difference: Measured


@dataclass(frozen=True, kw_only=True)
class Filtered:
    """What a filter did: words that it was asked for, that it guessed at once, that it listed; `dropped`: either."""

    filter: int
    asked: int
    guessed: int
    listed: int
    dropped: int
    outcomes: dict[Outcome, int]


@dataclass(frozen=True, kw_only=True)
class WordCounts:
    """Words of all texts: content words, those the reference scored, and those it does not know.

    `chosen`: by selector; `dropped`: of these, guessed by a filter. `log_likelihood` and `rank`: beyond which a word
    was surprising. `few`: texts with fewer than two words to ask for, by selector.
    """

    words: int
    content: int
    scored: int
    unknown: int
    log_likelihood: float | None
    rank: float | None
    chosen: dict[str, int]
    dropped: dict[str, int]
    few: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What one chat model was asked. `known`: answers that were in the store already, which cost nothing now.

    Tokens as the servers count them; `uncounted`: answers without a count, whose cost is not in `cost`. `cost` in US
    dollars, null without a price; `lost`: what attempts without an answer may have cost at most.
    """

    role: Role
    model: int
    questions: int
    known: int
    prompt_tokens: int
    answer_tokens: int
    uncounted: int
    price: Price | None
    cost: float | None
    lost: float | None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a model will be asked, before it is. `prompt_characters` and `prompt_tokens`: of the prompts themselves.

    `prompt_tokens` is an estimate, four characters a token; `answer_tokens` the most that answers may have. `cost`: of
    these. `formula`: what the paper's formula comes to for the same passages; null where it has none.
    """

    role: Role
    model: int
    name: str
    method: str
    questions: int
    known: int
    prompt_characters: int
    prompt_tokens: int
    answer_tokens: int
    cost: float | None
    formula: float | None


@dataclass(frozen=True, kw_only=True)
class ProbeSummary:
    """summary.json."""

    format: int
    kind: Literal["probe"]
    texts: int
    members: int
    non_members: int
    seconds: float
    warnings: list[str]
    words: WordCounts | None
    filters: list[Filtered]
    probed: list[Probed]
    positions: list[Positions]
    evaluations: list[ProbeEvaluation]
    not_evaluated: str | None
    differences: list[HitDifference]
    estimates: list[Estimate]
    spent: list[Spent]
