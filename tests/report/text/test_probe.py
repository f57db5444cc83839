"""The words of probes: what a hit is worth is said beside every headline, and the rule beside every result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rote.report.text.probe import base_rate, best, headline, judged_of, lede, main, meaning_of, rule, subset, title_of
from rote.report.text.probecosts import cost, estimates, spent, total
from rote.report.text.probefacts import facts
from rote.report.text.probetables import (
    by_label,
    by_repetitions,
    confusion,
    differences,
    filters,
    judged,
    outcomes,
    overlap,
    positions,
    probed,
    screen_tables,
    words,
)
from rote.store.member import Measured
from rote.store.probe import ProbeManifest, ProbeSummary
from rote.store.probing import ProbeView
from tests.report.probes import probe


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> ProbeView:
    return probe(tmp_path_factory.mktemp("probe") / "run", membership=True).view


@pytest.fixture
def manifest(view: ProbeView) -> ProbeManifest:
    return view.manifest


@pytest.fixture
def summary(view: ProbeView) -> ProbeSummary:
    return view.summary


def test_the_headline_says_how_many_are_flagged_and_by_what(manifest: ProbeManifest, summary: ProbeSummary) -> None:
    flagged = summary.probed[0].flagged
    said = headline(manifest, summary)
    assert said == f"{flagged} of 40 passages flagged: at least 2 of their words came back from chat-0."
    chosen = headline(replace(manifest, hits=None), summary)
    assert chosen.endswith("as many of their words came back from chat-0 as was set on other texts, or more.")


@pytest.mark.parametrize(
    ("method", "labels", "told"),
    [
        ("prefix", True, "flagged: chat-0 went on with them as they do, by more words than was set on other texts."),
        ("prefix", False, "none flagged or cleared: on average"),
        ("decop", True, "flagged: chat-0 picked the original among paraphrases in more orders than was set on"),
        ("decop", False, "of the orders on average, and no threshold was set."),
        ("slot", True, "flagged: the word asked for came back from chat-0."),
    ],
)
def test_every_method_has_a_headline(method: str, labels: bool, told: str, tmp_path: Path) -> None:
    own = probe(tmp_path / "run", methods=(method,), labels=labels, targets=1, texts=8).view  # type: ignore[arg-type]
    assert told in headline(own.manifest, own.summary)


def test_what_a_hit_is_worth_comes_first(manifest: ProbeManifest, summary: ProbeSummary) -> None:
    first, base, *_, last = lede(manifest, summary)
    assert first.startswith(
        "A word that comes back shows that the model saw the passage only as far as the word cannot"
    )
    assert "Words that small-0 guessed were not asked for" in first
    assert base.startswith("The base rate: of ")
    assert last == "A passage that is not flagged may have been seen all the same."
    unfiltered = lede(manifest, replace(summary, filters=[]))[0]
    assert "No other model was asked which words can be guessed (--filter)" in unfiltered
    asked = lede(replace(manifest, unfiltered=True), summary)[0]
    assert "were asked for too, and are told apart" in asked


def test_without_labels_the_base_rate_is_said_not_to_be_known(tmp_path: Path) -> None:
    own = probe(tmp_path / "run", labels=False, texts=8).view
    said = lede(own.manifest, own.summary)
    assert said[1].startswith(
        "No text has a label, so no method was held against labels. How many passages that the model never saw would"
    )
    assert not any("base rate" in one for one in said)


def test_the_base_rate_is_that_of_passages_not_seen(summary: ProbeSummary) -> None:
    evaluation = summary.evaluations[0]
    row = judged_of(evaluation, "prob+filter")
    assert row is not None
    changed = replace(row, false_positives=3, true_negatives=7)
    rows = [changed if one.name == row.name else one for one in evaluation.rows]
    said = base_rate(replace(evaluation, rows=rows), main(summary))
    assert said.startswith("The base rate: of 10 passages that the model had not seen, 3 were flagged by Probability")
    assert "of the answers about them were hits" in said


def test_the_best_method_is_held_against_chance(summary: ProbeSummary) -> None:
    evaluation = summary.evaluations[0]
    assert "picked after looking, which flatters it" in best(evaluation)
    assert "It is the best of 5" in best(evaluation)  # neither chance nor membership scores
    unsure = Measured(value=0.9, interval=[0.3, 1.0])
    rows = [replace(row, precision=unsure) if row.true_positives is not None else row for row in evaluation.rows]
    assert best(replace(evaluation, rows=rows)).startswith("No method is sure to be better than flagging at random: ")
    none = [replace(row, precision=None) if row.true_positives is not None else row for row in evaluation.rows]
    assert best(replace(evaluation, rows=none)).startswith("No method flagged any of ")


def test_the_rule_is_printed_with_every_result(view: ProbeView, manifest: ProbeManifest) -> None:
    assert manifest.rule in rule(manifest)
    assert rule(manifest).endswith("and a plural is another word.")


def test_methods_stand_beside_chance_and_membership(manifest: ProbeManifest, summary: ProbeSummary) -> None:
    evaluation = summary.evaluations[0]
    table = judged(evaluation, manifest, intervals=True)
    assert table.columns == ("method", "flagged if", "precision", "recall", "F 0.1", "AUROC")
    names = [row[0] for row in table.rows]
    assert names[:5] == ["Probability, filtered", "Names, filtered", "Slot, filtered", "Prefix", "DE-COP"]
    assert "Member: Min-K% 20" in names[5:-2]
    assert names[-2:] == ["Random", "Majority"]
    chance = table.rows[-2]
    assert "(" not in "".join(chance)  # it is no estimate
    counts = confusion(evaluation, manifest)
    assert "Random" not in [row[0] for row in counts.rows]
    for row in counts.rows:
        assert sum(int(cell.replace(",", "")) for cell in row[1:]) == evaluation.members + evaluation.non_members
    assert "each part is judged by thresholds chosen on the others" in subset(evaluation)
    assert "Thresholds were chosen on 12 passages that are not among them." in subset(
        replace(evaluation, validation=12, parts=None)
    )
    assert "Left out: " in subset(replace(evaluation, unlabelled=3))
    assert "3 without a label" in subset(replace(evaluation, unlabelled=3))


def test_tables_add_up_to_what_was_asked(view: ProbeView, manifest: ProbeManifest, summary: ProbeSummary) -> None:
    asked = outcomes(manifest, summary)
    assert asked.columns[2:] == ("questions", "hits", "misses", "refused", "empty", "malformed", "errors")
    for row in asked.rows:
        total_, *ends = (0 if cell == "–" else int(cell.replace(",", "")) for cell in row[2:])
        assert sum(ends) == total_
    flagged = [row[3] for row in probed(manifest, summary).rows]
    assert flagged == [str(one.flagged) for one in summary.probed]
    alone = replace(manifest, targets=manifest.targets[:1])
    assert outcomes(alone, replace(summary, probed=summary.probed[:5])).columns[0] == "method"


def test_what_is_not_there_has_no_table(manifest: ProbeManifest, summary: ProbeSummary) -> None:
    bare = replace(
        summary, differences=[], filters=[], positions=[], words=None, evaluations=[],
        probed=[replace(one, by_label=None, by_repetitions=None) for one in summary.probed],
    )  # fmt: skip
    for table in (by_label, by_repetitions, differences, filters, positions, words):
        assert table(manifest, summary) is not None
        assert table(manifest, bare) is None
    assert overlap(replace(summary.evaluations[0], overlap=[]), manifest) is None
    assert [table.title for table in screen_tables(manifest, bare)] == [
        "what came back", "how questions ended", "what it cost",
    ]  # fmt: skip


def test_costs_are_told_beside_what_was_expected(manifest: ProbeManifest, summary: ProbeSummary) -> None:
    row = next(row for row in spent(manifest, summary).rows if row[0] == "chat-0")
    expected = sum(one.cost for one in summary.estimates if one.cost is not None)
    assert row[-1] == f"${expected:.3f}"
    assert row[-2] == "$0.0123"
    assert "3 answers came without a count of tokens" in spent(manifest, summary).caption
    assert "at most $0.0123 more for attempts without an answer" in cost(summary)
    free = [replace(one, price=None, cost=None, lost=None) for one in summary.spent]
    assert "no price is known" in cost(replace(summary, spent=free))
    gratis = [replace(one, cost=0.0, lost=None) for one in summary.spent]
    assert "; $0; " in cost(replace(summary, spent=gratis))


def test_an_estimate_says_what_it_may_cost(summary: ProbeSummary) -> None:
    asked = sum(one.questions - one.known for one in summary.estimates)
    paid = [one for one in summary.estimates if one.cost is not None]
    most = sum(one.cost or 0 for one in paid)
    said = total(summary.estimates)
    assert said == (
        f"{asked:,} questions to ask, for at most ${most:.3f}, and what is asked of models without a price."
    )
    assert total(paid).endswith(f"for at most ${most:.3f}.")
    assert total([replace(one, cost=None) for one in paid]).endswith("; no price is known.")
    assert len(estimates(summary.estimates).rows) == len(summary.estimates)


def test_facts_say_what_the_reference_is(view: ProbeView, manifest: ProbeManifest, summary: ProbeSummary) -> None:
    said = dict(facts(manifest, summary, view.seal))
    assert said["Reference"].startswith("bundled, a masked model (3,000,000 parameters, 8,000 tokens)")
    assert said["Targets"].startswith("chat-0, served at http://host-0:8000/v1")
    assert "run here: 500,000 parameters" in said["Filter"]
    assert said["Prompts"] == "passage, complete, choose, paraphrase, pick, guess, list"
    assert "names and word classes by lists of closed-class words" in said["Words"]
    assert said["Thresholds"].startswith("flagged from 2 words on; others chosen part by part")
    assert manifest.reference is not None
    causal = replace(manifest, reference=replace(manifest.reference, kind="causal", substitutes=20))
    told = dict(facts(causal, summary))["Reference"]
    assert "a causal model" in told
    assert "stands in for a masked one: the text with the word is compared with the text with 20 others" in told


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("prob", "Probability"), ("person+filter", "Names, filtered"), ("slot+class", "Slot, content words"),
        ("slot+class+filter", "Slot, content words, filtered"), ("member:loss", "Member: Loss"),
        ("member:other\x1b", "Member: other␛"), ("unheard", "unheard"), ("decop", "DE-COP"),
    ],
)  # fmt: skip
def test_methods_have_names(name: str, title: str) -> None:
    assert title_of(name) == title
    assert isinstance(meaning_of(name), str)
