"""Which windows of a scan in stages are scored next, by plain loops over plain lists.

A window is a pair (suffix_start, suffix_end), named by its place in the list of all. What was scored is a dictionary
from windows to `Scored`. The constants of the rule are given, so that a test can vary them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Span = tuple[int, int]


class Scored(NamedTuple):
    """Its stage, for each scheme its log_prob and its tokens' log-probs; the model's own of these, and their ends."""

    stage: int
    log_probs: list[float]
    tokens: list[list[float]]
    base: list[float]
    ends: list[int]  # of the tokens, counted from the suffix's start


class Rule(NamedTuple):
    closer: int
    floor: float
    first: int
    least: int
    reach: tuple[float, float]  # for each token of an average suffix, as `nearly`
    margin: float
    nearly: float
    close: float


def covered(spans: Sequence[Span]) -> set[int]:
    return {place for start, end in spans for place in range(start, end)}


def fewest_tiles(spans: Sequence[Span]) -> int:
    """How few of the spans cover what all of them do: always the one that goes farthest on from the first gap."""
    missing, count = covered(spans), 0
    while missing:
        hole = min(missing)
        missing -= covered([max((span for span in spans if span[0] <= hole < span[1]), key=lambda span: span[1])])
        count += 1
    return count


def readings(span: Span, scored: Scored, floor: float) -> list[tuple[int, int, float]]:
    """Each token's begin and end in the text, and the most that any scheme gives it."""
    read, begin = [], span[0]
    for number, end in enumerate(scored.ends):
        values = []
        for tokens in scored.tokens:
            value = tokens[number]
            if value == -math.inf:
                value = scored.base[number]
            values.append(value)
        read.append((begin, span[0] + end, max(max(values), floor)))
        begin = span[0] + end
    return read


def promise(spans: Sequence[Span], scored: Mapping[int, Scored], window: int, rule: Rule) -> tuple[float, bool, Span]:
    """What an unscored window promises, whether its scored neighbours are close, and which two they are."""
    left = max(other for other in scored if other < window)
    right = min(other for other in scored if other > window)
    begin, end = spans[window]
    value = 0.0
    for token_begin, _, log_prob in readings(spans[left], scored[left], rule.floor):
        if token_begin >= begin:
            value += log_prob
    go_on = max(begin, spans[left][1])
    for token_begin, token_end, log_prob in readings(spans[right], scored[right], rule.floor):
        if token_begin >= go_on and token_end <= end:
            value += log_prob
    common = spans[left][1] - spans[right][0]
    close = common >= rule.close * (spans[left][1] - spans[left][0])
    if close:
        for neighbour in (left, right):
            whole = sum(log_prob for _, _, log_prob in readings(spans[neighbour], scored[neighbour], rule.floor))
            value = max(value, whole)
    return value, close, (left, right)


def learnt(
    spans: Sequence[Span], scored: Mapping[int, Scored], tau: float, number: int, rule: Rule
) -> dict[bool, float]:
    """How far windows may come out above their promise, by whether their neighbours are close."""
    tokens = sum(len(each.ends) for each in scored.values()) / len(scored)
    reach = {False: rule.reach[0] * tokens, True: rule.reach[1] * tokens}
    for stage in range(2, number):
        before = {window: each for window, each in scored.items() if each.stage < stage}
        for window, each in scored.items():
            if each.stage == stage and max(each.log_probs) >= math.log(tau) - rule.nearly * tokens:
                value, close, _ = promise(spans, before, window, rule)
                came_to = sum(log_prob for _, _, log_prob in readings(spans[window], each, rule.floor))
                reach[close] = max(reach[close], rule.margin * (came_to - value))
    return reach


def closer(spans: Sequence[Span], scored: Mapping[int, Scored], tau: float, number: int, rule: Rule) -> list[int]:
    reach = learnt(spans, scored, tau, number, rule)
    gaps: dict[Span, dict[int, tuple[float, bool]]] = {}
    for window in range(len(spans)):
        if window not in scored:
            value, close, gap = promise(spans, scored, window, rule)
            gaps.setdefault(gap, {})[window] = (value, close)
    in_any_case: list[Span] = []
    if number == 2:
        by_promise = sorted(gaps, key=lambda gap: (-max(value for value, _ in gaps[gap].values()), gap))
        in_any_case = by_promise[: max(rule.least, len(gaps) // rule.first)]
    chosen = []
    for gap, members in gaps.items():
        may = [
            window
            for window, (value, close) in members.items()
            if gap in in_any_case or value >= math.log(tau) - reach[close]
        ]
        if number < rule.closer:
            may = sorted(may, key=lambda window: (abs((window - gap[0]) - (gap[1] - window)), window))[:1]
        chosen += may
    return sorted(chosen)


def tail(hits: int, draws: int, successes: int, total: int) -> float:
    """The chance of at most `hits` among `draws` without replacement from `total` with so many `successes`."""
    ways = sum(
        math.comb(successes, seen) * math.comb(total - successes, draws - seen)
        for seen in range(min(hits, successes) + 1)
        if draws - seen <= total - successes
    )
    return ways / math.comb(total, draws)
