"""`verify`: whether a finished run is as it was, adds up, and comes out again."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl

from rote.analysis.agreement import Limit, limit, row_agreement, wrong_at_most
from rote.analysis.summary import summarise
from rote.errors import InputError, RunError, argument
from rote.extraction.near.options import Near
from rote.jobs.evidence import Evidence
from rote.jobs.open import Run
from rote.models.base import LogitModel, ScoringModel, TokenModel, with_logits
from rote.options import Option, require_flag, require_kind, require_whole, typed_path
from rote.progress import Progress, quiet
from rote.report.text.verification import verdict
from rote.scheme import GREEDY, Scheme
from rote.store.files import FORMAT, digest, now, plain, read_json
from rote.store.manifest import made_with
from rote.store.open import path_of
from rote.store.run import StoredRun
from rote.store.seal import check_seal
from rote.store.table import Row
from rote.store.verification import Finding, Rescored, RescoredNear, Verification, WrongRow, write_verification
from rote.tokens import Example

if TYPE_CHECKING:  # torch is imported when it is needed
    from rote.extraction.near.results import NearVerbatim
    from rote.extraction.verbatim import Verbatim

SAMPLE = 200
STRONGEST = 20
"""How many of the likeliest examples are scored again beside those drawn: they are what is quoted."""

ERRORS = 4.5
"""Two estimates agree within so many standard errors: one pair in 150,000 would not by chance."""


def verify(
    evidence: Annotated[
        Evidence | StoredRun | str | Path,
        Option("A finished run folder, or a file that rote export --to evidence wrote."),
    ],
    model: ScoringModel | None = None,
    *,
    sample: Annotated[int | None, Option("Score so many of its rows again, drawn at random.", default="200")] = None,
    every: Annotated[bool, Option("Score all of its rows again.", "--all")] = False,
    seed: Annotated[int | None, Option("Decides which rows are drawn.", default="not to be foreseen")] = None,
    out: Annotated[
        Path | str | None,
        Option("Where the result goes.", "--out/-o", default="RUN/verification.json", parse=typed_path),
    ] = None,
    progress: Progress | None = None,
) -> Verification:
    """Whether a run's files fit its seal, its summary its rows and, with the model, its rows what that computes.

    The model need not be loaded as it was for the run: what may differ between its dtype and the run's was measured. A
    run that does not pass is a result, not an error: `verified` says so, and why.
    """
    held = evidence if isinstance(evidence, Evidence) else Evidence(path_of(evidence))
    require_flag("every", every)
    if every and sample is not None:
        raise InputError(f"{argument('sample', sample)} and {argument('every')} exclude each other; leave one out.")
    if sample is not None:
        require_whole("sample", sample)
    if model is not None:
        require_kind("model", model, TokenModel, "a model that rote.load gives")
    drawn_with = secrets.randbits(32) if seed is None else require_whole("seed", seed, 0)
    findings, rescored, seal = list[Finding](), None, None
    run = held.run
    try:
        seal = check_seal(run.folder).id
        run.refuse_unfinished()
        findings.append(_finding("seal", None, f"none of {len(run.seal.files)} sealed files has changed"))
        for look in (_source, _rows, _summary):
            if _sound(findings):
                findings.append(look(run))
        if model is None and (every or sample is not None or seed is not None):
            raise InputError(
                f"without {argument('model')} nothing can be scored again; name the model that the run was made with."
            )
        if model is not None and _sound(findings):
            findings.append(_weights(run, model))
            rescored = _rescored(run, model, sample or SAMPLE, every, drawn_with, progress or quiet)
            findings.append(_scores(rescored))
    except RunError as error:  # what cannot be read cannot be relied on
        findings.append(_finding("files" if seal else "seal", str(error), ""))
    result = Verification(
        format=FORMAT,
        kind="verification",
        created=now(),
        run=held.name,
        seal=seal,
        verified=_sound(findings),
        verdict="",
        findings=findings,
        rescored=rescored,
        versions=made_with(),
    )
    result = replace(result, verdict=verdict(result))
    write_verification(held.result if out is None else Path(out), result)
    return result


def _finding(name: str, problem: str | None, told: str) -> Finding:
    return Finding(name=name, passed=problem is None, told=told if problem is None else problem)


def _sound(findings: Sequence[Finding]) -> bool:
    return all(finding.passed is not False for finding in findings)


# --- what follows from the files alone


def _source(run: Run) -> Finding:
    """Reading them holds text and examples against the manifest's hashes."""
    if run.manifest.kind == "scan":
        told = f"the text is the one that the manifest names, {len(run.texts.text or ''):,} characters"
        return _finding("text", None, told)
    ids = json.dumps([[e.id, e.prefix, e.suffix, e.metadata] for e in run.examples], sort_keys=True)
    problem = None
    if digest(ids) != run.manifest.source.sha256:
        problem = "the tokens of examples.jsonl are not those that the manifest names"
    elif len(run.examples) != run.manifest.source.examples:
        problem = f"examples.jsonl holds {len(run.examples)} examples, the manifest says {run.manifest.source.examples}"
    return _finding("examples", problem, f"the {len(run.examples):,} examples are those that the manifest names")


