"""How often words come back: of all questions, by label, by repetitions; between targets; DE-COP's letters; filters.

Questions about one text, and texts of one group, are alike. The interval of a rate rests on as many independent
questions as they are worth (see `rote.analysis.groups`); that of a difference on resamples of groups or texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np
import polars as pl
from scipy.special import stdtrit

from rote.analysis.groups import binned_repetitions, document_interval
from rote.analysis.member.measures import LEVEL, RESAMPLES, Floats, Ints, Texts, apart, codes
from rote.analysis.probe.verdicts import Way, answered, questions_of
from rote.corpus.texts import LabelledText
from rote.probes.decop import right
from rote.probes.options import OUTCOMES, Outcome
from rote.probes.prompts import LETTERS
from rote.store.member import Measured
from rote.store.probe import Filtered, HitDifference, HitsByRepetitions, Positions, Probed, ProbeManifest

LABEL = {True: "member", False: "non-member"}


def units_of(texts: Mapping[str, LabelledText]) -> dict[str, int]:
    """The number of each text's group; a text without one is a group by itself."""
    numbers, _ = codes(pl.Series([text.group for text in texts.values()], dtype=pl.String))
    return dict(zip(texts, numbers.tolist(), strict=True))


def share(values: Floats, units: Sequence[int]) -> Measured:
    """The mean of values in [0, 1], with the interval of so many groups."""
    low, high, _ = document_interval(values, np.unique(units, return_inverse=True)[1])
    value = float(np.mean(values))
    return Measured(value=value, interval=[min(low, value), max(high, value)])


def outcomes_of(questions: pl.DataFrame) -> dict[Outcome, int]:
    counts = dict(questions["outcome"].value_counts().iter_rows())
    return {outcome: int(counts.get(outcome, 0)) for outcome in OUTCOMES}


def probed(
    way: Way,
    target: int,
    texts: Mapping[str, LabelledText],
    questions: pl.DataFrame,
    verdicts: pl.DataFrame,
) -> Probed:
    """One way with one target. `questions` and `verdicts`: its own."""
    units = units_of(texts)
    own = answered(questions)
    scored = verdicts.filter(pl.col("value").is_not_null())
    without = verdicts["without"].drop_nulls().value_counts(sort=True)
    rate = pl.col("common").fill_null(0) / pl.col("words") if way.value == "words" else pl.col("outcome") == "hit"
    rates = own.select("text", rate.cast(pl.Float64).alias("rate"))

    def of(names: set[str]) -> Measured | None:
        mine = rates.filter(pl.col("text").is_in(names))
        if not mine.height:
            return None
        return share(mine["rate"].to_numpy(), [units[name] for name in mine["text"]])

    by_label = {
        word: measured
        for label, word in LABEL.items()
        if (measured := of({name for name, text in texts.items() if _judged(text) and text.label is label})) is not None
    }
    flagged = None if scored["flagged"].null_count() == scored.height else int(scored["flagged"].sum())
    return Probed(
        target=target,
        name=way.name,
        method=way.method,
        value=way.value,
        texts=scored.height,
        without={reason: int(count) for reason, count in sorted(without.iter_rows())},
        questions=own.height,
        outcomes=outcomes_of(questions),
        hit_rate=None if way.value == "words" or not own.height else of(set(texts)),
        mean=float(scored["value"].mean()) if scored.height else None,  # type: ignore[arg-type]
        judged=scored.height - scored["flagged"].null_count(),
        flagged=flagged,
        by_label=by_label or None,
        by_repetitions=_by_repetitions(texts, rates, scored, units),
    )


def _by_repetitions(
    texts: Mapping[str, LabelledText], rates: pl.DataFrame, scored: pl.DataFrame, units: Mapping[str, int]
) -> list[HitsByRepetitions] | None:
    """By how often texts were seen, where that is known and differs."""
    seen = pl.DataFrame(
        {"text": list(texts), "repetitions": [text.repetitions for text in texts.values()]},
        schema={"text": pl.String, "repetitions": pl.Int64},
    ).drop_nulls()
    if seen["repetitions"].n_unique() < 2:
        return None
    often = binned_repetitions(seen)[0]
    found = []
    for level in sorted(often["repetitions"].unique()):
        names = often.filter(pl.col("repetitions") == level)["text"].to_list()
        mine, flags = (
            table.filter(pl.col("text").is_in(names))
            for table in (rates, scored.filter(pl.col("flagged").is_not_null()))
        )
        if not mine.height:
            continue
        flagged = flags["flagged"].cast(pl.Float64).to_numpy()
        found.append(
            HitsByRepetitions(
                repetitions=int(level),
                texts=mine["text"].n_unique(),
                questions=mine.height,
                hit_rate=share(mine["rate"].to_numpy(), [units[name] for name in mine["text"]]),
                flagged=share(flagged, [units[name] for name in flags["text"]]) if flags.height else None,
            )
        )
    return found or None


