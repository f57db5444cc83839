"""Scores what a run still lacks, shard by shard, here or on the workers of a cluster; then sums up."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rote.errors import InputError, RunError, argument, counted
from rote.extraction.near.options import Near
from rote.jobs.corpus import Counting, look_up_outputs
from rote.jobs.open import Run
from rote.jobs.shards import Scoring, Shard, score_shard
from rote.jobs.variants import try_variants
from rote.models.base import LogitModel, ScoringModel, SpreadModel, TokenModel, searchable
from rote.models.failures import Failure, fixes
from rote.options import BatchSize, folder_of, require_flag, require_kind, require_tau, settle
from rote.progress import Progress, stopping
from rote.scheme import Scheme
from rote.store.files import FORMAT, locked, now
from rote.store.manifest import Manifest, NearSearch, Sampling, ScannedWindows, Source, SweptLengths, made_with
from rote.store.run import begin, finish, has_shard, keep_shard
from rote.store.seal import SEAL
from rote.store.stages import Refined
from rote.tokens import Example

SHARD_FLOPS = {"cuda": 2e15, "cpu": 2e11}  # a few seconds, also on a slow core; 1e12 elsewhere. What a kill can lose.

SERVED_SHARD = 128
"""Examples of a model whose size nobody knows: some seconds of a fast server, a minute of a slow one."""


@dataclass(frozen=True, slots=True)
class Job:
    """Examples to be scored with a model, and how."""

    model: ScoringModel
    examples: Sequence[Example]
    schemes: Sequence[Scheme]
    tau: float
    stop_early: bool
    near: Near | None
    batch_size: BatchSize
    counting: Counting | None = None

    def __post_init__(self) -> None:
        settle(self, "tau", require_tau(self.tau))


def run_folder(out: str | Path | None, name: str, model: ScoringModel) -> Path:
    """Where a run goes: `out`, or runs/NAME-MODEL."""
    require_kind("model", model, TokenModel, "a model that rote.load gives")
    return named_folder(out, name, model.identity().title)


def named_folder(out: str | Path | None, name: str, title: str) -> Path:
    """The same, of a model that is called `title`."""
    if out is not None:
        return folder_of(out)
    called = re.sub(r"[/:\\]+", "-", title)
    return Path("runs") / f"{Path(name).stem}-{called}"


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Where a run is stopped by hand, say how far it has come."""

    def left() -> str:
        if not (folder / "manifest.json").exists():
            return f"nothing stored yet in {folder}. Run the same command again to go on."
        run = Run.open(folder)
        readable = " rote report shows what they say already." if run.stages and (folder / SEAL).is_file() else ""
        return f"{run.progress()} in {folder}. Run the same command again to go on.{readable}"

    with stopping(left):
        yield


def check_context(model: ScoringModel, prefix: int, suffix: int, names: tuple[str, str] = ("prefix", "suffix")) -> None:
    """Refuse windows longer than the model's context, before any is cut, naming the longest suffix that fits."""
    bos, context = int(model.bos_id is not None), model.context_length
    if context is None or prefix + suffix - 1 + bos <= context:
        return
    largest = context + 1 - bos - prefix  # the last suffix token need not be fed
    beside = f"beside {argument(names[0], prefix)}, {argument(names[1], largest)} is the largest that fits"
    raise InputError(
        f"a window of {prefix} + {suffix} tokens takes {prefix + suffix - 1 + bos} positions, more than the model's "
        f"context of {context}; {beside if largest > 0 else 'use a smaller ' + argument(names[0])}."
    )


def check_job(job: Job) -> None:
    """Refuse what cannot be scored, before anything is written."""
    require_flag("stop_early", job.stop_early)
    if job.model.identity().served is not None:
        for name, given in (("batch_size", job.batch_size != "auto"), ("stop_early", job.stop_early)):
            if given:
                raise InputError(
                    f"{argument(name)} changes nothing for a served model, whose server forms its own batches and "
                    "scores every prompt whole; leave it out."
                )
    if job.near is not None:
        require_kind("near", job.near, Near, "a rote.Near, or None")
    from rote.extraction.near.search import check_near
    from rote.extraction.verbatim import check

    check(job.model, job.examples, job.schemes, job.tau, job.batch_size)
    if job.near is not None:
        if job.stop_early:
            raise InputError(
                f"{argument('near')}: near-verbatim extraction needs every example in full; it cannot stop early. "
                f"Leave {argument('stop_early')} out."
            )
        _refuse_pointless(job.examples, job.near)
        if not isinstance(job.model, SpreadModel):  # whose workers have its logits
            searchable(job.model, job.near.method, f"near-verbatim extraction ({argument('near')})")
        check_near(job.model, job.examples, job.near, job.schemes)


