"""What servers list for the tokens of a prompt, as numbers: their own log-probs and those of the likeliest tokens.

A reader takes a reply's JSON apart for one prompt and raises `Odd` where it is not what was asked for, since a number
that stands at another token's place looks like any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOTHING = -9999.0
"""What vLLM writes in the place of minus infinity, which JSON does not have."""

SLACK = 1e-3
"""By how much rounding may lift a probability, or the sum of several."""


class Odd(Exception):
    """A reply that cannot be used, in words: a clause that goes on after the server's name, and then what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Of some neighbouring tokens of a prompt; as `rote.listed.Listed` has it."""

    own: NDArray[np.float64]
    values: NDArray[np.float64]
    ids: NDArray[np.int64]
    whole: NDArray[np.bool_]
    ranks: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class _One:
    """Of one token: its log-prob and the likeliest tokens', as (log-prob, id) or (log-prob, -1), falling."""

    own: float
    listed: list[tuple[float, int]]
    whole: bool
    rank: int = 0


def first_choice(content: Any) -> dict[str, Any] | None:
    choices = content.get("choices") if isinstance(content, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else None


# --- vLLM: a list of {token id: {logprob, rank, decoded_token}}, the first of them null


def read_vllm(content: Any, tokens: Sequence[int], first: int, count: int) -> Lists:
    """Of `tokens`, which were the prompt, from the one at `first` on; `count` log-probs were asked for."""
    choice = first_choice(content) or {}
    places = choice.get("prompt_logprobs") or (content.get("prompt_logprobs") if isinstance(content, dict) else None)
    if not isinstance(places, list):
        raise Odd(
            "lists no prompt_logprobs, which vLLM servers do: where it is another server, one that echoes prompts with "
            "their log-probs is asked as server:http://HOST/v1/NAME"
        )
    if len(places) != len(tokens):
        raise Odd(
            f"lists log-probs of {len(places)} tokens, and the prompt has {len(tokens)}: it cuts prompts short, or "
            "adds to them; start it without such an option"
        )
    for place in range(max(1, first), len(tokens)):
        if not isinstance(places[place], dict) or str(tokens[place]) not in places[place]:
            raise Odd(
                f"lists other tokens than the prompt's from place {place + 1} on: token {tokens[place]} is not among "
                "them; it must not change prompts"
            )
    return _lists([_of_ids(places[place], tokens[place], count) for place in range(first, len(tokens))], count, True)


def _of_ids(entries: Mapping[str, Any], token: int, count: int) -> _One:
    told = {int(name): entry for name, entry in entries.items() if name.isdecimal() and isinstance(entry, dict)}
    if len(told) < len(entries):
        raise Odd("lists something other than tokens by their ids: it must be a vLLM server")
    found = {name: log_prob_of(entry.get("logprob")) for name, entry in told.items()}
    own = found[token]
    rank = told[token].get("rank")
    if len(found) > count:  # it stands there in addition, as it is none of the likeliest
        del found[token]
    listed = sorted(((value, name) for name, value in found.items()), key=lambda each: (-each[0], each[1]))
    return _One(own, listed, len(listed) == count, rank if isinstance(rank, int) and rank > 0 else 0)


# --- servers that echo: tokens, token_logprobs and top_logprobs, as texts


def read_echo(content: Any, pieces: Sequence[str], first: int, count: int, opener: str | None) -> Lists:
    """The same; `pieces` are the texts of the prompt's tokens, without `opener`, the BOS that the server puts there."""
    listed = (first_choice(content) or {}).get("logprobs")
    columns = [listed.get(name) if isinstance(listed, dict) else None for name in ("tokens", "token_logprobs")]
    tops = listed.get("top_logprobs") if isinstance(listed, dict) else None
    if not all(isinstance(column, list) for column in (*columns, tops)):
        raise Odd(
            "does not echo the prompt with its log-probs: it must be one that takes echo and logprobs together "
            "(llama-cpp-python's does with --logits_all true); vLLM servers are asked as vllm:http://HOST/v1/NAME"
        )
    texts, own = columns
    assert isinstance(texts, list)
    assert isinstance(own, list)
    assert isinstance(tops, list)
    if len(texts) > len(pieces) and opener is not None and texts[0] == opener:
        texts, own, tops = texts[1:], own[1:], tops[1:]
    if min(len(texts), len(own), len(tops)) < len(pieces):
        raise Odd(
            f"echoes {len(texts)} tokens of a prompt that has {len(pieces)}: it cuts prompts short, or has another "
            "tokenizer; name its own"
        )
    place = next((i for i, piece in enumerate(pieces) if not _same(texts[i], piece, i)), None)
    if place is not None:
        raise Odd(
            f"has other tokens: its token {place + 1} is {texts[place]!r}, and ours is {pieces[place]!r}; name the "
            "server's own tokenizer"
        )
    return _lists([_of_texts(own[i], tops[i], texts[i], count) for i in range(first, len(pieces))], count, False)


def _same(theirs: Any, ours: str, place: int) -> bool:
    """Whether two texts stand for one token. Parts of a character have none; a first space may be the tokenizer's."""
    if not isinstance(theirs, str):
        return False
    theirs, ours = theirs.replace("\ufffd", ""), ours.replace("\ufffd", "")
    return theirs == ours or not theirs or not ours or (place == 0 and theirs.strip() == ours.strip())


def _of_texts(own: Any, entries: Any, text: str, count: int) -> _One:
    if own is None or not isinstance(entries, dict):
        raise Odd(
            "lists no log-prob for a token of the prompt: servers have none for its first, so give every example a "
            "prefix; one that has none for others cannot be used"
        )
    value = log_prob_of(own)
    found = {name: log_prob_of(each) for name, each in entries.items()}
    others = sorted((each for name, each in found.items() if name != text), reverse=True)
    beyond = len(found) > count  # its own token stands there in addition
    listed = others if beyond else sorted(found.values(), reverse=True)
    # Tokens with the same text are one entry. If its own is the least of `count` entries, it may be beyond them, and
    # two others one entry.
    whole = len(listed) == count and (beyond or (len(others) > 0 and value > others[-1]))
    return _One(value, [(each, -1) for each in listed], whole)


# --- both


def log_prob_of(value: Any) -> float:
    """A log-prob as JSON has it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise Odd(f"lists {value!r} as a log-prob: the model computes no numbers there; its log may say why")
    if value > SLACK:
        raise Odd(
            f"lists {value:.4g} as a log-prob, which is above 0: it must list raw log-probs (vLLM: --logprobs-mode "
            "raw_logprobs, its default)"
        )
    return -math.inf if value <= NOTHING else min(float(value), 0.0)


def _lists(found: Sequence[_One], count: int, ranked: bool) -> Lists:
    values = np.full((len(found), count), -np.inf)
    ids = np.full((len(found), count), -1, dtype=np.int64)
    for row, one in enumerate(found):
        for column, (value, name) in enumerate(one.listed[:count]):
            values[row, column], ids[row, column] = value, name
    own = np.array([one.own for one in found])
    whole = np.array([one.whole for one in found])
    _refuse_processed(own, values, whole)
    ranks = np.array([one.rank for one in found], dtype=np.int64) if ranked and all(one.rank for one in found) else None
    return Lists(own, values, ids, whole, ranks)


def _refuse_processed(own: NDArray[np.float64], values: NDArray[np.float64], whole: NDArray[np.bool_]) -> None:
    """Log-probs after truncation have tokens that cannot come; no model's own have, among so few of the likeliest."""
    raw = "it must list raw log-probs (vLLM: --logprobs-mode raw_logprobs, its default)"
    if (values[whole] == -np.inf).any() or (own == -np.inf).any():
        raise Odd(f"lists tokens that cannot come, as after truncation: {raw}")
    if (np.exp(values).sum(1) > 1 + SLACK).any():
        raise Odd(f"lists probabilities that add up to more than 1: {raw}")
