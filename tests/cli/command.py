"""The command line, called in this process or started as another one."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
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


def rote_in_terminal(
    commands: Sequence[Sequence[str | Path]], *, widths: Sequence[int], within: Path
) -> dict[tuple[str, int], Result]:
    """Each command in a window of each width: by its name and the width, what it wrote there.

    One process with a pseudo-terminal runs them all, in the folder `within`. What else it says (err) is no terminal's.
    """
    code = f"""
import fcntl, json, os, struct, sys, termios
sys.path.insert(0, {str(Path.cwd())!r})
from rote.cli.main import main
for width in {list(widths)!r}:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    for arguments in {[list(map(str, command)) for command in commands]!r}:
        sys.argv = ["rote", *arguments]
        try:
            main()
        except SystemExit as end:
            print({_END!r}, arguments[0], width, end.code, flush=True)
"""
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        environment.pop(name, None)
    master, slave = pty.openpty()
    written = bytearray()
    with tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=slave, stdout=slave, stderr=err, cwd=within, env=environment
        )
        os.close(slave)
        try:
            while part := _read(master):
                written += part
            process.wait(timeout=60)
        finally:
            process.kill()
            os.close(master)
        err.seek(0)
        said = err.read().decode()
    text = written.decode().replace("\r\n", "\n")
    found, before = {}, 0
    for end in re.finditer(rf"{_END} (\w+) (\d+) (\S+)\n", text):
        found[end[1], int(end[2])] = Result(int(end[3]), text[before : end.start()], said)
        before = end.end()
    assert len(found) == len(commands) * len(widths), said
    return found


_END = "\ufdd6 the end of"


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other side is closed
        return b""
