"""Checks the script of the pages with oxlint: undefined and unused names, long functions, one style.

Its parts are files of functions that share one closure, so oxlint reads them put together, as a page has them, and
what it finds is told by part and line. How a part is formatted is oxfmt's business.

    python .ci/javascript.py
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from rote.report.page.layout import SCRIPTS, script

CONFIGURATION = Path(__file__).with_name("oxlint.json")

STYLE = {
    r"\A(?!// )": "a part begins with a comment that says what it is about",
    r"^(?:const|let) \w+ =\s+(?:async\b|function\b|\w+ =>|\([^()]*\) =>)": "a function of a part is a declaration",
    r"^ +(?:async )?function\b": "a function inside another is an arrow function",
    r"^//.*\n(?:async )?function\b": "what a function does stands in /** ... */",
}
"""What oxlint has no rule for: patterns that no part may have, in parts that are formatted."""


def main() -> int:
    folder = Path(str(files("rote.report.page"))) / "templates" / "page"
    parts = {f"{name}.js": (folder / f"{name}.js").read_text("utf-8") for name in SCRIPTS}
    found = [f"{path.name}: not in layout.SCRIPTS" for path in folder.iterdir() if path.name not in parts]
    for name, part in parts.items():
        for pattern, rule in STYLE.items():
            lines = [part.count("\n", 0, match.start()) + 1 for match in re.finditer(pattern, part, re.MULTILINE)]
            found += [f"{name}:{line}: {rule}" for line in lines]
    found += faults(script(), parts)
    print("\n".join(found) if found else f"{len(parts)} parts: nothing found")
    return 1 if found else 0


def faults(code: str, parts: dict[str, str]) -> list[str]:
    """What oxlint finds in the whole script."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "page.js"
        path.write_text(code, encoding="utf-8")
        command = ["oxlint", "--config", str(CONFIGURATION), "--format", "json", str(path)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        said = json.loads(ran.stdout)
    except json.JSONDecodeError:
        said = {}
    if said.get("number_of_files") != 1:
        raise RuntimeError(f"oxlint read nothing: {ran.stdout}{ran.stderr}")
    before = code.count("\n", 0, code.index(next(iter(parts.values()))))
    places = [f"{name}:{line}" for name, part in parts.items() for line in range(1, part.count("\n") + 2)]
    found = []
    for one in said["diagnostics"]:
        line = one["labels"][0]["span"]["line"] - before if one["labels"] else 1
        place = places[max(0, min(line, len(places)) - 1)]
        found.append(f"{place}: {one['message']} [{one.get('code', 'syntax')}]")
    return found


if __name__ == "__main__":
    sys.exit(main())
