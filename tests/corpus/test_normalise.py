"""Steps against a slow implementation, and the way back: every span of every window, in the original's characters."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote import InputError, Windows
from rote.corpus.normalise import EXACT, STEPS, normalised, ordered, typed_steps
from rote.corpus.windows import cut_at, ready, windows
from tests.cases import cases
from tests.corpus.test_windows import TOKENIZERS
from tests.reference.normalise import reference_normalised

PIECES = [
    "Alice was ", "cat", " ", "  ", "    ", "\n", "\n\n", "\r\n", "\r", "\t", "\ufeff", "\u00ad", "\u00a0", "\u202f",
    "\u3000", "“", "”", "‘", "’", '"', "'", "'tis ", "'90s", "--", "—", "(", "don't ", '"Oh, \'em!"', "e\u0301",
    "👩\u200d👩\u200d👧", "😀", "한국", "שלום ", "a-very-long-word-", "\u2028", "\x0b", "_",
]  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=30).map("".join)
SOME = st.lists(
    st.sampled_from([*EXACT, "curly-quotes", "unwrap", "wrap-7", "wrap-20"]), max_size=6, unique=True
).filter(lambda steps: sum(step.startswith(("unwrap", "wrap-")) for step in steps) < 2)


@cases(400)
@given(text=TEXTS, steps=st.one_of(SOME, st.just(["straight-quotes"])))
def test_same_as_the_reference(text: str, steps: list[str]) -> None:
    found = normalised(text, steps)
    reference = [re.sub(r"^wrap-", "wrap-N-", step) for step in ordered(steps)]
    assert (found.text, found.borders.tolist()) == reference_normalised(text, reference)
    assert list(found.changed) == ordered(steps)
    assert (found.text == text) == (not any(found.changed.values()))


@cases(200)
@given(text=TEXTS.filter(bool), steps=SOME)
def test_borders_rise_from_one_end_of_the_text_to_the_other(text: str, steps: list[str]) -> None:
    found = normalised(text, steps)
    assert len(found.borders) == len(found.text) + 1
    assert found.borders[-1] == len(text)
    if found.text:
        assert found.borders[0] == 0
    assert (np.diff(found.borders) > 0).all()
    became = found.became()
    assert [chr(code) for code in became[found.borders[:-1]]] == list(found.text)
    assert (became >= 0).sum() == len(found.text)


@pytest.mark.parametrize("name", TOKENIZERS)
@cases(60)
@given(
    text=TEXTS.filter(bool),
    steps=SOME,
    stride=st.integers(1, 9),
    unit=st.sampled_from(["tokens", "characters"]),
)
def test_windows_stand_in_the_original(name: str, text: str, steps: list[str], stride: int, unit: Any) -> None:
    """The same tokens as of the normalised text alone, at places that leave no gap; cut again, they are the same."""
    tokenizer, cut = TOKENIZERS[name](), Windows(3, 5, stride, unit)
    made = normalised(text, steps)
    if not made.text:
        with pytest.raises(InputError, match="normalise leaves nothing of the text"):
            windows(text, tokenizer, cut, normalise=steps)
        return
    found, alone = windows(text, tokenizer, cut, normalise=steps), windows(made.text, tokenizer, cut)
    assert [(e.prefix, e.suffix) for e in found] == [(e.prefix, e.suffix) for e in alone]
    for example, plain in zip(found, alone, strict=True):
        places = [plain.start, plain.suffix_start, plain.suffix_end]
        assert [example.start, example.suffix_start, example.suffix_end] == [made.borders[p] for p in places]
        assert example.id == f"w{example.start}"
        assert example.token_ends is not None
        assert plain.token_ends is not None
        ends = [int(made.borders[(plain.suffix_start or 0) + end]) for end in plain.token_ends]
        assert [(example.suffix_start or 0) + end for end in example.token_ends] == ends
    again = cut_at(text, tokenizer, cut, steps, [e.start for e in found if e.start is not None])
    assert again == found
    assert [e.token_ends for e in again] == [e.token_ends for e in found]


def test_regions_are_the_original_s() -> None:
    text = "one\r\ntwo\r\nthree\r\nfour\r\nfive\r\nsix\r\n"
    tokenizer, cut = TOKENIZERS["single_bytes"](), Windows(2, 2, 1)
    every = windows(text, tokenizer, cut, normalise=["line-ends"])
    inside = windows(text, tokenizer, cut, normalise=["line-ends"], within=[(4, 9), (12, 20)])
    assert inside == [e for e in every if 4 <= (e.start or 0) < 9 or 12 <= (e.start or 0) < 20]
    assert [e.start for e in inside][:4] == [5, 6, 7, 8]  # 4 is the second half of a line end


@pytest.mark.parametrize(
    ("step", "text", "now"),
    [
        ("bom", "\ufeffone\ufeff two", "one two"),
        ("line-ends", "a\r\nb\rc\nd\r\r\n", "a\nb\nc\nd\n\n"),
        ("soft-hyphens", "me\u00admo\u00adry", "memory"),
        ("spaces", "a\u00a0b\u202fc\u2009d\te", "a b c d\te"),
        ("double-spaces", "One.  Two.   Three.\n    indented  verse", "One. Two. Three.\n    indented verse"),
        ("straight-quotes", "“‘Tis,” he’d say", "\"'Tis,\" he'd say"),
        ("curly-quotes", "\"'Tis,\" he'd say--'so.'", "“’Tis,” he’d say--‘so.’"),
        ("curly-quotes", "(\"well\") 'I was just--' \"'No!'\"", "(“well”) ‘I was just--’ “‘No!’”"),
        ("unwrap", "one\ntwo \nthree\n\nfour\n  five\nsix", "one two three\n\nfour\n  five\nsix"),
        ("wrap-8", "one two three four\n\nfive six\nseven", "one two\nthree\nfour\n\nfive six\nseven"),
    ],
)
def test_what_each_step_does(step: str, text: str, now: str) -> None:
    assert normalised(text, [step]).text == now


def test_steps_are_taken_in_one_order_whatever_is_given() -> None:
    assert ordered(["double-spaces", "spaces", "double-spaces"]) == ["spaces", "double-spaces"]
    assert ordered("exact") == list(EXACT)
    assert ordered(["wrap-72", "exact", "curly-quotes"]) == [*EXACT, "curly-quotes", "wrap-72"]
    assert normalised("a\u00a0 b", ["double-spaces", "spaces"]).text == "a b"
    assert typed_steps("line-ends, wrap-70") == ["line-ends", "wrap-70"]
    assert set(EXACT) < set(STEPS)


@pytest.mark.parametrize("wrong", [["crlf"], ["wrap-N"], ["wrap-0"], ["wrap-"], ["wrap-07"], [3], "all"])
def test_steps_that_are_none(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"normalise: there is no step .*line-ends.*exact \(the first 5\)"):
        ordered(wrong)


@pytest.mark.parametrize("both", [["curly-quotes", "straight-quotes"], ["unwrap", "wrap-70"], ["wrap-70", "wrap-72"]])
def test_steps_that_undo_each_other(both: list[str]) -> None:
    with pytest.raises(InputError, match=f"{both[0]} and {both[1]} undo each other"):
        ordered(both)


def test_what_is_no_list_of_steps() -> None:
    with pytest.raises(InputError, match="normalise must be a list of steps, not 7"):
        ordered(7)
    with pytest.raises(ValueError, match="there is no step 'crlf'; give some of bom, line-ends"):
        typed_steps("line-ends,crlf")


def test_a_text_of_nothing_but_marks() -> None:
    with pytest.raises(InputError, match="normalise leaves nothing of the text"):
        ready("\ufeff\ufeff", ["bom"])
