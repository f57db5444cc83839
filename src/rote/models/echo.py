"""Servers that echo a prompt with its log-probs, as llama-cpp-python's: prompts and lists are texts.

A text stands for the tokens that the server's tokenizer makes of it. So only examples are sent whose text is read again
as their very tokens, and what is echoed is held against them. Whether the server puts a BOS before a text is found out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

from rote.errors import ModelError, argument
from rote.models.http import Server
from rote.models.promptlists import SLACK, Lists, Odd, first_choice, log_prob_of, read_echo
from rote.scheme import Scheme

PLAIN: dict[str, Any] = {
    "n": 1, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "seed": 0, "stop": [], "stream": False, "mirostat_mode": 0,
}  # fmt: skip

WRITTEN = 4
"""Tokens that a server writes on after a probe: they must be the likeliest where it lists them."""

COUNTING = "One, two, three, four, five, six, seven, eight, nine, ten, eleven,"
"""What is gone on from where it writes nothing after the first probe."""


class Echo:
    """A `Dialect`."""

    kind: Literal["vllm", "server"] = "server"
    at_once = 1

    def __init__(self, tokenizer: Any, bos_id: int | None) -> None:
        self._tokenizer, self._bos = tokenizer, bos_id
        self._opener = None if bos_id is None else str(tokenizer.convert_ids_to_tokens(bos_id))
        self.beside = {**PLAIN, "max_tokens": 1, "echo": True}

    def asked(self, tokens: Sequence[int], count: int) -> dict[str, Any]:
        return {"prompt": self._text(self._bare(tokens)), "logprobs": count, **self.beside}

    def lists(self, content: Any, tokens: Sequence[int], first: int, count: int) -> Lists:
        bare, bos = self._bare(tokens), int(self._bos is not None)
        self._refuse_other_count(content, len(bare), bos)
        return read_echo(content, self._pieces(bare), first - bos, count, self._opener)

    def unsendable(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        texts = [self._text(ids) for ids in prompts]
        again = self._tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        return [place for place, (ids, found) in enumerate(zip(prompts, again, strict=True)) if [*ids] != [*found]]

    def probe(self, post: Callable[[dict[str, Any]], Any], tokens: list[int], count: int) -> None:
        opened = [] if self._bos is None else [self._bos]
        for prompt in (tokens, [*opened, *self._tokenizer.encode(COUNTING, add_special_tokens=False)]):
            bare = self._bare(prompt)
            if list(self._tokenizer.encode(self._text(bare), add_special_tokens=False)) != bare:
                raise ModelError("the tokenizer does not read a plain sentence as the tokens that it wrote it with.")
            content = post({**self.asked(prompt, count), "temperature": 0.0, "max_tokens": WRITTEN})
            self._refuse_other_bos(content, len(bare))
            self.lists(content, prompt, 1 + len(opened), count)
            if self._well_placed(content, len(bare)):
                return
        raise ModelError(
            "the server writes nothing after two plain sentences, so that nobody knows whether its lists stand at the "
            "places of their tokens: it cannot be used."
        )

    def version(self, server: Server) -> str | None:
        told = replace(server, base=server.base.removesuffix("/v1")).get("openapi.json")
        info = told.get("info") if isinstance(told, dict) else None
        if not isinstance(info, dict) or not isinstance(info.get("title"), str):
            return None
        return f"{info['title']} {info.get('version', '')}".strip()

    def refuse(self, scheme: Scheme) -> str | None:
        if scheme.temperature not in (0, 1) and (scheme.nucleus or scheme.min_p is not None):
            return (
                "llama.cpp applies temperature after top-p and min-p, and other servers before: it would draw from "
                f"other tokens; use {argument('temperature', 1.0)}, or top-k alone"
            )
        if scheme.min_p is not None and scheme.nucleus:
            return "servers differ in whether min-p or top-p comes first; leave one of them out"
        return None

    def drawn(self, tokens: Sequence[int], scheme: Scheme, length: int, samples: int, seed: int) -> dict[str, Any]:
        bare = self._bare(tokens)
        own = {
            "max_tokens": length, "seed": seed, "temperature": scheme.temperature, "top_k": scheme.top_k or 0,
            "top_p": scheme.top_p or 1.0, "min_p": scheme.min_p or 0.0, "echo": False,
        }  # fmt: skip
        return {"prompt": self._text(bare), **PLAIN, **own}

    def outputs(self, content: Any, tokens: Sequence[int], length: int) -> list[tuple[int, ...]]:
        """Texts, read as tokens where they stand.

        A text may be written with other tokens than it is read as: then the server counts another number of them, and
        the output is told by tokens that stand for no text of the tokenizer's own reading. It is no suffix's then.
        """
        choice = first_choice(content) or {}
        text, ended = choice.get("text"), choice.get("finish_reason") == "stop"
        if not isinstance(text, str):
            raise Odd("gives no text of what it generates")
        bare = self._bare(tokens)
        self._refuse_other_count(content, len(bare), int(self._bos is not None))
        joined = list(self._tokenizer.encode(self._text(bare) + text, add_special_tokens=False))
        ids = joined[len(bare) :] if joined[: len(bare)] == bare else None
        if ids is None:  # the text's beginning grew together with the prompt's end: it was written otherwise
            ids = list(self._tokenizer.encode(text, add_special_tokens=False))
        counts = content.get("usage") if isinstance(content.get("usage"), dict) else {}
        written = counts.get("completion_tokens")
        if isinstance(written, int) and written != len(ids) and written <= length:
            ids = [token for piece in text for token in self._tokenizer.encode(piece, add_special_tokens=False)]
        eos = getattr(self._tokenizer, "eos_token_id", None)
        if ended and eos is not None and len(ids) < length:
            ids.append(int(eos))
        return [tuple(ids[:length])]

    # --- texts and tokens

    def _bare(self, tokens: Sequence[int]) -> list[int]:
        """Without the BOS, which the server puts there."""
        return list(tokens[1:] if self._bos is not None and tokens[:1] == [self._bos] else tokens)

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _pieces(self, tokens: Sequence[int]) -> list[str]:
        """What each token adds to the text."""
        ends = [self._text(tokens[:count]) for count in range(len(tokens) + 1)]
        return [after[len(before) :] if after.startswith(before) else "" for before, after in pairwise(ends)]

    # --- what is wrong

    def _refuse_other_count(self, content: Any, count: int, bos: int) -> None:
        counts = content.get("usage") if isinstance(content, dict) else None
        told = counts.get("prompt_tokens") if isinstance(counts, dict) else None
        if isinstance(told, int) and told != count + bos:
            raise Odd(
                f"reads {told} tokens in a prompt that has {count + bos}: it cuts prompts short, or has another "
                f"tokenizer; name its own with {argument('tokenizer')}"
            )

    def _refuse_other_bos(self, content: Any, count: int) -> None:
        """Hold what the server puts before a text against the BOS policy."""
        counts = content.get("usage") if isinstance(content, dict) else None
        told = counts.get("prompt_tokens") if isinstance(counts, dict) else None
        if not isinstance(told, int):
            raise ModelError(
                "the server does not say how many tokens a prompt has (usage.prompt_tokens), so that nobody knows "
                "whether it puts a BOS before a text: it cannot be used."
            )
        if told == count and self._bos is not None:
            raise ModelError(
                f"the server puts no BOS before a text, and one was asked for: say {argument('bos', 'never')}, or have "
                "it served so that it does."
            )
        if told == count + 1 and self._bos is None:
            raise ModelError(
                "the server puts a BOS before every text, and none was asked for: say "
                f"{argument('bos', 'auto')}, or have it served without."
            )

    def _well_placed(self, content: Any, count: int) -> bool:
        """What it writes greedily must be the likeliest where it stands, or its lists stand at other tokens' places.

        False: it writes nothing, so nothing can be told.
        """
        listed = (first_choice(content) or {})["logprobs"]
        start = count + (self._opener is not None and listed["tokens"][0] == self._opener)
        written = [
            (log_prob_of(own), [log_prob_of(each) for each in top.values()])
            for own, top in zip(listed["token_logprobs"][start:], listed["top_logprobs"][start:], strict=False)
            if isinstance(top, dict)
        ]
        if any(own < max(top, default=0.0) - SLACK for own, top in written):
            raise Odd(
                "lists log-probs at the places of other tokens: what it writes greedily is not the likeliest where it "
                "stands (llama-cpp-python's does so where the model has no BOS)"
            )
        return bool(written)
