"""Rows of a finished run, scored again with its model: which of them do not come out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from rote.analysis.agreement import Limit, limit, row_agreement, wrong_at_most
from rote.corpus.windows import cut_windows, plain_backend, ready, window_starts
from rote.errors import InputError, argument
from rote.extraction.near.options import Near
from rote.jobs.open import Run
from rote.jobs.score import shown
from rote.models.base import ScoringModel, searchable
from rote.progress import Progress
from rote.scheme import GREEDY, Scheme
from rote.store.table import Row
from rote.store.verification import Rescored, RescoredNear, WrongRow
from rote.tokens import Example

if TYPE_CHECKING:  # torch is imported when it is needed
    from rote.extraction.near.results import NearVerbatim
    from rote.extraction.verbatim import Verbatim

STRONGEST = 20
"""How many of the likeliest examples are scored again beside those drawn: they are what is quoted."""

EXACT = 1e-3
"""Two computations whose tokens differ by less than this have the same ranks and make the same searches, nearly."""

ERRORS = 4.5
"""Two estimates agree within so many standard errors: one pair in 150,000 would not by chance."""


def rescored(run: Run, model: ScoringModel, sample: int, every: bool, seed: int, tell: Progress) -> Rescored:
    """Score `sample` rows drawn at random and the strongest again, or `every` one, and hold them against the run's.

    All windows of a scan are cut again as well, and the texts of all examples held against their tokens.
    """
    from rote.extraction.verbatim import verbatim
    from rote.models.quantised import tolerance_of

    manifest, own = run.manifest, model.identity()
    limits = limit(manifest.model.dtype, own.dtype)
    if limits is None:
        raise InputError(
            f"how far {own.dtype} may differ from the run's {manifest.model.dtype} was not measured; load the model in "
            f"another {argument('dtype')}."
        )
    first = run.rows(manifest.schemes[0])
    total = first.height
    whole = every or sample + STRONGEST >= total
    drawn = np.arange(total) if whole else np.random.default_rng(seed).choice(total, sample, False)
    likeliest = np.argsort(-first["log_prob"].to_numpy(), kind="stable")[:STRONGEST]
    chosen = np.union1d(drawn, likeliest)
    examples = run.cut(first[chosen], model.tokenizer)
    wrong = [*_uncut(run, model.tokenizer), *_misplaced(examples, first[chosen], manifest.schemes[0])]
    wrong += _retold(run, model.tokenizer)
    misplaced = {row.example_id for row in wrong}
    labels = [*map(Scheme.parse, manifest.schemes)]
    asked = labels if GREEDY in labels else [*labels, GREEDY]
    scored = iter(verbatim(model, examples, asked, progress=tell))
    by_scheme = {label: run.rows(label)[chosen].to_dicts() for label in manifest.schemes}
    border = model.logit_tolerance + tolerance_of(manifest.model.dtype, manifest.model.quantised)
    tokens, differences = 0, 0.0
    for i, example in enumerate(examples):
        again = {str(scheme): next(scored) for scheme in asked}
        for label in manifest.schemes:
            row, fresh = by_scheme[label][i], again[label]
            if example.id in misplaced:
                continue
            agreed = row_agreement(row["base_log_probs"], fresh.base_log_probs, limits, margins=fresh.margins)
            if label == manifest.schemes[0]:
                tokens, differences = tokens + agreed.tokens, differences + agreed.tokens * agreed.mean
            if problem := agreed.problem or _scheme_problem(row, fresh, again[str(GREEDY)], limits, border):
                wrong.append(WrongRow(example_id=example.id, scheme=label, problem=problem))
    near = None
    if manifest.near is not None:
        searchable(model, manifest.near.method, "searching again")
        near, more = _near(run, model, examples, by_scheme, limits, seed, tell)
        wrong += more
    drawn_wrong = len({row.example_id for row in wrong} & set(first["example_id"].gather(drawn)))
    return Rescored(
        model=own,
        unit=run.finished.unit if manifest.refined is None else "scored window",
        examples=total,
        drawn=len(drawn),
        strongest=len(chosen) - len(drawn),
        seed=seed,
        tokens=tokens,
        mean_difference=differences / tokens if tokens else 0.0,
        measured=limits.expected,
        limit=limits.mean,
        wrong=wrong,
        drawn_wrong=drawn_wrong,
        wrong_at_most=None if drawn_wrong else 0.0 if len(drawn) == total else wrong_at_most(len(drawn)),
        near=near,
    )


def _uncut(run: Run, tokenizer: Any) -> Iterator[WrongRow]:
    """Windows of a scan that the run has and the text does not give, or the other way round."""
    cut, text = run.manifest.windows, run.texts.text
    if cut is None or text is None:
        return
    prepared = ready(text, run.manifest.source.steps)
    made = cut_windows(prepared, plain_backend(tokenizer), cut, window_starts(prepared, cut, cut.within))
    places = [(example.id, example.suffix_start, example.suffix_end) for example in made]
    every = run.rows(run.manifest.schemes[0]) if run.places is None else run.places
    rows = [(f"w{start}", *place) for start, *place in every.select("start", "suffix_start", "suffix_end").iter_rows()]
    if odd := sorted(set(places) ^ set(rows)):
        yield WrongRow(example_id=odd[0][0], scheme="", problem="the text is not cut into the windows that the run has")


def _retold(run: Run, tokenizer: Any) -> Iterator[WrongRow]:
    """Examples whose stored text is not what their tokens say."""
    for entry in run.examples if run.manifest.windows is None else ():
        if (entry.prefix_text, entry.suffix_text) != (shown(entry.prefix, tokenizer), shown(entry.suffix, tokenizer)):
            yield WrongRow(example_id=entry.id, scheme="", problem="its text is not what its tokens say")


def _misplaced(examples: Sequence[Example], rows: pl.DataFrame, scheme: str) -> Iterator[WrongRow]:
    """Rows that stand for other characters or tokens than what is cut there now."""
    places = rows.select("suffix_start", "suffix_end").iter_rows()
    lengths = rows["ranks"].list.len()
    for example, place, tokens, stopped in zip(examples, places, lengths, rows["bounded"], strict=True):
        problem = None
        if example.start is not None and (example.suffix_start, example.suffix_end) != place:
            problem = "its suffix stands elsewhere in the text"
        elif tokens > len(example.suffix) or (tokens < len(example.suffix) and not stopped):
            problem = f"it has numbers for {tokens} suffix tokens, and {len(example.suffix)} suffix tokens"
        if problem:
            yield WrongRow(example_id=example.id, scheme=scheme, problem=problem)


def _scheme_problem(row: Row, fresh: Verbatim, greedy: Verbatim, limits: Limit, border: float) -> str | None:
    """What is wrong with a row under its scheme, if something is."""
    temperature = fresh.scheme.temperature
    agreed = row_agreement(
        row["token_log_probs"], fresh.token_log_probs, limits,
        margins=fresh.margins, border=border, sharpness=max(1.0, 1 / temperature) if temperature else 1.0,
    )  # fmt: skip
    if agreed.problem:
        return agreed.problem
    size = len(row["ranks"])
    if limits.mean < EXACT and np.mean(np.asarray(row["ranks"]) != fresh.ranks[:size]) > 0.2:
        return "its tokens have other ranks"
    margins, now = np.asarray(row["margins"], np.float64), np.asarray(fresh.margins[:size], np.float64)
    finite = np.isfinite(margins) & np.isfinite(now)
    if np.abs(margins[finite] - now[finite]).sum() > border * size:
        return "its tokens are elsewhere from the border of the support"
    if row["bounded"] and fresh.log_prob > row["log_prob"] + limits.of_a_sum(len(fresh.ranks)):
        return "its log-prob is above the bound that the row has"
    if row["greedy"] != greedy.greedy and np.abs(greedy.margins).min() >= border:
        return f"greedy decoding {'gives' if greedy.greedy else 'does not give'} its suffix"
    return None


def _near(
    run: Run, model: ScoringModel, examples: Sequence[Example], by_scheme: Mapping[str, Sequence[Row]], limits: Limit,
    seed: int, tell: Progress,
) -> tuple[RescoredNear, list[WrongRow]]:  # fmt: skip
    """Searches made again, with other random numbers where they take some: what they come to, and what is wrong."""
    from rote.extraction.near.search import near_verbatim

    search, tau = run.finished.search, run.manifest.tau
    options = Near(**{field.name: getattr(search, field.name) for field in fields(Near)})
    if search.samples is not None or search.method == "sample":
        options = replace(options, seed=(search.seed + 1 + seed) % 2**31)
    wrong, listed, estimates = list[WrongRow](), 0, 0
    for label, rows in by_scheme.items():
        found = near_verbatim(model, examples, Scheme.parse(label), near=options, tau=tau, progress=tell)
        for row, again, example in zip(rows, found, examples, strict=True):
            slack = math.exp(limits.of_a_sum(len(example.suffix)))
            estimates += row["estimate"] is not None and again.estimate is not None
            for problem in _near_problems(row, again, slack, certified=search.method != "sample"):
                wrong.append(WrongRow(example_id=example.id, scheme=label, problem=problem))
        outputs, more = _candidates(model, rows, examples, label, limits)
        listed, wrong = listed + outputs, wrong + more
    return RescoredNear(searches=len(examples) * len(by_scheme), candidates=listed, estimates=estimates), wrong


def _near_problems(row: Row, again: NearVerbatim, slack: float, *, certified: bool) -> Iterator[str]:
    """Bounds that do not meet, or estimates too far apart; `slack`: by how much a probability may be off."""
    apart = again.lower > row["upper"] * slack or row["lower"] > again.upper * slack
    if slack < 1 + 10 * EXACT:  # the same search, up to rounding: it must find about as much
        apart = apart or row["lower"] > 2 * again.lower * slack + 1e-9
    if certified and apart:  # an interval that is one with 95% confidence need not meet another
        bounds = f"{row['lower']:.3g} to {row['upper']:.3g}"
        yield f"its bounds, {bounds}, do not meet {again.lower:.3g} to {again.upper:.3g}"
    if row["estimate"] is not None and (fresh := again.estimate) is not None:
        error = math.hypot(row["estimate_error"], fresh.error) + (1 / fresh.samples if fresh.samples else 0.0)
        if row["estimate_error"] > 3 * fresh.error + 1 / (fresh.samples or 1):
            yield f"the error of its estimate is {row['estimate_error']:.3g}, and now {fresh.error:.3g}"
        if abs(row["estimate"] - fresh.mean) > ERRORS * error + (slack - 1) * row["estimate"]:
            yield f"its estimate is {row['estimate']:.3g}, and now {fresh.mean:.3g}"


def _candidates(
    model: ScoringModel, rows: Sequence[Row], examples: Sequence[Example], label: str, limits: Limit
) -> tuple[int, list[WrongRow]]:
    """Listed outputs scored as if they were suffixes: how many, and which have another probability."""
    from rote.extraction.verbatim import verbatim

    decode = model.tokenizer.decode
    retold = [
        WrongRow(example_id=row["example_id"], scheme=label, problem="the text of a listed output is not its tokens'")
        for row in rows
        for candidate in row["candidates"] or ()
        if candidate["text"] != str(decode(list(candidate["tokens"])))
    ]
    listed = [
        (row["example_id"], candidate["log_prob"], Example(f"{i}-{j}", example.prefix, tuple(candidate["tokens"])))
        for i, (row, example) in enumerate(zip(rows, examples, strict=True))
        for j, candidate in enumerate(row["candidates"] or ())
        if candidate["log_prob"] is not None
    ]
    again = verbatim(model, [output for *_, output in listed], Scheme.parse(label))
    wrong = [
        WrongRow(
            example_id=name, scheme=label, problem=f"a listed output has log-prob {fresh.log_prob:.6g}, not {was:.6g}"
        )
        for (name, was, output), fresh in zip(listed, again, strict=True)
        if fresh.log_prob != was and not abs(fresh.log_prob - was) <= limits.of_a_sum(len(output.suffix))
    ]
    return len(listed), retold + wrong
