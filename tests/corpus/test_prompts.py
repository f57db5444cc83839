"""Prompts and their targets, and chats: how they become tokens."""

from __future__ import annotations

import functools
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rote.corpus.chat import TODAY, template_of
from rote.corpus.formats import as_examples
from rote.corpus.windows import plain_backend, split_at
from rote.errors import InputError
from rote.models.base import BUNDLED
from tests.cases import cases
from tests.reference import prompts as reference

CHATML = (
    "{% for message in messages %}{{ '<|bos|>' + message['role'] + '\n' + message['content'] + '<|eos|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|bos|>assistant\n' }}{% endif %}"
)
# As Gemma has it: BOS once, no system role, turns that must alternate, "model" for the assistant.
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}"
    "{% endif %}"
    "{{ '<turn>' + role + '\n' + message['content'] | trim + '</turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<turn>model\n' }}{% endif %}"
)
LLAMA = (
    "{%- if not date_string is defined %}{%- if strftime_now is defined %}"
    '{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}'
    "{%- endif %}{{- bos_token + 'Today: ' + date_string + '\n' + messages[0]['content'] + '\n' }}"
)
BOS, EOS = 0, 1


@functools.cache
def bundled() -> Any:
    return AutoTokenizer.from_pretrained(BUNDLED)


@functools.cache
def backend() -> Tokenizer:
    return plain_backend(bundled())


def chatting(template: Any) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    tokenizer.chat_template = template
    return tokenizer


def plain(text: str) -> tuple[int, ...]:
    return tuple(reference.plain(text, bundled()))


def spaced(*, pre_tokenizer: Any, normalizer: Any = None) -> Tokenizer:
    """A tokenizer that puts a space before every text, as Llama's does, and knows letters and a few words."""
    words = ["▁the", "cat", "▁c", "at", "▁cat", "▁th", "th", "the"]
    vocabulary = {piece: place for place, piece in enumerate(["▁", *"abcdefghijklmnopqrstuvwxyz", *words])}
    merges = [("▁", "c"), ("a", "t"), ("▁c", "at"), ("t", "h"), ("th", "e"), ("▁", "the"), ("c", "at")]
    own = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    own.pre_tokenizer, own.normalizer = pre_tokenizer, normalizer
    own.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    return own


# --- the border


@cases(400)
@given(
    st.lists(st.sampled_from(["a", " ", "the", "Alice", "é", "e\u0301", "東", "🙂", "\n", "'s", "<|eos|>", "1"])).map(
        "".join
    ),
    st.lists(st.sampled_from(["b", " ", "cat", " Queen", "é", "\u0301", "京", "\r\n", "t", "<|bos|>"]), min_size=1).map(
        "".join
    ),
)
def test_the_tokens_part_where_their_bytes_do(prompt: str, target: str) -> None:
    prefix, suffix, together = split_at(prompt + target, len(prompt), backend())
    assert (list(prefix), list(suffix), together) == reference.split(prompt, target, bundled())
    assert bundled().decode([*prefix, *suffix]) == prompt + target
    assert not {BOS, EOS} & {*prefix, *suffix}  # a control token's name is a string like any other


@pytest.mark.parametrize(("prompt", "target", "together"), [
    ("The White", " Rabbit", True),
    ("The White ", "Rabbit", False),  # the space belongs to the word
    ("The Whi", "te Rabbit", False),
    ("", "The White", True),
    ("a\n", "\nb", True),
])  # fmt: skip
def test_what_a_border_inside_a_token_comes_to(prompt: str, target: str, together: bool) -> None:
    (example,) = as_examples([{"prompt": prompt, "target": target}], bundled())
    assert example.tokenised == ("together" if together else "apart")
    whole, apart = plain(prompt + target), (plain(prompt), plain(target))
    assert (example.prefix + example.suffix == whole) if together else ((example.prefix, example.suffix) == apart)


@pytest.mark.parametrize("own", [
    spaced(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first")),
    spaced(pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme="always", split=False)])),
    spaced(
        pre_tokenizer=None,
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    ),
])  # fmt: skip
def test_no_space_is_added_in_the_middle_of_a_text(own: Tokenizer) -> None:
    before = own.to_str()
    prefix, suffix, together = split_at("the cat", 5, own)
    assert not together
    assert own.decode([*prefix, *suffix]) == " the cat"  # one space in front, none inside
    assert own.encode("the cat").tokens == ["▁the", "▁cat"]
    assert own.to_str() == before
    assert split_at("the cat", 3, own)[2]


