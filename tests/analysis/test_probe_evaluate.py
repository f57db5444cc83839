"""Methods against labels: the same texts for all, thresholds from other texts, rates and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.analysis.member.fitting import deal
from rote.analysis.member.measures import Texts
from rote.analysis.probe.evaluate import overlap
from rote.analysis.probe.rates import paired, share
from rote.analysis.probe.thresholds import NOTHING, logistic
from rote.probes.decop import orders
from rote.store.files import pretty
from rote.store.membership import MemberView
from rote.store.probe import Judged, ProbeEvaluation, ProbeSummary
from tests.analysis.member.tables import table
from tests.analysis.probes import hits, manifest, question, summed, texts, word
from tests.cases import all_cases, cases
from tests.reference import member as slow_member
from tests.reference import probe as slow

EVERY = ["cloze", "prefix", "decop"]


def evaluated(summary: ProbeSummary) -> ProbeEvaluation:
    assert summary.not_evaluated is None
    return summary.evaluations[0]


def row(summary: ProbeSummary, name: str) -> Judged:
    return next(each for each in evaluated(summary).rows if each.name == name)


def flags(verdicts: pl.DataFrame, name: str) -> list[bool]:
    return verdicts.filter(pl.col("name") == name)["flagged"].to_list()


def completions(common: Sequence[int | None]) -> list[dict[str, Any]]:
    return [
        question(str(place), "miss", method="prefix", common=one, words=100)
        for place, one in enumerate(common)
        if one is not None
    ]


def choices(right: Sequence[int | None]) -> list[dict[str, Any]]:
    """Of each text in so many of 24 orders."""
    return [
        question(str(place), "hit" if number < one else "miss", method="decop", order=order)
        for place, one in enumerate(right)
        if one is not None
        for number, order in enumerate(orders())
    ]


@pytest.fixture(scope="module")
def made() -> tuple[Any, ...]:
    """Members lie higher, by all three methods; a text in ten has no score of one of them."""
    rng = np.random.default_rng(3)
    labels = [True] * 40 + [False] * 40
    words = [int(rng.binomial(5, 0.5 if own else 0.15)) if place % 20 else None for place, own in enumerate(labels)]
    common = [int(rng.poisson(40 if own else 30)) if place % 20 != 7 else None for place, own in enumerate(labels)]
    right = [int(rng.binomial(24, 0.5 if own else 0.3)) for own in labels]
    chosen, questions = hits(words)
    return labels, words, common, right, chosen, questions + completions(common) + choices(right)


def test_all_methods_are_held_against_the_same_texts(made: tuple[Any, ...]) -> None:
    labels, words, common, right, chosen, questions = made
    words = [one or 0 for one in words]  # one without a word to ask for scores 0
    named = texts([*labels, None], group=[None] * 81)
    own = manifest(methods=EVERY)
    summary, verdicts = summed(own, named, chosen, questions)
    found = evaluated(summary)
    assert [each.name for each in found.rows] == ["prob", "prefix", "decop", "random", "majority"]
    kept = [place for place in range(80) if common[place] is not None]
    members = [labels[place] for place in kept]
    assert (found.members, found.non_members) == (sum(members), len(kept) - sum(members))
    assert found.left_out == {"prefix": 4}
    assert (found.unlabelled, found.validation, found.parts, found.groups) == (1, 0, 5, None)
    values = {"prob": words, "prefix": common, "decop": [one / 24 for one in right]}
    called = {}
    for name, scores in values.items():
        mine = flags(verdicts, name)
        called[name] = [mine[place] for place in kept]
        judged = row(summary, name)
        counts = slow.confusion(called[name], members)
        assert {key: getattr(judged, key) for key in counts} == counts
        flagged = counts["true_positives"] + counts["false_positives"]
        assert judged.precision is not None
        assert judged.precision.value == pytest.approx(counts["true_positives"] / flagged)
        assert judged.recall.value == pytest.approx(counts["true_positives"] / sum(members))
        f = slow_member.f_beta(counts["true_positives"], counts["false_positives"], sum(members))
        assert judged.f_beta.value == pytest.approx(float(f))
        seen, unseen = ([scores[place] for place in kept if labels[place] is own] for own in (True, False))
        assert judged.auroc is not None
        assert judged.auroc.value == pytest.approx(float(slow_member.auroc(seen, unseen)))
        for one in (judged.precision, judged.recall, judged.f_beta, judged.auroc):
            assert one.interval[0] <= one.value <= one.interval[1]
    sets = {frozenset(each.methods): (each.flagged, each.right) for each in found.overlap}
    assert sets == slow.overlap(called, members)
    assert [each.flagged for each in found.overlap] == sorted((each.flagged for each in found.overlap), reverse=True)
    assert row(summary, "prob").threshold == "2 or more words"
    assert row(summary, "random").true_positives is None
    assert row(summary, "majority").recall.value == float(2 * sum(members) >= len(members))
    again = summed(own, named, chosen, questions)
    assert pretty(again[0]) == pretty(summary)
    assert again[1].equals(verdicts)


@pytest.mark.parametrize("size", [1, 4])
def test_thresholds_are_chosen_on_other_parts(made: tuple[Any, ...], size: int) -> None:
    labels, words, _, right, _, _ = made
    full = [one or 0 for one in words]
    chosen, questions = hits(full)
    groups = [f"group {place // 4}" if size == 4 else None for place in range(80)]
    named = texts(labels, group=groups)
    summary, verdicts = summed(
        manifest(methods=["cloze", "decop"], hits=None), named, chosen, questions + choices(right)
    )
    assert evaluated(summary).groups == (20 if size == 4 else None)
    member = np.array(labels)
    part = deal(Texts(member, np.arange(80) // size, grouped=size == 4), 0)
    assert part is not None
    for name, scores, least in (("prob", full, 1.0), ("decop", [one / 24 for one in right], 0.0)):
        at = verdicts.filter(pl.col("name") == name)["threshold"].to_list()
        for place in range(80):
            others = [number for number in range(80) if part[number] != part[place]]
            seen, unseen = ([scores[number] for number in others if labels[number] is own] for own in (True, False))
            assert at[place] == pytest.approx(max(slow_member.threshold(seen, unseen), least))


def test_thresholds_of_a_split_know_nothing_of_what_they_judge(made: tuple[Any, ...]) -> None:
    labels, words, common, right, _, _ = made
    full, lengths = [one or 0 for one in words], [one or 0 for one in common]
    split = ["validation" if place % 2 else ("test" if place % 4 else None) for place in range(80)]
    own = manifest(methods=EVERY, hits=None, calibrated="split")

    def run(
        labels: list[Any], full: list[int], lengths: list[Any], right: list[Any]
    ) -> tuple[ProbeSummary, pl.DataFrame]:
        chosen, questions = hits(full)
        return summed(own, texts(labels, split=split), chosen, questions + completions(lengths) + choices(right))

    summary, verdicts = run(labels, full, lengths, right)
    found = evaluated(summary)
    assert (found.validation, found.parts, found.members + found.non_members) == (40, None, 40)
    assert verdicts.filter(pl.col("text").cast(pl.Int64) % 2 == 1)["flagged"].null_count() == 120
    assert verdicts.filter(pl.col("text").cast(pl.Int64) % 2 == 0)["flagged"].null_count() == 0
    at = verdicts.filter(pl.col("text") == "0")["threshold"].to_list()
    seen, unseen = ([full[place] for place in range(1, 80, 2) if labels[place] is own] for own in (True, False))
    assert at[0] == max(slow_member.threshold(seen, unseen), 1)
    changed = [
        [one if place % 2 else other for place, (one, other) in enumerate(zip(column, reversed(column), strict=True))]
        for column in (labels, full, lengths, right)
    ]
    assert run(*changed)[1].filter(pl.col("text") == "0")["threshold"].to_list() == at


def test_groups_on_both_sides_of_a_split_are_told() -> None:
    labels = [True, False] * 8
    chosen, questions = hits([2, 0] * 8)
    split = ["validation"] * 4 + ["test"] * 12
    named = texts(labels, split=split, group=["a", "b"] * 2 + ["a", "c", "d", "e"] + list("fghijklm"))
    summary, _ = summed(manifest(calibrated="split"), named, chosen, questions)
    assert summary.warnings == [
        "1 group has texts that thresholds were chosen on and texts that are judged by them: the split does not keep "
        "groups together."
    ]


def test_more_in_common_must_mean_seen() -> None:
    """Completions that have less in common with texts that were seen are no sign; they flag nothing."""
    labels = [True] * 20 + [False] * 20
    questions = completions([10] * 20 + [30] * 20)
    summary, verdicts = summed(manifest(methods=["prefix"]), texts(labels), [], questions)
    judged = row(summary, "prefix")
    assert (judged.true_positives, judged.false_positives, judged.precision) == (0, 0, None)
    assert judged.threshold.startswith("nothing is flagged")
    assert verdicts["flagged"].to_list() == [False] * 40
    assert verdicts["threshold"].null_count() == 40
    assert summary.probed[0].flagged == 0


def test_the_regressions_threshold_is_where_it_says_one_half() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(30, 8, 100), rng.normal(20, 8, 150)]).round()
    member = np.arange(250) < 100
    at = logistic(values, member)
    called = LogisticRegression(max_iter=1000).fit(values[:, None], member).predict(values[:, None])
    assert ((values >= at) == called).all()
    assert logistic(-values, member) == NOTHING
    assert logistic(np.zeros(250), member) == NOTHING


def test_a_word_must_come_back() -> None:
    """Where none does, the best threshold is not 0, which would flag everything."""
    chosen, questions = hits([0] * 12)
    summary, verdicts = summed(manifest(hits=None), texts([True] * 8 + [False] * 4), chosen, questions)
    assert verdicts["flagged"].to_list() == [False] * 12
    assert row(summary, "prob").threshold == "1 or more words"


def test_a_text_without_a_label_has_the_threshold_of_its_group(made: tuple[Any, ...]) -> None:
    labels, _, _, right, _, _ = made
    groups = [*(f"group {place // 4}" for place in range(80)), "group 0", "another"]
    summary, verdicts = summed(
        manifest(methods=["decop"]), texts([*labels, None, None], group=groups), [], choices([*right, 12, 12])
    )
    at = verdicts["threshold"].to_list()
    assert at[80] == at[0]
    seen, unseen = (
        [one / 24 for one, label in zip(right, labels, strict=False) if label is own] for own in (True, False)
    )
    assert at[81] == pytest.approx(slow_member.threshold(seen, unseen))
    assert evaluated(summary).unlabelled == 2


def test_a_picked_word_flags_when_it_comes_back() -> None:
    labels = [True] * 6 + [False] * 6
    chosen = [word(str(place), 0, ["slot"]) for place in range(12)]
    questions = [
        question(str(place), "hit" if own else "miss", method="slot", start=0, end=1)
        for place, own in enumerate(labels)
    ]
    summary, _ = summed(manifest(methods=["slot"]), texts(labels), chosen, questions)
    assert row(summary, "slot").threshold == "1 or more words"
    assert row(summary, "slot").recall.value == row(summary, "slot+class").recall.value == 1.0


@pytest.mark.parametrize(
    ("labels", "more", "sentence"),
    [
        ([None] * 4, {}, "No text has a label"),
        ([True] * 4, {}, "at least 2 members and 2 non-members; there are 4 members and 0 non-members"),
        ([True, False, False], {}, "there are 1 member and 2 non-members"),
        ([True, False] * 4, {"methods": ["prefix"]}, "No method has both a score"),
        ([True, False] * 4, {"hits": None, "calibrated": "none"}, "No method has both a score"),
        ([True, False] * 4, {"hits": None, "calibrated": "split"}, "needs members and non-members among"),
    ],
)  # fmt: skip
def test_too_little_is_a_sentence(labels: list[bool | None], more: dict[str, Any], sentence: str) -> None:
    chosen, questions = hits([1] * len(labels))
    summary, verdicts = summed(manifest(**more), texts(labels), chosen, questions)
    assert summary.evaluations == []
    assert summary.not_evaluated is not None
    assert sentence in summary.not_evaluated
    assert verdicts.height == len(labels)


def test_hits_that_were_said_need_no_other_texts() -> None:
    chosen, questions = hits([2, 2, 0, 3])
    summary, _ = summed(manifest(calibrated="none"), texts([True, True, False, False]), chosen, questions)
    found = row(summary, "prob")
    assert (found.true_positives, found.false_positives, found.true_negatives) == (2, 1, 1)


def test_a_method_without_any_score_is_left_out() -> None:
    chosen, questions = hits([2, 2, 0, 3] * 3)
    summary, _ = summed(manifest(methods=EVERY), texts([True, True, False, False] * 3), chosen, questions)
    found = evaluated(summary)
    assert [each.name for each in found.rows] == ["prob", "random", "majority"]
    assert found.left_out == {"prefix": 12, "decop": 12}


@cases(60, deadline=None)
@given(flagged=st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=20))
def test_overlaps_are_those_of_loops(flagged: list[tuple[bool, ...]]) -> None:
    columns = list(zip(*flagged, strict=True))
    called = {name: np.array(column) for name, column in zip("abc", columns[:3], strict=True)}
    found = overlap(called, np.array(columns[3]))
    expected = slow.overlap({name: column.tolist() for name, column in called.items()}, columns[3])
    assert {frozenset(each.methods): (each.flagged, each.right) for each in found} == expected


@cases(40, deadline=None)
@given(data=st.data())
def test_any_run_is_summed_up(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))

    def some(strategy: st.SearchStrategy[Any]) -> list[Any]:
        return data.draw(st.lists(st.one_of(st.none(), strategy), min_size=count, max_size=count))

    labels, counts, common = some(st.booleans()), some(st.integers(0, 5)), some(st.integers(0, 50))
    named = texts(labels, group=some(st.sampled_from("ab")), split=some(st.sampled_from(["validation", "test"])),
                  repetitions=some(st.integers(0, 3)))  # fmt: skip
    chosen, questions = hits(counts)
    own = manifest(
        methods=EVERY,
        hits=data.draw(st.sampled_from([None, 2])),
        calibrated=data.draw(st.sampled_from(["split", "parts", "none"])),
    )
    summary, verdicts = summed(own, named, chosen, questions + completions(common))
    assert (summary.not_evaluated is None) == (len(summary.evaluations) == 1)
    assert verdicts["threshold"].is_finite().all()
    for each in summary.evaluations:
        for judged in each.rows:
            for one in filter(None, (judged.precision, judged.recall, judged.f_beta, judged.auroc)):
                assert all(map(math.isfinite, [one.value, *one.interval]))
    pretty(summary)


# --- scores of a membership run beside


def view(named: Any, drop: int = 0, prefix: list[str] | None = None) -> MemberView:
    members = [text.label is True for text in named.values()]
    rows = table([3.0 if own else 0.0 for own in members], seed=1, texts=[text.text for text in named.values()],
                 names=["loss", "min_k_20", "recall"])[drop:]  # fmt: skip
    about = SimpleNamespace(scores=["loss", "min_k_20", "recall"], prefix=prefix or [], held_out=None)
    return cast(MemberView, SimpleNamespace(folder=Path(), manifest=about, summary=None, seal="", rows=rows))


def test_membership_scores_stand_beside() -> None:
    named = texts([True] * 20 + [False] * 20)
    chosen, questions = hits([3] * 15 + [0] * 25)
    summary, _ = summed(manifest(), named, chosen, questions, view(named))
    names = [each.name for each in evaluated(summary).rows]
    assert names == ["prob", "member:loss", "member:min_k_20", "member:recall", "random", "majority"]
    loss = row(summary, "member:loss")
    assert loss.threshold.endswith("or less")
    assert row(summary, "member:min_k_20").threshold.endswith("or more")
    assert loss.auroc is not None
    assert loss.auroc.value > 0.9
    assert loss.recall.value > 0.2
    assert all(not name.startswith("member") for each in evaluated(summary).overlap for name in each.methods)


def test_membership_scores_that_do_not_fit_are_left_out_with_a_sentence() -> None:
    named = texts([True] * 20 + [False] * 20)
    chosen, questions = hits([3] * 15 + [0] * 25)
    summary, _ = summed(manifest(), named, chosen, questions, view(named, drop=3))
    assert [each.name for each in evaluated(summary).rows] == ["prob", "random", "majority"]
    assert summary.warnings == [
        "Membership scores are left out, since the run of rote member has none of them for some of the 40 texts (3 at "
        "most): loss, min_k_20, recall."
    ]
    summary, _ = summed(manifest(), named, chosen, questions, view(named, prefix=["5"]))
    assert [each.name for each in evaluated(summary).rows] == [
        "prob",
        "member:loss",
        "member:min_k_20",
        "random",
        "majority",
    ]
    assert "(1 at most): recall." in summary.warnings[0]


def test_membership_scores_without_texts_to_choose_thresholds_on_are_left_out() -> None:
    named = texts([True] * 5 + [False] * 5, split=["validation"] + ["test"] * 9)
    chosen, questions = hits([3] * 5 + [0] * 5)
    summary, _ = summed(manifest(calibrated="split"), named, chosen, questions, view(named))
    assert [each.name for each in evaluated(summary).rows] == ["prob", "random", "majority"]
    said = "Membership scores are left out: there are no texts of both kinds to choose their thresholds on."
    assert summary.warnings == [said]


# --- by label, by repetitions, between targets


def test_rates_by_label_and_repetitions() -> None:
    named = texts([True] * 4 + [False] * 2, repetitions=[1, 1, 8, 8, 0, 0])
    chosen, questions = hits([1, 2, 4, 5, 0, 0])
    summary, _ = summed(manifest(), named, chosen, [*questions, question("0", "error", start=0, end=1)])
    (found,) = summary.probed
    assert found.by_label is not None
    assert {name: one.value for name, one in found.by_label.items()} == {"member": 12 / 20, "non-member": 0.0}
    assert found.by_repetitions is not None
    levels = [(one.repetitions, one.texts, one.questions, one.hit_rate.value) for one in found.by_repetitions]
    assert levels == [(0, 2, 10, 0.0), (1, 2, 10, 0.3), (8, 2, 10, 0.9)]
    assert [one.flagged and one.flagged.value for one in found.by_repetitions] == [0.0, 0.5, 1.0]
    assert (found.questions, found.outcomes["error"], found.hit_rate and found.hit_rate.value) == (30, 1, 0.4)


def test_a_difference_of_targets_is_paired() -> None:
    chosen, questions = hits([0, 1, 2, 3] * 5)
    more = [{**each, "model": 1, "outcome": "hit" if each["start"] < 4 else "miss"} for each in questions]
    more[0]["outcome"] = "error"
    summary, _ = summed(manifest(targets=2), texts([None] * 20), chosen, questions + more)
    (found,) = summary.differences
    assert (found.target, found.name, found.questions) == (1, "prob", 99)
    assert found.difference.value == pytest.approx((79 - 30) / 99)
    assert found.difference.bound is None
    low, high = found.difference.interval
    assert 0.3 < low < found.difference.value < high < 0.7


def test_targets_that_agree_leave_an_interval() -> None:
    chosen, questions = hits([5] * 10)
    same = [{**each, "model": 1} for each in questions]
    summary, _ = summed(manifest(targets=2), texts([None] * 10), chosen, questions + same)
    (found,) = summary.differences
    assert (found.difference.value, found.difference.bound) == (0.0, True)
    low, high = found.difference.interval
    assert -0.5 < low < 0 < high < 0.5


# --- simulations


@pytest.mark.scaled
def test_intervals_of_differences_and_rates_hold_the_truth() -> None:
    """Texts differ in how many words come back; both targets find the same texts hard."""
    rng = np.random.default_rng(5)
    trials = 400 if all_cases() else 120
    held = np.zeros(2)
    for trial in range(trials):
        hard = rng.beta(2, 2, 40)
        unit = np.repeat(np.arange(40), 6)
        first = (rng.random(240) < 0.5 * hard[unit]).astype(float)
        other = (rng.random(240) < 0.5 * hard[unit] + 0.3).astype(float)
        apart, rate = paired(first, other, unit.tolist(), trial), share(first, unit.tolist())
        held += [apart.interval[0] <= 0.3 <= apart.interval[1], rate.interval[0] <= 0.25 <= rate.interval[1]]
    assert (held / trials > 0.89).all(), held / trials


@pytest.mark.scaled
def test_on_random_labels_nothing_beats_chance() -> None:
    rng = np.random.default_rng(6)
    trials = 60 if all_cases() else 20
    right = {"prob": 0, "prefix": 0, "decop": 0}
    called = dict.fromkeys(right, 0)
    areas = []
    for _ in range(trials):
        labels = (rng.permutation(60) < 30).tolist()
        chosen, questions = hits(rng.binomial(3, 0.3, 60).tolist(), asked=3)
        questions += completions(rng.poisson(30, 60).tolist())
        questions += [each for each in choices(rng.binomial(24, 0.25, 60).tolist()) if each["order"].startswith("A")]
        summary, _ = summed(manifest(methods=EVERY, hits=None), texts(labels), chosen, questions)
        for each in evaluated(summary).rows[:3]:
            assert each.true_positives is not None
            assert each.false_positives is not None
            right[each.name] += each.true_positives
            called[each.name] += each.true_positives + each.false_positives
            assert each.auroc is not None
            areas.append(each.auroc.value)
    assert abs(float(np.mean(areas)) - 0.5) < 0.03
    for name, count in called.items():
        assert right[name] / count < 0.5 + 3 * math.sqrt(0.25 / count) + 0.02, name
