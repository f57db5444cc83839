"""What a summary says: the headline numbers of a finished run, as `rote.analysis` computes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from rote.models.base import ModelIdentity
from rote.store.manifest import Sampling, Source
from rote.store.outputs import InCorpus
from rote.store.stages import Audit, Staged
from rote.store.variants import Trial

RateName = Literal["greedy_rate", "rate_at_tau", "rate_at_1e_4", "maximum_rate"]
RATES: tuple[RateName, ...] = get_args(RateName)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A share of the examples. `count` belongs to `rate`; `rate_upper` is larger where stopped rows leave a doubt.

    Of examples that were drawn document by document there is more: `effective` is the number of independent examples
    that `interval` rests on. `by_run` is the rate of each run that has examples, `mean` and `deviation` their mean and
    standard deviation (n - 1; None for a single run). Where stopped rows leave a doubt, these take them as never
    extracted, as `rate` does.
    """

    count: int
    rate: float
    rate_upper: float
    interval: list[float]
    effective: float | None = None
    by_run: list[float] | None = None
    mean: float | None = None
    deviation: float | None = None


@dataclass(frozen=True, kw_only=True)
class OddsRate(Rate):
    """The share that appears at least once in `n` generations with probability `p` or more."""

    n: int
    p: float


@dataclass(frozen=True, kw_only=True)
class Passing:
    """The smallest n at which an (n, p) rate is greater than the greedy rate.

    `n` takes stopped rows as never extracted, `n_lower` as likely as their bounds; the truth lies between. `n` is None
    where no n does it (then `log10_n` is None too) or where n is so large (above about 10**299) that only `log10_n`
    can be given. Likewise for the lower ones.
    """

    n: int | None
    log10_n: float | None
    n_lower: int | None
    log10_n_lower: float | None


@dataclass(frozen=True, kw_only=True)
class NearTau:
    """Rows so near to tau that another correct computation may put them on its other side."""

    count: int
    numeric_tolerance: float


@dataclass(frozen=True, kw_only=True)
class BorderTokens:
    """Rows with a token so near to the border of the support that another correct computation may put it elsewhere."""

    count: int
    border_tolerance: float


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Every rate of one scheme's rows; see `rote.analysis.rates.rates`. `documents`: of drawn examples."""

    examples: int
    bounded: int
    tau: float
    greedy_rate: Rate
    rate_at_tau: Rate
    rate_at_1e_4: Rate
    maximum_rate: Rate
    np_table: list[OddsRate]
    n_passing_greedy: dict[str, Passing]
    near_tau: NearTau
    border_tokens: BorderTokens
    documents: int | None = None

    @property
    def named(self) -> dict[RateName, Rate]:
        """The four rates that stand first, by their names."""
        return {name: getattr(self, name) for name in RATES}


@dataclass(frozen=True, kw_only=True)
class RepetitionRates(Rates):
    """Of the examples that stand so often in the training data; None: of those that do not say."""

    repetitions: int | None


@dataclass(frozen=True, kw_only=True)
class SplitRates(Rates):
    """Of the examples of one split; None: of those that have none."""

    split: str | None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A rate less that of the control. `difference` and `difference_upper` differ where stopped rows leave a doubt.

    `interval` is Newcombe's hybrid score interval (95%), from the intervals of the two rates.
    """

    difference: float
    difference_upper: float
    interval: list[float]


@dataclass(frozen=True, kw_only=True)
class OddsDifference(Difference):
    n: int
    p: float


@dataclass(frozen=True, kw_only=True)
class SplitDifference:
    """A split's rates less those of the control, under the names of the rates."""

    split: str
    control: str
    greedy_rate: Difference
    rate_at_tau: Difference
    rate_at_1e_4: Difference
    maximum_rate: Difference
    np_table: list[OddsDifference]

    @property
    def named(self) -> dict[RateName, Difference]:
        """The differences of the four rates that stand first, by their names."""
        return {name: getattr(self, name) for name in RATES}


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """`characters` covered, the number of merged `runs`, and the first of the longest.

    `share` is of the whole text, `share_of_looked_at` of the characters that lie in any suffix (None: there are none).
    Where a served model's list leaves open whether windows reach the threshold (`undecided` of them), these count as
    below it; `characters_upper` and the other upper values count them as above it, and are None where none is open.
    """

    characters: int
    share: float
    share_of_looked_at: float | None
    longest_run: list[int] | None
    runs: int
    undecided: int = 0
    characters_upper: int | None = None
    share_upper: float | None = None
    share_of_looked_at_upper: float | None = None


@dataclass(frozen=True, kw_only=True)
class Longest:
    """The longest sequence that one generation gives with at least some probability.

    The first `tokens` suffix tokens of `example_id` come out, from its prefix, with log-probability `log_prob`.
    `start` and `suffix_start` are that window's, None where the table has no places; `suffix_end` is where in the text
    the sequence ends, where the table knows the places of tokens. `exact` is false where a row still stood
    above the threshold when it was given up, or at a token that a served model's list leaves open, or where windows
    were left out: they may go further than was looked. Nothing goes further than a whole suffix, so that is exact.
    """

    tokens: int
    log_prob: float
    example_id: str
    start: int | None
    suffix_start: int | None
    exact: bool
    suffix_end: int | None = None

    @property
    def span(self) -> tuple[int, int]:
        """Where it stands in a scanned text."""
        assert self.suffix_start is not None
        assert self.suffix_end is not None
        return self.suffix_start, self.suffix_end


