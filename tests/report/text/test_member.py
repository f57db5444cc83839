"""The words of membership scores: what speaks against them is said, and stands beside every headline."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rote.report.text.member import (
    area,
    blind_check,
    check,
    confound,
    headline,
    lede,
    picked,
    row_of,
    sides,
    verdict,
)
from rote.report.text.memberfacts import facts
from rote.report.text.membertables import areas, meanings, spread_table, thresholds
from rote.store.member import Evaluation, FalsePositives, Measured, MemberSummary
from rote.store.membership import StoredMembership
from tests.report.members import membership


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredMembership:
    return membership(tmp_path_factory.mktemp("member") / "run", reference=True, extract=True)


@pytest.fixture
def summary(stored: StoredMembership) -> MemberSummary:
    return stored.summary


def evaluated(
    summary: MemberSummary,
    best: tuple[float, float, float],
    blind: tuple[float, float, float],
    over: tuple[float, float, float],
) -> Evaluation:
    """The evaluation with other numbers, each with its interval, for its best score and for the blind baseline."""
    own = summary.evaluation
    assert own is not None
    area, without, beyond = (Measured(value=v, interval=[low, high]) for v, low, high in (best, blind, over))
    changed = {
        own.best: replace(row_of(own, own.best), auroc=area, over_blind=beyond),
        "blind": replace(row_of(own, "blind"), auroc=without),
    }
    return replace(own, rows=[changed.get(row.name, row) for row in own.rows])


def test_the_headline_never_has_one_without_the_other(summary: MemberSummary) -> None:
    said = headline(summary)
    assert re.fullmatch(
        r"\S.* tells members from non-members with AUROC 0\.\d+ \(0\.\d+ to \S+\); without any model, AUROC is 0\.520 "
        r"\(0\.460 to 0\.580\)\.",
        said,
    )
    tested = headline(replace(summary, evaluation=None))
    assert tested == "12 texts, tested together against 7 held-out ones: p = 0.001; without any model, p = 0.8."


def test_a_separation_that_the_texts_alone_explain_is_discounted(summary: MemberSummary) -> None:
    said = confound(evaluated(summary, (0.98, 0.95, 1.0), (0.97, 0.94, 0.99), (0.01, -0.02, 0.04)))
    assert said == (
        "Members and non-members differ by themselves: without any model, words and pairs of words, runs of 2 to 4 "
        "characters, lengths and dates alone tell them apart with AUROC 0.970 (95% interval 0.940 to 0.990). "
        "No score here is evidence that the model saw anything beyond that."
    )
    worse = confound(evaluated(summary, (0.8, 0.7, 0.9), (0.97, 0.94, 0.99), (-0.17, -0.3, -0.1)))
    assert "No score here is evidence" in worse


def test_a_part_is_said_to_be_explained(summary: MemberSummary) -> None:
    evaluation = evaluated(summary, (0.9, 0.85, 0.95), (0.7, 0.6, 0.8), (0.2, 0.1, 0.3))
    said = confound(replace(evaluation, blind=replace(evaluation.blind, explained=0.5)))
    assert "differ by themselves, too" in said
    assert "That explains 50.0% of what the best score reaches above chance." in said
    assert "its AUROC is larger by +0.200, 95% interval +0.100 to +0.300." in said


def test_a_blind_baseline_at_chance_is_said_to_be(summary: MemberSummary) -> None:
    said = confound(evaluated(summary, (0.9, 0.85, 0.95), (0.52, 0.45, 0.59), (0.38, 0.3, 0.45)))
    assert said.startswith(
        "The texts alone do not tell members from non-members beyond chance: words and pairs of words, runs of 2 to 4 "
        "characters, lengths and dates have, without any model, AUROC 0.520 (95% interval 0.450 to 0.590). "
    )
    assert said.endswith("to +0.450. What such features do not see can still differ.")


def test_dates_that_nobody_gave_are_not_said_to_agree(summary: MemberSummary) -> None:
    chance = evaluated(summary, (0.9, 0.85, 0.95), (0.52, 0.45, 0.59), (0.38, 0.3, 0.45))
    undated = replace(chance, blind=replace(chance.blind, features=["words and pairs of words", "lengths"]))
    assert summary.test is not None
    test = replace(summary.test, features=["words and pairs of words", "lengths"])
    for said in (confound(undated), verdict(test, summary)):
        assert "There are no dates, so it was not asked whether the two are of one time." in said
    assert "on words and pairs of words and lengths, without any model" in blind_check(test)
    assert "There are no dates" not in confound(chance) + verdict(summary.test, summary)


def test_intervals_of_few_groups_are_said_to_be_too_narrow(summary: MemberSummary) -> None:
    own = summary.evaluation
    assert own is not None
    assert "They are too narrow, as one of the two classes has only 3 groups." in areas(own).caption
    assert "only 19 texts." in areas(replace(own, groups=None, fewest=19)).caption
    assert "too narrow" not in areas(replace(own, fewest=10)).caption
    assert "too narrow" not in areas(replace(own, groups=None, fewest=20)).caption


def test_too_few_texts_are_no_evidence(summary: MemberSummary) -> None:
    said = confound(evaluated(summary, (0.7, 0.55, 0.85), (0.6, 0.4, 0.8), (0.1, -0.1, 0.3)))
    assert "too few" in said
    assert "no score here is evidence yet" in said


def test_scores_at_chance_are_said_to_be(summary: MemberSummary) -> None:
    nothing = "It is not certain that any score here tells members from non-members better than chance does."
    assert confound(evaluated(summary, (0.55, 0.45, 0.6), (0.5, 0.4, 0.6), (0.05, -0.1, 0.2))) == nothing
    differing = confound(evaluated(summary, (0.55, 0.45, 0.6), (0.9, 0.8, 0.95), (-0.35, -0.4, -0.2)))
    assert differing.startswith(
        f"{nothing} Yet members and non-members differ by themselves: without any model, words and pairs "
    )
    other_way = evaluated(summary, (0.2, 0.1, 0.4), (0.5, 0.4, 0.6), (-0.3, -0.4, -0.2))
    assert confound(other_way) == f"{nothing} All point the other way: members surprise the model more."
    said = headline(replace(summary, evaluation=other_way))
    assert re.match(
        r"No score is sure to tell members from non-members: .*, the best, has AUROC 0\.200 \(0\.100 to 0\.400\); ",
        said,
    )
    assert "without any model, AUROC is 0.500" in said


def test_the_best_was_picked_after_looking(summary: MemberSummary) -> None:
    assert summary.evaluation is not None
    assert "is the best of 16 scores, picked after looking" in picked(summary.evaluation)


def test_a_test_says_what_it_proves(summary: MemberSummary) -> None:
    test = summary.test
    assert test is not None
    said = verdict(test, summary)
    assert "If they are of the same kind and time, this is evidence that the model saw suspect texts" in said
    none = verdict(replace(test, p=0.3), summary)
    assert "not likelier to the model than held-out ones beyond chance: p = 0.3." in none
    assert "no evidence that the model did not see them" in none
    other = verdict(replace(test, blind=0.01), summary)
    assert other.startswith("The held-out texts are not of the same distribution as the suspect ones")
    assert "proves nothing about the model" in other
    assert "evidence that the model saw" not in other


@pytest.mark.parametrize(
    ("combined", "single", "often"), [(16, 16, False), (17, 9, True), (4, 17, True), (0, 4, False)]
)
def test_a_check_that_finds_too_much_is_told(summary: MemberSummary, combined: int, single: int, often: bool) -> None:
    assert summary.test is not None
    found = FalsePositives(trials=200, splits=21, single=single, combined=combined)
    test = replace(summary.test, false_positives=found)
    assert f"in {combined} of 200 trials, and a single split in {single} of 200" in check(test)
    assert check(test).endswith("That is too often.") == often
    assert ("not to be relied on here" in verdict(test, summary)) == often


def test_members_and_non_members_that_differ_by_themselves_prove_nothing_together(summary: MemberSummary) -> None:
    test = summary.test
    assert test is not None
    apart = evaluated(summary, (0.98, 0.95, 1.0), (0.6, 0.52, 0.68), (0.38, 0.3, 0.45))
    said = verdict(test, replace(summary, evaluation=apart, held_out=0))
    assert said.endswith("the p-value by itself is no evidence that the model saw them.")
    assert said != verdict(test, replace(summary, evaluation=apart, held_out=7)), "others than the non-members"


def test_a_test_says_what_is_tested_against_what(stored: StoredMembership) -> None:
    manifest, summary = stored.manifest, stored.summary
    assert sides(manifest, summary) == "Suspect: the members; held out: unseen.jsonl."
    assert sides(replace(manifest, held_out=None), summary) == "Suspect: the members; held out: the non-members."
    assert sides(manifest, replace(summary, members=0)).startswith("Suspect: all texts;")
    matched = sides(replace(manifest, match=["length"]), summary)
    assert matched == "Suspect: the members; held out: unseen.jsonl. All of them, also those without a match."


def test_scores_alone_are_no_evidence(tmp_path: Path) -> None:
    alone = membership(tmp_path / "run", labels=False, held_out=0, quick=True).summary
    assert headline(alone) == "24 texts scored, which alone is no evidence that the model saw them."
    assert "--held-out" in lede(alone)[-1]


def test_shares_of_found_members_need_enough_non_members(summary: MemberSummary, tmp_path: Path) -> None:
    assert summary.evaluation is not None
    few = thresholds(summary.evaluation, intervals=True)
    assert few.columns == ("score", "precision", "recall", "F 0.1")
    assert "TPR at 1% FPR needs 100 non-members; there are 12." in few.caption
    assert "TPR at 0.1% FPR needs 1,000 non-members; there are 12." in few.caption
    more = membership(tmp_path / "run", texts=220).summary.evaluation
    assert more is not None
    many = thresholds(more, intervals=False)
    assert many.columns == ("score", "TPR at 1% FPR", "precision", "recall", "F 0.1")
    assert "needs 100" not in many.caption
    assert [row[0] for row in many.rows][-4:] == ["All together", "No model", "Random", "Majority"]


def test_every_score_says_which_direction_means_seen(stored: StoredMembership) -> None:
    assert stored.summary.evaluation is not None
    told = {row[0]: row[1] for row in areas(stored.summary.evaluation).rows}
    assert (told["Loss"], told["Min-K%++ 20"], told["Reference"]) == ("lower", "higher", "higher")
    meant = {row[0]: row[2] for row in meanings(stored.manifest).rows}
    assert {name: meant[name] for name in told} == told
    assert "Best window" in meant
    assert {row[0] for row in spread_table(stored.summary, whole=False).rows} >= {"Best window", "Loss"}


def test_facts_say_how_texts_were_read_and_what_it_cost(stored: StoredMembership) -> None:
    said = dict(facts(stored.manifest, stored.summary, "ab" * 32))
    assert "texts in several windows of 1,024 tokens, which begin 512 apart" in said["Read"]
    assert "Nothing is cut off" in said["Read"]
    reference = stored.manifest.reference
    assert reference is not None
    other = dict(facts(replace(stored.manifest, reference=replace(reference, bos_token=None)), stored.summary))
    assert other["Read"].endswith("apart; the first token of a text has no score, as no BOS stands before it.")
    assert (
        said["ReCaLL"] == "h024 stands before every text, 12 of 19 tokens; it is left out of every evaluation and test"
    )
    assert "shorter than one have no number" in said["Extraction"]
    assert re.match(r"token evaluations: the texts \d+, them in lowercase \d+, them after the prefix", said["Cost"])
    assert "12 members, 12 non-members; dealt into 5 parts by 7 groups" in said["Evaluated"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (1.0, "1"), (0.5, "0.500"), (0.99996, "0.99996"), (0.9994, "0.999"), (0.0632, "0.0632")],
)
def test_only_exactly_one_prints_as_one(value: float, shown: str) -> None:
    assert area(value) == shown
