"""The command line, called in this process or started as another one."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from rote.cli.main import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


def rote_here(*arguments: str | Path) -> Result:
    """`rote ARGUMENTS` without a new process: as the installed command runs it, from main() to the exit code."""
    out, err = io.StringIO(), io.StringIO()
    argv = patch.object(sys, "argv", ["rote", *map(str, arguments)])
    with argv, redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        main()
    assert isinstance(end.value.code, int)
    return Result(end.value.code, out.getvalue(), err.getvalue())


@contextmanager
def rote_process(*arguments: str | Path, before: str = "") -> Iterator[subprocess.Popen[str]]:
    """`python -m rote.cli ARGUMENTS` as a process of its own, which does not outlive the test.

    `before` is code to run in it first. Where this process ignores SIGINT (as in a background job), it does not.
    """
    code = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
{before}
from rote.cli.main import main
main()
"""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
