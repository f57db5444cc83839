"""The documentation is true: its commands parse, its examples run and print what they say, its tables are complete."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rote
from rote.cli.main import BY_NAME, GROUPS, app
from rote.models.quantised import LOGIT_TOLERANCE
from rote.store import (
    attack,
    comparison,
    index,
    manifest,
    member,
    membership,
    outputs,
    probe,
    reconstruction,
    submissions,
    summary,
    sweep,
    variants,
)
from rote.store.files import FORMAT, plain
from rote.store.table import SCHEMA
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "training/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = {"spots": "books", "longer": "books", "doctor": "bad-input", "index": "corpus-index"}
"""The guide of a command, where it has not the command's name."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its lines, and the page it stands on."""

    page: Path
    language: str
    content: str
    follows: str  # what stands between the block before it, or the start of the page, and this one


def blocks(page: Path) -> list[Block]:
    found, last = [], 0
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        found.append(Block(page, match[1], match[2], text[last : match.start()]))
        last = match.end()
    return found


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def rote_commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in blocks(page):
            lines = block.content.splitlines() if block.language == "bash" else []
            yield from ((name(page), line) for line in lines if line.startswith("rote "))


def python_pages() -> list[Path]:
    return [page for page in PAGES if any(block.language == "python" for block in blocks(page))]


def guide(command: str) -> Path:
    first = command.split()[0]
    return ROOT / f"docs/guide/{GUIDES.get(first, first)}.md"


def in_python(page: Path) -> list[Block]:
    """The Python blocks below a heading "In Python"."""
    heading, found = "", []
    for block in blocks(page):
        heading = [heading, *re.findall(r"^#+ (.*)$", block.follows, re.MULTILINE)][-1]
        if block.language == "python" and heading == "In Python":
            found.append(block)
    return found


def named_in(code: str) -> Iterator[str]:
    """The names that Python code takes from rote: what it imports from it, and what follows `rote.`."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Import(names=names):
                yield from (each.name.removeprefix("rote.") for each in names if each.name.startswith("rote."))
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "rote":
                yield from (f"{module}.{each.name}".removeprefix("rote.") for each in names)
            case ast.Attribute(value=ast.Name(id="rote"), attr=attribute):
                yield attribute


def marked(command: str) -> list[str]:
    marker = f"<!-- command: {command} -->\n"
    return [block.content for block in blocks(ROOT / "README.md") if block.follows.endswith(marker)]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory, bundled: Any, alice: str) -> Path:
    return rote.scan(bundled, alice[:2000], out=tmp_path_factory.mktemp("run"), windows=rote.Windows(stride=400)).folder


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished_run: Path, alice: str) -> Path:
    """A folder with what the pages take for granted: a book, a checkout's training/ and src/, and a finished run."""
    for folder in ("training", "src"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "book.txt").write_text(alice[:2000], encoding="utf-8")
    shutil.copytree(finished_run, tmp_path / "runs/alice-bundled")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_pages_are_found() -> None:
    assert len(PAGES) > 5
    assert len(list(rote_commands())) > 5


@pytest.mark.parametrize("command", ["run", "test"])
def test_readme_marks_each_command_once(command: str) -> None:
    assert len(marked(command)) == 1


@pytest.mark.parametrize(("page", "line"), list(rote_commands()))
def test_command_parses(page: str, line: str) -> None:
    _, command, *arguments = shlex.split(line)
    if command in GROUPS:
        command, arguments = f"{command} {arguments[0]}", arguments[1:]
    assert command in BY_NAME, f"{page}: there is no rote {command}"
    # Parses and checks every option and argument as the command line would, and runs nothing.
    BY_NAME[command].parser().make_context(command, arguments)


