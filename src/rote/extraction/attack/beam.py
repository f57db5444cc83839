"""Plain beam search: at every step the likeliest outputs so far go on, so many of each prefix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rote.extraction.attack.writing import Floats, Ints, Spine, Writer, finished


def beams(writer: Writer, examples: Sequence[int], width: int) -> list[list[Spine]]:
    """The `width` likeliest outputs of each example that a beam of that width finds, likeliest first.

    Equally likely ones stand by their parent, then by their token. The writer must list `width` tokens. What it keeps
    for them is given back.
    """
    length = writer.length
    begun = writer.begin(examples)
    first = max(len(s.entries) for s in begun)
    owner = np.arange(len(examples))  # the example of each row, by its place
    history = np.full((len(examples), first + length), -1, dtype=np.int64)
    count = np.array([len(s.entries) for s in begun])
    for row, spine in enumerate(begun):
        history[row, : count[row]] = spine.entries
    tokens, log_probs = np.zeros((len(examples), 0), dtype=np.int64), np.zeros((len(examples), 0))
    choices = np.concatenate([s.choices for s in begun])
    listed = np.concatenate([s.choice_log_probs for s in begun])
    entropies = np.stack([s.entropies for s in begun])
    kept = [s.entries for s in begun]
    for written in range(1, length + 1):
        parent, taken = _best(owner, log_probs.sum(1)[:, None] + listed, choices, width)
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
        entropies = np.column_stack([entropies, entropy])
        count = count + 1
    writer.give(*kept)
    found: list[list[Spine]] = [[] for _ in examples]
    for row, i in enumerate(owner.tolist()):
        found[i].append(finished(examples[i], tokens[row], log_probs[row], entropies[row]))
    return found


def cost(prefix: int, length: int, width: int, vocabulary: int) -> int:
    """Token evaluations of one example's beams: positions fed, BOS not counted."""
    total, alive = prefix, 1
    for _ in range(length - 1):
        alive = min(width, alive * min(width, vocabulary))
        total += alive
    return total


def _best(owner: Ints, values: Floats, choices: Ints, width: int) -> tuple[Ints, Ints]:
    """(row, column) of the children that go on: of each owner, in its order, the `width` likeliest."""
    row = np.repeat(np.arange(len(values)), values.shape[1])
    column = np.tile(np.arange(values.shape[1]), len(values))
    flat = values.ravel()
    order = np.lexsort((choices.ravel(), row, -flat, owner[row]))
    order = order[flat[order] > -np.inf]
    mine = owner[row[order]]
    starts = np.searchsorted(mine, mine)  # sorted by owner: where its children begin
    order = order[np.arange(len(order)) - starts < width]
    return row[order], column[order]
