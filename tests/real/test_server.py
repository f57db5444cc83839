"""A real server, llama-cpp-python's, beside Rote's own numbers on the same GGUF file.

    pip install 'llama-cpp-python[server]'

It is built from source, which takes minutes. Two models are served. The bundled one, unquantised: the server computes
with the very weights, in float32 as Rote does, so the two agree to a millionth, and whole runs are made through it. And
Gemma 3 270M in 4 bits: the server rounds what it multiplies these with to 8 bits, and Rote turns the weights into
float32 first. `APART` is how far they may be apart for that reason.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rote
from rote import GREEDY, Example, ModelOptions, Near, Run, Scheme, Windows
from rote.models.base import BUNDLED
from tests import tiny
from tests.real.fetch import fetch
from tests.real.test_gemma import PREAMBLE

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

SCHEMES = [Scheme(), Scheme(1.0, None), Scheme(0.7, 20), GREEDY]
APART, MEAN = 0.5, 0.2
"""The most that a token's log-prob may differ, where it is at least -6, and how much it may on average. Measured over
13 tokens: 0.245 at most, 0.084 on average. 0.5 is what a run states for logits as coarse as these."""
INSTALL = "this test needs llama-cpp-python's server: pip install -c constraints.txt 'llama-cpp-python[server]'"


@pytest.fixture(scope="module")
def path() -> Path:
    return fetch("gemma3-270m")


@contextmanager
def serving(model: Path, name: str, log: Path, *more: str) -> Iterator[str]:
    """A server of this GGUF file; gives its address and the model's name there."""
    assert find_spec("llama_cpp") is not None, INSTALL
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(model), "--model_alias", name, "--logits_all",
               "true", "--host", "127.0.0.1", "--port", str(port), "--n_threads", "1", "--n_threads_batch", "1",
               *more]  # fmt: skip
    with log.open("w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        for _ in range(600):
            assert server.poll() is None, f"the server ended: {log.read_text()[-2000:]}"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=2).read()
                break
            except OSError:
                time.sleep(0.2)
        yield f"server:http://127.0.0.1:{port}/v1/{name}"
    finally:
        server.terminate()
        server.wait(30)


# --- the bundled model, unquantised


WINDOWS = Windows(prefix=60, suffix=40, stride=100, unit="characters")
LISTED = [Scheme(), Scheme(1.0, None), Scheme(0.7, 20), Scheme(top_k=None, min_p=0.05), Scheme(1.0, None, 0.9), GREEDY]
SAME = 1e-4
"""How far a log-prob of a whole suffix may be from Rote's own. Measured: 0.000004 at most, 0.0000007 for a token."""


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the bundled model, in a file with its float32 weights, keys and values in float32 too."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("alike")
    model = AutoModelForCausalLM.from_pretrained(BUNDLED, dtype=torch.float32)
    path = tiny.write_gguf(folder / "bundled.gguf", model, AutoTokenizer.from_pretrained(BUNDLED))
    with serving(path, "bundled", folder / "log", "--n_ctx", "256", "--type_k", "0", "--type_v", "0") as address:
        yield address


def loaded(address: str, listed: int = 64) -> Any:
    return rote.load(address, ModelOptions(tokenizer=str(BUNDLED), listed=listed, concurrency=1))