@pytest.mark.parametrize("page", python_pages(), ids=name)
def test_python_examples_run(page: Path, workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The blocks of a page run one after the other; a text block right after one is what it prints."""
    names: dict[str, Any] = {"__name__": "example"}
    printed = ""
    capsys.readouterr()
    for block in blocks(page):
        if block.language == "python":
            exec(compile(block.content, name(page), "exec"), names)
            printed = capsys.readouterr().out
        elif block.language == "text" and not block.follows.strip() and printed:
            assert printed == block.content
            printed = ""


@pytest.mark.parametrize("command", BY_NAME)
def test_guide_does_in_python_what_the_command_does(command: str) -> None:
    page, call = guide(command), ".report(" if command == "report" else f"rote.{command.replace(' ', '.')}("
    assert any(call in block.content for block in in_python(page)), f"{name(page)} has no {call}...)"


@pytest.mark.parametrize("page", python_pages(), ids=name)
def test_python_examples_name_public_names_alone(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            assert set(named_in(block.content)) <= {*rote.__all__, "__version__"}


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "architecture.md"], ids=name)
def test_pages_for_users_name_no_modules(page: Path) -> None:
    assert not re.findall(
        rf"\brote\.(?!(?:{'|'.join(GROUPS) or '-'})\.)[a-z]\w*\.\w+", page.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("command", BY_NAME)
def test_guide_names_every_option(command: str) -> None:
    """In its own guide, or in scan.md where many commands have it: of the model, the scheme, a near-verbatim search."""
    own, shared = (page.read_text(encoding="utf-8") for page in (guide(command), guide("scan")))
    for option in BY_NAME[command].parser().params:
        many = getattr(option, "rich_help_panel", None) or option.name in ("as_json", "debug", "batch_size")
        for flag in option.opts if option.param_type_name == "option" and option.name != "help" else ():
            assert f"`{flag}" in own + (shared if many or flag == "-o" else ""), f"{name(guide(command))} has no {flag}"


def test_readme_python_example_states_its_output() -> None:
    found = blocks(ROOT / "README.md")
    after = [b for a, b in pairwise(found) if a.language == "python"]
    assert [b.language for b in after] == ["text"]


def test_score_guide_example_runs(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs/guide/score.md"
    *_, lines = (block.content for block in blocks(page) if block.language == "json" and '"text"' in block.content)
    (workplace / "examples.jsonl").write_text(lines, encoding="utf-8")
    (command,) = (line for where, line in rote_commands() if where == name(page) and "--prefix" in line)
    app(shlex.split(command)[1:], standalone_mode=False)
    assert "Extracted at τ = 0.001: train: 1 of 1 (100%); held-out: 0 of 1 (0%)." in capsys.readouterr().out


@pytest.mark.parametrize("line", [line for _, line in rote_commands() if line.startswith("rote report ")])
def test_report_commands_run(line: str, workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app(shlex.split(line)[1:], standalone_mode=False)
    printed = capsys.readouterr().out
    if "--json" in line:
        assert json.loads(printed) == json.loads((workplace / "runs/alice-bundled/summary.json").read_bytes())
    else:
        assert "report.html" in printed


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), f"{name(page)} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_module_table_is_complete() -> None:
    listed = re.findall(r"^\| `(rote/[\w/]+\.py)` \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/rote").rglob("*.py")}
    # The __init__ of a sub-package holds its docstring alone.
    assert sorted(listed) == sorted(m for m in modules if m.count("/") == 1 or not m.endswith("__init__.py"))


def fields(tree: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for key, value in tree.items():
        yield f"{before}{key}"
        if isinstance(value, dict):
            yield from fields(value, f"{before}{key}.")


def test_run_format_names_every_field(workplace: Path) -> None:
    text = (ROOT / "docs/run-format.md").read_text(encoding="utf-8")
    run = rote.Run.open("runs/alice-bundled")
    columns = re.findall(r"^\| `(\w+)` \| (?:string|int|float|bool|list)", text, re.MULTILINE)
    assert columns == SCHEMA.names
    in_manifest = {key for key in fields(plain(run.manifest)) if key not in ("source", "model")}
    in_summary = set(plain(run.summary))
    (numbers,) = run.summary.schemes.values()
    per_scheme = {f"rates.{key}" for key in plain(numbers.rates)} | set(plain(numbers)) - {"rates"}
    assert {"coverage", "longest"} <= per_scheme
    for field in {f for f in in_manifest if not f.startswith("versions.")} | in_summary | per_scheme:
        assert f"`{field}`" in text, f"docs/run-format.md does not explain {field}"
    assert f"| `format` | {FORMAT} |" in text
    assert f"Format {FORMAT}:" in text


@pytest.mark.parametrize(
    "module",
    [
        manifest,
        summary,
        sweep,
        comparison,
        reconstruction,
        submissions,
        variants,
        outputs,
        index,
        attack,
        member,
        membership,
        probe,
    ],
    ids=lambda m: m.__name__,
)
def test_run_format_names_every_declared_field(module: ModuleType) -> None:
    """Whatever can stand in a JSON file, also of runs that no test here makes."""
    text = (ROOT / "docs/run-format.md").read_text(encoding="utf-8")
    own = [kind for kind in vars(module).values() if is_dataclass(kind) and kind.__module__ == module.__name__]
    found = [kind for kind in own if dataclass_fields(kind)[0].name != "folder"]  # handles
    assert found
    for kind in found:
        for field in dataclass_fields(kind):
            explained = re.search(rf"`(?:[\w.]+\.)?{field.name}`", text)
            assert explained, f"docs/run-format.md does not explain {field.name} of {kind}"


def test_numerics_states_the_tolerances_in_use() -> None:
    rows = re.findall(r"^\| (b?float\d+) \| ([\d.e-]+) \|", (ROOT / "docs/numerics.md").read_text(), re.MULTILINE)
    assert {kind: float(value) for kind, value in rows} == {
        str(kind).removeprefix("torch."): value for kind, value in LOGIT_TOLERANCE.items()
    }
