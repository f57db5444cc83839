"""Prompts in a model's chat template: the tokens that stand before its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from typing import Any

from rote.errors import InputError, argument

TODAY = date(2024, 7, 26)
"""The day that a template is told where it asks for today's, so that a run can be repeated: Llama 3's own fallback."""

_NOW = re.compile(r"""strftime_now\s*\(\s*("[^"\\]*"|'[^'\\]*')\s*\)""")
_ASKED_FOR = re.compile(r"strftime_now(?!\s+is\s+(?:not\s+)?defined)")


@dataclass(frozen=True, kw_only=True)
class ChatTemplate:
    """Which chat template prompts were put into, by its hash; `date`: the day it was told, where it asks for one."""

    sha256: str
    date: str | None = None


def template_of(tokenizer: Any) -> ChatTemplate:
    """What a manifest says of a tokenizer's chat template."""
    template = _template(tokenizer, "a chat")
    return ChatTemplate(
        sha256=sha256(template.encode()).hexdigest(), date=TODAY.isoformat() if _dated(template) else None
    )


def chat_prefix(messages: Sequence[Mapping[str, str]], tokenizer: Any, bos: int | None, where: str) -> tuple[int, ...]:
    """The template's tokens for these messages, up to where the model's answer begins; without `bos`.

    `bos` is what the model puts before every prefix; the template must begin with it, and has it back from there.
    `where`: whose messages these are, for errors.
    """
    template = _on_one_day(_template(tokenizer, where), where)
    said = [text for message in messages for text in message.values()]
    if control := next((name for name in _controls(tokenizer) if any(name in text for text in said)), None):
        raise InputError(
            f"{where}: a message has {control!r} in it, which the chat template would turn into a control token. Leave "
            "it out, or give token ids."
        )
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
    try:
        ids = list(tokenizer.apply_chat_template([dict(m) for m in messages], chat_template=template, **options))
    except Exception as error:  # whatever the template raises: it says so itself, or stumbles over the messages
        why = (str(error) or type(error).__name__).rstrip(". ")
        raise InputError(
            f"{where}: the model's chat template does not take these messages: {why}. Give roles, and an order of "
            "them, that it knows."
        ) from error
    if bos is None:
        return tuple(ids)
    if ids[:1] != [bos]:
        raise InputError(
            f"{where}: the model's chat template does not begin with BOS (token {bos}), which would stand before it. "
            f"Use {argument('bos', 'never')}, so that the template's tokens are used as they are."
        )
    return tuple(ids[1:])


def _template(tokenizer: Any, where: str) -> str:
    if not getattr(tokenizer, "chat_template", None):
        raise InputError(
            f"{where}: the model's tokenizer has no chat template. Use an instruction-tuned model, or "
            f'{{"prompt": "...", "target": "..."}} without {argument("chat")}.'
        )
    try:
        return str(tokenizer.get_chat_template())
    except ValueError as error:  # several, none of them the default
        raise InputError(f"{where}: the model's tokenizer has several chat templates, none the default.") from error


def _controls(tokenizer: Any) -> list[str]:
    """The names of control tokens: what the tokenizer would not read as text."""
    return [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]


def _dated(template: str) -> bool:
    return _ASKED_FOR.search(template) is not None


def _on_one_day(template: str, where: str) -> str:
    """The template with a fixed day where it asks for today's."""
    fixed = _NOW.sub(lambda asked: f"{asked[1][0]}{TODAY.strftime(asked[1][1:-1])}{asked[1][0]}", template)
    if _dated(fixed):
        raise InputError(
            f"{where}: the model's chat template writes today's date in a way that cannot be fixed, so that no run "
            "could be repeated. Give token ids."
        )
    return fixed
