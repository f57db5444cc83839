"""Scored submissions in words and tables, for the terminal and for their page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rote.models.base import title_of
from rote.report.keys import derived, mark
from rote.report.text import numbers
from rote.store.submissions import Costs, ScoreResult, Submission

INTERVALS = "95% Wilson intervals, taking the examples as a random sample."
TENTHS = 10
"""Rows of a table of budgets."""

MEANS = (
    "The guesses are walked in order, most confident first. Recall is the share of the examples solved, at the last "
    "right guess that is made with fewer wrong ones than are allowed. A repeated wrong guess counts each time, a "
    "repeated right one is free."
)
ORACLE = "as if the corpus could be asked about every guess, so that wrong ones cost nothing"


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """`columns` and `rows` are text; the first column says what a row is of."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


def best(score: ScoreResult) -> Submission:
    """The submission with the highest recall; the first of several."""
    return max(score.submissions, key=lambda one: one.recall.solved)


def label(score: ScoreResult, one: Submission) -> str:
    """What a submission is called: the last part of its path, and where there are several its letter first."""
    own = mark(one.name, numbers.literal(title_of(one.name, None)), "title")
    return own if len(score.submissions) == 1 else f"{numbers.name(one.key)} {own}"


def headline(score: ScoreResult) -> str:
    first, many = best(score), len(score.submissions) > 1
    words = f"Recall at {numbers.counted(score.errors, 'error')}: {numbers.chance(first.recall.share)}"
    return f"{words}, the best of these: {label(score, first)}." if many else f"{words}."


def lede(score: ScoreResult) -> list[str]:
    """What the headline rests on."""
    one, examples = best(score), numbers.counted(score.answers.examples, "example")
    low, high = one.recall.interval
    ended = one.counted < one.guesses or one.wrong >= score.errors
    sentences = [
        f"With fewer than {numbers.count(score.errors)} wrong guesses, {label(score, one)} solves "
        f"{numbers.count(one.recall.solved)} of {examples}; 95% Wilson interval {numbers.percent(low)} to "
        f"{numbers.percent(high)}, taking the examples as a random sample.",
        f"It makes {numbers.counted(one.guesses, 'guess', 'guesses')} at "
        f"{numbers.counted(one.examples_guessed, 'example')}. "
        + (
            f"The first {numbers.count(one.counted)} count, of which the last is the wrong one that ends it."
            if ended
            else "All count: fewer than allowed are wrong."
        )
        + ("" if one.precision is None else f" Their precision is {numbers.percent(one.precision)}."),
    ]
    if ended:
        sentences.append(
            f"All guesses together solve {numbers.percent(one.recall_all.share)} of the examples, with a precision of "
            f"{numbers.percent(one.precision_all)}."
        )
    if one.costs is not None:
        sentences.append(
            f"The last guess was found after {numbers.duration(one.costs.last_seconds)} and "
            f"{numbers.counted(one.costs.last_token_evals, 'token evaluation')}."
        )
    return [*sentences, *_settings(score)]


def _settings(score: ScoreResult) -> Iterator[str]:
    """What was asked for beyond the usual."""
    answers = score.answers
    if answers.compared < answers.tokens:
        yield (
            f"Only the last {numbers.count(answers.compared)} of the {numbers.count(answers.tokens)} tokens of an "
            "answer are compared, as in the public challenge."
        )
    within = [numbers.duration(score.seconds)] if score.seconds is not None else []
    if score.token_evals is not None:
        within.append(numbers.counted(score.token_evals, "token evaluation"))
    if within:
        late = ", ".join(
            f"{numbers.count(one.late)}{f' of {numbers.name(one.key)}' if len(score.submissions) > 1 else ''}"
            for one in score.submissions
        )
        yield f"Only guesses that were found within {' and '.join(within)} count; later ones, left out: {late}."
    if score.speed != 1:
        yield f"Seconds are those of the attack times {numbers.setting(score.speed)}."


