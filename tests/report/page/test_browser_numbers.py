"""Numbers that the page's script prints: the same, to the last character, as those that Python prints."""

from __future__ import annotations

import base64
import math
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from rote.report import keys
from rote.report.text import numbers
from tests.cases import cases
from tests.report.page.browser import browser, opened

__all__ = ["browser"]

CHANCES = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.999999)


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("page") / "numbers.html"
    folder = files("rote.report.page") / "templates" / "page"
    code = "\n".join((folder / f"{name}.js").read_text("utf-8") for name in ("odds", "numbers", "elements"))
    path.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><title>numbers</title><script>(() => {{"use strict";{code}\n'
        "window.parts = {show, keyed, typeset, plain, queriesNeeded}})()</script>",
        encoding="utf-8",
    )
    with opened(browser, path) as page:
        yield page


def printed(page: Any, name: str, values: Sequence[Any]) -> list[str]:
    """What `numbers.NAME` prints of each value; a tuple is several arguments. JSON has no infinity, a double has."""
    code = """([name, bytes, nulls, width]) => {
      const numbers = new Float64Array(Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0)).buffer);
      return nulls.map((isNull, i) => parts.show[name](
        ...(isNull ? [null] : numbers.subarray(i * width, (i + 1) * width))));
    }"""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    flat = [math.nan if number is None else float(number) for row in rows for number in row]
    packed = base64.b64encode(struct.pack(f"<{len(flat)}d", *flat)).decode("ascii")
    found: list[str] = page.evaluate(code, [name, packed, [row == (None,) for row in rows], len(rows[0])])
    return found


def compare(page: Any, name: str, python: Callable[..., str], values: Sequence[Any]) -> None:
    shown = printed(page, name, values)
    said = [python(*(value if isinstance(value, tuple) else (value,))) for value in values]
    wrong = [(v, p, j) for v, p, j in zip(values, said, shown, strict=True) if p != j]
    assert not wrong, f"{len(wrong)} of {len(values)}: value, Python, browser: {wrong[:5]}"


def around(*values: float) -> list[float]:
    """Values, and others on both sides of them, further away than a last bit."""
    return [v * f for v in values for f in (1 - 1e-5, 1 - 1e-12, 1 + 1e-12, 1 + 1e-5)] + list(values)


HALVES = [n / 8 for n in range(400)] + [n / 2 for n in range(41)] + [n / 1024 for n in range(2000)]


def shares(count: int = 5000) -> list[float]:
    draw = random.Random(1)
    edges = [v / 100 for v in around(0.001, 0.1, 9.995, 99.95, 99.9995)] + [0.0, 1.0, 5e-324, 1e-300, 1 - 2**-53]
    return [
        *(share for share in edges if share <= 1),
        *(n / 1024 for n in range(1025)),  # exact halves at several digits
        *(draw.random() for _ in range(count)),
        *(10 ** draw.uniform(-12, 0) for _ in range(count)),
        *(1 - 10 ** draw.uniform(-12, 0) for _ in range(count)),
        *(draw.randrange(k + 1) / k for k in range(1, 2000)),
    ]


def logs(count: int = 5000) -> list[float]:
    draw = random.Random(2)
    nearly = [v for v in around(0.9995, 0.99996, 0.999, 0.95, 0.5, 0.001, 0.1) if v < 1 and v not in (0.9995, 0.001)]
    return [
        0.0,
        -math.inf,
        -5e-324,
        -1e-20,
        -(2**-53),
        *(math.log(v) for v in nearly),
        *(-d * math.log(10) + shift for d in range(1, 1000, 7) for shift in (-1e-6, 1e-6)),
        -400 * math.log(10) + 0.7,  # 1e-400 is no float
        -700.0,
        math.nextafter(-700.0, 0.0),
        math.nextafter(-700.0, -math.inf),
        -745.0,
        -1e6,
        *(-draw.expovariate(1 / 5) for _ in range(count)),
        *(-(10 ** draw.uniform(-16, 4)) for _ in range(count)),
    ]


def test_percentages(page: Any) -> None:
    compare(page, "percent", numbers.percent, [None, math.nan, *shares()])


def test_thresholds(page: Any) -> None:
    compare(page, "threshold", numbers.threshold, [*shares(), 0.001, 0.0001, 1e-5, 1e-7, 0.999999, 0.9999999])


def test_numbers(page: Any) -> None:
    draw = random.Random(3)
    wide = [10 ** draw.uniform(-30, 30) for _ in range(3000)]
    compare(
        page, "number", numbers.setting, [*HALVES, *wide, *(-v for v in wide[:100]), 0.0, 123456.5, 1234565.0, 1e16]
    )


def test_counts(page: Any) -> None:
    draw = random.Random(4)
    large = [*(draw.randrange(10 ** draw.randrange(1, 16)) for _ in range(3000)), 1e15, 2.0**60, 1e21, 1.5e22]
    compare(page, "count", numbers.count, [None, *HALVES, *(float(n) for n in large)])


def test_probabilities(page: Any) -> None:
    compare(page, "probability", numbers.probability, [None, math.nan, *logs()])


def test_powers_of_ten(page: Any) -> None:
    compare(page, "scientific", numbers.scientific, [*logs(), *(-v for v in logs()), math.nan])


def test_prompts(page: Any) -> None:
    draw = random.Random(5)
    edges = around(9.95, 999.5, 0.9995e6, 0.9995e9, 0.9995e12, 999.5e12)
    wide = [10 ** draw.uniform(0, 300) for _ in range(3000)]
    whole = [float(draw.randrange(1, 10 ** draw.randrange(1, 13))) for _ in range(3000)]
    narrow = [10 ** draw.uniform(0, 16) for _ in range(3000)]
    compare(page, "prompts", numbers.prompts, [*HALVES, *edges, *wide, *whole, *narrow, math.inf])


def test_prompts_for_a_probability(page: Any) -> None:
    for chance in CHANCES:
        values = [(log_prob, chance) for log_prob in logs(2000)]
        compare(page, "promptsFor", numbers.prompts_for, values)


def test_expected_prompts(page: Any) -> None:
    compare(page, "expectedPrompts", numbers.expected_prompts, logs())
    compare(page, "oneIn", numbers.one_in, logs())


def test_intervals(page: Any) -> None:
    draw = random.Random(6)
    ends = [*shares(1000), *around(0.001), *around(0.9989)]
    pairs = [(low, high) for low, high in (sorted(draw.choices(ends, k=2)) for _ in range(10_000))]
    compare(
        page, "interval", numbers.interval, [*pairs, *((v, v) for v in ends), *((v, min(v + 9e-10, 1)) for v in ends)]
    )


def test_durations(page: Any) -> None:
    draw = random.Random(7)
    edges = [*around(59.95, 59.5, 3599.5, 3600.0), 0.05, 0.25, 60.5, 61.5, 3600.5, 1e7]
    compare(
        page, "duration", numbers.duration, [None, *HALVES, *edges, *(10 ** draw.uniform(-2, 7) for _ in range(3000))]
    )


@cases(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.floats(min_value=-1e5, max_value=0.0), min_size=1, max_size=50),
    st.lists(st.floats(min_value=0.0, max_value=1.0), min_size=1, max_size=50),
)
def test_any_probability_and_share(page: Any, log_probs: list[float], found: list[float]) -> None:
    compare(page, "probability", numbers.probability, log_probs)
    compare(page, "expectedPrompts", numbers.expected_prompts, log_probs)
    compare(page, "percent", numbers.percent, found)
    compare(page, "threshold", numbers.threshold, found)


def test_a_sentence_keeps_its_keys_and_its_subscripts(page: Any) -> None:
    number = keys.keyed(0.125, "summary/rate")
    text = f"Where p_z is high: {numbers.percent(number)} <b>at τ = 0.001</b>, not in sp_z or p_z-name"
    html = page.evaluate(
        "(text) => { const p = document.createElement('p'); p.append(...parts.typeset(text)); return p.innerHTML }",
        text,
    )
    assert html == str(numbers.typeset(text)).replace("\u00a0", "&nbsp;")
    assert page.evaluate("(text) => parts.plain(text)", text) == keys.plain(text)


def test_a_keyed_number_is_the_element_that_python_writes(page: Any) -> None:
    html = page.evaluate("() => parts.keyed('data', 'rows/3/log_prob', 'probability', '0.5', 0.5).outerHTML")
    assert html == keys.element_of_marks(keys.mark(keys.keyed(0.5, "rows/3/log_prob"), "0.5", "probability"))
    html = page.evaluate("() => parts.keyed('bdi', 'manifest/model/name', 'text', 'a<b').outerHTML")
    assert html == keys.element_of_marks(keys.mark(keys.keyed("a<b", "manifest/model/name"), "a<b", "text"))
