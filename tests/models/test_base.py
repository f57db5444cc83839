"""Where models come from: the prefix of a name, and names without one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import InputError, ModelOptions


def test_a_name_without_a_prefix_is_hugging_face_s(bundled: Any, tiny_folder: Path) -> None:
    named = rote.load("hf:bundled", ModelOptions(device="cpu"))
    assert type(named) is type(bundled)
    assert named.identity() == bundled.identity()
    example = [rote.Example("x", (5, 6), (7, 8))]
    assert rote.verbatim(named, example)[0].log_prob == rote.verbatim(bundled, example)[0].log_prob
    folders = [rote.load(name, ModelOptions(device="cpu")) for name in (tiny_folder, f"hf:{tiny_folder}")]
    assert folders[0].identity() == folders[1].identity()


def test_a_folder_may_have_a_colon_in_its_name(tiny_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "vllm:final")
    for name in (folder, str(folder)):
        assert rote.load(name, ModelOptions(device="cpu")).identity().name == str(folder)


@pytest.mark.parametrize("name", ["cloud:x", "cloud:org/model", "openai:gpt"])
def test_an_unknown_source_is_refused_and_the_known_ones_are_named(name: str) -> None:
    source = name.partition(":")[0]
    known = r"; there is hf, vllm, server\. A"
    with pytest.raises(InputError, match=rf"no source of models called '{source}'.* model '{name}'.*{known}"):
        rote.load(name)