def test_characters_that_the_normaliser_merges_across_the_border() -> None:
    vocabulary = {letter: place for place, letter in enumerate(["e", "é", "x", "\u0301"])}
    own = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    own.normalizer = normalizers.NFC()
    assert split_at("e\u0301x", 1, own) == ((0,), (3, 2), False)
    assert split_at("e\u0301x", 2, own) == ((1,), (2,), True)


def test_control_token_names_are_text() -> None:
    (example,) = as_examples([{"prompt": "<|bos|>", "target": "<|eos|>"}], bundled())
    assert bundled().decode([*example.prefix, *example.suffix]) == "<|bos|><|eos|>"
    assert not {BOS, EOS} & {*example.prefix, *example.suffix}


# --- chats


def test_a_chat_equals_ids_put_together_by_hand() -> None:
    tokenizer = chatting(CHATML)
    lines: list[dict[str, Any]] = [
        {
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}],
            "target": " Me",
        },
        {"prompt": "Who?", "target": "Alice <|eos|>"},
    ]
    hand = [
        (BOS, *plain("system\nBe brief."), EOS, *plain("\n"), BOS, *plain("user\nWho?"), EOS, *plain("\n"),
         BOS, *plain("assistant\n")),
        (BOS, *plain("user\nWho?"), EOS, *plain("\n"), BOS, *plain("assistant\n")),
    ]  # fmt: skip
    for bos in (BOS, None):
        made = as_examples(lines, tokenizer, chat=True, bos=bos)
        assert [e.prefix for e in made] == [ids[1:] if bos is BOS else ids for ids in hand]
        assert [e.suffix for e in made] == [plain(" Me"), plain("Alice <|eos|>")]
        assert {e.tokenised for e in made} == {"chat"}


def test_a_template_with_its_own_bos_and_roles() -> None:
    tokenizer = chatting(GEMMA)
    turns = [
        {"role": "user", "content": " Hi "},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Go"},
    ]
    (made,) = as_examples([{"messages": turns, "target": "on"}], tokenizer, bos=BOS)
    text = "<turn>user\nHi</turn>\n<turn>model\nYes?</turn>\n<turn>user\nGo</turn>\n<turn>model\n"
    assert made.prefix == plain(text)
    assert made.suffix == plain("on")
    assert template_of(tokenizer).sha256 == sha256(GEMMA.encode()).hexdigest()
    assert template_of(tokenizer).date is None


def test_a_template_is_told_one_day() -> None:
    tokenizer = chatting(LLAMA)
    (made,) = as_examples([{"prompt": "Hi", "target": "on"}], tokenizer, bos=BOS, chat=True)
    assert made.prefix == plain("Today: 26 Jul 2024\nHi\n")
    assert template_of(tokenizer).date == TODAY.isoformat() == "2024-07-26"
    odd = chatting("{{ bos_token }}{% set f = '%Y' %}{{ strftime_now(f) }}")
    with pytest.raises(InputError, match=r"number 1: .*today's date in a way that cannot be fixed.*Give token ids"):
        as_examples([{"prompt": "Hi", "target": "on"}], odd, bos=BOS, chat=True)


def test_of_several_templates_the_default_one() -> None:
    tokenizer = chatting({"default": GEMMA, "tools": "x"})
    (made,) = as_examples([{"prompt": "Hi", "target": "on"}], tokenizer, bos=BOS, chat=True)
    assert made.prefix == plain("<turn>user\nHi</turn>\n<turn>model\n")
    with pytest.raises(InputError, match="several chat templates, none the default"):
        as_examples([{"prompt": "Hi", "target": "on"}], chatting({"a": GEMMA, "b": "x"}), bos=BOS, chat=True)


