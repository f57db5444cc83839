"""An attack in words: what it found, what it cost, and how its chances turned out."""

from __future__ import annotations

from rote.errors import counted
from rote.store.attack import AttackManifest, AttackSummary, Calibration

_METHODS = {
    "ranked": "beams that examples share",
    "greedy": "greedy outputs",
    "sample": "sampled outputs",
    "beam": "beam search",
}


def lines(manifest: AttackManifest, summary: AttackSummary) -> list[str]:
    """The sentences that the command prints."""
    told = [
        f"{summary.guesses:,} {'guess' if summary.guesses == 1 else 'guesses'} for {summary.answered:,} of "
        f"{counted(summary.examples, 'example')} ({_METHODS[manifest.method]}).",
        f"{summary.token_evals:,} token evaluations in {summary.seconds:,.1f} seconds; the budget was "
        f"{manifest.budget.told}.",
    ]
    if summary.calibration is not None:
        return [*told, *_calibrated(summary.calibration, summary.expected_right or 0.0)]
    order = "The order is that of the model's own probability, the likeliest guess of every example first"
    why = ": there were no answers to learn chances from." if manifest.method == "ranked" else "."
    return [*told, order + why]


def _calibrated(learnt: Calibration, expected: float) -> list[str]:
    turned_out = learnt.reliability
    return [
        f"The order is by the chance of being right, learnt on {counted(learnt.examples, 'example')} with answers "
        f"({learnt.token_evals:,} token evaluations more); {expected:,.1f} guesses are expected to be right.",
        f"On examples that were not learnt from, chances were off by {turned_out.calibration_error:.3f} on average "
        f"(Brier score {turned_out.brier:.3f}, {turned_out.guesses:,} guesses); for {learnt.ceiling:.1%} of them the "
        "answer was among the candidates at all.",
    ]
