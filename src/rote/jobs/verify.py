"""`verify`: whether a finished run is as it was, adds up, and comes out again."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rote.analysis.consistency import row_problems, scan_problems, score_problems, stage_problems
from rote.errors import InputError, RoteError, RunError, argument, counted
from rote.jobs.corpus import told_apart
from rote.jobs.evidence import Evidence
from rote.jobs.open import Run
from rote.jobs.rescore import rescored
from rote.models.base import ScoringModel, TokenModel
from rote.options import Option, folder_of, require_flag, require_kind, require_whole, typed_path
from rote.progress import Progress, quiet
from rote.report.text.verification import verdict
from rote.store.files import FORMAT, now, plain, read_json
from rote.store.manifest import adapter_of, made_with, where_it_runs
from rote.store.open import path_of
from rote.store.run import StoredRun
from rote.store.seal import check_seal
from rote.store.verification import Finding, Rescored, Verification, write_verification

if TYPE_CHECKING:  # torch is imported when it is needed
    pass

SAMPLE = 200


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
    run, target = held.run, _target(held, out)
    findings, seal = _findings(held)
    if model is None and seal is not None and (every or sample is not None or seed is not None):
        raise InputError(
            f"without {argument('model')} nothing can be scored again; name the model that the run was made with."
        )
    again = None
    if model is not None and _sound(findings):
        findings.append(_weights(run, model))
        if _sound(findings):
            try:
                again = rescored(run, model, sample or SAMPLE, every, drawn_with, progress or quiet)
                findings.append(_scores(again))
            except RunError as error:  # windows that cannot be cut again
                findings.append(_finding("scores", str(error), ""))
    result = Verification(
        format=FORMAT,
        kind="verification",
        created=now(),
        run=held.name,
        seal=seal,
        verified=_sound(findings),
        verdict="",
        findings=findings,
        rescored=again,
        staged=run.summary.staged if _sound(findings) and run.manifest.refined is not None else None,
        versions=made_with(),
    )
    result = replace(result, verdict=verdict(result))
    write_verification(target, result)
    return result


def _target(held: Evidence, out: str | Path | None) -> Path:
    """Where the result goes: over an earlier one, and over nothing else."""
    path = held.result if out is None else folder_of(out)
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"{argument('out')} {path} is not a file in a folder that is there; give the name of one.")
    try:
        earlier = not path.exists() or json.loads(path.read_bytes()).get("kind") == "verification"
    except (OSError, ValueError, AttributeError):
        earlier = False
    if not earlier:
        raise InputError(f"{argument('out')} {path} is there already and no verification; choose another.")
    return path


def _findings(held: Evidence) -> tuple[list[Finding], str | None]:
    """What the files say by themselves, up to the first thing that is wrong; and the number of the seal."""
    run, seal, findings = held.run, None, list[Finding]()
    try:
        seal = check_seal(run.folder).id
        run.refuse_unfinished()
        findings.append(_finding("seal", None, f"none of {counted(len(run.seal.files), 'sealed file')} has changed"))
        for look in (_source, _rows, _summary):
            if _sound(findings):
                findings.append(look(run))
        if held.packed and _sound(findings):
            told = "page, README and reproduce.py are what Rote makes of the run"
            findings.append(_finding("beside", held.beside(), told))
    except RoteError as error:  # what cannot be read cannot be relied on
        told = (
            str(error).replace(f"{run.folder}/", "").replace(str(run.folder), held.name) if held.packed else str(error)
        )
        findings.append(_finding("files" if seal else "seal", told, ""))
    return findings, seal


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
    problem = None
    if told_apart(run.examples, run.manifest.index is not None) != run.manifest.source.sha256:
        problem = "the tokens of examples.jsonl are not those that the manifest names"
    elif len(run.examples) != run.manifest.source.examples:
        problem = f"examples.jsonl holds {len(run.examples)} examples, the manifest says {run.manifest.source.examples}"
    return _finding("examples", problem, f"the {len(run.examples):,} examples are those that the manifest names")


def _rows(run: Run) -> Finding:
    """Every example once under every scheme, every row where it should stand and the sum of its tokens."""
    unit = "window" if run.manifest.kind == "scan" else "example"
    if run.manifest.refined is not None:
        again = "would again" if run.manifest.versions.get("rote") == made_with()["rote"] else "drew as told"
        unit = f"window that {counted(len(run.stages), 'stage')} chose, and {again},"
    told = f"{counted(run.scores.height, 'row')}, every {unit} once under every scheme, and each the sum of its tokens"
    return _finding("rows", next(_row_problems(run), None), told)


def _row_problems(run: Run) -> Iterator[str]:
    manifest, scores = run.manifest, run.scores
    shards = sum(name.startswith("scores/") for name in run.seal.files)
    expected, by = manifest.shards, "the manifest says"
    if expected is None:
        expected, by = sum(stage.shards(manifest.shard_examples) for stage in run.stages), "the stages take"
    if shards != expected:
        yield f"there are {counted(shards, 'shard')}, and {by} {expected}"
    yield from row_problems(manifest, scores)
    if manifest.kind == "score":
        yield from score_problems(manifest, scores, run.examples)
    else:
        yield from scan_problems(manifest, scores, run.texts.text or "", run.places)
    if run.places is not None:
        yield from stage_problems(manifest, scores, run.places, run.stages)


def _summary(run: Run) -> Finding:
    """Held against what the rows come to; a summary is never read otherwise."""
    written = read_json(run.folder / "summary.json")
    place = next(_unlike(written, plain(run.summed_up())), None)
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
    if (was.served is None) != (own.served is None):
        told = f"the run's model {where_it_runs(was)}, and {own.name} {where_it_runs(own)}: nobody can compare weights"
        return _finding("model", told, "")
    for field in ("fingerprint", "tokenizer", "bos_token", "parameters", "quantised"):
        if getattr(was, field) != getattr(own, field):
            shown = f"the run has {getattr(was, field)!r}, {own.name} has {getattr(own, field)!r}"
            return _finding("model", f"this is not the model that the run names: its {field} differs ({shown})", "")
    added, has = (None if each.adapter is None else each.adapter.fingerprint for each in (was, own))
    if added != has:
        told = f"the run has {adapter_of(was)}, and {own.name} {adapter_of(own)}"
        return _finding("model", f"this is not the model that the run names: {told}", "")
    if was.served is not None and own.served is not None and was.served.model != own.served.model:
        told = f"the run was made with {was.served.model!r} of its server, and this is {own.served.model!r}"
        return _finding("model", f"this is not the model that the run names: {told}", "")
    if was.served is not None and own.served is not None and was.served.listed != own.served.listed:
        raise InputError(
            f"the run asked for {was.served.listed} log-probs at each position, and this model for "
            f"{own.served.listed}: margins and ranks hang on that. Load it with "
            f"{argument('listed', was.served.listed)}."
        )
    from rote.models.quantised import tolerance_of

    stated, known = run.manifest.logit_tolerance, tolerance_of(was.dtype, was.quantised)
    if stated != known:
        return _finding(
            "rows", f"the manifest says that logits in {was.dtype} may move by {stated:g}, not {known:g}", ""
        )
    if own.served is not None:
        told = f"it is served by {own.served.url}, and its weights cannot be checked, only its numbers"
        return _finding("model", None, told)
    adapted = "" if was.adapter is None else f", and the adapter the run's, {was.adapter.fingerprint}"
    return _finding("model", None, f"the weights have the run's fingerprint, {was.fingerprint}{adapted}")


def _scores(found: Rescored) -> Finding:
    unit = found.unit
    off = found.mean_difference > found.limit
    rows = f"all of {counted(found.examples, unit)}"
    if found.drawn < found.examples:
        total = counted(found.examples, unit)
        rows = f"{found.drawn:,} of {total} drawn at random and {found.strongest} of the likeliest"
    told = (
        f"{rows} scored again, in {found.model.dtype} on {found.model.device}: tokens differ by "
        f"{found.mean_difference:.2g} in the mean, and up to {found.limit:.2g} is expected"
    )
    problem = None
    if off or found.wrong:
        first = f"; the first, {found.wrong[0].example_id}: {found.wrong[0].problem}" if found.wrong else ""
        wrong = counted(len({row.example_id for row in found.wrong}), unit)
        problem = f"{told}. Not coming out again: {wrong}{first}"
    return _finding("scores", problem, told)
