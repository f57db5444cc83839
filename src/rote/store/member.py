"""The types of what `rote member` writes: its manifest, and what the scores come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rote.models.base import ModelIdentity
from rote.options import BatchSize

Part = Literal["texts", "held_out"]
"""Whether a text is one that is asked about, or one that is known not to have been seen."""


@dataclass(frozen=True, kw_only=True)
class TextsSource:
    """So many `texts`, and the hash of them with all that is said of them."""

    name: str
    sha256: str
    texts: int


@dataclass(frozen=True, kw_only=True)
class Extracted:
    """Windows that extraction was tried on: tokens of prefix and suffix, one every `every` tokens; and the scheme.

    `tolerance`: of the near-verbatim lower bound of a text's best window.
    """

    prefix: int
    suffix: int
    every: int
    scheme: str
    tolerance: int


@dataclass(frozen=True, kw_only=True)
class MemberManifest:
    """Everything that decides a number.

    `scores`: their names, in order. Longer texts than `window` tokens are read in several windows, which begin `stride`
    tokens apart. `prefix`: the ids of the texts that stand before every text for ReCaLL, of the held-out ones if there
    are any; they and their groups are left out of every evaluation; `prefix_tokens` of their `prefix_whole` tokens fit.
    `match`: by what members and non-members were made alike.
    """

    format: int
    kind: Literal["member"]
    created: str
    source: TextsSource
    held_out: TextsSource | None = None
    model: ModelIdentity
    reference: ModelIdentity | None = None
    scores: list[str]
    window: int
    stride: int
    reference_window: int | None = None
    reference_stride: int | None = None
    prefix: list[str]
    prefix_tokens: int | None = None
    prefix_whole: int | None = None
    extracted: Extracted | None = None
    match: list[Literal["length", "date"]]
    seed: int
    batch_size: BatchSize
    batch_tokens: int | None
    logit_tolerance: float
    shard_texts: int
    shards: int
    versions: dict[str, str]


# --- summary.json


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A number and its 95% interval, by bootstrap over groups or texts.

    `bound`: all resamples agreed, as they do at 0 and 1; the interval is Wilson's for as many groups or texts.
    """

    value: float
    interval: list[float]
    bound: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """One way to tell members from non-members: a score, `combined` (all), `blind` (no model), `random` or `majority`.

    `tpr_1` and `tpr_01`: the share of members found where at most 1% or 0.1% of the non-members are taken for members;
    null with fewer than 100 or 1,000 non-members. Precision, recall and F-beta are at thresholds that were chosen on
    other texts. `precision` is null where nothing is called a member. `over_blind`: its AUROC less that of `blind`.
    """

    name: str
    auroc: Measured
    tpr_1: Measured | None
    tpr_01: Measured | None
    precision: Measured | None
    recall: Measured
    f_beta: Measured
    over_blind: Measured | None = None


@dataclass(frozen=True, kw_only=True)
class Roc:
    """The corners of a curve: `fpr` and `tpr` rise together, from the highest threshold to the lowest."""

    name: str
    fpr: list[float]
    tpr: list[float]


@dataclass(frozen=True, kw_only=True)
class ByRepetitions:
    """Members that were seen so often, against all non-members: each score's AUROC, by name."""

    repetitions: int
    members: int
    auroc: dict[str, Measured]


@dataclass(frozen=True, kw_only=True)
class Blind:
    """The features that use no model, and which count for most: the likeliest signs of members and of non-members.

    `explained`: the share of the best score's separation, its AUROC less a half, that the blind baseline reaches; 0
    where it does no better than chance, null where the best score does not either.
    """

    features: list[str]
    for_members: list[str]
    for_non_members: list[str]
    explained: float | None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores against labels.

    `folds`: in how many parts the texts were dealt, by group; what is fitted or chosen for one part, the blind baseline
    and every threshold, is on the others. `groups`: null where every text stands for itself. `fewest`: groups, or
    texts, of the class that has fewer. `unlabelled`, `prefix` and `unmatched`: texts that were left out, and why.
    `best`: the score with the largest AUROC.
    """

    members: int
    non_members: int
    groups: int | None
    fewest: int
    folds: int
    resamples: int
    beta: float
    unlabelled: int
    prefix: int
    unmatched: int
    best: str
    rows: list[Evaluated]
    blind: Blind
    roc: list[Roc]
    by_repetitions: list[ByRepetitions] | None = None


@dataclass(frozen=True, kw_only=True)
class FalsePositives:
    """The same test on held-out texts alone, dealt at random into suspects and others, so many `trials`.

    How often the p-value of one split, and the combined one of `splits` splits, fell below 5%: one in twenty may.
    """

    trials: int
    splits: int
    single: int
    combined: int


@dataclass(frozen=True, kw_only=True)
class DatasetTest:
    """Whether the model saw the suspect texts.

    `p`: twice the median of the single splits' permutation p-values, at most 1. `difference`: the median, over splits,
    of how far the suspects' mean lies above that of the held-out texts, in deviations of the held-out ones. `weights`:
    of each score, mean over splits. `blind`: the combined p-value of the same test on `features` that use no model; a
    small one means that the texts differ by themselves.
    """

    suspects: int
    held_out: int
    groups: int | None
    splits: int
    permutations: int
    p: float
    p_values: list[float]
    difference: float
    weights: dict[str, float]
    features: list[str]
    blind: float
    blind_p_values: list[float]
    false_positives: FalsePositives


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How a score lies over one kind of texts: `label` null for those without one."""

    score: str
    part: Part
    label: bool | None
    texts: int
    mean: float
    quantiles: list[float]


@dataclass(frozen=True, kw_only=True)
class MemberSummary:
    """summary.json. `token_evals`: by what they were for: text, lowercase, prefix, reference, windows.

    `quantiles` of spreads are at 5, 25, 50, 75 and 95%. `windowed`: texts longer than a window. `short`: texts below
    one window of extraction, which have no number for it. `not_evaluated` and `not_tested`: why there is no evaluation,
    or no test.
    """

    format: int
    kind: Literal["member"]
    texts: int
    held_out: int
    members: int
    non_members: int
    tokens: int
    token_evals: dict[str, int]
    seconds: float
    windowed: int
    short: int | None
    warnings: list[str]
    spreads: list[Spread]
    evaluation: Evaluation | None
    not_evaluated: str | None
    test: DatasetTest | None
    not_tested: str | None
