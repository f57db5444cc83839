"""Runs of served models: the table of the model itself, resumed, checked, verified and sampled through the server."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import rote
from rote import GREEDY, InputError, ModelError, ModelOptions, Near, Run, RunError, Scheme, Windows
from rote.jobs import engine
from rote.models.base import BUNDLED
from tests.cli.command import rote_process
from tests.echoserver import EchoServer
from tests.jobs.support import wait_for_shards
from tests.tiny import copy_bundled
from tests.vllmserver import Faults, VllmServer, options

WINDOWS = Windows(prefix=8, suffix=6, stride=30)
SCHEMES = [Scheme(), Scheme(0.7), GREEDY]


@pytest.fixture(scope="module")
def tiny(tiny_folder: Path) -> Any:
    return rote.load(tiny_folder, ModelOptions(device="cpu"))


@pytest.fixture(scope="module")
def served(bundled: Any) -> Iterator[tuple[VllmServer, Any]]:
    with VllmServer(bundled) as server:
        yield server, rote.load(server.model, options())


@pytest.fixture(scope="module")
def passage(alice: str) -> str:
    return alice[3000:3260]


@pytest.fixture(scope="module")
def run(served: Any, passage: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return rote.scan(served[1], passage, windows=WINDOWS, schemes=SCHEMES, out=tmp_path_factory.mktemp("runs") / "scan")


def test_a_scan_gives_the_table_of_the_model_itself(run: Run, bundled: Any, passage: str, tmp_path: Path) -> None:
    here = rote.scan(bundled, passage, windows=WINDOWS, schemes=SCHEMES, out=tmp_path / "here")
    assert not run.scores["bounded"].any()
    exact = ["example_id", "scheme", "start", "suffix_start", "suffix_end", "greedy", "token_evals"]
    assert run.scores.select(exact).equals(here.scores.select(exact))
    np.testing.assert_allclose(run.scores["log_prob"], here.scores["log_prob"], atol=1e-4, rtol=0)
    assert run.scores.filter(pl.col("log_prob").is_finite())["log_prob"].max() > -1  # type: ignore[operator]


def test_the_manifest_says_what_is_known_and_pages_say_what_is_not(run: Run, served: Any) -> None:
    server, model = served
    own = run.manifest.model
    assert own == model.identity()
    assert own.served is not None
    assert (own.fingerprint, own.served.url, own.served.version) == (None, server.url, "vLLM 0.15.0")
    assert run.manifest.logit_tolerance == model.logit_tolerance
    page = (run.folder / "report.html").read_text()
    assert "its weights cannot be checked" in page
    assert "vLLM 0.15.0" in page


def test_another_server_is_another_run(run: Run, bundled: Any, passage: str) -> None:
    with VllmServer(bundled) as other:
        model = rote.load(other.model, options())
        with pytest.raises(RunError, match=r"model\.served\.url"):
            rote.scan(model, passage, windows=WINDOWS, schemes=SCHEMES, out=run.folder)
        with pytest.raises(RunError, match="served otherwise: its url"):
            rote.check(run, model, samples=10)
    with pytest.raises(RunError, match="is served by"):
        rote.check(run, bundled, samples=10)


def test_it_is_verified_through_the_server(run: Run, served: Any, bundled: Any) -> None:
    found = rote.verify(run, served[1], every=True)
    assert found.verified
    assert any("its weights cannot be checked, only its numbers" in each.told for each in found.findings)
    assert found.rescored is not None
    assert found.rescored.mean_difference < 1e-5
    assert not rote.verify(run, bundled).verified


def test_where_the_tokenizer_was_read_from_decides_nothing(run: Run, served: Any, passage: str, tmp_path: Path) -> None:
    elsewhere = copy_bundled(tmp_path / "elsewhere")
    model = rote.load(served[0].model, replace(options(), tokenizer=str(elsewhere)))
    assert rote.scan(model, passage, windows=WINDOWS, schemes=SCHEMES, out=run.folder).scores.equals(run.scores)
    assert rote.check(run, model, samples=20, passages=1).outputs == 20


def test_its_model_is_found_again(run: Run) -> None:
    assert run.load_model().identity() == run.manifest.model


def test_a_passage_is_shown_with_its_tokens(run: Run) -> None:
    shown = rote.show(run, example=run.scores["example_id"][0])
    assert shown.runs[0].tokens_unknown is None
    assert all(token.text for token in shown.runs[0].tokens)


def test_where_a_model_runs_is_said_before_its_weights_are_compared(run: Run, bundled: Any, passage: str) -> None:
    findings = {each.name: each for each in rote.verify(run, bundled).findings}
    assert re.search("is served by http.*bundled runs where Rote does", findings["model"].told)
    with pytest.raises(RunError, match=r"is served by http.*this command's runs where Rote does"):
        rote.scan(bundled, passage, windows=WINDOWS, schemes=SCHEMES, out=run.folder)


@pytest.mark.parametrize("idle", [{"batch_size": 4}, {"stop_early": True}])
def test_what_changes_nothing_for_a_server_is_refused(
    idle: dict[str, Any], served: Any, passage: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="changes nothing for a served model"):
        rote.scan(served[1], passage, windows=WINDOWS, out=tmp_path / "run", **idle)


def test_the_check_generates_with_the_servers_sampler(run: Run, served: Any) -> None:
    before = len(served[0].bodies)
    checked = rote.check(run, served[1], samples=40, passages=2, show=1)
    assert checked.outputs == 80
    assert checked.smallest_p_value > 1e-4
    assert len(served[0].bodies) - before == 2  # 40 outputs a request
    assert rote.check(run, served[1], scheme="greedy", samples=2, examples=[run.scores["example_id"][0]]).passages


def test_monte_carlo_draws_with_the_servers_sampler(served: Any, bundled: Any, passage: str, tmp_path: Path) -> None:
    windows = replace(WINDOWS, stride=150)
    near = Near(tolerance=2, method="sample", samples=128)
    ours = rote.scan(served[1], passage, windows=windows, near=near, out=tmp_path / "served")
    theirs = rote.scan(bundled, passage, windows=windows, near=Near(tolerance=2), out=tmp_path / "here")
    for one, two in zip(ours.scores.to_dicts(), theirs.scores.to_dicts(), strict=True):
        error = max(one["estimate_error"], 0.01)
        assert two["lower"] - 5 * error <= one["estimate"] <= two["upper"] + 5 * error
    assert rote.verify(ours, served[1]).verified
    for method in ("fork", "beam"):
        with pytest.raises(ModelError, match="gives the probabilities of given tokens alone"):
            rote.scan(served[1], passage, windows=windows, near=Near(tolerance=2, method=method), out=tmp_path / "no")
    with pytest.raises(InputError, match="ends at EOS"):
        rote.near_verbatim(served[1], [rote.Example("x", (5,), (6, 7))], near=replace(near, tolerance=0, eos="ignore"))
    assert not (tmp_path / "no").exists()


def test_samples_are_not_paid_for_where_a_list_leaves_p_z_open(bundled: Any, passage: str, tmp_path: Path) -> None:
    near, scheme = Near(tolerance=2, method="sample", samples=16), Scheme(top_k=None, min_p=2e-5)
    with VllmServer(bundled) as server:
        model: Any = rote.load(server.model, replace(options(), listed=3))
        with pytest.raises(InputError, match=r"p_z of 'w\d+' open .*more with listed"):
            rote.scan(model, passage, windows=WINDOWS, schemes=scheme, near=near, out=tmp_path / "run")
        assert all(body["max_tokens"] == 1 for body in server.bodies)
        assert rote.scan(model, passage, windows=WINDOWS, schemes=scheme, out=tmp_path / "rows").scores["bounded"].any()


def test_a_server_that_gives_no_ids_is_refused_before_samples_are_scored(tiny: Any, alice: str, tmp_path: Path) -> None:
    near = Near(tolerance=1, method="sample", samples=8)
    with VllmServer(tiny, faults=Faults(old=True)) as server:
        model: Any = rote.load(server.model, options())
        with pytest.raises(InputError, match=r"that needs vLLM 0\.10\.2"):
            rote.scan(model, alice[3000:3100], windows=WINDOWS, near=near, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_scored_is_refused_before_anything_is_written(served: Any, passage: str, tmp_path: Path) -> None:
    server, model = served
    asked = len(server.bodies)
    for scheme, what in ((Scheme(0.7, None), "temperature=0.7"), (Scheme(top_k=64), "top_k=64")):
        with pytest.raises(InputError, match=what):
            rote.scan(model, passage, windows=WINDOWS, schemes=scheme, out=tmp_path / "run")
    for job in (lambda: rote.member(model), lambda: rote.reconstruct(model, passage, out=tmp_path / "run")):
        with pytest.raises(ModelError, match="gives the probabilities of given tokens alone"):
            job()
    assert (len(server.bodies), (tmp_path / "run").exists()) == (asked, False)


def test_a_run_keeps_the_type_that_it_was_begun_with(
    served: Any, passage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found out by how far numbers move, and they may move by more another time."""
    folder = tmp_path / "run"
    begun = rote.scan(served[1], passage, windows=WINDOWS, out=folder)
    for path in ("summary.json", "seal.json", "report.html", "scores/000000.parquet"):
        (folder / path).unlink(missing_ok=True)
    monkeypatch.setattr(served[1], "dtype", "bfloat16")
    assert served[1].logit_tolerance != begun.manifest.logit_tolerance
    again = rote.scan(served[1], passage, windows=WINDOWS, out=folder)
    assert again.manifest.logit_tolerance == begun.manifest.logit_tolerance
    assert again.scores["log_prob"].equals(begun.scores["log_prob"])


