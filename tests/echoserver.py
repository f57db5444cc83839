"""A stand-in for servers that echo prompts with their log-probs, in the shape that llama-cpp-python's has.

Prompts are texts, to which it adds its BOS unless told otherwise; lists are keyed by decoded text, so that tokens
with the same text are one entry; `usage.prompt_tokens` counts the BOS, and the echoed tokens leave it out. The real
server is tried in tests/real/test_server.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.vllmserver import NAME, Faults, VllmServer


class EchoServer(VllmServer):
    """`bos`: whether it puts one before texts. `merged`: so many of a list's entries have one text. `shifted`: lists
    stand one place too far, as llama-cpp-python's do without a BOS. `shown`: whether log-probs are listed at all.
    `silent`: after how many prompts it begins to write; nothing before."""

    def __init__(
        self, model: Any, *, bos: bool = True, merged: int = 0, shifted: bool = False, shown: bool = True,
        silent: int = 0, **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(model, **more)
        self.bos, self.merged, self.shifted, self.shown, self.silent = bos, merged, shifted, shown, silent

    @property
    def model(self) -> str:
        return f"server:{self.url}/{NAME}"

    def completion(self, body: dict[str, Any], faults: Faults) -> tuple[int, dict[str, Any]]:
        if body["model"] != NAME:
            return 404, self.error(f"Model {body['model']} not found", 404)
        if not isinstance(body["prompt"], str):
            return 500, self.error("22 validation errors: Input should be a valid string", 500, "internal_server_error")
        opener = [self.tokenizer.bos_token_id] if self.bos else []
        tokens = [*opener, *self.tokenizer.encode(body["prompt"], add_special_tokens=False)]
        if len(tokens) >= self.max_model_len:
            told = f"This model's maximum context length is {self.max_model_len} tokens, however you requested more."
            return 400, self.error(told, 400)
        if not self.shown and body.get("logprobs") is not None:
            told = "logprobs is not supported for models created with logits_all=False"
            return 500, self.error(told, 500, "internal_server_error")
        (written,) = self.written(tokens, body, body["max_tokens"], np.random.default_rng(body["seed"]))
        written = written if len(self.bodies) > self.silent else []
        every = [*tokens, *written]
        text = (body["prompt"] if body.get("echo") else "") + self.tokenizer.decode(written)
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": "length", "logprobs": None}
        if body.get("logprobs") is not None:
            choice["logprobs"] = self.columns(every, len(opener), body["logprobs"])
        usage = {"prompt_tokens": len(tokens), "completion_tokens": len(written)}
        return 200, {"object": "text_completion", "model": NAME, "choices": [choice], "usage": usage}

    def columns(self, every: list[int], opener: int, count: int) -> dict[str, Any]:
        log_probs = self.logits([every])[0].log_softmax(-1)
        count = min(count, self.faults.capped or count)
        shown = every[opener:]
        texts = [self.tokenizer.decode([token]) for token in shown]
        own: list[Any] = []
        tops: list[Any] = []
        for place, (token, text) in enumerate(zip(shown, texts, strict=True), opener):
            row = log_probs[min(place - 1 + self.shifted, len(every) - 1)] if place else log_probs[0]
            values, ids = row.topk(count)
            names = [self.text_of(int(i)) for i in ids]
            names[: self.merged] = ["same"] * self.merged
            top = dict(zip(names, values.tolist(), strict=True)) | {text: float(row[token])}
            own.append(float(row[token]))
            tops.append(top)
        own[0], tops[0] = None, None
        return {"tokens": texts, "token_logprobs": own, "top_logprobs": tops}
