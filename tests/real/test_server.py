"""A real server: llama-cpp-python's, with Gemma 3 270M, beside Rote's own numbers on the same GGUF file.

    pip install 'llama-cpp-python[server]'

It is built from source, which takes minutes. The server computes on 4-bit weights and rounds what it multiplies them
with to 8 bits; Rote turns the weights into float32 first. `APART` is how far they may be apart for that reason.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rote
from rote import GREEDY, Example, ModelOptions, Scheme, Windows
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


@pytest.fixture(scope="module")
def address(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert find_spec("llama_cpp") is not None, INSTALL
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(path), "--model_alias", "gemma", "--logits_all",
               "true", "--n_ctx", "128", "--host", "127.0.0.1", "--port", str(port), "--n_threads", "1",
               "--n_threads_batch", "1"]  # fmt: skip
    log = tmp_path_factory.mktemp("server") / "log"
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
        yield f"server:http://127.0.0.1:{port}/v1/gemma"
    finally:
        server.terminate()
        server.wait(30)


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
