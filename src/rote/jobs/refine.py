"""A scan in stages: tiles, closer looks where windows may reach tau, and an audit of what was left out.

What a stage scores is decided once those before it have ended, and written down before any of it is scored. So a run
that is killed goes on to the same rows, and one that is stopped between stages can be read like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from rote.analysis.refine import CLOSER, choice
from rote.errors import InputError, argument
from rote.jobs.engine import Job, score_shards, wind_up
from rote.jobs.open import Run
from rote.options import require_kind
from rote.progress import Progress
from rote.store.files import locked
from rote.store.manifest import Manifest
from rote.store.run import begin, finish, has_shard
from rote.store.seal import put_back, reopen
from rote.store.stages import (
    WINDOWS,
    Refine,
    Refined,
    Stage,
    add_stage,
    place_bytes,
    read_stage,
    stage_path,
)

OnStage = Callable[[Run], None]
"""Called with a scan whenever one of its stages has ended and others are to come."""


def plan(refine: Refine, job: Job) -> Refined:
    """How the job's windows are scored in stages; refuses what does not go with it."""
    require_kind("refine", refine, Refine, "a rote.Refine, or None")
    for name, given, why in (
        ("near", job.near is not None, "which windows are left out is judged by what comes out word for word"),
        ("stop_early", job.stop_early, "which windows are left out is judged by whole suffixes"),
    ):
        if given:
            raise InputError(f"{argument('refine')} does not go with {argument(name)}: {why}. Leave one of them out.")
    return Refined(audit=refine.audit, audit_seed=refine.audit_seed, windows=len(job.examples), closer=CLOSER)


def complete_in_stages(
    folder: Path, manifest: Manifest, content: Mapping[str, bytes], job: Job, tell: Progress, on_stage: OnStage | None
) -> Run:
    """Begin the run or go on with it, stage by stage; a stage that ends is summed up and sealed.

    Where it is stopped, what was sealed before can be read as before.
    """
    with locked(folder):
        try:
            begin(folder, manifest, content={**content, WINDOWS: place_bytes(job.examples)})
            return _go_on(folder, manifest, job, tell, on_stage)
        except BaseException:
            put_back(folder)
            raise


def _go_on(folder: Path, manifest: Manifest, job: Job, tell: Progress, on_stage: OnStage | None) -> Run:
    refined, size = manifest.refined, manifest.shard_examples
    assert refined is not None
    windows = {window.start: window for window in job.examples}
    shards = scored = 0
    for number in range(refined.stages):
        reopen(folder, restored=["summary.json"])
        stage = _stage(folder, number, manifest)
        if number and _lacks(folder, stage, shards, size):
            _seal_stages(folder, on_stage)
        chosen = [windows[start] for start in stage.starts]
        score_shards(folder, shards, chosen, job, size, tell, stage=number, before=scored)
        shards, scored = shards + stage.shards(size), scored + len(chosen)
    reopen(folder, restored=["summary.json"])
    return wind_up(folder, job, tell)


def _lacks(folder: Path, stage: Stage, first: int, size: int) -> bool:
    return any(not has_shard(folder, first + number) for number in range(stage.shards(size)))


def _seal_stages(folder: Path, on_stage: OnStage | None) -> None:
    """Sum up and seal the stages that have ended, so that they can be read from now on."""
    finish(folder, Run(folder).summed_up())
    if on_stage is not None:
        on_stage(Run(folder))


def _stage(folder: Path, number: int, manifest: Manifest) -> Stage:
    """A stage as it was decided, or is now: the stages before it have ended."""
    if (path := stage_path(folder, number)).is_file():
        return read_stage(path)
    refined, run = manifest.refined, Run(folder)
    assert refined is not None
    assert run.places is not None
    return add_stage(folder, number, *choice(run.places, run.scores, refined, manifest.tau, number))
