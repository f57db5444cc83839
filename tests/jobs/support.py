"""What the tests of runs share: a tiny model, a text of four small shards, and what it means to be the same run."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from polars.testing import assert_frame_equal

from rote import Run, Windows

SIZES = Windows(prefix=8, suffix=6, stride=10)
MARKUP = "<script>&'x\""
"""What would be markup, were it not escaped: part of names and ids. A folder can have such a name."""
HOSTILE = "".join(f"<script>alert({n})</script> &amp; <b title='{n}'>words</b> " for n in range(12))
"""The same as a text, of two small shards."""
SMALLEST_SHARD = 32
"""Examples in a shard at the least: what a budget of next to nothing gives."""


def same_table(run: Run, other: Run) -> None:
    """Every row, in the same order, every float to the last bit."""
    assert_frame_equal(run.scores, other.scores, check_exact=True)
    timeless = [replace(each.summary, seconds=0.0) for each in (run, other)]
    assert timeless[0] == timeless[1]
    assert (run.folder / "report.html").is_file()


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def wait_for_shards(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(list((folder / "scores").glob("[0-9]*.parquet"))) < count:
        assert process.poll() is None, f"it ended before it was stopped: {process.communicate()}"
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it, nothing is tidied up."""


@dataclass
class Dying:
    """An os.replace during which the process ends, at the `left`-th call from now; 0: it does not."""

    left: int = 0
    replace: Any = field(default_factory=lambda: os.replace)

    def __call__(self, source: Any, target: Any) -> None:
        self.left -= 1
        if not self.left:
            raise Killed
        self.replace(source, target)
