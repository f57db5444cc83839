"""One passage for the terminal: its tokens, its odds, its variants, and several runs side by side.

A line is a list of (kind, text) pieces; the kinds are "plain", "heading", "prefix", "suffix", "del" and "ins".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rote.frames import FrameKind, frame_of
from rote.models.base import ModelIdentity
from rote.report.text import numbers
from rote.report.text.comparison import aligned
from rote.report.text.method import APART
from rote.report.text.near import SET, SET_NOTE, near_facts, variants
from rote.store.manifest import NearSearch, Source
from rote.store.table import Row
from rote.tokens import Tokenised

Line = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class TokenOfPassage:
    """A token of the suffix, as far as it is known: its place from 1, its probability under the scheme and without."""

    position: int
    id: int | None
    text: str | None
    rank: int
    probability: float | None
    base_probability: float
    cumulative_log_prob: float | None


@dataclass(frozen=True, kw_only=True)
class NearOfPassage:
    """Near-verbatim bounds of a passage, and the search that found them."""

    options: NearSearch
    lower: float
    upper: float
    lower_by_tolerance: list[float]
    upper_by_tolerance: list[float]
    verdict: str
    estimate: float | None
    estimate_error: float | None
    greedy_distance: int | None
    candidates: list[Row]


@dataclass(frozen=True, kw_only=True)
class PassageOfRun:
    """Everything that one run stores about a passage; `tokens_unknown` says why its tokens' texts are not known."""

    key: str
    name: str
    folder: str
    model: ModelIdentity
    scheme: str
    tau: float
    place: list[int | None]
    prefix: str
    suffix: str
    tokenised: Tokenised | None
    log_prob: float | None
    p_z: float
    bounded: bool
    greedy: bool | None
    queries_needed: dict[str, int | None]
    at_least_once: dict[str, float]
    tokens: list[TokenOfPassage]
    tokens_unknown: str | None
    near: NearOfPassage | None


@dataclass(frozen=True, kw_only=True)
class ShownPassage:
    """One passage in one or several runs, and in a sentence why it was `chosen`."""

    example_id: str
    chosen: str
    kind: str
    source: Source
    runs: list[PassageOfRun]

    def frame(self, kind: FrameKind = "polars") -> Any:
        """A row per token and run."""
        return frame_of([{"run": run.name, **asdict(token)} for run in self.runs for token in run.tokens], kind)

    def __repr__(self) -> str:
        return f"<Passage {self.example_id!r} of {self.source.name} in {numbers.counted(len(self.runs), 'run')}>"

    def _repr_html_(self) -> str:
        from rote.report.text.cards import passage_card

        return passage_card(self)


_MARKS = str.maketrans({"\n": "⏎", "\r": "␍", "\t": "⇥"})


def passage_lines(passage: ShownPassage) -> list[Line]:
    """Everything about one passage; with several runs the passage once for each, then the runs side by side."""
    runs = passage.runs
    lines: list[Line] = [
        _plain(f"Example {numbers.literal(passage.example_id)} of {numbers.literal(passage.source.name)}.")
    ]
    if passage.chosen:
        lines.append(_plain(passage.chosen))
    if len(runs) == 1:
        return [*lines, *_one(runs[0])]
    lines += [[], *_side_by_side(runs)]
    same = len({(run.prefix, run.suffix) for run in runs}) == 1
    if same:
        lines += [[], *_texts(runs[0])]
    for run in runs:
        lines += [[], [("heading", f"{run.key}: {numbers.literal(run.name)}")]]
        if not same:
            lines += _texts(run)
        lines += [*_tokens(run), *_near(run)]
    return lines


def _one(run: PassageOfRun) -> list[Line]:
    facts = [
        ["Model", numbers.title(run.model)],
        ["Scheme", run.scheme],
        ["BOS", numbers.bos(run.model)],
        ["p_z", p_z(run)],
        ["Greedy", _greedy(run)],
        *([f"Prompts for {numbers.threshold(float(p))}", prompts(run, p)] for p in run.queries_needed),
    ]
    lines = [[], *map(_plain, aligned(facts)), [], *_texts(run), [], *_tokens(run), [], *_odds([run])]
    return lines + _near(run)


def _side_by_side(runs: Sequence[PassageOfRun]) -> Iterator[Line]:
    rows = [["", "Run", "Model", "Scheme", "BOS", "p_z", "Greedy"]]
    rows[0] += [f"Prompts for {numbers.threshold(float(p))}" for p in runs[0].queries_needed]
    for run in runs:
        model = run.model
        bos = f"{model.bos}: {numbers.bos_token(model)}"
        needed = (prompts(run, p) for p in run.queries_needed)
        names = (run.key, numbers.literal(run.name), numbers.title(model))
        rows.append([*names, run.scheme, bos, p_z(run), numbers.yes(run.greedy), *needed])
    yield from map(_plain, aligned(rows))
    yield []
    yield from _odds(runs)
    if len({tuple(run.place) for run in runs}) > 1:
        yield []
        yield _plain(
            "The runs have different tokenizers: the passage starts at the same character, but prefix and suffix end "
            "at others, and each p_z is over the model's own tokens."
        )


