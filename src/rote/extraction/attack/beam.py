"""Beam search: plain, or with beams that examples share.

A plain beam has the same width everywhere. But most of what a model knows by heart it goes through without a doubt, and
a few places decide: there the right output is one of several, and may not be the likeliest for a while. So in a shared
beam all examples of a batch take each step together, and what the step may cost goes to the outputs that hold the
largest share of their own example's mass, whichever example that is: where one is sure, another goes on with more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rote.extraction.attack.writing import Bools, Floats, Ints, Spine, Writer, finished

LAST = 8  # outputs of an example that a shared beam keeps at the end, where more cost nothing
EARLY = 0.75  # how much more than its share the first step may cost: what goes wrong goes wrong early
GRAIN = 2  # decimals of a share's logarithm: what two computations of one logit differ by should not decide

Select = Callable[[Ints, Ints, Floats, int, int], Bools]
"""Given children that are sorted by example and then likeliest first, their example, their rank in it and log-mass, how
many tokens they have and what is spent: which of them go on."""


def plain_beams(writer: Writer, examples: Sequence[int], width: int) -> tuple[list[Spine], int]:
    """(the `width` outputs of each example that a beam of that width ends with, likeliest first; token evaluations).

    Equally likely ones stand by their parent, then by their token. The writer must list `width` tokens.
    """
    return _beams(writer, examples, lambda owner, rank, mass, written, spent: rank < width)


def shared_beams(writer: Writer, examples: Sequence[int], evals: int) -> tuple[list[Spine], int]:
    """The same with beams that the examples share, for at most `evals` token evaluations.

    Every example goes on with its likeliest output at the least: `evals` must pay for that.
    """

    def worthiest(owner: Ints, rank: Ints, mass: Floats, written: int, spent: int) -> Bools:
        if written == writer.length:
            return rank < LAST
        total = np.full(len(examples), -np.inf)
        np.logaddexp.at(total, owner, mass)
        share = np.round(mass - total[owner], GRAIN)
        steps, left = writer.length - written, evals - spent
        early = 1 + EARLY * steps / (writer.length - 1)
        rows = max(len(examples), min(int(early * left / steps), left - (steps - 1) * len(examples)))
        goes_on = np.zeros(len(rank), dtype=np.bool_)
        goes_on[np.lexsort((np.arange(len(rank)), -share, rank > 0))[:rows]] = True
        return goes_on

    return _beams(writer, examples, worthiest)


def plain_cost(prefix: int, length: int, width: int, vocabulary: int) -> int:
    """Token evaluations of one example's plain beam: positions fed, BOS not counted."""
    total, alive = prefix, 1
    for _ in range(length - 1):
        alive = min(width, alive * min(width, vocabulary))
        total += alive
    return total


def _beams(writer: Writer, examples: Sequence[int], select: Select) -> tuple[list[Spine], int]:
    """Outputs by example, likeliest first, and the positions that were fed. What was kept for them is given back."""
    length = writer.length
    begun = writer.begin(examples)
    spent = sum(len(writer.prefixes[e]) for e in examples)
    owner = np.arange(len(examples))  # the example of each row, by its place
    count = np.array([len(s.entries) for s in begun])
    history = np.full((len(examples), int(count.max()) + length), -1, dtype=np.int64)
    for row, spine in enumerate(begun):
        history[row, : count[row]] = spine.entries
    tokens, log_probs = np.zeros((len(examples), 0), dtype=np.int64), np.zeros((len(examples), 0))
    choices, listed = np.stack([s.choices for s in begun]), np.stack([s.choice_log_probs for s in begun])
    entropies = np.stack([s.entropies for s in begun])
    kept = [s.entries for s in begun]
    for written in range(1, length + 1):
        parent, taken = _children(owner, log_probs.sum(1)[:, None] + listed, choices, select, written, spent)
        log_probs = np.column_stack([log_probs[parent], listed[parent, taken]])
        tokens = np.column_stack([tokens[parent], choices[parent, taken]])
        owner, history, count, entropies = owner[parent], history[parent], count[parent], entropies[parent]
        if written == length:
            break
        place = writer.take(len(owner))
        kept.append(place)
        history[np.arange(len(owner)), count] = place
        labels = [str(examples[i]) for i in owner.tolist()]
        choices, listed, entropy = writer.step(tokens[:, -1], history, count, labels)
        spent += len(owner)
        entropies, count = np.column_stack([entropies, entropy]), count + 1
    writer.give(*kept)
    whole = enumerate(owner.tolist())
    return [finished(examples[i], tokens[row], log_probs[row], entropies[row]) for row, i in whole], spent


def _children(owner: Ints, mass: Floats, choices: Ints, select: Select, written: int, spent: int) -> tuple[Ints, Ints]:
    """(row, column) of the children that go on."""
    row = np.repeat(np.arange(len(mass)), mass.shape[1])
    column = np.tile(np.arange(mass.shape[1]), len(mass))
    flat = mass.ravel()
    order = np.lexsort((choices.ravel(), row, -flat, owner[row]))
    order = order[flat[order] > -np.inf]
    mine = owner[row[order]]
    rank = np.arange(len(order)) - np.searchsorted(mine, mine)
    order = order[select(mine, rank, flat[order], written, spent)]
    return row[order], column[order]
