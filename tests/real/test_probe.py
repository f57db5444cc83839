"""`rote probe` against a real server: `transformers serve` with SmolLM2, on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import rote
from rote.models.probed import Question
from tests.real.fetch import fetch

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

TEXTS = [
    {
        "id": "independence",
        "text": (
            "We hold these truths to be self-evident, that all men are created equal, that they are endowed by their "
            "Creator with certain unalienable Rights, that among these are Life, Liberty and the pursuit of Happiness."
        ),
        "label": True,
    },
    {
        "id": "gettysburg",
        "text": (
            "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in "
            "Liberty, and dedicated to the proposition that all men are created equal."
        ),
        "label": True,
    },
    {
        "id": "invented",
        "text": (
            "On the ninth of March the beekeeper of Ostrava wrote to Philomena that her quilt was eaten by a goat, "
            "and that he would send another, with fewer peacocks on it, before the snow."
        ),
        "label": False,
    },
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 as a folder of transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    gguf, own = fetch("smollm2-135m-instruct"), tmp_path_factory.mktemp("smollm2") / "smollm2"
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    model.hf_quantizer, model.is_quantized = None, False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(own)
    tokenizer.save_pretrained(own)
    return own


@pytest.fixture(scope="module")
def served(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of the model as `transformers serve` has it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(folder), "--port", str(port)]
    with log.open("w") as said:
        server = subprocess.Popen(
            [*command, "--device", "cpu"], stdout=said, stderr=said, env={**os.environ, "HF_HUB_OFFLINE": "1"}
        )
    try:
        for _ in range(240):
            if server.poll() is not None:
                pytest.fail(f"transformers serve ended: {log.read_text()[-2000:]}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                    break
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1/{folder}"
    finally:
        server.terminate()
        server.wait(20)


def test_cloze_prefix_and_filter_against_a_real_server(served: str, folder: Path, tmp_path: Path) -> None:
    run = rote.probe(
        TEXTS, target=served, filter=str(folder), method=("cloze", "prefix"), prefix_words=12, unfiltered=True,
        words=rote.Words(select=("prob", "person"), most=1), endpoint=rote.Endpoint(concurrency=1, timeout=300),
        out=tmp_path / "run",
    )  # fmt: skip
    assert isinstance(run, rote.Probe)
    rows = run.questions
    assert rows["outcome"].is_in(["hit", "miss", "refusal", "empty", "malformed"]).all()
    assert rows["prompt_tokens"].null_count() == 0
    assert (rows["prompt_tokens"] > 0).all()
    assert set(rows["method"]) == {"cloze", "prefix", "guess", "list"}
    assert rows.filter(pl.col("method") == "prefix").height == len(TEXTS)
    assert run.summary.probed
    again = rote.probe(
        TEXTS, target=served, filter=str(folder), method=("cloze", "prefix"), prefix_words=12, unfiltered=True,
        words=rote.Words(select=("prob", "person"), most=1), endpoint=rote.Endpoint(concurrency=1, timeout=300),
        out=tmp_path / "run",
    )  # fmt: skip
    assert isinstance(again, rote.Probe)
    assert again.seal.id == run.seal.id


def test_the_same_model_in_this_process_answers_alike(served: str, folder: Path) -> None:
    """Greedy answers of the same weights, through the server and without it."""
    questions = [
        Question(prompt="Name the capital of France. Reply with one word.", tokens=8),
        Question(prompt="Count from one to five.", tokens=16),
    ]
    over = dict(rote.load_chat(served).answers(questions))
    here = dict(rote.load_chat(folder).answers(questions))
    assert [over[place].text for place in (0, 1)] == [here[place].text for place in (0, 1)]
    assert [over[place].prompt_tokens for place in (0, 1)] == [here[place].prompt_tokens for place in (0, 1)]


def test_a_name_that_the_server_has_not(served: str) -> None:
    with pytest.raises(rote.ModelError, match="other-model"):
        list(rote.load_chat(served.replace("smollm2", "other-model")).answers([Question(prompt="Hello", tokens=4)]))