def _memory_positions(model: ScoringModel) -> int:
    """None of a model that is not searched, but generates by itself."""
    return model.memory_positions if isinstance(model, LogitModel | SpreadModel) else 0


def _refuse_pointless(examples: Sequence[Example], near: Near) -> None:
    """Refuse searches that would find out nothing: they could not pay for themselves, or everything would count."""
    from rote.extraction.near.fork import first_cost

    if near.budget is not None and near.method != "sample":
        beam = near.method == "beam"
        costs = [len(e.prefix) + (len(e.suffix) - 1) * near.width if beam else first_cost(e) for e in examples]
        if near.budget < max(costs):
            what = f"a beam of {near.width}" if beam else "the first pass"
            raise InputError(
                f"{argument('budget', near.budget)}: so many token evaluations do not cover {what}; give at least "
                f"{max(costs)}."
            )
    short = min(examples, key=lambda e: len(e.suffix))
    if near.eos != "exclude" and len(short.suffix) <= near.tolerance:
        raise InputError(
            f"with {argument('tolerance', near.tolerance)} every output is near enough to the suffix of example "
            f"{short.id!r}, which has {counted(len(short.suffix), 'token')}; use a tolerance below that, or longer "
            "suffixes."
        )


def manifest_of(
    job: Job,
    source: Source,
    *,
    windows: ScannedWindows | None = None,
    dropped: int = 0,
    sampling: Sampling | None = None,
    sweep: SweptLengths | None = None,
    refined: Refined | None = None,
) -> Manifest:
    """Everything that decides a number of this job; one with windows is a scan."""
    model, near = job.model, job.near
    size = shard_size(model, max(len(example.prefix) + len(example.suffix) for example in job.examples))
    return Manifest(
        format=FORMAT,
        kind="score" if windows is None else "scan",
        created=now(),
        source=source,
        model=model.identity(),
        windows=windows,
        dropped=dropped,
        schemes=[str(scheme) for scheme in job.schemes],
        tau=job.tau,
        stop_early=job.stop_early,
        batch_size=job.batch_size,
        batch_tokens=_batch_tokens(job),
        near=None if near is None else NearSearch(**asdict(near), memory_positions=_memory_positions(model)),
        logit_tolerance=model.logit_tolerance,
        shard_examples=size,
        shards=None if refined else math.ceil(len(job.examples) / size),
        refined=refined,
        sampling=sampling,
        sweep=sweep,
        index=None if job.counting is None else job.counting.use,
        versions=made_with(),
    )


def _batch_tokens(job: Job) -> int | None:
    """Positions fed at once, where that was left to the model: they may follow from the GPU's memory."""
    model = job.model
    return model.batch_tokens if job.batch_size == "auto" and isinstance(model, LogitModel | SpreadModel) else None


def shard_size(model: ScoringModel, longest: int) -> int:
    """Examples per shard, if the longest has so many tokens: a power of two worth a few seconds, always the same."""
    identity = model.identity()
    if identity.parameters is None:
        return SERVED_SHARD
    flops = 2 * identity.parameters * longest
    budget = SHARD_FLOPS.get(identity.device, 1e12)
    return 1 << int(math.log2(min(max(budget / flops, 32), 4096)))


def complete(folder: Path, manifest: Manifest, content: Mapping[str, bytes], job: Job, tell: Progress) -> Run:
    """Begin the run or go on with it; score what it lacks; sum up. `content`: what it is about, by file name."""
    with locked(folder):
        begin(folder, manifest, content=content)
        score_shards(folder, 0, job.examples, job, manifest.shard_examples, tell)
        return wind_up(folder, job, tell)


