"""The text of a page in blocks: put together they are the text, and each knows where it begins."""

from __future__ import annotations

from html import unescape
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rote.report.page import blocks as blocks_of
from rote.report.page.blocks import exact, example_blocks, text_blocks
from rote.report.text import numbers

# Line ends of every kind, control characters, astral and combining ones, markup, lone surrogates.
Letters = st.one_of(st.sampled_from("\n\r\t\0\x07 <>&\"'\u0301\u200d🐇𝔸漢\ufdd0\ud800"), st.characters(codec=None))
Texts = st.one_of(
    st.text(Letters, max_size=300),
    # Long lines and long texts, made of pieces so that they are made quickly.
    st.lists(st.tuples(st.text(Letters, max_size=6), st.integers(1, 900)), max_size=12).map(
        lambda pieces: "".join(part * times for part, times in pieces)
    ),
)


def browsed(markup: Any) -> str:
    """What a browser reads: it makes line feeds of carriage returns before it looks at anything else."""
    return unescape(str(markup).replace("\r\n", "\n").replace("\r", "\n"))


@given(Texts)
def test_blocks_give_the_text_back(text: str) -> None:
    blocks = text_blocks(text)
    assert "".join(browsed(block["text"]) for block in blocks) == numbers.literal(text)
    at = 0
    for number, block in enumerate(blocks):
        own = browsed(block["text"])
        assert own
        assert block["at"] == at
        assert own == numbers.literal(text)[at : at + len(own)]
        assert block["joined"] == (number > 0 and text[at - 1] != "\n")
        assert len(own) <= blocks_of.LONGEST
        assert len(own) <= blocks_of.BLOCK or "\n" not in own[:-1]  # larger only where one line is
        assert block["height"] > 0
        at += len(own)
    assert at == len(text)


def test_a_line_of_ten_thousand_characters_is_one_block() -> None:
    text = "short\n" + "𝔸" * 10_000 + "\nshort\r\n"
    assert [browsed(block["text"]) for block in text_blocks(text)] == ["short\n", "𝔸" * 10_000 + "\n", "short\r\n"]
    endless = "x" * 50_000
    assert [(block["at"], block["joined"]) for block in text_blocks(endless)] == [
        (0, False),
        (blocks_of.LONGEST, True),
        (2 * blocks_of.LONGEST, True),
    ]
    assert text_blocks("") == []


def test_a_book_is_cut_into_blocks_of_about_a_thousand_characters() -> None:
    text = "It was the best of times,\nit was the worst of times.\n" * 4000
    sizes = [len(browsed(block["text"])) for block in text_blocks(text)]
    assert all(blocks_of.BLOCK / 2 < size <= blocks_of.BLOCK for size in sizes[:-1])


@given(st.text(Letters, max_size=50))
def test_exact_text_is_read_back_letter_by_letter(text: str) -> None:
    assert browsed(exact(text)) == numbers.literal(text)
    assert len(numbers.literal(text)) == len(text)


@given(st.lists(st.tuples(st.text(Letters, max_size=9), st.text(Letters, max_size=9)), max_size=9), st.integers(0, 40))
def test_examples_are_shown_in_order_as_many_as_fit(examples: list[tuple[str, str]], most: int) -> None:
    given_rows = [(7 * place, *pair) for place, pair in enumerate(examples)]
    before = blocks_of.CHARACTERS
    blocks_of.CHARACTERS = most
    try:
        blocks = example_blocks(given_rows)
    finally:
        blocks_of.CHARACTERS = before
    assert [block["row"] for block in blocks] == [7 * place for place in range(len(blocks))]
    for block, (prefix, suffix) in zip(blocks, examples, strict=False):
        shown = browsed(block["text"])
        assert shown == numbers.literal(prefix + suffix)
        assert block["suffix"] == len(prefix)
    sizes = [len(prefix) + len(suffix) for prefix, suffix in examples]
    assert sum(sizes[: len(blocks)]) <= most or len(blocks) == 1
    assert len(blocks) == len(examples) or (blocks and sum(sizes[: len(blocks) + 1]) > most)
