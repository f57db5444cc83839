"""How long a scan takes beside another torch process on the same cores, with idle threads asleep and spinning.

    python -m benchmarks.beside                  (a few minutes; the machine should have nothing else to do)

The command line sets OMP_WAIT_POLICY=PASSIVE unless it is set. Threads that spin take the cores from those that work,
in both processes. The table has the scan alone, beside one other process that multiplies matrices all the time, and two
such scans at once, until both have ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rote.models.base import BUNDLED_TEXT

CHARACTERS = 40_000
STRIDE = 50
OTHER = "import torch\na = torch.randn(700, 700)\nwhile True: a = torch.tanh(a @ a)"


def seconds(policy: str, text: Path, *folders: Path) -> float:
    """Of a scan into each of the folders, all at once."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "rote.cli", "scan", str(text), "--stride", str(STRIDE), "--out"]
    environment = {**os.environ, "OMP_WAIT_POLICY": policy}
    scans = [
        subprocess.Popen([*command, folder], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for folder in folders
    ]
    assert all(scan.wait() == 0 for scan in scans)
    return time.perf_counter() - began


def main() -> None:
    print(f"{os.cpu_count()} cores; {CHARACTERS:,} characters, stride {STRIDE}\n")
    print(
        "| OMP_WAIT_POLICY | alone | beside another torch process | two scans at once | of one |\n|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as scratch:
        text = Path(scratch, "text.txt")
        text.write_text(BUNDLED_TEXT.read_text(encoding="utf-8")[:CHARACTERS], encoding="utf-8")
        for policy in ("PASSIVE", "ACTIVE"):
            alone = seconds(policy, text, Path(scratch, f"{policy}-alone"))
            other = subprocess.Popen([sys.executable, "-c", OTHER], env={**os.environ, "OMP_WAIT_POLICY": policy})
            try:
                beside = seconds(policy, text, Path(scratch, f"{policy}-beside"))
            finally:
                other.kill()
                other.wait()
            two = seconds(policy, text, *(Path(scratch, f"{policy}-{number}") for number in range(2)))
            print(f"| {policy} | {alone:.1f} s | {beside:.1f} s | {two:.1f} s | {two / alone:.2f} |", flush=True)


if __name__ == "__main__":
    main()
