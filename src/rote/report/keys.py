"""Numbers that remember where they come from, so that every result number on a page can be checked against the run.

A summary, a manifest or a row that went through `keyed` holds floats and ints that know their place in it
(`summary/schemes/greedy/rates/examples`). The functions of `rote.report.show` print such a number with marks around it,
sentences carry the marks along like any other text, and `marked` turns them into <data> elements. A number that was
computed from others on the way has lost its key; the tests find it on the page and say so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

# Noncharacters: Unicode sets them aside for use within a program, and `show.literal` lets none through from outside.
_OPEN, _MIDDLE, _CLOSE = "\ufdd0", "\ufdd1", "\ufdd2"
MARKS = _OPEN + _MIDDLE + _CLOSE
_FIGURE = re.compile(f"{_OPEN}([^{MARKS}]*){_MIDDLE}([^{MARKS}]*){_MIDDLE}([^{MARKS}]*){_CLOSE}")


class KeyedFloat(float):
    key: str


class KeyedInt(int):
    key: str


def keyed(content: Any, key: str) -> Any:
    """The same content, in which every number knows its key: the names and places on the way to it, with slashes."""
    if isinstance(content, Mapping):
        return {name: keyed(value, f"{key}/{name}") for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return type(content)(keyed(value, f"{key}/{place}") for place, value in enumerate(content))
    if isinstance(content, bool) or not isinstance(content, (int, float)):
        return content
    number: KeyedFloat | KeyedInt = KeyedInt(content) if isinstance(content, int) else KeyedFloat(content)
    number.key = key
    return number


def mark(number: float | None, shown: str, how: str) -> str:
    """`shown` as it is, or between marks where the number has a key. `how` says what is shown of the number."""
    key = getattr(number, "key", None)
    return shown if key is None else f"{_OPEN}{key}{_MIDDLE}{how}{_MIDDLE}{shown}{_CLOSE}"


def plain(text: str) -> str:
    """Without marks: for attributes, and for what goes elsewhere than to a page."""
    return _FIGURE.sub(r"\3", text)


def marked(text: str) -> str | Markup:
    """Text for a page: unchanged where it has no marks, else escaped, with each figure in a <data> element."""
    if _OPEN not in text:
        return text
    return Markup(element_of_marks(str(escape(text))))


def element_of_marks(html: str) -> str:
    """The same for text that is escaped already."""
    return _FIGURE.sub(r'<data value="" data-key="\1" data-as="\2">\3</data>', html)