# --- between targets


def differences(
    manifest: ProbeManifest,
    ways: Sequence[Way],
    texts: Mapping[str, LabelledText],
    chosen: pl.DataFrame,
    questions: pl.DataFrame,
) -> list[HitDifference]:
    """Every later target less the first, over the questions that both answered."""
    units, found = units_of(texts), []
    for way in ways:
        if way.value == "words":
            continue
        own = answered(questions_of(way, chosen, questions))
        same = ["text", "start", "end", "order"]
        by = own.select("model", *same, (pl.col("outcome") == "hit").cast(pl.Float64).alias("hit"))
        first = by.filter(pl.col("model") == 0).drop("model")
        for target in range(1, len(manifest.targets)):
            other = by.filter(pl.col("model") == target).drop("model")
            both = first.join(other, on=same, how="inner", suffix="_other", nulls_equal=True, maintain_order="left")
            if both.height:
                pair = both["hit"].to_numpy(), both["hit_other"].to_numpy()
                unit = [units[name] for name in both["text"]]
                found.append(
                    HitDifference(
                        target=target,
                        name=way.name,
                        questions=both.height,
                        first=float(pair[0].mean()),
                        other=float(pair[1].mean()),
                        difference=paired(*pair, unit, manifest.seed),
                    )
                )
    return found


def paired(first: Floats, other: Floats, units: Sequence[int], seed: int) -> Measured:
    """The mean difference of pairs, with an interval from resamples of groups.

    Resamples of few groups scatter too little. So the interval goes out to where a normal distribution has as much
    beyond it as Student's t of so many groups has beyond 97.5%.
    """
    unit = np.unique(units, return_inverse=True)[1]
    groups = int(unit.max()) + 1
    sizes, sums = np.bincount(unit), np.bincount(unit, weights=other - first)
    drawn = np.concatenate([(sums @ weights) / (sizes @ weights) for weights in _resamples(groups, seed)])
    if np.ptp(drawn) < 1e-12:
        return apart(share(other, unit.tolist()), share(first, unit.tolist()), drawn)
    beyond = NormalDist().cdf(-float(stdtrit(groups - 1, (1 + LEVEL) / 2)) * math.sqrt(groups / (groups - 1)))
    value = float((other - first).mean())
    low, high = np.quantile(drawn, [beyond, 1 - beyond])
    return Measured(value=value, interval=[min(float(low), value), max(float(high), value)])


def _resamples(groups: int, seed: int) -> list[Ints]:
    """How often each group is drawn; [groups, resamples]."""
    one_class = Texts(np.ones(groups, dtype=np.bool_), np.arange(groups), grouped=False)
    return list(one_class.resamples(seed, RESAMPLES))


# --- letters, and filters


def positions(target: int, questions: pl.DataFrame) -> Positions:
    """Of the answered questions of DE-COP to a target: which letters were picked, where the original stood."""
    own = answered(questions)
    letters, correct, asked = (dict.fromkeys(LETTERS, 0) for _ in range(3))
    none = 0
    for order, said in own.select("order", "said").iter_rows():
        where = right(order)
        asked[where] += 1
        if said in letters:
            letters[said] += 1
            correct[where] += said == where
        else:
            none += 1
    named = sum(letters.values())
    bias = (max(letters.values()) - min(letters.values())) / named if named else 0.0
    return Positions(target=target, letters=letters, right=correct, asked=asked, none=none, bias=bias)


def filtered(number: int, questions: pl.DataFrame) -> Filtered:
    """What one filter did with the words that it was asked for."""
    own = questions.filter((pl.col("role") == "filter") & (pl.col("model") == number))
    span = ["text", "start", "end"]
    hits = own.filter(pl.col("outcome") == "hit")
    guessed, listed = (hits.filter(pl.col("method") == method).select(span).unique() for method in ("guess", "list"))
    return Filtered(
        filter=number,
        asked=own.select(span).unique().height,
        guessed=guessed.height,
        listed=listed.height,
        dropped=hits.select(span).unique().height,
        outcomes=outcomes_of(own),
    )


def _judged(text: LabelledText) -> bool:
    """Not on texts that thresholds are chosen on."""
    return text.split != "validation"
