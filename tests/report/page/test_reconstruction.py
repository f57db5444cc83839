"""The words and the page of a reconstruction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from random import Random
from typing import Literal

import pytest

from rote.analysis.similarity import Similarity, similarity
from rote.jobs.reconstruct import _similarity
from rote.report.page import reconstruction
from rote.report.page.layout import script
from rote.report.page.reconstruction import SHOWN, render_reconstruction
from rote.report.text.reconstruction import headline, lines
from rote.store.files import FORMAT
from rote.store.manifest import ReconstructionManifest, Source
from rote.store.reconstruction import Break, ReconstructionSummary, Truth
from tests.report import runs
from tests.report.runs import CREATED, VERSIONS

MODEL = replace(runs.MODEL, name="a&b", fingerprint="0123456789abcdef0123")
SOURCE = Source(name="opening <1>.txt", sha256="ab" * 32, characters=20, dropped=0)
MANIFEST = ReconstructionManifest(
    format=FORMAT, kind="reconstruct", created=CREATED, source=SOURCE, model=MODEL, seed_tokens=5,
    tokens=100, context_tokens=511, step=50, beams=8, length_penalty=1.2, context="sliding",
    section_break="\n\nCHAPTER {WORDS}\n", missed_after=10_000, versions=VERSIONS,
)  # fmt: skip


def summary_of(
    compared: Similarity | None = None, *, breaks: Sequence[Break] = (), ended_by: Literal["eos", "tokens"] = "tokens"
) -> ReconstructionSummary:
    return ReconstructionSummary(
        format=FORMAT, kind="reconstruct", source=SOURCE, model=MODEL, tokens=100, seed_tokens=5, characters=400,
        chunks=2, ended_by=ended_by, breaks=list(breaks), token_evals=1000, sliding_evals=3000, seconds=3.2,
        warnings=[], versions=VERSIONS,
        truth=None if compared is None else Truth(name="book.txt", sha256="cd" * 32, characters=400),
        similarity=None if compared is None else _similarity(compared),
    )  # fmt: skip


def page_of(compared: Similarity | None = None, *, text: str = "", seed: str = "") -> str:
    """The page without its script, of which foreign text must never become a part."""
    html = render_reconstruction(MANIFEST, summary_of(compared), seed, text, compared)
    assert html.count(f"<script>{script()}</script>") == 1
    return html.replace(f"<script>{script()}</script>", "")


def section(page: str, name: str) -> str:
    found = re.search(rf'<section aria-labelledby="{name}">.*?</section>', page, re.DOTALL)
    assert found is not None
    return found[0]


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", "", html).split())


def test_without_a_truth_nothing_is_compared() -> None:
    printed = "\n".join(lines(MANIFEST, summary_of()))
    assert printed.startswith("95 tokens were written on from a seed of 5 tokens.")
    assert "similarity" not in printed
    page = page_of(text="one two <b>three</b>\nfour", seed="one two")
    assert '<span class="prefix">one two</span>' in page
    assert "&lt;b&gt;three&lt;/b&gt;\nfour" in page
    assert "opening &lt;1&gt;.txt" in page
    assert "a&amp;b" in page
    assert "Differences" not in page


def test_the_same_text_is_said_to_be_the_same() -> None:
    compared = similarity("one two three four", "one two three four", seed="one")
    summary = summary_of(compared)
    assert headline(summary) == "From a seed of 5 tokens, the model wrote book.txt to its end, word for word."
    printed = "\n".join(lines(MANIFEST, summary))
    assert re.search(r"^similarity  1 in words, 1 in sentences \(matching ratios\); TF-IDF cosine 1; ", printed, re.M)
    assert "differs     nowhere" in printed
    page = page_of(compared)
    assert "The texts are the same, word for word." in page
    assert "two three four" in section(page, "text")


def test_differences_are_shown_in_place_and_escaped() -> None:
    truth = "one " + " ".join(f"word{i}" for i in range(400))
    words = truth.split()
    words[100], words[200] = "<script>", "other"
    del words[300:310]
    compared = similarity(truth, " ".join(words), seed="one")
    summary = summary_of(compared)
    printed = "\n".join(lines(MANIFEST, summary))
    assert "in 3 places; first at word 99 (24.8% of the truth): after “" in printed
    assert "the truth has “word99 word100" in printed
    assert "the generated text “<script> word100" in printed
    page = page_of(compared)
    assert "<script>" not in page
    for part in (section(page, "differences"), section(page, "text")):
        assert re.search("<del[^>]*>word99</del> <ins>&lt;script&gt;</ins> word100", part)
        assert len(re.findall("<del[ >]", part)) == 3
        assert len(re.findall("<ins[ >]", part)) == 2
    links = re.findall('href="#(difference-[0-9]+)"', section(page, "differences"))
    assert (
        links == re.findall('id="(difference-[0-9]+)"', section(page, "text")) == [f"difference-{i}" for i in range(3)]
    )
    assert len(re.findall('<rect class="h', page)) == 98  # the ten missing words fill two parts
    assert 'src="' not in page


def test_what_is_not_shown_is_counted() -> None:
    truth = [f"word{i}" for i in range(1000)]
    other = [word if i % 4 else "x" for i, word in enumerate(truth)]
    compared = similarity(" ".join(truth), " ".join(other), seed="")
    page = page_of(compared)
    assert len(re.findall("<del>", section(page, "differences"))) == SHOWN
    assert len(re.findall("<del[ >]", section(page, "text"))) == 250
    assert f"The first {SHOWN} of 250, in the order of the truth" in words(page)
    compared = similarity(" ".join(truth), "nothing of it", seed="")
    page = page_of(compared)
    assert "… (920 more words)" in words(page)
    assert "word999" in section(page, "text")


def test_the_text_is_whole_whatever_its_differences() -> None:
    """What is not struck out is the generated text, what is not underlined the true one."""
    random = Random(5)
    for count in (1, 30, 3000):
        truth = [random.choice(("a", "b", "<c>", "d&d")) * random.randrange(1, 9) for _ in range(count)]
        other = [word for word in truth for word in random.choice(((word,), (word,), (), (word, "new"), ("x",)))]
        compared = similarity(" ".join(truth), " ".join(other), seed="")
        (blocks,) = re.findall('<div class="page-text".*?</div>', page_of(compared), re.DOTALL)
        for mine, side in (("ins", truth), ("del", other)):
            kept = re.sub(rf"<{mine}[ >].*?</{mine}>", "", blocks, flags=re.DOTALL)
            assert unescape(words(kept.replace("</p>", " "))).split() == side


def test_a_text_that_is_too_long_is_cut_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconstruction, "TEXT", 3000)
    truth = " ".join(f"word{i}" for i in range(2000))
    page = page_of(similarity(truth, truth.replace("word7", "x"), seed=""))
    assert len(words(section(page, "text"))) < 5000
    assert "The rest is left out here." in page


def test_sections_cost_and_context_are_told() -> None:
    breaks = [Break(token=40, section=2, skipped=0), Break(token=90, section=4, skipped=1)]
    printed = "\n".join(lines(replace(MANIFEST, context="anchored"), summary_of(breaks=breaks)))
    assert (
        r"EOS 2 times (at token 40, 90), each replaced by '\n\nCHAPTER {WORDS}\n'; 1 break taken as missed" in printed
    )
    assert (
        "1,000 token evaluations (10.5 per token) in 3.2 s; the sliding context would have taken 3,000, 3 times"
        in printed
    )
    ended = lines(replace(MANIFEST, section_break=None, beams=1), summary_of(breaks=breaks[:1], ended_by="eos"))
    assert any("EOS at token 40 ended the text" in line for line in ended)
    assert any(line.startswith("scheme      greedy decoding") for line in ended)
    assert any("end: the model ended it" in line for line in ended)
