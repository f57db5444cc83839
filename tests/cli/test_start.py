"""What the command line does before torch is imported, and with the processor's threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import rote_here

CODE = """
import json, os, sys
seen = {}

class Watch:
    # asked for every module that is imported, first of all
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            seen.setdefault("when torch came", os.environ.get("OMP_WAIT_POLICY"))

sys.meta_path.insert(0, Watch())
import rote
seen["after import rote"] = os.environ.get("OMP_WAIT_POLICY")
from rote.cli.main import main
seen["before main"] = os.environ.get("OMP_WAIT_POLICY")
assert "torch" not in sys.modules
try:
    main()
except SystemExit as end:
    seen["code"] = end.code
import torch
seen["threads"] = torch.get_num_threads()
print(json.dumps(seen), file=sys.stderr)
"""


def test_torch_s_threads_sleep_and_are_as_many_as_asked_for(alice: str, tiny_folder: Path, tmp_path: Path) -> None:
    """OpenMP reads its variable when torch is imported, so it must be there by then; a library sets no variables."""
    (tmp_path / "book.txt").write_text(alice[3000:3400])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MKL_"))}
    command = ["scan", "book.txt", "--model", str(tiny_folder), "--prefix", "8", "--suffix", "6", "--stride", "100"]
    command += ["--device", "cpu", "--threads", "1", "--out", "run"]
    done = subprocess.run(
        [sys.executable, "-c", CODE, *command], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**environment, "OMP_NUM_THREADS": "3"},
    )  # fmt: skip
    assert json.loads(done.stderr.splitlines()[-1]) == {
        "after import rote": None, "before main": None, "when torch came": "PASSIVE", "code": 0, "threads": 1
    }  # fmt: skip


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert rote_here("--version").code == 0
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert rote_here("--version").code == 0
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
