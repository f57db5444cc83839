"""A model's tokenizer: loaded alone, where the weights stay where they are; its BOS; whether it is the model's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args
from warnings import warn

from rote.errors import InputError, ModelError, argument
from rote.models.fingerprint import tokenizer_hash
from rote.models.safety import refuse_unsafe_tokenizer
from rote.models.sources import find, quietly
from rote.options import require_known
from rote.tokens import BosPolicy


def load_tokenizer(
    name: str, *, revision: str | None = None, expected: str | None = None, download: bool = False
) -> Any:
    """The tokenizer of a model folder, GGUF file or hub id; from this machine's own files, unless told to `download`.

    `expected`: the hash that a run's manifest has for it; another tokenizer is refused, as its tokens would be wrong.
    Code that comes with a tokenizer is not run, whatever the run was made with.
    """
    with quietly():
        from transformers import AutoTokenizer

    found = find(name, revision, download=download)
    try:
        refuse_unsafe_tokenizer(found)
        tokenizer = AutoTokenizer.from_pretrained(found.source, **found.given, trust_remote_code=False)
    except ModelError as error:
        raise ModelError(
            f"the tokenizer of {name} is not read to show tokens: it would run code of its own."
        ) from error
    except Exception as error:  # whatever a missing or damaged file makes transformers and tokenizers raise
        raise ModelError(f"the tokenizer of {name} is not on this machine, or cannot be read.") from error
    if expected is not None and tokenizer_hash(tokenizer) != expected:
        raise ModelError(f"the tokenizer of {name} is no longer the one that this was made with.")
    return tokenizer


def resolve_bos(tokenizer: Any, policy: BosPolicy, name: str) -> int | None:
    require_known("bos", policy, get_args(BosPolicy))
    own = getattr(tokenizer, "bos_token_id", None)
    if policy == "always" and own is None:
        raise InputError(
            f"{argument('bos', 'always')}, but the tokenizer of {name} has no BOS token; use {argument('bos', 'auto')} "
            "or never."
        )
    return None if policy == "never" or own is None else int(own)


OPENERS = re.compile(r"im_start|start_of_turn|start_header|start_of_role|\b(user|system|human)\b", re.IGNORECASE)
ROLE = r"""['"]?[\s+~{}-]*['"]?\s*(message(\[['"]|\.)role|role\b|system\b|user\b|assistant\b)"""


def warn_of_chat(tokenizer: Any, bos_id: int | None, name: str) -> tuple[str, ...]:
    """A sentence where BOS is what opens a turn of a chat, by its own text or by the tokenizer's chat template."""
    if bos_id is None:
        return ()
    text, templates = str(tokenizer.convert_ids_to_tokens(bos_id)), getattr(tokenizer, "chat_template", None)
    every = templates.values() if isinstance(templates, Mapping) else [templates or ""]
    if not OPENERS.search(text) and not any(re.search(f"({re.escape(text)}|bos_token){ROLE}", str(t)) for t in every):
        return ()
    message = (
        f"{name}: its BOS {text!r} (id {bos_id}) opens a turn of a chat, and here it stands before every prefix, as "
        "if a role followed; a text may then look less known than it is. --bos never puts nothing there."
    )
    warn(message, stacklevel=2)
    return (message,)


def check_tokenizer(tokenizer: Any, bos_id: int | None, vocabulary: int, name: str) -> None:
    """Refuse a tokenizer that could give ids the model does not have.

    Special tokens do not count, but for BOS: no text becomes one, and loaders (of GGUF files) add some of their own.
    """
    if tokenizer is not None and len(tokenizer) > vocabulary:
        special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special and i != bos_id}
        top = max(i for i in tokenizer.get_vocab().values() if i not in special)
        if top >= vocabulary:
            raise ModelError(
                f"{name}: the tokenizer has ids up to {top}, but the model's vocabulary ends at {vocabulary - 1}; "
                "the tokenizer belongs to another model: put the model's own files beside its weights."
            )