def test_another_length_of_list_is_not_verified(run: Run, served: Any) -> None:
    model = rote.load(served[0].model, options(listed=50))
    with pytest.raises(InputError, match=r"asked for 64 log-probs at each position, and this model for 50.*listed=64"):
        rote.verify(run, model)


def test_what_a_text_server_cannot_take_is_left_out_of_trials(
    bundled: Any, gatsby: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan's own windows may be read again as they were cut, and not those that other steps cut."""
    text, windows = gatsby[70_000:70_400], Windows(prefix=12, suffix=8, stride=60)
    tried = list[tuple[int, int]]()
    with EchoServer(bundled) as server:
        model: Any = rote.load(server.model, options())
        refuse = model.refuse

        def counted(examples: Any, schemes: Any) -> None:
            tried.append((len(examples), len(model._dialect.unsendable([(*e.prefix, *e.suffix) for e in examples]))))
            refuse(examples, schemes)

        monkeypatch.setattr(model, "refuse", counted)
        run = rote.scan(model, text, windows=windows, out=tmp_path / "run")
        assert run.summary.variants
        assert any(odd for _, odd in tried), "every window of every trial could be sent: the test says nothing"


def test_a_check_takes_other_passages_than_those_that_cannot_be_gone_on_from(
    run: Run, served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = rote.check(run, served[1], samples=20, passages=2).passages
    monkeypatch.setattr(served[1], "unwritable", lambda examples: [e.id for e in examples if e.id == first.example_id])
    others = rote.check(run, served[1], samples=20, passages=2).passages
    assert others
    assert first.example_id not in {each.example_id for each in others}


def test_a_server_that_goes_away_loses_no_shard(
    tiny: Any, alice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SERVED_SHARD", 32)
    windows = replace(WINDOWS, stride=10)
    with VllmServer(tiny) as server:
        model: Any = rote.load(server.model, options(concurrency=2))
        whole = rote.scan(model, alice[:1000], windows=windows, out=tmp_path / "whole")
        asked = len(server.bodies)
        model._server = replace(model._server, retries=0, backoff=0.01)

        def gone(number: int) -> None:
            if number > asked + 55:  # some are tried first
                server.faults = Faults(drops=10**6)

        server.misbehave = gone
        with pytest.raises(ModelError, match="Run the same command again"):
            rote.scan(model, alice[:1000], windows=windows, out=tmp_path / "run")
        assert len(list((tmp_path / "run/scores").glob("*.parquet"))) == 1
        server.misbehave, server.faults = lambda number: None, Faults()
        run = rote.scan(model, alice[:1000], windows=windows, out=tmp_path / "run")
        assert run.scores.equals(whole.scores)


def test_a_killed_command_goes_on(tiny: Any, alice: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(alice[:1500])
    folder = tmp_path / "run"
    alone = "from rote.jobs import engine; engine.try_variants = lambda *given: None; engine.SERVED_SHARD = 32"
    with VllmServer(tiny, latency=0.005) as server:
        command: list[str | Path] = ["scan", tmp_path / "text.txt", "--model", server.model, "--tokenizer", BUNDLED]
        command += ["--prefix", "8", "--suffix", "6", "--stride", "10", "--out", folder]
        with rote_process(*command, before=alone) as started:
            wait_for_shards(started, folder, 1)
            started.kill()
            assert started.wait() == -signal.SIGKILL
        stored = len(Run.open(folder).shards()) * Run.open(folder).manifest.shard_examples
        time.sleep(0.1)
        before = len(server.bodies)
        with rote_process(*command, before=alone) as again:
            out, err = again.communicate()
        assert again.returncode == 0, err
        lacking = Run(folder).scores.height - stored
        assert lacking > 30
        assert lacking <= len(server.bodies) - before <= lacking + 16  # it is tried first; nothing stored is asked for
        assert "its weights cannot be checked" in " ".join(out.split())
