from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rote
from rote import Run
from rote.jobs import engine
from tests.jobs.support import SIZES


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine.SHARD_FLOPS, "cpu", 1.0)


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> Any:
    return rote.load(tiny_folder, rote.ModelOptions(device="cpu"))


@pytest.fixture(scope="module")
def text(alice: str) -> str:
    return alice[3000:4200]  # about 115 windows: four shards


@pytest.fixture
def undisturbed(model: Any, text: str, tmp_path: Path) -> Run:
    run = rote.scan(model, text, out=tmp_path / "undisturbed", windows=SIZES)
    assert len(run.shards()) == 4
    return run


@pytest.fixture(scope="module")
def known(bundled: Any, alice: str, gatsby: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A scan of a passage that the bundled model knows between two that it does not."""
    text = gatsby[20_000:20_400] + alice[3000:3500] + gatsby[30_000:30_400]
    folder = tmp_path_factory.mktemp("known") / "book"
    return rote.scan(bundled, text, out=folder, name="book.txt", windows=rote.Windows(prefix=20, suffix=10, stride=20))
