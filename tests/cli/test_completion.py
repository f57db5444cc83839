"""Completion, as a shell asks for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rote.cli.main import BY_NAME

ASKED = {
    "rote sc": {"scan", "score"},
    "rote scan --ne": {"--near"},
    "rote scan --method ": {"fork", "beam", "sample"},
    "rote export --to l": {"lm-eval"},
    "rote ": {name.split()[0] for name in BY_NAME},
}


@pytest.fixture
def on_path(tmp_path: Path) -> dict[str, str]:
    """An environment in which `rote` is a program, as it is where Rote is installed."""
    program = tmp_path / "rote"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rote.cli "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}


def test_bash(on_path: dict[str, str]) -> None:
    """The script that rote --show-completion would give is loaded, and its function called as bash calls it."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    lines = ["source <(_ROTE_COMPLETE=source_bash rote)", "complete -p rote >&2"]
    for line in ASKED:
        words = [*line.split(), *([""] if line.endswith(" ") else [])]
        quoted = " ".join(f"'{word}'" for word in words)
        lines += [f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; COMPREPLY=()", "_rote_completion rote"]
        lines += ['echo "${COMPREPLY[@]}"']
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, env=on_path, check=True)
    assert "-F _rote_completion rote" in done.stderr
    assert [set(line.split()) for line in done.stdout.splitlines()] == list(ASKED.values())


@pytest.mark.parametrize("line", ["rote sc", "rote scan --method "])
def test_zsh(line: str, on_path: dict[str, str]) -> None:
    """What zsh evaluates: every choice, with its help where it has some."""
    environment = {**on_path, "_ROTE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line}
    done = subprocess.run(["rote"], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.startswith("_arguments ")
    assert set(re.findall(r'(?:\(\(|^)"([^"]+)"', done.stdout, re.MULTILINE)) == ASKED[line]
