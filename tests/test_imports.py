"""What importing costs, what it needs, and which way the imports point."""

from __future__ import annotations

import ast
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

import pytest

import rote

PACKAGE = Path(rote.__file__).parent
ROOT = Path(__file__).parent.parent
MODULES = sorted(PACKAGE.rglob("*.py"))


def python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- the public surface


def test_every_public_name_is_there() -> None:
    assert set(rote._HOME) == set(rote.__all__)
    for name, home in rote._HOME.items():
        assert getattr(rote, name) is getattr(import_module(home), name)
    assert dir(rote) == sorted(rote.__all__)


def test_names_for_the_type_checker_are_the_names_at_run_time() -> None:
    listed: dict[str, str | None] = {}
    for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text())):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                listed |= {alias.name: line.module for alias in line.names}
    assert listed == rote._HOME


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rote.nonsense


# --- what is needed, and when


def test_importing_rote_and_help_load_no_torch() -> None:
    heavy = "print(sorted({'torch', 'transformers', 'polars', 'pyarrow', 'numpy'} & set(sys.modules)))"
    assert python(f"import sys, rote; {heavy}") == "[]\n"
    code = f"""
import sys
sys.argv = ["rote", "--help"]
from rote.cli.main import main
try:
    main()
except SystemExit as end:
    assert end.code == 0
{heavy}
"""
    assert python(code).endswith("\n[]\n")


def test_what_is_stored_is_read_and_reported_without_torch() -> None:
    """A folder is opened, summed up and drawn where no model is, and what a command can be told is known at once."""
    rooms = ("analysis", "cli", "jobs", "report", "store")
    names = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in MODULES if room(path) in rooms
    ]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    assert len(names) > 60
    code = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
    assert not {"torch", "transformers"} & set(sys.modules), name
from rote.cli.main import BY_NAME
for name, command in BY_NAME.items():
    assert command.parser().name == name.split()[-1]
    assert not {"torch", "transformers"} & set(sys.modules), name
print(len({name.split()[0] for name in BY_NAME}))
"""
    assert int(python(code, *names)) == len(list((PACKAGE / "cli").glob("*.py"))) - len(NO_COMMANDS)


NO_COMMANDS = {"__init__", "__main__", "command", "fit", "items", "main", "screen"}
"""Modules of the command line that are none of its commands."""


def test_help_takes_less_than_half_a_second() -> None:
    """Of processor time, the best of three: what else runs on this machine is not rote's doing."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "rote.cli", "--help"], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.5


def test_scoring_needs_torch_transformers_and_numpy_alone() -> None:
    """As on a GPU machine that has nothing else. A module that is None in sys.modules is one that is not installed."""
    code = """
import sys
absent = "pyarrow polars typer click rich jinja2 accelerate gguf pandas matplotlib spacy"
for name in absent.split():
    sys.modules[name] = None
import rote.decoding, rote.odds, rote.extraction.verbatim, rote.models.base, rote.models.huggingface
import rote.membership.passes, rote.membership.scores, rote.membership.texts, rote.membership.windows
import rote.models.masked, rote.probes.selecting, rote.probes.words
import rote
model = rote.load("bundled", rote.ModelOptions(device="cpu"))
text = open(rote.models.base.BUNDLED_TEXT, encoding="utf-8").read()[:2000]
print(rote.verbatim(model, rote.windows(text, model.tokenizer, rote.Windows(stride=1000)))[0].prob > 0.5)
"""
    assert python(code) == "True\n"


# --- which way the imports point

ARROW = (
    {"errors"},
    {"options", "progress"},
    {"frames", "odds", "largest", "tokens", "scheme"},
    {"decoding", "listed"},
    {"corpus"},
    {"models"},
    {"extraction"},
    {"membership", "probes"},
    {"store"},
    {"analysis"},
    {"report"},
    {"jobs"},
    {"cli"},
)
"""The one arrow, as docs/architecture.md draws it: a room may import those that stand before it."""

VERSIONED = {("store", "manifest.py"), ("jobs", "doctor.py")}
"""What says which version of Rote this is."""

