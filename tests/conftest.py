from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rote
from rote.models.base import BUNDLED_TEXT

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def bundled() -> Any:
    return rote.load("bundled", device="cpu")


@pytest.fixture(scope="session")
def alice() -> str:
    return BUNDLED_TEXT.read_bytes().decode()


@pytest.fixture(scope="session")
def gatsby() -> str:
    return (ROOT / "training/data/books/gatsby.txt").read_bytes().decode()
