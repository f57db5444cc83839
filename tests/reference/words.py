"""How likely words are, and which are chosen, written out as slowly as possible; nothing here is shared with Rote."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch


def overlapping(offsets: Sequence[tuple[int, int]], start: int, end: int) -> list[int]:
    """Tokens that stand for one of these characters at least, or for none but between two of them."""
    return [
        i
        for i, (a, b) in enumerate(offsets)
        if set(range(a, b)) & set(range(start, end)) or (a == b and start < a < end)
    ]


def window(first: int, last: int, room: int, count: int) -> int:
    """The start of the window with the word in it that has as many tokens before the word as behind it, or nearly."""
    if count <= room:
        return 0
    best = None
    for start in range(count - room + 1):
        before, behind = first - start, start + room - 1 - last
        if before >= 0 and behind >= 0:
            key = (abs(before - behind), before)
            if best is None or key < best[0]:
                best = (key, start)
    assert best is not None
    return best[1]


def masked_score(
    model: Any, tokenizer: Any, text: str, span: tuple[int, int], most: int, slack: float
) -> tuple[float | None, tuple[int, int] | None, int]:
    """One word: its log-likelihood, the least and the largest rank within `slack` of a logit, and its pieces."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=True)
    ids, pieces = list(encoded["input_ids"]), overlapping(encoded["offset_mapping"], *span)
    before, behind = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
    room = most - 2
    if not pieces or len(pieces) > room or any(ids[i] == tokenizer.unk_token_id for i in pieces):
        return None, None, len(pieces)
    start = window(pieces[0], pieces[-1], room, len(ids))
    row = before + ids[start : start + room] + behind
    places = [i - start + 1 for i in pieces]
    hidden = [tokenizer.mask_token_id if i in places else token for i, token in enumerate(row)]
    with torch.no_grad():
        logits = model(torch.tensor([hidden])).logits[0].float()
    total, least, largest = 0.0, 0, 0
    for place in places:
        values = logits[place].tolist()
        own = values[row[place]]
        total += math.log(math.exp(own) / math.fsum(math.exp(v) for v in values))
        least = max(least, sum(v > own + slack for v in values))
        largest = max(largest, sum(v > own - slack and i != row[place] for i, v in enumerate(values)))
    return total, (least, largest), len(pieces)


def causal_totals(
    model: Any, tokenizer: Any, text: str, span: tuple[int, int], *, bos: int | None, substitutes: int, right: int,
    context: int, free: int,
) -> tuple[list[float], int] | None:  # fmt: skip
    """Of the word, and of each substitute: log p of it and what follows, after what stands before; and its pieces."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=True)
    ids, offsets = list(encoded["input_ids"]), encoded["offset_mapping"]
    pieces = overlapping(offsets, *span)
    head = [] if bos is None else [bos]
    left = context - len(head) - free
    if not pieces or len(pieces) > free or (pieces[0] == 0 and not head):
        return None
    covered = {at for i in pieces for at in range(*offsets[i])} - set(range(*span))
    if any(not text[at].isspace() for at in covered) or any(ids[i] == tokenizer.unk_token_id for i in pieces):
        return None
    start = 0
    while pieces[0] - start > left:
        start += max(1, left // 2)
    before = head + ids[start : pieces[0]]
    behind = ids[pieces[-1] + 1 :][: min(right, free - len(pieces))]

    def log_probs(row: list[int]) -> Any:
        with torch.no_grad():
            return model(torch.tensor([row])).logits[0].double().log_softmax(-1)

    def total(candidate: list[int]) -> float:
        row = before + candidate + behind
        told = log_probs(row)
        return math.fsum(float(told[i - 1, row[i]]) for i in range(len(before), len(row)))

    marks = ("Ġ", "▁")
    spaced = tokenizer.convert_ids_to_tokens(ids[pieces[0]]).startswith(marks)
    following = log_probs(before)[-1]
    words = []
    for token in sorted(range(len(following)), key=lambda token: (-float(following[token]), token)):
        name = tokenizer.convert_ids_to_tokens(token)
        if name is None or token in tokenizer.all_special_ids or name.startswith(marks) != spaced:
            continue
        said = tokenizer.decode([token]).strip()
        if said.isalpha() and said.casefold() != text[span[0] : span[1]].casefold():
            words.append(token)
    return [total(ids[pieces[0] : pieces[-1] + 1]), *(total([token]) for token in words[:substitutes])], len(pieces)


# --- choosing


def by_share(values: Sequence[float], share: float) -> list[float]:
    """The values that a share takes from the lowest on, and those that tie with the last of them."""
    left = sorted(values)
    taken: list[float] = []
    while left and (not taken or len(taken) < share * len(values) - 1e-9):
        taken.append(left.pop(0))
    while left and left[0] == taken[-1]:
        taken.append(left.pop(0))
    return taken


def spread(count: int, most: int) -> list[int]:
    """The middle one of each of `most` equal parts of so many things."""
    if count <= most:
        return list(range(count))
    return [math.floor((part + 0.5) * count / most) for part in range(most)]


def rarest(text: str, spans: Sequence[tuple[int, int]], corpus: str) -> list[int | None]:
    """For each word how often the rarest run of three words that it is in stands in the corpus."""
    found: list[int | None] = []
    for place in range(len(spans)):
        counts = []
        for first in range(len(spans) - 2):
            if first <= place <= first + 2:
                run = text[spans[first][0] : spans[first + 2][1]]
                counts.append(sum(corpus.startswith(run, at) for at in range(len(corpus))))
        found.append(min(counts) if counts else None)
    return found
