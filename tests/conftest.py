from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import Phase, settings

import rote
from rote.models.base import BUNDLED_TEXT
from tests import tiny
from tests.cases import ALL

ROOT = Path(__file__).parent.parent

# No deadlines: how long an example takes says how busy the machine is. See tests/cases.py for how many there are.
settings.register_profile("few", deadline=None, max_examples=ALL // 8)
settings.register_profile("full", deadline=None)
settings.register_profile("any-failure", deadline=None, database=None, phases=[Phase.explicit, Phase.generate])
settings.load_profile("few")

# One thread here and in every process that a test starts: where cores are few, threads of several processes wait for
# each other, and a test that compares two processes to the last bit needs them to compute alike.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"
# Some virtual machines claim AMX, which bfloat16 would use, and die of the first such instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ["HF_HUB_OFFLINE"] = "1"  # no test but the real-model ones may need a network, and those do not need the hub


@pytest.fixture(scope="session")
def bundled() -> Any:
    return rote.load("bundled", rote.ModelOptions(device="cpu"))


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that loads and scores in no time; its weights are random."""
    return tiny.save(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def alice() -> str:
    return BUNDLED_TEXT.read_bytes().decode()


@pytest.fixture(scope="session")
def gatsby() -> str:
    return (ROOT / "training/data/books/gatsby.txt").read_bytes().decode()
