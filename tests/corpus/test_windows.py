from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import rote.corpus.windows as module
from rote import Windows
from rote.corpus.windows import plain_backend, ready, split_at, window_starts, windows, word_borders
from rote.errors import InputError
from rote.tokens import Example
from tests.cases import cases
from tests.reference.windows import LETTERS, Window, reference_windows, reference_word_windows

DATA = Path(module.__file__).parents[1] / "data"
ALICE = (DATA / "alice.txt").read_bytes().decode("utf-8")
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def letters(text: str) -> str:
    """The text's bytes in the byte-level alphabet."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return "".join(piece for piece, _ in split)


def fast(backend: Tokenizer) -> Any:
    wrap: Any = PreTrainedTokenizerFast
    return wrap(tokenizer_object=backend)


def byte_level(merges: list[tuple[str, str]], **pre_tokenizer: Any) -> Any:
    """Byte-level BPE with the merges given and a post-processor that trims offsets."""
    vocabulary = {letter: place for place, letter in enumerate(ALPHABET)}
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, **pre_tokenizer)
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    backend.decoder = decoders.ByteLevel()
    return fast(backend)


@functools.cache
def bundled() -> Any:
    return AutoTokenizer.from_pretrained(DATA / "model")


@functools.cache
def single_bytes() -> Any:
    """Every byte a token."""
    return byte_level([])


@functools.cache
def crossing() -> Any:
    """Tokens across words, newlines and the borders of characters, and tokens of up to 64 spaces."""
    space, newline, face = letters(" "), letters("\n"), letters("😀")
    merges = [(space * size, space * size) for size in (1, 2, 4, 8, 16, 32)]
    merges += [
        (newline, newline),
        (".", newline * 2),
        (letters("\r"), newline),
        (space, "c"),
        ("a", "t"),
        (space + "c", "at"),
    ]
    merges += [(face[0], face[1]), (face[3], "x"), ("a", face[0]), (face[2], face[3])]
    return byte_level(merges, use_regex=False)


@functools.cache
def trained() -> Any:
    """Learned merges, words split as in GPT-2."""
    from tokenizers.trainers import BpeTrainer

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    sample = ALICE[:20000] + "😀 שלום e\u0301 \ufeff    \r\n" * 20
    backend.train_from_iterator([sample], BpeTrainer(vocab_size=600, initial_alphabet=ALPHABET, show_progress=False))
    return fast(backend)


TOKENIZERS = {"bundled": bundled, "single_bytes": single_bytes, "crossing": crossing, "trained": trained}


def as_reference(examples: list[Example]) -> list[Window]:
    found = []
    for example in examples:
        assert example.id == f"w{example.start}"
        assert example.start is not None
        assert example.suffix_start is not None
        assert example.suffix_end is not None
        assert example.token_ends is not None
        span = (example.suffix_start, example.suffix_end)
        found.append(Window(example.start, example.prefix, example.suffix, *span, example.token_ends))
    return found


def suffix_ends(example: Example) -> list[int]:
    """Where in the text the first token of the suffix ends, the first two, and so on."""
    return [(example.suffix_start or 0) + end for end in example.token_ends or ()]


PIECES = [
    "Alice was beginning ",
    " cat.\n\n",
    "\r\n",
    "😀",
    "😀x",
    "a😀",
    "👩‍👩‍👧",
    "\ufeff",
    "e\u0301\u0323",
    "한국",
    "שלום עולם ",
    "مرحبا",
    "<|eos|>",
    "<|bos|>",
    "\t",
    " ",
    " " * 70,
    " " * 900,
    "x" * 300,
    "𓀀",
    "\u2028",
    "\x85",
    "\x7f",
]
TEXTS = st.lists(
    st.tuples(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), st.sampled_from([1, 1, 1, 2, 30])), max_size=12
).map(lambda parts: "".join(piece * times for piece, times in parts)[:5000])


@pytest.mark.parametrize("name", TOKENIZERS)
@cases(40)
@given(text=TEXTS.filter(bool), prefix=st.integers(1, 60), suffix=st.integers(1, 60), stride=st.integers(60, 700))
def test_same_as_the_reference(name: str, text: str, prefix: int, suffix: int, stride: int) -> None:
    tokenizer = TOKENIZERS[name]()
    found = windows(text, tokenizer, Windows(prefix=prefix, suffix=suffix, stride=stride))
    assert as_reference(found) == reference_windows(text, tokenizer, prefix=prefix, suffix=suffix, stride=stride)


@pytest.mark.parametrize("name", TOKENIZERS)
@cases(40)
@given(
    text=st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join),
    prefix=st.integers(1, 6),
    suffix=st.integers(1, 6),
)
def test_every_start_of_a_short_text(name: str, text: str, prefix: int, suffix: int) -> None:
    tokenizer = TOKENIZERS[name]()
    text = text[:60]
    found = windows(text, tokenizer, Windows(prefix=prefix, suffix=suffix, stride=1))
    assert as_reference(found) == reference_windows(text, tokenizer, prefix=prefix, suffix=suffix, stride=1)


def test_chunks_keep_order_when_some_windows_need_longer_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ALICE[:300] + " " * 3000 + ALICE[300:1500]
    expected = reference_windows(text, crossing(), prefix=20, suffix=30, stride=37)
    starts = [window.start for window in expected]
    assert any(window.suffix_end - window.start > 800 for window in expected)
    for chunk in (1, 7, 1024):
        monkeypatch.setattr(module, "CHUNK", chunk)
        found = as_reference(windows(text, crossing(), Windows(prefix=20, suffix=30, stride=37)))
        assert [window.start for window in found] == starts
        assert found == expected


def test_a_book() -> None:
    tokenizer = bundled()
    text = ALICE[:30000]
    found = windows(text, tokenizer, Windows(stride=10))
    assert len(window_starts(ready(text), Windows())) == 3000
    assert 2950 < len(found) < 3000
    assert [example.start for example in found] == list(range(0, 10 * len(found), 10))
    for example in found:
        assert len(example.prefix) == len(example.suffix) == 50
        assert tokenizer.decode(example.prefix) == text[example.start : example.suffix_start]
        assert tokenizer.decode(example.suffix) == text[example.suffix_start : example.suffix_end]


def test_offsets_are_not_trimmed() -> None:
    text = "at cat.\n\n cat."
    trimmed = crossing()(text, return_offsets_mapping=True)
    tokens = crossing().convert_ids_to_tokens(trimmed["input_ids"])
    assert tokens == ["at", letters(" cat"), letters(".\n\n"), letters(" cat"), "."]
    assert [trimmed["offset_mapping"][place] for place in (1, 3)] == [(3, 6), (10, 13)]  # the trap: no spaces
    spans = [
        (example.suffix_start, example.suffix_end)
        for prefix in (1, 2, 3)
        for example in windows(text, crossing(), Windows(prefix=prefix, suffix=1, stride=100))
    ]
    assert spans == [(2, 6), (6, 9), (9, 13)]


def test_a_token_that_splits_a_character_covers_all_of_it() -> None:
    text = "ab😀cd"  # 2 + 4 + 2 tokens
    spans = {
        prefix: [
            (example.suffix_start, example.suffix_end)
            for example in windows(text, single_bytes(), Windows(prefix=prefix, suffix=2, stride=100))
        ]
        for prefix in range(1, 7)
    }
    assert spans == {1: [(1, 3)], 2: [(2, 3)], 3: [(2, 3)], 4: [(2, 3)], 5: [(2, 4)], 6: [(3, 5)]}


def test_a_token_of_parts_of_two_characters_covers_both() -> None:
    # "a" + the face's first byte; its second; its third; its last + "x" (merges are tried in their order)
    face = letters("😀")
    tokenizer = byte_level([("a", face[0]), (face[3], "x")], use_regex=False)
    assert len(tokenizer("a😀x")["input_ids"]) == 4
    example = windows("a😀x", tokenizer, Windows(prefix=3, suffix=1, stride=100))[0]
    assert (example.suffix_start, example.suffix_end) == (1, 3)
    example = windows("a😀x", tokenizer, Windows(prefix=1, suffix=2, stride=100))[0]
    assert (example.suffix_start, example.suffix_end) == (1, 2)


def test_byte_fallback_tokens_cover_their_character() -> None:
    vocabulary = {"<unk>": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}, "a": 257, "▁": 258, "▁a": 259}
    backend = Tokenizer(
        models.BPE(vocab=vocabulary, merges=[("▁", "a")], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    backend.normalizer = normalizers.Replace(" ", "▁")
    tokenizer = fast(backend)
    text = "a 😀 a\r\n"  # a, space, four bytes, space + a, two bytes
    assert len(tokenizer(text)["input_ids"]) == 9
    example = windows(text, tokenizer, Windows(prefix=4, suffix=3, stride=100))[0]
    assert example.suffix == (0x98 + 1, 0x80 + 1, 259)
    assert (example.suffix_start, example.suffix_end) == (2, 5)
    example = windows(text, tokenizer, Windows(prefix=7, suffix=2, stride=100))[0]
    assert (example.suffix_start, example.suffix_end) == (5, 7)


def test_characters_merged_by_a_normaliser_are_covered() -> None:
    tokenizer = byte_level([])
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    text = "abe\u0301cd" + "x" * 900 + "ye\u0301"  # the accent joins its letter: two bytes, one character
    found = windows(text, tokenizer, Windows(prefix=2, suffix=2, stride=10**6))
    assert [(example.suffix_start, example.suffix_end) for example in found] == [(2, 4)]
    tail = windows("abe\u0301", tokenizer, Windows(prefix=2, suffix=2, stride=10))
    assert [(example.suffix_start, example.suffix_end) for example in tail] == [(2, 4)]


def test_special_tokens_written_in_the_text_are_plain_text() -> None:
    tokenizer = bundled()
    special = {tokenizer.bos_token_id, tokenizer.eos_token_id}
    text = ALICE[2000:2060] + "<|eos|> and <|bos|>" + ALICE[2060:2400]
    assert special <= set(tokenizer(text, add_special_tokens=False)["input_ids"])
    found = windows(text, tokenizer, Windows(prefix=10, suffix=10, stride=1))
    assert found
    for example in found:
        assert not special & {*example.prefix, *example.suffix}
        assert tokenizer.decode(example.suffix) == text[example.suffix_start : example.suffix_end]


def test_the_tokenizers_own_settings_neither_matter_nor_change() -> None:
    plain = windows(ALICE[:2000], bundled(), Windows(prefix=10, suffix=10, stride=50))
    tokenizer = AutoTokenizer.from_pretrained(DATA / "model")
    backend = tokenizer.backend_tokenizer
    backend.enable_truncation(max_length=5)
    backend.enable_padding(length=3000)
    backend.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A <|eos|>", special_tokens=[("<|bos|>", 0), ("<|eos|>", 1)]
    )
    before = backend.to_str()
    assert windows(ALICE[:2000], tokenizer, Windows(prefix=10, suffix=10, stride=50)) == plain
    assert backend.to_str() == before
    assert backend.encode_special_tokens is False


@pytest.mark.parametrize(
    ("tokens", "length", "slices"),
    [
        (768, 2000, [800]),
        (769, 2000, [800, 1600]),
        (1568, 2000, [800, 1600]),
        (1569, 2000, [800, 1600, 2000]),
        (790, 800, [800]),  # nothing follows the text
        (790, 801, [800, 801]),
    ],
)
def test_a_slice_grows_until_32_characters_follow(
    tokens: int, length: int, slices: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = module.plain_backend(single_bytes())

    class Spy:
        def encode_batch(self, texts: list[str], **options: Any) -> Any:
            seen.extend(len(text) for text in texts)
            return real.encode_batch(texts, **options)

    monkeypatch.setattr(module, "plain_backend", lambda _: Spy())
    found = windows("x" * length, single_bytes(), Windows(prefix=1, suffix=tokens - 1, stride=5000))
    assert [example.suffix_end for example in found] == [tokens]
    assert seen == slices


def test_too_short_texts_and_the_count_of_windows() -> None:
    assert windows("a short text", bundled()) == []
    assert windows("abcd", single_bytes(), Windows(prefix=2, suffix=3)) == []
    assert len(windows("abcde", single_bytes(), Windows(prefix=2, suffix=3))) == 1
    assert [len(window_starts(ready("x" * n), Windows())) for n in (1, 10, 11, 20, 21)] == [1, 1, 2, 2, 3]
    text = "x" * 25
    found = windows(text, single_bytes(), Windows(prefix=2, suffix=3, stride=7))
    assert [example.start for example in found] == [0, 7, 14]
    assert len(window_starts(ready(text), Windows(stride=7))) - len(found) == 1


REGIONS = (
    st.lists(st.integers(0, 60), max_size=8, unique=True)
    .map(sorted)
    .map(lambda c: list(zip(c[::2], c[1::2], strict=False)))
)


@cases(100)
@given(
    text=st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join).map(lambda text: text[:60]),
    regions=REGIONS,
    stride=st.integers(1, 9),
)
def test_within_keeps_the_windows_that_start_there(text: str, regions: list[tuple[int, int]], stride: int) -> None:
    within = [(a, min(b, len(text))) for a, b in regions if a < len(text)]
    inside = {s for a, b in within for s in range(a, b)}
    everywhere = windows(text, trained(), Windows(prefix=2, suffix=3, stride=stride))
    found = windows(text, trained(), Windows(prefix=2, suffix=3, stride=stride), within=within)
    assert found == [example for example in everywhere if example.start in inside]
    starts = list(window_starts(ready(text), Windows(stride=stride), within))
    assert starts == [s for s in range(0, len(text), stride) if s in inside]


@pytest.mark.parametrize("bad", [[(5, 5)], [(6, 5)], [(-1, 5)], [(0, 21)], [(0, 5), (4, 8)], [(8, 9), (0, 5)], [(0,)]])
def test_regions_must_be_in_order_and_in_the_text(bad: Any) -> None:
    with pytest.raises(InputError, match=r"within has the region .* inside the text's 20 characters"):
        windows("x" * 20, single_bytes(), within=bad)


@pytest.mark.parametrize("name", TOKENIZERS)
@cases(20)
@given(text=TEXTS.filter(bool), stride=st.integers(100, 700))
def test_where_beginnings_of_suffixes_end(name: str, text: str, stride: int) -> None:
    """A suffix of fewer tokens ends there, as the reference finds it."""
    tokenizer = TOKENIZERS[name]()
    whole = windows(text, tokenizer, Windows(prefix=3, suffix=5, stride=stride))[:3]
    asked = [(example.start or 0, tokens) for example in whole for tokens in range(1, 6)]
    ends = [end for example in whole for end in suffix_ends(example)]
    by_tokens = {
        (window.start, tokens): window.suffix_end
        for tokens in range(1, 6)
        for window in reference_windows(text, tokenizer, prefix=3, suffix=tokens, stride=stride)
    }
    assert ends == [by_tokens[beginning] for beginning in asked]


def test_where_beginnings_of_long_suffixes_end() -> None:
    """Tokens of 64 spaces: the whole window must have been in the slice that decides where its tokens end."""
    text = " " * 4000
    for prefix, suffix in ((9, 8), (2, 15), (15, 2)):
        (example,) = windows(text, crossing(), Windows(prefix=prefix, suffix=suffix, stride=4000))
        ends = suffix_ends(example)
        assert ends == [64 * (prefix + n) for n in range(1, suffix + 1)]
        assert ends[-1] == example.suffix_end


@functools.cache
def backend_of(name: str) -> Tokenizer:
    return plain_backend(TOKENIZERS[name]())


def bytes_of(backend: Tokenizer, ids: Iterable[int]) -> bytes:
    """What byte-level tokens stand for."""
    return bytes(LETTERS[letter] for token in ids for letter in str(backend.id_to_token(token)))


@cases(80)
@given(
    text=st.lists(st.one_of(st.sampled_from(PIECES), st.text(alphabet="ab \n😀é", max_size=12)), max_size=25).map(
        "".join
    ),
    prefix=st.integers(1, 40),
    suffix=st.integers(1, 40),
    stride=st.integers(1, 30),
)
def test_words_at_the_same_places_for_every_tokenizer(text: str, prefix: int, suffix: int, stride: int) -> None:
    text = text[:400] or "x"
    cut = Windows(prefix, suffix, stride, "characters")
    every = {name: windows(text, tokenizer(), cut) for name, tokenizer in TOKENIZERS.items()}
    expected = reference_word_windows(text, prefix=prefix, suffix=suffix, stride=stride)
    for name, found in every.items():
        assert [(e.start, e.suffix_start, e.suffix_end) for e in found] == expected
        backend = backend_of(name)
        for example in found:
            assert example.id == f"w{example.start}"
            assert example.token_ends is not None
            assert example.token_ends[-1] == (example.suffix_end or 0) - (example.suffix_start or 0)
            assert list(example.token_ends) == sorted(example.token_ends)
            parts = [text[example.start : example.suffix_start], text[example.suffix_start : example.suffix_end]]
            assert [bytes_of(backend, ids).decode() for ids in (example.prefix, example.suffix)] == parts
            whole = backend.encode("".join(parts), add_special_tokens=False).ids
            assert example.metadata == {}
            assert example.tokenised == ("together" if [*example.prefix, *example.suffix] == whole else "apart")


@cases(200)
@given(text=st.lists(st.sampled_from(PIECES), min_size=2, max_size=6).map("".join), share=st.floats(0, 1))
def test_split_where_a_token_ends_or_apart(text: str, share: float) -> None:
    text = text[:80]
    border = min(max(1, round(share * len(text))), len(text) - 1)
    for name in TOKENIZERS:
        backend = backend_of(name)
        prefix, suffix, together = split_at(text, border, backend)
        whole = backend.encode(text, add_special_tokens=False).ids
        parts = [backend.encode(part, add_special_tokens=False).ids for part in (text[:border], text[border:])]
        borders = {len(bytes_of(backend, whole[:n])) for n in range(len(whole) + 1)}
        assert together == (len(text[:border].encode()) in borders)
        if together:
            assert [*prefix, *suffix] == whole
            assert bytes_of(backend, prefix).decode() == text[:border]
        else:
            assert [list(prefix), list(suffix)] == parts


def test_a_merged_character_is_not_split_off() -> None:
    """NFC makes one token of a letter and its accent: a border between them is inside it, whatever the offsets say."""
    backend = Tokenizer(models.WordLevel({"é": 0, "e": 1, "\u0301": 2, "x": 3}, unk_token="x"))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    assert split_at("xe\u0301x", 1, backend) == ((3,), (0, 3), True)
    assert split_at("xe\u0301x", 2, backend) == ((3, 1), (2, 3), False)
    assert split_at("xe\u0301x", 3, backend) == ((3, 0), (3,), True)


def test_words_of_writing_without_spaces() -> None:
    assert word_borders("one two\n\nthree ").tolist() == [0, 3, 7, 14]
    assert word_borders("  one").tolist() == [0, 5]
    assert word_borders("我是 cat猫").tolist() == [0, 1, 2, 6, 7]
    assert word_borders("か\u3099き").tolist() == [0, 2, 3]
    assert word_borders(" \n").tolist() == [0]
    assert windows(" \n", bundled(), Windows(unit="characters")) == []


def test_lengths_follow_the_unit() -> None:
    assert (Windows().prefix, Windows().suffix) == (50, 50)
    assert (Windows(unit="characters").prefix, Windows(suffix=9, unit="characters").suffix) == (250, 9)
    with pytest.raises(InputError, match="unit must be tokens or characters, not 'words'"):
        Windows(unit="words")  # type: ignore[arg-type]


def test_sizes_unless_given() -> None:
    text = ALICE[:1500]
    assert windows(text, bundled()) == windows(text, bundled(), Windows(prefix=50, suffix=50, stride=10)) != []


def test_regions_may_touch_and_fill_the_text() -> None:
    text = ready("x" * 20)
    assert list(window_starts(text, Windows(stride=3), [(0, 5), (5, 6), (6, 20)])) == list(range(0, 20, 3))
    assert list(window_starts(text, Windows(stride=7), [(7, 8), (13, 15)])) == [7, 14]
    assert list(window_starts(text, Windows(stride=7), [])) == []


def test_progress_reaches_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 4)
    calls: list[tuple[str, int, int]] = []
    windows(
        "x" * 100, single_bytes(), Windows(prefix=5, suffix=5, stride=10), progress=lambda *call: calls.append(call)
    )
    assert calls == [("windows", 4, 10), ("windows", 8, 10), ("windows", 10, 10)]


@pytest.mark.parametrize("option", ["prefix", "suffix", "stride"])
@pytest.mark.parametrize("value", [0, -3, 2.5, True, "10"])
def test_lengths_must_be_positive(option: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^{option} must be a whole number of at least 1, not {value!r}"):
        Windows(**{option: value})


def test_text_that_is_empty_or_not_unicode() -> None:
    with pytest.raises(InputError, match="empty"):
        windows("", bundled())
    with pytest.raises(InputError, match=r"character 2 of the text \(U\+D83D\)"):
        windows("ab\ud83dcd", bundled())


@pytest.mark.parametrize("tokenizer", [None, object(), single_bytes])
def test_only_fast_tokenizers(tokenizer: Any) -> None:
    with pytest.raises(InputError, match=r"not a fast tokenizer.*tokenizer\.json"):
        windows("some text", tokenizer)


def test_needs_no_torch() -> None:
    check = "import sys, rote.corpus.formats; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, env={"PYTHONPATH": str(DATA.parents[1])})
