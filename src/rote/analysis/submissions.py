"""Ordered guesses against the answers: recall at the allowed errors, its curve, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rote.corpus.bench import Guess, Ids
from rote.odds import wilson
from rote.store.submissions import CostPoint, Costs, CurvePoint, Recall, Submission, Submitted

COMPARED = 50
"""Tokens at the end of an answer that a guess must give. As in the public challenge, whose answers have as many."""

BUDGETS = 100
"""Points of a curve against seconds or token evaluations."""


def allowed_errors(examples: int) -> int:
    """A tenth of the examples: 100 of 1,000, as in the public challenge."""
    return math.ceil(examples / 10)


def right(guesses: Sequence[Guess], answers: Ids) -> NDArray[np.bool_]:
    """Which guesses are right: they end with the last 50 tokens of their answer, or with all of a shorter one."""
    made = np.array([guess.suffix for guess in guesses], dtype=np.int64)
    rows = np.array([guess.example for guess in guesses])
    same: NDArray[np.bool_] = (made[:, -COMPARED:] == answers[rows, -COMPARED:]).all(axis=1)
    return same


@dataclass(frozen=True)
class Walk:
    """Guesses in order, held against the answers: of which example each is, and whether it is right."""

    examples: int
    example: NDArray[np.int64]
    correct: NDArray[np.bool_]

    def among(self, kept: NDArray[np.bool_]) -> Walk:
        return replace(self, example=self.example[kept], correct=self.correct[kept])

    def counted(self, errors: int) -> int:
        """How many guesses count: those up to the last error that is allowed."""
        reached = np.flatnonzero(np.cumsum(~self.correct) >= errors)
        return int(reached[0]) + 1 if reached.size else self.correct.size

    def solved(self, errors: int | None = None) -> int:
        """How many examples are solved, with fewer than so many errors before."""
        end = self.correct.size if errors is None else self.counted(errors)
        return len(np.unique(self.example[:end][self.correct[:end]]))

    def first(self) -> NDArray[np.bool_]:
        """The right guesses without those of examples that are solved already."""
        right = np.flatnonzero(self.correct)
        _, places = np.unique(self.example[right], return_index=True)
        mask = np.zeros(self.correct.size, dtype=bool)
        mask[right[places]] = True
        return mask

    def curve(self) -> list[CurvePoint]:
        """Errors and examples solved, wherever there are more of the latter."""
        first = self.first()
        errors, solved = np.cumsum(~self.correct)[first], np.arange(1, int(first.sum()) + 1)
        last = np.append(errors[1:] != errors[:-1], True) if errors.size else np.zeros(0, dtype=bool)
        return [
            CurvePoint(errors=wrong, solved=own, recall=own / self.examples, precision=own / (own + wrong))
            for wrong, own in zip(errors[last].tolist(), solved[last].tolist(), strict=True)
        ]


def recall(solved: int, examples: int) -> Recall:
    return Recall(solved=solved, share=solved / examples, interval=[*wilson(solved, examples)])


def scored(
    submitted: Submitted,
    answers: Ids,
    *,
    key: str,
    errors: int,
    speed: float = 1.0,
    seconds: float | None = None,
    token_evals: int | None = None,
) -> Submission:
    """What guesses come to with fewer than `errors` wrong ones, found within the seconds and the evaluations."""
    walk = Walk(
        len(answers), np.array([guess.example for guess in submitted.guesses]), right(submitted.guesses, answers)
    )
    costs = late = None
    if submitted.found is not None:
        spent = np.array(submitted.found, dtype=np.float64) * (speed, 1.0)
        if seconds is not None or token_evals is not None:
            most = [math.inf if budget is None else budget for budget in (seconds, token_evals)]
            kept: NDArray[np.bool_] = np.all(spent <= most, axis=1)
            walk, spent, late = walk.among(kept), spent[kept], int((~kept).sum())
        costs = _costs(walk, spent, errors)
    end, first = walk.counted(errors), walk.first()
    wrong = ~walk.correct
    return Submission(
        key=key,
        name=submitted.name,
        guesses=walk.correct.size,
        wrong=int(wrong.sum()),
        repeated=int(walk.correct.sum() - first.sum()),
        examples_guessed=len(np.unique(walk.example)),
        counted=end,
        recall=recall(walk.solved(errors), walk.examples),
        precision=_precision(int(first[:end].sum()), int(wrong[:end].sum())),
        recall_all=recall(walk.solved(), walk.examples),
        precision_all=_precision(int(first.sum()), int(wrong.sum())),
        curve=walk.curve(),
        costs=costs,
        late=late,
    )


def _precision(solved: int, wrong: int) -> float | None:
    return solved / (solved + wrong) if solved + wrong else None


def _costs(walk: Walk, spent: NDArray[np.float64], errors: int) -> Costs:
    last = spent.max(axis=0) if len(spent) else np.zeros(2)

    def points(column: int) -> list[CostPoint]:
        made = []
        for part in range(1, BUDGETS + 1):
            budget = float(last[column] * (part / BUDGETS))  # the last is that of the last guess
            within = walk.among(spent[:, column] <= budget)
            solved, oracle = within.solved(errors), within.solved()
            made.append(
                CostPoint(
                    budget=budget,
                    solved=solved,
                    recall=solved / walk.examples,
                    oracle=oracle,
                    oracle_recall=oracle / walk.examples,
                )
            )
        return made

    return Costs(last_seconds=float(last[0]), last_token_evals=int(last[1]), seconds=points(0), token_evals=points(1))