def _rows(run: Run) -> Finding:
    """Every example once under every scheme, and every row the sum of its tokens."""
    told = f"{run.scores.height:,} rows, every example once under every scheme, and each the sum of its tokens"
    return _finding("rows", next(_row_problems(run), None), told)


def _row_problems(run: Run) -> Iterator[str]:
    manifest, scores = run.manifest, run.scores
    if len(run.shards()) != manifest.shards:
        yield f"there are {len(run.shards())} shards, and the manifest says {manifest.shards}"
    ids = scores.filter(pl.col("scheme") == manifest.schemes[0])["example_id"]
    if ids.n_unique() != ids.len():
        yield f"example {ids.filter(ids.is_duplicated())[0]!r} is there twice"
    for scheme in manifest.schemes:
        if not scores.filter(pl.col("scheme") == scheme)["example_id"].equals(ids):
            yield f"the rows under {scheme} are not those of {manifest.schemes[0]}"
    if scores.height != ids.len() * len(manifest.schemes):
        yield "there are rows under schemes that the manifest does not name"
    if manifest.kind == "score":
        if ids.to_list() != [example.id for example in run.examples]:
            yield "the rows are not those of the examples"
    else:
        yield from _span_problems(run)
    whole = scores.filter(~pl.col("stopped"))
    sums = whole["token_log_probs"].list.eval(pl.element().cast(pl.Float64)).list.sum()
    off = whole.filter(~((sums == whole["log_prob"]) | ((sums - whole["log_prob"]).abs() <= 1e-6 * (1 + sums.abs()))))
    if off.height:
        yield f"the log-prob of {off['example_id'][0]!r} is not the sum of its tokens'"
    lengths = {name: scores[name].list.len() for name in ("token_log_probs", "base_log_probs", "ranks", "margins")}
    if any(not lengths["ranks"].equals(own, check_names=False) for own in lengths.values()):
        yield "a row has not one number of each kind for each of its tokens"
    above = scores.filter((pl.col("log_prob") > 0) | (pl.col("greedy") & (pl.col("ranks").list.max() > 1)))
    if above.height:
        yield f"{above['example_id'][0]!r} has a probability above 1, or is called greedy and is not"


def _span_problems(run: Run) -> Iterator[str]:
    ids, starts, middles, ends = (
        run.rows(run.manifest.schemes[0])[name] for name in ("example_id", "start", "suffix_start", "suffix_end")
    )
    if any(name != f"w{start}" for name, start in zip(ids, starts, strict=True)):
        yield "a row's place is not the one that its name says"
    if not ((starts < middles) & (middles < ends) & (ends <= (run.manifest.source.characters or 0))).all():
        yield "a row's place lies outside the text"


def _summary(run: Run) -> Finding:
    """Held against what the rows come to; a summary is never read otherwise."""
    written = read_json(run.folder / "summary.json")
    place = next(_unlike(written, plain(summarise(run.manifest, run.scores, run.facts(), run.variants))), None)
    problem = None if place is None else f"summary.json does not follow from the rows: {place} differs"
    return _finding("summary", problem, "summary.json follows from the rows")


def _unlike(one: Any, two: Any, place: str = "") -> Iterator[str]:
    """Where two trees of JSON differ by more than rounding."""
    if isinstance(one, dict) and isinstance(two, dict):
        for name in one.keys() | two.keys():
            yield from _unlike(one.get(name), two.get(name), f"{place}.{name}".lstrip("."))
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for number, (a, b) in enumerate(zip(one, two, strict=True)):
            yield from _unlike(a, b, f"{place}[{number}]")
    elif isinstance(one, int | float) and isinstance(two, int | float):
        if not math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-12):
            yield place
    elif one != two:
        yield place


# --- what the model says


def _weights(run: Run, model: ScoringModel) -> Finding:
    was, own = run.manifest.model, model.identity()
    for field in ("fingerprint", "tokenizer", "bos_token"):
        if getattr(was, field) != getattr(own, field):
            shown = f"the run has {getattr(was, field)!r}, {own.name} has {getattr(own, field)!r}"
            return _finding("model", f"this is not the model that the run names: its {field} differs ({shown})", "")
    return _finding("model", None, f"the weights have the run's fingerprint, {was.fingerprint}")


