"""Runs on workers of a Ray cluster, real ones on this machine: the same table as here, whatever dies on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rote
import rote.models.huggingface
from rote import Engine, InputError, ModelError, ModelOptions, Near, Run, RunError
from rote.jobs import engine
from rote.models.cluster import REGISTER_SECONDS, ClusterModel, _adapter_anywhere, _anywhere, _room, join, worker
from rote.models.failures import DIED, MEMORY, Failure, died, fixes
from rote.models.workers import IN_FLIGHT, PATIENCE, Crew, Member, Work
from rote.progress import quiet
from tests import tiny
from tests.cli.command import rote_process
from tests.jobs import failing
from tests.jobs.support import SIZES, same_table, wait_for_shards
from tests.seals import unfinish

ON_CPU = ModelOptions(device="cpu", threads=1)

pytestmark = pytest.mark.timeout(900)  # workers are processes that import torch: minutes, on a busy machine


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """One cluster for all, of this machine alone, with more places than it has cores."""
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(Path(__file__).parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))  # workers import what tests send them
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_register_timeout_seconds", REGISTER_SECONDS)
        patch.setenv("RAY_enable_worker_prestart", "0")  # of as many as there are places
        patch.setenv("RAY_worker_niceness", "0")  # or other tests, which are not nice, leave them nothing
        import ray

        silent: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        ray.init(address="local", num_cpus=6, include_dashboard=False, object_store_memory=1 << 27, **silent)
        yield ray
        ray.shutdown()


@pytest.fixture(scope="module")
def spread(ray: Any, tiny_folder: Path) -> Iterator[ClusterModel]:
    """The tiny model on two workers, loaded where nothing can be loaded in this process."""

    def refused(*given: Any) -> None:
        raise AssertionError("weights were loaded by the process that leads the workers")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rote.models.huggingface, "load_huggingface", refused)
        model = rote.load_on(Engine("ray", workers=2), tiny_folder, ON_CPU)
    assert isinstance(model, ClusterModel)
    yield model
    model.close()


def both_there(spread: ClusterModel) -> None:
    """Both workers are there, and have the model."""
    deadline = time.monotonic() + 600
    while len(spread.workers) < 2:
        assert time.monotonic() < deadline
        assert len(spread._crew.members) == 2, spread._crew.failures
        for member in spread._crew.members:
            if member.coming is not None and _is_there(member.coming):
                spread._crew.came(member)


def _is_there(ref: Any) -> bool:
    import ray

    return bool(ray.wait([ref], timeout=0.2)[0])


# --- the same table


def test_the_model_is_known_here_without_its_weights(spread: ClusterModel, model: Any) -> None:
    assert spread.identity() == model.identity()
    for name in ("bos_id", "eos_ids", "vocabulary", "context_length", "logit_tolerance", "warnings", "batch_tokens"):
        assert getattr(spread, name) == getattr(model, name)
    assert spread.memory_positions == model.memory_positions
    assert spread.tokenizer("some words").input_ids == model.tokenizer("some words").input_ids
    assert repr(spread) == "<tiny on 2 workers of a Ray cluster, BOS auto>"
    with pytest.raises(ModelError, match=r"is on workers of a cluster, and .* needs its logits here"):
        rote.reconstruct(spread, "some words")  # type: ignore[arg-type]


@pytest.mark.parametrize("extra", [{}, {"near": Near(tolerance=1, budget=60)}, {"refine": rote.Refine(), "tau": 1e-9}])
def test_the_table_is_that_of_a_local_run(
    spread: ClusterModel, model: Any, text: str, tmp_path: Path, extra: dict[str, Any]
) -> None:
    shown: list[tuple[str, int, int]] = []
    runs = [
        rote.scan(own, text, windows=SIZES, out=tmp_path / name, name="text", progress=tell, **extra)
        for own, name, tell in ((model, "here", None), (spread, "there", lambda *told: shown.append(told)))
    ]
    same_table(*runs)
    assert runs[0].variants == runs[1].variants  # tried on a worker as well
    manifests = [json.loads((run.folder / "manifest.json").read_text()) for run in runs]
    assert {key: value for key, value in manifests[0].items() if key != "created"} == {
        key: value for key, value in manifests[1].items() if key != "created"
    }
    windows = [done for what, done, _ in shown if what == "scored"]
    assert windows == sorted(windows)
    assert windows[-1] == runs[0].scores.height
    assert ("workers", 2, 2) in shown
    spent = "token_evals" if "near" not in extra else "near_token_evals"
    evaluated = [(done, of) for what, done, of in shown if what == "evaluated"]
    if "refine" not in extra:
        assert evaluated[-1] == (runs[0].scores[spent].sum(),) * 2


def test_a_run_that_was_begun_here_ends_there_and_the_other_way_round(
    spread: ClusterModel, model: Any, undisturbed: Run, text: str, tmp_path: Path
) -> None:
    for number, own in enumerate((spread, model)):
        folder = tmp_path / str(number)
        begun = rote.scan(model if own is spread else spread, text, windows=SIZES, out=folder)
        unfinish(folder)
        (folder / "variants.json").unlink(missing_ok=True)
        for shard in (begun.shards()[0], begun.shards()[2]):
            shard.unlink()
        same_table(rote.scan(own, text, windows=SIZES, out=folder), undisturbed)


def test_given_examples_and_outputs_of_one_prefix_come_from_workers(
    spread: ClusterModel, model: Any, tmp_path: Path
) -> None:
    given = [rote.Example(str(i), tuple(range(5 + i, 13 + i)), tuple(range(30, 34))) for i in range(40)]
    same_table(*(rote.score(own, given, out=tmp_path / str(own is model), name="ids") for own in (model, spread)))
    for own, other in zip(rote.verbatim(spread, given), rote.verbatim(model, given), strict=True):
        assert own.told() == other.told()
    asked: dict[str, Any] = {"length": 5, "samples": 3, "seed": 1}
    prompt, scheme = (1, 5, 6, 7), rote.Scheme()
    assert list(spread.generate(prompt, scheme, **asked)) == list(model.generate(prompt, scheme, **asked))


# --- what dies


def test_a_worker_that_is_killed_costs_nothing_but_time(
    spread: ClusterModel, text: str, undisturbed: Run, tmp_path: Path
) -> None:
    both_there(spread)
    victim = spread.workers[0].process

    def tell(what: str, done: int, total: int) -> None:
        nonlocal victim
        if what == "scored" and victim:
            os.kill(victim, signal.SIGKILL)
            victim = 0

    with pytest.warns(UserWarning, match=r"^worker \d on .* was lost; what it was doing is done again"):
        run = rote.scan(spread, text, windows=SIZES, out=tmp_path / "run", progress=tell)
    same_table(run, undisturbed)
    both_there(spread)  # Ray has started it anew


@pytest.mark.parametrize(
    ("poison", "told"),
    [
        (failing.raises, r"ValueError: this cannot be scored; .*ValueError: this cannot be scored"),
        (failing.runs_out, r"(?s)RuntimeError: .*allocate memory.*It ran out of memory: use a smaller batch_size"),
        (failing.kills, r"(?s)the worker died over it .*; .*the worker died over it.*If it died for lack of memory"),
    ],
)
@pytest.mark.filterwarnings("ignore:worker")
def test_a_poisoned_shard_is_set_aside_and_the_others_are_kept(
    spread: ClusterModel, model: Any, text: str, undisturbed: Run, tmp_path: Path, poison: Any, told: str
) -> None:
    both_there(spread)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "score_shard", poison)
        with pytest.raises(RunError, match=told) as raised:
            rote.scan(spread, text, windows=SIZES, out=tmp_path / "run")
    message = str(raised.value)
    assert "1 shard could not be scored, and 3 of 4 shards stored" in message
    assert "shard 0 (32 examples, 'w0' to" in message
    assert len({part.split(")")[0] for part in message.split("(process ")[1:]}) == 2  # two workers
    begun = Run.open(tmp_path / "run")
    assert sorted(path.stem for path in begun.shards()) == ["000001", "000002", "000003"]
    same_table(rote.scan(model, text, windows=SIZES, out=tmp_path / "run"), undisturbed)


def test_what_one_worker_has_no_memory_for_another_does(spread: ClusterModel, tmp_path: Path) -> None:
    both_there(spread)
    first = str(tmp_path / "first")
    done = dict(work := spread.work(failing.once_runs_out, {number: (first, number) for number in range(6)}))
    assert {key: number for key, (number, _) in done.items()} == {number: number for number in range(6)}
    assert work.set_aside == {}
    assert {process for _, process in done.values()} == {told.process for told in spread.workers} - {
        int(Path(first).read_text())
    }


@pytest.mark.filterwarnings("ignore:worker")
def test_workers_without_the_model_or_with_another_are_left_out(ray: Any, tiny_folder: Path, tmp_path: Path) -> None:
    other, missing = tiny.save(tmp_path / "other", seed=1), tmp_path / "missing"
    kind = worker(ray, cpus=1, gpus=0)
    crew = Crew([kind.remote(folder, ON_CPU) for folder in (tiny_folder, missing, other)])
    members = list(crew.members)
    crew.came(members[0])
    with pytest.warns(UserWarning, match="is left out") as said:
        crew.came(members[1])
    without = str(said[0].message)
    with pytest.warns(UserWarning, match="is left out") as said:
        crew.came(members[2])
    another = str(said[0].message)
    assert f"there is no model at {missing}" in without
    assert without.endswith("2 of 3 workers are left.")
    assert "its numbers would be others: fingerprint is" in another
    model = ClusterModel(crew)
    assert model.call(failing.noted, str(tmp_path), 1) == 1
    model.close()
    with pytest.raises(ModelError, match="the workers of this model were ended; load it again"):
        model.call(failing.noted, str(tmp_path), 2)
    with pytest.raises(
        ModelError, match=r"(?s)no worker of the cluster could go on with the model \(.*, .*\): there is no model at"
    ):
        rote.load_on(Engine("ray", workers=2), missing, ON_CPU)


def test_a_task_that_failed_waits_for_a_worker_that_is_still_to_come(spread: ClusterModel) -> None:
    failed, coming = Member(1, None, told=spread.workers[0]), Member(2, None)
    crew: Any = SimpleNamespace(members=[failed, coming], there=[failed])
    work = Work(crew, failing.noted, {0: (), 1: ()}, quiet)
    work._failed(failed, 0, Failure("here", "no room"))
    assert work._next(failed) == 1
    work.left.remove(1)
    assert work._next(failed) is None
    assert work._next(coming) == 0
    work.failed_at[0] -= PATIENCE + 1
    assert work._next(failed) == 0


def test_a_worker_whose_machine_is_taken_away_while_it_loads_is_asked_again(
    ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.exceptions import RayActorError

    crew = Crew([])
    asked: list[Member] = []
    monkeypatch.setattr(crew, "call", asked.append)
    monkeypatch.setattr(crew, "leave", lambda member, why: left.append(why))
    left: list[Failure] = []
    for preempted, times, leaves in ((True, 5, 0), (False, 3, 1)):
        member = Member(1, None)
        monkeypatch.setattr(ray, "get", raising(RayActorError(error_msg="gone", preempted=preempted)))
        for _ in range(times):
            crew.came(member)
        assert [why.fix for why in left] == [DIED] * leaves
    assert len(asked) == 5 + 2


def test_why_a_worker_died_is_said_as_far_as_ray_says_it(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    common = "Worker exit detail: connection error. Some common causes include: (1) the OOM killer due to high memory"
    told = "1 worker(s) were killed due to the node running low on memory."
    assert died("here", RuntimeError(f"The actor died.\n{common}"), "it died") == Failure(
        "here", "it died (The actor died.)", DIED
    )
    assert died("in a room", RuntimeError("no room"), "it died").fix == DIED
    assert died("here", RuntimeError(told), "it died").fix == MEMORY
    assert fixes([Failure("a", "x"), Failure("b", "y", DIED), Failure("c", "z", MEMORY)]) == f" {MEMORY}"
    crew = Crew([])
    crew.members, crew.asked = [Member(1, None), Member(2, None)], 2
    monkeypatch.setattr(ray, "kill", lambda actor: None)
    with pytest.warns(UserWarning, match="is left out: gone. If it died for lack of memory, .* a smaller batch_size,"):
        crew.leave(crew.members[0], Failure("there", "gone", DIED))


def raising(error: Exception) -> Any:
    def function(*_: Any) -> None:
        raise error

    return function


def test_room_is_that_of_single_machines() -> None:
    machines = [{"Alive": alive, "Resources": {"CPU": 8, "GPU": 1}} for alive in (True, True, True, True, False)]
    assert [_room(machines, 0, cpus) for cpus in (1, 8, 16)] == [32, 4, 0]
    assert [_room(machines, gpus, 1) for gpus in (1, 2)] == [4, 0]


def test_names_are_the_same_for_workers_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("bundled", "mine"):
        (tmp_path / name).mkdir()
    assert [_anywhere(name) for name in ("bundled", Path("bundled"), "mine", "hf:mine", "hf:some/model")] == [
        "bundled", Path("bundled"), tmp_path / "mine", tmp_path / "mine", "some/model"
    ]  # fmt: skip
    assert [_adapter_anywhere(name) for name in (None, "mine", "some/lora")] == [None, f"{tmp_path}/mine", "some/lora"]


# --- back-pressure, and being stopped


def test_work_that_nobody_takes_any_more_gives_the_next_nothing(spread: ClusterModel, tmp_path: Path) -> None:
    both_there(spread)
    begun = iter(spread.work(failing.noted, {number: (str(tmp_path), number) for number in range(40)}))
    next(begun)
    assert spread.call(failing.noted, str(tmp_path), 99) == 99
    with pytest.raises(ModelError, match="given other work"):
        next(begun)


def test_a_slow_writer_is_waited_for(spread: ClusterModel, tmp_path: Path) -> None:
    both_there(spread)
    taken = 0
    for _ in spread.work(failing.noted, {number: (str(tmp_path), number) for number in range(40)}):
        taken += 1
        time.sleep(0.05)
        assert len(list(tmp_path.iterdir())) <= taken + 2 * IN_FLIGHT
    assert taken == 40


def test_an_interrupt_keeps_what_has_come_in(spread: ClusterModel, text: str, undisturbed: Run, tmp_path: Path) -> None:
    both_there(spread)
    folder = tmp_path / "run"

    def tell(what: str, done: int, total: int) -> None:
        if what == "scored" and done >= 32:
            time.sleep(0.5)  # what was sent out comes in
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in a background job it is ignored
    try:
        with pytest.raises(KeyboardInterrupt) as stopped:
            rote.scan(spread, text, windows=SIZES, out=folder, progress=tell)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped.value.__notes__[0].startswith(f"{len(Run.open(folder).shards())} of 4 shards stored in")
    same_table(rote.scan(spread, text, windows=SIZES, out=folder), undisturbed)


def test_a_run_whose_process_is_killed_goes_on_there_or_here(
    ray: Any, spread: ClusterModel, tiny_folder: Path, model: Any, alice: str, tmp_path: Path
) -> None:
    """The workers of a process that is no more are no more; what it stored is whole."""
    book = tmp_path / "book.txt"
    book.write_text(alice[:12_000])
    at = ray.get_runtime_context().gcs_address
    command: list[str | Path] = ["scan", book, "--model", tiny_folder, "--device", "cpu", "--threads", "1"]
    command += ["--engine", "ray", "--workers", "1", "--address", at]
    command += ["--prefix", "8", "--suffix", "6", "--stride", "10", "--out", tmp_path / "there"]
    before = "from rote.jobs import engine; engine.SHARD_FLOPS['cpu'] = 1.0"
    places = ray.available_resources()["CPU"]
    with rote_process(*command, before=before) as process:
        wait_for_shards(process, tmp_path / "there", 1)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    begun = Run.open(tmp_path / "there")
    shards = begun.manifest.shards
    assert shards is not None
    assert 1 <= len(begun.shards()) < shards
    shutil.copytree(tmp_path / "there", tmp_path / "here")
    runs = [
        rote.scan(own, book, windows=SIZES, out=tmp_path / name) for own, name in ((spread, "there"), (model, "here"))
    ]
    same_table(*runs)
    same_table(runs[0], rote.scan(model, book, windows=SIZES, out=tmp_path / "undisturbed"))
    deadline = time.monotonic() + 30
    while ray.available_resources().get("CPU") != places:
        assert time.monotonic() < deadline, "the killed process' worker is still there"
        time.sleep(0.2)


# --- what is refused


def test_engines_that_make_no_sense_are_refused() -> None:
    for given, told in (
        ({"engine": "slurm"}, "engine must be local or ray"),
        ({"engine": "ray", "workers": 0}, "workers must be a whole number of at least 1"),
        ({"engine": "ray", "gpus_per_worker": -1}, "gpus_per_worker must be a whole number of at least 0"),
        ({"engine": "ray", "address": "ray://head:10001"}, "give auto, local or HOST:PORT"),
        ({"workers": 2}, "workers changes nothing here; it goes with engine='ray'"),
        ({"address": "local"}, "address changes nothing here"),
    ):
        with pytest.raises(InputError, match=told):
            Engine(**given)
    for on, options, told in (
        (Engine("ray"), ModelOptions(tp_plan="auto"), "tp_plan needs one process for each GPU"),
        (Engine("ray", gpus_per_worker=2), ModelOptions(), "would leave all but one idle"),
        (Engine("ray", gpus_per_worker=0), ModelOptions(device="cuda"), "needs a GPU"),
    ):
        with pytest.raises(InputError, match=told):
            rote.load_on(on, "bundled", options)


def test_without_ray_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"needs Ray: pip install 'rote\[ray\]'"):
        rote.load_on(Engine("ray"), "bundled")


def test_a_cluster_that_does_not_answer_is_said_at_once(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr("rote.models.cluster.CONNECT_SECONDS", 0.3)
    began = time.monotonic()
    with pytest.raises(InputError, match=r"there is no Ray cluster \(Connection refused\)"):
        join("127.0.0.1:1")
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(InputError, match="HOST:PORT is wanted"):
        join("auto")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(InputError, match=r"there is no Ray cluster \(timed out\)"):
            join(f"127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - began < 5