def _odds(runs: Sequence[PassageOfRun]) -> Iterator[Line]:
    yield [("heading", "Probability of the exact suffix at least once in n generations")]
    queries = list(runs[0].at_least_once)
    rows = [["n", *(numbers.count(int(n)) for n in queries)]]
    for run in runs:
        name = run.key if len(runs) > 1 else "P"
        rows.append([name, *(_once(run, n) for n in queries)])
    yield from map(_plain, aligned(rows))


def _texts(run: PassageOfRun) -> list[Line]:
    start, suffix_start, suffix_end = run.place
    where = "" if start is None else f"characters {suffix_start:,} to {suffix_end:,}, after a prefix from {start:,} on"
    head = [("heading", "Prefix │ suffix" + (f" ({where})" if where else ""))]
    lines = [
        head,
        [("prefix", numbers.literal(run.prefix)), ("plain", "│"), ("suffix", numbers.literal(run.suffix))],
    ]
    return [*lines, _plain(f"The border falls {APART}.")] if run.tokenised == "apart" else lines


def _tokens(run: PassageOfRun) -> list[Line]:
    lines: list[Line] = [[("heading", "Tokens of the suffix")]]
    if run.tokens_unknown:
        lines.append(_plain(f"Their texts are not shown: {run.tokens_unknown}"))
    named = any(token.text is not None for token in run.tokens)
    numbered = any(token.id is not None for token in run.tokens)
    head = ["#"] + (["Token"] if named else ["Id"] if numbered else [])
    rows = [[*head, "Rank", "Probability", "Without scheme", "So far"]]
    known, impossible = True, False
    for token in run.tokens:
        name = [_visible(token.text)] if named else [str(token.id)] if numbered else []
        both = (_probability(value) for value in (token.probability, token.base_probability))
        total = token.cumulative_log_prob
        known = known and token.probability is not None
        impossible = impossible or token.probability == 0
        so_far = numbers.probability(-math.inf if impossible or total is None else total)
        so_far = so_far if known or impossible else "not known"
        rows.append([str(token.position), *name, numbers.rank(token.rank, run.model.served), *both, so_far])
    lines += map(_plain, aligned(rows))
    if any(token.probability is None for token in run.tokens):
        assert run.model.served is not None
        said = (
            f"Not known: the {numbers.listed(run.model.served)} leaves open whether the token is kept, or what else is."
        )
        lines.append(_plain(said))
    elif run.bounded:
        lines.append(_plain(f"Given up after {numbers.counted(len(run.tokens), 'token')}: certain to end below τ."))
    return lines


def _near(run: PassageOfRun) -> list[Line]:
    near = run.near
    if near is None:
        return []
    facts = near_facts(vars(near), near.options)
    if near.greedy_distance is not None:
        beyond = near.greedy_distance > near.options.tolerance
        edits = numbers.counted(near.options.tolerance if beyond else near.greedy_distance, "edit")
        facts.append(("Greedy generation", f"{'more than ' if beyond else ''}{edits} away"))
    lines: list[Line] = [[], [("heading", "Near-verbatim")], *map(_plain, aligned([list(fact) for fact in facts]))]
    shown = variants(vars(near), run.suffix)
    for variant in shown:
        pieces = [("plain" if kind == "same" else kind, " ".join(text.split("\n"))) for kind, text in variant["pieces"]]
        lines += [_plain(f"  {variant['label']}"), [("plain", "    "), *pieces]]
    if any(SET in variant["label"] for variant in shown):
        lines.append(_plain(f"  {SET_NOTE}"))
    return lines


def p_z(run: PassageOfRun) -> str:
    """The probability, or what is known of it."""
    value = numbers.probability(-math.inf if run.log_prob is None else run.log_prob)
    why = "given up early" if run.model.served is None else numbers.bounded(run.model)
    return f"at most {value} ({why})" if run.bounded else value


def prompts(run: PassageOfRun, chance: str) -> str:
    needed = numbers.prompts_for(-math.inf if run.log_prob is None else run.log_prob, float(chance))
    return f"at least {needed}" if run.bounded and run.log_prob is not None else needed


def _greedy(run: PassageOfRun) -> str:
    return "yes: greedy decoding gives exactly the suffix" if run.greedy else numbers.yes(run.greedy)


def _once(run: PassageOfRun, n: str) -> str:
    value = run.at_least_once[n]
    if run.bounded:
        return f"≤ {_probability(value)}"
    return "> 0.999999" if value == 1 and run.p_z < 1 else _probability(value)


def _probability(value: float | None) -> str:
    if value is None:
        return "not known"
    return numbers.probability(math.log(value) if value > 0 else -math.inf)


def _visible(text: str | None) -> str:
    """A token's text on one line, its spaces to be seen."""
    if text is None:
        return numbers.MISSING
    shown = numbers.literal(text.translate(_MARKS))
    return f"'{shown}'" if shown != shown.strip() or not shown else shown


def _plain(text: str) -> Line:
    return [("plain", text)]