def facts(score: ScoreResult) -> list[tuple[str, str]]:
    """What the numbers rest on, as (name, value)."""
    answers = score.answers
    given = "; ".join(
        numbers.name(one.name) if len(score.submissions) == 1 else f"{numbers.name(one.key)} {numbers.name(one.name)}"
        for one in score.submissions
    )
    return [
        ("Guesses", given),
        ("Answers", f"{numbers.name(answers.name)}, SHA-256 {numbers.short(answers.sha256)}"),
        (
            "Examples",
            f"{numbers.count(answers.examples)}, with answers of {numbers.counted(answers.tokens, 'token')}",
        ),
        ("Errors", f"{numbers.count(score.errors)}: the last of them ends it"),
        ("Intervals", INTERVALS),
    ]


def score_tables(score: ScoreResult) -> list[ScoreTable]:
    return [_submissions(score), _by_errors(score), *_by_cost(score)]


def _submissions(score: ScoreResult) -> ScoreTable:
    rows = [
        [
            label(score, one), numbers.percent(one.recall.share), "–".join(map(numbers.percent, one.recall.interval)),
            numbers.percent(one.precision), numbers.count(one.guesses), numbers.count(one.counted),
            numbers.count(one.wrong), numbers.count(one.examples_guessed), numbers.percent(one.recall_all.share),
            numbers.percent(one.precision_all),
        ]
        for one in score.submissions
    ]  # fmt: skip
    return ScoreTable(
        title=f"at {numbers.counted(score.errors, 'error')}",
        columns=(
            "submission", "recall", "95% interval", "precision", "guesses", "that count", "wrong", "examples guessed",
            "recall of all", "precision of all",
        ),
        rows=rows,
        caption=(
            "Precision: right guesses, without repeated ones, among these and the wrong ones. Recall and precision of "
            "all: as if no number of errors ended it."
        ),
    )  # fmt: skip


def _by_errors(score: ScoreResult) -> ScoreTable:
    levels = _levels(score)
    return ScoreTable(
        title="recall by the number of errors that are allowed",
        columns=("submission", *map(numbers.count, levels)),
        rows=[[label(score, one), *(_recall_at(one, level) for level in levels)] for one in score.submissions],
        caption="At the last right guess with fewer wrong ones before it.",
    )


def _levels(score: ScoreResult) -> list[int]:
    """1, 2, 5, 10 and so on as far as there are errors; and those that are allowed."""
    most = max(score.errors, *(one.wrong for one in score.submissions))
    usual = [step * 10**power for power in range(len(str(most)) + 1) for step in (1, 2, 5)]
    end = next(level for level in usual if level >= most)
    other = [derived(level, f"levels/{level}", score.errors) for level in usual if level <= end]
    return sorted({*(level for level in other if level != score.errors), score.errors})


def _recall_at(one: Submission, errors: int) -> str:
    point = next((point for point in reversed(one.curve) if point.errors < errors), None)
    return numbers.percent(derived(0.0, "none/recall", one.guesses) if point is None else point.recall)


def _by_cost(score: ScoreResult) -> Iterator[ScoreTable]:
    for one in score.submissions:
        if one.costs is not None:
            yield _cost_table(score, one, one.costs)


def _cost_table(score: ScoreResult, one: Submission, costs: Costs) -> ScoreTable:
    """Every tenth of the time, and of the evaluations."""
    step = len(costs.seconds) // TENTHS
    rows = [
        [
            numbers.duration(time.budget), numbers.percent(time.recall), numbers.percent(time.oracle_recall),
            numbers.count(work.budget), numbers.percent(work.recall), numbers.percent(work.oracle_recall),
        ]
        for time, work in zip(costs.seconds[step - 1 :: step], costs.token_evals[step - 1 :: step], strict=True)
    ]  # fmt: skip
    return ScoreTable(
        title=f"recall by cost: {label(score, one)}",
        columns=(
            "within", f"at {numbers.counted(score.errors, 'error')}", "errors free", "within evaluations",
            f"at {numbers.counted(score.errors, 'error')}", "errors free",
        ),
        rows=rows,
        caption=f"Of the guesses that were found by then, in the order of all. Errors free: {ORACLE}.",
    )  # fmt: skip