@dataclass(frozen=True, kw_only=True)
class LookedAt:
    """The characters that lie in any suffix, and those that a wide stride leaves between them, not measured."""

    characters: int
    share: float
    gaps: int


# --- near-verbatim


@dataclass(frozen=True, kw_only=True)
class Share:
    """A `Rate` that may be of no examples: then both rates are None and the interval is [0, 1]."""

    count: int
    rate: float | None
    rate_upper: float | None
    interval: list[float]


@dataclass(frozen=True, kw_only=True)
class OddsShare(Share):
    """The share that comes within the tolerance in `n` generations with chance `p` or more."""

    n: int
    p: float


@dataclass(frozen=True, kw_only=True)
class NearRate:
    """Rates at one tolerance. `probabilistic.rate_upper` counts every undecided example as extractable.

    `greedy` is over the examples whose greedy generation was compared; `greedy_missing` were not.
    """

    tolerance: int
    probabilistic: Share
    undecided: int
    greedy: Share
    greedy_missing: int


@dataclass(frozen=True, kw_only=True)
class Unlocked:
    """Examples that only tolerance makes extractable; of `zero` the suffix itself cannot be generated at all."""

    count: int
    zero: int
    sub_threshold: int
    undecided: int


@dataclass(frozen=True, kw_only=True)
class Distribution:
    examples: int
    mean: float | None
    quantiles: dict[str, float | None]


@dataclass(frozen=True, kw_only=True)
class GainDistribution(Distribution):
    at_least: dict[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What tolerance adds to p_z, as an estimate; see `rote.analysis.near.rates.mass_gain`."""

    estimate: bool
    clamped: int
    largest_clamped: float
    population: GainDistribution
    extractable: GainDistribution


@dataclass(frozen=True, kw_only=True)
class Shell:
    """The mass at exactly one distance from the suffix."""

    tolerance: int
    mean_mass: float | None
    mean_share: float | None
    median_share: float | None


@dataclass(frozen=True, kw_only=True)
class VerbatimShare:
    population: Distribution
    extractable: Distribution


@dataclass(frozen=True, kw_only=True)
class Shells:
    """How mass spreads over distances, as estimates; see `rote.analysis.near.rates.shells`."""

    estimate: bool
    population: list[Shell]
    extractable: list[Shell]
    verbatim_share: VerbatimShare


@dataclass(frozen=True, kw_only=True)
class Recovered(Share):
    """Of the verbatim extractable examples, those that the search finds; it `missed` so many."""

    missed: int


@dataclass(frozen=True, kw_only=True)
class Recovery:
    verbatim: int
    at_zero: Recovered
    at_tolerance: Recovered
    extra: int


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Sampled estimates: how many examples have one, and their mean."""

    examples: int
    mean: float | None


@dataclass(frozen=True, kw_only=True)
class SearchCost:
    """Token evaluations of the searches, in all and per example."""

    total: int
    mean: float | None


@dataclass(frozen=True, kw_only=True)
class NearSummary:
    """What near-verbatim search came to under one scheme."""

    examples: int
    tolerance: int | None
    tau: float
    verdicts: dict[str, int]
    rates: list[NearRate]
    unlocked: Unlocked
    gain: Gain
    shells: Shells
    recovery: Recovery
    prompts: list[OddsShare]
    mean_p_z: float | None
    mean_lower: float | None
    mean_upper: float | None
    mean_eos_mass: float | None
    estimate: Estimates
    token_evals: SearchCost


# --- a run


@dataclass(frozen=True, kw_only=True)
class SchemeNumbers:
    """What a run came to under one scheme; what may be absent needs a text, groups, a search or drawn examples.

    `audit`: of a scan in stages, where windows were left out of it.
    """

    rates: Rates
    audit: Audit | None = None
    coverage: dict[str, Coverage] | None = None
    longest: dict[str, Longest | None] | None = None
    by_repetitions: list[RepetitionRates] | None = None
    near: NearSummary | None = None
    by_split: list[SplitRates] | None = None
    differences: list[SplitDifference] | None = None


@dataclass(frozen=True, kw_only=True)
class Summary:
    format: int
    kind: Literal["scan", "score"]
    source: Source
    model: ModelIdentity
    examples: int
    dropped: int
    tau: float
    logit_tolerance: float
    token_evals: int
    seconds: float
    warnings: list[str]
    versions: dict[str, str]
    looked_at: LookedAt | None = None
    staged: Staged | None = None
    sampling: Sampling | None = None
    variants: list[Trial] | None = None
    corpus: InCorpus | None = None
    schemes: dict[str, SchemeNumbers]
