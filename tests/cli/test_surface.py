"""What the command line takes, frozen, and its help.

Whoever changes a flag, a kind or a default changes tests/cli/surface.txt with it, on purpose:

    python -m tests.cli.test_surface
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from rote.cli.items import items, kind_of, shown_default
from rote.cli.main import BY_NAME, COMMANDS
from tests.cli.command import Result, rote_here

FROZEN = Path(__file__).with_name("surface.txt")
EVERYWHERE = (("--json", "flag", ""), ("--debug", "flag", ""))
"""Options that every command has."""


def kind_in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if get_origin(kind) is list:
        return f"{kind_in_words(get_args(kind)[0])}, several"
    return "flag" if kind is bool else kind.__name__.lower()


def rows(name: str) -> Iterator[tuple[str, str, str]]:
    """A command's arguments and options: flags, kind, and the default as its help has it."""
    for item in items(name):
        flags = item.spelled if item.positional else "/".join(item.flags)
        yield flags, kind_in_words(kind_of(item)), "required" if item.required else shown_default(item)
    yield from EVERYWHERE


def surface() -> str:
    """The whole of it, a line for each argument and option."""
    lines = []
    for panel, commands in COMMANDS.items():
        for command in commands:
            lines += [f"rote {command.name}   ({panel})"]
            lines += [f"    {flags:<20} {kind:<34} {default}".rstrip() for flags, kind, default in rows(command.name)]
            lines += [""]
    return "\n".join(lines)


def test_the_surface_is_the_frozen_one() -> None:
    before, now = FROZEN.read_text(encoding="utf-8"), surface()
    changes = "\n".join(unified_diff(before.splitlines(), now.splitlines(), "surface.txt", "the command line", n=1))
    assert before == now, f"on purpose? Then run python -m tests.cli.test_surface\n{changes}"


@pytest.mark.parametrize("name", BY_NAME)
def test_the_parser_knows_what_is_frozen(name: str) -> None:
    """And nothing else; what the help says of a default is what is frozen."""
    parser = BY_NAME[name].parser()
    by_name = {param.name: param for param in parser.params}
    assert set(by_name) == {item.key for item in items(name)} | {"as_json", "debug"}
    for item in items(name):
        param = by_name[item.key]
        assert param.required == item.required
        assert item.positional or tuple(param.opts) == item.flags
        assert bool(getattr(param, "is_flag", False)) == (kind_of(item) is bool)
        shown = shown_default(item)
        assert f"[default: {shown}]" in param.help if shown else "[default" not in param.help
        assert item.option.help.split("[")[0] in param.help.replace("\\[", "[")


# --- help


@pytest.fixture(scope="module")
def pages() -> dict[str, Result]:
    """What `rote --help` and `rote COMMAND --help` print; the first under an empty name."""
    return {name: rote_here(*name.split(), "--help") for name in ("", *BY_NAME)}


def test_help_lists_the_commands_by_what_people_come_for(pages: dict[str, Result]) -> None:
    found: dict[str, list[str]] = {}
    panel = ""
    for line in pages[""].out.splitlines():
        if title := re.match(r"╭─ (.+?) ─+╮", line):
            panel = title[1]
        elif panel and (name := re.match(r"│ (\w+) +\S", line)):
            found.setdefault(panel, []).append(name[1])
    first = {
        panel: list(dict.fromkeys(command.name.split()[0] for command in commands))
        for panel, commands in COMMANDS.items()
    }
    assert found == first


@pytest.mark.parametrize("name", ["", *BY_NAME])
def test_a_flag_is_shown_as_a_flag(name: str, pages: dict[str, Result]) -> None:
    page = pages[name]
    assert (page.code, page.err) == (0, "")
    assert not re.search(r"<bool>|\bbool\b|BOOLEAN", page.out, re.IGNORECASE)
    for flags, kind, _ in rows(name) if name else ():
        if kind == "flag":
            assert re.search(rf"│[ *]+{flags} +[A-Z]", page.out), f"{flags} takes no value, and its help follows"
    assert re.search(r"│ --version +[A-Z]", page.out) or name


@pytest.mark.parametrize("name", BY_NAME)
def test_help_names_every_option_and_ends_with_an_example(name: str, pages: dict[str, Result]) -> None:
    words = " ".join(pages[name].out.split())
    for flags, _, _ in rows(name):
        for flag in flags.split("/"):
            assert f" {flag} " in words
    example = BY_NAME[name].example
    assert words.endswith(f"Example: {example}")
    words_of_it = shlex.split(example)
    called, arguments = words_of_it[1 : 1 + len(name.split())], words_of_it[1 + len(name.split()) :]
    assert " ".join(called) == name
    BY_NAME[name].parser().make_context(name, arguments)  # parses it, and runs nothing


def test_the_first_help_ends_with_where_to_start(pages: dict[str, Result]) -> None:
    assert " ".join(pages[""].out.split()).endswith("Start with: rote scan (bundled text, bundled model, no network)")


if __name__ == "__main__":
    FROZEN.write_text(surface(), encoding="utf-8")
    print(f"wrote {FROZEN}")
