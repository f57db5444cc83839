"""What needs no text: members told by a coin, or all called what most are."""

from __future__ import annotations

import numpy as np

from rote.analysis.member.measures import Bools, f_beta
from rote.store.member import Evaluated, Measured


def by_chance(member: Bools) -> Evaluated:
    """Texts in random order, each called a member with probability 1/2: what is expected of these texts, exactly."""
    from scipy.stats import binom

    members, others = int(member.sum()), int((~member).sum())
    found, wrong = np.arange(members + 1), np.arange(others + 1)
    chance = binom.pmf(wrong, others, 0.5)
    f = sum(
        float(odds) * float(chance @ f_beta(np.array(k), k + wrong, np.array(members)))
        for k, odds in zip(found, binom.pmf(found, members, 0.5), strict=True)
        if k and odds > 1e-12
    )
    return Evaluated(
        name="random",
        auroc=_known(0.5),
        tpr_1=_known((others // 100 + 1) / (others + 1)) if others >= 100 else None,
        tpr_01=_known((others // 1000 + 1) / (others + 1)) if others >= 1000 else None,
        precision=_known(members / len(member)),
        recall=_known(0.5),
        f_beta=_known(f),
    )


def by_majority(member: Bools) -> Evaluated:
    """All texts are called what most are: members where there are as many of both."""
    members, others = int(member.sum()), int((~member).sum())
    all_called = members >= others
    f = float(f_beta(np.array(members), np.array(len(member)), np.array(members)))
    return Evaluated(
        name="majority",
        auroc=_known(0.5),
        tpr_1=_known(0.0) if others >= 100 else None,
        tpr_01=_known(0.0) if others >= 1000 else None,
        precision=_known(members / len(member)) if all_called else None,
        recall=_known(float(all_called)),
        f_beta=_known(f if all_called else 0.0),
    )


def _known(value: float) -> Measured:
    """A number that follows from the counts of texts: nothing about it is uncertain."""
    return Measured(value=value, interval=[value, value])
