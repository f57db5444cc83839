"""Numbers and names that remember where they come from, so that every result on a page can be checked against the run.

A summary, a manifest or a row that went through `keyed` holds floats, ints and strings that know their place in it
(`summary/schemes/greedy/rates/examples`). The functions of `rote.report.text.numbers` print such a one with marks
around it, sentences carry the marks along like any other text, and `marked` turns them into elements with a `data-key`.
A number that was computed from others on the way has lost its key: `derived` gives it one of its own, where the others
have one. What has none is found on the page by the tests, which say so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from markupsafe import Markup, escape

# Noncharacters: Unicode sets them aside for use within a program, and `show.literal` lets none through from outside.
_OPEN, _MIDDLE, _CLOSE = "\ufdd0", "\ufdd1", "\ufdd2"
MARKS = _OPEN + _MIDDLE + _CLOSE
_PART = f"([^{MARKS}]*)"
_FIGURE = re.compile(_OPEN + _MIDDLE.join([_PART] * 4) + _CLOSE)  # key, how, value, shown


Content = TypeVar("Content")


class KeyedFloat(float):
    key: str


class KeyedInt(int):
    key: str


class KeyedStr(str):
    key: str


def keyed(content: Content, key: str) -> Content:
    """The same content, in which every number and string knows its key: the names and places on the way to it.

    The names in a mapping know their keys too: some are numbers, such as the thresholds of a coverage.
    """
    known: Any = _keyed(content, key)
    return known  # type: ignore[no-any-return]


def _keyed(content: Any, key: str) -> Any:
    if is_dataclass(content) and not isinstance(content, type):
        own = {field.name: getattr(content, field.name) for field in fields(content)}
        return type(content)(**{name: keyed(value, f"{key}/{name}") for name, value in own.items()})
    if isinstance(content, Mapping):
        return {keyed(name, f"{key}/{name}"): keyed(value, f"{key}/{name}") for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return type(content)(keyed(value, f"{key}/{place}") for place, value in enumerate(content))
    for kind, known in ((float, KeyedFloat), (int, KeyedInt), (str, KeyedStr)):
        if isinstance(content, kind) and not isinstance(content, bool):
            value: Any = known(content)
            value.key = key
            return value
    return content


def derived(number: Content, key: str, source: object) -> Content:
    """A number that was computed: with this key where its source has one, as on a page, and as it is elsewhere."""
    return number if key_of(source) is None else keyed(number, key)


def number_in(name: str) -> float:
    """The number that a mapping's name says."""
    return derived(float(name), key_of(name) or "", name)


def key_of(content: object) -> str | None:
    return getattr(content, "key", None)


def mark(content: float | str | None, shown: str, how: str) -> str:
    """`shown` as it is, or between marks where the content has a key. `how` says what is shown of the content."""
    key = key_of(content)
    if key is None:
        return shown
    return f"{_OPEN}{_safe(key)}{_MIDDLE}{how}{_MIDDLE}{_value(content)}{_MIDDLE}{shown}{_CLOSE}"


def _safe(text: str) -> str:
    """Text from outside that goes between marks, such as an example's id."""
    return re.sub(f"[{MARKS}]", "\ufffd", text)


def _value(content: object) -> str:
    """The number itself, as a script reads it; of a text nothing, as it is shown in full."""
    if isinstance(content, float):
        if math.isfinite(content):
            return float.__repr__(content)
        return "" if math.isnan(content) else "Infinity" if content > 0 else "-Infinity"
    return int.__repr__(content) if isinstance(content, int) else ""


def plain(text: str) -> str:
    """Without marks: for attributes, and for what goes elsewhere than to a page."""
    return _FIGURE.sub(r"\4", text)


def marked(text: str) -> str | Markup:
    """Text for a page: unchanged where it has no marks, else escaped, with each figure in an element of its own."""
    return element_of_marks(text, escape) if _OPEN in text else text


def element_of_marks(text: str, words: Callable[[str], str] = escape) -> Markup:
    """Each figure as <data>, or as <bdi> if it is a text; what stands between them as `words` makes it HTML."""
    html, end = [], 0
    for match in _FIGURE.finditer(text):
        html += [words(text[end : match.start()]), _element(*match.groups())]
        end = match.end()
    return Markup("".join([*html, words(text[end:])]))


def _element(key: str, how: str, value: str, shown: str) -> str:
    where = f'data-key="{escape(key)}" data-as="{escape(how)}"'
    element = f'<data value="{escape(value)}" {where}>{escape(shown)}</data>'
    if how in ("text", "title"):
        element = f"<bdi {where}>{escape(shown)}</bdi>"
    return element.replace("\r", "&#13;")  # of which a browser would make a line feed, and another key