def wind_up(folder: Path, job: Job, tell: Progress) -> Run:
    """What is left to do once all rows are there."""
    run = Run(folder)
    try_variants(run, job.model, job.batch_size, tell)
    look_up_outputs(run, job.model, job.counting, tell)
    finish(folder, run.summed_up())
    run.report(progress=tell)
    return run


def score_shards(
    folder: Path, first: int, examples: Sequence[Example], job: Job, size: int, tell: Progress, *,
    stage: int | None = None, before: int = 0,
) -> None:  # fmt: skip
    """Score these examples, `size` to a shard, and store what is not there yet, from shard `first` on.

    `before`: how many the run had before them, which progress counts in.
    """
    total = before + len(examples)
    scoring = Scoring(job.schemes, job.tau, job.stop_early, job.near, job.batch_size, stage)
    parts = {
        first + number: examples[start : start + size] for number, start in enumerate(range(0, len(examples), size))
    }
    lacking = {number: part for number, part in parts.items() if not has_shard(folder, number)}
    if isinstance(job.model, SpreadModel):
        done = total - sum(map(len, lacking.values()))
        _score_on_workers(folder, job.model, lacking, scoring, _Rates(tell, lacking, done, total))
        return
    for number, part in parts.items():
        if number in lacking:
            shard = score_shard(job.model, part, scoring, _from(tell, before, total))
            keep_shard(folder, number, shard.content)
        before += len(part)
        tell("scored", before, total)


def _from(tell: Progress, before: int, total: int) -> Progress:
    """A shard's progress as that of the run."""
    return lambda what, done, of: tell(what, before + done, total)


class _Rates:
    """How far all workers together are: in examples, and in token evaluations, of which there may be so many."""

    def __init__(self, tell: Progress, lacking: Mapping[int, Sequence[Example]], done: int, total: int) -> None:
        self.tell, self.done, self.total = tell, done, total
        self.lacking = sum(map(len, lacking.values()))
        self.scored = self.evaluated = 0
        tell("scored", done, total)

    def add(self, examples: int, token_evals: int) -> None:
        self.scored, self.evaluated = self.scored + examples, self.evaluated + token_evals
        self.tell("scored", self.done + self.scored, self.total)
        self.tell("evaluated", self.evaluated, round(self.evaluated / self.scored * self.lacking))


def _score_on_workers(
    folder: Path, model: SpreadModel, lacking: Mapping[int, Sequence[Example]], scoring: Scoring, rates: _Rates
) -> None:
    """The same on the workers of a cluster. This process alone writes, and they wait for it if it is slow."""

    def keep(number: int, shard: Shard) -> None:
        keep_shard(folder, number, shard.content)
        rates.add(len(lacking[number]), shard.token_evals)

    work = model.work(score_shard, {number: (part, scoring) for number, part in lacking.items()}, rates.tell)
    try:
        for number, shard in work:
            keep(number, shard)
    except BaseException:
        for number, shard in work.arrived():  # what has come in by now is not lost
            keep(number, shard)
        raise
    if work.set_aside:
        raise RunError(_why_set_aside(folder, lacking, work.set_aside))


def _why_set_aside(
    folder: Path, lacking: Mapping[int, Sequence[Example]], set_aside: Mapping[int, Sequence[Failure]]
) -> str:
    """Which shards are still lacking, since no worker could score them, and what to do."""
    lines = []
    for number, failures in sorted(set_aside.items())[:10]:
        part = lacking[number]
        where = "; ".join(f"{failure.worker}: {failure.reason}" for failure in failures)
        lines.append(f"\n  shard {number} ({len(part)} examples, {part[0].id!r} to {part[-1].id!r}) failed on {where}")
    if (more := len(set_aside) - len(lines)) > 0:
        lines.append(f"\n  and {counted(more, 'more shard')}")
    fix = fixes(failure for each in set_aside.values() for failure in each)
    return (
        f"{counted(len(set_aside), 'shard')} could not be scored, and {Run.open(folder).progress()} in {folder}:"
        f"{''.join(lines)}\nAll others are kept. Run the same command again to go on, here or on the cluster.{fix}"
    )
