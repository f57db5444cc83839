"""Tensor parallel: real processes that torchrun starts, on the processor, against one process alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rote
from rote import InputError, ModelError
from rote.models.parallel import refuse_uneven
from tests import tiny

WINDOWS = rote.Windows(prefix=20, suffix=10, stride=300)
ROOT = Path(__file__).parent.parent.parent


def torchrun(*what: str, processes: int = 2) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), *what]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(run, capture_output=True, text=True, timeout=200, env={**os.environ, "PYTHONPATH": paths})


@pytest.fixture(scope="module")
def text(alice: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(alice[2000:4000], "utf-8")
    return path


def test_two_processes_score_what_one_does(text: Path, bundled: rote.LogitModel, tmp_path: Path) -> None:
    asked = ["--prefix", "20", "--suffix", "10", "--stride", "300", "--near", "--tolerance", "1", "--budget", "60"]
    ended = torchrun("-m", "rote.cli", "scan", str(text), *asked, "--tp-plan", "auto", "--out", str(tmp_path / "two"))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("report.html") == 1  # one process alone prints and writes
    two = rote.Run.open(tmp_path / "two")
    near = rote.Near(tolerance=1, budget=60)
    one = rote.scan(bundled, text.read_text("utf-8"), windows=WINDOWS, near=near, out=tmp_path / "one")
    assert (two.manifest.model.tensor_parallel, one.manifest.model.tensor_parallel) == (2, None)
    assert two.manifest.model.parameters == one.manifest.model.parameters
    a, b = two.scores["log_prob"].to_numpy(), one.scores["log_prob"].to_numpy()
    assert len(a) > 3
    np.testing.assert_allclose(a, b, rtol=0, atol=2 * 10 * bundled.logit_tolerance)
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-3)  # in fact
    np.testing.assert_allclose(two.scores["lower"], one.scores["lower"], rtol=1e-3, atol=1e-9)
    with pytest.raises(rote.RunError, match=r"model\.tensor_parallel"):
        rote.scan(bundled, text.read_text("utf-8"), windows=WINDOWS, near=near, out=two.folder)


SCRIPT = """
import os, signal, sys
from pathlib import Path
import rote
from rote.models.parallel import ParallelModel

follow, pid = ParallelModel.follow, Path(sys.argv[1])

def known(self):
    pid.write_text(str(os.getpid()))
    follow(self)

ParallelModel.follow = known
model = rote.load("bundled", rote.ModelOptions(tp_plan="auto"))
print("LEADS", type(model.memory(10)).__name__)
try:
    list(model.generate([1], rote.Scheme(), length=2, samples=1, seed=0))
except rote.ModelError as error:
    print("REFUSED", error)
example = rote.Example("a", (1, 2, 3), (4, 5))
print("SCORED", len(rote.verbatim(model, [example])), flush=True)
os.kill(int(pid.read_text()), signal.SIGKILL)
rote.verbatim(model, [example])
print("NOT ENDED", flush=True)
"""


def test_a_lost_process_ends_the_others(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ended = torchrun(str(script), str(tmp_path / "pid"))
    assert ended.returncode != 0  # and in time: torchrun() waits 200 seconds
    assert ended.stdout.count("LEADS Replay") == 1, ended.stderr  # once: the other process never gets so far
    assert ended.stdout.count("REFUSED bundled is cut across processes") == 1
    assert "SCORED 1" in ended.stdout
    assert "NOT ENDED" not in ended.stdout


def test_layers_that_cannot_be_shared_evenly(bundled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = bundled._model.config
    for processes in (1, 2, 4, 8):
        monkeypatch.setattr("torch.distributed.get_world_size", lambda count=processes: count)
        refuse_uneven(config, "bundled")
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 3)
    with pytest.raises(ModelError, match="cannot be cut across 3 processes: its num_attention_heads is 8"):
        refuse_uneven(config, "bundled")


def test_what_does_not_go_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    cases = {
        "torchrun --nproc-per-node N -m rote.cli": rote.ModelOptions(tp_plan="auto"),
        "device_map='auto'": rote.ModelOptions(tp_plan="auto", device_map="auto"),
        "device='cuda'|sees no CUDA": rote.ModelOptions(tp_plan="auto", device="cuda"),
    }
    for words, options in cases.items():
        with pytest.raises(InputError, match=words):
            rote.load("bundled", options)
    path = tiny.write_gguf(tmp_path / "small.gguf", tiny.build(), rote.load("bundled").tokenizer)
    with pytest.raises(InputError, match="GGUF"):
        rote.load(path, rote.ModelOptions(tp_plan="auto"))
    with pytest.raises(InputError, match="must be auto, not 'all'"):
        rote.ModelOptions(tp_plan="all")  # type: ignore[arg-type]