@pytest.fixture(scope="module")
def run(alike: str, alice: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "served"
    return rote.scan(loaded(alike), alice[3000:4500], windows=WINDOWS, schemes=LISTED, out=out)


@pytest.mark.parametrize("listed", [64, 24])
def test_the_very_weights_give_rotes_own_numbers(
    listed: int, alike: str, bundled: Any, alice: str, gatsby: str
) -> None:
    """Of passages that it knows by heart and of some that it does not; with a list that leaves much open, too."""
    model = loaded(alike, listed)
    assert (model.dtype, model.logit_tolerance) == ("float32", 5e-4)
    schemes = LISTED if listed == 64 else LISTED[1:]
    texts = alice[2000:3200] + gatsby[20_000:21_200]
    examples = rote.windows(texts, bundled.tokenizer, WINDOWS)
    theirs, ours = (rote.verbatim(each, examples, schemes) for each in (model, bundled))
    exact = 0
    for one, two in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(one.base_log_probs, two.base_log_probs, atol=SAME, rtol=0)
        assert one.greedy in (two.greedy, None)
        if one.bounded:
            assert two.log_prob <= one.log_prob + SAME
        else:
            np.testing.assert_allclose(one.log_prob, two.log_prob, atol=SAME, rtol=0)
            exact += 1
    assert sum(own.greedy is True for own in ours) > len(ours) / 4, "what it knows by heart"
    assert sum(own.log_prob == -np.inf for own in ours) > len(ours) / 4, "and what it does not"
    assert exact > 0.9 * len(ours)


def test_a_run_through_it_is_that_of_the_model_itself(run: Run, alike: str, bundled: Any, tmp_path: Path) -> None:
    here = rote.scan(bundled, run.text or "", windows=WINDOWS, schemes=LISTED, out=tmp_path / "here")
    same = ["example_id", "scheme", "start", "suffix_start", "suffix_end", "greedy", "token_evals"]
    assert run.scores.select(same).equals(here.scores.select(same))
    decided = ~run.scores["bounded"]
    assert decided.sum() > 0.9 * run.scores.height
    close = run.scores["base_log_probs"].explode() - here.scores["base_log_probs"].explode()
    assert close.abs().max() < SAME  # type: ignore[operator]
    apart = run.scores["log_prob"].filter(decided) - here.scores["log_prob"].filter(decided)
    assert apart.fill_nan(0.0).abs().max() < SAME  # type: ignore[operator]
    verified = rote.verify(run, loaded(alike), every=True)
    assert verified.verified
    assert verified.rescored is not None
    assert verified.rescored.mean_difference < SAME


def test_its_own_sampler_gives_what_p_z_says(run: Run, alike: str, bundled: Any, alice: str) -> None:
    model = loaded(alike)
    checked = rote.check(run, model, samples=100, passages=3)
    assert checked.outputs == 300
    assert checked.smallest_p_value > 1e-4
    examples, scheme = rote.windows(alice[3000:3300], bundled.tokenizer, WINDOWS), Scheme(1.5, 40)
    sampled = rote.near_verbatim(model, examples, scheme, near=Near(tolerance=2, method="sample", samples=200))
    certain = rote.near_verbatim(bundled, examples, scheme, near=Near(tolerance=2))
    for drawn, bounds in zip(sampled, certain, strict=True):
        assert drawn.estimate is not None
        far = 4.5 * max(drawn.estimate.error, 0.01)
        assert bounds.lower - far <= drawn.estimate.mean <= bounds.upper + far
    assert max(bounds.upper for bounds in certain) < 0.99, "not everything counts"


# --- Gemma 3 270M, in 4 bits


@pytest.fixture(scope="module")
def address(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(path, "gemma", tmp_path_factory.mktemp("server") / "log", "--n_ctx", "128") as address:
        yield address


@pytest.fixture(scope="module")
def served(address: str, path: Path) -> Any:
    return rote.load(address, ModelOptions(tokenizer=str(path), listed=45, concurrency=1))


@pytest.fixture(scope="module")
def here(path: Path) -> Any:
    return rote.load(path, ModelOptions(device="cpu"))


@pytest.fixture(scope="module")
def examples(here: Any) -> list[Example]:
    """Three, of some 25 tokens each: the server sorts its whole vocabulary in Python at every position."""
    cut = Windows(prefix=60, suffix=30, stride=90, unit="characters")
    return rote.windows(PREAMBLE[:330], here.tokenizer, cut)[:3]


def test_it_says_what_it_is(served: Any, here: Any) -> None:
    own = served.identity()
    assert own.served.version.startswith("🦙 llama.cpp Python API")
    assert (own.bos_token, own.tokenizer, own.fingerprint) == (2, here.identity().tokenizer, None)


def test_its_numbers_agree_with_rotes_own_on_the_same_file(served: Any, here: Any, examples: list[Example]) -> None:
    ours = iter(rote.verbatim(here, examples, SCHEMES))
    base, first = list[float](), list[float]()
    known = 0
    for theirs in rote.verbatim(served, examples, SCHEMES):
        own = next(ours)
        assert theirs.base_log_probs.shape == own.base_log_probs.shape
        likely = own.base_log_probs >= -6
        base += list(np.abs(theirs.base_log_probs - own.base_log_probs)[likely])
        if theirs.scheme != GREEDY and not theirs.bounded:
            both = likely & np.isfinite(own.token_log_probs) & np.isfinite(theirs.token_log_probs)
            first += list(np.abs(theirs.token_log_probs[both] - own.token_log_probs[both]))
        known += theirs.log_prob > -10
    print(f"base: mean {np.mean(base):.3g}, largest {max(base):.3g}; schemes: largest {max(first):.3g}; {known} known")
    assert max(base) < APART
    assert np.mean(base) < MEAN
    assert max(first) < 2 * APART
    assert known >= 4