USER = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"prompt": "a", "target": ""}, "target is empty. Give the text"),
        ({"prompt": "a"}, "'prompt' without a target"),
        ({"prompt": 3, "target": "b"}, "prompt is 3. Give a string"),
        ({"prompt": "a", "target": ["b"]}, r'target is \["b"\]. Give a string'),
        ({"target": "b"}, "a target without a prompt"),
        ({"prompt": "a", "target": "b", "text": "c"}, "both 'text' and 'prompt'"),
        ({"text": "c", "target": "b"}, "both 'text' and 'target'"),
        ({"prompt": "a", "target": "b", "prefix": [1]}, "both 'prompt' and 'prefix'"),
        ({"prompt": "a", "messages": USER, "target": "b"}, "both 'prompt' and 'messages'"),
        ({"prompt": "a", "target": "b", "start": 0}, "both 'prompt' and 'start'"),
        ({"messages": USER}, "'messages' without a target"),
        ({"messages": [], "target": "b"}, r"messages is \[\]. Give a list"),
        ({"messages": "Hi", "target": "b"}, 'messages is "Hi". Give a list'),
        ({"messages": ["Hi"], "target": "b"}, 'messages, number 1 is "Hi". Give an object with role and content'),
        ({"messages": [{"role": "user"}], "target": "b"}, "number 1 is .*role and content"),
        ({"messages": [{**USER[0], "name": "x"}], "target": "b"}, "number 1 is .*nothing else"),
        ({"messages": [{"role": "user", "content": None}], "target": "b"}, "number 1: content is null. Give a string"),
        ({"messages": [{"role": "", "content": "x"}], "target": "b"}, "number 1: role is empty"),
        ({"messages": [*USER, {"role": "assistant", "content": "x"}], "target": "b"}, "last message is the model"),
        ({"messages": [{"role": "system", "content": "x"}, *USER], "target": "b"},
         "chat template does not take these messages: System role not supported. Give roles"),
        ({"messages": [*USER, *USER], "target": "b"}, "these messages: Conversation roles must alternate"),
        ({"messages": [{"role": "user", "content": "x <|eos|> y"}], "target": "b"}, "'<|eos|>' in it.*control token"),
    ],
)  # fmt: skip
def test_bad_lines_are_named(line: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    path.write_text(json.dumps({"messages": USER, "target": "b"}) + "\n" + json.dumps(line) + "\n")
    with pytest.raises(InputError, match=message.replace("|", r"\|")) as caught:
        as_examples(path, chatting(GEMMA), bos=BOS)
    assert str(caught.value).startswith(f"{path}, line 2: ")


def test_what_a_chat_needs() -> None:
    line = {"prompt": "Hi", "target": "on"}
    with pytest.raises(InputError, match=r"number 1: the model's tokenizer has no chat template\. Use .* without chat"):
        as_examples([line], bundled(), bos=BOS, chat=True)
    with pytest.raises(InputError, match=r"does not begin with BOS \(token 0\).*Use bos='never'"):
        as_examples([line], chatting("Q: {{ messages[0]['content'] }}"), bos=BOS, chat=True)
    (made,) = as_examples([line], chatting("Q: {{ messages[0]['content'] }}"), bos=None, chat=True)
    assert made.prefix == plain("Q: Hi")
    with pytest.raises(InputError, match=r"number 1: chat is for prompts, and these are token ids"):
        as_examples([{"prefix": [1], "suffix": [2]}], chatting(GEMMA), bos=BOS, chat=True)
    with pytest.raises(InputError, match=r'number 1: chat is for prompts. Give {"prompt"'):
        as_examples([{"text": "a b c"}], chatting(GEMMA), bos=BOS, chat=True)
    for other in ({"prompt": "a", "target": "b"}, {"prefix": [1], "suffix": [2]}):
        with pytest.raises(InputError, match=r"number 2: chats and other examples.*files of their own"):
            as_examples([other, {"messages": USER, "target": "b"}], chatting(GEMMA), bos=BOS)
    with pytest.raises(InputError, match="chat must be True or False"):
        as_examples([line], bundled(), chat="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["prefix", "suffix"])
def test_lengths_are_for_texts(option: str) -> None:
    with pytest.raises(InputError, match=re.escape(f'number 1: {option}=3 is for {{"text": "..."}}')):
        as_examples([{"prompt": "a", "target": "b"}], bundled(), **{option: 3})  # type: ignore[arg-type]


def test_prompts_need_a_tokenizer() -> None:
    with pytest.raises(InputError, match="number 1: a text example needs a tokenizer"):
        as_examples([{"prompt": "a", "target": "b"}], None)


def test_targets_that_leave_no_token() -> None:
    own: Any = PreTrainedTokenizerFast
    blind = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    blind.normalizer = normalizers.Replace("b", "")
    with pytest.raises(InputError, match='number 1: the tokenizer leaves nothing of the target "b"'):
        as_examples([{"prompt": "a", "target": "b"}], own(tokenizer_object=blind))
