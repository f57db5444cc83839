"""What a model's name means, and that one without a model is told at once, with what may have been meant."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants

import rote
from rote import ModelError
from rote.models import sources
from rote.models.base import BUNDLED, title_of
from rote.models.sources import find
from tests.cli.command import rote_process


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A hub of one's own: what is put into it is what it answers. It counts how often it was asked."""
    hub = SimpleNamespace(answer=None, asked=[])

    def info(_: Any, name: str, **options: Any) -> Any:
        hub.asked.append((name, options))
        if isinstance(hub.answer, Exception):
            raise hub.answer
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=file) for file in hub.answer])

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", info)
    return hub


def refused(name: str | Path, *words: str) -> str:
    with pytest.raises(ModelError) as error:
        find(name)
    for word in words:
        assert word in str(error.value)
    return str(error.value)


# --- paths


@pytest.mark.parametrize(
    "name", ["./x", "../x", "/nowhere/x", "~/no-such-folder/x", "a\\b", "a/b/c", "a/", "C:/models/x", "C:\\x", "here/x"]
)
def test_what_looks_like_a_path_is_never_asked_of_the_hub(
    name: str, online: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert "there is no model at" in refused(name)
    assert not online.asked


def test_near_matches_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, online: Any) -> None:
    shutil.copytree(BUNDLED, tmp_path / "models" / "alice-tiny")
    (tmp_path / "models" / "other.gguf").touch()
    right = tmp_path / "models" / "alice-tiny"
    refused(tmp_path / "models" / "alice-tinny", f"did you mean '{right}'?")
    refused(tmp_path / "modles" / "alice-tiny", f"did you mean '{right}'?")
    refused(tmp_path / "models" / "othr.gguf", "no GGUF file", f"did you mean '{tmp_path / 'models' / 'other.gguf'}'?")
    refused(tmp_path / "models" / "qqq", "has no 'qqq'", "check the path")
    monkeypatch.setenv("HOME", str(tmp_path))
    refused("~/models/alice-tiny", f"did you mean '{right}'?")
    monkeypatch.chdir(tmp_path / "models")
    online.answer = OSError("no route")
    refused("alice-tinny", "Did you mean the folder 'alice-tiny'?")


@pytest.mark.parametrize("name", ["bundeld", "Bundled", "bundle", "bunlded"])
def test_bundled_mistyped(name: str, online: Any) -> None:
    refused(name, f"there is no model {name!r}", "did you mean 'bundled'?")
    assert not online.asked


def test_a_missing_model_is_told_before_torch_is_imported() -> None:
    never = "import sys; sys.modules['torch'] = sys.modules['transformers'] = None"
    with rote_process("scan", "--model", "nobody/no-such-model", before=never) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("error: could not load the model 'nobody/no-such-model'")
    assert len(err.splitlines()) == 1, err


# --- the hub


def test_a_hub_that_is_not_there_is_asked_once(online: Any) -> None:
    online.answer = OSError("[Errno -2] Name or service not known\nand more")
    began = time.perf_counter()
    refused(
        "no-one/model", "https://huggingface.co cannot be reached from here", "Name or service not known)", "existing"
    )
    assert time.perf_counter() - began < 2
    assert [name for name, _ in online.asked] == ["no-one/model"]
    assert online.asked[0][1]["timeout"] == sources.HUB_SECONDS


def test_what_was_downloaded_serves_where_the_hub_is_not_there(online: Any, tmp_path: Path, tiny_folder: Path) -> None:
    commit, own = "1" * 40, tmp_path / "cache" / "models--some--model"
    (own / "refs").mkdir(parents=True)
    (own / "refs" / "main").write_text(commit)
    shutil.copytree(tiny_folder, own / "snapshots" / commit)
    online.answer = OSError("no route")
    assert rote.load("some/model").identity().fingerprint == rote.load(tiny_folder).identity().fingerprint
    assert len(online.asked) == 1
    assert find("some/model", download=False).files == find(tiny_folder).files
    assert len(online.asked) == 1


def test_what_the_hub_says(online: Any) -> None:
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    response: Any = SimpleNamespace(status_code=503, request=None, headers={})
    for error, words in (
        (GatedRepoError("x", response=response), ("only to those who have asked", "hf auth login")),
        (RepositoryNotFoundError("x", response=response), ("there is no model 'a/b' on", "spelling")),
        (RevisionNotFoundError("x", response=response), ("has no revision=None",)),
        (HfHubHTTPError("x", response=response), ("answered with an error (503)", "not on this machine (in ")),
    ):
        online.answer = error
        refused("a/b", *words)
    online.answer = ["config.json", "model.safetensors"]
    found = find("a/b", "v1")
    assert (found.source, found.given) == ("a/b", {"revision": "v1"})
    assert found.files == {"config.json", "model.safetensors"}


def test_offline_is_honoured(online: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refused("a/b", "HF_HUB_OFFLINE is set", "not on this machine (in ")
    assert not online.asked


def test_what_no_hub_id_could_be(online: Any) -> None:
    refused("what is this?", "no hub id could be called so")
    assert not online.asked


# --- what it is called


def test_titles() -> None:
    names = {
        "bundled": "bundled", "/models/gemma-3/": "gemma-3", "org/name-1b": "name-1b", "C:\\m\\x": "x", "a.gguf": "a",
        "/": "/",
    }  # fmt: skip
    assert {name: title_of(name, None) for name in names} == names
    assert title_of("/models/gemma-3", "Gemma") == "Gemma"
