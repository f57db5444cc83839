"""The notebooks of the documentation run in a real kernel, and what they show is what is stored in them.

Whoever changes a notebook, or what results look like, stores its outputs anew and looks at them:

    python -m tests.test_notebooks
"""

from __future__ import annotations

import ast
import getpass
import math
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import nbformat
import pytest
from nbclient import NotebookClient

import rote

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
SECONDS = 120
"""For one cell, where the machine has other things to do; the whole notebook takes some fifteen by itself."""

NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
PADDING = re.compile(r" {2,}|─{2,}|═{2,}")
CLOSE, CLOSE_WHOLE = 0.02, 0.001
"""Another processor adds in another order. Three digits are shown, and the last may be another; of whole numbers,
such as that of the prompts for 99.9%, all digits are shown."""


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def executed(path: Path) -> Any:
    """The notebook with the outputs that a kernel of its own gives now, without what changes from one time to another.

    It starts in an empty folder, and knows no settings of whoever runs it.
    """
    notebook = read(path)
    with tempfile.TemporaryDirectory() as scratch:
        own = {name: f"{scratch}/{name}" for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")}
        more = {"TMPDIR": scratch, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        with patch.dict(os.environ, own | more):
            client = NotebookClient(
                notebook, timeout=SECONDS, kernel_name="python3", record_timing=False,
                resources={"metadata": {"path": scratch}},
            )  # fmt: skip
            client.execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def outputs(notebook: Any) -> Iterator[tuple[str, str, str]]:
    """Everything that the cells put out: the cell, what kind of output, and its text."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type in ("display_data", "execute_result"):
                yield from ((cell.id, kind, text) for kind, text in sorted(output.data.items()))
            else:
                yield cell.id, output.output_type, output.get("text") or str(output.get("evalue"))


def differences(stored: str, found: str) -> list[str]:
    """What differs but for the last digits of numbers: words, and numbers that are not close.

    A table is as wide as its numbers are long, and a last digit of 0 is not printed.
    """
    stored, found = (PADDING.sub(lambda run: run[0][:1], text) for text in (stored, found))
    if NUMBER.split(stored) != NUMBER.split(found):
        return [f"{found}\ninstead of\n{stored}"]
    pairs = zip(NUMBER.findall(stored), NUMBER.findall(found), strict=True)
    return [f"{new} instead of {old}" for old, new in pairs if not _close(old, new)]


def _close(old: str, new: str) -> bool:
    whole = not {".", "e"} & {*old, *new}
    numbers = (float(number.replace(",", "")) for number in (old, new))
    return math.isclose(*numbers, rel_tol=CLOSE_WHOLE if whole else CLOSE)


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_there_are_notebooks() -> None:
    assert [path.name for path in NOTEBOOKS] == ["tour.ipynb"]


def test_it_runs_and_shows_what_is_stored(path: Path) -> None:
    was, now = list(outputs(read(path))), list(outputs(executed(path)))
    assert [(cell, kind) for cell, kind, _ in now] == [(cell, kind) for cell, kind, _ in was]
    for (cell, kind, stored), (_, _, found) in zip(was, now, strict=True):
        assert not differences(stored, found), f"{cell}, {kind}: see above how to store the outputs anew"


def test_differences_are_noticed() -> None:
    assert differences("p_z 0.146, 25 windows", "p_z 0.147, 25 windows") == []
    assert differences("p_z 1.46e-20", "p_z 1.47e-20") == []
    assert differences("p_z 0.146", "p_z 0.156") == ["0.156 instead of 0.146"]
    assert differences("6,067 prompts", "6,068 prompts") == []
    assert differences("│ 0.66969  │\n└──────┘", "│ 0.669689 │\n└───────┘") == []
    assert differences("925 windows", "926 windows") == ["926 instead of 925"]
    assert differences("2,114 to 2,221", "2,114 to 2,211") == ["2,211 instead of 2,221"]
    assert differences("w2500", "w2600")
    assert differences("2 windows", "2 examples")
    assert differences("0.5", "0.5 and 0.5")


def test_it_is_stored_whole(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    kinds = [output.output_type for cell in cells for output in cell.outputs]
    assert set(kinds) == {"execute_result"}  # no warnings, no progress bars, no errors
    html = [kind for _, kind, _ in outputs(notebook)].count("text/html")
    assert html >= 6


def test_it_tells_nothing_of_where_it_was_run(path: Path) -> None:
    content, notebook = path.read_text(encoding="utf-8"), read(path)
    private = ["/tmp", "/home", "/root", "/Users", str(Path.home()), str(ROOT), os.uname().nodename]
    private += [user] if len(user := getpass.getuser()) > 4 else []
    assert not [word for word in private if word in content]
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert set(notebook.metadata.language_info) == {"name"}
    assert not [cell.id for cell in notebook.cells if cell.metadata]


def test_it_uses_public_names_alone(path: Path) -> None:
    code = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")
    tree = ast.parse(code)
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert imported <= {"rote", "pathlib", "os", "tempfile"}
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "rote"
    }
    assert used <= {*rote.__all__, "__file__"}
    assert used >= {"load", "scan", "Near", "compare", "spots", "show"}


if __name__ == "__main__":
    for each in NOTEBOOKS:
        made = executed(each)
        nbformat.write(made, each)  # type: ignore[no-untyped-call]
        print(f"{each.relative_to(ROOT)}: {len(list(outputs(made)))} outputs")
