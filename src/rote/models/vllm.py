"""vLLM's completions endpoint: prompts as token ids, the log-probs of prompts, and outputs as token ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from rote.errors import ModelError, argument
from rote.models.http import Server
from rote.models.promptlists import Lists, Odd, first_choice, read_vllm
from rote.scheme import Scheme

PLAIN: dict[str, Any] = {
    "n": 1, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "seed": 0, "stop": [], "echo": False, "stream": False,
    "add_special_tokens": False, "ignore_eos": True, "min_tokens": 0, "stop_token_ids": [], "bad_words": [],
}  # fmt: skip
"""Everything that a server may have another default for: a model's generation_config.json sets some of these."""

COLDEST, IGNORED = 0.01, 1e-5
"""The smallest temperature above 0 that vLLM samples at, and the largest min-p that it takes for none."""

APART = 0.7
"""Two computations of a log-prob differ by less, in any type; another temperature moves most of them by more."""


MANY = "f(x**2) # 3.14 naïve Straße «Мир» 東京\n\n\tIt's"
"""A text of many kinds: two tokenizers that read it as the same tokens are taken for one."""

OLD = "it gives no token_ids of what it generates: that needs vLLM 0.10.2 or later"


class Vllm:
    """A `Dialect`."""

    kind: Literal["vllm", "server"] = "vllm"
    at_once = 64

    def __init__(self, tokenizer: Any, bos_id: int | None) -> None:
        self._tokenizer, self._gives_ids = tokenizer, False
        self.beside = {**PLAIN, "max_tokens": 1}

    def asked(self, tokens: Sequence[int], count: int) -> dict[str, Any]:
        return {"prompt": list(tokens), "prompt_logprobs": count, **self.beside}

    def lists(self, content: Any, tokens: Sequence[int], first: int, count: int) -> Lists:
        return read_vllm(content, tokens, first, count)

    def unsendable(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        return []

    def probe(self, post: Callable[[dict[str, Any]], Any], tokens: list[int], count: int) -> None:
        """The sampling parameters of a request must not move the log-probs of its prompt; a text must be our tokens."""
        content = post({**self.asked(tokens, count), "return_token_ids": True})
        first = self.lists(content, tokens, 1, count).own
        self._gives_ids = isinstance((first_choice(content) or {}).get("token_ids"), list)
        changed = post({**self.asked(tokens, count), "temperature": 0.25, "top_k": 2})
        if np.abs(first - self.lists(changed, tokens, 1, count).own).mean() > APART:
            raise ModelError(
                "the server lists log-probs after temperature and truncation, so that they are not the model's own: "
                "start it with --logprobs-mode raw_logprobs (its default where it has this option; vLLM before 0.10 "
                "has not)."
            )
        self._refuse_other_tokenizer(post, count)

    def _refuse_other_tokenizer(self, post: Callable[[dict[str, Any]], Any], count: int) -> None:
        """Ids mean what they mean there: a text that the server reads itself must become the ids that it is here."""
        own = list(self._tokenizer.encode(MANY, add_special_tokens=False))
        try:
            self.lists(post({**self.asked(own, count), "prompt": MANY}), own, 1, count)
        except Odd as odd:
            raise ModelError(
                "the server has another tokenizer: a text that it reads itself becomes other tokens there than here "
                f"(it {odd}). Name the served model's own with {argument('tokenizer')}."
            ) from None

    def version(self, server: Server) -> str | None:
        told = replace(server, base=server.base.removesuffix("/v1")).get("version")
        found = told.get("version") if isinstance(told, dict) else None
        return f"vLLM {found}" if isinstance(found, str) else None

    def refuse(self, scheme: Scheme) -> str | None:
        if not self._gives_ids:
            return OLD
        if scheme.min_p is not None and scheme.nucleus:
            return "vLLM applies min-p before top-p, so that it draws from other tokens; leave one of them out"
        if 0 < scheme.temperature < COLDEST:
            return f"vLLM takes temperatures below {COLDEST} for {COLDEST} or for 0; give 0 or a higher one"
        if scheme.min_p is not None and 0 < scheme.min_p <= IGNORED:
            return f"vLLM leaves a min-p of up to {IGNORED:g} out; do so too, or give a larger one"
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
            raise Odd(OLD.removeprefix("it "))
        return outputs
