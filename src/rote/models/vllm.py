"""vLLM's completions endpoint: prompts as token ids, the log-probs of prompts, and outputs as token ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from rote.errors import ModelError
from rote.models.http import Server
from rote.models.promptlists import Lists, Odd, first_choice, read_vllm
from rote.scheme import Scheme
from rote.tokens import Example

PLAIN: dict[str, Any] = {
    "n": 1, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "seed": 0, "stop": [], "echo": False, "stream": False,
    "add_special_tokens": False, "ignore_eos": True,
}  # fmt: skip
"""Everything that a server may have another default for: a model's generation_config.json sets some of these."""

APART = 0.7
"""Two computations of a log-prob differ by less, in any type; another temperature moves most of them by more."""


class Vllm:
    """A `Dialect`."""

    kind: Literal["vllm", "server"] = "vllm"
    at_once = 64

    def __init__(self) -> None:
        self.beside = {**PLAIN, "max_tokens": 1}

    def asked(self, tokens: Sequence[int], count: int) -> dict[str, Any]:
        return {"prompt": list(tokens), "prompt_logprobs": count, **self.beside}

    def lists(self, content: Any, tokens: Sequence[int], first: int, count: int) -> Lists:
        return read_vllm(content, tokens, first, count)

    def unsendable(self, examples: Sequence[Example]) -> list[str]:
        return []

    def probe(self, post: Callable[[dict[str, Any]], Any], tokens: list[int], count: int) -> None:
        """The sampling parameters of a request must not move the log-probs of its prompt."""

        def own(changes: dict[str, Any]) -> Any:
            try:
                return self.lists(post({**self.asked(tokens, count), **changes}), tokens, 1, count).own
            except Odd as odd:
                raise ModelError(f"the server {odd}.") from None

        if np.abs(own({}) - own({"temperature": 0.25, "top_k": 2})).mean() > APART:
            raise ModelError(
                "the server lists log-probs after temperature and truncation, so that they are not the model's own: "
                "start it with --logprobs-mode raw_logprobs (its default)."
            )

    def version(self, server: Server) -> str | None:
        told = replace(server, base=server.base.removesuffix("/v1")).get("version")
        found = told.get("version") if isinstance(told, dict) else None
        return f"vLLM {found}" if isinstance(found, str) else None

    def refuse(self, scheme: Scheme) -> str | None:
        if scheme.min_p is not None and scheme.nucleus:
            return "vLLM applies min-p before top-p, so that it draws from other tokens; leave one of them out"
        return None

    def drawn(self, tokens: Sequence[int], scheme: Scheme, length: int, samples: int, seed: int) -> dict[str, Any]:
        own = {
            "n": samples, "max_tokens": length, "seed": seed, "temperature": scheme.temperature,
            "top_k": scheme.top_k or -1, "top_p": scheme.top_p or 1.0, "min_p": scheme.min_p or 0.0,
            "return_token_ids": True,
        }  # fmt: skip
        return {"prompt": list(tokens), **PLAIN, **own}

    def outputs(self, content: Any, tokens: Sequence[int], length: int) -> list[tuple[int, ...]]:
        choices = content["choices"] if first_choice(content) else ()
        found = [each.get("token_ids") for each in choices if isinstance(each, dict)]
        outputs = [tuple(int(token) for token in ids[:length]) for ids in found if isinstance(ids, list) and ids]
        if len(outputs) < len(choices) or not outputs:
            raise Odd("gives no token_ids of what it generates: that needs vLLM 0.10.2 or later")
        return outputs