WITHIN = {
    "rote.report": ({"keys"}, {"text"}, {"figures"}, {"page", "export"}),
    "rote.extraction": ({"passes", "results"}, {"verbatim", "generations"}, {"near", "text"}, {"attack"}),
}
"""The same within rooms that have several parts."""


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Every module that the file imports anywhere, inside functions and for the type checker too.

    A public name stands for the module that it is from.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found.add(node.module or "")
            if node.module == "rote":
                found |= {rote._HOME[alias.name] for alias in node.names}
                found -= {"rote"}
                continue
            found |= {f"{node.module}.{alias.name}" for alias in node.names if (node.module or "").startswith("rote")}
    return found


def against(own: str, others: Iterable[str], arrow: Sequence[set[str]]) -> set[str]:
    """Which of these rooms stand beside or behind `own`, so that it must not import them."""
    place = next(i for i, rooms in enumerate(arrow) if own in rooms)
    return set(others) - set().union(*arrow[:place]) - {own}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_follow_the_arrow(path: Path) -> None:
    own = room(path)
    if own == "__init__":
        return
    rooms = {name.split(".")[1] for name in imported(path) if name.startswith("rote.")}
    assert against(own, rooms, ARROW) == set()
    # `import rote` reaches every room through its public names: the last room may, others take but its version.
    assert "rote" not in imported(path) or own == "cli" or path.relative_to(PACKAGE).parts in VERSIONED
    for package, arrow in WITHIN.items():
        if own == package.split(".")[1] and len(path.relative_to(PACKAGE).parts) > 1:
            part = path.relative_to(PACKAGE).parts[1].removesuffix(".py")
            parts = {name.split(".")[2] for name in imported(path) if name.startswith(f"{package}.")}
            assert part == "__init__" or against(part, parts, arrow) == set()


def test_an_import_against_the_arrow_is_noticed() -> None:
    assert against("store", {"errors", "extraction"}, ARROW) == set()
    assert against("store", {"errors", "analysis", "jobs"}, ARROW) == {"analysis", "jobs"}
    assert against("corpus", {"models"}, ARROW) == {"models"}
    assert against("analysis", {"analysis", "odds"}, ARROW) == set()


def test_the_arrow_is_the_one_that_is_drawn() -> None:
    drawn = (ROOT / "docs" / "architecture.md").read_text().split("<!-- arrow -->")[1]
    stages = drawn.replace("`", "").split("<")
    assert [{name.strip() for name in stage.split(",")} for stage in stages] == list(ARROW)
    rooms = {room(path) for path in MODULES} - {"__init__"}
    assert set().union(*ARROW) == rooms


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if room(p) in ("analysis", "extraction", "decoding", "largest", "odds", "scheme", "tokens")],
    ids=lambda p: p.name,
)
def test_numbers_are_made_without_the_disk(path: Path) -> None:
    disk = {"io", "os", "pathlib", "pyarrow", "shutil", "tempfile"}
    assert not {name.split(".")[0] for name in imported(path)} & disk
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            assert not called.startswith(("open", "read_", "write_", "scan_", "sink_")), f"{path}:{node.lineno}"


def test_only_the_command_line_parses_arguments() -> None:
    for path in MODULES:
        tools = {name.split(".")[0] for name in imported(path)} & {"typer", "click", "argparse", "rich"}
        assert not tools or room(path) == "cli"


def test_modules_are_short() -> None:
    assert all(len(path.read_text().splitlines()) <= 400 for path in MODULES)


def test_git_ignores_no_source_file() -> None:
    """A pattern in .gitignore that fits a source folder leaves it out of every clone and of every wheel."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    folders = [ROOT / name for name in ("src/rote", "tests", "training")]
    sources = [str(p) for folder in folders for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    found = subprocess.run(
        ["git", "-C", str(ROOT), "check-ignore", "--no-index", *sources], capture_output=True, text=True, check=False
    )
    assert found.returncode in (0, 1), found.stderr
    assert found.stdout == ""
