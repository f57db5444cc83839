"""Numbers keep their keys through sentences, and whatever stands around them or in their keys stays text."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rote.report.keys import MARKS, derived, key_of, keyed, mark, marked, number_in, plain
from rote.report.text import numbers
from rote.store.summary import Rate

Numbers = st.one_of(st.floats(), st.integers())
Pieces = st.lists(st.tuples(st.text(), Numbers, st.text(), st.text(max_size=8)), max_size=5)


class Elements(HTMLParser):
    """The text of some HTML, and the tag, attributes and text of every element in it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.elements: list[tuple[str, dict[str, str | None], str]] = []
        self._depth = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not self._depth, "elements do not stand in each other"
        self._depth += 1
        self.elements.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._depth -= 1

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._depth:
            tag, attributes, text = self.elements[-1]
            self.elements[-1] = (tag, attributes, text + data)


def sentence(pieces: list[tuple[str, float, str, str]]) -> str:
    """Foreign text and numbers in turn, each number with foreign text in its key."""
    return "".join(
        numbers.literal(words) + mark(keyed(number, f"scores/{name}/x"), numbers.literal(shown), "number")
        for words, number, name, shown in pieces
    )


@given(Pieces)
def test_any_text_stays_around_any_number(pieces: list[tuple[str, float, str, str]]) -> None:
    text = sentence(pieces)
    expected = "".join(numbers.literal(words) + numbers.literal(shown) for words, _, _, shown in pieces)
    assert plain(text) == expected
    assert plain(plain(text)) == expected
    if not pieces:
        return
    found = Elements(str(marked(text)))
    assert found.text == expected
    assert len(found.elements) == len(pieces)
    for (tag, attributes, shown), (_, number, name, own) in zip(found.elements, pieces, strict=True):
        assert tag == "data"
        assert shown == numbers.literal(own)
        safe = "".join("\ufffd" if c in MARKS else c for c in name)
        assert attributes["data-key"] == f"scores/{safe}/x"
        value = attributes["value"] or "nan"
        read = int(value) if isinstance(number, int) else float(value.replace("Infinity", "inf"))
        assert read == number or (math.isnan(number) and math.isnan(read))


@given(st.text(), st.text())
def test_a_name_is_marked_as_text(name: str, words: str) -> None:
    named = keyed(name, "manifest/model/name")
    ((tag, attributes, shown),) = Elements(str(marked(numbers.literal(words) + numbers.name(named)))).elements
    assert (tag, shown) == ("bdi", numbers.literal(name))
    assert attributes == {"data-key": "manifest/model/name", "data-as": "text"}
    assert numbers.name(name) == numbers.literal(name)


def test_keys_are_not_typeset() -> None:
    number = keyed(0.5, "scores/p_z of τ = 5/log_prob")
    html = str(numbers.typeset(f"p_z at τ = {numbers.setting(number)}, p = 3"))
    assert html.startswith("<i>p</i><sub>z</sub> at τ\u00a0=\u00a0<data ")
    assert html.endswith("</data>, p\u00a0=\u00a03")
    ((_, attributes, _),) = Elements(html.replace("<i>p</i><sub>z</sub>", "")).elements
    assert attributes["data-key"] == "scores/p_z of τ = 5/log_prob"


def test_a_carriage_return_in_a_key_reaches_the_page() -> None:
    assert "&#13;" in str(marked(mark(keyed(1, "scores/a\rb"), "1", "count")))
    assert "\r" not in str(marked(mark(keyed(1, "scores/a\rb"), "1", "count")))


Content = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=12,
)


@given(Content)
def test_content_with_keys_is_the_same_content(content: Any) -> None:
    found = keyed(content, "summary")
    assert found == content
    assert json.dumps(found) == json.dumps(content)
    _follow(found, "summary")


def _follow(content: Any, key: str) -> None:
    if isinstance(content, dict):
        for name, value in content.items():
            assert key_of(name) == f"{key}/{name}"
            _follow(value, f"{key}/{name}")
    elif isinstance(content, list):
        for place, value in enumerate(content):
            _follow(value, f"{key}/{place}")
    else:
        assert key_of(content) == (None if content is None or isinstance(content, bool) else key)


def test_declared_content_with_keys_is_the_same_content() -> None:
    rate = Rate(count=1, rate=0.25, rate_upper=0.5, interval=[0.0, 1.0])
    found = keyed(rate, "summary")
    assert found == rate
    assert type(found) is Rate
    assert [key_of(value) for value in (found.count, found.rate, found.effective, *found.interval)] == [
        "summary/count",
        "summary/rate",
        None,
        "summary/interval/0",
        "summary/interval/1",
    ]


def test_only_what_comes_from_a_page_has_marks() -> None:
    rate = Rate(count=1, rate=0.25, rate_upper=0.5, interval=[0.0, 1.0])
    assert numbers.rate(rate) == "25.0% to 50.0%"
    assert plain(numbers.rate(keyed(rate, "summary"))) == "25.0% to 50.0%"
    assert numbers.rate(keyed(rate, "summary")) != "25.0% to 50.0%"
    for source, key in ((3, None), (keyed(3, "summary/x"), "cost/mean")):
        assert key_of(derived(1.5, "cost/mean", source)) == key
    (name,) = keyed({"0.5": {}}, "summary")
    assert key_of(number_in(name)) == "summary/0.5"
    assert key_of(number_in("0.5")) is None
    assert number_in("0.5") == 0.5