def _rescored(run: Run, model: ScoringModel, sample: int, every: bool, seed: int, tell: Progress) -> Rescored:
    from rote.extraction.verbatim import verbatim

    manifest, own = run.manifest, model.identity()
    limits = limit(manifest.model.dtype, own.dtype)
    if limits is None:
        raise InputError(
            f"how far {own.dtype} may differ from the run's {manifest.model.dtype} was not measured; load the model in "
            f"another {argument('dtype')}."
        )
    first = run.rows(manifest.schemes[0])
    total = first.height
    drawn = np.arange(total) if every or sample >= total else np.random.default_rng(seed).choice(total, sample, False)
    likeliest = np.argsort(-first["log_prob"].to_numpy(), kind="stable")[:STRONGEST]
    chosen = np.union1d(drawn, likeliest)
    examples = run.cut(first[chosen], model.tokenizer)
    wrong = list(_misplaced(examples, first[chosen], manifest.schemes[0]))
    labels = [*map(Scheme.parse, manifest.schemes)]
    asked = labels if GREEDY in labels else [*labels, GREEDY]
    scored = iter(verbatim(model, examples, asked, progress=tell))
    by_scheme = {label: run.rows(label)[chosen].to_dicts() for label in manifest.schemes}
    border = model.logit_tolerance + manifest.logit_tolerance
    tokens, differences = 0, 0.0
    for i, example in enumerate(examples):
        again = {str(scheme): next(scored) for scheme in asked}
        for label in manifest.schemes:
            row, fresh = by_scheme[label][i], again[label]
            agreed = row_agreement(row["base_log_probs"], fresh.base_log_probs, limits, margins=fresh.margins)
            if label == manifest.schemes[0]:
                tokens, differences = tokens + agreed.tokens, differences + agreed.tokens * agreed.mean
            if problem := agreed.problem or _scheme_problem(row, fresh, again[str(GREEDY)], limits, border):
                wrong.append(WrongRow(example_id=example.id, scheme=label, problem=problem))
    near = None
    if manifest.near is not None:
        near, more = _near(run, with_logits(model, "searching again"), examples, by_scheme, limits, seed, tell)
        wrong += more
    drawn_wrong = len({row.example_id for row in wrong} & set(first["example_id"].gather(drawn)))
    return Rescored(
        model=own,
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


def _misplaced(examples: Sequence[Example], rows: pl.DataFrame, scheme: str) -> Iterator[WrongRow]:
    """Rows that stand for other characters or tokens than what is cut there now."""
    places = rows.select("suffix_start", "suffix_end").iter_rows()
    for example, place, tokens in zip(examples, places, rows["ranks"].list.len(), strict=True):
        problem = None
        if example.start is not None and (example.suffix_start, example.suffix_end) != place:
            problem = "its suffix stands elsewhere in the text"
        elif len(example.suffix) < tokens:
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
    if row["stopped"] and fresh.log_prob > row["log_prob"] + limits.of_a_sum(len(fresh.ranks)):
        return "its log-prob is above the bound at which it was given up"
    if row["greedy"] != greedy.greedy and np.abs(greedy.margins).min() >= border:
        return f"greedy decoding {'gives' if greedy.greedy else 'does not give'} its suffix"
    return None


def _near(
    run: Run, model: LogitModel, examples: Sequence[Example], by_scheme: Mapping[str, Sequence[Row]], limits: Limit,
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
    if certified and apart:  # an interval that is one with 95% confidence need not meet another
        bounds = f"{row['lower']:.3g} to {row['upper']:.3g}"
        yield f"its bounds, {bounds}, do not meet {again.lower:.3g} to {again.upper:.3g}"
    if row["estimate"] is not None and (fresh := again.estimate) is not None:
        error = math.hypot(row["estimate_error"], fresh.error) + (1 / fresh.samples if fresh.samples else 0.0)
        if abs(row["estimate"] - fresh.mean) > ERRORS * error + (slack - 1) * row["estimate"]:
            yield f"its estimate is {row['estimate']:.3g}, and now {fresh.mean:.3g}"


def _candidates(
    model: LogitModel, rows: Sequence[Row], examples: Sequence[Example], label: str, limits: Limit
) -> tuple[int, list[WrongRow]]:
    """Listed outputs scored as if they were suffixes: how many, and which have another probability."""
    from rote.extraction.verbatim import verbatim

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
    return len(listed), wrong


def _scores(found: Rescored) -> Finding:
    off = found.mean_difference > found.limit
    rows = f"all {found.examples:,}"
    if found.drawn < found.examples:
        rows = f"{found.drawn:,} of {found.examples:,} drawn at random and {found.strongest} of the likeliest"
    told = (
        f"{rows} scored again, in {found.model.dtype} on {found.model.device}: tokens differ by "
        f"{found.mean_difference:.2g} in the mean, and up to {found.limit:.2g} is expected"
    )
    problem = None
    if off or found.wrong:
        first = f"; the first, {found.wrong[0].example_id}: {found.wrong[0].problem}" if found.wrong else ""
        wrong = len({row.example_id for row in found.wrong})
        problem = f"{told}. {wrong:,} of them do not come out again{first}"
    return _finding("scores", problem, told)
